"""The shape of a model for a number of parameters: agreement with trying every shape, and what must divide what."""

import math
import random

import pytest
from each_case import each

from planner.instance.scaling_law import DepthLaw, Family
from planner.models import model_choice
from planner.physics.training import scaling_laws

DEPTHS = [DepthLaw(aspect=64.0), DepthLaw(aspect=128.0), DepthLaw(kind="log", intercept=5.039, slope=0.0555)]


def random_family(seed: int) -> tuple[Family, DepthLaw, float]:
    r = random.Random(seed)
    family = Family(
        head_size=r.choice([64, 128]), heads_multiple_of=r.choice([1, 2, 8]), layers_multiple_of=r.choice([1, 1, 4]),
        ffn_ratio=r.choice([4.0, 3.5, 8 / 3]), gated_ffn=r.random() < 0.5, vocabulary=r.choice([1000, 32_000]),
        min_aspect=r.choice([16.0, 60.0]), max_aspect=r.choice([140.0, 512.0]), tolerance=r.choice([0.01, 0.05]),
        kv_heads=r.choice([None, None, 3, 8]),
    )  # fmt: skip
    return family, r.choice(DEPTHS), 10 ** r.uniform(7.5, 10.5)


def every_shape(family: Family, depth: DepthLaw, target: float) -> list[tuple[int, float]]:
    """List thousandths of a layer away from the law, and the miss of the target, of every shape that may be built."""
    found = []
    for units in range(1, 400):
        heads, step = units * family.heads_multiple_of, family.layers_multiple_of
        hidden, unequal = heads * family.head_size, heads % min(family.kv_heads or heads, heads)
        for layers in () if unequal else range(step, math.floor(hidden / family.min_aspect) + 1, step):
            size = model_choice.size(model_choice.model_of(family, layers, units))
            if hidden <= family.max_aspect * layers and abs(size - target) <= family.tolerance * target:
                away = abs(1000 * layers - round(1000 * scaling_laws.layers_of(depth, hidden)))
                found.append((away, abs(size - target)))
            if size > 1.1 * target:
                break
    return found


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_trying_every_shape(seed: int) -> None:
    family, depth, target = random_family(seed)
    found, every = model_choice.choose_shape(family, depth, target), every_shape(family, depth, target)
    assert (found is None) == (not every)
    if found is not None:
        away = abs(1000 * found.layers - round(1000 * scaling_laws.layers_of(depth, found.hidden)))
        assert (away, abs(model_choice.size(found) - target)) == min(every)


@each("target", [7e9, 175e9, 1e12, 52.5e12, 300e12])
def test_large_shapes_are_buildable(target: float) -> None:
    """So few divide by 1,024 heads that a small target has no shape."""
    depth = DepthLaw(aspect=128.0)
    found = model_choice.choose_shape(Family(), depth, target)
    assert abs(model_choice.size(found) / target - 1) <= 0.01
    assert found.heads % 8 == 0 and found.hidden == found.heads * 128
    assert 32 <= found.hidden / found.layers <= 2048
    assert model_choice.choose_shape(Family(heads_multiple_of=1024), depth, 1e8) is None


def test_of_many_narrow_widths_one_is_on_the_law() -> None:
    """Some 5,000 widths in steps of 9 have shapes with the target's parameters, and one of them the law's depth."""
    family = Family(head_size=3, heads_multiple_of=3, vocabulary=128_000, tolerance=0.02)
    depth, target = DepthLaw(aspect=128.0), 8.4e10
    found = model_choice.choose_shape(family, depth, target)
    assert found is not None and found.hidden % 9 == 0
    assert abs(model_choice.size(found) - target) <= 0.02 * target
    assert found.layers == round(found.hidden / 128)
