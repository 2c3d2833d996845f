"""What the rules read: the plan, the instance inside it, and the figures that several rules recompute."""

import math
import re
from dataclasses import dataclass
from functools import cached_property

from planner.cluster import hostlist
from planner.instance.grid import BalancingAuthority, Grid, PowerNode
from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.instance.wan import Wan
from planner.physics.network.locality import Locality, locality
from planner.physics.network.plan_design import design_fault, design_of
from planner.physics.network.topology import Design, unwirable
from planner.physics.site import cost, fibre, power
from planner.physics.training import step
from planner.physics.training.parallel_strategy import strategy_of
from planner.physics.training.step import Conditions
from planner.plan.fabric import SiteFabric
from planner.plan.layout import LayoutMetrics, LayoutPlan
from planner.plan.plan import Plan
from planner.plan.sites import Link, Site

CLUSTER = "cluster"  # the id of the one site of an instance without a grid
MOST_WHOLE = 10**9  # a count above this is a slip, not a plan, and would overflow the arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A site of the plan with the node that it stands on and that node's authority."""

    site: Site
    node: PowerNode
    authority: BalancingAuthority


@dataclass(frozen=True, kw_only=True)
class PlanPhysics:
    """A plan under check; everything derived is computed once, and is missing where the plan is too broken for it."""

    plan: Plan

    @property
    def instance(self) -> Instance:
        """The instance as solved."""
        return self.plan.instance

    @property
    def grid(self) -> Grid:
        """The grid; only for rules that `standing` has let through."""
        return self.instance.grid or Grid(balancing_authorities=(), nodes=())

    @property
    def wan(self) -> Wan:
        """What joins the sites; an instance without it has free and unlimited fibre on the default route."""
        return self.instance.wan or Wan()

    @property
    def gpus_per_rack(self) -> int:
        """GPUs of a rack: the rails of its leaf domain."""
        return power.rack_of(self.instance.hardware).gpus

    @property
    def transport_slowdown(self) -> float:
        """Slowdown of the transport itself: the simulated one that the plan states, else the instance's constant."""
        if self.plan.transport is not None:
            return self.plan.transport.slowdown
        return self.instance.network.transport.slowdown if self.instance.network is not None else 1.0

    @cached_property
    def standing(self) -> tuple[Standing, ...]:
        """Sites that stand on a known node."""
        sites = self.plan.sites.sites if self.plan.sites and self.instance.grid else ()
        nodes = {n.id: n for n in self.grid.nodes}
        areas = {b.id: b for b in self.grid.balancing_authorities}
        known = [s for s in sites if s.id in nodes and nodes[s.id].balancing_authority in areas]
        return tuple(
            Standing(site=s, node=nodes[s.id], authority=areas[nodes[s.id].balancing_authority]) for s in known
        )

    @cached_property
    def racks_by_site(self) -> dict[str, int]:
        """Racks that each site holds; pools count their own, each in a context of its own."""
        if self.instance.hardware.pools:
            return {}
        if self.instance.grid is None:
            return {CLUSTER: self.instance.hardware.racks or 0}
        return {s.id: s.racks for s in self.plan.sites.sites} if self.plan.sites else {}

    def load_mw(self, racks: int) -> float:
        """Power of racks at the grid connection."""
        return power.facility_mw(self.instance.hardware, racks)

    @cached_property
    def built(self) -> dict[str, int]:
        """New circuits by corridor, of corridors that can be built."""
        known = {n.id for n in self.grid.new_lines}
        counts: dict[str, int] = {}
        for n in self.plan.sites.new_lines if self.plan.sites else ():
            if n.line in known:
                counts[n.line] = counts.get(n.line, 0) + n.circuits
        return counts

    @cached_property
    def steps(self) -> dict[str, int]:
        """Steps of interconnect by node, of nodes that can be upgraded."""
        known = {n.id for n in self.grid.nodes if n.upgrade}
        counts: dict[str, int] = {}
        for u in self.plan.sites.upgrades if self.plan.sites else ():
            if u.node in known:
                counts[u.node] = counts.get(u.node, 0) + u.steps
        return counts

    def excess(self, rule: str) -> float:
        """Return what the plan says it exceeds a soft rule's row by; 0 for a hard rule."""
        if self.plan.sites is None or rule.partition("[")[0] not in self.grid.rules.soft:
            return 0.0
        return sum(x.amount for x in self.plan.sites.excess if x.rule == rule)

    def site_named(self, name: str) -> Standing | None:
        """Return an open site by id."""
        return next((s for s in self.standing if s.site.id == name), None)

    @cached_property
    def _route_km(self) -> dict[tuple[str, str], float]:
        return fibre.reach(self.wan, {x.site.id: (x.node.latitude, x.node.longitude) for x in self.standing}).km

    def route_km(self, a: str, b: str) -> float:
        """Length of the shortest fibre route between two open sites."""
        return self._route_km.get((min(a, b), max(a, b)), 0.0)

    def link_usd_per_year(self, link: Link, route_km: float) -> float:
        """Yearly price of a link by its wavelengths."""
        return cost.link_usd_per_year(self.grid, self.wan, route_km, link.wavelengths)

    @cached_property
    def faults(self) -> list[str]:
        """What of the layout cannot be computed with."""
        return list(layout_faults(self.plan.layout)) if self.plan.layout else []

    @cached_property
    def replicas(self) -> dict[str, int]:
        """Replicas by site, of sites that have any."""
        held = self.plan.layout.data_parallel_by_site if self.plan.layout else {}
        return {s: d for s, d in held.items() if d > 0}

    @cached_property
    def metrics(self) -> LayoutMetrics | None:
        """The layout's figures as physics predicts them from its cut and its assumptions."""
        held = self.plan.layout
        if held is None or self.faults:
            return None
        a = held.assumptions
        conditions = Conditions(
            pipeline_send_slowdown=a.pipeline_send_slowdown,
            allreduce_slowdown=a.allreduce_slowdown,
            wan_gbps=a.wan_gbps,
            wan_rtt_ms=a.wan_rtt_ms or 0.0,
            wan_round_trips=self.wan.round_trips,
        )
        return LayoutMetrics.model_validate(step.metrics(self.instance, conditions, strategy_of(held)))

    @cached_property
    def switches(self) -> dict[str, Switch]:
        """Switches that a fabric may be built from, by name."""
        network = self.instance.network
        return {s.name: s for s in network.switches if isinstance(s, Switch)} if network else {}

    @cached_property
    def designs(self) -> dict[str, Design]:
        """The design behind each site's fabric, of fabrics whose choices can be computed with."""
        held = self.plan.fabric.sites if self.plan.fabric else {}
        found = {s: self._design(f, self.racks_by_site[s]) for s, f in held.items() if s in self.racks_by_site}
        return {s: d for s, d in found.items() if d is not None}

    def _design(self, f: SiteFabric, racks: int) -> Design | None:
        network = self.instance.network
        if network is None or design_fault(f, racks) or f.switch not in self.switches:
            return None
        return design_of(f, racks, ports=self.switches[f.switch].ports, gpus=self.gpus_per_rack, network=network)

    @cached_property
    def wired(self) -> dict[str, Design]:
        """The designs that can be wired: only these have counts."""
        return {s: d for s, d in self.designs.items() if not unwirable(d, cross_rail=True)}

    @cached_property
    def stages(self) -> dict[str, list[list[int]]]:
        """Racks of each stage in rank order by site, of assignments that can be read."""
        held = self.plan.placement.sites if self.plan.placement else {}
        return {s: ranks for s in held if (ranks := self._ranks(s)) is not None}

    def _ranks(self, site: str) -> list[list[int]] | None:
        if self.plan.placement is None or self.plan.layout is None or self.faults or site not in self.racks_by_site:
            return None
        ranks: list[list[int]] = [[] for _ in range(self.plan.layout.rack_stages)]
        for a in self.plan.placement.sites[site].assignment:
            racks = racks_of(a.racks, self.racks_by_site[site])
            if isinstance(racks, str) or not 0 <= a.stage < len(ranks):
                return None
            ranks[a.stage] += racks
        return ranks

    @cached_property
    def crossings(self) -> dict[str, Locality]:
        """What each site's placement sends across leaf domains, pods and zones."""
        held = self.plan.layout
        both = [s for s in self.stages if s in self.wired]
        return (
            {}
            if held is None
            else {s: _locality(self.wired[s], self.stages[s], wrap=held.virtual_stages > 1) for s in both}
        )


