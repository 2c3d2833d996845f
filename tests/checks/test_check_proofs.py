"""Rules of the proofs: certificates about the plan's decisions, bounds on their side."""

from collections.abc import Iterable
from typing import Any

import pytest
from each_case import each
from worked_plan import edited, named, rules, small

from planner.checks.check_plan import check
from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST, RECOMPUTED, RECOMPUTED_BUT, joint_mark
from planner.plan.plan import Plan

PLAN = small()
DECISIONS = ["sites", "layout", "fabric", "placement"]
DAYS = PLAN.layout.metrics.days_to_train
CHEAPEST = small(objective__minimize="cost_usd", limits__deadline_days=1)


def own(plan: Plan) -> set[str]:
    """Return the rules broken, without that one of what is proven jointly claims other things than the rest."""
    return {rule for rule in named(plan) if not rule.startswith("joint_claims")}


@each("decision", DECISIONS)
def test_a_certificate_is_about_its_decision_with_its_bound_below(decision: str) -> None:
    """An objective 1 % (or a group) better than the decision's own figure is found, and so is a bound above it."""
    path, objective = f"{decision}__certificate__", getattr(PLAN, decision).certificate.objective
    better, bound = objective * 0.99 if objective else -1.0, objective * 1.01 + 1
    assert f"certified[{decision}]" in named(edited(PLAN, **{f"{path}objective": better, f"{path}bound": better}))
    gap = (bound - objective) / max(objective, 1e-12)
    assert f"bound_side[{decision}]" in named(edited(PLAN, **{f"{path}bound": bound, f"{path}gap": gap}))


@each("decision", DECISIONS)
def test_optimal_means_that_the_bound_is_reached(decision: str) -> None:
    path = f"{decision}__certificate__"
    open_gap = {f"{path}bound": 0.0, f"{path}gap": 1.0}
    assert own(edited(PLAN, **open_gap)) == set()
    assert own(edited(PLAN, **open_gap, **{f"{path}status": "optimal"})) == {f"optimal[{decision}]"}
    assert own(edited(PLAN, **{**open_gap, f"{path}gap": 0.01})) == {f"gap[{decision}]"}
    assert own(edited(PLAN, **{**open_gap, f"{path}gap": None})) == {f"gap[{decision}]"}
    assert f"optimal[{decision}]" in named(edited(PLAN, **{f"{path}status": "unknown"}))


@each(("changes", "rule"), [
    ({"value": DAYS * 0.99}, "objective"), ({"value": None}, "objective"),
    ({"bound": DAYS * 1.01, "gap": 0.01}, "objective"), ({"gap": 0.5}, "objective"),
    ({"joint_bound": DAYS * 1.01, "joint_gap": 0.01}, "objective"), ({"joint_gap": 0.4}, "objective[joint]"),
    ({"name": "cost_usd"}, "objective"),
])  # fmt: skip
def test_the_objective(changes: dict[str, Any], rule: str) -> None:
    assert rule in named(edited(PLAN, **{f"objective__{k}": v for k, v in changes.items()}))


def test_the_plan_proves_no_more_than_its_layout() -> None:
    weak = {f"{d}__certificate__{k}": v for d in DECISIONS[1:] for k, v in (("bound", 0.0), ("gap", 1.0))}
    share = 1e-9
    assert rules(edited(PLAN, **weak, objective__bound=DAYS * share, objective__gap=1 - share)) == {"objective"}
    assert rules(edited(PLAN, **weak, objective__bound=0.0, objective__gap=1.0)) == set()


@pytest.mark.parametrize("path", ["objective", "objective__joint", "layout__certificate", "fabric__certificate"])
def test_a_bound_in_days_needs_its_proof(path: str) -> None:
    """A plan that says of itself that nothing is faster is refused wherever it says so: faster columns exist."""
    joint = path == "objective__joint"
    bound, gap = (f"{path}_bound", f"{path}_gap") if joint else (f"{path}__bound", f"{path}__gap")
    assert "joint_columns" in {v.rule.partition("[")[0] for v in check(edited(PLAN, **{bound: DAYS, gap: 0.0}))}


