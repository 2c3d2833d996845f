"""One pass of the four decisions for a given number of racks, each taking what the one before passed on.

The pass runs round until what the later decisions cause is what the earlier ones counted on: the exchange between sites
that the layout needs and the slowdowns that the fabric may cause. Needs only grow from round to round, so it ends.
"""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from planner.errors import InternalError
from planner.instance.instance import Instance
from planner.models.fabric import data as fabric_data
from planner.models.fabric import solve as fabric
from planner.models.layout import solve as layout
from planner.models.layout.solution_cache import SolutionCache
from planner.models.plan_placement import solve as plan_placement
from planner.models.requests import (
    FabricRequest,
    GradientExchange,
    LayoutRequest,
    Options,
    PlacementRequest,
    SitesRequest,
    WanRequest,
)
from planner.models.sites import conflict as sites_conflict
from planner.models.sites import solve as sites
from planner.models.wan import solve as wan_design
from planner.physics.site import wan
from planner.physics.site.cost import bill
from planner.physics.site.gradient_exchange import assumed_window_seconds
from planner.physics.site.power import rack_of
from planner.physics.training import step
from planner.physics.training.parallel_strategy import ParallelStrategy, strategy_of
from planner.plan.certificate import Conflict
from planner.plan.fabric import FabricPlan
from planner.plan.layout import LayoutMetrics, LayoutPlan
from planner.plan.placement import PlacementPlan
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanPlan
from planner.planning.fabric_requests import Designs, gateway_gbps, request_of, site_fabric, worst_slowdowns
from planner.planning.trials import Decision, Refusal, Trial
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.outcome import Outcome, Stop

CLUSTER = "cluster"  # the id of the one site of an instance without a grid
ROUNDS = 12
REFUSALS = 8  # sets of sites without a design of the wide area, after which no other is tried
T = TypeVar("T")


