"""The checker as a whole: silent on a good plan, loads no solver, falls over no bad one, reckons bills by itself."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from changed_figures import placements, results, unlisted
from cluster_worlds import tree
from curves import curve
from each_case import each
from joint_toys import PHI, case, toy
from on_trust import ON_TRUST
from stored_plans import stored
from worked_plan import LAYOUT, edited, edited_at, instance_with, named, rules, small, with_entries

import planner
from planner import cluster
from planner.api.plan_calls import check
from planner.checks import joint_proof, placement, strategy_space_check, strategy_times_check
from planner.checks.cost_and_curve import curve_share
from planner.checks.rule import at_most, exceeds, must_equal, same, show
from planner.checks.strategy_space_check import Space
from planner.cluster.job import GroupKind, Job
from planner.cluster.topology import Topology, TopologySwitch
from planner.errors import InputError
from planner.instance.grid import Grid
from planner.physics import plan_physics
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import memory, step_prediction
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of

PLAN = small()
DATA = PLAN.model_dump(mode="json")


def test_the_checker_loads_no_solver() -> None:
    code = (
        "import sys, planner, planner.checks.check_plan\n"
        "heavy = ('ortools', 'pyomo', 'highspy', 'pandas', 'planner.models', 'planner.solvers')\n"
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@each("section", ["sites", "layout", "fabric", "placement", "cost"])
def test_a_missing_or_empty_section_is_missed(section: str) -> None:
    assert "complete" in rules(PLAN.replaced(**{section: None}))
    if section in ("sites", "fabric", "placement"):
        assert check(edited_at(PLAN, f"{section}.sites", [] if section == "sites" else {}))


@each(("path", "name"), [
    ("workload.model", "gpt3-175b"), ("workload.software", "megatron-core"), ("reliability", "llama3-2024"),
    ("hardware.accelerator", "B200"), ("workload.precision", "bf16"), ("network.switches.0", "25.6T-64x400G"),
])  # fmt: skip
def test_a_plan_with_a_catalogue_name_is_refused(path: str, name: str) -> None:
    """A plan is self-contained: a name that an instance may have in place of a part is refused where it is read."""
    given = with_entries(PLAN.model_dump(mode="json"), {f"instance.{path}": name})
    at = f"plan.json: instance.{path.replace('.0', '[0]')}"
    with pytest.raises(
        InputError, match=re.escape(f'{at}: must be an object, as a plan has every part in full (is "{name}")')
    ):
        plan_of(given, "plan.json")


@each(("path", "value", "rule"), [
    ("hardware.accelerator.peak_flop_per_second", {}, "peak_known"), ("grid.lines.0.a", "nowhere", "known_references"),
    ("grid.nodes.0.balancing_authority", "nobody", "known_references"), ("grid.nodes.1.id", "e1", "known_references"),
])  # fmt: skip
def test_names_that_lead_nowhere_are_all_that_is_judged(path: str, value: Any, rule: str) -> None:
    """Without a grid that is whole, and the peak of the type of its products, nothing of a plan can be computed."""
    assert named(edited_at(PLAN, f"instance.{path}", value)) == {rule}


def test_an_infeasible_answer_says_why() -> None:
    nothing = {"status": "infeasible", **dict.fromkeys(("sites", "layout", "fabric", "placement", "cost"))}
    words = {"space": PLAN.objective.space, "outside": PLAN.objective.outside}
    nothing["objective"] = {"name": "days_to_train", "value": None, "bound": None, "gap": None, **words}
    silent = Plan.model_validate({**DATA, **nothing})
    assert named(silent) == {"reason"}
    conflict = {"decision": "sites", "rules": ["headroom"], "reason": "too much"}
    assert check(edited_at(silent, "conflict", conflict)) == []
    assert named(edited_at(PLAN, "conflict", conflict)) == {"reason"}
    assert "reason" in named(edited_at(PLAN, "status", "infeasible"))


INF, NAN = math.inf, math.nan
ALIKE = (None, None), (3, 3), (1.0, 1.0 + 9e-7), (-1.0, -1.0 - 9e-7), (0.0, 0), (INF, INF)
APART = (None, 0), (0.0, None), (10**9, 10**9 + 1), (1.0, 1.0 + 2e-6), (0.0, 1e-12), (3.6, INF), (INF, 3.6)
UNLIKE = *APART, (INF, -INF), (NAN, 1.0), (NAN, NAN)


@each(("a", "b", "agree"), [*((*x, True) for x in ALIKE), *((*x, False) for x in UNLIKE)])
def test_figures_agree_within_the_tolerance(a: float | None, b: float | None, agree: bool) -> None:
    """A millionth apart is the same, of whole numbers only the same; nothing finite is near an infinity."""
    assert same(a, b) == agree
    assert bool(list(must_equal("r", "x", a, b))) != agree


ABOVE = (2, 1), (10**9 + 1, 10**9), (1.0 + 2e-6, 1.0), (-1.0, -1.1), (INF, 1.0), (1.0, -INF), (NAN, 1.0), (1.0, NAN)
WITHIN = (1, 1), (1.0 + 9e-7, 1.0), (1.0, 2.0), (1.0, INF), (INF, INF), (-INF, 1.0)


@each(("a", "b", "above"), [*((*x, True) for x in ABOVE), *((*x, False) for x in WITHIN)])
def test_a_limit_is_exceeded_beyond_the_tolerance(a: float, b: float, above: bool) -> None:
    """An infinite figure is above every limit but an infinite one, and what is no number is within none."""
    assert exceeds(a, b) == above
    found = [v.message for v in at_most("r", a, b, "days", "days allowed")]
    assert found == ([f"{show(a)} days > {show(b)} days allowed"] if above else [])


TOTAL = PLAN.cost.total_usd


@each(("path", "change", "rule"), [
    ("cost.total_usd", lambda x: x * 0.99, "total"),
    ("cost.opex_usd_per_year.energy", lambda x: x * 0.99, "parts[opex_usd_per_year.energy]"),
    ("cost.capex_usd", lambda x: {**x, "gift": -1e6}, "parts[capex_usd.gift]"),
    ("cost.operation_years", 1, "parts[operation_years]"),
])  # fmt: skip
def test_an_edit_of_the_bill_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(PLAN, path, change))


def test_the_budget_holds_to_the_dollar() -> None:
    """Years of operation count in it, and the bill is of switches and cables, not of the plan's own prices."""
    run = TOTAL + 2 * PLAN.cost.opex_usd_per_year["energy"]
    for budget, years in ((TOTAL, 0), (run, 2)):
        assert rules(small(limits__operation_years=years, limits__budget_usd=budget)) == set()
        assert rules(small(limits__operation_years=years, limits__budget_usd=budget - 1)) == {"budget"}
    over, usd = small(limits__budget_usd=TOTAL - 1000), PLAN.fabric.sites["e1"].cost_usd
    assert "budget" in rules(edited(over, fabric__sites__e1__cost_usd=usd - 1000, cost__total_usd=TOTAL - 1000))


