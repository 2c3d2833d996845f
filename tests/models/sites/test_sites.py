"""The site split: agreement with a brute force and with CP-SAT, every rule on both sides of its edge, and conflicts."""

from dataclasses import replace
from typing import Any

import pyomo.environ as pyo
import pytest
from site_grids import best, case, line, node, random_case
from tiers import more

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models.requests import GradientExchange, Options, SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites import solve as sites_explain
from planner.models.sites.model import build, yearly_musd
from planner.models.sites.solve import conflict, infeasible, verified
from planner.models.sites.split_data import gather
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.plan_sections import SitesPlan
from planner.solvers import cpsat, highs
from planner.solvers.cpsat_from_pyomo import restate
from planner.solvers.outcome import Stop

ANY, OPTIONS = SitesRequest(), Options()
SPLIT = 19  # A random case with two sites and flows.


def solved(instance: Instance, request: SitesRequest = ANY) -> SitesPlan | None:
    outcome = sites.solve(instance, request, OPTIONS)
    assert outcome.stop == Stop.PROVED
    assert outcome.infeasible == (outcome.solution is None)
    return outcome.solution


def racks(instance: Instance, request: SitesRequest = ANY) -> int:
    """Return the racks of the best split, 0 where there is none."""
    plan = solved(instance, request)
    return sum(s.racks for s in plan.sites) if plan else 0


def changed(instance: Instance, **grid: Any) -> Instance:
    data = instance.model_dump()
    data["grid"] |= grid
    return Instance.model_validate(data)


# Agreement


@pytest.mark.parametrize("seed", range(160))
def test_agrees_with_brute_force(seed: int) -> None:
    """Racks and yearly cost are those of the best split of all, and where there is none, that is proven."""
    agrees(*random_case(seed))


def agrees(instance: Instance, request: SitesRequest) -> None:
    expected, plan = best(instance, request), solved(instance, request)
    assert (plan is None) == (expected is None)
    if plan and expected:
        assert sum(s.racks for s in plan.sites) == expected[0]
        assert plan.certificate.objective == pytest.approx(expected[1], rel=1e-9, abs=1.0)
        assert plan.certificate.status == "optimal"


def test_wavelengths_count_against_the_budget() -> None:
    """Where sites must be two and a wavelength costs as much as a rack, racks are those of the best split still."""
    wan = {"fibre_usd_per_route_km": 5, "wavelength_usd": 8e5, "max_wavelengths_per_pair": 4, "headroom_factor": 1.5}
    rules = {"grid_model": "none", "fault_split": {"enabled": True, "min_interconnections": 2, "max_share": 0.6}}
    exchange = SitesRequest(exchange=GradientExchange(stage_bytes=2e10, window_seconds=1.0))
    found = set()
    for budget in range(20, 80, 3):
        instance = case(node("E0"), node("W0"), rules=rules, wan=wan, limits={"budget_usd": budget * 1e5})
        agrees(instance, exchange)
        plan = solved(instance, exchange)
        found.add(0 if plan is None else sum(s.racks for s in plan.sites))
    assert len(found) > 3


def test_random_cases_are_of_both_kinds() -> None:
    """The brute force would prove little if all its cases were infeasible."""
    found = [best(*random_case(seed)) is not None for seed in range(160)]
    assert 80 <= sum(found) <= 145


@pytest.mark.parametrize("seed", range(0, 100, 2))
def test_agrees_with_cpsat(seed: int) -> None:
    """In whole MW the same rows in CP-SAT have the same most modules and the same least cost."""
    data = gather(*random_case(seed))
    m = build(data)
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    first, second = highs.run(m, absolute_gap=0.99), cpsat.run(restate(m, unit=1.0, relax=False))
    assert first.infeasible == second.infeasible
    if first.objective is None or second.objective is None:
        return
    most = round(first.objective)
    assert most == round(-second.objective / 1e6)
    m.del_component(m.goal)
    m.most = pyo.Constraint(expr=sum(m.modules.values()) == most)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    first, second = highs.run(m), cpsat.run(restate(m, unit=1.0, relax=False))
    assert first.objective is not None and second.objective is not None
    assert second.objective / 1e6 == pytest.approx(first.objective, abs=1e-4)


