"""Count how many placements on nearly full clusters are proven: a seeded set by size, fullness and tiers.

Run `scripts/bench/bench_crowded.py`; `--limit` is the time of each call, `--each` the clusters by size and fullness.
"""

import argparse
import random
import time
from collections import Counter

from planner.models import Options
from planner.models.placement.place_job import solve
from planner.models.placement.placement_problem import Kind, Leaf, PlacementProblem, names

SIZES = (32, 64, 128, 256, 512)  # leaves
FULLNESS = (0.95, 0.98, 0.99, 1.0)


def crowded(seed: int, leaves: int, fullness: float) -> PlacementProblem:
    """Return leaves of 16 or 32 nodes, part busy, under pods of 8 or 16, and groups that take a share of these."""
    r = random.Random(f"{seed},{leaves},{fullness}")
    size, per_pod, tiers, busy = (
        r.choice([16, 32]),
        r.choice([8, 16]),
        r.choice([1, 1, 2]),
        r.choice([0.05, 0.15, 0.25]),
    )
    in_pods = []
    for i in range(leaves):
        free = sum(r.random() > busy for _ in range(size))
        in_pods.append(Leaf((i // per_pod, i // per_pod // 4)[:tiers], free, size))
    sizes = r.choice([(16, 13, 8, 4), (13,), (12, 9, 5), (8, 6), (16, 12, 8)])
    need = int(fullness * sum(leaf.free for leaf in in_pods))
    shares = [need // len(sizes) // g for g in sizes]
    shares[-1] += (need - sum(n * g for n, g in zip(shares, sizes, strict=True))) // sizes[-1]
    kinds = tuple(Kind(g, n) for g, n in zip(sizes, shares, strict=True) if n)
    return PlacementProblem(leaves=tuple(in_pods), kinds=kinds, line=sum(k.count for k in kinds), follows=False)


def main() -> None:
    """Print a row for each cluster, then the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--each", type=int, default=3)
    given = parser.parse_args()
    proven, first_open, total = Counter[float](), Counter[str](), Counter[float]()
    for leaves in SIZES:
        for fullness in FULLNESS:
            for seed in range(given.each):
                q = crowded(seed, leaves, fullness)
                started = time.perf_counter()
                solution = solve(q, Options(time_limit=given.limit), fragmentation=False)
                if solution is None:
                    raise SystemExit(f"seed {seed}: the job of {q.need} units does not fit {q.free}")
                levels = list(zip(names(q), solution.values, solution.bounds, strict=True))[: solution.searched]
                at = next((name for name, value, bound in levels if value > bound), "")
                total[fullness] += 1
                proven[fullness] += not at
                first_open[at] += bool(at)
                figures = " ".join(f"{v}/{b}" for _, v, b in levels)
                seconds, kinds = time.perf_counter() - started, ",".join(str(k.size) for k in q.kinds)
                world = f"{leaves:4} leaves {fullness:5.0%} seed {seed} tiers {q.tiers} groups {kinds:10}"
                print(f"{world} {seconds:5.2f} s  {figures}  {at}", flush=True)
    print("proven: " + ", ".join(f"{proven[x]} of {total[x]} at {x:.0%}" for x in FULLNESS))
    print("first open level: " + (", ".join(f"{name} {n}" for name, n in first_open.items() if n) or "none"))


if __name__ == "__main__":
    main()
