"""The structure of the package, read from its imports: arrows run down only, without circles, and folders and files stay small."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from banned_words import BANNED, words_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "planner"

# From the top. A module may import from the layers below its own, and from its own layer where that makes no circle.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("planner", "planner.__main__"),
    ("planner.cli", "planner.api"),
    ("planner.report", "planner.sweeps"),
    ("planner.planning", "planner.scheduling"),
    ("planner.imports", "planner.exports", "planner.formats"),
    ("planner.models", "planner.checks"),
    ("planner.solvers",),
    ("planner.simulation",),
    ("planner.physics",),
    ("planner.instance", "planner.plan", "planner.cluster", "planner.catalogue"),
    ("planner.errors", "planner.files", "planner.optional_packages", "planner.units", "planner.version"),
)
MOST_FILES = 14  # of a folder, __init__.py aside
MOST_LINES = 400  # of a file
ALLOWED: frozenset[tuple[str, str]] = frozenset()  # arrows that run up all the same; at most five


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
    """Return the modules of the package that each module imports; `import planner` inside a command is its public face."""
    return {
        name: frozenset(
            m
            for m in imported(ast.parse(file.read_text(encoding="utf-8")))
            if m in modules() and m not in ("planner", name)
        )
        for name, file in modules().items()
    }


def layer(module: str) -> int:
    """Return the layer of a module, counted from the top."""
    homes = [
        i
        for i, names in enumerate(LAYERS)
        for n in names
        if module == n or (n != "planner" and module.startswith(n + "."))
    ]
    assert homes, f"{module} stands in no layer: move it, or give its folder one"
    return homes[0]


def area(module: str) -> str:
    """Return the folder at the top of the package, or the file there, in which a module stands."""
    return ".".join(module.split(".")[:2])


def test_arrows_run_down() -> None:
    """No module imports from a layer above its own."""
    up = {(a, b) for a, found in arrows().items() for b in found if layer(b) < layer(a)}
    assert up - ALLOWED == set()
    assert up >= ALLOWED
    assert len(ALLOWED) <= 5


def test_no_circles() -> None:
    """Neither modules nor the folders at the top import each other in a circle."""
    files = nx.DiGraph([(a, b) for a, found in arrows().items() for b in found])
    folders = nx.DiGraph([(area(a), area(b)) for a, b in files.edges if area(a) != area(b)])
    assert list(nx.simple_cycles(files)) == []
    assert list(nx.simple_cycles(folders)) == []


def test_the_checker_knows_no_formulation() -> None:
    """The checker reaches neither formulations nor solvers, through whatever it imports."""
    reach = nx.DiGraph([(a, b) for a, found in arrows().items() for b in found])
    seen = {b for a in reach if a.startswith("planner.checks") for b in nx.descendants(reach, a)}
    assert {m for m in seen if m.startswith(("planner.models", "planner.solvers"))} == set()


def test_folders_are_small() -> None:
    """A folder has so few files that a reader sees all of them at a glance."""
    counts = Counter(f.parent.relative_to(ROOT).as_posix() for f in modules().values() if f.name != "__init__.py")
    assert {folder: n for folder, n in counts.items() if n > MOST_FILES} == {}


def test_files_are_small() -> None:
    """A file has one purpose, and so few lines that it can be read in one go."""
    lines = {name: len(f.read_text(encoding="utf-8").splitlines()) for name, f in modules().items()}
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield every name that a file defines: modules, functions, classes, arguments, variables and fields."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@pytest.mark.parametrize("word", sorted(BANNED))
def test_banned_words(word: str) -> None:
    """Names use the field's words, not private ones."""
    found = defaultdict(set)
    for name, file in modules().items():
        for defined in [name.rsplit(".", 1)[-1], *names_in(ast.parse(file.read_text(encoding="utf-8")))]:
            if word in words_of(defined):
                found[name].add(defined)
    assert dict(found) == {}, f"write {BANNED[word]} in the place of {word!r}"


def test_every_area_says_what_it_is() -> None:
    """Each folder's docstring says what stands in it."""
    packages = [f for f in modules().values() if f.name == "__init__.py"]
    assert [name_of(f) for f in packages if not re.match(r'"""[A-Z]', f.read_text(encoding="utf-8"))] in (
        [],
        ["planner"],
    )
