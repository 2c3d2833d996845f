"""The wide area as a Pyomo MILP, one function per rule, named as the rule: a path-flow formulation.

Every demand is spread over options, each a route and under protection the diverse one that backs it up while an edge of
the first is cut. Wavelengths of an edge carry the largest load of any state, so spare ones are shared between cuts that
do not fall together (shared backup paths). Rates are in Gbps, money in M$.
"""

from collections.abc import Iterator
from typing import Any

import pyomo.core as pyo

from planner.models.wan.data import WanData
from planner.physics.site import fibre

Term = tuple[str, int, float]  # demand, option, rate on the edge


def build(data: WanData, *, elastic: bool = False) -> pyo.ConcreteModel:
    """Build the model without an objective; `elastic` lets edges carry more than their wavelengths, as `missing`."""
    m = pyo.ConcreteModel()
    choices = [(d, i) for d in data.demands for i in range(len(data.options[d]))]
    used = [data.options[d][i] for d, i in choices]
    edges = {e: data.fibre.edges[e] for e in sorted({e for o in used for e in (*o.primary, *(o.backup or ()))})}
    m.share = pyo.Var(
        choices, bounds=(0, 1), domain=lambda _, d, *__: pyo.Reals if data.demands[d].priority else pyo.Binary
    )
    m.waves = pyo.Var(
        list(edges), domain=pyo.NonNegativeIntegers, bounds=lambda _, e: (0, data.max_wavelengths(edges[e]))
    )
    m.pairs = pyo.Var(list(edges), domain=pyo.NonNegativeIntegers, bounds=lambda _, e: (0, edges[e].max_pairs))
    m.missing = pyo.Var(list(edges) if elastic else [], domain=pyo.NonNegativeReals)
    for rule in (carried, admitted, capacity, fibre_pairs):
        rule(m, data)
    return m


def shares(m: Any, data: WanData, demand: str) -> Any:
    """Return the share of a demand that is carried."""
    return sum(m.share[demand, i] for i in range(len(data.options[demand])))


def carried(m: Any, data: WanData) -> None:
    """Require the whole gradient exchange, each link of it on one route."""
    links = [d for d, x in data.demands.items() if not x.priority and data.options[d]]
    m.carried = pyo.Constraint(links, rule=lambda m, d: shares(m, data, d) == 1)


def admitted(m: Any, data: WanData) -> None:
    """Limit the traffic admitted to what is requested."""
    traffic = [d for d, x in data.demands.items() if x.priority and data.options[d]]
    m.admitted = pyo.Constraint(traffic, rule=lambda m, d: shares(m, data, d) <= 1)


def capacity(m: Any, data: WanData) -> None:
    """Limit the load of each edge to its wavelengths, in the normal state and while any other edge is cut."""
    terms = loads(data)

    def row(m: Any, e: str, state: str) -> Any:
        missing = [m.missing[e]] if e in m.missing else []
        load = sum(rate * m.share[d, i] for d, i, rate in terms[e, state])
        return load <= sum(missing) + data.wan.wavelength_gbps * m.waves[e]

    m.capacity = pyo.Constraint(list(terms), rule=row)


def fibre_pairs(m: Any, data: WanData) -> None:
    """Limit the wavelengths of each edge to those of its leased fibre pairs."""
    per_pair = data.wan.max_wavelengths_per_pair
    m.fibre_pairs = pyo.Constraint(list(m.waves), rule=lambda m, e: m.waves[e] <= per_pair * m.pairs[e])


def loads(data: WanData) -> dict[tuple[str, str], list[Term]]:
    """Return the terms of each edge's load by state: `normal`, or a cut edge that one of its backups stands in for."""
    options = [(d, i, o, data.cuts(d, i)) for d in data.demands for i, o in enumerate(data.options[d])]
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


def priced(data: WanData) -> bool:
    """Return whether the fibre costs anything."""
    return any(e.pair_usd or e.wavelength_usd for e in data.fibre.edges.values())


def scale(data: WanData) -> float:
    """Return the dollars, or the wavelengths times km where nothing is priced, of one unit of the cost."""
    return 1e6 if priced(data) else 1e3


def cost(m: Any, data: WanData) -> Any:
    """Return the capital or the yearly cost in M$, as asked; where nothing is priced, wavelengths times 1000 km."""
    edges = {e: data.fibre.edges[e] for e in m.waves}
    if not priced(data):
        return sum(edges[e].route_km / 1e3 * m.waves[e] for e in edges)
    rates = {e: (x.pair_usd, x.wavelength_usd) for e, x in edges.items()}
    if not data.request.capital:
        rates = {e: fibre.yearly_rates(x, data.wan, data.grid) for e, x in edges.items()}
    return sum(rates[e][0] / 1e6 * m.pairs[e] + rates[e][1] / 1e6 * m.waves[e] for e in edges)
