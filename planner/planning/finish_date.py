"""The goal finish_date: when the hardware, sites, lines and upgrades of a plan are ready, and what to wait for.

A plan of the goal `finish_date` (days from the decision until the model is trained, the wait for what is bought
included) may wait for a late site or do without it. Of all plans in which nothing comes later than some month, the one
of the fewest days of training finishes soonest, so that one question for each month at which something becomes ready,
in the order of the months, finds the soonest finish; a later month only for plans that finish before the best so far.
"""

import math

from planner.instance.hardware import DAYS_A_MONTH
from planner.instance.instance import Instance
from planner.plan.plan_sections import SitesPlan

FINISH_DATE = "finish_date"


def start_days(instance: Instance, sites: SitesPlan | None) -> float:
    """Return when a plan starts, for its finish date: days until hardware, sites, lines and upgrades are ready."""
    months = [instance.hardware.ready_months]
    if instance.grid is not None and sites is not None:
        nodes = {node.id: node for node in instance.grid.nodes}
        lines = {line.id: line for line in instance.grid.new_lines}
        months += [nodes[site.id].ready_months for site in sites.sites]
        months += [lines[built.line].lead_months for built in sites.new_lines]
        months += [upgrade.lead_months for step in sites.upgrades if (upgrade := nodes[step.node].upgrade) is not None]
    return max(months) * DAYS_A_MONTH


def latest_start_months(instance: Instance) -> float:
    """Return the latest start for the soonest finish date, in months; the hardware's for other goals."""
    months = [instance.hardware.ready_months]
    if instance.objective.minimize == FINISH_DATE and instance.grid is not None:
        months += instance.grid.lead_months
    return max(months)


def latest_start_days(instance: Instance) -> float:
    """Return the latest start for the soonest finish date, in days from the decision."""
    return latest_start_months(instance) * DAYS_A_MONTH


def each_start(instance: Instance) -> list[Instance]:
    """List the questions of a finish date, one a month at which something becomes ready, without what is later."""
    grid, ready = instance.grid, instance.hardware.ready_months
    if instance.objective.minimize != FINISH_DATE or grid is None:
        return [instance]
    starts = sorted({max(ready, months) for months in grid.lead_months})
    own = math.inf if grid.rules.ready_within_months is None else grid.rules.ready_within_months
    each = [grid.rules.replaced(ready_within_months=min(months, own)) for months in starts[:-1]]
    return [*(instance.replaced(grid__rules=rules) for rules in each), instance]


def ready_in(instance: Instance, months: float) -> list[str]:
    """Name what a finish date may wait for in a month: sites, new lines, upgrades and hardware that get ready."""
    names = ["the hardware"] if months and instance.hardware.ready_months == months else []
    if instance.grid is not None:
        nodes = instance.grid.nodes
        names += [node.id for node in nodes if node.site and node.ready_months == months]
        names += [line.id for line in instance.grid.new_lines if line.lead_months == months]
        names += [f"upgrade of {node.id}" for node in nodes if node.upgrade and node.upgrade.lead_months == months]
    return names
