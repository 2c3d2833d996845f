"""Rules of the reliability section: every figure of it recomputed, and no way to go on better than the one taken."""

from collections.abc import Iterator
from dataclasses import replace

from planner.checks.reliability.failures import Failures, at_least, failures_of, mean_short
from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.certificate import Violation
from planner.plan.layout import LayoutPlan
from planner.plan.reliability import ReliabilityPlan

DAY = 86_400.0


def counted(c: PlanPhysics) -> Iterator[Violation]:
    """Check that a plan says how it meets failures where the instance has any, and only there."""
    wanted = failures_of(c.instance) is not None and c.plan.layout is not None
    if wanted != (c.plan.reliability is not None):
        yield broken("counted", f"{int(not wanted)} reliability sections, {int(wanted)} expected")


def _sections(c: PlanPhysics) -> Iterator[tuple[ReliabilityPlan, LayoutPlan, Failures]]:
    """Yield the section with what it rests on, where all of it can be computed with."""
    x, layout, failures = c.plan.reliability, c.plan.layout, failures_of(c.instance)
    if x is not None and layout is not None and failures is not None and not c.faults:
        yield x, layout, _wired(c, failures)


def _wired(c: PlanPhysics, f: Failures) -> Failures:
    """Return the failures of a plan's own fabrics; without one, of that whose links fail least."""
    lanes = [x.lanes for x in c.plan.fabric.sites.values()] if c.plan.fabric else []
    return replace(f, links=max(lanes)) if lanes else f


def lanes(c: PlanPhysics) -> Iterator[Violation]:
    """Check that NICs have as many lanes at every site where links are counted."""
    for _, __, f in _sections(c):
        if f.r.counts_links and c.plan.fabric:
            found = sorted({x.lanes for x in c.plan.fabric.sites.values()})
            if len(found) > 1:
                yield broken("lanes", f"NICs of {found} lanes at the sites; as many at all of them expected")


def stops(c: PlanPhysics) -> Iterator[Violation]:
    """Check how often the job stops, and for which parts."""
    for x, layout, f in _sections(c):
        rate = float(f.rate(layout.gpus_used))
        yield from must_equal("stops", "mean time between stops", x.stop_seconds, 1 / rate, " s")
        yield from must_be("stops", "parts", sorted(x.stops_per_day_by_part), sorted(f.r.parts))
        for name in f.r.parts:
            found = rate * DAY * f.part_rates[name] / f.gpu_rate
            yield from must_equal(f"stops[{name}]", "stops a day", x.stops_per_day_by_part.get(name), found)
        yield from must_be("stops", "extrapolated", x.extrapolated, layout.gpus_used > f.r.measured_gpus)


def checkpoints(c: PlanPhysics) -> Iterator[Violation]:
    """Check the size of a checkpoint, how long it is written and how often, and what a stop costs beside lost work."""
    for x, layout, f in _sections(c):
        gpus, way = float(layout.gpus_used), (x.recovery, x.checkpoint_target)
        yield from must_equal("checkpoints", "bytes of a checkpoint", x.checkpoint_bytes, f.state_bytes)
        wrote = float(f.write_seconds(gpus, way[1]))
        yield from must_equal("checkpoints", "to write one", x.checkpoint_write_seconds, wrote, " s")
        each, shared = gpus / layout.data_parallel, layout.zero_stage > 0
        found = float(f.interval_seconds(gpus, way, layout.metrics.step_seconds, shared=shared, replica_gpus=each))
        stated = x.checkpoint_interval_seconds
        yield from must_equal("checkpoints", "interval", stated, found if found < float("inf") else None, " s")
        yield from must_equal(
            "checkpoints", "cost of a stop", x.restart_seconds, float(f.restart_seconds(gpus, way[0])), " s"
        )


