"""The joint optimum of a test instance: the one place that says how the solver is called."""

from planner.instance.instance import Instance, instance_sha256
from planner.models.joint.solution import JointSolution
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options

_SOLVED: dict[tuple[str, int], JointSolution] = {}  # of this process, by the hash of the instance and the seed


def solved(i: Instance, *, seed: int = 0, time_limit: float | None = None) -> JointSolution:
    """Solve, without a limit of time unless one is given; without one a question is solved once a process."""
    key = instance_sha256(i), seed
    if time_limit is not None:
        return solve_joint(i, Options(seed=seed, time_limit=time_limit), lambda _: None)
    if key not in _SOLVED:
        _SOLVED[key] = solve_joint(i, Options(seed=seed), lambda _: None)
    return _SOLVED[key]
