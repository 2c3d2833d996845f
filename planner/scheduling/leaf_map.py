"""Where each node of a topology stands: its leaf, the tree of the leaf, its scale-up block."""

from collections.abc import Sequence

from planner.cluster.topology import Topology
from planner.models.placement.data import LeafNodes, leaves_of


class LeafMap:
    """A topology's leaves in their order, and the leaf of each node."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.leaves: tuple[LeafNodes, ...] = tuple(leaves_of(topology))
        self.leaf_of = {node: i for i, leaf in enumerate(self.leaves) for node in leaf.nodes}
        self.trees = len({leaf.tree for leaf in self.leaves})

    def blocks_of(self, units: Sequence[Sequence[tuple[str, ...]]], leaf: int) -> list[int]:
        """Return the number of the block of each free node of a leaf."""
        number = {node: b for b, block in enumerate(self.leaves[leaf].blocks) for node in block}
        return [number[unit[0]] for unit in units[leaf]]
