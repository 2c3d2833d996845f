"""Run a pattern over a transport on a network, seed by seed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from planner.errors import InputError
from planner.instance.base import Frozen
from planner.simulation.flow_times import TransportName, flow_seconds, ideal_seconds
from planner.simulation.live_cables import Flows, joined
from planner.simulation.rng import Floats
from planner.simulation.tree import Tree


class Percentiles(Frozen):
    """A distribution by its percentiles."""

    p50: float
    p90: float
    p99: float
    max: float


class Run(Frozen):
    """One seed: other hashes, another permutation, other failed links."""

    seed: int
    ideal_seconds: float = Field(
        description="Time of the exchange if every link as built were loaded evenly: no transport is faster."
    )
    tail_seconds: float = Field(description="When the last flow ended.")
    slowdown: float = Field(description="Tail over ideal.")
    line_rates: float = Field(description="Tail over the time of the largest flow at the rate of an idle host.")
    fct_seconds: Percentiles = Field(description="Completion times of the flows.")


class PatternTail(Frozen):
    """The slowest flow of one of several patterns that run at once, over its largest flow's time at line rate."""

    pattern: str
    flows: int
    mean_line_rates: float = Field(description="With the other patterns, mean of the seeds.")
    alone_line_rates: float = Field(description="The same with nothing else on the network.")
    assumed_line_rates: float | None = Field(None, description="As the plan assumes alone, transport included.")
    assumed_together_line_rates: float | None = Field(
        None, description="As the plan states of the links where its schedule lets sends and rings meet."
    )


