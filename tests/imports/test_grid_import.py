"""Each grid format as a grid, malformed files by line; plants in groups, GeoJSON, what is short, and the command."""

import json
import math
import random
from itertools import combinations
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import grid_properties
import pytest
from commands import run_here
from each_case import each
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from import_cases import CASE, imported, put
from site_grids import case, line, node

from planner.errors import InputError
from planner.imports import grid_drafts, read_grid
from planner.imports.command_options import GridOptions
from planner.imports.grid_drafts import geojson, part, shortage, text
from planner.imports.read_grid import import_grid
from planner.instance.grid import Grid, NewLine, PowerNode
from planner.physics.site.wan import great_circle_km
from planner.planning.load import load_instance

ROOT = Path(__file__).parents[2]
RTS, REEDS = "bus.csv branch.csv gen.csv", "zones.csv interfaces.csv"
FULL = f"{REEDS} plants.csv peaks.csv"
SETS = {"matpower": "case4.m", "rts-gmlc": RTS, "eia-860": "plants.csv peaks.csv", "reeds": FULL}


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
        id=str(number), name=f"plant {number}", state="", place=(latitude, longitude), mw=mw,
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
    return great_circle_km(*a.place, *b.place)


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


@settings(max_examples=75)
@given(LISTS, st.floats(0, 300), st.randoms(use_true_random=False))
def test_plants_group_as_on_paper(drawn: list[Any], radius: float, chance: random.Random) -> None:
    """Vectors group plants as the great-circle formula does, but for some at the very edge; in any order."""
    given_plants = [plant(i, *place, mw, authority) for i, (place, mw, authority) in enumerate(drawn)]
    assume(all(abs(km(a, b) - radius) > 1e-3 for a, b in combinations(given_plants, 2)))
    for listed in (given_plants, chance.sample(given_plants, len(given_plants))):
        assert [{p.id for p in group} for group in read_grid.group_plants(listed, radius)] == by_hand(listed, radius)


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


@each("kind", SETS)
def test_round_trip(tmp_path: Path, kind: str) -> None:
    """What is written reads back; the format is recognised, in whatever order files come; source and note are there."""
    options = {"at": "40,-75"} if kind == "matpower" else {}
    named = imported(tmp_path, SETS[kind], kind=kind, **options)
    assert imported(tmp_path, " ".join(reversed(SETS[kind].split())), **options) == named
    assert Grid.model_validate(json.loads(text({"grid": part(named.grid)}))["grid"]) == named.grid
    assert named.grid.source and named.grid.note


def test_matpower(tmp_path: Path) -> None:
    """Equal parallel branches are circuits of one line, unequal ones a line each; reactance is on 100 MVA."""
    positions = put(tmp_path, "positions.csv")[0]
    g = imported(tmp_path, "case4.m", positions=positions).grid
    places = [("bus-1", 40, -75), ("bus-2", 40.5, -75), ("bus-3", 41, -75), ("bus-4", 41, -76)]
    assert [(n.id, n.latitude, n.longitude) for n in g.nodes] == places
    assert [(n.generation_mw, n.largest_unit_mw) for n in g.nodes] == [(300, 250), *[(0, None)] * 3]
    lines = [("bus-1--bus-2", 2, 250, 0.2), ("bus-1--bus-2#2", 1, 300, 0.4)]
    lines += [("bus-2--bus-3", 1, 100, pytest.approx(0.196)), ("bus-3--bus-4", 1, 100, -0.2)]
    assert [(x.id, x.circuits, x.rating_mw, x.reactance_pu) for x in g.lines] == lines
    assert g.lines[1].note == "no limit in the file"
    assert "transformer" in (g.lines[2].note or "")
    assert [(b.id, b.headroom_mw) for b in g.balancing_authorities] == [("area-1", 200), ("area-2", 0)]
    for words in ("branches out of service left out: 1", "phase shifters written without their shift: 1"):
        assert words in (g.note or "")
    assert "flows count the load in the file, " in (g.note or "")
    # Version 1 of the format, an isolated bus, and a rating below a kilowatt, which stays.
    old, head = tmp_path / "old.m", "function [baseMVA, bus, gen, branch] = case4"
    old.write_text(CASE.replace("function mpc = case4", head).replace("mpc.", ""))
    assert import_grid([old], "auto", GridOptions(at="0,0")).grid.lines == g.lines
    g = import_grid(put(tmp_path, "case4.m", "; 4 1 7", "; 4 4 7"), "auto", GridOptions(at="0,0")).grid
    assert [n.id for n in g.nodes] == ["bus-1", "bus-2", "bus-3"]
    assert {end for x in g.lines for end in (x.a, x.b)} <= {n.id for n in g.nodes}
    small = import_grid(put(tmp_path, "case4.m", "-0.1\t0\t100", "-0.1\t0\t0.0002"), "auto", GridOptions(at="40,-75"))
    assert 0.0002 in [x.rating_mw for x in small.grid.lines]


