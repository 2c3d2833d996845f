"""Run the tests that know more cases than both tiers take, with all their cases.

Run `.venv/bin/python scripts/verify/all_seeds.py [PYTEST ARGUMENTS]`: `-k NAME` picks some, `--numprocesses auto` takes
all cores. The cases left out of the tiers take too long for every change: run them before a release, and where a
formulation has changed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Files that name such cases, and those with tests over seeds or drawn cases, of which tests/conftest.py takes some.
KNOWS_MORE = re.compile(r"^from tiers import .*\bmore\b|parametrize\([^)]*\bseed\b|^@given", re.MULTILINE)


def files() -> list[str]:
    """Return the test files that may have cases beyond those of the tiers."""
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in every if KNOWS_MORE.search(f.read_text(encoding="utf-8"))]


def main() -> int:
    """Run them and return the exit code of pytest."""
    command = [sys.executable, "-m", "pytest", "-m", "slow or not slow", *files(), *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"ALL_SEEDS": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
