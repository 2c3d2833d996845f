"""Rules of the layout: buildable, within batch and memory, and as fast as it says."""

import math
from collections.abc import Iterator
from typing import Any

from planner.checks.compare import TOLERANCE, at_least, at_most, equal, pinned, same, same_parts
from planner.physics import step, steptime
from planner.physics.step import Conditions, Cut
from planner.plan import LayoutPlan, Plan, Violation

CLUSTER = "cluster"


def racks_by_site(plan: Plan) -> dict[str, int]:
    """Return the racks that the layout may use, by site."""
    if plan.sites is not None:
        return {s.id: s.racks for s in plan.sites.sites}
    return {CLUSTER: plan.instance.hardware.racks or 0}


def check_layout(plan: Plan) -> Iterator[Violation]:
    """Check the layout; its times and memory are recomputed only where it can be built at all."""
    held = plan.layout
    if held is None:
        return
    broken = [*buildable(plan, held), *replicas(plan, held)]
    yield from broken
    yield from batch(plan, held)
    yield from network_assumed(plan, held)
    yield from deadline(plan, held)
    yield from pinned(plan.instance.pins, "layout", pins_of(held))
    if not any(v.rule in {"layers", "virtual_stages", "data_parallel"} for v in broken):
        yield from metrics(plan, held)


def pins_of(held: LayoutPlan) -> dict[str, Any]:
    """Return the choices that can be pinned."""
    names = (
        "tensor_parallel",
        "pipeline_parallel",
        "data_parallel",
        "data_parallel_by_site",
        "virtual_stages",
        "microbatch_sequences",
        "microbatches_per_step",
        "replicas_per_rack",
        "recompute",
        "sequence_parallel",
        "zero_stage",
    )
    return {**{n: getattr(held, n) for n in names}, "layers_per_stage": list(held.layers_per_stage)}


def buildable(plan: Plan, held: LayoutPlan) -> Iterator[Violation]:
    """Require degrees that divide, stages that hold every layer, and whole rounds where stages are interleaved."""
    m = step.machine_of(plan.instance)
    p, v, t = held.pipeline_parallel, held.virtual_stages, held.tensor_parallel
    least = {"tensor": t, "pipeline": p, "virtual": v, "micro-batch": held.microbatch_sequences, "micro-batches": held.microbatches_per_step}
    for name, value in least.items():
        yield from at_least("layers" if name == "pipeline" else "degrees", value, 1, f"{name} degree")
    if t >= 1 and math.gcd(m.model.heads, m.model.kv) % t:
        yield Violation(rule="tensor_parallel", message=f"{t} does not divide {m.model.heads} heads and {m.model.kv} KV heads")
    yield from at_most("scale_up_domain", t * held.replicas_per_rack, m.rack.gpus, "GPUs of one rack that carry a stage")
    yield from equal("context_parallel", (held.context_parallel, held.expert_parallel), (1, 1), "context and expert parallelism")
    yield from equal("layers", len(held.layers_per_stage), p, "stages listed")
    yield from equal("layers", sum(held.layers_per_stage), m.model.layers, "layers over all stages")
    if v < 1 or min(held.layers_per_stage, default=0) < v:
        yield Violation(rule="virtual_stages", message=f"{v} virtual stages, the smallest stage has {min(held.layers_per_stage, default=0)} layers")
    if v > 1 and p == 1:
        yield Violation(rule="virtual_stages", message="one stage cannot be interleaved")
    if v > 1 and p >= 1 and held.microbatches_per_step % p:
        yield Violation(rule="whole_rounds", message=f"{held.microbatches_per_step} micro-batches are not whole rounds of {p} stages")
    if t == 1 and held.sequence_parallel:
        yield Violation(rule="sequence_parallel", message="needs tensor parallelism")


def replicas(plan: Plan, held: LayoutPlan) -> Iterator[Violation]:
    """Require replicas that sum up and racks that hold them."""
    racks, r = racks_by_site(plan), max(1, held.replicas_per_rack)
    yield from equal("data_parallel", held.data_parallel, sum(held.data_parallel_by_site.values()), "replicas over all sites")
    yield from equal("data_parallel", sorted(held.data_parallel_by_site), sorted(racks), "sites")
    if not any(d > 0 for d in held.data_parallel_by_site.values()) or min(held.data_parallel_by_site.values()) < 0:
        yield Violation(rule="data_parallel", message="a layout has at least one replica, and none fewer than none")
    for site, d in sorted(held.data_parallel_by_site.items()):
        group = steptime.group_racks(d, r)
        yield from equal(f"group_racks[{site}]", held.racks_per_stage_by_site.get(site), group, "racks of a stage's replicas")
        yield from at_most(f"racks[{site}]", group * held.pipeline_parallel, racks.get(site, 0), f"racks that the layout takes at {site}")
    gpus = sum(racks.values()) * step.machine_of(plan.instance).rack.gpus
    used = held.data_parallel * held.pipeline_parallel * held.tensor_parallel
    yield from equal("gpus_used", held.gpus_used, used, "GPUs used")
    yield from equal("gpus_idle", held.gpus_idle, gpus - used, "GPUs idle")


