"""The search for the cheapest fabric: rows of least bound first, then all that may still be better."""

import math
import time
from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.fabric.columns import completed, expand, shape_table
from planner.models.fabric.data import Ints, Problem
from planner.models.fabric.design import FabricDesign, fabric_design
from planner.models.fabric.four_tier import zone_table
from planner.models.fabric.model import break_ties, formulate, read
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import COL, COLUMNS, SHAPE
from planner.models.requests import Options
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.cpsat import SOLVER, Values, run
from planner.solvers.outcome import Outcome, Stop

MOST_TIERS = 4
FIRST_SHAPES = 64  # pod shapes of least bound that are looked at first
FIRST_ROWS = 256  # wirings of least bound that the first model holds


@dataclass(slots=True)
class Search:
    """What is held and proven while rows enter the model; costs in the model's units."""

    bound: float
    cost: int | None = None
    chosen: dict[str, int] | None = None
    rows: Ints = field(default_factory=lambda: np.empty((0, len(COLUMNS)), dtype=np.int64))
    shapes: int = 0
    outcome: Outcome[Values] = field(default_factory=lambda: Outcome(stop=Stop.PROVED, infeasible=True, solver=SOLVER))


def search(p: Problem, options: Options, site: str) -> Outcome[FabricDesign]:
    """Build the table, search it, and say what was found in dollars."""
    started = time.perf_counter()
    reason = _hopeless(p)
    prices = LinkPrices(p)
    shapes, space = (np.empty((0, len(SHAPE)), dtype=np.int64), {}) if reason else shape_table(p, prices)
    found = _cheapest(p, shapes, options, started)
    if not reason and p.network.max_tiers == MOST_TIERS:
        zoned, more = zone_table(p, prices, math.inf if found.cost is None else found.cost)
        space |= more
        shapes = _by_bound(np.concatenate([shapes, zoned]))
        found = _go_on(p, shapes, zoned, found, options, started) if len(zoned) else found
    if found.outcome.infeasible:
        edge = f" and {p.request.wan_gbps:,.6g} Gbps of the wide area" if p.request.wan_gbps else ""
        tall = (
            f"; network.max_tiers allows {p.network.max_tiers} of {MOST_TIERS}"
            if p.network.max_tiers < MOST_TIERS
            else ""
        )
        why = (
            reason
            or f"no mode, leaf domain and pod shape has the ports for {p.request.racks} racks{edge} under the time rules and pins{tall}"
        )
        found.outcome = replace(found.outcome, detail=f"{site}: {why}")
    elif found.chosen is not None and found.bound == found.cost:
        _prefer(p, found, options, started)
    space |= {"pod_shapes_excluded_by_bound": len(shapes) - found.shapes, "wirings_in_model": len(found.rows)}
    return _told(p, found, space, time.perf_counter() - started)


def _hopeless(p: Problem) -> str:
    """Say what rules out every fabric before any is looked at; empty where nothing does."""
    transport_slowdown = transport_slowdown_of(p.network)
    if not p.modes:
        return "no switch mode carries a NIC over the lanes allowed and meets the pins on planes and ports"
    if p.ratios.hop < 1:
        return f"the hop's slowdown must be at most {transport_slowdown * p.ratios.hop:g}, the transport alone takes {transport_slowdown:g}"
    if p.ratios.allreduce < 1:
        return f"the all-reduce's slowdown must be at most {transport_slowdown * p.ratios.allreduce:g}, the transport alone takes {transport_slowdown:g}"
    return ""


def _left(options: Options, started: float) -> float | None:
    """Seconds left of the time limit."""
    return None if options.time_limit is None else max(options.time_limit - (time.perf_counter() - started), 0.0)


def _by_bound(shapes: Ints) -> Ints:
    """Sort shapes by their bounds."""
    ranked: Ints = shapes[np.argsort(shapes[:, COL["bound"]], kind="stable")]
    return ranked


