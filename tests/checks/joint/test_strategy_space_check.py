"""The checker's own columns, their least splits and the floors of ranges, against the search and plain loops."""

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from joint_brute_failures import failing
from joint_brute_force import layer_splits
from joint_solved import strategies
from joint_toys import PHI, deeper, toy, with_pins
from tiers import more, slow

from planner.checks.strategy_space_check import Cut, CutPipelines, Space, inner_degrees, most_racks
from planner.checks.strategy_times_check import PipelineSplits, StepTimeBound, columns_in_time, fastest_ranges, witness
from planner.instance.instance import Instance
from planner.models.joint.strategy_space import problem_of
from planner.physics import Ints
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step_prediction import Conditions
from planner.plan.certificate import JointProof
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[3] / "instances"
Table = dict[Any, bytes]


def checked(i: Instance) -> Table:
    """Return the pipelines of every cut of the checker, which are those of every strategy of the search."""
    own, searched = Table(), Table()
    for cut in Space(instance=i, transport_slowdown=1.1).cuts():
        every = cut.pipelines
        for packed in (False, True):
            x = every.part((every.stages_per_rack > 1) == packed)
            columns = (x.p, x.v, x.block_racks, x.block_replicas, x.replicas_per_rack, x.stage_racks, x.wired)
            if len(x):
                kind = (cut.shape, cut.schedule, packed, cut.repeats != "no")
                own[kind] = np.stack(columns).astype(np.int64).tobytes()
    for s in strategies(problem_of(i)):
        y = s.pipelines
        if len(y.p):
            columns = (y.p, y.v, y.racks, y.block_replicas, y.replicas_per_rack, y.stage_racks, y.rails)
            searched[s.shape, s.order, s.packed, s.recomputes != "none"] = np.stack(columns).astype(np.int64).tobytes()
    assert own == searched
    return own


@pytest.mark.parametrize("name", ["cluster-1k", *slow("5gw")])
def test_shipped_instances(name: str) -> None:
    assert checked(load_instance(INSTANCES / f"{name}.json"))


def varied(seed: int) -> Instance:
    """Return a toy with experts, KV heads, spare ports, several schedules, selective recompute or pins."""
    r = random.Random(seed)
    given = toy(seed).model_dump(mode="json", exclude_none=True)
    given["hardware"]["rack"]["gpus"] = r.choice([4, 6, 8, 18])
    given["workload"]["model"] |= {"layers": r.randint(3, 9), "heads": 12, "kv_heads": r.choice([4, 12])}
    stacks = [{"schedules": ["1f1b", "zb-h1"]}, {"selective_gemm_share": 0.3}, {"flash_attention": False}, {}]
    given["workload"]["software"] |= r.choice(stacks)
    lacks = {"tensor-2d": 0.2, "sequence": 0.2, "context": 0.2, "expert": 0.2, "interleaved": 0.2}
    has = ["tensor", "pipeline", *(way for way, chance in lacks.items() if r.random() > chance)]
    given["workload"]["software"]["parallelism"] = has
    if r.random() < 0.5:
        given["workload"]["model"]["experts"] = {"count": r.choice([4, 6, 8]), "per_token": 2, "ffn": 512}
    if r.random() < 0.3:
        given["network"]["spares"] = {"share": 0.1}
    pins = {"context_parallel": 2, "pipeline_parallel": 2, "virtual_stages": 1, "recompute": "full", "schedule": "1f1b"}
    given["pins"] = {f"layout.{k}": v for k, v in pins.items() if r.random() < 0.2}
    if "layout.context_parallel" in given["pins"]:
        given["workload"]["software"]["parallelism"].append("context")
    return Instance.model_validate(given)


@pytest.mark.parametrize("seed", [*range(8), *more(*range(8, 30))])
def test_random_instances(seed: int) -> None:
    assert checked(varied(seed))


@each("parallelism", [[], ["tensor"], ["pipeline"], ["pipeline", "interleaved"], ["context"]])
def test_frameworks_that_have_little(parallelism: list[str]) -> None:
    i = varied(3).replaced(pins={})
    software = i.workload.software.replaced(parallelism=tuple(parallelism))  # type: ignore[union-attr]
    shapes = [shape for shape, *_ in checked(i.replaced(workload__software=software))]
    assert ({s.tensor_parallel for s in shapes} == {1}) == ("tensor" not in parallelism)
    assert ({s.context_parallel for s in shapes} == {1}) == ("context" not in parallelism)
    assert {s.sequence_parallel for s in shapes} == {False}


