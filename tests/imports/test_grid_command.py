"""`planner grid import`: what it writes where, and how mistakes end."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import run_here
from import_cases import put

from planner.instance.grid import Grid
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


@pytest.mark.parametrize(
    ("names", "args", "words"),
    [
        ("case4.m", [], "--positions"),
        ("case4.m", ["--at", "north"], "--at north"),
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
    ],
)
def test_mistakes_end_in_a_message(tmp_path: Path, names: str, args: list[str], words: str) -> None:
    """A user's mistake ends in exit code 2 and a message, never in a traceback."""
    out = run(*put(tmp_path, names), *args)
    assert out.returncode == 2, out.stdout
    assert words in out.stderr
    assert "Traceback" not in out.stderr
