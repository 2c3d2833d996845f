"""Each kind of malformed file is refused by file, line, column and value, with a remedy."""

from pathlib import Path

import pytest
from import_cases import put

from planner.errors import InputError
from planner.imports.grid_tables import GridOptions
from planner.imports.read_grid import import_grid

RTS = "bus.csv branch.csv gen.csv"
REEDS = "zones.csv interfaces.csv"

# Files, what is replaced, by what, and words of the message.
CASES = {
    "no number": ("case4.m", "0.98", "x.98", ["case4.m: line 23", "branch column 9 (TAP)", "'x.98'"]),
    "expression": ("case4.m", "mpc.baseMVA = 50", "mpc.baseMVA = 5*10", ["line 4", "baseMVA", "'5*10'"]),
    "base of zero": ("case4.m", "mpc.baseMVA = 50", "mpc.baseMVA = 0", ["baseMVA", "greater than 0"]),
    "no base": ("case4.m", "mpc.baseMVA = 50;", "", ["baseMVA is missing"]),
    "infinite": ("case4.m", "0.98", "Inf", ["line 23", "TAP", "finite"]),
    "short row": (
        "case4.m",
        "\t1\t72\t0\t300\t-300\t1\t100\t1\t50\t10;",
        "\t1\t72\t0\t300;",
        ["line 16", "'gen'", "4 values", "PMAX"],
    ),
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
    "position out of range": (
        "case4.m positions.csv",
        "40.5,-75",
        "40.5,-275",
        ["line 3", "'lon'", "from -180 to 180", "'-275'"],
    ),
    "position twice": ("case4.m positions.csv", "2,40.5", "1,40.5", ["line 3", "'bus'", "twice"]),
    "position missing": ("case4.m positions.csv", "4,41,-76\n", "", ["positions.csv", "1 buses", "(4)", "--at"]),
    "rts load": (RTS, "138,100,1", "138,much,1", ["bus.csv: line 2", "'MW Load'", "'much'"]),
    "rts place": (RTS, "34.0,-114.0", ",-114.0", ["bus.csv: line 4", "'lat'", "''"]),
    "rts bus twice": (RTS, "102,Adams", "101,Adams", ["bus.csv: line 3", "'Bus ID'", "line 2"]),
    "rts branch nowhere": (RTS, "B1,101,201", "B1,101,999", ["branch.csv: line 4", "'To Bus'", "'999'"]),
    "rts branch to itself": (RTS, "B1,101,201", "B1,101,101", ["branch.csv: line 4", "'To Bus'", "comes from"]),
    "rts unit nowhere": (RTS, "201_A,201", "201_A,202", ["gen.csv: line 4", "'Bus ID'", "'202'"]),
    "rts negative unit": (
        RTS,
        "101_A,101,20",
        "101_A,101,-20",
        ["gen.csv: line 2", "'PMax MW'", "at least 0", "'-20'"],
    ),
    "rts column": (
        RTS,
        "Cont Rating",
        "Cont. Rating",
        ["branch.csv", "'Cont Rating' is missing", "is it 'Cont. Rating'"],
    ),
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
    "group in two areas": (
        REEDS,
        "p2,41.0,-76.0,PA,eastern",
        "p2,41.0,-76.0,PA,western",
        ["zones.csv: line 3", "'interconnect'", "line 2"],
    ),
    "interface nowhere": (REEDS, "p2,p3,B2B", "p2,p9,B2B", ["interfaces.csv: line 4", "'to'", "'p9'"]),
    "interface to itself": (REEDS, "p2,p3,B2B", "p2,p2,B2B", ["interfaces.csv: line 4", "'to'", "comes from"]),
    "interface limit": (REEDS, "500,400", "500,-4", ["interfaces.csv: line 2", "'mw_reverse'", "'-4'"]),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(tmp_path: Path, name: str) -> None:
    names, old, new, words = CASES[name]
    files = put(tmp_path, names, old, new)
    positions = next((f for f in files if f.name == "positions.csv"), None)
    options = GridOptions(positions=positions, at=None if positions else (40.0, -75.0))
    with pytest.raises(InputError) as caught:
        import_grid([f for f in files if f != positions], "auto", options)
    assert all(w in str(caught.value) for w in words), str(caught.value)


def test_files_as_they_are_pass(tmp_path: Path) -> None:
    """The same files without a mistake are imported, so that each refusal above is for its mistake."""
    for names in {names for names, *_ in CASES.values()}:
        files = [f for f in put(tmp_path, names) if f.name != "positions.csv"]
        assert import_grid(files, "auto", GridOptions(at=(40.0, -75.0))).grid.nodes


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [
        ("case4.m", "auto", ["no positions", "--positions", "--at", "4 buses"]),
        ("case4.m bus.csv", "auto", ["is imported alone"]),
        ("case4.m", "reeds", ["is imported alone", "--format reeds"]),
        ("branch.csv gen.csv", "auto", ["alone makes no grid"]),
        ("bus.csv zones.csv", "auto", ["table of zones", "rts-gmlc does not use"]),
        ("zones.csv", "eia-860", ["needs a table of plants"]),
        ("zones.csv peaks.csv", "auto", ["plant list"]),
        ("positions.csv", "auto", ["no known format", "bus, lat, lon"]),
        ("zones.csv", "ieee", ["--format ieee", "matpower"]),
    ],
)
def test_files_that_do_not_go_together(tmp_path: Path, names: str, kind: str, words: list[str]) -> None:
    """Files of no format, of two, or without what a format needs, are refused."""
    with pytest.raises(InputError) as caught:
        import_grid(put(tmp_path, names), kind, GridOptions())
    assert all(w in str(caught.value) for w in words), str(caught.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("authority,headroom_mw\nPJN,5\n", ["line 2", "'PJN'", "did you mean 'PJM'"]),
        ("authority,headroom_mw\nPJM,5\nPJM,6\n", ["line 3", "twice"]),
        ("authority,headroom_mw\nPJM,-5\n", ["line 2", "'headroom_mw'", "'-5'"]),
        ("authority,colour\nPJM,red\n", ["none of", "headroom_mw"]),
        ("name,headroom_mw\nPJM,5\n", ["'authority'", "missing"]),
        ("", ["no header"]),
    ],
)
def test_table_of_authorities(tmp_path: Path, table: str, words: list[str]) -> None:
    """The user's own table is checked in the same way."""
    path = tmp_path / "authorities.csv"
    path.write_text(table)
    with pytest.raises(InputError) as caught:
        import_grid(put(tmp_path, "plants.csv"), "auto", GridOptions(authorities=path))
    assert all(w in str(caught.value) for w in ["authorities.csv", *words]), str(caught.value)


def test_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "plants.csv"
    with pytest.raises(InputError, match=r"plants\.csv: no such file"):
        import_grid([path], "auto", GridOptions())
    path.write_bytes(b"\xff\xfe\x00\x00")
    with pytest.raises(InputError, match=r"plants\.csv: cannot be read"):
        import_grid([path], "auto", GridOptions())


def test_no_bound_for_an_unlimited_branch(tmp_path: Path) -> None:
    files = put(tmp_path, "bus.csv branch.csv", "0.084,400", "0.084,0")
    with pytest.raises(InputError, match="without a rating"):
        import_grid(files, "auto", GridOptions())


def test_a_rating_below_a_kilowatt(tmp_path: Path) -> None:
    files = put(tmp_path, "case4.m", "-0.1\t0\t100", "-0.1\t0\t0.0002")
    found = import_grid(files, "auto", GridOptions(at=(40.0, -75.0)))
    assert 0.0002 in [x.rating_mw for x in found.grid.lines]
