"""The best model for a deadline, and the study of limits: utilisation falls with compute, and its bounds hold."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import invoke, refusal
from joint_toys import toy

from planner import check, evaluate, limits, solve
from planner.errors import InputError
from planner.instance.catalogue_entries import catalogue
from planner.plan.plan import Plan
from planner.planning.load import load_instance
from planner.sweeps.axes import changed, read_changes
from planner.sweeps.utilisation import LimitPoint, fall, utilisation_table, wall

pytestmark = pytest.mark.slow


FAMILY = {"heads_multiple_of": 2, "head_size": 64, "vocabulary": 32_000, "tolerance": 0.05, "min_aspect": 16}


def question(*, racks: int = 2, days: float = 30.0, hbm: float = 1.0, **choose: Any) -> dict[str, Any]:
    """Ask for the best model of a few DGX nodes."""
    gpu = catalogue("accelerators")["A100-80GB"]
    asked = {"law": "chinchilla-2", "family": FAMILY, "tolerance": 0.05} | choose
    return {
        "name": "small",
        "objective": {"minimize": "loss"},
        "limits": {"deadline_days": days, "max_batch_tokens": 2e6},
        "workload": {"sequence_length": 2048, "choose": asked},
        "hardware": {"accelerator": {**gpu, "hbm_bytes": gpu["hbm_bytes"] * hbm}, "rack": "DGX-A100", "racks": racks},
    }


@pytest.fixture(scope="module")
def best() -> Plan:
    return solve(question())


def test_the_fixed_point_is_one(best: Plan) -> None:
    """The plan keeps the checker's rules and ends on the deadline; its own model again takes as many days."""
    assert check(best) == [] and best.status == "optimal" and solve(best.instance).model_choice == best.model_choice
    data = best.instance.model_dump(mode="json", exclude_none=True) | {"objective": {"minimize": "days_to_train"}}
    del data["workload"]["choose"], data["limits"]["deadline_days"]
    for plan in (best, solve(data)):
        assert plan.layout.metrics.days_to_train == pytest.approx(30.0)


def test_nothing_is_claimed_of_larger_models_that_take_fewer_days() -> None:
    """Heads that tensor parallelism divides make a model of 26 faster than one of 25, and the bound is full use."""
    family = FAMILY | {"heads_multiple_of": 1, "head_size": 128}
    asked = question(racks=3, days=10.0, hbm=0.1, tolerance=0.02, family=family)
    asked["limits"]["max_batch_tokens"] = 3e4
    plan = solve(asked)
    assert plan.model_choice is not None and check(plan) == [] and plan.status == "feasible"
    days = [own for _, own in sorted((float(flop), own) for flop, own in plan.model_choice.days_by_flop.items())]
    assert days != sorted(days)
    assert plan.model_choice.flop_bound == pytest.approx(plan.model_choice.ideal.flop)


def test_the_bracket_holds(best: Plan) -> None:
    """The model for the compute proven to be too much is late, the bound within the tolerance, and use below ideal."""
    choice = best.model_choice
    assert choice.flop <= choice.flop_bound <= choice.flop * 1.06
    tried = {float(c): d for c, d in choice.days_by_flop.items()}  # to some digits
    too_much = min(tried, key=lambda c: (abs(c / choice.flop_bound - 1), -c))
    assert too_much >= choice.flop_bound * 0.999 and tried[too_much] > 30.0
    assert choice.ideal.loss < choice.loss and choice.loss_bound <= choice.loss
    used = choice.compute_shares["used"]
    assert 0 < used < 1 and used == pytest.approx(choice.flop / choice.ideal.flop)
    assert sum(choice.compute_shares.values()) == pytest.approx(1.0)


