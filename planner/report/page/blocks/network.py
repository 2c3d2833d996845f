"""Fabric of every site, as pictures."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.report.page.drawings.tiers import tiers
from planner.report.page.parts import Block, Picture

SITES = 4  # whose fabrics are drawn; those of the others are in the tables


def fabric(plan: Plan) -> Iterator[Block]:
    """Show each site's tiers of switches."""
    if plan.fabric is not None:
        by_site = sorted(plan.fabric.sites.items())[:SITES]
        caption = "from the top tier down; between tiers the over-subscription."
        yield Block("Fabric", [Picture(tiers(site, f), f"{site}, {caption}") for site, f in by_site])
