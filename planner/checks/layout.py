"""Rules of the layout and all that physics predicts of it, of pools of different GPUs, and of a chosen model."""

import math
from collections.abc import Iterator
from itertools import combinations

from planner.checks.rule import Violations, at_most, broken, figures, must_be, must_equal, needs, once, parts
from planner.instance.framework_rules import FrameworkRules
from planner.instance.pins import PINS
from planner.instance.scaling_law import Choose, ModelChoice
from planner.instance.workload import Model
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import site_power, wan
from planner.physics.training import scaling_laws, step_errors, step_prediction, transformer
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import strategy_of, unsupported
from planner.physics.training.schedule import recomputed_alike
from planner.physics.training.step_prediction import machine_of, pool_exchange_seconds, pool_instance
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LayoutMetrics, LayoutPlan, PoolsPlan

BREAKDOWNS = {"breakdown_seconds": "step_seconds", "memory_breakdown_bytes": "memory_bytes_per_gpu"}
INTERVAL = "days_to_train_interval"
SIX_DIGITS = 1e-5  # share: of amounts of compute, which are named in six digits
LAYERS_PINNED = {"layout.layers_per_stage", "layout.recomputed_layers_per_stage"}
FIGURES = [name for name in LayoutMetrics.model_fields if name not in BREAKDOWNS and name != INTERVAL]


def well_formed(physics: PlanPhysics) -> Violations:
    """Check that every count of the layout can be computed with."""
    yield from (broken("well_formed", fault) for fault in physics.faults)


