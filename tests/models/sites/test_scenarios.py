"""The split under soft rules, late parts, upgrades and scenarios; near-ties, what a node carries, prices of limits."""

from typing import Any

import pyomo.environ as pyo
import pytest
from best_splits import asking, split
from each_case import each
from joint_toys import toy
from power_grids import with_years
from site_grids import ANY, OPTIONS, case, line, node, placed_splits, racks, random_case
from stored_plans import stored
from worked_plan import edited, named

from planner.api.plan_calls import solve
from planner.checks import strategy_space_check
from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models import SitesRequest
from planner.models.joint.shapes.site_choice import Sites
from planner.models.sites import site_rules
from planner.models.sites import split_model as sites
from planner.models.sites.split_data import gather
from planner.models.sites.split_model import RULES, build
from planner.plan.plan import Plan
from planner.plan.plan_sections import SitesPlan
from planner.planning.load import load_instance
from planner.solvers import highs

BATCH = {"max_batch_tokens": 12800}
EXPLICIT = {"enabled": True, "share": 0.5, "reading": "explicit"}


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


def upgradable(**rules: Any) -> Instance:
    upgrade = {"step_mw": 2, "max_steps": 2, "capex_usd": 1e6, "lead_months": 12}
    explicit = {"interconnect": {"enabled": True, "share": 1.0, "reading": "explicit"}}
    nodes = [node("E0", interconnect_mw=3, upgrade=upgrade)]
    return case(*nodes, rules=explicit | rules, limits=BATCH, prices={"discount_rate": 0.0, "site_life_years": 10})


def test_interconnect_is_bought_by_the_step() -> None:
    """Two steps of 2 MW carry 7 MW where 3 stand; fewer racks buy fewer steps; each costs its price."""
    assert racks(upgradable()) == 7
    assert [u.steps for u in planned(asking(upgradable(), 4)).upgrades] == [1]
    assert usd(asking(upgradable(), 4)) - 4 / 3 * usd(asking(upgradable(), 3)) == pytest.approx(1e6 / 10)
    assert racks(upgradable(ready_within_months=11)) == 3
    plan = whole(load_instance(upgradable(), pins={"sites.racks": 7}))
    assert plan.cost is not None and plan.cost.capex_usd["upgrades"] == 2e6


def soft(price: float) -> Instance:
    rules = {"soft": {"headroom": {"usd_per_year": price, "max_excess": 3}}, "max_sites": 1}
    return case(node("E0"), headroom={"E": 4}, rules=rules, limits=BATCH)


def test_a_soft_rule_is_broken_as_far_as_it_may_be_and_no_further() -> None:
    """Headroom of 4 MW that may be exceeded by 3 holds 7 racks; the excess is stated and priced, more is found."""
    plan = whole(load_instance(soft(5e5), pins={"sites.racks": 7}))
    assert plan.sites is not None and sum(s.racks for s in plan.sites.sites) == 7
    (excess,) = plan.sites.excess
    assert (excess.rule, excess.amount, excess.unit, excess.usd_per_year) == ("headroom[E]", 3.0, "MW", 1.5e6)
    assert usd(asking(soft(5e5), 5)) - usd(asking(soft(0), 5)) == pytest.approx(5e5)
    plan = edited(plan, instance__grid__rules__soft__headroom__max_excess=2)
    assert any(v.rule == "excess[headroom[E]]" for v in check(plan, stop=lambda: True))


@each("goal", ["cost_usd", "total_cost_of_ownership_usd"])
def test_goals_in_dollars_count_what_is_broken(goal: str) -> None:
    """The proof is on what was weighed: a plan of a smaller bill that breaks more is no better one."""
    i = toy(3, sites=1).model_dump(mode="json", exclude_none=True)
    i["objective"], i["limits"]["deadline_days"] = {"minimize": goal}, 1.0
    i["grid"]["rules"]["soft"] = {"headroom": {"usd_per_year": 10, "max_excess": 3}}
    i["grid"]["balancing_authorities"][0]["headroom_mw"] = 0.5
    plan = solve(i)
    spent = {"cost_usd": plan.cost.total_usd, "total_cost_of_ownership_usd": plan.run.total_cost_of_ownership_usd}
    assert (plan.verified, plan.objective.value) == (True, pytest.approx(spent[goal] + 19))
    assert plan.objective.bound == pytest.approx(plan.objective.value)


