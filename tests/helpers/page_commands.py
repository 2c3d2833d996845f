"""Commands and programs of the documentation run inside the test's own process, as tests/helpers/commands.py does."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from commands import run_here

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


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder, at the width that pages have."""
    with contextlib.chdir(folder), mock.patch.dict(os.environ, COLUMNS="120"):
        yield


def _program(text: str, folder: Path) -> CompletedProcess[str]:
    """Run a program of a page."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with _inside(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(compile(text, "page", "exec"), {"__name__": "page"})
        except BaseException:
            traceback.print_exc()
            status = 1
    return CompletedProcess([text], status, out.getvalue(), err.getvalue())
