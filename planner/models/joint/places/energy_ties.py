"""Of sites that cost alike, those of the cheapest energy: the last tie-break of a plan, once all else is decided."""

from dataclasses import replace
from typing import TypeVar

import pyomo.core as pyo

from planner.models.joint.places.milp import fabric_mw, stated, yearly_energy_musd
from planner.models.joint.places.site_question import PlacedParts, SiteQuestion
from planner.models.joint.sites import Sites, read_placed
from planner.models.joint.world import CENTS, JointPlan
from planner.physics.site import cost
from planner.solvers.outcome import UnansweredError
from planner.solvers.signals import OutOfTimeError

T = TypeVar("T")


def of_cheapest_energy(sites: Sites, plan: JointPlan) -> JointPlan:
    """Return a plan moved to the sites of least yearly energy, of those that hold its parts as near for its capital."""
    # The proof of its capital stays as it is. A plan whose fibre is designed stays where it is: each other set of sites
    # would need a design of its own.
    old = plan.placed
    if old is None or old.proof.bound_usd is None or (sites.designed and len(old.racks) > 1):
        return plan
    if len({sites.data.usd_per_mwh(s) for s in sites.data.candidates}) == 1:
        return plan
    near = None if old.circuit is None else replace(old.circuit, max_rtt_ms=min(old.circuit.max_rtt_ms, old.rtt_ms))
    q = sites.question(old.asked, near, dict(old.designs))
    new = _cheapest(sites, q, old, old.proof.bound_usd + CENTS)
    if new is None or _energy_usd(q, new) >= _energy_usd(q, old) - CENTS:
        return plan
    moved = dict(zip(_by_part(old), _by_part(new), strict=True))

    def at(by_site: dict[str, T]) -> dict[str, T]:
        return {moved[s]: x for s, x in by_site.items()}

    upkeep = plan.upkeep
    return replace(
        plan,
        templates=at(plan.templates),
        blocks_by_site=at(plan.blocks_by_site),
        replicas_by_site=dict(sorted(at(plan.replicas_by_site).items())),
        upkeep=None if upkeep is None else replace(upkeep, spare_racks=at(upkeep.spare_racks)),
        placed=replace(new, circuit=old.circuit, capital_usd=old.capital_usd, proof=old.proof, designs=old.designs),
    )


def _by_part(placed: PlacedParts) -> list[str]:
    return sorted(placed.parts, key=lambda s: (placed.parts[s], s))


def _cheapest(sites: Sites, q: SiteQuestion, old: PlacedParts, most_usd: float) -> PlacedParts | None:
    """Return the sites of least yearly energy cost within `most_usd` of capital; None where there are none."""
    # All parts keep their fabrics.
    m = stated(q)
    fabrics = list(old.parts.values())
    choices = sorted({(k, f) for _, k, f in m.fabric})
    m.same_fabrics = pyo.Constraint(
        choices, rule=lambda m, k, f: sum(m.fabric[x, k, f] for x in q.data.candidates) == fabrics.count((k, f))
    )
    m.as_cheap = pyo.Constraint(expr=m.goal.expr <= most_usd / 1e6)
    m.goal.set_value(yearly_energy_musd(m, q))
    try:
        outcome = sites.run(m)
    except (OutOfTimeError, UnansweredError):
        return None
    if outcome.solution is None:
        return None
    found = read_placed(m, q, outcome)
    return found if found.capital_usd <= most_usd + CENTS else None


def _energy_usd(q: SiteQuestion, placed: PlacedParts) -> float:
    """Price a year's energy of the racks and fabrics at some sites, in dollars."""
    mw = {s: n / q.data.module_racks * q.data.module_mw for s, n in placed.racks.items()}
    for s, (k, f) in placed.parts.items():
        mw[s] += fabric_mw(q, k, f)
    return sum(cost.energy_usd_per_year(x, q.data.usd_per_mwh(s)) for s, x in mw.items())
