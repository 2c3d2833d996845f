"""What `planner frontier` prints: the curve of an instance."""

from planner.planning.frontier import Frontier
from planner.report.statements.curve import knee, proven, segments, table, without_plan
from planner.report.summary import fitted
from planner.units import counted


def curve_text(frontier: Frontier, epsilon: float, width: int | None = None) -> str:
    """Write a curve: its plans by rising capital, its proven epsilon and bounds, and the knee or why there is none.

    Parameters
    ----------
    frontier
        To write.
    epsilon
        The share within which a row was asked for.
    width
        Columns of the longest line; None: no line is broken.
    """
    curve = frontier.curve
    if not curve.points:
        return fitted(f"{frontier.instance.name}: {without_plan(curve)}", width)
    plans = counted(len(curve.points), "plan")
    head = f"{frontier.instance.name}: {plans} that no other beats in both capital and days"
    lines = [head, *table(curve.points), *proven(curve, epsilon), *segments(curve.points)]
    return fitted("\n".join([*lines, *knee(curve.points)]), width)