@dataclass(slots=True)
class Decider:
    """Takes the decisions in order; keeps what does not change from one number of racks to the next."""

    instance: Instance
    options: Options
    progress: Callable[[str], None] | None = None
    started: float = field(default_factory=time.perf_counter)
    exchange: GradientExchange | None = None
    refused: frozenset[frozenset[str]] = frozenset()
    pipeline_send_limit: float | None = None
    allreduce_limit: float | None = None
    unproven_refusals: bool = False  # a decision had no answer, for another reason than that there is none
    memory: dict[Hashable, Any] = field(default_factory=dict)
    requests: list[tuple[LayoutPlan, LayoutRequest]] = field(default_factory=list)
    designed: dict[str, tuple[FabricRequest, Outcome[fabric.FabricDesign]]] = field(
        default_factory=dict
    )  # fabrics chosen last
    layouts: SolutionCache = field(default_factory=SolutionCache)
    alone: bool = True  # no other solve shares what this one finds out

    def left(self) -> Options:
        """Return the options with the time left; a started decision always gets a moment for its first answer."""
        limit = self.options.time_limit
        return (
            self.options
            if limit is None
            else replace(self.options, time_limit=max(1.0, limit - (time.perf_counter() - self.started)))
        )

    def out_of_time(self) -> bool:
        """Tell whether the limit has passed."""
        return self.options.time_limit is not None and time.perf_counter() - self.started > self.options.time_limit

    @property
    def transport_slowdown(self) -> float:
        """Slowdown of the transport itself."""
        return transport_slowdown_of(self.instance.network)

    def trial(self, racks: int | None, *, fixed: dict[str, int] | None = None) -> Trial | Refusal:
        """Take every decision for `racks` racks (None: as pinned or given), or for `fixed` racks by site."""
        self.pipeline_send_limit = self.allreduce_limit = (
            None  # what another number of racks may suffer says nothing of this one
        )
        for _ in range(ROUNDS + REFUSALS):
            split = self._split(racks, fixed)
            if isinstance(split, Refusal):
                return split
            by_site, sites_plan = split
            layout_plan = self._cut(by_site, sites_plan)
            if isinstance(layout_plan, Refusal):
                return layout_plan
            if self._needs_more_wan(layout_plan, sites_plan):
                continue
            joined = self._join(sites_plan, layout_plan)
            if isinstance(joined, Refusal):
                if fixed or frozenset(by_site) not in self.refused:
                    return joined
                continue
            if self.instance.network is None:
                return self._trial(by_site, sites_plan, joined, layout_plan, None, None)
            built = self._build(by_site, layout_plan, sites_plan, joined)
            if built is None:
                continue
            if isinstance(built, Refusal):
                return built
            fabric_plan, placement_plan = built
            return self._trial(by_site, sites_plan, joined, layout_plan, fabric_plan, placement_plan)
        raise InternalError(f"the decisions did not settle in {ROUNDS + REFUSALS} rounds at {racks} racks")

    def _trial(
        self,
        by_site: dict[str, int],
        s: SitesPlan | None,
        w: WanPlan | None,
        layout_plan: LayoutPlan,
        f: FabricPlan | None,
        p: PlacementPlan | None,
    ) -> Trial:
        cost = bill(self.instance, sum(by_site.values()), s, f, w)
        certificates = [x.certificate for x in (s, w, layout_plan, f, p) if x is not None]
        proved = all(c.status == "optimal" for c in certificates)
        return Trial(
            racks_by_site=by_site, sites=s, wan=w, layout=layout_plan, fabric=f, placement=p, cost=cost, proved=proved
        )

    def _join(self, s: SitesPlan | None, layout_plan: LayoutPlan) -> WanPlan | Refusal | None:
        """Design what joins the sites where that is asked for: the exchange takes no longer than the step assumes.

        Sites that are proven not to be joined by any design are remembered, so that the split looks elsewhere.
        """
        links = self.instance.wan
        if s is None or links is None or not links.designed or len(s.sites) < 2:
            return None
        m, a = layout_plan.metrics, layout_plan.assumptions
        training = tuple(sorted(x for x, d in layout_plan.data_parallel_by_site.items() if d))
        window = assumed_window_seconds(
            links, m.gradient_bytes_per_stage, len(training), m.wan_window_seconds, a.wan_gbps, a.wan_rtt_ms
        )
        asked = GradientExchange(stage_bytes=m.gradient_bytes_per_stage, window_seconds=window)
        request = WanRequest(sites=tuple(sorted(x.id for x in s.sites)), exchanging=training, exchange=asked)
        out = self._once(("wan", request), lambda: wan_design.solve(self.instance, request, self.left()))
        if out.solution is None:
            if out.infeasible and len(self.refused) < REFUSALS:
                self.refused |= {frozenset(request.sites)}
            return self._refusal("wan", out, partial(_same, Conflict(decision="wan", rules=(), reason=out.detail)))
        return out.solution

    def _split(
        self, racks: int | None, fixed: dict[str, int] | None
    ) -> tuple[dict[str, int], SitesPlan | None] | Refusal:
        if self.instance.grid is None:
            return {CLUSTER: self.instance.hardware.racks or 0}, None
        pins = {f"sites.racks.{s}": r for s, r in (fixed or {}).items()}
        instance = self.instance.model_copy(update={"pins": {**self.instance.pins, **pins}}) if pins else self.instance
        request = SitesRequest(racks=racks, exchange=self.exchange, refused=self.refused)
        out = self._once(
            ("sites", request, tuple(sorted(pins.items()))), lambda: sites.solve(instance, request, self.left())
        )
        if out.solution is None:
            return self._refusal("sites", out, partial(self.why_no_split, instance, request, out))
        split = out.solution if not fixed else self._stated(out.solution, sorted(pins))
        return {s.id: s.racks for s in split.sites}, split

    def _stated(self, split: SitesPlan, pins: list[str]) -> SitesPlan:
        """State of a split with racks fixed by the budget loop that it did so, in place of pins that no user gave."""
        c = split.certificate
        own = tuple(b for b in c.binding if b not in {f"pins[{p}]" for p in pins if p not in self.instance.pins})
        given = f"{c.given}; racks by site, to which the loop on the budget grew a split of least yearly cost"
        return split.model_copy(update={"certificate": c.model_copy(update={"binding": own, "given": given})})

    def why_no_split(self, instance: Instance, request: SitesRequest, out: Outcome[SitesPlan]) -> Conflict:
        """Return the rules that leave no split, or say that none was found."""
        conflict = sites_conflict.conflict(instance, request, self.options) if out.infeasible else None
        self.unproven_refusals |= conflict is None
        return conflict or Conflict(decision="sites", rules=(), reason=f"no split was found: {out.detail}")

    def _cut(self, by_site: dict[str, int], sites_plan: SitesPlan | None) -> LayoutPlan | Refusal:
        links = sites_plan.links if sites_plan else ()
        headroom = self.instance.wan.headroom_factor if self.instance.wan else 1.0
        wide = bool(links) and self.instance.wan is not None and self.exchange is not None
        request = LayoutRequest(
            racks_by_site=by_site,
            pipeline_send_slowdown=max(self.transport_slowdown, self.pipeline_send_limit or 0.0),
            allreduce_slowdown=max(self.transport_slowdown, self.allreduce_limit or 0.0),
            wan_gbps=min(k.capacity_gbps for k in links) / headroom if wide else None,
            wan_rtt_ms=max(k.rtt_ms for k in links) if wide else None,
        )
        key = (
            "layout",
            tuple(sorted(by_site.items())),
            request.pipeline_send_slowdown,
            request.allreduce_slowdown,
            request.wan_gbps,
            request.wan_rtt_ms,
        )
        near, memory = self._nearest(), self.layouts
        solve = partial(
            layout.solve,
            self.instance,
            request,
            self.left(),
            verified=False,
            warm_starts=near,
            cache=memory,
            progress=self.progress,
        )
        out = self._once(key, solve)
        if out.solution is None:
            return self._refusal("layout", out, partial(layout.conflict, self.instance, request))
        self.requests.append((out.solution, request))
        return out.solution

    def count_on(self, cut: ParallelStrategy) -> None:
        """Size links between sites for what a layout exchanges, where no layout was found for them yet."""
        if self.exchange is None and self.instance.wan is not None:
            measured = step.metrics(
                self.instance,
                step.Conditions(
                    pipeline_send_slowdown=self.transport_slowdown, allreduce_slowdown=self.transport_slowdown
                ),
                cut,
            )
            m = LayoutMetrics.model_validate(measured)
            self.exchange = GradientExchange(
                stage_bytes=m.gradient_bytes_per_stage, window_seconds=m.wan_window_seconds
            )

    def _nearest(self) -> list[ParallelStrategy]:
        """Return the layout found last, from which the next search may start."""
        return [strategy_of(self.requests[-1][0])] if self.requests else []

    def confirmed(self, trial: Trial) -> Trial:
        """Return the trial with its layout verified by CP-SAT: done once, for the plan that is returned.

        The tables are searched afresh where no other solve shares the cache, so that CP-SAT sees every column left.
        Where the time is out the plan stands as it is.
        """
        if self.out_of_time():
            return trial
        request = next(r for kept, r in self.requests if kept is trial.layout)
        memory = None if self.alone else self.layouts
        out = layout.solve(self.instance, request, self.left(), warm_starts=[strategy_of(trial.layout)], cache=memory)
        if out.solution is None:
            raise InternalError("layout: the search does not find again what it found before")
        return replace(trial, layout=out.solution)

    def _needs_more_wan(self, layout_plan: LayoutPlan, sites_plan: SitesPlan | None) -> bool:
        """Return whether the layout exchanges more, or faster, than the links were sized for; keep the larger need."""
        if sites_plan is None or self.instance.wan is None or not sites_plan.links:
            return False
        m, links = layout_plan.metrics, sites_plan.links
        size = wan.exchange_bytes(m.gradient_bytes_per_stage, len(sites_plan.sites))
        need = max(wan.exchange_need_gbps(self.instance.wan, size, m.wan_window_seconds, k.rtt_ms) for k in links)
        carried = min(k.required_gbps for k in links) / self.instance.wan.headroom_factor
        if self.exchange is not None and need <= carried * (1 + 1e-9):
            return False
        asked = GradientExchange(stage_bytes=m.gradient_bytes_per_stage, window_seconds=m.wan_window_seconds)
        if self.exchange is not None and asked == self.exchange:
            return False
        self.exchange = asked
        return True

    def _build(
        self, by_site: dict[str, int], layout_plan: LayoutPlan, split: SitesPlan | None, joined: WanPlan | None
    ) -> tuple[FabricPlan, PlacementPlan] | Refusal | None:
        """Choose the fabrics and place the ranks; None where the traffic may be slower than the layout assumes."""
        designed = self._design(by_site, layout_plan, split, joined)
        if isinstance(designed, Refusal):
            return designed
        return None if self._slower_than_assumed(layout_plan, designed.worst) else self._place(layout_plan, designed)

    def _design(
        self, by_site: dict[str, int], layout_plan: LayoutPlan, split: SitesPlan | None, joined: WanPlan | None
    ) -> Designs | Refusal:
        """Choose the fabric of every site, and tell how slow the traffic may be on them."""
        requests = {
            s: self._fabric_request(s, racks, layout_plan, gateway_gbps(self.instance, s, layout_plan, split, joined))
            for s, racks in sorted(by_site.items())
        }
        designs: dict[str, Outcome[fabric.FabricDesign]] = {}
        worst = (self.transport_slowdown, self.transport_slowdown)
        for site, request in requests.items():
            designs[site] = self._fabric(site, request)
            design = designs[site].solution
            if design is None:
                pins = tuple(f"pins.{p}" for p in sorted(self.instance.pins) if p.startswith("fabric."))
                why = Conflict(
                    decision="fabric",
                    rules=(*pins, f"fabric[{site}]"),
                    reason=designs[site].detail or "no design can be wired",
                )
                return self._refusal("fabric", designs[site], partial(_same, why))
            hop, ring = worst_slowdowns(self.instance, request, design)
            worst = (max(worst[0], hop), max(worst[1], ring))
        return Designs(requests, designs, worst)

    def _fabric(self, site: str, request: FabricRequest) -> Outcome[fabric.FabricDesign]:
        """Choose the fabric of a site, or return the one chosen last where it is still the cheapest."""
        asked, previous = self.designed.get(site, (request, None))
        if (
            previous is not None
            and previous.solution is not None
            and self.instance.network is not None
            and previous.stop is Stop.PROVED
        ):
            slowdowns = worst_slowdowns(self.instance, request, previous.solution)
            if fabric.still_cheapest(self.instance.network, asked, request, slowdowns):
                return previous
        out = self._once(("fabric", request), partial(fabric.solve, self.instance, request, self.left(), site=site))
        self.designed[site] = request, out
        return out

    def _place(self, layout_plan: LayoutPlan, designed: Designs) -> tuple[FabricPlan, PlacementPlan] | Refusal:
        """Place every site's ranks on the racks of its fabric."""
        placed: dict[str, Outcome[plan_placement.Placed]] = {}
        for site, request in designed.requests.items():
            design = designed.design(site).design
            if not layout_plan.data_parallel_by_site[site]:
                continue  # too few racks for a single replica: nothing to place
            wanted = PlacementRequest(
                racks=request.racks,
                groups=layout_plan.rack_stages,
                group_racks=layout_plan.racks_per_stage_by_site[site],
                leaf_domain_racks=fabric_data.leaf_domain_racks(design),
                domains_per_pod=design.domains_per_pod or 1,
            )
            placed[site] = self._once(
                ("placement", wanted), partial(plan_placement.solve, wanted, self.left(), site=site)
            )
            if placed[site].solution is None:
                why = Conflict(decision="placement", rules=(f"racks[{site}]",), reason=placed[site].detail)
                return self._refusal("placement", placed[site], partial(_same, why))
        section = plan_placement.plan(placed, seed=self.options.seed)
        wrap = layout_plan.virtual_stages > 1
        fabrics = {
            s: site_fabric(self.instance, r, layout_plan, designed.design(s), section.sites.get(s), wrap=wrap)
            for s, r in designed.requests.items()
        }
        return FabricPlan(sites=fabrics, certificate=fabric.certificate(designed.outcomes, self.options.seed)), section

    def _fabric_request(
        self, site: str, racks: int, layout_plan: LayoutPlan, wide_gbps: tuple[float, float]
    ) -> FabricRequest:
        gpus, limits = rack_of(self.instance.hardware).gpus, (self.pipeline_send_limit, self.allreduce_limit)
        return request_of(layout_plan, site, racks, gpus, limits=limits, gateway_gbps=wide_gbps)

    def _slower_than_assumed(self, layout_plan: LayoutPlan, worst: tuple[float, float]) -> bool:
        """Return whether a placement on the designs may be slower than the step time assumes; keep the slower."""
        hop, ring = worst
        a = layout_plan.assumptions
        if hop <= a.pipeline_send_slowdown * (1 + 1e-9) and ring <= a.allreduce_slowdown * (1 + 1e-9):
            return False
        self.pipeline_send_limit, self.allreduce_limit = (
            max(hop, a.pipeline_send_slowdown),
            max(ring, a.allreduce_slowdown),
        )
        return True

    def _once(self, key: Hashable, make: Callable[[], Outcome[T]]) -> Outcome[T]:
        """Return a decision taken before for the same request, or take it."""
        if key not in self.memory:
            self.memory[key] = make()
        out: Outcome[T] = self.memory[key]
        return out

    def _refusal(self, decision: Decision, out: Outcome[T], explain: Callable[[], Conflict]) -> Refusal:
        """Return why a decision has no answer: the rules in conflict where proven, else what ended the search."""
        if out.status == "infeasible":
            return Refusal(decision, explain)
        self.unproven_refusals = True
        reason = f"{decision}: the search ended without an answer and without a proof ({out.stop.value}: {out.detail})"
        return Refusal(decision, partial(_same, Conflict(decision=decision, rules=(), reason=reason)))


def _same(why: Conflict) -> Conflict:
    """Return a conflict that is known already."""
    return why
