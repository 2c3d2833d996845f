"""What a node carries alone, a site forced open, and prices of limits, against every split or differences of cost."""

from typing import Any

import angle_formulation
import pyomo.environ as pyo
import pytest
from best_splits import split
from each_case import each
from power_grids import changed, power_case, wire, with_years
from site_grids import OPTIONS, case, line, node, placed_splits, random_case

from planner.instance.instance import Instance
from planner.models import SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites.model import RULES, build, rule_of, yearly_musd
from planner.models.sites.split_data import gather
from planner.physics.site.grid import normal_share
from planner.plan.plan_sections import SitesPlan
from planner.planning.explain_sites import meaning
from planner.solvers import highs
from planner.solvers.signals import Deadline

SPLIT_RULES = [name for name, rule in RULES.items() if rule.scope == "split"]
# Rules of whole splits, which say nothing of one node alone.
FREE = {
    "fault_split": {"enabled": False},
    "max_sites": None,
    "max_rtt_ms": None,
    "share_balance": {"enabled": False},
    "min_site_modules": 1,
}


def without_split_rules(seed: int) -> Instance:
    """Return a random question of what one node holds, without what is asked of all of them."""
    data = random_case(seed)[0].model_dump(mode="json")
    data["grid"]["rules"] |= FREE
    data["limits"] |= {"budget_usd": None, "facility_power_mw": None, "operation_years": None}
    return Instance.model_validate(data)


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_the_most_that_a_node_carries(seed: int) -> None:
    """Of all splits over one site alone, the largest; where there is none, no racks and what stops the first."""
    i = without_split_rules(seed)
    alone: dict[str, int] = {}
    for racks, _ in placed_splits(i, SitesRequest()):
        if len(racks) == 1:
            ((site, n),) = racks.items()
            alone[site] = max(alone.get(site, 0), n)
    found = sites.largest_loads(i, SitesRequest(), OPTIONS)
    assert {x.node: x.racks for x in found if x.racks} == alone
    assert {x.node for x in found} == {n.id for n in i.grid.nodes if n.site}
    assert [x.racks for x in found] == sorted((x.racks for x in found), reverse=True)
    for x in found:
        assert x.mw == pytest.approx(x.racks * 1.0)
        assert x.stopped_by
        left_out = {r.name for r in map(rule_of, x.stopped_by)} | set(SPLIT_RULES)
        m = build(gather(i, SitesRequest()), without=left_out)
        m.more = pyo.Constraint(expr=m.modules[x.node] >= x.racks // i.hardware.racks_per_module + 1)
        m.goal = pyo.Objective(expr=sum(m.open.values()))
        assert highs.run(m).solution is not None, x


@pytest.mark.parametrize(
    ("figures", "rules", "stops"),
    [
        ({"generation_mw": 0.9}, {"grid_model": "none"}, {"generation[E]"}),
        ({"area_m2": 500.0}, {}, {"area[E0]"}),
        ({"interconnect_mw": 0.4}, {"interconnect": {"enabled": True, "share": 0.5, "reading": "explicit"}},
         {"interconnect[E0]"}),
        ({"area_m2": 500.0, "interconnect_mw": 0.4}, {"interconnect": {"enabled": True, "reading": "explicit"}},
         {"area[E0]", "interconnect[E0]"}),
        ({"ready_months": 9.0, "area_m2": 500.0}, {"ready_within_months": 8.0}, {"area[E0]", "ready[E0]"}),
    ],
)  # fmt: skip
def test_what_stops_a_node_that_carries_nothing(figures, rules, stops) -> None:
    i = case(node("E0", **figures), rules=rules, hardware={"cooling_kw_per_m2": 1.0})
    (found,) = sites.largest_loads(i, SitesRequest(), OPTIONS)
    assert (found.racks, found.mw) == (0, 0.0)
    assert set(found.stopped_by) == stops


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_a_site_that_is_forced_open(seed: int) -> None:
    """The cheapest split of as many racks with the site in it, over the cheapest of all, or none there is."""
    i, request = random_case(seed)
    every = list(placed_splits(i, request))
    if not every:
        return
    racks = max(sum(x.values()) for x, _ in every)
    asked = SitesRequest(racks=racks, fabric_usd_per_rack=request.fabric_usd_per_rack, exchange=request.exchange)
    priced = [(set(x), usd) for x, usd in every if sum(x.values()) == racks]
    nodes = [n.id for n in i.grid.nodes if n.site]
    found = dict(sites.forced_open(i, asked, OPTIONS, nodes, Deadline()))
    assert list(found) == nodes
    least = min(usd for _, usd in priced)
    for s in nodes:
        own = min((usd for sites, usd in priced if s in sites), default=None)
        assert found[s] == (None if own is None else pytest.approx(own - least, abs=2.0))


def test_nothing_is_forced_without_time_or_a_split() -> None:
    i = case(node("E0"), node("W0"))
    assert not list(sites.forced_open(i, SitesRequest(racks=2), OPTIONS, ["E0"], Deadline(0.0)))
    assert not list(sites.forced_open(i, SitesRequest(racks=999), OPTIONS, ["E0"], Deadline()))


@each(
    ("area", "rating", "spare", "headroom", "names"),
    # E0 has 2 MW of plants and two modules; E1 has plants of its own that feed it over one line.
    [
        (2000.0, 5.0, 1.0, 9.0, {"area[E0]"}),
        (2000.0, 5.0, 0.9, 9.0, {"area[E0]", "generation[E0]", "generation[E1]"}),
        (9000.0, 0.9, 5.0, 9.0, {"generation[E0]", "rating[E0-E1]"}),
        (9000.0, 5.0, 0.9, 9.0, {"generation[E0]", "generation[E1]"}),
        (2000.0, 5.0, 1.0, 2.9, {"area[E0]", "headroom[E]"}),
        (9000.0, 5.0, 5.0, 2.9, {"headroom[E]"}),
    ],
)
def test_what_stops_the_third_module(area, rating, spare, headroom, names) -> None:
    """Plants that are not at work, and room on lines, count as what they are; all that stops it is named, no more."""
    wire = line("E0", "E1", rating_mw=rating)
    nodes = node("E0", generation_mw=2.0, area_m2=area), node("E1", generation_mw=spare, site=False)
    i = case(*nodes, headroom={"E": headroom}, lines=[wire], hardware={"cooling_kw_per_m2": 1.0})
    (found,) = sites.largest_loads(i, SitesRequest(), OPTIONS)
    assert found.racks == 2 and set(found.stopped_by) == names


RACK = 20 * 8760  # what a rack saves in a year that moves from the west at 50 $/MWh to the east at 30


def prices(instance: Instance, request: SitesRequest, plan: SitesPlan) -> dict[str, float]:
    return {p.rule: p.usd_per_year for p in sites.shadow_prices(instance, request, plan)}


def solved(instance: Instance, request: SitesRequest) -> SitesPlan:
    plan = split(instance, request).solution
    assert plan is not None
    return plan


def by_angles(instance: Instance, request: SitesRequest, plan: SitesPlan) -> float | None:
    """Return the yearly cost by angles, sites and circuits as planned, modules divisible; None if infeasible."""
    m, data = angle_formulation.by_angles(instance, request)
    opened, built = {s.id for s in plan.sites}, {n.line: n.circuits for n in plan.new_lines}
    for v in m.component_data_objects(pyo.Var):
        if v.is_integer() or v.is_binary():
            v.domain = pyo.NonNegativeReals
            of, index = v.parent_component().local_name, v.index()
            if of in ("open", "circuits", "installed"):
                v.fix(
                    int(index in opened)
                    if of == "open"
                    else built.get(index, 0)
                    if of == "circuits"
                    else int(index[1] < built.get(index[0], 0))
                )
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    outcome = highs.run(m)
    return None if outcome.objective is None else outcome.objective * 1e6


def moved(instance: Instance, line: str, mw: float) -> Instance:
    lines = [x.model_dump() | {"rating_mw": x.rating_mw + mw * (x.id == line)} for x in instance.grid.lines]
    return changed(instance, lines=lines)


def dear(seed: int, n1: str, new: int = 0) -> tuple[Instance, SitesRequest]:
    """Return a random split whose sites differ in price and are not full, so that ratings steer the cost."""
    instance, _ = power_case(seed, n1=n1, new=new)
    areas = [
        {"id": f"E{i}", "interconnection": "eastern", "headroom_mw": 50.0, "energy_usd_per_mwh": 30.0 + 10 * i}
        for i in range(3)
    ]
    nodes = [n.model_dump() | {"balancing_authority": f"E{i % 3}"} for i, n in enumerate(instance.grid.nodes)]
    rules = instance.grid.rules.model_dump() | {"max_sites": None}
    instance = changed(instance, nodes=nodes, balancing_authorities=areas, rules=rules)
    most = split(instance).solution
    racks = sum(s.racks for s in most.sites) if most else 1
    return instance, SitesRequest(racks=max(racks - 1, 1))


@pytest.mark.parametrize(("n1", "new"), [("off", 0), ("margin", 0), ("full", 0), ("off", 1)])
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 7, 8, 9])
def test_the_prices_of_a_line_are_its_differences(seed: int, n1: str, new: int) -> None:
    """A line's rows, before and after outages, are worth what a little more or less rating changes by angles."""
    instance, request = dear(seed, n1, new)
    outcome = split(instance, request)
    if outcome.solution is None:
        return
    plan, grid = outcome.solution, instance.grid
    found, own, step = prices(instance, request, plan), by_angles(instance, request, plan), 1e-3
    assert grid is not None and own is not None
    for x in grid.lines:
        left = {f"rating[{x.id}]": x.circuits * normal_share(grid), f"security[{x.id},{x.id}]": x.circuits - 1}
        price = sum(
            usd * left.get(name, x.circuits)
            for name, usd in found.items()
            if name in left or name.startswith(f"security[{x.id},")
        )
        more, less = (
            by_angles(moved(instance, x.id, step), request, plan),
            by_angles(moved(instance, x.id, -step), request, plan),
        )
        assert more is not None and price >= (own - more) / step - 1.0
        assert less is None or price <= (less - own) / step + 1.0