def _go_on(p: Problem, shapes: Ints, zoned: Ints, found: Search, options: Options, started: float) -> Search:
    """Search on among all shapes, those of four tiers that may be better than what is held with them, if time is left."""
    least = float(zoned[0, COL["bound"]])
    found.bound = least if found.cost is None else min(found.bound, least)
    return found if found.outcome.stop is not Stop.PROVED else _cheapest(p, shapes, options, started, found)


def _cheapest(p: Problem, shapes: Ints, options: Options, started: float, held: Search | None = None) -> Search:
    """Solve rows of least bound, then all whose bound is within the cost held; the rest cannot be better."""
    found = held or Search(bound=float(shapes[0, COL["bound"]]) if len(shapes) else 0.0)
    taken = (
        min(FIRST_SHAPES, len(shapes))
        if found.cost is None
        else int(np.searchsorted(shapes[:, COL["bound"]], found.cost, side="right"))
    )
    most = FIRST_ROWS
    while taken:
        rows = expand(p, shapes[:taken], math.inf if found.cost is None else found.cost)
        beyond = float(shapes[taken, COL["bound"]]) if taken < len(shapes) else math.inf
        if len(rows):
            beyond = min(beyond, float(rows[most, COL["bound"]]) if most < len(rows) else math.inf)
            _improve(p, found, rows[:most], beyond, options, started)
            found.shapes = taken
            if found.outcome.stop is not Stop.PROVED or found.cost is None or beyond > found.cost:
                break
            most *= 8
        elif taken == len(shapes):
            break
        cost = math.inf if found.cost is None else found.cost
        taken = (
            min(4 * taken, len(shapes))
            if found.cost is None
            else int(np.searchsorted(shapes[:, COL["bound"]], cost, side="right"))
        )
    return found


def _improve(p: Problem, found: Search, rows: Ints, beyond: float, options: Options, started: float) -> None:
    """Solve the model of some rows; no other row is below `beyond`."""
    f = formulate(p, rows)
    if found.cost is not None:
        f.model.add(f.at["cost"] <= found.cost)
    f.model.minimize(f.at["cost"])
    o = run(f.model, time_limit=_left(options, started), gap=options.gap, seed=options.seed, threads=options.threads)
    found.outcome, found.rows = o, rows
    if o.solution is not None and o.bound is not None:
        found.chosen, found.cost = read(f, o.solution), o.solution.of(f.at["cost"])
        found.bound = max(found.bound, min(math.ceil(o.bound - 1e-6), beyond))
    elif o.stop is Stop.LIMIT and found.chosen is None:
        found.chosen, found.cost = _least_completion(p, rows)


def _least_completion(p: Problem, rows: Ints) -> tuple[dict[str, int], int]:
    """Return the cheapest row with its fewest spine uplinks, and its cost: what is held when no time is left to search."""
    cost = completed(p, rows)
    row = dict(zip(COLUMNS, rows[int(cost.argmin())].tolist(), strict=True))
    return row | {"spine_up": row["least_spine_up"]}, int(cost.min())


def _prefer(p: Problem, found: Search, options: Options, started: float) -> None:
    """Among designs of the cost proven least take the one with fewest unavoidable splits, then boxes, then racks a leaf, if time is left."""
    assert found.cost is not None
    f = formulate(p, found.rows[found.rows[:, COL["bound"]] <= found.cost])
    f.model.add(f.at["cost"] == found.cost)
    break_ties(f)
    o = run(f.model, time_limit=_left(options, started), seed=options.seed, threads=options.threads)
    if o.solution is not None:
        found.chosen = read(f, o.solution)


def _told(p: Problem, found: Search, space: dict[str, int], seconds: float) -> Outcome[FabricDesign]:
    """Say in dollars what the search holds."""
    o = found.outcome
    solution = None if found.chosen is None else fabric_design(p, found.chosen, space)
    proved = solution is not None and found.bound == found.cost
    return Outcome(
        stop=o.stop,
        solution=solution,
        objective=None if solution is None else solution.cost_usd,
        bound=None if o.infeasible else solution.cost_usd if solution is not None and proved else p.usd(found.bound),
        infeasible=o.infeasible,
        detail=o.detail,
        solver=SOLVER,
        variables=o.variables,
        constraints=o.constraints,
        seconds=seconds,
    )
