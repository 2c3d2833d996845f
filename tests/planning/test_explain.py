"""`planner explain`: what a choice and a limit are worth, what an infeasible question lacks, and closed sites."""

import json
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any

import pytest
from commands import invoke
from each_case import each
from joint_brute_force import toy
from joint_toys import GPU, PRECISION
from joint_toys import toy as campus
from stored_plans import stored
from tiers import slow
from worked_plan import LAYOUT, instance_with

import planner
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.joint_cache import JointCache
from planner.plan.plan import Plan
from planner.planning import changed_instance, explanation
from planner.planning.changed_instance import Variant, change_to, limits_of, variants_of
from planner.planning.explanation import SHOWN, Explanation, Worth, _Answer, _Questions
from planner.report.explained_plan import explanation_text
from planner.solvers.search_deadline import Deadline
from planner.units import power

# Which leave few other choices.
PINS = dict.fromkeys((f"layout.{name}_parallel" for name in ("context", "expert", "pipeline")), 1)
PINS |= {"layout.virtual_stages": 1, "layout.schedule": "1f1b"}
FLASH = {
    "name": "flash", "launch_seconds": 1e-6, "microbatch_seconds": 1e-4, "step_seconds": 1e-3, "tensor_overlap": 0.5,
    "sharding_exposed": 0.1, "schedules": ["1f1b"],
}  # fmt: skip


def small(hbm: float = 4e9) -> dict[str, Any]:
    """Return a tiny question: six sequences of a model of 4 heads on two racks of 4 GPUs."""
    model = {"name": "m", "layers": 4, "hidden": 2048, "heads": 4, "kv_heads": 4, "vocabulary": 8000}
    accelerator = GPU | {"hbm_bytes": hbm, "nic_bytes_per_second": 2e10}
    rack = {"name": "r", "gpus": 4, "it_kw": 4, "price_usd": 1}
    return {
        "name": "tiny",
        "limits": {"max_batch_tokens": 6 * 1024, "memory_reserve_fraction": 0.0},
        "workload": {
            "model": model, "tokens": 1e9, "sequence_length": 1024, "precision": PRECISION, "software": FLASH,
        },
        "hardware": {"accelerator": accelerator, "rack": rack, "racks": 2},
    }  # fmt: skip


def test_no_answer_is_proven_that_is_far_from_its_bound() -> None:
    """A search that ended within a tolerance has a bound below its plan; a plan that is cut short has no tolerance."""
    plan = planner.solve(small())
    v, far = Variant("site", "a", "opened"), _Answer(2.0, 1.0, 2.0, None, proved=True)
    for asked, tolerance in ((plan, SHOWN), (plan.replaced(status="feasible", objective__bound=1e-9), SHOWN)):
        questions = _Questions(asked, JointCache(), Deadline(1.0), Options(), str)
        assert questions.tolerance <= max(tolerance, plan.instance.objective.tolerance)
        assert not questions._as_other(v, far).proved
        assert questions._as_other(v, replace(far, bound=2.0)).proved
    assert questions.tolerance == SHOWN


def test_no_other_choice_is_better() -> None:
    """Every layout with one choice made otherwise is slower or as fast, and is proven the best of its kind."""
    found = planner.explain(small())
    assert found.status == "optimal" and found.others
    assert all(x.proved and (x.loss is None or x.loss >= -1e-9) for x in found.others)
    assert all(x.days_saved >= -1e-9 for x in found.worth)
    assert all(x.value != x.plan_value for x in found.others)


@pytest.mark.slow
def test_a_command_without_a_plan_says_what_is_enough(tmp_path: Any) -> None:
    """The command exits with 3 where there is no plan; with the memory that it lacks, the question has one."""
    path, asked = tmp_path / "q.json", small(hbm=1.5e8)
    path.write_text(json.dumps(asked))
    bad = invoke("explain", path, "--json", "--pin", "layout.microbatch_sequences=1")
    found = json.loads(bad.stdout)
    assert (bad.exit_code, found["status"]) == (3, "infeasible")
    memory = next(x for x in found["lacks"] if x["limit"] == "memory")
    asked["hardware"]["accelerator"]["hbm_bytes"] = memory["needed"] * 1e9
    assert planner.solve(asked).status == "optimal"


