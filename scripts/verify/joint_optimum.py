"""Compare the plan of an instance, decided in order, with the joint optimum over all of its decisions.

Run `.venv/bin/python scripts/verify/joint_optimum.py INSTANCE [SECONDS]`. The joint optimum has a declared space of its
own, which is printed; `planner solve` does not return it yet.
"""

import sys
import time

import planner
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options
from planner.planning.load import load_instance


def main(path: str, seconds: float | None = None) -> None:
    """Print the days of both with their bounds, and the CPU seconds of the joint search."""
    in_order = planner.solve(path)
    print(f"in order: {in_order.status}, {in_order.objective.value} days")
    started = time.process_time()
    options = Options(time_limit=seconds)
    joint = solve_joint(load_instance(path), options, lambda _: None, overhead_includes_fabric=True)
    print(f"jointly:  {joint.status}, {joint.days} days, bound {joint.lower_bound}")
    print(f"no plan with any fabric takes less than {joint.fabric_free_bound}")
    print(f"in {time.process_time() - started:.1f} CPU-s; space: {joint.space}\noutside: {joint.outside}")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None)