def test_rts_gmlc(tmp_path: Path) -> None:
    """Columns are taken by name; headroom is what is installed over the load of the area."""
    g = imported(tmp_path, SETS["rts-gmlc"]).grid
    nodes = [("bus-101", 320, 300, "Abel, 138 kV"), ("bus-102", 0, None, "Adams, 138 kV")]
    nodes += [("bus-201", 55, 55, "Bates, 230 kV")]
    assert [(n.id, n.generation_mw, n.largest_unit_mw, n.note) for n in g.nodes] == nodes
    lines = [("bus-101--bus-102", 2, 175, 0.014), ("bus-101--bus-201", 1, 400, pytest.approx(0.0882))]
    assert [(x.id, x.circuits, x.rating_mw, x.reactance_pu) for x in g.lines] == lines
    assert {b.id: b.headroom_mw for b in g.balancing_authorities} == {"area-1": 170, "area-2": 35}


def test_plants(tmp_path: Path) -> None:
    """The largest plant absorbs those of its authority within the radius; one of another authority stays apart."""
    g = imported(tmp_path, SETS["eia-860"], headroom_share=0.1, energy_usd_per_mwh=30.0).grid
    nodes = [("big-nuclear", "PJM", 2900), ("far-coal", "PJM", 1000), ("desert-sun", "SRP", 400)]
    nodes += [("next-door", "SRP", 30)]
    assert [(n.id, n.balancing_authority, n.generation_mw) for n in g.nodes] == nodes
    authorities = [(b.id, b.interconnection, b.headroom_mw, b.energy_usd_per_mwh) for b in g.balancing_authorities]
    assert authorities == [("PJM", "eastern", 300, 30), ("SRP", "western", 10, 30)]
    assert "plants without a balancing authority, 50 MW, left out: 1" in (g.note or "")


def test_plants_with_generators(tmp_path: Path) -> None:
    """The two sheets of EIA-860: a title above the header, capacity by generator, the largest unit of each node.

    Nodes of plants of one name get the plant's id too, also where that makes another plant's name.
    """
    plants, units = tmp_path / "plant.csv", tmp_path / "generator.csv"
    plants.write_text(
        "2023 Form EIA-860 Data,,,,,,\n"
        "Utility ID,Plant Code,Plant Name,Latitude,Longitude,Balancing Authority Code,NERC Region\n"
        "7,1,Big,40,-76,PJM,RFC\n7,2,Near,40.1,-76,PJM,RFC\n7,3,Idle,45,-76,PJM,RFC\n"
    )
    units.write_text("Plant Code,Generator ID,Nameplate Capacity (MW)\n1,A,600\n1,B,700\n2,A,900\n")
    g = import_grid([units, plants], "auto", GridOptions()).grid
    assert [(n.id, n.generation_mw, n.largest_unit_mw) for n in g.nodes] == [("big", 2200, 900), ("idle", 0, None)]
    names = ("Beaver Dam", "Beaver Dam 3", "Beaver Dam", "Beaver Dam")
    rows = "".join(f"{i},{name},{35 + 5 * i},-76,{10 - i},A\n" for i, name in enumerate(names, 1))
    plants.write_text(f"plant_id,name,lat,lon,capacity_mw,ba\n{rows}")
    ids = [n.id for n in import_grid([plants], "auto", GridOptions()).grid.nodes]
    assert ids == ["beaver-dam", "beaver-dam-3", "beaver-dam-3-3", "beaver-dam-4"]


