"""The joint optimum of a test instance: the one place that says how the solver is called."""

from joint_toys import includes_fabric

from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options


def solved(i: Instance, *, seed: int = 0) -> JointSolution:
    """Solve without a limit of time."""
    return solve_joint(i, Options(seed=seed), lambda _: None, overhead_includes_fabric=includes_fabric(i))
