"""Each grid format becomes a grid, and each malformed file is refused by file, line, column and value."""

import json
from pathlib import Path

import pytest
from each_case import each
from import_cases import CASE, imported, put

from planner.errors import InputError
from planner.imports.command_options import GridOptions
from planner.imports.grid_drafts import part, text
from planner.imports.read_grid import import_grid
from planner.instance.grid import Grid

RTS, REEDS = "bus.csv branch.csv gen.csv", "zones.csv interfaces.csv"
SETS = {
    "matpower": "case4.m",
    "rts-gmlc": RTS,
    "eia-860": "plants.csv peaks.csv",
    "reeds": f"{REEDS} plants.csv peaks.csv",
}


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
    assert [(n.id, n.latitude, n.longitude, n.generation_mw, n.largest_unit_mw) for n in g.nodes] == [
        ("bus-1", 40, -75, 300, 250),
        ("bus-2", 40.5, -75, 0, None),
        ("bus-3", 41, -75, 0, None),
        ("bus-4", 41, -76, 0, None),
    ]
    assert [(x.id, x.circuits, x.rating_mw, x.reactance_pu) for x in g.lines] == [
        ("bus-1--bus-2", 2, 250, 0.2),
        ("bus-1--bus-2#2", 1, 300, 0.4),
        ("bus-2--bus-3", 1, 100, pytest.approx(0.196)),
        ("bus-3--bus-4", 1, 100, -0.2),
    ]
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
    assert [(n.id, n.generation_mw, n.largest_unit_mw, n.note) for n in g.nodes] == [
        ("bus-101", 320, 300, "Abel, 138 kV"),
        ("bus-102", 0, None, "Adams, 138 kV"),
        ("bus-201", 55, 55, "Bates, 230 kV"),
    ]
    assert [(x.id, x.circuits, x.rating_mw, x.reactance_pu) for x in g.lines] == [
        ("bus-101--bus-102", 2, 175, 0.014),
        ("bus-101--bus-201", 1, 400, pytest.approx(0.0882)),
    ]
    assert {b.id: b.headroom_mw for b in g.balancing_authorities} == {"area-1": 170, "area-2": 35}


def test_plants(tmp_path: Path) -> None:
    """The largest plant absorbs those of its authority within the radius; one of another authority stays apart."""
    g = imported(tmp_path, SETS["eia-860"], headroom_share=0.1, energy_usd_per_mwh=30.0).grid
    assert [(n.id, n.balancing_authority, n.generation_mw) for n in g.nodes] == [
        ("big-nuclear", "PJM", 2900),
        ("far-coal", "PJM", 1000),
        ("desert-sun", "SRP", 400),
        ("next-door", "SRP", 30),
    ]
    assert [(b.id, b.interconnection, b.headroom_mw, b.energy_usd_per_mwh) for b in g.balancing_authorities] == [
        ("PJM", "eastern", 300, 30),
        ("SRP", "western", 10, 30),
    ]
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
    assert [(x.id, x.rating_mw, x.note) for x in g.lines] == [
        ("p1--p2", 400, None),
        ("p2--p3", 200, "B2B tie, controllable"),
    ]
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
    assert [
        (b.id, b.interconnection, b.headroom_mw, b.energy_usd_per_mwh, b.source)
        for b in result.grid.balancing_authorities
    ] == [("PJM", "north", 9915, 39, "Table 1"), ("SRP", "western", 10, 45, None)]
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


