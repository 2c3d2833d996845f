"""Simulation requests and their results: patterns of traffic over a transport on a plan's site or a fabric, by seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from planner.cluster.hostlists import parse
from planner.errors import InputError
from planner.files import csv_rows, read_json, read_text
from planner.instance.base_types import Frozen
from planner.instance.plausible_ranges import range_of
from planner.physics import Floats, Ints
from planner.physics.network.clos_fabric import Design
from planner.physics.plan_physics import PlanPhysics, layout_faults
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of
from planner.simulation import simulated_routes
from planner.simulation.flow_times import TransportName, flow_seconds, ideal_seconds
from planner.simulation.simulated_routes import Fabric, Flows, Tree, equal_flows, joined, load_fabric

REPORT_STEP = 0.05  # share of the bytes between two lines of progress
PATTERNS = ("permutation", "p2p", "allreduce", "alltoall")
TRANSPORTS: dict[str, TransportName] = {"ecmp": "ecmp", "spray": "spray", "adaptive": "adaptive"}
# Of a fabric's flows: 3 ms at 800 Gbps, the exchange of figure 1b of Agache et al. 2024 (arXiv 2407.12819).
FLOW_BYTES = 300e6
GROUP = 16  # hosts of a group where no placement forms groups
PLACED = "the plan's placement"
MAX_FLOWS = 1 << 22  # of an all-to-all: a few GB at work
HEADER = ["src", "dst", "bytes"]
MAX_HOSTS = 65_536  # simulated where no number is given: seconds for a seed
MAX_PLANES = 64  # of a switch: links are held plane by plane, and no product has more than 8


class Percentiles(Frozen):
    """Percentiles of a simulation's times or ratios."""

    p50: float
    p90: float
    p99: float
    max: float


class SeedRun(Frozen):
    """A simulation's result of one seed: other hashes, another permutation, other failed links."""

    seed: int
    ideal_seconds: float = Field(
        description="Time of the exchange if every link as built were loaded evenly: no transport is faster."
    )
    tail_seconds: float = Field(description="When the last flow ended.")
    slowdown: float = Field(description="Tail over ideal.")
    line_rates: float = Field(
        description="Tail over the time that all bytes of the busiest host, sent or received, take at its rate."
    )
    fct_seconds: Percentiles = Field(description="Completion times of the flows.")


class PatternTail(Frozen):
    """A simulation's slowest flow of one of several patterns at once, over its busiest host's time at line rate."""

    pattern: str
    flows: int
    mean_line_rates: float = Field(description="With the other patterns, mean of the seeds.")
    alone_line_rates: float = Field(description="The same with nothing else on the network.")
    assumed_line_rates: float | None = Field(None, description="As the plan assumes alone, transport included.")
    assumed_together_line_rates: float | None = Field(
        None, description="As the plan states of the links where its schedule lets sends and rings meet."
    )


