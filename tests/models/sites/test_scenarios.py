"""The split under soft rules, late parts, upgrades and scenarios; near-ties, what a node carries, prices of limits."""

from dataclasses import replace
from typing import Any

import angle_formulation
import pyomo.environ as pyo
import pytest
from best_splits import split
from each_case import each
from power_grids import changed, power_case, wire, with_years
from site_grids import ANY, OPTIONS, case, line, node, placed_splits, racks, random_case
from stored_plans import stored
from worked_plan import edited, named

from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models import SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites.model import RULES, build, rule_of, yearly_musd
from planner.models.sites.split_data import gather
from planner.physics.site.grid import normal_share
from planner.plan.plan import Plan
from planner.plan.plan_sections import SitesPlan
from planner.planning.explain_sites import meaning
from planner.planning.load import load_instance
from planner.solvers import highs
from planner.solvers.signals import Deadline

BATCH = {"max_batch_tokens": 12800}


def planned(instance: Instance, request: SitesRequest = ANY) -> SitesPlan:
    plan = split(instance, request).solution
    assert plan is not None
    return plan


def usd(instance: Instance, request: SitesRequest = ANY) -> float:
    found = planned(instance, request).certificate.objective
    assert found is not None
    return found


def whole(instance: Instance) -> Plan:
    """Return the plan of all decisions, which keeps every rule of the checker."""
    plan = stored(instance)
    assert named(plan) == set()
    return plan


def test_own_plants_lighten_the_import() -> None:
    """3 MW of own plants and one circuit left of 2 MW allow 7 MW when half of the import must stay on."""
    rules = {"interconnect": {"enabled": True, "share": 0.5, "reading": "import_share"}}
    lines = [line("E0", "E1", rating_mw=2, circuits=2), line("E0", "E2", rating_mw=2)]
    nodes = [node("E0", generation_mw=3), node("E1", site=False), node("E2", site=False)]
    # Three lines carry 6 MW; four left of six for half of them.
    assert racks(case(*nodes, lines=lines, rules=rules)) == 9
    tight = [line("E0", "E1", rating_mw=2), line("E0", "E2", rating_mw=1), line("E0", "E2", id="third", rating_mw=1)]
    rules["interconnect"]["share"] = 1.0
    assert racks(case(*nodes, lines=tight, rules=rules)) == 5


def test_sites_of_like_size() -> None:
    """With at most twice the smallest, a site of 2 MW allows 4 beside it and not 8."""
    nodes = [node("E0", generation_mw=8), node("W0", generation_mw=2)]
    split = {"enabled": True, "min_interconnections": 2, "max_share": 1.0}
    free = {"fault_split": split, "grid_model": "none"}
    assert racks(case(*nodes, rules=free)) == 10
    assert racks(case(*nodes, rules=free | {"share_balance": {"enabled": True, "max_ratio": 2.0}})) == 6
    assert racks(case(*nodes, rules=free | {"share_balance": {"enabled": True, "max_ratio": 4.0}})) == 10


def test_what_comes_late_is_left_out() -> None:
    nodes = [node("E0", generation_mw=4), node("E1", generation_mw=4, ready_months=24)]
    assert racks(case(*nodes, rules={"ready_within_months": 24, "grid_model": "none", "max_sites": 1})) == 8
    only = [node("E0", generation_mw=4, site=False), node("E1", generation_mw=4, ready_months=24)]
    assert racks(case(*only, rules={"ready_within_months": 23})) == 0
    new = [{"id": "n", "a": "E0", "b": "E1", "rating_mw": 9, "capex_usd": 1, "lead_months": 60}]
    ends = [node("E0", generation_mw=4), node("E1", generation_mw=4, site=False)]
    assert racks(case(*ends, new_lines=new, rules={"ready_within_months": 60})) == 8
    assert racks(case(*ends, new_lines=new, rules={"ready_within_months": 59})) == 4