def test_inner_degrees() -> None:
    """The grid of 2-D tensor parallelism is the most nearly square one, of two alike that with fewer inner ranks."""
    inner = {1: [1], 8: [1], 16: [1, 4], 17: [1], 24: [1, 4], 60: [1, 6], 72: [1, 8]}
    assert {t: inner_degrees(t) for t in inner} == inner


def test_a_pinned_split_is_the_only_one() -> None:
    """Layers and recomputed layers pinned by stage leave one split, timed as the physics does."""
    pins = {"layout.layers_per_stage": [1, 2], "layout.recomputed_layers_per_stage": [1, 0]}
    i = with_pins(toy(2).replaced(workload__model__layers=3, hardware__accelerator__hbm_bytes=1e12), **pins)
    cut = next(c for c in Space(instance=i, transport_slowdown=1.1).cuts() if c.shape.micro_batch == 1)
    x = cut.pipelines
    three, two = (x.part(np.flatnonzero((x.p == p) & (x.v == 1))[0]) for p in (3, 2))
    assert PipelineSplits.of(cut, 3, three, 2, np.array([4]), 1e9).least() == float("inf")
    split = PipelineSplits.of(cut, 3, two, 2, np.array([4]), 1e9)
    a, b, held = split.pipeline, split.sharded, ((1, 1), (2, 0))
    first, last = (float(step_prediction.stage_seconds(b, 1, n, r, split.send)) for n, r in held)
    chunk = max(float(step_prediction.chunk_seconds(b, 1, n, r)) for n, r in held)
    each = max(first + a.embedding, last + a.head) + cut.times.machine.software.microbatch_seconds
    assert split.least() == pytest.approx(each + split.once(chunk, 2), rel=1e-12)


def every_split(split: PipelineSplits, m: int) -> list[tuple[float, float]]:
    """Time every split that memory holds, as the physics predicts and with the least wait of unequal chunks."""
    cut, x = split.cut, split.ranges
    p, v, machine = split.p, split.v, split.cut.times.machine
    repeats = {"no": lambda _: (0,), "any": lambda n: range(n + 1)}[cut.repeats]
    group, d = replace(split.sharded.group, slowdown=1.0), int(split.ranges.min_replicas)
    conditions = Conditions(pipeline_send_slowdown=PHI, allreduce_slowdown=PHI, transport_slowdown=PHI)
    found = []
    for layers in layer_splits(cut.space.layers, p, v):
        for repeated in itertools.product(*(repeats(n) for n in layers)):
            full = any(repeated)
            strategy = ParallelStrategy.of_shape(
                cut.shape, pipeline_parallel=p, data_parallel_by_site=(d,), virtual_stages=v, micro_batches=m,
                recompute="full" if full else cut.shape.recompute, zero_stage=split.zero_stage, layers_per_stage=layers,
                recomputed_layers_per_stage=repeated if full else (), replicas_per_rack=int(x.replicas_per_rack),
                schedule=cut.schedule, stages_per_rack=int(x.stages_per_rack),
            )  # fmt: skip
            used = sum(memory.memory_by_stage(machine, strategy).values())
            if np.any(used > cut.space.memory_limit * (1 + 1e-12)):
                continue
            times = step_prediction.times_of_strategy(cut.space.machine, conditions, strategy)
            times = step_prediction.sharded_times(times.pipeline, replace(group, slowdown=PHI))
            parts = step_prediction.step_breakdown(cut.space.machine, conditions, strategy, times)
            found.append((sum(parts.values()) / m, _with_least_waits(split, m, layers, repeated)))
    return found


def _with_least_waits(split: PipelineSplits, m: int, layers: tuple[int, ...], repeated: tuple[int, ...]) -> float:
    x, sharded, p, v = split.pipeline, split.sharded, split.p, split.v
    n, counts = float(schedule.effective_micro_batches(m, p, v)), schedule.PipelineCounts(p, v, m)
    stages = []
    for k, (a, r) in enumerate(zip(layers, repeated, strict=True)):
        own = float(step_prediction.stage_seconds(sharded, v, a, r, split.send)) + x.machine.software.host_seconds
        wait = schedule.min_excess_seconds(counts, a, r, float(sharded.layer_seconds), x.times.recompute_seconds)
        stages.append(n * (own + x.head * (k == p - 1) + x.embedding * (k == 0)) + float(wait))
    chunk = max(float(step_prediction.chunk_seconds(sharded, v, a, r)) for a, r in zip(layers, repeated, strict=True))
    once = step_prediction.once_parts(sharded, None, counts, max(layers), chunk, split.send)
    return (max(stages) + float(sum(once.values()))) / m


