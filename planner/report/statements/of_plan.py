"""The list of all that a plan says, in the order in which it is read."""

from planner.plan.plan import Plan
from planner.report.statements.calendar import calendar
from planner.report.statements.cautions import cautions, implausible_inputs, limits
from planner.report.statements.money import capital, run
from planner.report.statements.network import fabric, placement, transport
from planner.report.statements.sites import purchase, sites, wan
from planner.report.statements.statement import SECTIONS, Statement, proof_of
from planner.report.statements.training import layout, pools
from planner.report.statements.verdict import faults, model_choice, verdict

PARTS = (
    *(faults, verdict, purchase, model_choice, sites, wan, layout, pools, fabric, transport, placement),
    *(calendar, capital, run, limits, implausible_inputs, cautions),
)


def statements(plan: Plan) -> tuple[Statement, ...]:
    """Return all that a plan says, section after section; of a question without an answer why there is none."""
    parts = (faults, verdict, implausible_inputs) if plan.conflict is not None else PARTS
    found = [x for part in parts for x in part(plan)]
    for topic in ("sites", "wan", "layout", "pools", "fabric", "placement"):
        if plan.conflict is None and (section := getattr(plan, topic)) is not None:
            found.append(proof_of(topic, section.certificate))
    return tuple(sorted(found, key=lambda x: SECTIONS.index(x.section)))
