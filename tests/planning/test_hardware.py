"""Alternatives to the hardware, and pools of different GPUs: better than any alone, proven, and bad input refused."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import invoke, refusal
from each_case import each
from stored_plans import stored
from worked_plan import edited_at, named, with_entries

import planner
from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.hardware import DAYS_A_MONTH
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import JointSolution
from planner.models.joint.solve_joint import solve_joint
from planner.physics.training.step_prediction import pool_exchange_seconds, wan_tail_seconds
from planner.plan.plan import Plan
from planner.planning import hardware_choice
from planner.planning.hardware_choice import HardwareAnswer, bounded_by_all
from planner.planning.load import load_instance
from planner.report.summary import summary
from planner.solvers.search_deadline import Deadline

SMALL: dict[str, Any] = {
    "schema_version": 3,
    "name": "choice",
    "objective": {"tolerance": 0.0},
    "workload": {"model": "llama-3.1-8b", "tokens": 1e11, "sequence_length": 8192},
    "hardware": {"accelerator": "H100", "rack": "DGX-H100", "racks": 4},
    "limits": {"max_batch_tokens": 2e6, "budget_usd": 2.2e6},
    "network": {"switches": ["25.6T-64x400G"], "optics": {"name": "400G-DR4", "price_usd": 700, "power_watts": 9}},
    "pins": {"layout.context_parallel": 1, "layout.virtual_stages": 1, "layout.zero_stage": 1},  # fewer to search
}
INSTANCE = Path(__file__).parents[2] / "instances" / "two-pools.json"
OTHERS = (
    {"accelerator": "H200", "rack": "DGX-H200"},
    {"accelerator": "B200", "rack": "DGX-B200", "racks": 3},
    {"accelerator": "A100-80GB", "rack": "DGX-A100"},
)


def asked(*alternatives: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return the small question with alternatives, and with other parts."""
    found = json.loads(json.dumps({**SMALL, **parts}))
    found["hardware"]["alternatives"] = list(alternatives)
    return dict(found)


def alone(x: dict[str, Any], **parts: Any) -> Plan:
    found = asked(**parts)
    own = {k: v for k, v in x.items() if k not in ("price_usd", "ready_months")}
    found["hardware"] = {**found["hardware"], **own, "alternatives": []}
    return stored(found)


def test_each_alone_has_its_own_figures_or_those_of_the_hardware() -> None:
    own = {"racks": 3, "price_usd": 5.0, "nic_bytes_per_second": 1e10, "ready_months": 2.0}
    hardware = load_instance(asked(OTHERS[0], OTHERS[2] | own)).hardware
    found = [(x.racks, x.nic_bytes_per_second, x.ready_months, x.alternatives) for x in hardware.each_alone()]
    assert found == [(4, None, 0.0, ()), (4, None, 0.0, ()), (3, 1e10, 2.0, ())]
    prices = [x.rack.price_usd for x in hardware.each_alone()]
    assert prices[:2] == [x.rack.price_usd for x in (hardware, hardware.alternatives[0])] and prices[2] == 5.0


LIMITS = {**SMALL["limits"], "deadline_days": 6.0, "budget_usd": 3e6}
LEAST_COST: dict[str, Any] = {"objective": {"minimize": "cost_usd", "tolerance": 0.0}, "limits": LIMITS}


@pytest.mark.slow
@pytest.mark.parametrize("parts", [{}, LEAST_COST | {"network": None}], ids=["days", "dollars"])
def test_the_plan_is_that_of_the_best_alone(parts: dict[str, Any]) -> None:
    """Value and bound are the least of all GPUs alone; the plan passes the check and names its GPU."""
    plan = planner.solve(asked(*OTHERS, **parts))
    singles = {"H100": stored(asked(**parts)), **{x["accelerator"]: alone(x, **parts) for x in OTHERS}}
    values = {name: x.objective.value for name, x in singles.items() if x.objective.value is not None}
    best = min(values, key=lambda name: values[name])
    assert plan.status == "optimal" and not planner.check(plan)
    assert plan.layout.accelerator == best
    assert plan.objective.value == pytest.approx(values[best], rel=1e-9)
    assert plan.objective.bound == pytest.approx(values[best], rel=1e-9)
    for x in plan.proof.alternatives if plan.proof else ():
        assert x.least_days is None or x.least_days >= values[best]


def test_a_search_ends_at_its_rival_whatever_another_goal_would_keep() -> None:
    """Three racks train in 4.2 days at best: of no use next to a plan of 4.0, and to no goal that goes on from none."""
    i = load_instance(asked(hardware={"accelerator": "H200", "rack": "DGX-H200", "racks": 3}))
    found = solve_joint(i, Solving(deadline=Deadline(60)), rival=4.0, within=0.3)
    assert (found.status, found.stopped) == ("infeasible", "proved")
    assert 4.0 < (found.lower_bound or 0.0) < 4.0 * 1.3