def some_columns(seed: int, number: int, stack: str = "") -> list[tuple[Cut, int, CutPipelines, int, int]]:
    """Draw columns: a cut, a ZeRO stage, a pipeline, replicas and micro-batches."""
    r = random.Random(seed)
    i = deeper(seed)
    if stack:
        i = i.replaced(workload__software__name=stack, workload__framework_rules=True)
    cuts = list(Space(instance=i, transport_slowdown=PHI).cuts())
    found: list[tuple[Cut, int, CutPipelines, int, int]] = []
    while len(found) < number:
        cut = r.choice(cuts)
        x = cut.pipelines
        few = [k for k in range(len(x)) if x.p[k] <= 3 and x.v[k] <= 3]
        if not few:
            continue
        x = x.part(r.choice(few))
        low, d = int(x.p if x.v > 1 else 1), r.randint(1, 2)
        found.append((cut, r.randint(0, 3), x, d, r.randint(low, low + 5)))
    return found


@pytest.mark.parametrize("seed", [0, 2, 5, 6, *more(1, 3, 4, 7)])
def test_the_least_split_is_the_best_of_all(seed: int) -> None:
    fitted = 0
    for cut, zero, x, d, m in some_columns(seed, 6):
        split = PipelineSplits.of(cut, zero, x, d, np.array([m]), 1e9)
        every, least = every_split(split, m), split.least()
        if not every:
            assert least == float("inf")
            continue
        fitted += 1
        assert least == pytest.approx(min(own for _, own in every), rel=1e-9)
        assert least <= min(seconds for seconds, _ in every) * (1 + 1e-9)
    assert fitted


@pytest.mark.parametrize("seed", range(4))
def test_alike_chunks_take_the_least_of_every_number(seed: int) -> None:
    """Where a framework recomputes as many layers of each chunk, the numbers tried one by one leave nothing faster."""
    recomputing = 0
    for cut, zero, x, d, m in some_columns(400 + seed, 20, "megatron-core"):
        split = PipelineSplits.of(cut, zero, x, d, np.array([m]), NEVER)
        most = max(split.sizes.tolist(), default=0) // split.v + 1
        every = [replace(split, each=number).least() for number in range(int(cut.repeats == "some"), most + 1)]
        for limit in (NEVER, min(every) * (1 + 1e-9), min(every) * (1 - 1e-9)):
            assert replace(split, limit=limit).least() == (min(every) if min(every) < limit else float("inf"))
        recomputing += min(every) < min(every[0], NEVER)
    assert recomputing


@pytest.mark.parametrize("seed", range(4))
def test_many_micro_batches_at_once(seed: int) -> None:
    for cut, zero, x, d, low in some_columns(200 + seed, 5):
        batches = np.arange(low, low + 9)
        each = [PipelineSplits.of(cut, zero, x, d, np.array([m]), 1e9).least() for m in batches]
        finite = sorted(s for s in each if s < float("inf"))
        for limit in [s * f for s in finite[:: max(1, len(finite) - 1)] for f in (1 - 1e-6, 1 + 1e-6)]:
            found = witness(cut, zero, x, d, batches, limit)
            assert (found is not None) == (min(each) < limit)
            if found is not None:
                assert found[1] == pytest.approx(each[found[0] - low], rel=1e-12) and found[1] < limit


@each(("micro_batches", "rounds"), [
    ([1], 0.0), ([2], 0.0), ([3], 1 / 3), ([8], 6 / 8), ([8, 3, 40], 1 / 3), ([8, 2], 0.0), ([20, 8, 40], 6 / 8),
])  # fmt: skip
def test_rounds_that_wait_are_all_but_two(micro_batches: list[int], rounds: float) -> None:
    """A round has as many micro-batches as there are stages; of several numbers the smallest share of rounds counts."""
    for cut, zero, x, d, _ in some_columns(300, 12):
        p = int(x.p)
        counts = np.array([n * p for n in micro_batches])
        assert PipelineSplits.of(cut, zero, x, d, counts, 1e9).waits == pytest.approx(rounds / p)


NEVER = 1e9  # seconds, a limit that excludes nothing
KINDS = ("plain", "failures", "front", "front and failures")


