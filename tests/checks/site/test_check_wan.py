"""The wide area: bad input by path, value and remedy, whole plans with it, and each edited figure found by name."""

import re
from typing import Any

import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from stored_plans import stored
from worked_plan import INSTANCE, LAYOUT, edited_at, instance_with, leaves, named

import planner
from planner.api.plan_calls import check
from planner.errors import InputError
from planner.plan.plan import Plan
from planner.planning.load import load_instance

PLACES = {"A": (40, -77), "B": (36, -95), "C": (33, -112), "D": (42, -95)}
NODES = [{"id": name, "latitude": x, "longitude": y} for name, (x, y) in PLACES.items()]
EDGES = [{"a": "A", "b": "B"}, {"a": "B", "b": "C"}, {"a": "A", "b": "D"}, {"a": "D", "b": "C"}]
TRAFFIC = [
    {"name": "checkpoint", "bytes": 1e7, "period_seconds": 10},
    {"name": "logs", "bytes": 1e5, "deadline_seconds": 9, "priority": 2},
]
WAN = {"fibre_nodes": NODES, "fibre_edges": EDGES, "protection": "one_cut", "exchange": "auto", "traffic": TRAFFIC}
FULL = {"max_wavelengths_per_pair": 2, "max_fibre_pairs": 3}


def solved(**more: Any) -> Plan:
    """Plan the worked instance with a wide area asked for."""
    return stored(instance_with(pins=LAYOUT, **{f"wan__{k}": v for k, v in (WAN | more).items()}))


PLAN = solved()
DATA = PLAN.model_dump(mode="json")
SYNC = DATA["wan"]["demands"][0]


ALL = [p for p, _ in leaves(DATA, without=("instance",))]
LEAVES = leaves(DATA["wan"], "wan", without=("certificate",))
FIGURES = [path for path, v in LEAVES if isinstance(v, float) and v]


def at(name: str) -> int:
    """Return the place of a lit edge in the plan."""
    return next(i for i, e in enumerate(DATA["wan"]["edges"]) if e["id"] == name)


def test_a_good_design_breaks_nothing() -> None:
    """Names in a message are in one order, whatever the hashes of texts are."""
    assert check(PLAN) == [] and PLAN.status == "optimal" and PLAN.wan.certificate.checked == "confirmed by CP-SAT"
    assert [(d.name, d.missing_gbps) for d in PLAN.wan.demands] == [("sync", 0), ("checkpoint", 0), ("logs", 0)]
    assert named(edited_at(PLAN, "wan.certificate.checked", "recomputed")) == {"marks[wan]"}
    assert PLAN.cost.capex_usd["wan"] == pytest.approx(PLAN.wan.capex_usd)
    found = check(edited_at(PLAN, f"wan.edges.{at('A-B')}.b", "C"))
    assert [v.message for v in found if v.rule == "edges[A-B]"] == ["ends: ['A', 'C'] stated, ['A', 'B'] expected"]