def batch(plan: Plan, held: LayoutPlan) -> Iterator[Violation]:
    """Keep a step within the critical batch."""
    tokens = held.data_parallel * held.microbatches_per_step * held.microbatch_sequences * plan.instance.workload.sequence_length
    limit = plan.instance.limits.max_batch_tokens
    if limit is not None:
        yield from at_most("max_batch_tokens", tokens, limit, "tokens per step")


def cut_of(held: LayoutPlan) -> Cut:
    """Read the layout in full."""
    return Cut(
        tensor_parallel=held.tensor_parallel,
        pipeline_parallel=held.pipeline_parallel,
        data_parallel_by_site=tuple(held.data_parallel_by_site[s] for s in sorted(held.data_parallel_by_site)),
        virtual_stages=held.virtual_stages,
        micro_batch=held.microbatch_sequences,
        micro_batches=held.microbatches_per_step,
        recompute=held.recompute,
        sequence_parallel=held.sequence_parallel,
        zero_stage=held.zero_stage,
        layers_per_stage=held.layers_per_stage,
        replicas_per_rack=held.replicas_per_rack,
    )


def metrics(plan: Plan, held: LayoutPlan) -> Iterator[Violation]:
    """Recompute step time, memory and what the network must hide, part by part."""
    a = held.assumptions
    conditions = Conditions(
        hop_slowdown=a.hop_slowdown,
        allreduce_slowdown=a.allreduce_slowdown,
        wan_gbps=a.wan_gbps,
        wan_rtt_ms=a.wan_rtt_ms or 0.0,
        wan_round_trips=plan.instance.wan.round_trips if plan.instance.wan else 1.0,
    )
    right = step.metrics(plan.instance, conditions, cut_of(held))
    for name, value in right.items():
        stated = getattr(held.metrics, name)
        if isinstance(value, dict):
            yield from same_parts(name, stated, value, "recomputed")
        else:
            yield from same(name, stated, value, name)
    yield from same("breakdown_seconds", sum(held.metrics.breakdown_seconds.values()), held.metrics.step_seconds, "sum of the parts against the step")
    yield from at_most("memory", held_bytes(right), step.memory_limit_bytes(plan.instance), "worst GPU", " bytes")


def held_bytes(right: dict[str, float | dict[str, float]]) -> float:
    """Return the recomputed bytes of the worst GPU."""
    value = right["memory_bytes_per_gpu"]
    return value if isinstance(value, float) else math.inf


def network_assumed(plan: Plan, held: LayoutPlan) -> Iterator[Violation]:
    """Let the step count on no better network than the plan builds."""
    a, network = held.assumptions, plan.instance.network
    floor = network.transport.slowdown if network else 1.0
    yield from at_least("hop_slowdown", a.hop_slowdown, floor, "assumed against the transport's own")
    yield from at_least("allreduce_slowdown", a.allreduce_slowdown, floor, "assumed against the transport's own")
    for site, f in sorted(plan.fabric.sites.items()) if plan.fabric else ():
        yield from at_least(f"hop_slowdown[{site}]", a.hop_slowdown, f.hop_slowdown, "assumed against the fabric's")
        yield from at_least(f"allreduce_slowdown[{site}]", a.allreduce_slowdown, f.allreduce_slowdown, "assumed against the fabric's")
    wide, links = plan.instance.wan, plan.sites.links if plan.sites else ()
    used = sum(d > 0 for d in held.data_parallel_by_site.values())
    if wide is None or used < 2 or not links:
        return
    if a.wan_gbps is None or a.wan_rtt_ms is None:
        yield Violation(rule="wan_assumed", message="replicas stand at several sites, and the step counts no exchange between them")
        return
    for k in links:
        yield from at_most("wan_assumed", a.wan_gbps * wide.headroom_factor, k.capacity_gbps * (1 + TOLERANCE), f"rate between {k.a} and {k.b}", " Gbps")
        yield from at_least("wan_assumed", a.wan_rtt_ms, k.rtt_ms, f"round trip between {k.a} and {k.b}", " ms")


def deadline(plan: Plan, held: LayoutPlan) -> Iterator[Violation]:
    """Train in time."""
    limit = plan.instance.limits.deadline_days
    if limit is not None:
        yield from at_most("deadline_days", held.metrics.days_to_train, limit, "days to train")
