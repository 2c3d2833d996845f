"""The sections of a plan: layout, pools and reliability; fabric and placement; sites and the wide area."""

import math
from typing import Literal

from pydantic import Field

from planner.instance.base_types import Frozen
from planner.instance.network import FabricFamily
from planner.instance.reliability import CheckpointTarget, Recovery
from planner.plan.certificate import Certificate


class Assumptions(Frozen):
    """What a plan's layout section assumes of the network for its step time, which may be no slower."""

    pipeline_send_slowdown: float = Field(description="Pipeline exchange over the NIC's ideal.")
    allreduce_slowdown: float = Field(description="Ring between racks over the NIC's ideal.")
    wan_gbps: float | None = Field(None, description="Rate of the exchange between sites, each way.")
    wan_rtt_ms: float | None = Field(
        None, description="Round trip between the sites that are farthest apart, in ms; null: one site."
    )


class LayoutMetrics(Frozen):
    """The metrics in the layout section of a plan, all predicted."""

    step_seconds: float = Field(description="One optimiser step.")
    breakdown_seconds: dict[str, float] = Field(description="Parts that sum to step_seconds.")
    tokens_per_step: float = Field(description="Of all replicas.")
    memory_bytes_per_gpu: float = Field(description="Worst GPU, reserve excluded.")
    memory_breakdown_bytes: dict[str, float] = Field(description="Parts on the worst GPU.")
    memory_limit_bytes: float = Field(description="HBM of a GPU less its reserves.")
    mfu: float = Field(description="Model FLOP over dense peak of the GPUs used.")
    days_to_train: float = Field(description="On a calendar, what stops cost with them where failures count.")
    step_days_to_train: float = Field(description="Of steps alone, as if nothing ever failed.")
    useful_share: float = Field(description="Share of the days to train that steps take.")
    days_to_train_interval: tuple[float, float] = Field(
        description="Within it lie 4 of 5 measured runs of the same precision, scale and stack."
    )
    pipeline_send_seconds: float = Field(description="One pipeline exchange at the assumed slowdown, gather included.")
    pipeline_send_nic_seconds: float = Field(description="NIC time of one pipeline exchange at the ideal rate.")
    pipeline_send_window_seconds: float = Field(
        description="Compute of the smallest chunk, during which one exchange may run."
    )
    sends_beside_rings: float = Field(
        0.0, description="Pipeline exchanges of a step that the schedule lets meet rings, which they wait for."
    )
    allreduce_layer_seconds: float = Field(description="All-reduce of a layer between racks at the ideal rate.")
    allreduce_window_seconds: float = Field(description="Backward pass of a layer, during which it may run.")
    gradient_bytes_per_stage: float = Field(description="What one stage exchanges between sites per step.")
    wan_window_seconds: float = Field(description="Backward pass of one stage, which hides that exchange.")

    @property
    def fits_memory(self) -> bool:
        """Whether the memory that a plan's metrics state of the fullest GPU is within its limit."""
        return self.memory_bytes_per_gpu <= self.memory_limit_bytes


DEGREES = "tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel", "data_parallel"
STAGE_DEGREES = DEGREES[:2]  # whose product is the GPUs of a stage of a replica
LEAST_CAPITAL = "capital of fibre and wavelengths, USD"  # what a certificate says that a design minimizes


