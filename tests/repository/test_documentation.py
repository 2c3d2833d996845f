"""The documentation: its commands run and print what it says, its files and links are there, terms are current."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import documentation
import make_architecture
import make_reference as references
import pytest
from each_case import each
from page_commands import require_known_commands, run_block, run_page_command
from slurm_controller import controller, why_not

from planner.cli.plan_commands import kept_types
from planner.cluster import expand, fold_names
from planner.formats.cluster_files import read_topology
from planner.formats.topologies import write_conf

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
        require_known_commands(block, there)
        if "slow" not in block.words:
            run_block(block, tmp_path, here=run_page_command)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_links_and_paths_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in LINK.findall(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), f"{page}: {target}"
        assert not anchor or anchor[1:] in headings(file.read_text()), f"{page}: {target}{anchor}"
    named = re.findall(r"`((?:planner|tests|scripts)/[\w./]*(?:/|\.\w+))`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", sorted(references.TEXTS))
def test_references_are_current(page: str) -> None:
    """The pages of keys, commands and public names are what schemas, help and docstrings say, of all kinds of file."""
    assert (ROOT / "docs" / f"{page}.md").read_text() == references.TEXTS[page]()
    assert {what for roots in references.PAGES.values() for what in roots} == set(kept_types())


@each(("command", "told"), [
    ("planner solve instances/5gw.json -o new.json --time-limit 5 | grep LAYOUT", []),
    ("planner sovle instances/5gw.json", ["planner: has no command 'sovle'"]),
    ("planner fabric export a.json --form csv", ["planner fabric export: has no option --form"]),
    ("planner check b.json", ["b.json: there is no such file"]),
])  # fmt: skip
def test_a_wrong_command_is_told(command: str, told: list[str]) -> None:
    assert list(documentation.faults(command, {"a.json"})) == told


def test_stale_references_are_told(tmp_path, monkeypatch, capsys):
    """The script's check ends with 1 and names a page that is not current."""
    monkeypatch.setattr(references, "DOCS", tmp_path)
    monkeypatch.setattr("sys.argv", ["make_reference.py", "--check"])
    assert references.main() == 1
    assert "docs/plan.md is not current" in capsys.readouterr().out


def test_the_picture_of_the_layers_is_current() -> None:
    assert make_architecture.OUT.read_text(encoding="utf-8") == make_architecture.picture()


@each("what", sorted(kept_types()))
def test_every_key_is_described(what: str) -> None:
    """Every key of an instance, a plan, a job and a placement says what it is; 0 are empty."""
    schema = kept_types()[what].model_json_schema()
    kinds = {schema["title"]: schema, **schema.get("$defs", {})}
    keys = {f"{kind}.{key}": value for kind, d in kinds.items() for key, value in d.get("properties", {}).items()}
    assert len(keys) >= 10
    assert [key for key, value in keys.items() if len(value.get("description", "").strip()) < 3] == []


TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: (.+) \(`(\w+)`\)", TEXT, re.MULTILINE)
CODE = "\n".join(f.read_text(encoding="utf-8") for f in sorted((ROOT / "planner").rglob("*.py")))


def test_every_term_is_defined_once_and_stands_in_the_code() -> None:
    """Each line of a list is a term, its definition and its name in the code."""
    assert len(ENTRIES) == len(re.findall(r"^- ", TEXT, re.MULTILINE)) >= 50
    terms = [term.lower() for term, _, _ in ENTRIES]
    assert sorted(terms) == sorted(set(terms))
    words = set(re.findall("[a-z]+", CODE))
    left = [(term, name) for term, _, name in ENTRIES if name not in words]
    assert [term for term, name in left if not re.search(rf"(?<![a-z]){name}(?![a-z])", CODE)] == []


PAGE = (ROOT / "docs" / "placement-calls.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def ran(kind: str, script: str, folder: Path, path: str) -> str:
    """Return what a part of a block prints, which ends well."""
    done = run_page_command("python" if kind == "python" else "console", script, folder)
    if done is None:
        command = [sys.executable, "-c"] if kind == "python" else ["bash", "-e", "-c"]
        how = {"cwd": folder, "env": {**os.environ, "PATH": path}, "capture_output": True, "text": True}
        done = subprocess.run([*command, script], timeout=60, check=False, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def page(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[tuple[str, str]]]]:
    """Run the page from its beginning in one folder; return what each block printed beside the output shown."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "scripts").symlink_to(ROOT / "scripts")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found, services = [], list[int]()
    try:
        for (kind, text), (after, output) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
            if kind not in ("bash", "python"):
                continue
            script = text.replace("8765 &", "8765 > service.log 2>&1 & echo $! > service.pid")
            script = script.replace("8765", str(port))
            # A line by itself may run in this process; one that reads what follows it needs a shell.
            parts = [script] if "<<" in script or kind == "python" else script.splitlines()
            printed = "".join(ran(kind, part, folder, path) for part in parts)
            if (folder / "service.pid").exists():
                services = [int((folder / "service.pid").read_text())]
            if after == "text":
                found.append((printed, output))
        yield folder, found
    finally:
        for pid in services:
            os.kill(pid, 15)


@pytest.mark.slow
def test_every_command_prints_what_stands_there(page: tuple[Path, list[tuple[str, str]]]) -> None:
    assert [printed for printed, _ in page[1]] == [stands for _, stands in page[1]]
    assert len(page[1]) == sum(kind == "text" for kind, _ in BLOCKS)


@pytest.mark.slow
def test_slurm_asks_the_service(page: tuple[Path, list[tuple[str, str]]], port: int, tmp_path: Path) -> None:
    """A job without a node list gets the planner's nodes; one without a comment goes on; the service is informed."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = page[0]
    lua, prolog = (next(text for kind, text in BLOCKS if kind == k).replace("8765", str(port)) for k in ("lua", "sh"))
    topology = read_topology(folder / "topology.conf")
    names = [n for s in topology.switches for n in s.nodes]
    more = f"JobSubmitPlugins=lua\nPrologSlurmctld={tmp_path / 'run' / 'prolog.sh'}"
    taken = asked(port, "busy", [])["busy"]
    wanted = asked(port, "place", {"job": json.loads((folder / "job.json").read_text())})["nodes"]
    files = {"job_submit.lua": lua, "prolog.sh": prolog}
    with controller(tmp_path / "run", fold_names(names), write_conf(topology), files=files, more=more) as slurm:
        job = slurm.submit("--exclusive", "--comment", (folder / "job.json").read_text())
        assert sorted(expand(slurm.allocated(job))) == sorted(wanted)
        end = time.monotonic() + 20
        while asked(port, "busy", [])["busy"] == taken and time.monotonic() < end:
            time.sleep(0.1)
        assert asked(port, "busy", [])["busy"] == taken + len(wanted)
        plain = slurm.submit("-N2", "--exclusive")
        assert len(expand(slurm.allocated(plain))) == 2


def asked(port: int, path: str, data: object) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", json.dumps(data).encode(), timeout=20) as answer:
        return dict(json.load(answer))
