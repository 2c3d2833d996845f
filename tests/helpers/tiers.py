"""Which cases the quick tier leaves to the slow one.

Run `.venv/bin/python tests/helpers/tiers.py` on an idle machine where tests have changed: it measures every quick case
and writes `tests/slow_cases.txt`, the dear ones of each test. A test keeps its cheapest case if that is cheap enough.
With `more` it goes on from the file that is there.
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEAR = ROOT / "tests" / "slow_cases.txt"
ALL = "ALL_SEEDS"  # set by scripts/verify/all_seeds.py: cases beyond those of both tiers run too
MEASURE = "MEASURE_TIERS"  # names the file to which a run of all quick cases adds their processor seconds
ONE, FIRST = 0.4, 0.8  # processor seconds from which a case is dear, and from which the cheapest of its test is too


def slow(*cases: Any) -> list[Any]:
    """Return cases of a parameter as those of the slow tier; a tuple is one case of several parameters."""
    return [pytest.param(*(x if isinstance(x, tuple) else (x,)), marks=pytest.mark.slow) for x in cases]


def more(*cases: Any) -> list[Any]:
    """Return cases that find nothing which those of the tiers do not: none but in scripts/verify/all_seeds.py."""
    return slow(*cases) if ALL in os.environ else []


def dear_cases() -> frozenset[str]:
    return frozenset(DEAR.read_text(encoding="utf-8").splitlines()) if DEAR.exists() else frozenset()


def note(case: str, seconds: float) -> None:
    """Add the processor seconds of a case to the file of the measurement; processes may add at once."""
    with open(os.environ[MEASURE], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{seconds:.3f} {case}\n")


def chosen(seconds: Mapping[str, float]) -> list[str]:
    """Return the dear cases: all of a test but its cheapest from the one bound on, the cheapest from the other."""
    tests: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for case, cost in seconds.items():
        tests[case.partition("[")[0]].append((cost, case))
    ranked = (x for cases in tests.values() for x in enumerate(sorted(cases)))
    return sorted(case for rank, (cost, case) in ranked if cost > (ONE if rank else FIRST))


def measured() -> dict[str, float]:
    """Run the quick cases and return the processor seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seconds"
        command = [sys.executable, "-m", "pytest", "--numprocesses", "auto", "--dist", "worksteal"]
        subprocess.run(command, cwd=ROOT, env=os.environ | {MEASURE: str(file)}, check=False)
        lines = (line.partition(" ") for line in file.read_text(encoding="utf-8").splitlines())
        return {case: float(seconds) for seconds, _, case in lines}


def main() -> None:
    """Measure the quick cases and write the dear ones, until all are cheap: what one made, another then makes anew."""
    dear = set(dear_cases()) if sys.argv[1:] == ["more"] else set[str]()
    while True:
        DEAR.write_text("".join(f"{case}\n" for case in sorted(dear)), encoding="utf-8")
        seconds = measured()
        if max(seconds.values()) <= FIRST:
            return
        dear |= set(chosen(seconds))


if __name__ == "__main__":
    main()
