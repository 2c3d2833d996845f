"""What the user gives: one frozen, self-describing instance of the planning question."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from planner.choice import Choose
from planner.data import Count, Dtype, Fraction, Frozen, NonNegative, Positive, Share, Sourced

__all__ = ["Count", "Dtype", "Fraction", "Frozen", "NonNegative", "Positive", "Share", "Sourced"]


class Objective(Frozen):
    """What the plan is best at."""

    minimize: Literal["days_to_train", "cost_usd", "loss"] = Field("days_to_train", description="The figure to make least.")


class Limits(Sourced):
    """What the whole plan must stay within; a limit that is absent does not bind."""

    budget_usd: Positive | None = Field(None, description="Most that capital and the counted years of operation may cost.")
    operation_years: NonNegative = Field(0.0, description="Years of operation that count into the total beside capital.")
    facility_power_mw: Positive | None = Field(None, description="Most power all sites may draw, overhead included.")
    deadline_days: Positive | None = Field(None, description="Longest time to train.")
    max_batch_tokens: Positive | None = Field(None, description="Critical batch: most tokens that one optimiser step may use.")
    memory_reserve_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(0.05, description="Share of HBM kept free for the framework.")


class Experts(Sourced):
    """A mixture of experts in the place of the FFN: each token goes through a few of many experts, and through the shared ones."""

    count: Count = Field(description="Routed experts of one layer.")
    per_token: Count = Field(description="Routed experts that one token goes through (top-k).")
    ffn: Count = Field(description="FFN width of one routed expert.")
    shared_ffn: Annotated[int, Field(ge=0)] = Field(0, description="FFN width of the shared experts together; 0: none.")
    dense_layers: Annotated[int, Field(ge=0)] = Field(0, description="First layers that keep the dense FFN of the model's width.")

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        """Refuse a token that goes through more experts than there are."""
        if self.per_token > self.count:
            raise ValueError(f"per_token must be at most count ({self.per_token} > {self.count}); lower per_token or raise count")
        return self


class LatentAttention(Sourced):
    """Multi-head latent attention (DeepSeek-V3, arXiv 2412.19437, section 2.1.1): queries, keys and values come from low ranks."""

    q_rank: Count = Field(description="Width of a token's compressed queries.")
    kv_rank: Count = Field(description="Width of a token's compressed keys and values.")
    head_nope: Count = Field(description="Width of a head's query and key without position.")
    head_rope: Count = Field(description="Width of a head's query and key with rotary position; all heads share the key.")
    head_value: Count = Field(description="Width of a head's value.")


class Model(Sourced):
    """A decoder-only Transformer: dense, or with routed experts; all heads see all tokens, or in some layers a window."""

    name: str
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count | None = Field(None, description="KV heads under grouped-query attention; absent: as many as heads.")
    head_size: Count | None = Field(None, description="Width of a head; absent: hidden / heads.")
    latent_attention: LatentAttention | None = Field(None, description="Widths of latent attention, in the place of kv_heads and head_size.")
    window: Count | None = Field(None, description="Tokens that a position sees in a windowed layer, itself included.")
    window_layers: Annotated[int, Field(ge=0)] = Field(0, description="Layers whose attention is windowed; the others see all tokens.")
    ffn: Count | None = Field(None, description="FFN width of a dense layer; absent: 4 hidden.")
    gated_ffn: bool = Field(False, description="Three FFN matrices (SwiGLU) and not two, in experts too.")
    experts: Experts | None = Field(None, description="Routed experts in the place of the FFN; absent: every layer is dense.")
    vocabulary: Count
    tied_embeddings: bool = Field(True, description="The LM head shares the embedding's weights.")

    @model_validator(mode="after")
    def _buildable(self) -> Self:
        """Refuse head counts that leave no whole head size."""
        if self.latent_attention is not None:
            if self.head_size is not None or self.kv_heads is not None:
                raise ValueError("latent_attention sets the heads' widths and shares keys; remove head_size and kv_heads")
            return self
        if self.head_size is None and self.hidden % self.heads:
            near = min((a for a in range(1, self.hidden + 1) if self.hidden % a == 0), key=lambda a: (abs(a - self.heads), a))
            raise ValueError(f"heads must divide hidden ({self.hidden} / {self.heads} is not whole); give heads {near}, or head_size")
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads must divide heads ({self.heads} / {self.kv_heads} is not whole)")
        return self

    @model_validator(mode="after")
    def _layers_by_kind(self) -> Self:
        """Refuse counts of layers by kind that the layers do not hold."""
        if self.experts is not None and self.experts.dense_layers >= self.layers:
            raise ValueError(f"experts.dense_layers must be less than layers ({self.experts.dense_layers} of {self.layers}); lower it")
        if self.window_layers > self.layers:
            raise ValueError(f"window_layers must be at most layers ({self.window_layers} > {self.layers}); lower it")
        if (self.window is None) != (self.window_layers == 0):
            raise ValueError(f"window and window_layers go together (are {self.window} and {self.window_layers}); give both or neither")
        return self

    @property
    def kv(self) -> int:
        """KV heads."""
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.head_size or self.hidden // self.heads

    @property
    def ffn_width(self) -> int:
        """Width of the FFN of a dense layer."""
        return self.ffn or 4 * self.hidden

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers


class Precision(Sourced):
    """The type of the matrix products, and the bytes each role takes per element."""

    compute: Dtype = Field(description="Type in which the matrix products run; picks the peak rate.")
    parameter_bytes: Positive = Field(description="Per parameter, every copy held (master and working).")
    working_parameter_bytes: Positive = Field(description="Per parameter, the copy that the products read (moved by ZeRO gathers).")
    gradient_bytes: Positive = Field(description="Per parameter.")
    optimizer_bytes: NonNegative = Field(description="Per parameter, all moments.")
    activation_bytes: Positive = Field(description="Per stored activation element.")
    collective_bytes: Positive = Field(description="Per activation element that tensor and pipeline parallelism send.")


class Software(Sourced):
    """A training framework: which kernels, fusions and overlaps it has, and what it costs beside the GPUs' work."""

    name: str
    flash_attention: bool = Field(True, description="Attention in one kernel that keeps no scores and skips the causal half.")
    attention_share: Share = Field(1.0, description="Share of the accelerator's attention efficiency that its kernel reaches.")
    score_efficiency: Share = Field(0.5, description="Share of the products' efficiency that unfused scores (batched, thin) reach.")
    vector_traffic: Positive = Field(1.0, description="HBM traffic of element-wise work over that of fully fused kernels.")
    quantise_traffic: NonNegative = Field(
        1.0, description="HBM traffic of casts to FP8 and FP4 over one read and two writes (row-wise, column-wise)."
    )
    loss_bytes_per_logit: NonNegative = Field(8.0, description="HBM traffic of the loss, forward and backward, for one logit.")
    launch_seconds: NonNegative = Field(0.0, description="Host time to launch one operation of a layer; hidden while the GPU has work.")
    collective_seconds: NonNegative = Field(0.0, description="Time to start one collective on the critical path.")
    microbatch_seconds: NonNegative = Field(0.0, description="Exposed host time per micro-batch.")
    step_seconds: NonNegative = Field(0.0, description="Exposed host time per step: data, optimiser launches, logging.")
    schedules: tuple[Literal["1f1b", "zb-h1"], ...] = Field(("1f1b",), description="Pipeline schedules that it has (1f1b: interleaved too).")
    tensor_overlap: Fraction = Field(0.0, description="Share of the TP exchange hidden behind products, under sequence parallelism.")
    pipeline_overlap: Fraction = Field(1.0, description="Share of the pipeline exchange that may run beside compute.")
    pipeline_start_seconds: NonNegative = Field(0.0, description="Host time of one pipeline exchange: start, wait, synchronise.")
    pipeline_scatter: bool = Field(True, description="Each TP rank sends its 1/t of a pipeline exchange, gathered on the other side.")
    data_exposed: Fraction = Field(0.0, description="Share of the gradient exchange on the critical path at least (1: no overlap).")
    sharding_exposed: Fraction = Field(0.0, description="Share of ZeRO's traffic in every micro-batch that slows it even where it is hidden.")
    expert_overlap: Fraction = Field(0.0, description="Share of the experts' all-to-all hidden behind products.")
    expert_once_per_domain: bool = Field(False, description="A token crosses the network once for all its experts in a scale-up domain.")
    expert_efficiency: Share = Field(1.0, description="Share of the products' efficiency that grouped products of routed experts reach.")
    context_overlap: Fraction = Field(
        1.0, description="Share of the exchange of keys and values that may run beside attention (ring; 0: gathered first)."
    )
    selective_matrix_share: Fraction = Field(0.0, description="Share of a layer's products that selective recompute runs again and does not keep.")
    logit_memory_bytes: Positive = Field(4.0, description="Memory of the loss for one logit, at its peak.")
    buffer_bytes_per_parameter: NonNegative = Field(0.0, description="Flat copies and buckets for one parameter, that no sharding divides.")
    sharded_buffer_bytes_per_parameter: NonNegative = Field(0.0, description="The same, of the kind that ZeRO divides with the optimiser.")


