"""The hardware of an instance: accelerators, racks, pools of different GPUs, and the failure rates of their parts."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field

from planner.instance.base_types import Count, Dtype, Fraction, NonNegative, Positive, Share, Sourced, with_like
from planner.instance.catalogue_entries import Named

DAYS_A_MONTH = 365.25 / 12
Recovery = Literal["restart", "warm-spares", "elastic"]
CheckpointTarget = Literal["storage", "memory"]
COUNTED_BY = ("gpu_hours_per_event", "link_hours_per_event", "transceiver_hours_per_event")


class GemmEfficiency(Sourced):
    """Efficiency of a GPU's matrix products: FLOP at a share of the dense peak, and HBM traffic not hidden."""

    max_share: dict[Dtype, Share] = Field(description="Share of the dense peak that large products reach, by type.")
    operand_traffic: Fraction = Field(0.0, description="Share of the products' HBM traffic that the FLOP do not hide.")
    tail_elements: NonNegative = Field(
        0.0, description="Elements of the result that the last wave of tiles, not full, costs a product besides."
    )
    unaligned_share: Share = Field(1.0, description="Share of the rate that heads reach whose width 8 does not divide.")


class Accelerator(Sourced, json_schema_extra=with_like):
    """The accelerator of the hardware: one GPU with its links."""

    name: str = Field(description="By which files name it.")
    hbm_bytes: Positive = Field(description="Memory of one GPU, in bytes.")
    hbm_bytes_per_second: Positive = Field(description="Rate of that memory, in bytes per second.")
    peak_flop_per_second: dict[Dtype, Positive] = Field(description="Dense peak by type (no structured sparsity).")
    gemm_efficiency: GemmEfficiency = Field(description="Share of the peak that matrix products reach.")
    attention_efficiency: Share = Field(0.5, description="Share of the 16-bit peak that the best flash kernel reaches.")
    softmax_width: NonNegative = Field(
        0.0,
        description="Width of a head whose products take as long as the softmax of its scores, which they do not hide.",
    )
    any_fp8_layout: bool = Field(
        False,
        description="Products in FP8 take operands by rows or columns, so that one cast with one scale serves both.",
    )
    hbm_efficiency: Share = Field(1.0, description="Share of the HBM rate that element-wise kernels reach.")
    kernel_seconds: NonNegative = Field(0.0, description="Shortest time of a kernel.")
    memory_reserve_bytes: NonNegative = Field(0.0, description="Taken by context, collectives' buffers and the like.")
    scale_up_bytes_per_second: Positive = Field(description="Scale-up link of one GPU, one direction.")
    scale_up_efficiency: Share = Field(1.0, description="Share of the scale-up rate that large collectives reach.")
    scale_up_latency_seconds: NonNegative = Field(description="One hop in the scale-up domain (alpha).")
    scale_up_reduces: bool = Field(False, description="The scale-up switches reduce and multicast (NVLink SHARP).")
    nic_bytes_per_second: Positive = Field(description="Scale-out NIC of one GPU, one direction.")
    nic_efficiency: Share = Field(1.0, description="Share of the NIC's rate that large messages reach.")
    nic_latency_seconds: NonNegative = Field(description="One hop through the scale-out network (alpha).")

    host_bytes_per_second: Positive = Field(
        32e9, description="Link of one GPU to its host's memory, one direction; absent: PCIe 4.0 x16."
    )

    def _faults(self) -> Iterator[str]:
        for dtype in self.peak_flop_per_second:
            if dtype not in self.gemm_efficiency.max_share:
                yield f"gemm_efficiency.max_share has no {dtype!r}, which peak_flop_per_second has; add one"


class Rack(Sourced):
    """The rack of the hardware, which is bought and placed, or a node where nodes are bought one by one."""

    name: str = Field(description="By which plans name it.")
    gpus: Count = Field(description="GPUs, all in one scale-up domain.")
    it_kw: Positive = Field(description="IT power at full load.")
    price_usd: NonNegative = Field(description="Price with NICs, without the fabric.")
    life_years: Positive | None = Field(
        None, description="After which a rack is replaced at its price; absent: never within the run."
    )


NamedAccelerator = Annotated[Accelerator, Named("accelerators")]
NamedRack = Annotated[Rack, Named("racks")]


