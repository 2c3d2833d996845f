"""What columns and shapes of the curve cost: floors by tables of fabrics, and plans in boxes of time and capital."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.models.joint.columns import free_seconds
from planner.models.joint.curve.capital_floor import CapitalFloor
from planner.models.joint.curve.front import Front
from planner.models.joint.free_network import racks_of
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search import fastest
from planner.models.joint.split import Column
from planner.models.joint.world import CENTS, EPS, Plan, Shape, World, open_sites, shapes, spared

NEAR = 0.01  # above its floor, a capital at which a shape is priced first
LATE = 1e18  # seconds a sequence, in place of infinity


@dataclass(slots=True)
class ShapeNode:
    """A shape with what is refused of it: within so much capital no plan is under so many seconds a sequence."""

    problem: ShapeProblem
    by_fabric: bool = False  # its floor of capital has the fabrics of its tables
    refused: list[tuple[float, float]] = field(default_factory=list)


@dataclass(kw_only=True)
class Pricing:
    """What prices columns and shapes; every plan that it comes upon goes to the front."""

    world: World
    front: Front
    floor: CapitalFloor
    fabrics: dict[object, float] = field(default_factory=dict)

    @cached_property
    def _owned(self) -> bool:
        """Whether the racks are at hand: then a plan costs those that it uses."""
        return self.world.sites is None

    def capped(self, usd: float, racks: int) -> World:
        """Return the world with so much capital for a plan of so many racks, and no more than the box has."""
        usd = min(usd, self.front.most_usd)
        if self._owned:
            usd += self.world.owned_usd - racks * self.floor.rack_usd
        instance = self.world.problem.instance
        limits = instance.limits.model_copy(update={"budget_usd": max(usd, 1.0)})
        capped = instance.model_copy(update={"limits": limits})
        return replace(self.world, problem=replace(self.world.problem, instance=capped))

    def usd_of(self, plan: Plan) -> float:
        """Return the capital of a plan; of racks at hand that of those in use."""
        if not self._owned:
            return plan.capital_usd
        return plan.capital_usd - self.world.owned_usd + racks_with_spares(plan) * self.floor.rack_usd

    def keep(self, plan: Plan | None) -> bool:
        """Hand a plan to the front."""
        return plan is not None and self.front.add(plan.seconds, self.usd_of(plan), plan)

    def column_floor(self, column: Column, sites: int) -> float:
        """Bound the capital of a column at so many sites; at one its least fabric counts, if spares leave no choice."""
        block = column.strategy.block(column.p)
        if block is None:
            return math.inf
        blocks = block.blocks(column.d)
        bare = float(self.floor.at_sites(blocks * block.racks, sites))
        if sites > 1 or self.world.problem.calendar is not None or self.world.templates is None:
            return bare + blocks * block.racks * block.rails * self.floor.floor.rail_usd
        q = ShapeProblem(world=self.world, column=column, shape=Shape((blocks,), column.d))
        return bare + self.least_fabric(q, blocks)

    def least_fabric(self, q: ShapeProblem, blocks: int) -> float:
        """Return the least price of the fabric of so many blocks, whatever its slowdowns in the box."""
        key = q.traffic, blocks
        if key not in self.fabrics:
            one = replace(q, shape=Shape((blocks,), q.shape.min_replicas), world=self._box(q))
            x = one.options(LATE)[blocks]
            self.fabrics[key] = float(x.usd.min()) if len(x) else math.inf
        return self.fabrics[key]

    def _box(self, q: ShapeProblem) -> World:
        """Return the world with all the capital of the box."""
        return self.capped(math.inf, q.racks) if math.isfinite(self.front.most_usd) else self.world

    def begin(self, q: ShapeProblem) -> ShapeNode:
        """Return the node of a shape."""
        return ShapeNode(q)

    def step(self, t: float, c: float, epsilon: float, x: ShapeNode) -> tuple[float, float, ShapeNode] | None:
        """Take a shape a step on: to a sharper floor of capital, then to plans in every box that is left open."""
        if not x.by_fabric:
            x.by_fabric = True
            return t, max(c, self._floor_with_fabrics(x.problem)), x
        self._price(x, t, c, epsilon)
        return None

    def _floor_with_fabrics(self, q: ShapeProblem) -> float:
        """Bound the capital of a shape with the least fabric of each of its parts."""
        bare = float(self.floor.at_sites(q.racks, len(q.shape.blocks)))
        if self.world.templates is None:
            return bare
        return bare + sum(self.least_fabric(q, g) for g in q.shape.blocks)

    def _price(self, x: ShapeNode, t: float, c: float, epsilon: float) -> None:
        """Find plans of a shape until no box above its floors is both open and not refused.

        First one near the floors, whether it is covered or not: it covers shapes like it.
        """
        near = c * (1 + max(epsilon / 2, NEAR))
        late = self.front.cutoff(near, 0.0) * (1 - 2 * EPS)
        if t < late:
            self._fastest(x, late, near)
        while True:
            left = (b for b in self.front.boxes(t, c, epsilon) if not self._refused(x, *b))
            box = next(left, None)
            if box is None:
                return
            self._fastest(x, box[0] * (1 - 2 * EPS), box[1])

    @staticmethod
    def _refused(x: ShapeNode, seconds: float, usd: float) -> bool:
        """Return whether no plan of a shape is in a box, up to rounding of its seconds."""
        return any(most >= usd and late >= seconds * (1 - 3 * EPS) for most, late in x.refused)

    def _fastest(self, x: ShapeNode, late: float, usd: float) -> None:
        """Seek the fastest plan of a shape in a box, and remember what it refuses.

        The sites may overrun an amount by a cent, so that they are given a cent less: a refusal holds but for it.
        """
        self.world.count("questions of the curve")
        q = x.problem
        plan = fastest(replace(q, world=self.capped(usd - CENTS, q.racks)), min(late, LATE))
        x.refused.append((usd, late if plan is None else plan.seconds))
        self.keep(plan)

    def try_column(self, column: Column, usd: float) -> bool:
        """Price the first shape of a column that a capital pays, fewest sites first; return whether it has a plan."""
        late = self.front.cutoff(usd, 0.0) * (1 - 2 * EPS)
        if not free_seconds(self.world, column, min(late, LATE)) < late:
            return False
        for choice in sorted(spared(self.world, column), key=lambda c: (c.sparing.wired, -c.sparing.target)):
            for sites in open_sites(self.world, choice):
                shape = next(shapes(choice, sites), None)
                if shape is None:
                    continue
                q = ShapeProblem(world=self.world, column=choice, shape=shape)
                plan = fastest(replace(q, world=self.capped(usd, q.racks)), min(late, LATE), likely=True)
                if plan is not None:
                    return self.keep(plan)
        return False


def racks_with_spares(plan: Plan) -> int:
    """Return the racks that a plan's blocks fill, and those that stand by."""
    return racks_of(plan) + (sum(plan.upkeep.spare_racks.values()) if plan.upkeep else 0)
