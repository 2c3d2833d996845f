"""Plans that quick tests read in place of solving: tests/plans, one file for each instance.

Run `.venv/bin/python tests/helpers/stored_plans.py` where an instance of a test or an answer of the planner has
changed: it makes all of tests/plans anew, by running the tests that ask for stored plans, and replaces the files one by
one when these have ended, so that tests which run meanwhile find every plan whole. The slow tier solves each again and
compares.
"""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from planner.instance.instance import Instance, instance_sha256
from planner.plan.plan import Plan
from planner.plan.plan_files import read_plan
from planner.planning.load import load_instance

ROOT = Path(__file__).parents[2]
MAKE = "MAKE_STORED_PLANS"  # the folder in which plans are made anew
PLANS = Path(os.environ.get(MAKE) or ROOT / "tests" / "plans")
SLOW = False  # whether the test that runs is of the slow tier, which solves what no quick test reads
SOLVED: dict[str, Plan] = {}  # what the slow tier solved in this process, by the hash of the instance


def stored(instance: Any, pins: dict[str, Any] | None = None) -> Plan:
    """Return the plan of an instance, as `planner.solve` does, from its file in tests/plans."""
    asked = load_instance(instance, pins=pins)
    known, file = instance_sha256(asked), file_of(asked)
    if not file.exists():
        assert SLOW or MAKE in os.environ, f"{file} is not there; run tests/helpers/stored_plans.py to make it"
        import planner

        if known not in SOLVED:
            SOLVED[known] = planner.solve(asked)
        if SLOW:
            return SOLVED[known]
        _write(file, SOLVED[known])
    return _read(file)


def file_of(asked: Instance) -> Path:
    """Return where the plan of an instance is stored, if it is."""
    name = re.sub(r"[^a-z0-9]+", "-", asked.name.lower()).strip("-")
    return PLANS / f"{name}-{instance_sha256(asked)[:8]}.json"


@cache
def _read(file: Path) -> Plan:
    return read_plan(file)


def _write(file: Path, plan: Plan) -> None:
    """Write a plan whole, also where another process writes the same one."""
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(plan.model_dump_json(indent=1) + "\n", encoding="utf-8")
    part.replace(file)


def main() -> int:
    """Make every stored plan anew and return the exit code of the tests that ask for them."""
    texts = {f: f.read_text(encoding="utf-8") for f in sorted((ROOT / "tests").rglob("*.py"))}
    helpers = [f.stem for f, text in texts.items() if f.parent.name == "helpers" and " stored(" in text]
    asking = [f for f, text in texts.items() if any(f"from {x} import" in text for x in helpers)]
    tests = [f for f in asking if f.name.startswith("test_")]
    command = [sys.executable, "-m", "pytest", "--numprocesses", "auto"]
    with tempfile.TemporaryDirectory(dir=PLANS.parent, prefix=".plans-") as made:
        code = subprocess.run([*command, *tests], cwd=ROOT, env=os.environ | {MAKE: made}, check=False).returncode
        if code > 1:  # the tests did not run to their end
            return code
        kept = [file.replace(PLANS / file.name) for file in Path(made).glob("*.json")]
    for file in PLANS.glob("*.json"):
        if file not in kept:
            file.unlink()
    return code


if __name__ == "__main__":
    sys.exit(main())