@pytest.mark.parametrize("seed", [*range(64), *more(*range(64, 160))])
def test_every_conflict_is_a_smallest_one(seed: int) -> None:
    """Where nothing fits a conflict says why; without any one of its rules a split exists, with all of them none."""
    instance, request = random_case(seed)
    found = conflict(instance, request, OPTIONS)
    assert (found is None) == (best(instance, request) is not None)
    if found:
        data, rules = gather(instance, request), frozenset(found.rules)
        assert found.reason
        assert infeasible(data, rules, OPTIONS) and verified(data, rules, OPTIONS)
        assert not any(infeasible(data, rules - {name}, OPTIONS) for name in rules)


# Monotonicity


@pytest.mark.parametrize("seed", range(0, 60, 3))
@pytest.mark.parametrize("what", ["headroom", "rating", "generation"])
def test_more_never_hurts(seed: int, what: str) -> None:
    """More headroom, rating or generation never costs racks, nor money for the same racks."""
    instance, request = random_case(seed)
    assert instance.grid is not None
    g = instance.grid.model_dump()
    part = {"headroom": "balancing_authorities", "rating": "lines", "generation": "nodes"}[what]
    key = f"{what}_mw"
    more = changed(instance, **{part: [x | {key: x[key] + 2} for x in g[part]]})
    # A larger circuit is also a larger one to lose, but no less is left without it.
    before, after = solved(instance, request), solved(more, request)
    if before is None:
        return
    assert after is not None
    planned, now = (sum(s.racks for s in p.sites) for p in (before, after))
    assert now >= planned
    if now == planned:
        assert (after.certificate.objective or 0) <= (before.certificate.objective or 0) + 1.0


# Rules at their edges


@pytest.mark.parametrize(("mw", "most"), [(4.0, 4), (3.999, 3)])
def test_headroom(mw: float, most: int) -> None:
    """Four racks of 1 MW take 4 MW of headroom; a kW less holds three."""
    assert racks(case(node("E0"), headroom={"E": mw})) == most


def test_headroom_can_be_switched_off() -> None:
    """Without the rule only plants bind."""
    assert racks(case(node("E0"), headroom={"E": 2.0}, rules={"headroom": False})) == 10


@pytest.mark.parametrize(("mw", "most"), [(4.0, 4), (3.999, 3)])
@pytest.mark.parametrize("model", ["none", "transport"])
def test_generation_of_a_node(mw: float, most: int, model: str) -> None:
    """A site without lines draws what its plants can spare."""
    assert racks(case(node("E0", generation_mw=mw), rules={"grid_model": model})) == most


def test_generation_of_an_authority() -> None:
    """An authority feeds in all that its plants can, whatever its headroom, even into another's site."""
    far = node("W0", generation_mw=9.0, site=False)
    assert racks(case(node("E0", generation_mw=0.0), far, lines=[line("E0", "W0")], headroom={"W": 3.0})) == 9


@pytest.mark.parametrize(("mw", "most"), [(2.0, 6), (1.999, 5)])
def test_rating(mw: float, most: int) -> None:
    """Two circuits of 2 MW bring 4 MW beside the site's own 2 MW."""
    nodes = node("E0", generation_mw=2.0), node("E1", site=False)
    assert racks(case(*nodes, lines=[line("E1", "E0", rating_mw=mw, circuits=2)])) == most


def test_without_flows_lines_do_not_matter() -> None:
    """The model `none` feeds an authority's sites from all its plants."""
    assert (
        racks(
            case(node("E0", generation_mw=2.0), node("E1", generation_mw=3.0, site=False), rules={"grid_model": "none"})
        )
        == 5
    )


@pytest.mark.parametrize(("mw", "most"), [(3.0, 5), (2.999, 4)])
def test_new_circuits_carry_power(mw: float, most: int) -> None:
    """A circuit of 3 MW is built when racks need it, and bears its price."""
    new = [{"id": "k", "a": "E0", "b": "E1", "rating_mw": mw, "capex_usd": 1e6}]
    instance = case(node("E0", generation_mw=2.0), node("E1", site=False), new_lines=new)
    plan = solved(instance)
    assert plan is not None
    assert racks(instance) == most
    assert [(k.line, k.circuits) for k in plan.new_lines] == [("k", 1)]


