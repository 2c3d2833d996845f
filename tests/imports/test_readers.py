"""Each format becomes a grid: figures as the file has them, and a word about all that it does not say."""

import json
from pathlib import Path

import pytest
from import_cases import CASE, imported, put

from planner.errors import InputError
from planner.imports.grid_tables import GridOptions
from planner.imports.read_grid import import_grid, part, text
from planner.instance.grid import Grid

SETS = {
    "matpower": "case4.m",
    "rts-gmlc": "bus.csv branch.csv gen.csv",
    "eia-860": "plants.csv peaks.csv",
    "reeds": "zones.csv interfaces.csv plants.csv peaks.csv",
}


@pytest.mark.parametrize("kind", SETS)
def test_round_trip(tmp_path: Path, kind: str) -> None:
    """What is written reads back as the same grid; the format is recognised; source and note are there."""
    options = {"at": (40.0, -75.0)} if kind == "matpower" else {}
    named = imported(tmp_path, SETS[kind], kind=kind, **options)
    result = imported(tmp_path, SETS[kind], **options)
    assert result == named
    assert Grid.model_validate(json.loads(text({"grid": part(result.grid)}))["grid"]) == result.grid
    assert result.grid.source
    assert result.grid.note


@pytest.mark.parametrize("kind", SETS)
def test_order_of_files_does_not_matter(tmp_path: Path, kind: str) -> None:
    options = {"at": (40.0, -75.0)} if kind == "matpower" else {}
    back = " ".join(reversed(SETS[kind].split()))
    assert imported(tmp_path, back, **options) == imported(tmp_path, SETS[kind], **options)


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


def test_matpower_version_1(tmp_path: Path) -> None:
    old, head = tmp_path / "old.m", "function [baseMVA, bus, gen, branch] = case4"
    old.write_text(CASE.replace("function mpc = case4", head).replace("mpc.", ""))
    new = imported(tmp_path, "case4.m", at=(0.0, 0.0)).grid
    assert import_grid([old], "auto", GridOptions(at=(0.0, 0.0))).grid.lines == new.lines


def test_matpower_isolated_bus(tmp_path: Path) -> None:
    files = put(tmp_path, "case4.m", "; 4 1 7", "; 4 4 7")
    g = import_grid(files, "auto", GridOptions(at=(0.0, 0.0))).grid
    assert [n.id for n in g.nodes] == ["bus-1", "bus-2", "bus-3"]
    assert {end for x in g.lines for end in (x.a, x.b)} <= {n.id for n in g.nodes}


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
    """The two sheets of EIA-860: a title above the header, capacity by generator, the largest unit of each node."""
    plants = tmp_path / "plant.csv"
    plants.write_text(
        "2023 Form EIA-860 Data,,,,,,\n"
        "Utility ID,Plant Code,Plant Name,Latitude,Longitude,Balancing Authority Code,NERC Region\n"
        "7,1,Big,40,-76,PJM,RFC\n7,2,Near,40.1,-76,PJM,RFC\n7,3,Idle,45,-76,PJM,RFC\n"
    )
    units = tmp_path / "generator.csv"
    units.write_text("Plant Code,Generator ID,Nameplate Capacity (MW)\n1,A,600\n1,B,700\n2,A,900\n")
    g = import_grid([units, plants], "auto", GridOptions()).grid
    assert [(n.id, n.generation_mw, n.largest_unit_mw) for n in g.nodes] == [("big", 2200, 900), ("idle", 0, None)]


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


def test_only_sites_and_share(tmp_path: Path) -> None:
    """One authority can be kept alone, candidates limited to the largest nodes, and capacity taken in part."""
    g = imported(tmp_path, SETS["eia-860"], only=("PJM",), sites=1, spare_share=0.5).grid
    assert [(n.id, n.site, n.generation_mw) for n in g.nodes] == [("big-nuclear", True, 1450), ("far-coal", False, 500)]
    assert [b.id for b in g.balancing_authorities] == ["PJM"]
    with pytest.raises(InputError, match=r"--only PJN.*did you mean PJM"):
        imported(tmp_path, SETS["eia-860"], only=("PJN",))


def test_equal_names_get_ids_of_their_own(tmp_path: Path) -> None:
    """Nodes of plants of one name get the plant's id too, also where that makes another plant's name."""
    table = tmp_path / "plants.csv"
    table.write_text(
        "plant_id,name,lat,lon,capacity_mw,ba\n1,Beaver Dam,40,-76,9,A\n2,Beaver Dam 3,45,-76,8,A\n"
        "3,Beaver Dam,50,-76,7,A\n4,Beaver Dam,55,-76,6,A\n"
    )
    ids = [n.id for n in import_grid([table], "auto", GridOptions()).grid.nodes]
    assert ids == ["beaver-dam", "beaver-dam-3", "beaver-dam-3-3", "beaver-dam-4"]
