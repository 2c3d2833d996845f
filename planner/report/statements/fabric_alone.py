"""Statements on a fabric that was asked for alone: what it costs, carries and survives, and why other kinds lost."""

from collections.abc import Iterator

from planner.instance.network import Switch
from planner.physics.network.links import media_of
from planner.physics.network.price import by_reach
from planner.physics.plan_physics import CLUSTER
from planner.plan.fabric import FabricAlternative
from planner.plan.plan import Plan
from planner.report.statements.network import tier_words
from planner.report.statements.statement import Statement, proof_of, short_percent
from planner.units import counted, money

SURVIVED = {"one_spine": "any one switch above the leaves", "one_leaf_uplink": "any one link between leaf and spine"}


def fabric_verdict(plan: Plan) -> Iterator[Statement]:
    """State what the fabric joins and costs, and whether a cheaper one is possible."""
    if plan.cost is None or plan.fabric is None or CLUSTER not in plan.fabric.sites:
        return
    hardware, f = plan.instance.hardware, plan.fabric.sites[CLUSTER]
    gpus, nic = f.wired_gpus_per_rack, hardware.gpu_nic_bytes_per_second * 8 / 1e9
    what = f"{counted(hardware.racks or 0, 'host')} of {counted(gpus, 'GPU')} ({nic:g} Gb/s each)"
    asked = ", ".join(plan.instance.network.families) if plan.instance.network else ""
    sure = f"Proven cheapest of its kind ({asked})." if plan.status == "optimal" else "Not proven cheapest: time limit."
    each = money(plan.cost.total_usd / max(1, gpus * (hardware.racks or 0)))
    text = f"Joins {what} for {money(plan.cost.total_usd)} ({each} a GPU), {f.power_mw * 1e3:,.4g} kW. {sure}"
    yield Statement("verdict", "verdict", text, True, path="cost.total_usd")


def chosen_fabric(plan: Plan) -> Iterator[Statement]:
    """State the chosen fabric: switches by tier, links, what it carries and what it survives."""
    if plan.instance.network is None or plan.fabric is None or CLUSTER not in plan.fabric.sites:
        return
    f, network, chosen = plan.fabric.sites[CLUSTER], plan.instance.network, plan.fabric.alternatives[0]
    one = f" of {f.switch}" if f.boxes == f.switch else ""
    text = f"{chosen.name}: {', '.join(tier_words(t, f) for t in f.tiers)}{one}"
    yield Statement("choice", "fabric", text, True, path=f"fabric.sites.{CLUSTER}.tiers")
    links = f"{f.endpoint_links:,} links to GPUs, {f.switch_links:,} between switches"
    planes = f"; {counted(f.planes, 'plane')}" if f.planes > 1 else ""
    leaf = f"{counted(f.leaf_domain_racks, 'host')} under a leaf"
    yield Statement("figure", "fabric", f"{f.switches:,} switches, {links}{planes}; {leaf}", True)
    yield Statement("figure", "fabric", f"Carries {_carries(chosen)}", True)
    ends = f"{counted(f.tiers[0].down_ports, 'GPU port')}"
    loss = f"Survives the loss of {SURVIVED[network.survives]}; " if network.survives else "No loss is provided for; "
    yield Statement("figure", "fabric", f"{loss}a leaf's loss cuts its {ends}.", True)


def _carries(x: FabricAlternative) -> str:
    """Write the rate between halves and the tails of a random permutation."""
    within = " within each rail" if x.fabric is not None and x.fabric.family == "rail-only" else ""
    text = f"{x.bisection_tbps or 0.0:,.1f} Tb/s between two halves of the hosts{within}"
    if x.ecmp_tail is None or x.spray_tail is None:
        return f"{text}; tails are simulated of trees alone"
    tails = f"{x.ecmp_tail:.2g} times its time at line rate under ECMP, {x.spray_tail:.2g} sprayed"
    return f"{text}; the slowest flow of a random permutation takes {tails}"


def fabric_price(plan: Plan) -> Iterator[Statement]:
    """State the price by part, and the figures that it rests on."""
    network = plan.instance.network
    if network is None or plan.cost is None or plan.fabric is None or CLUSTER not in plan.fabric.sites:
        return
    f = plan.fabric.sites[CLUSTER]
    offered = [s for s in network.switches if isinstance(s, Switch)]
    of = {s.name: s for s in offered}
    boxes = sum(t.switches * of[name].price_usd for t, name in zip(f.tiers, f.models, strict=True))
    text = f"{money(f.cost_usd)} = switches {money(boxes)}, links {money(f.cost_usd - boxes)}"
    yield Statement("figure", "money", text, True, path="cost.total_usd")
    from_these = ", ".join(f"{s.name} ({money(s.price_usd)}, {s.power_watts:g} W)" for s in offered)
    optics = (
        f"transceivers {network.optics.name} at {money(network.optics.price_usd)}, {network.optics.power_watts:g} W"
    )
    media = ", ".join(m.name for m in media_of(network)) if by_reach(network) else ""
    yield Statement("figure", "money", f"Chosen from {from_these}; {media or optics}", True)


def other_kinds(plan: Plan) -> Iterator[Statement]:
    """State each other kind of fabric and why it lost, those with a design on the first screen."""
    for x in plan.fabric.alternatives[1:] if plan.fabric else ():
        if x.fabric is None:
            yield Statement("choice", "fabric", f"{x.name}: none; {x.lost}", runner_up=x.name)
            continue
        f = x.fabric
        counts = f"{money(f.cost_usd)}, {f.power_mw * 1e3:,.4g} kW, {f.switches:,} switches"
        text = f"{x.name}: {counts}, {x.bisection_tbps or 0.0:,.1f} Tb/s; {x.lost}"
        yield Statement("choice", "fabric", text, True, runner_up=x.name)


def fabric_proof(plan: Plan) -> Iterator[Statement]:
    """State the proof."""
    if plan.fabric is not None:
        yield proof_of("fabric", plan.fabric.certificate)
        yield Statement("proof", "fabric", f"Space: {plan.objective.space}.", path="objective.space")


def fabric_cautions(plan: Plan) -> Iterator[Statement]:
    """Warn of what the price leaves out and of what the budget leaves over."""
    network, budget = plan.instance.network, plan.instance.limits.budget_usd
    if network is None or plan.cost is None:
        return
    if network.floor is None:
        text = "Links have one price whatever their length: give the floor to price them by reach."
        yield Statement("warning", "fabric", text, True)
    if budget and budget > plan.cost.total_usd:
        left = f"${budget - plan.cost.total_usd:,.0f} of the budget of {money(budget)}"
        share = short_percent(1 - plan.cost.total_usd / budget)
        yield Statement("limit", "money", f"{left} ({share}) is not spent.", True)