class Workload(Sourced):
    """What to train: a model on a number of tokens."""

    model: Model | str = Field(description="The architecture, inline or by catalogue name.")
    tokens: Positive = Field(description="Training tokens.")
    sequence_length: Count = Field(description="Tokens per sequence.")
    precision: Precision
    software: Software | str = Field("megatron-core", description="The training framework, inline or by catalogue name.")
    availability: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Share of wall time in which steps advance.")
    choose: Choose | None = Field(None, description="Choose model and tokens; then these are the law's at full utilisation, and may be left out.")


class MatrixEfficiency(Sourced):
    """How near a matrix product comes to the dense peak: its FLOP at a share of peak, and the operand traffic that it does not hide."""

    most: dict[Dtype, Share] = Field(description="Share of the dense peak that large products reach, by type.")
    operand_traffic: Fraction = Field(0.0, description="Share of the operands' and the result's HBM traffic that adds to the time of the FLOP.")


class Accelerator(Sourced):
    """One GPU with its links."""

    name: str
    hbm_bytes: Positive
    hbm_bytes_per_second: Positive
    peak_flop_per_second: dict[Dtype, Positive] = Field(description="Dense peak by type (no structured sparsity).")
    matrix_efficiency: MatrixEfficiency
    attention_efficiency: Share = Field(0.5, description="Share of the 16-bit peak that the best flash kernel reaches.")
    hbm_efficiency: Share = Field(1.0, description="Share of the HBM rate that element-wise kernels reach.")
    kernel_seconds: NonNegative = Field(0.0, description="Time that a kernel takes at least, beside its work.")
    memory_reserve_bytes: NonNegative = Field(0.0, description="Constant taken by context, collectives' buffers and the like.")
    scale_up_bytes_per_second: Positive = Field(description="Scale-up link of one GPU, one direction.")
    scale_up_efficiency: Share = Field(1.0, description="Share of the scale-up rate that large collectives reach.")
    scale_up_latency_seconds: NonNegative = Field(description="One hop in the scale-up domain (alpha of the collectives).")
    scale_up_reduces: bool = Field(False, description="The scale-up switches reduce and multicast (NVLink SHARP).")
    nic_bytes_per_second: Positive = Field(description="Scale-out NIC of one GPU, one direction.")
    nic_efficiency: Share = Field(1.0, description="Share of the NIC's rate that large messages reach.")
    nic_latency_seconds: NonNegative = Field(description="One hop through the scale-out network (alpha).")

    @model_validator(mode="after")
    def _efficiency_by_type(self) -> Self:
        """Refuse a peak rate without the share of it that products reach."""
        for dtype in self.peak_flop_per_second:
            if dtype not in self.matrix_efficiency.most:
                raise ValueError(f"matrix_efficiency.most has no entry for {dtype!r}, which peak_flop_per_second has; add one")
        return self


