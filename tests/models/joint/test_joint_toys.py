"""The joint optimum of small grids, mixtures of experts and long sequences equals full enumeration.

The enumeration shares no formulation with it; scripts/verify/joint_enumeration.py tells on how many more toys the
network, the fibre or the split of the sites binds.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from joint_brute_force import Plan, Toy
from joint_changes import with_pins
from joint_solved import require_optimum
from joint_toys import KINDS, case, kind_of
from tiers import more

SEEDS = (
    *(0, 10, 15, 75),  # clusters
    *(16, 26, 41, 101),  # one site of a grid
    *(12, 27, 57, 97),  # two to four nodes with lines
    *(13, 43, 53, 98),  # mixtures of experts
    *(4, 24, 39, 74),  # long sequences: CP over racks
)
MORE = (105, 25, 36, 96, 132, 102, 73, 118, 134, 14)
HELPERS = Path(__file__).parents[2] / "helpers"


@cache
def enumerated(seed: int) -> Plan | None:
    return Toy(case(seed)).best()


@pytest.mark.parametrize("seed", [*SEEDS, *more(*MORE)])
def test_equals_full_enumeration(seed: int) -> None:
    """Time and capital of the optimum are those of the best of all plans, or there is none by both."""
    require_optimum(case(seed), enumerated(seed))


@pytest.mark.parametrize("seed", [27, *more(57)])
def test_blocks_pinned_to_a_site_equal_enumeration(seed: int) -> None:
    """With one block more or fewer at a site than in the optimum, or none, the best that is left is found."""
    free = enumerated(seed)
    assert free is not None
    sites = Toy(case(seed)).sites
    assert sites is not None
    name, worse = sites.nodes[free.blocks.index(max(free.blocks))].id, 0
    for number in {0, 1, max(free.blocks) - 1, max(free.blocks) + 1}:
        i = with_pins(case(seed), {f"placement.blocks.{name}": number})
        best = Toy(i).best()
        found = require_optimum(i, best)
        if best is None or found.plan is None:
            continue
        assert found.plan.blocks_by_site.get(name, 0) == number
        worse += (best.seconds, best.usd) > (free.seconds, free.usd)
    assert worse


@pytest.mark.slow
def test_the_toys_are_of_every_kind() -> None:
    """There are four of each kind; some plans spread CP or experts over racks, some hold blocks at two sites."""
    assert {k: [kind_of(s) for s in SEEDS].count(k) for k in KINDS} == dict.fromkeys(KINDS, 4)
    plans = [b for b in map(enumerated, SEEDS) if b is not None]
    assert any(p.column.block.context_racks > 1 for p in plans)
    assert any(p.column.shape.expert_parallel > 1 for p in plans)
    assert sum(sum(n > 0 for n in p.blocks) > 1 for p in plans) >= 5
    assert any(p.send > 1.2 for p in plans) and any(p.allreduce > 1.2 for p in plans)


@pytest.mark.parametrize("seed", [13, 27, 74])
def test_enumeration_leaves_out_only_what_is_slower(seed: int) -> None:
    """The enumeration finds the same where it also times what is slower even on a network that slows nothing."""
    whole, best = Toy(case(seed)).best(prune=False), enumerated(seed)
    assert whole is not None and best is not None
    assert (whole.seconds, whole.usd) == (best.seconds, best.usd)


def test_the_enumeration_shares_no_formulation() -> None:
    code = (
        "import sys, joint_brute_force\n"
        "left_out = 'planner.models', 'planner.solvers', 'ortools', 'pyomo'\n"
        "names = [m for m in sys.modules if m.startswith(left_out)]\n"
        "sys.exit(str(names) if names else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HELPERS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
