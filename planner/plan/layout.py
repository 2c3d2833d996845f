"""The layout section of a plan, and that of pools of different GPUs."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.plan.certificate import Certificate


class Assumptions(Frozen):
    """What the step time assumes of the network, which may be no slower."""

    pipeline_send_slowdown: float = Field(description="Pipeline exchange over the NIC's ideal.")
    allreduce_slowdown: float = Field(description="Ring between racks over the NIC's ideal.")
    wan_gbps: float | None = Field(None, description="Rate of the exchange between sites, each way.")
    wan_rtt_ms: float | None = Field(
        None, description="Round trip between the sites that are farthest apart, in ms; null: one site."
    )


class LayoutMetrics(Frozen):
    """What the layout is predicted to do."""

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
        description="Compute of the smallest chunk, beside which one exchange may run."
    )
    sends_beside_rings: float = Field(
        0.0, description="Pipeline exchanges of a step that the schedule lets meet rings, which they wait for."
    )
    allreduce_layer_seconds: float = Field(description="All-reduce of a layer between racks at the ideal rate.")
    allreduce_window_seconds: float = Field(description="Backward pass of a layer, beside which it may run.")
    gradient_bytes_per_stage: float = Field(description="What one stage exchanges between sites per step.")
    wan_window_seconds: float = Field(description="Backward pass of one stage, which hides that exchange.")


class LayoutPlan(Frozen):
    """The parallel strategy of a training step."""

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
    def rack_stages(self) -> int:
        """Groups of racks that carry different stages: what the fabric joins and the placement places."""
        return -(-self.pipeline_parallel // self.stages_per_rack)


class PoolsPlan(Frozen):
    """Shares of each step's batch of pools of different GPUs, in sequences; each pool has its own strategy."""

    sequences: dict[str, int] = Field(description="Of a step, by pool; 0: the pool does not train.")
    layouts: dict[str, LayoutPlan] = Field(description="Of each pool that trains, for its share of the batch.")
    exchange_seconds: dict[str, float] = Field(description="Exposed exchange with the other pools.")
    step_seconds: float = Field(description="The slowest pool's step and the longest exchange.")
    tokens_per_step: float = Field(description="Of all pools.")
    days_to_train: float = Field(description="Of all tokens, availability included.")
    days_to_train_interval: tuple[float, float] = Field(description="By the pool whose like runs are the farthest off.")
    certificate: Certificate = Field(description="What is proven of it.")


def layout_in_short(x: LayoutPlan) -> str:
    """Write a layout in a few words: the degrees of parallelism above 1, pipeline and data always, chunks a stage."""
    degrees = [("TP", x.tensor_parallel), ("CP", x.context_parallel), ("EP", x.expert_parallel)]
    parts = [f"{name} {n}" for name, n in degrees if n > 1]
    parts += [f"PP {x.pipeline_parallel}", f"DP {x.data_parallel}"]
    return " x ".join(parts) + (f", v {x.virtual_stages}" if x.virtual_stages > 1 else "")