@each(("path", "change", "rule"), [
    (f"wan.edges.{at('B-C')}.wavelengths", lambda n: n - 1, "capacity[B-C]"),
    (f"wan.edges.{at('D-C')}.wavelengths", lambda n: n - 1, "capacity[D-C]"),
    (f"wan.edges.{at('A-B')}.id", "A-C", "edges[A-C]"), (f"wan.edges.{at('A-B')}.id", "B-C", "edges[B-C]"),
    (f"wan.edges.{at('A-B')}.wavelengths", 10_000, "edges[A-B]"),
    (f"wan.edges.{at('A-B')}.fibre_pairs", lambda n: n + 1, "edges[A-B]"),
    ("wan.edges", lambda x: x[1:], "capacity[A-B]"), ("wan.exchange", "tree", "fastest_form"),
    ("wan.forms.0.order", lambda x: x[::-1], "fastest_form[ring]"), ("wan.forms", lambda x: x[:1], "fastest_form"),
    ("wan.protection", "none", "designed"), ("wan.demands.0.routes.0.edges", lambda x: x[:2], "routes[sync, e1, w1]"),
    ("wan.demands.0.routes.0.edges.1", "nowhere", "routes[sync, e1, w1]"),
    ("wan.demands.0.routes.0.backup_edges", None, "routes[sync, e1, w1]"),
    ("wan.demands.0.routes.0.backup_edges", SYNC["routes"][0]["edges"], "routes[sync, e1, w1]"),
    ("wan.demands.0.routes", [], "demands[sync, e1, w1]"),
    ("wan.demands.0.routes", lambda x: [{**x[0], "share": 0.5}] * 2, "demands[sync, e1, w1]"),
    ("wan.demands.1.routes.0.share", -0.1, "routes[checkpoint, e1, w1]"),
    ("wan.demands.1.routes.0.share", 1.1, "demands[checkpoint, e1, w1]"),
    ("wan.demands.1.priority", 2, "demands[checkpoint, e1, w1]"),
    ("wan.demands", lambda x: x[:2], "demands[logs, e1, w1]"),
    ("wan.demands", lambda x: [*x, x[0]], "demands[sync, e1, w1]"), ("wan", None, "designed"),
    ("cost.capex_usd.wan", lambda x: x * 0.999, "parts[capex_usd.wan]"),
    ("wan.certificate.objective", lambda x: x * 0.999, "certified[wan]"),
    ("wan.certificate.status", "feasible", "status"),
])  # fmt: skip
def test_an_edit_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(PLAN, path, change))


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_no_figure_can_be_moved(factor: float) -> None:
    assert [path for path in FIGURES if not named(edited_at(PLAN, path, lambda x: x * factor))] == []


@given(st.data())
@settings(max_examples=110)
def test_a_bad_plan_never_raises(data: st.DataObject) -> None:
    changed, paths = PLAN, st.sampled_from([p for p, _ in LEAVES]) | st.sampled_from(ALL)
    odd = [0, -1, 1, 2, 10**6, 10**12, 10**30, 1e-300, 1e300, -1.5, None, "", "x", "e1", "r[0-99999999999]", [], {}]
    for path in data.draw(st.lists(paths, min_size=1, max_size=4)):
        try:
            changed = edited_at(changed, path, data.draw(st.sampled_from(odd) | st.integers()))
        except (ValidationError, KeyError, IndexError, TypeError, AttributeError):
            continue
    assert isinstance(named(changed), set)


def test_traffic_beyond_the_fibre_is_stated_as_missing() -> None:
    plan = solved(**FULL)
    checkpoint = plan.wan.demands[1]
    assert check(plan) == []
    assert 0 < checkpoint.missing_gbps < checkpoint.requested_gbps
    assert checkpoint.saturated_edges
    whole = edited_at(plan, "wan.demands.1", lambda d: {**d, "admitted_gbps": d["requested_gbps"], "missing_gbps": 0})
    assert "demands[checkpoint, e1, w1]" in named(whole)


def test_the_split_avoids_sites_that_one_cut_parts() -> None:
    """Without the route by D one cut separates the interconnections: the fault split and the WAN are in conflict."""
    plan = solved(fibre_edges=EDGES[:3])
    assert plan.status == "infeasible"
    assert plan.conflict.rules == ("fault_split", "wan_capacity")
    assert "the fibre joins 1 of 3 pairs whatever is cut" in plan.conflict.reason
    assert check(plan) == []


def test_an_exchange_over_thin_fibre_takes_longer() -> None:
    """On one fibre pair of two wavelengths the exchange is designed for the time that the step then counts on."""
    thin = [{**e, "max_fibre_pairs": 1} for e in EDGES]
    plan = solved(fibre_edges=thin, max_wavelengths_per_pair=2, max_fibre_pairs=4, traffic=[])
    assert check(plan) == []
    assert {e.wavelengths for e in plan.wan.edges if not e.id.endswith("access")} <= {1, 2}
    assert plan.wan.window_seconds >= PLAN.wan.window_seconds
    assert plan.layout.metrics.days_to_train >= PLAN.layout.metrics.days_to_train
    assert plan.wan.certificate.minimizes == "capital of fibre and wavelengths, USD"
    assert plan.cost.capex_usd["wan"] == plan.wan.capex_usd


