"""Rules of the layout: how the step is cut, and everything that physics predicts of it."""

import math
from collections.abc import Iterator
from itertools import combinations

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import wan
from planner.physics.training import layer_time, step
from planner.plan.certificate import Violation
from planner.plan.layout import LayoutMetrics, LayoutPlan

PINNED = (
    "tensor_parallel", "pipeline_parallel", "data_parallel", "virtual_stages", "microbatch_sequences", "microbatches_per_step", "replicas_per_rack",
    "recompute", "sequence_parallel", "zero_stage", "context_parallel", "expert_parallel", "tensor_parallel_inner", "schedule", "stages_per_rack",
)  # fmt: skip
FIGURES = [name for name in LayoutMetrics.model_fields if name not in ("breakdown_seconds", "memory_breakdown_bytes")]


def _held(c: PlanPhysics) -> Iterator[LayoutPlan]:
    """Yield the layout where its figures mean something."""
    if c.plan.layout is not None and not c.faults:
        yield c.plan.layout


def well_formed(c: PlanPhysics) -> Iterator[Violation]:
    """State counts that can be computed with."""
    yield from (broken("well_formed", fault) for fault in c.faults)


def tensor_parallel(c: PlanPhysics) -> Iterator[Violation]:
    """Divide query and KV heads, within the scale-up domain of one rack."""
    for y in _held(c):
        model = step.machine_of(c.instance).model
        shared = math.gcd(model.heads, model.kv)
        if shared % y.tensor_parallel:
            yield broken(
                "tensor_parallel",
                f"{y.tensor_parallel} does not divide {shared}, shared by {model.heads} heads and {model.kv} KV heads",
            )
        if y.tensor_parallel % y.tensor_parallel_inner:
            yield broken(
                "tensor_parallel", f"an inner degree of {y.tensor_parallel_inner} does not divide {y.tensor_parallel}"
            )


def rack_shape(c: PlanPhysics) -> Iterator[Violation]:
    """Put no more stages and replicas on a rack than it has GPUs for, and a larger replica on as many racks as it needs."""
    for y in _held(c):
        unit = y.tensor_parallel * y.context_parallel
        need = math.ceil(unit / c.gpus_per_rack)
        yield from must_equal("rack_shape", f"racks_per_replica for {unit} GPUs", y.racks_per_replica, need)
        gpus = y.stages_per_rack * y.replicas_per_rack * unit
        what = f"GPUs of {y.stages_per_rack} stages of {y.replicas_per_rack} replicas"
        yield from at_most("rack_shape", gpus, c.gpus_per_rack * y.racks_per_replica, what, "GPUs in their racks")


def context_parallel(c: PlanPhysics) -> Iterator[Violation]:
    """Cut sequences into whole parts."""
    for y in _held(c):
        if c.instance.workload.sequence_length % y.context_parallel:
            yield broken(
                "context_parallel",
                f"{y.context_parallel} does not divide {c.instance.workload.sequence_length} tokens of a sequence",
            )


def expert_parallel(c: PlanPhysics) -> Iterator[Violation]:
    """Share the experts out evenly over GPUs of one stage and site."""
    for y in _held(c):
        experts = step.machine_of(c.instance).model.experts
        count = experts.count if experts is not None else 1
        if count % y.expert_parallel:
            yield broken("expert_parallel", f"{y.expert_parallel} does not divide {count} experts")
        least = min((d for d in y.data_parallel_by_site.values() if d), default=0)
        gpus = least * y.tensor_parallel * y.context_parallel
        yield from at_most(
            "expert_parallel", y.expert_parallel, gpus, "GPUs share the experts", "GPUs of a stage at the smallest site"
        )


def schedule(c: PlanPhysics) -> Iterator[Violation]:
    """Follow a schedule that the framework has, or that is pinned, and interleave only 1F1B."""
    for y in _held(c):
        software = step.machine_of(c.instance).software
        if y.schedule not in software.schedules and "layout.schedule" not in c.instance.pins:
            yield broken(
                "schedule", f"{y.schedule} is none of the {len(software.schedules)} schedules of {software.name}"
            )
        if y.schedule != "1f1b":
            yield from at_most("schedule", y.virtual_stages, 1, "virtual stages", f"that {y.schedule} has")


def recomputed(c: PlanPhysics) -> Iterator[Violation]:
    """Recompute whole layers only under full recompute, and no more than a stage has."""
    for y in _held(c):
        again = sum(y.recomputed_layers_per_stage)
        if y.recompute != "full" and again:
            yield broken("recomputed", f"{again} layers are recomputed > 0, and recompute is {y.recompute}")


