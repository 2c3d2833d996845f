"""Turn what the user asks into a simulation: a plan's site or a fabric, with a pattern of flows on it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.instance.hardware import Accelerator
from planner.instance.read import read_json, validated
from planner.plan.files import read_plan
from planner.plan.plan import Plan
from planner.simulation import from_plan, traffic
from planner.simulation.fat_tree import Fabric, load_fabric, tree_of_fabric
from planner.simulation.living_cables import Flows
from planner.simulation.rng import Ints
from planner.simulation.run import Question, TransportName

PATTERNS = ("permutation", "p2p", "allreduce", "alltoall")
TRANSPORTS: dict[str, TransportName] = {"ecmp": "ecmp", "spray": "spray", "adaptive": "adaptive"}
FLOW_BYTES = (
    300e6  # of a fabric's flows: 3 ms at 800 Gbps, the exchange of figure 1b of Agache et al. 2024 (arXiv 2407.12819)
)
GROUP = 16  # hosts of a group where no placement forms groups


def transport_named(name: str) -> TransportName:
    """Return a transport by its name."""
    if name not in TRANSPORTS:
        raise InputError(f"--transport {name}: must be one of {', '.join(TRANSPORTS)}; choose one")
    return TRANSPORTS[name]


def ask(
    given: "Plan | Fabric | Mapping[str, Any] | str | Path",
    *,
    pattern: str,
    transport: TransportName,
    site: str | None,
    failed: int,
    hosts: int | None,
    size: float | None,
    group: int | None,
) -> Question:
    """Read the network, cut it to the hosts asked for and lay the pattern on it."""
    held = _read(given)
    if isinstance(held, Plan):
        return _of_plan(held, pattern, transport, site=site, failed=failed, hosts=hosts, size=size, group=group)
    if site is not None:
        raise InputError(f"--site {site}: a fabric has no sites; give a plan, or leave --site out")
    if hosts is not None:
        held = load_fabric(held.model_dump() | {"hosts": hosts})
    tree = tree_of_fabric(held)
    draw, steps = _flows(pattern, tree.slots, traffic.blocks(tree.slots, group or GROUP), size or FLOW_BYTES)
    out: int | tuple[int, ...] = failed or held.failed_cables or 0
    if failed and held.failed_cables:
        raise InputError(
            f"--failed-links {failed}: the fabric lists {len(held.failed_cables)} failed cables itself; leave one of them out"
        )
    shape = "/".join(str(d) for d in tree.down[:-1]) or str(tree.down[0])
    described = f"the whole fabric: {held.tiers} tier(s) of {held.ports_per_switch}-port switches, {shape} down, {len(tree.planes)} plane(s)"
    return Question(
        name=held.name,
        simulated=described,
        pattern=pattern,
        tree=tree,
        flows=draw,
        transport=transport,
        failed=out,
        steps=steps,
    )


def _read(given: "Plan | Fabric | Mapping[str, Any] | str | Path") -> Plan | Fabric:
    """Tell a plan from a fabric: a plan holds its instance."""
    if isinstance(given, (Plan, Fabric)):
        return given
    if isinstance(given, Mapping):
        return _plan(given) if "instance" in given else load_fabric(given)
    data = read_json(Path(given))
    return read_plan(Path(given)) if isinstance(data, dict) and "instance" in data else load_fabric(Path(given))


def _plan(given: Mapping[str, Any]) -> Plan:
    """Read a plan that is given as a dict."""
    return validated(Plan, dict(given), "plan")


def _of_plan(
    plan: Plan,
    pattern: str,
    transport: TransportName,
    *,
    site: str | None,
    failed: int,
    hosts: int | None,
    size: float | None,
    group: int | None,
) -> Question:
    """Lay a pattern on a planned site: pipeline exchange and rings as its placement has them, of the bytes that its layout sends."""
    name, part = from_plan.part_of_plan(plan, site, hosts)
    gpu, layout = plan.instance.hardware.accelerator, plan.layout
    if layout is None or plan.fabric is None or not isinstance(gpu, Accelerator):
        raise InputError("simulate: the plan has no layout; solve the instance again")
    m, slots, assumed, wrap = layout.metrics, part.tree.slots, None, layout.virtual_stages > 1
    bytes_sent = size or (m.pipeline_send_nic_seconds * gpu.nic_bytes_per_second or FLOW_BYTES)
    draw: Callable[[int], Flows]
    steps = 1
    if pattern == "p2p" and group is None:
        flows = joined([traffic.p2p(stages, bytes_sent, wrap=wrap) for stages in from_plan.stages(plan, name, part)])
        draw, assumed = _same(flows, pattern), plan.fabric.sites[name].pipeline_send_slowdown
    elif pattern == "allreduce" and group is None:
        rings = [g for stages in from_plan.stages(plan, name, part) for g in stages]
        steps = traffic.ring_steps(rings)
        buffer = size or m.allreduce_layer_seconds * gpu.nic_bytes_per_second * (steps / 2 + 1) / max(steps, 1)
        draw, assumed = (
            _same(traffic.allreduce(rings, buffer or FLOW_BYTES), pattern),
            plan.fabric.sites[name].allreduce_slowdown,
        )
    else:
        draw, steps = _flows(pattern, slots, traffic.blocks(slots, group or GROUP), bytes_sent)
    return Question(
        name=f"{plan.instance.name}, {name}",
        simulated=part.described,
        pattern=pattern,
        tree=part.tree,
        flows=draw,
        transport=transport,
        failed=failed,
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
        return _same(traffic.allreduce(groups, size), pattern), traffic.ring_steps(groups)
    if pattern == "alltoall":
        return _same(traffic.alltoall(groups, size), pattern), 1
    return _same(traffic.from_file(Path(pattern), slots), pattern), 1


def _same(flows: Flows, pattern: str) -> Callable[[int], Flows]:
    """Draw the same flows for every seed."""
    if len(flows) == 0:
        raise InputError(f"--pattern {pattern}: no host sends to another; give more hosts, or smaller --group")
    return lambda _: flows


def joined(parts: list[Flows]) -> Flows:
    """Put flows of several indices together."""
    source, target, size = zip(*((p.source, p.target, p.size) for p in parts), strict=True)
    return Flows(source=np.concatenate(source), target=np.concatenate(target), size=np.concatenate(size))
