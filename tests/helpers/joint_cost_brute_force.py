"""The least cost by a deadline of a toy: every plan by plain loops, kept where none other is as fast and as cheap."""

import math

from joint_brute_force import Plan, Toy

from planner.instance.instance import Instance, instance_sha256

SAME = 1e-12  # relative: sums of the same floats in another order
_ENUMERATED: dict[str, "CostToy"] = {}  # of this process, by the hash of the instance


class CostToy(Toy):
    """Full enumeration of one instance for all deadlines at once."""

    def __init__(self, i: Instance) -> None:
        super().__init__(i)
        self.front: list[Plan] = []
        for _, c, sizes, shards in self.work():
            for plan in self.plans(c, sizes, shards):
                self._keep(plan)

    def cheapest(self, seconds: float = math.inf) -> Plan | None:
        """Return the cheapest plan that takes at most so many seconds a sequence, of equal ones the fastest."""
        in_time = [x for x in self.front if x.seconds <= seconds * (1 + 1e-9)]
        return min(in_time, key=lambda x: (round(x.usd, 2), x.seconds), default=None)

    def _keep(self, x: Plan) -> None:
        """Keep a plan that no other beats in time and capital, and drop those that it beats."""
        if any(_covers(k, x) for k in self.front):
            return
        self.front = [k for k in self.front if not _covers(x, k)] + [x]


def cost_toy(i: Instance) -> CostToy:
    """Return the full enumeration of an instance, made once a process."""
    key = instance_sha256(i)
    if key not in _ENUMERATED:
        _ENUMERATED[key] = CostToy(i)
    return _ENUMERATED[key]


def _covers(a: Plan, b: Plan) -> bool:
    return a.seconds <= b.seconds * (1 + SAME) and a.usd <= b.usd * (1 + SAME)