def layers(c: PlanPhysics) -> Iterator[Violation]:
    """Put every layer on a stage, and on each stage as many at least as it has virtual stages."""
    for y in _held(c):
        total, least = sum(y.layers_per_stage), min(y.layers_per_stage)
        wanted = step.machine_of(c.instance).model.layers
        yield from must_equal("layers", "sum of layers_per_stage against the model's layers", total, wanted)
        yield from at_most("layers", y.virtual_stages, least, "virtual stages", "layers on the smallest stage")


def interleaving(c: PlanPhysics) -> Iterator[Violation]:
    """Interleave only where there are stages, and with a micro-batch for each at least."""
    for y in _held(c):
        if y.virtual_stages > 1 and y.pipeline_parallel == 1:
            yield broken("interleaving", f"{y.virtual_stages} virtual stages > 1 on one pipeline stage")
        if y.virtual_stages > 1:
            yield from at_most("interleaving", y.pipeline_parallel, y.microbatches_per_step, "stages", "micro-batches")


def replicas(c: PlanPhysics) -> Iterator[Violation]:
    """Add the sites' replicas up to the whole, on sites of the plan."""
    for y in _held(c):
        yield from must_equal(
            "replicas", "data_parallel against the sum by site", y.data_parallel, sum(y.data_parallel_by_site.values())
        )
        for s in sorted(set(y.data_parallel_by_site) - set(c.racks_by_site)):
            yield broken(
                f"replicas[{s}]",
                f"{y.data_parallel_by_site[s]} replicas at {s!r}, none of the plan's {len(c.racks_by_site)} sites",
            )


def racks(c: PlanPhysics) -> Iterator[Violation]:
    """Keep every stage's replica groups within the racks of their site."""
    for y in _held(c):
        for s in sorted(set(y.racks_per_stage_by_site) ^ set(y.data_parallel_by_site)):
            yield broken(f"racks[{s}]", "stands in only 1 of data_parallel_by_site and racks_per_stage_by_site")
        for s, d in sorted(y.data_parallel_by_site.items()):
            need = layer_time.group_racks(d, y.replicas_per_rack) * y.racks_per_replica
            what = f"racks of a stage for {d:,} replicas"
            yield from must_equal(f"racks[{s}]", what, y.racks_per_stage_by_site.get(s), need)
            used = need * y.rack_stages
            yield from at_most(
                f"racks[{s}]",
                used,
                c.racks_by_site.get(s, 0),
                f"racks for {y.pipeline_parallel} stages",
                "racks at the site",
            )


def gpus(c: PlanPhysics) -> Iterator[Violation]:
    """Count the GPUs that work and those that idle."""
    for y in _held(c):
        used, total = (
            y.data_parallel * y.tensor_parallel * y.context_parallel * y.pipeline_parallel,
            sum(c.racks_by_site.values()) * c.gpus_per_rack,
        )
        yield from must_equal("gpus", "gpus_used", y.gpus_used, used)
        yield from must_equal("gpus", "gpus_idle", y.gpus_idle, total - used)
        yield from at_most("gpus", used, total, "GPUs used", "GPUs bought")


def batch(c: PlanPhysics) -> Iterator[Violation]:
    """Keep the tokens of a step within the critical batch."""
    for y in _held(c):
        limit = c.instance.limits.max_batch_tokens
        tokens = (
            y.data_parallel * y.microbatches_per_step * y.microbatch_sequences * c.instance.workload.sequence_length
        )
        if limit is not None:
            yield from at_most("batch", tokens, limit, "tokens a step", "tokens of the critical batch")


def memory(c: PlanPhysics) -> Iterator[Violation]:
    """Fit the GPU that holds most into its memory."""
    if c.metrics is not None:
        m = c.metrics
        yield from at_most(
            "memory", m.memory_bytes_per_gpu, m.memory_limit_bytes, "bytes on the worst GPU", "bytes that may be filled"
        )


def metrics(c: PlanPhysics) -> Iterator[Violation]:
    """State every figure as physics predicts it from the cut and the assumptions."""
    for y in _held(c):
        for name in FIGURES if c.metrics is not None else ():
            yield from must_equal(f"metrics[{name}]", name, getattr(y.metrics, name), getattr(c.metrics, name))