def _locality(d: Design, stages: list[list[int]], *, wrap: bool) -> Locality:
    blocks = {"leaf_domain_racks": domain_racks(d), "domains_per_pod": d.domains_per_pod or 1}
    return locality(stages, **blocks, domains_per_zone=d.domains_per_zone, wrap=wrap)


def domain_racks(d: Design) -> int:
    """Racks whose GPUs of one index share a leaf; a single switch takes all."""
    return d.domain_racks


def racks_of(text: str, racks: int) -> list[int] | str:
    """Read a hostlist of a site's racks, or say what is wrong with it; numbers are looked at before ranges are expanded."""
    beyond = [n for n in re.findall(r"[0-9]+", text) if len(n) > 9 or int(n) >= racks]
    if beyond:
        return f"rack {beyond[0][:20]} of {text[:60]!r} > {racks - 1:,}, the site's last rack"
    try:
        return hostlist.parse(text)
    except ValueError as error:
        return str(error)


WHOLE = (
    "tensor_parallel", "pipeline_parallel", "data_parallel", "virtual_stages", "microbatch_sequences", "microbatches_per_step", "replicas_per_rack",
    "context_parallel", "expert_parallel", "tensor_parallel_inner", "stages_per_rack", "racks_per_replica",
)  # fmt: skip