class Rack(Sourced):
    """The unit that is bought and placed: a rack, or a node where nodes are bought one by one."""

    name: str
    gpus: Count = Field(description="GPUs, all in one scale-up domain.")
    it_kw: Positive = Field(description="IT power at full load.")
    price_usd: NonNegative = Field(description="Price with NICs, without the fabric.")


class Pool(Sourced):
    """One cluster of one type of GPU, of several that train the same model together."""

    name: str
    accelerator: Accelerator | str
    rack: Rack | str
    racks: Count
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU where the cluster has another than the accelerator's usual one.")


class PoolLink(Sourced):
    """What joins every two pools: they exchange gradients over it once a step."""

    gbps: Positive = Field(description="Rate between two pools, each direction, for one stage's gradients at a time.")
    rtt_ms: NonNegative = Field(0.0, description="Round trip; one exchange waits for one.")


class Hardware(Sourced):
    """What the sites are filled with."""

    accelerator: Accelerator | str
    rack: Rack | str
    racks: Count | None = Field(None, description="Racks of the one cluster, where there is no grid.")
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU where the cluster has another than the accelerator's usual one.")
    racks_per_module: Count = Field(1, description="Racks bought and powered together.")
    facility_overhead_factor: Annotated[float, Field(ge=1)] = Field(1.0, description="Facility power over IT power (PUE).")
    cooling_kw_per_m2: Positive | None = Field(None, description="Facility power that a square metre of dry cooling sheds.")
    pools: tuple[Pool, ...] = Field(
        (),
        description="Clusters of different GPUs that share each step's batch, each with a layout of its own; in the place of accelerator, rack "
        "(read as the first pool's) and racks, without grid, wan and network.",
    )
    pool_link: PoolLink | None = Field(None, description="Absent: the exchange of gradients between pools takes no time.")


