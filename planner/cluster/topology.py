"""A cluster's topology: its switches as a tree, and its blocks of nodes, as schedulers describe them."""

from typing import Literal

from pydantic import Field

from planner.errors import InputError
from planner.instance.base_types import Frozen


class TopologySwitch(Frozen):
    """One switch of a cluster's topology; a leaf has nodes, any other has the switches whose parent it is."""

    name: str = Field(description="By which plans and pins name it.")
    parent: str | None = Field(None, description="The switch above; null for a root.")
    nodes: tuple[str, ...] = Field((), description="Nodes of a leaf, in the order of the file.")


class TopologyBlock(Frozen):
    """One block of a cluster's topology: nodes of one scale-up domain, or a scheduler's base block."""

    name: str
    nodes: tuple[str, ...]


class Topology(Frozen):
    """A cluster's topology: the switches and blocks of its nodes; a node is under one leaf and in one block at most."""

    kind: Literal["tree", "block"] = Field("tree", description="What the scheduler places by; trees may have blocks.")
    switches: tuple[TopologySwitch, ...] = ()
    blocks: tuple[TopologyBlock, ...] = ()
    block_sizes: tuple[int, ...] = Field((), description="Sizes of aggregated blocks in nodes, the base block first.")

    def chains(self) -> dict[str, tuple[str, ...]]:
        """Return the switches from each leaf of a topology up to its root. InputError: one missing or above itself."""
        parents = {switch.name: switch.parent for switch in self.switches}
        chains: dict[str, tuple[str, ...]] = {}
        for leaf in (switch for switch in self.switches if switch.nodes):
            chain, at = [leaf.name], leaf.parent
            while at is not None:
                if at not in parents or at in chain:
                    fault = f"leads up to {at!r}, which is {'missing' if at not in parents else 'above itself'}"
                    raise InputError(f"topology: switch {leaf.name!r} {fault}; fix its parent")
                chain.append(at)
                at = parents[at]
            chains[leaf.name] = tuple(chain)
        return chains