def test_too_few_racks_pinned_at_the_sites_say_how_much_memory_is_enough() -> None:
    asked = campus(0, sites=2).replaced(pins={"sites.racks": 1})
    found = planner.explain(asked)
    assert found.conflict is not None and found.conflict.rules == ("pins.sites.racks", "memory")
    (memory,) = found.lacks
    assert memory.now < memory.needed < 1
    assert planner.solve(asked.replaced(hardware__accelerator__hbm_bytes=memory.needed * 1e9)).status == "optimal"


def priced(**objective: Any) -> dict[str, Any]:
    """Return a question of two racks that have a price, with another objective."""
    asked = small()
    asked["hardware"]["rack"] = asked["hardware"]["rack"] | {"price_usd": 1e6}
    return asked | {"objective": {"minimize": "cost_usd", **objective}}


@pytest.mark.parametrize(
    ("seed", "how"), [(2, {"network": None}), *slow((2, {}), (3, {"sites": 2, "forced": True}), (14, {"sites": 2}))]
)
@pytest.mark.parametrize("minimize", ["days_to_train", *slow("cost_usd")])
def test_what_other_questions_left_in_a_cache_changes_no_answer(seed, how, minimize, monkeypatch):
    """Neither that to a question of half of a limit, of another price, nor of a choice that must not be the plan's."""
    asked = toy(seed, **how).replaced(objective__minimize=minimize, objective__tolerance=0.0)
    asked = asked.replaced(limits__deadline_days=1e6)

    def answer(question: Instance, known: JointCache, without: dict[str, Any] | None = None) -> Any:
        return explanation._answer(question, explanation._quietly(Options(), known), without)

    plan, cache = planner.solve(asked), JointCache()
    for of in (asked, asked.replaced(limits__budget_usd=(asked.limits.budget_usd or 1e9) * 0.7)):
        answer(of, cache)
    monkeypatch.setattr(changed_instance, "SMALL_CHANGE", -0.5)
    batch, hbm = asked.limits.max_batch_tokens or 0.0, asked.hardware.accelerator.hbm_bytes
    rack_usd, grid = asked.hardware.rack.price_usd, asked.grid
    figures = {"limits__max_batch_tokens": batch / 2, "hardware__accelerator__hbm_bytes": hbm / 2}
    figures |= {"hardware__rack__price_usd": rack_usd * 1.5}
    figures |= {} if grid is None else {"grid__prices__site_usd": grid.prices.site_usd + rack_usd}
    others = [Variant(path, "", "", change_to(**{path: figure})) for path, figure in figures.items()]
    others += [*(replace(x, value="less") for x in limits_of(plan)), *variants_of(plan, [])]
    for v in others:
        question, without = v.change(asked), v.without
        found, fresh = (answer(question, x, without) for x in (replace(cache), JointCache()))
        assert (found.proved, found.value) == (fresh.proved, fresh.value and pytest.approx(fresh.value, rel=1e-9))
        assert not without or found.plan is None or explanation._value(v, found.plan) != v.plan_value
    assert answer(asked, cache).value == answer(asked, JointCache()).value


