"""Rules of the power system: headroom, generation, line ratings and the N-1 criterion, in every year of the split."""

from typing import Any

import pyomo.core as pyo

from planner.models.sites.data import SplitData
from planner.models.sites.grid import power_flow
from planner.models.sites.rules.rule import Rule, load_mw, megawatts, soft_excess
from planner.physics.site.grid import normal_share


def headroom(m: Any, data: SplitData) -> None:
    """Limit the draw of each balancing authority's sites to its headroom."""
    areas = [b for b in data.authorities if data.grid.rules.headroom and data.sites_of(b)]
    limit = {b: data.authorities[b].headroom_mw for b in areas}
    m.headroom = pyo.Constraint(areas, rule=lambda m, b: load_mw(m, data, data.sites_of(b)) <= limit[b])


def _headroom_modules(data: SplitData) -> float | None:
    if not data.grid.rules.headroom:
        return None
    total = sum(b.headroom_mw for b in data.authorities.values())
    return (total + soft_excess(data, "headroom", len(data.authorities))) / data.module_mw


def _headroom_site_modules(data: SplitData, site: str, _: int) -> float | None:
    if not data.grid.rules.headroom:
        return None
    authority = data.authorities[data.candidates[site].balancing_authority]
    return (authority.headroom_mw + soft_excess(data, "headroom")) / data.module_mw


def _headroom_sentence(data: SplitData) -> str:
    areas = sorted({n.balancing_authority for n in data.candidates.values()})
    total = sum(data.authorities[b].headroom_mw for b in areas)
    each = ", ".join(f"{b} {megawatts(data.authorities[b].headroom_mw)}" for b in areas)
    return f"headroom is {each}" + (f" ({megawatts(total)} in all)" if len(areas) > 1 else "")


def generation(m: Any, data: SplitData) -> None:
    """Limit the dispatch of each node to what its plants can feed in, or without flows its authority's sites to them.

    Plants may feed the sites and the load of other authorities: headroom limits what sites draw, and no plant.
    """
    if not data.grid.rules.generation:
        return
    if data.grid.rules.grid_model == "none":
        areas = [b for b in data.authorities if data.sites_of(b)]
        m.generation = pyo.Constraint(areas, rule=lambda m, b: load_mw(m, data, data.sites_of(b)) <= data.spare_mw([b]))
        return
    available = {n.id: n.generation_mw for n in data.grid.nodes}
    m.generation = pyo.Constraint(list(m.generated), rule=lambda m, n: m.generated[n] <= available[n])


def _generation_modules(data: SplitData) -> float | None:
    if not data.grid.rules.generation:
        return None
    if data.grid.rules.grid_model == "none":
        total = sum(data.spare_mw([b]) for b in data.authorities)
    else:
        total = data.spare_mw(data.authorities)
    return (total + soft_excess(data, "generation", len(data.grid.nodes))) / data.module_mw


def _generation_sentence(data: SplitData) -> str:
    sentence = "plants can spare " + ", ".join(f"{b} {megawatts(data.spare_mw([b]))}" for b in data.authorities)
    if data.grid.rules.grid_model == "none":
        return sentence
    best = max(data.candidates.values(), key=lambda n: (n.generation_mw, n.id))
    return f"{sentence}, at a site itself at most {megawatts(best.generation_mw)} ({best.id})"


def rating(m: Any, data: SplitData) -> None:
    """Limit each corridor's flow, in both directions, to the rating of its circuits, built ones included."""
    share = normal_share(data.grid)

    def row(m: Any, key: str, sign: int) -> Any:
        c = data.corridors[key]
        return sign * m.flow[key] <= share * c.rating_mw * (m.circuits[key] if c.new else c.circuits)

    keys = list(data.corridors) if data.grid.rules.grid_model == "transport" else []
    m.rating = pyo.Constraint([(k, sign) for k in keys for sign in (1, -1)], rule=row)
    if data.network is not None:
        power_flow.new_circuits(m, data, data.network)


def _rating_sentence(data: SplitData) -> str:
    if not data.corridors:
        return "no line joins the nodes"
    carry = dict.fromkeys(data.candidates, 0.0)
    for s in carry:
        corridors = [data.corridors[k] for _, _, k in data.graph.edges(s, keys=True)]
        carry[s] = sum(c.rating_mw * c.circuits for c in corridors)
    best = max(carry, key=lambda s: (carry[s], s))
    return f"lines into a site carry {megawatts(carry[best])} at most (at {best}, new circuits included)"


def security(m: Any, data: SplitData) -> None:
    """Require that the grid keeps its ratings, and its plants what they can spare, after each contingency of N-1.

    Only the reserves are stated at once; flows after contingencies are lazy rows.
    """
    if data.network is not None and data.grid.rules.n1 == "full":
        power_flow.reserves(m, data.network)


def _security_sentence(data: SplitData) -> str:
    limits = "flows after an outage must stay within ratings, and plants within what they can spare"
    return f'grid.rules.n1 "{data.grid.rules.n1}": {limits}'


RULES = (
    Rule(
        rows=headroom,
        sentence=_headroom_sentence,
        order=120,
        scope="grid",
        yearly=True,
        index="authority",
        unit="MW",
        movable=True,
        slack=lambda data, _: data.module_mw,
        max_modules=_headroom_modules,
        max_site_modules=_headroom_site_modules,
    ),
    Rule(
        rows=generation,
        sentence=_generation_sentence,
        order=30,
        scope="grid",
        yearly=True,
        unit="MW",
        movable=True,
        max_modules=_generation_modules,
    ),
    Rule(
        rows=rating,
        sentence=_rating_sentence,
        order=20,
        scope="grid",
        components=("new_rating",),
        yearly=True,
        index_names=1,
        unit="MW",
        movable=True,
    ),
    Rule(
        rows=security,
        sentence=_security_sentence,
        order=10,
        scope="grid",
        components=("unit_reserve",),
        yearly=True,
        unit="MW",
    ),
)
