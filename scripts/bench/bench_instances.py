"""Time what users wait for: the command's help, and whole solves in fresh processes, with their peak memory.

Run it as `.venv/bin/python scripts/bench/bench_instances.py [RUNS]`. Wall times depend on the machine: compare them
only with each other.
"""

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLANNER = Path(sys.executable).with_name("planner")
COMMANDS = (
    ["--help"],
    ["solve", "instances/one-rack.json", "-q"],
    ["solve", "instances/cluster-1k.json", "-q"],
    ["solve", "instances/5gw.json", "-q"],
    ["solve", "instances/5gw-50t.json", "-q"],
    ["solve", "instances/agache2024-100t.json", "-q"],
    ["solve", "instances/agache2024-50t.json", "-q"],
)


@dataclass(frozen=True)
class Timed:
    """What one run of a command took."""

    seconds: float
    peak_mb: float
    status: int


def timed(args: list[str]) -> Timed:
    """Run the command in a process of its own and take the kernel's word for its peak memory."""
    started = time.perf_counter()
    child = subprocess.Popen([str(PLANNER), *args], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    return Timed(
        seconds=time.perf_counter() - started, peak_mb=usage.ru_maxrss / 1e3, status=os.waitstatus_to_exitcode(status)
    )


def main() -> None:
    """Print a row a command: minimum, median and maximum seconds, and the largest peak memory."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'command':44} {'min s':>8} {'median s':>9} {'max s':>8} {'peak MB':>8} exit")
    for args in COMMANDS:
        measured = [timed(args) for _ in range(runs)]
        seconds = [t.seconds for t in measured]
        peak = max(t.peak_mb for t in measured)
        exits = ",".join(str(s) for s in sorted({t.status for t in measured}))
        spread = f"{min(seconds):8.2f} {statistics.median(seconds):9.2f} {max(seconds):8.2f}"
        print(f"{'planner ' + ' '.join(args):44} {spread} {peak:8.0f} {exits}")


if __name__ == "__main__":
    main()
