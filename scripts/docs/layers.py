"""The layers of the package and its imports, read by the test of the structure and by its picture."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "planner"
IMPORT = re.compile(r"^ *((?:from planner[\w.]* import (?:\([^)]*\)|[^\n]*))|import planner[^\n]*)", re.MULTILINE)

# From the top. A module may import from the layers below its own, and from its own layer where that makes no circle.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("planner", "planner.__main__"),
    ("planner.cli", "planner.api"),
    ("planner.report", "planner.serve", "planner.sweeps"),
    ("planner.planning", "planner.scheduling"),
    ("planner.imports", "planner.exports", "planner.formats", "planner.calibration"),
    ("planner.models", "planner.checks"),
    ("planner.solvers",),
    ("planner.simulation",),
    ("planner.physics",),
    ("planner.instance", "planner.plan", "planner.cluster", "planner.catalogue"),
    (
        *("planner.errors", "planner.files"),
        *("planner.argument_ranges", "planner.units", "planner.version"),
    ),
)


def name_of(file: Path) -> str:
    """Return the dotted name of a module."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package by name."""
    return {name_of(f): f for f in sorted(PACKAGE.rglob("*.py"))}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports, at the top, in functions and for types alike."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for a in node.names:
                whole = f"{node.module}.{a.name}"
                yield whole if whole in modules() else node.module


@cache
def arrows() -> dict[str, frozenset[str]]:
    """Return the modules that each module imports; `import planner` inside a command is the package's public face."""
    found = {}
    for name, file in modules().items():
        tree = ast.parse("\n".join(IMPORT.findall(file.read_text("utf-8"))))  # all of a file takes twenty times as long
        found[name] = frozenset(m for m in imported(tree) if m in modules() and m not in ("planner", name))
    return found


def layer(module: str) -> int:
    """Return the layer of a module, counted from the top.

    Raises
    ------
    LookupError
        The module stands in no layer.
    """
    for i, areas in enumerate(LAYERS):
        if any(module == a or (a != "planner" and module.startswith(f"{a}.")) for a in areas):
            return i
    raise LookupError(f"{module} stands in no layer: move it, or give its folder one")


def area(module: str) -> str:
    """Return the folder at the top of the package, or the file there, in which a module stands."""
    return ".".join(module.split(".")[:2])
