"""Every command that writes a file tries its path before the work."""

from pathlib import Path

from each_case import each
from typer.testing import CliRunner

from planner.cli.main import app
from planner.errors import InputError

NOWHERE = "no/such/folder"
COMMANDS = [
    ["solve", "instance.json", "-o", f"{NOWHERE}/plan.json"],
    ["evaluate", "instance.json", "-o", f"{NOWHERE}/prediction.json"],
    ["fabric", "export", "plan.json", "--format", "csv", "-o", f"{NOWHERE}/cables.csv"],
    ["fabric", "pareto", "plan.json", "-o", f"{NOWHERE}/designs.jsonl"],
    ["frontier", "instance.json", "-o", f"{NOWHERE}/rows.csv"],
    ["frontier", "instance.json", "--plot", f"{NOWHERE}/curve.svg"],
    ["grid", "import", "case.m", "-o", f"{NOWHERE}/grid.json"],
    ["grid", "import", "case.m", "--geojson", f"{NOWHERE}/grid.geojson"],
    ["limits", "instance.json", "-o", f"{NOWHERE}/points.jsonl"],
    ["limits", "instance.json", "--plot", f"{NOWHERE}/limits.svg"],
    ["place", "--topology", "topology.conf", "--job", "job.json", "-o", f"{NOWHERE}/hosts"],
    ["plot", "rows.jsonl", "-x", "a", "-y", "b", "-o", f"{NOWHERE}/plot.svg"],
    ["report", "plan.json", "-o", f"{NOWHERE}/page.html"],
    ["sweep", "instance.json", "--vary", "hardware.racks=1,2", "-o", f"{NOWHERE}/rows.csv"],
    ["topology", "topology.conf", "--format", "yaml", "-o", f"{NOWHERE}/topology.yaml"],
]


@each("command", COMMANDS)
def test_the_output_is_tried_before_the_input_is_read(command: list[str]) -> None:
    """The output is refused although the input does not exist either, so no work comes before it."""
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, InputError)
    assert "its folder does not exist" in str(result.exception)


def test_a_table_that_is_a_folder_is_refused_before_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").mkdir()
    command = ["sweep", "instance.json", "--vary", "hardware.racks=1,2", "-o", str(tmp_path / "rows.csv")]
    result = CliRunner().invoke(app, command)
    assert "is a folder" in str(result.exception)


@each("name", ["limits.pdf", "limits"])
def test_limits_refuses_a_picture_of_another_kind_before_the_study(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["limits", "instance.json", "--plot", str(tmp_path / name)])
    assert "must end in .svg or .png" in str(result.exception)