@pytest.mark.parametrize(("mw", "most"), [(2.0, 4), (1.999, 3)])
def test_interconnect_as_given(mw: float, most: int) -> None:
    """Half of 4 MW needs 2 MW of usable interconnect."""
    assert racks(case(node("E0", interconnect_mw=mw), rules={"interconnect": {"enabled": True}})) == most


@pytest.mark.parametrize(("reading", "most"), [("capacity", 8), ("capacity_n1", 4)])
def test_interconnect_from_circuits(reading: str, most: int) -> None:
    """Two circuits of 2 MW carry half of 8 MW; with one lost, half of 4 MW."""
    rules = {"interconnect": {"enabled": True, "reading": reading}}
    assert (
        racks(
            case(node("E0"), node("E1", site=False), lines=[line("E0", "E1", rating_mw=2.0, circuits=2)], rules=rules)
        )
        == most
    )


@pytest.mark.parametrize(("rating", "most"), [(1.0, 6), (2.0, 8), (5.0, 8)])
def test_interconnect_loses_the_largest_circuit_built_or_not(rating: float, most: int) -> None:
    """A new circuit larger than the existing one (2 MW) is the one to lose: it adds no more than the existing one."""
    rules = {"interconnect": {"enabled": True, "reading": "capacity_n1"}}
    new = [{"id": "k", "a": "E0", "b": "E1", "rating_mw": rating, "capex_usd": 1e3}]
    lines = [line("E0", "E1", rating_mw=2.0, circuits=2)]
    instance = case(node("E0"), node("E1", site=False), lines=lines, new_lines=new, rules=rules)
    plan = solved(instance)
    assert plan is not None and plan.sites[0].racks == most
    assert instance.grid is not None
    assert (
        plan.sites[0].interconnect_mw
        == usable_interconnect_mw(instance.grid, instance.grid.nodes[0], {"k": 1})
        == min(2.0 + rating, 4.0)
    )


def test_explicit_interconnect_must_be_given() -> None:
    """The explicit reading of a node without a figure names the figure."""
    with pytest.raises(InputError, match=r"grid\.nodes\[1\]\.interconnect_mw"):
        solved(case(node("E0", interconnect_mw=1.0), node("E1"), rules={"interconnect": {"enabled": True}}))


@pytest.mark.parametrize(("m2", "most"), [(2000.0, 4), (1999.0, 3)])
def test_area(m2: float, most: int) -> None:
    """Four MW at 2 kW per m² take 2000 m²."""
    assert racks(case(node("E0", area_m2=m2), hardware={"cooling_kw_per_m2": 2.0})) == most


@pytest.mark.parametrize(("limit", "most"), [(1, 3), (2, 6), (None, 9)])
def test_site_count(limit: int | None, most: int) -> None:
    """Three nodes of 3 MW hold three racks each."""
    assert racks(case(*(node(n, generation_mw=3.0) for n in ("E0", "E1", "E2")), rules={"max_sites": limit})) == most


@pytest.mark.parametrize(("least", "most"), [(2, 5), (3, 3), (4, 0)])
def test_min_site(least: int, most: int) -> None:
    """Nodes hold three and two modules: with three at least one stays closed, with four at least both do."""
    nodes = node("E0", generation_mw=3.0), node("E1", generation_mw=2.0)
    assert racks(case(*nodes, rules={"min_site_modules": least})) == most


@pytest.mark.parametrize(("share", "most"), [(0.6, 5), (0.59, 4), (0.5, 4)])
def test_fault_split_share(share: float, most: int) -> None:
    """Three racks of five are 60 %; a little less allows two of four."""
    nodes = node("E0"), node("W0", generation_mw=2.0)
    assert racks(case(*nodes, rules={"fault_split": {"enabled": True, "max_share": share}})) == most


