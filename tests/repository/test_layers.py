"""The structure of the package, and which cases of its tests are left to the slow tier."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import networkx as nx
from layers import area, arrows, layer, modules
from tiers import FIRST, ONE, chosen

MAX_LINES = 600  # of a file

# Words that names in the package avoid, and what to write instead.
BANNED = {
    "again": "recompute", "bare": "without, and the noun that is missing", "beyond": "tolerance",
    "border": "WAN gateway", "borders": "WAN gateways", "calm": "the slowdown that is meant", "floors": "lower bounds",
    "hair": "EPS", "handoff": "requests", "held": "incumbent, solution, or the noun that is meant",
    "pace": "strategy, or the seconds that are meant", "paces": "strategies", "said": "reported",
    "settled": "known, or what is done", "stands": "report, or the verb that is meant", "story": "summary",
    "tells": "returns", "told": "reported, stated", "vector": "elementwise",
}  # fmt: skip


def test_arrows_run_down_and_none_in_a_circle() -> None:
    """No file imports one of a layer above, and the checker reaches no formulation."""
    assert {(a, b) for a, targets in arrows().items() for b in targets if layer(b) < layer(a)} == set()
    files = nx.DiGraph([(a, b) for a, targets in arrows().items() for b in targets])
    folders = nx.DiGraph([(area(a), area(b)) for a, b in files.edges if area(a) != area(b)])
    assert list(nx.simple_cycles(files)) == list(nx.simple_cycles(folders)) == []
    reached = {b for a in files if a.startswith("planner.checks") for b in nx.descendants(files, a)}
    assert {m for m in reached if m.startswith(("planner.models", "planner.solvers"))} == set()


def test_files_are_small() -> None:
    lines = {name: len(f.read_text(encoding="utf-8").splitlines()) for name, f in modules().items()}
    assert {name: n for name, n in lines.items() if n > MAX_LINES} == {}


def defined_names(tree: ast.AST) -> Iterator[str]:
    """Yield every name that a file defines: functions, classes, arguments, variables and fields."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def words_of(name: str) -> list[str]:
    """Split a name in snake case or camel case into its words, in lower case."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def test_class_names_are_unique() -> None:
    texts = (f.read_text(encoding="utf-8") for f in modules().values())  # to parse all files takes seconds
    counts = Counter(name for text in texts for name in re.findall(r"^ *class (\w+)[(:]", text, re.MULTILINE))
    assert len(counts) > 100
    assert {name: n for name, n in counts.items() if n > 1} == {}


def test_banned_words() -> None:
    remedies, outside_code = [], re.compile(r'""".*?"""|"[^"\n]*"|#[^\n]*', re.DOTALL)
    words = "|".join(BANNED)
    banned = re.compile(f"(?<![a-z])(?i:{words})|{words.title()}")
    for module, file in modules().items():
        text, names = file.read_text(encoding="utf-8"), {module.rsplit(".", 1)[-1]}
        if banned.search(outside_code.sub("", text)):  # to parse all files takes seconds
            names |= {*defined_names(ast.parse(text))}
        used = [(name, word) for name in sorted(names) for word in sorted(BANNED.keys() & set(words_of(name)))]
        remedies += [f"{module}: {name}: write {BANNED[word]} in place of {word!r}" for name, word in used]
    assert remedies == []


def test_every_folder_says_what_it_holds() -> None:
    packages = {name: f.read_text(encoding="utf-8") for name, f in modules().items() if f.name == "__init__.py"}
    sentences = {name: (ast.get_docstring(ast.parse(text)) or "").splitlines()[:1] for name, text in packages.items()}
    assert [name for name, first in sentences.items() if not first or not first[0].endswith(".")] == []
    assert len({first[0] for first in sentences.values()}) == len(sentences)


def test_a_test_keeps_its_cheapest_case() -> None:
    seconds = {"a[1]": FIRST, "a[2]": FIRST + 1, "a[3]": ONE, "b": FIRST + 0.1, "c": FIRST, "d[1]": 0.1, "d[2]": 0.2}
    assert chosen(seconds) == ["a[1]", "a[2]", "b"]
