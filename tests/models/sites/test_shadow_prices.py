"""Shadow prices of limits under dc: each lies between the differences of cost on either side of its limit."""

from typing import Any

import angle_formulation
import pyomo.environ as pyo
import pytest
from power_grids import changed, power_case, wire, with_years
from site_grids import OPTIONS, case, node

from planner.instance.instance import Instance
from planner.models.requests import SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites.model import yearly_musd
from planner.physics.site.grid import normal_share
from planner.plan.plan_sections import SitesPlan
from planner.planning.explain_sites import meaning
from planner.solvers import highs

RACK = 20 * 8760  # what a rack saves in a year that moves from the west at 50 $/MWh to the east at 30


def prices(instance: Instance, request: SitesRequest, plan: SitesPlan) -> dict[str, float]:
    return {p.rule: p.usd_per_year for p in sites.shadow_prices(instance, request, plan)}


def solved(instance: Instance, request: SitesRequest) -> SitesPlan:
    plan = sites.solve(instance, request, OPTIONS).solution
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
    assert instance.grid is not None
    lines = [x.model_dump() | {"rating_mw": x.rating_mw + mw * (x.id == line)} for x in instance.grid.lines]
    return changed(instance, lines=lines)


def dear(seed: int, n1: str, new: int = 0) -> tuple[Instance, SitesRequest]:
    """Return a random split whose sites differ in price and are not full, so that ratings steer the cost."""
    instance, _ = power_case(seed, n1=n1, new=new)
    assert instance.grid is not None
    areas = [
        {"id": f"E{i}", "interconnection": "eastern", "headroom_mw": 50.0, "energy_usd_per_mwh": 30.0 + 10 * i}
        for i in range(3)
    ]
    nodes = [n.model_dump() | {"balancing_authority": f"E{i % 3}"} for i, n in enumerate(instance.grid.nodes)]
    rules = instance.grid.rules.model_dump() | {"max_sites": None}
    instance = changed(instance, nodes=nodes, balancing_authorities=areas, rules=rules)
    most = sites.solve(instance, SitesRequest(), OPTIONS).solution
    racks = sum(s.racks for s in most.sites) if most else 1
    return instance, SitesRequest(racks=max(racks - 1, 1))


@pytest.mark.parametrize(("n1", "new"), [("off", 0), ("margin", 0), ("full", 0), ("off", 1)])
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 7, 8, 9])
def test_the_prices_of_a_line_are_its_differences(seed: int, n1: str, new: int) -> None:
    """A line's rows, before and after outages, are worth what a little more or less rating changes by angles."""
    instance, request = dear(seed, n1, new)
    outcome = sites.solve(instance, request, OPTIONS)
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


def test_the_random_prices_are_of_both_kinds() -> None:
    """The comparison would prove little if no line, or no outage, were ever worth anything."""
    names = [name for seed in (1, 2, 3, 4, 6, 7, 8, 9) for n1 in ("off", "full") for name in named(seed, n1)]
    assert sum(name.startswith("rating[") for name in names) >= 3
    assert sum(name.startswith("security[") for name in names) >= 3


def named(seed: int, n1: str) -> dict[str, float]:
    instance, request = dear(seed, n1)
    plan = sites.solve(instance, request, OPTIONS).solution
    return prices(instance, request, plan) if plan else {}


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


@pytest.mark.parametrize(
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
def test_a_price_is_what_one_more_rack_in_the_cheap_east_saves(
    lines: list[dict[str, Any]], rules: dict[str, Any], expected: dict[str, float]
) -> None:
    """The one limit in the way has a price, and so have plants at the site itself, which has none; no other has."""
    instance, request = fed(*lines, **rules)
    found = {name: pytest.approx(x * RACK) for name, x in ({"generation[E0]": 1.0} | expected).items()}
    assert prices(instance, request, solved(instance, request)) == found


@pytest.mark.parametrize(("circuits", "n1"), [(1, "off"), (2, "node"), (2, "full")])
def test_a_price_is_the_difference_of_whole_racks(circuits: int, n1: str) -> None:
    """A line of one MW more, after an outage or without one, saves its price when the split is solved anew."""
    instance, request = fed(wire("E0", "E1", rating_mw=4.0, circuits=circuits), n1=n1)
    before, after = solved(instance, request), solved(moved(instance, "E0-E1", 1.0), request)
    saved = (before.certificate.objective or 0.0) - (after.certificate.objective or 0.0)
    (price,) = (usd for name, usd in prices(instance, request, before).items() if "[E0-E1" in name)
    assert saved == pytest.approx(RACK) == pytest.approx(price)


def test_the_price_of_a_limit_in_one_year_names_the_year() -> None:
    """The plants beyond spare less in a dry year; the split must hold there too, so that year has the price."""
    instance, request = fed(wire("E0", "E1"), year={"name": "dry", "generation_mw": {"E1": 5.0}})
    found = prices(instance, request, solved(instance, request))
    assert found == {"generation[E0] in dry": pytest.approx(RACK), "generation[E1] in dry": pytest.approx(RACK)}


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("rating[a-b]", "the rating of a-b"),
        ("rating[a-b] in dry", "the rating of a-b, in dry"),
        ("security[a-b,c-d]", "the rating of a-b after the loss of a circuit of c-d"),
        ("security[a-b,c-d] in dry", "the rating of a-b after the loss of a circuit of c-d, in dry"),
        ("security[a-b,unit n]", "the rating of a-b after the loss of the largest unit of n"),
        ("security[fed by n,c-d]", "what n can spare after the loss of a circuit of c-d"),
        ("security[dark,c-d]", "plants in the part that is left dark after the loss of a circuit of c-d"),
        ("security[reserve of m,unit n]", "what m can spare above its reserve"),
        ("security[n]", "what n can spare above its reserve"),
        ("headroom[PJM]", ""),
    ],
)
def test_rows_are_explained_in_the_terms_of_the_user(rule: str, sentence: str) -> None:
    """A row found on the way is a line's rating, after which outage, in which year."""
    assert meaning(rule) == sentence
