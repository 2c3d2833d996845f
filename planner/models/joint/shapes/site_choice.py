"""Choose the cheapest sites for the blocks of a column, their fabrics and the fibre between them, by a MILP.

Fibre that is designed has a price for each set of sites, and a lower bound for each pair. The exchange takes no longer
than the step allows: the time of a ring at the rate of the wavelengths, after the round trips of the two sites farthest
apart. Other traffic is carried in addition, as far as the fibre has room.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.instance.pins import pinned_blocks
from planner.models import SitesRequest
from planner.models.joint.shapes import site_milp
from planner.models.joint.shapes.fibre_designs import LARGE_BYTES, FibreDesigns
from planner.models.joint.shapes.site_question import Circuit, Joined, PlacedParts, SitePart, SiteQuestion, SitesExtent
from planner.models.joint.strategy_space import Floats, Ints
from planner.models.joint.time_bounds import EPS
from planner.models.sites.site_rules import max_campus_modules, max_site_modules, max_sites
from planner.models.sites.split_data import Pair, SplitData, capital_musd, energy_musd, gather, site_musd
from planner.models.sites.split_model import RULES, build
from planner.physics.network import fabric_cost, fabric_designs
from planner.physics.site import cost
from planner.plan.plan_sections import WanPlan
from planner.solvers import highs
from planner.solvers.outcome import Outcome, UnansweredError, Values
from planner.solvers.search_deadline import Deadline

MANY_RACKS = 1_000_000_000  # more than any site has
MANY_MODULES = 2000  # from which on the relaxation bounds the modules in use
MOST_GROUPS = 100_000  # of sites whose routes are all added up


@dataclass(kw_only=True)
class Sites:
    """The choice of sites of an instance with a grid, with the answers of the site MILP so far."""

    instance: Instance
    request: SitesRequest = field(default_factory=SitesRequest)
    seed: int = 0
    threads: int | None = None
    solved: int = 0
    placed: dict[Any, PlacedParts | None] = field(default_factory=dict)
    # By parts and wavelengths of fibre that is not designed: longest round trips, and the cheapest sites within each.
    within: dict[Any, list[tuple[float, PlacedParts | None]]] = field(default_factory=dict)
    prices: dict[tuple[SitePart, ...], Any] = field(default_factory=dict)  # of parts without fabrics
    racks: dict[float | None, dict[int, int]] = field(default_factory=dict)  # the most, by budget and GPUs cabled
    fibre_by_km: dict[tuple[int, float], Floats] = field(default_factory=dict)  # prices by sites and km of routes
    # By number of sites: groups that may be open, with their longest round trips, ascending, and km of all routes.
    groups: dict[tuple[int, bool], tuple[Ints, Floats, Floats]] = field(default_factory=dict)
    # By number of sites and racks of each: these round trips, and the least km of groups up to each.
    routes: dict[tuple[int, tuple[int, ...]], tuple[Floats, Floats]] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)  # of the search; an answer cut short by it is not returned

    def __post_init__(self) -> None:
        self.data: SplitData = gather(self.instance, self.request)
        self.gpu_fabric_usd = fabric_cost.min_fabric(self.instance.network).usd
        self.fibre = FibreDesigns(data=self.data, seed=self.seed)

    @property
    def most(self) -> dict[int, int]:
        """The most racks that sites can have at the budget, by a rack's cabled GPUs, as far as known."""
        return self.racks.setdefault(self.instance.limits.budget_usd, {})

    def pay(self, instance: Instance) -> None:
        """Set another budget and deadline for the site choice, keeping what it knows of grid and fibre."""
        self.instance = self.instance.replaced(limits=instance.limits)
        years = {name: replace(year, instance=self.instance) for name, year in self.data.scenarios.items()}
        self.data = replace(self.data, instance=self.instance, scenarios=years)

    @property
    def designed(self) -> bool:
        """Whether the fibre of a site choice is designed, not priced pair by pair of sites."""
        return self.data.wan.designed

    @cached_property
    def max_open(self) -> int:
        """Most sites that the choice of sites may open."""
        return max_sites(self.data, RULES.values())

    @property
    def min_open(self) -> int:
        """Fewest sites that the choice may give parts to; pinned racks may open others."""
        split, pins = self.data.grid.rules.fault_split, self.data.pins
        return split.min_interconnections if split.enabled and pins.racks is None and not pins.racks_by_site else 1

    @property
    def max_site_racks(self) -> int:
        """Bound the racks of any one site of the choice."""
        return int(max(self._site_racks, default=0))

    @cached_property
    def _site_racks(self) -> Ints:
        """Bound the racks of each candidate site by each rule of sites alone that no penalty may break."""
        if self.data.grid.rules.soft:
            return np.full(len(self.data.candidates), MANY_RACKS)
        most = [max_site_modules(self.data, x, MANY_RACKS, RULES.values()) for x in self.data.candidates]
        return np.array(most, dtype=np.int64) * self.data.module_racks

    @cached_property
    def rtts_ms(self) -> list[float]:
        """List the round trips in ms of all pairs of candidates of the site choice, the shortest first."""
        limit = self.data.grid.rules.max_rtt_ms
        return [x for x in sorted({self.data.rtt_ms(p) for p in self.data.joinable}) if limit is None or x <= limit]

    def min_routes_km(self, sites: int, rtt_ms: float = math.inf, racks: tuple[int, ...] = ()) -> float:
        """Bound from below a site choice's km of routes between all pairs of `sites` sites, all within a round trip.

        It is infinite where none are so near. Of many groups each route is at least one of the shortest of its ends.
        `racks`: those of each site, if known; groups that no plan has, or without room for each, are left out.
        """
        if sites < 2:
            return 0.0
        key, pins = (sites, tuple(sorted(racks, reverse=True))), self.data.pins
        if key not in self.routes:
            # Where the parts are known no others are open.
            alone = bool(racks) and pins.racks is None and not pins.racks_by_site and not self.data.grid.rules.soft
            if (sites, alone) not in self.groups:
                self.groups[sites, alone] = self._groups(sites, alone=alone)
            group, trips, km = self.groups[sites, alone]
            if racks and len(group):
                room = np.all(np.sort(self._site_racks[group], axis=1)[:, ::-1] >= np.array(key[1]), axis=1)
                trips, km = trips[room], km[room]
            self.routes[key] = trips, np.minimum.accumulate(km)
        trips, least = self.routes[key]
        at = int(np.searchsorted(trips, rtt_ms * (1 + 1e-12), side="right"))
        return float(least[at - 1]) if at else math.inf

    def _groups(self, sites: int, *, alone: bool) -> tuple[Ints, Floats, Floats]:
        """List groups of candidate sites by their longest round trips, with these and the km of a group's routes."""
        # `alone`: no other sites are open, so that pairs which a rule of the grid bars are left out. Where there are
        # too many groups none is listed, and the km bound those of all.
        names = {x: i for i, x in enumerate(self.data.candidates)}
        km, trips = (np.full((len(names), len(names)), np.inf) for _ in range(2))
        longest = max(self.rtts_ms, default=-math.inf)
        for p, length in self.data.pairs.items():
            barred = alone and any(rule.excludes(self.data, p, sites) for rule in RULES.values())
            if not barred and p not in self.data.disconnected and self.data.rtt_ms(p) <= longest:
                i, j = names[p[0]], names[p[1]]
                km[i, j] = km[j, i] = length
                trips[i, j] = trips[j, i] = self.data.rtt_ms(p)
        if math.comb(len(names), sites) > MOST_GROUPS:
            stars = np.sort(np.sort(km, axis=1)[:, : sites - 1].sum(axis=1))[:sites].sum() / 2
            shortest = np.sort(km[np.triu_indices(len(names), 1)])[: sites * (sites - 1) // 2].sum()
            return np.empty((0, sites), dtype=np.int64), np.zeros(1), np.array([max(stars, shortest)])
        group = np.array(list(combinations(range(len(names)), sites)), dtype=np.int64).reshape(-1, sites)
        ends = list(combinations(range(sites), 2))
        total = np.asarray(sum(km[group[:, i], group[:, j]] for i, j in ends))
        farthest = np.max([trips[group[:, i], group[:, j]] for i, j in ends], axis=0)
        order = np.argsort(farthest, kind="stable")
        order = order[np.isfinite(farthest[order])]
        return group[order], farthest[order], total[order]

    def min_joined_usd(self, sites: int) -> float:
        """Bound from below a site choice's USD of fibre that joins sites; 0 of more if it is designed as a tree."""
        pairs = sites * (sites - 1) // 2
        if self.designed:
            return float(self.fibre.least_usd()[1]) if sites == 2 else 0.0
        return pairs * self.fibre_usd(self.min_routes_km(sites) / pairs, 1) if pairs else 0.0

    def floor_usd(self, racks: int, sites: int) -> float:
        """Bound from below a site choice's capital of racks at some sites, without fabric, fibre, lines, upgrades."""
        fixed, module = site_musd(self.data)
        modules = -(-racks // self.data.module_racks)
        racks_usd = modules * self.data.module_racks * self.data.hardware.rack.price_usd
        return float(1e6 * (fixed * sites + module * modules) + racks_usd)

    def fibre_usd(self, km: float, wavelengths: Any) -> Any:
        """Price in USD a site choice's fibre of a pair of sites `km` of route apart, where it is not designed."""
        wan = self.data.wan
        return cost.link_capex_usd(wan, (km * wan.fibre_usd_per_route_km, wan.wavelength_usd), wavelengths)

    def all_fibre_usd(self, sites: int, routes_km: float) -> Floats:
        """Price in USD a site choice's fibre between all of some sites by a pair's wavelengths, given all km."""
        if (sites, routes_km) not in self.fibre_by_km:  # asked for at each round trip of each shape
            wan, pairs = self.data.wan, sites * (sites - 1) // 2
            n = np.arange(wan.max_wavelengths_per_pair * wan.max_fibre_pairs + 1)
            far = math.isinf(routes_km)  # no sites are so near
            prices = 0.0 if far else routes_km * wan.fibre_usd_per_route_km, wan.wavelength_usd * pairs
            self.fibre_by_km[sites, routes_km] = cost.link_capex_usd(wan, prices, n) + (math.inf if far else 0.0)
        return self.fibre_by_km[sites, routes_km]

    def max_racks(self, rails: int) -> int:
        """Bound the racks of any site choice with `rails` GPUs of each cabled, at the cheapest links and fibre."""
        if rails in self.most:
            return self.most[rails]
        h, each, uplinks = self.data.hardware, self.data.module_racks, fabric_cost.min_uplinks(self.instance, rails)
        most = max_campus_modules(self.data, RULES.values())
        joined_racks = fabric_designs.max_joined_racks(self.instance, rails)
        at_site = min(most, fabric_designs.joined_modules(self.instance, joined_racks))
        joined = {k: usd for k in range(self.max_open + 1) if math.isfinite(usd := self.min_joined_usd(k))}
        mw = h.facility_overhead_factor * self.min_fabric_mw(rails) * each

        def use_racks(m: Any) -> None:
            """Create each site's modules in use, which draw the power of their fabric; pinned idle ones take none."""
            sites = list(m.modules)
            m.used = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=(0, at_site))
            m.using = pyo.Constraint(sites, rule=lambda m, s: m.used[s] <= m.modules[s])
            m.holds = pyo.Var(sites, domain=pyo.Binary)
            m.holding = pyo.Constraint(sites, rule=lambda m, s: m.used[s] <= at_site * m.holds[s])
            m.number = pyo.Var(list(joined), domain=pyo.Binary)
            m.one_number = pyo.Constraint(expr=sum(m.number.values()) == 1)
            m.holders = pyo.Constraint(expr=sum(m.holds.values()) <= sum(k * m.number[k] for k in joined))
            m.uplinks = pyo.Var(sites, range(len(uplinks)), domain=pyo.NonNegativeReals)  # M$
            m.paying = pyo.ConstraintList()
            for s, (tier, (racks, usd)) in product(sites, enumerate(uplinks)):
                m.paying.add(m.uplinks[s, tier] >= usd / 1e6 * (m.used[s] * each - racks))
            if mw:
                m.extra_mw = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=(0, mw * most))
                m.fabric_power = pyo.Constraint(sites, rule=lambda m, s: m.extra_mw[s] == mw * m.used[s])

        m = build(self.data, without=site_milp.LEFT_OUT, extend=use_racks, max_extra_mw=mw * most, max_modules=most)
        used, limits = sum(m.used.values()), self.instance.limits
        if limits.budget_usd is not None:  # it pays penalties of soft rules and the counted years of energy too
            fibre = sum(joined[k] * m.number[k] for k in joined)
            fabrics = (used * each * self.min_fabric_usd(rails) + fibre) / 1e6 + sum(m.uplinks.values())
            spent = capital_musd(m, self.data) + fabrics + m.penalty_musd
            spent += limits.budgeted_years * energy_musd(m, self.data)
            if mw:
                spent += self.data.load_musd * sum(m.extra_mw.values())
            m.spent = pyo.Constraint(expr=spent <= limits.budget_usd / 1e6)
        m.goal = pyo.Objective(expr=-used)
        # Of many modules the relaxation counts few more than the MILP (3 of 4,300), in a tenth of the time.
        bound = highs.lower_bound(m, time_limit=self.deadline.limit) if most >= MANY_MODULES else None
        self.deadline.check()
        if bound is None or -bound < MANY_MODULES:
            outcome = self.run(m, absolute_gap=0.99 / each)
            bound = 0.0 if outcome.infeasible else outcome.bound
        # The racks of a module need not all be in use.
        self.most[rails] = each * most if bound is None else min(each * most, math.floor(1e-6 - each * bound))
        return self.most[rails]

    def min_fabric_usd(self, rails: int) -> float:
        """Bound from below a site choice's price in USD of a rack's fabric, with `rails` GPUs cabled."""
        return rails * self.gpu_fabric_usd

    def min_fabric_mw(self, rails: int) -> float:
        """Bound from below a site choice's power in MW of a rack's fabric, `rails` GPUs cabled, if it counts."""
        return rails * fabric_cost.min_fabric(self.instance.network).mw if self.data.counts_power else 0.0

    @property
    def fabric_usd_per_mw(self) -> float:
        """Price in USD in a site choice of building and interconnection for a MW of fabric, if its power counts."""
        overhead = self.data.hardware.facility_overhead_factor if self.data.counts_power else 0.0
        return 1e6 * self.data.load_musd * overhead

    def cheapest(
        self, parts: tuple[SitePart, ...], circuit: Circuit | None, racks: int | None = None
    ) -> PlacedParts | None:
        """Return the cheapest choice of sites for parts, one each, at its exact capital; None if there are none.

        `racks`: that of parts of so many racks in all, of which those given are the least.
        """
        if racks is not None:
            return self.answer(self.question(parts, circuit, {}), racks)
        if not self.designed and circuit is not None:
            circuit = replace(circuit, stage_bytes=0.0)
        fabrics = [min(range(len(p.fabrics)), key=lambda f: (p.fabrics[f][0], f)) for p in parts]
        without_fabrics = tuple(self.part(p.blocks, p.racks) for p in parts)
        if self.data.counts_power or len(set(without_fabrics)) < len(set(parts)):
            return self._placed(parts, circuit)
        # The power of fabrics changes no choice, so each part takes its cheapest, and its site is that without fabric.
        found = self._placed(without_fabrics, circuit)
        if found is None:
            return None
        number = {p: k for k, (p, _) in enumerate(_kinds(parts))}
        of_kind = dict(zip(without_fabrics, zip((number[p] for p in parts), fabrics, strict=True), strict=True))
        kinds = [of_kind[p] for p, _ in _kinds(without_fabrics)]
        usd = sum(p.fabrics[f][0] for p, f in zip(parts, fabrics, strict=True))
        bound = found.proof.bound
        proof = replace(found.proof, bound=None if bound is None else bound + usd)
        placed = {s: kinds[k] for s, (k, _) in found.parts.items()}
        return replace(found, asked=parts, parts=placed, capital_usd=found.capital_usd + usd, proof=proof)

    def part(self, blocks: int, racks: int, mw: float = 0.0) -> SitePart:
        """Return a site choice's part with free fabric, for any column with its racks if no blocks are pinned."""
        fabrics = ((0.0, mw if self.data.counts_power else 0.0),)
        return SitePart(blocks if pinned_blocks(self.instance) else racks, racks, fabrics)

    def least(self, parts: tuple[SitePart, ...], circuit: Circuit | None) -> float:
        """Bound a site choice's capital of parts at the circuit's wavelengths or more; infinite if none hold them.

        Over more than two sites the fibre is priced as designed for the circuit's bytes of a stage, or fewer, or for
        any number of bytes if the circuit has 0.
        """
        # More wavelengths need no less fibre, so that where no design joins the sites none does at more of them, and
        # designs that carry the exchange alone cost no less.
        if len(parts) > 2:
            if circuit is not None and not circuit.stage_bytes:
                circuit = replace(circuit, stage_bytes=LARGE_BYTES)
            found = self._placed(parts, circuit)
            if found is None or not self.data.wan.traffic:
                return math.inf if found is None else found.capital_usd
        # No fibre is designed: each pair costs at least the fibre of the exchange alone.
        key = "least", parts, circuit
        if key not in self.placed:
            self.placed[key] = self.answer(self.question(parts, circuit, {}))
        placed = self.placed[key]
        return math.inf if placed is None else placed.capital_usd

    def question(
        self, parts: tuple[SitePart, ...], circuit: Circuit | None, designs: dict[Joined, float | None]
    ) -> SiteQuestion:
        """Return the site question that a site choice asks of some parts, a circuit and fibre designs."""
        pairs: dict[Pair, float] = {}
        if circuit is not None and not self.designed:
            pairs = {p: self.fibre_usd(km, circuit.wavelengths) for p, km in self.data.pairs.items()}
        elif circuit is not None and len(parts) == 2:
            size, waves = circuit.stage_bytes, circuit.wavelengths
            pairs = {p: float(self.fibre.prices(p, size)[waves]) for p in self.data.joinable}
        return SiteQuestion(data=self.data, kinds=_kinds(parts), circuit=circuit, pair_usd=pairs, designs=designs)

    def _placed(self, parts: tuple[SitePart, ...], circuit: Circuit | None) -> PlacedParts | None:
        key = parts, circuit
        designs: dict[Joined, float | None] = {}
        plans: dict[Joined, WanPlan | None] = {}
        # Sites are chosen, their fibre designed, and chosen again at its price, until the cheapest have a known design.
        while self.designed and key not in self.placed:
            q = self.question(parts, circuit, designs)
            found = self.answer(q)
            if found is None:
                self.placed[key] = None
            elif len(found.joined.open) < 2 or found.joined in plans:
                self.placed[key] = replace(found, wan=plans.get(found.joined), designs=designs)
            else:
                plans[found.joined] = plan = self.fibre.design(found.joined, circuit)
                floor = sum(q.pair_usd.get(p, 0.0) for p in found.pairs)
                designs[found.joined] = None if plan is None else max(0.0, plan.capex_usd - floor)
        if key not in self.placed:
            waves, trip = (None, 0.0) if circuit is None else (circuit.wavelengths, circuit.max_rtt_ms)
            asked = self.within.setdefault((parts, waves), [])
            # The cheapest sites of all within some round trip are the cheapest within each that they keep.
            known = [x for longest, x in asked if trip <= longest and (x is None or x.rtt_ms <= trip)]
            found = known[0] if known else self.answer(self.question(parts, circuit, {}))
            self.placed[key] = None if found is None else replace(found, circuit=circuit)
            if not known:
                asked.append((trip, found))
        return self.placed[key]

    def paid_sites(self, at: SitesExtent, most_usd: float) -> PlacedParts | None:
        """Return a choice of sites for a point whose capital is at most `most_usd` USD, or None; no fabrics."""
        self.deadline.check()
        circuit = Circuit(at.wavelengths, at.rtt_ms) if at.sites > 1 else None
        whole = self.question(at.parts, circuit, {})
        for q in site_milp.nearer_pairs_first(whole, most_usd - self.floor_usd(at.racks, at.sites)):
            m = site_milp.stated(q, racks=at.racks)
            m.goal.deactivate()
            if math.isfinite(most_usd):
                m.spent = pyo.Constraint(expr=m.total <= most_usd / 1e6)
            outcome = self.run(m)
            if not outcome.infeasible and outcome.solution is None:
                raise UnansweredError(f"joint sites: the MILP ended without an answer ({outcome.detail})")
            if not outcome.infeasible and q.circuit == circuit:
                return site_milp.read_placed(m, q, outcome)
            if outcome.infeasible and q.circuit is None:
                break
        return None

    def answer(self, q: SiteQuestion, racks: int | None = None) -> PlacedParts | None:
        """Answer a site question by the cheapest choice of sites, with at least `racks` racks if given, if any."""
        self.deadline.check()
        state = partial(site_milp.stated, racks=racks)
        kept = site_milp.without_dear_pairs(q, state, self.run)
        if kept is None:
            return None
        m = state(kept)
        outcome = self.run(m)
        if outcome.infeasible:
            return None
        if outcome.solution is None or not outcome.proved:
            raise UnansweredError(f"joint sites: the MILP ended without a proven answer ({outcome.detail})")
        return site_milp.read_placed(m, q, outcome)

    def least_campus_usd(self, sites: int, racks: int, module_musd: float) -> float:
        """Bound a site choice's capital in USD of at least `racks` racks at `sites` sites, without fabrics."""
        # `module_musd` is taken off for each module; the bound is infinite where no sites hold the racks.
        rtts = self.rtts_ms
        if sites > 1 and not rtts:
            return math.inf
        circuit = Circuit(1, rtts[-1]) if sites > 1 else None
        parts = SitesExtent(sites, racks, -(-racks // sites), 0.0).parts

        def priced(q: SiteQuestion) -> Any:
            m = site_milp.stated(q, racks=racks)
            m.goal.set_value(m.total - module_musd * sum(m.modules.values()))
            return m

        q = site_milp.without_dear_pairs(self.question(parts, circuit, {}), priced, self.run)
        outcome = None if q is None else self.run(priced(q), gap=0.003)  # its bound alone counts
        if outcome is None or outcome.infeasible:
            return math.inf
        if outcome.bound is None:
            raise UnansweredError(f"joint sites: the MILP ended without a bound ({outcome.detail})")
        return outcome.bound * 1e6 - abs(outcome.bound) * 1e6 * EPS

    def run(self, m: Any, *, absolute_gap: float = site_milp.CENT_MUSD, gap: float = 0.0) -> Outcome[Values]:
        """Solve a MILP of the site choice in the time that is left; raise where the deadline came first."""
        how: dict[str, Any] = {"seed": self.seed, "threads": self.threads, "time_limit": self.deadline.limit}
        outcome = highs.run(m, gap=gap, absolute_gap=absolute_gap, **how)
        self.solved += 1
        self.deadline.check()
        return outcome


def _kinds(parts: tuple[SitePart, ...]) -> tuple[tuple[SitePart, int], ...]:
    return tuple(sorted(Counter(parts).items(), key=lambda x: (-x[0].blocks, x[0].racks)))
