"""The documentation: its commands run, its files and links are there, its references and terms are current."""

import re
from pathlib import Path

import documentation
import make_architecture
import make_reference as references
import pytest
from each_case import each
from page_commands import run_page_command

from planner.cli.schemas import SCHEMAS

ROOT = Path(__file__).parents[2]


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def headings(text: str) -> set[str]:
    """Return the anchors of a page's headings, as they are made on code hosts."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in found}


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in documentation.PAGES if p != "docs/tours.md"])  # followed in tests/tours
def test_commands_run(page: str, tmp_path: Path) -> None:
    """Every command of a page ends as it says and prints what is marked stable; slow ones are only parsed."""
    documentation.prepare(tmp_path)
    there: set[str] = set()
    for block in documentation.blocks(page, (ROOT / page).read_text()):
        there.update(p.name for p in tmp_path.iterdir())
        there.update([block.file] if block.file else ())
        for command, _ in block.commands if block.language == "console" else ():
            there.update(documentation.written(command))
            assert list(documentation.faults(command, there)) == [], f"{block.where}: {command}"
        if "slow" in block.words:
            continue
        ran = documentation.run(block, tmp_path, here=run_page_command)
        for r, status in zip(ran, [0] * (len(ran) - 1) + [block.status], strict=bool(ran)):
            assert r.status == status, f"{block.where}: {r.command}\n{r.errors}"
            if "stable" in block.words:
                assert documentation.timeless(r.printed) == documentation.timeless(r.shown), (
                    f"{block.where}: {r.command}"
                )


@pytest.mark.parametrize("page", documentation.PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in LINK.findall(re.sub(r"<!--.*?-->", "", (ROOT / page).read_text(), flags=re.DOTALL)):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), f"{page}: {target}"
        assert not anchor or anchor[1:] in headings(file.read_text()), f"{page}: {target}{anchor}"


@pytest.mark.parametrize("page", sorted(references.TEXTS))
def test_references_are_current(page: str) -> None:
    """The pages of keys, commands and public names are what schemas, help and docstrings say."""
    assert (ROOT / "docs" / f"{page}.md").read_text() == references.TEXTS[page]()


def test_references_cover_the_schemas() -> None:
    assert {what for roots in references.PAGES.values() for what in roots} == set(SCHEMAS)


@each(
    ("command", "told"),
    [
        ("planner solve instances/5gw.json -o new.json --time-limit 5 | grep LAYOUT", []),
        ("planner sovle instances/5gw.json", ["planner: has no command 'sovle'"]),
        ("planner fabric export a.json --form csv", ["planner fabric export: has no option --form"]),
        ("planner check b.json", ["b.json: there is no such file"]),
    ],
)
def test_a_wrong_command_is_told(command: str, told: list[str]) -> None:
    assert list(documentation.faults(command, {"a.json"})) == told


def test_stale_references_are_told(tmp_path, monkeypatch, capsys):
    """The script's check ends with 1 and names a page that is not current."""
    monkeypatch.setattr(references, "DOCS", tmp_path)
    monkeypatch.setattr("sys.argv", ["make_reference.py", "--check"])
    assert references.main() == 1
    assert "docs/plan.md is not current" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_paths_are_there(page: str) -> None:
    named = re.findall(r"`((?:planner|tests|scripts)/[\w./]*(?:/|\.\w+))`", (ROOT / page).read_text(encoding="utf-8"))
    assert [p for p in named if not (ROOT / p).exists()] == []


def test_the_picture_of_the_layers_is_current() -> None:
    assert make_architecture.OUT.read_text(encoding="utf-8") == make_architecture.picture()


@each("what", sorted(SCHEMAS))
def test_every_key_is_described(what: str) -> None:
    """Every key of an instance, a plan, a job and a placement says what it is; 0 are empty."""
    schema = SCHEMAS[what].model_json_schema()
    kinds = {schema["title"]: schema, **schema.get("$defs", {})}
    keys = {f"{kind}.{key}": value for kind, d in kinds.items() for key, value in d.get("properties", {}).items()}
    assert len(keys) >= 10
    assert [key for key, value in keys.items() if len(value.get("description", "").strip()) < 3] == []


TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: (.+) \(`(\w+)`\)", TEXT, re.MULTILINE)
CODE = "\n".join(f.read_text(encoding="utf-8") for f in sorted((ROOT / "planner").rglob("*.py")))


def test_every_entry_is_read() -> None:
    """Each line of a list is a term, its definition and its name in the code; no term is defined twice."""
    assert len(ENTRIES) == len(re.findall(r"^- ", TEXT, re.MULTILINE)) >= 50
    terms = [term.lower() for term, _, _ in ENTRIES]
    assert sorted(terms) == sorted(set(terms))


def test_each_term_stands_in_the_code() -> None:
    words = set(re.findall("[a-z]+", CODE))
    left = [(term, name) for term, _, name in ENTRIES if name not in words]
    assert [term for term, name in left if not re.search(rf"(?<![a-z]){name}(?![a-z])", CODE)] == []
