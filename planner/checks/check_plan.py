"""The rules again, from physics alone: imports no formulation and no solver; every rule that a plan breaks.

Limits are compared with figures recomputed from the decisions, never with those that the plan states of itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from planner.checks import (
    cables,
    certificates,
    cost,
    fabric,
    frontiers,
    layout,
    model_choice,
    placement,
    power_flow,
    reliability,
    sites,
)
from planner.checks import joint_proof as joint
from planner.checks.fabric import transport_factor
from planner.checks.joint_proof import max_racks_stated, missing_columns
from planner.checks.rule import Rule, broken, must_be, show
from planner.instance.grid import Line, NewLine
from planner.instance.hardware import Accelerator, Rack
from planner.instance.instance import FabricInstance, Instance
from planner.instance.pins import check_pins
from planner.instance.references import pool_problems, wan_problems
from planner.instance.workload import Model, Precision, Software
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site.cost import bill
from planner.physics.training import heterogeneous, step
from planner.plan.certificate import ON_TRUST, OUTSIDE, RESTATED, UNITS, Conflict, JointProof, Violation, declared_space
from planner.plan.plan import Plan

SECTIONS: dict[str, tuple[Rule, ...]] = {
    "sites": (*sites.RULES, *power_flow.RULES),
    "wan": sites.WAN_RULES,
    "layout": layout.RULES,
    "pools": layout.POOL_RULES,
    "fabric": (*fabric.RULES, *cables.WAN_GATEWAY_RULES, *cables.CABLE_RULES),
    "placement": placement.RULES,
    "reliability": reliability.RULES,
    "cost": cost.RULES,
    "run": cost.RUN_RULES,
    "choice": model_choice.RULES,
    "curve": frontiers.RULES,
    "proofs": (*certificates.RULES, *certificates.CLAIM_RULES, *joint.RULES),
}


def check(plan: Plan, *, stop: Callable[[], bool] = lambda: False) -> list[Violation]:
    """Return every rule that the plan breaks, with both of its sides in numbers; nothing where it breaks none.

    Once `stop` is true the columns that the bound rests on are looked at no further; every other rule is checked.
    """
    return list(violations(plan, stop=stop))


def violations(plan: Plan, *, stop: Callable[[], bool] = lambda: False) -> Iterator[Violation]:
    """Yield the rules that the plan breaks one by one, as `check` has them."""
    c = PlanPhysics(plan=plan, stop=stop)
    if isinstance(plan.instance, FabricInstance):
        yield from _run("fabric", fabric.ALONE, c)
        return
    for rules in (INSTANCE_RULES, MACHINE_RULES):  # without these nothing else can be computed
        found = list(_run("instance", rules, c))
        yield from found
        if found:
            return
    if plan.status in ("infeasible", "unknown"):
        yield from _run("proofs", (*certificates.WITHOUT_PLAN, *CONFLICT_RULES), c)
        return
    yield from _run("plan", PLAN_RULES, c)
    for section, rules in SECTIONS.items():
        yield from _run(section, rules, c)


def _run(section: str, rules: tuple[Rule, ...], c: PlanPhysics) -> Iterator[Violation]:
    """Run rules one by one; figures that no arithmetic holds for break a rule like any other.

    A defect of a rule itself is reported as the rule `checker`, and hides nothing that the others find.
    """
    for rule in rules:
        try:
            yield from rule(c)
        except (ArithmeticError, ValueError) as error:
            yield broken(f"{section}.{rule.__name__}", f"cannot be recomputed from the figures stated: {error}")
        except Exception as error:
            yield broken("checker", f"{section}.{rule.__name__} failed: {type(error).__name__}: {error}")


def names_resolved(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every part of the instance is given in full, not as a catalogue name."""
    h, w, network = c.instance.hardware, c.instance.workload, c.instance.network
    parts: list[tuple[str, object, type]] = [
        ("hardware.accelerator", h.accelerator, Accelerator),
        ("hardware.rack", h.rack, Rack),
        *((f"hardware.pools[{i}].accelerator", p.accelerator, Accelerator) for i, p in enumerate(h.pools)),
        *((f"hardware.pools[{i}].rack", p.rack, Rack) for i, p in enumerate(h.pools)),
        ("workload.model", w.model, Model),
        ("workload.software", w.software, Software),
        ("workload.precision", w.precision, Precision),
        ("reliability", c.instance.reliability, object),
        *((f"network.switches[{i}]", s, object) for i, s in enumerate(network.switches if network else ())),
        *((f"network.media[{i}]", m, object) for i, m in enumerate(network.media if network else ())),
    ]
    for path, part, kind in parts:
        if isinstance(part, str) or not isinstance(part, kind):
            yield broken("names_resolved", f"instance.{path} is the name {part!r}; a plan has it in full")


