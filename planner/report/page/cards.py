"""The key figures of a plan: the cards of its section, and the rows by which plans stand side by side."""

from collections.abc import Callable, Sequence
from typing import Any

from planner.plan.plan import Plan
from planner.report.page.parts import Figure, Row, Table, figure, value_at
from planner.report.plots.labels import plain
from planner.units import amount, gap, memory, money, percent, short

KEYS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("model compute, 6·N·D in FLOP", "model_choice.flop", "{:.4g}".format),
    ("parameters of the best model", "model_choice.parameters", short),
    ("used of the ideal's compute", "model_choice.compute_shares.used", percent),
    ("time to train", "layout.metrics.days_to_train", "{:,.1f} days".format),
    ("of steps alone", "layout.metrics.step_days_to_train", "{:,.1f} days".format),
    ("time that trains", "layout.metrics.useful_share", percent),
    ("total cost", "cost.total_usd", money),
    ("total cost of ownership of the run", "run.total_cost_of_ownership_usd", money),
    ("a million tokens", "run.usd_per_million_tokens", "${:,.2f}".format),
    ("energy of the run", "run.energy_mwh", lambda v: f"{amount(v)} MWh"),
    ("gap to the proven bound", "objective.gap", gap),
    ("gap, all decisions at once", "objective.joint_gap", percent),
    ("facility power", "sites.sites[*].facility_mw", lambda v: f"{amount(v)} MW"),
    ("racks", "sites.sites[*].racks", "{:,}".format),
    ("GPUs used", "layout.gpus_used", "{:,}".format),
    ("GPUs idle", "layout.gpus_idle", "{:,}".format),
    ("time of a step", "layout.metrics.step_seconds", "{:,.3f} s".format),
    ("model FLOP utilisation", "layout.metrics.mfu", percent),
    ("tokens a step", "layout.metrics.tokens_per_step", short),
    ("memory of the worst GPU", "layout.metrics.memory_bytes_per_gpu", memory),
    ("switches", "fabric.sites[*].switches", "{:,}".format),
    ("fibre between sites", "wan.capex_usd", money),
    ("transport's slowdown, simulated", "transport.slowdown", "{:.3f} x".format),
    ("groups split", "placement.groups_split", "{:,}".format),
)
DEGREES = tuple(f"{kind}_parallel" for kind in ("tensor", "context", "expert", "pipeline", "data"))
CHOICES = (*DEGREES, "virtual_stages", "zero_stage", "recompute")


def cards(plan: Plan) -> tuple[Figure, ...]:
    """Return the key figures that a plan has; days of steps only where they are not those on a calendar."""
    own = {"layout.metrics.step_days_to_train", "layout.metrics.useful_share"}
    left_out = own if value_at(plan, "layout.metrics.useful_share") == 1 else set()
    values = [(path, label, show, value_at(plan, path)) for label, path, show in KEYS if path not in left_out]
    figures = [figure(path, value, show(value), label) for path, label, show, value in values if value is not None]
    o = plan.objective
    if o.value is not None and o.name not in ("days_to_train", "cost_usd"):  # These two have cards of their own.
        figures.insert(0, figure("objective.value", o.value, f"{o.value:,.5g}", plain(o.name)))
    return tuple(figures)


def side_by_side(names: Sequence[str], plans: Sequence[Plan]) -> Table:
    """Return the table of plans: a row a figure, a column a plan."""

    def row(label: str, path: str, show: Callable[[Any], str]) -> list[Row]:
        values = [value_at(p, path) for p in plans]
        return [] if all(v is None for v in values) else [(label, *("-" if v is None else show(v) for v in values))]

    rows: list[Row] = [("status", *(p.status for p in plans))]
    for key in KEYS:
        rows += row(*key)
    rows.append(("sites", *(", ".join(s.id for s in p.sites.sites) if p.sites else "-" for p in plans)))
    for choice in CHOICES:
        rows += row(plain(choice), f"layout.{choice}", str)
    return Table("Key figures and choices of each plan", ("", *names), rows)
