"""Rules of the layout and of pools of different GPUs: the parallel strategy and all that physics predicts of it."""

import math
from collections.abc import Iterator
from itertools import combinations

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.instance.framework_rules import FrameworkRules
from planner.instance.references_and_pins import PINS
from planner.instance.workload import Model
from planner.physics import step_errors
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import wan
from planner.physics.training import layer_time, step
from planner.physics.training.parallel_strategy import racks_per_replica, strategy_of, unsupported
from planner.physics.training.schedule import recomputed_alike
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LayoutMetrics, LayoutPlan, PoolsPlan

BREAKDOWNS = {"breakdown_seconds": "step_seconds", "memory_breakdown_bytes": "memory_bytes_per_gpu"}
INTERVAL = "days_to_train_interval"
LAYERS_PINNED = {"layout.layers_per_stage", "layout.recomputed_layers_per_stage"}
FIGURES = [name for name in LayoutMetrics.model_fields if name not in BREAKDOWNS and name != INTERVAL]


def _layouts(physics: PlanPhysics) -> Iterator[LayoutPlan]:
    """Yield the layout where its figures mean something."""
    if physics.plan.layout is not None and not physics.faults:
        yield physics.plan.layout


def well_formed(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every count of the layout can be computed with."""
    yield from (broken("well_formed", fault) for fault in physics.faults)


def tensor_parallel(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that tensor parallelism divides query and KV heads, and that its inner degree divides it."""
    for layout in _layouts(physics):
        model = step.machine_of(physics.instance).model
        tensor, inner, shared = layout.tensor_parallel, layout.tensor_parallel_inner, math.gcd(model.heads, model.kv)
        if shared % tensor:
            heads = f"{model.heads} heads and {model.kv} KV heads"
            yield broken("tensor_parallel", f"{tensor} does not divide {shared}, shared by {heads}")
        if tensor == 1 and layout.sequence_parallel:
            yield broken("tensor_parallel", "sequence parallelism over 1 rank, 2 at least")
        if tensor % inner:
            yield broken("tensor_parallel", f"an inner degree of {inner} does not divide {tensor}")


def rack_shape(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a rack has the GPUs of its stages and replicas, and that a larger replica has the racks it needs."""
    for layout in _layouts(physics):
        unit = strategy_of(layout).shape.gpus
        need = racks_per_replica(physics.gpus_per_rack, *layout.degrees[:2])
        yield from must_equal("rack_shape", f"racks_per_replica for {unit} GPUs", layout.racks_per_replica, need)
        gpus = layout.stages_per_rack * layout.replicas_per_rack * unit
        what = f"GPUs of {layout.stages_per_rack} stages of {layout.replicas_per_rack} replicas"
        yield from at_most(
            "rack_shape", gpus, physics.gpus_per_rack * layout.racks_per_replica, what, "GPUs in their racks"
        )


def expert_parallel(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the experts are shared out evenly, over GPUs of one stage and site."""
    for layout in _layouts(physics):
        experts = step.machine_of(physics.instance).model.experts
        count = experts.count if experts is not None else 1
        if count % layout.expert_parallel:
            yield broken("expert_parallel", f"{layout.expert_parallel} does not divide {count} experts")
        strategy = strategy_of(layout)
        gpus = strategy.min_replicas * strategy.shape.gpus
        where = "GPUs of a stage at the smallest site"
        yield from at_most("expert_parallel", layout.expert_parallel, gpus, "GPUs share the experts", where)


def framework(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the framework has everything that the layout asks of it, pinned or not."""
    for layout in _layouts(physics):
        software = step.machine_of(physics.instance).software
        yield from (broken("framework", what) for what in unsupported(software, strategy_of(layout)))
        pins, sequence = physics.instance.pins, physics.instance.workload.sequence_length
        for what in broken_rules(
            physics.instance.workload.rules, layout, step.machine_of(physics.instance).model, sequence
        ):
            if what.partition(":")[0] not in LAYERS_PINNED & pins.keys():  # which go before the rules
                yield broken("framework", f"{what}, as {physics.instance.workload.rules.framework} has it")


def schedule(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that only 1F1B is interleaved."""
    for layout in _layouts(physics):
        if layout.schedule != "1f1b":
            yield from at_most("schedule", layout.virtual_stages, 1, "virtual stages", f"that {layout.schedule} has")


def recomputed(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that layers are fully recomputed only under full recompute."""
    for layout in _layouts(physics):
        count = sum(layout.recomputed_layers_per_stage)
        if layout.recompute != "full" and count:
            yield broken("recomputed", f"{count} layers are recomputed > 0, and recompute is {layout.recompute}")


def layers(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the stages have all layers of the model, and each at least one for every virtual stage."""
    for layout in _layouts(physics):
        total, smallest = sum(layout.layers_per_stage), min(layout.layers_per_stage)
        wanted = step.machine_of(physics.instance).model.layers
        yield from must_equal("layers", "sum of layers_per_stage against the model's layers", total, wanted)
        yield from at_most("layers", layout.virtual_stages, smallest, "virtual stages", "layers on the smallest stage")


def interleaving(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that only a pipeline of several stages is interleaved, and with a micro-batch for each at least."""
    for layout in _layouts(physics):
        if layout.virtual_stages > 1 and layout.pipeline_parallel == 1:
            yield broken("interleaving", f"{layout.virtual_stages} virtual stages > 1 on one pipeline stage")
        if layout.virtual_stages > 1:
            yield from at_most(
                "interleaving", layout.pipeline_parallel, layout.microbatches_per_step, "stages", "micro-batches"
            )


def replicas(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the replicas by site sum to the data-parallel degree, and that their sites are in the plan."""
    for layout in _layouts(physics):
        by_site = layout.data_parallel_by_site
        what = "data_parallel against the sum by site"
        yield from must_equal("replicas", what, layout.data_parallel, sum(by_site.values()))
        for site in sorted(set(by_site) - set(physics.racks_by_site)):
            known = f"the plan's {len(physics.racks_by_site)} sites"
            yield broken(f"replicas[{site}]", f"{by_site[site]} replicas at {site!r}, none of {known}")


def racks(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that each site has the racks of every stage's replicas."""
    for layout in _layouts(physics):
        for site in sorted(set(layout.racks_per_stage_by_site) ^ set(layout.data_parallel_by_site)):
            yield broken(f"racks[{site}]", "is in only 1 of data_parallel_by_site and racks_per_stage_by_site")
        for site, replicas in sorted(layout.data_parallel_by_site.items()):
            rule, bought = f"racks[{site}]", physics.racks_by_site.get(site, 0)
            need = strategy_of(layout).site_group_racks(replicas, physics.gpus_per_rack)
            what = f"racks of a stage for {replicas:,} replicas"
            yield from must_equal(rule, what, layout.racks_per_stage_by_site.get(site), need)
            what = f"racks for {layout.pipeline_parallel} stages"
            yield from at_most(rule, need * layout.rack_stages, bought, what, "racks at the site")


def gpus(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the counts of GPUs that work and that idle."""
    for layout in _layouts(physics):
        used = layout.data_parallel * layout.pipeline_parallel * strategy_of(layout).shape.gpus
        total = sum(physics.racks_by_site.values()) * physics.gpus_per_rack
        yield from must_equal("gpus", "gpus_used", layout.gpus_used, used)
        yield from must_equal("gpus", "gpus_idle", layout.gpus_idle, total - used)
        yield from at_most("gpus", used, total, "GPUs used", "GPUs bought")


def batch(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the tokens of a step are within the critical batch."""
    limit = physics.instance.limits.max_batch_tokens
    if limit is None:
        return
    for layout in _layouts(physics):
        sequences = layout.data_parallel * layout.microbatches_per_step * layout.microbatch_sequences
        tokens = sequences * physics.instance.workload.sequence_length
        yield from at_most("batch", tokens, limit, "tokens a step", "tokens of the critical batch")


def memory(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the fullest GPU has the memory."""
    if physics.metrics is not None:
        used, limit = physics.metrics.memory_bytes_per_gpu, physics.metrics.memory_limit_bytes
        yield from at_most("memory", used, limit, "bytes on the worst GPU", "bytes that may be filled")


def metrics(physics: PlanPhysics) -> Iterator[Violation]:
    """Check every figure of the layout's metrics against the prediction from the strategy and the assumptions."""
    for layout in _layouts(physics):
        for name in FIGURES if physics.metrics is not None else ():
            yield from must_equal(
                f"metrics[{name}]", name, getattr(layout.metrics, name), getattr(physics.metrics, name)
            )
        if physics.metrics is not None:
            yield from interval(
                f"metrics[{INTERVAL}]", layout.metrics.days_to_train_interval, physics.metrics.days_to_train_interval
            )


def interval(rule: str, stated: tuple[float, float], found: tuple[float, float]) -> Iterator[Violation]:
    """Check that both ends of an interval of days are as recomputed from the errors of like measured runs."""
    for end, given, computed in zip(("fewest", "most"), stated, found, strict=True):
        yield from must_equal(rule, f"{end} days of 4 of 5 like runs", given, computed)


def breakdowns(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the parts of time and memory are as predicted, and add up to their total."""
    for layout in _layouts(physics):
        for name, total in BREAKDOWNS.items() if physics.metrics is not None else ():
            stated, predicted = getattr(layout.metrics, name), getattr(physics.metrics, name)
            for part in sorted(set(stated) | set(predicted)):
                yield from must_equal(f"{name}[{part}]", part, stated.get(part), predicted.get(part))
            parts = math.fsum(stated.values())
            yield from must_equal(name, f"{total} against the sum of its parts", getattr(layout.metrics, total), parts)


def deadline(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that training ends before the deadline."""
    limit = physics.instance.limits.deadline_days
    if limit is not None and physics.metrics is not None:
        yield from at_most("deadline", physics.metrics.days_to_train, limit, "days to train", "days until the deadline")


def assumed_slowdowns(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the layout assumes no faster network than the transport and the fabric of any site are."""
    for layout in _layouts(physics):
        fabrics = sorted(physics.plan.fabric.sites.items()) if physics.plan.fabric else ()
        for name, what in (("pipeline_send_slowdown", "pipeline sends"), ("allreduce_slowdown", "all-reduces")):
            assumed, own = getattr(layout.assumptions, name), "the transport's own slowdown"
            yield from at_most("assumed_slowdowns", physics.transport_slowdown, assumed, own, f"assumed of {what}")
            for site, fabric in fabrics:
                rule = f"assumed_slowdowns[{site}]"
                yield from at_most(rule, getattr(fabric, name), assumed, f"slowdown of {what}", "assumed")


def assumed_wan(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the links between sites with replicas, less their headroom, are as wide and near as is assumed."""
    net = physics.instance.wan
    for layout in _layouts(physics) if len(physics.replicas) < 2 else ():
        rate = layout.assumptions
        if rate.wan_gbps is not None or rate.wan_rtt_ms is not None:
            assumed = f"{rate.wan_gbps} Gbps and {rate.wan_rtt_ms} ms between sites are assumed"
            yield broken("assumed_wan", f"{assumed}, and {len(physics.replicas)} exchange gradients < 2")
    if net is None or len(physics.replicas) < 2:
        return
    places = [place for place in physics.standing if place.site.id in physics.replicas]
    links = physics.plan.sites.links if physics.plan.sites else ()
    capacity = {frozenset((link.a, link.b)): link.wavelengths * net.wavelength_gbps for link in links}
    for layout in _layouts(physics):
        gbps, rtt_ms = layout.assumptions.wan_gbps, layout.assumptions.wan_rtt_ms
        if gbps is None or rtt_ms is None:
            sites = f"{len(physics.replicas)} sites exchange gradients > 1"
            yield broken("assumed_wan", f"{sites}, and no rate and round trip are assumed between them")
            continue
        for one, other in combinations((place.site.id for place in places), 2):
            rule, what = f"assumed_wan[{one}, {other}]", f"Gbps assumed, times {net.headroom_factor:g}"
            lit = capacity.get(frozenset((one, other)), 0.0)
            yield from at_most(rule, gbps * net.headroom_factor, lit, what, "Gbps of the link")
            yield from at_most(
                rule, wan.rtt_ms(net, physics.route_km(one, other)), rtt_ms, "ms round trip", "ms assumed"
            )


def pins(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every pinned choice has the pinned value."""
    for layout in _layouts(physics):
        recomputed = list(layout.recomputed_layers_per_stage) or [0] * len(layout.layers_per_stage)
        chosen = layout.model_dump() | {
            "layers_per_stage": list(layout.layers_per_stage),
            "recomputed_layers_per_stage": recomputed,
            "data_parallel_by_site": physics.replicas,
        }
        gbps, lit = layout.assumptions.wan_gbps, physics.instance.pins.get("wan.wavelengths")
        if gbps is not None and lit is not None:
            assumed = gbps * physics.wan.headroom_factor / physics.wan.wavelength_gbps
            what = "wavelengths that the exchange counts on against the pin"
            yield from must_equal("pins[wan.wavelengths]", what, assumed, float(lit))
        for path, value in physics.instance.pins.items():
            name = path.removeprefix("layout.")
            if path in PINS and name != path:
                by_site = name == "data_parallel_by_site"
                wanted = {site: replicas for site, replicas in value.items() if replicas} if by_site else value
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


def broken_rules(rules: FrameworkRules, layout: LayoutPlan, model: Model, sequence: int) -> Iterator[str]:
    """Yield each choice of a layout that a framework does not run, for a model and the tokens of a sequence."""
    (tensor, context, _), unit, parts = layout.degrees, layout.stage_gpus, rules.sequence_parts
    has_experts, divides = model.experts is not None, parts != "any"
    routed = rules.experts_over_tensors and has_experts and max(tensor, layout.expert_parallel) > 1
    rounds, in_parts = rules.whole_rounds and layout.virtual_stages > 1, unit * (2 if parts == "halves" else 1)
    if not _recomputed_alike(rules.recompute, layout):
        counts = f"{list(layout.recomputed_layers_per_stage)} of stages of {list(layout.layers_per_stage)}"
        yield f"layout.recomputed_layers_per_stage: {rules.recompute} (are {counts})"
    if not rules.selective and layout.recompute == "selective":
        yield "layout.recompute: none or full (is 'selective')"
    if rules.even_stages and len(set(layout.layers_per_stage)) > 1:
        yield f"layout.layers_per_stage: as many on each stage (are {list(layout.layers_per_stage)})"
    divided = (
        (rounds, "layout.microbatches_per_step", layout.microbatches_per_step, "the stages", layout.pipeline_parallel),
        (divides and context > 1, "workload.sequence_length", sequence, "2 x CP", 2 * context),
        (divides and layout.sequence_parallel, "workload.sequence_length", sequence, "its parts under TP", in_parts),
        (
            rules.whole_expert_groups,
            "layout.data_parallel",
            unit * layout.data_parallel,
            "EP, times TP x CP",
            layout.expert_parallel,
        ),
        (routed, "layout.expert_parallel", layout.expert_parallel, "TP x CP", unit),
    )
    for holds, path, number, of, divisor in divided:
        if holds and number % divisor:
            yield f"{path}: a multiple of {of}, {divisor:,} (is {number:,})"
    if layout.tensor_parallel_inner > 1 and not rules.tensor_2d:
        yield f"layout.tensor_parallel_inner: 1 alone (is {layout.tensor_parallel_inner})"
    wanted = {"free": False, "with experts": has_experts, "always": True}[rules.sequence_parallel]
    if wanted and tensor > 1 and not layout.sequence_parallel:
        yield f"layout.sequence_parallel: true under TP {tensor} (is false)"


def _recomputed_alike(rule: str, layout: LayoutPlan) -> bool:
    """Return whether the layers that stages recompute are those of one number for every chunk, or all or none."""
    counts, virtual_stages = layout.recomputed_layers_per_stage, layout.virtual_stages
    most = max(layout.layers_per_stage)
    numbers = {"free": (), "all or none": (0, most), "chunks alike": range(most + 1)}[rule]
    alike = (
        [int(recomputed_alike(layers, virtual_stages, each)) for layers in layout.layers_per_stage] == list(counts)
        for each in numbers
    )
    return rule == "free" or not counts or any(alike)


def _pool_plans(physics: PlanPhysics, pools: PoolsPlan) -> dict[str, PlanPhysics]:
    plans = {}
    for pool in physics.instance.hardware.pools:
        if pool.name in pools.layouts and pools.sequences.get(pool.name, 0) > 0:
            asked = step.pool_instance(physics.instance, pool, pools.sequences[pool.name])
            own = {"instance": asked, "layout": pools.layouts[pool.name], "pools": None}
            plans[pool.name] = PlanPhysics(plan=physics.plan.model_copy(update=own))
    return plans


def shares(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that every pool has a share of the batch, and a layout that takes just that many sequences."""
    pools = physics.plan.pools
    if pools is None:
        return
    names = sorted(pool.name for pool in physics.instance.hardware.pools)
    training = sorted(name for name, count in pools.sequences.items() if count > 0)
    yield from must_be("shares", "pools with a share", sorted(pools.sequences), names)
    yield from must_be("shares", "pools with a layout", sorted(pools.layouts), training)
    for name, count in sorted(pools.sequences.items()):
        if count < 0:
            yield broken(f"shares[{name}]", f"{count:,} sequences < 0")
    for name, layout in sorted(pools.layouts.items()):
        taken = layout.data_parallel * layout.microbatches_per_step * layout.microbatch_sequences
        stated = pools.sequences.get(name)
        yield from must_equal(f"shares[{name}]", "sequences against those of its layout", stated, taken)


def pools_batch(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the shares add up to the stated tokens, and are within the critical batch."""
    pools, limit = physics.plan.pools, physics.instance.limits.max_batch_tokens
    if pools is None:
        return
    tokens = sum(pools.sequences.values()) * physics.instance.workload.sequence_length
    what = "tokens_per_step against the sum of the shares"
    yield from must_equal("batch", what, pools.tokens_per_step, float(tokens))
    if limit is not None:
        yield from at_most("batch", tokens, limit, "tokens a step", "tokens of the critical batch")


def layouts(physics: PlanPhysics) -> Iterator[Violation]:
    """Check every rule of a layout in every pool: memory and step time as physics predicts them for its GPU."""
    for name, own in _pool_plans(physics, physics.plan.pools).items() if physics.plan.pools else ():
        for rule in RULES:
            yield from (fault.model_copy(update={"rule": f"pools[{name}].{fault.rule}"}) for fault in rule(own))


def _times(physics: PlanPhysics) -> tuple[dict[str, float], dict[str, float]] | None:
    """Compute the seconds of step and exchange of each pool that trains; None where a layout is too broken for it."""
    pools = physics.plan.pools
    if pools is None:
        return None
    metrics = {name: own.metrics for name, own in _pool_plans(physics, pools).items()}
    predicted = {name: figures for name, figures in metrics.items() if figures is not None}
    if not predicted or set(predicted) != set(pools.layouts):
        return None
    link, count = physics.instance.hardware.pool_link, len(predicted)
    steps = {name: figures.step_seconds for name, figures in predicted.items()}
    exchanges = {
        name: step.pool_exchange_seconds(link, figures, max(pools.layouts[name].layers_per_stage), count)
        for name, figures in predicted.items()
    }
    return steps, exchanges


def days(physics: PlanPhysics) -> float | None:
    """Return the days to train as recomputed: steps of the slowest pool and the longest exchange."""
    pools, times = physics.plan.pools, _times(physics)
    if pools is None or times is None:
        return None
    steps, exchanges = times
    workload = physics.instance.workload
    tokens = sum(pools.sequences[name] for name in steps) * workload.sequence_length
    seconds = max(steps.values()) + max(exchanges.values())
    return layer_time.days_to_train(workload.tokens, tokens, seconds, workload.availability)


def figures(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that exchanges, step and days to train follow from the pools' layouts."""
    pools, times = physics.plan.pools, _times(physics)
    if pools is None or times is None:
        return
    steps, exchanges = times
    for name in sorted(set(exchanges) | set(pools.exchange_seconds)):
        stated, rule = pools.exchange_seconds.get(name), f"figures[exchange_seconds.{name}]"
        yield from must_equal(rule, "exposed exchange", stated, exchanges.get(name), " s")
    rule, what = "figures[step_seconds]", "slowest pool and longest exchange"
    yield from must_equal(rule, what, pools.step_seconds, max(steps.values()) + max(exchanges.values()), " s")
    yield from must_equal("figures[days_to_train]", "days_to_train", pools.days_to_train, days(physics))
    own = [pool.metrics for pool in _pool_plans(physics, pools).values() if pool.metrics is not None]
    found = step_errors.widest(
        days(physics) or 0.0, [(metrics.days_to_train, metrics.days_to_train_interval) for metrics in own]
    )
    yield from interval("figures[days_to_train_interval]", pools.days_to_train_interval, found)


def limits(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that all pools together train within the deadline in days and the facility power in MW."""
    if physics.plan.pools is None:
        return
    deadline, power = physics.instance.limits.deadline_days, physics.instance.limits.facility_power_mw
    recomputed = days(physics)
    if deadline is not None and recomputed is not None:
        yield from at_most("limits[deadline]", recomputed, deadline, "days to train", "days until the deadline")
    if power is not None:
        drawn = step.pools_mw(physics.instance)
        yield from at_most("limits[facility_power]", drawn, power, "MW of all pools", "MW at most")


POOL_RULES: tuple[Rule, ...] = (shares, pools_batch, layouts, figures, limits)
