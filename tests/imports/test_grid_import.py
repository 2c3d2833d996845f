"""Grouping of plants, GeoJSON of a grid, its own dispatch, and `planner grid import`."""

import json
import math
import random
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import grid_properties
import pytest
from commands import run_here
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from import_cases import CASE, imported, put
from site_grids import case, line, node

from planner.errors import InputError
from planner.imports import grid_drafts, read_grid
from planner.imports.command_options import GridOptions
from planner.imports.grid_drafts import geojson, shortage
from planner.imports.read_grid import import_grid
from planner.instance.grid import Grid, NewLine, PowerNode
from planner.physics.site.wan import great_circle_km
from planner.planning.load import load_instance

ROOT = Path(__file__).parents[2]
FULL = "zones.csv interfaces.csv plants.csv peaks.csv"


def run(*args: str | Path) -> CompletedProcess[str]:
    return run_here("grid", "import", *args)


def test_part_and_geojson(tmp_path: Path) -> None:
    """-o gets the grid part, --geojson the map; what is missing goes to stderr; without -o the same part is printed."""
    files = put(tmp_path, FULL)
    out = run(*files, "-o", tmp_path / "part.json", "--geojson", tmp_path / "map.geojson")
    assert out.returncode == 0, out.stderr
    assert "2 authorities, 3 nodes, 2 lines" in out.stdout
    assert "missing: energy_usd_per_mwh of PJM_East, WestConnect" in out.stderr
    data = json.loads((tmp_path / "part.json").read_text())
    assert set(data) == {"grid"}
    assert len(Grid.model_validate(data["grid"]).nodes) == 3
    assert json.loads((tmp_path / "map.geojson").read_text())["type"] == "FeatureCollection"
    assert run(*files).stdout == (tmp_path / "part.json").read_text()


def test_into_an_instance(tmp_path: Path) -> None:
    """--into writes an instance that loads: its rules and prices kept, the explicit interconnect reading replaced."""
    base = ROOT / "instances" / "5gw.json"
    out = run(*put(tmp_path, FULL), "--into", base, "--name", "mine", "-o", tmp_path / "mine.json")
    assert out.returncode == 0, out.stderr
    made, old = load_instance(tmp_path / "mine.json"), load_instance(base)
    assert made.name == "mine" and [n.id for n in made.grid.nodes] == ["p1", "p2", "p3"]
    assert made.grid.rules.interconnect.reading == "capacity_n1" and "capacity_n1" in (made.grid.note or "")
    assert made.grid.prices == old.grid.prices
    assert (made.workload, made.hardware, made.wan, made.limits) == (old.workload, old.hardware, old.wan, old.limits)


@each(("names", "args", "words"), [
    ("case4.m", [], "--positions"), ("case4.m", ["--at", "north"], "--at north"),
    ("case4.m", ["--at", "95,0"], "--at 95,0"),
    ("plants.csv", ["--radius-km", "-1"], "--radius-km: must be"),
    ("plants.csv", ["--radius-km", "nan"], "--radius-km: must be"),
    ("plants.csv", ["--sites", "0"], "--sites: must be"),
    ("plants.csv", ["--spare-share", "1.5"], "--spare-share: must be"),
    ("plants.csv", ["--headroom-share", "inf"], "--headroom-share: must be"),
    ("plants.csv", ["--name", "x"], "--into"),
    ("plants.csv", ["--authorities", "none.csv"], "none.csv: no such file"),
    ("plants.csv", ["--into", str(ROOT / "instances" / "one-rack.json")], "hardware.racks"),
    ("plants.csv", ["-o", "/no/such/folder/part.json"], "its folder does not exist"),
])  # fmt: skip
def test_mistakes_end_in_a_message(tmp_path: Path, names: str, args: list[str], words: str) -> None:
    """A user's mistake ends in exit code 2 and a message, never in a traceback."""
    out = run(*put(tmp_path, names), *args)
    assert out.returncode == 2, out.stdout
    assert words in out.stderr
    assert "Traceback" not in out.stderr


def assert_valid(data: dict[str, Any]) -> None:
    """Hold a feature collection to sections 3.2 and 3.3, and 4 (WGS 84, no crs)."""
    assert set(data) == {"type", "features"} and data["type"] == "FeatureCollection"
    for f in data["features"]:
        assert set(f) == {"type", "id", "geometry", "properties"} and f["type"] == "Feature"
        assert isinstance(f["id"], str) and isinstance(f["properties"], dict)
        kind, places = f["geometry"]["type"], f["geometry"]["coordinates"]
        assert kind == "Point" or (kind == "LineString" and len(places) >= 2)  # sections 3.1.2 and 3.1.4
        assert all(-180 <= x <= 180 and -90 <= y <= 90 for x, y in ([places] if kind == "Point" else places))
    assert len({f["id"] for f in data["features"]}) == len(data["features"])


