"""Instances that ask for far more work than there is time: counts are made in blocks, and loops read the deadline."""

import json
import time
from pathlib import Path
from typing import Any

import joint_toys
import pytest
from each_case import each

import planner
from planner.checks.check_plan import check
from planner.errors import InputError
from planner.models import Options
from planner.models.joint import columns
from planner.models.joint.columns import rounds_up_to
from planner.models.joint.solve import solve_joint
from planner.models.joint.space import problem_of
from planner.solvers.outcome import UnansweredError
from planner.solvers.signals import Deadline, OutOfTimeError

ROOT = Path(__file__).parents[3]


def shipped(name: str, **changes: Any) -> dict[str, Any]:
    """Return an instance that ships with some parts changed: limits__max_batch_tokens=1e12."""
    data = json.loads((ROOT / "instances" / f"{name}.json").read_text())
    for path, value in changes.items():
        *parents, last = path.split("__")
        holder = data
        for key in parents:
            holder = holder[key]
        holder[last] = value
    return data


def test_rounds_without_end_are_not_listed() -> None:
    """A batch of a billion sequences ends at the deadline, or where the numbers would no longer fit."""
    problem = problem_of(joint_toys.toy(7))
    assert list(rounds_up_to(problem, 11, 3, Deadline())) == [5, 8, 11]  # one short of two to four rounds
    with pytest.raises(OutOfTimeError):
        rounds_up_to(problem, 10**9, 2, Deadline(0.0))
    with pytest.raises(UnansweredError, match=r"numbers of micro-batches; lower the batch"):
        rounds_up_to(problem, 10**9, 2, Deadline())


def test_columns_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = joint_toys.toy(7)
    whole = solve_joint(toy, Options(), lambda _: None)
    monkeypatch.setattr(columns, "BLOCK", 7)
    few = solve_joint(toy, Options(), lambda _: None)
    assert (few.days, few.lower_bound, few.status) == (whole.days, whole.lower_bound, whole.status)


def test_a_simulated_transport_reads_the_deadline() -> None:
    """Runs over many hosts and seeds end with the time limit, with the reason; no plan needs them."""
    runs = {"transport": "ecmp", "seeds": 1000, "hosts": 4096}
    network = joint_toys.toy(7).model_dump(mode="json", exclude_none=True)
    network["network"]["transport"]["simulate"] = runs
    before = time.process_time()
    plan = planner.solve(network, time_limit=0.2)
    assert (plan.status, plan.stopped) == ("unknown", "limit") and time.process_time() - before < 2
    assert plan.conflict is not None and "before the search began" in plan.conflict.reason


@each("count", [0, 2_001])
def test_places_are_bounded_before_pairs_are_made(count: int) -> None:
    """No place for a site, or more than every two of which can be compared, is told before any work."""
    data = shipped("two-sites-405b")
    node = data["grid"]["nodes"][0]
    data["grid"]["nodes"] = [{**node, "id": f"n{i}", "site": bool(count)} for i in range(count or 2)]
    data["grid"] |= {"lines": [], "new_lines": []}
    data.pop("wan", None)
    with pytest.raises(InputError, match=r"grid\.nodes: (no node may hold a site|every two places .* \(are 2,001\))"):
        planner.solve(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        shipped("one-rack", limits__max_batch_tokens=8e12),
        shipped("one-rack", workload__sequence_length=1),
        shipped(
            "cluster-1k",
            network__switches=[{"name": "s", "ports": 4096, "port_gbps": 800, "price_usd": 1, "power_watts": 1}],
        ),
    ],
    ids=["batch", "sequence", "ports"],
)
def test_the_limit_holds_on_the_largest_counts(data: dict[str, Any]) -> None:
    """The most that a file may ask for ends within two seconds of the limit, with a plan or with none."""
    before = time.process_time()
    plan = planner.solve(data, time_limit=1)
    assert time.process_time() - before < 1 + 2
    ends = time.process_time() + 5
    assert check(plan, stop=lambda: time.process_time() > ends) == []
    assert time.process_time() < ends + 2