def layout_faults(held: LayoutPlan) -> list[str]:
    """Say what of a layout makes its figures meaningless."""
    faults = [
        f"{k} {getattr(held, k):,} is not from 1 to {MOST_WHOLE:,}"
        for k in WHOLE
        if not 1 <= getattr(held, k) <= MOST_WHOLE
    ]
    if held.tensor_parallel_inner > held.tensor_parallel:
        faults.append(
            f"tensor_parallel_inner {held.tensor_parallel_inner:,} > {held.tensor_parallel:,}, tensor_parallel"
        )
    if len(held.layers_per_stage) != held.pipeline_parallel:
        faults.append(f"layers_per_stage has {len(held.layers_per_stage):,} entries, {held.pipeline_parallel:,} stages")
    faults += [
        f"stage {i} has {n:,} layers < 1" for i, n in enumerate(held.layers_per_stage) if not 1 <= n <= MOST_WHOLE
    ]
    again = held.recomputed_layers_per_stage
    if again and (
        len(again) != len(held.layers_per_stage)
        or any(not 0 <= r <= n for r, n in zip(again, held.layers_per_stage, strict=False))
    ):
        faults.append(
            f"recomputed_layers_per_stage {list(again)[:8]} are not counts within the {len(held.layers_per_stage):,} stages' layers"
        )
    shares = held.data_parallel_by_site
    faults += [
        f"data_parallel_by_site.{s} {d:,} is not from 0 to {MOST_WHOLE:,}"
        for s, d in sorted(shares.items())
        if not 0 <= d <= MOST_WHOLE
    ]
    if not any(shares.values()):
        faults.append("data_parallel_by_site has no replica, at least 1 is needed")
    a = held.assumptions
    rates = {
        "pipeline_send_slowdown": a.pipeline_send_slowdown,
        "allreduce_slowdown": a.allreduce_slowdown,
        "wan_gbps": a.wan_gbps,
    }
    faults += [
        f"assumptions.{k} {x:g} is not above 0"
        for k, x in rates.items()
        if x is not None and not (x > 0 and math.isfinite(x))
    ]
    if a.wan_rtt_ms is not None and a.wan_rtt_ms < 0:
        faults.append(f"assumptions.wan_rtt_ms {a.wan_rtt_ms:g} < 0")
    return faults
