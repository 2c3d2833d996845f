"""The page of one plan or several: it needs nothing beside itself, and asks for nothing."""

import re
from collections.abc import Sequence
from datetime import date
from importlib.resources import files
from typing import Any

from planner.optional_packages import needed
from planner.plan.plan import Plan
from planner.report.page.blocks import money, network, steps, stops, where
from planner.report.page.first_screen import (
    BUILT,
    headlines,
    in_one_sentence,
    on_page,
    side_by_side,
    with_range,
)
from planner.report.page.parts import Figure
from planner.report.page.tables import tables
from planner.report.plots.page import POLICY, style
from planner.report.statements.statement import Statement
from planner.report.summary import statements

# In the order of the page: sites, step, days and money, fabric, stops, scenarios, model.
BLOCKS = (
    *(where.where, steps.steps, money.days_and_money, network.fabric),
    *(stops.stops, where.scenarios, money.model),
)


def report_page(plans: Sequence[tuple[str, Plan]], made: date) -> str:
    """Return plans, each with its name, as one HTML page that was made on a date.

    Raises
    ------
    InputError
        jinja2 is not installed.
    """
    with needed("report", "jinja2", "report"):
        import jinja2
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests.update(figure=lambda c: isinstance(c, Figure))
    template = environment.from_string((files("planner.report.page") / "page.html.jinja").read_text(encoding="utf-8"))
    names = [_unique(n, [x for x, _ in plans]) for n in range(len(plans))]
    reported = [statements(plan) for _, plan in plans]
    return template.render(
        title=", ".join(names),
        made=f"{made.day} {made:%B %Y}",
        policy=POLICY,
        style=style(),
        sections=[_section(name, plan, own) for name, (_, plan), own in zip(names, plans, reported, strict=True)],
        comparison=side_by_side(names, [p for _, p in plans], reported) if len(plans) > 1 else None,
    )


def _unique(place: int, names: Sequence[str]) -> str:
    """Return a plan's name, with its place where another plan has the same."""
    return names[place] if names.count(names[place]) == 1 else f"{names[place]} ({place + 1})"


def _section(name: str, plan: Plan, reported: Sequence[Statement]) -> dict[str, Any]:
    """Return what the template shows of one plan."""
    of_kind = {k: [on_page(x) for x in reported if x.kind == k and x.first] for k in ("limit", "warning")}
    by_section: dict[str, list[str]] = {}
    for x in reported:
        by_section.setdefault(x.section, []).append(with_range(x))
    return {
        "name": name,
        "anchor": "plan-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"),
        "status": plan.status + ("" if plan.stopped == "proved" else f" ({plan.stopped})"),
        "good": plan.status in ("optimal", "feasible") and not plan.violations,
        "unverified": "; ".join(x.text for x in reported if x.kind == "fault"),
        "about": f"{plan.instance.name}, solved by planner {plan.planner_version}",
        "verdict": in_one_sentence(reported),
        "instead": [x.text for x in reported if x.first and x.runner_up and x.topic == "verdict"],
        "headlines": list(headlines(plan)),
        "lists": [
            ("What is built", [x.text for x in reported if x.first and x.kind == "choice" and x.topic in BUILT]),
            ("Limits", of_kind["limit"]),
            ("Risks", of_kind["warning"]),
        ],
        "blocks": [block for blocks in BLOCKS for block in blocks(plan)],
        "reported": by_section,
        "tables": list(tables(plan)),
    }
