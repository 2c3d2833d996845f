"""The least price of the fabric of one site and of the power that it draws, whatever its slowdowns."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search.ranges import NEVER
from planner.models.joint.world import Shape, World


@dataclass(slots=True)
class LeastFabrics:
    """Least prices in USD by what some blocks send, within money that never grows; infinite where it pays none."""

    within: Callable[[ShapeProblem], World]  # whose budget the fabric may spend
    known: dict[object, float] = field(default_factory=dict)

    def usd(self, q: ShapeProblem, blocks: int) -> float:
        """Return the least price of a fabric that joins some blocks within the money."""
        # A MW of it is paid at the site like one of racks.
        key, sites = (q.traffic, blocks), q.world.sites
        if key not in self.known:
            each = 0.0 if sites is None else sites.fabric_usd_per_mw
            one = replace(q, shape=Shape((blocks,), q.shape.min_replicas), world=self.within(q))
            x = one.options(NEVER)[blocks]
            self.known[key] = float((x.usd + each * x.mw).min()) if len(x) else math.inf
        return self.known[key]
