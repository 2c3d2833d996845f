"""Which tests run a line: what a planted bug is judged by first, since no other test can find it where it is run."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

NO_TESTS = 5  # pytest's exit code where none is chosen


@dataclass(frozen=True, slots=True)
class Covering:
    """The tests that run each line of the files of a copy of the checkout."""

    root: Path  # of the files as they are
    tests: dict[str, dict[int, frozenset[str]]]  # by file, as from the root, and line

    def of(self, file: Path, line: int) -> list[str]:
        """Return the tests that run the statement at a line, those of the file's own name first.

        A statement of a module or a class is run by whatever imports it first: there it is all tests of the file.
        """
        lines = self.tests.get(str(file), {})
        inside = statement(ast.parse((self.root / file).read_text(encoding="utf-8")), line)
        ran = {t for at, chosen in lines.items() if inside is None or at in inside for t in chosen}
        return sorted(ran, key=lambda t: (not t.split("::")[0].endswith(f"/test_{file.stem}.py"), t))


def statement(tree: ast.Module, line: int) -> range | None:
    """Return the lines of the innermost statement of a function that holds a line; None outside of all functions."""
    found = None
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            for node in statements(function.body if isinstance(function, ast.FunctionDef) else [function.body]):
                if line in node and (found is None or len(node) <= len(found)):
                    found = node
    return found


def statements(body: Iterable[ast.stmt | ast.expr]) -> Iterator[range]:
    """Yield the lines of each statement, of one with a body those of its head."""
    for node in body:
        inner = [x for x in ast.iter_child_nodes(node) if isinstance(x, ast.stmt)]
        for handler in (x for x in ast.iter_child_nodes(node) if isinstance(x, ast.ExceptHandler | ast.match_case)):
            inner += handler.body
        end = min((x.lineno for x in inner), default=(node.end_lineno or node.lineno) + 1)
        yield range(node.lineno, max(end, node.lineno + 1))
        yield from statements(inner)


def covering(copy: Path, root: Path, marked: str, chosen: list[str]) -> Covering | None:
    """Run the marked ones of tests in a copy of the checkout and return which lines each runs; None where one fails."""
    data = copy / ".coverage"
    data.unlink(missing_ok=True)
    ended = pytest_in(copy, "-m", marked, "--cov=planner", "--cov-context=test", "--cov-report=", *chosen)
    if ended not in (0, NO_TESTS):
        return None
    measured = CoverageData(basename=str(data))
    if data.exists():
        measured.read()
    found = {}
    for file in measured.measured_files():
        lines = measured.contexts_by_lineno(file).items()
        by_line = {at: frozenset(c.rsplit("|", 1)[0] for c in contexts if "::" in c) for at, contexts in lines}
        found[str(Path(file).relative_to(copy))] = by_line
    # Each must be found again by its name: one that is not would look like one that fails.
    names = sorted({t for by_line in found.values() for tests in by_line.values() for t in tests})
    if names and pytest_in(copy, "-m", marked, "--collect-only", named(copy, names)):
        return None
    return Covering(root, found)


def named(copy: Path, chosen: list[str]) -> str:
    """Write the names of tests to a file of a copy, a command having no room for thousands, and return its argument."""
    (copy / "chosen").write_text("\n".join(chosen), encoding="utf-8")
    return "@chosen"


def pytest_in(copy: Path, *arguments: str, seconds: float | None = None) -> int:
    """Run pytest in a copy of the checkout, to the first test that fails, and return its exit code; -1 out of time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return -1
    return done.returncode