def known_references(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every id of the grid is unique, every reference is known and every pin names a decision."""
    yield from (broken("known_references", f"instance.{p}") for p in check_pins(c.instance))
    g = c.grid
    yield from (broken("known_references", f"instance.{p}") for p in pool_problems(c.instance))
    yield from (broken("known_references", f"instance.{p}") for p in wan_problems(g, c.wan))
    lines: list[Line | NewLine] = [*g.lines, *g.new_lines]
    ids = {
        "authority": [b.id for b in g.balancing_authorities],
        "node": [n.id for n in g.nodes],
        "line": [x.id for x in lines],
    }
    for what, names in ids.items():
        repeated = {k: n for k, n in Counter(names).items() if n > 1}
        yield from (broken("known_references", f"{what} {k!r} occurs {n} times > 1") for k, n in repeated.items())
    for n in g.nodes:
        if n.balancing_authority not in ids["authority"]:
            none_of = f"none of the {len(ids['authority'])} authorities"
            yield broken("known_references", f"node {n.id!r} is in {n.balancing_authority!r}, {none_of}")
    for x in lines:
        if not {x.a, x.b} <= set(ids["node"]):
            ends = f"from {x.a!r} to {x.b!r} ends at none of the {len(ids['node'])} nodes"
            yield broken("known_references", f"line {x.id!r} {ends}")


def peak_known(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the accelerator has a peak rate for the compute precision."""
    m = step.machine_of(c.instance)
    if m.precision.compute not in m.gpu.peak_flop_per_second:
        known = ", ".join(sorted(m.gpu.peak_flop_per_second)) or "0 types"
        yield broken("peak_known", f"{m.gpu.name} has no peak for {m.precision.compute}, only for {known}")


def complete(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan has a section for every decision that the instance asks for, and no other."""
    p, i = c.plan, c.instance
    pooled = bool(i.hardware.pools)
    asked = {
        "sites": i.grid is not None,
        "layout": not pooled,
        "pools": pooled,
        "fabric": i.network is not None,
        "cost": True,
    }
    asked["placement"] = i.network is not None
    for section, wanted in asked.items():
        present = getattr(p, section) is not None
        if present != wanted:
            yield broken("complete", f"{section}: {int(present)} sections, {int(wanted)} asked for by the instance")


INSTANCE_RULES: tuple[Rule, ...] = (names_resolved, known_references)
MACHINE_RULES: tuple[Rule, ...] = (peak_known,)
PLAN_RULES: tuple[Rule, ...] = (complete,)


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
    """Check that a conflict names rules of the instance, each once, and that a plan of unknown status names none."""
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
            yield broken("known_rules", f"{name} occurs {times} times > 1")
    expected = (ON_TRUST, RESTATED) if why.rules and set(why.rules) <= SITE_RULES else ("",)
    if why.checked not in ("", *expected):
        yield broken("known_rules", f"the conflict is stated to be {why.checked!r}, which no such one is")
    if not why.reason.strip():
        yield broken("known_rules", "0 words of a reason")
    if why.rules and not set(why.rules) <= SITE_RULES:
        yield from must_be("known_rules", "decision", why.decision, _decision(why.rules))


def _decision(rules: tuple[str, ...]) -> str:
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
    """Check that a search of unknown status did not end by proof, and that a plan without decisions claims no bound."""
    p, o = c.plan, c.plan.objective
    if p.status == "unknown" and p.stopped == "proved":
        yield broken("ended", "unknown, yet the search ended by proof")
    if p.threads < 1:
        yield broken("ended", f"{p.threads} threads < 1")
    yield from must_be("ended", "objective", o.name, c.instance.objective.minimize)
    for name in ("bound", "gap", "joint_bound", "joint_gap", "fabric_free_bound", "limited_by", "cheaper"):
        yield from must_be("ended", f"objective.{name} of a plan without decisions", getattr(o, name), None)
    joint = o.name in UNITS and not c.instance.hardware.pools
    for name, text in (("space", declared_space(c.instance.workload.rules)), ("outside", OUTSIDE)):
        yield from must_be("ended", f"objective.{name}", getattr(o, name), text if joint else "")
    if p.proof is not None and (p.status == "unknown" or p.proof != _refused(p.proof)):
        yield broken("ended", f"{p.status}, yet a proof of more than the racks and columns that were refused")
    if p.proof is not None:
        yield from transport_factor(c)  # the times of the proof have it
    for name in ("model_choice", *(["transport"] if p.proof is None else [])):
        if getattr(p, name) is not None:
            yield broken("ended", f"{p.status}, yet there is 1 {name}")


def _refused(proof: JointProof) -> JointProof:
    """Return the part of a proof that an instance without a plan may have: maximum racks and refused columns."""
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


CONFLICT_RULES: tuple[Rule, ...] = (known_rules, ended, pools_in_conflict, no_column)
