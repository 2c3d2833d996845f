"""Proofs of a plan, and the question that it answers, as blocks."""

from collections.abc import Iterator

from planner.plan.certificate import Certificate
from planner.plan.plan import Plan
from planner.report.page.parts import Block, Cell, Table, figure
from planner.report.plots.labels import gap, plain, short


def proofs(plan: Plan) -> Iterator[Block]:
    """Show what is proven of each decision, for which givens, and what binds it."""
    held = {
        k: getattr(plan, k).certificate
        for k in ("sites", "wan", "layout", "fabric", "placement")
        if getattr(plan, k) is not None
    }
    if not held:
        return
    head = ("decision", "status", "objective", "bound", "gap", "seconds", "size", "what it measures", "solver")
    table = Table("Certificates", head, tuple(_proof(k, c) for k, c in held.items()), ("what it measures", "solver"))
    binds: tuple[tuple[Cell, ...], ...] = tuple((k, ", ".join(c.binding) or "nothing stated") for k, c in held.items())
    o = plan.objective
    away = f"this one is {100 * (o.joint_gap or 0):.1f} % away."
    notes = (
        ()
        if o.joint_bound is None
        else (f"Over all decisions at once no plan is under {o.joint_bound:,.6g} {plain(o.name)}: {away}",)
    )
    tables = (
        table,
        Table(
            "What binds: rules that hold with equality, or stop the next better decision",
            ("decision", "rules"),
            binds,
            ("rules",),
        ),
    )
    accounts = [(f"{k}: given", c.given) for k, c in held.items() if c.given] + [
        (f"{k}: how it was proven", c.formulation) for k, c in held.items()
    ]
    yield Block("Proofs and what binds", (), tables, notes, tuple(accounts))


def _proof(name: str, c: Certificate) -> tuple[Cell, ...]:
    at = f"{name}.certificate"
    return (
        name,
        c.status,
        "-" if c.objective is None else figure(f"{at}.objective", c.objective, short(c.objective)),
        "-" if c.bound is None else figure(f"{at}.bound", c.bound, short(c.bound)),
        "-" if c.gap is None else figure(f"{at}.gap", c.gap, gap(c.gap)),
        f"{c.seconds:,.1f}",
        f"{c.variables:,} x {c.constraints:,}",
        c.minimizes,
        c.solver,
    )


def question(plan: Plan) -> Iterator[Block]:
    """Show what was asked: limits, workload, hardware, and how the run went."""
    i = plan.instance
    model, accelerator, rack = (
        x if isinstance(x, str) else x.name for x in (i.workload.model, i.hardware.accelerator, i.hardware.rack)
    )
    rows: list[tuple[Cell, ...]] = [
        ("minimises", plain(i.objective.minimize)),
        ("model", model),
        ("training tokens", short(i.workload.tokens)),
    ]
    rows += [("sequence length", f"{i.workload.sequence_length:,}"), ("accelerator", accelerator), ("rack", rack)]
    if i.hardware.racks is not None:
        rows.append(("racks", figure("instance.hardware.racks", i.hardware.racks, f"{i.hardware.racks:,}")))
    for name in ("budget_usd", "facility_power_mw", "deadline_days", "max_batch_tokens"):
        value = getattr(i.limits, name)
        if value is not None:
            rows.append((plain(name), figure(f"instance.limits.{name}", value, short(value))))
    rows += [(f"pin {k}", str(v)) for k, v in sorted(i.pins.items())]
    rows += [("planner", plan.planner_version), ("seed, threads", f"{plan.seed}, {plan.threads}")]
    rows += [("run ended", plan.stopped), ("SHA-256 of the instance", plan.instance_sha256)]
    yield Block("The question", (), (Table("As solved", ("what", "value"), tuple(rows), ("value",)),))
