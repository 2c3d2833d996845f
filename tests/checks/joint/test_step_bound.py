"""The checker's floors: none is above a time inside its range, and no column in time is lost while ranges are split."""

import random
from pathlib import Path

import numpy as np
import pytest
from joint_brute_failures import failing
from joint_toys import PHI, deeper
from tiers import more

from planner.checks.joint_columns import Cut, CutPipelines, Ints, MaxRacks, Space
from planner.checks.layer_split import PipelineSplits
from planner.checks.step_bound import (
    COARSE,
    CutRanges,
    StepTimeBound,
    columns_in_time,
    fastest_ranges,
    total_micro_batches,
)
from planner.instance.hardware import Accelerator
from planner.instance.instance import Instance
from planner.instance.workload import Model
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[3] / "instances"
NEVER = 1e9  # seconds, a limit that excludes nothing
KINDS = ("plain", "failures", "front", "front and failures")


def of_kind(seed: int, kind: str) -> Instance:
    """Return a toy with interleaving, for some seeds with ZB-H1 or experts; with failures, or dense layers in front.

    Memory holds about a fifth of its columns, and a step so many sequences that unequal chunks wait.
    """
    i = deeper(seed)
    model, gpu = i.workload.model, i.hardware.accelerator
    assert isinstance(model, Model) and isinstance(gpu, Accelerator)
    model = model.model_copy(update={"layers": 9 + seed % 4})
    gpu = gpu.model_copy(update={"hbm_bytes": (0.65e9, 0.7e9, 0.9e9)[seed % 3]})
    i = i.model_copy(update={"hardware": i.hardware.model_copy(update={"accelerator": gpu})})
    i = i.model_copy(update={"limits": i.limits.model_copy(update={"max_batch_tokens": 48 * 1024})})
    if "front" in kind and model.experts is not None:
        experts = model.experts.model_copy(update={"dense_layers": 1 + seed % 2})
        model = model.model_copy(update={"experts": experts, "ffn": (256, 16384)[seed // 4 % 2]})
    i = i.model_copy(update={"workload": i.workload.model_copy(update={"model": model})})
    return i.model_copy(update={"reliability": failing(seed).reliability}) if "failures" in kind else i


def drawn_ranges(r: random.Random, cut: Cut, x: CutPipelines, number: int) -> CutRanges:
    every = fastest_ranges(cut, x, MaxRacks(cut.space.instance), NEVER)
    if not len(every):
        return every
    every, ends = every.part([r.randrange(len(every)) for _ in range(number)]), []
    for few, many, m in zip(every.min_replicas, every.max_replicas, every.min_micro_batches, strict=True):
        low, high = sorted(r.choices(range(few, many + 1), k=2))
        ends.append((low, high, *sorted(r.choices(range(m, total_micro_batches(cut) // low + 1), k=2))))
    return CutRanges(every.pipelines, *np.array(ends).T)


def drawn_inside(rng: np.random.Generator, cut: Cut, ranges: CutRanges, number: int) -> tuple[Ints, CutRanges]:
    """Draw columns inside ranges; return the places of the ranges and the single ones."""
    at = rng.integers(0, len(ranges), number)
    d = rng.integers(ranges.min_replicas[at], ranges.max_replicas[at], endpoint=True)
    most = np.minimum(ranges.max_micro_batches[at], total_micro_batches(cut) // d)
    fine = np.flatnonzero(most >= ranges.min_micro_batches[at])
    at, d = at[fine], d[fine]
    m = rng.integers(ranges.min_micro_batches[at], most[fine], endpoint=True)
    return at, CutRanges(ranges.pipelines.part(at), d, d, m, m)


def exact(cut: Cut, zero: int, one: CutRanges) -> float:
    """Return the least seconds of a sequence of one column on a clock, over every split of its layers."""
    d, m, x = int(one.min_replicas[0]), one.min_micro_batches, one.pipelines
    split = PipelineSplits(cut=cut, zero_stage=zero, x=x, d=d, micro_batches=m, limit=NEVER)
    return split.least() / d / cut.shape.micro_batch * cut.space.column_stretch(d, int(x.p[0]) * cut.shape.gpus)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, *more(2, 3, 4, 5)])
def test_floors_are_below_exact_times(seed: int, kind: str) -> None:
    """The floor of a range, under its ZeRO stage and under any, is below each time inside, which splitting ends at."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    space = Space(instance=of_kind(seed, kind), transport_slowdown=PHI)
    cuts, compared = list(space.cuts()), 0
    for cut, zero in ((r.choice(cuts), r.randint(0, 3)) for _ in range(20)):
        ranges = drawn_ranges(r, cut, cut.pipelines(), 16)
        if not len(ranges):
            continue
        at, ones = drawn_inside(rng, cut, ranges, 16)
        for k in range(len(at)):
            range_, one = ranges.part([at[k]]), ones.part([k])
            seconds = exact(cut, zero, one)
            if seconds == float("inf"):
                continue
            compared += 1
            for stage in (zero, None):
                assert StepTimeBound(cut=cut, zero_stage=stage, ranges=range_).seconds[0] <= seconds * (1 + 1e-9)
            left = columns_in_time(cut, zero, range_, seconds * (1 + 1e-6), lambda: False)
            pairs = [p for x in left for p in zip(x.min_replicas.tolist(), x.min_micro_batches.tolist(), strict=True)]
            assert (int(one.min_replicas[0]), int(one.min_micro_batches[0])) in pairs
    assert compared > 5


@pytest.mark.parametrize("name", ["cluster-1k", "5gw"])
def test_floors_of_ranges_are_below_those_inside(name: str) -> None:
    """Ten thousand random columns of shipped instances are no faster than ranges about them; coarse parts hold more."""
    space = Space(instance=load_instance(INSTANCES / f"{name}.json"), transport_slowdown=PHI)
    r, rng, compared, kept = random.Random(0), np.random.default_rng(0), 0, 0
    cuts = [c for k, c in enumerate(space.cuts()) if k % 97 == 0]
    while compared < 10_000:
        cut, zero = r.choice(cuts), r.choice((None, 0, 1, 2, 3))
        ranges = drawn_ranges(r, cut, cut.pipelines(), 100)
        if not len(ranges):
            continue
        at, ones = drawn_inside(rng, cut, ranges, 1000)
        if not len(at):
            continue
        floors, single = (StepTimeBound(cut=cut, zero_stage=zero, ranges=x) for x in (ranges, ones))
        for part in ("seconds", "each", "once", "stretch"):
            assert np.all(getattr(floors, part)[at] <= getattr(single, part) * (1 + 1e-9)), part
        fast = floors.in_time(float(np.median(single.seconds)))
        assert len(fast) <= len(ranges) and np.all(fast.min_replicas <= fast.max_replicas)
        some = single.each * np.linspace(0.9, 1.5, len(ones))
        held, *coarse = (set(single.holding(some, (n,)).tolist()) for n in (None, *COARSE))
        assert all(held <= x for x in coarse)
        compared, kept = compared + len(at), kept + len(held)
    assert kept > 100
