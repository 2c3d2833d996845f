"""The search for the cheapest fabric: rows of the lowest bound first, then all that may still be better."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.fabric.columns import completion_costs, expand, shape_table
from planner.models.fabric.data import Ints, Problem
from planner.models.fabric.design import FabricDesign, fabric_design
from planner.models.fabric.four_tier import zone_table
from planner.models.fabric.model import break_ties, formulate, read
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import COL, COLUMNS, SHAPE
from planner.models.requests import Options
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.cpsat import SOLVER, Values, run
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop

MAX_TIERS = 4
FIRST_SHAPES = 64  # pod shapes of lowest bound expanded first: the cheapest design is nearly always among them
FIRST_ROWS = 256  # wirings in the first model, solved in milliseconds; eight times as many each time that is too few


@dataclass(slots=True)
class Search:
    """The incumbent and its bound while rows enter the model; costs in the model's units."""

    problem: Problem
    options: Options
    deadline: Deadline
    bound: float = 0.0
    cost: int | None = None
    chosen: dict[str, int] | None = None
    rows: Ints = field(default_factory=lambda: np.empty((0, len(COLUMNS)), dtype=np.int64))
    shapes: int = 0
    outcome: Outcome[Values] = field(default_factory=lambda: Outcome(stop=Stop.PROVED, infeasible=True, solver=SOLVER))

    @property
    def cutoff(self) -> float:
        """Cost above which no design is of interest: the incumbent's."""
        return math.inf if self.cost is None else self.cost

    @property
    def proved(self) -> bool:
        """Whether the last solve ended with a proof."""
        return self.outcome.stop is Stop.PROVED


def search(p: Problem, options: Options, site: str) -> Outcome[FabricDesign]:
    """Return the cheapest design of a site: build the table of shapes, search it, then the shapes of four tiers."""
    s = Search(p, options, Deadline(options.time_limit))
    reason, prices = _excluded_outright(p), LinkPrices(p)
    shapes, space = (np.empty((0, len(SHAPE)), dtype=np.int64), {}) if reason else shape_table(p, prices)
    if len(shapes):
        s.bound = float(shapes[0, COL["bound"]])
    _search_shapes(s, shapes)
    if not reason and p.network.max_tiers == MAX_TIERS:
        zoned, more = zone_table(p, prices, s.cutoff)
        space |= more
        shapes = _sorted_by_bound(np.concatenate([shapes, zoned]))
        if len(zoned):
            _search_four_tiers(s, shapes, zoned)
    if s.outcome.infeasible:
        s.outcome = replace(s.outcome, detail=f"{site}: {reason or _no_fabric(p)}")
    elif s.chosen is not None and s.bound == s.cost:
        _choose_among_equals(s)
    space |= {"pod_shapes_excluded_by_bound": len(shapes) - s.shapes, "wirings_in_model": len(s.rows)}
    return _in_dollars(s, space)


def _no_fabric(p: Problem) -> str:
    """Return why no fabric is feasible, where none is excluded outright."""
    wide_area = f" and {p.request.wan_gbps:,.6g} Gbps of the wide area" if p.request.wan_gbps else ""
    allowed = p.network.max_tiers
    tall = f"; network.max_tiers allows {allowed} of {MAX_TIERS}" if allowed < MAX_TIERS else ""
    ports = f"has the ports for {p.request.racks} racks{wide_area} under the time rules and pins{tall}"
    return f"no mode, leaf domain and pod shape {ports}"


def _excluded_outright(p: Problem) -> str:
    """Return what excludes every fabric before any is looked at; empty where nothing does."""
    own = transport_slowdown_of(p.network)
    if not p.modes:
        return "no switch mode carries a NIC over the lanes allowed and meets the pins on planes and ports"
    for what, ratio in (("pipeline sends", p.ratios.send), ("the all-reduce", p.ratios.allreduce)):
        if ratio < 1:
            return f"the slowdown of {what} must be at most {own * ratio:g}, the transport alone takes {own:g}"
    return ""


