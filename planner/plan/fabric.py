"""The fabric section of a plan."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.network import FabricFamily
from planner.plan.certificate import Certificate


class Tier(Frozen):
    """One tier of a site's fabric."""

    name: Literal["leaf", "spine", "core", "super-core"]
    switches: int
    down_ports: int
    up_ports: int
    oversubscription: float
    bundle: int = Field(description="Parallel links from one switch to each switch above it; 0 at the top.")


class WanGateway(Frozen):
    """The switches of a site at which the wide area ends: beside the tiers, of the same box; counts are over all networks."""

    wan_gbps: float = Field(description="Rate of the wavelengths that end here, each way.")
    wan_ports: int = Field(description="Ports towards the wide area, as many in every network.")
    switches: int
    uplinks: int = Field(
        description="Links to free ports of the top tier, or of a dragonfly's switches, one for each port towards the wide area."
    )
    exchange_gbps: float = Field(
        0.0, description="Rate of the gradients that pass it each way, in the time that the step counts on."
    )
    leaf_uplink_share: float = Field(
        0.0, description="Most of a leaf's uplinks that the exchange takes, from the placement."
    )
    pod_uplink_share: float = Field(
        0.0, description="Most of a pod's uplinks that the exchange takes, from the placement."
    )
    zone_uplink_share: float = Field(
        0.0, description="Most of a zone's uplinks that the exchange takes, from the placement; 0 without zones."
    )
    cost_usd: float
    power_mw: float


class SiteFabric(Frozen):
    """The fabric of one site; counts are of boxes and of cables (all planes together), those of its WAN gateway apart."""

    switch: str
    planes: int
    ports_per_switch: int
    tiers: tuple[Tier, ...]
    switches: int
    chips: int
    switch_links: int
    endpoint_links: int
    cost_usd: float = Field(description="WanGateway included.")
    power_mw: float = Field(description="WanGateway included.")
    wan_gateway: WanGateway | None = Field(
        None, description="Where the instance asks for it and wavelengths end at the site."
    )
    leaf_domain_racks: int = Field(description="Racks whose GPUs of one index share a leaf.")
    family: FabricFamily = "rail"
    lanes: int = Field(1, description="Networks that every NIC is split over.")
    leaf_spare_ports: int = Field(0, description="Ports of each leaf kept free.")
    split: int = Field(
        1,
        description="GPU links that share a port of a leaf; the leaf's down_ports and leaf_spare_ports count the parts.",
    )
    group_links: int = Field(0, description="Links between each two groups of a dragonfly; its groups are the pods.")
    leaf_domains: int
    rails_per_pod: int = Field(description="GPU indices that share a pod.")
    leaf_domains_per_pod: int = Field(
        description="Leaf domains that share a pod; a group within them never crosses the core."
    )
    pods: int
    rails_per_zone: int = Field(
        0, description="GPU indices that share a zone, whose pods have cores of their own; 0 below four tiers."
    )
    leaf_domains_per_zone: int = Field(
        0, description="Leaf domains that share a zone; a group within them never crosses the super-core."
    )
    zones: int = 0
    share_leaving_leaf: float = Field(
        description="Largest share of a leaf's pipeline flows that go up, from the placement."
    )
    share_leaving_pod: float = Field(
        description="Largest share of a pod's pipeline flows that cross the core, from the placement."
    )
    share_leaving_zone: float = Field(
        0.0, description="Largest share of a zone's pipeline flows that cross the super-core, from the placement."
    )
    p2p_seconds: float
    pipeline_send_slowdown: float
    allreduce_slowdown: float


class TransportFactor(Frozen):
    """The transport's slowdown as runs on a reference tree showed it: what the plan counts on in the place of the constant."""

    transport: Literal["ecmp", "spray", "adaptive"]
    pattern: Literal["permutation"] = "permutation"
    switch: str = Field(
        description="Switch of the reference tree: the one of the instance's on which the transport is slowest."
    )
    tiers: int
    hosts: int
    oversubscription: float = Field(description="Ports down over ports up at the leaves, rounded up to whole ports.")
    seeds: int
    percentile: float
    slowdown: float = Field(
        description="That percentile over the seeds of the slowest flow's time over the fluid ideal."
    )
    configured_slowdown: float = Field(description="The constant of the instance, which was not used.")


class FabricPlan(Frozen):
    """The fabric of every site."""

    sites: dict[str, SiteFabric]
    certificate: Certificate