@each("excess", [0.5, 1.5])
def test_sites_beyond_a_soft_count_are_whole(excess: float) -> None:
    """The checker looks for plans at as many sites as the search does: one site and a half is one."""
    rules = {"max_sites": 1, "soft": {"site_count": {"usd_per_year": 1.0, "max_excess": excess}}}
    i = case(node("E0"), node("E1"), node("W0"), rules=rules, limits=BATCH)
    assert strategy_space_check.max_sites(i) == site_rules.max_sites(gather(i, ANY), RULES.values()) == 1 + int(excess)


def dry(mode: str) -> Instance:
    """Return 4 MW in the east and in the west, where 1 MW is left in a dry year."""
    year = {"name": "dry", "weight": 0.25, "generation_mw": {"W0": 1}, "energy_usd_per_mwh": {"E": 80}}
    split = case(node("E0", generation_mw=4), node("W0", generation_mw=4), limits=BATCH)
    return with_years(split, mode, year, curtailment_usd_per_mwh=500)


def test_a_robust_split_runs_whole_in_every_year() -> None:
    """Where a dry year leaves 1 MW in the west, 5 racks run in every year, 8 in the grid's own."""
    assert racks(dry("off")) == 8
    assert racks(dry("robust")) == 5
    plan = whole(load_instance(dry("robust"), pins={"sites.racks": 5}))
    assert plan.sites is not None and plan.sites.scenarios["dry"].running_mw == {"E0": 4.0, "W0": 1.0}
    stops = {x.node: x.stopped_by for x in sites.largest_loads(dry("robust"), OPTIONS)}
    assert stops == {"E0": ("generation",), "W0": ("generation",)}
    own = Sites(instance=dry("robust"))
    own.pay(dry("robust").replaced(limits__budget_usd=5e6))
    assert [year.instance.limits.budget_usd for year in (own.data, own.data.scenarios["dry"])] == [5e6, 5e6]


def test_an_expected_split_may_run_less_in_a_dry_year() -> None:
    """All 8 racks are open; the dry year runs 5 and pays for 3 MW left undone, at a quarter of the weight."""
    plan = whole(load_instance(dry("expected"), pins={"sites.racks": 8}))
    assert plan.sites is not None and sum(s.racks for s in plan.sites.sites) == 8
    own, year = 8 * 40 * 8760, (4 * 80 + 1 * 40 + 3 * 500) * 8760
    assert planned(dry("expected")).certificate.objective == pytest.approx(0.75 * own + 0.25 * year)


def test_weights_above_one_are_refused() -> None:
    data = dry("expected").model_dump(mode="json", exclude_none=True)
    data["grid"]["scenarios"][0] |= {"weight": 0.6, "headroom_mw": {"X": 1}}
    data["grid"]["scenarios"].append({"name": "", "weight": 0.5})
    message = r"weights must sum to at most 1 \(are 1.1\)[\s\S]*headroom_mw: 'X' does not exist"
    message += r"[\s\S]*scenarios\[1\]\.name: is empty"
    with pytest.raises(InputError, match=message):
        load_instance(data)


def test_what_would_do_does() -> None:
    """6 racks at one site lack 1 MW of interconnect: that, a site more or fewer racks would do, no headroom would."""

    def short(mw: float) -> Instance:
        rules = {"interconnect": EXPLICIT, "max_sites": 1, "grid_model": "none"}
        nodes = node("E0", interconnect_mw=mw), node("E1", interconnect_mw=1)
        return asking(case(*nodes, headroom={"E": 7}, rules=rules), 6)

    names = ("interconnect", "site_count", "pins", "headroom")
    found = {x.rule: x for x in sites.relaxations(short(2), names, OPTIONS)}
    assert found["interconnect"].rows == {"interconnect[E0]": pytest.approx(1.0)}
    assert found["pins"].amount == 2 and found["pins"].proved and found["site_count"].amount == 1
    assert "headroom" not in found or found["headroom"].amount == 0  # moving it does not help
    assert (racks(short(3)), racks(short(2.99))) == (6, 0)


def test_a_longer_route_would_do() -> None:
    """Two sites that must be in both interconnections are too far apart; their round trip would do."""

    def apart(ms: float) -> Instance:
        split = {"enabled": True, "min_interconnections": 2, "max_share": 1.0}
        return case(node("E0"), node("W0"), rules={"max_rtt_ms": ms, "fault_split": split})

    (rtt,) = sites.relaxations(apart(10.0), ("rtt", "fault_split"), OPTIONS)
    assert (rtt.rule, rtt.unit) == ("rtt", "ms")
    assert racks(apart(10.0 + rtt.amount)) > 0 == racks(apart(10.0 + rtt.amount - 0.01))


