"""The page of one plan or several: it needs nothing beside itself, and asks for nothing.

A reader sees first the verdict in one sentence, three figures with their ranges, limits and risks.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.resources import files
from typing import Any

from planner.errors import needed
from planner.plan.plan import Plan
from planner.report.page import blocks
from planner.report.page.blocks import tables
from planner.report.page.elements import Headline, PageFigure, PageRow, PageTable, figure
from planner.report.plots.sweep_plot import POLICY, style
from planner.report.statements.statement import Statement, days, short_percent
from planner.report.summary import by_section, statements
from planner.units import money

# In the order of the page.
BLOCKS = (
    *(blocks.where, blocks.steps, blocks.days_and_money, blocks.fabric, blocks.stops, blocks.scenarios),
    blocks.model,
)
BUILT = ("sites", "wan", "model", "layout", "pools", "fabric")  # sections on purchases and choices


def report_page(plans: Sequence[tuple[str, Plan]], made: date) -> str:
    """Return plans, each with its name, as one HTML page that was made on a date.

    Raise InputError where jinja2 is not installed.
    """
    with needed("report", "jinja2", "report"):
        import jinja2
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests.update(figure=lambda c: isinstance(c, PageFigure))
    template = environment.from_string((files("planner.report.page") / "page.html.jinja").read_text(encoding="utf-8"))
    given = [name for name, _ in plans]
    names = [name if given.count(name) == 1 else f"{name} ({n})" for n, name in enumerate(given, 1)]
    reported = [statements(plan) for _, plan in plans]
    return template.render(
        title=", ".join(names),
        made=f"{made.day} {made:%B %Y}",
        policy=POLICY,
        style=style(),
        sections=[_section(name, plan, own) for name, (_, plan), own in zip(names, plans, reported, strict=True)],
        comparison=side_by_side(names, [p for _, p in plans], reported) if len(plans) > 1 else None,
    )


def _section(name: str, plan: Plan, reported: Sequence[Statement]) -> dict[str, Any]:
    first = [x for x in reported if x.first]
    return {
        "name": name,
        "anchor": "plan-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"),
        "status": plan.status + ("" if plan.stopped == "proved" else f" ({plan.stopped})"),
        "good": plan.status in ("optimal", "feasible") and not plan.violations,
        "unverified": "; ".join(x.text for x in reported if x.kind == "fault"),
        "about": f"{plan.instance.name}, solved by planner {plan.planner_version}",
        "verdict": in_one_sentence(first),
        "instead": [x.text for x in first if x.runner_up and x.topic == "verdict"],
        "headlines": list(headlines(plan)),
        "lists": [
            ("What is built", [x.text for x in first if x.kind == "choice" and x.topic in BUILT]),
            ("Limits", [_on_page(x) for x in first if x.kind == "limit"]),
            ("Risks", [_on_page(x) for x in first if x.kind == "warning"]),
        ],
        "blocks": [block for part in BLOCKS for block in part(plan)],
        "reported": by_section(reported, _with_range),
        "tables": list(tables(plan)),
    }


def _is_compared(x: Statement) -> bool:
    return x.first and (x.kind in ("limit", "warning") or (x.kind == "choice" and x.topic in BUILT))


def _on_page(x: Statement) -> str:
    """Return a statement of the first screen, which sends the reader of a page not to the terminal but further down."""
    return x.text.replace("(--verbose)", "(below, in full)")


def _with_range(x: Statement) -> str:
    if x.interval is None or "likely" in x.text:
        return x.text
    low, high = x.interval
    return f"{x.text} (in all likely {low:.3g} to {high:.3g})"


def in_one_sentence(first: Sequence[Statement]) -> str:
    """Join purchase, sites, price, days and proof of the first screen."""
    parts = [x for x in first if x.topic == "verdict" and x.kind in ("verdict", "choice") and not x.runner_up]
    texts = [x.text for x in sorted(parts, key=lambda x: x.kind == "verdict")]
    sentences = [s.rstrip(".") for text in texts for s in text.split(". ")]
    return "; ".join([sentences[0], *(s[0].lower() + s[1:] for s in sentences[1:])]) + "." if sentences else ""


def headlines(plan: Plan) -> Iterator[Headline]:
    """Yield days with their range, capital against its budget, and how well the GPUs are used, with its range."""
    section, at = (plan.layout.metrics, "layout.metrics") if plan.layout else (plan.pools, "pools")
    if section is None:
        return
    value, (low, high) = section.days_to_train, section.days_to_train_interval
    top = max(high, value)
    shown = figure(f"{at}.days_to_train", value, f"{days(value)} days")
    likely = f"likely {days(low)} to {days(high)} (4 of 5 like runs)"
    yield Headline("Trains in", shown, likely, low / top, high / top, value / top)
    if plan.cost is not None:
        usd, budget = plan.cost.total_usd, plan.instance.limits.budget_usd
        text = "no budget is set"
        if budget:
            left = f"{money(budget - usd)} left" if usd <= budget else f"{money(usd - budget)} over"
            text = f"of a budget of {money(budget)}, {left}"
        shares = (min(1.0, usd / budget), 1.0) if budget else (0.0, 0.0)
        yield Headline("Costs", figure("cost.total_usd", usd, money(usd)), text, 0.0, *shares)
    slow, fast = (value / x for x in (high, low))  # the range of a rate is that of the days, turned over
    if plan.layout is not None:
        mfu = plan.layout.metrics.mfu
        shown = figure("layout.metrics.mfu", mfu, short_percent(mfu))
        text = f"model FLOP utilisation; likely {short_percent(mfu * slow)} to {short_percent(mfu * fast)}"
        yield Headline("Uses of the GPUs' peak", shown, text, mfu * slow, min(1.0, mfu * fast), mfu)
    elif plan.pools is not None:
        seconds = plan.pools.step_seconds
        text = f"likely {seconds / fast:.3g} to {seconds / slow:.3g} s"
        shown = figure("pools.step_seconds", seconds, f"{seconds:.3g} s")
        yield Headline("A step takes", shown, text, low / top, high / top, value / top)


def side_by_side(names: Sequence[str], plans: Sequence[Plan], reported: Sequence[Sequence[Statement]]) -> PageTable:
    """Return the table of plans, a column each: the figures of the first screen, purchases, limits and risks."""
    rows: list[PageRow] = [("status", *(p.status for p in plans))]
    figures = [{h.label: f"{h.figure.text}; {h.range}" for h in headlines(p)} for p in plans]
    for label in dict.fromkeys(label for own in figures for label in own):
        rows.append((label, *(own.get(label, "-") for own in figures)))
    texts = [by_section(filter(_is_compared, own), _on_page) for own in reported]
    for section in dict.fromkeys(name for own in texts for name in own):
        # Sentences are joined by spaces, and phrases by semicolons.
        rows.append((section, *("; ".join(own.get(section, ["-"])).replace(".; ", ". ") for own in texts)))
    return PageTable("Plans side by side", ("", *names), rows, tuple(names))
