"""Kinds of layout near the fastest: those of full enumeration, with their days; text, files and exit statuses."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from joint_brute_force import Toy, toy
from tiers import more, slow

import planner
from planner.errors import InputError
from planner.models import Options
from planner.models.joint.search.days import Kind, kind_of
from planner.models.joint.solve import solve_joint, world_of
from planner.physics.training.layer_time import days_of
from planner.planning.layouts import near_layouts
from planner.solvers.signals import Deadline

CASES = [*((seed, {}) for seed in (2, 6, 14, 17)), *((seed, {"sites": 2, "forced": True}) for seed in (3, 7))]


def enumerated(every: Toy) -> dict[Kind, float]:
    """Return the least seconds a sequence of each kind, by plain loops."""
    found: dict[Kind, float] = {}
    for _, c, sizes, shards in every.work():
        s = c.shape
        kind = s.tensor_parallel, s.context_parallel, s.expert_parallel, c.p
        for plan in every.plans(c, sizes, shards, found.get(kind, math.inf)):
            found[kind] = min(found.get(kind, math.inf), plan.seconds)
    return found


@pytest.mark.parametrize(("seed", "how"), [*CASES[:2], *slow(CASES[3], CASES[5]), *more(CASES[2], CASES[4])])
def test_equals_full_enumeration(seed: int, how: dict[str, Any]) -> None:
    i = toy(seed, **how)
    best = solve_joint(i, Options(), lambda _: None).plan
    problem, every = world_of(i, Options(), Deadline()).problem, enumerated(Toy(i))
    for within in (0.05, 0.5):
        found = near_layouts(i, Options(), lambda _: None, within=within)
        wanted = {k: t for k, t in every.items() if t <= best.seconds * (1 + within) * (1 + 1e-9)}
        assert found.proven and len(found.plans) == len(wanted)
        for plan in found.plans:
            x = plan.layout
            assert plan.verified
            kind = x.tensor_parallel, x.context_parallel, x.expert_parallel, x.pipeline_parallel
            assert x.metrics.days_to_train == pytest.approx(days_of(problem.instance, wanted[kind]), rel=1e-9)
        assert kind_of(best.column) in wanted


def test_the_command_lists_and_writes(tmp_path: Path) -> None:
    """A table that says what is proven, rows as CSV and JSON, and a file of another ending refused."""
    done = run_here("layouts", "cluster-1k", "-o", tmp_path / "rows.csv", "-q")
    assert done.returncode == 0 and "No other kind of layout has a plan within 2 %" in done.stdout
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(encoding="utf-8")))
    assert rows and float(rows[0]["days_to_train"]) <= float(rows[-1]["days_to_train"])
    assert run_here("layouts", "cluster-1k", "-o", tmp_path / "rows.txt").returncode == 2


@pytest.mark.slow
def test_rows_as_json_and_a_limit() -> None:
    data = json.loads(run_here("layouts", "one-rack", "--json", "-q").stdout)
    assert data["proven"] and data["layouts"][0]["share_slower"] == pytest.approx(0, abs=1e-9)
    assert sum(data["layouts"][0]["breakdown_seconds"].values()) == pytest.approx(data["layouts"][0]["step_seconds"])
    assert run_here("layouts", "cluster-1k", "--time-limit", "0.01", "-q").returncode == 4


def test_several_layouts_in_one_question_are_refused() -> None:
    with pytest.raises(InputError, match=r"hardware\.pools"):
        planner.layouts("two-pools")