class BalancingAuthority(Sourced):
    """A grid operator's area and what it can spare."""

    id: str
    interconnection: str = Field(description="Synchronous area: eastern, western, ercot.")
    headroom_mw: NonNegative = Field(description="Most that can be drawn beyond today's peak demand.")
    energy_usd_per_mwh: NonNegative


class InterconnectUpgrade(Sourced):
    """What can be added to a node's connection, step by step."""

    step_mw: Positive = Field(description="Usable interconnect that one step adds, under every reading of the rule.")
    max_steps: Count = 1
    capex_usd: NonNegative = Field(description="Price of one step.")
    lead_months: NonNegative = Field(0.0, description="From the decision to service.")


class PowerNode(Sourced):
    """Power plants within a radius, seen as one node of the grid, where a site may stand."""

    id: str
    balancing_authority: str
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    generation_mw: NonNegative = Field(description="Most that the node's plants can feed in for the sites.")
    interconnect_mw: NonNegative | None = Field(None, description="Usable interconnect, the largest circuit already out; for the explicit reading.")
    largest_unit_mw: NonNegative | None = Field(None, description="Largest unit of its plants, lost under full N-1; absent: they are one unit.")
    area_m2: Positive | None = Field(None, description="Land for cooling; absent: not limited.")
    site: bool = Field(True, description="A site may stand here.")
    ready_months: NonNegative = Field(0.0, description="From the decision to the day when a site here can run.")
    upgrade: InterconnectUpgrade | None = Field(None, description="Interconnect that can be bought; absent: none.")


class Line(Sourced):
    """A corridor of equal circuits between two nodes."""

    id: str
    a: str
    b: str
    circuits: Count = 1
    rating_mw: Positive = Field(description="Usable MW of one circuit.")
    reactance_pu: Positive | None = Field(None, description="Of one circuit, on 100 MVA; the dc grid model needs it.")


class NewLine(Sourced):
    """A corridor in which circuits can be built."""

    id: str
    a: str
    b: str
    max_circuits: Count = 1
    rating_mw: Positive = Field(description="MW of one circuit.")
    reactance_pu: Positive | None = Field(None, description="Of one circuit, on 100 MVA; the dc grid model needs it.")
    capex_usd: NonNegative = Field(description="Price of one circuit, ends included.")
    lead_months: NonNegative = Field(0.0, description="From the decision to service.")