def test_where_memory_refuses_larger_models_the_bound_is_of_the_largest() -> None:
    """GPUs of 8 GB hold no model of the deadline's compute: more tokens, and no bound of the law's larger model."""
    found = solve(question(hbm=0.1, days=60.0))
    choice, law = found.model_choice, catalogue("scaling_laws")["parametric-2024"]
    assert choice is not None and check(found) == [] and choice.flop_bound < choice.flop < choice.ideal.flop
    assert choice.loss_bound >= law["e"] + law["a"] / (choice.parameters * 1.16) ** law["alpha"]
    assert "choice_figures[flop_bound]" in [
        v.rule for v in check(found.replaced(model_choice=choice.replaced(flop_bound=choice.flop_bound / 2)))
    ]


def test_days_given_up_for_money_are_allowed() -> None:
    """A campus whose cheapest plan within 10 % of the days trains the model takes 6 % of them, and is verified."""
    data = toy(7).model_dump(mode="json", exclude_none=True)
    data["workload"] |= {"model": None, "tokens": None, "choose": {"law": "chinchilla-2", "tolerance": 0.1}}
    data["workload"]["choose"]["family"] = FAMILY | {"vocabulary": 1000, "tolerance": 0.1}
    data["limits"]["deadline_days"] = 3
    found = solve(data | {"objective": {"minimize": "loss", "tolerance": 0.1}})
    assert check(found) == [] and found.layout.certificate.gap > 0.01


STEEP = {"parameters": [1e9, 4e10], "flop": [1e21, 1e22], "tokens": [1e11, 1e11]}  # sizes grow faster than compute


def test_a_steep_law_is_kept() -> None:
    """Where size grows as the 1.6th power of compute, tokens stretched to the deadline leave the law's size behind."""
    found = solve(question(law=STEEP, loss="parametric-2024", family=FAMILY | {"tolerance": 0.001}))
    assert check(found) == [] and found.model_choice is not None
    choice = found.model_choice
    other = choice.replaced(days_by_flop=dict.fromkeys(choice.days_by_flop, 31.0))
    assert "choice_figures[law]" in [v.rule for v in check(found.replaced(model_choice=other))]


def test_the_chosen_model_is_evaluated(best: Plan) -> None:
    """A plan has the model that it chose, its instance alone too."""
    pins = {key: getattr(best.layout, key) for key in ("tensor_parallel", "pipeline_parallel", "data_parallel")}
    for plan in (best, json.loads(best.instance.model_dump_json())):
        assert sum(evaluate(plan, pins).layout.layers_per_stage) == best.instance.workload.model.layers


@pytest.mark.parametrize("days", [5, 8])
def test_computes_that_later_digits_tell_apart_are_kept_apart(days: int) -> None:
    """One that just misses the deadline and one in time have one name of six digits: the plan is verified."""
    data = load_instance("one-rack").model_dump(mode="json", exclude_none=True)
    del data["workload"]["model"], data["workload"]["tokens"]
    family = {"heads_multiple_of": 8, "tolerance": 0.05}
    data["workload"]["choose"] = {"law": "chinchilla-2", "family": family}
    plan = solve(data | {"objective": {"minimize": "loss"}, "limits": data["limits"] | {"deadline_days": days}})
    assert check(plan) == [] and min(plan.model_choice.days_by_flop.values()) <= days


def test_the_batch_follows_its_law() -> None:
    """Under a fixed critical batch of half a million tokens no step holds more."""
    found = solve(question(critical_batch={"of": "fixed", "coefficient": 5e5}))
    assert check(found) == []
    assert found.layout.metrics.tokens_per_step <= 5e5


def test_what_is_missing_is_named() -> None:
    """No deadline, no law of that name, and no shape that can be built are refused with what to do."""
    data = question()
    del data["limits"]["deadline_days"]
    with pytest.raises(InputError, match=r"limits.deadline_days: is missing"):
        solve(data)
    with pytest.raises(
        InputError, match=r"choose.law: 'chinchila-2' is not in the catalogue; did you mean 'chinchilla"
    ):
        solve(question(law="chinchila-2"))
    with pytest.raises(InputError, match=r"workload.choose.family: no shape has"):
        solve(question(family=FAMILY | {"heads_multiple_of": 100_000}))


