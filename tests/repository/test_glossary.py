"""The glossary: every term once, in order, and in the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: (.+) \(`(\w+)`\)", TEXT, re.MULTILINE)
CODE = "\n".join(f.read_text(encoding="utf-8") for f in sorted((ROOT / "planner").rglob("*.py")))


def test_every_entry_is_read() -> None:
    """Each line of a list is a term, its definition and its name in the code; no term is defined twice."""
    assert len(ENTRIES) == len(re.findall(r"^- ", TEXT, re.MULTILINE)) >= 50
    terms = [term.lower() for term, _, _ in ENTRIES]
    assert sorted(terms) == sorted(set(terms))


@pytest.mark.parametrize(("term", "name"), [(term, name) for term, _, name in ENTRIES])
def test_each_term_stands_in_the_code(term: str, name: str) -> None:
    """The name given for a term is a name in the package."""
    assert re.search(rf"(?<![a-z]){re.escape(name)}(?![a-z])|_{re.escape(name)}\b|\b{re.escape(name)}_", CODE), term