class Simulation(Frozen):
    """The result of simulating an exchange on a network, over some seeds."""

    name: str
    simulated: str = Field(description="What of the network is simulated.")
    pattern: str
    transport: TransportName
    hosts: int
    flows: int
    steps: int = Field(1, description="Times that the exchange is repeated: the steps of a ring; times are of one.")
    flow_bytes: float = Field(description="Of the largest flow.")
    host_bytes: float = Field(description="Of the busiest host, sent or received, whichever is more.")
    failed_links: int
    runs: tuple[SeedRun, ...]
    fct_seconds: Percentiles = Field(description="Completion times of the flows of all seeds.")
    fct_over_ideal: Percentiles = Field(description="The same over each seed's ideal.")
    slowdown: Percentiles = Field(description="Tail over ideal, over the seeds.")
    mean_slowdown: float = Field(description="Tail over ideal, mean of the seeds.")
    mean_line_rates: float = Field(
        description="Tail over the time that all bytes of the busiest host take at its rate, mean of the seeds."
    )
    assumed_line_rates: float | None = Field(None, description="The same as the plan assumes, transport included.")
    together: tuple[PatternTail, ...] = Field((), description="Of several patterns at once, each.")
    overlap: str | None = Field(None, description="Whether the plan's schedule lets its sends and rings meet.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Pattern:
    """A pattern of flows to simulate, by seed; `assumed`: the plan's slowdown alone, and where sends and rings meet."""

    name: str
    flows: Callable[[int], Flows]
    groups: str = ""  # in words, the size of its groups of hosts and where that comes from; empty where it has none
    steps: int = 1
    assumed: float | None = None
    assumed_together: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationRequest:
    """A request to simulate: a network, the patterns that run on it at once, and a transport."""

    name: str
    simulated: str
    patterns: tuple[Pattern, ...]
    tree: Tree
    transport: TransportName
    failed: int | Sequence[int] = 0
    overlap: str | None = None

    def flows(self, seed: int) -> Flows:
        """Return the flows of all patterns of the simulation for a seed, pattern after pattern."""
        return joined([pattern.flows(seed) for pattern in self.patterns])


def simulate(
    request: SimulationRequest, seeds: Sequence[int], progress: Callable[[str], None] | None = None
) -> Simulation:
    """Simulate a request: completion times of every seed and their distribution. InputError: flows take no time."""
    last_share = 0.0

    def reported(share: float) -> None:
        nonlocal last_share
        # A share that is less than before is of the next seed.
        if progress is not None and not last_share <= share < last_share + REPORT_STEP:
            last_share = share
            progress(f"seed {len(runs) + 1:,} of {len(seeds):,}, {100 * share:.0f} % of the bytes have arrived")

    runs, times, ratios, flows = [], [], [], request.flows(seeds[0])
    for seed in seeds:
        flows = request.flows(seed)
        ideal = ideal_seconds(request.tree, flows)
        if ideal <= 0.0:
            problem = f"flows of {flows.size.max():g} bytes at {request.tree.host_rate:g} bytes/s take no time"
            raise InputError(f"simulate: {problem}; correct bytes or rates")
        completions = flow_seconds(
            request.tree, flows, request.transport, seed, request.failed, progress=reported if progress else None
        )
        line = busiest_bytes(flows) / request.tree.host_rate
        tail = float(completions.max())
        figures = {"ideal_seconds": ideal, "tail_seconds": tail, "slowdown": tail / ideal, "line_rates": tail / line}
        runs.append(SeedRun(seed=seed, fct_seconds=_percentiles(completions), **figures))
        times.append(completions)
        ratios.append(completions / ideal)
    tails, several = np.asarray([run.slowdown for run in runs]), len(request.patterns) > 1
    # Of several patterns at once each is simulated once more alone, its flows a run of all in the order of patterns.
    together, first = list[PatternTail](), 0
    for pattern in request.patterns if several else ():
        own = slice(first, first + len(pattern.flows(seeds[0])))
        rates = []  # of each seed with the other patterns and alone
        for seed, ends in zip(seeds, times, strict=True):
            flows = request.flows(seed)
            size = np.zeros(len(flows))
            size[own] = flows.size[own]
            alone = flow_seconds(request.tree, replace(flows, size=size), request.transport, seed, request.failed)
            busiest = busiest_bytes(replace(flows, size=size))
            rates.append((ends[own].max() / busiest, alone[own].max() / busiest))
        first = own.stop
        mean, apart = (np.mean(rates, axis=0) * request.tree.host_rate).tolist()
        together.append(
            PatternTail(
                pattern=pattern.name,
                flows=own.stop - own.start,
                mean_line_rates=mean,
                alone_line_rates=apart,
                assumed_line_rates=pattern.assumed,
                assumed_together_line_rates=pattern.assumed_together,
            )
        )
    return Simulation(
        name=request.name,
        simulated=request.simulated,
        pattern="+".join(pattern.name for pattern in request.patterns),
        transport=request.transport,
        hosts=request.tree.hosts,
        flows=len(flows),
        steps=1 if several else request.patterns[0].steps,
        flow_bytes=float(flows.size.max()),
        host_bytes=busiest_bytes(flows),
        failed_links=request.failed if isinstance(request.failed, int) else len(request.failed),
        runs=tuple(runs),
        fct_seconds=_percentiles(np.concatenate(times)),
        fct_over_ideal=_percentiles(np.concatenate(ratios)),
        slowdown=_percentiles(tails),
        mean_slowdown=float(tails.mean()),
        mean_line_rates=float(np.mean([run.line_rates for run in runs])),
        assumed_line_rates=None if several else request.patterns[0].assumed,
        together=tuple(together),
        overlap=request.overlap,
    )


def busiest_bytes(flows: Flows) -> float:
    """Return the most bytes that one host of a simulation sends or receives."""
    return max(float(np.bincount(ends, flows.size).max()) for ends in (flows.source, flows.target))


def _percentiles(values: Floats) -> Percentiles:
    p50, p90, p99, largest = (float(value) for value in np.percentile(values, [50, 90, 99, 100]))
    return Percentiles(p50=p50, p90=p90, p99=p99, max=largest)


def summary(result: Simulation) -> str:
    """Return the result of a simulation in a few lines of text."""
    fct, over, tail = result.fct_seconds, result.fct_over_ideal, result.slowdown
    in_all = f"{result.steps * fct.max * 1e3:.3f} ms"
    steps = f"; an all-reduce of {result.steps} such steps takes {in_all}" if result.steps > 1 else ""
    assumed = "" if result.assumed_line_rates is None else f"; the plan assumes {result.assumed_line_rates:.2f}"
    failed = f", {result.failed_links:,} links failed" if result.failed_links else ""
    ms = {"p50": fct.p50 * 1e3, "p90": fct.p90 * 1e3, "p99": fct.p99 * 1e3, "max": fct.max * 1e3}
    together = []
    for other in result.together:
        by_plan = "" if other.assumed_line_rates is None else f"; the plan assumes {other.assumed_line_rates:.2f}"
        if other.assumed_together_line_rates is not None:
            by_plan += f" alone, {other.assumed_together_line_rates:.2f} where both meet"
        rates = f"mean {other.mean_line_rates:.2f}, alone {other.alone_line_rates:.2f}{by_plan}"
        together.append(f"           {other.pattern}: {rates}")
    sizes = f"{result.hosts:,} hosts, {result.flows:,} flows of up to {result.flow_bytes / 1e6:,.4g} MB"
    return "\n".join(
        [
            f"{result.name}: {result.pattern} over {result.transport}, {sizes}{failed}",
            f"SIMULATED  {result.simulated}",
            f"FCT        {', '.join(f'{name} {value:.3f}' for name, value in ms.items())} ms{steps}",
            f"           over the ideal: p50 {over.p50:.2f}, p90 {over.p90:.2f}, "
            f"p99 {over.p99:.2f}, max {over.max:.2f}",
            f"SLOWDOWN   tail over ideal, {len(result.runs)} seed(s): "
            f"mean {result.mean_slowdown:.3f}, p50 {tail.p50:.3f}, max {tail.max:.3f}",
            f"           tail over the line-rate time of the busiest host's {result.host_bytes / 1e6:,.4g} MB: "
            f"mean {result.mean_line_rates:.2f}{assumed}",
            *together,
            *([f"OVERLAP    {result.overlap}"] if result.overlap else []),
        ]
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedPart:
    """The part of a site that is simulated: the GPUs of some indices in the first racks."""

    tree: Tree
    slots: Ints  # place in the tree of every rack (row) and index (column)
    described: str


def simulation_request(
    given: "Plan | Fabric | Mapping[str, Any] | str | Path",
    pattern: str,
    transport: str,
    *,
    site: str | None,
    failed: int,
    hosts: int | None,
    size: float | None,
    group: int | None,
) -> SimulationRequest:
    """Return the simulation request for a plan or a fabric, or the part with the hosts wanted, and the pattern on it.

    Site, hosts, size (bytes) and group of None are the plan's or the usual ones.
    """
    names = pattern.split("+")
    if not set(names) <= set(PATTERNS):
        if not Path(pattern).suffix:
            known = f"{', '.join(PATTERNS)}, several by plus signs, or a CSV file with the header src,dst,bytes"
            raise InputError(f"--pattern {pattern}: must be one of {known}; choose one")
        names = [pattern]
    if transport not in TRANSPORTS:
        raise InputError(f"--transport {transport}: must be one of {', '.join(TRANSPORTS)}; choose one")
    network, overlap = given, None
    out: int | Sequence[int] = failed
    where = None if isinstance(given, (Plan, Fabric, Mapping)) else str(given)
    if not isinstance(network, (Plan, Fabric)):
        data = dict(network) if isinstance(network, Mapping) else read_json(Path(network))
        planned = isinstance(data, dict) and "instance" in data
        network = plan_of(data, where or "plan") if planned else load_fabric(data, where or "fabric")
    if isinstance(network, Plan):
        at, part = part_of_plan(network, site, hosts, where or "simulate")
        name, simulated, tree = f"{network.instance.name}, {at}", part.described, part.tree
        patterns = [_planned(network, at, part, one, size, group) for one in names]
        if {"p2p", "allreduce"} <= {pattern.name for pattern in patterns} and network.layout is not None:
            overlap = overlap_of(network, at)
    else:
        if site is not None:
            raise InputError(f"--site {site}: a fabric has no sites; give a plan, or leave --site out")
        if hosts is not None:
            network = load_fabric(network.model_dump() | {"hosts": hosts})
        if failed and network.failed_cables:
            listed = f"the fabric lists {len(network.failed_cables)} failed cables itself"
            raise InputError(f"--failed-links {failed}: {listed}; leave one of them out")
        name, tree, out = network.name, simulated_routes.tree_of_fabric(network), failed or network.failed_cables or 0
        shape = "/".join(str(number) for number in tree.down[:-1]) or str(tree.down[0])
        tiers = f"{network.tiers} tier(s) of {network.ports_per_switch}-port switches"
        simulated = f"the whole fabric: {tiers}, {shape} down, {len(tree.planes)} plane(s)"
        patterns = [_pattern(one, tree.slots, group, size or FLOW_BYTES) for one in names]
    for i, one in enumerate(patterns):
        if len(patterns) > 1 and one.steps > 1:  # several at once have all steps of their rings
            flows = one.flows(0)
            patterns[i] = replace(one, flows=_same(replace(flows, size=flows.size * one.steps), one.name), steps=1)
    return SimulationRequest(
        name=name,
        simulated="; ".join([simulated, *(f"{own.name} in {own.groups}" for own in patterns if own.groups)]),
        patterns=tuple(patterns),
        tree=tree,
        transport=TRANSPORTS[transport],
        failed=out,
        overlap=overlap,
    )


def _planned(
    plan: Plan, site: str, part: SimulatedPart, pattern: str, size: float | None, group: int | None
) -> Pattern:
    if plan.fabric is None:
        raise InputError("simulate: the plan has no fabric; solve the instance again")
    layout, rate, fabric = plan.layout, plan.instance.hardware.gpu_nic_bytes_per_second, plan.fabric.sites[site]
    sent = layout.metrics.pipeline_send_nic_seconds * rate if layout else 0.0
    assumed = {"p2p": fabric.pipeline_send_slowdown, "allreduce": fabric.allreduce_slowdown}
    if layout is None or group is not None or pattern not in assumed:
        return _pattern(pattern, part.tree.slots, group, size or sent or FLOW_BYTES)
    # The simulated slots of every stage's racks in rank order, for each GPU index, within the sample.
    assignment = plan.placement.sites[site].assignment if plan.placement and site in plan.placement.sites else None
    if assignment is None:
        raise InputError(f"simulate: nothing is placed at {site!r}; choose another site or --pattern permutation")
    see = "see what `planner check` says of the plan"
    for fault in layout_faults(layout):
        raise InputError(f"layout: {fault}; {see}")
    count = layout.rack_stages
    if count > len(assignment):
        raise InputError(f"placement: {count:,} stages, {len(assignment):,} pieces placed at {site}; {see}")
    ranks: list[list[int]] = [[] for _ in range(count)]
    for piece in assignment:
        if not 0 <= piece.stage < count:
            raise InputError(f"placement: stage {piece.stage} at {site}: the layout has {count} stages; {see}")
        try:
            ranks[piece.stage] += [rack for rack in parse(piece.racks) if rack < len(part.slots)]
        except ValueError as error:
            raise InputError(f"placement: {error}; {see}") from None
    placed = [[slots[np.asarray(racks, np.int64)] for racks in ranks] for slots in part.slots.T]
    if pattern == "allreduce":
        steps = allreduce_steps([stage for stages in placed for stage in stages])
        sent = layout.metrics.allreduce_layer_seconds * rate * (steps / 2 + 1) / max(steps, 1)
    together = max((link.together_slowdown for link in fabric.shared_links), default=None)
    sent, wrap = size or sent or FLOW_BYTES, layout.virtual_stages > 1
    own = _pattern(pattern, part.tree.slots, None, sent, placed, wrap=wrap)
    return replace(own, assumed=assumed[pattern], assumed_together=together)


def _pattern(
    pattern: str,
    slots: Ints,
    group: int | None,
    size: float,
    placed: list[list[Ints]] | None = None,
    *,
    wrap: bool = False,
) -> Pattern:
    """Return a pattern to simulate over placed stages, or groups of neighbours; other names are paths of files."""
    if pattern == "permutation":
        return Pattern(name=pattern, flows=lambda seed: simulated_routes.permutation(slots, size, seed))
    if pattern not in PATTERNS:
        return Pattern(name=pattern, flows=_same(flows_from_file(Path(pattern), slots), pattern))
    source = "--group" if group else "the default; --group takes another size"
    each = group or GROUP  # neighbours; the last group may be smaller
    stages_by_index = placed or [np.split(slots, range(each, len(slots), each))]
    groups, steps = [stage for stages in stages_by_index for stage in stages], 1
    if pattern == "p2p":
        flows = joined([p2p(stages, size, wrap=wrap) for stages in stages_by_index])
    elif pattern == "allreduce":
        flows, steps = allreduce(groups, size), allreduce_steps(groups)
    else:
        flows = alltoall(groups, size)
    sizes = {len(group) for group in groups}
    of = f"groups of {'up to ' * (len(sizes) > 1)}{max(sizes):,} hosts ({PLACED if placed else source})"
    return Pattern(name=pattern, flows=_same(flows, pattern), groups=of, steps=steps)


def _same(flows: Flows, pattern: str) -> Callable[[int], Flows]:
    if len(flows) == 0:
        raise InputError(f"--pattern {pattern}: no host sends to another; give more hosts, or smaller --group")
    return lambda _: flows


def p2p(groups: list[Ints], size: float, *, wrap: bool = False) -> Flows:
    """Return simulated pipeline traffic from rank q of every stage to the next; `wrap`: the last sends to the first."""
    pairs = [*pairwise(groups), *([(groups[-1], groups[0])] if wrap and len(groups) > 1 else [])]
    return joined([equal_flows(one[: len(other)], other[: len(one)], size) for one, other in pairs])


def allreduce(groups: list[Ints], size: float) -> Flows:
    """Return simulated traffic of one step of ring all-reduces, a ring to each group; `size` is a group's buffer."""
    several = (group for group in groups if len(group) > 1)
    return joined([equal_flows(group, np.roll(group, -1), size / len(group)) for group in several])


def allreduce_steps(groups: list[Ints]) -> int:
    """Count the steps of simulated ring all-reduces of the largest group: 2·(n - 1)."""
    return 2 * (max((len(group) for group in groups), default=1) - 1)


def alltoall(groups: list[Ints], size: float) -> Flows:
    """Return simulated all-to-all traffic of every host to its group at once; `size` is all that one host sends."""
    flows = sum(len(group) * (len(group) - 1) for group in groups)
    if flows > MAX_FLOWS:
        raise InputError(f"alltoall: {flows:,} flows > {MAX_FLOWS:,}; take fewer hosts or smaller groups")
    parts = list[Flows]()
    for group in (group for group in groups if len(group) > 1):
        others = np.arange(1, len(group))
        target = group[(np.arange(len(group))[:, None] + others) % len(group)].ravel()
        parts.append(equal_flows(np.repeat(group, len(others)), target, size / len(others)))
    return joined(parts)


def flows_from_file(path: Path, slots: Ints) -> Flows:
    """Read traffic to simulate from a CSV file with the header src,dst,bytes; hosts count from 0."""
    rows = csv_rows(path, read_text(path, f"give a CSV file with the header {','.join(HEADER)}"))
    line, header = next(rows, (1, []))
    if [cell.strip() for cell in header] != HEADER:
        first = ",".join(header).strip() or "empty"
        raise InputError(f"{path}: line {line}: must be the header {','.join(HEADER)} (is {first}); add it")
    flows = list[tuple[int, int, float]]()
    for number, row in rows:
        where = f"{path}: line {number}"
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


def overlap_of(plan: Plan, site: str) -> str:
    """Write whether simulated traffic of sends and of rings uses links at once under a plan's schedule."""
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