@pytest.mark.parametrize(("areas", "most"), [(("E0", "W0"), 20), (("E0", "E1"), 0)])
def test_fault_split_interconnections(areas: tuple[str, str], most: int) -> None:
    """Two sites in one interconnection fall together."""
    assert racks(case(*map(node, areas), rules={"fault_split": {"enabled": True}})) == most


def test_rtt() -> None:
    """Two sites stand as far apart as the longest round trip, and no farther."""
    nodes = node("E0"), node("W0")
    far = gather(case(*nodes), ANY).rtt_ms(("E0", "W0"))
    assert racks(case(*nodes, rules={"max_rtt_ms": far})) == 20
    assert racks(case(*nodes, rules={"max_rtt_ms": far - 1e-6})) == 10


def exchange_of(waves: float, rtt_ms: float) -> SitesRequest:
    """Return an exchange that takes `waves` wavelengths of 400 Gbps between two sites `rtt_ms` apart."""
    window = 0.5
    return SitesRequest(
        exchange=GradientExchange(stage_bytes=waves * 400e9 / 8 * (window - rtt_ms / 1e3), window_seconds=window)
    )


@pytest.mark.parametrize(("waves", "most"), [(6.0, 20), (6.01, 10)])
def test_wan_capacity(waves: float, most: int) -> None:
    """Six wavelengths are lit on two pairs of three; a seventh cannot be leased, so one site remains."""
    instance = case(
        node("E0"), node("W0"), wan={"headroom_factor": 1.0, "max_wavelengths_per_pair": 3, "max_fibre_pairs": 2}
    )
    request = exchange_of(waves, gather(instance, ANY).rtt_ms(("E0", "W0")))
    plan = solved(instance, request)
    assert plan is not None and sum(s.racks for s in plan.sites) == most
    if most == 20:
        (link,) = plan.links
        assert (link.wavelengths, link.fibre_pairs, link.capacity_gbps) == (6, 2, 2400.0)
        assert link.required_gbps == pytest.approx(2400.0)


def test_wan_window_filled_by_round_trips() -> None:
    """No capacity helps where light alone takes the whole window."""
    request = SitesRequest(exchange=GradientExchange(stage_bytes=1.0, window_seconds=0.01))
    assert racks(case(node("E0"), node("W0")), request) == 10


def test_wan_need_grows_with_the_number_of_sites() -> None:
    """Three sites send 4/3 of the gradient: what just fits two does not fit three."""
    nodes = [node(n, generation_mw=2.0) for n in ("E0", "E1", "E2")]
    tight = {"headroom_factor": 1.0, "max_wavelengths_per_pair": 3, "max_fibre_pairs": 1}
    for most, expected in ((3, 4), (4, 6)):
        instance = case(*nodes, wan=tight | {"max_wavelengths_per_pair": most})
        assert racks(instance, exchange_of(3.0, gather(instance, ANY).rtt_ms(("E0", "E2")))) == expected


@pytest.mark.parametrize(("usd", "most"), [(4.4e6 + 1e5, 4), (4.4e6 + 1e5 - 1, 3)])
def test_budget(usd: float, most: int) -> None:
    """Four racks with their fabric and a site cost 4.5 M$; a dollar less buys three."""
    instance = case(node("E0"), limits={"budget_usd": usd}, prices={"site_usd": 1e5})
    assert racks(instance, SitesRequest(fabric_usd_per_rack=1e5)) == most


@pytest.mark.parametrize(("years", "most"), [(0.0, 4), (1.0, 2)])
def test_budget_counts_years_of_energy(years: float, most: int) -> None:
    """A year of 1 MW at 40 $/MWh adds 0.35 M$ to a rack."""
    assert racks(case(node("E0"), limits={"budget_usd": 4.0e6, "operation_years": years})) == most


@pytest.mark.parametrize(("mw", "most"), [(4.0, 4), (3.999, 3)])
def test_facility_power(mw: float, most: int) -> None:
    """Sites draw no more than the limit together."""
    assert racks(case(node("E0", generation_mw=2.0), node("W0"), limits={"facility_power_mw": mw})) == most


@pytest.mark.parametrize(("asked", "planned"), [(10, 10), (11, 0), (6, 6)])
def test_demand(asked: int, planned: int) -> None:
    """What is asked for is planned exactly or proven impossible."""
    assert racks(case(node("E0")), SitesRequest(racks=asked)) == planned