FIRST = (10e6, 40.0, 38.0, 9)  # capital, days, bound on days, racks


@each(("points", "share"), [
    ((), -1.0), ((FIRST,), 40 / 38 - 1), ((FIRST, (11e6, 35.0, 32.0, 9)), 0.1),
    ((FIRST, (10.5e6, 35.0, 32.0, 9)), 35 / 32 - 1), ((FIRST, (20e6, 35.0, 32.0, 9)), 40 / 32 - 1),
    ((FIRST, (20e6, 35.0, 32.0, 9), (24e6, 30.0, 22.0, 9)), 30 / 22 - 1), ((FIRST, (20e6, 35.0, None, 9)), math.inf),
])  # fmt: skip
def test_the_share_of_a_curve(points: tuple[tuple[float, float, float | None, int], ...], share: float) -> None:
    """Of two neighbours the dearer covers a plan by its days or by its capital, the cheaper one by its own days."""
    drawn = curve(points, least_usd=10e6)

    def refused(**changes: Any) -> bool:
        physics = PlanPhysics(plan=PLAN.replaced(curve=drawn.model_copy(update=changes)))
        return any(v.rule == "curve_share" for v in curve_share(physics))

    assert refused(epsilon=min(share, 1e9) * 0.999) == bool(points) and not refused(epsilon=share)
    assert refused(epsilon=math.inf, least_usd=None) == refused(epsilon=math.inf, least_usd=9.9e6) == bool(points)
    assert not refused(epsilon=None)


def test_the_space_and_the_layers_that_bound_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted one too many, as the search then does, a floor of a step would be above what plans take."""
    i = toy(2)
    software, w = i.workload.software.replaced(recompute_modules=("mlp",), flash_attention=True), i.workload
    for module in (memory, step_prediction, strategy_space_check):
        monkeypatch.setattr(module, "repeats_modules", lambda _: False, raising=False)
        monkeypatch.setattr(module, "days_of", lambda *_: 1.0, raising=False)
    space = Space(instance=i.replaced(workload__software=software), transport_slowdown=PHI)
    assert w.model.experts is None and space._recomputations() == [("none", "any"), ("selective", "no")]
    assert space.days_a_second == pytest.approx(w.tokens / w.sequence_length / w.availability / 86_400)
    cut = next(Space(instance=toy(2), transport_slowdown=PHI).cuts())
    x = strategy_times_check.fastest_ranges(cut, cut.pipelines, lambda _: 6, 1e9)
    before = strategy_times_check.StepTimeBound(cut=cut, ranges=x, zero_stage=0).layers
    monkeypatch.setattr(step_prediction, "least_layers", lambda _: toy(2).workload.model.layers + 1)
    after = strategy_times_check.StepTimeBound(cut=cut, ranges=x, zero_stage=0).layers
    assert len(x) and (before == after).all()


def test_months_at_which_something_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Months that the grid's own list lacks would be asked about by neither the search nor the check."""
    i = next(x for x in map(case, range(1, 60)) if x.grid is not None)
    first, *rest = i.grid.nodes
    i = i.replaced(grid__nodes=(first.replaced(ready_months=7.0), *rest), grid__rules__ready_within_months=None)
    monkeypatch.setattr(Grid, "lead_months", ())
    assert 7.0 in [months for (_, _, months), _ in joint_proof.questions_by_start(i)]