def of_kind(seed: int, kind: str) -> Instance:
    """Return a toy with interleaving, for some seeds with ZB-H1 or experts; with failures, or dense layers in front."""
    # Memory holds about a fifth of its columns, and a step so many sequences that unequal chunks wait.
    memory_bytes = (0.65e9, 0.7e9, 0.9e9)[seed % 3]
    i = deeper(seed).replaced(hardware__accelerator__hbm_bytes=memory_bytes, limits__max_batch_tokens=48 * 1024)
    i = i.replaced(workload__model__layers=9 + seed % 4)
    if "front" in kind and i.workload.model.experts is not None:
        ffn = (256, 16384)[seed // 4 % 2]
        i = i.replaced(workload__model__experts__dense_layers=1 + seed % 2, workload__model__ffn=ffn)
    return i.replaced(reliability=failing(seed).reliability) if "failures" in kind else i


def drawn_ranges(r: random.Random, cut: Cut, x: CutPipelines, number: int) -> CutPipelines:
    every = fastest_ranges(cut, x, most_racks(cut.space.instance, JointProof()), NEVER)
    if not len(every):
        return every
    every, ends = every.part([r.randrange(len(every)) for _ in range(number)]), []
    for few, many, m in zip(every.min_replicas, every.max_replicas, every.min_micro_batches, strict=True):
        low, high = sorted(r.choices(range(few, many + 1), k=2))
        ends.append((low, high, *sorted(r.choices(range(m, cut.total_micro_batches // low + 1), k=2))))
    return every.over(*np.array(ends).T)


def drawn_inside(rng: np.random.Generator, cut: Cut, ranges: CutPipelines, number: int) -> tuple[Ints, CutPipelines]:
    """Draw columns inside ranges; return the places of the ranges and the single ones."""
    at = rng.integers(0, len(ranges), number)
    d = rng.integers(ranges.min_replicas[at], ranges.max_replicas[at], endpoint=True)
    most = np.minimum(ranges.max_micro_batches[at], cut.total_micro_batches // d)
    fine = np.flatnonzero(most >= ranges.min_micro_batches[at])
    at, d = at[fine], d[fine]
    m = rng.integers(ranges.min_micro_batches[at], most[fine], endpoint=True)
    return at, ranges.part(at).over(d, d, m, m)


CASES = (1, "plain"), (0, "front and failures"), (0, "failures"), (1, "front")
OTHERS = [(seed, kind) for kind in KINDS for seed in range(6) if (seed, kind) not in CASES]


@pytest.mark.parametrize(("seed", "kind"), [*CASES, *more(*OTHERS)])
def test_floors_are_below_exact_times(seed: int, kind: str) -> None:
    """The floor of a range, under its ZeRO stage and under any, is below each time inside, which splitting ends at."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    space = Space(instance=of_kind(seed, kind), transport_slowdown=PHI)
    cuts, compared = list(space.cuts()), 0
    for cut, zero in ((r.choice(cuts), r.randint(0, 3)) for _ in range(6)):
        ranges = drawn_ranges(r, cut, cut.pipelines, 16)
        if not len(ranges):
            continue
        at, ones = drawn_inside(rng, cut, ranges, 16)
        for k in range(len(at)):
            range_, one = ranges.part([at[k]]), ones.part([k])
            d, gpus = int(one.min_replicas[0]), int(one.part(0).p) * cut.shape.gpus
            least = PipelineSplits.of(cut, zero, one.part(0), d, one.min_micro_batches, NEVER).least()  # of every split
            seconds = least / d / cut.shape.micro_batch * cut.space.failures.column_stretch(d, gpus)
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
    """Of shipped instances 100,000 random columns are no faster than ranges about them; coarse stages hold more."""
    space = Space(instance=load_instance(INSTANCES / f"{name}.json"), transport_slowdown=PHI)
    r, rng, compared, kept = random.Random(0), np.random.default_rng(0), 0, 0
    cuts = [c for k, c in enumerate(space.cuts()) if k % 97 == 0]
    while compared < 100_000:
        cut, zero = r.choice(cuts), r.choice((None, 0, 1, 2, 3))
        ranges = drawn_ranges(r, cut, cut.pipelines, 100)
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
        held, coarse = (set(single.holding(some, every=every).tolist()) for every in (True, False))
        assert held <= coarse
        compared, kept = compared + len(at), kept + len(held)
    assert kept > 100