def test_modules_are_whole() -> None:
    """Racks come in modules of four: ten MW hold eight racks, and six racks cannot be had."""
    instance = case(node("E0"), hardware={"racks_per_module": 4})
    assert racks(instance) == 8
    assert racks(instance, SitesRequest(racks=6)) == 0


@pytest.mark.parametrize(
    ("pins", "planned"),
    [
        ({"sites.racks": 7}, {7}),
        ({"sites.max_sites": 1}, {10}),
        ({"sites.racks.E0": 3}, {3, 10}),
        ({"sites.racks.E0": 0}, {10}),
        ({"sites.racks.E0": 11}, set()),
    ],
)
def test_pins(pins: dict[str, int], planned: set[int]) -> None:
    """A pin is kept and the rest chosen around it."""
    plan = solved(case(node("E0"), node("W0"), pins=pins))
    got = {s.racks for s in plan.sites} if plan else set()
    assert sum(got) == 7 if pins == {"sites.racks": 7} else got == planned


@pytest.mark.parametrize(
    "pins", [{"sites.racks.E9": 1}, {"sites.sites": 1}, {"sites.racks": 0}, {"sites.max_sites": "2"}]
)
def test_pins_that_mean_nothing_are_named(pins: dict[str, Any]) -> None:
    """A pin to nowhere or of no number says which."""
    with pytest.raises(InputError, match=next(iter(pins)).replace(".", r"\.")):
        solved(case(node("E0"), pins=pins))


def test_two_lines_of_one_id_are_refused() -> None:
    """Flows are distinguished by the line's id."""
    new = [{"id": "E0-E1", "a": "E0", "b": "E1", "rating_mw": 1.0, "capex_usd": 1.0}]
    with pytest.raises(InputError, match=r"grid\.new_lines\[0\]\.id"):
        solved(case(node("E0"), node("E1"), lines=[line("E0", "E1")], new_lines=new))


# What comes back


def test_the_cheaper_authority_is_chosen() -> None:
    """Racks go where energy costs least."""
    plan = solved(case(node("E0"), node("W0"), usd_per_mwh={"E": 40.0, "W": 39.0}), SitesRequest(racks=5))
    assert plan is not None
    assert [(s.id, s.racks) for s in plan.sites] == [("W0", 5)]
    assert plan.certificate.objective == pytest.approx(5 * 8760 * 39)


@pytest.mark.parametrize("seed", range(0, 100, 5))
def test_flows_balance_and_go_no_detours(seed: int) -> None:
    """At each node generation and flows feed the load, and no power runs in a circle."""
    instance, request = random_case(seed)
    plan = solved(instance, request)
    if plan is None or instance.grid is None or instance.grid.rules.grid_model == "none":
        return
    ends = {x.id: (x.a, x.b) for x in (*instance.grid.lines, *instance.grid.new_lines)}
    net = {n.id: plan.generation_mw.get(n.id, 0.0) for n in instance.grid.nodes}
    for f in plan.flows:
        a, b = ends[f.line]
        net[a] -= f.mw
        net[b] += f.mw
    load = {s.id: s.facility_mw for s in plan.sites}
    assert all(mw == pytest.approx(load.get(n, 0.0), abs=1e-5) for n, mw in net.items())
    import_mw = sum(max(load.get(n, 0.0) - plan.generation_mw.get(n, 0.0), 0.0) for n in net)
    assert sum(abs(f.mw) for f in plan.flows) <= import_mw * (len(net) - 1) + 1e-5


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"headroom": {"E": 4.5}}, "headroom[E]"),
        ({"limits": {"budget_usd": 4.5e6}}, "budget"),
        ({"limits": {"facility_power_mw": 4.5}}, "facility_power"),
        ({"rules": {"max_sites": 1}}, "site_count"),
        ({"rules": {"grid_model": "none"}}, "generation[E]"),
        ({}, "generation[E0]"),
    ],
)
def test_binding_names_the_rule_that_stops_the_next_module(changes: dict[str, Any], name: str) -> None:
    """The rule without room for one module more is named."""
    plan = solved(case(node("E0"), **({"headroom": {"E": 99.0}} | changes)))
    assert plan is not None
    assert name in plan.certificate.binding


