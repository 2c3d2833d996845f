"""One layout in full, the parallel strategy: its degrees, and the `layout` section of a plan that spells them.

`read_strategy` and `write_layout` are the only reader and writer of that section.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from planner.instance.workload import Parallelism, Software
from planner.physics.training.blocks import rack_blocks
from planner.physics.training.operations import LayerShape, Recompute
from planner.physics.training.schedule import Schedule, may_overlap_experts
from planner.plan.certificate import Certificate
from planner.plan.plan_sections import Assumptions, LayoutMetrics, LayoutPlan

LAYOUT_KEYS = {
    "micro_batch": "microbatch_sequences",
    "micro_batches": "microbatches_per_step",
    "tensor_inner": "tensor_parallel_inner",
}
"""Keys of the `layout` section where formulas use a shorter name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStrategy:
    """How one training step is divided over GPUs, in full; replicas are counted in the order of the sites' names."""

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel_by_site: tuple[int, ...]
    virtual_stages: int
    micro_batch: int
    micro_batches: int
    recompute: Recompute
    sequence_parallel: bool
    zero_stage: int
    layers_per_stage: tuple[int, ...]
    replicas_per_rack: int
    context_parallel: int = 1
    expert_parallel: int = 1
    tensor_inner: int = 1
    schedule: Schedule = "1f1b"
    stages_per_rack: int = 1
    recomputed_layers_per_stage: tuple[int, ...] = ()

    @classmethod
    def of_shape(cls, shape: LayerShape, **rest: Any) -> "ParallelStrategy":
        """Return the strategy of a layer's shape; `rest` holds the other fields, and those of the shape that differ."""
        own = {f.name: getattr(shape, f.name) for f in fields(shape) if f.name != "experts_overlap"}
        return cls(**(own | rest))

    @property
    def shape(self) -> LayerShape:
        """The part that sets a layer's cost; under full recompute that of the layers that are not recomputed."""
        return LayerShape(
            tensor_parallel=self.tensor_parallel,
            micro_batch=self.micro_batch,
            recompute=self.recompute,
            sequence_parallel=self.sequence_parallel,
            context_parallel=self.context_parallel,
            expert_parallel=self.expert_parallel,
            tensor_inner=self.tensor_inner,
            experts_overlap=bool(may_overlap_experts(self.pipeline_parallel, self.virtual_stages))
            and not any(self.recomputed),
        )

    @property
    def recomputed(self) -> tuple[int, ...]:
        """Fully recomputed layers of each stage; under full recompute without numbers, all layers."""
        if self.recompute != "full":
            return (0,) * len(self.layers_per_stage)
        return self.recomputed_layers_per_stage or self.layers_per_stage

    @property
    def data_parallel(self) -> int:
        """Replicas over all sites."""
        return sum(self.data_parallel_by_site)

    @property
    def min_replicas(self) -> int:
        """Replicas of the smallest site that works: ZeRO shards state over them, never over the WAN."""
        return min(d for d in self.data_parallel_by_site if d)

    def unit_racks(self, gpus_per_rack: int) -> int:
        """Count the racks of one unit of a rack stage, which holds whole replicas and expert groups."""
        return rack_blocks.unit_racks(
            replica_gpus=self.shape.gpus,
            racks=self.racks_per_replica(gpus_per_rack),
            replicas_per_rack=self.replicas_per_rack,
            expert_parallel=self.expert_parallel,
        )

    def group_racks(self, gpus_per_rack: int) -> int:
        """Return the racks of the largest all-reduce group: one stage's replicas at one site, with their CP ranks.

        TP ranks of other racks have other weights.
        """
        racks = self.site_group_racks(max(self.data_parallel_by_site), gpus_per_rack)
        return racks // math.ceil(self.tensor_parallel / gpus_per_rack)

    def site_group_racks(self, replicas: int, gpus_per_rack: int) -> int:
        """Return the racks of one stage's replicas at a site."""
        return rack_blocks.group_racks(
            replicas,
            unit=self.unit_racks(gpus_per_rack),
            racks=self.racks_per_replica(gpus_per_rack),
            replicas_per_rack=self.replicas_per_rack,
        )

    @property
    def rack_stages(self) -> int:
        """Groups of racks that carry different stages."""
        return math.ceil(self.pipeline_parallel / self.stages_per_rack)

    @property
    def gpus(self) -> int:
        """GPUs that work."""
        return self.data_parallel * self.pipeline_parallel * self.shape.gpus

    def racks_per_replica(self, gpus_per_rack: int) -> int:
        """Return the racks over which one replica's stage spreads."""
        return rack_blocks.racks_per_replica(gpus_per_rack, self.tensor_parallel, self.context_parallel)


