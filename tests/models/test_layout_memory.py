"""What layout searches leave to each other: the same optima as searches that know nothing, over all kinds of neighbours."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from planner.models import layout, layout_best, layout_memory, layout_question, layout_space
from planner.models.layout_memory import Memory
from planner.physics.step import Conditions, Cut
from tests.models.layout_cases import random_case


def neighbours(problem: layout_question.Problem, rng: random.Random, count: int) -> list[layout_question.Problem]:
    """Return questions that differ in racks and network, near and far, some of them twice."""
    found = [problem]
    for _ in range(count - 1):
        racks = tuple(max(1, round(r * rng.choice((1, 1, 2, 3)) + rng.choice((-1, 0, 0, 1)))) for r in problem.racks)
        between = rng.random() < 0.5 and len(racks) > 1
        conditions = Conditions(
            hop_slowdown=rng.choice((1.0, 1.05, 1.3, 2.0, 6.7)),
            allreduce_slowdown=rng.choice((1.0, 1.05, 1.5)),
            wan_gbps=rng.choice((100.0, 4000.0)) if between else None,
            wan_rtt_ms=rng.choice((1.0, 30.0)) if between else 0.0,
        )
        found.append(replace(rng.choice(found), racks=racks, conditions=rng.choice((conditions, found[-1].conditions))))
    return found


@pytest.mark.parametrize("seed", range(24))
def test_memory_changes_no_optimum(seed: int) -> None:
    """A search finds the same best time whatever the searches before it taught, and proves it the same."""
    i, asked = random_case(seed)
    rng, memory = random.Random(seed), Memory()
    for problem in neighbours(layout_question.problem_of(i, asked), rng, 10):
        alone, told = layout.search(problem), layout.search(problem, memory=memory)
        assert (alone.best is None, alone.stop, alone.bound) == (told.best is None, told.stop, pytest.approx(told.bound, rel=1e-12))
        if alone.best is not None and told.best is not None:
            assert told.best.seconds == pytest.approx(alone.best.seconds, rel=1e-12)


@pytest.mark.parametrize("seed", range(60, 76))
def test_bounds_of_a_family_hold_for_its_questions(seed: int) -> None:
    """Every row that a family leaves out under a cutoff holds nothing faster, and no bound is over the best of its row."""
    i, asked = random_case(seed)
    problem = layout_question.problem_of(i, asked)
    rng = random.Random(seed)
    best = layout.search(problem).best
    if best is None or not layout_memory.is_alike(problem, problem):
        return
    family = layout_memory._family(replace(problem, racks=tuple(2 * r for r in problem.racks)), best.seconds)
    for near in neighbours(problem, rng, 4):
        cutoff = best.seconds * rng.choice((1.01, 1.2, 1.4))
        if not family.serves(near, cutoff):
            continue
        paces = layout_question.bases(near)
        held = family.counted(family.rows(near, paces, cutoff), cutoff)
        kept = {layout_memory._name(held.row(n, 0.0)): float(held.bound[n]) for n in range(len(held))}
        assert np.all(np.diff(held.bound) >= 0)
        whole = layout_space.row_table(near, paces)
        for n in rng.sample(range(len(whole)), min(len(whole), 150)):
            row = whole.row(n, 0.0)
            found = layout_best.best_of_row(near, row, cutoff)
            if found is not None:
                assert kept[layout_memory._name(row)] <= found.seconds * (1 + 1e-12)


def largest_stage(problem: layout_question.Problem, row: layout_space.Row, cut: Cut) -> float:
    """Return the time of the largest stage of a layout, without the head."""
    racks = math.ceil(max(cut.data_parallel_by_site) / row.replicas_per_rack)
    layer = float(np.asarray(layout_best.pace_of(problem, row, np.array([racks])).layer).ravel()[0])
    again = cut.recomputed_layers_per_stage or (0,) * cut.pipeline_parallel
    return max(n * layer + r * row.base.times.again for n, r in zip(cut.layers_per_stage, again, strict=True))


@pytest.mark.parametrize("seed", range(90, 114))
def test_least_stages_of_a_family_are_least(seed: int) -> None:
    """No layout with more than half of the fewest racks' replicas has a largest stage under what the family tells of its row."""
    i, asked = random_case(seed)
    free = i.model_copy(update={"pins": {}})
    rng, problem = random.Random(seed), layout_question.problem_of(free, asked)
    family = layout_memory._family(replace(problem, racks=tuple(4 * r for r in problem.racks)), 1.0)
    places = np.array(sorted(rng.sample(range(len(family.table)), min(len(family.table), 60))), dtype=np.int64)
    table = replace(family.table, origin=np.arange(len(family.table))).part(np.isin(np.arange(len(family.table)), places))
    family._sharpen(table.origin)
    family._exact(table)
    for place in table.origin:
        row = family.table.row(int(place), 0.0)
        half = int(family._half(row.base, np.array([row.pipeline]), np.array([row.filled]))[0])
        for asked_here in (family.easy, family.fewest):
            found = layout_best.best_of_row(asked_here, row, math.inf)
            if found is not None and found.cut.data_parallel > half:
                assert largest_stage(asked_here, row, found.cut) >= family.least[place] * (1 - 1e-9)


def test_same_question_opens_the_rows_of_the_proof_again() -> None:
    """Asked again, a question is answered from its proof, and names the rows that the proof opened."""
    i, asked = random_case(3)
    problem, memory = layout_question.problem_of(i, asked), Memory()
    first = layout.search(problem, memory=memory)
    again = layout.search(problem, memory=memory)
    assert first.best is not None and again.best == first.best
    assert {layout_memory._name(r) for r in again.opened} == {layout_memory._name(r) for r in first.opened}
