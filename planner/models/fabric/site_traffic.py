"""The order of a site's racks in stripes, and the traffic of a column that crosses leaf domains, pods and zones on it.

What crosses is counted, not estimated. A unit is the racks of one rack stage of one block, side by side, which no run
of racks parts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cluster.hostlists import fold, width
from planner.instance.network import Network
from planner.models.fabric.template_table import TOLERANCE, Flags, Floats, Ints, pareto_front
from planner.physics.network.clos_fabric import Design
from planner.physics.network.locality import domain_racks, exchange_bound, lower_bound_split
from planner.physics.recovery import min_spares
from planner.plan.plan_sections import Assignment
from planner.simulation.simulated_slowdown import transport_slowdown_of

Counts = NDArray[np.int32]
MOST_EDGES = 1 << 15  # of runs under all numbers of stripes, counted at a time
AT_A_TIME = 16  # numbers of stripes that are counted before the clock is looked at
FLOWS, ALLREDUCES, SHARES, EXCHANGES = range(4)  # columns of what `Loads.at` returns


def units(stages: int, blocks: int, stripes: int) -> Ints:
    """Return the place of every unit (a block's rack stage) in a site's order of racks; shape (stages, blocks)."""
    # A stripe lays its part of each block side by side, stage by stage; then the next stripe follows. One stripe: whole
    # pipelines side by side; as many as stages: whole all-reduce groups. The larger stripes come first.
    found, first = np.empty((stages, blocks), dtype=np.int64), 0
    for k in range(stripes):
        size = stages // stripes + (k < stages % stripes)
        found[first : first + size] = first * blocks + (np.arange(size)[:, None] + size * np.arange(blocks)[None, :])
        first += size
    return found


def rank_order(stages: int, blocks: int, stripes: int, unit_racks: int) -> list[list[int]]:
    """List a site's racks of each rack stage, in stripes, by rank: block by block, the racks of a unit side by side."""
    at = units(stages, blocks, stripes)[:, :, None] * unit_racks + np.arange(unit_racks)[None, None, :]
    return [[int(rack) for rack in row] for row in at.reshape(stages, -1)]


def assignment(order: list[list[int]], design: Design) -> tuple[Assignment, ...]:
    """Return a site's traffic by leaf domain: every stage's pieces in order of racks, cut where the domain changes."""
    pieces, size, digits = list[Assignment](), design.domain_racks, width(design.racks)
    for stage, racks in enumerate(order):
        for domain, own in groupby(racks, lambda rack: rack // size):
            pieces.append(Assignment(stage=stage, leaf_domain=domain, racks=fold([*own], digits)))
    return tuple(pieces)


def leaf_local_shares(stages: int, blocks: int, stripes: int, unit_racks: int, sizes: Ints) -> Floats:
    """Return a site's leaf-local share of its traffic: all-reduce groups whole under one leaf, by leaf domain."""
    at = units(stages, blocks, stripes) * unit_racks
    first, last = at.min(axis=1)[:, None], at.max(axis=1)[:, None] + unit_racks - 1
    return np.asarray((first // sizes == last // sizes).mean(axis=0), dtype=np.float64)


def _out_of_runs(
    stages: int, blocks: int, stripes: Counts, edges: Counts, low: Ints, *, wrap: bool
) -> tuple[Counts, Counts, Counts]:
    """Count, of each run of the rack order, flows across its ends, all-reduces across them, and units of one stage.

    A run lies between the edges `low` and `low + 1`. Edges and runs have a row each, numbers of stripes a column. A
    stripe is w stages wide, and each of its parts of a block takes w units.
    """
    small, larger = np.divmod(stages, stripes)
    ahead = larger * (small + 1) * blocks
    # Of each edge: its stripe, the width of that, and the units from its start.
    k = np.where(edges < ahead, edges // ((small + 1) * blocks), larger + (edges - ahead) // (small * blocks))
    width, behind = small + (k < larger), edges - (k * small + np.minimum(k, larger)) * blocks

    def crossing(source: Counts, target: Counts) -> tuple[Counts, Counts]:  # flows out of runs and into them
        starts, ends, begun, ended = (x[at] for x in (source, target) for at in (low, low + 1))
        within = np.maximum(0, ended - starts)
        return ends - starts - within, ended - begun - within

    # Flows go along a stripe to the next unit of a block's part, from its last unit to the first in the next stripe,
    # and with `wrap` from the last stripe to the first. Sources and targets of each kind ascend together, so those with
    # both ends in a run lie one after another: as many as start before its end, less those that end before it.
    parts = behind // width
    lasts = k * blocks + parts  # units before an edge that are the last of their parts
    starts = lasts + (behind > parts * width)  # and that are the first
    others = (stripes - 1) * blocks
    out, into = crossing(edges - lasts, edges - starts)
    more = crossing(np.minimum(lasts, others), np.maximum(starts - blocks, 0))
    out, into = out + more[0], into + more[1]
    if wrap:  # these go back: a target comes before its source
        more = crossing(np.minimum(starts, blocks), np.maximum(lasts - others, 0))
        out, into = out + more[1], into + more[0]
    # A run's parts of the stripes at its ends: the width, and two places after the stripe's start; those of the last
    # stripe are empty where it is the first. A stripe that a run holds whole has no all-reduce that leaves it. Of any
    # other it meets one stage a unit, w at the most, and holds those whole whose units of the first block and of the
    # last are both in it.
    (k, width, start), (k_end, width_end, end) = ((k[at], width[at], behind[at]) for at in (low, low + 1))
    first = width, start, np.where(k_end > k, width * blocks, end)
    cut, stage = np.zeros_like(start), np.where(k_end - k > 1, blocks, 0)
    for wide, begin, stop in (first, (width_end, np.zeros_like(start), np.where(k_end > k, end, 0))):
        cut += np.minimum(stop - begin, wide) - np.maximum(0, np.minimum(wide, stop - (blocks - 1) * wide) - begin)
        stage = np.maximum(stage, -(-(stop - begin) // wide))
    return np.maximum(out, into), cut, stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTraffic:
    """The traffic of a column at a site: the properties that its fabric templates depend on."""

    stages: int  # rack stages
    unit_racks: int  # of a rack stage of one block, side by side; no leaf domain parts them
    wrap: bool  # the last stage sends to the first
    rails: int  # GPUs of a rack that are cabled
    wan_gbps: float = 0.0  # of the wavelengths that end at the site, each way
    exchange_gbps: float = 0.0  # at which the site's gradients pass its WAN gateway
    spare_target: float = 0.0  # share of time in which a site is to have enough racks; 0: it has no spare ones
    rack_availability: float = 1.0  # share of time in which a rack is fit for work
    lanes: int = 0  # of every NIC; 0: any
    nothing: bool = False  # whether nothing leaves any run of racks, so that a larger pod carries no less

    def work_racks(self, blocks: int) -> int:
        """Count the racks at work of a site whose traffic is of `blocks` blocks."""
        return self.stages * self.unit_racks * blocks

    def spare_racks(self, blocks: int) -> int:
        """Count the spare racks of a site with traffic of `blocks` blocks; they are last in the order of racks."""
        return min_spares(self.work_racks(blocks), self.rack_availability, self.spare_target)

    def racks(self, blocks: int) -> int:
        """Count the cabled racks of a site with traffic of `blocks` blocks: those at work, and spares."""
        return self.work_racks(blocks) + self.spare_racks(blocks)

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the cache key of the loads of a site's traffic: all that they depend on but the blocks."""
        return self.stages, self.unit_racks, self.wrap, self.nothing, self.exchange_gbps > 0

    def leaving(self, blocks: int, stripes: Ints, sizes: Ints, *, first_only: bool = False) -> Floats:
        """Count a site's loads out of runs of `sizes` racks, by numbers of stripes and sizes.

        The most pipeline flows that leave or enter a run, the most all-reduces that leave one, the largest share of a
        stage's units, which is left at zero where no gradients pass a WAN gateway, and no exchanges: experts are within
        a unit. Runs of one size tile the order; `first_only` counts the first of them alone, which bounds the most from
        below.
        """
        found = np.zeros((len(stripes), len(sizes), 4))
        if self.nothing or not len(sizes):
            return found
        # All edges of the runs, in units, the lower edge of each run, and the first run of each size.
        every, size = self.stages * blocks, sizes // self.unit_racks
        count = np.ones_like(size) if first_only else -(-every // size)
        first, order = np.cumsum(count) - count, np.arange(len(size))
        low = np.arange(int(count.sum())) + np.repeat(order, count)  # each size has an edge more than runs
        start = np.repeat(first + order, count + 1)
        edges = np.minimum((np.arange(len(start)) - start) * np.repeat(size, count + 1), every)
        edges = edges[:, None].astype(np.int32)
        step = max(1, MOST_EDGES // len(edges))
        for some in (slice(at, at + step) for at in range(0, len(stripes), step)):
            n = stripes[some].astype(np.int32)  # which divides in half the time, and holds any number of units
            of_runs = _out_of_runs(self.stages, blocks, n, edges, low, wrap=self.wrap)
            for kind, each in enumerate(of_runs[: SHARES + (self.exchange_gbps > 0)]):
                found[some, :, kind] = np.maximum.reduceat(each, first).T
        found[..., FLOWS] *= self.unit_racks
        found[..., SHARES] /= blocks
        return found


@dataclass(slots=True)
class Loads:
    """The loads of a site's traffic out of runs of racks, each counted once: flows, allreduces, shares, exchanges."""

    traffic: SiteTraffic
    blocks: int
    rows: dict[int, tuple[Ints, Floats]] = field(default_factory=dict)  # by stripes: row of each size, and rows
    known: dict[Any, tuple[Floats, Flags]] = field(default_factory=dict)  # of leaves, by their racks and stripes

    def at(self, n_stripes: int, sizes: Ints) -> Floats:
        """Return the loads of a site's traffic out of runs of `sizes` racks, a row a size; 0 for one of all racks."""
        every = self.traffic.work_racks(self.blocks)
        wanted = np.minimum(sizes, every)
        if n_stripes not in self.rows:
            self.rows[n_stripes] = np.full(every + 1, -1, dtype=np.int32), np.empty((0, 4))
        row, loads = self.rows[n_stripes]
        if (row[wanted] < 0).any():
            new = np.unique(wanted[row[wanted] < 0])
            row[new] = np.arange(len(loads), len(loads) + len(new))
            loads = np.concatenate([loads, self.traffic.leaving(self.blocks, np.array([n_stripes]), new)[0]])
            self.rows[n_stripes] = row, loads
        return np.asarray(loads[row[wanted]])

    def leaves(self, sizes: Ints, stripes: Ints, min_local_share: float, tick: Callable[[], None]) -> "LeafLoads":
        """Return the loads of a site's traffic out of leaves of `sizes` racks, ascending, under each number of stripes.

        They are infinite under stripes with a smaller share of whole all-reduce groups. `tick`: called between counts.
        """
        own, t = (stripes.tobytes(), min_local_share), self.traffic
        new = np.array([size for size in sizes.tolist() if (size, own) not in self.known], dtype=np.int64)
        if len(new):
            # Counted anew and not by `at`, whose rows of every size under each number of stripes would take memory.
            fits, racks = np.ones((len(new), len(stripes)), dtype=bool), np.minimum(new, t.work_racks(self.blocks))
            if min_local_share > 0:
                at = t.stages, self.blocks
                shares = [leaf_local_shares(*at, n, t.unit_racks, new) for n in stripes.tolist()]
                fits = np.stack(shares, axis=1) >= min_local_share
            loads, rows = np.full((*fits.shape, 4), np.inf), np.flatnonzero(fits.any(axis=1))
            for k in range(0, len(stripes), AT_A_TIME):
                tick()
                columns = k + np.flatnonzero(fits[:, k : k + AT_A_TIME].any(axis=0))
                loads[np.ix_(rows, columns)] = t.leaving(self.blocks, stripes[columns], racks[rows]).swapaxes(0, 1)
            loads[~fits] = np.inf
            for size, each in zip(new.tolist(), loads, strict=True):
                best = np.zeros(len(stripes), dtype=bool)
                best[pareto_front(each) if len(each) > 1 else 0] = True
                self.known[size, own] = each, best & np.isfinite(each[:, 0])
        found = [self.known[size, own] for size in sizes.tolist()]
        shape = len(sizes), len(stripes)
        loads, best = np.array([x for x, _ in found]).reshape(*shape, 4), np.array([x for _, x in found], dtype=bool)
        return LeafLoads(sizes, stripes, loads, best.reshape(shape))


@dataclass(frozen=True, slots=True)
class LeafLoads:
    """The loads of a site's traffic out of leaves: of some sizes, ascending (rows), under some stripes (columns)."""

    sizes: Ints
    stripes: Ints
    loads: Floats  # by size, stripes and kind of load
    best: Flags  # stripes that no other matches or beats in all loads of a size

    def of(self, domain: Ints) -> Floats:
        """Return the loads of a site's traffic out of leaf domains of such sizes: by domain, stripes and kind."""
        return np.asarray(self.loads[np.searchsorted(self.sizes, domain)])

    def best_of(self, domain: Ints) -> tuple[Ints, Ints, Floats]:
        """Return a site's loads out of leaf domains under each of their best stripes: places, stripes, and loads."""
        at = np.searchsorted(self.sizes, domain)
        i, n = np.nonzero(self.best[at])
        return i, self.stripes[n], self.loads[at[i], n]


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRequest:
    """A request for a site's fabric: the traffic that it must carry so that the layout's communication stays hidden.

    Ideal times are at the NIC's rate; a slowdown is allowed up to the window, and up to the transport's own slowdown
    where the ideal alone fills the window. Groups of `exchange_racks` racks exchange tokens with their experts all to
    all: nothing hides that, so the transport's own slowdown is all that it may suffer. Wavelengths of `wan_gbps` each
    way end at its WAN gateway, to which the racks of one stage at a time send gradients at `exchange_gbps`, and back.
    `rack_gpus` of each rack are cabled, where it is not all of them.
    """

    racks: int
    group_racks: int
    groups: int
    pipeline_send_seconds: float
    pipeline_send_window_seconds: float
    allreduce_seconds: float
    allreduce_window_seconds: float
    exchange_racks: int = 1
    wan_gbps: float = 0.0
    exchange_gbps: float = 0.0
    rack_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstTraffic(SiteTraffic):
    """The site traffic of a fabric request at its worst placement, for a frontier; racks count as blocks."""

    request: FabricRequest
    max_allreduce: float  # largest factor of the fabric on the transport's slowdown that the time of all-reduces allows

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the cache key of the loads of a site's worst traffic: all that they depend on but its racks."""
        r = self.request
        return r.exchange_racks, r.group_racks, r.groups, self.max_allreduce, self.exchange_gbps > 0

    def leaving(self, blocks: int, stripes: Ints, sizes: Ints, *, first_only: bool = False) -> Floats:
        """Count the loads of the worst traffic out of runs of racks, of `blocks` racks in all, whatever their order."""
        del first_only  # each run has as much
        # All-reduces have a limit and are no axis of a frontier, so they are counted with the exchanges: by the links
        # that keep the limit, so that no design slows them further. A run that holds all racks has no load.
        found, inside, r = np.zeros((len(stripes), len(sizes), 4)), sizes < self.racks(blocks), self.request
        groups = np.minimum(-(-sizes // r.group_racks) + 1, r.groups) * (r.group_racks > 1)
        found[..., FLOWS] = sizes * inside
        found[..., SHARES] = np.minimum(1.0, sizes / r.group_racks) * (self.exchange_gbps > 0)
        tokens = exchange_bound(groups, sizes, r.exchange_racks)
        found[..., EXCHANGES] = np.maximum(tokens, groups / self.max_allreduce) * inside
        return found


def worst_traffic(network: Network, request: FabricRequest, gpus: int) -> tuple[WorstTraffic, float]:
    """Return a site's worst traffic by a fabric request, racks of `gpus` GPUs, and its largest send slowdown."""
    own, r = transport_slowdown_of(network), request

    def largest(ideal_seconds: float, window_seconds: float) -> float:  # or the transport's own; any if none is sent
        return max(window_seconds / ideal_seconds, own) * (1 + TOLERANCE) if ideal_seconds > 0 else float("inf")

    send = largest(r.pipeline_send_seconds, r.pipeline_send_window_seconds)
    most = largest(r.allreduce_seconds, r.allreduce_window_seconds) / own
    traffic = WorstTraffic(
        stages=1,
        unit_racks=1,
        wrap=False,
        rails=r.rack_gpus or gpus,
        wan_gbps=r.wan_gbps,
        exchange_gbps=r.exchange_gbps,
        request=r,
        max_allreduce=most,
    )
    return traffic, send


def unavoidable_splits(r: FabricRequest, domain: int) -> int:
    """Count the groups of a site's traffic that no placement keeps in one leaf domain: those beyond all their room."""
    return lower_bound_split(domain_racks(r.racks, domain), r.groups, r.group_racks)
