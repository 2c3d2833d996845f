"""What comes back: the decisions, their metrics and their certificates."""

from typing import Literal

from pydantic import Field

from planner.choice import ModelChoice
from planner.instance import FabricFamily, Frozen, Instance

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


class Certificate(Frozen):
    """What was proven of one decision, and by whom."""

    status: Status
    objective: float | None = Field(description="Value of the decision held.")
    bound: float | None = Field(description="No decision in the declared space is better than this.")
    gap: float | None = Field(description="|objective - bound| / max(|objective|, 1e-12).")
    solver: str = Field(description="Backends and versions.")
    formulation: str = Field(description="What was decided, over which space, and how the proof was made.")
    variables: int
    constraints: int
    seconds: float
    seed: int
    minimizes: str = Field(description="What the objective measures, with its unit.")
    given: str = Field("", description="What earlier decisions fixed: the proof holds for these.")
    space: dict[str, int | float | str | list[int] | list[str]] = Field(
        default_factory=dict, description="The declared space and how much of it each argument excluded."
    )
    binding: tuple[str, ...] = Field((), description="Rules that hold with equality, or stop the next better decision.")


class ObjectiveValue(Frozen):
    """The plan's figure of merit and what is proven of it."""

    name: str
    value: float | None
    bound: float | None = Field(description="Proven for the decisions taken in order, each given those before it.")
    gap: float | None
    joint_bound: float | None = Field(None, description="Proven over all four decisions at once, by relaxing what joins them.")
    joint_gap: float | None = None


class Site(Frozen):
    """One open site."""

    id: str
    balancing_authority: str
    interconnection: str
    modules: int
    racks: int
    gpus: int
    it_mw: float
    facility_mw: float
    interconnect_mw: float | None = Field(description="Usable interconnect under the rule's reading; null where the rule is off.")
    cooling_m2: float | None
    latitude: float
    longitude: float


class Link(Frozen):
    """The wide-area link between two sites."""

    a: str
    b: str
    route_km: float
    rtt_ms: float
    required_gbps: float = Field(description="Need of the gradient exchange, each direction, headroom included.")
    wavelengths: int
    capacity_gbps: float
    fibre_pairs: int
    usd_per_year: float


class Flow(Frozen):
    """Power on a corridor, positive from a to b."""

    line: str
    mw: float


class NewCircuits(Frozen):
    """Circuits built in a corridor."""

    line: str
    circuits: int


class Upgrade(Frozen):
    """Steps of interconnect bought at a node."""

    node: str
    steps: int


class Excess(Frozen):
    """How far a soft rule is broken, and what that weighs."""

    rule: str = Field(description="The row: headroom[PJM].")
    amount: float
    unit: str
    usd_per_year: float


class ScenarioRun(Frozen):
    """How the split runs in one scenario."""

    running_mw: dict[str, float] = Field(description="What each site draws.")
    generation_mw: dict[str, float] = Field(default_factory=dict)
    flows: tuple[Flow, ...] = ()
    energy_usd_per_year: float = Field(description="Energy drawn, and what is left undone at its price.")


class SitesPlan(Frozen):
    """How the campus splits over sites."""

    sites: tuple[Site, ...]
    links: tuple[Link, ...] = ()
    new_lines: tuple[NewCircuits, ...] = ()
    upgrades: tuple[Upgrade, ...] = ()
    generation_mw: dict[str, float] = Field(default_factory=dict, description="Power that each node feeds in.")
    flows: tuple[Flow, ...] = ()
    excess: tuple[Excess, ...] = Field((), description="Soft rules that are broken.")
    scenarios: dict[str, ScenarioRun] = Field(default_factory=dict)
    certificate: Certificate


class ExchangeForm(Frozen):
    """One form that the gradient exchange could take."""

    name: Literal["ring", "tree", "hierarchical"]
    order: tuple[str, ...] = Field(description="Sites around the ring; the root first; group after group.")
    link_gbps: float | None = Field(description="Rate on every link at which it fills the window; null: no rate does.")
    seconds: float | None = Field(description="Its time at the rate that the chosen form needs.")