def test_a_proven_plan_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proven plan is explained from itself, part by part: each part has the lines of those before it, and more."""
    plan = planner.solve(small() | {"pins": PINS})
    solved = planner.explain(small() | {"pins": PINS})
    monkeypatch.setattr(explanation, "solve_instance", None)
    parts: list[Any] = []
    found = planner.explain(plan, on_part=parts.append)
    texts = [explanation_text(x) for x in parts]
    assert parts[0].layout == plan.layout and not parts[0].others and parts[-1] == found
    assert all(b.startswith(a) for a, b in pairwise(texts))
    assert {(x.choice, x.loss) for x in found.others} == {(x.choice, x.loss) for x in solved.others}
    tied = [abs(x.loss) < SHOWN for x in found.others if x.loss is not None]
    assert tied == sorted(tied)


@each("goal", ["cost_usd", "total_cost_of_ownership_usd"])
def test_a_plan_of_least_dollars_is_explained_in_dollars(goal: str) -> None:
    limits = small()["limits"] | {"deadline_days": 1e6}
    found = planner.explain(priced(minimize=goal) | {"pins": PINS, "limits": limits})
    assert found.others and all(x.loss is None or x.loss >= -1e-9 for x in found.others)
    assert all(x.usd is not None and x.usd > 0 for x in found.others if x.days is not None)
    assert all(x.days_saved is None for x in found.worth)
    saved = {x.limit: x.usd_saved for x in found.worth}
    assert goal != "cost_usd" or saved.pop("racks") == pytest.approx(-1e6)  # the cluster pays for one more
    assert goal != "cost_usd" or all(usd is not None and usd >= 0 for usd in saved.values())
    assert "$" in explanation_text(found).partition("MORE")[2]


def test_a_plan_within_a_gap_is_solved_again() -> None:
    """What is optimal only within the gap that was asked for, or breaks a rule, is not taken for the best."""
    plan = planner.solve(small() | {"pins": PINS})
    bound = plan.objective.bound
    assert bound is not None and explanation.proven_plan(plan)
    assert not explanation.proven_plan(plan.replaced(objective__bound=bound * 0.9, objective__gap=0.1))
    broken = plan.layout.replaced(data_parallel=plan.layout.data_parallel + 1) if plan.layout else None
    assert not explanation.proven_plan(plan.replaced(layout=broken))


def test_more_money_that_would_do_pays_a_plan() -> None:
    """Where sites alone cost more than the budget, what would do is the price of a whole plan."""
    asked = toy(5, sites=2, forced=True).replaced(limits__budget_usd=1.0)
    (more,) = [x.amount for x in planner.explain(asked).relaxations if x.rule == "budget"]
    assert planner.solve(asked.replaced(limits__budget_usd=1.0 + more)).status == "optimal"


def test_an_interrupt_keeps_the_conflict() -> None:
    """Why there is no plan is said first; what would be enough is not asked after an interrupt."""
    stop, asked = planner.Interrupter(), toy(5)
    asked = asked.replaced(limits__memory_reserve_fraction=0.9999999)
    found = planner.explain(asked, interrupt=stop, on_part=lambda _: stop.interrupt())
    assert found.interrupted and found.conflict is not None and "memory" in found.conflict.rules and not found.lacks
    assert explanation_text(found).endswith("interrupted: what is left was not asked")


def test_an_interrupt_keeps_what_was_explained() -> None:
    stop, parts = planner.Interrupter(), list[Any]()

    def note(part: Any) -> None:
        parts.append(part)
        if part.worth:
            stop.interrupt()

    found = planner.explain(small(), on_part=note, interrupt=stop)
    assert found.interrupted and found.worth == parts[-2].worth and not found.others


ASKED = instance_with(pins=LAYOUT, objective__tolerance=0.0)


def test_an_interrupt_of_the_search_for_the_plan_ends_the_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan so far is told with the figure that others would be set against, and nothing else is asked."""
    cut_short = planner.solve(small()).replaced(stopped="interrupted", status="feasible")
    monkeypatch.setattr(explanation, "solve_instance", lambda *_, **__: cut_short)
    found = planner.explain(small())
    assert found.interrupted and found.layout == cut_short.layout and not (found.worth or found.others)
    assert found.best_days == cut_short.objective.value and found.best_usd is None
    assert f"set against the plan's {found.best_days:.4g} days, not proven the best" in explanation_text(found)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return stored(ASKED)


