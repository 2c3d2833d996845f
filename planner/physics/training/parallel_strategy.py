"""The parallel strategy, one layout in full: its degrees, its racks, and the `layout` section that states it.

`strategy_of` and `write_layout` are the only reader and writer of that section. Replicas fill whole blocks of racks;
what is not given is the plainest choice: even layers, and stages packed as ranks are ordered.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from planner.instance.software import Parallelism, Software
from planner.physics.training.operations import LayerShape, Machine, Recompute
from planner.physics.training.schedule import Schedule, chunk_sizes, may_overlap_experts
from planner.plan.certificate import Certificate
from planner.plan.plan_sections import Assumptions, LayoutMetrics, LayoutPlan


def context_racks(gpus: int, tensor_parallel: int, context_parallel: int) -> int:
    """Count the racks over which a parallel strategy spreads a stage's CP ranks: a rack holds whole TP groups."""
    if tensor_parallel > gpus:  # every CP rank has racks of its own
        return context_parallel
    return math.ceil(context_parallel / (gpus // tensor_parallel))


def unit_racks(*, replica_gpus: int, racks: int, replicas_per_rack: int, expert_parallel: int) -> int:
    """Count the racks of a parallel strategy's unit: whole replicas (`replica_gpus` on `racks`) and expert groups."""
    return math.lcm(racks, max(1, math.ceil(expert_parallel / max(1, replica_gpus // racks * replicas_per_rack))))


def whole_groups(gpus: int, expert_parallel: int, replicas: Iterable[int]) -> int:
    """Return the first number of replicas, each with some GPUs of a rack, that makes expert groups whole; 0: none."""
    return next((n for n in replicas if (n * gpus) % expert_parallel == 0 or expert_parallel % (n * gpus) == 0), 0)


def expert_gpus_of_rack(m: Machine, s: LayerShape) -> int:
    """Count the GPUs of a rack in one expert group: of the replicas of a stage there, as many as make groups whole."""
    own = s.gpus // context_racks(m.rack.gpus, s.tensor_parallel, s.context_parallel)
    replicas = m.replicas_per_rack or whole_groups(own, s.expert_parallel, range(m.rack.gpus // own, 0, -1))
    return min(s.expert_parallel, m.rack.gpus, own * replicas or m.rack.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class RackBlock:
    """The block of racks that a parallel strategy fills with whole replicas: `rack_stages` x `stage_racks` racks."""

    stages_per_rack: int
    replicas_per_rack: int
    context_racks: int  # of those of a rack stage, which hold one replica
    stage_racks: int  # with experts as many as make both a CP group and an expert group whole
    rack_stages: int
    rails: int  # GPUs of a rack that are cabled
    work_gpus: int  # of a rack

    @property
    def racks(self) -> int:
        """Count the racks of a block of the parallel strategy."""
        return self.rack_stages * self.stage_racks

    @property
    def replicas(self) -> int:
        """Count the replicas of a block of the parallel strategy."""
        return self.replicas_per_rack * (self.stage_racks // self.context_racks)

    def blocks(self, replicas: int) -> int:
        """Count the blocks of racks that hold `replicas` replicas of the parallel strategy."""
        return -(-replicas // self.replicas)


def block_of(
    gpus: int,
    degrees: tuple[int, int, int],
    *,
    pipeline_parallel: int,
    stages_per_rack: int,
    replicas_per_rack: int | None = None,
) -> RackBlock | None:
    """Return the block of racks of a parallel strategy of (TP, CP, EP) `degrees`; None outside the search space."""
    # CP fills whole racks or stays in one: any degree up to floor(g/t), and multiples of it. A rack takes as many
    # replicas as it holds unless their number is given, with experts as many as make whole expert groups in a rack, or
    # a group of whole racks; in a rack that stages share only the former.
    (t, k, e), q = degrees, stages_per_rack
    if t > gpus:
        return None
    unit = gpus // t
    c = math.ceil(k / unit)
    if c > 1 and (k % unit or q > 1):
        return None
    own = t * k // c  # GPUs of a rack that one replica's stage takes
    r = gpus // (q * own) if c == 1 else 1
    asked = range(r, 0, -1) if replicas_per_rack is None else [n for n in (replicas_per_rack,) if n <= r]
    r = whole_groups(own, e, asked)
    if r == 0 or (q > 1 and replicas_per_rack is None and (r * own) % e > 0):
        return None
    together = unit_racks(replica_gpus=t * k, racks=c, replicas_per_rack=r, expert_parallel=e)
    return RackBlock(
        stages_per_rack=q,
        replicas_per_rack=r,
        context_racks=c,
        stage_racks=together,
        rack_stages=-(-pipeline_parallel // q),
        rails=q * r * own,
        work_gpus=q * r * own,
    )


def padded(m: Machine, s: LayerShape) -> Machine:
    """Return the machine with sequences padded for a parallel strategy's layers: work, bytes and time are of these.

    Under sequence parallelism every CP rank holds two chunks (the causal balance of ring attention, Brandon 2023,
    arXiv 2311.09431; Megatron-Core pads to a multiple of 2·CP), and TP divides the tokens of a rank: a multiple of
    CP·lcm(2, TP). Without it, and without CP, whole parts are enough: a multiple of CP.
    """
    unit = s.context_parallel * (math.lcm(2, s.tensor_parallel) if s.sequence_parallel else 1)
    sequence = -(-m.sequence // unit) * unit
    return m if sequence == m.sequence else replace(m, sequence=sequence)


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Spread layers evenly over a parallel strategy's stages; two short, the ends, with embeddings, get one less."""
    if stages > 1 and layers % stages and (layers + 2) % stages == 0:
        even = (layers + 2) // stages
        return (even - 1, *(even,) * (stages - 2), even - 1)
    return chunk_sizes(layers, stages)


def min_stages_per_rack(gpus: int, unit: int, stages: int, replicas: int, racks: int | None) -> int:
    """Return how many stages of a parallel strategy share a rack: one, unless the racks at hand ask for more."""
    if racks is None:
        return 1
    spread = -(-unit // gpus)
    for q in range(1, stages + 1):
        r = max(1, gpus // (q * unit))
        if q * unit <= max(gpus, unit) and -(-stages // q) * -(-replicas // r) * spread <= racks:
            return q
    return 1


def packing(domain: int, t: int, c: int, p: int, d: int, gpus: int) -> tuple[int, int]:
    """Return a parallel strategy's stages and replicas in a rack: replicas side by side, as Megatron orders ranks."""
    q = 1 if d * t * c >= domain else min_stages_per_rack(domain, t * c, p, d, -(-gpus // domain))
    return q, max(1, domain // (q * t * c))


LAYOUT_KEYS = {  # of the `layout` section, where formulas use a shorter name
    "micro_batch": "microbatch_sequences",
    "micro_batches": "microbatches_per_step",
    "tensor_inner": "tensor_parallel_inner",
}
SHAPE_FIELDS = {LAYOUT_KEYS.get(f.name, f.name): f.name for f in fields(LayerShape)}  # by the keys of that section


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStrategy:
    """A parallel strategy in full: how a step is divided over GPUs; replicas are in the order of the sites' names."""

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
        """Return the parallel strategy of a layer's shape; `rest` holds the other fields, and overrides the shape's."""
        own = {f.name: getattr(shape, f.name) for f in fields(shape) if f.name != "experts_overlap"}
        return cls(**(own | rest))

    @property
    def shape(self) -> LayerShape:
        """Return the layer shape of the parallel strategy; under full recompute that of layers not recomputed."""
        own = {f.name: getattr(self, f.name) for f in fields(LayerShape) if f.name != "experts_overlap"}
        overlap = bool(may_overlap_experts(self.pipeline_parallel, self.virtual_stages)) and not any(self.recomputed)
        return LayerShape(**own, experts_overlap=overlap)

    @property
    def recomputed(self) -> tuple[int, ...]:
        """Return the fully recomputed layers of each stage; under full recompute without numbers, all layers."""
        if self.recompute != "full":
            return (0,) * len(self.layers_per_stage)
        return self.recomputed_layers_per_stage or self.layers_per_stage

    @property
    def data_parallel(self) -> int:
        """Count the replicas of the parallel strategy over all sites."""
        return sum(self.data_parallel_by_site)

    @property
    def min_replicas(self) -> int:
        """Count the parallel strategy's replicas at its smallest site: ZeRO shards state over them, never over WAN."""
        return min(d for d in self.data_parallel_by_site if d)

    def unit_racks(self, gpus_per_rack: int) -> int:
        """Count the racks of one unit of a rack stage under this strategy, of whole replicas and expert groups."""
        racks, replicas = self.racks_per_replica(gpus_per_rack), self.replicas_per_rack
        gpus, experts = self.shape.gpus, self.expert_parallel
        return unit_racks(replica_gpus=gpus, racks=racks, replicas_per_rack=replicas, expert_parallel=experts)

    def group_racks(self, gpus_per_rack: int) -> int:
        """Count the racks of the parallel strategy's largest all-reduce group: one stage's replicas at a site."""
        racks = self.site_group_racks(max(self.data_parallel_by_site), gpus_per_rack)
        return racks // math.ceil(self.tensor_parallel / gpus_per_rack)  # TP ranks of other racks have other weights

    def site_group_racks(self, replicas: int, gpus_per_rack: int) -> int:
        """Count the racks of one stage's replicas at a site under this strategy, in whole units."""
        unit = self.unit_racks(gpus_per_rack)
        return math.ceil(replicas / (self.replicas_per_rack * (unit // self.racks_per_replica(gpus_per_rack)))) * unit

    @property
    def gpus(self) -> int:
        """Count the GPUs at work under the parallel strategy."""
        return self.data_parallel * self.pipeline_parallel * self.shape.gpus

    def racks_per_replica(self, gpus_per_rack: int) -> int:
        """Count the racks over which a parallel strategy spreads one replica's stage: its TP groups and CP ranks."""
        racks = context_racks(gpus_per_rack, self.tensor_parallel, self.context_parallel)
        return racks * math.ceil(self.tensor_parallel / gpus_per_rack)


NEEDS: dict[str, Parallelism] = {  # what a framework must have for a choice of the layout other than none of it
    "tensor_parallel": "tensor",
    "tensor_parallel_inner": "tensor-2d",
    "sequence_parallel": "sequence",
    "context_parallel": "context",
    "expert_parallel": "expert",
    "pipeline_parallel": "pipeline",
    "virtual_stages": "interleaved",
}


def unsupported(software: Software, strategy: ParallelStrategy) -> Iterator[str]:
    """Yield a parallel strategy's faults in training: degrees, ZeRO stage and schedule that its framework lacks."""
    values, stages = layout_values(strategy), strategy.pipeline_parallel
    for key, way in NEEDS.items():
        if values[key] > (key != "sequence_parallel") and way not in software.parallelism:
            yield f'{key} > 1: {software.name} has no "{way}" among its parallelism'
    has = software.zero_stages_under(stages)
    if strategy.zero_stage not in has:
        known, where = ", ".join(map(str, has)) or "none", " under a pipeline" if stages > 1 else ""
        yield f"zero_stage {strategy.zero_stage}: {software.name} has ZeRO stages {known}{where}"
    if strategy.schedule not in software.schedules:
        yield f"schedule {strategy.schedule}: {software.name} has {', '.join(software.schedules)}"


def strategy_of(layout: LayoutPlan | Mapping[str, Any]) -> ParallelStrategy:
    """Read a parallel strategy from a layout, or some keys of one; a key left out takes the field's default."""
    layout, values = dict(layout), dict[str, Any]()
    for field in fields(ParallelStrategy):
        key = LAYOUT_KEYS.get(field.name, field.name)
        if key in layout:
            values[field.name] = tuple(layout[key]) if isinstance(layout[key], list) else layout[key]
    by_site = sorted(layout["data_parallel_by_site"].items())
    return ParallelStrategy(**(values | {"data_parallel_by_site": tuple(replicas for _, replicas in by_site)}))


def shape_values(shape: LayerShape) -> dict[str, Any]:
    """Return a parallel strategy's layer shape by the keys of a layout, and whether the experts' exchange overlaps."""
    return {key: getattr(shape, name) for key, name in SHAPE_FIELDS.items()}


def layout_values(strategy: ParallelStrategy) -> dict[str, Any]:
    """Return the fields of a parallel strategy by the keys of a layout, replicas in total instead of by site."""
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
    """Convert a parallel strategy to the `layout` of a plan whose sites have `racks` racks in total."""
    by_site = dict(data_parallel_by_site)
    racks_by_site = {site: strategy.site_group_racks(count, gpus_per_rack) for site, count in by_site.items()}
    return LayoutPlan(
        **layout_values(strategy),
        data_parallel_by_site=by_site,
        racks_per_replica=strategy.racks_per_replica(gpus_per_rack),
        racks_per_stage_by_site=racks_by_site,
        gpus_used=strategy.gpus,
        gpus_idle=racks * gpus_per_rack - strategy.gpus,
        assumptions=assumptions,
        metrics=metrics,
        certificate=certificate,
    )
