"""The command line run inside the test's own process, without the seconds that a new one takes to load the solvers."""

import contextlib
import io
import sys
from pathlib import Path
from subprocess import CompletedProcess

from planner.cli.main import main


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