def test_binding_names_the_line_that_stops_the_next_module() -> None:
    """Where power is spare but cannot come, the line is named and not the plants."""
    plan = solved(case(node("E0", generation_mw=1.0), node("E1", site=False), lines=[line("E0", "E1", rating_mw=2.0)]))
    assert plan is not None
    assert "rating[E0-E1]" in plan.certificate.binding
    assert "generation[E1]" not in plan.certificate.binding


def test_same_question_same_answer() -> None:
    """A run repeats but for its seconds."""
    instance, request = random_case(SPLIT)
    first, second = (sites.solve(instance, request, OPTIONS).solution for _ in range(2))
    assert first is not None and second is not None
    assert first.model_dump(exclude={"certificate": {"seconds"}}) == second.model_dump(
        exclude={"certificate": {"seconds"}}
    )


def test_order_of_nodes_does_not_matter() -> None:
    """The objective is the same for the nodes in another order."""
    instance, request = random_case(SPLIT)
    assert instance.grid is not None
    turned = changed(instance, nodes=instance.grid.model_dump()["nodes"][::-1])
    first, second = solved(instance, request), solved(turned, request)
    assert first is not None and second is not None
    assert first.certificate.objective == pytest.approx(second.certificate.objective)


def test_a_tenth_of_a_second_is_enough_for_an_answer() -> None:
    """A short limit ends cleanly, with a plan or without."""
    outcome = sites.solve(case(node("E0"), node("W0")), ANY, Options(time_limit=0.1))
    assert outcome.stop in (Stop.PROVED, Stop.LIMIT)


# Conflicts


def conflict_of(instance: Instance, request: SitesRequest = ANY) -> tuple[set[str], str]:
    found = conflict(instance, request, OPTIONS)
    assert found is not None
    return set(found.rules), found.reason


def test_too_little_grid_names_headroom_and_the_module() -> None:
    """A tenth of a MW does not feed a module of 175 kW; the reason says both numbers."""
    rack = {"name": "r", "gpus": 8, "it_kw": 125, "price_usd": 1e6}
    rules, reason = conflict_of(
        case(node("E0"), headroom={"E": 0.1}, hardware={"rack": rack, "facility_overhead_factor": 1.4})
    )
    assert rules == {"demand", "headroom"}
    assert "0.175 MW" in reason and "E 0.1 MW" in reason


NEAR = {"fault_split": {"enabled": True}}


@pytest.mark.parametrize(
    ("instance", "request_", "rules", "number"),
    [
        (case(node("E0", generation_mw=0.5)), ANY, {"demand", "generation"}, "0.5 MW"),
        (case(node("E0")), SitesRequest(racks=11), {"demand", "headroom"}, "11 MW"),
        (case(node("E0"), limits={"budget_usd": 9e5}), ANY, {"demand", "budget"}, "0.9 M$"),
        (case(node("E0"), limits={"facility_power_mw": 0.5}), ANY, {"demand", "facility_power"}, "0.5"),
        (case(node("E0"), hardware={"racks_per_module": 4}), SitesRequest(racks=6), {"demand"}, "modules of 4"),
        (
            case(node("E0"), node("W0"), rules=NEAR | {"max_sites": 1}),
            ANY,
            {"fault_split", "site_count"},
            "max_sites is 1",
        ),
        (case(node("E0"), node("W0"), rules=NEAR | {"max_rtt_ms": 5.0}), ANY, {"fault_split", "rtt"}, "is 5"),
        (case(node("E0"), rules=NEAR), ANY, {"fault_split"}, "eastern"),
        (
            case(node("E0", generation_mw=3.0), rules={"min_site_modules": 4}),
            ANY,
            {"demand", "generation", "min_site"},
            "4 modules",
        ),
        (
            case(node("E0", interconnect_mw=0.2), rules={"interconnect": {"enabled": True}}),
            ANY,
            {"demand", "interconnect"},
            "0.2 MW",
        ),
        (case(node("E0", area_m2=100.0), hardware={"cooling_kw_per_m2": 2.0}), ANY, {"demand", "area"}, "500 m²"),
        (
            case(node("E0", generation_mw=1.0), node("E1", site=False), lines=[line("E0", "E1", rating_mw=2.0)]),
            SitesRequest(racks=4),
            {"demand", "rating", "generation"},
            "at a site itself at most 1 MW (E0); lines into a site carry 2 MW",
        ),
        (case(node("E0"), pins={"sites.racks.E0": 11}), ANY, {"pins", "headroom"}, "sites.racks.E0=11"),
        (case(node("E0"), pins={"sites.racks": 3}), SitesRequest(racks=4), {"demand", "pins"}, "sites.racks=3"),
        (
            case(node("E0"), node("W0"), rules=NEAR),
            SitesRequest(exchange=GradientExchange(stage_bytes=1.0, window_seconds=0.001)),
            {"fault_split", "wan_capacity"},
            "Gbps",
        ),
    ],
)
def test_conflicts_in_the_users_terms(instance: Instance, request_: SitesRequest, rules: set[str], number: str) -> None:
    """Each rule that leaves nothing is named, with the numbers that collide."""
    found, reason = conflict_of(instance, request_)
    assert found == rules, reason
    assert number in reason


