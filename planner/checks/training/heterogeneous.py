"""Rules of pools of different GPUs: shares that make up the batch, and for each pool every rule of a layout, its own rack and GPU in it."""

from collections.abc import Iterator

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.checks.training import layout
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import heterogeneous, layer_time
from planner.plan.certificate import Violation
from planner.plan.layout import PoolsPlan


def _alone(c: PlanPhysics, held: PoolsPlan) -> dict[str, PlanPhysics]:
    """Return each pool's layout as the plan of a question of its own, of pools that the instance has and that hold a share."""
    found = {}
    for p in c.instance.hardware.pools:
        if p.name in held.layouts and held.sequences.get(p.name, 0) > 0:
            asked = heterogeneous.pool_instance(c.instance, p, held.sequences[p.name])
            found[p.name] = PlanPhysics(
                plan=c.plan.model_copy(update={"instance": asked, "layout": held.layouts[p.name], "pools": None})
            )
    return found


def shares(c: PlanPhysics) -> Iterator[Violation]:
    """Give every pool its share of the batch in whole sequences, and a layout where it has one; its layout takes just that many."""
    held = c.plan.pools
    if held is None:
        return
    names = sorted(p.name for p in c.instance.hardware.pools)
    yield from must_be("shares", "pools with a share", sorted(held.sequences), names)
    yield from must_be(
        "shares", "pools with a layout", sorted(held.layouts), sorted(n for n, x in held.sequences.items() if x > 0)
    )
    for name, x in sorted(held.sequences.items()):
        if x < 0:
            yield broken(f"shares[{name}]", f"{x:,} sequences < 0")
    for name, y in sorted(held.layouts.items()):
        taken = y.data_parallel * y.microbatches_per_step * y.microbatch_sequences
        yield from must_equal(
            f"shares[{name}]", "sequences against those of its layout", held.sequences.get(name), taken
        )


def batch(c: PlanPhysics) -> Iterator[Violation]:
    """Keep the tokens of all shares within the critical batch, and state their sum."""
    held, limit = c.plan.pools, c.instance.limits.max_batch_tokens
    if held is None:
        return
    tokens = sum(held.sequences.values()) * c.instance.workload.sequence_length
    yield from must_equal("batch", "tokens_per_step against the sum of the shares", held.tokens_per_step, float(tokens))
    if limit is not None:
        yield from at_most("batch", tokens, limit, "tokens a step", "tokens of the critical batch")


def layouts(c: PlanPhysics) -> Iterator[Violation]:
    """Hold every rule of a layout in every pool: memory and step time as physics predicts them for its GPU."""
    for name, own in _alone(c, c.plan.pools).items() if c.plan.pools else ():
        for rule in layout.RULES:
            yield from (v.model_copy(update={"rule": f"pools[{name}].{v.rule}"}) for v in rule(own))


def _times(c: PlanPhysics) -> tuple[dict[str, float], dict[str, float]] | None:
    """Return step and exchange of each pool that trains, from physics; None where a layout cannot be computed with."""
    held = c.plan.pools
    if held is None:
        return None
    alone = _alone(c, held)
    figures = {name: own.metrics for name, own in alone.items()}
    if not alone or set(alone) != set(held.layouts) or any(m is None for m in figures.values()):
        return None
    steps = {n: m.step_seconds for n, m in figures.items() if m}
    link = c.instance.hardware.pool_link
    waits = {
        n: heterogeneous.exchange_seconds(link, m, max(held.layouts[n].layers_per_stage), len(steps))
        for n, m in figures.items()
        if m
    }
    return steps, waits


def days(c: PlanPhysics) -> float | None:
    """Return the days to train as recomputed: steps of the slowest pool and the longest exchange."""
    held, times = c.plan.pools, _times(c)
    if held is None or times is None:
        return None
    w = c.instance.workload
    tokens = sum(held.sequences[n] for n in times[0]) * w.sequence_length
    return layer_time.days_to_train(w.tokens, tokens, max(times[0].values()) + max(times[1].values()), w.availability)


def figures(c: PlanPhysics) -> Iterator[Violation]:
    """State exchanges, step and days to train as they follow from the pools' layouts."""
    held, times = c.plan.pools, _times(c)
    if held is None or times is None:
        return
    steps, waits = times
    for name in sorted(set(waits) | set(held.exchange_seconds)):
        yield from must_equal(
            f"figures[exchange_seconds.{name}]",
            "exposed exchange",
            held.exchange_seconds.get(name),
            waits.get(name),
            " s",
        )
    slowest = max(steps.values()) + max(waits.values())
    yield from must_equal(
        "figures[step_seconds]", "slowest pool and longest exchange", held.step_seconds, slowest, " s"
    )
    yield from must_equal("figures[days_to_train]", "days_to_train", held.days_to_train, days(c))


def limits(c: PlanPhysics) -> Iterator[Violation]:
    """Train in time, and within the power of all pools together."""
    deadline, power, found = c.instance.limits.deadline_days, c.instance.limits.facility_power_mw, days(c)
    if c.plan.pools is None:
        return
    if deadline is not None and found is not None:
        yield from at_most("limits[deadline]", found, deadline, "days to train", "days until the deadline")
    if power is not None:
        yield from at_most(
            "limits[facility_power]", heterogeneous.facility_mw(c.instance), power, "MW of all pools", "MW at most"
        )


RULES: tuple[Rule, ...] = (shares, batch, layouts, figures, limits)
