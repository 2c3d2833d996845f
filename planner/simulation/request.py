"""Simulation requests: a plan's site or a fabric, with a pattern of flows on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.errors import InputError
from planner.files import read_json
from planner.instance.read import complaints
from planner.plan.files import plan_of
from planner.plan.plan import Plan
from planner.simulation import from_plan, traffic
from planner.simulation.fat_tree import Fabric, load_fabric, tree_of_fabric
from planner.simulation.flow_times import TransportName
from planner.simulation.live_cables import Flows, joined
from planner.simulation.rng import Ints
from planner.simulation.run import Pattern, SimulationRequest

PATTERNS = ("permutation", "p2p", "allreduce", "alltoall")
TRANSPORTS: dict[str, TransportName] = {"ecmp": "ecmp", "spray": "spray", "adaptive": "adaptive"}
# Of a fabric's flows: 3 ms at 800 Gbps, the exchange of figure 1b of Agache et al. 2024 (arXiv 2407.12819).
FLOW_BYTES = 300e6
GROUP = 16  # hosts of a group where no placement forms groups


@dataclass(frozen=True, kw_only=True)
class Options:
    """The pattern and transport of a request, and its limits; None takes the plan's or the usual."""

    pattern: str
    transport: TransportName
    site: str | None
    failed: int
    hosts: int | None
    size: float | None
    group: int | None


def transport_named(name: str) -> TransportName:
    """Return a transport by its name."""
    if name not in TRANSPORTS:
        raise InputError(f"--transport {name}: must be one of {', '.join(TRANSPORTS)}; choose one")
    return TRANSPORTS[name]


def simulation_request(given: "Plan | Fabric | Mapping[str, Any] | str | Path", options: Options) -> SimulationRequest:
    """Return the request for a plan or a fabric, cut to the hosts wanted, with the pattern laid on it."""
    network = _read(given)
    return _of_plan(network, options) if isinstance(network, Plan) else _of_fabric(network, options)


def _of_fabric(fabric: Fabric, o: Options) -> SimulationRequest:
    """Return the request for a pattern on a fabric that is no plan."""
    if o.site is not None:
        raise InputError(f"--site {o.site}: a fabric has no sites; give a plan, or leave --site out")
    if o.hosts is not None:
        fabric = load_fabric(fabric.model_dump() | {"hosts": o.hosts})
    if o.failed and fabric.failed_cables:
        listed = f"the fabric lists {len(fabric.failed_cables)} failed cables itself"
        raise InputError(f"--failed-links {o.failed}: {listed}; leave one of them out")
    tree = tree_of_fabric(fabric)
    groups = traffic.blocks(tree.slots, o.group or GROUP)
    shape = "/".join(str(d) for d in tree.down[:-1]) or str(tree.down[0])
    tiers = f"{fabric.tiers} tier(s) of {fabric.ports_per_switch}-port switches"
    return SimulationRequest(
        name=fabric.name,
        simulated=f"the whole fabric: {tiers}, {shape} down, {len(tree.planes)} plane(s)",
        patterns=_whole_rings([_pattern(name, tree.slots, groups, o.size or FLOW_BYTES) for name in names(o.pattern)]),
        tree=tree,
        transport=o.transport,
        failed=o.failed or fabric.failed_cables or 0,
    )


def names(pattern: str) -> list[str]:
    """Return the patterns that run at once: several by plus signs, or the path of a file as it is."""
    several = pattern.split("+")
    return several if set(several) <= set(PATTERNS) else [pattern]


def _read(given: "Plan | Fabric | Mapping[str, Any] | str | Path") -> Plan | Fabric:
    """Return the plan or the fabric that is given; a plan contains its instance."""
    if isinstance(given, (Plan, Fabric)):
        return given
    if isinstance(given, Mapping):
        return _plan(given) if "instance" in given else load_fabric(given)
    data = read_json(Path(given))
    where = str(given)
    return plan_of(data, where) if isinstance(data, dict) and "instance" in data else load_fabric(data, where)


def _plan(given: Mapping[str, Any]) -> Plan:
    """Return the plan that a dict gives."""
    try:
        return Plan.model_validate(dict(given))
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, "plan", Plan, given))) from None


