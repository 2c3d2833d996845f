"""Compare the joint optimum of random toys with full enumeration.

Run `.venv/bin/python scripts/verify/joint_enumeration.py [COUNT [FIRST]]`; 300 from seed 0 take a CPU-minute. Exits
with 1 where one differs.
"""

import math
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from joint_brute_force import Plan, Toy
from joint_solved import solved
from joint_toys import case, kind_of

SAME = 1e-9  # relative


def differs(seed: int, best: Plan | None) -> str:
    """Return how the joint optimum differs from the enumeration; empty where they agree."""
    try:
        found = solved(case(seed))
    except Exception as error:  # a crash on one toy must not hide what the others say
        return f"{type(error).__name__}: {error}"
    values = (math.inf, math.inf) if found.plan is None else (found.plan.seconds, found.plan.capital_usd)
    wanted = (math.inf, math.inf) if best is None else (best.seconds, best.usd)
    same = all(a == b or abs(a - b) <= SAME * b for a, b in zip(values, wanted, strict=True))
    if same and (found.plan is None or found.days == found.lower_bound):
        return ""
    return f"{found.status} {values[0]:.9g} s, ${values[1]:,.2f}; enumerated {wanted[0]:.9g} s, ${wanted[1]:,.2f}"


def main(count: int, first: int) -> int:
    """Print every difference, and the toys that have a plan by kind."""
    started, plans, wrong = time.process_time(), Counter[str](), 0
    for seed in range(first, first + count):
        best = Toy(case(seed)).best()
        plans[kind_of(seed)] += best is not None
        text = differs(seed, best)
        if text:
            wrong += 1
            print(f"seed {seed}, {kind_of(seed)}: {text}", flush=True)
    print(f"{count} toys, {wrong} differ, in {time.process_time() - started:.0f} CPU-s; with a plan: {dict(plans)}")
    return int(wrong > 0)


if __name__ == "__main__":
    given = [int(x) for x in sys.argv[1:3]]
    sys.exit(main(*(given + [300, 0][len(given) :])))
