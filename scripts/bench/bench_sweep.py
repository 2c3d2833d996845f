"""Time a sweep against separate solves of its points, and two workers against one; objectives must be identical.

    .venv/bin/python scripts/bench/bench_sweep.py [POINTS] [--first USD] [--every N]
    .venv/bin/python scripts/bench/bench_sweep.py --workers

`--every N` solves only each N-th point separately, and counts its time N times. Separate solves are processes of their
own, as are workers. Wall times depend on what else the machine does: CPU time, which hardly does, stands beside them.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import planner
from planner.sweeps.row_store import Row

ROOT = Path(__file__).parents[2]
INSTANCE = ROOT / "instances" / "5gw.json"
PATH = "limits.budget_usd"
STEP_USD = 1.8e9  # that of 100 points from $20B to $200B


def timed(work: Callable[[], dict[float, float]]) -> tuple[float, float, dict[float, float]]:
    """Return wall seconds, CPU seconds of this process's children, and what the work returns."""
    wall, cpu = time.perf_counter(), children_seconds()
    values = work()
    return time.perf_counter() - wall, children_seconds() - cpu, values


def children_seconds() -> float:
    """Return the CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def separate(budgets: list[float]) -> dict[float, float]:
    """Solve each point in a process of its own."""
    code = (
        f"import json, sys, planner; d = json.load(open({str(INSTANCE)!r})); "
        "d['limits']['budget_usd'] = float(sys.argv[1]); print(planner.solve(d, threads=1).objective.value)"
    )
    values = {}
    for b in budgets:
        command = [sys.executable, "-c", code, str(b)]
        values[b] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return values


def swept(budgets: list[float], workers: int) -> dict[float, float]:
    """Solve all points as a sweep."""
    return {r.point[PATH]: value(r) for r in planner.sweep(INSTANCE, {PATH: budgets}, workers=workers)}


def value(row: Row) -> float:
    """Return the objective of a row that has one."""
    if row.objective is None or row.objective.value is None:
        raise SystemExit(f"{row.point}: {row.status}: {row.reason}")
    return row.objective.value


def load() -> str:
    """Say what else the machine does."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main() -> None:
    """Print the times, their ratios and whether the objectives are the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=int, nargs="?", default=6)
    parser.add_argument("--first", type=float, default=90e9, help="smallest budget")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--workers", action="store_true", help="two workers against one")
    asked = parser.parse_args()
    if asked.workers:
        one, two = (timed(partial(many, n)) for n in (1, 2))
        times = f"one worker {one[0]:.1f} s, two {two[0]:.1f} s: {one[0] / two[0]:.2f} times as fast"
        print(f"{times}; CPU {one[1]:.1f} and {two[1]:.1f} s; {load()}")
        return
    budgets = [asked.first + k * STEP_USD for k in range(asked.points)]
    some = budgets[asked.every // 2 :: asked.every]
    print(f"{len(budgets)} budgets from ${budgets[0] / 1e9:g}B to ${budgets[-1] / 1e9:g}B; {load()}")
    wall, cpu, values = timed(lambda: swept(budgets, 1))
    print(f"sweep, one worker: {wall:.1f} s, CPU {cpu:.1f} s; {load()}", flush=True)
    wall_alone, cpu_alone, alone = timed(lambda: separate(some))
    wall_alone, cpu_alone = (x * len(budgets) / len(some) for x in (wall_alone, cpu_alone))
    how = "" if len(some) == len(budgets) else f" (from {len(some)} of them)"
    print(f"separate solves:   {wall_alone:.1f} s, CPU {cpu_alone:.1f} s{how}; {load()}")
    same = {b: values[b] == alone[b] for b in some}
    identical = f"objectives identical at {sum(same.values())} of {len(same)} points"
    print(f"ratio {wall / wall_alone:.2f}, CPU {cpu / cpu_alone:.2f}; {identical}")
    for b in some:
        print(f"  ${b / 1e9:g}B: {values[b]!r} {alone[b]!r}")


def many(workers: int) -> dict[float, float]:
    """Solve many points that cost alike: a layout question that hardly changes with its batch."""
    batches = [4e6 + 8192 * 9 * k for k in range(240)]
    vary: dict[str, list[Any]] = {
        "limits.max_batch_tokens": batches,
        "layout.tensor_parallel": [8],
        "layout.pipeline_parallel": [1],
        "layout.zero_stage": [1],
    }
    rows = planner.sweep(ROOT / "instances" / "one-rack.json", vary, workers=workers)
    return {r.point["limits.max_batch_tokens"]: value(r) for r in rows}


if __name__ == "__main__":
    main()