@pytest.mark.slow
def test_a_gpu_that_comes_late_is_chosen_by_its_end() -> None:
    """The faster GPU is chosen while it ends sooner in spite of its delivery; the check knows both."""
    first, second = stored(SMALL).objective.value, alone(OTHERS[0]).objective.value
    assert first is not None and second is not None and second < first
    months = (first - second) / DAYS_A_MONTH
    for own, ready, chosen in ((0, 0.9 * months, "H200"), (0, 1.1 * months, "H100"), (1, 1 + 0.9 * months, "H200")):
        hardware = {**SMALL["hardware"], "ready_months": own}
        plan = planner.solve(asked({**OTHERS[0], "ready_months": ready}, hardware=hardware))
        assert plan.layout.accelerator == chosen and not planner.check(plan)


def test_where_there_is_no_plan_each_gpu_has_its_reason() -> None:
    """One rack is too small for the model on the one GPU, and too dear on the other: neither stands for both."""
    dear = {"accelerator": "B200", "rack": "DGX-B200", "price_usd": 9e6}
    workload = {"model": "llama-3.1-70b", "tokens": 1e11, "sequence_length": 8192}
    plan = planner.solve(asked(dear, workload=workload, hardware={**SMALL["hardware"], "racks": 1}))
    first, second = plan.conflict.reason.split("; on ")
    assert first.startswith("on B200 ") and "the budget is $2.20M" in first
    assert second.startswith("H100 ") and "of a GPU can be used" in second
    assert plan.status == "infeasible" and not planner.check(plan)
    late = planner.solve(asked(OTHERS[0], limits={**SMALL["limits"], "deadline_days": 0.1}))
    for gpu in ("H100", "H200"):
        assert re.search(
            rf"on {gpu} no plan within the budget of .2.20M trains in less than [\d.]+ days > 0.1", late.conflict.reason
        )
    assert late.status == "infeasible" and late.conflict.rules == ("limits.deadline_days",) and not planner.check(late)


def test_the_gpu_that_likely_ends_first_is_searched_first_and_each_has_figures_of_its_own() -> None:
    """A GPU that comes late has its turn behind a dearer one at hand; the bound of one is none of the next."""
    events: list[planner.Event] = []
    late = {**OTHERS[1], "ready_months": 1 / DAYS_A_MONTH}
    plan = planner.solve(asked(late, objective={"minimize": "finish_date"}), on_progress=events.append)
    phases = [event.phase for event in events if isinstance(event, planner.PhaseStarted)]
    assert phases[:2] == ["search on H100", "search on B200"]
    second = phases.index("search on B200")
    found = [event for event in events if event.phase == phases[second] and event.incumbent is not None]
    assert found and all(event.incumbent >= (event.bound or 0.0) - 1e-9 for event in found)
    assert found[-1].incumbent == pytest.approx(plan.objective.value)  # days from the decision, as the goal counts


CUT_SHORT = [(2.0, 0.0, 2.0), (2.0, 1 / DAYS_A_MONTH, 3.0), (5.0, 0.0, 4.0), (0.0, 0.0, None), (None, 0.0, None)]


@each(("bound", "ready_months", "expected"), CUT_SHORT)
def test_the_bound_is_that_of_all_gpus_on_the_scale_of_the_chosen(bound, ready_months, expected):
    best = HardwareAnswer(load_instance(SMALL), JointSolution(status="optimal", days=4.0, lower_bound=4.0))
    best = replace(best, solution=replace(best.solution, plan=SimpleNamespace()))  # type: ignore[arg-type]
    cut = JointSolution(status="unknown", lower_bound=bound, stopped="limit")
    other = HardwareAnswer(best.instance.replaced(hardware__ready_months=ready_months), cut)
    found = bounded_by_all(best, (other,))
    assert found.stopped == "limit"
    assert found.lower_bound == (None if expected is None else pytest.approx(expected))


def test_without_a_plan_the_bound_is_that_of_all_choices() -> None:
    """A choice that may start a month earlier has plans that end earlier than the bound of the latest says."""
    late = load_instance({**SMALL, "hardware": SMALL["hardware"] | {"ready_months": 1.0}})
    unknown = JointSolution(status="unknown", lower_bound=40.0, stopped="limit")
    best, other = HardwareAnswer(late, unknown), HardwareAnswer(load_instance(SMALL), unknown)
    found = bounded_by_all(best, (other,))
    assert found.status == "unknown" and found.lower_bound == pytest.approx(40.0 - 30.4375)
    none = HardwareAnswer(other.instance, JointSolution(status="infeasible"))
    assert bounded_by_all(best, (none,)).lower_bound == pytest.approx(40.0)