def test_the_hash_is_that_of_the_instance() -> None:
    assert named(edited(PLAN, instance_sha256="0" * 64)) == {"instance_hash"}
    assert "instance_hash" in named(edited(PLAN, instance__limits__budget_usd=34.1e6))


def test_a_plan_is_optimal_by_proof_alone() -> None:
    value = CHEAPEST.cost.total_usd
    assert CHEAPEST.objective.value == value and rules(CHEAPEST) == set()
    assert rules(edited(CHEAPEST, objective__value=value * 0.99)) >= {"objective"}
    proven = {"status": "optimal", "bound": value, "gap": 0.0}
    claims = {f"{d}__certificate__{k}": v for d in DECISIONS for k, v in proven.items()}
    proof = {"status": "optimal", "stopped": "proved", "objective__bound": value, "objective__gap": 0.0}
    claimed = edited(CHEAPEST, **claims, **proof)
    assert rules(claimed) == set()
    assert rules(edited(claimed, stopped="limit")) == {"status"}
    assert rules(edited(claimed, fabric__certificate__status="feasible")) == {"status", "joint_claims"}
    assert rules(edited(claimed, objective__bound=None, objective__gap=None)) == {"status"}
    assert rules(edited(claimed, objective__bound=value * 0.9, objective__gap=0.1)) == {"status"}


@each(("days", "share_of_capital"), [(1.006, 0.9), (1.004, 1.0), (0.5, 0.9)])
def test_the_cheaper_plan_is_cheaper_and_almost_as_fast(days: float, share_of_capital: float) -> None:
    """What is named beside the fastest plan takes 0.5 % longer at most, costs less, and beats no bound."""
    usd = PLAN.cost.total_usd
    fine = {"days_to_train": DAYS * 1.004, "capital_usd": usd * 0.9, "racks": 12}
    assert rules(edited(PLAN, objective__cheaper=fine)) == set()
    bent = {**fine, "days_to_train": DAYS * days, "capital_usd": usd * share_of_capital}
    bound = {"objective__bound": DAYS * 0.6, "objective__gap": 0.4}
    assert "objective[cheaper]" in named(edited(PLAN, objective__cheaper=bent, **bound))


# Of days and capital in the plan's own, with what each end is about; TP, PP and DP are three kinds of parallelism.
ENDS = {"goal": (1 / 1.002, 1.02, 0.0), "capital": (1.0, 1 / 1.002, 0.0), "leaf_local": (1.0, 1.0, 1.0)}
ENDS |= {"simplest": (1.0, 1.0, 3.0)}


def with_ends(order: Iterable[str] = ENDS, name: str = "", **changes: float) -> Plan:
    """Return the worked plan with the ends of its choice in an order, and one of them changed."""
    ends = []
    for end in order:
        days, usd, value = ENDS[end]
        own = {"days_to_train": DAYS * days, "capital_usd": PLAN.cost.total_usd * usd}
        own["value"] = {"goal": own["days_to_train"], "capital": own["capital_usd"]}.get(end, value)
        own = {key: x * changes.get(key, 1.0) for key, x in own.items()} if end == name else own
        ends.append({"name": end, "proven": True, **own})
    return edited(PLAN, objective__ends=ends)


