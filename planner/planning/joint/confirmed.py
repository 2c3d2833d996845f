"""The second proofs of a plan: what confirms that no sites, and no fibre between them, are cheaper."""

from typing import TYPE_CHECKING

from planner.models.joint.places.confirm import confirmed as confirmed_split
from planner.models.joint.places.section import over_the_run
from planner.models.wan.confirm import confirmed as confirmed_design
from planner.physics.site.run_prices import alike_usd
from planner.plan.certificate import Certificate
from planner.plan.declared import ON_TRUST
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanPlan
from planner.solvers.deadline import Deadline

if TYPE_CHECKING:
    from planner.planning.joint.plan import Assembly

SECONDS = 10.0  # that each may take over what HiGHS has proven


def confirmed_sites(a: "Assembly") -> SitesPlan | None:
    """Name in the certificate of proven sites what confirms it: CP-SAT, or a dual bound in exact arithmetic."""
    section, placed = a.sites[0], a.choice.placed
    if section is None or placed is None:
        return None
    left = _seconds_left(a, section.certificate)
    answer = confirmed_split(a.at_sites, placed, left) if left > 0 else ON_TRUST
    made = section.certificate.model_copy(update={"checked": answer})
    if a.instance.objective.minimize == "total_cost_of_ownership_usd":
        made = over_the_run(made, a.value, alike_usd(a.instance, a.counted_years))
    return section.model_copy(update={"certificate": made})


def confirmed_wan(a: "Assembly") -> WanPlan | None:
    """Name the same in the certificate of the fibre between sites."""
    design, placed = a.sites[1], a.choice.placed
    if design is None or placed is None:
        return None
    left = _seconds_left(a, design.certificate)
    if left <= 0:
        return design
    request = a.at_sites.fibre.request(placed.joined, placed.circuit, a.metrics.wan_window_seconds)
    answer = confirmed_design(a.at_sites.instance, request, design, left, seed=a.options.seed)
    return design.model_copy(update={"certificate": design.certificate.model_copy(update={"checked": answer})})


def _seconds_left(a: "Assembly", first: Certificate) -> float:
    """Return the seconds that a second proof may take; none where there is no first, or behind a signal."""
    if first.status != "optimal" or a.options.solver == "highs":
        return 0.0
    limit = a.options.time_limit
    return Deadline(SECONDS if limit is None else max(0.0, min(SECONDS, limit - a.seconds))).left
