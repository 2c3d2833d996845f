"""The tours of four readers, followed from the page's own words outside the checkout, one with the wheel."""

import re
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import documentation
import pytest
from page_commands import require_known_commands, run_block, run_page_command

ROOT = Path(__file__).parents[2]
PAGE = "docs/tours.md"
# For a plan of one's own: 16 s were measured, a minute is meant, and other tests run beside.
FIRST_PLAN_SECONDS = 180.0
# What each reader is told at the end: a word of the output of each tour, in order.
ANSWERS = {
    "The capacity planner": (r"^mine: optimal$", r"Trains in \d+\.\d days", r"2 of 2 points"),
    "The network architect": (r"^cluster-1k: optimal$", r"FABRIC ", r"leaf racks", r"^part,where,count", r"SLOWDOWN"),
    "The ML-systems engineer": (r"^one-rack: your", r"^one-rack: optimal$", r"layout.tensor_parallel", r"torchrun"),
    "The cluster operator": (r"2 leaves of 8", r"moves free leaf1; optimal", r"^n\[01-05\]$", r"True \[\]"),
}
HEADING = re.compile(r"^## (?P<reader>[^:\n]*)", re.MULTILINE)


def tours() -> dict[str, list[documentation.Block]]:
    """Return the blocks of the page by the reader whose tour they are of."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    starts = [(m.start(), m["reader"]) for m in HEADING.finditer(text)]
    found: dict[str, list[documentation.Block]] = {reader: [] for _, reader in starts}
    for block in documentation.blocks(PAGE, text):
        reader = next(name for start, name in reversed(starts) if start < block.span[0])
        found[reader].append(block)
    return found


def test_each_reader_has_a_tour() -> None:
    """What the four readers type is there: commands as they are, files of theirs and none of the repository."""
    assert set(tours()) == set(ANSWERS)
    for blocks in tours().values():
        there: set[str] = set()
        for block in blocks:
            require_known_commands(block, there)
            assert not re.search(r"\b(?:instances|scripts|docs|tests)/", block.body), block.where
        assert sum(len(b.commands) for b in blocks if b.language == "console") >= 4


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a fresh environment that has the wheel, and of this one only what the wheel depends on."""
    folder = tmp_path_factory.mktemp("installed")
    wheels, home = folder / "wheels", folder / "venv"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(home)
    python = home / "bin" / "python"
    wheel = next(wheels.glob("*.whl"))
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True, cwd=folder)
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(asked, check=True, capture_output=True, text=True)
    # A line with a path adds the packages there behind the environment's own, and reads no .pth of theirs.
    (Path(own.stdout.strip()) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.slow
def test_the_package_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "import planner, sys; print(planner.__file__); print(sys.path)"
    block = documentation.Block(page=PAGE, line=0, language="python", body=code, words=(), span=(0, 0))
    file, path = documentation.run(block, tmp_path, str(installed))[0].printed
    assert Path(file).is_relative_to(installed.parents[1]) and str(ROOT) + "'" not in path


@pytest.mark.slow
@pytest.mark.parametrize("reader", ANSWERS)
def test_a_tour_is_followed_to_its_answer(reader: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Every command ends as the page says, stable ones print what it prints, and the reader has the answers."""
    # The first commands lead to a proven plan of one's own two sites.
    with_wheel = reader == "The ML-systems engineer"
    how = {"python": str(request.getfixturevalue("installed"))} if with_wheel else {"here": run_page_command}
    printed: list[str] = []
    for number, block in enumerate(tours()[reader]):
        began = time.monotonic()
        printed += run_block(block, tmp_path, **how)
        if number == 0 and reader == next(iter(ANSWERS)):
            assert time.monotonic() - began < FIRST_PLAN_SECONDS
    for answer in ANSWERS[reader]:
        assert any(re.search(answer, line) for line in printed), answer
