"""Rules of a plan without decisions: a conflict is of rules that the instance has, and no column keeps them all."""

from collections import Counter
from collections.abc import Iterator

from planner.checks.joint.missing import missing_columns
from planner.checks.joint.rules import max_racks_stated
from planner.checks.network.fabric import transport_factor
from planner.checks.rule import Rule, broken, must_be, show
from planner.instance.hardware import Accelerator, Rack
from planner.instance.instance import Instance
from planner.instance.workload import Model
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site.cost import bill
from planner.physics.training import heterogeneous
from planner.plan.certificate import Conflict, Violation
from planner.plan.declared import ON_TRUST, OUTSIDE, RESTATED, SPACE, UNITS
from planner.plan.proof import JointProof

ANY_DAYS = 1e12  # a bound in days that every column that can be built is below
# Rules of a split over sites, by what of the instance they come from; `pins` and `demand` are of any.
SITE_RULES = frozenset(
    (
        *("area", "budget", "demand", "facility_power", "fault_split", "generation", "headroom", "interconnect"),
        *("min_site", "pins", "rating", "ready", "rtt", "security", "share_balance", "site_count", "wan_capacity"),
    )
)
BY_COLUMNS = ("limits.", "pins.layout.", "memory", "hardware.racks")  # rules that the columns alone must keep
POOLS = "hardware.pools"


def rules_of(instance: Instance) -> set[str]:
    """Return the names of the rules that the instance has."""
    limits, wan, network = instance.limits, instance.wan, instance.network
    names = {"memory", "limits.max_batch_tokens", *(f"pins.{path}" for path in instance.pins)}
    given = {f"limits.{name}" for name in ("facility_power_mw", "budget_usd", "deadline_days")}
    names |= {name for name in given if getattr(limits, name.removeprefix("limits.")) is not None}
    names |= {"hardware.racks"} if instance.hardware.racks is not None else set()
    names |= {POOLS} if instance.hardware.pools else set()
    if wan is not None:
        names |= {"wan.protection"} if wan.protection == "one_cut" else set()
        names |= {"wan.fibre_edges"} if wan.fibre_edges else set()
    if network is not None:
        names |= {f"network.{key}" for key in ("max_oversubscription", "survives") if getattr(network, key) is not None}
    return names | (set(SITE_RULES) if instance.grid is not None else set())