INSTANCE = Path(__file__).parents[2] / "instances" / "limits-h100.json"
FIXED = ['workload.choose.critical_batch={"of":"fixed","coefficient":2e6}', "workload.choose.family.tolerance=0.1"]


@cache
def at(flop: float, *changes: str, days: float = 90.0) -> LimitPoint:
    asked = changed(INSTANCE, read_changes(FIXED) | read_changes(changes), searched=False)
    (found,) = limits(asked, [flop], days=days, tolerance=0.05)
    return found


def test_utilisation_is_a_share_within_its_bound() -> None:
    p = at(1e23)
    assert p.status == "optimal" and None not in (p.utilisation, p.utilisation_bound, p.gpus)
    assert 0 < p.utilisation <= p.utilisation_bound <= 1
    assert p.gpus - p.gpus_too_few <= max(8, 0.05 * p.gpus + 8)
    assert sum(p.shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("change", [
    "hardware.accelerator.nic_bytes_per_second=x4",
    "hardware.accelerator.hbm_bytes=x4",
    'workload.choose.critical_batch={"of":"fixed","coefficient":8e6}',
])  # fmt: skip
def test_more_never_hurts(change: str) -> None:
    """More bandwidth, memory or batch needs no more GPUs, but for the width of the bracket."""
    before, after = at(1e23), at(1e23, change)
    assert before.utilisation is not None and after.utilisation_bound is not None
    assert after.utilisation_bound >= before.utilisation


def test_where_no_layout_is_in_time_it_is_proven() -> None:
    """A batch of one sequence ends in a wall: no number of GPUs trains 1e27 FLOP in 90 days."""
    p = at(1e27, 'workload.choose.critical_batch={"of":"fixed","coefficient":4096}')
    assert p.status == "infeasible" and p.gpus is None and "whatever the GPUs" in p.reason


def made(*use: float | None) -> list[LimitPoint]:
    rest = dict.fromkeys(("parameters", "tokens", "layers", "hidden", "batch_tokens", "loss"), 1)
    own = ((10.0 ** (24 + i), "infeasible" if u is None else "optimal", u) for i, u in enumerate(use))
    return [LimitPoint.model_validate({"flop": c, "status": s, "utilisation": u} | rest) for c, s, u in own]


def test_fall_and_wall_are_read_off_the_points() -> None:
    """The fall is where the line crosses 80 % of the best, the wall between the last point in time and the next."""
    assert fall(made(0.5, 0.5, 0.3, 0.1)) == pytest.approx(10**25.5)
    assert all(fall(made(*use)) is None for use in ((0.5, 0.45, 0.44), (0.5, 0.1), (0.5, 0.5, 0.4, None)))
    assert wall(made(0.5, 0.1, None, None)) == (1e25, 1e26)
    assert wall(made(0.5, 0.1)) is None


@pytest.mark.parametrize(("use", "fell", "ended"), [
    ((0.5, None), "best use 50.0 %; 1 point in time, too few to show a fall",
        "90 days: a layout is in time at 1.0e+24 FLOP; none is at 1.0e+25 or a point above it, proven"),
    ((0.5, 0.5, 0.3, 0.1), "best use 50.0 %; under 80 % of it from about 3.2e+25 FLOP on",
        "90 days: no end is proven in this range"),
    ((None, None), "no point has a layout in time", "90 days: no point is in time, proven"),
])  # fmt: skip
def test_points_claim_no_more_than_they_show(use: tuple[float | None, ...], fell: str, ended: str) -> None:
    assert list(utilisation_table(made(*use), 90))[-2:] == [fell, ended]


def test_the_command_starts_a_process_for_each_core_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def pool(processes: int, **_: Any) -> None:
        raise InputError(f"{processes} processes")

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", pool)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7})
    assert refusal(invoke("limits", INSTANCE)) == "3 processes"
