"""The command line run inside the test's own process, without the seconds that a new one takes to load the solvers.

Tests run it in a process of its own where signals, pipes or what a new process loads is the point.
"""

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from typer.testing import CliRunner, Result

from planner.cli.main import app, main
from planner.errors import InputError

ROOT = Path(__file__).parents[2]


def run_apart(*args: str | Path) -> CompletedProcess[str]:
    """Run a command in a process of its own, and return its status and what it printed."""
    command = [sys.executable, "-m", "planner", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def run_here(*args: str | Path) -> CompletedProcess[str]:
    """Run a command as `planner` would, and return its status and what it printed."""
    words, out, err = ["planner", *map(str, args)], io.StringIO(), io.StringIO()
    before, status = sys.argv, 0
    sys.argv = words
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before
    return CompletedProcess(words, status, out.getvalue(), err.getvalue())


def invoke(*words: str | Path, **how: Any) -> Result:
    """Run a command without what `planner` does around it; its exception, if any, is in the result."""
    return CliRunner().invoke(app, [str(word) for word in words], **how)


def refusal(result: Result) -> str:
    """Return the message with which an invoked command refused its input."""
    assert isinstance(result.exception, InputError), (result.exception, result.output)
    return str(result.exception)