def test_the_goal_is_proven_only_where_the_fewest_days_are() -> None:
    """A gap that was asked for is left, and the end says that a faster plan may exist; without one none does."""
    for gap in (0.5, None):
        plan = planner.solve({**SMALL, "objective": {"tolerance": 0.01}}, gap=gap)
        assert plan.objective.ends and plan.objective.bound is not None
        goal = plan.objective.ends[0]
        assert goal.proven == (goal.value <= plan.objective.bound * (1 + 1e-9))


SOON = {"limits": {**SMALL["limits"], "deadline_days": 3.0}}


@pytest.mark.parametrize(("alternative", "parts", "chosen"), [
    ({**OTHERS[0], "price_usd": 1e6}, {}, "H100"),  # at its own price, which the budget does not pay
    ({**OTHERS[0], "ready_months": 120.0}, {}, "H100"),  # nothing on it can end as soon
    ({**OTHERS[1], "ready_months": 6.0}, SOON, "B200"),  # the deadline is on the days of training
], ids=["dear", "late", "in time"])  # fmt: skip
def test_the_gpu_is_chosen_by_price_end_and_deadline(alternative: Any, parts: dict[str, Any], chosen: str) -> None:
    """What can be known without a search of the other GPU, as that it comes after the end, is proven without."""
    plan = planner.solve(asked(alternative, **parts))
    assert plan.status == "optimal" and not planner.check(plan)
    assert plan.layout.accelerator == chosen
    assert alternative.get("ready_months") != 120.0 or plan.proof.alternatives[0].bound_days == 0


@pytest.mark.parametrize(("path", "change"), [
    ("proof.alternatives.0.accelerator", "none"),
    ("proof.alternatives.0.bound_days", lambda x: x * 0.9),
    ("proof.alternatives", lambda own: own[:-1]),
])  # fmt: skip
def test_a_changed_proof_is_told(path: str, change: Any) -> None:
    bent = edited_at(with_an_alternative(), path, change)
    assert any(v.rule.startswith("alternatives") for v in planner.check(bent))


@cache
def with_an_alternative() -> Plan:
    return planner.solve(asked(OTHERS[0]))


@each(("change", "path"), [
    ({"alternatives": [{"accelerator": "H100", "rack": "DGX-H100"}]}, "hardware.alternatives[0]"),
    ({"alternatives": [{"accelerator": "H900", "rack": "DGX-H100"}]}, "hardware.alternatives[0].accelerator"),
    ({"alternatives": [{"accelerator": "H200", "rack": "DGX-H200", "price": 1}]}, "hardware.alternatives[0].price"),
])  # fmt: skip
def test_what_is_no_alternative_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError, match=path.replace("[", r"\[").replace("]", r"\]")):
        planner.solve({**SMALL, "hardware": {**SMALL["hardware"], **change}})


def test_an_alternative_that_the_switches_do_not_carry_is_named_before_any_search(monkeypatch) -> None:
    """A NIC of 800 Gbps fits no port of 400: the refusal says whose it is, and waits for no other GPU's search."""
    monkeypatch.setattr(hardware_choice, "solve_joint", lambda *_, **__: pytest.fail("a search was begun"))
    whose = r"^hardware\.alternatives, GB300 in GB300-NVL72: network\.switches: .* 800 Gbps"
    with pytest.raises(InputError, match=whose):
        planner.solve(asked({"accelerator": "GB300", "rack": "GB300-NVL72"}))


def test_what_asks_about_one_gpu_refuses_others() -> None:
    with pytest.raises(planner.PlannerError, match="a whole curve is of one GPU and rack"):
        planner.solve(asked(*OTHERS, objective={"minimize": "frontier"}))
    for ask in (planner.explain, planner.frontier, planner.layouts):
        with pytest.raises(InputError, match=r"hardware\.alternatives"):
            ask(asked(*OTHERS))  # type: ignore[operator]
        with pytest.raises(InputError, match=r"hardware\.pools"):
            ask("two-pools")  # type: ignore[operator]
    assert "hardware.pools" in refusal(invoke("evaluate", INSTANCE))


def small(**hardware):
    """Return the two pools as a small question: a node of each, a model of 8B and 32 sequences a step."""
    data = json.loads(INSTANCE.read_text(encoding="utf-8"))
    data["limits"] = {"max_batch_tokens": 32 * 8192}
    data["workload"]["model"] = "llama-3.1-8b"
    for p in data["hardware"]["pools"]:
        p["racks"] = 1
    data["hardware"].update(hardware)
    return data


