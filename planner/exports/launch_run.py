"""A training run as planned: its ranks, chunks of layers and batch, and how its stages stand in racks."""

import math
from dataclasses import dataclass
from typing import Literal

from planner.cluster import HOST_GPUS
from planner.errors import InputError
from planner.instance.hardware import Rack
from planner.instance.workload import CORE_ATTENTION, Model, Precision, RecomputeModule, Software
from planner.physics.training.collectives import smaller_chunks_first
from planner.physics.training.parallel_strategy import min_stages_per_rack
from planner.physics.training.schedule import chunk_sizes
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan

BOARD_GPUS = {72: 4}  # GPUs of one host by the GPUs of its rack
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}  # by ZeRO stage


@dataclass(frozen=True, slots=True)
class LaunchRun:
    """A training run as planned."""

    name: str
    model: Model
    precision: Precision
    sequence_length: int
    layout: LayoutPlan
    rack_gpus: int
    software: Software | None

    @property
    def modules(self) -> tuple[RecomputeModule, ...]:
        """Modules that selective recompute runs again."""
        return CORE_ATTENTION if self.software is None else self.software.recompute_modules

    @property
    def data_parallel(self) -> int:
        """Replicas over all sites."""
        return sum(self.layout.data_parallel_by_site.values()) or self.layout.data_parallel

    @property
    def gpus(self) -> int:
        """Ranks that are started."""
        layout = self.layout
        return layout.stage_gpus * layout.pipeline_parallel * self.data_parallel

    @property
    def node_gpus(self) -> int:
        """GPUs that one host starts: as many as all hosts can start alike."""
        own = BOARD_GPUS.get(self.rack_gpus, self.rack_gpus if self.rack_gpus <= HOST_GPUS else HOST_GPUS)
        return math.gcd(own, self.gpus)

    @property
    def nodes(self) -> int:
        """Hosts that start ranks."""
        return self.gpus // self.node_gpus

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.layout.microbatch_sequences * self.layout.microbatches_per_step * self.data_parallel

    @property
    def chunks(self) -> list[int]:
        """Layers of each chunk in the order of the pass: the first chunk of every stage, the second of every stage."""
        virtual = self.layout.virtual_stages
        sizes = [
            chunk_sizes(count, virtual, smaller_first=bool(smaller_chunks_first(self.model, stage)))
            for stage, count in enumerate(self.layout.layers_per_stage)
        ]
        return [count for chunks in zip(*sizes, strict=True) for count in chunks]

    @property
    def stages_in_racks(self) -> Literal["as ranks", "pipelines", "mixed"]:
        """Whether racks hold what ranks in order fill them with, whole pipelines first, or neither.

        Megatron orders ranks by tensor, context, data and pipeline, or with --use-tp-pp-dp-mapping by pipeline and then
        data; that it refuses where experts and the other weights have other replicas (parallel_state.py), and under its
        FSDP.
        """
        layout, unit = self.layout, self.layout.stage_gpus
        ordered = min_stages_per_rack(
            self.rack_gpus, unit, layout.pipeline_parallel, self.data_parallel, -(-self.gpus // self.rack_gpus)
        )
        if layout.stages_per_rack <= ordered:
            return "as ranks"
        first = min(layout.pipeline_parallel, self.rack_gpus // unit)
        refused = self.model.experts is not None or layout.context_parallel > 1 or layout.zero_stage in SHARDING
        return "mixed" if refused or layout.stages_per_rack != first else "pipelines"

    @property
    def is_even(self) -> bool:
        """Whether all chunks have as many layers."""
        return len(set(self.chunks)) == 1


def run_of(plan: Plan, where: str) -> LaunchRun:
    """Return the run of a plan. InputError: the plan has no layout, or one for each of several pools."""
    layout, work, rack = plan.layout, plan.instance.workload, plan.instance.hardware.rack
    if layout is None or not isinstance(work.model, Model) or not isinstance(rack, Rack):
        why = "each pool has a layout of its own" if plan.pools else f"status {plan.status}"
        raise InputError(f"{where}: has no layout to start ({why}); give a plan with one")
    return LaunchRun(
        name=plan.instance.name,
        model=work.model,
        precision=work.precision,
        sequence_length=work.sequence_length,
        layout=layout,
        rack_gpus=rack.gpus,
        software=work.software if isinstance(work.software, Software) else None,
    )