def test_reeds(tmp_path: Path) -> None:
    """A corridor carries the lesser direction; plants are in the nearest zone of their state, peaks with them."""
    g = imported(tmp_path, SETS["reeds"], headroom_share=0.5).grid
    assert [(n.id, n.generation_mw) for n in g.nodes] == [("p1", 2980), ("p2", 1000), ("p3", 400)]
    lines = [("p1--p2", 400, None), ("p2--p3", 200, "B2B tie, controllable")]
    assert [(x.id, x.rating_mw, x.note) for x in g.lines] == lines
    # SRP's 100 MW of peak follow its plants: 30 of 430 MW stand in Pennsylvania.
    assert {b.id: b.headroom_mw for b in g.balancing_authorities} == {
        "PJM_East": pytest.approx(0.5 * (3000 + 100 * 30 / 430), abs=1e-3),
        "WestConnect": pytest.approx(0.5 * 100 * 400 / 430, abs=1e-3),
    }


def test_nothing_is_invented_in_silence(tmp_path: Path) -> None:
    """What neither files nor options say is written as 0, and named both in the note and to the caller."""
    result = imported(tmp_path, "zones.csv interfaces.csv")
    assert {n.generation_mw for n in result.grid.nodes} == {0}
    assert {(b.headroom_mw, b.energy_usd_per_mwh) for b in result.grid.balancing_authorities} == {(0, 0)}
    for key in ("headroom_mw", "energy_usd_per_mwh", "generation_mw"):
        assert any(key in m for m in result.missing)
        assert f"MISSING {key}" in (result.grid.note or "")


def test_table_of_authorities_goes_first(tmp_path: Path) -> None:
    """The user's table goes before options, options before the files; its empty cells leave the figure to them."""
    table = tmp_path / "authorities.csv"
    table.write_text(
        "authority,headroom_mw,energy_usd_per_mwh,interconnection,source\nPJM,9915,,north,Table 1\nSRP,,45,,\n"
    )
    result = imported(tmp_path, "plants.csv peaks.csv", authorities=table, headroom_share=0.1, energy_usd_per_mwh=39.0)
    own = [(b.id, b.interconnection, b.source) for b in result.grid.balancing_authorities]
    assert own == [("PJM", "north", "Table 1"), ("SRP", "western", None)]
    figures = [(b.headroom_mw, b.energy_usd_per_mwh) for b in result.grid.balancing_authorities]
    assert figures == [(9915, 39), (10, 45)]
    assert not any("headroom" in m or "energy" in m for m in result.missing)
    for rows, words in (
        ("authority,headroom_mw\nPJN,5\n", "line 2, column 'authority': .*'PJN'.*did you mean 'PJM'"),
        ("authority,headroom_mw\nPJM,5\nPJM,6\n", "line 3.*line 2"),
        ("authority,headroom_mw\nPJM,-5\n", "line 2, column 'headroom_mw'.*'-5'"),
        ("authority,colour\nPJM,red\n", "none of .*headroom_mw"),
        ("name,headroom_mw\nPJM,5\n", "'authority'.* is missing"),
        ("", "no header"),
    ):
        table.write_text(rows)
        with pytest.raises(InputError, match=rf"authorities\.csv: .*({words})"):
            imported(tmp_path, "plants.csv", authorities=table)


def test_only_sites_and_share(tmp_path: Path) -> None:
    """One authority can be kept alone, candidates limited to the largest nodes, and capacity taken in part."""
    g = imported(tmp_path, SETS["eia-860"], only=("PJM",), sites=1, spare_share=0.5).grid
    assert [(n.id, n.site, n.generation_mw) for n in g.nodes] == [("big-nuclear", True, 1450), ("far-coal", False, 500)]
    assert [b.id for b in g.balancing_authorities] == ["PJM"]
    loads = [[n.load_mw for n in imported(tmp_path, RTS, spare_share=s).grid.nodes] for s in (1.0, 0.5)]
    assert any(loads[0]) and not any(loads[1])  # plants spare what the load does not take
    with pytest.raises(InputError, match=r"--only PJN.*did you mean 'PJM'"):
        imported(tmp_path, SETS["eia-860"], only=("PJN",))