@each("names", ["case4.m", "bus.csv branch.csv gen.csv", "plants.csv", "zones.csv interfaces.csv"])
def test_a_grid_is_geojson(tmp_path: Path, names: str) -> None:
    """A node in the west has a negative first coordinate; a line goes from its a to its b; figures are properties.

    A corridor that can be built is distinct from one that exists, also under the same id.
    """
    g = imported(tmp_path, names, **({"at": "40,-75"} if names == "case4.m" else {})).grid
    new = [NewLine(id=x.id, a=x.a, b=x.b, rating_mw=1.0, capex_usd=1.0) for x in g.lines[:1]]
    data = json.loads(json.dumps(geojson(g.replaced(new_lines=tuple(new))), allow_nan=False))
    assert_valid(data)
    kinds = [("node", n.id) for n in g.nodes] + [("line", x.id) for x in g.lines] + [("new_line", x.id) for x in new]
    assert [(f["properties"]["kind"], f["properties"]["id"]) for f in data["features"]] == kinds
    features = {f["id"]: f for f in data["features"]}
    if "zones" in names:
        assert features["node/p3"]["geometry"] == {"type": "Point", "coordinates": [-112.0, 33.4]}
        assert features["line/p2--p3"]["geometry"]["coordinates"] == [[-76.0, 41.0], [-112.0, 33.4]]
        assert features["line/p2--p3"]["properties"]["rating_mw"] == 200
        assert "latitude" not in features["node/p3"]["properties"]


def plant(number: int, latitude: float, longitude: float, mw: float, authority: str) -> read_grid.Plant:
    return read_grid.Plant(
        id=str(number), name=f"plant {number}", state="", latitude=latitude, longitude=longitude, mw=mw,
        largest_unit_mw=None, authority=authority, region="",
    )  # fmt: skip


# Few capacities, so that equals are common; places near each other, round a pole and across the date line.
POSITIONS = st.tuples(
    st.one_of(st.floats(39, 41), st.floats(89, 90)),
    st.one_of(st.floats(-77, -75), st.floats(179, 180), st.floats(-180, -179)),
)
LISTS = st.lists(
    st.tuples(POSITIONS, st.sampled_from([0.0, 20.0, 500.0, 1000.0]), st.sampled_from("AB")), min_size=1, max_size=25
)


def km(a: read_grid.Plant, b: read_grid.Plant) -> float:
    return great_circle_km(a.latitude, a.longitude, b.latitude, b.longitude)


@settings(max_examples=75, deadline=None)
@given(LISTS, st.floats(0, 300), st.randoms(use_true_random=False))
def test_partition_within_radius(drawn: list[Any], radius: float, chance: random.Random) -> None:
    """Every plant is in one node, of its own authority, within the radius of the node's largest; megawatts add up.

    The order of the list does not matter.
    """
    given_plants = [plant(i, *place, mw, authority) for i, (place, mw, authority) in enumerate(drawn)]
    nodes = list(read_grid.group_plants(given_plants, radius))
    assert list(read_grid.group_plants(chance.sample(given_plants, len(given_plants)), radius)) == nodes
    assert sorted(p.id for group in nodes for p in group) == sorted(p.id for p in given_plants)
    for group in nodes:
        assert {p.authority for p in group} == {group[0].authority}
        assert group[0].mw == max(p.mw for p in group)
        assert all(km(group[0], p) <= radius + 1e-4 for p in group)
    assert sum(p.mw for group in nodes for p in group) == pytest.approx(sum(p.mw for p in given_plants))


def by_hand(given_plants: list[read_grid.Plant], radius: float) -> list[set[str]]:
    """Group plants as on paper: the largest that remains (of equals the first id) takes all within the radius."""
    nodes = []
    for authority in sorted({p.authority for p in given_plants}):
        left = sorted((p for p in given_plants if p.authority == authority), key=lambda p: (-p.mw, p.id))
        while left:
            mine = [p for p in left if km(left[0], p) <= radius]
            nodes.append({p.id for p in mine})
            left = [p for p in left if p not in mine]
    return nodes


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_paper_and_pencil(seed: int) -> None:
    """The vectors group as the great-circle formula does, on seeded lists without a plant at the very edge."""
    chance = random.Random(seed)
    given_plants = []
    for i in range(120):
        place = chance.uniform(38, 42), chance.uniform(-80, -74)
        mw = chance.choice([20, 500, chance.uniform(20, 2000)])
        given_plants.append(plant(i, *place, mw, chance.choice("AB")))
    assert [{p.id for p in group} for group in read_grid.group_plants(given_plants, 25)] == by_hand(given_plants, 25)


