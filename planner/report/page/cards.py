"""The key figures of a plan: the cards of its section, and the rows by which plans stand side by side."""

from collections.abc import Callable, Sequence
from typing import Any

from planner.plan.plan import Plan
from planner.report.page.parts import Cell, Figure, Table, figure, resolved
from planner.report.plots.labels import amount, gap, gigabytes, plain, short, usd


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _count(value: float) -> str:
    return f"{value:,}"


def _days(value: float) -> str:
    return f"{value:,.1f} days"


KEYS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("model compute, 6·N·D in FLOP", "model_choice.flop", lambda v: f"{v:.4g}"),
    ("parameters of the best model", "model_choice.parameters", short),
    ("used of the ideal's compute", "model_choice.compute_shares.used", _percent),
    ("time to train", "layout.metrics.days_to_train", _days),
    ("total cost", "cost.total_usd", usd),
    ("gap, decision by decision", "objective.gap", gap),
    ("gap, all decisions at once", "objective.joint_gap", _percent),
    ("facility power", "sites.sites[*].facility_mw", lambda v: f"{amount(v)} MW"),
    ("racks", "sites.sites[*].racks", _count),
    ("GPUs used", "layout.gpus_used", _count),
    ("GPUs idle", "layout.gpus_idle", _count),
    ("time of a step", "layout.metrics.step_seconds", lambda v: f"{v:,.3f} s"),
    ("model FLOP utilisation", "layout.metrics.mfu", _percent),
    ("tokens a step", "layout.metrics.tokens_per_step", short),
    ("memory of the worst GPU", "layout.metrics.memory_bytes_per_gpu", gigabytes),
    ("switches", "fabric.sites[*].switches", _count),
    ("fibre between sites", "wan.capex_usd", usd),
    ("transport's slowdown, simulated", "transport.slowdown", lambda v: f"{v:.3f} x"),
    ("groups split", "placement.groups_split", _count),
)
WAYS = ("tensor", "context", "expert", "pipeline", "data")
CHOICES = (*(f"{w}_parallel" for w in WAYS), "virtual_stages", "zero_stage", "recompute")


def cards(plan: Plan) -> tuple[Figure, ...]:
    """Return the key figures that a plan has."""
    held = [(path, label, show, resolved(plan, path)) for label, path, show in KEYS]
    found = [figure(path, value, show(value), label) for path, label, show, value in held if value is not None]
    o = plan.objective
    if o.value is not None and o.name not in ("days_to_train", "cost_usd"):  # These two have cards of their own.
        found.insert(0, figure("objective.value", o.value, f"{o.value:,.5g}", plain(o.name)))
    return tuple(found)


def side_by_side(names: Sequence[str], plans: Sequence[Plan]) -> Table:
    """Return the table of plans: a row a figure, a column a plan."""
    rows: list[tuple[Cell, ...]] = [("status", *(p.status for p in plans))]
    for label, path, show in KEYS:
        values = [resolved(p, path) for p in plans]
        if any(v is not None for v in values):
            rows.append((label, *("-" if v is None else show(v) for v in values)))
    rows.append(("sites", *(", ".join(s.id for s in p.sites.sites) if p.sites else "-" for p in plans)))
    for choice in CHOICES:
        values = [resolved(p, f"layout.{choice}") for p in plans]
        if any(v is not None for v in values):
            rows.append((plain(choice), *("-" if v is None else str(v) for v in values)))
    return Table("Key figures and choices of each plan", ("", *names), tuple(rows))
