"""The documentation: its commands run and print what it says, its files and links are there, terms are current."""

import contextlib
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import sysconfig
import time
import traceback
import urllib.request
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import documentation
import make_architecture
import make_reference as references
import pytest
from commands import ROOT, run_here
from each_case import each
from slurm_controller import controller, why_not
from stored_plans import SOLVED, file_of

from planner.cli.plan_commands import kept_types
from planner.cluster.hostlists import expand, fold_names
from planner.formats.cluster_files import read_topology
from planner.formats.topologies import write_conf
from planner.instance.instance import Instance, instance_sha256
from planner.models import Options
from planner.models.joint.shapes import site_milp
from planner.plan.plan import Plan
from planner.plan.plan_files import read_plan
from planner.planning import solve
from planner.planning.solve import solve_instance

# Commands and programs run inside the test's own process, as tests/helpers/commands.py does.
OF_A_SHELL = re.compile(r"[;&<>`$*]")  # what a shell does more than to start a command and hand its output on
PIPED = re.compile(r"((?:[^|'\"]|\"[^\"]*\"|'[^']*')*)\|?(.*)", re.DOTALL)  # a command, and what reads it
OWN_PROCESSES = "Executor", "__main__"  # of programs whose functions other processes load


def run_page_command(language: str, command: str, folder: Path) -> CompletedProcess[str] | None:
    """Run a program, or a command of `planner` and what reads its output; None for what asks more of a shell."""
    if language == "python":
        return None if any(word in command for word in OWN_PROCESSES) else _program(command, folder)
    found = PIPED.fullmatch(command.replace("\\\n", " "))
    first, rest = found.groups() if found else (command, "")
    words = [] if found is None or OF_A_SHELL.search(first) else shlex.split(first)
    if words[:1] != ["planner"]:
        return None
    with _inside(folder):
        ran = run_here(*words[1:])
    if not rest:
        return ran
    shell = ["bash", "-o", "pipefail", "-c", rest]
    read = subprocess.run(shell, input=ran.stdout, capture_output=True, text=True, cwd=folder, check=False)
    return CompletedProcess(words, read.returncode or ran.returncode, read.stdout, ran.stderr + read.stderr)


def require_known_commands(block: documentation.Block, there: set[str]) -> None:
    """Require that the commands of a page's block are as `planner` has them, of files that are `there` by then."""
    there.update([block.file] if block.file else ())
    for command, _ in block.commands if block.language == "console" else ():
        there.update(documentation.written(command))
        assert list(documentation.faults(command, there)) == [], f"{block.where}: {command}"


