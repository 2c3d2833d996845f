"""Commands and programs of the documentation run inside the test's own process, as tests/helpers/commands.py does."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import documentation
from commands import run_here
from stored_plans import SOLVED, file_of

from planner.instance.instance import Instance, instance_sha256
from planner.models import Options
from planner.plan.plan import Plan
from planner.plan.plan_files import read_plan
from planner.planning import solve
from planner.planning.solve import solve_instance

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
