"""The placement section of a plan."""

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate


class Assignment(Frozen):
    """A piece of a stage's replica group on one leaf domain."""

    stage: int = Field(description="Rack stage, from 0.")
    leaf_domain: int = Field(description="Leaf domain, from 0.")
    racks: str = Field(description="Hostlist of the racks, in rank order.")


class SitePlacement(Frozen):
    """Which racks of a site carry which stages."""

    assignment: tuple[Assignment, ...] = Field(description="Racks of every stage and leaf domain.")


class PlacementPlan(Frozen):
    """Which racks carry which ranks; groups are the stages' replica groups, one per stage and site."""

    groups: int = Field(description="All-reduce groups of all sites.")
    groups_leaf_local: int = Field(description="Those under one leaf domain.")
    groups_split: int = Field(description="Those over several leaf domains.")
    lower_bound_split: int = Field(description="groups - sum over leaf domains of floor(racks / group size).")
    extra_pieces: int = Field(description="Pieces beyond one per group.")
    groups_cross_pod: int = Field(description="Those over several pods.")
    stripes: dict[str, int] = Field(
        default_factory=dict,
        description="By site: 1, whole pipelines side by side, up to the rack stages, whole all-reduce groups.",
    )
    block_racks: int = Field(0, description="Racks of a block, which holds whole replicas.")
    blocks_by_site: dict[str, int] = Field(default_factory=dict, description="Blocks of racks of each site.")
    sites: dict[str, SitePlacement] = Field(description="By site.")
    certificate: Certificate = Field(description="What is proven of it.")
