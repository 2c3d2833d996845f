"""The second proofs of a plan: what confirms that no sites, and no fibre between them, are cheaper."""

from planner.models.joint.places.confirm import confirmed as confirmed_split
from planner.models.joint.places.site_question import PlacedParts
from planner.models.joint.sites import Sites
from planner.models.requests import Options
from planner.models.wan import confirmed as confirmed_design
from planner.plan.certificate import ON_TRUST, Certificate
from planner.plan.plan_sections import WanPlan
from planner.solvers.signals import Deadline

SECONDS = 10.0  # that each may take over what HiGHS has proven


def sites_mark(first: Certificate, sites: Sites, placed: PlacedParts, options: Options, spent: float) -> str:
    """Name what confirms the certificate of sites: CP-SAT, or a dual bound in exact arithmetic.

    `spent`: the seconds that the plan took so far.
    """
    left = _seconds_left(first, options, spent)
    return confirmed_split(sites, placed, left) if left > 0 else ON_TRUST


def wan_mark(
    design: WanPlan, sites: Sites, placed: PlacedParts, window_seconds: float, options: Options, spent: float
) -> str:
    """Return the mark of the bound on the fibre between sites.

    The exchange must fit `window_seconds` seconds where one site alone trains. ON_TRUST where no time is left.
    """
    left = _seconds_left(design.certificate, options, spent)
    if left <= 0:
        return ON_TRUST
    request = sites.fibre.request(placed.joined, placed.circuit, window_seconds)
    return confirmed_design(sites.instance, request, design, left, seed=options.seed)


def _seconds_left(first: Certificate, options: Options, spent: float) -> float:
    """Return the seconds that a second proof may take; none where there is no first, or behind a signal."""
    if first.status != "optimal" or options.solver == "highs":
        return 0.0
    limit = options.time_limit
    return Deadline(SECONDS if limit is None else max(0.0, min(SECONDS, limit - spent))).left