class WanRoute(Frozen):
    """A share of a demand on one route, and where it goes while that is cut."""

    share: float
    edges: tuple[str, ...]
    route_km: float
    rtt_ms: float
    gbps: float = Field(description="Rate of this share, each way, headroom included.")
    backup_edges: tuple[str, ...] | None = None
    backup_rtt_ms: float | None = None
    backup_gbps: float | None = None


class WanDemand(Frozen):
    """What the wide area carries between two places."""

    name: str
    a: str
    b: str
    priority: int = Field(description="0: the gradient exchange, carried whole.")
    asked_gbps: float = Field(description="Rate of all of it on the shortest route considered.")
    admitted_gbps: float = Field(description="Of that, what is carried, under protection whichever one edge is cut.")
    missing_gbps: float
    short_of: tuple[str, ...] = Field((), description="Edges of its routes on which no more can be lit, where something is missing.")
    routes: tuple[WanRoute, ...]


class WanEdge(Frozen):
    """A lit stretch of fibre."""

    id: str
    a: str
    b: str
    route_km: float
    peak_gbps: float = Field(description="Most that it carries each way, over the normal state and every cut.")
    wavelengths: int
    fibre_pairs: int
    capacity_gbps: float
    usd_per_year: float


class WanPlan(Frozen):
    """The fibre between the sites as it is lit."""

    exchange: Literal["ring", "tree", "hierarchical"] | None = Field(description="Form of the gradient exchange; null: one site trains.")
    window_seconds: float = Field(description="Time in which the exchange of a stage is done.")
    forms: tuple[ExchangeForm, ...]
    protection: Literal["none", "one_cut"]
    demands: tuple[WanDemand, ...]
    edges: tuple[WanEdge, ...]
    capex_usd: float
    certificate: Certificate


class Assumptions(Frozen):
    """What the layout's step time takes from the network: the plan holds when the network is no slower."""

    hop_slowdown: float = Field(description="Pipeline exchange over the NIC's ideal.")
    allreduce_slowdown: float = Field(description="Ring between racks over the NIC's ideal.")
    wan_gbps: float | None = Field(None, description="Rate of the exchange between sites, each direction; null with one site.")
    wan_rtt_ms: float | None = None


class LayoutMetrics(Frozen):
    """What the layout is predicted to do."""

    step_seconds: float
    breakdown_seconds: dict[str, float] = Field(description="Parts that sum to step_seconds.")
    tokens_per_step: float
    memory_bytes_per_gpu: float = Field(description="Worst GPU, reserve excluded.")
    memory_breakdown_bytes: dict[str, float] = Field(description="Parts on the worst GPU.")
    memory_limit_bytes: float
    mfu: float = Field(description="Model FLOP over dense peak of the GPUs used.")
    days_to_train: float
    hop_seconds: float = Field(description="One pipeline exchange at the assumed slowdown, gather included.")
    hop_nic_seconds: float = Field(description="NIC time of one pipeline exchange at the ideal rate.")
    hop_window_seconds: float = Field(
        description="Time that one exchange may take: hidden by compute, and slowing the step by no more than network.hop_step_share."
    )
    allreduce_layer_seconds: float = Field(description="Ring between racks for one layer's gradients at the NIC's ideal rate.")
    allreduce_window_seconds: float = Field(
        description="Time that a layer's all-reduce may take: hidden by its backward pass, and slowing the step by no more than "
        "network.allreduce_step_share."
    )
    gradient_bytes_per_stage: float = Field(description="What one stage exchanges between sites per step.")
    wan_window_seconds: float = Field(description="Backward pass of one stage, which hides that exchange.")


