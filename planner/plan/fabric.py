"""The fabric section of a plan."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.network import FabricFamily
from planner.plan.certificate import Certificate


class Tier(Frozen):
    """One tier of a site's fabric."""

    name: Literal["leaf", "spine", "core", "super-spine"] = Field(description="Of the tier.")
    switch: str = Field("", description="Its box, by name; empty: the leaf's.")
    switches: int = Field(description="In one plane.")
    down_ports: int = Field(description="Of a switch, towards GPUs.")
    up_ports: int = Field(description="Of a switch, away from GPUs.")
    oversubscription: float = Field(description="Rate of the ports down over that of the ports up.")
    bundle: int = Field(description="Parallel links from one switch to each switch above it; 0 at the top.")


class WanGateway(Frozen):
    """The switches of a site at which the wide area ends, beside the tiers; counts are over all networks."""

    wan_gbps: float = Field(description="Rate of the wavelengths that end here, each way.")
    wan_ports: int = Field(description="Ports towards the wide area, as many in every network.")
    switches: int = Field(description="Boxes of the gateway.")
    uplinks: int = Field(description="Links to free ports of the top tier (of a dragonfly, its switches).")
    exchange_gbps: float = Field(0.0, description="Rate of the gradients through it, each way.")
    leaf_uplink_share: float = Field(0.0, description="Largest share of a leaf's uplinks in the exchange.")
    pod_uplink_share: float = Field(0.0, description="Largest share of a pod's uplinks in the exchange.")
    zone_uplink_share: float = Field(0.0, description="Largest share of a zone's uplinks in the exchange.")
    cost_usd: float = Field(description="In dollars.")
    power_mw: float = Field(description="In MW.")


class SharedLink(Frozen):
    """Slowdowns over the NIC's ideal on one kind of link that pipeline exchange and rings share."""

    link: Literal["nic", "leaf", "pod", "zone"] = Field(description="A GPU's NIC, or the uplinks.")
    pipeline_send_slowdown: float = Field(description="Of pipeline exchange alone.")
    allreduce_slowdown: float = Field(description="Of rings alone.")
    together_slowdown: float = Field(description="Of each while both cross it.")


class SiteFabric(Frozen):
    """The fabric of one site; counts are of switches and of cables (all planes together), without its WAN gateway's."""

    switch: str = Field(description="The box of a leaf, by name.")
    planes: int = Field(description="Networks side by side.")
    ports_per_switch: int = Field(description="Ports of one chip of a leaf.")
    tiers: tuple[Tier, ...] = Field(description="From the leaves up.")
    switches: int = Field(description="Boxes of all tiers and planes.")
    chips: int = Field(description="Switch chips of all tiers and planes.")
    switch_links: int = Field(description="Links between switches.")
    endpoint_links: int = Field(description="Links between GPUs and leaves.")
    cost_usd: float = Field(description="WanGateway included.")
    power_mw: float = Field(description="WanGateway included.")
    wan_gateway: WanGateway | None = Field(None, description="Where asked for and wavelengths end at the site.")
    cabled_racks: int = Field(0, description="Racks in use, which alone are cabled; 0: all of the site.")
    wired_gpus_per_rack: int = Field(0, description="GPUs of a rack that are cabled; 0: all of them.")
    leaf_domain_racks: int = Field(description="Racks whose GPUs of one index share a leaf.")
    family: FabricFamily = Field("rail", description="How leaves take GPUs.")
    lanes: int = Field(1, description="Networks that every NIC is split over.")
    leaf_spare_ports: int = Field(0, description="Ports of each leaf kept free.")
    split: int = Field(
        1,
        description="GPU links that share a leaf's port; down_ports and leaf_spare_ports count them.",
    )
    group_links: int = Field(0, description="Links between each two groups of a dragonfly; its groups are the pods.")
    leaf_domains: int = Field(description="Of the site.")
    rails_per_pod: int = Field(description="GPU indices that share a pod.")
    leaf_domains_per_pod: int = Field(description="Leaf domains that share a pod; groups within avoid the core.")
    pods: int = Field(description="Of the site.")
    rails_per_zone: int = Field(0, description="GPU indices that share a zone; 0 below four tiers.")
    leaf_domains_per_zone: int = Field(0, description="Leaf domains that share a zone; 0 below four tiers.")
    zones: int = Field(0, description="Of the site; 0 below four tiers.")
    core_boxes: int = Field(
        0,
        description="Cores of a network, or of each zone, that core positions share in turn; 0: each has its own.",
    )
    super_spine_boxes: int = Field(
        0, description="Super-spines of a network that the positions above cores share in turn; 0: each has its own."
    )
    share_leaving_leaf: float = Field(description="Largest share of pipeline flows that leave a leaf.")
    share_leaving_pod: float = Field(description="Largest share of pipeline flows that leave a pod.")
    share_leaving_zone: float = Field(0.0, description="Largest share of pipeline flows that leave a zone.")
    p2p_seconds: float = Field(description="One pipeline send as built, in seconds.")
    pipeline_send_slowdown: float = Field(description="Pipeline exchange as built over the NIC's ideal.")
    allreduce_slowdown: float = Field(description="Ring between racks as built over the NIC's ideal.")
    shared_links: tuple[SharedLink, ...] = Field(
        (), description="That both cross at once; empty where the schedule never lets them meet."
    )

    @property
    def models(self) -> tuple[str, ...]:
        """The box of each tier, by name."""
        return tuple(t.switch or self.switch for t in self.tiers)

    @property
    def boxes(self) -> str:
        """Every box of the tiers, by name, in words."""
        return " and ".join(dict.fromkeys(self.models))


class TransportFactor(Frozen):
    """The transport's slowdown in runs on a reference tree: the plan takes it in place of the constant."""

    transport: Literal["ecmp", "spray", "adaptive"] = Field(description="That was simulated.")
    pattern: Literal["permutation"] = Field("permutation", description="Of the flows.")
    switch: str = Field(description="Of the reference tree: the instance's on which it is slowest.")
    tiers: int = Field(description="Of the reference tree.")
    hosts: int = Field(description="Of the reference tree.")
    oversubscription: float = Field(description="Ports down over ports up at the leaves, rounded up to whole ports.")
    seeds: int = Field(description="Runs.")
    percentile: float = Field(description="Of the runs, 0 to 100.")
    slowdown: float = Field(description="That percentile of the slowest flow's time over the ideal.")
    configured_slowdown: float = Field(description="The constant of the instance, which was not used.")


class FabricAlternative(Frozen):
    """Another kind of fabric for the same hosts: its cheapest design, or why there is none."""

    name: str = Field(description="Family and tiers.")
    lost: str = Field(description="Why it was not chosen; empty for the fabric that was.")
    fabric: SiteFabric | None = Field(None, description="Its cheapest design; null where none keeps the rules.")
    bisection_tbps: float | None = Field(
        None, description="Rate in each direction between two halves of the hosts, at the narrowest tier."
    )
    ecmp_tail: float | None = Field(
        None, description="Slowest flow of a random permutation over a NIC's line rate, a path a flow; null: not known."
    )
    spray_tail: float | None = Field(None, description="The same where packets take all paths.")


class FabricPlan(Frozen):
    """The fabric of every site."""

    sites: dict[str, SiteFabric] = Field(description="By site.")
    certificate: Certificate = Field(description="What is proven of it.")
    alternatives: tuple[FabricAlternative, ...] = Field(
        (), description="Kinds of fabric side by side, cheapest first, where a fabric alone was asked for."
    )
