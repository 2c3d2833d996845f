"""Try the properties of the joint optimum on an instance: pins, means, prices, order and seed.

Run `.venv/bin/python scripts/verify/joint_properties.py INSTANCE [SECONDS]`; the limit is for each solve. Every solve
brackets its optimum between a lower bound and a value, so a property fails only where two brackets contradict it. Exits
with 1 where one does.
"""

import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from joint_changes import HARMS, HELPS, SAME, other_values, own_choices
from joint_solved import solved
from joint_toys import with_pins

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models.joint.joint_solution import JointSolution
from planner.planning.load import load_instance

TIE = 1e-9


class Trial:
    """The brackets of an instance and of its changes."""

    def __init__(self, i: Instance, seconds: float | None) -> None:
        self.i, self.seconds, self.wrong = i, seconds, 0
        self.free = self.bracket("free", i)

    def bracket(self, name: str, i: Instance, seed: int = 0) -> tuple[float, float, JointSolution]:
        """Solve; return lower bound and value in days, both infinite where there is no plan."""
        started = time.process_time()
        found = solved(i, seed=seed, time_limit=self.seconds)
        none = found.status == "infeasible"
        low = math.inf if none else found.lower_bound or 0.0
        high = math.inf if found.days is None else found.days
        print(f"{name}: {low:,.4f} to {high:,.4f} days, {time.process_time() - started:.1f} CPU-s", flush=True)
        return low, high, found

    def no_less(self, name: str, i: Instance) -> None:
        """Require of a change that harms that its value is not below the free lower bound."""
        try:
            low, high, _ = self.bracket(name, i)
        except InputError as refused:
            print(f"{name}: refused, {refused}")
            return
        self._judge(name, wrong=high < self.free[0] * (1 - TIE) or low > high * (1 + TIE))

    def no_more(self, name: str, i: Instance) -> None:
        """Require of a change that helps that its lower bound is not above the free value."""
        low, _, _ = self.bracket(name, i)
        self._judge(name, wrong=low > self.free[1] * (1 + TIE))

    def same(self, name: str, i: Instance, seed: int = 0) -> None:
        """Require of a change that means nothing that the brackets meet, and of equal optima that capital agrees."""
        low, high, found = self.bracket(name, i, seed)
        wrong = low > self.free[1] * (1 + TIE) or high < self.free[0] * (1 - TIE)
        known = self.free[2]
        proven = {known.status, found.status} == {"optimal"}
        if proven and known.plan is not None and found.plan is not None:
            wrong |= abs(found.plan.capital_usd - known.plan.capital_usd) > 1e-9 * known.plan.capital_usd
        self._judge(name, wrong=wrong)

    def _judge(self, name: str, *, wrong: bool) -> None:
        if wrong:
            self.wrong += 1
            print(f"FAILS: {name}", flush=True)


def main(path: str, seconds: float | None) -> int:
    """Try every property and return whether one fails."""
    i = load_instance(path)
    t = Trial(i, seconds)
    free = t.free[2]
    if free.plan is None:
        return 0
    pins = own_choices(free)
    t.same("own choices pinned", with_pins(i, **pins))
    for name, value in pins.items():
        for other in [x for x in other_values(name, value) if name not in i.pins]:
            t.no_less(f"{name} = {other}", with_pins(i, **{name: other}))
    for name, change in HELPS.items():
        t.no_more(f"more {name}", change(i))
    for name, change in HARMS.items():
        t.no_less(f"dearer {name}", change(i))
    for name, change in SAME.items():
        t.same(f"other {name}", change(i))
    t.same("another seed", i, seed=7)
    print(f"{t.wrong} properties fail")
    return int(t.wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None))