def _sorted_by_bound(shapes: Ints) -> Ints:
    """Return shapes in the order of their bounds."""
    ranked: Ints = shapes[np.argsort(shapes[:, COL["bound"]], kind="stable")]
    return ranked


def _search_four_tiers(s: Search, shapes: Ints, zoned: Ints) -> None:
    """Search on among all shapes, those of four tiers that may beat the incumbent with them, if time is left."""
    lowest = float(zoned[0, COL["bound"]])
    s.bound = lowest if s.cost is None else min(s.bound, lowest)
    if s.proved:
        _search_shapes(s, shapes)


def _search_shapes(s: Search, shapes: Ints) -> None:
    """Solve rows of the lowest bounds, then all whose bound is within the incumbent's cost; no other is better."""
    bounds = shapes[:, COL["bound"]]

    def within_cost() -> int:
        return int(np.searchsorted(bounds, s.cutoff, side="right"))

    taken = min(FIRST_SHAPES, len(shapes)) if s.cost is None else within_cost()
    max_rows = FIRST_ROWS
    while taken:
        rows = expand(s.problem, shapes[:taken], s.cutoff)
        rest = float(bounds[taken]) if taken < len(shapes) else math.inf
        if len(rows):
            rest = min(rest, float(rows[max_rows, COL["bound"]]) if max_rows < len(rows) else math.inf)
            _improve(s, rows[:max_rows], rest)
            s.shapes = taken
            if not s.proved or s.cost is None or rest > s.cost:
                return
            max_rows *= 8
        elif taken == len(shapes):
            return
        taken = min(4 * taken, len(shapes)) if s.cost is None else within_cost()


def _improve(s: Search, rows: Ints, rest: float) -> None:
    """Solve the model of some rows; the bounds of all others are `rest` or more."""
    f = formulate(s.problem, rows)
    if s.cost is not None:
        f.model.add(f.at["cost"] <= s.cost)
    f.model.minimize(f.at["cost"])
    o = run(f.model, time_limit=s.deadline.limit, gap=s.options.gap, seed=s.options.seed, threads=s.options.threads)
    s.outcome, s.rows = o, rows
    if o.solution is not None and o.bound is not None:
        s.chosen, s.cost = read(f, o.solution), o.solution.of(f.at["cost"])
        s.bound = max(s.bound, min(math.ceil(o.bound - 1e-6), rest))
    elif o.stop is Stop.LIMIT and s.chosen is None:
        s.chosen, s.cost = _cheapest_completion(s.problem, rows)


def _cheapest_completion(p: Problem, rows: Ints) -> tuple[dict[str, int], int]:
    """Return the row that is cheapest with its fewest spine uplinks, and its cost: the incumbent where time is over."""
    cost = completion_costs(p, rows)
    row = dict(zip(COLUMNS, rows[int(cost.argmin())].tolist(), strict=True))
    return row | {"spine_up": row["min_spine_up"]}, int(cost.min())


def _choose_among_equals(s: Search) -> None:
    """Take, at the cost proven, the design with the fewest unavoidable splits, then switches, then racks a leaf."""
    f = formulate(s.problem, s.rows[s.rows[:, COL["bound"]] <= s.cutoff])
    f.model.add(f.at["cost"] == s.cost)
    break_ties(f)
    o = run(f.model, time_limit=s.deadline.limit, seed=s.options.seed, threads=s.options.threads)
    if o.solution is not None:
        s.chosen = read(f, o.solution)


def _in_dollars(s: Search, space: dict[str, int]) -> Outcome[FabricDesign]:
    """Return the outcome of the search with the design chosen, cost and bound in dollars."""
    o, p = s.outcome, s.problem
    solution = None if s.chosen is None else fabric_design(p, s.chosen, space)
    cost = None if solution is None else solution.cost_usd
    bound: float | None = p.usd(s.bound)
    if o.infeasible:
        bound = None
    elif cost is not None and s.bound == s.cost:
        bound = cost
    return replace(o.with_solution(solution), objective=cost, bound=bound, seconds=s.deadline.elapsed)
