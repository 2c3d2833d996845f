"""The days of a run by what they go to: parts of a step, and what stops cost; they sum to the days on a calendar."""

from dataclasses import dataclass

from planner.plan.plan import Plan

# Parts of a step by the row that they stand in, in the order of the rows.
STEP_PARTS = {
    "compute": ("gemm", "attention", "elementwise", "quantise", "recompute", "head", "optimizer"),
    "tensor exchange": ("tensor_parallel",),
    "context exchange": ("context_parallel",),
    "expert exchange": ("expert_parallel",),
    "data exchange": ("data_parallel",),
    "exchange between sites": ("between_sites",),
    "sharding exchange": ("sharding",),
    "pipeline sends": ("pipeline_send",),
    "pipeline bubble": ("pipeline_bubble", "chunk_wait"),
    "host": ("launch", "cpu_overhead"),
}
OTHER = "other parts of a step"
STEPS, CALENDAR, AWAY = "days of steps", "days on a calendar", "not at work"


@dataclass(frozen=True, slots=True)
class DaysPart:
    """A row: days of a part, or a sum so far."""

    name: str
    days: float
    is_sum: bool = False


def days_by_part(plan: Plan) -> list[DaysPart]:
    """Return the parts of a run in days, none that is 0: those of steps with their sum, what is lost, and the total.

    Where failures do not count, nothing is lost but what workload.availability says.
    """
    if plan.layout is None:
        return []
    m = plan.layout.metrics
    days_per_second = m.step_days_to_train / m.step_seconds
    known = {key for keys in STEP_PARTS.values() for key in keys}
    rows = {name: sum(m.breakdown_seconds.get(key, 0.0) for key in keys) for name, keys in STEP_PARTS.items()}
    rows[OTHER] = sum(v for key, v in m.breakdown_seconds.items() if key not in known)
    found = [DaysPart(name, seconds * days_per_second) for name, seconds in rows.items() if seconds]
    found.append(DaysPart(STEPS, m.step_days_to_train, True))
    lost = {AWAY: m.days_to_train - m.step_days_to_train} if m.useful_share < 1 else {}
    lost = plan.reliability.lost_days if plan.reliability is not None else lost
    found += [DaysPart(name, days) for name, days in lost.items() if days]
    if lost:
        found.append(DaysPart(CALENDAR, m.days_to_train, True))
    return found


def shown_days(total: float, days: float) -> str:
    """Write days with so many digits that small parts of a total are seen."""
    return f"{days:,.{1 if total >= 1000 else 2 if total >= 10 else 3}f}"
