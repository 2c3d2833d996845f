"""The checker's own power flow on networks that have none."""

from typing import Any, cast

import numpy as np
import pytest

from planner.checks.power_flow import GridArrays, Solved, _without_circuit


def ring(*reactance_pu: float) -> GridArrays:
    """Return three nodes in a ring of single circuits."""
    none = np.zeros(3)
    parts: dict[str, Any] = {"available_mw": none, "unit_share": none, "generated_mw": none, "load_mw": none}
    return GridArrays(
        names=["a", "b", "c"], lines=["ab", "bc", "ca"], a=np.array([0, 1, 2]), b=np.array([1, 2, 0]),
        circuits=np.ones(3, dtype=int), rating_mw=none, one_circuit=100 / np.array(reactance_pu), site_mw=none, **parts,
    )  # fmt: skip


def test_reactances_that_cancel_are_named() -> None:
    """In a ring of x, x and -2x no flow follows: that is said of the figures, which end in no traceback."""
    with pytest.raises(ArithmeticError, match="no flow follows from their reactances"):
        Solved.of(ring(0.1, 0.1, -0.2), np.ones(3))


def test_a_compensated_line_carries_what_its_reactance_says() -> None:
    """Of 90 MW from a to b, x = 0.3 beside a detour of 0.2 - 0.05 carries a third: 30 MW, and the detour 60."""
    flows = cast(Any, Solved.of(ring(0.3, 0.2, -0.05), np.ones(3)).flows(np.array([90.0, -90.0, 0.0])))
    assert flows == pytest.approx([30.0, -60.0, -60.0])


@pytest.mark.parametrize("seed", range(28))
def test_flows_without_a_circuit_are_those_of_the_grid_without_it(seed: int) -> None:
    """On meshes of nine nodes, some lines compensated, every loss gives what a solve anew gives."""
    r = np.random.default_rng(seed)
    pairs = [(i, (i + 1) % 9) for i in range(9)] + [tuple(r.choice(9, 2, replace=False)) for _ in range(8)]
    reactance = r.uniform(0.05, 0.5, len(pairs)) * np.where(r.random(len(pairs)) < 0.2 * (seed % 3), -1.0, 1.0)
    generated, load = r.uniform(0, 50, 9), r.uniform(0, 50, 9)
    load *= generated.sum() / load.sum()
    none = np.zeros(9)
    g = GridArrays(
        names=list("abcdefghi"), lines=[str(k) for k in range(len(pairs))], a=np.array([p[0] for p in pairs]),
        b=np.array([p[1] for p in pairs]), circuits=1 + (np.arange(len(pairs)) % 2), rating_mw=none,
        one_circuit=100 / reactance, site_mw=none, available_mw=none, unit_share=none, generated_mw=generated,
        load_mw=load,
    )  # fmt: skip
    base = Solved.of(g, g.circuits)
    for line in range(len(pairs)):
        circuits = g.circuits.copy()
        circuits[line] -= 1
        fresh = Solved.of(g, circuits).flows(generated - load)
        assert base.flows_without(line) == pytest.approx(fresh, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(("load", "named"), [(100.0, []), (120.0, ["security[b, ab]"])])
def test_an_island_that_its_plants_cannot_feed_is_named(load: float, named: list[str]) -> None:
    """Without its one circuit, b has its own 100 MW of plants, whatever a could send it."""
    g = GridArrays(
        names=["a", "b"], lines=["ab"], a=np.array([0]), b=np.array([1]), circuits=np.ones(1, dtype=int),
        rating_mw=np.array([200.0]), one_circuit=np.array([1000.0]), available_mw=np.array([100.0, 100.0]),
        unit_share=np.zeros(2), generated_mw=np.array([80.0, load - 60.0]), load_mw=np.array([20.0, load]),
        site_mw=np.array([0.0, load]),
    )  # fmt: skip
    found = list(_without_circuit(g, 0))
    assert [v.rule for v in found] == named
    assert not named or "120 MW fed in after the loss of ab > 100 MW" in found[0].message