class InterconnectRule(Frozen):
    """A site must keep a share of its load on lines with the largest circuit out."""

    on: bool = False
    share: Fraction = Field(0.5, description="Share of the site's load that the remaining circuits must carry.")
    reading: Literal["explicit", "capacity", "capacity_n1", "import_share"] = Field(
        "explicit",
        description="explicit: the node's interconnect_mw; capacity: its circuits' ratings; capacity_n1: these less the largest; "
        "import_share: as capacity_n1, for the share of what the site draws beyond its own node's plants.",
    )


class FaultSplitRule(Frozen):
    """The campus must survive the loss of an interconnection (the east–west rule)."""

    on: bool = False
    min_interconnections: Count = 2
    max_share: Annotated[float, Field(gt=0, le=1)] = Field(0.55, description="Most of all racks that one interconnection may hold.")


class ShareBalanceRule(Frozen):
    """Open sites must be of like size, so that none waits for another's share of the batch."""

    on: bool = False
    max_ratio: Annotated[float, Field(ge=1)] = Field(2.0, description="Most racks of the largest site over those of the smallest.")


SOFT_UNITS = {
    "headroom": "MW",
    "generation": "MW",
    "rating": "MW",
    "interconnect": "MW",
    "facility_power": "MW",
    "area": "m2",
    "site_count": "sites",
}


class SoftRule(Frozen):
    """A rule that may be broken at a price; amounts are in the rule's unit: MW, m2 or sites."""

    usd_per_year: NonNegative = Field(description="Price of one unit of excess for a year; it weighs in the choice and is not billed.")
    most: Positive = Field(description="Most excess of one row of the rule.")


class Scenario(Sourced):
    """A year that may come: what differs from the grid's own figures."""

    name: str
    weight: Fraction = Field(0.0, description="Its probability; what the scenarios leave of 1 is the grid's own figures'.")
    headroom_mw: dict[str, NonNegative] = Field(default_factory=dict, description="By balancing authority.")
    generation_mw: dict[str, NonNegative] = Field(default_factory=dict, description="By node; a plant that is out leaves what the rest can spare.")
    energy_usd_per_mwh: dict[str, NonNegative] = Field(default_factory=dict, description="By balancing authority.")


class GridRules(Sourced):
    """Rules of the split; each is one named family of rows."""

    grid_model: Literal["none", "transport", "dc"] = Field(
        "transport", description="none: headroom and generation; transport: flows in line ratings; dc: flows that follow from reactances, too."
    )
    n1: Literal["off", "margin", "node", "full"] = Field(
        "off",
        description="What the grid survives. margin: ratings times n1_margin; node: the largest circuit at each site out; "
        "full: any circuit, or the largest unit of any node, out.",
    )
    n1_margin: Share = Field(0.7, description="Share of the ratings that may be used under margin.")
    headroom: bool = Field(True, description="Each balancing authority's headroom binds.")
    generation: bool = Field(True, description="What each node's plants can spare binds.")
    interconnect: InterconnectRule = InterconnectRule()
    fault_split: FaultSplitRule = FaultSplitRule()
    max_sites: Count | None = None
    min_site_modules: Count = Field(1, description="Fewest modules that an open site holds.")
    max_rtt_ms: Positive | None = Field(None, description="Longest round trip between two open sites.")
    share_balance: ShareBalanceRule = ShareBalanceRule()
    ready_within_months: NonNegative | None = Field(None, description="Sites, lines and upgrades that come later are left out.")
    soft: dict[str, SoftRule] = Field(default_factory=dict, description="Rules that may be broken at a price, by name; all others are hard.")
    scenarios: Literal["off", "robust", "expected"] = Field(
        "off",
        description="robust: one split that runs whole in every scenario, at the worst one's cost; expected: sites may run less in a scenario, "
        "at the weighted cost.",
    )
    curtailment_usd_per_mwh: NonNegative = Field(0.0, description="What work that a scenario leaves undone costs; for expected.")


