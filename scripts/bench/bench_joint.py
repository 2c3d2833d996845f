"""Measure the joint search: CPU seconds to the proof and to the first plan, and what a shared cache saves.

Run `.venv/bin/python scripts/bench/bench_joint.py [--sweep | --sites]`. It solves instances/cluster-1k.json and
5gw.json, 5gw again with 1 % more money in the same process, and with `--sweep` under 26 budgets from 50 to 200 billion
dollars. `--sites` solves two-sites-405b.json whole on up to three of four, four of six and six of eight small sites.
"""

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import planner
from planner.instance.instance import Instance
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import JointSolution
from planner.models.joint.solve_joint import solve_joint
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[2] / "instances"
SWEEP = [50e9 * 4 ** (k / 25) for k in range(26)]  # dollars
# Candidates of `--sites`: name, interconnection, latitude, longitude, dollars a MWh [m].
TOWNS = (
    ("abilene", "ercot", 32.45, -99.73, 40), ("new-albany", "eastern", 40.08, -82.81, 36),
    ("phoenix", "western", 33.4, -112.0, 38), ("atlanta", "eastern", 33.7, -84.4, 41),
    ("charlotte", "eastern", 35.2, -80.8, 39), ("cheyenne", "western", 41.1, -104.8, 33),
    ("omaha", "eastern", 41.2, -96.0, 31), ("quincy", "western", 47.2, -119.9, 30),
)  # fmt: skip
# The most sites that may open, and the MW of each candidate.
SMALL_SITES = (
    (3, (30, 28, 27, 26)),
    (4, (24, 23, 22, 21, 20, 19)),
    (6, (16, 15.5, 15, 14.5, 14, 13.5, 13, 12.5)),
)


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


def on_small_sites(most: int, mw: tuple[float, ...]) -> Instance:
    """Return two-sites-405b.json with candidates of few MW, each in an area of its own."""
    data = load_instance(INSTANCES / "two-sites-405b.json").model_dump(mode="json", exclude_none=True)
    towns = tuple(zip(TOWNS, mw, strict=False))
    data["grid"]["balancing_authorities"] = [
        {"id": f"area-{name}", "interconnection": area, "headroom_mw": own, "energy_usd_per_mwh": usd}
        for (name, area, _, _, usd), own in towns
    ]
    data["grid"]["nodes"] = [
        {"id": name, "balancing_authority": f"area-{name}", "latitude": lat, "longitude": lon}
        | dict.fromkeys(("generation_mw", "interconnect_mw"), own)
        for (name, _, lat, lon, _), own in towns
    ]
    data["grid"]["rules"]["max_sites"] = most
    return load_instance(data)


def solve_on_small_sites() -> None:
    """Print days, capital and CPU seconds of whole solves over several small sites."""
    for most, mw in SMALL_SITES:
        started = time.process_time()
        plan = planner.solve(on_small_sites(most, mw))
        seconds, opened = time.process_time() - started, len(plan.sites.sites) if plan.sites else 0
        days, usd = plan.objective.value or math.nan, plan.cost.total_usd if plan.cost else math.nan
        figures = f"{plan.status:10} {days:9,.3f} days, ${usd / 1e9:,.4f}B, {opened} open"
        print(f"up to {most} of {len(mw)} sites  {figures} {seconds:7.2f} CPU-s", flush=True)


def line(name: str, r: Run) -> str:
    """Return a line of the report."""
    s = r.solution
    days = "-" if s.days is None else f"{s.days:,.3f}"
    return f"{name:24} {s.status:10} {days:>12} days {r.seconds:7.2f} CPU-s, first plan at {r.first:5.2f}"


def main() -> None:
    """Print the figures."""
    if "--sites" in sys.argv:
        solve_on_small_sites()
        return
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
