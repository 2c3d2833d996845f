"""The loop budget -> racks -> fabric -> budget, closed exactly.

Racks are chosen so that the plan's own bill, fabric and all, is within the budget and that of one more module is not.
"""

import math

from planner.plan.certificate import Conflict
from planner.planning.incumbent import Run, in_time, over
from planner.planning.trials import Refusal, Trial

FIRST_GUESS = 0.97  # of the racks that the budget covers with the least fabric
ABOVE = 1.002  # of the racks that like plans tell
EVALUATIONS = 40  # of whole plans on the way to the budget; three to six are usual


def spend(run: Run, most: int) -> Conflict | None:
    """Find the most racks whose whole plan the budget covers: feasible at `low`, not at the next module."""
    low, high = 0, most + run.module
    # From the bills of like plans and a little more, since what is proven of layouts holds for fewer racks; else a
    # guess that the budget is likely to cover, for there to be a plan early.
    estimate = run.learned.racks_for(run.budget)
    first = FIRST_GUESS * most if estimate is None else min(most, estimate * ABOVE)
    guess = max(run.module, int(first) // run.module * run.module)
    for _ in range(EVALUATIONS):
        last = run.at(guess)
        if run.keep(last):
            low = guess
        else:
            high = guess
        if high - low <= run.module:
            break
        if low and run.decider.out_of_time():
            run.stopped = "limit"
            break
        guess = _next_guess(run, last, low, high)
    if run.best is None:
        return _refused(run)
    _climb(run)
    run.learned.keep(run.best.racks, run.best.cost.total_usd)
    return None if in_time(run, run.best) else over(run, run.best)


def _refused(run: Run) -> Conflict:
    """Say why no number of racks gives a plan: what stopped the most racks that the budget might have covered."""
    racks = max(run.tried)
    found = run.tried[racks]
    if isinstance(found, Trial):
        return over(run, found)
    why = found.explain()
    if not why.rules or run.instance.limits.budget_usd is None or why.decision in ("sites", "wan"):
        return why
    reason = f"{why.reason}; the budget of ${run.budget:,.0f} buys {racks:,} racks at most"
    return why.model_copy(update={"rules": tuple(dict.fromkeys((*why.rules, "limits.budget_usd"))), "reason": reason})


def _next_guess(run: Run, last: Trial | Refusal | None, low: int, high: int) -> int:
    """Follow the bill's slope to where it meets the budget, within the bracket; halve it where there is no bill."""
    module = run.module
    if isinstance(last, Trial) and run.budget < math.inf:
        step = (run.budget - last.cost.total_usd) / _usd_of_one_more(run, last)
        guess = last.racks + math.floor(step / module) * module
        if guess <= low and last.racks == low:
            guess = low + module
        elif guess <= low or (guess >= high and high in run.tried):  # the bill jumps between the two
            guess = (low + high) // 2 // module * module
    else:
        guess = high - module if isinstance(last, Trial) else (low + high) // 2 // module * module
    return max(low + module, min(guess, high - module))


def _usd_of_one_more(run: Run, trial: Trial) -> float:
    """Estimate what a rack more costs: the slope to the nearest other bill, or the average where they differ much."""
    usd = trial.cost.total_usd
    bills = [*run.learned.bills, *((t.racks, t.cost.total_usd) for t in run.tried.values() if isinstance(t, Trial))]
    slopes = [
        (abs(racks - trial.racks), (cost - usd) / (racks - trial.racks))
        for racks, cost in bills
        if racks != trial.racks
    ]
    average = usd / trial.racks
    _, each = min(slopes, default=(0, average))
    return each if average / 2 <= each <= average * 2 else average


def _climb(run: Run) -> None:
    """Add modules at any one site while budget and rules allow it: then one more anywhere breaks them."""
    grown = True
    while grown and run.best is not None:
        grown = False
        for site in sorted(run.best.racks_by_site):
            if f"sites.racks.{site}" in run.instance.pins:
                continue
            grown |= _grow(run, site)
            if run.decider.out_of_time():
                run.stopped = "limit"
                return


def _grow(run: Run, site: str) -> bool:
    """Add modules at one site in doubling, then halving steps; return whether any were added."""
    start, step = run.best.racks_by_site if run.best else {}, run.module
    added, most = 0, math.inf
    while added + step < most:
        found = _split_so(run, {**start, site: start[site] + added + step})
        if run.keep(found):
            added, step = added + step, step * 2 if most == math.inf else step
        else:
            most = added + step
        if most < math.inf:
            step = max(run.module, int(most - added) // 2 // run.module * run.module)
        if run.decider.out_of_time():
            break
    return added > 0


def _split_so(run: Run, split: dict[str, int]) -> Trial | Refusal:
    """Take all decisions for racks by site, or return the trial that chose them by itself."""
    same = (t for t in run.tried.values() if isinstance(t, Trial) and t.racks_by_site == split)
    return next(same, None) or run.decider.trial(None, fixed=split)
