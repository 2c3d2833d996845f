"""Compare the joint optimum of random toys with full enumeration, and count what binds in them.

Run `.venv/bin/python scripts/verify/joint_enumeration.py [COUNT [FIRST]]`; 300 from seed 0 take two CPU-minutes. Exits
with 1 where one differs, or where network, fibre or split bind in fewer than a third of the toys that have a plan.
"""

import math
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from joint_binding import Binding, binding
from joint_solved import solved
from joint_toys import case, kind_of

SAME = 1e-9  # relative


def differs(seed: int, known: Binding) -> str:
    """Return how the joint optimum differs from the enumeration; empty where they agree."""
    try:
        found, best = solved(case(seed)), known.best
    except Exception as error:  # a crash on one toy must not hide what the others say
        return f"{type(error).__name__}: {error}"
    values = (math.inf, math.inf) if found.plan is None else (found.plan.seconds, found.plan.capital_usd)
    wanted = (math.inf, math.inf) if best is None else (best.seconds, best.usd)
    same = all(a == b or abs(a - b) <= SAME * b for a, b in zip(values, wanted, strict=True))
    if same and (found.plan is None or found.days == found.lower_bound):
        return ""
    return f"{found.status} {values[0]:.9g} s, ${values[1]:,.2f}; enumerated {wanted[0]:.9g} s, ${wanted[1]:,.2f}"


def main(count: int, first: int) -> int:
    """Print every difference and what binds by kind."""
    started, counts, wrong = time.process_time(), Counter[str](), 0
    for seed in range(first, first + count):
        known, kind = binding(case(seed)), kind_of(seed)
        counts.update([kind, f"{kind}, with a plan"] if known.best is not None else [kind])
        if known.best is not None and known.best.column.block.stage_racks > 1:
            counts[f"{kind}, CP or experts over racks"] += 1
        counts.update(f"{kind}, {name} binds" for name in ("network", "fibre", "split") if getattr(known, name))
        counts.update(["any binds"] if known.any else [])
        text = differs(seed, known)
        if text:
            wrong += 1
            print(f"seed {seed}, {kind}: {text}", flush=True)
    plans = sum(n for name, n in counts.items() if name.endswith("with a plan"))
    for name, n in sorted(counts.items()):
        print(f"{n:5d} {name}")
    print(f"{count} toys, {plans} with a plan, {wrong} differ, in {time.process_time() - started:.0f} CPU-s")
    return int(wrong > 0 or 3 * counts["any binds"] < plans)


if __name__ == "__main__":
    given = [int(x) for x in sys.argv[1:3]]
    sys.exit(main(*(given + [300, 0][len(given) :])))
