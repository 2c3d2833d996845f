"""What the writers need of a placement: nodes in rank order, their groups, and what was proven."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from planner.instance.base import Frozen


class PlacedGroup(Frozen):
    """An all-reduce group: its nodes in ring order."""

    name: str
    nodes: tuple[str, ...]


class Placed(Frozen):
    """One job on nodes; ranks fill each node before the next."""

    job: str = Field(min_length=1, description="Name of the job.")
    nodes: tuple[str, ...] = Field(min_length=1, description="In rank order.")
    groups: tuple[PlacedGroup, ...] = ()
    gpus_per_node: int = Field(8, ge=1, description="Ranks of a node, one a GPU.")
    certificate: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _once(self) -> "Placed":
        """Refuse a node that stands twice: no scheduler starts it twice."""
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError("a node stands twice in the rank order; give each once")
        return self

    @property
    def ranks(self) -> int:
        """Processes of the job."""
        return len(self.nodes) * self.gpus_per_node

    @property
    def hostfile(self) -> str:
        """The nodes, a line a rank in rank order."""
        return "".join(f"{node}\n" * self.gpus_per_node for node in self.nodes)
