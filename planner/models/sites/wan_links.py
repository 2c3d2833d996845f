"""What joins the open sites in the split's MILP: pairs, their wavelengths and fibre pairs, and what the fibre cannot join."""

from collections.abc import Collection
from typing import Any

import pyomo.environ as pyo

from planner.models.sites.bounds import apart, least_sites, most_sites
from planner.models.sites.data import Question
from planner.physics.site import wan


def variables(m: Any, q: Question, without: Collection[str], exact: int | None) -> None:
    """Create pairs, their wavelengths and fibre pairs, and what the number of sites is at least.

    A ring over n sites sends 2·(n-1)/n of the gradient over each link, so the need grows with the number of open sites.
    The need of a pair is a constant for each number of sites, so pairs, wavelengths and fibres come out whole by themselves.
    """
    m.most_sites = most_sites(q, without) if exact is None else exact
    least = exact or least_sites(q, without)
    # Measured: what a known number of sites says of pairs decides whether it is proven in a second or in minutes.
    m.known_sites = 1 < least == m.most_sites and "wan_capacity" not in without
    m.levels = levels(q, m.most_sites, least if m.known_sites else exact or 2)
    lit = [
        pair
        for pair, waves in m.levels.items()
        if waves[0][1] is not None and not (m.known_sites and _barred(q, pair, without, exact))
    ]
    m.pair = pyo.Var(lit, domain=pyo.NonNegativeReals, bounds=(0, 1))
    if m.known_sites:
        _mesh(m, q, least)
        return
    m.joined = pyo.Constraint(lit, rule=lambda m, a, b: m.pair[a, b] >= m.open[a] + m.open[b] - 1)
    m.wavelengths = pyo.Var(
        lit, domain=pyo.NonNegativeReals, bounds=(0, q.wan.max_wavelengths_per_pair * q.wan.max_fibre_pairs)
    )
    m.fibres = pyo.Var(lit, domain=pyo.NonNegativeReals, bounds=(0, q.wan.max_fibre_pairs))
    counts = sorted({n for waves in m.levels.values() for n, _ in waves if n > 2})
    m.at_least = pyo.Var(counts, domain=pyo.Binary)
    m.counted = pyo.Constraint(
        counts, rule=lambda m, n: sum(m.open.values()) <= n - 1 + (m.most_sites - n + 1) * m.at_least[n]
    )


def _barred(q: Question, pair: tuple[str, str], without: Collection[str], exact: int | None) -> bool:
    """Tell whether another rule lets no two such sites be open together."""
    limit = q.grid.rules.max_rtt_ms
    far = "rtt" not in without and limit is not None and q.rtt_ms(pair) > limit
    return far or (apart(q, without, exact) is not None and q.interconnection(pair[0]) == q.interconnection(pair[1]))


def _mesh(m: Any, q: Question, sites: int) -> None:
    """Join each open site to the `sites` - 1 others; a pair has one need, so its wavelengths and fibres are that of its being joined.

    Of two sites, the sums alone say which pair it is; of more, they are implied for whole sites, and are what makes the
    relaxation price links at all. A pair that cannot be lit, or that a rule bars, has no variable, and cannot be open.
    """
    waves = {pair: m.levels[pair][0][1] for pair in m.pair}
    m.wavelengths = pyo.Expression(list(m.pair), rule=lambda m, a, b: waves[a, b] * m.pair[a, b])
    m.fibres = pyo.Expression(list(m.pair), rule=lambda m, a, b: wan.fibre_pairs(q.wan, waves[a, b]) * m.pair[a, b])
    around: dict[str, list[tuple[str, str]]] = {s: [p for p in m.pair if s in p] for s in q.candidates}
    priced = q.request.exchange is not None
    m.mesh = pyo.Constraint(
        list(around) if priced else [],
        rule=lambda m, s: sum(m.pair[p] for p in around[s]) == (sites - 1) * m.open[s] if around[s] else m.open[s] <= 0,
    )
    several = list(m.pair) if sites > 2 else []
    m.joined = pyo.Constraint(several, rule=lambda m, a, b: m.pair[a, b] >= m.open[a] + m.open[b] - 1)
    m.within = pyo.Constraint([(*p, s) for p in several for s in p], rule=lambda m, a, b, s: m.pair[a, b] <= m.open[s])


def levels(q: Question, sites: int, least: int = 2) -> dict[tuple[str, str], list[tuple[int, int | None]]]:
    """List for each pair the numbers of sites from which it needs more wavelengths, with that need; None: cannot be lit.

    The first is listed as 2, whatever the least number of sites is.
    """
    found: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
    for pair in q.pairs if sites >= 2 and q.request.exchange is not None else ():
        steps: list[tuple[int, int | None]] = []
        for n in range(least, sites + 1):
            waves = q.wavelengths(pair, n)
            if not steps or steps[-1][1] != waves:
                steps.append((n if steps else 2, waves))
            if waves is None:
                break
        found[pair] = steps
    return found


def wan_capacity(m: Any, q: Question) -> None:
    """Light each open pair for its exchange; a pair that cannot be lit cannot be open."""

    def needed(m: Any, a: str, b: str, n: int) -> Any:
        return m.pair[a, b] if n == 2 else m.pair[a, b] + m.at_least[n] - 1

    def row(m: Any, a: str, b: str, n: int) -> Any:
        waves = dict(m.levels[a, b])[n]
        if waves is None:
            return m.open[a] + m.open[b] + (m.at_least[n] if n > 2 else 0) <= (2 if n > 2 else 1)
        return m.wavelengths[a, b] >= waves * needed(m, a, b, n)

    steps = [(*pair, n, waves) for pair, pair_levels in m.levels.items() for n, waves in pair_levels if waves != 0]
    if m.known_sites:
        # What a pair needs is in its expressions; what is left to say is which cannot be open.
        steps = [s for s in steps if s[3] is None]
    m.wan_capacity = pyo.Constraint([s[:3] for s in steps], rule=row)
    lit = {s[:3]: wan.fibre_pairs(q.wan, s[3]) for s in steps if s[3]}
    m.fibre = pyo.Constraint(list(lit), rule=lambda m, a, b, n: m.fibres[a, b] >= lit[a, b, n] * needed(m, a, b, n))
    _design(m, q)


def _design(m: Any, q: Question) -> None:
    """Open no two sites that the fibre cannot join, and no set of sites for which a design of the wide area was refused."""
    m.wan_parted = pyo.Constraint(sorted(q.parted), rule=lambda m, a, b: m.open[a] + m.open[b] <= 1)
    refused = sorted(sorted(s) for s in q.request.refused)

    def other(m: Any, i: int) -> Any:
        return sum(1 - m.open[s] if s in refused[i] else m.open[s] for s in q.candidates) >= 1

    m.wan_refused = pyo.Constraint(range(len(refused)), rule=other)