class LayoutPlan(Frozen):
    """How one training step is cut over GPUs."""

    tensor_parallel: int
    tensor_parallel_inner: int = Field(1, description="Under 2-D tensor parallelism the ranks that share a product's input; 1: one-dimensional.")
    context_parallel: int = 1
    expert_parallel: int = 1
    pipeline_parallel: int
    data_parallel: int
    data_parallel_by_site: dict[str, int]
    schedule: Literal["1f1b", "zb-h1"] = Field("1f1b", description="Order of passes; interleaved where there are virtual stages.")
    virtual_stages: int
    microbatch_sequences: int
    microbatches_per_step: int
    recompute: Literal["none", "selective", "full"] = Field(description="full: some layers whole, as recomputed_layers_per_stage says.")
    recomputed_layers_per_stage: tuple[int, ...] = Field(
        (), description="Layers that run again in the backward pass; empty: none, or all under full."
    )
    sequence_parallel: bool
    zero_stage: Literal[0, 1, 2, 3]
    layers_per_stage: tuple[int, ...]
    replicas_per_rack: int
    racks_per_replica: int = Field(1, description="Racks over which one replica's stage spreads, where a rack is too small for it.")
    stages_per_rack: int = Field(1, description="Consecutive stages that share a rack.")
    racks_per_stage_by_site: dict[str, int] = Field(description="Racks of one stage's replica group: the all-reduce group.")
    gpus_used: int
    gpus_idle: int
    assumptions: Assumptions
    metrics: LayoutMetrics
    certificate: Certificate

    @property
    def rack_stages(self) -> int:
        """Groups of racks that carry different stages: what the fabric joins and the placement places."""
        return -(-self.pipeline_parallel // self.stages_per_rack)


class PoolsPlan(Frozen):
    """How pools of different GPUs share each step's batch: in whole sequences, each pool cut on its own."""

    sequences: dict[str, int] = Field(description="Of a step, by pool; 0: the pool does not train.")
    layouts: dict[str, LayoutPlan] = Field(description="Of each pool that trains; its figures are the pool's alone, for its share of the batch.")
    exchange_seconds: dict[str, float] = Field(description="Exposed exchange of gradients with the other pools; 0 where no link is given.")
    step_seconds: float = Field(description="The slowest pool's step and the longest exchange.")
    tokens_per_step: float
    days_to_train: float
    certificate: Certificate


class Tier(Frozen):
    """One tier of a site's fabric."""

    name: Literal["leaf", "spine", "core", "super-core"]
    switches: int
    down_ports: int
    up_ports: int
    oversubscription: float
    bundle: int = Field(description="Parallel links from one switch to each switch above it; 0 at the top.")


class Border(Frozen):
    """The switches of a site at which the wide area ends: beside the tiers, of the same box; counts are over all networks."""

    wan_gbps: float = Field(description="Rate of the wavelengths that end here, each way.")
    wan_ports: int = Field(description="Ports towards the wide area, as many in every network.")
    switches: int
    uplinks: int = Field(description="Links to free ports of the top tier, or of a dragonfly's switches, one for each port towards the wide area.")
    exchange_gbps: float = Field(0.0, description="Rate of the gradients that pass it each way, in the time that the step counts on.")
    leaf_uplink_share: float = Field(0.0, description="Most of a leaf's uplinks that the exchange takes, from the placement.")
    pod_uplink_share: float = Field(0.0, description="Most of a pod's uplinks that the exchange takes, from the placement.")
    zone_uplink_share: float = Field(0.0, description="Most of a zone's uplinks that the exchange takes, from the placement; 0 without zones.")
    cost_usd: float
    power_mw: float


class SiteFabric(Frozen):
    """The fabric of one site; counts are of boxes and of cables (all planes together), those of its border apart."""

    switch: str
    planes: int
    ports_per_switch: int
    tiers: tuple[Tier, ...]
    switches: int
    chips: int
    switch_links: int
    endpoint_links: int
    cost_usd: float = Field(description="Border included.")
    power_mw: float = Field(description="Border included.")
    border: Border | None = Field(None, description="Where the instance asks for it and wavelengths end at the site.")
    leaf_domain_racks: int = Field(description="Racks whose GPUs of one index share a leaf.")
    family: FabricFamily = "rail"
    lanes: int = Field(1, description="Networks that every NIC is split over.")
    leaf_spare_ports: int = Field(0, description="Ports of each leaf kept free.")
    split: int = Field(1, description="GPU links that share a port of a leaf; the leaf's down_ports and leaf_spare_ports count the parts.")
    group_links: int = Field(0, description="Links between each two groups of a dragonfly; its groups are the pods.")
    leaf_domains: int
    rails_per_pod: int = Field(description="GPU indices that share a pod.")
    leaf_domains_per_pod: int = Field(description="Leaf domains that share a pod; a group within them never crosses the core.")
    pods: int
    rails_per_zone: int = Field(0, description="GPU indices that share a zone, whose pods have cores of their own; 0 below four tiers.")
    leaf_domains_per_zone: int = Field(0, description="Leaf domains that share a zone; a group within them never crosses the super-core.")
    zones: int = 0
    share_leaving_leaf: float = Field(description="Largest share of a leaf's pipeline flows that go up, from the placement.")
    share_leaving_pod: float = Field(description="Largest share of a pod's pipeline flows that cross the core, from the placement.")
    share_leaving_zone: float = Field(0.0, description="Largest share of a zone's pipeline flows that cross the super-core, from the placement.")
    p2p_seconds: float
    hop_slowdown: float
    allreduce_slowdown: float


class TransportFactor(Frozen):
    """The transport's slowdown as runs on a reference tree showed it: what the plan counts on in the place of the constant."""

    transport: Literal["ecmp", "spray", "adaptive"]
    pattern: Literal["permutation"] = "permutation"
    switch: str = Field(description="Switch of the reference tree: the one of the instance's on which the transport is slowest.")
    tiers: int
    hosts: int
    oversubscription: float = Field(description="Ports down over ports up at the leaves, rounded up to whole ports.")
    seeds: int
    percentile: float
    slowdown: float = Field(description="That percentile over the seeds of the slowest flow's time over the fluid ideal.")
    given_slowdown: float = Field(description="The constant of the instance, which was not used.")


class FabricPlan(Frozen):
    """The fabric of every site."""

    sites: dict[str, SiteFabric]
    certificate: Certificate


class Assignment(Frozen):
    """A piece of a stage's replica group on one leaf domain."""

    stage: int
    leaf_domain: int
    racks: str = Field(description="Hostlist of the racks, in rank order.")


class SitePlacement(Frozen):
    """Which racks of a site carry which stages."""

    assignment: tuple[Assignment, ...]


class PlacementPlan(Frozen):
    """Which racks carry which ranks; groups are the stages' replica groups, one per stage and site."""

    groups: int
    groups_leaf_local: int
    groups_split: int
    lower_bound_split: int = Field(description="No placement splits fewer: groups - sum over leaf domains of floor(racks / group size).")
    extra_pieces: int = Field(description="Pieces beyond one per group.")
    groups_cross_pod: int
    sites: dict[str, SitePlacement]
    certificate: Certificate


class Cost(Frozen):
    """What the plan costs."""

    capex_usd: dict[str, float]
    opex_usd_per_year: dict[str, float]
    operation_years: float = Field(description="Years of operation counted into the total.")
    total_usd: float


class Conflict(Frozen):
    """Why there is no plan: a smallest set of rules that cannot hold together, in the user's terms."""

    decision: Literal["sites", "wan", "layout", "fabric", "placement", "budget"]
    rules: tuple[str, ...] = Field(description="Drop any one and the rest can be met.")
    reason: str


class Violation(Frozen):
    """A rule that a plan breaks, with both of its sides in numbers."""

    rule: str
    message: str


class Plan(Frozen):
    """A self-contained answer: the instance as solved, the decisions and the proofs."""

    schema_version: Literal[1] = 1
    planner_version: str
    instance: Instance
    instance_sha256: str
    status: Status
    objective: ObjectiveValue
    sites: SitesPlan | None = None
    wan: WanPlan | None = Field(None, description="Where instance.wan asks for its design and two sites are open; else sites.links is an estimate.")
    layout: LayoutPlan | None = None
    pools: PoolsPlan | None = Field(None, description="In the place of layout, where the instance has pools of different GPUs.")
    fabric: FabricPlan | None = None
    transport: TransportFactor | None = Field(None, description="Where the instance asks for the transport's slowdown to be simulated.")
    placement: PlacementPlan | None = None
    cost: Cost | None = None
    choice: ModelChoice | None = Field(None, description="Where the model was chosen.")
    conflict: Conflict | None = None
    stopped: Literal["proved", "limit", "interrupted"] = Field("proved", description="Why the run ended.")
    threads: int = 1
    seed: int = 0
    time_limit_seconds: float | None = None
