"""Kinds of layers and what they run again or overlap: the optimum equals full enumeration, the checker agrees."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from joint_brute_force import LayerShape, Plan, Times, Toy
from joint_proof import columns_below, require_proven_optimum
from joint_solved import solved
from joint_toys import case, toy
from tiers import more

import planner
from planner.instance.instance import Instance
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


def in_front(seed: int, dense: int, ffn: int) -> Instance:
    """Return a toy of three layers, so many of them dense at the front with an FFN of this width."""
    i = case(seed)
    model = i.workload.model
    experts = model.experts.model_copy(update={"dense_layers": dense})
    model = model.model_copy(update={"experts": experts, "layers": 3, "ffn": ffn})
    return i.model_copy(update={"workload": i.workload.model_copy(update={"model": model})})


FRONT = [(seed, dense, ffn) for seed in (13, 118) for dense, ffn in ((1, 256), (1, 16384), (2, 512))]
MORE_FRONT = [(seed, dense, ffn) for seed in (53, 98) for dense, ffn in ((1, 256), (1, 16384), (2, 512))]


@pytest.mark.parametrize(("seed", "dense", "ffn"), [*FRONT, *more(*MORE_FRONT)])
def test_front_layers_equal_full_enumeration(seed: int, dense: int, ffn: int) -> None:
    i = in_front(seed, dense, ffn)
    require_proven_optimum(i, Toy(i).best())


def of_modules(modules: tuple[str, ...], hbm: float, **pins: Any) -> Instance:
    """Return a toy of experts, behind a dense layer if `mlp` is among the modules that run again."""
    dense = int("mlp" in modules)
    return with_experts(hbm, 2 + dense, dense, {"recompute_modules": list(modules)}, **pins)


class ModuleTimes(Times):
    """Times of the splits of a layer that keeps all, or of whose layers none is recomputed whole."""

    def _splits(self, shape: LayerShape, *rest: Any) -> Any:
        layers, recompute = super()._splits(shape, *rest)
        fine = np.all(recompute == 0, axis=1) | (shape.recompute == "none")
        return layers[fine], recompute[fine]


class ModuleToy(Toy):
    """Every plan of a toy, with modules that run again or without."""

    def __init__(self, i: Instance) -> None:
        super().__init__(i, times=ModuleTimes(i))

    def shapes(self) -> Iterator[LayerShape]:
        """Yield every way to cut a layer, with what it keeps."""
        for shape, kept in itertools.product(super().shapes(), ("none", "selective")):
            if self.fine(recompute=kept) or (kept == "none" and self.times.recomputes_some):
                yield replace(shape, recompute=kept)


@cache
def best_of(modules: tuple[str, ...], hbm: float, pin: str | None) -> Plan | None:
    return ModuleToy(of_modules(modules, hbm, **({} if pin is None else {"layout.recompute": pin}))).best()


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
    assert found.plan is not None and found.days is not None and faster is not None
    assert faster.seconds < found.plan.seconds * 0.95
    assert list(columns_below(more_modules, found.days))


@pytest.mark.parametrize("seed", range(2))
def test_modules_that_no_layer_has_change_nothing(seed: int) -> None:
    i = toy(seed)
    given = i.model_dump(mode="json", exclude_none=True)
    given["workload"]["software"]["recompute_modules"] = ["moe_act", "moe", "layernorm", "mla_up_proj"]
    plain, named = solved(i), solved(Instance.model_validate(given))
    assert (plain.status, plain.days) == (named.status, named.days)
    assert plain.plan is None or (named.plan is not None and named.plan.column.strategy.shape.recompute == "none")


def test_a_plan_of_modules_is_checked_and_told() -> None:
    plan = planner.solve(of_modules(("layernorm", "moe_act"), 0.45e9))
    assert plan.layout is not None and plan.layout.recompute == "selective"
    assert planner.check(plan) == []
    assert "recomputes layernorm, moe_act (selective)" in summary(plan)
    plain = plan.layout.model_copy(update={"recompute": "none"})
    assert planner.check(plan.model_copy(update={"layout": plain}))


def overlapping(hbm: float, layouts: str = "interleaved", layers: int = 2, **pins: Any) -> Instance:
    """Return a toy whose experts' exchange overlaps whole where it does at all."""
    switches = {"overlaps": ["experts"], "expert_overlap": 1.0, "expert_overlap_layouts": layouts}
    return with_experts(hbm, layers, 0, switches, **{"layout.expert_parallel": 2, **pins})


class OverlapTimes(Times):
    """Times of the splits of a layer whose experts' exchange overlaps, or of those in which it does not."""

    def _splits(self, shape: LayerShape, p: int, v: int, *rest: Any) -> Any:
        layers, recompute = super()._splits(shape, p, v, *rest)
        overlaps = np.all(recompute == 0, axis=1) & (p == 1 or v > 1)
        fine = overlaps == shape.experts_overlap
        return layers[fine], recompute[fine]


class OverlapToy(Toy):
    """Every plan of a toy, with the exchange overlapped or not."""

    def __init__(self, i: Instance) -> None:
        super().__init__(i, times=OverlapTimes(i))

    def shapes(self) -> Iterator[LayerShape]:
        """Yield every way to cut a layer, with its exchange overlapped or not."""
        for shape in super().shapes():
            yield shape
            yield replace(shape, experts_overlap=False)


PLAIN = {"layout.pipeline_parallel": 2, "layout.virtual_stages": 1}
OVERLAPS: list[tuple[float, int, dict[str, Any], bool]] = [
    (ROOMY, 2, {}, False), (ROOMY, 2, {"layout.pipeline_parallel": 1}, True),
    (ROOMY, 2, {"layout.recompute": "full"}, False), (ROOMY, 2, PLAIN, False),
    (2 * ROOMY, 4, {"layout.pipeline_parallel": 2, "layout.virtual_stages": 2}, True),
]  # fmt: skip


@pytest.mark.parametrize(("hbm", "layers", "pins", "overlaps"), OVERLAPS)
def test_overlaps_equal_full_enumeration(hbm: float, layers: int, pins: dict[str, Any], overlaps: bool) -> None:
    """Whole replicas with room overlap, and interleaved stages; under recompute or a plain pipeline none."""
    i = overlapping(hbm, layers=layers, **pins)
    best = OverlapToy(i).best()
    found = require_proven_optimum(i, best).plan
    assert found.column.strategy.shape.experts_overlap == best.column.shape.experts_overlap == overlaps
