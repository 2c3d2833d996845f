"""The wide area: agreement with every choice of routes, the cost of protection and latency, and missing capacity."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from each_case import each
from wan_graphs import asked, cheapest, edge, fibre, random_case

from planner.instance.instance import Instance
from planner.models import Options, wan_design
from planner.models.wan_design import WanRequest, confirmed, gather, loads
from planner.physics.site.wan import link_prices
from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST
from planner.plan.plan_sections import WanPlan
from planner.report import decisions
from planner.solvers import highs, registry
from planner.solvers.outcome import Outcome, Stop

OPTIONS, THREE = Options(), ("E0", "E1", "W0")
SQUARE = [edge("n0", "n1", 1000), edge("n1", "n4", 2000), edge("n0", "n2", 1200), edge("n2", "n4", 2200)]


def solved(instance: Instance, request: WanRequest | None = None, **more: Any) -> Outcome[WanPlan]:
    return wan_design.solve(instance, request or asked(**more), OPTIONS)


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_every_choice_of_routes(seed: int) -> None:
    instance, request = random_case(seed)
    q = gather(instance, request)
    links = [(d.a, d.b, d.size_bytes, d.window_seconds, d.trips) for d in q.demands.values()]
    expected, outcome = cheapest(instance, links), solved(instance, request)
    assert outcome.stop == Stop.PROVED
    assert outcome.infeasible == (expected is None)
    if expected is None:
        assert outcome.detail
    else:
        assert outcome.solution.certificate.status == "optimal"
        assert outcome.solution.certificate.objective == pytest.approx(expected, rel=1e-9)


@each(("ends", "shared"), [(("n2", "n2"), "E0 - W0 at n2"), (("n2", "n3"), "")])
def test_a_node_on_a_route_and_its_backup_is_named(ends: tuple[str, str], shared: str) -> None:
    """Two routes of different edges survive a cut; where both pass one node the summary of the plan says so."""
    edges = [edge("n0", ends[0], 500, id="a"), edge(ends[0], "n4", 600, id="b")]
    edges += [edge("n0", ends[1], 700, id="c"), edge(ends[1], "n4", 800, id="d")]
    plan = solved(fibre(edges, protection="one_cut"), asked()).solution
    assert " ".join(statement.text for statement in decisions.wan(None, plan)).partition("share: ")[2] == shared


@each("protection", ["none", "one_cut"])
def test_the_split_prices_all_the_fibre_that_a_link_lights(protection: str) -> None:
    """Of two sites the split's price of a link is that of the design's spans, and not of one at the great circle."""
    edges = [edge("n0", "n2", 1500), edge("n2", "n4", 1600), edge("n0", "n3", 2700), edge("n3", "n4", 800)]
    instance = fibre(edges, protection=protection)
    plan = solved(instance, asked()).solution
    nodes = {n.id: (n.latitude, n.longitude) for n in instance.grid.nodes}
    pair_usd, wavelength_usd = link_prices(instance.wan, {s: nodes[s] for s in ("E0", "W0")})
    lit = {e.id.replace("E0", "n0").replace("W0", "n4") for e in plan.edges}  # by the places of the sites
    assert len(lit) == (4 if protection == "one_cut" else 2)
    assert pair_usd == pytest.approx(sum(x["route_km"] * 10 for x in edges if f"{x['a']}-{x['b']}" in lit))
    assert wavelength_usd == 1000 * len(lit)
    waves = {e.wavelengths for e in plan.edges}
    priced = [n * wavelength_usd + math.ceil(n / 4) * pair_usd for n in (min(waves), max(waves))]
    assert priced[0] * (1 - 1e-9) <= plan.capex_usd <= priced[1] * (1 + 1e-9)


def test_wavelengths_kept_for_a_cut_are_shared() -> None:
    """Two demands on different edges back each other on a third way: it is lit for one of them, not for both."""
    dear = {"wavelength_usd": 100_000}
    edges = [edge("n0", "n4", 1000, **dear), edge("n1", "n4", 1000, id="other", **dear)]
    edges += [edge("n0", "n2", 800), edge("n1", "n2", 800), edge("n2", "n4", 900)]
    traffic = [{"name": a, "a": a, "b": "W0", "period_seconds": 1.0, "bytes": 2e10} for a in ("E0", "E1")]
    instance = fibre(edges, sites=THREE, protection="one_cut", traffic=traffic, routes=20)
    design = solved(instance, replace(asked(sites=THREE), exchanging=("E0",))).solution
    assert {e.id: e.wavelengths for e in design.edges} == {"E0-W0": 2, "other": 2, "E0-n2": 2, "E1-n2": 2, "n2-W0": 2}


def narrow(edges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return edges with one fibre pair each."""
    return [{**e, "max_fibre_pairs": 1} for e in edges]


