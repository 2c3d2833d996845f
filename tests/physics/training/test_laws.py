"""Laws of scale against the published tables, and on both sides of what they say."""

import json
import math
from pathlib import Path

import pytest

import planner
from planner.instance.workload import DepthLaw, LossLaw, PointsLaw, PowerOf
from planner.physics.training import transformer

CATALOGUE = Path(planner.__file__).parent / "catalogue"


def entry(kind: str, name: str) -> dict[str, object]:
    entry: dict[str, object] = json.loads((CATALOGUE / f"{kind}.json").read_text(encoding="utf-8"))[name]
    return entry


@pytest.mark.parametrize(
    ("name", "flop"), [("chinchilla-1", 3.85e24), ("chinchilla-2", 4.54e24), ("chinchilla-3", 12.6e24)]
)
def test_laws_pass_near_their_published_points(name: str, flop: float) -> None:
    """Each approach gives 175B at its own compute of table A3, to what a line through nine rounded points allows."""
    law = PointsLaw.model_validate(entry("scaling_laws", name))
    assert transformer.best_parameters(law, flop) == pytest.approx(175e9, rel=0.04)


def test_the_ideal_models_of_the_5_gw_datacenter() -> None:
    """At full use of 33.408e21 FLOP/s, approach 2 gives 52.5T in 180 days and 103.5T in 720."""
    law = PointsLaw.model_validate(entry("scaling_laws", "chinchilla-2"))
    for days, parameters in ((180, 52.5e12), (720, 103.5e12)):
        assert transformer.best_parameters(law, 33.408e21 * 86_400 * days) == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize("name", ["parametric-2022", "parametric-2024"])
def test_the_optimum_of_a_loss_law_is_stationary(name: str) -> None:
    """A hundredth more or fewer parameters for the same compute lose."""
    law = LossLaw.model_validate(entry("scaling_laws", name))
    best = transformer.best_parameters(law, 1e25)

    def at(n: float) -> float:
        return transformer.loss(law, n, transformer.tokens_for(n, 1e25))

    assert at(best) < min(at(0.99 * best), at(1.01 * best))


def test_the_published_loss_of_chinchilla() -> None:
    """70B on 1.4T tokens: 1.69 + 406.4 / 70e9^0.34 + 410.7 / 1.4e12^0.28 = 1.937 by hand."""
    law = LossLaw.model_validate(entry("scaling_laws", "parametric-2022"))
    assert transformer.loss(law, 70e9, 1.4e12) == pytest.approx(1.9366, abs=1e-4)


def test_batch_laws() -> None:
    """A fixed batch is its coefficient; powers follow tokens or compute."""
    asked = {"tokens": 1e12, "flop": 1e24, "parameters": 1e11}
    assert transformer.power(PowerOf(of="fixed", coefficient=4e6), **asked) == 4e6
    assert transformer.power(PowerOf.model_validate(entry("batch_laws", "zhang-2024")), **asked) == pytest.approx(
        22.91 * 1e12**0.47
    )
    assert transformer.power(PowerOf.model_validate(entry("batch_laws", "deepseek-2024")), **asked) == pytest.approx(
        0.292 * 1e24**0.3271
    )


def test_depth_laws() -> None:
    """An aspect of 128 gives GPT-3's 96 layers of 12,288; the logarithmic law 79."""
    assert transformer.layers_of(DepthLaw(aspect=128.0), 12_288) == 96
    log = DepthLaw.model_validate(entry("depth_laws", "levine-2020"))
    assert transformer.layers_of(log, 12_288) == pytest.approx((math.log(12_288) - 5.039) / 0.0555)
