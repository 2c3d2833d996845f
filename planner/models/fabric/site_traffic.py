"""The loads of a column's traffic on the fabric of a site, counted on the order of racks in stripes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.models import rack_order
from planner.models.fabric.design_table import Flags, Floats, Ints, pareto_front
from planner.physics.recovery import min_spares

AT_A_TIME = 16  # numbers of stripes that are counted before the clock is looked at
FLOWS, ALLREDUCES, SHARES, EXCHANGES = range(4)  # columns of what `Loads.at` returns


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
        return self.stages, self.unit_racks, self.wrap, self.nothing

    def leaving(self, blocks: int, stripes: Ints, sizes: Ints, *, shares: bool, first_only: bool = False) -> Floats:
        """Count a site's loads out of runs of racks: by stripes, size and kind; without `shares` these are zero.

        `first_only`: of the first run of each size, which bounds the loads of all from below.
        """
        # Experts are within a unit, so that none of their exchanges leaves a run of units.
        found = np.zeros((len(stripes), len(sizes), 4))
        if not self.nothing:
            at = self.stages, blocks, stripes, sizes // self.unit_racks
            found[..., :EXCHANGES] = rack_order.leaving(*at, wrap=self.wrap, shares=shares, first_only=first_only)
            found[..., FLOWS] *= self.unit_racks
        return found


@dataclass(slots=True)
class Loads:
    """The loads of a site's traffic out of runs of racks, each counted once: flows, allreduces, shares, exchanges."""

    traffic: SiteTraffic
    blocks: int
    shares: bool = True  # else they are left at zero
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
            counted = self.traffic.leaving(self.blocks, np.array([n_stripes]), new, shares=self.shares)
            loads = np.concatenate([loads, counted[0]])
            self.rows[n_stripes] = row, loads
        found: Floats = loads[row[wanted]]
        return found

    def leaves(self, sizes: Ints, stripes: Ints, min_local_share: float, tick: Callable[[], None]) -> "LeafLoads":
        """Return the loads of a site's traffic out of leaves of `sizes` racks, ascending, under each number of stripes.

        They are infinite under stripes with a smaller share of whole all-reduce groups. `tick`: called between counts.
        """
        own, t = (stripes.tobytes(), min_local_share), self.traffic
        new = np.array([size for size in sizes.tolist() if (size, own) not in self.known], dtype=np.int64)
        if len(new):
            fits, at = np.ones((len(new), len(stripes)), dtype=bool), (t.stages, self.blocks)
            if min_local_share > 0:
                shares = [rack_order.leaf_local_shares(*at, n, t.unit_racks, new) for n in stripes.tolist()]
                fits = np.stack(shares, axis=1) >= min_local_share
            loads, rows = np.full((*fits.shape, 4), np.inf), np.flatnonzero(fits.any(axis=1))
            for k in range(0, len(stripes), AT_A_TIME):
                tick()
                columns = k + np.flatnonzero(fits[:, k : k + AT_A_TIME].any(axis=0))
                racks = np.minimum(new[rows], t.work_racks(self.blocks))
                counted = t.leaving(self.blocks, stripes[columns], racks, shares=self.shares)
                loads[np.ix_(rows, columns)] = counted.swapaxes(0, 1)
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
        found: Floats = self.loads[np.searchsorted(self.sizes, domain)]
        return found

    def best_of(self, domain: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the loads out of leaf domains under each of their best stripes: place of each, stripes, and loads."""
        at = np.searchsorted(self.sizes, domain)
        i, n = np.nonzero(self.best[at])
        return i, self.stripes[n], self.loads[at[i], n]
