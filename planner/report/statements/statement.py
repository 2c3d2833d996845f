"""The type of a statement on a plan, and figures in a reader's words."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from planner.plan.certificate import Certificate
from planner.plan.plan import Plan
from planner.plan.plan_sections import name_of_part
from planner.units import gap, percent

Kind = Literal["fault", "verdict", "figure", "choice", "rejected", "limit", "warning", "proof"]
Topic = Literal[
    "verdict", "model", "sites", "wan", "layout", "pools", "fabric", "transport", "placement", "days", "money"
]
# Limits, warnings and proofs of all topics have a section each.
BY_KIND: dict[Kind, str] = {"limit": "limits", "warning": "warnings", "proof": "proof"}
SECTIONS = (*get_args(Topic), *BY_KIND.values())
CHECKED = {"recomputed": "the checker derives all of it again", "on trust": "on trust to the solver"}
LIKELY = "4 of 5 like measured runs"
SMALL = 5e-4  # share of a total below which a part is left out


class Statement(NamedTuple):
    """A statement that a plan makes; `instead`: of which it is preferred to; `short`: fuller ones follow."""

    kind: Kind
    topic: Topic
    text: str
    first: bool = False
    instead: bool = False
    short: bool = False

    @property
    def section(self) -> str:
        """The section of a summary in which the statement is read."""
        return BY_KIND.get(self.kind, self.topic)


def status_of(plan: Plan) -> str:
    """Write, for statements, a plan's status, and why the search ended where that is no proof."""
    return plan.status + ("" if plan.stopped == "proved" else f" ({plan.stopped})")


def shares_of(parts: Mapping[str, float], total: float, notes: Mapping[str, str], most: int | None = None) -> str:
    """Write, for a statement, the parts of a total by falling share, with notes; beyond `most` the rest in one."""
    large = sorted(((value, name) for name, value in parts.items() if value > SMALL * total), reverse=True)
    shown = large if most is None or len(large) <= most + 1 else large[:most]
    named = [f"{short_percent(value / total)} {name_of_part(name)}{notes.get(name, '')}" for value, name in shown]
    if rest := large[len(shown) :]:
        named.append(f"{short_percent(sum(value for value, _ in rest) / total)} in {len(rest)} other parts")
    return ", ".join(named)


def short_percent(share: float) -> str:
    """Write a share in a statement as whole percent from 10 on, in tenths below."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else percent(share)


def days(value: float) -> str:
    """Write days in a statement: whole ones from a thousand on, in tenths below, short times in three digits."""
    return f"{value:,.0f}" if value >= 999.95 else f"{value:.1f}" if value >= 9.95 else f"{value:.3g}"


def rate(gbps: float) -> str:
    """Write a rate of fibre in Tbps, in tenths; of less than 0.1 Tbps in Gbps, in three digits."""
    return f"{gbps / 1e3:,.1f} Tbps" if gbps >= 100 or gbps == 0 else f"{gbps:.3g} Gbps"


def proof_of(topic: Topic, certificate: Certificate) -> Statement:
    """State the certificate of a decision: status, gap, seconds and solver, and who checked it."""
    proven = "no bound" if certificate.gap is None else f"gap {gap(certificate.gap)}"
    checked = f"; {CHECKED.get(certificate.checked, certificate.checked)}" if certificate.checked else ""
    binds = f"; binding: {', '.join(certificate.binding)}" if certificate.binding else ""
    by = f"{certificate.seconds:,.1f} s by {certificate.solver}"
    return Statement("proof", topic, f"{topic}: {certificate.status}, {proven}, {by}{checked}{binds}")
