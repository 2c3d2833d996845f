"""Measure the joint search: CPU seconds to the proof and to the first plan, and what a shared cache saves.

Run `.venv/bin/python scripts/bench/bench_joint.py [--sweep]`. It solves instances/cluster-1k.json and 5gw.json, 5gw
again with 1 % more money in the same process, and with `--sweep` under 26 budgets from 50 to 200 billion dollars.
"""

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from planner.instance.instance import Instance
from planner.models.joint.joint_world import JointCache, JointSolution
from planner.models.joint.solve_joint import Solving, solve_joint
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[2] / "instances"
SWEEP = [50e9 * 4 ** (k / 25) for k in range(26)]  # dollars


@dataclass(frozen=True, slots=True)
class Run:
    """A search with its CPU seconds, in all and until the first plan."""

    solution: JointSolution
    seconds: float
    first: float


def run(instance: Instance, cache: JointCache) -> Run:
    """Solve and measure."""
    started, firsts = time.process_time(), []

    def progress(line: str) -> None:
        if "TP" in line:
            firsts.append(time.process_time() - started)

    solution = solve_joint(instance, Solving(progress=progress, cache=cache))
    return Run(solution, time.process_time() - started, firsts[0] if firsts else math.nan)


def with_budget(instance: Instance, usd: float) -> Instance:
    """Return the instance under another budget."""
    return instance.replaced(limits__budget_usd=usd)


def line(name: str, r: Run) -> str:
    """Return a line of the report."""
    s = r.solution
    days = "-" if s.days is None else f"{s.days:,.3f}"
    return f"{name:24} {s.status:10} {days:>12} days {r.seconds:7.2f} CPU-s, first plan at {r.first:5.2f}"


def main() -> None:
    """Print the figures."""
    print(line("cluster-1k", run(load_instance(INSTANCES / "cluster-1k.json"), JointCache())))
    instance, cache = load_instance(INSTANCES / "5gw.json"), JointCache()
    first = run(instance, cache)
    print(line("5gw", first))
    budget = instance.limits.budget_usd or 0.0
    again = run(with_budget(instance, 1.01 * budget), cache)
    print(line("5gw, 1 % more money", again), f"({again.seconds / first.seconds:.0%} of the first)")
    if "--sweep" in sys.argv:
        cache, total = JointCache(), 0.0
        for usd in SWEEP:
            r = run(with_budget(instance, usd), cache)
            total += r.seconds
            print(line(f"5gw, ${usd / 1e9:,.1f}B", r), flush=True)
        print(f"{len(SWEEP)} budgets: {total:.1f} CPU-s")


if __name__ == "__main__":
    main()
