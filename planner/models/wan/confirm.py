"""A second proof of what the MILP over the wide area said: that no fibre which carries all of it is cheaper."""

from planner.instance.instance import Instance
from planner.models.requests import WanRequest
from planner.models.second_proof import second_proof
from planner.models.wan.data import gather
from planner.models.wan.model import scale
from planner.models.wan.solve import stated
from planner.plan.declared import BOUNDED, CONFIRMED, ON_TRUST
from planner.plan.wan import WanPlan
from planner.solvers.dual_bound import lower_bound
from planner.solvers.registry import run_milp


def confirmed(instance: Instance, request: WanRequest, plan: WanPlan, seconds: float | None, *, seed: int = 0) -> str:
    """Say whether CP-SAT too finds no cheaper design, or the duals of the relaxation, in so many seconds at most.

    A design that leaves traffic out stays on trust: that the fibre carries no more of it is another question.
    """
    if any(d.missing_gbps for d in plan.demands):
        return ON_TRUST
    data = gather(instance, request)
    m, unit = stated(data), scale(data)

    def least(limit: float | None) -> float | None:
        outcome = run_milp(m, solver="cpsat", time_limit=limit, seed=seed)
        return None if outcome.bound is None else outcome.bound * unit

    def relaxed(limit: float | None) -> float | None:
        found = lower_bound(m, time_limit=limit)
        return None if found is None else found * unit

    return second_proof(plan.certificate.bound, [(CONFIRMED, least), (BOUNDED, relaxed)], seconds)
