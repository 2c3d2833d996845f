"""Simulation requests and their results: a pattern over a transport on a plan's site or a fabric, seed by seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from planner.errors import InputError
from planner.files import read_json
from planner.instance.base_types import Frozen
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of
from planner.simulation import traffic
from planner.simulation.flow_times import TransportName, flow_seconds, ideal_seconds
from planner.simulation.simulated_routes import Fabric, Floats, Flows, Ints, Tree, joined, load_fabric, tree_of_fabric


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


REPORT_STEP = 0.05  # share of the bytes between two lines of progress


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


PATTERNS = ("permutation", "p2p", "allreduce", "alltoall")
TRANSPORTS: dict[str, TransportName] = {"ecmp": "ecmp", "spray": "spray", "adaptive": "adaptive"}
# Of a fabric's flows: 3 ms at 800 Gbps, the exchange of figure 1b of Agache et al. 2024 (arXiv 2407.12819).
FLOW_BYTES = 300e6
GROUP = 16  # hosts of a group where no placement forms groups
PLACED = "the plan's placement"


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Options of a simulation: pattern, transport, and limits; None takes the plan's or the usual."""

    pattern: str
    transport: str
    site: str | None
    failed: int
    hosts: int | None
    size: float | None
    group: int | None


def simulation_request(
    given: "Plan | Fabric | Mapping[str, Any] | str | Path", options: SimulationOptions
) -> SimulationRequest:
    """Return the simulation request for a plan or a fabric, cut to the hosts wanted, with the pattern laid on it."""
    if options.transport not in TRANSPORTS:
        raise InputError(f"--transport {options.transport}: must be one of {', '.join(TRANSPORTS)}; choose one")
    network, overlap = given, None
    failed: int | Sequence[int] = options.failed
    where = None if isinstance(given, (Plan, Fabric, Mapping)) else str(given)
    if not isinstance(network, (Plan, Fabric)):
        data = dict(network) if isinstance(network, Mapping) else read_json(Path(network))
        planned = isinstance(data, dict) and "instance" in data
        network = plan_of(data, where or "plan") if planned else load_fabric(data, where or "fabric")
    if isinstance(network, Plan):
        site, part = traffic.part_of_plan(network, options.site, options.hosts, where or "simulate")
        name, simulated, tree = f"{network.instance.name}, {site}", part.described, part.tree
        patterns = [_planned(network, site, part, pattern, options) for pattern in names(options.pattern)]
        if {"p2p", "allreduce"} <= {pattern.name for pattern in patterns} and network.layout is not None:
            overlap = traffic.overlap(network, site)
    else:
        if options.site is not None:
            raise InputError(f"--site {options.site}: a fabric has no sites; give a plan, or leave --site out")
        if options.hosts is not None:
            network = load_fabric(network.model_dump() | {"hosts": options.hosts})
        if options.failed and network.failed_cables:
            listed = f"the fabric lists {len(network.failed_cables)} failed cables itself"
            raise InputError(f"--failed-links {options.failed}: {listed}; leave one of them out")
        name, tree, failed = network.name, tree_of_fabric(network), failed or network.failed_cables or 0
        shape = "/".join(str(number) for number in tree.down[:-1]) or str(tree.down[0])
        tiers = f"{network.tiers} tier(s) of {network.ports_per_switch}-port switches"
        simulated = f"the whole fabric: {tiers}, {shape} down, {len(tree.planes)} plane(s)"
        size = options.size or FLOW_BYTES
        patterns = [_pattern(pattern, tree.slots, options.group, size) for pattern in names(options.pattern)]
    for i, pattern in enumerate(patterns):
        if len(patterns) > 1 and pattern.steps > 1:  # several at once have all steps of their rings
            one = pattern.flows(0)
            whole = replace(one, size=one.size * pattern.steps)
            patterns[i] = replace(pattern, flows=_same(whole, pattern.name), steps=1)
    return SimulationRequest(
        name=name,
        simulated="; ".join([simulated, *(f"{own.name} in {own.groups}" for own in patterns if own.groups)]),
        patterns=tuple(patterns),
        tree=tree,
        transport=TRANSPORTS[options.transport],
        failed=failed,
        overlap=overlap,
    )


def names(pattern: str) -> list[str]:
    """Return the patterns to simulate at once: several names joined by plus signs, or the path of a file as it is."""
    several = pattern.split("+")
    return several if set(several) <= set(PATTERNS) else [pattern]


def _planned(plan: Plan, site: str, part: traffic.SimulatedPart, pattern: str, options: SimulationOptions) -> Pattern:
    if plan.fabric is None:
        raise InputError("simulate: the plan has no fabric; solve the instance again")
    layout, rate, fabric = plan.layout, plan.instance.hardware.gpu_nic_bytes_per_second, plan.fabric.sites[site]
    sent = layout.metrics.pipeline_send_nic_seconds * rate if layout else 0.0
    assumed = {"p2p": fabric.pipeline_send_slowdown, "allreduce": fabric.allreduce_slowdown}
    if layout is None or options.group is not None or pattern not in assumed:
        return _pattern(pattern, part.tree.slots, options.group, options.size or sent or FLOW_BYTES)
    placed = traffic.stages(plan, site, part)
    if pattern == "allreduce":
        steps = traffic.allreduce_steps([stage for stages in placed for stage in stages])
        sent = layout.metrics.allreduce_layer_seconds * rate * (steps / 2 + 1) / max(steps, 1)
    size, wrap = options.size or sent or FLOW_BYTES, layout.virtual_stages > 1
    together = max((link.together_slowdown for link in fabric.shared_links), default=None)
    own = _pattern(pattern, part.tree.slots, None, size, placed, wrap=wrap)
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
        return Pattern(name=pattern, flows=lambda seed: traffic.permutation(slots, size, seed))
    if pattern not in PATTERNS:
        return Pattern(name=pattern, flows=_same(traffic.from_file(Path(pattern), slots), pattern))
    source = "--group" if group else "the default; --group takes another size"
    stages_by_index = placed or [traffic.blocks(slots, group or GROUP)]
    groups, steps = [stage for stages in stages_by_index for stage in stages], 1
    if pattern == "p2p":
        flows = joined([traffic.p2p(stages, size, wrap=wrap) for stages in stages_by_index])
    elif pattern == "allreduce":
        flows, steps = traffic.allreduce(groups, size), traffic.allreduce_steps(groups)
    else:
        flows = traffic.alltoall(groups, size)
    sizes = {len(group) for group in groups}
    of = f"groups of {'up to ' * (len(sizes) > 1)}{max(sizes):,} hosts ({PLACED if placed else source})"
    return Pattern(name=pattern, flows=_same(flows, pattern), groups=of, steps=steps)


def _same(flows: Flows, pattern: str) -> Callable[[int], Flows]:
    if len(flows) == 0:
        raise InputError(f"--pattern {pattern}: no host sends to another; give more hosts, or smaller --group")
    return lambda _: flows