def breakdowns(c: PlanPhysics) -> Iterator[Violation]:
    """State the parts of time and memory as predicted; they sum to the whole."""
    for y in _held(c):
        wholes = {"breakdown_seconds": y.metrics.step_seconds, "memory_breakdown_bytes": y.metrics.memory_bytes_per_gpu}
        for name, whole in wholes.items() if c.metrics is not None else ():
            stated, found = getattr(y.metrics, name), getattr(c.metrics, name)
            for part in sorted(set(stated) | set(found)):
                yield from must_equal(f"{name}[{part}]", part, stated.get(part), found.get(part))
            yield from must_equal(name, "whole against the sum of its parts", whole, math.fsum(stated.values()))


def deadline(c: PlanPhysics) -> Iterator[Violation]:
    """Train in time."""
    limit = c.instance.limits.deadline_days
    if limit is not None and c.metrics is not None:
        yield from at_most("deadline", c.metrics.days_to_train, limit, "days to train", "days until the deadline")


def assumed_slowdowns(c: PlanPhysics) -> Iterator[Violation]:
    """Count on no faster network than the fabric of any site is."""
    for y in _held(c):
        a, least = y.assumptions, c.transport_slowdown
        yield from at_most(
            "assumed_slowdowns",
            least,
            a.pipeline_send_slowdown,
            "the transport's own slowdown",
            "assumed of the pipeline exchange",
        )
        yield from at_most(
            "assumed_slowdowns",
            least,
            a.allreduce_slowdown,
            "the transport's own slowdown",
            "assumed of rings between racks",
        )
        for s, f in sorted(c.plan.fabric.sites.items()) if c.plan.fabric else ():
            rule = f"assumed_slowdowns[{s}]"
            yield from at_most(
                rule, f.pipeline_send_slowdown, a.pipeline_send_slowdown, "slowdown of the pipeline exchange", "assumed"
            )
            yield from at_most(
                rule, f.allreduce_slowdown, a.allreduce_slowdown, "slowdown of rings between racks", "assumed"
            )


def assumed_wan(c: PlanPhysics) -> Iterator[Violation]:
    """Count on no wider and no nearer links between the sites that hold replicas than there are, their headroom kept free."""
    if c.instance.wan is None or len(c.replicas) < 2:
        return
    for y in _held(c):
        a, w = y.assumptions, c.instance.wan
        if a.wan_gbps is None or a.wan_rtt_ms is None:
            yield broken(
                "assumed_wan",
                f"{len(c.replicas)} sites exchange gradients > 1, and no rate and round trip are assumed between them",
            )
            continue
        where = [x for x in c.standing if x.site.id in c.replicas]
        capacity = {
            frozenset((k.a, k.b)): k.wavelengths * w.wavelength_gbps
            for k in (c.plan.sites.links if c.plan.sites else ())
        }
        for x, z in combinations(where, 2):
            rule, held = f"assumed_wan[{x.site.id}, {z.site.id}]", capacity.get(frozenset((x.site.id, z.site.id)), 0.0)
            km = c.route_km(x.site.id, z.site.id)
            yield from at_most(
                rule,
                a.wan_gbps * w.headroom_factor,
                held,
                f"Gbps assumed, times {w.headroom_factor:g}",
                "Gbps of the link",
            )
            yield from at_most(rule, wan.rtt_ms(w, km), a.wan_rtt_ms, "ms round trip", "ms assumed")


def pins(c: PlanPhysics) -> Iterator[Violation]:
    """Keep what was fixed by hand."""
    for y in _held(c):
        fixed = {k.removeprefix("layout."): v for k, v in c.instance.pins.items() if k.startswith("layout.")}
        for name in PINNED:
            if name in fixed:
                yield from must_be(f"pins[layout.{name}]", name, getattr(y, name), fixed[name])
        if "recomputed_layers_per_stage" in fixed:
            held = list(y.recomputed_layers_per_stage) or [0] * len(y.layers_per_stage)
            yield from must_be(
                "pins[layout.recomputed_layers_per_stage]",
                "recomputed_layers_per_stage",
                held,
                fixed["recomputed_layers_per_stage"],
            )
        if "layers_per_stage" in fixed:
            yield from must_be(
                "pins[layout.layers_per_stage]", "layers_per_stage", list(y.layers_per_stage), fixed["layers_per_stage"]
            )
        if "data_parallel_by_site" in fixed:
            wanted = {s: d for s, d in fixed["data_parallel_by_site"].items() if d}
            yield from must_be("pins[layout.data_parallel_by_site]", "replicas by site", c.replicas, wanted)


RULES: tuple[Rule, ...] = (
    well_formed, tensor_parallel, rack_shape, context_parallel, expert_parallel, layers, interleaving, schedule, recomputed, replicas, racks, gpus,
    batch, memory, metrics, breakdowns, deadline, assumed_slowdowns, assumed_wan, pins,
)  # fmt: skip