def test_what_is_missing_is_named() -> None:
    """20 GB in 300 ms less 29.4 ms need 591.3 Gbps on an edge of 400: 191.3 are missing on each."""
    out = solved(fibre(narrow(SQUARE[:2]), protection="none"), size=2e10, window=0.3)
    assert out.infeasible
    assert "E0-n1: 191.279 Gbps missing beyond its 1 fibre pair(s), for sync[E0,W0]" in out.detail


@each(("edges", "window", "said"), [
    ([], 0.2, "no fibre route"), (SQUARE, 0.029, "1 round trips of 29.4 ms fill the window of 29.0 ms"),
    (SQUARE[:2], 0.2, "no two routes that share no edge"),
])  # fmt: skip
def test_an_exchange_without_a_route_says_why(edges: list[dict[str, Any]], window: float, said: str) -> None:
    edges = edges or [edge("n2", "n3", 100)]
    assert said in solved(fibre(edges, protection="one_cut"), window=window).detail


def test_two_sites_without_a_graph_cannot_survive_a_cut() -> None:
    two = fibre([], fibre_nodes=[], protection="one_cut")
    assert "no two routes that share no edge" in solved(two).detail
    design = solved(fibre([], sites=THREE, fibre_nodes=[], protection="one_cut"), sites=THREE).solution
    assert design.protection == "one_cut"
    assert {len(d.routes[0].backup_edges) for d in design.demands} == {2}


def traffic_on(edges: list[dict[str, Any]], **more: Any) -> WanPlan:
    """Ask for 300 and 200 Gbps of two priorities beside an exchange of 46.9 Gbps, on edges of one pair: 400 Gbps."""
    named = ("dataset", 25e9, 2), ("checkpoint", 37.5e9, 1)
    traffic = [{"name": name, "bytes": size, "period_seconds": 1.0, "priority": n} for name, size, n in named]
    return solved(fibre(narrow(edges), protection="none", traffic=traffic, **more)).solution


def test_traffic_is_admitted_by_priority() -> None:
    """One way of 400 Gbps: the exchange, all of the checkpoint, and what is left of the dataset."""
    design = {d.name: d for d in traffic_on(SQUARE[:2]).demands}
    assert design["sync"].missing_gbps == 0
    assert design["checkpoint"].admitted_gbps == pytest.approx(300)
    assert design["dataset"].admitted_gbps == pytest.approx(400 - 300 - design["sync"].requested_gbps, abs=1e-3)
    assert design["dataset"].missing_gbps == pytest.approx(200 - design["dataset"].admitted_gbps)
    assert design["dataset"].saturated_edges == ("E0-n1", "n1-W0")


def test_traffic_splits_over_routes_and_the_exchange_does_not() -> None:
    """On two ways of 400 Gbps all of it fits, though not with each demand on one way only."""
    design = {d.name: d for d in traffic_on(SQUARE).demands}
    assert all(d.missing_gbps == 0 for d in design.values())
    assert len(design["sync"].routes) == 1
    traffic = [{"name": "x", "bytes": 6.5e10, "period_seconds": 1}]
    bigger = fibre(narrow(SQUARE), protection="none", traffic=traffic)
    split = {d.name: d for d in solved(bigger).solution.demands}["x"]
    assert len(split.routes) == 2
    assert split.missing_gbps == 0


def test_traffic_to_a_place_without_fibre_is_missing() -> None:
    traffic = [{"name": "x", "bytes": 1e9, "period_seconds": 1, "a": "E0", "b": "n3"}]
    design = solved(fibre(SQUARE, protection="none", traffic=traffic)).solution
    x = next(d for d in design.demands if d.name == "x")
    assert (x.admitted_gbps, x.routes) == (0, ())
    assert x.missing_gbps == pytest.approx(8)


