"""Compute limits of the grid around a site, and DC power flow on sparse matrices: PTDF, LODF, islands, bridges.

Source of the equations: Wood, Wollenberg, Sheblé, Power Generation, Operation, and Control, 3rd ed., chapter 7 (linear
sensitivity factors) [m]. A corridor of c equal circuits has the susceptance c / x; one of them out leaves c - 1.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.instance.grid import Grid, PowerNode
from planner.physics import Floats, Ints


def largest_circuit_mw(grid: Grid, node: str) -> float:
    """Return the rating in MW of the largest existing circuit at a grid node; 0 without lines."""
    return max((line.rating_mw for line in grid.lines if node in (line.a, line.b)), default=0.0)


def usable_interconnect_mw(grid: Grid, node: PowerNode, built: Mapping[str, int], steps: int = 0) -> float | None:
    """Compute a grid node's usable interconnect in MW, or None, with `built` circuits and `steps` of upgrade."""
    # The explicit figure has the largest existing circuit out already; a larger new circuit is then the one to lose,
    # and the old one is back. None where the explicit reading finds no figure.
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
    """Return the share of grid ratings that flows may use before a contingency; `n1: margin` reserves the rest."""
    return grid.rules.n1_margin if grid.rules.n1 == "margin" else 1.0


def lost_share(node: PowerNode) -> float:
    """Compute the share of a grid node's generation lost with its largest unit: all units of a node run alike."""
    if node.largest_unit_mw is None:
        return 1.0
    return min(node.largest_unit_mw / node.generation_mw, 1.0) if node.generation_mw else 0.0


BASE_MVA = 100.0  # base of reactances in an instance
RESONANT = "negative reactances cancel others, so that no flow follows; correct reactance_pu"
LEAST_LEFT = 1e-9  # share of a corridor's transfer: if less remains without a circuit, no flow follows


class PowerNetwork:
    """A DC power grid: nodes 0 to n - 1 and corridors between two different ones; susceptances in MW per radian.

    Flow is positive from a to b, ends of corridors of at least one equal circuit; the reactance of one is on 100 MVA,
    and negative where a series capacitor outweighs the line.
    """

    def __init__(
        self, nodes: int, a: Sequence[int], b: Sequence[int], circuits: Sequence[int], reactance_pu: Sequence[float]
    ) -> None:
        self.nodes = nodes
        self.a: Ints = np.asarray(a, dtype=np.int64)
        self.b: Ints = np.asarray(b, dtype=np.int64)
        self.circuits: Ints = np.asarray(circuits, dtype=np.int64)
        self.susceptance: Floats = BASE_MVA * self.circuits / np.asarray(reactance_pu, dtype=np.float64)

    @cached_property
    def island(self) -> Ints:
        """Return the number of the grid island that each node is in."""
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components

        joined = sparse.coo_matrix((np.ones(len(self.a)), (self.a, self.b)), shape=(self.nodes, self.nodes))
        return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)

    @cached_property
    def _factor(self) -> tuple[Ints, Any]:
        """Return the grid's nodes but each island's first, its reference, and the factors of their Laplacian."""
        from scipy import sparse  # where needed: it takes seconds to load once Pyomo is there
        from scipy.sparse.linalg import splu

        ends, other = np.concatenate([self.a, self.b]), np.concatenate([self.b, self.a])
        weight = np.tile(self.susceptance, 2)
        off = sparse.coo_matrix((weight, (ends, other)), shape=(self.nodes, self.nodes)).tocsr()
        laplacian = sparse.diags(np.asarray(off.sum(axis=1)).ravel()) - off
        _, reference = np.unique(self.island, return_index=True)
        free: Ints = np.setdiff1d(np.arange(self.nodes), reference)
        reduced = laplacian.tocsc()[free][:, free].tocsc()
        options: dict[str, Any] = {}
        if (self.susceptance > 0).all():
            # A grounded Laplacian is symmetric and positive definite: it needs no pivoting, and so fills little.
            options = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        try:
            return free, splu(reduced, permc_spec="MMD_AT_PLUS_A", **options) if len(free) else None
        except RuntimeError:
            raise InputError(f"grid.lines: {RESONANT}") from None

    def angles(self, injection_mw: Floats) -> Floats:
        """Compute the DC angles in radians over each island's reference that balance injections; columns are cases."""
        free, factor = self._factor
        theta = np.zeros_like(injection_mw, dtype=np.float64)
        if factor is not None:
            theta[free] = factor.solve(np.ascontiguousarray(injection_mw[free], dtype=np.float64))
        return theta

    def flows(self, injection_mw: Floats) -> Floats:
        """Compute the DC flows in MW on the grid's corridors; columns are cases."""
        theta = self.angles(injection_mw)
        shape = (-1,) + (1,) * (theta.ndim - 1)
        return np.asarray(self.susceptance.reshape(shape) * (theta[self.a] - theta[self.b]))

    def _incidence(self, lines: Ints) -> Floats:
        columns = np.zeros((self.nodes, len(lines)))
        columns[self.a[lines], np.arange(len(lines))] = 1.0
        columns[self.b[lines], np.arange(len(lines))] -= 1.0
        return columns

    def ptdf(self, lines: Sequence[int]) -> Floats:
        """Compute the grid's PTDF: a row a line, its flow for one MW into each node, out at the island's reference."""
        of = np.asarray(lines, dtype=np.int64)
        # The Laplacian is symmetric, so a row of b A B^-1 is a solve with the line's two ends.
        return np.asarray((self.angles(self._incidence(of)) * self.susceptance[of]).T)

    def lodf(self, lines: Sequence[int]) -> Floats:
        """Compute line outage distribution factors (LODF): after the loss, flow l is f_l + column[l] · f_line.

        They are those of one of c circuits: the corridor's susceptance drops by 1/c, and its other circuits carry their
        part. The lines must not be bridges of one circuit, which `PowerNetwork.bridges` names.
        """
        of = np.asarray(lines, dtype=np.int64)
        ends = self.flows(self._incidence(of))
        here, count = np.arange(len(of)), self.circuits[of]
        own = ends[of, here] / count
        if (np.abs(1.0 - own) < LEAST_LEFT).any():
            raise InputError(f"grid.lines: with a circuit out {RESONANT}")
        shift = ends / count / (1.0 - own)
        shift[of, here] = (count - 1) / count / (1.0 - own) - 1.0
        return np.asarray(shift)

    @cached_property
    def bridges(self) -> dict[int, Ints]:
        """Return the DC grid's bridges: corridors of one circuit whose loss splits an island, and one side's nodes."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(range(self.nodes))
        graph.add_edges_from(zip(self.a.tolist(), self.b.tolist(), strict=True))
        # Depth first, a node's subtree follows it, and corridors that leave it end at nodes before it: a corridor that
        # is the only one to leave the subtree of its later end is a bridge, and that subtree one of its sides.
        order, size = np.array(list(nx.dfs_preorder_nodes(graph)), dtype=np.int64), [1] * self.nodes
        for above, below in reversed(list(nx.dfs_edges(graph))):
            size[above] += size[below]
        place = np.argsort(order)
        first, last = np.sort([place[self.a], place[self.b]], axis=0)
        inward, outward = (np.bincount(end, minlength=self.nodes) for end in (first, last))
        leaving = np.concatenate([[0], np.cumsum(outward - inward)])
        after = last + np.asarray(size)[order[last]]  # the place behind the subtree
        alone = np.flatnonzero((leaving[after] - leaving[last] == 1) & (self.circuits == 1))
        return {line: order[last[line] : after[line]] for line in alone.tolist()}
