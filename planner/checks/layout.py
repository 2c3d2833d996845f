"""Rules of the layout and of pools of different GPUs: the parallel strategy and all that physics predicts of it."""

import math
from collections.abc import Iterator
from itertools import combinations

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.instance.framework_rules import FrameworkRules
from planner.instance.pins import PINS
from planner.instance.workload import Model
from planner.physics import step_errors
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import wan
from planner.physics.training import heterogeneous, layer_time, step
from planner.physics.training.blocks.rack_blocks import racks_per_replica
from planner.physics.training.parallel_strategy import strategy_of, unsupported
from planner.physics.training.schedule import recomputed_alike
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LayoutMetrics, LayoutPlan, PoolsPlan

BREAKDOWNS = {"breakdown_seconds": "step_seconds", "memory_breakdown_bytes": "memory_bytes_per_gpu"}
INTERVAL = "days_to_train_interval"
LAYERS_PINNED = {"layout.layers_per_stage", "layout.recomputed_layers_per_stage"}
FIGURES = [name for name in LayoutMetrics.model_fields if name not in BREAKDOWNS and name != INTERVAL]


def _layouts(c: PlanPhysics) -> Iterator[LayoutPlan]:
    """Yield the layout where its figures mean something."""
    if c.plan.layout is not None and not c.faults:
        yield c.plan.layout


