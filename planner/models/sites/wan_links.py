"""The links between open sites in the split's MILP: pairs, their wavelengths and their fibre pairs."""

from typing import Any

import pyomo.core as pyo

from planner.models.sites.bounds import max_sites, min_sites
from planner.models.sites.data import Pair, SplitData
from planner.models.sites.rules.rule import Rule
from planner.physics.site import wan


def variables(m: Any, data: SplitData, rules: list[Rule], sites: int | None) -> None:
    """Create pairs, their wavelengths and fibre pairs, and which numbers of open sites are reached.

    A ring over n sites sends 2·(n-1)/n of the gradient over each link, so the need grows with the number of open
    sites. The need of a pair is a constant for each number of sites, so pairs, wavelengths and fibres come out whole
    by themselves.
    """
    m.max_sites = max_sites(data, rules) if sites is None else sites
    minimum = sites or min_sites(data, rules)
    required = any(rule.name == "wan_capacity" for rule in rules)
    # Measured: what a known number of sites says of pairs decides whether it is proven in a second or in minutes.
    m.known_sites = 1 < minimum == m.max_sites and required
    m.levels = levels(data, m.max_sites, minimum if m.known_sites else sites or 2)

    def barred(pair: Pair) -> bool:
        return bool(m.known_sites) and any(rule.excludes(data, pair, m.max_sites) for rule in rules)

    usable = [pair for pair, waves in m.levels.items() if waves[0][1] is not None and not barred(pair)]
    m.pair = pyo.Var(usable, domain=pyo.NonNegativeReals, bounds=(0, 1))
    if m.known_sites:
        _mesh(m, data, minimum)
        return
    m.joined = pyo.Constraint(usable, rule=lambda m, a, b: m.pair[a, b] >= m.open[a] + m.open[b] - 1)
    max_waves = data.wan.max_wavelengths_per_pair * data.wan.max_fibre_pairs
    m.wavelengths = pyo.Var(usable, domain=pyo.NonNegativeReals, bounds=(0, max_waves))
    m.fibres = pyo.Var(usable, domain=pyo.NonNegativeReals, bounds=(0, data.wan.max_fibre_pairs))
    counts = sorted({n for waves in m.levels.values() for n, _ in waves if n > 2})
    m.at_least = pyo.Var(counts, domain=pyo.Binary)
    m.counted = pyo.Constraint(
        counts, rule=lambda m, n: sum(m.open.values()) <= n - 1 + (m.max_sites - n + 1) * m.at_least[n]
    )


def _mesh(m: Any, data: SplitData, sites: int) -> None:
    """Join each open site to the `sites` - 1 others; wavelengths and fibres of a pair follow from its being joined.

    Of two sites, the sums alone say which pair it is; of more, they are implied for whole sites, and are what makes
    the relaxation price links at all. A pair without enough capacity, or that a rule bars, has no variable and cannot
    be open.
    """
    waves = {pair: m.levels[pair][0][1] for pair in m.pair}
    fibres = {pair: wan.fibre_pairs(data.wan, n) for pair, n in waves.items()}
    m.wavelengths = pyo.Expression(list(m.pair), rule=lambda m, a, b: waves[a, b] * m.pair[a, b])
    m.fibres = pyo.Expression(list(m.pair), rule=lambda m, a, b: fibres[a, b] * m.pair[a, b])
    around: dict[str, list[Pair]] = {s: [p for p in m.pair if s in p] for s in data.candidates}

    def mesh(m: Any, s: str) -> Any:
        return sum(m.pair[p] for p in around[s]) == (sites - 1) * m.open[s] if around[s] else m.open[s] <= 0

    m.mesh = pyo.Constraint([] if data.request.exchange is None else list(around), rule=mesh)
    several = list(m.pair) if sites > 2 else []
    m.joined = pyo.Constraint(several, rule=lambda m, a, b: m.pair[a, b] >= m.open[a] + m.open[b] - 1)
    m.within = pyo.Constraint([(*p, s) for p in several for s in p], rule=lambda m, a, b, s: m.pair[a, b] <= m.open[s])


def levels(data: SplitData, max_sites: int, min_sites: int = 2) -> dict[Pair, list[tuple[int, int | None]]]:
    """List the numbers of sites from which each pair needs more wavelengths, with that need; None: beyond any lease.

    The first is listed as 2, whatever the minimum number of sites is.
    """
    needs: dict[Pair, list[tuple[int, int | None]]] = {}
    for pair in data.pairs if max_sites >= 2 and data.request.exchange is not None else ():
        steps: list[tuple[int, int | None]] = []
        for n in range(min_sites, max_sites + 1):
            waves = data.wavelengths(pair, n)
            if not steps or steps[-1][1] != waves:
                steps.append((n if steps else 2, waves))
            if waves is None:
                break
        needs[pair] = steps
    return needs
