"""Leave out of a question the pairs of sites whose fibre costs more than it can be worth.

Over a hundred zones have thousands of pairs, each a variable and two rows. The same question without fibre is small and
bounds the capital from below; with the cheapest pairs alone it is small too, and bounds it from above. A pair whose
fibre alone costs more than the difference of the two is lit in no cheapest answer.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.models.joint.places.site_question import SiteQuestion
from planner.solvers.outcome import Outcome

MANY_PAIRS = 500  # below it the question whole is solved as fast as the one without fibre
GROWTH = 4  # of the pairs tried, until sites are found: each try costs a little more than the one before
CENT_MUSD = 1e-8


def without_dear_pairs(
    q: SiteQuestion, state: Callable[[SiteQuestion], Any], solve: Callable[[Any], Outcome[Any]]
) -> SiteQuestion | None:
    """Return the question without the pairs that cost too much; None where no sites hold the parts, fibre or none."""
    if q.circuit is None or q.designs or len(q.data.pairs) < MANY_PAIRS:
        return q
    without_fibre = solve(state(replace(q, circuit=None)))
    if without_fibre.infeasible:
        return None
    usd, limit = {p: q.pair_usd.get(p, 0.0) for p in q.data.pairs}, q.circuit.max_rtt_ms
    prices = sorted(x for p, x in usd.items() if q.data.rtt_ms(p) <= limit and math.isfinite(x))
    count = len(q.data.candidates)
    while without_fibre.bound is not None and count < len(prices):
        most = prices[count]
        few = solve(state(_up_to(q, usd, most)))
        if few.objective is not None:
            worth = 1e6 * (few.objective - without_fibre.bound + CENT_MUSD)
            return _up_to(q, usd, worth)
        count *= GROWTH
    return q


def nearer_pairs_first(q: SiteQuestion, most_usd: float) -> list[SiteQuestion]:
    """List questions that decide together if `most_usd` pays the fibre; the last has every pair that it may pay."""
    # Where there are many pairs easier questions precede it: one without fibre, which may already be infeasible, and
    # some with ever more of the cheapest pairs, which may already suffice.
    if q.circuit is None:
        return [q]
    whole = _up_to(q, {p: q.pair_usd.get(p, 0.0) for p in q.data.pairs}, most_usd)
    prices = sorted(x for p, x in whole.pair_usd.items() if q.data.rtt_ms(p) <= q.circuit.max_rtt_ms and x < math.inf)
    if len(prices) < MANY_PAIRS:
        return [whole]
    counts, count = list[int](), len(q.data.candidates)
    while count < len(prices):
        counts.append(count)
        count *= GROWTH
    return [replace(q, circuit=None), *(_up_to(q, dict(whole.pair_usd), prices[n]) for n in counts), whole]


def _up_to(q: SiteQuestion, usd: dict[tuple[str, str], float], most: float) -> SiteQuestion:
    """Return the question restricted to pairs of sites whose fibre costs at most `most` USD."""
    return replace(q, pair_usd={p: x if x <= most else math.inf for p, x in usd.items()})
