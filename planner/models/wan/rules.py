"""The rules of the wide area as rows of a Pyomo MILP, one function per rule, named as the rule: a path-flow formulation.

Every demand is spread over options, each a route and under protection the diverse one that stands in for it while an edge
of the first is cut. Wavelengths of an edge carry the largest load of any state, so spare ones are shared between cuts that
do not fall together (shared backup paths). Rates are in Gbps, money in M$.
"""

from collections.abc import Iterator
from typing import Any

import pyomo.environ as pyo

from planner.models.wan.data import Question
from planner.physics.site import fibre

Term = tuple[str, int, float]  # demand, option, rate on the edge


def build(q: Question, *, elastic: bool = False) -> pyo.ConcreteModel:
    """State the question; `elastic` lets edges carry more than can be lit, at a count. It has no objective yet."""
    m = pyo.ConcreteModel()
    choices = [(d, i) for d in q.demands for i in range(len(q.options[d]))]
    m.share = pyo.Var(
        choices, bounds=(0, 1), domain=lambda _, d, *__: pyo.Reals if q.demands[d].priority else pyo.Binary
    )
    edges = sorted({e for d, i in choices for o in [q.options[d][i]] for e in (*o.primary, *(o.backup or ()))})
    m.waves = pyo.Var(edges, domain=pyo.NonNegativeIntegers, bounds=lambda _, e: (0, q.most_waves(q.fibre.edges[e])))
    m.pairs = pyo.Var(edges, domain=pyo.NonNegativeIntegers, bounds=lambda _, e: (0, q.fibre.edges[e].most_pairs))
    m.missing = pyo.Var(edges if elastic else [], domain=pyo.NonNegativeReals)
    for rule in (carried, admitted, capacity, fibre_pairs):
        rule(m, q)
    return m


def shares(m: Any, q: Question, demand: str) -> Any:
    """Share of a demand that is carried."""
    return sum(m.share[demand, i] for i in range(len(q.options[demand])))


def carried(m: Any, q: Question) -> None:
    """Carry the whole gradient exchange, each link of it on one route."""
    m.carried = pyo.Constraint(
        [d for d, x in q.demands.items() if not x.priority and q.options[d]], rule=lambda m, d: shares(m, q, d) == 1
    )


def admitted(m: Any, q: Question) -> None:
    """Admit no more of a demand than is asked."""
    m.admitted = pyo.Constraint(
        [d for d, x in q.demands.items() if x.priority and q.options[d]], rule=lambda m, d: shares(m, q, d) <= 1
    )


def capacity(m: Any, q: Question) -> None:
    """Light each edge for its load in the normal state and while any other edge is cut."""
    rows = loads(q)

    def row(m: Any, e: str, state: str) -> Any:
        missing = [m.missing[e]] if e in m.missing else []
        return (
            sum(rate * m.share[d, i] for d, i, rate in rows[e, state])
            <= sum(missing) + q.wan.wavelength_gbps * m.waves[e]
        )

    m.capacity = pyo.Constraint(list(rows), rule=row)


def fibre_pairs(m: Any, q: Question) -> None:
    """Lease the fibre pairs that the wavelengths fill."""
    m.fibre_pairs = pyo.Constraint(
        list(m.waves), rule=lambda m, e: m.waves[e] <= q.wan.max_wavelengths_per_pair * m.pairs[e]
    )


def loads(q: Question) -> dict[tuple[str, str], list[Term]]:
    """List what loads each edge in each state: `normal`, or the edge that is cut; only states in which the edge stands in for another."""
    options = [(d, i, o, q.cuts(d, i)) for d in q.demands for i, o in enumerate(q.options[d])]
    states: dict[tuple[str, str], str | None] = {}
    for _, _, o, cuts in options:
        states |= {(e, "normal"): None for e in o.primary}
        states |= {(e, c): c for c in cuts for e in o.backup or ()}
    return {key: list(_terms(options, key[0], states[key])) for key in sorted(states)}


def _terms(options: list[Any], edge: str, cut: str | None) -> Iterator[Term]:
    for d, i, o, cuts in options:
        rate = o.rate(edge, cut, cuts)
        if rate:
            yield d, i, rate


def priced(q: Question) -> bool:
    """Tell whether the fibre costs anything."""
    return any(e.pair_usd or e.wavelength_usd for e in q.fibre.edges.values())


def cost(m: Any, q: Question) -> Any:
    """Yearly cost in M$; where nothing is priced, wavelengths times 1000 km."""
    edges = {e: q.fibre.edges[e] for e in m.waves}
    if not priced(q):
        return sum(edges[e].route_km / 1e3 * m.waves[e] for e in edges)
    rates = {e: fibre.yearly_rates(x, q.wan, q.grid) for e, x in edges.items()}
    return sum(rates[e][0] / 1e6 * m.pairs[e] + rates[e][1] / 1e6 * m.waves[e] for e in edges)