@each(("names", "old", "new", "words"), [
    ("case4.m", "0.98", "x.98", ["case4.m: line 23", "branch column 9 (TAP)", "'x.98'"]),
    ("case4.m", "mpc.baseMVA = 50", "mpc.baseMVA = 5*10", ["line 4", "baseMVA", "'5*10'"]),
    ("case4.m", "mpc.baseMVA = 50", "mpc.baseMVA = 0", ["baseMVA", "greater than 0"]),
    ("case4.m", "mpc.baseMVA = 50;", "", ["baseMVA is missing"]),
    ("case4.m", "0.98", "Inf", ["line 23", "TAP", "finite"]),
    ("case4.m", "\t1\t72\t0\t300\t-300\t1\t100\t1\t50\t10;", "\t1\t72\t0\t300;",
     ["line 16", "'gen'", "4 values", "PMAX"]),
    ("case4.m", "\t2, 1, 100", "\t1, 1, 100", ["line 10", "BUS_I", "line 9", "is 1"]),
    ("case4.m", "\t2, 1, 100", "\t2.5, 1, 100", ["line 10", "BUS_I", "whole", "is 2.5"]),
    ("case4.m", "\t3\t0\t0\t300", "\t8\t0\t0\t300", ["line 17", "GEN_BUS", "is 8", "no bus"]),
    ("case4.m", "\t1\t4\t0.01", "\t1\t9\t0.01", ["line 25", "T_BUS", "is 9"]),
    ("case4.m", "\t1\t4\t0.01", "\t1\t1\t0.01", ["line 25", "T_BUS", "comes from"]),
    ("case4.m", "-0.1\t0\t100", "-0.1\t0\t-100", ["line 24", "RATE_A", "is -100", "no limit"]),
    ("case4.m", "mpc.version = '2';", "mpc.bus(:, 3) = 2 * mpc.bus(:, 3);", ["line 3", "savecase"]),
    ("case4.m", "mpc.version = '2';", "mpc = loadcase('case9');", ["line 3", "savecase"]),
    ("case4.m", "115 1 1.1 0.9\n];", "115 1 1.1 0.9\n", ["line 8", "'bus'"]),
    ("case4.m", "%}\n", "", ["block comment"]),
    ("case4.m", "mpc.gen = [", "mpc.other = [", ["no table mpc.gen"]),
    ("case4.m", "mpc.gencost", "mpc.bus", ["line 27", "'bus'", "twice"]),
    ("case4.m", "115 1 1.1 0.9\n];", "115 1 1.1 0.9\n]';", ["line 13", "not understood"]),
    ("case4.m positions.csv", "40.5", "north", ["positions.csv: line 3", "'lat'", "'north'"]),
    ("case4.m positions.csv", "40.5,-75", "40.5,-275", ["line 3", "'lon'", "from -180 to 180", "'-275'"]),
    ("case4.m positions.csv", "2,40.5", "1,40.5", ["line 3", "'bus'", "twice"]),
    ("case4.m positions.csv", "4,41,-76\n", "", ["positions.csv", "1 buses", "(4)", "--at"]),
    (RTS, "138,100,1", "138,much,1", ["bus.csv: line 2", "'MW Load'", "'much'"]),
    (RTS, "34.0,-114.0", ",-114.0", ["bus.csv: line 4", "'lat'", "''"]),
    (RTS, "102,Adams", "101,Adams", ["bus.csv: line 3", "'Bus ID'", "line 2"]),
    (RTS, "B1,101,201", "B1,101,999", ["branch.csv: line 4", "'To Bus'", "'999'"]),
    (RTS, "B1,101,201", "B1,101,101", ["branch.csv: line 4", "'To Bus'", "comes from"]),
    (RTS, "201_A,201", "201_A,202", ["gen.csv: line 4", "'Bus ID'", "'202'"]),
    (RTS, "101_A,101,20", "101_A,101,-20", ["gen.csv: line 2", "'PMax MW'", "at least 0", "'-20'"]),
    (RTS, "Cont Rating", "Cont. Rating", ["branch.csv", "'Cont Rating' is missing", "is it 'Cont. Rating'"]),
    (RTS, "B1,101,201", "B1,101,,201", ["branch.csv: line 4", "7 cells", "has 6"]),
    (RTS, "BaseKV,MW Load", "MW Load,MW Load", ["bus.csv: line 1", "'MW Load'", "twice"]),
    ("plants.csv", '"Near, Gas",', '"Near, Gas"x,', ["plants.csv: line 3", "quotes"]),
    ("plants.csv", "3,Far", "1,Far", ["plants.csv: line 4", "'eia_plant_id'", "line 2"]),
    ("plants.csv", "-76.00,2000", "-76.00,nan", ["plants.csv: line 2", "'capacity_mw'", "'nan'"]),
    ("plants.csv", "Far Coal", "", ["plants.csv: line 4", "'name'", "not be empty"]),
    ("plants.csv", "41.00", "410", ["plants.csv: line 4", "'lat'", "from -90 to 90", "'410'"]),
    ("plants.csv peaks.csv", "SRP,100", "SRP,-1", ["peaks.csv: line 3", "at least 0", "'-1'"]),
    ("plants.csv peaks.csv", "SRP,100", "PJM,100", ["peaks.csv: line 3", "'ba'", "line 2"]),
    (REEDS, "p2,41.0", "p1,41.0", ["zones.csv: line 3", "'zone'", "line 2"]),
    (REEDS, "p2,41.0,-76.0,PA,eastern", "p2,41.0,-76.0,PA,western", ["zones.csv: line 3", "'interconnect'", "line 2"]),
    ("zones.csv plants.csv", "p1,40.0,-76.0", "p1,140.0,104.0", ["zones.csv: line 2", "'lat'", "from -90 to 90"]),
    (REEDS, "p2,p3,B2B", "p2,p9,B2B", ["interfaces.csv: line 4", "'to'", "'p9'"]),
    (REEDS, "p2,p3,B2B", "p2,p2,B2B", ["interfaces.csv: line 4", "'to'", "comes from"]),
    ("bus.csv branch.csv", "0.084,400", "0.084,0", ["without a rating"]),
    (REEDS, "500,400", "500,-4", ["interfaces.csv: line 2", "'mw_reverse'", "'-4'"]),
])  # fmt: skip
def test_malformed_files_are_refused(tmp_path: Path, names: str, old: str, new: str, words: list[str]) -> None:
    """Files with a text in place of another: file, line, column and value are named."""
    files = put(tmp_path, names, old, new)
    positions = next((f for f in files if f.name == "positions.csv"), None)
    options = GridOptions(positions=positions, at=None if positions else "40,-75")
    with pytest.raises(InputError) as caught:
        import_grid([f for f in files if f != positions], "auto", options)
    assert all(w in str(caught.value) for w in words), str(caught.value)