class Pool(Sourced):
    """One pool: a cluster of one type of GPU, of several that train the same model together."""

    name: str = Field(description="By which plans name it.")
    accelerator: NamedAccelerator = Field(description="Its GPU, inline or by catalogue name.")
    rack: NamedRack = Field(description="Its rack, inline or by catalogue name.")
    racks: Count = Field(description="Its racks.")
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU; absent: the accelerator's.")


class PoolLink(Sourced):
    """The link of every two pools of GPUs, over which they exchange gradients once a step."""

    gbps: Positive = Field(description="Rate between two pools, each direction, for one stage's gradients at a time.")
    rtt_ms: NonNegative = Field(0.0, description="Round trip; one exchange waits for one.")


class HardwareAlternative(Sourced):
    """Another GPU and rack that the plan may buy in place of the hardware's own, all alike."""

    accelerator: NamedAccelerator = Field(description="Its GPU, inline or by catalogue name.")
    rack: NamedRack = Field(description="Its rack, inline or by catalogue name.")
    price_usd: NonNegative | None = Field(None, description="Price of such a rack; absent: the rack's own.")
    racks: Count | None = Field(None, description="Racks of a cluster; absent: as many as the hardware's.")
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU; absent: the accelerator's.")
    ready_months: NonNegative = Field(
        0.0, description="From the decision to the day when training on it may start; choices are compared by the end."
    )


class Hardware(Sourced):
    """The hardware of an instance, with which its sites are filled: GPU, rack, their number and their pools."""

    accelerator: NamedAccelerator = Field(description="The GPU, inline or by catalogue name.")
    rack: NamedRack = Field(description="The unit that is bought, inline or by catalogue name.")
    racks: Count | None = Field(None, description="Racks of the one cluster, where there is no grid.")
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU; absent: the accelerator's.")
    racks_per_module: Count = Field(1, description="Racks bought and powered together.")
    facility_overhead_factor: Annotated[float, Field(ge=1)] = Field(1.0, description="Facility over IT power (PUE).")
    overhead_includes_fabric: bool = Field(
        False, description="facility_overhead_factor holds the fabric's power; else it is IT load, added to the racks'."
    )
    cooling_kw_per_m2: Positive | None = Field(None, description="Facility power that dry cooling sheds.")
    ready_months: NonNegative = Field(
        0.0,
        description="From the decision to the day when training may start; alternatives are compared by it, and the "
        "goal finish_date counts it.",
    )
    alternatives: tuple[HardwareAlternative, ...] = Field(
        (), description="Other GPUs and racks: the plan buys those, or these here, whichever is best."
    )
    pools: tuple[Pool, ...] = Field(
        (),
        description="Clusters of different GPUs that share each step's batch, each with its own layout; in place of "
        "accelerator, rack (read as the first pool's) and racks, without grid, wan and network.",
    )
    pool_link: PoolLink | None = Field(None, description="Absent: the pools exchange gradients in no time.")

    @property
    def gpu_nic_bytes_per_second(self) -> float:
        """Return the rate of one GPU's NIC in bytes/s one way, own or the accelerator's."""
        own = self.nic_bytes_per_second
        return self.accelerator.nic_bytes_per_second if own is None else own

    def each_alone(self) -> list[Self]:
        """List the hardware of an instance with each of its GPUs and racks alone, its own first."""
        every = [self.replaced(alternatives=())]
        for alternative in self.alternatives:
            rack = alternative.rack
            if alternative.price_usd is not None:
                rack = rack.replaced(price_usd=alternative.price_usd)
            own = {key: getattr(alternative, key) for key in ("accelerator", "nic_bytes_per_second", "ready_months")}
            every.append(every[0].replaced(**own, rack=rack, racks=alternative.racks or self.racks))
        return every


