"""What the grid around a site can carry: its interconnect, the usable share of ratings, and the loss of a unit."""

from collections.abc import Mapping

from planner.instance.grid import Grid, PowerNode


def largest_circuit_mw(grid: Grid, node: str) -> float:
    """Return the rating of the largest existing circuit at a node; 0 without lines."""
    return max((line.rating_mw for line in grid.lines if node in (line.a, line.b)), default=0.0)


def usable_interconnect_mw(grid: Grid, node: PowerNode, built: Mapping[str, int], steps: int = 0) -> float | None:
    """Compute a node's usable interconnect in MW, with `built` new circuits by corridor and `steps` of its upgrade.

    The explicit figure has the largest existing circuit out already; a larger new circuit is then the one to lose, and
    the old one is back. None where the explicit reading finds no figure.
    """
    reading = grid.rules.interconnect.reading
    new = [line for line in grid.new_lines if node.id in (line.a, line.b) and built.get(line.id, 0)]
    bought = steps * node.upgrade.step_mw if node.upgrade else 0.0
    added = sum(line.rating_mw * built[line.id] for line in new) + bought
    existing = largest_circuit_mw(grid, node.id)
    largest = max([existing, *(line.rating_mw for line in new)])
    if reading == "explicit":
        return None if node.interconnect_mw is None else node.interconnect_mw + added - (largest - existing)
    total = sum(line.circuits * line.rating_mw for line in grid.lines if node.id in (line.a, line.b)) + added
    return total if reading == "capacity" else total - largest


def normal_share(grid: Grid) -> float:
    """Return the share of the ratings that flows may use before a contingency; `n1: margin` reserves the rest."""
    return grid.rules.n1_margin if grid.rules.n1 == "margin" else 1.0


def lost_share(node: PowerNode) -> float:
    """Compute the share of a node's generation that is lost with its largest unit: all units of a node run alike."""
    if node.largest_unit_mw is None:
        return 1.0
    return min(node.largest_unit_mw / node.generation_mw, 1.0) if node.generation_mw else 0.0
