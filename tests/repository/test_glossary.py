"""The glossary: every term once, in order, and in the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: (.+) \(`(\w+)`\)", TEXT, re.MULTILINE)
CODE = "\n".join(f.read_text(encoding="utf-8") for f in sorted((ROOT / "planner").rglob("*.py")))


def test_every_entry_is_read() -> None:
    """Each line of a list is a term, its definition and its name in the code; no term is defined twice."""
    assert len(ENTRIES) == len(re.findall(r"^- ", TEXT, re.MULTILINE)) >= 50
    terms = [term.lower() for term, _, _ in ENTRIES]
    assert sorted(terms) == sorted(set(terms))


def test_each_term_stands_in_the_code() -> None:
    used = r"(?<![a-z]){0}(?![a-z])|_{0}\b|\b{0}_"
    assert [term for term, _, name in ENTRIES if not re.search(used.format(re.escape(name)), CODE)] == []
