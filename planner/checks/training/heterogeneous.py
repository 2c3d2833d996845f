"""Rules of pools of different GPUs: shares that make up the batch, and for each pool every rule of a layout."""

from collections.abc import Iterator

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.checks.training.layout import RULES as LAYOUT_RULES
from planner.checks.training.layout import interval
from planner.physics import step_errors
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import heterogeneous, layer_time
from planner.plan.certificate import Violation
from planner.plan.layout import PoolsPlan


def _pool_plans(c: PlanPhysics, pools: PoolsPlan) -> dict[str, PlanPhysics]:
    """Return each pool's layout as a plan of its own, of pools that the instance has and that have a share."""
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


def batch(c: PlanPhysics) -> Iterator[Violation]:
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
        for rule in LAYOUT_RULES:
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
    """Check that all pools together train in time, and within the power."""
    if c.plan.pools is None:
        return
    deadline, power, recomputed = c.instance.limits.deadline_days, c.instance.limits.facility_power_mw, days(c)
    if deadline is not None and recomputed is not None:
        yield from at_most("limits[deadline]", recomputed, deadline, "days to train", "days until the deadline")
    if power is not None:
        drawn = heterogeneous.facility_mw(c.instance)
        yield from at_most("limits[facility_power]", drawn, power, "MW of all pools", "MW at most")


RULES: tuple[Rule, ...] = (shares, batch, layouts, figures, limits)