def upgradable(**rules: Any) -> Instance:
    upgrade = {"step_mw": 2, "max_steps": 2, "capex_usd": 1e6, "lead_months": 12}
    explicit = {"interconnect": {"enabled": True, "share": 1.0, "reading": "explicit"}}
    nodes = [node("E0", interconnect_mw=3, upgrade=upgrade)]
    return case(*nodes, rules=explicit | rules, limits=BATCH, prices={"discount_rate": 0.0, "site_life_years": 10})


def test_interconnect_is_bought_by_the_step() -> None:
    """Two steps of 2 MW carry 7 MW where 3 stand; fewer racks buy fewer steps; each costs its price."""
    assert racks(upgradable()) == 7
    assert [u.steps for u in planned(upgradable(), SitesRequest(racks=4)).upgrades] == [1]
    assert usd(upgradable(), SitesRequest(racks=4)) - 4 / 3 * usd(upgradable(), SitesRequest(racks=3)) == pytest.approx(
        1e6 / 10
    )
    assert racks(upgradable(ready_within_months=11)) == 3
    plan = whole(load_instance(upgradable(), pins={"sites.racks": 7}))
    assert plan.cost is not None and plan.cost.capex_usd["upgrades"] == 2e6


def soft(price: float, most: float = 3) -> Instance:
    rules = {"soft": {"headroom": {"usd_per_year": price, "max_excess": most}}, "max_sites": 1}
    return case(node("E0"), headroom={"E": 4}, rules=rules, limits=BATCH)


def test_a_soft_rule_is_broken_as_far_as_it_may_be_and_no_further() -> None:
    """Headroom of 4 MW that may be exceeded by 3 holds 7 racks; the excess is stated and priced."""
    plan = whole(load_instance(soft(5e5), pins={"sites.racks": 7}))
    assert plan.sites is not None and sum(s.racks for s in plan.sites.sites) == 7
    assert [(x.rule, x.amount, x.unit, x.usd_per_year) for x in plan.sites.excess] == [
        ("headroom[E]", 3.0, "MW", 1.5e6)
    ]
    assert usd(soft(5e5), SitesRequest(racks=5)) - usd(soft(0), SitesRequest(racks=5)) == pytest.approx(5e5)


def test_an_excess_that_is_not_allowed_is_found() -> None:
    plan = whole(load_instance(soft(5e5), pins={"sites.racks": 7}))
    plan = edited(plan, instance__grid__rules__soft__headroom__max_excess=2)
    assert any(v.rule == "excess[headroom[E]]" for v in check(plan, stop=lambda: True))


def dry(mode: str, **changes: Any) -> Instance:
    scenarios = [{"name": "dry", "weight": 0.25, "generation_mw": {"W0": 1}, "energy_usd_per_mwh": {"E": 80}}]
    nodes = [node("E0", generation_mw=4), node("W0", generation_mw=4)]
    data = case(*nodes, rules={"scenarios": mode, "curtailment_usd_per_mwh": 500} | changes, limits=BATCH).model_dump(
        exclude_none=True
    )
    data["grid"]["scenarios"] = scenarios
    return load_instance(data)


def test_a_robust_split_runs_whole_in_every_year() -> None:
    """Where a dry year leaves 1 MW in the west, 5 racks run in every year, 8 in the grid's own."""
    assert racks(dry("off")) == 8
    assert racks(dry("robust")) == 5
    plan = whole(load_instance(dry("robust"), pins={"sites.racks": 5}))
    assert plan.sites is not None and plan.sites.scenarios["dry"].running_mw == {"E0": 4.0, "W0": 1.0}
    stops = {x.node: x.stopped_by for x in sites.largest_loads(dry("robust"), ANY, OPTIONS)}
    assert stops == {"E0": ("generation[E0]",), "W0": ("generation[W0] in dry",)}


