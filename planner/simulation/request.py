"""Simulation requests: a plan's site or a fabric, with a pattern of flows on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner.errors import InputError
from planner.files import read_json
from planner.instance.read import complaints
from planner.plan.files import plan_of
from planner.plan.plan import Plan
from planner.simulation import from_plan, traffic
from planner.simulation.fat_tree import Fabric, load_fabric, tree_of_fabric
from planner.simulation.flow_times import TransportName
from planner.simulation.live_cables import Flows
from planner.simulation.rng import Ints
from planner.simulation.run import SimulationRequest

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
    flows, steps = _flows(o.pattern, tree.slots, traffic.blocks(tree.slots, o.group or GROUP), o.size or FLOW_BYTES)
    shape = "/".join(str(d) for d in tree.down[:-1]) or str(tree.down[0])
    tiers = f"{fabric.tiers} tier(s) of {fabric.ports_per_switch}-port switches"
    return SimulationRequest(
        name=fabric.name,
        simulated=f"the whole fabric: {tiers}, {shape} down, {len(tree.planes)} plane(s)",
        pattern=o.pattern,
        tree=tree,
        flows=flows,
        transport=o.transport,
        failed=o.failed or fabric.failed_cables or 0,
        steps=steps,
    )


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
    layout, slots = plan.layout, part.tree.slots
    if plan.fabric is None:
        raise InputError("simulate: the plan has no fabric; solve the instance again")
    rate, fabric = plan.instance.hardware.gpu_nic_bytes_per_second, plan.fabric.sites[name]
    bytes_sent = o.size or (layout.metrics.pipeline_send_nic_seconds * rate if layout else 0.0) or FLOW_BYTES
    assumed, steps = None, 1
    if layout is not None and o.pattern == "p2p" and o.group is None:
        wrap = layout.virtual_stages > 1
        sends = [traffic.p2p(stages, bytes_sent, wrap=wrap) for stages in from_plan.stages(plan, name, part)]
        flows, assumed = _same(joined(sends), o.pattern), fabric.pipeline_send_slowdown
    elif layout is not None and o.pattern == "allreduce" and o.group is None:
        groups = [g for stages in from_plan.stages(plan, name, part) for g in stages]
        steps = traffic.allreduce_steps(groups)
        buffer = o.size or layout.metrics.allreduce_layer_seconds * rate * (steps / 2 + 1) / max(steps, 1)
        flows = _same(traffic.allreduce(groups, buffer or FLOW_BYTES), o.pattern)
        assumed = fabric.allreduce_slowdown
    else:
        flows, steps = _flows(o.pattern, slots, traffic.blocks(slots, o.group or GROUP), bytes_sent)
    return SimulationRequest(
        name=f"{plan.instance.name}, {name}",
        simulated=part.described,
        pattern=o.pattern,
        tree=part.tree,
        flows=flows,
        transport=o.transport,
        failed=o.failed,
        steps=steps,
        assumed=assumed,
    )


def _flows(pattern: str, slots: Ints, groups: list[Ints], size: float) -> tuple[Callable[[int], Flows], int]:
    """Return how to draw a pattern's flows, and how often the exchange is repeated."""
    if pattern == "permutation":
        return (lambda seed: traffic.permutation(slots, size, seed)), 1
    if pattern == "p2p":
        return _same(traffic.p2p(groups, size), pattern), 1
    if pattern == "allreduce":
        return _same(traffic.allreduce(groups, size), pattern), traffic.allreduce_steps(groups)
    if pattern == "alltoall":
        return _same(traffic.alltoall(groups, size), pattern), 1
    return _same(traffic.from_file(Path(pattern), slots), pattern), 1


def _same(flows: Flows, pattern: str) -> Callable[[int], Flows]:
    """Return the same flows for every seed."""
    if len(flows) == 0:
        raise InputError(f"--pattern {pattern}: no host sends to another; give more hosts, or smaller --group")
    return lambda _: flows


def joined(parts: list[Flows]) -> Flows:
    """Return the flows of several GPU indices together."""
    source, target, size = zip(*((p.source, p.target, p.size) for p in parts), strict=True)
    return Flows(source=np.concatenate(source), target=np.concatenate(target), size=np.concatenate(size))