def well_formed(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every count of the layout can be computed with."""
    yield from (broken("well_formed", fault) for fault in c.faults)


def tensor_parallel(c: PlanPhysics) -> Iterator[Violation]:
    """Check that tensor parallelism divides query and KV heads, and that its inner degree divides it."""
    for layout in _layouts(c):
        model = step.machine_of(c.instance).model
        t, inner, shared = layout.tensor_parallel, layout.tensor_parallel_inner, math.gcd(model.heads, model.kv)
        if shared % t:
            heads = f"{model.heads} heads and {model.kv} KV heads"
            yield broken("tensor_parallel", f"{t} does not divide {shared}, shared by {heads}")
        if t == 1 and layout.sequence_parallel:
            yield broken("tensor_parallel", "sequence parallelism over 1 rank, 2 at least")
        if t % inner:
            yield broken("tensor_parallel", f"an inner degree of {inner} does not divide {t}")


def rack_shape(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a rack has the GPUs of its stages and replicas, and that a larger replica has the racks it needs."""
    for layout in _layouts(c):
        unit = strategy_of(layout).shape.gpus
        need = racks_per_replica(c.gpus_per_rack, layout.tensor_parallel, layout.context_parallel)
        yield from must_equal("rack_shape", f"racks_per_replica for {unit} GPUs", layout.racks_per_replica, need)
        gpus = layout.stages_per_rack * layout.replicas_per_rack * unit
        what = f"GPUs of {layout.stages_per_rack} stages of {layout.replicas_per_rack} replicas"
        yield from at_most("rack_shape", gpus, c.gpus_per_rack * layout.racks_per_replica, what, "GPUs in their racks")


def expert_parallel(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the experts are shared out evenly, over GPUs of one stage and site."""
    for layout in _layouts(c):
        experts = step.machine_of(c.instance).model.experts
        count = experts.count if experts is not None else 1
        if count % layout.expert_parallel:
            yield broken("expert_parallel", f"{layout.expert_parallel} does not divide {count} experts")
        strategy = strategy_of(layout)
        gpus = strategy.min_replicas * strategy.shape.gpus
        where = "GPUs of a stage at the smallest site"
        yield from at_most("expert_parallel", layout.expert_parallel, gpus, "GPUs share the experts", where)


def framework(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the framework has everything that the layout asks of it, pinned or not."""
    for layout in _layouts(c):
        software = step.machine_of(c.instance).software
        yield from (broken("framework", what) for what in unsupported(software, strategy_of(layout)))
        pins, sequence = c.instance.pins, c.instance.workload.sequence_length
        for what in broken_rules(c.instance.workload.rules, layout, step.machine_of(c.instance).model, sequence):
            if what.partition(":")[0] not in LAYERS_PINNED & pins.keys():  # which go before the rules
                yield broken("framework", f"{what}, as {c.instance.workload.rules.framework} has it")


def schedule(c: PlanPhysics) -> Iterator[Violation]:
    """Check that only 1F1B is interleaved."""
    for layout in _layouts(c):
        if layout.schedule != "1f1b":
            yield from at_most("schedule", layout.virtual_stages, 1, "virtual stages", f"that {layout.schedule} has")


def recomputed(c: PlanPhysics) -> Iterator[Violation]:
    """Check that layers are fully recomputed only under full recompute."""
    for layout in _layouts(c):
        count = sum(layout.recomputed_layers_per_stage)
        if layout.recompute != "full" and count:
            yield broken("recomputed", f"{count} layers are recomputed > 0, and recompute is {layout.recompute}")


def layers(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the stages have all layers of the model, and each at least one for every virtual stage."""
    for layout in _layouts(c):
        total, smallest = sum(layout.layers_per_stage), min(layout.layers_per_stage)
        wanted = step.machine_of(c.instance).model.layers
        yield from must_equal("layers", "sum of layers_per_stage against the model's layers", total, wanted)
        yield from at_most("layers", layout.virtual_stages, smallest, "virtual stages", "layers on the smallest stage")


def interleaving(c: PlanPhysics) -> Iterator[Violation]:
    """Check that only a pipeline of several stages is interleaved, and with a micro-batch for each at least."""
    for layout in _layouts(c):
        if layout.virtual_stages > 1 and layout.pipeline_parallel == 1:
            yield broken("interleaving", f"{layout.virtual_stages} virtual stages > 1 on one pipeline stage")
        if layout.virtual_stages > 1:
            yield from at_most(
                "interleaving", layout.pipeline_parallel, layout.microbatches_per_step, "stages", "micro-batches"
            )


def replicas(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the replicas by site sum to the data-parallel degree, and that their sites are in the plan."""
    for layout in _layouts(c):
        by_site = layout.data_parallel_by_site
        what = "data_parallel against the sum by site"
        yield from must_equal("replicas", what, layout.data_parallel, sum(by_site.values()))
        for s in sorted(set(by_site) - set(c.racks_by_site)):
            known = f"the plan's {len(c.racks_by_site)} sites"
            yield broken(f"replicas[{s}]", f"{by_site[s]} replicas at {s!r}, none of {known}")


def racks(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each site has the racks of every stage's replicas."""
    for layout in _layouts(c):
        for s in sorted(set(layout.racks_per_stage_by_site) ^ set(layout.data_parallel_by_site)):
            yield broken(f"racks[{s}]", "is in only 1 of data_parallel_by_site and racks_per_stage_by_site")
        for s, d in sorted(layout.data_parallel_by_site.items()):
            rule, bought = f"racks[{s}]", c.racks_by_site.get(s, 0)
            need = strategy_of(layout).site_group_racks(d, c.gpus_per_rack)
            what = f"racks of a stage for {d:,} replicas"
            yield from must_equal(rule, what, layout.racks_per_stage_by_site.get(s), need)
            what = f"racks for {layout.pipeline_parallel} stages"
            yield from at_most(rule, need * layout.rack_stages, bought, what, "racks at the site")


def gpus(c: PlanPhysics) -> Iterator[Violation]:
    """Check the counts of GPUs that work and that idle."""
    for layout in _layouts(c):
        used = layout.data_parallel * layout.pipeline_parallel * strategy_of(layout).shape.gpus
        total = sum(c.racks_by_site.values()) * c.gpus_per_rack
        yield from must_equal("gpus", "gpus_used", layout.gpus_used, used)
        yield from must_equal("gpus", "gpus_idle", layout.gpus_idle, total - used)
        yield from at_most("gpus", used, total, "GPUs used", "GPUs bought")


def batch(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the tokens of a step are within the critical batch."""
    limit = c.instance.limits.max_batch_tokens
    if limit is None:
        return
    for layout in _layouts(c):
        sequences = layout.data_parallel * layout.microbatches_per_step * layout.microbatch_sequences
        tokens = sequences * c.instance.workload.sequence_length
        yield from at_most("batch", tokens, limit, "tokens a step", "tokens of the critical batch")


def memory(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the fullest GPU has the memory."""
    if c.metrics is not None:
        used, limit = c.metrics.memory_bytes_per_gpu, c.metrics.memory_limit_bytes
        yield from at_most("memory", used, limit, "bytes on the worst GPU", "bytes that may be filled")


def metrics(c: PlanPhysics) -> Iterator[Violation]:
    """Check every figure of the layout's metrics against the prediction from the strategy and the assumptions."""
    for layout in _layouts(c):
        for name in FIGURES if c.metrics is not None else ():
            yield from must_equal(f"metrics[{name}]", name, getattr(layout.metrics, name), getattr(c.metrics, name))
        if c.metrics is not None:
            yield from interval(
                f"metrics[{INTERVAL}]", layout.metrics.days_to_train_interval, c.metrics.days_to_train_interval
            )


def interval(rule: str, stated: tuple[float, float], found: tuple[float, float]) -> Iterator[Violation]:
    """Check that both ends of an interval of days are as recomputed from the errors of like measured runs."""
    for end, a, b in zip(("fewest", "most"), stated, found, strict=True):
        yield from must_equal(rule, f"{end} days of 4 of 5 like runs", a, b)


def breakdowns(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the parts of time and memory are as predicted, and add up to their total."""
    for layout in _layouts(c):
        for name, total in BREAKDOWNS.items() if c.metrics is not None else ():
            stated, predicted = getattr(layout.metrics, name), getattr(c.metrics, name)
            for part in sorted(set(stated) | set(predicted)):
                yield from must_equal(f"{name}[{part}]", part, stated.get(part), predicted.get(part))
            parts = math.fsum(stated.values())
            yield from must_equal(name, f"{total} against the sum of its parts", getattr(layout.metrics, total), parts)


def deadline(c: PlanPhysics) -> Iterator[Violation]:
    """Check that training ends before the deadline."""
    limit = c.instance.limits.deadline_days
    if limit is not None and c.metrics is not None:
        yield from at_most("deadline", c.metrics.days_to_train, limit, "days to train", "days until the deadline")


def assumed_slowdowns(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the layout assumes no faster network than the transport and the fabric of any site are."""
    for layout in _layouts(c):
        fabrics = sorted(c.plan.fabric.sites.items()) if c.plan.fabric else ()
        for name, what in (("pipeline_send_slowdown", "pipeline sends"), ("allreduce_slowdown", "all-reduces")):
            assumed, own = getattr(layout.assumptions, name), "the transport's own slowdown"
            yield from at_most("assumed_slowdowns", c.transport_slowdown, assumed, own, f"assumed of {what}")
            for s, f in fabrics:
                rule = f"assumed_slowdowns[{s}]"
                yield from at_most(rule, getattr(f, name), assumed, f"slowdown of {what}", "assumed")


def assumed_wan(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the links between sites with replicas, less their headroom, are as wide and near as is assumed."""
    w = c.instance.wan
    for layout in _layouts(c) if len(c.replicas) < 2 else ():
        rate = layout.assumptions
        if rate.wan_gbps is not None or rate.wan_rtt_ms is not None:
            assumed = f"{rate.wan_gbps} Gbps and {rate.wan_rtt_ms} ms between sites are assumed"
            yield broken("assumed_wan", f"{assumed}, and {len(c.replicas)} exchange gradients < 2")
    if w is None or len(c.replicas) < 2:
        return
    places = [x for x in c.standing if x.site.id in c.replicas]
    links = c.plan.sites.links if c.plan.sites else ()
    capacity = {frozenset((k.a, k.b)): k.wavelengths * w.wavelength_gbps for k in links}
    for layout in _layouts(c):
        gbps, rtt_ms = layout.assumptions.wan_gbps, layout.assumptions.wan_rtt_ms
        if gbps is None or rtt_ms is None:
            sites = f"{len(c.replicas)} sites exchange gradients > 1"
            yield broken("assumed_wan", f"{sites}, and no rate and round trip are assumed between them")
            continue
        for a, b in combinations((x.site.id for x in places), 2):
            rule, what = f"assumed_wan[{a}, {b}]", f"Gbps assumed, times {w.headroom_factor:g}"
            lit = capacity.get(frozenset((a, b)), 0.0)
            yield from at_most(rule, gbps * w.headroom_factor, lit, what, "Gbps of the link")
            yield from at_most(rule, wan.rtt_ms(w, c.route_km(a, b)), rtt_ms, "ms round trip", "ms assumed")


def pins(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every pinned choice has the pinned value."""
    for layout in _layouts(c):
        recomputed = list(layout.recomputed_layers_per_stage) or [0] * len(layout.layers_per_stage)
        chosen = layout.model_dump() | {
            "layers_per_stage": list(layout.layers_per_stage),
            "recomputed_layers_per_stage": recomputed,
            "data_parallel_by_site": c.replicas,
        }
        gbps, lit = layout.assumptions.wan_gbps, c.instance.pins.get("wan.wavelengths")
        if gbps is not None and lit is not None:
            assumed = gbps * c.wan.headroom_factor / c.wan.wavelength_gbps
            what = "wavelengths that the exchange counts on against the pin"
            yield from must_equal("pins[wan.wavelengths]", what, assumed, float(lit))
        for path, value in c.instance.pins.items():
            name = path.removeprefix("layout.")
            if path in PINS and name != path:
                by_site = name == "data_parallel_by_site"
                wanted = {s: d for s, d in value.items() if d} if by_site else value
                yield from must_be(f"pins[{path}]", "replicas by site" if by_site else name, chosen[name], wanted)


RULES: tuple[Rule, ...] = (
    well_formed,
    tensor_parallel,
    rack_shape,
    expert_parallel,
    layers,
    interleaving,
    framework,
    schedule,
    recomputed,
    replicas,
    racks,
    gpus,
    batch,
    memory,
    metrics,
    breakdowns,
    deadline,
    assumed_slowdowns,
    assumed_wan,
    pins,
)


def broken_rules(rules: FrameworkRules, x: LayoutPlan, model: Model, sequence: int) -> Iterator[str]:
    """Yield each choice of a layout that a framework does not run, for a model and the tokens of a sequence."""
    tensor, unit, parts = x.tensor_parallel, x.tensor_parallel * x.context_parallel, rules.sequence_parts
    has_experts, divides = model.experts is not None, parts != "any"
    routed = rules.experts_over_tensors and has_experts and max(tensor, x.expert_parallel) > 1
    rounds, in_parts = rules.whole_rounds and x.virtual_stages > 1, unit * (2 if parts == "halves" else 1)
    if not _recomputed_alike(rules.recompute, x):
        counts = f"{list(x.recomputed_layers_per_stage)} of stages of {list(x.layers_per_stage)}"
        yield f"layout.recomputed_layers_per_stage: {rules.recompute} (are {counts})"
    if not rules.selective and x.recompute == "selective":
        yield "layout.recompute: none or full (is 'selective')"
    if rules.even_stages and len(set(x.layers_per_stage)) > 1:
        yield f"layout.layers_per_stage: as many on each stage (are {list(x.layers_per_stage)})"
    divided = (
        (rounds, "layout.microbatches_per_step", x.microbatches_per_step, "the stages", x.pipeline_parallel),
        (divides and x.context_parallel > 1, "workload.sequence_length", sequence, "2 x CP", 2 * x.context_parallel),
        (divides and x.sequence_parallel, "workload.sequence_length", sequence, "its parts under TP", in_parts),
        (
            rules.whole_expert_groups,
            "layout.data_parallel",
            unit * x.data_parallel,
            "EP, times TP x CP",
            x.expert_parallel,
        ),
        (routed, "layout.expert_parallel", x.expert_parallel, "TP x CP", unit),
    )
    for holds, path, number, of, divisor in divided:
        if holds and number % divisor:
            yield f"{path}: a multiple of {of}, {divisor:,} (is {number:,})"
    if x.tensor_parallel_inner > 1 and not rules.tensor_2d:
        yield f"layout.tensor_parallel_inner: 1 alone (is {x.tensor_parallel_inner})"
    wanted = {"free": False, "with experts": has_experts, "always": True}[rules.sequence_parallel]
    if wanted and tensor > 1 and not x.sequence_parallel:
        yield f"layout.sequence_parallel: true under TP {tensor} (is false)"


def _recomputed_alike(rule: str, layout: LayoutPlan) -> bool:
    """Return whether the layers that stages recompute are those of one number for every chunk, or all or none."""
    counts, v = layout.recomputed_layers_per_stage, layout.virtual_stages
    most = max(layout.layers_per_stage)
    numbers = {"free": (), "all or none": (0, most), "chunks alike": range(most + 1)}[rule]
    alike = ([int(recomputed_alike(n, v, each)) for n in layout.layers_per_stage] == list(counts) for each in numbers)
    return rule == "free" or not counts or any(alike)


def _pool_plans(c: PlanPhysics, pools: PoolsPlan) -> dict[str, PlanPhysics]:
    plans = {}
    for p in c.instance.hardware.pools:
        if p.name in pools.layouts and pools.sequences.get(p.name, 0) > 0:
            asked = heterogeneous.pool_instance(c.instance, p, pools.sequences[p.name])
            own = {"instance": asked, "layout": pools.layouts[p.name], "pools": None}
            plans[p.name] = PlanPhysics(plan=c.plan.model_copy(update=own))
    return plans


def shares(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every pool has a share of the batch, and a layout that takes just that many sequences."""
    pools = c.plan.pools
    if pools is None:
        return
    names = sorted(p.name for p in c.instance.hardware.pools)
    training = sorted(n for n, x in pools.sequences.items() if x > 0)
    yield from must_be("shares", "pools with a share", sorted(pools.sequences), names)
    yield from must_be("shares", "pools with a layout", sorted(pools.layouts), training)
    for name, x in sorted(pools.sequences.items()):
        if x < 0:
            yield broken(f"shares[{name}]", f"{x:,} sequences < 0")
    for name, layout in sorted(pools.layouts.items()):
        taken = layout.data_parallel * layout.microbatches_per_step * layout.microbatch_sequences
        stated = pools.sequences.get(name)
        yield from must_equal(f"shares[{name}]", "sequences against those of its layout", stated, taken)


def pools_batch(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the shares add up to the stated tokens, and are within the critical batch."""
    pools, limit = c.plan.pools, c.instance.limits.max_batch_tokens
    if pools is None:
        return
    tokens = sum(pools.sequences.values()) * c.instance.workload.sequence_length
    what = "tokens_per_step against the sum of the shares"
    yield from must_equal("batch", what, pools.tokens_per_step, float(tokens))
    if limit is not None:
        yield from at_most("batch", tokens, limit, "tokens a step", "tokens of the critical batch")


def layouts(c: PlanPhysics) -> Iterator[Violation]:
    """Check every rule of a layout in every pool: memory and step time as physics predicts them for its GPU."""
    for name, own in _pool_plans(c, c.plan.pools).items() if c.plan.pools else ():
        for rule in RULES:
            yield from (v.model_copy(update={"rule": f"pools[{name}].{v.rule}"}) for v in rule(own))


def _times(c: PlanPhysics) -> tuple[dict[str, float], dict[str, float]] | None:
    """Compute the seconds of step and exchange of each pool that trains; None where a layout is too broken for it."""
    pools = c.plan.pools
    if pools is None:
        return None
    metrics = {name: own.metrics for name, own in _pool_plans(c, pools).items()}
    predicted = {name: m for name, m in metrics.items() if m is not None}
    if not predicted or set(predicted) != set(pools.layouts):
        return None
    link, count = c.instance.hardware.pool_link, len(predicted)
    steps = {name: m.step_seconds for name, m in predicted.items()}
    exchanges = {
        name: heterogeneous.exchange_seconds(link, m, max(pools.layouts[name].layers_per_stage), count)
        for name, m in predicted.items()
    }
    return steps, exchanges


def days(c: PlanPhysics) -> float | None:
    """Return the days to train as recomputed: steps of the slowest pool and the longest exchange."""
    pools, times = c.plan.pools, _times(c)
    if pools is None or times is None:
        return None
    steps, exchanges = times
    w = c.instance.workload
    tokens = sum(pools.sequences[name] for name in steps) * w.sequence_length
    seconds = max(steps.values()) + max(exchanges.values())
    return layer_time.days_to_train(w.tokens, tokens, seconds, w.availability)


def figures(c: PlanPhysics) -> Iterator[Violation]:
    """Check that exchanges, step and days to train follow from the pools' layouts."""
    pools, times = c.plan.pools, _times(c)
    if pools is None or times is None:
        return
    steps, exchanges = times
    for name in sorted(set(exchanges) | set(pools.exchange_seconds)):
        stated, rule = pools.exchange_seconds.get(name), f"figures[exchange_seconds.{name}]"
        yield from must_equal(rule, "exposed exchange", stated, exchanges.get(name), " s")
    rule, what = "figures[step_seconds]", "slowest pool and longest exchange"
    yield from must_equal(rule, what, pools.step_seconds, max(steps.values()) + max(exchanges.values()), " s")
    yield from must_equal("figures[days_to_train]", "days_to_train", pools.days_to_train, days(c))
    own = [x.metrics for x in _pool_plans(c, pools).values() if x.metrics is not None]
    found = step_errors.widest(days(c) or 0.0, [(m.days_to_train, m.days_to_train_interval) for m in own])
    yield from interval("figures[days_to_train_interval]", pools.days_to_train_interval, found)


def limits(c: PlanPhysics) -> Iterator[Violation]:
    """Check that all pools together train within the deadline in days and the facility power in MW."""
    if c.plan.pools is None:
        return
    deadline, power, recomputed = c.instance.limits.deadline_days, c.instance.limits.facility_power_mw, days(c)
    if deadline is not None and recomputed is not None:
        yield from at_most("limits[deadline]", recomputed, deadline, "days to train", "days until the deadline")
    if power is not None:
        drawn = heterogeneous.facility_mw(c.instance)
        yield from at_most("limits[facility_power]", drawn, power, "MW of all pools", "MW at most")


POOL_RULES: tuple[Rule, ...] = (shares, pools_batch, layouts, figures, limits)
