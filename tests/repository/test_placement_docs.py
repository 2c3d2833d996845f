"""docs/placement-calls.md: every command in it runs, and prints what stands there."""

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

import pytest
from page_commands import run_page_command
from slurm_controller import controller, why_not

from planner.cluster import expand, fold_names
from planner.formats.slurm import write_conf
from planner.formats.topology_files import read_topology

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

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


def test_every_command_prints_what_stands_there(page: tuple[Path, list[tuple[str, str]]]) -> None:
    assert [printed for printed, _ in page[1]] == [stands for _, stands in page[1]]
    assert len(page[1]) == sum(kind == "text" for kind, _ in BLOCKS)


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