@needs("layout")
def degrees(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check that a layout's degrees of parallelism divide what they split, go with one another, and fit the racks."""
    model, strategy = machine_of(physics.instance).model, strategy_of(layout)
    (tensor, _, expert), inner = layout.degrees, layout.tensor_parallel_inner
    stages, chunks, repeats = layout.pipeline_parallel, layout.virtual_stages, sum(layout.recomputed_layers_per_stage)
    shared, heads = math.gcd(model.heads, model.kv), f"{model.heads} heads and {model.kv} KV heads"
    experts = model.experts.count if model.experts else 1
    recompute = f"{repeats} layers are recomputed > 0, and recompute is {layout.recompute}"
    for rule, wrong, message in (
        ("tensor_parallel", shared % tensor, f"{tensor} does not divide {shared}, shared by {heads}"),
        ("tensor_parallel", tensor == 1 and layout.sequence_parallel, "sequence parallelism over 1 rank, 2 at least"),
        ("tensor_parallel", tensor % inner, f"an inner degree of {inner} does not divide {tensor}"),
        ("expert_parallel", experts % expert, f"{expert} does not divide {experts} experts"),
        ("interleaving", chunks > 1 and stages == 1, f"{chunks} virtual stages > 1 on one pipeline stage"),
        ("recomputed", layout.recompute != "full" and repeats, recompute),
    ):
        if wrong:
            yield broken(rule, message)
    unit, need = strategy.shape.gpus, strategy.racks_per_replica(physics.gpus_per_rack)
    yield from must_equal("rack_shape", f"racks_per_replica for {unit} GPUs", layout.racks_per_replica, need)
    yield from must_equal("layers", "sum of layers_per_stage", sum(layout.layers_per_stage), model.layers)
    there, together = physics.gpus_per_rack * layout.racks_per_replica, strategy.min_replicas * unit
    on_rack = f"GPUs of {layout.stages_per_rack} stages of {layout.replicas_per_rack} replicas"
    for limit in (
        ("rack_shape", layout.racks_gpus, there, on_rack, "GPUs in their racks"),
        ("expert_parallel", expert, together, "GPUs share the experts", "GPUs of a stage at the smallest site"),
        ("layers", chunks, min(layout.layers_per_stage), "virtual stages", "layers on the smallest stage"),
        ("schedule", chunks if layout.schedule != "1f1b" else 1, 1, "virtual stages", f"that {layout.schedule} has"),
        ("interleaving", stages if chunks > 1 else 0, layout.microbatches_per_step, "stages", "micro-batches"),
    ):
        yield from at_most(*limit)


@needs("layout")
def framework(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check that the training framework supports everything that the layout asks of it, pinned or not."""
    machine, workload = machine_of(physics.instance), physics.instance.workload
    yield from (broken("framework", what) for what in unsupported(machine.software, strategy_of(layout)))
    for what in broken_rules(workload.rules, layout, machine.model, workload.sequence_length):
        if what.partition(":")[0] not in LAYERS_PINNED & physics.instance.pins.keys():  # which go before the rules
            yield broken("framework", f"{what}, as {workload.rules.framework} has it")


@needs("layout")
def replicas(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check a layout's replicas and racks by site and stage, its GPUs at work and idle, and the tokens of a step."""
    by_site, planned, strategy = layout.data_parallel_by_site, physics.racks_by_site, strategy_of(layout)
    what, stages = "data_parallel against the sum by site", f"racks for {layout.pipeline_parallel} stages"
    yield from must_equal("replicas", what, layout.data_parallel, sum(by_site.values()))
    yield from once("racks", "entries of racks_per_stage_by_site", layout.racks_per_stage_by_site, by_site)
    for site, count in sorted(by_site.items()):
        if site not in planned:
            yield broken(f"replicas[{site}]", f"{count} replicas at {site!r}, none of the plan's {len(planned)} sites")
        rule, need = f"racks[{site}]", strategy.site_group_racks(count, physics.gpus_per_rack)
        stated, what = layout.racks_per_stage_by_site.get(site), f"racks of a stage for {count:,} replicas"
        yield from must_equal(rule, what, stated, need)
        yield from at_most(rule, need * layout.rack_stages, planned.get(site, 0), stages, "racks at the site")
    used = layout.data_parallel * layout.pipeline_parallel * strategy.shape.gpus
    total = sum(planned.values()) * physics.gpus_per_rack
    yield from figures("gpus", layout, {"gpus_used": used, "gpus_idle": total - used})
    yield from at_most("gpus", used, total, "GPUs used", "GPUs bought")
    tokens, limit = layout.sequences * physics.instance.workload.sequence_length, physics.instance.limits
    yield from at_most("batch", tokens, limit.max_batch_tokens, "tokens a step", "tokens of the critical batch")


@needs("layout", "metrics")
def metrics(physics: PlanPhysics, layout: LayoutPlan, predicted: LayoutMetrics) -> Violations:
    """Check a layout's metrics against the prediction, breakdowns against totals, memory and days against limits."""
    stated = layout.metrics
    own, found = ({name: getattr(side, name) for name in FIGURES} for side in (stated, predicted))
    yield from parts("metrics", own, found)
    yield from interval(f"metrics[{INTERVAL}]", stated.days_to_train_interval, predicted.days_to_train_interval)
    for name, total in BREAKDOWNS.items():
        yield from parts(name, getattr(stated, name), getattr(predicted, name))
        in_all = math.fsum(getattr(stated, name).values())
        yield from must_equal(name, f"{total} against the sum of its parts", getattr(stated, total), in_all)
    used, limit = predicted.memory_bytes_per_gpu, predicted.memory_limit_bytes
    yield from at_most("memory", used, limit, "bytes on the worst GPU", "bytes that may be filled")
    sides = predicted.days_to_train, physics.instance.limits.deadline_days
    yield from at_most("deadline", *sides, "days to train", "days until the deadline")


def interval(rule: str, stated: tuple[float, float], found: tuple[float, float]) -> Violations:
    """Check that both ends of a layout's interval of days follow from the errors of similar measured runs."""
    for end, given, computed in zip(("fewest", "most"), stated, found, strict=True):
        yield from must_equal(rule, f"{end} days of 4 of 5 like runs", given, computed)


@needs("layout")
def assumed(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check that no transport, fabric, or link between sites less its headroom is slower than the layout assumes."""
    fabrics = sorted(physics.plan.fabric.sites.items()) if physics.plan.fabric else ()
    for name, what in (("pipeline_send_slowdown", "pipeline sends"), ("allreduce_slowdown", "all-reduces")):
        given, own = getattr(layout.assumptions, name), "the transport's own slowdown"
        yield from at_most("assumed_slowdowns", physics.transport_slowdown, given, own, f"assumed of {what}")
        for site, fabric in fabrics:
            slow = getattr(fabric, name)
            yield from at_most(f"assumed_slowdowns[{site}]", slow, given, f"slowdown of {what}", "assumed")
    net, gbps, rtt_ms = physics.instance.wan, layout.assumptions.wan_gbps, layout.assumptions.wan_rtt_ms
    number = len(physics.replicas)
    if number < 2 and (gbps, rtt_ms) != (None, None):
        far = f"{gbps} Gbps and {rtt_ms} ms between sites are assumed"
        yield broken("assumed_wan", f"{far}, and {number} exchange gradients < 2")
    elif number > 1 and net is not None and (gbps is None or rtt_ms is None):
        sites = f"{number} sites exchange gradients > 1"
        yield broken("assumed_wan", f"{sites}, and no rate and round trip are assumed between them")
    elif number > 1 and net is not None:
        links = physics.plan.sites.links if physics.plan.sites else ()
        lit = {frozenset((link.a, link.b)): link.wavelengths * net.wavelength_gbps for link in links}
        wanted, what = (gbps or 0.0) * net.headroom_factor, f"Gbps assumed, times {net.headroom_factor:g}"
        for one, other in combinations((site for site in physics.places if site in physics.replicas), 2):
            rule, ms = f"assumed_wan[{one}, {other}]", wan.rtt_ms(net, physics.route_km(one, other))
            yield from at_most(rule, wanted, lit.get(frozenset((one, other)), 0.0), what, "Gbps of the link")
            yield from at_most(rule, ms, rtt_ms, "ms round trip", "ms assumed")


@needs("layout")
def pins(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check that every choice of a layout that the instance pins has the pinned value."""
    chosen = layout.model_dump(mode="json") | {"data_parallel_by_site": physics.replicas}  # tuples as lists
    chosen["recomputed_layers_per_stage"] = chosen["recomputed_layers_per_stage"] or [0] * len(layout.layers_per_stage)
    gbps, lit = layout.assumptions.wan_gbps, physics.instance.pins.get("wan.wavelengths")
    if gbps is not None and lit is not None:
        assumed = gbps * physics.wan.headroom_factor / physics.wan.wavelength_gbps
        what = "wavelengths that the exchange counts on against the pin"
        yield from must_equal("pins[wan.wavelengths]", what, assumed, float(lit))
    for path, value in physics.instance.pins.items():
        name = path.removeprefix("layout.")
        if path in PINS and name != path:
            wanted = {site: count for site, count in value.items() if count} if isinstance(value, dict) else value
            yield from must_be(f"pins[{path}]", name, chosen[name], wanted)


def broken_rules(rules: FrameworkRules, layout: LayoutPlan, model: Model, sequence: int) -> Iterator[str]:
    """Yield each choice of a layout that the checker finds its framework cannot run, for a model and a sequence."""
    layers, repeated = list(layout.layers_per_stage), list(layout.recomputed_layers_per_stage)
    most = max(layers)
    numbers = {"free": (), "all or none": (0, most), "chunks alike": range(most + 1)}[rules.recompute]
    alike = ([int(recomputed_alike(each, layout.virtual_stages, k)) for each in layers] for k in numbers)
    if rules.recompute != "free" and repeated and repeated not in alike:
        yield f"layout.recomputed_layers_per_stage: {rules.recompute} (are {repeated} of stages of {layers})"
    if not rules.selective and layout.recompute == "selective":
        yield "layout.recompute: none or full (is 'selective')"
    if rules.even_stages and len(set(layers)) > 1:
        yield f"layout.layers_per_stage: as many on each stage (are {layers})"
    stages, batches = layout.pipeline_parallel, layout.microbatches_per_step
    if rules.whole_rounds and layout.virtual_stages > 1:
        yield from _a_multiple("layout.microbatches_per_step", batches, "the stages", stages)
    if rules.whole_expert_groups:
        gpus = layout.stage_gpus * layout.data_parallel
        yield from _a_multiple("layout.data_parallel", gpus, "EP, times TP x CP", layout.expert_parallel)
    yield from broken_shapes(rules, strategy_of(layout).shape, model, sequence)


def broken_shapes(rules: FrameworkRules, shape: LayerShape, model: Model, sequence: int) -> Iterator[str]:
    """Yield each choice of how a layout cuts a layer that the checker finds its framework cannot run."""
    (tensor, context, expert), experts = shape.degrees, model.experts is not None
    if shape.tensor_inner > 1 and not rules.tensor_2d:
        yield f"layout.tensor_parallel_inner: 1 alone (is {shape.tensor_inner})"
    wanted = {"free": False, "with experts": experts, "always": True}[rules.sequence_parallel]
    if wanted and tensor > 1 and not shape.sequence_parallel:
        yield f"layout.sequence_parallel: true under TP {tensor} (is false)"
    if rules.experts_over_tensors and experts and max(tensor, expert) > 1:
        yield from _a_multiple("layout.expert_parallel", expert, "TP x CP", shape.gpus)
    if rules.sequence_parts != "any" and context > 1:
        yield from _a_multiple("workload.sequence_length", sequence, "2 x CP", 2 * context)
    if rules.sequence_parts != "any" and shape.sequence_parallel:
        times, of = (2, "2 x TP x CP") if rules.sequence_parts == "halves" else (1, "TP x CP")
        yield from _a_multiple("workload.sequence_length", sequence, of, times * shape.gpus)


def _a_multiple(path: str, number: int, of: str, divisor: int) -> Iterator[str]:
    if number % divisor:
        yield f"{path}: a multiple of {of}, {divisor:,} (is {number:,})"


def _pool_plans(physics: PlanPhysics, pools: PoolsPlan) -> dict[str, PlanPhysics]:
    plans = {}
    for pool in physics.instance.hardware.pools:
        if pool.name in pools.layouts and pools.sequences.get(pool.name, 0) > 0:
            asked = pool_instance(physics.instance, pool, pools.sequences[pool.name])
            own = {"instance": asked, "layout": pools.layouts[pool.name], "pools": None}
            plans[pool.name] = PlanPhysics(plan=physics.plan.replaced(**own))
    return plans


@needs("pools")
def shares(physics: PlanPhysics, pools: PoolsPlan) -> Violations:
    """Check that every pool has a share of the batch, all within the critical one, and a layout that takes just it."""
    names, limit = [pool.name for pool in physics.instance.hardware.pools], physics.instance.limits.max_batch_tokens
    training = [name for name, count in pools.sequences.items() if count > 0]
    yield from must_be("shares", "pools with a share", sorted(pools.sequences), sorted(names))
    yield from must_be("shares", "pools with a layout", sorted(pools.layouts), sorted(training))
    for name, count in sorted(pools.sequences.items()):
        yield from at_most(f"shares[{name}]", 0, count, "sequences at least", "sequences")
    for name, layout in sorted(pools.layouts.items()):
        what = "sequences against those of its layout"
        yield from must_equal(f"shares[{name}]", what, pools.sequences.get(name), layout.sequences)
    tokens = sum(pools.sequences.values()) * physics.instance.workload.sequence_length
    yield from figures("batch", pools, {"tokens_per_step": float(tokens)})
    yield from at_most("batch", tokens, limit, "tokens a step", "tokens of the critical batch")


@needs("pools")
def layouts(physics: PlanPhysics, pools: PoolsPlan) -> Iterator[Violation]:
    """Check every rule of a layout in every pool: memory and step time as physics predicts them for its GPU."""
    for name, own in _pool_plans(physics, pools).items():
        for rule in RULES:
            yield from (fault.replaced(rule=f"pools[{name}].{fault.rule}") for fault in rule(own))


def _times(physics: PlanPhysics) -> tuple[dict[str, LayoutMetrics], dict[str, float], float, float] | None:
    """Recompute figures and exchange of each pool, seconds of a step and days to train; None of a broken layout."""
    pools, workload = physics.plan.pools, physics.instance.workload
    plans = _pool_plans(physics, pools) if pools is not None else {}
    predicted = {name: own.metrics for name, own in plans.items() if own.metrics is not None}
    if pools is None or not predicted or set(predicted) != set(pools.layouts):
        return None
    link, count = physics.instance.hardware.pool_link, len(predicted)
    exchanges = {
        name: pool_exchange_seconds(link, own, max(pools.layouts[name].layers_per_stage), count)
        for name, own in predicted.items()
    }
    seconds = max(own.step_seconds for own in predicted.values()) + max(exchanges.values())
    tokens = sum(pools.sequences[name] for name in predicted) * workload.sequence_length
    days = step_prediction.days_to_train(workload.tokens, tokens, seconds, workload.availability)
    return predicted, exchanges, seconds, days


def days(physics: PlanPhysics) -> float | None:
    """Recompute the days that pools of different GPUs take to train."""
    times = _times(physics)
    return times[-1] if times is not None else None


@needs("pools")
def pools_figures(physics: PlanPhysics, pools: PoolsPlan) -> Violations:
    """Check that exchanges, step and days to train follow from the pools' layouts, within deadline and power."""
    times, limits, drawn = _times(physics), physics.instance.limits, site_power.pools_mw(physics.instance)
    yield from at_most("limits[facility_power]", drawn, limits.facility_power_mw, "MW of all pools", "MW at most")
    if times is None:
        return
    predicted, exchanges, seconds, found = times
    stated = {f"exchange_seconds.{name}": took for name, took in pools.exchange_seconds.items()}
    own = {f"exchange_seconds.{name}": took for name, took in exchanges.items()}
    stated |= {name: getattr(pools, name) for name in ("step_seconds", "days_to_train")}
    yield from parts("figures", stated, own | {"step_seconds": seconds, "days_to_train": found})
    widest = step_errors.widest(found, [(one.days_to_train, one.days_to_train_interval) for one in predicted.values()])
    yield from interval("figures[days_to_train_interval]", pools.days_to_train_interval, widest)
    yield from at_most("limits[deadline]", found, limits.deadline_days, "days to train", "days until the deadline")


def stated_loss(physics: PlanPhysics) -> float | None:
    """Recompute the loss of a plan's chosen model and tokens by the law that it states; None if none was chosen."""
    asked, model, tokens = (getattr(physics.instance.workload, name) for name in ("choose", "model", "tokens"))
    if asked is None or physics.plan.model_choice is None:
        return None
    return scaling_laws.loss(asked.loss_law, float(transformer.active_parameters(model, embedding=True)), tokens)


def chosen(physics: PlanPhysics) -> Violations:
    """Check that a plan chooses a model where the instance asks for one, and only there."""
    asked, stated = physics.instance.objective.minimize == "loss", physics.plan.model_choice is not None
    if stated != asked:
        yield broken("chosen", f"{int(stated)} choices of a model in the plan, {int(asked)} asked for")


@needs("choose", "model_choice", "model")
def buildable(_: PlanPhysics, asked: Choose, _stated: ModelChoice, model: Model) -> Violations:
    """Check that a chosen model's heads, layers and width divide as its family asks, and its width-to-depth ratio."""
    family = asked.family
    parts_of = {"heads": family.heads_multiple_of, "layers": family.layers_multiple_of, "hidden": model.heads}
    for name, part in parts_of.items():
        if getattr(model, name) % part:
            yield broken(f"buildable[{name}]", f"{getattr(model, name)} is no multiple of {part}")
    yield from must_equal("buildable[head_size]", "head_size", model.head, family.head_size)
    rule, aspect, what = "buildable[aspect]", model.hidden / model.layers, "hidden over layers"
    yield from at_most(rule, family.min_aspect, aspect, f"{what} at least", what)
    yield from at_most(rule, aspect, family.max_aspect, what, f"{what} at most")


@needs("choose", "model_choice", "model")
def choice_figures(physics: PlanPhysics, asked: Choose, stated: ModelChoice, model: Model) -> Violations:
    """Check that a chosen model's size, compute and losses follow from its tokens and the laws; shares add up."""
    loss, tokens = stated_loss(physics), physics.instance.workload.tokens
    if loss is None:
        return
    size = float(transformer.active_parameters(model, embedding=True))
    flop = float(transformer.training_flop(size, tokens))  # 6·N·D
    for name, value in {"parameters": size, "tokens": tokens, "flop": flop, "loss": loss}.items():
        yield from figures(f"choice_figures[{name}]", stated, {name: value})
    shares, rule = sum(stated.compute_shares.values()), "choice_figures[compute_shares]"
    yield from must_equal(rule, "sum of the shares of the ideal", shares, 1.0)
    rate, limits = asked.assumed_flop_per_second, physics.instance.limits
    seconds = (limits.deadline_days or 0.0) * step_prediction.SECONDS_PER_DAY
    gpus = sum(physics.racks_by_site.values()) * physics.gpus_per_rack
    full = gpus * machine_of(physics.instance).peak_flop_per_second * seconds
    rule, what = "choice_figures[assumed]", "whether a rate is assumed"
    yield from must_be(rule, what, stated.assumed is not None, rate is not None)
    yield from figures("choice_figures[ideal]", stated.ideal, dict(scaling_laws.ideal(asked, full)))
    if rate is not None and stated.assumed is not None:
        yield from figures(rule, stated.assumed, dict(scaling_laws.ideal(asked, gpus * rate * seconds)))
    batch = limits.max_batch_tokens or 0.0
    yield from must_equal("choice_figures[batch_tokens]", "tokens of a step at most", stated.batch_tokens, batch)
    # The bound on its loss is that of the best model for the bound on its compute, or where larger models are refused
    # and this one has more compute, that of the largest that is not, with all the compute that there is.
    rule, bound = "choice_figures[loss_bound]", physics.plan.objective.bound
    slack, reach = asked.family.tolerance + SIX_DIGITS, stated.flop_bound if stated.flop <= stated.flop_bound else full
    largest = scaling_laws.best_parameters(asked.law, stated.flop_bound) * (1 + asked.family.tolerance)
    yield from figures(rule, stated, {"loss_bound": min(scaling_laws.ideal(asked, reach, largest).loss, stated.loss)})
    if bound is not None:
        yield from must_equal(rule, "bound on the loss against the choice's", bound, stated.loss_bound)
    # Its size is the law's at a compute that was tried and trained in time; its tokens are no fewer.
    off = math.inf
    for tried, days in stated.days_by_flop.items():
        if not (tried.replace(".", "").replace("e+", "").isdigit() and days > 0):
            yield broken("choice_figures[days_by_flop]", f"{days:g} days for {tried!r} FLOP")
        elif days <= (limits.deadline_days or 0.0) and float(tried) <= stated.flop * (1 + SIX_DIGITS):
            off = min(off, abs(size / scaling_laws.best_parameters(asked.law, float(tried)) - 1))
    # No model takes more compute than all GPUs have at peak by the deadline, nor is it larger than those refused.
    rule, most = "choice_figures[flop_bound]", max(full, stated.flop)
    yield from at_most(rule, stated.flop_bound, most, "FLOP, the bound", "FLOP at the peak")
    yield from at_most(rule, size, largest * (1 + SIX_DIGITS), "parameters of the model", "parameters of one refused")
    yield from at_most("choice_figures[law]", off, slack, "away from the law's parameters", "allowed")


@needs("metrics", "layout", "choose", "model_choice", "model")
def compute_shares(
    physics: PlanPhysics, metrics: LayoutMetrics, layout: LayoutPlan, asked: Choose, stated: ModelChoice, model: Model
) -> Violations:
    """Check a chosen model's shares of peak compute: 6·N·D, parts of the step, idle, stops; and the critical batch."""
    law = asked.critical_batch
    if law is not None:
        by_law = scaling_laws.power(law, tokens=stated.tokens, flop=stated.flop, parameters=stated.parameters)
        limit, tokens = max(by_law, float(physics.instance.workload.sequence_length)), metrics.tokens_per_step
        yield from at_most("critical_batch", tokens, limit, "tokens a step", "tokens at most, by the law")
    used, trained = layout.gpus_used, metrics.useful_share
    at_work = used / (used + layout.gpus_idle)
    share = at_work * trained / metrics.step_seconds  # of a second of the step
    size = float(transformer.active_parameters(model, embedding=True))
    peak = machine_of(physics.instance).peak_flop_per_second
    useful = float(transformer.training_flop(size, metrics.tokens_per_step)) / (peak * used) * share
    found = {name: seconds * share for name, seconds in metrics.breakdown_seconds.items() if seconds > 0}
    found["gemm"] = found.get("gemm", 0.0) - useful
    found |= {"used": useful, "idle GPUs": (1 - at_work) * trained, "stopped": 1 - trained}
    for name in sorted(found.keys() | stated.compute_shares.keys()):
        given, own = stated.compute_shares.get(name, 0.0), found.get(name, 0.0)
        if abs(given - own) > 1e-9:
            yield from must_equal(f"compute_shares[{name}]", "share of the ideal's compute", given, own)


RULES = (well_formed, degrees, framework, replicas, metrics, assumed, pins)
POOL_RULES = (shares, layouts, pools_figures)
CHOICE_RULES = (chosen, buildable, choice_figures, compute_shares)