# Files, what is replaced, by what, and words of the message.
CASES = {
    "no number": ("case4.m", "0.98", "x.98", ["case4.m: line 23", "branch column 9 (TAP)", "'x.98'"]),
    "expression": ("case4.m", "mpc.baseMVA = 50", "mpc.baseMVA = 5*10", ["line 4", "baseMVA", "'5*10'"]),
    "base of zero": ("case4.m", "mpc.baseMVA = 50", "mpc.baseMVA = 0", ["baseMVA", "greater than 0"]),
    "no base": ("case4.m", "mpc.baseMVA = 50;", "", ["baseMVA is missing"]),
    "infinite": ("case4.m", "0.98", "Inf", ["line 23", "TAP", "finite"]),
    "short row": ("case4.m", "\t1\t72\t0\t300\t-300\t1\t100\t1\t50\t10;", "\t1\t72\t0\t300;",
     ["line 16", "'gen'", "4 values", "PMAX"]),
    "bus twice": ("case4.m", "\t2, 1, 100", "\t1, 1, 100", ["line 10", "BUS_I", "line 9", "is 1"]),
    "half a bus": ("case4.m", "\t2, 1, 100", "\t2.5, 1, 100", ["line 10", "BUS_I", "whole", "is 2.5"]),
    "unit nowhere": ("case4.m", "\t3\t0\t0\t300", "\t8\t0\t0\t300", ["line 17", "GEN_BUS", "is 8", "no bus"]),
    "branch nowhere": ("case4.m", "\t1\t4\t0.01", "\t1\t9\t0.01", ["line 25", "T_BUS", "is 9"]),
    "branch to itself": ("case4.m", "\t1\t4\t0.01", "\t1\t1\t0.01", ["line 25", "T_BUS", "comes from"]),
    "negative rating": ("case4.m", "-0.1\t0\t100", "-0.1\t0\t-100", ["line 24", "RATE_A", "is -100", "no limit"]),
    "computation": ("case4.m", "mpc.version = '2';", "mpc.bus(:, 3) = 2 * mpc.bus(:, 3);", ["line 3", "savecase"]),
    "loaded": ("case4.m", "mpc.version = '2';", "mpc = loadcase('case9');", ["line 3", "savecase"]),
    "never closed": ("case4.m", "115 1 1.1 0.9\n];", "115 1 1.1 0.9\n", ["line 8", "'bus'"]),
    "never commented": ("case4.m", "%}\n", "", ["block comment"]),
    "no table": ("case4.m", "mpc.gen = [", "mpc.other = [", ["no table mpc.gen"]),
    "table twice": ("case4.m", "mpc.gencost", "mpc.bus", ["line 27", "'bus'", "twice"]),
    "after the table": ("case4.m", "115 1 1.1 0.9\n];", "115 1 1.1 0.9\n]';", ["line 13", "not understood"]),
    "position": ("case4.m positions.csv", "40.5", "north", ["positions.csv: line 3", "'lat'", "'north'"]),
    "position out of range": ("case4.m positions.csv", "40.5,-75", "40.5,-275",
     ["line 3", "'lon'", "from -180 to 180", "'-275'"]),
    "position twice": ("case4.m positions.csv", "2,40.5", "1,40.5", ["line 3", "'bus'", "twice"]),
    "position missing": ("case4.m positions.csv", "4,41,-76\n", "", ["positions.csv", "1 buses", "(4)", "--at"]),
    "rts load": (RTS, "138,100,1", "138,much,1", ["bus.csv: line 2", "'MW Load'", "'much'"]),
    "rts place": (RTS, "34.0,-114.0", ",-114.0", ["bus.csv: line 4", "'lat'", "''"]),
    "rts bus twice": (RTS, "102,Adams", "101,Adams", ["bus.csv: line 3", "'Bus ID'", "line 2"]),
    "rts branch nowhere": (RTS, "B1,101,201", "B1,101,999", ["branch.csv: line 4", "'To Bus'", "'999'"]),
    "rts branch to itself": (RTS, "B1,101,201", "B1,101,101", ["branch.csv: line 4", "'To Bus'", "comes from"]),
    "rts unit nowhere": (RTS, "201_A,201", "201_A,202", ["gen.csv: line 4", "'Bus ID'", "'202'"]),
    "rts negative unit": (RTS, "101_A,101,20", "101_A,101,-20",
     ["gen.csv: line 2", "'PMax MW'", "at least 0", "'-20'"]),
    "rts column": (RTS, "Cont Rating", "Cont. Rating",
     ["branch.csv", "'Cont Rating' is missing", "is it 'Cont. Rating'"]),
    "more cells": (RTS, "B1,101,201", "B1,101,,201", ["branch.csv: line 4", "7 cells", "has 6"]),
    "column twice": (RTS, "BaseKV,MW Load", "MW Load,MW Load", ["bus.csv: line 1", "'MW Load'", "twice"]),
    "quotes": ("plants.csv", '"Near, Gas",', '"Near, Gas"x,', ["plants.csv: line 3", "quotes"]),
    "plant twice": ("plants.csv", "3,Far", "1,Far", ["plants.csv: line 4", "'eia_plant_id'", "line 2"]),
    "plant capacity": ("plants.csv", "-76.00,2000", "-76.00,nan", ["plants.csv: line 2", "'capacity_mw'", "'nan'"]),
    "plant without a name": ("plants.csv", "Far Coal", "", ["plants.csv: line 4", "'name'", "not be empty"]),
    "plant latitude": ("plants.csv", "41.00", "410", ["plants.csv: line 4", "'lat'", "from -90 to 90", "'410'"]),
    "peak": ("plants.csv peaks.csv", "SRP,100", "SRP,-1", ["peaks.csv: line 3", "at least 0", "'-1'"]),
    "peak twice": ("plants.csv peaks.csv", "SRP,100", "PJM,100", ["peaks.csv: line 3", "'ba'", "line 2"]),
    "zone twice": (REEDS, "p2,41.0", "p1,41.0", ["zones.csv: line 3", "'zone'", "line 2"]),
    "group in two areas": (REEDS, "p2,41.0,-76.0,PA,eastern", "p2,41.0,-76.0,PA,western",
     ["zones.csv: line 3", "'interconnect'", "line 2"]),
    "zone beyond a pole": (
        "zones.csv plants.csv", "p1,40.0,-76.0", "p1,140.0,104.0", ["zones.csv: line 2", "'lat'", "from -90 to 90"]),
    "interface nowhere": (REEDS, "p2,p3,B2B", "p2,p9,B2B", ["interfaces.csv: line 4", "'to'", "'p9'"]),
    "interface to itself": (REEDS, "p2,p3,B2B", "p2,p2,B2B", ["interfaces.csv: line 4", "'to'", "comes from"]),
    "no bound": ("bus.csv branch.csv", "0.084,400", "0.084,0", ["without a rating"]),
    "interface limit": (REEDS, "500,400", "500,-4", ["interfaces.csv: line 2", "'mw_reverse'", "'-4'"]),
}  # fmt: skip


@each("name", CASES)
def test_refused(tmp_path: Path, name: str) -> None:
    names, old, new, words = CASES[name]
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
