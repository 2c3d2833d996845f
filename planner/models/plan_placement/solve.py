"""Place the stages' replica groups on leaf domains: fewest split, then fewest extra pieces, then fewest across pods.

Counts only, never a rack or a group by name. With S groups of G racks and D racks in a leaf domain:

1. Unsplit groups (here): domains[c, k] leaf domains of class c (full, part-full) take k unsplit groups, as many as can
   be. Where groups must split, every domain takes as many unsplit ones as it can, so the holes are known: h = D mod G
   in every full domain and one other in the part-full one, all smaller than G.
2. Pieces (shared_holes): which clusters of split groups share which number of holes.
3. Pods (pods): into which parts by pod the clusters are divided.

The order is lexicographic and exact: the search of each step covers every optimum of the steps before it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.errors import InternalError
from planner.models.plan_placement.numbering import Cluster, Shape, assign, place
from planner.models.plan_placement.pods import analytic_cross_pod, min_crossing_pods
from planner.models.plan_placement.shared_holes import Run, analytic_extra_pieces, cluster_sizes, min_pieces
from planner.models.requests import Options, PlacementRequest
from planner.physics.network.locality import domain_racks, lower_bound_split
from planner.plan.certificate import Certificate, Status
from planner.plan.placement import Assignment, PlacementPlan, SitePlacement
from planner.solvers.cpsat import SOLVER, Values, run
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop, relative_gap

FORMULATION = (
    "Counts of leaf domains by unsplit groups, of clusters of split groups by size, of their parts by pod; three "
    "CP-SAT searches in this order, each over all optima of those before it, or an analytic bound if that is reached."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One site's placement with what is proven of each of its three figures."""

    assignment: tuple[Assignment, ...]
    groups: int
    split: int
    extra_pieces: int
    cross_pod: int
    lower_bound: int
    extra_pieces_bound: int
    cross_pod_bound: int
    analytic_extra_pieces: int
    analytic_cross_pod: int

    @property
    def proved(self) -> bool:
        """Whether each figure equals its bound."""
        return (self.split, self.extra_pieces, self.cross_pod) == (
            self.lower_bound,
            self.extra_pieces_bound,
            self.cross_pod_bound,
        )

    @property
    def summary(self) -> str:
        """The figures and their bounds."""
        figures = (
            (self.split, self.lower_bound, "split"),
            (self.extra_pieces, self.extra_pieces_bound, "extra pieces"),
            (self.cross_pod, self.cross_pod_bound, "across pods"),
        )
        return ", ".join(f"{value} {name} (bound {bound})" for value, bound, name in figures)


@dataclass(slots=True)
class Ledger:
    """What the solves of one placement add up to, and the time that is left to them."""

    options: Options
    deadline: Deadline
    variables: int = 0
    constraints: int = 0
    stop: Stop = Stop.LIMIT

    def run(self, model: cp_model.CpModel) -> Outcome[Values]:
        """Solve within the time left."""
        limit, options = self.deadline.limit, self.options
        outcome = run(model, time_limit=limit, seed=options.seed, threads=options.threads)
        self.variables += outcome.variables
        self.constraints += outcome.constraints
        self.stop = self.stop if outcome.stop is Stop.PROVED else outcome.stop
        return outcome


def solve(request: PlacementRequest, options: Options, *, site: str) -> Outcome[Placed]:
    """Return a site's placement, proven least in (split groups, extra pieces, groups across pods) in this order."""
    ledger = Ledger(options, Deadline(options.time_limit))
    need = request.groups * request.group_racks
    if need > request.racks:
        groups = f"{request.groups} groups of {request.group_racks} racks"
        detail = f"placement[{site}]: {groups} need {need} racks > {request.racks}"
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=detail, solver=SOLVER)
    shape = _shape(request)
    split = shape.groups - _max_unsplit_groups(shape, ledger.run)
    sizes = cluster_sizes(shape, split)
    choice, pieces_bound = min_pieces(shape, sizes, split, ledger.run)
    clusters, pods_bound = min_crossing_pods(
        shape, sizes, choice, ledger.run, search=choice.extra_pieces == pieces_bound
    )
    placed = _placed(shape, clusters, pieces_bound, pods_bound)
    return Outcome(
        stop=Stop.PROVED if placed.proved else ledger.stop,
        solution=placed,
        objective=float(placed.split),
        bound=float(placed.lower_bound),
        detail=placed.summary,
        solver=SOLVER,
        variables=ledger.variables,
        constraints=ledger.constraints,
        seconds=ledger.deadline.elapsed,
    )


def _shape(request: PlacementRequest) -> Shape:
    """Read the request; no leaf tier is one domain for all, no spine tier one pod for all."""
    domain = request.leaf_domain_racks or max(request.racks, 1)
    domains = max(len(domain_racks(request.racks, domain)), 1)
    per_pod = min(request.domains_per_pod or domains, domains)
    return Shape(racks=request.racks, domain=domain, per_pod=per_pod, groups=request.groups, group=request.group_racks)


