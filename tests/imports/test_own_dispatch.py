"""An imported grid must feed its own load with no site at all: what is in the way is told by rule, line and node."""

import random
from pathlib import Path

import grid_properties
import pytest
from import_cases import CASE, imported
from site_grids import case, line, node

from planner.imports.grid_tables import GridOptions
from planner.imports.read_grid import import_grid, shortage
from planner.instance.grid import Grid


@pytest.mark.parametrize("seed", range(40))
def test_what_is_short_is_what_the_split_cannot_feed(seed: int) -> None:
    """Of random grids, some with narrower lines or less plants, nothing is short just where zero racks hold."""
    r = random.Random(f"short {seed}")
    g = grid_properties.random_grid(seed).grid
    rules = g.rules.model_copy(update={"n1": "margin" if g.rules.n1 == "margin" else "off"})
    lines = [x.model_copy(update={"rating_mw": x.rating_mw * r.choice([1.0, 1.0, 0.7])}) for x in g.lines]
    nodes = [n.model_copy(update={"generation_mw": n.generation_mw * r.choice([1.0, 1.0, 0.7])}) for n in g.nodes]
    g = g.model_copy(update={"rules": rules, "lines": tuple(lines), "nodes": tuple(nodes)})
    assert (list(shortage(g).sentences()) == []) is grid_properties.zero_racks(grid_properties.instance_of(g))


def grid(load: float, rating: float, model: str = "transport") -> Grid:
    """Return a grid of a plant of 9 MW at one end of a line, and a load at the other."""
    nodes = node("E0", generation_mw=9.0), node("E1", generation_mw=0.0, load_mw=load)
    instance = case(*nodes, lines=[line("E0", "E1", rating_mw=rating, reactance_pu=0.01)], rules={"grid_model": model})
    assert instance.grid is not None
    return instance.grid


@pytest.mark.parametrize("model", ["transport", "dc"])
@pytest.mark.parametrize(
    ("load", "rating", "words"),
    [
        (5.0, 5.0, []),
        (5.0, 4.0, ["lines are too narrow by 1 MW in all: rating[E0-E1] 1 MW"]),
        (10.0, 20.0, ["plants fall short by 1 MW in all: generation[E"]),
        (-2.0, 20.0, ["must-run feed finds no load by 2 MW in all: balance[E"]),
    ],
)
def test_the_rule_that_is_short_is_named(model: str, load: float, rating: float, words: list[str]) -> None:
    """A line too narrow, plants too small and feed without load are told apart, each with the MW that it lacks."""
    found = list(shortage(grid(load, rating, model)).sentences())
    assert len(found) == len(words)
    assert all(told.startswith(x) for told, x in zip(found, words, strict=True))


def test_negative_demand_is_fed_in_whatever_is_planned(tmp_path: Path) -> None:
    """A bus of -30 MW is a node of a load of -30 MW, which bounds lines without a limit too, and the note says so."""
    path = tmp_path / "case4.m"
    path.write_text(CASE.replace("4 1 7 0 0", "4 1 -30 0 0"), encoding="utf-8")
    g = import_grid([path], "auto", GridOptions(at=(40.0, -75.0))).grid
    assert [n.load_mw for n in g.nodes] == [0, 100, 50, -30]
    assert "buses of negative demand feed in whatever is planned: 1" in (g.note or "")
    assert max(x.rating_mw for x in g.lines) == 300 + 30
    assert all(n.load_mw >= 0 for n in imported(tmp_path, "case4.m", at=(40.0, -75.0)).grid.nodes)