def test_edge_of_the_radius() -> None:
    """A plant just within the radius belongs to the node; one just outside does not; the same place always does."""
    two = [plant(1, 40, -76, 1000, "A"), plant(2, 40.2, -76, 20, "A")]
    apart = km(*two)
    assert len(list(read_grid.group_plants(two, apart + 1e-3))) == 1
    assert len(list(read_grid.group_plants(two, apart - 1e-3))) == 2
    assert len(list(read_grid.group_plants([plant(1, 40, -76, 5, "A"), plant(2, 40, -76, 9, "A")], 0))) == 1


@pytest.mark.parametrize("seed", range(40))
def test_what_is_short_is_what_the_split_cannot_feed(seed: int) -> None:
    """Of random grids, some with narrower lines or less plants, nothing is short just where zero racks hold."""
    r = random.Random(f"short {seed}")
    g = grid_properties.random_grid(seed).grid
    lines = [x.replaced(rating_mw=x.rating_mw * r.choice([1.0, 1.0, 0.7])) for x in g.lines]
    nodes = [n.replaced(generation_mw=n.generation_mw * r.choice([1.0, 1.0, 0.7])) for n in g.nodes]
    g = g.replaced(rules__n1="margin" if g.rules.n1 == "margin" else "off", lines=tuple(lines), nodes=tuple(nodes))
    assert (list(shortage(g)) == []) is grid_properties.zero_racks(grid_properties.instance_of(g))


def grid(load: float, rating: float, model: str = "transport") -> Grid:
    """Return a grid of a plant of 9 MW at one end of a line, and a load at the other."""
    nodes = node("E0", generation_mw=9.0), node("E1", generation_mw=0.0, load_mw=load)
    instance = case(*nodes, lines=[line("E0", "E1", rating_mw=rating, reactance_pu=0.01)], rules={"grid_model": model})
    assert instance.grid is not None
    return instance.grid


@each("model", ["transport", "dc"])
@each(("load", "rating", "words"), [
    (5.0, 5.0, []),
    (5.0, 4.0, ["lines are too narrow by 1 MW in all: rating[E0-E1] 1 MW"]),
    (10.0, 20.0, ["plants fall short by 1 MW in all: generation[E"]),
    (-2.0, 20.0, ["must-run feed finds no load by 2 MW in all: balance[E"]),
])  # fmt: skip
def test_the_rule_that_is_short_is_named(model: str, load: float, rating: float, words: list[str]) -> None:
    """A line too narrow, plants too small and feed without load are told apart, each with the MW that it lacks."""
    found = list(shortage(grid(load, rating, model)))
    assert len(found) == len(words)
    assert all(told.startswith(x) for told, x in zip(found, words, strict=True))


def test_negative_demand_is_fed_in_whatever_is_planned(tmp_path: Path) -> None:
    """A bus of -30 MW is a node of a load of -30 MW, which bounds lines without a limit too, and the note says so."""
    path = tmp_path / "case4.m"
    path.write_text(CASE.replace("4 1 7 0 0", "4 1 -30 0 0"), encoding="utf-8")
    g = import_grid([path], "auto", GridOptions(at="40,-75")).grid
    assert [n.load_mw for n in g.nodes] == [0, 100, 50, -30]
    assert "buses of negative demand feed in whatever is planned: 1" in (g.note or "")
    assert max(x.rating_mw for x in g.lines) == 300 + 30
    assert all(n.load_mw >= 0 for n in imported(tmp_path, "case4.m", at="40,-75").grid.nodes)


@each(("rating", "reactance"), [(math.inf, 0.1), (100.0, math.inf)])
def test_a_branch_beyond_all_numbers_is_named(rating: float, reactance: float) -> None:
    nodes = [PowerNode(id=x, balancing_authority="A", latitude=0, longitude=0, generation_mw=1) for x in "ab"]
    branch = grid_drafts.DraftBranch(a="a", b="b", rating_mw=rating, reactance_pu=reactance)
    stated = {"interconnections": {"A": None}, "peaks_mw": {}}
    draft = grid_drafts.Draft(source="x.csv", nodes=tuple(nodes), branches=(branch,), **stated)
    with pytest.raises(InputError, match=r"x.csv: branch a--b: its rating or reactance is beyond all numbers; correct"):
        grid_drafts.assemble(draft, GridOptions())
