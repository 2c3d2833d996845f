"""The hardware of an instance: accelerators, racks, pools of different GPUs, and the failure rates of their parts."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field

from planner.instance.base_types import Count, Dtype, Fraction, NonNegative, Positive, Share, Sourced, with_like
from planner.instance.catalogue_entries import Named

DAYS_A_MONTH = 365.25 / 12


class GemmEfficiency(Sourced):
    """Efficiency of an accelerator's matrix products: share of the dense peak, and HBM traffic not hidden."""

    max_share: dict[Dtype, Share] = Field(description="Share of the dense peak that large products reach, by type.")
    operand_traffic: Fraction = Field(0.0, description="Share of the products' HBM traffic that the FLOP do not hide.")
    tail_elements: NonNegative = Field(
        0.0, description="Elements of the result that the last wave of tiles, not full, costs a product besides."
    )
    unaligned_share: Share = Field(1.0, description="Share of the rate that heads reach whose width 8 does not divide.")


class Accelerator(Sourced, json_schema_extra=with_like):
    """The accelerator of an instance's hardware: one GPU with its links."""

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
    """The rack of an instance's hardware, which is bought and placed, or a node where nodes are bought one by one."""

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
    """One pool of an instance's hardware: a cluster of one type of GPU, of several that train the model together."""

    name: str = Field(description="By which plans name it.")
    accelerator: NamedAccelerator = Field(description="Its GPU, inline or by catalogue name.")
    rack: NamedRack = Field(description="Its rack, inline or by catalogue name.")
    racks: Count = Field(description="Its racks.")
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU; absent: the accelerator's.")


class PoolLink(Sourced):
    """The link of every two pools of an instance's hardware, over which they exchange gradients once a step."""

    gbps: Positive = Field(description="Rate between two pools, each direction, for one stage's gradients at a time.")
    rtt_ms: NonNegative = Field(0.0, description="Round trip; one exchange waits for one.")


class HardwareAlternative(Sourced):
    """An alternative of an instance's hardware: another GPU and rack that the plan may buy in its place."""

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
        """Return the rate of the NIC of one GPU of the hardware, in bytes/s one way: its own or the accelerator's."""
        own = self.nic_bytes_per_second
        return self.accelerator.nic_bytes_per_second if own is None else own

    def each_alone(self) -> list[Self]:
        """List an instance's hardware once for each alternative, with that GPU and rack alone; its own come first."""
        every = [self.replaced(alternatives=())]
        for alternative in self.alternatives:
            rack = alternative.rack
            if alternative.price_usd is not None:
                rack = rack.replaced(price_usd=alternative.price_usd)
            own = {key: getattr(alternative, key) for key in ("accelerator", "nic_bytes_per_second", "ready_months")}
            every.append(every[0].replaced(**own, rack=rack, racks=alternative.racks or self.racks))
        return every


def hardware_kind(hardware: Hardware | HardwareAlternative) -> tuple[str, str]:
    """Return the names of the GPU and of the rack of an instance's hardware."""
    return hardware.accelerator.name, hardware.rack.name