@pytest.fixture(scope="module", params=slow("all limits"))  # its tests are slow
def found() -> Explanation:
    """Return its explanation, with time for every limit on a machine however busy."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(explanation, "AT_LEAST", 900.0)
        return planner.explain(ASKED)


@each(("limit", "path"), [("budget", "limits.budget_usd"), ("facility power", "limits.facility_power_mw")])
def test_a_limit_is_worth_what_solving_with_more_of_it_saves(plan, found, limit, path):
    x = next(x for x in found.worth if x.limit == limit)
    better = stored(planner.changed(ASKED, {path: "x1.01"}))
    saved = plan.layout.metrics.days_to_train - better.layout.metrics.days_to_train
    assert x.proved and x.most_days_saved is None
    assert x.days_saved == pytest.approx(saved, rel=1e-6, abs=1e-12)
    assert x.more == pytest.approx(0.01 * (ASKED.limits.budget_usd if limit == "budget" else 2.5))


def test_dollars_megawatts_memory_and_batch_have_a_worth(plan: Plan, found: Explanation) -> None:
    """The batch by a micro-batch of every replica: a token is not worth nothing for want of a whole one."""
    more = {x.limit: x.more for x in found.worth}
    step = plan.layout.data_parallel * plan.layout.microbatch_sequences * ASKED.workload.sequence_length
    assert {"budget", "batch", "memory", "headroom"} <= more.keys() and more["batch"] >= step
    text = explanation_text(found)
    for unit in (" of budget: ", "tokens of batch: ", "1 GB of HBM: ", "MW of headroom: "):
        assert unit in text
    later = Worth(limit="fibre", more=1.0, unit="fibre pair", days_saved=-0.5, proved=True)
    told = explanation_text(found.replaced(worth=(later,)))
    assert "  1 fibre pair: 0.5 days later, for its price" in told


def test_no_line_is_wider_than_the_terminal(found: Explanation, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked.json").write_text(ASKED.model_dump_json(exclude_none=True))
    monkeypatch.setattr(planner, "explain", lambda *_, **__: found)
    for width in (80, 120, 200):
        shown = invoke("explain", tmp_path / "asked.json", "-q", env={"COLUMNS": str(width)})
        assert max(map(len, shown.stdout.splitlines())) <= width and len(shown.stdout.splitlines()) > 10


def test_candidates_are_named_with_megawatts_and_rules(plan: Plan, found: Explanation) -> None:
    """Every candidate has its largest load and what stops it, and one that the plan does not use what opening costs."""
    opened, load = {s.id for s in plan.sites.sites}, sum(s.facility_mw for s in plan.sites.sites)
    assert {x.node for x in found.nodes} == {n.id for n in ASKED.grid.nodes if n.site}
    assert {x.node for x in found.nodes if x.opened} == opened
    asked = {(x.plan_value, x.value) for x in found.sites}
    for x in found.nodes:
        assert x.missing_mw == pytest.approx(max(0.0, load - x.mw)) and x.stopped_by
        assert (x.node, "closed" if x.opened else "opened") in asked
        assert f"  {x.node:24}{power(x.mw)} (" in explanation_text(found)


def test_a_row_with_the_plan_of_another_says_so(found: Explanation) -> None:
    """A plan that answers two questions is told once: where an earlier line has it, the later one names that line."""
    every = [*found.sites, *found.others]
    text = explanation_text(found)
    for x in every:
        earlier = [y for y in every[: every.index(x)] if (y.days, y.usd) == (x.days, x.usd)]
        assert not x.same_as or (earlier and x.same_as in text)
    assert any(x.same_as for x in every)


def test_other_sets_of_sites_come_in_order(plan: Plan) -> None:
    """Each has the best plan over sets that no plan before it has, and none is the plan's own."""
    parts = explanation.explained(plan, Options(), str, near=3, within=1000.0)
    near = [x for x in list(takewhile(lambda part: not part.worth, parts))[-1].sites if x.choice == "sites"]
    losses = [x.loss for x in near if x.loss is not None]
    assert near and losses == sorted(losses) and len({x.value for x in near}) == len(near)
    assert all(x.value != x.plan_value and x.proved for x in near)


def test_one_fibre_pair_more_than_may_be_leased_has_a_worth(plan: Plan) -> None:
    link = plan.sites.links[0]
    wan = ASKED.wan.replaced(max_fibre_pairs=link.fibre_pairs)
    x = next(x for x in limits_of(plan.replaced(instance=ASKED.replaced(wan=wan))) if x.choice == "fibre")
    more = x.change(ASKED.replaced(wan=wan))
    waves, lit = more.pins["wan.wavelengths"], more.wan
    pair = lit.max_wavelengths_per_pair
    assert waves == link.wavelengths + pair <= pair * lit.max_fibre_pairs


def test_without_time_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    monkeypatch.setattr(explanation, "TIMES", 0.0)
    monkeypatch.setattr(explanation, "AT_LEAST", 0.0)
    names: list[Any] = []
    short = planner.explain(plan, on_progress=lambda e: names.append(e.phase))
    assert short.nodes and not short.worth and not short.others and not short.sites
    assert {"budget", "headroom"} <= set(short.unasked)
    assert "NOT ASKED  for want of time" in explanation_text(short)
    assert "sites" in names
