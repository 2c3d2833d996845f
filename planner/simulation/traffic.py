"""Traffic to simulate, who sends to whom: exchanges of a training step, permutations, files, and a planned site's."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from planner.cluster import parse
from planner.errors import InputError
from planner.files import read_text
from planner.instance.base_types import range_of
from planner.physics.network.clos_fabric import Design
from planner.physics.plan_physics import PlanPhysics, layout_faults
from planner.plan.plan import Plan
from planner.simulation import simulated_routes
from planner.simulation.simulated_routes import Flows, Ints, Tree, joined

MAX_FLOWS = 1 << 22  # of an all-to-all: a few GB at work
HEADER = ["src", "dst", "bytes"]


def permutation(slots: Ints, size: float, seed: int) -> Flows:
    """Return permutation traffic: every host sends to one other and receives from one, on a random cycle of all."""
    order = slots[simulated_routes.order(len(slots), seed, 1)]
    return _flows(order, np.roll(order, -1), size)


def p2p(groups: list[Ints], size: float, *, wrap: bool = False) -> Flows:
    """Return pipeline traffic from rank q of every stage to rank q of the next; `wrap`: the last sends to the first."""
    pairs = [*pairwise(groups), *([(groups[-1], groups[0])] if wrap and len(groups) > 1 else [])]
    return joined([_flows(one[: len(other)], other[: len(one)], size) for one, other in pairs])


def allreduce(groups: list[Ints], size: float) -> Flows:
    """Return the traffic of one step of ring all-reduces, a ring to each group; `size` is the buffer of a group."""
    several = (group for group in groups if len(group) > 1)
    return joined([_flows(group, np.roll(group, -1), size / len(group)) for group in several])


def allreduce_steps(groups: list[Ints]) -> int:
    """Count the steps of ring all-reduce traffic of the largest group: 2·(n - 1)."""
    return 2 * (max((len(group) for group in groups), default=1) - 1)


def alltoall(groups: list[Ints], size: float) -> Flows:
    """Return all-to-all traffic of every host to its group at once; `size` is the total that one host sends."""
    flows = sum(len(group) * (len(group) - 1) for group in groups)
    if flows > MAX_FLOWS:
        raise InputError(f"alltoall: {flows:,} flows > {MAX_FLOWS:,}; take fewer hosts or smaller groups")
    parts = list[Flows]()
    for group in (group for group in groups if len(group) > 1):
        others = np.arange(1, len(group))
        target = group[(np.arange(len(group))[:, None] + others) % len(group)].ravel()
        parts.append(_flows(np.repeat(group, len(others)), target, size / len(others)))
    return joined(parts)


def blocks(slots: Ints, size: int) -> list[Ints]:
    """Return hosts cut into groups of neighbours that exchange traffic; the last may be smaller."""
    return [slots[k : k + size] for k in range(0, len(slots), size)]


def from_file(path: Path, slots: Ints) -> Flows:
    """Read traffic from a CSV file with the header src,dst,bytes; hosts count from 0."""
    expected = f"give a CSV file with the header {','.join(HEADER)}"
    try:
        rows = list(csv.reader(io.StringIO(read_text(path, expected), newline="")))
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as a CSV file ({error}); {expected}") from None
    if not rows or [cell.strip() for cell in rows[0]] != HEADER:
        first = ",".join(rows[0]).strip() if rows else ""
        raise InputError(f"{path}: line 1: must be the header {','.join(HEADER)} (is {first or 'empty'}); add it")
    flows = list[tuple[int, int, float]]()
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        where = f"{path}: line {number}"
        if len(row) != len(HEADER):
            raise InputError(f"{where}: must have {len(HEADER)} values (has {len(row)}); write {','.join(HEADER)}")
        ends = []
        for name, text in zip(HEADER, row[:2], strict=False):
            try:
                host = int(text)
            except ValueError:
                host = -1
            if not 0 <= host < len(slots):
                known = f"a host from 0 to {len(slots) - 1}"
                raise InputError(f"{where}: {name}: must be {known} (is {text.strip()!r}); fix it there")
            ends.append(host)
        try:
            size = float(row[2])
        except ValueError:
            size = math.nan
        low, high = range_of("bytes", whole=False)
        if not low <= size <= high:
            given = row[2].strip()
            raise InputError(f"{where}: bytes: must be a number from {low:g} to {high:g} (is {given!r}); fix it there")
        if ends[0] == ends[1]:
            raise InputError(f"{where}: dst: must be another host than src (both are {ends[0]}); remove the line")
        flows.append((ends[0], ends[1], size))
    if not flows:
        raise InputError(f"{path}: has no flows; add lines such as 0,1,1e6")
    source, target, sizes = (np.asarray(column) for column in zip(*flows, strict=True))
    return Flows(source=slots[source], target=slots[target], size=sizes.astype(float))


def _flows(source: Ints, target: Ints, size: float) -> Flows:
    return Flows(source=source, target=target, size=np.full(len(source), float(size)))


def failed_cables(tree: Tree, failed: int | Sequence[int], seed: int) -> Ints:
    """Return the sorted numbers of failed cables of a simulation. InputError: more, or others, than there are."""
    cables = sum(tree.cables[1:]) * len(tree.planes)
    if isinstance(failed, int):
        if not 0 <= failed <= cables:
            known = f"from 0 to {cables}, the cables between switches"
            raise InputError(f"--failed-links {failed}: must be {known}; give another number")
        return np.sort(simulated_routes.order(cables, seed, 9)[:failed])
    wrong = [cable for cable in failed if not 0 <= cable < cables]
    if wrong:
        known = f"the number of a cable between switches (there are {cables})"
        raise InputError(f"failed_cables: {wrong[0]} is not {known}; give one from 0 to {cables - 1}")
    return np.unique(np.asarray(failed, np.int64))


MAX_HOSTS = 65_536  # simulated where no number is given: seconds for a seed
MAX_PLANES = 64  # of a switch: links are held plane by plane, and no product has more than 8


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedPart:
    """The part of a site that is simulated: the GPUs of some indices in the first racks."""

    tree: Tree
    slots: Ints  # place in the tree of every rack (row) and index (column)
    described: str


def tree_of_design(
    design: Design, *, planes: int = 1, racks: int | None = None, rails: int | None = None
) -> SimulatedPart:
    """Return the part of a design to simulate, its first `racks` and `rails`: subtrees are pods, then zones."""
    racks, rails = min(racks or design.racks, design.racks), min(rails or design.rails, design.rails)
    rack, index = np.arange(racks)[:, None], np.arange(rails * design.rail_gpus)[None, :]
    rail, own = index // design.rail_gpus, index % design.rail_gpus
    gbps, shares = [design.nic_gbps, *[design.link_gbps] * (design.tiers - 1)], (1 / planes,) * planes
    rates = tuple(rate * 1e9 / 8 for rate in gbps)
    if design.tiers == 1:
        slots = rack * design.rails * design.rail_gpus + index
        wired: dict[str, Any] = {"down": (design.endpoint_links,), "up": (1,), "bundle": (1,)}
    else:
        domain, x, y = rack // design.domain_racks, design.rails_per_pod, design.domains_per_pod
        row, column, rows = domain // y, rail // x, -(-design.domains // y)
        pod = column * rows + row
        if design.zones:
            along, across = design.domains_per_zone // y, design.rails_per_zone // x
            zone = column // across * -(-design.domains // design.domains_per_zone) + row // along
            pod = (zone * across + column % across) * along + row % along
        leaf = (pod * x + rail % x) * y + domain % y
        slots = leaf * design.leaf_down + rack % design.domain_racks * design.rail_gpus + own
        bundles = ((design.spine_up, design.spine_bundle), (design.core_up, design.core_bundle))
        if design.tiers > 3 and design.core_boxes:  # each position of a core has its part of the core's uplinks
            rates = (*rates[:-1], rates[-1] * design.core_boxes / design.core_positions)
        wired = {
            "down": (design.leaf_down, x * y, design.core_pods, design.zones)[: design.tiers],
            "up": (1, design.spines_per_pod, *(up // bundle for up, bundle in bundles if up)),
            "bundle": (1, design.leaf_bundle, design.spine_bundle, design.core_bundle)[: design.tiers],
        }
    every = "all" if racks == design.racks else "the first"
    gpus = f"GPU indices 0 to {rails * design.rail_gpus - 1} of {design.rails * design.rail_gpus}"
    what = f"{gpus} in {every} {racks:,} of {design.racks:,} racks"
    if racks == design.racks and rails < design.rails and design.tiers > 1:
        one_pod = design.domains_per_pod >= design.domains and rails == design.rails_per_pod
        pods = "whole zones" if design.zones else "one pod" if one_pod else "whole pods"
        what += f" ({pods}; traffic that keeps its index loads no link of the others)"
    elif racks < design.racks:
        what += ": a sample, on which what would go to the other racks is missing"
    tree = Tree(**wired, rates=rates, planes=shares, slots=slots.ravel())
    return SimulatedPart(tree=tree, slots=slots, described=what)


def part_of_plan(plan: Plan, site: str | None, hosts: int | None, where: str = "simulate") -> tuple[str, SimulatedPart]:
    """Return a plan's site and its part to simulate: by default the pods, or zones, of the first GPU indices.

    All racks where they are few enough. InputError: the plan has no such site, or no fabric, or fewer hosts.
    """
    physics = PlanPhysics(plan=plan)
    if not physics.nic_known:
        raise InputError(f"{where}: the plan's accelerator is only a name; solve the instance again")
    if not physics.wired or plan.fabric is None:
        raise InputError(f"{where}: the plan has no fabric that can be wired; solve an instance with a `network` part")
    name = site or max(sorted(physics.wired), key=lambda site: physics.wired[site].racks)
    if name not in physics.wired:
        raise InputError(f"--site {name!r}: is no site of the plan; choose one of {', '.join(sorted(physics.wired))}")
    design, switch = physics.wired[name], physics.switches[plan.fabric.sites[name].switch]
    if design.grouped:
        family = plan.fabric.sites[name].family
        raise InputError(f"simulate: {name} has a {family}; only trees are simulated, so plan with other families")
    if switch.planes > MAX_PLANES:
        raise InputError(f"simulate: {switch.name} has {switch.planes:,} planes; at most {MAX_PLANES:,} are simulated")
    every = design.rails * design.rail_gpus * design.racks
    if hosts is not None and hosts > every:
        raise InputError(f"--hosts {hosts}: {name} has {every:,}, a GPU each; give fewer, or leave --hosts out")
    part = part_of_design(design, switch.planes, hosts)
    if hosts not in (None, part.tree.hosts):
        part = replace(part, described=f"{part.described} (for {hosts:,} hosts: pods and racks are whole)")
    return name, part


def part_of_design(design: Design, planes: int, hosts: int | None = None, *, most: int = MAX_HOSTS) -> SimulatedPart:
    """Return a part of a design to simulate: about `hosts` in whole pods or zones, else a block of at most `most`."""
    block = design.rails_per_zone or design.rails_per_pod or design.rails
    wanted = hosts or min(block * design.rail_gpus * design.racks, most)
    rails = min(design.rails, -(-max(1, wanted // design.racks) // (block * design.rail_gpus)) * block)
    racks = min(design.racks, -(-wanted // (rails * design.rail_gpus)))
    return tree_of_design(design, planes=planes, racks=racks, rails=rails)


def stages(plan: Plan, site: str, part: SimulatedPart) -> list[list[Ints]]:
    """Return the simulated slots of every stage's racks in rank order, for each GPU index, within the sample."""
    placed = plan.placement.sites.get(site) if plan.placement else None
    if placed is None or plan.layout is None:
        raise InputError(f"simulate: nothing is placed at {site!r}; choose another site or --pattern permutation")
    faults = list(layout_faults(plan.layout))
    if faults:
        raise InputError(f"layout: {faults[0]}; see what `planner check` says of the plan")
    if plan.layout.rack_stages > len(placed.assignment):
        have = f"{plan.layout.rack_stages:,} stages, {len(placed.assignment):,} pieces placed at {site}"
        raise InputError(f"placement: {have}; see what `planner check` says of the plan")
    ranks: list[list[int]] = [[] for _ in range(plan.layout.rack_stages)]
    for fragment in placed.assignment:
        if not 0 <= fragment.stage < len(ranks):
            problem = f"stage {fragment.stage} at {site}: the layout has {len(ranks)} stages"
            raise InputError(f"placement: {problem}; see what `planner check` says of the plan")
        try:
            ranks[fragment.stage] += [rack for rack in parse(fragment.racks) if rack < len(part.slots)]
        except ValueError as error:
            raise InputError(f"placement: {error}; see what `planner check` says of the plan") from None
    return [[part.slots[np.asarray(racks, np.int64), rail] for racks in ranks] for rail in range(part.slots.shape[1])]


def overlap(plan: Plan, site: str) -> str:
    """Write whether traffic of sends and of rings uses links at once under a plan's schedule."""
    layout, metrics = plan.layout, PlanPhysics(plan=plan).metrics
    if layout is None or metrics is None or layout.rack_stages < 2:
        return "no: there are no pipeline sends between racks"
    if layout.racks_per_stage_by_site.get(site, 0) < 2:
        return "no: there are no rings between racks"
    met, wait = metrics.sends_beside_rings, metrics.breakdown_seconds.get("ring_wait", 0.0)
    if not met:
        return "only between stages: a stage's rings follow its last send, while stages before it still send"
    when = "of the last micro-batch" if layout.zero_stage < 2 else "that no pass hides"
    return f"yes: {met:,.0f} sends of a step, those {when}, run beside rings and wait {wait * 1e3:.3g} ms for them"