def spares(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the spare racks of every site are there and are the fewest for their target."""
    for x, layout, f in _sections(c):
        own = layout.stages_per_rack * layout.replicas_per_rack * strategy_of(layout).shape.gpus
        work = -(-own // layout.racks_per_replica)
        yield from must_be("spares", "sites", sorted(x.spare_racks_by_site), sorted(c.replicas))
        yield from at_most("spares", work + x.spare_gpus_per_rack, c.gpus_per_rack, "GPUs work and stand by", "GPUs")
        fit = f.rack_availability(work, x.spare_gpus_per_rack)
        yield from must_equal("spares", "share of time in which a rack is fit", x.rack_availability, fit)
        targets = set(f.r.spare_targets)
        if x.spare_target not in targets:
            yield broken("spares", f"a target of {x.spare_target:g}, none of {sorted(targets)}")
        for s, n in sorted(x.spare_racks_by_site.items()):
            needed, rule = c.racks_in_use.get(s, 0), f"spares[{s}]"
            yield from at_most(
                rule, needed + n, c.racks_by_site.get(s, 0), "racks work and stand by", "racks at the site"
            )
            if x.spare_target <= 0 or n < 0:
                yield from must_equal(rule, "spare racks", n, 0)
                continue
            yield from at_most(rule, 1, n, "spare rack under a target", "spare racks")
            reached = at_least(needed, needed + n, fit)
            yield from at_most(rule, x.spare_target, reached, "of the time asked for", "with enough racks")
            if n > 1:
                fewer = at_least(needed, needed + n - 1, fit)
                yield from at_most(rule, fewer, x.spare_target, "of the time with a rack less", "asked for")
        yield from _cabled(c, x)


def _cabled(c: PlanPhysics, x: ReliabilityPlan) -> Iterator[Violation]:
    """Check that what stands by is cabled."""
    for s in sorted(c.plan.fabric.sites) if c.plan.fabric else ():
        need = c.racks_in_use.get(s, 0) + x.spare_racks_by_site.get(s, 0)
        yield from at_most(f"spares[{s}]", need, c.cabled_racks(s), "racks work and stand by", "racks are cabled")
        wired = c.wired_gpus_per_rack(s)
        yield from at_most(f"spares[{s}]", x.spare_gpus_per_rack, wired, "GPUs stand by", "GPUs of a rack are cabled")


def _stretches(c: PlanPhysics, x: ReliabilityPlan, layout: LayoutPlan, f: Failures) -> dict[tuple[str, str], float]:
    """Return the stretch of every way to go on, with what stands by at the sites."""
    there, down = _standing(c, x, layout)
    all_spared = all(n > 0 for n in x.spare_racks_by_site.values())
    gpus, d = float(layout.gpus_used), layout.data_parallel
    found: dict[tuple[str, str], float] = {}
    for way in f.ways(spares=all_spared):
        own = f.stretch(gpus, gpus / d, d, way, layout.metrics.step_seconds, shared=layout.zero_stage > 0)
        left = 1 - down / d if way[0] == "elastic" else there
        found[way] = float(own) / left if left > 0 else float("inf")
    return found


def _standing(c: PlanPhysics, x: ReliabilityPlan, layout: LayoutPlan) -> tuple[float, float]:
    """Return the share of time in which all sites have enough racks, and the mean replicas down for want of racks."""
    there, short = 1.0, 0.0
    for s, n in x.spare_racks_by_site.items():
        needed = c.racks_in_use.get(s, 0)
        there *= at_least(needed, needed + n, x.rack_availability)
        short += mean_short(needed, needed + n, x.rack_availability)
    unit = strategy_of(layout).unit_racks(c.gpus_per_rack)
    return there, short * layout.replicas_per_rack * (unit // layout.racks_per_replica)


def useful_share(c: PlanPhysics) -> Iterator[Violation]:
    """Check the share of time that trains, what the rest goes to, and that no other way to go on trains more."""
    for x, layout, f in _sections(c):
        there, down = _standing(c, x, layout)
        yield from must_equal("useful_share", "share of time with enough racks", x.enough_racks_share, there)
        yield from must_equal("useful_share", "replicas short of racks", x.replicas_short, down)
        ways = _stretches(c, x, layout, f)
        own = ways.get((x.recovery, x.checkpoint_target))
        if own is None:
            yield broken(
                "useful_share", f"{x.recovery} with checkpoints in {x.checkpoint_target}: 0 such ways to go on"
            )
            return
        yield from must_equal("useful_share", "useful share", x.useful_share, 1 / own)
        yield from must_equal("useful_share", "of the metrics", layout.metrics.useful_share, x.useful_share)
        yield from at_most("useful_share", own, min(ways.values()), "seconds a second of steps", "by the best way")
        lost, days = sum(x.lost_days.values()), layout.metrics.days_to_train - layout.metrics.step_days_to_train
        yield from must_equal("useful_share", "days lost by cause against the days beside steps", lost, days)
        for name, n in x.lost_days.items():
            yield from at_most(
                f"useful_share[{name}]", 0.0, n + 1e-9 * layout.metrics.days_to_train, "days", "days lost"
            )


RULES: tuple[Rule, ...] = (counted, lanes, stops, checkpoints, spares, useful_share)
