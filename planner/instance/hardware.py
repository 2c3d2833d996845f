"""What the sites are filled with: accelerators, racks, and pools of different GPUs."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from planner.instance.base import Count, Dtype, Fraction, NonNegative, Positive, Share, Sourced, with_like


class GemmEfficiency(Sourced):
    """Time of a matrix product: its FLOP at a share of the dense peak, and the HBM traffic that they do not hide."""

    max_share: dict[Dtype, Share] = Field(description="Share of the dense peak that large products reach, by type.")
    operand_traffic: Fraction = Field(0.0, description="Share of the products' HBM traffic that the FLOP do not hide.")
    tail_elements: NonNegative = Field(
        0.0, description="Elements of the result that the last wave of tiles, not full, costs a product besides."
    )
    unaligned_share: Share = Field(1.0, description="Share of the rate that heads reach whose width 8 does not divide.")


class Accelerator(Sourced):
    """One GPU with its links."""

    model_config = ConfigDict(json_schema_extra=with_like)

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

    @model_validator(mode="after")
    def _efficiency_by_type(self) -> Self:
        """Refuse a peak rate without the share of it that products reach."""
        for dtype in self.peak_flop_per_second:
            if dtype not in self.gemm_efficiency.max_share:
                raise ValueError(f"gemm_efficiency.max_share has no {dtype!r}, which peak_flop_per_second has; add one")
        return self


class Rack(Sourced):
    """The unit that is bought and placed: a rack, or a node where nodes are bought one by one."""

    name: str = Field(description="By which plans name it.")
    gpus: Count = Field(description="GPUs, all in one scale-up domain.")
    it_kw: Positive = Field(description="IT power at full load.")
    price_usd: NonNegative = Field(description="Price with NICs, without the fabric.")
    life_years: Positive | None = Field(
        None, description="After which a rack is replaced at its price; absent: never within the run."
    )


class Pool(Sourced):
    """One cluster of one type of GPU, of several that train the same model together."""

    name: str = Field(description="By which plans name it.")
    accelerator: Accelerator | str = Field(description="Its GPU, inline or by catalogue name.")
    rack: Rack | str = Field(description="Its rack, inline or by catalogue name.")
    racks: Count = Field(description="Its racks.")
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU; absent: the accelerator's.")


class PoolLink(Sourced):
    """What joins every two pools: they exchange gradients over it once a step."""

    gbps: Positive = Field(description="Rate between two pools, each direction, for one stage's gradients at a time.")
    rtt_ms: NonNegative = Field(0.0, description="Round trip; one exchange waits for one.")


class Hardware(Sourced):
    """What the sites are filled with."""

    accelerator: Accelerator | str = Field(description="The GPU, inline or by catalogue name.")
    rack: Rack | str = Field(description="The unit that is bought, inline or by catalogue name.")
    racks: Count | None = Field(None, description="Racks of the one cluster, where there is no grid.")
    nic_bytes_per_second: Positive | None = Field(None, description="NIC of one GPU; absent: the accelerator's.")
    racks_per_module: Count = Field(1, description="Racks bought and powered together.")
    facility_overhead_factor: Annotated[float, Field(ge=1)] = Field(1.0, description="Facility over IT power (PUE).")
    overhead_includes_fabric: bool = Field(
        False, description="facility_overhead_factor holds the fabric's power; else it is IT load beside the racks'."
    )
    cooling_kw_per_m2: Positive | None = Field(None, description="Facility power that dry cooling sheds.")
    pools: tuple[Pool, ...] = Field(
        (),
        description="Clusters of different GPUs that share each step's batch, each with its own layout; in place of "
        "accelerator, rack (read as the first pool's) and racks, without grid, wan and network.",
    )
    pool_link: PoolLink | None = Field(None, description="Absent: the pools exchange gradients in no time.")

    @property
    def gpu_nic_bytes_per_second(self) -> float:
        """Return the rate of the NIC of one GPU, one direction: the accelerator's where none is given beside it.

        Raises
        ------
        TypeError
            A catalogue name is left in its place.
        """
        if self.nic_bytes_per_second is not None:
            return self.nic_bytes_per_second
        if not isinstance(self.accelerator, Accelerator):
            raise TypeError("hardware.accelerator is a name; load the instance through planner.load")
        return self.accelerator.nic_bytes_per_second
