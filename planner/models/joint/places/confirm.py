"""A second proof of what the MILP over sites said: the same question to CP-SAT, whose arithmetic is exact.

Under dc it is asked of the transport model, which leaves out reactances and contingencies: its sites cost no more, so
that a bound on them holds for the dc question too.
"""

import math
from dataclasses import replace

from planner.models.joint.places.milp import Question, stated
from planner.models.joint.sites import Placed, Sites
from planner.models.requests import SitesRequest
from planner.models.sites.data import SplitData, gather
from planner.solvers.registry import run_milp

CONFIRMED = "confirmed by CP-SAT"
ON_TRUST = "on trust"
TOLERANCE = 1e-6  # relative, as the checks have it; above what counting in kilowatts and dollars costs


def confirmed(sites: Sites, placed: Placed, seconds: float | None) -> str:
    """Say whether CP-SAT too finds no cheaper sites for the parts of a plan, in so many seconds at most.

    What HiGHS claims is the capital without WAN gateways, which come after the sites.
    """
    q = sites.question(placed.asked, placed.circuit, dict(placed.designs))
    claimed, bound = placed.proof.bound_usd, least_usd(sites, q, seconds)
    agreed = claimed is not None and bound is not None and bound >= claimed * (1 - TOLERANCE)
    return CONFIRMED if agreed else ON_TRUST


def least_usd(sites: Sites, q: Question, seconds: float | None) -> float | None:
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
