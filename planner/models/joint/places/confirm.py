"""A second proof of what the MILP over sites said: the same question to CP-SAT, whose arithmetic is exact.

Under dc it is asked of the transport model, which leaves out reactances and contingencies: its sites cost no more, so
that a bound on them holds for the dc question too.
"""

import math
from dataclasses import replace

from planner.models.joint.places.milp import Circuit, Part, Question, stated
from planner.models.joint.sites import Placed, Sites
from planner.models.requests import SitesRequest
from planner.models.sites.data import SplitData, gather
from planner.solvers.registry import run_milp

CONFIRMED = "confirmed by CP-SAT"
ON_TRUST = "on trust"
TOLERANCE = 1e-6  # relative, as the checks have it; above what counting in kilowatts and dollars costs


def confirmed(sites: Sites, placed: Placed, seconds: float) -> str:
    """Say whether CP-SAT too finds no cheaper sites for the parts of a plan, in so many seconds."""
    q = sites.question(placed.asked, placed.circuit, dict(placed.designs))
    bound = least_usd(sites, q, seconds)
    return CONFIRMED if bound is not None and bound >= placed.capital_usd * (1 - TOLERANCE) else ON_TRUST


def refusal_confirmed(
    sites: Sites, parts: tuple[Part, ...], circuit: Circuit | None, budget_usd: float, seconds: float
) -> str:
    """Say whether CP-SAT too finds no sites within the budget for a question that was refused, in so many seconds."""
    found = sites.cheapest(parts, circuit)
    if found is not None and found.capital_usd <= budget_usd:
        raise ValueError("joint sites: the question was not refused")
    q = sites.question(parts, circuit, {} if found is None else dict(found.designs))
    bound = least_usd(sites, q, seconds)
    return CONFIRMED if bound is not None and bound > budget_usd * (1 - TOLERANCE) else ON_TRUST


def least_usd(sites: Sites, q: Question, seconds: float) -> float | None:
    """Return a bound on the capital of a question by CP-SAT; infinite where no sites hold the parts, None unknown."""
    m = stated(replace(q, data=_transport(sites, q.data)), loose=True)
    outcome = run_milp(m, solver="cpsat", time_limit=seconds, seed=sites.seed)
    if outcome.infeasible and outcome.proved:
        return math.inf
    return None if outcome.bound is None else outcome.bound * 1e6


def _transport(sites: Sites, data: SplitData) -> SplitData:
    """Return the question without reactances and contingencies."""
    if data.network is None:
        return data
    rules = data.grid.rules
    n1 = rules.n1 if rules.n1 == "margin" else "off"
    grid = data.grid.model_copy(update={"rules": rules.model_copy(update={"grid_model": "transport", "n1": n1})})
    return gather(sites.instance.model_copy(update={"grid": grid}), SitesRequest())
