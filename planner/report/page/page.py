"""The page of one plan or several: it needs nothing beside itself, and asks for nothing."""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from planner.optional_packages import needed
from planner.plan.plan import Plan
from planner.report.page.blocks import layout as blocks_layout
from planner.report.page.blocks import model_choice, proofs, wan
from planner.report.page.blocks import network as blocks_network
from planner.report.page.blocks import sites as blocks_sites
from planner.report.page.cards import cards, side_by_side
from planner.report.page.parts import Block, Figure, Section, Swatch
from planner.report.plots.page import POLICY, style

STORY = (
    model_choice.choice,
    blocks_sites.sites,
    blocks_sites.scenarios,
    wan.wan,
    blocks_sites.grid,
    blocks_layout.power_and_cost,
    blocks_layout.layout,
    blocks_layout.step,
    blocks_network.fabric,
    model_choice.transport,
    blocks_network.placement,
    proofs.proofs,
    proofs.question,
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
    held: dict[str, Any] = {
        "title": ", ".join(names),
        "policy": POLICY,
        "style": style(),
        "sections": [section(name, plan) for name, (_, plan) in zip(names, plans, strict=True)],
        "comparison": side_by_side(names, [p for _, p in plans]) if len(plans) > 1 else None,
    }
    return template.render(held)


def _unique(place: int, names: Sequence[str]) -> str:
    """Tell plans of one name apart by their place."""
    return names[place] if names.count(names[place]) == 1 else f"{names[place]} ({place + 1})"


def section(name: str, plan: Plan) -> Section:
    """Return the section of one plan."""
    held: list[Block] = [block for part in STORY for block in part(plan)]
    return Section(
        name=name,
        anchor="plan-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"),
        status=plan.status + ("" if plan.stopped == "proved" else f" ({plan.stopped})"),
        good=plan.status in ("optimal", "feasible"),
        headline=_headline(plan),
        cards=cards(plan),
        conflict=None
        if plan.conflict is None
        else (plan.conflict.reason, (plan.conflict.decision, *plan.conflict.rules)),
        blocks=tuple(held),
    )


def _headline(plan: Plan) -> str:
    """Say in a sentence what was planned."""
    parts = []
    if plan.sites is not None and plan.sites.sites:
        held = plan.sites.sites
        parts.append(
            f"{sum(s.racks for s in held):,} racks on {len(held)} site{'s' if len(held) > 1 else ''}: {', '.join(s.id for s in held)}"
        )
    if plan.layout is not None:
        x = plan.layout
        parts.append(f"TP {x.tensor_parallel} x PP {x.pipeline_parallel} x DP {x.data_parallel:,}")
    if plan.fabric is not None:
        parts.append(f"at most {max(len(f.tiers) for f in plan.fabric.sites.values())} tiers of switches")
    return plan.instance.name + ("; " + "; ".join(parts) if parts else "")
