"""Choose between tied plans: those within the tolerance of the goal, then of the least capital, then of the least rank.

In this order, each within what those before leave: the goal; least capital; the largest share of all-reduce groups
whole under one leaf; the simplest layout on one design of fabric at all sites. A rank says how good a plan is in what
neither days nor money say.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from planner.instance.instance import TOLERANCE, Instance
from planner.models.fabric.site_traffic import leaf_local_shares
from planner.models.joint.joint_question import Solving, World
from planner.models.joint.joint_solution import CENTS, EPS, JointPlan, JointSolution
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.goal import KnownShape, OpenShape, Ranges
from planner.models.joint.search.least_capital import LeastCapital, least_capital_plan
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Ints
from planner.physics.training.step_prediction import days_of
from planner.plan.certificate import ALMOST_AS_FAST, SIMPLER_WITHIN, CheaperPlan, ChoiceEnd, EndName, SimplerPlan
from planner.plan.plan_sections import in_short
from planner.solvers.progress import Progress, notes, report, start

MORE = 1e-9  # share: more than a share that is known, or than rounding


Rank = tuple[float, ...]


@dataclass(kw_only=True)
class LeastRank(LeastCapital):
    """The search goal of least rank among tied plans: within `limit` seconds a sequence and `budget` dollars."""

    seeks_cheap: ClassVar[bool] = False  # a plan that ties is known
    most_grown: ClassVar[int] = 0

    rank: Callable[[JointPlan], Rank]
    least_rank: Callable[[Column], tuple[Any, ...]]  # one that no plan of a column is below, or of an array of them
    best: Rank  # that a plan must be below
    enough: Rank = ()  # at which the search ends
    most_shapes: int  # that are priced; the search ends unproven at the next
    most_nodes: int  # that are opened, likewise
    priced: int = 0
    nodes: int = 0
    chosen: JointPlan | None = None  # of the least rank so far; the incumbent is none, as all that tie are of use

    @property
    def goes_on(self) -> bool:
        """Whether another goal may continue the search for the tied plan of least rank: always."""
        return True

    @property
    def has_plan(self) -> bool:
        """Whether the search among tied plans has found one of a lower rank."""
        return self.chosen is not None

    @property
    def ended(self) -> bool:
        """Whether the search for the tied plan of least rank ended unproven, at its limit of shapes or nodes."""
        return (self.priced >= self.most_shapes or self.nodes >= self.most_nodes) and not self.best <= self.enough

    def reached(self, t: float, c: float, what: Any) -> bool:
        """End the search among tied plans at a rank that is good enough, or at its limit of shapes or nodes."""
        self.nodes += 1
        return self.best <= self.enough or self.ended

    def refuses(self, column: Column, seconds: float) -> bool:
        """Return whether no tied plan of a column can have the least rank, which is known before it is timed."""
        return not self.least_rank(column) < self.best

    def price(self, t: float, c: float, x: OpenShape) -> tuple[float, float] | None:
        """Advance the search among tied plans of a shape to a bound or the cheapest, while its rank may be lower."""
        return None if self.refuses(x.known.column, t) else super().price(t, c, x)

    def steps(self, x: KnownShape, t: float, c: float) -> Iterator[tuple[float, float]]:
        """Yield floors of capital among a shape's tied plans up to the cheapest, which is kept if its rank is lower."""
        self.priced += 1
        for step in self._search(x, c):
            if isinstance(step, JointPlan):
                self.keep(step)
                return
            yield t, step

    def keep(self, plan: JointPlan) -> None:
        """Choose a tied plan as that of least rank if its rank is lower."""
        if plan.capital_usd > self.capital or plan.seconds > self.limit * (1 + EPS):
            return
        rank = self.rank(plan)
        if rank < self.best:
            self.chosen, self.best = plan, rank
            self.world.count("incumbents")

    def most_blocks(self, x: Ranges) -> Ints:
        """Return the most blocks of each range whose plans tie; none of pipelines that cannot have the least rank."""
        rows, low = x.of.rows, np.zeros(1, dtype=bool)
        every: dict[str, Any] = {"p": rows.p[x.at], "v": rows.v[x.at]}
        ranks = self.least_rank(Column(strategy=x.of.strategy, zero=0, d=1, m=1, **every))
        for own, best in zip(reversed(ranks), reversed(self.best), strict=True):
            low = (own < best) | ((own == best) & low)
        return np.where(low, super().most_blocks(x), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The plan that one criterion between tied plans leaves, with whether it is proven the best of those that tie."""

    plan: JointPlan
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What each criterion between tied plans left (capital, leaf-local groups, simplicity), as far as pursued."""

    by_name: dict[EndName, End]
    simpler: End | None = None  # an alternative to the choice: slower by more than a tie, and no dearer

    @property
    def plan(self) -> JointPlan:
        """The plan chosen of those that tie, which all criteria leave."""
        return list(self.by_name.values())[-1].plan


def ended_by_choice(
    instance: Instance, solution: JointSolution, solving: Solving, *, seek_others: bool = True
) -> tuple[JointSolution, dict[str, Any]]:
    """Return the plan that the ends between tied plans leave, and what the objective says of others nearly as fast.

    These are the ends and a simpler plan. At a tolerance of 0 the plan is the fastest, and a cheaper one that is almost
    as fast is named. None of them is faster than the fastest.
    """
    progress, cache, gap = solving.progress, solving.cache, solving.options.gap or 0.0
    report(progress, "", solution.days, solution.lower_bound)
    best = solution.plan
    if best is None or solution.stopped != "proved" or not _others_asked(instance, seek_others=seek_others):
        return solution, {}
    search, cache.search = cache.search, None
    if search is not None and search.goal.incumbent is not best:
        search = None
    world = solving.world(instance)
    while True:
        days, bound, latest = solution.days or math.inf, solution.lower_bound, instance.limits.deadline_days or math.inf
        proven = bound is not None and bound >= days * (1 - EPS)
        if gap and bound is not None:
            latest = min(latest, bound / (1 - gap))
        most = max(0.0, latest / days - 1)  # share of the fewest days that gap and deadline leave to be given up
        kept = None if search is None or proven else search.copy()
        chosen, more, seen = _choice(world, best, most, solving, search, proven=proven)
        fastest = min(seen, key=lambda plan: plan.seconds, default=best)
        if fastest.seconds >= best.seconds * (1 - EPS):
            return replace(solution, plan=chosen, days=days_of(world.problem.instance, chosen.seconds)), more
        # Within a gap a plan of an end may be faster than the fastest so far: it is that, and the ends begin from it.
        best, solution = fastest, replace(solution, plan=fastest, days=days_of(world.problem.instance, fastest.seconds))
        report(progress, "", solution.days, solution.lower_bound)
        search = kept


def _choice(
    world: World, best: JointPlan, most: float, solving: Solving, search: Loop | None, *, proven: bool
) -> tuple[JointPlan, dict[str, Any], tuple[JointPlan, ...]]:
    """Return the plan that the choice's ends leave, slower by at most `most`, the objective's fields, all plans."""
    instance, progress = world.problem.instance, solving.progress
    goal, indifferent = instance.objective, instance.objective.indifference > instance.objective.tolerance
    simpler = min(goal.indifference if indifferent else SIMPLER_WITHIN, most)
    alone = instance.network is None and instance.grid is None and goal.tolerance in (0.0, TOLERANCE)
    alone = alone and not indifferent  # a layout, of which every plan costs the same
    if alone and not goal.tolerance:
        return best, {}, ()
    start(progress, "a simpler layout" if alone else "a cheaper plan")
    chosen, more = best, dict[str, Any]()
    plans: tuple[JointPlan, ...]
    if alone:
        left = None if search is None else search.copy()
        simplest = simplest_within(world, best, best.seconds * (1 + simpler), left)
        plans, other = (simplest.plan,), None if simplest.plan is best else simplest
    elif goal.tolerance or indifferent:
        within = min(goal.tolerance, most)
        found = ends_within(
            world, best, within, simpler=simpler, indifferent=indifferent, search=search, progress=notes(progress)
        )
        by_name: dict[EndName, End] = {"goal": End(plan=best, proven=proven), **found.by_name}
        ends, local = list[ChoiceEnd](), local_share(found.plan)
        for name, end in by_name.items():
            days, usd = days_of(instance, end.plan.seconds), end.plan.capital_usd
            values = {"goal": days, "capital": usd, "leaf_local": local, "simplest": simplicity(end.plan)[1]}
            ends.append(
                ChoiceEnd(name=name, value=values[name], days_to_train=days, capital_usd=usd, proven=end.proven)
            )
        chosen, other, more["ends"] = found.plan, found.simpler, tuple(ends)
        plans = tuple(end.plan for end in (*by_name.values(), other) if end is not None)
    else:
        almost = best.seconds * (1 + ALMOST_AS_FAST)
        cheap = least_capital_plan(LeastCapital(world=world, limit=almost, incumbent=best, progress=notes(progress)))
        if cheap.plan is None or cheap.usd is None or cheap.usd > best.capital_usd - CENTS:
            return best, {}, ()
        racks = sum(cheap.plan.placed.racks.values()) if cheap.plan.placed else instance.hardware.racks or 0
        more["cheaper"] = CheaperPlan(days_to_train=cheap.days or 0.0, capital_usd=cheap.usd, racks=racks)
        plans, other = (cheap.plan,), None
    if other is not None:
        plan, column = other.plan, other.plan.column
        more["simplest"] = SimplerPlan(
            days_to_train=days_of(instance, plan.seconds),
            loss=plan.seconds / best.seconds - 1,
            capital_usd=plan.capital_usd,
            layout=in_short((*column.strategy.shape.degrees, column.p, column.d), column.v),
            layers_per_stage=plan.split.layers,
            recomputed_layers=sum(plan.split.recomputed),
            proven=other.proven,
        )
    return chosen, more, plans


def kept_within(instance: Instance, *, seek_others: bool = True) -> float:
    """Return the share of the fewest days by which slower plans are kept for the choice between tied ones."""
    goal = instance.objective
    if goal.minimize != "days_to_train" or not _others_asked(instance, seek_others=seek_others):
        return 0.0
    return max(goal.tolerance, goal.indifference, SIMPLER_WITHIN if goal.tolerance else 0.0)


def _others_asked(instance: Instance, *, seek_others: bool) -> bool:
    """Return whether plans other than the fastest are sought: at the user's tolerance, or without a WAN gateway."""
    network, goal = instance.network, instance.objective
    own = goal.tolerance not in (0.0, TOLERANCE) or goal.indifference > goal.tolerance
    return own or (seek_others and not (network is not None and network.wan_gateway))


def ends_within(
    world: World,
    best: JointPlan,
    share: float,
    *,
    simpler: float = 0.0,
    indifferent: bool = False,
    progress: Progress = lambda _: None,
    search: Loop | None = None,
) -> Ends:
    """Return the plans that the criteria between ties leave, within a share of the fewest days and least capital.

    `best`: the plan of fewest days. At a share of 0 plans that tie are not looked at. The simplest plan within the
    share `simpler` of the days, at no more money than these ends leave, is chosen where `indifferent`, else returned
    next to the choice. `search`: that of the fewest days, where it kept all plans within both shares.
    """
    left = None if search is None or simpler <= share else search.copy()
    limit = best.seconds * (1 + share)
    goal = LeastCapital(world=world, limit=limit, incumbent=best, within=share, progress=progress)
    loop = search or Loop(goal=goal)
    found = least_capital_plan(goal, loop)
    plan = found.plan or best
    ends: dict[EndName, End] = {"capital": End(plan=plan, proven=found.status == "optimal")}
    if found.stopped != "proved":
        return Ends(by_name=ends)
    if share > 0:  # without a share no plan is kept that ties
        t, least = _Ties(world=world, loop=loop, seconds=limit, usd=plan.capital_usd * (1 + share)), 0.0
        local = t.most_local(plan)
        if local is not None:
            plan, least, ends["leaf_local"] = local.plan, local_share(local.plan), local
        ranked: dict[str, Any] = {"rank": simplicity, "least_rank": least_simplicity, "best": simplicity(plan)}
        ends["simplest"] = t.least(plan, least, **ranked, first=plan.column)
        plan = ends["simplest"].plan
    if simpler <= share:
        return Ends(by_name=ends)
    simplest = simplest_within(world, plan, best.seconds * (1 + simpler), left, by_designs=indifferent)
    if indifferent:
        return Ends(by_name=ends | {"simplest": simplest})
    return Ends(by_name=ends, simpler=None if simplest.plan is plan else simplest)


def simplest_within(
    world: World, plan: JointPlan, seconds: float, left: Loop | None = None, *, by_designs: bool = False
) -> End:
    """Return the simplest of plans tied within seconds a sequence and a plan's capital: that one if none is simpler.

    It ranks the cheapest plan of each shape by its layout; `by_designs`: by the designs of fabric before that. `left`:
    the nodes of a search that kept all plans within these seconds.
    """
    first = 0 if by_designs else 1
    return _Ties(world=world, loop=left, seconds=seconds, usd=plan.capital_usd).least(
        plan,
        rank=lambda x: simplicity(x)[first:],
        least_rank=lambda x: least_simplicity(x)[first:],
        best=simplicity(plan)[first:],
        most_shapes=60,
        most_nodes=20_000,
    )


@dataclass(kw_only=True)
class _Ties:
    """The tied plans: those of at most `seconds` seconds a sequence and `usd` dollars of capital."""

    world: World
    loop: Loop | None  # of a search that kept all of them
    seconds: float
    usd: float

    def most_local(self, plan: JointPlan) -> End | None:
        """Raise tied plans' share of all-reduce groups under one leaf as far as it goes; None without fabric choice."""
        if self.world.templates is None:
            return None
        at = local_share(plan)
        asked = at + MORE
        for _ in range(6):  # rounds in which the share is raised
            if at >= 1:
                return End(plan=plan, proven=True)
            ranked = {"rank": lambda _: (0.0,), "least_rank": lambda _: (0.0,), "best": (1.0,), "enough": (0.0,)}
            found = self.least(plan, asked, **ranked, first=plan.column)
            if found.plan is not plan:
                plan, at, asked = found.plan, local_share(found.plan), 1.0
            elif asked < 1 or not found.proven:
                return found
            else:
                asked = at + MORE
        return End(plan=plan, proven=False)

    def least(self, plan: JointPlan, local: float = 0.0, **ranked: Any) -> End:
        """Return the tied plan of least rank, or one at hand if none is below the best, and whether that is proven.

        `local`: the least share of all-reduce groups under one leaf that it may have.
        """
        world, loop = self.world, self.loop
        if world.templates is not None and local > 0:
            world = replace(world, templates=replace(world.templates, min_local_share=local, options_of={}))
        left = loop.copy() if loop is not None and local > 0 else None
        how = {"most_shapes": 300, "most_nodes": 1_500} | ranked  # the shapes that are not priced remain unproven
        goal = LeastRank(world=world, budget=self.usd, limit=self.seconds, **how)
        stopped = (loop or Loop(goal=goal)).run(goal)
        if left is not None and goal.chosen is None:
            # What has no fabric of such a share may have one of less, which is asked for next.
            self.loop = left
        proven = stopped == "proved" and not goal.ended and not math.isfinite(world.unproven.usd)
        return End(plan=goal.chosen or plan, proven=proven)


def local_share(plan: JointPlan) -> float:
    """Return a tied plan's share of all-reduce groups whole under one leaf, of the site where it is least."""
    block, shares = plan.column.block, []
    for site, t in plan.templates.items():
        leaf, at = np.array([t.design.domain_racks]), (block.rack_stages, plan.blocks_by_site[site], t.stripes)
        shares.append(float(leaf_local_shares(*at, block.stage_racks, leaf)[0]))
    return min(shares, default=1.0)


def simplicity(plan: JointPlan) -> Rank:
    """Rank a tied plan by its designs of fabric, alike for more racks, and then by its layout.

    By kinds of parallelism, uneven stages, virtual stages, all stages and recomputed layers.
    """
    _, kinds, _, v, p, _ = least_simplicity(plan.column)
    designs = {(t.models[0].name, t.family, replace(t.design, racks=0)) for t in plan.templates.values()}
    return (max(1, len(designs)), kinds, len(set(plan.split.layers)) > 1, v, p, sum(plan.split.recomputed))


def least_simplicity(c: Column) -> tuple[Any, ...]:
    """Return a rank by fabric designs and layout that no tied plan of a column is below; of arrays of columns too."""
    kinds = sum(x > 1 for x in (*c.strategy.shape.degrees, c.p, c.d))
    return (1, kinds, c.strategy.machine.model.layers % c.p > 0, c.v, c.p, 0)