class FailingPart(Sourced):
    """A kind of part, or of work, whose failure stops the job; counted by GPU, by link or by transceiver at work."""

    gpu_hours_per_event: Positive | None = Field(
        None, description="Hours of GPUs at work from one event to the next; absent: it is counted by another key."
    )
    link_hours_per_event: Positive | None = Field(
        None, description="Counted by link: hours of links of GPUs at work to their leaves from one event to the next."
    )
    transceiver_hours_per_event: Positive | None = Field(
        None, description="Counted by transceiver: the same of cables.endpoint_transceivers at each such link."
    )
    repair_hours: NonNegative = Field(
        0.0, description="Hours that it is out of service behind a stop; 0: the job takes it up again at once."
    )
    out: Literal["gpu", "rack"] = Field("gpu", description="What is out of service meanwhile: the GPU, or its rack.")

    def _faults(self) -> Iterator[str]:
        given = [name for name in COUNTED_BY if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"has {' and '.join(given) or 'no hours_per_event'}; give one of {', '.join(COUNTED_BY)}"
        if self.repair_hours and self.gpu_hours_per_event is None:
            yield f"repair_hours with {given[0]}; only what is counted by gpu_hours_per_event is repaired"


class Reliability(Sourced):
    """Failure rates of the hardware, and what stops of a job cost; with none of it a run is taken to train always."""

    name: str = Field("", description="Of the figures, in reports.")
    parts: dict[str, FailingPart] = Field(description="What fails, by name.")
    measured_gpus: Positive = Field(
        16_384.0, description="GPUs of the run at which the rates were seen; a plan of more is an extrapolation."
    )
    scale_exponent: NonNegative = Field(
        0.0, description="Above measured_gpus the rate of a GPU grows with this power of their number."
    )
    lane_failover: bool = Field(
        False, description="A GPU whose NIC has links in several networks goes on over the others: they stop nothing."
    )
    correlated_share: Fraction = Field(
        0.0, description="Share of stops that hit several replicas, or both copies of a checkpoint in memory."
    )
    detection_seconds: NonNegative = Field(0.0, description="From a failure to the start of a recovery.")
    restart_seconds: NonNegative = Field(0.0, description="Of a restart of the whole job, whatever its size.")
    restart_seconds_per_gpu: NonNegative = Field(0.0, description="Of a restart of the whole job, for each GPU.")
    warm_restart_seconds: NonNegative = Field(0.0, description="Of a restart on spares that stand by, likewise.")
    warm_restart_seconds_per_gpu: NonNegative = Field(0.0, description="Of a restart on spares, for each GPU.")
    elastic_stall_seconds: NonNegative = Field(
        0.0, description="That all replicas stall when one is lost, and the job goes on without it."
    )
    rejoin_seconds: NonNegative = Field(0.0, description="That a lost replica stays away where racks are at hand.")
    power_ramp_seconds: NonNegative = Field(0.0, description="From a restart to full power, as the grid asks.")
    storage_bytes_per_second_per_gpu: Positive | None = Field(
        None, description="Rate at which a GPU writes a checkpoint to storage; absent: writing takes no time."
    )
    memory_bytes_per_second_per_gpu: Positive | None = Field(
        None, description="Rate to the memory of a neighbour; absent: no checkpoint is kept there."
    )
    recoveries: tuple[Recovery, ...] = Field(
        ("restart", "warm-spares", "elastic"), min_length=1, description="Ways to go on after a stop to choose from."
    )
    checkpoint_targets: tuple[CheckpointTarget, ...] = Field(
        ("storage", "memory"), min_length=1, description="Where checkpoints may be written."
    )
    spare_targets: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field(
        (0.0, 0.99),
        min_length=1,
        description="Spare racks of a site: the fewest that leave enough racks for such a share of time; 0: none.",
    )
    spare_gpus: bool = Field(True, description="GPUs of a rack that the layout leaves idle may be cabled as spares.")

    @property
    def counts_links(self) -> bool:
        """Whether the stops of a job depend on the number of links that join a GPU to its leaves."""
        return any(part.gpu_hours_per_event is None for part in self.parts.values())

    def _faults(self) -> Iterator[str]:
        # Of links alone, without transceivers, or with lanes to spare, nothing would ever stop the job.
        if self.counts_links and all(part.gpu_hours_per_event is None for part in self.parts.values()):
            yield "parts: all are counted by links or transceivers; add those with gpu_hours_per_event"
        if set(self.recoveries) == {"warm-spares"} and not any(self.spare_targets):
            problem = 'recoveries has "warm-spares" alone, and spare_targets no share above 0'
            yield f"{problem}; add one to either"
        if "storage" not in self.checkpoint_targets and self.memory_bytes_per_second_per_gpu is None:
            problem = 'checkpoint_targets has no "storage", and memory_bytes_per_second_per_gpu is absent'
            yield f"{problem}; add one"
