"""The least cost by a deadline of a toy: every plan by plain loops, kept where none other is as fast and as cheap."""

import math
from typing import Any

from joint_brute_force import Placement, Plan, Toy

from planner.instance.instance import Instance
from planner.physics.training.blocks.rack_blocks import Block
from planner.physics.training.operations import Shape

SAME = 1e-12  # relative: sums of the same floats in another order


class CostToy(Toy):
    """Full enumeration of one instance for all deadlines at once."""

    def __init__(self, i: Instance) -> None:
        super().__init__(i)
        self.front: list[Plan] = []
        self.best()

    def cheapest(self, seconds: float = math.inf) -> Plan | None:
        """Return the cheapest plan that takes at most so many seconds a sequence, of equal ones the fastest."""
        in_time = [x for x in self.front if x.seconds <= seconds * (1 + 1e-9)]
        return min(in_time, key=lambda x: (round(x.usd, 2), x.seconds), default=None)

    def _better(
        self, best: Plan | None, shape: Shape, p: int, v: int, block: Block, d: int, where: Placement, zero: int, m: int
    ) -> Plan | None:
        replicas = [n * block.replicas for n in where.blocks]
        short = max(range(len(replicas)), key=lambda k: replicas[k])
        replicas[short] -= sum(replicas) - d
        least, racks = min(x for x in replicas if x), max(where.blocks) * block.stage_racks
        splits = list(self.splits(shape, p, v, m, zero, least))
        for fabric_usd, send, allreduce in self.networks(block, where, wrap=v > 1) if splits else ():
            usd = where.usd + fabric_usd
            if usd > (self.i.limits.budget_usd or math.inf) + 1e-6:
                continue
            step = (self.seconds(shape, p, v, m, zero, block, racks, least, send, allreduce, where, s) for s in splits)
            self._keep(Plan(min(step) / (d * m * shape.micro_batch), usd))
        return best

    def _keep(self, x: Plan) -> None:
        """Keep a plan that no other beats in time and capital, and drop those that it beats."""
        if any(_covers(k, x) for k in self.front):
            return
        self.front = [k for k in self.front if not _covers(x, k)] + [x]


def _covers(a: Plan, b: Plan) -> bool:
    return a.seconds <= b.seconds * (1 + SAME) and a.usd <= b.usd * (1 + SAME)


def without(i: Instance, **limits: Any) -> Instance:
    """Return an instance with other limits."""
    return i.model_copy(update={"limits": i.limits.model_copy(update=limits)})


__all__ = ["CostToy", "without"]
