"""The worked plan of an instance whose parts fail: its section on stops from physics, none of it from a solver."""

import math
from functools import cache
from typing import Any

from worked_plan import edited, small

from planner.instance.reliability import Reliability
from planner.physics import recovery
from planner.physics.plan_physics import PlanPhysics
from planner.physics.recovery import CheckpointedJob, Way, ways
from planner.physics.training.transformer import total_parameters
from planner.plan.plan import Plan

RATES: dict[str, Any] = {
    "name": "toy",
    "parts": {"gpu": {"gpu_hours_per_event": 1000, "repair_hours": 2},
     "host": {"gpu_hours_per_event": 5000, "repair_hours": 1, "out": "rack"}, "software": {"gpu_hours_per_event": 900},
     "switch-and-cable": {"gpu_hours_per_event": 4000}, "maintenance": {"gpu_hours_per_event": 7000},
     "nic": {"gpu_hours_per_event": 9000}},
    "measured_gpus": 8,
    "correlated_share": 0.05,
    "detection_seconds": 20,
    "restart_seconds": 200,
    "restart_seconds_per_gpu": 1,
    "warm_restart_seconds": 30,
    "elastic_stall_seconds": 120,
    "rejoin_seconds": 600,
    "storage_bytes_per_second_per_gpu": 1e5,
    "memory_bytes_per_second_per_gpu": 1e6,
    "spare_targets": [0.0, 0.9],
}  # fmt: skip
SHORT = {"elastic": "replicas short of racks"}


@cache
def failing(*recoveries: str, target: float = 0.9) -> Plan:
    """Work out the plan with the best of some ways to go on, and spares for a share of time."""
    rates = RATES | {"recoveries": list(recoveries)}
    plan, r = small(reliability=rates), Reliability.model_validate(rates)
    layout, racks, p = plan.layout, PlanPhysics(plan=plan).racks_in_use, plan.instance.workload.precision
    fit, d, m = recovery.rack_availability(r, 4, 0), layout.data_parallel, layout.metrics
    count = {s: recovery.min_spares(n, fit, target) for s, n in racks.items()}
    enough = math.prod(recovery.enough_share(n, count[s], fit) for s, n in racks.items())
    short = layout.replicas_per_rack * sum(recovery.mean_short(n, count[s], fit) for s, n in racks.items())
    state = total_parameters(plan.instance.workload.model) * (p.parameter_bytes + p.optimizer_bytes)
    job = CheckpointedJob(
        r=r, gpus=float(layout.gpus_used), replica_gpus=layout.gpus_used / d, state_bytes=state, replicas=d,
        step_seconds=m.step_seconds, shares_state=True,
    )  # fmt: skip

    def there(way: Way) -> float:
        return 1 - short / d if way.recovery == "elastic" else enough

    way = min(ways(job, spares=all(count.values())), key=lambda w: float(w.stretch) / there(w))
    stretch, days = float(way.stretch) / there(way), m.step_days_to_train
    lost = {name: float(n) * days for name, n in recovery.losses(job, way).items()}
    lost[SHORT.get(way.recovery, "waiting for racks")] = (stretch - float(way.stretch)) * days
    rate = float(job.stops_per_second) / recovery.stops_per_gpu_second(r)
    section = {
        "recovery": way.recovery, "checkpoint_target": way.target,
        "checkpoint_interval_seconds": float(way.interval_seconds),
        "checkpoint_write_seconds": float(job.write_seconds(way.target)), "checkpoint_bytes": state,
        "stop_seconds": 1 / float(job.stops_per_second),
        "stops_per_day_by_part": {k: v * rate * 86_400 for k, v in recovery.part_stops_per_gpu_second(r).items()},
        "restart_seconds": float(job.restart_seconds(way.recovery)),
        "spare_target": target, "spare_racks_by_site": count, "spare_gpus_per_rack": 0,
        "rack_availability": fit, "enough_racks_share": enough, "replicas_short": short,
        "useful_share": 1 / stretch, "lost_days": lost, "extrapolated": layout.gpus_used > r.measured_gpus,
    }  # fmt: skip
    figures = {"days_to_train": days * stretch, "useful_share": 1 / stretch}
    on_clock = {f"layout__metrics__{name}": value for name, value in figures.items()}
    ends = tuple(x * stretch for x in m.days_to_train_interval)
    on_clock |= {"objective__value": days * stretch, "layout__metrics__days_to_train_interval": ends}
    on_clock |= {f"{part}__certificate__objective": days * stretch for part in ("layout", "fabric", "placement")}
    return edited(plan, reliability=section, **on_clock)