def test_an_expected_split_may_run_less_in_a_dry_year() -> None:
    """All 8 racks are open; the dry year runs 5 and pays for 3 MW left undone, at a quarter of the weight."""
    plan = whole(load_instance(dry("expected"), pins={"sites.racks": 8}))
    assert plan.sites is not None and sum(s.racks for s in plan.sites.sites) == 8
    own, year = 8 * 40 * 8760, (4 * 80 + 1 * 40 + 3 * 500) * 8760
    assert planned(dry("expected")).certificate.objective == pytest.approx(0.75 * own + 0.25 * year)


@each(
    ("own", "year", "weight", "chosen"),
    [((40, 42), (40, 30), 0.1, "E"), ((40, 42), (40, 30), 0.5, "W"), ((40, 45), (60, 52), 0.5, "W"),
     ((40, 45), (60, 52), 0.3, "E"), ((50, 20), (50, 90), 0.4, "W"), ((50, 20), (50, 90), 0.6, "E")],
)  # fmt: skip
def test_a_scenario_counts_by_its_weight(own, year, weight, chosen) -> None:
    """A rack goes where the weighted mean of its energy is least: (1 - weight) own years, and as many of the other."""
    mean = [(1 - weight) * a + weight * b for a, b in zip(own, year, strict=True)]
    assert "EW"[mean.index(min(mean))] == chosen
    now, rules = dict(zip("EW", own, strict=True)), {"scenarios": "expected", "curtailment_usd_per_mwh": 500}
    data = case(node("E0"), node("W0"), usd_per_mwh=now, rules=rules, limits=BATCH).model_dump(exclude_none=True)
    prices = dict(zip("EW", year, strict=True))
    data["grid"]["scenarios"] = [{"name": "other", "weight": weight, "energy_usd_per_mwh": prices}]
    plan = planned(load_instance(data), SitesRequest(racks=1))
    assert [s.id[0] for s in plan.sites] == [chosen]
    assert plan.certificate.objective == pytest.approx(min(mean) * 8760)


def test_weights_above_one_are_refused() -> None:
    data = dry("expected").model_dump(mode="json", exclude_none=True)
    data["grid"]["scenarios"][0] |= {"weight": 0.6, "headroom_mw": {"X": 1}}
    data["grid"]["scenarios"].append({"name": "", "weight": 0.5})
    message = r"weights must sum to at most 1 \(are 1.1\)[\s\S]*headroom_mw: 'X' does not exist"
    message += r"[\s\S]*scenarios\[1\]\.name: is empty"
    with pytest.raises(InputError, match=message):
        load_instance(data)


@pytest.mark.parametrize("seed", [3, 5, 19, 22, 40, 41, 77])
def test_near_ties_are_the_best_of_all_sets_of_sites(seed: int) -> None:
    instance, request = random_case(seed)
    asked, least = replace(request, racks=racks(instance, request) - 1), dict[frozenset[str], float]()
    for by_site, usd_per_year in placed_splits(instance, asked):
        opened = frozenset(by_site)
        least[opened] = min(usd_per_year, least.get(opened, usd_per_year))
    found = sites.near_best(instance, asked, OPTIONS, count=99, within=1e9)
    assert [x.usd_per_year for x in found] == pytest.approx(sorted(least.values()), abs=1.0)
    assert {frozenset(x.racks_by_site) for x in found} == set(least)
    assert all(sum(x.racks_by_site.values()) == asked.racks for x in found)


def test_near_ties_end_where_they_are_no_longer_near() -> None:
    """Of three sites at 40, 41 and 60 $/MWh the first two are within 5 %."""
    nodes = [node("E0", generation_mw=4), node("W0", generation_mw=4)]
    instance = case(*nodes, usd_per_mwh={"E": 40, "W": 41}, rules={"max_sites": 1})
    assert len(sites.near_best(instance, SitesRequest(racks=4), OPTIONS, count=5, within=0.05)) == 2
    assert len(sites.near_best(instance, SitesRequest(racks=4), OPTIONS, count=5, within=0.01)) == 1


