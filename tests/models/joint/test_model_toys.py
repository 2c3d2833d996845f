"""Kinds of layers, what frameworks lack and what fails in toys: the optimum equals full enumeration."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from each_case import each
from joint_brute_failures import best_of as best_failing
from joint_brute_failures import every_plan, failing, failing_links, one_way
from joint_brute_force import LayerShape, Plan, Toy
from joint_solved import cheapest, columns_below, require_optimum, require_proven_optimum, solved, strategies
from joint_toys import SOFTWARE, case, toy, with_pins
from tiers import more

import planner
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.reliability import FailingPart, Reliability
from planner.instance.software import Software
from planner.models.joint.joint_question import Solving
from planner.models.joint.stops_and_spares import Calendar
from planner.models.joint.strategy_space import problem_of
from planner.models.joint.strategy_tables import min_fill_seconds
from planner.models.joint.time_bounds import RowConditions, terms
from planner.report.summary import summary

ROOMY = 0.5e9  # bytes of memory: with room for all activations


def with_experts(hbm: float, layers: int, dense: int, switches: dict[str, Any], **pins: Any) -> Instance:
    """Return a toy of two experts behind some dense layers on slow links, with switches of its software."""
    given = toy(3).model_dump(mode="json", exclude_none=True)
    given["workload"]["software"] |= switches
    experts = {"count": 2, "per_token": 2, "ffn": 4096, "dense_layers": dense}
    given["workload"]["model"] |= {"layers": layers, "experts": experts}
    given["hardware"]["accelerator"] |= {"hbm_bytes": hbm, "nic_bytes_per_second": 2e10}
    given["limits"]["max_batch_tokens"] = 4 * 1024
    given["pins"] = {"layout.zero_stage": 1, **pins}
    return Instance.model_validate(given)


FRONT = [(seed, dense, ffn) for seed in (13, 118) for dense, ffn in ((1, 256), (1, 16384), (2, 512))]
MORE_FRONT = [(seed, dense, ffn) for seed in (53, 98) for dense, ffn in ((1, 256), (1, 16384), (2, 512))]


@pytest.mark.parametrize(("seed", "dense", "ffn"), [*FRONT, *more(*MORE_FRONT)])
def test_front_layers_equal_full_enumeration(seed: int, dense: int, ffn: int) -> None:
    model = case(seed).workload.model.replaced(experts__dense_layers=dense, layers=3, ffn=ffn)
    i = case(seed).replaced(workload__model=model)
    require_proven_optimum(i, Toy(i).best())


def of_modules(modules: tuple[str, ...], hbm: float, **pins: Any) -> Instance:
    """Return a toy of experts, behind a dense layer if `mlp` is among the modules that run again."""
    dense = int("mlp" in modules)
    return with_experts(hbm, 2 + dense, dense, {"recompute_modules": list(modules)}, **pins)


class VariedToy(Toy):
    """Every plan of a toy whose layers may be cut in several ways, each of which some splits of layers alone may have.

    `has` says whether those of p stages of v chunks have the way of a shape, by whether they recompute no whole layer.
    """

    def __init__(self, i: Instance, ways: list[dict[str, Any]], has: Callable[..., Any]) -> None:
        super().__init__(i)
        self.ways, splits = ways, self.times.splits

        @cache
        def some(shape: LayerShape, p: int, v: int, *rest: Any) -> Any:
            layers, recompute = splits(shape, p, v, *rest)
            fine = has(shape, p, v, np.all(recompute == 0, axis=1))
            return layers[fine], recompute[fine]

        self.times.splits = some

    def shapes(self) -> Iterator[LayerShape]:
        """Yield every way to cut a layer."""
        for shape, way in itertools.product(super().shapes(), self.ways):
            yield replace(shape, **way)


@cache
def best_of(modules: tuple[str, ...], hbm: float, pin: str | None) -> Plan | None:
    """Return the best plan of a layer that keeps all, or of whose layers none is recomputed whole."""
    i = of_modules(modules, hbm, **({} if pin is None else {"layout.recompute": pin}))
    ways = [{"recompute": kept} for kept in ("none", "selective") if pin is None or kept == "none"]
    return VariedToy(i, ways, lambda shape, _p, _v, none: none | (shape.recompute == "none")).best()


MODULES: list[tuple[tuple[str, ...], float, str | None, tuple[str, bool]]] = [
    (("core_attn", "moe_act"), 0.45e9, None, ("selective", False)),
    (("layernorm", "moe_act"), 0.43e9, None, ("none", True)), (("layernorm", "moe_act"), 0.48e9, None, ("none", False)),
    (("layernorm", "moe_act"), 0.45e9, "full", ("none", True)), (("mlp",), 0.735e9, None, ("selective", False)),
]  # fmt: skip


@pytest.mark.parametrize(("modules", "hbm", "pin", "wanted"), MODULES)
def test_modules_equal_full_enumeration(modules, hbm, pin, wanted) -> None:
    """As memory grows whole layers run again, then modules, then nothing."""
    i = of_modules(modules, hbm, **({} if pin is None else {"layout.recompute": pin}))
    best = best_of(modules, hbm, pin)
    found = require_proven_optimum(i, best).plan
    kept = found.column.strategy.shape.recompute
    assert (kept, any(found.split.recomputed)) == wanted and best.column.shape.recompute == kept


def test_the_checker_enumerates_modules() -> None:
    """The optimum of the stack that recomputes scores alone is no bound where it may discard activations too."""
    found, more_modules = solved(of_modules(("core_attn",), 0.45e9)), of_modules(("core_attn", "moe_act"), 0.45e9)
    faster = best_of(("core_attn", "moe_act"), 0.45e9, None)
    assert faster.seconds < found.plan.seconds * 0.95
    assert list(columns_below(more_modules, found.days))


@pytest.mark.parametrize("seed", range(2))
def test_modules_that_no_layer_has_change_nothing(seed: int) -> None:
    i, modules = toy(seed), ("moe_act", "moe", "layernorm", "mla_up_proj")
    plain, named = solved(i), solved(i.replaced(workload__software__recompute_modules=modules))
    assert (plain.status, plain.days) == (named.status, named.days)
    assert plain.plan is None or (named.plan is not None and named.plan.column.strategy.shape.recompute == "none")


def test_a_plan_of_modules_is_checked_and_told() -> None:
    plan = planner.solve(of_modules(("layernorm", "moe_act"), 0.45e9))
    assert plan.layout is not None and plan.layout.recompute == "selective"
    assert planner.check(plan) == []
    assert "recomputes layernorm, moe_act (selective)" in summary(plan)
    assert planner.check(plan.replaced(layout__recompute="none"))


PLAIN = {"layout.pipeline_parallel": 2, "layout.virtual_stages": 1}
OVERLAPS: list[tuple[float, int, dict[str, Any], bool]] = [
    (ROOMY, 2, {}, False), (ROOMY, 2, {"layout.pipeline_parallel": 1}, True),
    (ROOMY, 2, {"layout.recompute": "full"}, False), (ROOMY, 2, PLAIN, False),
    (2 * ROOMY, 4, {"layout.pipeline_parallel": 2, "layout.virtual_stages": 2}, True),
]  # fmt: skip


@pytest.mark.parametrize(("hbm", "layers", "pins", "overlaps"), OVERLAPS)
def test_overlaps_equal_full_enumeration(hbm: float, layers: int, pins: dict[str, Any], overlaps: bool) -> None:
    """Whole replicas with room overlap, and interleaved stages; under recompute or a plain pipeline none."""
    switches = {"overlaps": ["experts"], "expert_overlap": 1.0, "expert_overlap_layouts": "interleaved"}
    i = with_experts(hbm, layers, 0, switches, **{"layout.expert_parallel": 2, **pins})
    ways: list[dict[str, Any]] = [{}, {"experts_overlap": False}]
    best = VariedToy(i, ways, lambda shape, p, v, none: (none & (p == 1 or v > 1)) == shape.experts_overlap).best()
    found = require_proven_optimum(i, best).plan
    assert found.column.strategy.shape.experts_overlap == best.column.shape.experts_overlap == overlaps


STACKS: dict[str, dict[str, Any]] = {
    "all": {},
    "no ZeRO": {"zero_stages": [0], "parallelism": ["tensor", "pipeline", "interleaved"]},
    "ZeRO-1": {"zero_stages": [0, 1], "parallelism": ["tensor", "sequence", "pipeline"]},
    "FSDP alone": {"zero_stages": [0, 2, 3], "parallelism": []},
    "zero bubble": {"schedules": ["1f1b", "zb-h1"], "zero_stages": [0, 1], "parallelism": ["tensor", "pipeline"]},
    "softmax of four": {"flash_attention": False, "fused_softmax_multiple": 4, "launch_seconds": 5e-5},
    "FSDP without pipelines": {"zero_stages": [0, 1, 2, 3], "pipelined_zero_stages": [0, 1]},
}
CASES = [(seed, stack) for seed in (5, 9) for stack in STACKS]


def made(seed: int, stack: str) -> Instance:
    """Return a toy with a framework, its ZeRO stage free."""
    i = toy(seed, forced=seed in (9, 36))
    software = Software.model_validate(SOFTWARE | {"name": stack} | STACKS[stack])
    pins = {"layout.data_parallel": i.pins["layout.data_parallel"]} if seed == 9 else {}
    if seed == 9 and i.network is not None:
        # Pods of some leaf domains, which the loops leave out, pay here under cores of the other model: no cable joins
        # the two where their links have two prices.
        apart = tuple(s.replaced(link_factor=1 + k / 1e3) for k, s in enumerate(i.network.switches))
        i = i.replaced(network__switches=apart)
    return i.replaced(pins=pins, workload__software=software)


@cache
def best(seed: int, stack: str) -> Plan | None:
    return Toy(made(seed, stack)).best()


@pytest.mark.parametrize(("seed", "stack"), [*CASES, *more(*((seed, stack) for seed in (31, 36) for stack in STACKS))])
def test_equals_full_enumeration(seed: int, stack: str) -> None:
    i = made(seed, stack)
    found, software = require_proven_optimum(i, best(seed, stack)).plan, i.workload.software
    assert found is None or found.column.zero in software.zero_stages_under(found.column.p)


def test_the_checker_enumerates_what_the_framework_has() -> None:
    """Below the optimum of a framework that has less there is a column of one that has all."""

    def seconds(seed: int, stack: str) -> float:
        plan = best(seed, stack)
        return math.inf if plan is None else plan.seconds

    seed, stack = next((s, k) for s, k in CASES if math.inf > seconds(s, k) > seconds(s, "all"))
    assert list(columns_below(made(seed, "all"), solved(made(seed, stack)).days))


@each(
    ("stack", "pins", "message"),
    [
        ("no ZeRO", {"zero_stage": 3},
         r"zero_stage'\]: 3 .* it has 0; no ZeRO has no other.*: choose .* to its zero_stages"),
        ("no ZeRO", {"sequence_parallel": True}, "True is outside .* it has False; no ZeRO has no .sequence."),
        ("ZeRO-1", {"virtual_stages": 2}, 'no "interleaved" among its parallelism: choose another workload.software'),
        ("ZeRO-1", {"context_parallel": 2}, 'no "context"'),
        ("ZeRO-1", {"schedule": "zb-h1"}, "it has 1f1b; ZeRO-1 has no other schedule: choose"),
        ("FSDP alone", {"tensor_parallel": 2}, 'it has 1; FSDP alone has no "tensor"'),
        ("FSDP alone", {"pipeline_parallel": 2}, 'no "pipeline"'),
        ("FSDP alone", {"layers_per_stage": [1, 1]}, 'has 2 stages; FSDP alone has no "pipeline"'),
        ("FSDP without pipelines", {"zero_stage": 2, "pipeline_parallel": 2},
         "it has 0, 1; .* without pipelines: pin layout.pipeline_parallel to 1, or"),
    ],
)  # fmt: skip
def test_pins_beyond_the_framework_are_refused(stack: str, pins: dict[str, Any], message: str) -> None:
    i = with_pins(made(5, stack), **{f"layout.{k}": v for k, v in pins.items()})
    with pytest.raises(InputError, match=message):
        problem_of(i)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("seed", [5, 9, 31])
def test_what_fills_a_pipeline_is_bounded(seed: int, schedule: str) -> None:
    i = made(seed, "all")
    software = Software.model_validate(SOFTWARE | {"name": "x", "schedules": [schedule]})
    model = i.workload.model.replaced(layers=12)
    i = i.replaced(workload__software=software, workload__model=model)
    problem, seen = problem_of(i), 0
    for s in list(strategies(problem))[::7]:
        x = s.pipelines
        for m in (1, 2, 5, 12, 40):
            rows = replace(x, m=m + 0 * x.p)
            for zero in (0, 3):
                free = RowConditions(racks=1, shards=1, send=1.0, allreduce=1.0)
                once = terms(s, zero, rows, free).once
                fill = min_fill_seconds(s, x.p, x.v)
                assert np.all(once >= fill * (1 - 1e-9))
                seen += int(np.sum(fill > 0.25 * (x.p - 1) * np.ceil(12 / x.p) / x.v * s.layer))
    assert seen > 100


SEEDS = (0, 10, 16, 26, 12, 27, 13, 43, 4)
FAILING = [*((failing, seed) for seed in SEEDS), *((failing_links, seed) for seed in (0, 16, 24, 13, 2, 27))]
FAILING += [(one_way, 3)]
MORE_FAILING = [*((failing, seed) for seed in (15, 75, 41, 24, 57)), *((failing_links, seed) for seed in (26, 29, 12))]
Toys = Callable[[int], Instance]


@pytest.mark.parametrize(("toys", "seed"), [*FAILING, *more(*MORE_FAILING)])
def test_failures_equal_full_enumeration(toys: Toys, seed: int) -> None:
    require_optimum(toys(seed), best_failing(toys(seed)), rel=1e-8)


@pytest.mark.parametrize(("toys", "seed"), [(failing, 0), (failing_links, 16), *more((failing, 16), (failing, 27))])
def test_least_cost_equals_full_enumeration(toys: Toys, seed: int) -> None:
    i = toys(seed)
    plans, world = every_plan(i), Solving().world(i)
    times = sorted({p.seconds for p in plans})
    for limit in (times[0], times[len(times) // 3], times[-1]):
        best = min((p for p in plans if p.seconds <= limit * (1 + 1e-9)), key=lambda p: (round(p.usd, 2), p.seconds))
        found = cheapest(world, limit * (1 + 1e-9))
        assert found.usd == pytest.approx(best.usd, rel=1e-9)
        assert found.status == "optimal"


def test_spares_of_ties_stand_on_racks_that_are_there() -> None:
    """Plans within a tolerance have no more spare racks than a cluster has, where no network joins them either."""
    given = case(19).model_dump(mode="json", exclude_none=True)
    del given["network"]
    plan = planner.solve(given | {"reliability": "llama3-2024", "pins": {}, "objective": {"tolerance": 0.01}})
    assert plan.status == "optimal" and planner.check(plan) == []
    assert plan.layout.racks_per_replica + sum(plan.reliability.spare_racks_by_site.values()) <= 3


def test_a_job_that_goes_on_on_spares_alone_has_some() -> None:
    plan = planner.solve(one_way(3))
    assert plan.status == "optimal" and all(plan.reliability.spare_racks_by_site.values())


@pytest.mark.parametrize("seed", [16, *more(0)])
def test_no_failures_give_the_answer_without_them(seed: int) -> None:
    plain, r = solved(case(seed)), failing(seed).reliability
    found = solved(case(seed).replaced(reliability=Reliability(parts={})))
    assert (found.days, found.lower_bound, found.counts) == (plain.days, plain.lower_bound, plain.counts)
    w = case(seed).workload.replaced(availability=0.9)
    given = solved(case(seed).replaced(workload=w, reliability=r))
    assert given.days == solved(case(seed).replaced(workload=w)).days


def calendars() -> list[Calendar]:
    own = failing(0).reliability
    writing = {"restart_seconds": 0.0, "restart_seconds_per_gpu": 0.0, "storage_bytes_per_second_per_gpu": 1e7}
    rates = {"restart_seconds_per_gpu": 0.0085, "storage_bytes_per_second_per_gpu": 1.2e8}
    large = own.replaced(
        parts={"gpu": FailingPart(gpu_hours_per_event=5e4, repair_hours=24.0)}, measured_gpus=16384, **rates
    )
    return [
        Calendar(r=own, state_bytes=1e9),
        Calendar(r=large, state_bytes=4e14),
        Calendar(r=large.replaced(recoveries=("restart",)), state_bytes=4e14),
        Calendar(r=large.replaced(scale_exponent=0.3, correlated_share=0.0), state_bytes=4e12),
        Calendar(r=own.replaced(**writing, checkpoint_targets=("storage",)), state_bytes=4e12),
    ]


@pytest.mark.parametrize("k", range(5))
def test_bounds_hold_for_every_number_of_replicas(k: int) -> None:
    c, draw = calendars()[k], np.random.default_rng(k)
    for _ in range(60):
        g, most = int(draw.integers(1, 20_000)), int(draw.integers(1, 200))
        each, once = float(draw.uniform(0.1, 10.0)), float(draw.uniform(0.0, 0.1))
        d = np.arange(1, most + 1)
        own = (each / d + once) * c.column_floor(d, g)
        assert float(c.min_seconds(each, once, most, g)) <= own.min() * (1 + 1e-12)
        first = int(draw.integers(1, most + 1))
        assert float(c.floor(first * g)) <= c.column_floor(d[first - 1 :], g).min() * (1 + 1e-12)
        limit = float(np.quantile(own, 0.3))
        steps, low = c.step_limit(limit, each, once, most, g)
        fine = d[own < limit]
        assert len(fine) == 0 or (fine.min() >= low and (each / fine + once).max() <= steps * (1 + 1e-9))


def test_the_bound_over_replicas_is_near() -> None:
    """Where what comes once is nothing, the bound over all replicas is within a percent of the least of them."""
    c, d = calendars()[1], np.arange(1, 2001)
    own = 1 / d * c.column_floor(d, 512)
    assert float(c.min_seconds(1.0, 0.0, 2000, 512)) == pytest.approx(own.min(), rel=0.01)