class SitePrices(Sourced):
    """What a site costs beside racks and fabric."""

    building_usd_per_it_mw: NonNegative = 0.0
    interconnection_usd_per_mw: NonNegative = Field(0.0, description="Large-load connection, per MW of facility load.")
    site_usd: NonNegative = Field(0.0, description="Fixed per open site.")
    discount_rate: NonNegative = Field(0.07, description="To annualise capital.")
    site_life_years: Positive = Field(20.0, description="Over which sites, connections and lines are annualised.")
    it_life_years: Positive = Field(5.0, description="Over which racks, fabric and WAN equipment are annualised.")


class Grid(Sourced):
    """The power system around the candidate sites."""

    balancing_authorities: tuple[BalancingAuthority, ...]
    nodes: tuple[PowerNode, ...]
    lines: tuple[Line, ...] = ()
    new_lines: tuple[NewLine, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    rules: GridRules = GridRules()
    prices: SitePrices = SitePrices()


class FibreNode(Sourced):
    """A place where fibre routes meet; one with the id of a grid node stands at that node."""

    id: str
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]


class FibreEdge(Sourced):
    """A fibre route between two fibre nodes: what one cut takes out. Its wavelengths end at both nodes, so demands share them."""

    id: str | None = Field(None, description="Absent: the ids of its ends, joined by a hyphen.")
    a: str
    b: str
    route_km: Positive | None = Field(None, description="Absent: the great circle times wan.route_factor.")
    max_fibre_pairs: Count | None = Field(None, description="Absent: wan.max_fibre_pairs.")
    usd_per_pair: NonNegative | None = Field(None, description="Lease of one pair for its life; absent: route_km at wan.fibre_usd_per_route_km.")
    wavelength_usd: NonNegative | None = Field(None, description="Equipment at both ends of one wavelength; absent: wan.wavelength_usd.")

    @property
    def name(self) -> str:
        """The id, given or made."""
        return self.id or f"{self.a}-{self.b}"