SPLIT_RULES = [name for name, rule in RULES.items() if rule.scope == "split"]
# Rules of whole splits, which say nothing of one node alone.
FREE = {"fault_split": {"enabled": False}, "max_sites": None, "max_rtt_ms": None, "min_site_modules": 1}


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_the_most_that_a_node_carries(seed: int) -> None:
    """Of all splits over one site alone, the largest; where there is none, no racks and what stops the first."""
    data = random_case(seed)[0].model_dump(mode="json")
    data["grid"]["rules"] |= FREE
    data["limits"] |= {"budget_usd": None, "facility_power_mw": None, "operation_years": None}
    data["pins"] = {}
    i = Instance.model_validate(data)
    alone: dict[str, int] = {}
    for by_site, _ in placed_splits(i, SitesRequest()):
        if len(by_site) == 1:
            ((site, n),) = by_site.items()
            alone[site] = max(alone.get(site, 0), n)
    found = sites.largest_loads(i, OPTIONS)
    assert {x.node: x.racks for x in found if x.racks} == alone
    assert {x.node for x in found} == {n.id for n in i.grid.nodes if n.site}
    assert [x.racks for x in found] == sorted((x.racks for x in found), reverse=True)
    for x in found:
        assert x.mw == pytest.approx(x.racks * 1.0)
        assert x.stopped_by
        left_out = {row.partition("[")[0] for row in x.stopped_by} | set(SPLIT_RULES)
        m = build(gather(i, SitesRequest()), without=left_out)
        m.more = pyo.Constraint(expr=m.modules[x.node] >= x.racks // i.hardware.racks_per_module + 1)
        m.goal = pyo.Objective(expr=sum(m.open.values()))
        assert highs.run(m).solution is not None, x


@pytest.mark.parametrize(("figures", "rules", "stops"), [
    ({"generation_mw": 0.9}, {"grid_model": "none"}, {"generation[E]"}), ({"area_m2": 500.0}, {}, {"area[E0]"}),
    ({"interconnect_mw": 0.4}, {"interconnect": EXPLICIT}, {"interconnect[E0]"}),
    ({"area_m2": 500.0, "interconnect_mw": 0.4}, {"interconnect": EXPLICIT}, {"area[E0]", "interconnect[E0]"}),
    ({"ready_months": 9.0, "area_m2": 500.0}, {"ready_within_months": 8.0}, {"area[E0]", "ready[E0]"}),
])  # fmt: skip
def test_what_stops_a_node_that_carries_nothing(figures, rules, stops) -> None:
    i = case(node("E0", **figures), rules=rules, hardware={"cooling_kw_per_m2": 1.0})
    (found,) = sites.largest_loads(i, OPTIONS)
    assert (found.racks, found.mw) == (0, 0.0)
    assert set(found.stopped_by) == stops


# E0 has 2 MW of plants and two modules; E1 has plants of its own that feed it over one line.
@each(("area", "rating", "spare", "headroom", "names"), [
    (2000.0, 5.0, 1.0, 9.0, {"area[E0]"}), (2000.0, 5.0, 0.9, 9.0, {"area[E0]", "generation"}),
    (9000.0, 0.9, 5.0, 9.0, {"generation", "rating"}), (9000.0, 5.0, 0.9, 9.0, {"generation"}),
    (2000.0, 5.0, 1.0, 2.9, {"area[E0]", "headroom[E]"}), (9000.0, 5.0, 5.0, 2.9, {"headroom[E]"}),
])  # fmt: skip
def test_what_stops_the_third_module(area, rating, spare, headroom, names) -> None:
    """Plants that are not at work, and room on lines, count as what they are; all that stops it is named, no more."""
    wire = line("E0", "E1", rating_mw=rating)
    nodes = node("E0", generation_mw=2.0, area_m2=area), node("E1", generation_mw=spare, site=False)
    i = case(*nodes, headroom={"E": headroom}, lines=[wire], hardware={"cooling_kw_per_m2": 1.0})
    (found,) = sites.largest_loads(i, OPTIONS)
    assert found.racks == 2 and set(found.stopped_by) == names
