"""What the plan says of fabrics: the section of a site, and the proof over all sites."""

import math
from collections.abc import Iterator

from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.models.fabric.data import leaf_domain_racks, network_of
from planner.models.fabric.design import FabricDesign
from planner.models.requests import FabricRequest
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.price import wan_gateway_bill
from planner.physics.network.topology import Design
from planner.physics.network.transport import ALL_FREE, allreduce_slowdown, pipeline_send_slowdown
from planner.physics.network.wan_gateway import FreeUplinks
from planner.plan.certificate import Certificate, Status
from planner.plan.fabric import SiteFabric, Tier, WanGateway
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.cpsat import SOLVER
from planner.solvers.outcome import Outcome, relative_gap

FORMULATION = (
    "CP-SAT over switch mode, tiers, leaf down ports (the leaf domain), leaf up ports and bundle, rails and domains per pod and per zone, spine and "
    "core up ports and bundles; least cost (prices to the cent), then fewest unavoidable split groups, fewest boxes, smallest leaf domain. One table "
    "has a row per leaf domain, pod shape, zone shape, leaf uplinks and bundle, one a row per spine group (P spines, their uplinks, their cores and, "
    "of four tiers, the way of least cost to join the cores of Z zones by super-spines). Left out because no better: leaf domains larger than the "
    "site, pods and zones that take more rails or domains than their count needs (fewer give the same boxes and cables with fewer ports and less "
    "traffic; kept where the ports down of spine or core are pinned, and in dragonflies under valiant; where prices follow lengths they are left out "
    "by declaration, since uneven pods may have shorter cables), a spine bundle below the largest that divides the uplinks and fits the core (more "
    "cores), one zone alone, and rows whose ports alone cost more than the design held: shapes of four tiers enter once the best of fewer tiers is "
    "known, and only within its cost. Dragonflies are rows of their own, each bundle between routers with the fewest links between groups that the "
    "rules allow, and no larger one than those links ask for, since more cost more. A WAN gateway is the same boxes and links whatever the wiring of a "
    "tree, to groups in turn in a dragonfly, and every row leaves its ports in the top tier free; what sites exchange takes its ports' worth of "
    "uplinks beside hops and rings. The time rules take the worst placement; slowdowns are compared within 1e-9."
)


def site_fabric(
    instance: Instance,
    request: FabricRequest,
    found: FabricDesign,
    *,
    share_leaving_leaf: float,
    share_leaving_pod: float,
    share_leaving_zone: float = 0.0,
    allreduces_leaving_leaf: int,
    allreduces_leaving_pod: int,
    allreduces_leaving_zone: int = 0,
    free: FreeUplinks = ALL_FREE,
) -> SiteFabric:
    """Return the plan's section for a site, with the slowdowns that its placement causes."""
    network, d = network_of(instance), found.design
    hop = pipeline_send_slowdown(
        transport_slowdown_of(network), d, share_leaving_leaf, share_leaving_pod, share_leaving_zone, free=free
    )
    ring = allreduce_slowdown(
        transport_slowdown_of(network), d, allreduces_leaving_leaf, allreduces_leaving_pod, allreduces_leaving_zone, free=free
    )
    return SiteFabric(
        switch=found.switch.name,
        family=found.mode.family,
        lanes=d.lanes,
        leaf_spare_ports=d.leaf_spare,
        split=d.split,
        group_links=d.group_links if isinstance(d, Dragonfly) else 0,
        planes=found.mode.planes,
        ports_per_switch=found.switch.ports,
        tiers=tuple(_tiers(d)),
        switches=d.switches,
        chips=d.switches * found.switch.planes,
        switch_links=d.switch_links,
        endpoint_links=d.endpoint_links,
        cost_usd=found.cost_usd,
        power_mw=found.power_mw,
        wan_gateway=_border(network, request, found, free),
        leaf_domain_racks=leaf_domain_racks(d),
        leaf_domains=d.domains,
        rails_per_pod=d.rails_per_pod,
        leaf_domains_per_pod=d.domains_per_pod,
        pods=d.pods,
        rails_per_zone=d.rails_per_zone,
        leaf_domains_per_zone=d.domains_per_zone,
        zones=d.zones,
        share_leaving_leaf=share_leaving_leaf,
        share_leaving_pod=share_leaving_pod,
        share_leaving_zone=share_leaving_zone,
        p2p_seconds=request.pipeline_send_seconds * hop,
        pipeline_send_slowdown=hop,
        allreduce_slowdown=ring,
    )