class LayoutPlan(Frozen):
    """The layout section of a plan: the parallel strategy of a training step."""

    accelerator: str = Field("", description="GPU that was chosen, where the hardware has alternatives.")
    tensor_parallel: int = Field(description="GPUs that share each matrix (TP).")
    tensor_parallel_inner: int = Field(1, description="Of 2-D tensor parallelism: ranks that share an input.")
    context_parallel: int = Field(1, description="GPUs that share each sequence (CP).")
    expert_parallel: int = Field(1, description="GPUs that share the experts of a layer (EP), over replicas.")
    pipeline_parallel: int = Field(description="Stages of the pipeline (PP).")
    data_parallel: int = Field(description="Replicas over all sites (DP).")
    data_parallel_by_site: dict[str, int] = Field(description="Replicas of each site.")
    schedule: Literal["1f1b", "zb-h1"] = Field("1f1b", description="Interleaved where there are virtual stages.")
    virtual_stages: int = Field(description="Chunks of layers of each stage.")
    microbatch_sequences: int = Field(description="Sequences of a micro-batch.")
    microbatches_per_step: int = Field(description="Micro-batches of each replica in a step.")
    recompute: Literal["none", "selective", "full"] = Field(description="full: as recomputed_layers_per_stage.")
    recomputed_layers_per_stage: tuple[int, ...] = Field(
        (), description="Layers that run again in the backward pass; empty: none, or all under full."
    )
    sequence_parallel: bool = Field(description="Activations between matrices are divided over TP too.")
    zero_stage: Literal[0, 1, 2, 3] = Field(
        description="What replicas shard: 0 nothing, 1 optimiser state, 2 gradients too, 3 weights too."
    )
    layers_per_stage: tuple[int, ...] = Field(description="Layers of every stage.")
    replicas_per_rack: int = Field(description="Replicas of a stage in one rack.")
    racks_per_replica: int = Field(1, description="Racks of one replica's stage, where one is too small.")
    stages_per_rack: int = Field(1, description="Consecutive stages that share a rack.")
    racks_per_stage_by_site: dict[str, int] = Field(description="Racks of a stage's all-reduce group.")
    gpus_used: int = Field(description="GPUs that train.")
    gpus_idle: int = Field(description="GPUs that are bought and do not.")
    assumptions: Assumptions = Field(description="What the step time assumes of the network.")
    metrics: LayoutMetrics = Field(description="Time, memory and rates that are predicted.")
    certificate: Certificate = Field(description="What is proven of it.")

    @property
    def degrees(self) -> tuple[int, int, int]:
        """Degrees of tensor, context and expert parallelism in the layout section of a plan."""
        return self.tensor_parallel, self.context_parallel, self.expert_parallel

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage of a replica, by the layout section of a plan."""
        return self.tensor_parallel * self.context_parallel

    @property
    def racks_gpus(self) -> int:
        """GPUs at work in racks that stages share, or that a replica's stage takes, by the layout section of a plan."""
        return self.stages_per_rack * self.replicas_per_rack * self.stage_gpus

    @property
    def sequences(self) -> int:
        """Sequences of a step, by the layout section of a plan."""
        return self.data_parallel * self.microbatches_per_step * self.microbatch_sequences

    @property
    def rack_stages(self) -> int:
        """Groups of racks for different stages, by a plan's layout section: what its fabric joins, and is placed."""
        return -(-self.pipeline_parallel // self.stages_per_rack)


class PoolsPlan(Frozen):
    """The pools section of a plan: each pool's share of a step's batch, in sequences, and its own strategy."""

    sequences: dict[str, int] = Field(description="Of a step, by pool; 0: the pool does not train.")
    layouts: dict[str, LayoutPlan] = Field(description="Of each pool that trains, for its share of the batch.")
    exchange_seconds: dict[str, float] = Field(description="Exposed exchange with the other pools.")
    step_seconds: float = Field(description="The slowest pool's step and the longest exchange.")
    tokens_per_step: float = Field(description="Of all pools.")
    days_to_train: float = Field(description="Of all tokens, availability included.")
    days_to_train_interval: tuple[float, float] = Field(description="By the pool whose like runs are the farthest off.")
    certificate: Certificate = Field(description="What is proven of it.")


def layout_in_short(layout: LayoutPlan) -> str:
    """Write the layout section of a plan in short: degrees above 1, pipeline and data always, chunks a stage."""
    return in_short((*layout.degrees, layout.pipeline_parallel, layout.data_parallel), layout.virtual_stages)


def in_short(degrees: tuple[int, int, int, int, int], virtual_stages: int) -> str:
    """Write in short, as a plan states them, a layout's TP, CP, EP, PP and DP degrees, and chunks a stage."""
    *inner, pipeline, data = degrees
    parts = [f"{name} {degree}" for name, degree in zip(("TP", "CP", "EP"), inner, strict=True) if degree > 1]
    chunks = f", v {virtual_stages}" if virtual_stages > 1 else ""
    return " x ".join([*parts, f"PP {pipeline}", f"DP {data}"]) + chunks


class ReliabilityPlan(Frozen):
    """The reliability section of a plan: recovery after a stop, checkpoints, spare racks, share of time that trains."""

    recovery: Recovery = Field(description="How the job goes on behind a stop.")
    checkpoint_target: CheckpointTarget = Field(description="Where checkpoints go that every stop goes back to.")
    checkpoint_interval_seconds: float | None = Field(None, description="Between checkpoints; absent: none is written.")
    checkpoint_write_seconds: float = Field(description="To write one, every GPU at work an even part.")
    checkpoint_bytes: float = Field(description="Of a checkpoint of the whole job: weights, master weights, optimiser.")
    stop_seconds: float = Field(description="Mean time between stops of the job.")
    stops_per_day_by_part: dict[str, float] = Field(description="Stops in a day of work, by what fails.")
    restart_seconds: float = Field(description="Seconds that a stop costs, lost work not included.")
    spare_target: float = Field(description="Share of time in which a site is to have enough racks; 0: no spares.")
    spare_racks_by_site: dict[str, int] = Field(description="Racks that stand by, cabled, behind those at work.")
    spare_gpus_per_rack: int = Field(description="GPUs of a rack at work that stand by, cabled.")
    rack_availability: float = Field(description="Share of time in which a rack is fit for work.")
    enough_racks_share: float = Field(description="Share of time in which every site has enough racks.")
    replicas_short: float = Field(description="Mean replicas that racks out of service take down, beyond spares.")
    useful_share: float = Field(description="Share of the time on a clock that steps take.")
    lost_days: dict[str, float] = Field(description="Days in addition to those of steps, by cause.")
    extrapolated: bool = Field(description="More GPUs are at work than those whose rates were measured.")


class Tier(Frozen):
    """One tier of switches in the fabric section of a plan."""

    name: Literal["leaf", "spine", "core", "super-spine"] = Field(description="Of the tier.")
    switch: str = Field("", description="Its box, by name; empty: the leaf's.")
    switches: int = Field(description="In one plane.")
    down_ports: int = Field(description="Of a switch, towards GPUs.")
    up_ports: int = Field(description="Of a switch, away from GPUs.")
    oversubscription: float = Field(description="Rate of the ports down over that of the ports up.")
    bundle: int = Field(description="Parallel links from one switch to each switch above it; 0 at the top.")


class WanGateway(Frozen):
    """A site's WAN gateway in a plan's fabric section: switches where wavelengths end; counts over all networks."""

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
    """Slowdowns in a plan's fabric section, over the NIC's ideal, of a kind of link that sends and rings share."""

    link: Literal["nic", "leaf", "pod", "zone"] = Field(description="A GPU's NIC, or the uplinks.")
    pipeline_send_slowdown: float = Field(description="Of pipeline exchange alone.")
    allreduce_slowdown: float = Field(description="Of rings alone.")
    together_slowdown: float = Field(description="Of each while both cross it.")


class SiteFabric(Frozen):
    """The fabric of one site in a plan's fabric section; switches and cables of all planes, not its WAN gateway's."""

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
    rails_per_leaf: int = Field(1, description="GPU indices of a rack that share a leaf of the family rail.")
    lanes: int = Field(1, description="Networks that every NIC is split over.")
    leaf_spare_ports: int = Field(0, description="Ports of each leaf kept free.")
    split: int = Field(1, description="GPU links that share a leaf's port; down_ports and leaf_spare_ports count them.")
    group_links: int = Field(0, description="Links between each two groups of a dragonfly; its groups are the pods.")
    leaf_domains: int = Field(description="Of the site.")
    rails_per_pod: int = Field(description="GPU indices, or sets of them that share a leaf, that share a pod.")
    leaf_domains_per_pod: int = Field(description="Leaf domains that share a pod; groups within avoid the core.")
    pods: int = Field(description="Of the site.")
    rails_per_zone: int = Field(0, description="GPU indices that share a zone; 0 below four tiers.")
    leaf_domains_per_zone: int = Field(0, description="Leaf domains that share a zone; 0 below four tiers.")
    zones: int = Field(0, description="Of the site; 0 below four tiers.")
    core_boxes: int = Field(
        0, description="Cores of a network, or of each zone, that core positions share in turn; 0: each has its own."
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
        """The switch model of each tier in a plan's fabric section, by the tier's name."""
        return tuple(tier.switch or self.switch for tier in self.tiers)

    @property
    def boxes(self) -> str:
        """Every switch box that a plan's fabric section names in its tiers, in words."""
        return " and ".join(dict.fromkeys(self.models))


class TransportFactor(Frozen):
    """The transport section of a plan: slowdown in runs on a reference tree, which replaces the constant."""

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
    """A kind of fabric that a plan's fabric section lists for the same hosts: its cheapest design, or why none."""

    name: str = Field(description="Family and tiers.")
    lost: str = Field(description="Why it was not chosen; empty for the fabric that was.")
    fabric: SiteFabric | None = Field(None, description="Its cheapest design; null where none keeps the rules.")
    bisection_tbps: float | None = Field(
        None, description="Rate in each direction between two halves of the GPUs, at the narrowest tier or cut."
    )
    ecmp_tail: float | None = Field(
        None, description="Slowest flow of a random permutation over a NIC's line rate, a path a flow; null: not known."
    )
    spray_tail: float | None = Field(None, description="The same where packets take all paths.")


class FabricPlan(Frozen):
    """The fabric section of a plan: the fabric of every site."""

    sites: dict[str, SiteFabric] = Field(description="By site.")
    certificate: Certificate = Field(description="What is proven of it.")
    alternatives: tuple[FabricAlternative, ...] = Field(
        (), description="Kinds of fabric side by side, cheapest first, where a fabric alone was asked for."
    )


class Assignment(Frozen):
    """A piece of a stage's replica group in a plan's placement section: its racks on one leaf domain."""

    stage: int = Field(description="Rack stage, from 0.")
    leaf_domain: int = Field(description="Leaf domain, from 0.")
    racks: str = Field(description="Hostlist of the racks, in rank order.")


class SitePlacement(Frozen):
    """The placement section of a plan for one site: which racks carry which stages."""

    assignment: tuple[Assignment, ...] = Field(description="Racks of every stage and leaf domain.")


class PlacementPlan(Frozen):
    """The placement section of a plan: which racks carry which ranks; groups are replica groups, by stage and site."""

    groups: int = Field(description="All-reduce groups of all sites.")
    groups_leaf_local: int = Field(description="Those in one leaf domain.")
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


class Site(Frozen):
    """One open site in the sites section of a plan."""

    id: str = Field(description="Of its node.")
    balancing_authority: str = Field(description="Its area.")
    interconnection: str = Field(description="Its synchronous area.")
    modules: int = Field(description="Of racks, as they are bought.")
    racks: int = Field(description="At the site.")
    gpus: int = Field(description="At the site.")
    it_mw: float = Field(description="IT load, in MW.")
    facility_mw: float = Field(description="Load with overhead, in MW.")
    interconnect_mw: float | None = Field(description="Usable interconnect; null where the rule is off.")
    cooling_m2: float | None = Field(description="Land that cooling takes, in m2.")
    latitude: float = Field(description="In degrees north.")
    longitude: float = Field(description="In degrees east.")


class Link(Frozen):
    """The wide-area link between two sites in the sites section of a plan."""

    a: str = Field(description="Site at one end.")
    b: str = Field(description="Site at the other end.")
    route_km: float = Field(description="Length of the fibre, in km.")
    rtt_ms: float = Field(description="Round trip, in ms.")
    required_gbps: float = Field(description="Need of the gradient exchange, each direction, headroom included.")
    wavelengths: int = Field(description="That are lit.")
    capacity_gbps: float = Field(description="Their rate, each way, in Gb/s.")
    fibre_pairs: int = Field(description="That they take.")
    usd_per_year: float = Field(description="In dollars, fibre and wavelengths.")


class Flow(Frozen):
    """Power flow on a corridor of the grid in the sites section of a plan, positive from a to b."""

    line: str = Field(description="Its id.")
    mw: float = Field(description="Power from a to b, in MW; below 0: the other way.")


class NewCircuits(Frozen):
    """Circuits that the sites section of a plan builds in a corridor of the grid."""

    line: str = Field(description="Its id.")
    circuits: int = Field(description="That are built.")


class Upgrade(Frozen):
    """Steps of interconnect that the sites section of a plan buys at a node of the grid."""

    node: str = Field(description="Whose interconnect grows.")
    steps: int = Field(description="That are bought.")


class Excess(Frozen):
    """How far a plan's sites section breaks a soft rule of the grid, and what that weighs."""

    rule: str = Field(description="The row: headroom[PJM].")
    amount: float = Field(description="By which it is broken, in its unit.")
    unit: str = Field(description="MW, m2 or sites.")
    usd_per_year: float = Field(description="What that weighs a year, in dollars.")


class ScenarioRun(Frozen):
    """How the sites section of a plan runs its sites in one scenario of the grid."""

    running_mw: dict[str, float] = Field(description="What each site draws.")
    generation_mw: dict[str, float] = Field(default_factory=dict, description="Power that each node feeds in, in MW.")
    flows: tuple[Flow, ...] = Field((), description="On the lines.")
    energy_usd_per_year: float = Field(description="Energy drawn, and what is left undone at its price.")


class SitesPlan(Frozen):
    """The sites section of a plan: how the campus splits over sites."""

    sites: tuple[Site, ...] = Field(description="That are open.")
    links: tuple[Link, ...] = Field((), description="Between sites, as estimated.")
    new_lines: tuple[NewCircuits, ...] = Field((), description="That are built.")
    upgrades: tuple[Upgrade, ...] = Field((), description="Of interconnects that are bought.")
    generation_mw: dict[str, float] = Field(default_factory=dict, description="Power that each node feeds in.")
    flows: tuple[Flow, ...] = Field((), description="On the lines.")
    excess: tuple[Excess, ...] = Field((), description="Soft rules that are broken.")
    scenarios: dict[str, ScenarioRun] = Field(
        default_factory=dict, description="What happens in each year that may come, by its name."
    )
    certificate: Certificate = Field(description="What is proven of it.")

    @property
    def excess_usd(self) -> float:
        """Price of a year of soft grid rules that a plan's sites section breaks: not billed, only compared."""
        return math.fsum(over.usd_per_year for over in self.excess)


class ExchangeForm(Frozen):
    """A form (ring, tree, hierarchical) of gradient exchange that a plan's wide-area section compares."""

    name: Literal["ring", "tree", "hierarchical"] = Field(description="How sites exchange gradients.")
    order: tuple[str, ...] = Field(description="Sites around the ring; the root first; group after group.")
    link_gbps: float | None = Field(description="Rate on every link at which it fills the window; null: no rate does.")
    seconds: float | None = Field(description="Its time at the rate that the chosen form needs.")


class WanRoute(Frozen):
    """A share of a demand on one fibre route in a plan's wide-area section, and its backup route while that is cut."""

    share: float = Field(description="Of the demand.")
    edges: tuple[str, ...] = Field(description="Ids from end to end.")
    route_km: float = Field(description="Length, in km.")
    rtt_ms: float = Field(description="Round trip, in ms.")
    gbps: float = Field(description="Rate of this share, each way, headroom included.")
    backup_edges: tuple[str, ...] | None = Field(
        None, description="Ids of the route after a cut; null without protection."
    )
    backup_rtt_ms: float | None = Field(None, description="Its round trip, in ms.")
    backup_gbps: float | None = Field(None, description="Its rate, each way, in Gb/s.")


class WanDemand(Frozen):
    """What the wide-area section of a plan carries between two sites."""

    name: str = Field(description="Of the demand.")
    a: str = Field(description="Site at one end.")
    b: str = Field(description="Site at the other end.")
    priority: int = Field(description="0: the gradient exchange, carried whole.")
    requested_gbps: float = Field(description="Rate on the shortest route considered.")
    admitted_gbps: float = Field(description="Of that, what is carried, under protection whichever one edge is cut.")
    missing_gbps: float = Field(description="Rate that is asked for and not carried, in Gb/s.")
    saturated_edges: tuple[str, ...] = Field((), description="Full edges of its routes, where some is missing.")
    routes: tuple[WanRoute, ...] = Field(description="That carry it.")


class WanEdge(Frozen):
    """A lit fibre edge in the wide-area section of a plan."""

    id: str = Field(description="Of the edge.")
    a: str = Field(description="Fibre node or site at one end.")
    b: str = Field(description="Fibre node or site at the other end.")
    route_km: float = Field(description="Length of the fibre, in km.")
    peak_gbps: float = Field(description="Most that it carries each way, also after any cut.")
    wavelengths: int = Field(description="That are lit.")
    fibre_pairs: int = Field(description="That they take.")
    capacity_gbps: float = Field(description="Their rate, each way, in Gb/s.")
    usd_per_year: float = Field(description="In dollars, fibre and wavelengths.")


class WanPlan(Frozen):
    """The wide-area section of a plan: the fibre between the sites as it is lit."""

    exchange: Literal["ring", "tree", "hierarchical"] | None = Field(description="Null: one site trains.")
    window_seconds: float = Field(description="Time in which the exchange of a stage is done.")
    forms: tuple[ExchangeForm, ...] = Field(description="Ways to exchange that were compared.")
    protection: Literal["none", "one_cut"] = Field(description="What the routes survive.")
    demands: tuple[WanDemand, ...] = Field(description="In the order of their priority.")
    edges: tuple[WanEdge, ...] = Field(description="With light on them.")
    capex_usd: float = Field(description="Fibre and wavelengths, in dollars.")
    certificate: Certificate = Field(description="What is proven of it.")
