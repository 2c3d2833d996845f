"""The layout section of a plan, and that of pools of different GPUs."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate


class Assumptions(Frozen):
    """What the layout's step time takes from the network: the plan holds when the network is no slower."""

    pipeline_send_slowdown: float = Field(description="Pipeline exchange over the NIC's ideal.")
    allreduce_slowdown: float = Field(description="Ring between racks over the NIC's ideal.")
    wan_gbps: float | None = Field(
        None, description="Rate of the exchange between sites, each direction; null with one site."
    )
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
    pipeline_send_seconds: float = Field(description="One pipeline exchange at the assumed slowdown, gather included.")
    pipeline_send_nic_seconds: float = Field(description="NIC time of one pipeline exchange at the ideal rate.")
    pipeline_send_window_seconds: float = Field(
        description="Time that one exchange may take: hidden by compute, and slowing the step by no more than network.pipeline_send_step_share."
    )
    allreduce_layer_seconds: float = Field(
        description="Ring between racks for one layer's gradients at the NIC's ideal rate."
    )
    allreduce_window_seconds: float = Field(
        description="Time that a layer's all-reduce may take: hidden by its backward pass, and slowing the step by no more than "
        "network.allreduce_step_share."
    )
    gradient_bytes_per_stage: float = Field(description="What one stage exchanges between sites per step.")
    wan_window_seconds: float = Field(description="Backward pass of one stage, which hides that exchange.")


class LayoutPlan(Frozen):
    """How one training step is cut over GPUs."""

    tensor_parallel: int
    tensor_parallel_inner: int = Field(
        1, description="Under 2-D tensor parallelism the ranks that share a product's input; 1: one-dimensional."
    )
    context_parallel: int = 1
    expert_parallel: int = 1
    pipeline_parallel: int
    data_parallel: int
    data_parallel_by_site: dict[str, int]
    schedule: Literal["1f1b", "zb-h1"] = Field(
        "1f1b", description="Order of passes; interleaved where there are virtual stages."
    )
    virtual_stages: int
    microbatch_sequences: int
    microbatches_per_step: int
    recompute: Literal["none", "selective", "full"] = Field(
        description="full: some layers whole, as recomputed_layers_per_stage says."
    )
    recomputed_layers_per_stage: tuple[int, ...] = Field(
        (), description="Layers that run again in the backward pass; empty: none, or all under full."
    )
    sequence_parallel: bool
    zero_stage: Literal[0, 1, 2, 3]
    layers_per_stage: tuple[int, ...]
    replicas_per_rack: int
    racks_per_replica: int = Field(
        1, description="Racks over which one replica's stage spreads, where a rack is too small for it."
    )
    stages_per_rack: int = Field(1, description="Consecutive stages that share a rack.")
    racks_per_stage_by_site: dict[str, int] = Field(
        description="Racks of one stage's replica group: the all-reduce group."
    )
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
    layouts: dict[str, LayoutPlan] = Field(
        description="Of each pool that trains; its figures are the pool's alone, for its share of the batch."
    )
    exchange_seconds: dict[str, float] = Field(
        description="Exposed exchange of gradients with the other pools; 0 where no link is given."
    )
    step_seconds: float = Field(description="The slowest pool's step and the longest exchange.")
    tokens_per_step: float
    days_to_train: float
    certificate: Certificate
