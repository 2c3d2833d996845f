"""Rules of a fabric asked for alone: built of what is offered, every host cabled, and no kind listed is cheaper."""

from collections.abc import Iterator

from planner.checks.network import asked, cables, fabric
from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.instance.instance import instance_sha256
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.plan.certificate import Violation


def question(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the question is given in full and that its hash is that of the question."""
    network = c.instance.network
    parts = [*(network.switches if network else ()), *(network.media if network else ()), c.instance.hardware.rack]
    named = [x for x in parts if isinstance(x, str)]
    if network is None or c.instance.hardware.racks is None or named:
        yield broken("question", f"{len(named)} parts by their names alone, 0 expected, with a network and hosts")
    yield from must_be("question", "instance_sha256", c.plan.instance_sha256, instance_sha256(c.instance))


def one_fabric(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan has a fabric of the one cluster with every host cabled, or a reason why it has none."""
    p, racks = c.plan, c.instance.hardware.racks or 0
    if (p.fabric is None) != (p.conflict is not None) or p.layout is not None or p.sites is not None:
        parts = f"{int(p.fabric is not None)} fabrics, {int(p.conflict is not None)} conflicts, and no other section"
        yield broken("one_fabric", f"{parts} expected to be one of both")
        return
    if p.fabric is None:
        return
    if set(p.fabric.sites) != {CLUSTER}:
        yield broken("one_fabric", f"fabrics of {', '.join(sorted(p.fabric.sites))}; one of {CLUSTER} expected")
        return
    f = p.fabric.sites[CLUSTER]
    yield from must_equal("one_fabric", "hosts cabled", f.cabled_racks, racks)
    yield from must_equal("one_fabric", "GPUs of a host cabled", f.wired_gpus_per_rack, c.gpus_per_rack)


def cheapest(c: PlanPhysics) -> Iterator[Violation]:
    """Check that objective, bill and fabric state one price within the budget, and no kind listed has a lower one.

    Kinds that were passed over for another reason may be cheaper: of families that were not asked for, and one switch
    where a loss is to be survived.
    """
    p, network = c.plan, c.instance.network
    if p.fabric is None or network is None or CLUSTER not in p.fabric.sites:
        return
    f, budget = p.fabric.sites[CLUSTER], c.instance.limits.budget_usd
    for name, usd in (("objective", p.objective.value), ("bill", p.cost.total_usd if p.cost else None)):
        yield from must_equal("cheapest", f"{name} in dollars", usd if usd is not None else 0.0, f.cost_usd)
    if p.status == "optimal":
        yield from must_equal("cheapest", "bound in dollars", p.objective.bound or 0.0, f.cost_usd)
    if budget is not None and p.status == "optimal":
        yield from at_most("cheapest", f.cost_usd, budget, "dollars", "of budget")
    for x in p.fabric.alternatives:
        one_switch = x.fabric is not None and len(x.fabric.tiers) == 1 and network.survives is not None
        if x.fabric is not None and x.fabric.family in network.families and not one_switch:
            yield from at_most("cheapest", f.cost_usd, x.fabric.cost_usd * (1 + 1e-9), "dollars", f"of {x.name}")


RULES: tuple[Rule, ...] = (
    *(question, one_fabric, fabric.switch, fabric.wirable, fabric.tiers, fabric.counts, fabric.core_share),
    *(fabric.price_and_power, *asked.RULES, *cables.RULES, cheapest),
)