def known_rules(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a conflict is of rules that the instance has, each once, and that what is unknown names none."""
    p, why = c.plan, c.plan.conflict
    if why is None:
        return
    if p.status == "unknown":
        yield from must_be("known_rules", "rules in conflict of what is unknown", why.rules, ())
    known = rules_of(c.instance)
    for name, times in Counter(why.rules).items():
        if name not in known:
            yield broken("known_rules", f"{name} is none of the {len(known)} rules of the instance")
        elif times > 1:
            yield broken("known_rules", f"{name} stands {times} times > 1")
    expected = (ON_TRUST, RESTATED) if why.rules and set(why.rules) <= SITE_RULES else ("",)
    if why.checked not in ("", *expected):
        yield broken("known_rules", f"the conflict is stated to be {why.checked!r}, which no such one is")
    if not why.reason.strip():
        yield broken("known_rules", "0 words of a reason")
    if why.rules and not set(why.rules) <= SITE_RULES:
        yield from must_be("known_rules", "decision", why.decision, _decision(why.rules))


def _decision(rules: tuple[str, ...]) -> str:
    """Return the decision that rules are about."""
    names = {name.removeprefix("pins.").partition(".")[0] for name in rules}
    if POOLS in rules:
        power = "limits.facility_power_mw" in rules
        return "sites" if power else "budget" if "limits.budget_usd" in rules else "layout"
    if "limits.deadline_days" in rules and set(rules) <= {"limits.deadline_days", "limits.budget_usd"}:
        return "layout"
    if "limits.budget_usd" in rules:
        return "budget"
    if "limits.facility_power_mw" in rules or "sites" in names:
        return "sites"
    if "network" in names:
        return "fabric"
    return next((n for n in ("fabric", "placement", "wan") if n in names), "layout")


def ended(c: PlanPhysics) -> Iterator[Violation]:
    """Check that what is unknown did not end by proof, and that a plan without decisions claims no bound."""
    p, o = c.plan, c.plan.objective
    if p.status == "unknown" and p.stopped == "proved":
        yield broken("ended", "unknown, yet the search ended by proof")
    if p.threads < 1:
        yield broken("ended", f"{p.threads} threads < 1")
    yield from must_be("ended", "objective", o.name, c.instance.objective.minimize)
    for name in ("bound", "gap", "joint_bound", "joint_gap", "fabric_free_bound", "limited_by", "cheaper"):
        yield from must_be("ended", f"objective.{name} of a plan without decisions", getattr(o, name), None)
    joint = o.name in UNITS and not c.instance.hardware.pools
    for name, text in (("space", SPACE), ("outside", OUTSIDE)):
        yield from must_be("ended", f"objective.{name}", getattr(o, name), text if joint else "")
    if p.proof is not None and (p.status == "unknown" or p.proof != _refused(p.proof)):
        yield broken("ended", f"{p.status}, yet a proof of more than the racks and columns that were refused")
    if p.proof is not None:
        yield from transport_factor(c)  # the times of the proof have it
    for name in ("model_choice", *(["transport"] if p.proof is None else [])):
        if getattr(p, name) is not None:
            yield broken("ended", f"{p.status}, yet there is 1 {name}")


def _refused(proof: JointProof) -> JointProof:
    """Return what a proof may say of an instance without a plan: most racks, and columns that were refused."""
    return JointProof(max_racks_by_wired_gpus=proof.max_racks_by_wired_gpus, columns=proof.columns)


def no_column(c: PlanPhysics) -> Iterator[Violation]:
    """Check that no column keeps the rules in conflict, but those that the sites or the budget refused.

    A conflict of sites, fabric or fibre is more than columns can show; there the proof is on trust.
    """
    why, proof = c.plan.conflict, c.plan.proof
    if c.plan.status != "infeasible" or why is None or not _of_columns(c.instance, why):
        return
    if proof is None:
        yield broken("no_column", f"{', '.join(why.rules)} are in conflict by 0 proofs, 1 expected")
        return
    deadline = c.instance.limits.deadline_days
    days = deadline if deadline is not None and "limits.deadline_days" in why.rules else ANY_DAYS
    for i, x in enumerate(proof.columns):
        if not (1 <= x.min_data_parallel <= x.max_data_parallel and x.lower_bound_days < days):
            range_is = f"{x.min_data_parallel:,} to {x.max_data_parallel:,} replicas in {show(x.lower_bound_days)} days"
            yield broken(f"no_column[{i}]", f"{range_is}, listed as below {show(days)} days")
    if len(set(proof.columns)) < len(proof.columns):
        yield broken("no_column", f"{len(proof.columns)} columns, {len(set(proof.columns))} of them different")
    yield from max_racks_stated(c.instance, proof, racks_in_use=0, wired_gpus=0)
    own = missing_columns(c.instance, days, _refused(proof), transport_slowdown=c.transport_slowdown, stop=c.stop)
    yield from (x.model_copy(update={"rule": "no_column"}) for x in own)


def _of_columns(instance: Instance, why: Conflict) -> bool:
    """Return whether columns can refute a conflict: a question in days of one pool, whose parts are given in full."""
    h, w = instance.hardware, instance.workload
    if h.pools:
        return False
    full = isinstance(h.accelerator, Accelerator) and isinstance(h.rack, Rack) and isinstance(w.model, Model)
    in_days = instance.objective.minimize == "days_to_train" and instance.limits.max_batch_tokens is not None
    return full and in_days and bool(why.rules) and all(name.startswith(BY_COLUMNS) for name in why.rules)


def pools_in_conflict(c: PlanPhysics) -> Iterator[Violation]:
    """Check in numbers that the racks of all pools break the limit that they are said to break."""
    why, limits = c.plan.conflict, c.instance.limits
    if c.plan.status != "infeasible" or why is None or POOLS not in why.rules:
        return
    if "limits.facility_power_mw" in why.rules:
        drawn, power = heterogeneous.facility_mw(c.instance), limits.facility_power_mw
        if power is not None and drawn <= power:
            yield broken("pools_in_conflict", f"{show(drawn)} MW of all pools <= {show(power)} MW, no conflict")
    if "limits.budget_usd" in why.rules:
        usd, budget = bill(c.instance, 0, None, None).total_usd, limits.budget_usd
        if budget is not None and usd <= budget:
            yield broken("pools_in_conflict", f"{show(usd)} USD of all pools <= {show(budget)} USD, no conflict")


RULES: tuple[Rule, ...] = (known_rules, ended, pools_in_conflict, no_column)
