"""What the sites of a toy cost: every number of new circuits and of steps, fed by a linear program.

Imports nothing of planner.models and planner.solvers. What the sites hold and the fabrics draw is given; found is the
least capital of sites, racks, lines, upgrades and fibre under the rules of the grid.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.optimize import linprog

from planner.instance.instance import Instance
from planner.physics.site import cost, site_power, wan
from planner.physics.site.grid import normal_share, usable_interconnect_mw

MW = 1e-9


@dataclass(frozen=True, slots=True)
class Built:
    """Circuits by new line, and steps by node."""

    circuits: dict[str, int]
    steps: dict[str, int]
    usd: float


class SiteCosts:
    """The least capital of sites, by what they hold."""

    def __init__(self, i: Instance) -> None:
        assert i.grid is not None and i.wan is not None
        self.i, self.grid, self.wan = i, i.grid, i.wan
        self.nodes = [n for n in self.grid.nodes if n.site]
        self.areas = {b.id: b for b in self.grid.balancing_authorities}
        self.least = cache(self._least)
        self.fed = cache(self._fed)

    def km(self, a: int, b: int) -> float:
        """Return the length of the route between two candidates."""
        x, y = self.nodes[a], self.nodes[b]
        return wan.great_circle_km(x.latitude, x.longitude, y.latitude, y.longitude) * self.wan.route_factor

    def rtt_ms(self, blocks: Sequence[int]) -> float:
        """Return the longest round trip between two sites that hold blocks."""
        used = [k for k, n in enumerate(blocks) if n]
        return max((wan.rtt_ms(self.wan, self.km(a, b)) for a, b in itertools.combinations(used, 2)), default=0.0)

    def splits(self, blocks: int) -> Iterator[tuple[int, ...]]:
        """Yield every way to put blocks on sites that the numbers of sites and the round trips allow."""
        rules = self.grid.rules
        fewest = rules.fault_split.min_interconnections if rules.fault_split.enabled else 1
        most = rules.max_sites or len(self.nodes)
        for counts in itertools.product(range(blocks + 1), repeat=len(self.nodes)):
            wanted = (self.i.pins.get(f"placement.blocks.{x.id}", n) for x, n in zip(self.nodes, counts, strict=True))
            fits = sum(counts) == blocks and fewest <= sum(n > 0 for n in counts) <= most and tuple(wanted) == counts
            if fits and self.rtt_ms(counts) <= (rules.max_rtt_ms or math.inf):
                yield counts

    def _least(self, racks: tuple[int, ...], waves: int, extra_mw: tuple[float, ...]) -> float:
        """Return the least capital with so many racks in use and MW of fabric at each candidate; infinite for none."""
        modules = tuple(-(-n // self.i.hardware.racks_per_module) for n in racks)  # no rack is bought for nothing
        if not self.allowed(modules):
            return math.inf
        fed = (b.usd for b in self.constructions if self.powered(modules, extra_mw, b))
        return self._usd(racks, modules, waves, extra_mw) + next(fed, math.inf)

    @cached_property
    def constructions(self) -> list[Built]:
        """Every way to build, the cheapest first."""
        new, upgraded = self.grid.new_lines, [n for n in self.nodes if n.upgrade]
        found = []
        for lines in itertools.product(*(range(k.max_circuits + 1) for k in new)):
            for steps in itertools.product(*(range(n.upgrade.max_steps + 1) for n in upgraded if n.upgrade)):
                usd = sum(k.capex_usd * n for k, n in zip(new, lines, strict=True))
                usd += sum(n.upgrade.capex_usd * s for n, s in zip(upgraded, steps, strict=True) if n.upgrade)
                circuits = {k.id: n for k, n in zip(new, lines, strict=True)}
                found.append(Built(circuits, {n.id: s for n, s in zip(upgraded, steps, strict=True)}, usd))
        return sorted(found, key=lambda b: b.usd)

    def _usd(self, racks: Sequence[int], modules: Sequence[int], waves: int, extra_mw: Sequence[float]) -> float:
        h, g, years = self.i.hardware, self.grid, self.i.limits.budgeted_years
        total = 0.0
        for node, n, mw in zip(self.nodes, modules, extra_mw, strict=True):
            bought = n * h.racks_per_module
            if not bought:
                continue
            total += bought * h.rack.price_usd
            load = site_power.facility_mw(h, bought) + mw
            total += cost.site_capex_usd(g, it_mw=load / h.facility_overhead_factor, facility_mw=load)
            total += years * cost.energy_usd_per_year(load, self.areas[node.balancing_authority].energy_usd_per_mwh)
        used = [k for k, n in enumerate(racks) if n]
        for a, b in itertools.combinations(used, 2):
            km = self.km(a, b)
            total += cost.link_capex_usd(
                self.wan, (km * self.wan.fibre_usd_per_route_km, self.wan.wavelength_usd), waves
            )
        return total

    def allowed(self, modules: Sequence[int]) -> bool:
        """Judge the rules that read modules alone."""
        g, rules, h = self.grid, self.grid.rules, self.i.hardware
        used = [k for k, n in enumerate(modules) if n]
        if len(used) > (rules.max_sites or len(self.nodes)) or min(modules[k] for k in used) < rules.min_site_modules:
            return False
        for k in used:
            land = site_power.cooling_m2(h, modules[k] * h.racks_per_module), self.nodes[k].area_m2
            if land[0] is not None and land[1] is not None and land[0] > land[1]:
                return False
        by_side: dict[str, int] = defaultdict(int)
        for k in used:
            by_side[self.areas[self.nodes[k].balancing_authority].interconnection] += modules[k]
        split = g.rules.fault_split
        return not split.enabled or (
            len(by_side) >= split.min_interconnections
            and max(by_side.values()) <= split.max_share * sum(modules) * (1 + 1e-12)
        )

    def powered(self, modules: Sequence[int], extra_mw: Sequence[float], built: Built) -> bool:
        """Judge the rules that read loads, and ask whether plants can feed them."""
        h, rules = self.i.hardware, self.grid.rules
        loads = [site_power.facility_mw(h, n * h.racks_per_module) + x for n, x in zip(modules, extra_mw, strict=True)]
        if sum(loads) > (self.i.limits.facility_power_mw or math.inf) + MW:
            return False
        if rules.headroom and any(self._drawn(b, loads) > self.areas[b].headroom_mw + MW for b in self.areas):
            return False
        if rules.interconnect.enabled and rules.interconnect.reading != "import_share":
            for n, mw in zip(self.nodes, loads, strict=True):
                usable = usable_interconnect_mw(self.grid, n, built.circuits, built.steps.get(n.id, 0)) or 0.0
                if rules.interconnect.share * mw > usable + MW:
                    return False
        return self.fed(tuple(round(x, 9) for x in loads), tuple(built.circuits.items()))

    def _drawn(self, area: str, loads: Sequence[float]) -> float:
        return sum(mw for n, mw in zip(self.nodes, loads, strict=True) if n.balancing_authority == area)

    def _fed(self, loads: tuple[float, ...], circuits: tuple[tuple[str, int], ...]) -> bool:
        """Ask by a linear program for generation and flows that feed the sites."""
        g, rules = self.grid, self.grid.rules
        assert rules.interconnect.reading != "import_share" or not rules.interconnect.enabled
        if rules.grid_model == "none":
            return not rules.generation or all(
                self._drawn(b, loads) <= sum(n.generation_mw for n in g.nodes if n.balancing_authority == b) + MW
                for b in self.areas
            )
        at = {n.id: k for k, n in enumerate(g.nodes)}
        lines = [(x.a, x.b, x.rating_mw * x.circuits) for x in g.lines]
        lines += [(x.a, x.b, x.rating_mw * dict(circuits).get(x.id, 0)) for x in g.new_lines]
        balance = np.hstack([np.eye(len(at)), np.zeros((len(at), len(lines)))])
        for k, (a, b, _) in enumerate(lines):
            balance[at[a], len(at) + k] -= 1.0
            balance[at[b], len(at) + k] += 1.0
        right = np.zeros(len(at))
        for n, mw in zip(self.nodes, loads, strict=True):
            right[at[n.id]] = mw
        plants = [(0.0, n.generation_mw if rules.generation else None) for n in g.nodes]
        flows = [(-normal_share(g) * mw, normal_share(g) * mw) for _, _, mw in lines]
        found = linprog(np.zeros(balance.shape[1]), A_eq=balance, b_eq=right, bounds=plants + flows, method="highs")
        assert found.status in (0, 2), found.message
        return bool(found.status == 0)