class Simulation(Frozen):
    """An exchange on a network, over some seeds."""

    name: str
    simulated: str = Field(description="What of the network is simulated.")
    pattern: str
    transport: TransportName
    hosts: int
    flows: int
    steps: int = Field(1, description="Times that the exchange is repeated: the steps of a ring; times are of one.")
    flow_bytes: float = Field(description="Of the largest flow.")
    failed_links: int
    runs: tuple[Run, ...]
    fct_seconds: Percentiles = Field(description="Completion times of the flows of all seeds.")
    fct_over_ideal: Percentiles = Field(description="The same over each seed's ideal.")
    slowdown: Percentiles = Field(description="Tail over ideal, over the seeds.")
    mean_slowdown: float = Field(description="Tail over ideal, mean of the seeds.")
    mean_line_rates: float = Field(
        description="Tail over the time of the largest flow at the rate of an idle host, mean of the seeds."
    )
    assumed_line_rates: float | None = Field(None, description="The same as the plan assumes, transport included.")
    together: tuple[PatternTail, ...] = Field((), description="Of several patterns at once, each.")
    overlap: str | None = Field(None, description="Whether the plan's schedule lets its sends and rings meet.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Pattern:
    """Who sends to whom; `flows` draws the flows of a seed.

    `assumed` is what a plan takes their slowdown to be alone, `assumed_together` where its sends and rings meet.
    """

    name: str
    flows: Callable[[int], Flows]
    steps: int = 1
    assumed: float | None = None
    assumed_together: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationRequest:
    """A network, the patterns that run on it at once, and a transport to simulate."""

    name: str
    simulated: str
    patterns: tuple[Pattern, ...]
    tree: Tree
    transport: TransportName
    failed: int | Sequence[int] = 0
    overlap: str | None = None

    def flows(self, seed: int) -> Flows:
        """Return the flows of all patterns for a seed, those of the first one first."""
        return joined([p.flows(seed) for p in self.patterns])


def simulate(request: SimulationRequest, seeds: Sequence[int]) -> Simulation:
    """Return the completion times of every seed, and their distribution.

    Raises
    ------
    InputError
        If the flows take no time at all in floating point.
    """
    runs, times, ratios, flows = [], [], [], request.flows(seeds[0])
    for seed in seeds:
        flows = request.flows(seed)
        ideal = ideal_seconds(request.tree, flows)
        if ideal <= 0.0:
            size, rate = float(flows.size.max()), request.tree.host_rate
            raise InputError(
                f"simulate: flows of {size:g} bytes at {rate:g} bytes/s take no time; correct bytes or rates"
            )
        completions = flow_seconds(request.tree, flows, request.transport, seed, request.failed)
        line = float(flows.size.max()) / request.tree.host_rate
        tail = float(completions.max())
        runs.append(
            Run(
                seed=seed,
                ideal_seconds=ideal,
                tail_seconds=tail,
                slowdown=tail / ideal,
                line_rates=tail / line,
                fct_seconds=percentiles(completions),
            )
        )
        times.append(completions)
        ratios.append(completions / ideal)
    tails, several = np.asarray([r.slowdown for r in runs]), len(request.patterns) > 1
    return Simulation(
        name=request.name,
        simulated=request.simulated,
        pattern="+".join(p.name for p in request.patterns),
        transport=request.transport,
        hosts=request.tree.hosts,
        flows=len(flows),
        steps=1 if several else request.patterns[0].steps,
        flow_bytes=float(flows.size.max()),
        failed_links=request.failed if isinstance(request.failed, int) else len(request.failed),
        runs=tuple(runs),
        fct_seconds=percentiles(np.concatenate(times)),
        fct_over_ideal=percentiles(np.concatenate(ratios)),
        slowdown=percentiles(tails),
        mean_slowdown=float(tails.mean()),
        mean_line_rates=float(np.mean([r.line_rates for r in runs])),
        assumed_line_rates=None if several else request.patterns[0].assumed,
        together=tuple(_together(request, seeds, times)) if several else (),
        overlap=request.overlap,
    )


def _together(request: SimulationRequest, seeds: Sequence[int], times: list[Floats]) -> Iterator[PatternTail]:
    """Yield the tails of each pattern, of the times of all, and alone on the same paths."""
    first = 0
    for pattern in request.patterns:
        tails, own = [], slice(first, first + len(pattern.flows(seeds[0])))
        for seed, ends in zip(seeds, times, strict=True):
            flows = request.flows(seed)
            size = np.zeros(len(flows))
            size[own] = flows.size[own]
            alone = flow_seconds(request.tree, replace(flows, size=size), request.transport, seed, request.failed)
            tails.append((ends[own].max() / size.max(), alone[own].max() / size.max()))
        first = own.stop
        together, apart = (np.mean(tails, axis=0) * request.tree.host_rate).tolist()
        yield PatternTail(
            pattern=pattern.name,
            flows=own.stop - own.start,
            mean_line_rates=together,
            alone_line_rates=apart,
            assumed_line_rates=pattern.assumed,
            assumed_together_line_rates=pattern.assumed_together,
        )


def percentiles(values: Floats) -> Percentiles:
    """Return the percentiles of a distribution."""
    p50, p90, p99, largest = (float(x) for x in np.percentile(values, [50, 90, 99, 100]))
    return Percentiles(p50=p50, p90=p90, p99=p99, max=largest)


def summary(s: Simulation) -> str:
    """Return a simulation in a few lines."""
    fct, over, tail = s.fct_seconds, s.fct_over_ideal, s.slowdown
    steps = f"; an all-reduce of {s.steps} such steps takes {s.steps * fct.max * 1e3:.3f} ms" if s.steps > 1 else ""
    assumed = "" if s.assumed_line_rates is None else f"; the plan assumes {s.assumed_line_rates:.2f}"
    failed = f", {s.failed_links:,} links failed" if s.failed_links else ""
    ms = {"p50": fct.p50 * 1e3, "p90": fct.p90 * 1e3, "p99": fct.p99 * 1e3, "max": fct.max * 1e3}
    sizes = f"{s.hosts:,} hosts, {s.flows:,} flows of up to {s.flow_bytes / 1e6:,.4g} MB"
    return "\n".join(
        [
            f"{s.name}: {s.pattern} over {s.transport}, {sizes}{failed}",
            f"SIMULATED  {s.simulated}",
            f"FCT        {', '.join(f'{name} {x:.3f}' for name, x in ms.items())} ms{steps}",
            f"           over the ideal: p50 {over.p50:.2f}, p90 {over.p90:.2f}, "
            f"p99 {over.p99:.2f}, max {over.max:.2f}",
            f"SLOWDOWN   tail over ideal, {len(s.runs)} seed(s): "
            f"mean {s.mean_slowdown:.3f}, p50 {tail.p50:.3f}, max {tail.max:.3f}",
            f"           tail over the line-rate time of a flow: mean {s.mean_line_rates:.2f}{assumed}",
            *(_beside(t) for t in s.together),
            *([f"OVERLAP    {s.overlap}"] if s.overlap else []),
        ]
    )


def _beside(t: PatternTail) -> str:
    """Return the tail of one of several patterns in a line."""
    assumed = "" if t.assumed_line_rates is None else f"; the plan assumes {t.assumed_line_rates:.2f}"
    if t.assumed_together_line_rates is not None:
        assumed += f" alone, {t.assumed_together_line_rates:.2f} where both meet"
    return f"           {t.pattern}: mean {t.mean_line_rates:.2f}, alone {t.alone_line_rates:.2f}{assumed}"
