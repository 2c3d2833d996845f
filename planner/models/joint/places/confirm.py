"""Prove the bound of the MILP over sites a second time: by CP-SAT, whose arithmetic is exact, on the same question.

Under dc it is asked of the transport model, which leaves out reactances and contingencies: its sites cost no more, so
that a bound on them holds for the dc question too.
"""

import math
from dataclasses import replace

from planner.models import SitesRequest
from planner.models.joint.places.milp import stated
from planner.models.joint.places.site_question import PlacedParts, SiteQuestion
from planner.models.joint.sites import Sites
from planner.models.sites.split_data import gather
from planner.plan.certificate import BOUNDED, CONFIRMED
from planner.solvers.highs import lower_bound
from planner.solvers.outcome import Way, second_proof
from planner.solvers.registry import run_milp


def confirmed(sites: Sites, placed: PlacedParts, seconds: float | None) -> str:
    """Return the mark of the bound on a plan's sites: CONFIRMED, BOUNDED, or ON_TRUST after `seconds` seconds."""
    # CP-SAT confirms that no sites are cheaper for the parts of the plan. Where it does not, and first under dc, whose
    # reactances are no whole numbers, a dual bound of the relaxation is recomputed in exact fractions. The claim of
    # HiGHS is on the capital without WAN gateways, which are chosen after the sites.
    q = sites.question(placed.asked, placed.circuit, dict(placed.designs))

    def relaxed_usd(limit: float | None) -> float | None:
        """Bound the capital by the duals of the question's relaxation; lazy rows would only raise it."""
        found = lower_bound(stated(q), time_limit=limit)
        return None if found is None else found * 1e6

    ways: list[Way] = [(CONFIRMED, lambda limit: least_usd(sites, q, limit)), (BOUNDED, relaxed_usd)]
    return second_proof(placed.proof.bound_usd, ways if q.data.network is None else reversed(ways), seconds)


def least_usd(sites: Sites, q: SiteQuestion, seconds: float | None) -> float | None:
    """Return a bound on the capital of a question by CP-SAT; infinite where no sites hold the parts, None unknown."""
    data = q.data
    if data.network is not None:  # without reactances and contingencies
        rules = data.grid.rules
        looser = {"grid_model": "transport", "n1": rules.n1 if rules.n1 == "margin" else "off"}
        grid = data.grid.model_copy(update={"rules": rules.model_copy(update=looser)})
        data = gather(sites.instance.model_copy(update={"grid": grid}), SitesRequest())
    m = stated(replace(q, data=data), loose=True)
    outcome = run_milp(m, solver="cpsat", time_limit=seconds, seed=sites.seed)
    if outcome.infeasible and outcome.proved:
        return math.inf
    return None if outcome.bound is None else outcome.bound * 1e6