# By hand: nine racks, the cheap E0 fed from E1 over what is given, and the dear W0 with its own plants for the rest


def fed(
    *lines: dict[str, Any], year: dict[str, Any] | None = None, spare: float = 20.0, **rules: Any
) -> tuple[Instance, SitesRequest]:
    plants = {"largest_unit_mw": 0.0}
    nodes = (
        node("E0", generation_mw=0.0),
        node("E1", generation_mw=spare, site=False, **plants),
        node("W0", generation_mw=20.0, **plants),
    )
    spare_mw, usd = {"E": 99.0, "W": 99.0}, {"E": 30.0, "W": 50.0}
    instance = case(*nodes, lines=list(lines), headroom=spare_mw, usd_per_mwh=usd, rules={"grid_model": "dc"} | rules)
    if year is not None:
        instance = with_years(instance, "robust", year)
    return instance, SitesRequest(racks=9)


@each(
    ("lines", "rules", "expected"),
    [
        ([wire("E0", "E1", rating_mw=4.0)], {}, {"rating[E0-E1]": 1.0}),
        # Two thirds of the power take the line of half the reactance: one MW more of it lets in one and a half.
        ([wire("E0", "E1", id="p", rating_mw=4.0), wire("E0", "E1", 0.02, id="q")], {}, {"rating[p]": 1.5}),
        ([wire("E0", "E1", rating_mw=4.0, circuits=2)], {"n1": "node"}, {"security[E0-E1,E0-E1]": 1.0}),
        ([wire("E0", "E1", rating_mw=4.0, circuits=2)], {"n1": "full"}, {"security[E0-E1,E0-E1]": 1.0}),
        ([wire("E0", "E1", rating_mw=6.0, circuits=1)], {"n1": "margin", "n1_margin": 0.5}, {"rating[E0-E1]": 1.0}),
    ],
)
def test_a_price_is_what_one_more_rack_in_the_cheap_east_saves(lines, rules, expected) -> None:
    """The one limit in the way has a price, and so have plants at the site itself, which has none; no other has."""
    instance, request = fed(*lines, **rules)
    found = {name: pytest.approx(x * RACK) for name, x in ({"generation[E0]": 1.0} | expected).items()}
    assert prices(instance, request, solved(instance, request)) == found


