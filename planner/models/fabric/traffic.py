"""The demands of a column's traffic on the fabric of a site, counted on the order of racks in stripes."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from planner.models import rack_order
from planner.physics.spares import min_spares

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
FLOWS, ALLREDUCES, SHARES, EXCHANGES = range(4)  # columns of what `Loads.at` returns


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTraffic:
    """The properties of a column at a site that templates depend on.

    Attributes
    ----------
    stages
        Rack stages.
    unit_racks
        Racks of a rack stage of one block, side by side.
    wrap
        The last stage sends to the first.
    rails
        GPUs of a rack that are cabled.
    context_racks
        Racks of a unit that a leaf domain must not part; None: the whole unit.
    exchange_racks
        Racks, one after another, that exchange tokens with experts; 1: none do.
    wan_gbps
        Rate of the wavelengths that end at the site, each way.
    exchange_gbps
        Rate at which the site's gradients pass its WAN gateway.
    spare_target
        Share of time in which a site is to have enough racks; 0: it has no spare ones.
    rack_availability
        Share of time in which a rack is fit for work.
    lanes
        Lanes of every NIC; 0: any.
    """

    stages: int
    unit_racks: int
    wrap: bool
    rails: int
    context_racks: int | None = None
    exchange_racks: int = 1
    wan_gbps: float = 0.0
    exchange_gbps: float = 0.0
    spare_target: float = 0.0
    rack_availability: float = 1.0
    lanes: int = 0

    @property
    def grain(self) -> int:
        """Racks of which a leaf domain has a whole multiple."""
        return self.context_racks or self.unit_racks

    def work_racks(self, blocks: int) -> int:
        """Count the racks at work in `blocks` blocks."""
        return self.stages * self.unit_racks * blocks

    def spare_racks(self, blocks: int) -> int:
        """Count the spare racks of a site with `blocks` blocks; they are last in the order of racks."""
        return min_spares(self.work_racks(blocks), self.rack_availability, self.spare_target)

    def racks(self, blocks: int) -> int:
        """Count the racks that are cabled at a site with `blocks` blocks: those at work, and spares."""
        return self.work_racks(blocks) + self.spare_racks(blocks)

    def loads(self, blocks: int, *, shares: bool = True) -> "Loads":
        """Return the loads that leave runs of racks at a site with `blocks` blocks."""
        return Loads(self, blocks, shares=shares)

    @property
    def order(self) -> tuple[Any, ...]:
        """Key of the loads, without the blocks."""
        return self.stages, self.unit_racks, self.wrap, self.exchange_racks


@dataclass(slots=True)
class Loads:
    """Loads that leave runs of racks of a site, each counted once: flows, allreduces, largest stage share, exchanges.

    Shares are left at zero where they are of no account.
    """

    nothing: ClassVar[bool] = False  # whether nothing leaves any run, so that a larger pod carries no less

    traffic: SiteTraffic
    blocks: int
    shares: bool = True
    rows: dict[int, tuple[Ints, Floats]] = field(default_factory=dict)  # by stripes: row of each size, and rows
    leaves: dict[Any, Any] = field(default_factory=dict)  # `LeafLoads`, by racks of a leaf and what they are to keep

    def at(self, n_stripes: int, sizes: Ints) -> Floats:
        """Return the loads that leave runs of `sizes` racks, one row a size; 0 for a run that holds all racks."""
        every = self.traffic.work_racks(self.blocks)
        wanted = np.minimum(sizes, every)
        if n_stripes not in self.rows:
            self.rows[n_stripes] = np.full(every + 1, -1, dtype=np.int32), np.empty((0, 4))
        row, loads = self.rows[n_stripes]
        if (row[wanted] < 0).any():
            new = np.unique(wanted[row[wanted] < 0])
            row[new] = np.arange(len(loads), len(loads) + len(new))
            loads = np.concatenate([loads, self._counted(n_stripes, tuple(new.tolist()))])
            self.rows[n_stripes] = row, loads
        found: Floats = loads[row[wanted]]
        return found

    def first_runs(self, n_stripes: NDArray[np.int64], domain: int, domains: int) -> Floats:
        """Bound the loads of pods from below by those of the first pod: by stripes and by domains of a pod."""
        t = self.traffic
        found = np.zeros((len(n_stripes), domains, 4))
        if domain % t.unit_racks == 0 and domains > 1:
            sizes = np.arange(1, domains) * (domain // t.unit_racks)
            flows, allreduces = rack_order.first_run(t.stages, self.blocks, n_stripes, sizes, wrap=t.wrap)
            found[:, 1:, FLOWS], found[:, 1:, ALLREDUCES] = flows * t.unit_racks, allreduces
        return found

    def _counted(self, n_stripes: int, sizes: tuple[int, ...]) -> Floats:
        t = self.traffic
        x = rack_order.leaving(
            t.stages, self.blocks, n_stripes, t.unit_racks, sizes,
            wrap=t.wrap, exchange_racks=t.exchange_racks, shares=self.shares,
        )  # fmt: skip
        return np.stack([x.flows, x.allreduces, x.stage_shares, x.exchanges], axis=1).astype(np.float64)
