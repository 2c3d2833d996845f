"""Proofs of a plan, and the request that it answers, as blocks."""

from collections.abc import Iterator

from planner.plan.certificate import Certificate
from planner.plan.plan import Plan
from planner.report.page.parts import Block, Row, Table, figure, figures_of
from planner.report.plots.labels import plain
from planner.units import gap, percent, short


def proofs(plan: Plan) -> Iterator[Block]:
    """Show what is proven of each decision, for which givens, and what binds it."""
    decisions = {k: getattr(plan, k) for k in ("sites", "wan", "layout", "fabric", "placement")}
    certificates: dict[str, Certificate] = {k: x.certificate for k, x in decisions.items() if x is not None}
    if not certificates:
        return
    head = ("decision", "status", "objective", "bound", "gap", "seconds", "size", "what it measures", "solver")
    rows = [_proof(k, c) for k, c in certificates.items()]
    binding = [(k, ", ".join(c.binding) or "nothing stated") for k, c in certificates.items()]
    caption = "What binds: rules that hold with equality, or stop the next better decision"
    tables = (
        Table("Certificates", head, rows, ("what it measures", "solver")),
        Table(caption, ("decision", "rules"), binding, ("rules",)),
    )
    notes, o = [], plan.objective
    if o.joint_bound is not None:
        away = f"this one is {percent(o.joint_gap or 0)} away."
        notes.append(f"Over all decisions at once no plan is under {o.joint_bound:,.6g} {plain(o.name)}: {away}")
    texts = [(f"{k}: given", c.given) for k, c in certificates.items() if c.given]
    texts += [(f"{k}: how it was proven", c.formulation) for k, c in certificates.items()]
    yield Block("Proofs and what binds", (), tables, notes, texts)


def _proof(name: str, c: Certificate) -> Row:
    cell = figures_of(f"{name}.certificate", c)
    size = f"{c.variables:,} x {c.constraints:,}"
    figures = (cell("objective", short), cell("bound", short), cell("gap", gap))
    return (name, c.status, *figures, f"{c.seconds:,.1f}", size, c.minimizes, c.solver)


def request(plan: Plan) -> Iterator[Block]:
    """Show what was asked: limits, workload, hardware, and how the run went."""
    i = plan.instance
    named = {"model": i.workload.model, "accelerator": i.hardware.accelerator, "rack": i.hardware.rack}
    names = {k: x if isinstance(x, str) else x.name for k, x in named.items()}
    rows: list[Row] = [
        ("minimises", plain(i.objective.minimize)),
        ("model", names["model"]),
        ("training tokens", short(i.workload.tokens)),
        ("sequence length", f"{i.workload.sequence_length:,}"),
        ("accelerator", names["accelerator"]),
        ("rack", names["rack"]),
    ]
    if i.hardware.racks is not None:
        rows.append(("racks", figure("instance.hardware.racks", i.hardware.racks, f"{i.hardware.racks:,}")))
    limit = figures_of("instance.limits", i.limits)
    for name in ("budget_usd", "facility_power_mw", "deadline_days", "max_batch_tokens"):
        if getattr(i.limits, name) is not None:
            rows.append((plain(name), limit(name, short)))
    rows += [(f"pin {k}", str(v)) for k, v in sorted(i.pins.items())]
    rows += [("planner", plan.planner_version), ("seed, threads", f"{plan.seed}, {plan.threads}")]
    rows += [("run ended", plan.stopped), ("SHA-256 of the instance", plan.instance_sha256)]
    yield Block("The question", (), (Table("As solved", ("what", "value"), rows, ("value",)),))