def run_block(block: documentation.Block, folder: Path, **how: Any) -> list[str]:
    """Run a page's block: its commands end as it says and print what is marked stable; return all that they print."""
    printed, ran = list[str](), documentation.run(block, folder, **how)
    for one, status in zip(ran, [0] * (len(ran) - 1) + [block.status], strict=bool(ran)):
        assert one.status == status, f"{block.where}: {one.command}\n{one.errors}"
        if "stable" in block.words:
            assert documentation.timeless(one.printed) == documentation.timeless(one.shown), (block.where, one.command)
        printed += one.printed
    return printed


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder, at the width that pages have, on plans that are stored or that a page before has solved."""
    width, solver = mock.patch.dict(os.environ, COLUMNS="120"), mock.patch.object(solve, "solve_instance", _plan)
    with contextlib.chdir(folder), width, solver:
        yield


def _plan(instance: Instance, options: Options, *others: Any, **how: Any) -> Plan:
    """Solve what asks for a gap or a seed, and any other instance once: tests compare stored plans with it.

    A limit of time that is not reached changes no plan.
    """
    if replace(options, time_limit=None) != Options():
        return solve_instance(instance, options, *others, **how)
    known, file = instance_sha256(instance), file_of(instance)
    if known not in SOLVED:
        plan = read_plan(file) if file.exists() else solve_instance(instance, options, *others, **how)
        if plan.stopped in ("limit", "interrupted"):
            return plan
        SOLVED[known] = plan
    return SOLVED[known]


def _program(text: str, folder: Path) -> CompletedProcess[str]:
    out, err, status = io.StringIO(), io.StringIO(), 0
    with _inside(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(compile(text, "page", "exec"), {"__name__": "page"})
        except BaseException:
            traceback.print_exc()
            status = 1
    return CompletedProcess([text], status, out.getvalue(), err.getvalue())


TOURS = "docs/tours.md"
# What each reader is told at the end: a word of the output of each tour, in order.
ANSWERS = {
    "The capacity planner": (r"^mine: optimal$", r"Trains in \d+\.\d days", r"2 of 2 points"),
    "The network architect": (r"^cluster-1k: optimal$", r"FABRIC ", r"leaf racks", r"^part,where,count", r"SLOWDOWN"),
    "The ML-systems engineer": (r"^one-rack: your", r"^one-rack: optimal$", r"layout.tensor_parallel", r"torchrun"),
    "The cluster operator": (r"2 leaves of 8", r"moves free leaf1; optimal", r"^n\[01-05\]$", r"True \[\]"),
}


def tours() -> dict[str, list[documentation.Block]]:
    """Return the blocks of the page of tours by the reader whose tour they are of."""
    text, found = (ROOT / TOURS).read_text(encoding="utf-8"), dict[str, list[documentation.Block]]()
    for block in documentation.blocks(TOURS, text):
        *_, reader = re.findall(r"^## ([^:\n]*)", text[: block.span[0]], re.MULTILINE)
        found.setdefault(reader, []).append(block)
    return found


def test_each_reader_has_a_tour() -> None:
    """What the four readers type is there: commands as they are, files of theirs and none of the repository."""
    assert set(tours()) == set(ANSWERS)
    for blocks in tours().values():
        there: set[str] = set()
        for block in blocks:
            require_known_commands(block, there)
            assert not re.search(r"\b(?:instances|scripts|docs|tests)/", block.body), block.where


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a fresh environment that has the wheel, and of this one only what the wheel depends on."""
    folder = tmp_path_factory.mktemp("installed")
    wheels, home = folder / "wheels", folder / "venv"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(home)
    python, wheel = home / "bin" / "python", next(wheels.glob("*.whl"))
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True, cwd=folder)
    # A line with a path adds the packages there behind the environment's own, and reads no .pth of theirs.
    (own,) = home.glob("lib/*/site-packages")
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.slow
@pytest.mark.parametrize("reader", ANSWERS)
def test_a_tour_is_followed_to_its_answer(reader: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Commands end and print as the page says, and the reader has the answers; one tour has the wheel alone."""
    how: dict[str, Any] = {"here": run_page_command}
    if reader == "The ML-systems engineer":
        how = {"python": str(request.getfixturevalue("installed"))}
        where = replace(tours()[reader][0], language="python", body="import planner; print(planner.__file__)", words=())
        (file,) = run_block(where, tmp_path, **how)
        assert Path(file).is_relative_to(Path(how["python"]).parents[1])
    printed = [line for block in tours()[reader] for line in run_block(block, tmp_path, **how)]
    for answer in ANSWERS[reader]:
        assert any(re.search(answer, line) for line in printed), answer


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def headings(text: str) -> set[str]:
    """Return the anchors of a page's headings, as they are made on code hosts."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in found}


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in documentation.PAGES if p != TOURS])
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


def test_one_function_states_one_rule_of_the_sites() -> None:
    """The page of the joint optimum names the rules of the site MILP: each is a function that `stated` calls."""
    text = (ROOT / "docs" / "joint.md").read_text(encoding="utf-8")
    names = re.findall(r"`(\w+)`", text.partition("One function states one rule: ")[2].partition(". ")[0])
    assert len(names) == 6
    for name in names:
        assert callable(getattr(site_milp, name)) and name in site_milp.stated.__code__.co_names


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