def _max_unsplit_groups(shape: Shape, run: Run) -> int:
    """Return the most groups within one leaf domain; the closed form, always reached, stands in where time is out."""
    classes = Counter(shape.free)
    model = cp_model.CpModel()
    domains = {
        (f, k): model.new_int_var(0, n, f"domains[{f},{k}]")
        for f, n in sorted(classes.items())
        for k in range(f // shape.group + 1)
    }
    for f, n in sorted(classes.items()):
        model.add(sum(v for (c, _), v in domains.items() if c == f) == n).with_name(f"use_each_domain_once[{f}]")
    unsplit = sum(k * v for (_, k), v in domains.items())
    model.add(unsplit <= shape.groups).with_name("place_each_group_once")
    model.maximize(unsplit)
    outcome = run(model)
    analytic = shape.groups - lower_bound_split(shape.free, shape.groups, shape.group)
    if outcome.objective is not None and outcome.stop is Stop.PROVED and round(outcome.objective) != analytic:
        raise InternalError(f"placement: {outcome.objective:g} unsplit groups proven, {analytic} by the closed form")
    return analytic


def _placed(shape: Shape, clusters: Sequence[Cluster], pieces_bound: int, pods_bound: int) -> Placed:
    """Give stages and racks their numbers, and count the figures on what came out."""
    groups = place(shape, clusters)
    split = lower_bound_split(shape.free, shape.groups, shape.group)
    return Placed(
        assignment=assign(shape, groups),
        groups=shape.groups,
        split=sum(len(g) > 1 for g in groups),
        extra_pieces=sum(len(g) - 1 for g in groups),
        cross_pod=sum(len({leaf // shape.per_pod for leaf, _ in g}) > 1 for g in groups),
        lower_bound=split,
        extra_pieces_bound=pieces_bound,
        cross_pod_bound=pods_bound,
        analytic_extra_pieces=analytic_extra_pieces(shape, split),
        analytic_cross_pod=analytic_cross_pod(shape, split),
    )


def certificate(outcomes: dict[str, Outcome[Placed]], seed: int) -> Certificate:
    """Add up the sites: the placement of one does not touch another's."""
    placed = [o.solution for o in outcomes.values() if o.solution is not None]
    complete = len(placed) == len(outcomes)
    infeasible = any(o.infeasible for o in outcomes.values())
    proved = all(o.stop is Stop.PROVED for o in outcomes.values())
    status: Status = "infeasible" if infeasible else "unknown" if not complete else "optimal" if proved else "feasible"
    objective = float(sum(p.split for p in placed)) if complete else None
    bound = float(sum(p.lower_bound for p in placed)) if complete else None
    return Certificate(
        status=status,
        objective=objective,
        bound=bound,
        gap=relative_gap(objective, bound),
        solver=SOLVER,
        formulation=FORMULATION,
        variables=sum(o.variables for o in outcomes.values()),
        constraints=sum(o.constraints for o in outcomes.values()),
        seconds=sum(o.seconds for o in outcomes.values()),
        seed=seed,
        minimizes="split all-reduce groups, then extra pieces, then groups across pods",
        space=_space(placed),
    )


def _space(placed: Sequence[Placed]) -> dict[str, int | float | str | list[int] | list[str]]:
    """Return the figures after the first with their bounds, those of the solver and those without one."""
    return {
        "groups": sum(p.groups for p in placed),
        "analytic_bound_split": sum(p.lower_bound for p in placed),
        "extra_pieces": sum(p.extra_pieces for p in placed),
        "extra_pieces_bound": sum(p.extra_pieces_bound for p in placed),
        "analytic_bound_extra_pieces": sum(p.analytic_extra_pieces for p in placed),
        "groups_cross_pod": sum(p.cross_pod for p in placed),
        "groups_cross_pod_bound": sum(p.cross_pod_bound for p in placed),
        "analytic_bound_groups_cross_pod": sum(p.analytic_cross_pod for p in placed),
    }


def plan(outcomes: dict[str, Outcome[Placed]], *, seed: int = 0) -> PlacementPlan:
    """Return the plan's section; every site must have a placement."""
    placed = {site: o.solution for site, o in sorted(outcomes.items()) if o.solution is not None}
    if len(placed) < len(outcomes):
        raise ValueError(f"there is no placement at {sorted(outcomes.keys() - placed.keys())}")
    groups, split = sum(p.groups for p in placed.values()), sum(p.split for p in placed.values())
    return PlacementPlan(
        groups=groups,
        groups_leaf_local=groups - split,
        groups_split=split,
        lower_bound_split=sum(p.lower_bound for p in placed.values()),
        extra_pieces=sum(p.extra_pieces for p in placed.values()),
        groups_cross_pod=sum(p.cross_pod for p in placed.values()),
        sites={site: SitePlacement(assignment=p.assignment) for site, p in placed.items()},
        certificate=certificate(outcomes, seed),
    )