def short(**rules: Any) -> Instance:
    explicit = {"enabled": True, "share": 0.5, "reading": "explicit"}
    nodes = [node("E0", interconnect_mw=2), node("E1", interconnect_mw=1)]
    return case(
        *nodes, headroom={"E": 7}, rules={"interconnect": explicit, "max_sites": 1, "grid_model": "none"} | rules
    )


def test_what_would_do_does() -> None:
    """8 racks at one site lack 2 MW of interconnect and 1 of headroom: either alone does not do, a smaller ask does."""
    request = SitesRequest(racks=6)
    rules = ("interconnect", "site_count", "demand", "headroom")
    found = {x.rule: x for x in sites.relaxations(short(), request, rules, OPTIONS)}
    assert found["interconnect"].rows == {"interconnect[E0]": pytest.approx(1.0)}
    assert found["demand"].amount == 2 and found["demand"].proved and found["site_count"].amount == 1
    assert "headroom" not in found or found["headroom"].amount == 0  # moving it does not help
    nodes = [node("E0", interconnect_mw=3), node("E1", interconnect_mw=1)]
    data = short().model_dump(exclude_none=True)
    data["grid"]["nodes"] = nodes
    assert racks(Instance.model_validate(data), request) == 6
    data["grid"]["nodes"] = [node("E0", interconnect_mw=2.99), nodes[1]]
    assert racks(Instance.model_validate(data), request) == 0


def test_a_longer_route_would_do() -> None:
    """Two sites that must be in both interconnections are too far apart; the minimum extra km are their route's."""
    rules = {"max_rtt_ms": 10.0, "fault_split": {"enabled": True, "min_interconnections": 2, "max_share": 1.0}}
    instance = case(node("E0"), node("W0"), rules=rules)
    found = sites.relaxations(instance, ANY, ("rtt", "fault_split"), OPTIONS)
    (rtt,) = [x for x in found if x.rule == "rtt"]
    more = {"max_rtt_ms": 10.0 + rtt.rows["ms"]}
    assert racks(case(node("E0"), node("W0"), rules=rules | more)) > 0
    assert racks(case(node("E0"), node("W0"), rules=rules | {"max_rtt_ms": more["max_rtt_ms"] - 0.01})) == 0
    assert rtt.amount == pytest.approx(rtt.rows["ms"] / 0.98 * 100)


def test_a_price_is_the_difference_of_one_more() -> None:
    """One MW more of headroom in the cheap east moves one rack from the dear west."""

    def asked(mw: float) -> Instance:
        return case(node("E0"), node("W0"), headroom={"E": mw}, usd_per_mwh={"E": 30, "W": 50})

    request = SitesRequest(racks=9)
    before, after = planned(asked(4), request), usd(asked(5), request)
    prices = {p.rule: p for p in sites.shadow_prices(asked(4), request, before)}
    found = sum(p.usd_per_year for name, p in prices.items() if name == "headroom[E]")
    assert before.certificate.objective is not None
    assert found == pytest.approx(before.certificate.objective - after) == pytest.approx(20 * 8760)


SPLIT_RULES = [name for name, rule in RULES.items() if rule.scope == "split"]
# Rules of whole splits, which say nothing of one node alone.
FREE = {
    "fault_split": {"enabled": False},
    "max_sites": None,
    "max_rtt_ms": None,
    "share_balance": {"enabled": False},
    "min_site_modules": 1,
}


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_the_most_that_a_node_carries(seed: int) -> None:
    """Of all splits over one site alone, the largest; where there is none, no racks and what stops the first."""
    data = random_case(seed)[0].model_dump(mode="json")
    data["grid"]["rules"] |= FREE
    data["limits"] |= {"budget_usd": None, "facility_power_mw": None, "operation_years": None}
    i = Instance.model_validate(data)
    alone: dict[str, int] = {}
    for by_site, _ in placed_splits(i, SitesRequest()):
        if len(by_site) == 1:
            ((site, n),) = by_site.items()
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
