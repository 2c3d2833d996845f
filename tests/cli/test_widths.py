"""No command prints a line that is wider than the terminal, whichever width COLUMNS gives."""

import json
from pathlib import Path

import pytest
from each_case import each
from failing_plan import failing
from page_cases import infeasible, rich
from typer.testing import CliRunner
from worked_plan import LAYOUT, instance_with, small

from planner.cli.main import app
from planner.planning.session import Session

WIDTHS = [80, 120, 200]


def printed(width: int | None, *args: str, status: int = 0) -> str:
    """Return what a command prints at a width; None: into a pipe."""
    result = CliRunner().invoke(app, list(args), env={"COLUMNS": "" if width is None else str(width)})
    assert result.exit_code == status, result.output
    return str(result.stdout)


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an instance, and plans with every section."""
    path = tmp_path_factory.mktemp("widths")
    asked = instance_with(pins=LAYOUT).model_dump(mode="json", exclude_none=True)
    (path / "asked.json").write_text(json.dumps(asked))
    plans = {"small": small(), "rich": rich(), "none": infeasible(), "failing": failing("restart", "elastic")}
    for name, plan in plans.items():
        (path / f"{name}.json").write_text(plan.model_dump_json())
    return path


def test_solve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of two sites with fabric and fibre; tests/planning/test_explain.py looks at explanations."""
    monkeypatch.setattr(Session, "solve", lambda *_, **__: small())
    for width in WIDTHS:
        text = printed(width, "solve", str(folder / "asked.json"), "-q", status=4)
        assert widest(text) <= width and len(text.splitlines()) > 10


@each("width", WIDTHS)
def test_evaluate(width: int) -> None:
    """A layout given in full, with the constants behind each part."""
    pins = ["--pin", "tp=8", "--pin", "pp=1", "--pin", "dp=9"]
    text = CliRunner().invoke(app, ["evaluate", "one-rack", *pins], env={"COLUMNS": str(width)}).stdout
    assert widest(text) <= width and len(text.splitlines()) > 10
    whole = CliRunner().invoke(app, ["evaluate", "one-rack", *pins], env={"COLUMNS": ""}).stdout
    assert text.split() == whole.split()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["small", "rich", "none", "failing"])
def test_show(folder: Path, name: str, width: int) -> None:
    """Plans with every section; into a pipe their lines stay whole."""
    text, whole = (printed(w, "show", str(folder / f"{name}.json")) for w in (width, None))
    assert widest(text) <= width
    assert text.split()[:20] == whole.split()[:20]


@pytest.mark.parametrize("width", WIDTHS)
def test_compare(folder: Path, width: int) -> None:
    """Two plans, and four: those that have no room are counted, the best of all is named first."""
    small, rich = (str(folder / f"{n}.json") for n in ("small", "rich"))
    assert widest(printed(width, "compare", small, rich)) <= width
    four = [str(folder / f"{n}.json") for n in ("small", "rich", "failing", "none")]
    text = printed(width, "compare", *four)
    assert widest(text) <= width
    assert text.startswith("fewest days: ") and "least money: " in text.replace("\n", " ")