@each(("order", "name", "changes", "broken"), [
    (ENDS, "", {}, False), (("goal", "capital"), "", {}, True), (("goal", "simplest"), "", {}, False),
    (("simplest",), "", {}, True), (("goal", "leaf_local", "capital", "simplest"), "", {}, True),
    (ENDS, "goal", {"value": 1.0001}, True), (ENDS, "goal", {"capital_usd": 34.1e6 / 33.5e6}, True),
    (ENDS, "goal", {"value": 0.999, "days_to_train": 0.999}, True), (ENDS, "goal", {"capital_usd": 0.97}, True),
    (ENDS, "capital", {"value": 0.999}, True), (ENDS, "capital", {"days_to_train": 1.0004}, False),
    (ENDS, "capital", {"days_to_train": 1.0006}, True), (ENDS, "leaf_local", {"capital_usd": 1.0004}, False),
    (ENDS, "leaf_local", {"capital_usd": 1.0006}, True), (ENDS, "leaf_local", {"value": 0.5}, True),
    (ENDS, "simplest", {"value": 2 / 3}, True), (ENDS, "simplest", {"days_to_train": 0.9999}, True),
    (ENDS, "simplest", {"capital_usd": 0.9999}, True),
])  # fmt: skip
def test_the_ends_of_a_choice(order: Iterable[str], name: str, changes: dict[str, float], broken: bool) -> None:
    """They come in order, each within a four-hundredth of the fewest days, and the last one is the plan itself."""
    assert ("objective[ends]" in named(with_ends(order, name, **changes))) == broken


def test_the_simplest_end_keeps_the_larger_of_two_shares() -> None:
    """Half a per cent more days are within an indifference of 1 %, no other end's; no bound is above the fewest."""
    plan = with_ends(name="goal", value=0.997, days_to_train=0.997)
    wide = edited(plan, instance__objective__indifference=0.01)
    found = [v.message.partition(" > ")[0] for v in check(wide) if v.rule == "objective[ends]"]
    assert [x.partition(" days of ")[2] for x in found] == ["capital", "leaf_local"]
    assert "objective[ends]" in named(edited(with_ends(), objective__bound=DAYS * 0.999, objective__gap=0.001))


@each(("pin", "value", "rule"), [
    ("placement.stripes", 2, "pins[placement.stripes]"), ("placement.blocks.e1", 2, "pins[placement.blocks.e1]"),
    ("wan.wavelengths", 1, "pins[wan.wavelengths]"),
])  # fmt: skip
def test_a_pinned_number_is_kept(pin: str, value: int, rule: str) -> None:
    striped = {"placement__stripes": {"e1": 1, "w1": 1}, "placement__blocks_by_site": {"e1": 3, "w1": 2}}
    assert rule not in named(edited(PLAN, **striped))
    assert rule in named(edited(PLAN, **striped, instance__pins={pin: value}))


@each(("stated", "wrong"), [("grid", False), ("budget", False), ("layout", True), ("owned_racks", True)])
def test_what_ends_the_campus(stated: str, wrong: bool) -> None:
    """Where the budget buys the 10 racks in use alone, no owned racks end them, and no further block could be had."""
    spent = edited(PLAN, instance__limits__budget_usd=21e6, objective__limited_by=stated)
    assert ("limited_by" in rules(spent)) == wrong


@each(("decision", "mark", "refused"), [
    ("layout", RECOMPUTED_BUT, False), ("layout", RECOMPUTED, True), ("layout", CONFIRMED, True),
    ("sites", CONFIRMED, False), ("sites", BOUNDED, False), ("sites", ON_TRUST, False), ("sites", "", False),
    ("sites", RECOMPUTED, True),
])  # fmt: skip
def test_a_mark_claims_no_more_than_is_confirmed(decision: str, mark: str, refused: bool) -> None:
    """Sites are confirmed by another solver or by duals, never recomputed here; without a bound there is no mark."""
    marked = edited(PLAN, **{f"{decision}__certificate__checked": mark})
    assert (f"marks[{decision}]" in named(marked)) == bool(mark)
    assert (f"marks[{decision}]" in named(edited(marked, **{f"{decision}__certificate__bound": 1.0}))) == refused


@each(("minimizes", "grid", "columns", "mark"), [
    ("days_to_train", False, 0, RECOMPUTED), ("days_to_train", False, 2, RECOMPUTED_BUT),
    ("loss", True, 0, RECOMPUTED_BUT), ("cost_usd", False, 0, ON_TRUST),
])  # fmt: skip
def test_what_stands_behind_a_joint_bound(minimizes: str, grid: bool, columns: int, mark: str) -> None:
    """The whole is recomputed where neither sites nor listed columns answer for a part of it."""
    assert joint_mark(minimizes, grid=grid, columns=columns) == mark
