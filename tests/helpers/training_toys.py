"""A GPU, a machine, a layer and a layout of plain figures for the physics of training, to be changed key by key."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.instance.hardware import Accelerator, GemmEfficiency, Rack
from planner.instance.software import Software
from planner.instance.workload import Model, Precision
from planner.physics.training.operations import LayerShape, Machine
from planner.physics.training.parallel_strategy import ParallelStrategy

NODE = Rack(name="node", gpus=8, it_kw=1, price_usd=0)
ROLES = {"parameter": 2, "working_parameter": 2, "gradient": 4, "optimizer": 12, "activation": 2, "collective": 2}
PLAIN = ParallelStrategy(
    tensor_parallel=1, pipeline_parallel=1, data_parallel_by_site=(1,), virtual_stages=1, micro_batch=1,
    micro_batches=8, recompute="none", sequence_parallel=False, zero_stage=1, layers_per_stage=(1,),
    replicas_per_rack=1,
)  # fmt: skip


def precision_of(compute: str = "fp16", **roles: float) -> Precision:
    """Return 16 bits with gradients in 32 and 12 bytes of optimizer state; `gradient=2` changes the bytes of a role."""
    return Precision.model_validate({"compute": compute} | {f"{k}_bytes": v for k, v in (ROLES | roles).items()})


def accelerator(
    peak: Mapping[str, float],
    *,
    share: float | Mapping[str, float] = 1.0,
    scale_up: tuple[float, float] = (100.0, 0.5),
    nic: tuple[float, float] = (10.0, 2.0),
    operand_traffic: float = 0.0,
    **more: Any,
) -> Accelerator:
    """Return a GPU by its FLOP/s, and by bytes per second and latency of its scale-up links and its NIC."""
    shares = dict(share) if isinstance(share, Mapping) else dict.fromkeys(peak, share)
    return Accelerator(
        name="toy", peak_flop_per_second=dict(peak),
        gemm_efficiency=GemmEfficiency(max_share=shares, operand_traffic=operand_traffic),
        scale_up_bytes_per_second=scale_up[0], scale_up_latency_seconds=scale_up[1], nic_bytes_per_second=nic[0],
        nic_latency_seconds=nic[1], **({"hbm_bytes": 1e12} | more),
    )  # fmt: skip


def machine_of(
    gpu: Accelerator, model: Model, sequence: int, precision: Precision | None = None, **software: Any
) -> Machine:
    """Return racks of eight GPUs with a stack of that software."""
    code, precision = Software.model_validate({"name": "toy", **software}), precision or precision_of()
    return Machine(gpu=gpu, rack=NODE, software=code, model=model, precision=precision, sequence=sequence)


def shape(t: int = 1, b: int = 1, recompute: Any = "none", sp: bool = False, c: int = 1, e: int = 1) -> LayerShape:
    """Return a layer of tensor, context and expert parallelism `t`, `c` and `e` and micro-batches of `b` sequences."""
    return LayerShape(
        tensor_parallel=t, micro_batch=b, recompute=recompute, sequence_parallel=sp, context_parallel=c,
        expert_parallel=e,
    )  # fmt: skip


def layout(layers: tuple[int, ...], **changes: Any) -> ParallelStrategy:
    """Return a pipeline of stages with so many layers, one replica, eight micro-batches and ZeRO-1."""
    return replace(PLAIN, pipeline_parallel=len(layers), layers_per_stage=layers, **changes)
