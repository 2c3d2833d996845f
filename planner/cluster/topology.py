"""A cluster's network as schedulers describe it: nodes under leaf switches, these under others, and blocks."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen


class Switch(Frozen):
    """One switch of a tree; a leaf has nodes, any other has the switches whose parent it is."""

    name: str = Field(description="By which plans and pins name it.")
    parent: str | None = Field(None, description="The switch above; null for a root.")
    nodes: tuple[str, ...] = Field((), description="Nodes of a leaf, in the order of the file.")


class Block(Frozen):
    """Nodes that share a scale-up domain, or a base block of a scheduler that places by blocks."""

    name: str
    nodes: tuple[str, ...]


class Topology(Frozen):
    """Where every node stands; a node is under one leaf at most, and in one block at most."""

    kind: Literal["tree", "block"] = Field("tree", description="What the scheduler places by; trees may have blocks.")
    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = Field((), description="Sizes of aggregated blocks in nodes, the base block first.")
