"""Rules of the links between sites: how far apart they may be, and what the fibre between them can carry."""

from typing import Any

import pyomo.core as pyo

from planner.models.sites import bounds, wan_links
from planner.models.sites.data import Pair, SplitData
from planner.models.sites.rules import campus
from planner.models.sites.rules.rule import Rule
from planner.physics.site import wan


def rtt(m: Any, data: SplitData) -> None:
    """Limit the round trip between two open sites: of a pair that is farther apart, at most one is open."""
    far = [p for p in data.pairs if _too_far(data, p, 0)]
    m.rtt = pyo.Constraint(far, rule=lambda m, a, b: m.open[a] + m.open[b] <= 1)


def _too_far(data: SplitData, pair: Pair, _: int) -> bool:
    limit = data.grid.rules.max_rtt_ms
    return limit is not None and data.rtt_ms(pair) > limit


def _rtt_sentence(data: SplitData) -> str:
    far = [p for p in data.pairs if _too_far(data, p, 0)]
    nearest = min(far, key=lambda p: (data.rtt_ms(p), p))
    return (
        f"grid.rules.max_rtt_ms is {data.grid.rules.max_rtt_ms or 0.0:g}: {len(far)} of {len(data.pairs)} pairs "
        f"are farther, the nearest of them {'-'.join(nearest)} at {data.rtt_ms(nearest):.4g} ms"
    )


def wan_capacity(m: Any, data: SplitData) -> None:
    """Require of each open pair the wavelengths and fibre pairs that its exchange needs for the number of open sites.

    At most one site is open of a pair whose need no lease covers, or that the fibre cannot join. No set of sites is
    open for which a design of the wide area was refused.
    """

    def active(m: Any, a: str, b: str, n: int) -> Any:
        return m.pair[a, b] if n == 2 else m.pair[a, b] + m.at_least[n] - 1

    def row(m: Any, a: str, b: str, n: int) -> Any:
        waves = dict(m.levels[a, b])[n]
        if waves is None:
            return m.open[a] + m.open[b] + (m.at_least[n] if n > 2 else 0) <= (2 if n > 2 else 1)
        return m.wavelengths[a, b] >= waves * active(m, a, b, n)

    steps = [(*pair, n, waves) for pair, levels in m.levels.items() for n, waves in levels if waves != 0]
    if m.known_sites:
        # A pair's need is in its expressions; what is left to state is which pairs cannot be open.
        steps = [s for s in steps if s[3] is None]
    m.wan_capacity = pyo.Constraint([s[:3] for s in steps], rule=row)
    fibres = {s[:3]: wan.fibre_pairs(data.wan, s[3]) for s in steps if s[3]}
    m.fibre = pyo.Constraint(
        list(fibres), rule=lambda m, a, b, n: m.fibres[a, b] >= fibres[a, b, n] * active(m, a, b, n)
    )
    _exclude_unjoinable(m, data)


def _exclude_unjoinable(m: Any, data: SplitData) -> None:
    m.wan_disconnected = pyo.Constraint(sorted(data.disconnected), rule=lambda m, a, b: m.open[a] + m.open[b] <= 1)
    refused = sorted(sorted(s) for s in data.request.refused)

    def another_set(m: Any, i: int) -> Any:
        return sum(1 - m.open[s] if s in refused[i] else m.open[s] for s in data.candidates) >= 1

    m.wan_refused = pyo.Constraint(range(len(refused)), rule=another_set)


def _wan_capacity_sentence(data: SplitData) -> str:
    disconnected, refused = data.disconnected, data.request.refused
    if disconnected or refused:
        tried = "; ".join("-".join(sorted(s)) for s in sorted(refused, key=sorted))
        protected = " whatever is cut" if data.wan.protection == "one_cut" else ""
        apart = sum(p in disconnected or frozenset(p) in refused for p in data.pairs)
        joined = f"the fibre joins {len(data.pairs) - apart} of {len(data.pairs)} pairs{protected}"
        return joined + (f", and carries no exchange between {tried}" if tried else "")
    max_gbps = data.wan.max_wavelengths_per_pair * data.wan.max_fibre_pairs * data.wan.wavelength_gbps
    limit = f"two sites can be joined by {max_gbps:,.6g} Gbps at most"
    # No other rule bounds the number of sites from above.
    levels = wan_links.levels(data, bounds.max_sites(data, campus.RULES))
    short = sorted(pair for pair, steps in levels.items() if steps[-1][1] is None)
    if not short:
        return f"{limit}, and the sites that the other rules leave need more"
    easiest = min(short, key=lambda p: (data.need_gbps(p, 2), p))
    return (
        f"{limit}; {len(short)} of {len(data.pairs)} pairs need more, "
        f"{'-'.join(easiest)} {data.need_gbps(easiest, 2):,.6g} Gbps or more ({data.rtt_ms(easiest):.4g} ms apart)"
    )


RULES = (
    Rule(rows=rtt, sentence=_rtt_sentence, order=50, scope="split", excludes=_too_far),
    Rule(rows=wan_capacity, sentence=_wan_capacity_sentence, order=40, scope="split", index_names=2),
)
