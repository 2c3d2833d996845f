"""Why no split exists: a smallest set of rules that cannot hold together, each of them needed, and the numbers.

The power balance and the tie of modules to open sites are laws, not rules: they hold in every model solved here.
"""

from collections.abc import Collection
from dataclasses import replace

from planner.instance.instance import Instance
from planner.models.requests import Options, SitesRequest
from planner.models.sites.data import SplitData, gather
from planner.models.sites.model import build
from planner.models.sites.rules.registry import RULES
from planner.plan.certificate import Conflict
from planner.solvers import cpsat, highs
from planner.solvers.cpsat_from_pyomo import restate
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome


def conflict(instance: Instance, request: SitesRequest, options: Options) -> Conflict | None:
    """Return a smallest conflict; None where a split exists, or where infeasibility is not proven twice."""
    data, deadline = gather(instance, request), Deadline(options.time_limit)
    if not infeasible(data, RULES, options):
        return None
    rules = _minimal(data, options, deadline)
    if deadline.passed:
        return None
    options = replace(options, time_limit=deadline.limit)
    # The set is judged again on its own: without any one rule a split exists, and another backend finds none with all.
    if not all(feasible(data, rules - {name}, options) for name in rules) or not verified(data, rules, options):
        return None
    # The rules that say most to the user are named first.
    reason = "; ".join(RULES[name].sentence(data) for name in reversed(RULES) if name in rules)
    return Conflict(decision="sites", rules=tuple(sorted(rules)), reason=reason)


def infeasible(data: SplitData, rules: Collection[str], options: Options, *, presolve: bool = True) -> bool:
    """Return whether HiGHS proves that no split satisfies these rules."""
    return _split(data, rules, options, presolve=presolve).infeasible


def feasible(data: SplitData, rules: Collection[str], options: Options) -> bool:
    """Return whether HiGHS has a split that satisfies these rules: without an answer, nothing is known."""
    return _split(data, rules, options).solution is not None


def _split(
    data: SplitData, rules: Collection[str], options: Options, *, presolve: bool = True
) -> Outcome[highs.Values]:
    m = build(data, without=set(RULES) - set(rules))
    return highs.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads, presolve=presolve)


def verified(data: SplitData, rules: Collection[str], options: Options) -> bool:
    """Verify infeasibility by CP-SAT; where rounding to kW hides it there, by HiGHS without presolve."""
    m = restate(build(data, without=set(RULES) - set(rules)))
    second = cpsat.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    return second.infeasible or infeasible(data, rules, options, presolve=False)


def _minimal(data: SplitData, options: Options, deadline: Deadline) -> frozenset[str]:
    """Leave out each rule in turn for good when the rest still conflict: what remains is all needed."""
    rules = frozenset(RULES)
    for name in RULES:
        if deadline.passed:
            break
        options = replace(options, time_limit=deadline.limit)
        if infeasible(data, rules - {name}, options):
            rules = rules - {name}
    return rules
