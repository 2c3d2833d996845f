"""The reliability section of the plan of a joint solution."""

import math

from planner.models.joint.world import Plan as Choice
from planner.physics.reliability import stops
from planner.plan.reliability import ReliabilityPlan

SECONDS_PER_DAY = 86_400.0
SHORT = {"elastic": "replicas short of racks"}


def reliability_section(choice: Choice, step_days: float) -> ReliabilityPlan | None:
    """Return how a plan meets failures; None where they do not count."""
    u, c, calendar = choice.upkeep, choice.column, choice.column.strategy.problem.calendar
    block = c.strategy.block(c.p)
    if u is None or calendar is None or block is None:
        return None
    way, gpus = u.way, c.d * c.replica_gpus
    scale = gpus * float(stops.scale_factor(calendar.r, gpus))
    interval = float(way.interval_seconds)
    lost = {name: float(x) * step_days for name, x in way.parts.items()}
    lost[SHORT.get(way.recovery, "waiting for racks")] = (u.stretch - float(way.stretch)) * step_days
    return ReliabilityPlan(
        recovery=way.recovery,
        checkpoint_target=way.target,
        checkpoint_interval_seconds=interval if math.isfinite(interval) else None,
        checkpoint_write_seconds=float(way.write_seconds),
        checkpoint_bytes=calendar.state_bytes,
        stop_seconds=1 / float(stops.stops_per_second(calendar.r, gpus)),
        stops_per_day_by_part={
            name: rate * scale * SECONDS_PER_DAY for name, rate in stops.part_stops_per_gpu_second(calendar.r).items()
        },
        restart_seconds=float(way.restart_seconds),
        spare_target=c.sparing.target,
        spare_racks_by_site=u.spare_racks,
        spare_gpus_per_rack=u.rails - block.work_gpus,
        rack_availability=u.rack_availability,
        enough_racks_share=u.standing.enough_share,
        replicas_short=u.standing.replicas_down,
        useful_share=1 / u.stretch,
        lost_days=lost,
        extrapolated=gpus > calendar.r.measured_gpus,
    )