class Traffic(Sourced):
    """What sites send each other beside the exchange of gradients, as many bytes each way."""

    name: str
    bytes: Positive = Field(description="Bytes from one end to the other, and as many back.")
    period_seconds: Positive | None = Field(None, description="Sent once in so long, spread evenly.")
    deadline_seconds: Positive | None = Field(None, description="Must have arrived so long after it starts, the round trip included.")
    priority: Count = Field(1, description="1 is served first, after the exchange of gradients.")
    a: str | None = Field(None, description="A grid or fibre node; with b absent too: between every two sites.")
    b: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Refuse traffic with no time or two, or with one end."""
        if (self.period_seconds is None) == (self.deadline_seconds is None):
            raise ValueError("give exactly one of period_seconds and deadline_seconds")
        if (self.a is None) != (self.b is None):
            raise ValueError("give both a and b, or neither for every two sites")
        return self


class Wan(Sourced):
    """What joins the sites. Any of fibre_edges, protection, exchange and traffic asks for a design of routes and wavelengths."""

    route_factor: Annotated[float, Field(ge=1)] = Field(1.2, description="Fibre route over great circle.")
    rtt_ms_per_100_route_km: Positive = Field(0.98, description="Light in fibre, both ways.")
    round_trips: NonNegative = Field(1.0, description="Round trips that one exchange waits for (k of the need).")
    headroom_factor: Annotated[float, Field(ge=1)] = Field(2.0, description="Capacity over the exchange's need, for other sync traffic.")
    wavelength_gbps: Positive = 400.0
    max_wavelengths_per_pair: Count = Field(96, description="Wavelengths per fibre pair.")
    max_fibre_pairs: Count = Field(16, description="Fibre pairs that can be leased between two sites.")
    fibre_usd_per_route_km: NonNegative = Field(0.0, description="Lease for its life (IRU) of one fibre pair.")
    wavelength_usd: NonNegative = Field(0.0, description="Transponders and router ports at both ends of one wavelength.")
    fibre_life_years: Positive = 20.0
    fibre_nodes: tuple[FibreNode, ...] = Field((), description="Places where fibre routes meet; a site stands at the nearest.")
    fibre_edges: tuple[FibreEdge, ...] = Field((), description="Fibre routes; absent: one between every two sites.")
    protection: Literal["none", "one_cut"] | None = Field(None, description="one_cut: every demand is carried whichever one fibre edge is cut.")
    exchange: Literal["auto", "ring", "tree", "hierarchical"] | None = Field(
        None, description="Form of the gradient exchange; auto, or one that the sites cannot take: the fastest."
    )
    traffic: tuple[Traffic, ...] = ()
    routes: Count = Field(4, description="Shortest routes considered for each demand.")

    @property
    def designed(self) -> bool:
        """A design of routes and wavelengths is asked for."""
        return bool(self.fibre_edges or self.traffic) or self.protection is not None or self.exchange is not None


class Switch(Sourced):
    """A switch box: `planes` chips behind `ports` front-panel ports, each port split over all chips."""

    name: str
    ports: Count = Field(description="Front-panel ports; each chip has as many, at port_gbps / planes.")
    port_gbps: Positive = Field(description="Rate of one front-panel port, all planes together.")
    planes: Count = Field(1, description="Chips in the box; each belongs to a network of its own.")
    price_usd: NonNegative
    power_watts: NonNegative
    link_factor: Positive = Field(
        1.0, description="Price and power of a link at this port rate over those of the network's optics, cables and media."
    )
    breakout: Annotated[int, Field(ge=1, le=16)] = Field(
        1,
        description="Most slower ports that a leaf's port towards GPUs can be split into, where NICs are slower; links between switches stay whole.",
    )
    breakout_link_factor: Positive = Field(1.0, description="Price and power of a GPU's link at a split port over those at a whole one.")


class Optics(Sourced):
    """A transceiver at the port rate."""

    name: str
    price_usd: NonNegative
    power_watts: NonNegative


class Cables(Sourced):
    """What a link takes beside its ports."""

    endpoint_usd: NonNegative = Field(0.0, description="Cable between GPU and leaf.")
    endpoint_transceivers: Annotated[int, Field(ge=0, le=2)] = 2
    switch_usd: NonNegative = Field(0.0, description="Cable between two switches.")
    switch_transceivers: Annotated[int, Field(ge=0, le=2)] = 2


class Medium(Sourced):
    """A kind of cable at the port rate, both ends included: what a link takes where it is no longer than the reach."""

    name: str
    reach_m: Positive
    price_usd: NonNegative = Field(description="Of a link without its length: ends, transceivers.")
    usd_per_m: NonNegative = 0.0
    power_watts: NonNegative = Field(0.0, description="Of a link, both ends.")


class Floor(Sourced):
    """The grid that racks stand on, row after row; switches stand in the middle of the racks that they serve."""

    rack_pitch_m: Positive = Field(0.6, description="From rack to rack in a row. EIA-310 racks are 600 mm wide [m].")
    row_pitch_m: Positive = Field(2.4, description="From row to row: racks 1.2 m deep, half of a cold and of a hot aisle of 1.2 m [m].")
    racks_per_row: Count | None = Field(None, description="Absent: as many as make the floor nearest to square.")
    rise_m: NonNegative = Field(1.0, description="From a port to the tray above, at each end [m].")
    spread_m: NonNegative = Field(5.0, description="Between the network racks of one middle, added to every cable between two switches [m].")


FabricFamily = Literal["rail", "rack", "rail-only", "dragonfly", "dragonfly+"]


class Spares(Sourced):
    """Ports of a leaf that are kept free for endpoints whose port fails: the larger of a share and what the chances ask for."""

    share: Fraction = Field(0.0, description="Of the ports in use towards GPUs, rounded up.")
    failure_chance: Fraction = Field(0.0, description="That a port fails before the leaf is repaired.")
    shortage_chance: Annotated[float, Field(gt=0, le=1)] = Field(0.01, description="That more ports of a leaf fail than it has spare, at most.")


class TransportRuns(Frozen):
    """Simulate the transport on a reference tree of the network's switches: a random permutation of equal flows."""

    transport: Literal["ecmp", "spray", "adaptive"]
    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(16, description="Runs.")
    percentile: Annotated[float, Field(ge=0, le=100)] = Field(50.0, description="Of the runs' slowdowns, each that of its slowest flow.")
    hosts: Annotated[int, Field(ge=2, le=65_536)] = Field(1024, description="Hosts of the reference tree; fewer where the switches reach no more.")
    oversubscription: Annotated[float, Field(ge=1)] = Field(1.0, description="Ports down over ports up at its leaves.")


