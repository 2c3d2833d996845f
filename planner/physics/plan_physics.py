"""Physical figures of a plan that checks, export and simulation recompute: each once, from the instance inside it."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from planner.cluster.hostlists import parse
from planner.instance.grid import BalancingAuthority, Grid, PowerNode
from planner.instance.instance import Instance
from planner.instance.network import Switch, Wan
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_designs import design_fault, design_of
from planner.physics.network.locality import Locality, locality
from planner.physics.site import site_power
from planner.physics.site.wan import Place, reach
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import strategy_of
from planner.physics.training.step_prediction import Conditions
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutMetrics, LayoutPlan, Site

CLUSTER = "cluster"  # the id of the one site of an instance without a grid
MAX_COUNT = 10**9  # a count above this is a slip, not a plan, and would overflow the arrays
MAX_CHUNKS = 10_000  # of a stage's layers; more would be walked through one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class PoweredSite:
    """A site in a plan's physics, with its power node and the balancing authority of that node."""

    site: Site
    node: PowerNode
    authority: BalancingAuthority


@dataclass(frozen=True, kw_only=True)
class PlanPhysics:
    """The physics of a plan: each derived figure is computed once, and missing where the plan is too broken for it."""

    plan: Plan
    stop: Callable[[], bool] = lambda: False  # whether the recomputation of bounds, the longest part, must end

    @property
    def instance(self) -> Instance:
        """Return the instance, as solved, from which a plan's physics is computed."""
        return self.plan.instance

    @property
    def grid(self) -> Grid:
        """Return the grid in a plan's physics, or an empty one; only for sites of `standing`, whose nodes are known."""
        return self.instance.grid or Grid(balancing_authorities=(), nodes=())

    @property
    def wan(self) -> Wan:
        """Return the wide area in a plan's physics; by default fibre on the default route at default prices."""
        return self.instance.wan or Wan()

    @property
    def gpus_per_rack(self) -> int:
        """Return the GPUs of a rack in a plan's physics: the rails of its leaf domain."""
        return self.instance.hardware.rack.gpus

    @property
    def transport_slowdown(self) -> float:
        """Return the slowdown of the transport itself in a plan's physics: the simulated one, else the instance's."""
        if self.plan.transport is not None:
            return self.plan.transport.slowdown
        return self.instance.network.transport.slowdown if self.instance.network is not None else 1.0

    @cached_property
    def standing(self) -> tuple[PoweredSite, ...]:
        """Return the sites in a plan's physics: those whose power node and balancing authority are known."""
        sites = self.plan.sites.sites if self.plan.sites and self.instance.grid else ()
        nodes = {node.id: node for node in self.grid.nodes}
        areas = {area.id: area for area in self.grid.balancing_authorities}
        known = [(site, nodes[site.id]) for site in sites if site.id in nodes]
        pairs = [(site, node, areas.get(node.balancing_authority)) for site, node in known]
        return tuple(PoweredSite(site=site, node=node, authority=area) for site, node, area in pairs if area)

    @cached_property
    def racks_by_site(self) -> dict[str, int]:
        """Count the racks of each site in a plan's physics; none for pools, whose layouts are plans of their own."""
        if self.instance.hardware.pools:
            return {}
        if self.instance.grid is None:
            return {CLUSTER: self.instance.hardware.racks or 0}
        return {site.id: site.racks for site in self.plan.sites.sites} if self.plan.sites else {}

    def fabric_mw(self, site: str) -> float:
        """Return the power of the fabric at a site in a plan's physics, in MW; 0 without one."""
        fabrics = self.plan.fabric.sites if self.plan.fabric else {}
        return fabrics[site].power_mw if site in fabrics else 0.0

    def load_mw(self, site: str, racks: int) -> float:
        """Compute the power at the grid connection of a site's racks and fabric in a plan's physics, in MW."""
        return site_power.facility_mw(self.instance.hardware, racks, self.fabric_mw(site))

    @cached_property
    def racks_in_use(self) -> dict[str, int]:
        """Count the racks of each site that carry replicas in a plan's physics."""
        layout = self.plan.layout
        if layout is None or self.faults:
            return {}
        stages, by_site = layout.rack_stages, layout.racks_per_stage_by_site
        return {site: by_site.get(site, 0) * stages for site in self.replicas}

    def cabled_racks(self, site: str) -> int:
        """Count the racks of a site that the fabric joins in a plan's physics."""
        fabric = self.plan.fabric.sites.get(site) if self.plan.fabric else None
        return (fabric.cabled_racks if fabric else 0) or self.racks_by_site.get(site, 0)

    def wired_gpus_per_rack(self, site: str) -> int:
        """Count the GPUs of each rack of a site that the fabric joins in a plan's physics."""
        fabric = self.plan.fabric.sites.get(site) if self.plan.fabric else None
        return (fabric.wired_gpus_per_rack if fabric else 0) or self.gpus_per_rack

    @cached_property
    def built(self) -> dict[str, int]:
        """Count the new circuits in a plan's physics by grid corridor, of corridors that can be built."""
        known, counts = {line.id for line in self.grid.new_lines}, Counter[str]()
        for line in self.plan.sites.new_lines if self.plan.sites else ():
            if line.line in known:
                counts[line.line] += line.circuits
        return counts

    @cached_property
    def steps(self) -> dict[str, int]:
        """Count the steps of interconnect upgrades in a plan's physics by power node, of nodes that can be upgraded."""
        known, counts = {node.id for node in self.grid.nodes if node.upgrade}, Counter[str]()
        for upgrade in self.plan.sites.upgrades if self.plan.sites else ():
            if upgrade.node in known:
                counts[upgrade.node] += upgrade.steps
        return counts

    @cached_property
    def places(self) -> dict[str, Place]:
        """Return the latitude and longitude of each open site in a plan's physics, in degrees."""
        return {place.site.id: (place.node.latitude, place.node.longitude) for place in self.standing}

    @cached_property
    def _routes(self) -> dict[tuple[str, str], float]:
        return reach(self.wan, self.places)[0]

    def route_km(self, start: str, end: str) -> float:
        """Return the length of the shortest fibre route between two open sites in a plan's physics, in km."""
        return self._routes.get((min(start, end), max(start, end)), 0.0)

    @cached_property
    def faults(self) -> list[str]:
        """List the faults of a layout from which a plan's physics cannot be computed."""
        return list(layout_faults(self.plan.layout)) if self.plan.layout else []

    @cached_property
    def replicas(self) -> dict[str, int]:
        """Return the replicas by site in a plan's physics, of sites that have any."""
        by_site = self.plan.layout.data_parallel_by_site if self.plan.layout else {}
        return {site: count for site, count in by_site.items() if count > 0}

    @cached_property
    def metrics(self) -> LayoutMetrics | None:
        """Predict the metrics of the layout in a plan's physics from its strategy and its assumptions."""
        layout = self.plan.layout
        if layout is None or self.faults:
            return None
        own = {"wan_round_trips": self.wan.round_trips, "transport_slowdown": self.transport_slowdown}
        conditions = Conditions(**dict(layout.assumptions), **own)
        useful = None if self.plan.reliability is None else self.plan.reliability.useful_share
        return step_prediction.metrics(self.instance, conditions, strategy_of(layout), useful_share=useful)

    @cached_property
    def switches(self) -> dict[str, Switch]:
        """Return the switches that the fabric may be built from in a plan's physics, by name."""
        network = self.instance.network
        return {switch.name: switch for switch in network.switches} if network else {}

    @cached_property
    def designs(self) -> dict[str, Design]:
        """Return the fabric's design at each site in a plan's physics, of those whose choices can be computed with."""
        network, found = self.instance.network, dict[str, Design]()
        for site, fabric in self.plan.fabric.sites.items() if self.plan.fabric else ():
            racks, known = self.cabled_racks(site), {fabric.switch, *fabric.models} <= set(self.switches)
            if network is None or site not in self.racks_by_site or design_fault(fabric, racks) or not known:
                continue
            nic, gpus = self.instance.hardware.gpu_nic_bytes_per_second, self.wired_gpus_per_rack(site)
            found[site] = design_of(fabric, racks, gpus, network, nic)
        return found

    @cached_property
    def wired(self) -> dict[str, Design]:
        """Return the fabric designs in a plan's physics that can be wired: only these have counts."""
        return {site: design for site, design in self.designs.items() if not design.faults()}

    @cached_property
    def stages(self) -> dict[str, list[list[int]]]:
        """Return the racks of each stage in rank order by site in a plan's physics, of assignments that can be read."""
        layout, placement, found = self.plan.layout, self.plan.placement, dict[str, list[list[int]]]()
        if placement is None or layout is None or self.faults:
            return {}
        for site in (site for site in placement.sites if site in self.racks_by_site):
            ranks: list[list[int]] = [[] for _ in range(layout.rack_stages)]
            for fragment in placement.sites[site].assignment:
                racks = racks_of(fragment.racks, self.cabled_racks(site))
                if isinstance(racks, str) or not 0 <= fragment.stage < len(ranks):
                    break
                ranks[fragment.stage] += racks
            else:
                found[site] = ranks
        return found

    @cached_property
    def crossings(self) -> dict[str, Locality]:
        """Compute the traffic of the placement at each site in a plan's physics across leaf domains, pods and zones."""
        layout, stages = self.plan.layout, {site: own for site, own in self.stages.items() if site in self.wired}
        if layout is None:
            return {}
        wrap = layout.virtual_stages > 1
        return {site: locality(own, self.wired[site].block_racks, wrap=wrap) for site, own in stages.items()}