def test_no_conflict_where_a_split_exists() -> None:
    """What can be met has no conflict."""
    assert conflict(case(node("E0")), ANY, OPTIONS) is None


# A known number of sites: pairs by their sums, bounds of what each must hold


def in_two(seed: int) -> tuple[Instance, SitesRequest]:
    """Return a random question of two sites, one in each interconnection."""
    instance, request = random_case(seed)
    data = instance.model_dump()
    for n in data["grid"]["nodes"]:
        n["site"] = True
    split = {"enabled": True, "min_interconnections": 2, "max_share": 0.6 + 0.1 * (seed % 3)}
    data["grid"]["rules"] |= {"max_sites": 2, "max_rtt_ms": None, "fault_split": split}
    if seed % 2:
        data["grid"]["rules"]["interconnect"]["enabled"] = False
        data["limits"] |= {"budget_usd": None}
        request = replace(request, exchange=GradientExchange(stage_bytes=4e9, window_seconds=0.2))
    if seed % 3 == 0:
        request = replace(request, racks=2 * data["hardware"]["racks_per_module"])
    return Instance.model_validate(data), request


def both_sides(seed: int) -> bool:
    grid = random_case(seed)[0].grid
    return grid is not None and {n.balancing_authority for n in grid.nodes} == {"E", "W"}


IN_TWO = [seed for seed in range(300, 350) if both_sides(seed)]


@pytest.mark.parametrize("seed", IN_TWO)
def test_two_sites_in_two_interconnections_agree_with_brute_force(seed: int) -> None:
    """What a known number of sites lets the rows leave out, and what it adds to them, changes no answer."""
    agrees(*in_two(seed))


def test_the_cases_of_two_sites_are_of_both_kinds() -> None:
    """Some have a split, of which some light a pair; some have none."""
    found = [sites.solve(*in_two(seed), OPTIONS).solution for seed in IN_TWO]
    assert sum(p is not None for p in found) >= 10 and sum(p is None for p in found) >= 3
    assert sum(bool(p and p.links and p.links[0].wavelengths) for p in found) >= 3


def test_more_sites_would_do_where_their_number_was_known() -> None:
    """Two sites, one in each interconnection, hold 4 of 6 racks; a third beside one of them would do."""
    nodes = [node("E0", generation_mw=2), node("E1", generation_mw=2), node("W0", generation_mw=2)]
    split = {"enabled": True, "min_interconnections": 2, "max_share": 0.7}
    instance = case(*nodes, rules={"fault_split": split, "max_sites": 2}, wan={})
    request = SitesRequest(racks=6, exchange=GradientExchange(stage_bytes=1e9, window_seconds=1.0))
    found = {x.rule: x.amount for x in sites_explain.relaxations(instance, request, ("site_count",), OPTIONS)}
    assert found == {"site_count": pytest.approx(1.0)}