def test_the_price_of_a_limit_in_one_year_names_the_year() -> None:
    """The plants beyond spare less in a dry year; the split must hold there too, so that year has the price."""
    instance, request = fed(wire("E0", "E1"), year={"name": "dry", "generation_mw": {"E1": 5.0}})
    found = prices(instance, request, solved(instance, request))
    assert found == {"generation[E0] in dry": pytest.approx(RACK), "generation[E1] in dry": pytest.approx(RACK)}


@each(("rule", "sentence"), [
    ("rating[a-b]", "the rating of a-b"), ("rating[a-b] in dry", "the rating of a-b, in dry"),
    ("security[a-b,c-d]", "the rating of a-b after the loss of a circuit of c-d"),
    ("security[a-b,c-d] in dry", "the rating of a-b after the loss of a circuit of c-d, in dry"),
    ("security[a-b,unit n]", "the rating of a-b after the loss of the largest unit of n"),
    ("security[fed by n,c-d]", "what n can spare after the loss of a circuit of c-d"),
    ("security[dark,c-d]", "plants in the part that is left dark after the loss of a circuit of c-d"),
    ("security[reserve of m,unit n]", "what m can spare above its reserve"),
    ("security[n]", "what n can spare above its reserve"), ("headroom[PJM]", ""),
])  # fmt: skip
def test_rows_are_explained_in_the_terms_of_the_user(rule: str, sentence: str) -> None:
    """A row found on the way is a line's rating, after which outage, in which year."""
    assert meaning(rule) == sentence
