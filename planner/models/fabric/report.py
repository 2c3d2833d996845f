"""What the plan states of fabrics: the section of a site, and the proof over all sites."""

import math
from collections.abc import Iterator

from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.models.fabric.data import network_of
from planner.models.fabric.design import FabricDesign
from planner.models.requests import FabricRequest
from planner.physics.network.locality import Locality
from planner.physics.network.price import wan_gateway_bill
from planner.physics.network.topology import Design
from planner.physics.network.transport import ALL_FREE, allreduce_slowdown, pipeline_send_slowdown
from planner.physics.network.wan_gateway import FreeUplinks
from planner.plan.certificate import Certificate
from planner.plan.fabric import SiteFabric, Tier, WanGateway
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.cpsat import SOLVER
from planner.solvers.outcome import Outcome, Stop

FORMULATION = (
    "CP-SAT over switch mode, tiers, leaf down ports (the leaf domain), leaf up ports and bundle, rails and "
    "domains per pod and per zone, spine and core up ports and bundles; lowest cost (prices to the cent), then "
    "fewest unavoidable split groups, fewest switches, smallest leaf domain. One table has a row per leaf domain, "
    "pod shape, zone shape, leaf uplinks and bundle, one a row per spine group (P spines, their uplinks, their "
    "cores and, of four tiers, the cheapest way to join the cores of Z zones by super-spines). Left out because "
    "no better: leaf domains larger than the site, pods and zones that take more rails or domains than their "
    "count needs (fewer give the same switches and cables with fewer ports and less traffic; kept where the ports "
    "down of spine or core are pinned, and in dragonflies under valiant; where prices follow lengths they are "
    "left out by declaration, since uneven pods may have shorter cables), a spine bundle below the largest that "
    "divides the uplinks and fits the core (more cores), one zone alone, and rows whose ports alone cost more "
    "than the incumbent: shapes of four tiers enter once the best of fewer tiers is known, and only within its "
    "cost. Dragonflies are rows of their own, each bundle between routers with the fewest links between groups "
    "that the rules allow, and no larger one than those links ask for, since more cost more. A WAN gateway is the "
    "same switches and links whatever the wiring of a tree, to groups in turn in a dragonfly, and every row "
    "leaves its ports in the top tier free; what sites exchange takes its ports' worth of uplinks beside pipeline "
    "sends and all-reduces. The time rules take the worst placement; slowdowns are compared within 1e-9."
)


def site_fabric(
    instance: Instance, request: FabricRequest, chosen: FabricDesign, x: Locality, free: FreeUplinks = ALL_FREE
) -> SiteFabric:
    """Return the plan's section for a site, with the slowdowns that its placement causes."""
    network, d = network_of(instance), chosen.design
    own, shares = transport_slowdown_of(network), (x.share_leaving_leaf, x.share_leaving_pod, x.share_leaving_zone)
    groups = x.allreduces_leaving_leaf, x.allreduces_leaving_pod, x.allreduces_leaving_zone
    send = pipeline_send_slowdown(own, d, *shares, free=free)
    return SiteFabric(
        switch=chosen.switch.name,
        family=chosen.mode.family,
        lanes=d.lanes,
        leaf_spare_ports=d.leaf_spare,
        split=d.split,
        group_links=d.group_links,
        planes=chosen.mode.planes,
        ports_per_switch=chosen.switch.ports,
        tiers=tuple(_tiers(d)),
        switches=d.switches,
        chips=d.switches * chosen.switch.planes,
        switch_links=d.switch_links,
        endpoint_links=d.endpoint_links,
        cost_usd=chosen.cost_usd,
        power_mw=chosen.power_mw,
        wan_gateway=_wan_gateway(network, request, chosen, free),
        leaf_domain_racks=d.domain_racks,
        leaf_domains=d.domains,
        rails_per_pod=d.rails_per_pod,
        leaf_domains_per_pod=d.domains_per_pod,
        pods=d.pods,
        rails_per_zone=d.rails_per_zone,
        leaf_domains_per_zone=d.domains_per_zone,
        zones=d.zones,
        share_leaving_leaf=x.share_leaving_leaf,
        share_leaving_pod=x.share_leaving_pod,
        share_leaving_zone=x.share_leaving_zone,
        p2p_seconds=request.pipeline_send_seconds * send,
        pipeline_send_slowdown=send,
        allreduce_slowdown=allreduce_slowdown(own, d, *groups, free=free),
    )


def certificate(outcomes: dict[str, Outcome[FabricDesign]], seed: int) -> Certificate:
    """Return what is proven of all sites together: each is solved alone, so bounds and costs add up."""
    each = [outcomes[s] for s in sorted(outcomes)]
    designs = [o.solution for o in each if o.solution is not None]
    costs = [o.objective for o in each if o.objective is not None]
    bounds = [o.bound for o in each if o.bound is not None]
    infeasible = any(o.infeasible for o in each)
    total = Outcome(
        stop=Stop.PROVED if infeasible or all(o.objective == o.bound for o in each) else Stop.LIMIT,
        solution=designs if len(designs) == len(each) and not infeasible else None,
        objective=math.fsum(costs) if len(costs) == len(each) else None,
        bound=math.fsum(bounds) if len(bounds) == len(each) else None,
        infeasible=infeasible,
        solver=SOLVER,
        variables=sum(o.variables for o in each),
        constraints=sum(o.constraints for o in each),
        seconds=math.fsum(o.seconds for o in each),
    )
    space: dict[str, int | str] = dict(designs[0].declared) if designs else {}
    for name in sorted({name for x in designs for name in x.space}):
        space[name] = sum(x.space.get(name, 0) for x in designs)
    binding = {f"{s}: {rule}" for s, o in outcomes.items() if o.solution for rule in o.solution.binding}
    return total.certificate(
        formulation=FORMULATION,
        minimizes="capital of the fabrics of all sites, in dollars",
        given="racks, replica groups and traffic of each site; every flow may leave its leaf and its pod",
        seed=seed,
        space=space,
        binding=tuple(sorted(binding)),
    )


def _wan_gateway(
    network: Network, request: FabricRequest, chosen: FabricDesign, free: FreeUplinks
) -> WanGateway | None:
    """Return the plan's section for the WAN gateway, of a site that has one."""
    d = chosen.design
    if not d.wan_ports:
        return None
    price = wan_gateway_bill(network, chosen.switch, d)
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
    """Yield the tiers from the leaf up; the bundle of a tier is that of its links upwards."""
    figures = [
        (d.leaf_down, d.up_ports, d.leaf_oversubscription, d.leaf_bundle),
        (d.spine_down, d.spine_up, d.spine_oversubscription, d.spine_bundle),
        (d.core_down, d.core_up, d.core_oversubscription, d.core_bundle) if d.tiers > 2 else (0, 0, 1.0, 0),
        (d.super_spine_down, 0, 1.0, 0),
    ]
    tiers = zip(d.tier_switches.items(), figures, strict=True)
    for (name, switches), (down, up, over, bundle) in list(tiers)[: d.tiers]:
        yield Tier.model_validate(
            {
                "name": name,
                "switches": switches,
                "down_ports": down,
                "up_ports": up,
                "oversubscription": over,
                "bundle": bundle,
            }
        )