def test_the_order_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names sorted as texts have n10 before n2; Slurm does not."""
    for module in (cluster, placement):
        monkeypatch.setattr(module, "natural", lambda name: [(0, name)], raising=False)
    topology = Topology(switches=(TopologySwitch(name="leaf", nodes=("n2", "n10")),))
    job = Job(name="j", mesh={"data": 2})
    placed = planner.place(topology, job)
    turned: dict[str, Any] = {"nodes": ("n10", "n2")}
    bent = placed.replaced(**turned, order="name", groups=(placed.groups[0].replaced(**turned),))
    assert "order_of_names" in {v.rule for v in placement.check_placement(topology, job, bent)}


def test_the_share_of_groups_under_one_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, locality = stored(toy(5, sites=2, forced=True)), plan_physics.locality
    assert "leaf_local" in {end.name for end in plan.objective.ends}
    split = lambda *of, **how: replace(locality(*of, **how), groups_split=1)  # noqa: E731
    monkeypatch.setattr(plan_physics, "locality", split)
    assert "objective[ends]" not in named(plan)


QUESTIONS: dict[str, dict[str, Any]] = {
    "days": {},
    "late": {"limits__deadline_days": 0.001},
    "poor": {"limits__budget_usd": 3e6},
    "run": {
        "operation": {"maintenance_share_per_year": 0.03, "staff_usd_per_year": 1e5, "fabric_life_years": 3.0},
        "hardware__rack__life_years": 2.0,
        "limits__operation_years": 5.5,
        "limits__budget_usd": 1e9,
        **{f"grid__balancing_authorities__{i}__carbon_kg_per_mwh": 300.0 + i for i in range(2)},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_only_what_is_on_trust_passes(name: str) -> None:
    plan = stored(instance_with(pins=LAYOUT, **QUESTIONS[name]))
    found = list(results(json.loads(plan.model_dump_json()), each=1))
    assert len(found) > 60
    assert [(x.change.kind, x.change.what) for x in unlisted(found)] == []


@each("job", [
    Job(name="mesh", mesh={"pipeline": 2, "data": 4}),
    Job(name="groups", groups=(GroupKind(name="a", size=6, count=2),)),
    Job(name="too large", mesh={"pipeline": 20, "data": 4}),
])  # fmt: skip
def test_figures_of_a_placement_are_noticed(job: Job) -> None:
    topology = tree([5, 6, 7, 4], 2)
    data, kind = json.loads(planner.place(topology, job).model_dump_json()), placements(topology, job)
    assert list(kind.broken(kind.model.model_validate(data))) == []
    found = list(results(data, each=1, of=kind))
    assert len(found) > 60
    assert [(x.change.kind, x.change.what) for x in unlisted(found, kind)] == []


def test_no_value_bound_or_status_is_on_trust() -> None:
    hidden = [p for p in ON_TRUST if p.rpartition(".")[2] in ("value", "bound", "gap", "status", "objective", "*")]
    assert hidden == ["certificate.space.*", "proof.max_racks_by_wired_gpus.*", "model_choice.days_by_flop.*"]


@each("decision", ["sites", "layout", "fabric", "placement"])
def test_a_lying_certificate_is_found(decision: str) -> None:
    """A certificate of another formulation and solver than the planner's, with value and bound alike, breaks a rule."""
    words = {f"{decision}__certificate__{name}": "an oracle" for name in ("formulation", "solver")}
    found = {v.rule.partition("[")[0] for v in check(edited(stored(instance_with(pins=LAYOUT)), **words))}
    assert found & {"joint_claims", "solvers_named", "formulations"}


@pytest.mark.parametrize(("names", "decision", "rule"), [
    (["limits.budget_usd"], "budget", "no_column"), (["memory", "limits.max_batch_tokens"], "layout", "no_column"),
    (["limits.deadline_days"], "layout", "known_rules"), (["pins.layout.data_parallel"], "layout", "known_rules"),
    (["the weather"], "layout", "known_rules"), (["limits.budget_usd"], "layout", "known_rules"),
])  # fmt: skip
def test_a_made_up_conflict_is_found(names: list[str], decision: str, rule: str) -> None:
    sound = stored(instance_with(pins=LAYOUT))
    refused = stored(instance_with(pins=LAYOUT, limits__budget_usd=3e6)).model_dump(mode="json")
    made_up = {key: sound.model_dump(mode="json")[key] for key in ("instance", "instance_sha256")}
    made_up |= {"conflict": {"decision": decision, "rules": names, "reason": "because"}, "proof": {"columns": []}}
    assert rule in {v.rule for v in check(Plan.model_validate(refused | made_up))}