@each(("names", "kind", "words"), [
    ("case4.m", "auto", ["no positions", "--positions", "--at", "4 buses"]),
    ("case4.m bus.csv", "auto", ["case4.m: a MATPOWER case is imported alone (", "bus.csv is given too); give it"]),
    ("case4.m", "reeds", ["is imported alone (--format reeds is of other files); give it"]),
    ("plants.csv peaks.csv", "matpower", ["plants.csv: ", "is imported alone (", "peaks.csv is given too); give it"]),
    ("branch.csv gen.csv", "auto", ["alone makes no grid"]),
    ("bus.csv zones.csv", "auto", ["table of zones", "rts-gmlc does not use"]),
    ("zones.csv", "eia-860", ["needs a table of plants"]), ("zones.csv peaks.csv", "auto", ["plant list"]),
    ("positions.csv", "auto", ["no known format", "bus, lat, lon"]),
    ("zones.csv", "ieee", ["--format ieee", "matpower"]),
])  # fmt: skip
def test_files_that_do_not_go_together(tmp_path: Path, names: str, kind: str, words: list[str]) -> None:
    """Files of no format, of two, or without what a format needs, are refused."""
    with pytest.raises(InputError) as caught:
        import_grid(put(tmp_path, names), kind, GridOptions())
    assert all(w in str(caught.value) for w in words), str(caught.value)