def _of_plan(plan: Plan, o: Options) -> SimulationRequest:
    """Return the request for a planned site: pipeline sends and all-reduces as placed, of the bytes of the layout."""
    name, part = from_plan.part_of_plan(plan, o.site, o.hosts)
    patterns = _whole_rings([_planned(plan, name, part, pattern, o) for pattern in names(o.pattern)])
    both = {"p2p", "allreduce"} <= {p.name for p in patterns} and plan.layout is not None
    return SimulationRequest(
        name=f"{plan.instance.name}, {name}",
        simulated=part.described,
        patterns=patterns,
        tree=part.tree,
        transport=o.transport,
        failed=o.failed,
        overlap=from_plan.overlap(plan, name) if both else None,
    )


def _planned(plan: Plan, site: str, part: from_plan.Part, pattern: str, o: Options) -> Pattern:
    """Return a pattern on the part of a planned site that is simulated."""
    layout, slots = plan.layout, part.tree.slots
    if plan.fabric is None:
        raise InputError("simulate: the plan has no fabric; solve the instance again")
    rate, fabric = plan.instance.hardware.gpu_nic_bytes_per_second, plan.fabric.sites[site]
    bytes_sent = o.size or (layout.metrics.pipeline_send_nic_seconds * rate if layout else 0.0) or FLOW_BYTES
    together = max((x.together_slowdown for x in fabric.shared_links), default=None)
    if layout is not None and pattern == "p2p" and o.group is None:
        wrap = layout.virtual_stages > 1
        sends = [traffic.p2p(stages, bytes_sent, wrap=wrap) for stages in from_plan.stages(plan, site, part)]
        return Pattern(
            name=pattern,
            flows=_same(joined(sends), pattern),
            assumed=fabric.pipeline_send_slowdown,
            assumed_together=together,
        )
    if layout is not None and pattern == "allreduce" and o.group is None:
        groups = [g for stages in from_plan.stages(plan, site, part) for g in stages]
        steps = traffic.allreduce_steps(groups)
        buffer = o.size or layout.metrics.allreduce_layer_seconds * rate * (steps / 2 + 1) / max(steps, 1)
        flows = _same(traffic.allreduce(groups, buffer or FLOW_BYTES), pattern)
        return Pattern(
            name=pattern, flows=flows, steps=steps, assumed=fabric.allreduce_slowdown, assumed_together=together
        )
    return _pattern(pattern, slots, traffic.blocks(slots, o.group or GROUP), bytes_sent)


def _pattern(pattern: str, slots: Ints, groups: list[Ints], size: float) -> Pattern:
    """Return a pattern over hosts and groups of neighbours; the name of none is the path of a file."""
    if pattern == "permutation":
        return Pattern(name=pattern, flows=lambda seed: traffic.permutation(slots, size, seed))
    if pattern == "p2p":
        return Pattern(name=pattern, flows=_same(traffic.p2p(groups, size), pattern))
    if pattern == "allreduce":
        flows = _same(traffic.allreduce(groups, size), pattern)
        return Pattern(name=pattern, flows=flows, steps=traffic.allreduce_steps(groups))
    if pattern == "alltoall":
        return Pattern(name=pattern, flows=_same(traffic.alltoall(groups, size), pattern))
    return Pattern(name=pattern, flows=_same(traffic.from_file(Path(pattern), slots), pattern))


def _whole_rings(patterns: list[Pattern]) -> tuple[Pattern, ...]:
    """Return patterns that run at once, rings with all their steps: each member sends them to the same neighbour."""
    if len(patterns) == 1:
        return tuple(patterns)

    def whole(p: Pattern) -> Pattern:
        one = p.flows(0)
        return replace(p, flows=_same(replace(one, size=one.size * p.steps), p.name), steps=1)

    return tuple(whole(p) if p.steps > 1 else p for p in patterns)


def _same(flows: Flows, pattern: str) -> Callable[[int], Flows]:
    """Return the same flows for every seed."""
    if len(flows) == 0:
        raise InputError(f"--pattern {pattern}: no host sends to another; give more hosts, or smaller --group")
    return lambda _: flows
