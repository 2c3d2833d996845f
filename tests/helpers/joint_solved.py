"""The joint optimum of a test instance: the one place that says how the solver is called."""

from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options


def solved(i: Instance, *, seed: int = 0, time_limit: float | None = None) -> JointSolution:
    """Solve, without a limit of time unless one is given."""
    options = Options(seed=seed, time_limit=time_limit)
    return solve_joint(i, options, lambda _: None)