class Transport(Sourced):
    """How far the transport stays from the fluid ideal: a given constant, or what runs of it show."""

    name: str = "spray"
    slowdown: Annotated[float, Field(ge=1)] = Field(1.05, description="Completion time over the fluid ideal (phi), where nothing is simulated.")
    simulate: TransportRuns | None = Field(None, description="Take the slowdown from runs, in the place of the constant.")


HOP_STEP_SHARE, ALLREDUCE_STEP_SHARE = 0.03, 0.01  # rules of this planner's own, unless an instance says otherwise


class Network(Sourced):
    """What the fabric of a site may be built from."""

    switches: tuple[Switch | str, ...] = Field(min_length=1)
    optics: Optics
    cables: Cables = Cables()
    floor: Floor | None = Field(None, description="Absent: lengths are of no account, and every link costs the same.")
    media: tuple[Medium | str, ...] = Field((), description="With a floor: links take the cheapest that reaches, and no optics and cables.")
    transport: Transport = Transport()
    families: tuple[FabricFamily, ...] = Field(
        ("rail",),
        min_length=1,
        description="rail: a leaf takes one GPU index of many racks; rack: all GPUs of some racks; rail-only: a network for each GPU index, "
        "nothing joins them; dragonfly: leaves as of rail, in groups of which every two are joined; dragonfly+: groups of leaves below spines.",
    )
    group_routing: Literal["shortest", "valiant"] = Field(
        "shortest",
        description="Of dragonflies. shortest: flows between two groups share the links of those two; valiant: they go by way of a third drawn at "
        "random, twice the links but over all of them.",
    )
    max_lanes: Annotated[int, Field(ge=1, le=16)] = Field(1, description="Most networks that a NIC is split over where a port is slower than it.")
    min_core_share: Fraction = Field(0.0, description="Least rate that can leave a full pod at once, over that of its GPUs: the floor between rails.")
    spares: Spares = Spares()
    power_usd_per_watt: NonNegative = Field(0.0, description="Price of a watt of the fabric over its years, counted into its cost.")
    max_tiers: Annotated[int, Field(ge=1, le=4)] = 4
    hop_step_share: Fraction = Field(
        HOP_STEP_SHARE,
        description="Most of a step that the fabric may add through pipeline exchanges over what NICs alone take: more lets it be narrower. "
        "Of no effect where a fabric decision is pinned.",
    )
    allreduce_step_share: Fraction = Field(
        ALLREDUCE_STEP_SHARE,
        description="Most of a step that the fabric may add through what shows of rings and of ZeRO's traffic over what NICs alone take. "
        "Of no effect where a fabric decision is pinned.",
    )
    border: bool = Field(False, description="Count, price and wire the switches at which the wavelengths between sites end.")


class Instance(Sourced):
    """One planning question; a part that is missing is a decision not asked for."""

    schema_version: Literal[1] = 1
    name: str
    objective: Objective = Objective()
    limits: Limits = Limits()
    workload: Workload
    hardware: Hardware
    grid: Grid | None = None
    wan: Wan | None = None
    network: Network | None = None
    pins: dict[str, Any] = Field(default_factory=dict, description="Decisions fixed by hand, by dotted path.")
