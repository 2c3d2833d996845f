"""The page of one plan or several: it needs nothing beside itself, and asks for nothing."""

import re
from collections.abc import Sequence
from importlib.resources import files

from planner.optional_packages import needed
from planner.plan.certificate import disagreement
from planner.plan.plan import Plan
from planner.report.page.blocks import calendar, layout, model_choice, network, proofs, sites, wan
from planner.report.page.cards import cards, side_by_side
from planner.report.page.parts import Figure, Section, Swatch
from planner.report.plots.page import POLICY, style
from planner.units import counted

# In the order of the page.
BLOCKS = (
    *(model_choice.model_choice, sites.sites, sites.scenarios, wan.wan, sites.grid),
    *(layout.power_and_cost, layout.layout, layout.step, calendar.calendar),
    *(network.fabric, model_choice.transport, network.placement),
    *(proofs.proofs, proofs.request),
)


def report_page(plans: Sequence[tuple[str, Plan]]) -> str:
    """Return plans, each with its name, as one HTML page.

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
    environment.tests.update(figure=lambda c: isinstance(c, Figure), swatch=lambda c: isinstance(c, Swatch))
    template = environment.from_string((files("planner.report.page") / "page.html.jinja").read_text(encoding="utf-8"))
    names = [_unique(n, [x for x, _ in plans]) for n in range(len(plans))]
    return template.render(
        title=", ".join(names),
        policy=POLICY,
        style=style(),
        sections=[section(name, plan) for name, (_, plan) in zip(names, plans, strict=True)],
        comparison=side_by_side(names, [p for _, p in plans]) if len(plans) > 1 else None,
    )


def _unique(place: int, names: Sequence[str]) -> str:
    """Return a plan's name, with its place where another plan has the same."""
    return names[place] if names.count(names[place]) == 1 else f"{names[place]} ({place + 1})"


def section(name: str, plan: Plan) -> Section:
    """Return the section of one plan."""
    why, stated = plan.conflict, plan.status + ("" if plan.stopped == "proved" else f" ({plan.stopped})")
    return Section(
        name=name,
        anchor="plan-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"),
        status=("not verified; " if plan.violations else "") + stated,
        good=plan.status in ("optimal", "feasible") and not plan.violations,
        headline="; ".join([*(line.strip() for line in disagreement(plan.violations)), _headline(plan)]),
        cards=cards(plan),
        conflict=None if why is None else (why.reason, (why.decision, *why.rules)),
        blocks=tuple(block for blocks in BLOCKS for block in blocks(plan)),
    )


def _headline(plan: Plan) -> str:
    """Return a sentence that says what was planned."""
    parts = [plan.instance.name]
    if plan.sites is not None and plan.sites.sites:
        chosen = plan.sites.sites
        racks = f"{sum(s.racks for s in chosen):,} racks on {counted(len(chosen), 'site')}"
        parts.append(f"{racks}: {', '.join(s.id for s in chosen)}")
    if plan.layout is not None:
        x = plan.layout
        degrees = [("TP", x.tensor_parallel), ("CP", x.context_parallel), ("EP", x.expert_parallel)]
        degrees += [("PP", x.pipeline_parallel), ("DP", x.data_parallel)]
        parts.append(" x ".join(f"{name} {n:,}" for name, n in degrees if n > 1 or name not in ("CP", "EP")))
    if plan.fabric is not None:
        parts.append(f"at most {max(len(f.tiers) for f in plan.fabric.sites.values())} tiers of switches")
    return "; ".join(parts)
