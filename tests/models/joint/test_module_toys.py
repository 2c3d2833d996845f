"""Selective recompute of modules: the joint optimum equals full enumeration, and the checker enumerates the same."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from joint_brute_force import LayerShape, Times, Toy
from joint_proof import solved_with_proof
from joint_solved import solved
from joint_toys import toy

import planner
from planner.checks.joint_proof import missing_columns
from planner.instance.instance import Instance
from planner.models.joint.solution import JointStatus
from planner.plan.certificate import JointProof
from planner.report.summary import summary


def made(modules: tuple[str, ...], hbm: float, **pins: Any) -> Instance:
    """Return a toy of experts, behind a dense layer if `mlp` is among the modules, in so many bytes of memory."""
    i = toy(3)
    given = i.model_dump(mode="json", exclude_none=True)
    given["workload"]["software"] |= {"recompute_modules": list(modules)}
    dense = int("mlp" in modules)
    experts = {"count": 2, "per_token": 2, "ffn": 4096, "dense_layers": dense}
    given["workload"]["model"] |= {"layers": 2 + dense, "experts": experts}
    given["hardware"]["accelerator"] |= {"hbm_bytes": hbm, "nic_bytes_per_second": 2e10}
    given["limits"]["max_batch_tokens"] = 4 * 1024
    given["pins"] = {"layout.zero_stage": 1, **pins}
    return Instance.model_validate(given)


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
def best(modules: tuple[str, ...], hbm: float, pin: str | None = None) -> tuple[float, float, str] | None:
    """Enumerate a toy once: seconds a sequence, capital, and what a layer of the best plan keeps."""
    pins = {} if pin is None else {"layout.recompute": pin}
    found = ModuleToy(made(modules, hbm, **pins)).best()
    return None if found is None else (found.seconds, found.usd, found.column.shape.recompute)


CASES: list[tuple[tuple[str, ...], float, str | None, tuple[str, bool]]] = [
    (("core_attn", "moe_act"), 0.45e9, None, ("selective", False)),
    (("layernorm", "moe_act"), 0.45e9, None, ("selective", False)),
    (("layernorm", "moe_act"), 0.43e9, None, ("none", True)),
    (("layernorm", "moe_act"), 0.48e9, None, ("none", False)),
    (("layernorm", "moe_act"), 0.48e9, "selective", ("selective", False)),
    (("layernorm", "moe_act"), 0.45e9, "full", ("none", True)),
    (("mlp",), 0.735e9, None, ("selective", False)),
]


@pytest.mark.parametrize(("modules", "hbm", "pin", "wanted"), CASES)
def test_equals_full_enumeration(
    modules: tuple[str, ...], hbm: float, pin: str | None, wanted: tuple[str, bool]
) -> None:
    """As memory grows whole layers run again, then modules, then nothing; the checker finds nothing below the bound."""
    pins = {} if pin is None else {"layout.recompute": pin}
    i, enumerated = made(modules, hbm, **pins), best(modules, hbm, pin)
    found, proof = solved_with_proof(i)
    assert enumerated is not None and found.plan is not None and found.days is not None
    assert found.status is JointStatus.OPTIMAL
    assert (found.plan.seconds, found.plan.capital_usd) == pytest.approx(enumerated[:2], rel=1e-9)
    assert (enumerated[2], any(found.plan.split.recomputed)) == wanted
    assert found.plan.column.strategy.shape.recompute == enumerated[2]
    phi = i.network.transport.slowdown if i.network is not None else 1.0
    assert list(missing_columns(i, found.days, proof, transport_slowdown=phi)) == []


def test_the_checker_enumerates_modules() -> None:
    """The optimum of the stack that recomputes scores alone is no bound where it may discard activations too."""
    found, _ = solved_with_proof(made(("core_attn",), 0.45e9))
    more = made(("core_attn", "moe_act"), 0.45e9)
    faster = best(("core_attn", "moe_act"), 0.45e9)
    assert found.plan is not None and found.days is not None and faster is not None
    assert faster[0] < found.plan.seconds * 0.95
    phi = more.network.transport.slowdown if more.network is not None else 1.0
    assert list(missing_columns(more, found.days, JointProof(max_racks_by_wired_gpus={}), transport_slowdown=phi))


@pytest.mark.parametrize("seed", range(3))
def test_modules_that_no_layer_has_change_nothing(seed: int) -> None:
    """A dense toy under modules of experts has the plan of the stack without them."""
    i = toy(seed)
    given = i.model_dump(mode="json", exclude_none=True)
    given["workload"]["software"]["recompute_modules"] = ["moe_act", "moe", "layernorm", "mla_up_proj"]
    plain, named = solved(i), solved(Instance.model_validate(given))
    assert (plain.status, plain.days) == (named.status, named.days)
    assert plain.plan is None or (named.plan is not None and named.plan.column.strategy.shape.recompute == "none")


def test_a_plan_of_modules_is_checked_and_told() -> None:
    """The plan passes every rule of the checker, and its summary names what runs again."""
    plan = planner.solve(made(("layernorm", "moe_act"), 0.45e9))
    assert plan.layout is not None and plan.layout.recompute == "selective"
    assert planner.check(plan) == []
    assert "recomputes layernorm, moe_act (selective)" in summary(plan)
    plain = plan.layout.model_copy(update={"recompute": "none"})
    assert planner.check(plan.model_copy(update={"layout": plain}))