def racks_of(text: str, racks: int) -> list[int] | str:
    """Read a site's hostlist of racks for a plan's physics, or return its fault; numbers are compared unexpanded."""
    outside = [number for number in re.findall(r"[0-9]+", text) if len(number) > 9 or int(number) >= racks]
    if outside:
        return f"rack {outside[0][:20]} of {text[:60]!r} > {racks - 1:,}, the site's last rack"
    try:
        return parse(text)
    except ValueError as error:
        return str(error)


def layout_faults(layout: LayoutPlan) -> Iterator[str]:
    """Yield the faults of a layout that make a plan's physics meaningless, each with the expected value."""
    counts = {name for name, field in LayoutPlan.model_fields.items() if field.annotation is int}
    for name, value in layout:
        if name in counts - {"gpus_used", "gpus_idle"} and not 1 <= value <= MAX_COUNT:
            yield f"{name} {value:,} is not from 1 to {MAX_COUNT:,}"
    inner, outer = layout.tensor_parallel_inner, layout.tensor_parallel
    if inner > outer:
        yield f"tensor_parallel_inner {inner:,} > {outer:,}, tensor_parallel"
    layers, recomputed = layout.layers_per_stage, layout.recomputed_layers_per_stage
    if len(layers) != layout.pipeline_parallel:
        yield f"layers_per_stage has {len(layers):,} entries, {layout.pipeline_parallel:,} stages"
    yield from (f"stage {i} has {count:,} layers < 1" for i, count in enumerate(layers) if not 1 <= count <= MAX_COUNT)
    most = min(MAX_CHUNKS, max(layers, default=0))
    if layout.virtual_stages > max(1, most):
        yield f"virtual_stages {layout.virtual_stages:,} > {most:,}, the most chunks that a stage's layers divide into"
    within = all(0 <= part <= whole for part, whole in zip(recomputed, layers, strict=False))
    if recomputed and not (within and len(recomputed) == len(layers)):
        first = list(recomputed)[:8]
        yield f"recomputed_layers_per_stage {first} are not counts within the {len(layers):,} stages' layers"
    by_site = sorted(layout.data_parallel_by_site.items())
    wrong = [(site, count) for site, count in by_site if not 0 <= count <= MAX_COUNT]
    yield from (f"data_parallel_by_site.{site} {count:,} is not from 0 to {MAX_COUNT:,}" for site, count in wrong)
    if not any(count for _, count in by_site):
        yield "data_parallel_by_site has no replica, at least 1 is needed"
    for key in ("pipeline_send_slowdown", "allreduce_slowdown", "wan_gbps"):
        value = getattr(layout.assumptions, key)
        if value is not None and not (value > 0 and math.isfinite(value)):
            yield f"assumptions.{key} {value:g} is not above 0"
    if layout.assumptions.wan_rtt_ms is not None and layout.assumptions.wan_rtt_ms < 0:
        yield f"assumptions.wan_rtt_ms {layout.assumptions.wan_rtt_ms:g} < 0"
