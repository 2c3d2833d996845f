"""Fabric of every site, as pictures."""

from collections.abc import Iterator

from planner.errors import InputError
from planner.exports.from_plan import built_fabric
from planner.plan.plan import Plan
from planner.report.page.drawings.fabric_tiers import fabric_tiers
from planner.report.page.parts import Block, Picture

SITES = 4  # whose fabrics are drawn; those of the others are in the tables


def fabric(plan: Plan) -> Iterator[Block]:
    """Show each site's tiers of switches; of one that cannot be wired there is no picture."""
    if pictures := list(_pictures(plan)):
        yield Block("Fabric", pictures)


def _pictures(plan: Plan) -> Iterator[Picture]:
    for site in sorted(plan.fabric.sites if plan.fabric else ())[:SITES]:
        try:
            drawn = fabric_tiers(built_fabric(plan, site))
        except (InputError, ValueError):
            continue
        yield Picture(drawn, f"{site}, from the top tier down to the racks of one leaf domain.")
