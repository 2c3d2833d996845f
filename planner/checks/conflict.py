"""Rules of a plan without decisions: its conflict names rules of its instance, and no column keeps them."""

from collections import Counter

from planner.checks import certificates, fabric, joint_proof
from planner.checks.rule import Rule, Violations, broken, must_be, needs, show
from planner.checks.strategy_space_check import Space
from planner.instance.instance import Instance
from planner.instance.network import NETWORK_LIMITS
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site.cost import bill
from planner.physics.site.site_power import pools_mw
from planner.plan import certificate
from planner.plan.certificate import Conflict, JointProof

ANY_DAYS = 1e12  # a bound in days that every column that can be built is below
# Rules of a split over sites, by what of the instance they come from; `pins` and `demand` are of any.
SITE_RULES = frozenset({
    "area", "budget", "demand", "facility_power", "fault_split", "generation", "headroom", "interconnect",
    "min_site", "pins", "rating", "ready", "rtt", "security", "share_balance", "site_count", "wan_capacity",
})  # fmt: skip
POOLS = "hardware.pools"
BY_COLUMNS = ("limits.", "pins.layout.", "memory", "hardware.racks")  # rules that the columns alone must keep


def rules_of(instance: Instance) -> set[str]:
    """Return all rules of an instance by name, to check that a plan's conflict names no other."""
    wan, network, given = instance.wan, instance.network, ("facility_power_mw", "budget_usd", "deadline_days")
    there = dict.fromkeys(("memory", "limits.max_batch_tokens", *(f"pins.{path}" for path in instance.pins)), True)
    there |= {f"limits.{name}": getattr(instance.limits, name) is not None for name in given}
    there |= {"hardware.racks": instance.hardware.racks is not None, POOLS: bool(instance.hardware.pools)}
    there |= dict.fromkeys(SITE_RULES, instance.grid is not None)
    if wan is not None:
        there |= {"wan.protection": wan.protection == "one_cut", "wan.fibre_edges": bool(wan.fibre_edges)}
    if network is not None:
        there |= {f"network.{key}": getattr(network, key) != free for key, free in NETWORK_LIMITS.items()}
    return {name for name, own in there.items() if own}


@needs("conflict")
def known_rules(physics: PlanPhysics, why: Conflict) -> Violations:
    """Check that a plan's conflict names rules of its instance, each once, and none where the status is unknown."""
    if physics.plan.status == "unknown":
        yield from must_be("known_rules", "rules in conflict of what is unknown", why.rules, ())
    known, of_sites = rules_of(physics.instance), set(why.rules) <= SITE_RULES
    for name, times in Counter(why.rules).items():
        if times > int(name in known):
            yield broken("known_rules", f"{name} occurs {times} times; once each of the {len(known)} rules there are")
    agreed = (*certificates.AGREED, certificate.RESTATED) if of_sites and why.decision == "sites" else ()
    if why.checked not in ("", *agreed):
        yield broken("known_rules", f"the conflict is stated to be {why.checked!r}, which no such one is")
    if not why.reason.strip():
        yield broken("known_rules", "0 words of a reason")
    if not of_sites:
        yield from must_be("known_rules", "decision", why.decision, certificate.decision_of(why.rules))


def ended(physics: PlanPhysics) -> Violations:
    """Check that a plan without decisions, as one in conflict, claims no bound, and no proof but of what is refused."""
    plan, objective = physics.plan, physics.plan.objective
    yield from must_be("ended", "objective", objective.name, physics.instance.objective.minimize)
    for name in ("bound", "gap", "joint_bound", "joint_gap", "fabric_free_bound", "limited_by", "cheaper"):
        yield from must_be("ended", f"objective.{name} of a plan without decisions", getattr(objective, name), None)
    joint = objective.name in certificate.UNITS and not physics.instance.hardware.pools
    words = {"space": certificate.declared_space(physics.instance.workload.rules), "outside": certificate.OUTSIDE}
    for name, text in words.items():
        yield from must_be("ended", f"objective.{name}", getattr(objective, name), text if joint else "")
    if plan.proof is not None:
        if plan.status == "unknown" or plan.proof != _refused(plan.proof):
            yield broken("ended", f"{plan.status}, yet a proof of more than the racks and columns that were refused")
        yield from joint_proof.joined_racks_stated(physics.instance, plan.proof)
        yield from fabric.transport_factor(physics)  # the times of the proof have it
    for name in ("model_choice", *(["transport"] if plan.proof is None else [])):
        if getattr(plan, name) is not None:
            yield broken("ended", f"{plan.status}, yet there is 1 {name}")


def _refused(proof: JointProof) -> JointProof:
    """Return the part of a proof that a plan without decisions may hold: maximum racks and refused columns."""
    names = "max_racks_by_wired_gpus", "joined_racks_by_wired_gpus", "columns"
    return JointProof(**{name: getattr(proof, name) for name in names})


@needs("conflict")
def no_column(physics: PlanPhysics, why: Conflict) -> Violations:
    """Check a plan's conflict by columns: none but those listed keeps its rules; those of sites, fabrics on trust."""
    proof, instance, limits = physics.plan.proof, physics.instance, physics.instance.limits
    if physics.plan.status != "infeasible" or not why.rules:
        return
    # Columns refute a question in days of one pool.
    in_days = instance.objective.minimize == "days_to_train" and limits.max_batch_tokens is not None
    if instance.hardware.pools or not (in_days and all(name.startswith(BY_COLUMNS) for name in why.rules)):
        return
    if proof is None:
        yield broken("no_column", f"{', '.join(why.rules)} are in conflict by 0 proofs, 1 expected")
        return
    days = (limits.deadline_days if "limits.deadline_days" in why.rules else None) or ANY_DAYS
    for i, column in enumerate(proof.columns):
        low, high = column.min_data_parallel, column.max_data_parallel
        if not (1 <= low <= high and column.lower_bound_days < days):
            what = f"{low:,} to {high:,} replicas in {show(column.lower_bound_days)} days"
            yield broken(f"no_column[{i}]", f"{what}, listed as below {show(days)} days")
    if len(set(proof.columns)) < len(proof.columns):
        yield broken("no_column", f"{len(proof.columns)} columns, {len(set(proof.columns))} of them different")
    yield from joint_proof.max_racks_stated(instance, proof)
    space = Space(instance=instance, transport_slowdown=physics.transport_slowdown)
    for missing in joint_proof.missing_columns(space, days, _refused(proof), stop=physics.stop):
        yield missing.replaced(rule="no_column")


@needs("conflict")
def pools_in_conflict(physics: PlanPhysics, why: Conflict) -> Violations:
    """Check a plan's conflict of pools in numbers: the racks of all pools break the limit that it names."""
    limits = physics.instance.limits
    if physics.plan.status != "infeasible" or POOLS not in why.rules:
        return
    usd = bill(physics.instance, 0, None, None).total_usd
    for name, drawn, unit in (("facility_power_mw", pools_mw(physics.instance), "MW"), ("budget_usd", usd, "USD")):
        limit = getattr(limits, name)
        if f"limits.{name}" in why.rules and limit is not None and drawn <= limit:
            yield broken("pools_in_conflict", f"{show(drawn)} {unit} of all pools <= {show(limit)} {unit}, no conflict")


CONFLICT_RULES: tuple[Rule, ...] = (known_rules, ended, pools_in_conflict, no_column)