def certificate(outcomes: dict[str, Outcome[FabricDesign]], seed: int) -> Certificate:
    """Return what is proven of all sites together: each is solved alone, so bounds and costs add up."""
    each = [outcomes[s] for s in sorted(outcomes)]
    held = [o.solution for o in each if o.solution is not None]
    costs = [o.objective for o in each if o.objective is not None]
    bounds = [o.bound for o in each if o.bound is not None]
    objective = math.fsum(costs) if len(costs) == len(each) else None
    bound = math.fsum(bounds) if len(bounds) == len(each) else None
    space: dict[str, int | float | str | list[int] | list[str]] = dict(held[0].declared) if held else {}
    for name in sorted({name for h in held for name in h.space}):
        space[name] = sum(h.space.get(name, 0) for h in held)
    return Certificate(
        status=_status(each),
        objective=objective,
        bound=bound,
        gap=relative_gap(objective, bound),
        solver=SOLVER,
        formulation=FORMULATION,
        variables=sum(o.variables for o in each),
        constraints=sum(o.constraints for o in each),
        seconds=math.fsum(o.seconds for o in each),
        seed=seed,
        minimizes="capital of the fabrics of all sites, in dollars",
        given="racks, replica groups and traffic of each site; every flow may leave its leaf and its pod",
        space=space,
        binding=tuple(sorted({f"{s}: {rule}" for s in outcomes if (h := outcomes[s].solution) for rule in h.binding})),
    )


def _border(network: Network, request: FabricRequest, found: FabricDesign, free: FreeUplinks) -> WanGateway | None:
    """Return the plan's section for the WAN gateway, of a site that has one."""
    d = found.design
    if not d.wan_ports:
        return None
    price = wan_gateway_bill(network, found.switch, d)
    counts = {"wan_ports": d.wan_gateway_links, "switches": d.wan_gateways, "uplinks": d.wan_gateway_links}
    taken = {"leaf_uplink_share": 1 - free.leaf, "pod_uplink_share": 1 - free.pod, "zone_uplink_share": 1 - free.zone}
    return WanGateway(
        wan_gbps=request.wan_gbps,
        exchange_gbps=request.exchange_gbps,
        **counts,
        **taken,
        cost_usd=price.usd,
        power_mw=price.mw,
    )


def _tiers(d: Design) -> Iterator[Tier]:
    """Tiers from the leaf up; the bundle of a tier is that of its links upwards."""
    over, up = d.leaf_oversubscription, d.up_ports if isinstance(d, Dragonfly) else d.leaf_up
    yield Tier(
        name="leaf", switches=d.leaves, down_ports=d.leaf_down, up_ports=up, oversubscription=over, bundle=d.leaf_bundle
    )
    if d.tiers > 1:
        over = d.spine_oversubscription
        yield Tier(
            name="spine",
            switches=d.spines,
            down_ports=d.spine_down,
            up_ports=d.spine_up,
            oversubscription=over,
            bundle=d.spine_bundle,
        )
    if d.tiers > 2:
        over = d.core_oversubscription
        yield Tier(
            name="core",
            switches=d.cores,
            down_ports=d.core_down,
            up_ports=d.core_up,
            oversubscription=over,
            bundle=d.core_bundle,
        )
    if d.tiers > 3:
        down = d.zones * d.core_bundle
        yield Tier(
            name="super-spine", switches=d.super_spines, down_ports=down, up_ports=0, oversubscription=1.0, bundle=0
        )


def _status(outcomes: list[Outcome[FabricDesign]]) -> Status:
    if any(o.infeasible for o in outcomes):
        return "infeasible"
    if any(o.solution is None for o in outcomes):
        return "unknown"
    return "optimal" if all(o.objective == o.bound for o in outcomes) else "feasible"