def pool_alone(data, name):
    pool = next(p for p in data["hardware"]["pools"] if p["name"] == name)
    return {**data, "hardware": {k: pool[k] for k in ("accelerator", "rack", "racks")}}


@pytest.fixture(scope="module")
def plan():
    return planner.solve(small())


@pytest.mark.slow
def test_two_pools_train_faster_than_either_alone(plan):
    days = [planner.solve(pool_alone(small(), name)).objective.value for name in ("a100", "h100")]
    assert plan.objective.value < min(days)
    assert 1 / plan.objective.bound <= sum(1 / d for d in days) * (1 + 1e-9)
    assert plan.pools.sequences["h100"] > plan.pools.sequences["a100"] > 0
    assert plan.cost.total_usd == sum(pool.rack.price_usd for pool in plan.instance.hardware.pools)
    told = summary(plan)
    assert all(f"{name}: {n:,} sequences" in told for name, n in plan.pools.sequences.items())
    assert told.count("MFU") == 2 and not check(plan)


@pytest.mark.slow
def test_shipped_pools_are_planned_within_a_limit_of_time():
    """The shipped instance has a checked plan long before its proof, better than the bound of the faster pool alone."""
    # The racks of each pool are replaced at the end of their own life.
    faster = planner.solve(pool_alone(json.loads(INSTANCE.read_text(encoding="utf-8")), "h100")).objective.bound
    end = planner.Interrupter()

    def seen(event):
        if (event.incumbent or faster) < faster:
            end.interrupt()

    found = planner.solve(INSTANCE, time_limit=90, interrupt=end, on_progress=seen)
    assert found.stopped == "interrupted" and found.objective.value < faster
    assert not check(found)
    assert set(found.run.replacements) == {"a100", "h100"}
    assert named(edited_at(found, "run.replacements.a100", 3)) == {"run_replaced[a100]"}


@pytest.mark.slow
def test_exchange_follows_the_tail_between_sites(plan):
    """A ring of two moves all of a stage's gradients, of three 4/3; one pool exchanges none, nor do pools apart."""
    link = plan.instance.hardware.pool_link
    m, layers = plan.pools.layouts["h100"].metrics, max(plan.pools.layouts["h100"].layers_per_stage)
    backward = m.wan_window_seconds / layers
    for training, ring in ((2, 1.0), (3, 4 / 3)):
        wanted = wan_tail_seconds(ring * m.gradient_bytes_per_stage, 800, 1, 1, layers, backward)
        assert pool_exchange_seconds(link, m, layers, training) == pytest.approx(wanted)
    assert pool_exchange_seconds(link, m, layers, 1) == pool_exchange_seconds(None, m, layers, 2) == 0.0
    apart = plan.replaced(pools__exchange_seconds={"a100": 0.0, "h100": 0.0})
    assert "exchange between pools not counted" in summary(apart)


@pytest.mark.slow
@each(("limit", "value"), [("budget_usd", 1.0), ("facility_power_mw", 1e-6), ("deadline_days", 1e-3)])
def test_limits_on_the_whole_are_kept(limit, value):
    """Racks too dear, too much power and no time end in a conflict that names the limit."""
    data = small()
    data["limits"][limit] = value
    found = planner.solve(data)
    assert found.status == "infeasible" and f"limits.{limit}" in found.conflict.rules and not check(found)


NETWORK = {"switches": ["25.6T-64x400G"], "optics": {"name": "o", "price_usd": 1, "power_watts": 1}}
REFUSED = [
    ("network", NETWORK, "network: does not go"),
    ("wan", {}, "wan: does not go"),
    ("hardware.racks", 4, "hardware.racks: does not go"),
    ("hardware.accelerator", "B200", "hardware.accelerator: each pool has its own"),
    ("hardware.racks_per_module", 4, "hardware.racks_per_module: does not go"),
    ("hardware.pools", lambda pools: pools[:1], "hardware.pools: must have at least 2"),
    ("hardware.pools.1.name", "a100", "is already that of hardware.pools[0]"),
    ("hardware.pools.1.accelerator", "H10", "did you mean"),
    ("hardware.pools.1.rack_s", 1, "did you mean"),
    ("workload.precision.compute", "fp8", "hardware.pools[0].accelerator: "),
    ("pins", {"layout.tensor_parallel": 8}, "pins.layout.tensor_parallel: "),
    ("objective", {"minimize": "cost_usd"}, "objective.minimize: pools"),
    ("hardware", {**SMALL["hardware"], "pool_link": {"gbps": 100}}, "pool_link: joins pools"),
]


@each(("path", "value", "words"), REFUSED)
def test_what_does_not_go_with_pools_is_refused(path, value, words):
    with pytest.raises(InputError, match=re.escape(words)):
        load_instance(with_entries(small(), {path: value}))