def unsupported(software: Software, strategy: ParallelStrategy) -> Iterator[str]:
    """Yield the choices of a strategy that the framework does not support, as complaints."""
    x, stages = strategy, strategy.pipeline_parallel
    asked: dict[Parallelism, tuple[str, int]] = {
        "tensor": ("tensor_parallel", x.tensor_parallel),
        "tensor-2d": ("tensor_parallel_inner", x.tensor_inner),
        "sequence": ("sequence_parallel", 1 + x.sequence_parallel),
        "context": ("context_parallel", x.context_parallel),
        "expert": ("expert_parallel", x.expert_parallel),
        "pipeline": ("pipeline_parallel", stages),
        "interleaved": ("virtual_stages", x.virtual_stages),
    }
    for way, (key, degree) in asked.items():
        if degree > 1 and not software.has(way):
            yield f'{key} > 1: {software.name} has no "{way}" among its parallelism'
    has = software.zero_stages_under(stages)
    if strategy.zero_stage not in has:
        known, where = ", ".join(map(str, has)) or "none", " under a pipeline" if stages > 1 else ""
        yield f"zero_stage {strategy.zero_stage}: {software.name} has ZeRO stages {known}{where}"
    if strategy.schedule not in software.schedules:
        yield f"schedule {strategy.schedule}: {software.name} has {', '.join(software.schedules)}"


def read_strategy(layout: Mapping[str, Any]) -> ParallelStrategy:
    """Read a strategy from the keys of a `layout` section; a key left out takes the field's default."""
    values: dict[str, Any] = {}
    for field in fields(ParallelStrategy):
        key = LAYOUT_KEYS.get(field.name, field.name)
        if key in layout:
            values[field.name] = tuple(layout[key]) if isinstance(layout[key], list) else layout[key]
    by_site = sorted(layout["data_parallel_by_site"].items())
    return ParallelStrategy(**(values | {"data_parallel_by_site": tuple(replicas for _, replicas in by_site)}))


def strategy_of(layout: LayoutPlan) -> ParallelStrategy:
    """Read the strategy of a plan's layout."""
    return read_strategy(dict(layout))


def layout_values(strategy: ParallelStrategy) -> dict[str, Any]:
    """Return a strategy by the keys of the `layout` section, replicas in total instead of by site."""
    values = {LAYOUT_KEYS.get(f.name, f.name): getattr(strategy, f.name) for f in fields(strategy)}
    del values["data_parallel_by_site"]
    recomputed = strategy.recomputed if strategy.recompute == "full" else ()
    return values | {"data_parallel": strategy.data_parallel, "recomputed_layers_per_stage": recomputed}


def write_layout(
    strategy: ParallelStrategy,
    *,
    data_parallel_by_site: Mapping[str, int],
    racks: int,
    gpus_per_rack: int,
    assumptions: Assumptions,
    metrics: LayoutMetrics,
    certificate: Certificate,
) -> LayoutPlan:
    """Write a strategy as the `layout` section of a plan whose sites have `racks` racks in total."""
    spread = strategy.racks_per_replica(gpus_per_rack)
    by_site = dict(data_parallel_by_site)
    return LayoutPlan(
        **layout_values(strategy),
        data_parallel_by_site=by_site,
        racks_per_replica=spread,
        racks_per_stage_by_site={
            site: strategy.site_group_racks(replicas, gpus_per_rack) for site, replicas in by_site.items()
        },
        gpus_used=strategy.gpus,
        gpus_idle=racks * gpus_per_rack - strategy.gpus,
        assumptions=assumptions,
        metrics=metrics,
        certificate=certificate,
    )