def test_a_wide_area_that_is_not_asked_for_is_not_designed() -> None:
    plan = stored(instance_with())
    assert plan.wan is None
    assert check(plan) == []
    assert "designed" in named(edited_at(PLAN, "instance.wan", lambda w: {k: v for k, v in w.items() if k not in WAN}))


def test_free_fibre_is_counted_by_wavelengths_and_km() -> None:
    plan = solved(fibre_usd_per_route_km=0.0, wavelength_usd=0.0)
    assert check(plan) == []
    lit = [e for e in plan.wan.edges if e.wavelengths]
    stated = plan.wan.certificate.objective
    km = {e.id: e.route_km for e in plan.wan.edges}
    assert stated == pytest.approx(sum(km[e.id] * e.wavelengths for e in lit)) and stated > 0
    assert max(e.wavelengths for e in lit) > 1
    assert "certified[wan]" in named(edited_at(plan, "wan.certificate.objective", lambda x: x * 1.001))


OWN_TRAFFIC = {"name": "x", "bytes": 1, "period_seconds": 1}


def joined(**edge: Any) -> dict[str, Any]:
    return {"fibre_nodes": NODES[:2], "fibre_edges": [{"a": "A", "b": "B"} | edge]}


def demanded(**own: Any) -> dict[str, Any]:
    return {"traffic": [OWN_TRAFFIC | own]}


@each(("wan", "said"), [
    ({"fibre_nodes": NODES}, "fibre_edges: is missing"), (joined(route_km=0), "fibre_edges[0].route_km"),
    (joined() | {"fibre_nodes": NODES[:2] * 2}, "fibre_nodes[2].id: 'A' is already that of wan.fibre_nodes[0]"),
    (joined() | {"fibre_edges": [EDGES[0]] * 2}, "fibre_edges[1].id: 'A-B' is already that of wan.fibre_edges[0]"),
    (joined(b="a"), "fibre_edges[0].b: 'a' does not exist"), (joined(b="A"), "fibre_edges[0]: both ends are 'A'"),
    (joined(id="e1 access"), "fibre_edges[0].id: must not end in"), ({"protection": "two_cuts"}, "protection"),
    (demanded(name="sync"), "traffic[0].name: must not be 'sync'"),
    ({"traffic": [OWN_TRAFFIC] * 2}, "traffic[1].name: 'x' is already that of wan.traffic[0]"),
    (demanded(a="e1", b="w9"), "traffic[0].b: 'w9' does not exist; did you mean 'w2'?"),
    (demanded(a="e1", b="e1"), "traffic[0]: both ends are 'e1'"),
    (demanded(a="e1"), "traffic[0]: give both a and b, or neither"),
    (demanded(period_seconds=None), "traffic[0]: give exactly one of period_seconds and deadline_seconds"),
    (demanded(deadline_seconds=1), "traffic[0]: give exactly one of period_seconds and deadline_seconds"),
])  # fmt: skip
def test_bad_input_is_named(wan: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"wan.{said}")):
        load_instance(INSTANCE | {"wan": INSTANCE["wan"] | wan})


@pytest.mark.slow
def test_three_sites_exchange_around_a_ring() -> None:
    """Three sites on no given graph: three links, each carried over the third site while its own fibre is cut."""
    pins = LAYOUT | {"sites.racks": 14, "sites.racks.e1": 6, "sites.racks.w1": 4, "sites.racks.w2": 4}
    grid = {"grid__rules__max_sites": 3, "grid__rules__max_rtt_ms": 100, "grid__rules__fault_split__max_share": 0.7}
    plan = planner.solve(instance_with(pins=pins, wan__protection="one_cut", **grid))
    assert (plan.status, plan.wan.exchange, named(plan)) == ("optimal", "ring", set())
    assert sorted((d.a, d.b) for d in plan.wan.demands) == [("e1", "w1"), ("e1", "w2"), ("w1", "w2")]
    assert all(len(d.routes[0].backup_edges) == 2 for d in plan.wan.demands)
