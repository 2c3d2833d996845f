"""Every optional key of the schema, drawn from its declared range alone and in pairs: a checked answer or a refusal."""

import drawn_keys
import pytest
from tiers import more, slow

import planner
from planner.errors import InputError

QUICK = (1, 60, 171, 300)
ALONE = len(drawn_keys.optional_keys())
TIERS = range(0, 2 * ALONE, 56)  # of the slow one


@pytest.mark.parametrize("seed", [*QUICK, *slow(*TIERS), *more(*(n for n in range(0, 2 * ALONE, 7) if n not in TIERS))])
def test_drawn_keys_are_answered_or_refused(seed: int) -> None:
    """A small instance with one or two keys drawn ends in a plan that the checker agrees with, or in a complaint."""
    data, keys = drawn_keys.instance(seed)
    try:
        plan = planner.solve(data, time_limit=2)
    except InputError as error:
        assert all(": " in line for line in str(error).splitlines()), (keys, error)
        return
    assert planner.check(plan) == [], keys


def test_every_optional_key_is_drawn() -> None:
    assert ALONE > 250
    names = {name for _, name in drawn_keys.optional_keys()}
    assert {"limits.budget_usd", "grid.nodes.0.area_m2", "reliability.parts.gpu.repair_hours"} <= names
    for seed in range(0, ALONE, 5):
        data, keys = drawn_keys.instance(seed)
        assert len(keys) == 1 and data["name"]


@pytest.mark.slow
def test_a_proof_without_a_plan_states_the_simulated_slowdown() -> None:
    data, keys = drawn_keys.instance(178)
    assert "network.transport.simulate" in keys
    data["limits"]["deadline_days"] = 1e-9
    data["network"]["transport"]["simulate"] |= {"seeds": 2, "hosts": 64}
    plan = planner.solve(data, time_limit=60)
    assert plan.status == "infeasible"
    assert plan.transport is not None
    assert planner.check(plan) == []
    assert {v.rule for v in planner.check(plan.model_copy(update={"transport": None}))} >= {"transport_factor"}