def test_free_fibre_takes_the_short_way() -> None:
    """Where nothing is priced the fewest wavelength-kilometres are lit."""
    free = [{**e, "usd_per_pair": 0, "wavelength_usd": 0} for e in SQUARE]
    design = solved(fibre(free, protection="none")).solution
    assert design.demands[0].routes[0].edges == ("E0-n1", "n1-W0")
    assert design.certificate.minimizes.startswith("wavelengths")


def test_loads_of_edges_are_in_one_order_whatever_their_names() -> None:
    """The order of rows decides between designs of equal cost; that of a set differs from run to run."""
    long = [edge(f"n{i}", f"n{i + 1}", 700) for i in range(4)]
    data = gather(fibre([edge("n0", "n4", 1000, id="normal"), *long], protection="one_cut"), asked())
    backup = ["E0-n1", "n1-n2", "n2-n3", "n3-W0"]
    expected = [(e, state) for e in backup for state in ("", "normal")]
    assert list(loads(data)) == [*expected, *(("normal", cut) for cut in backup if cut < "normal"), ("normal", "")]


def test_round_trips_of_places_that_exchange_nothing_are_known() -> None:
    """No demand and no form of exchange asks for the pair; its shortest route is there all the same."""
    apart = replace(asked(), exchanging=())
    data = gather(fibre(SQUARE), apart)
    assert not data.demands and not data.forms
    there, back = data.fibre.shortest_rtt_ms("E0", "W0"), data.fibre.shortest_rtt_ms("W0", "E0")
    assert there == back == data.fibre.rtt_ms(("E0-n1", "n1-W0"))
    assert math.isinf(gather(fibre(SQUARE[:1]), apart).fibre.shortest_rtt_ms("E0", "W0"))


def test_a_moment_is_enough_for_an_answer_or_none() -> None:
    out = wan_design.solve(fibre(SQUARE, protection="one_cut"), asked(), Options(time_limit=0.0))
    assert out.solution is not None or not out.infeasible


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_a_second_solver_agrees(seed: int) -> None:
    instance, request = random_case(seed)
    plan = solved(instance, request).solution
    if plan is None:
        return
    assert plan.certificate.checked == ON_TRUST
    assert confirmed(instance, request, plan, 20.0) == CONFIRMED
    assert confirmed(instance, request, plan, 0.0) == ON_TRUST
    for bound in (plan.certificate.bound * 1.001, None):
        assert confirmed(instance, request, plan.replaced(certificate__bound=bound), 20.0) == ON_TRUST


def test_a_design_that_leaves_traffic_out_stays_on_trust() -> None:
    traffic, request = [{"name": "copies", "bytes": 1e16, "period_seconds": 60}], asked(sites=THREE[:2])
    pair = narrow([edge("n0", "n1", 1000)])
    instance = fibre(pair, sites=THREE[:2], traffic=traffic, max_wavelengths_per_pair=1)
    plan = solved(instance, request).solution
    assert plan is not None and any(d.missing_gbps for d in plan.demands)
    assert confirmed(instance, request, plan, 20.0) == ON_TRUST


@pytest.mark.parametrize(("duals", "cpsat", "mark"), [
    (10.0 * (1 - 5e-7), 11.0, BOUNDED),  # up to rounding
    (9.0, 10.0, CONFIRMED), (None, 10.0, CONFIRMED), (9.0, 9.0, ON_TRUST), (None, None, ON_TRUST),
])  # fmt: skip
def test_the_first_way_that_reaches_the_claim(
    duals: float | None, cpsat: float | None, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Duals are asked first, then CP-SAT; one that finds too little or nothing is passed over."""
    asked: list[str] = []

    def bound(way: str, found: float | None) -> float | None:
        asked.append(way)
        return found

    monkeypatch.setattr(highs, "lower_bound", lambda *_, **__: bound("duals", duals))
    monkeypatch.setattr(registry, "run_milp", lambda *_, **__: SimpleNamespace(bound=bound("cpsat", cpsat)))

    def again(claimed: float | None, seconds: float | None = None) -> str:
        return registry.second_proof(claimed, dict, dict, unit=1e6, seconds=seconds, seed=0)

    assert again(10.0e6) == mark
    assert asked == ["duals", "cpsat"][: 1 if mark == BOUNDED else 2]
    assert again(None) == again(10.0e6, 0.0) == ON_TRUST
    assert len(asked) == (1 if mark == BOUNDED else 2)
