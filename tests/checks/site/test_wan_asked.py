"""The wide area as a user asks for it: bad input by path, value and remedy, and whole plans with it."""

from typing import Any

import pytest
from worked_plan import INSTANCE, LAYOUT, instance_with, named

import planner
from planner.errors import InputError
from planner.planning.load import load_instance

pytestmark = pytest.mark.slow

NODES = [{"id": "A", "latitude": 40, "longitude": -77}, {"id": "B", "latitude": 33, "longitude": -112}]


def joined(**edge: Any) -> dict[str, Any]:
    """Return two places with an edge between them."""
    return {"fibre_nodes": NODES, "fibre_edges": [{"a": "A", "b": "B"} | edge]}


TRAFFIC = {"name": "x", "bytes": 1, "period_seconds": 1}


@pytest.mark.parametrize(
    ("wan", "said"),
    [
        ({"fibre_nodes": NODES}, "wan.fibre_edges: is missing"),
        (joined() | {"fibre_nodes": NODES * 2}, "wan.fibre_nodes[2].id: 'A' is already that of wan.fibre_nodes[0]"),
        (
            joined() | {"fibre_edges": [{"a": "A", "b": "B"}] * 2},
            "wan.fibre_edges[1].id: 'A-B' is already that of wan.fibre_edges[0]",
        ),
        (joined(b="a"), "wan.fibre_edges[0].b: 'a' does not exist"),
        (joined(b="A"), "wan.fibre_edges[0]: both ends are 'A'"),
        (joined(id="e1 access"), "wan.fibre_edges[0].id: must not end in"),
        (joined(route_km=0), "wan.fibre_edges[0].route_km"),
        ({"traffic": [{**TRAFFIC, "name": "sync"}]}, "wan.traffic[0].name: must not be 'sync'"),
        ({"traffic": [TRAFFIC, TRAFFIC]}, "wan.traffic[1].name: 'x' is already that of wan.traffic[0]"),
        ({"traffic": [{**TRAFFIC, "a": "e1", "b": "w9"}]}, "wan.traffic[0].b: 'w9' does not exist; did you mean 'w2'?"),
        ({"traffic": [{**TRAFFIC, "a": "e1", "b": "e1"}]}, "wan.traffic[0]: both ends are 'e1'"),
        ({"traffic": [{**TRAFFIC, "a": "e1"}]}, "give both a and b, or neither"),
        ({"traffic": [{"name": "x", "bytes": 1}]}, "exactly one of period_seconds and deadline_seconds"),
        ({"traffic": [{**TRAFFIC, "deadline_seconds": 1}]}, "exactly one of period_seconds and deadline_seconds"),
        ({"protection": "two_cuts"}, "wan.protection"),
    ],
)
def test_bad_input_is_named(wan: dict[str, Any], said: str) -> None:
    """A user's slip is an error of one line or a few, before anything is solved."""
    with pytest.raises(InputError) as error:
        load_instance(INSTANCE | {"wan": INSTANCE["wan"] | wan})
    assert said in str(error.value)


def test_parallel_edges_stay_apart() -> None:
    """Two edges between the same nodes, of different ids, survive a cut of either."""
    edges = [{"a": "A", "b": "B", "id": "north"}, {"a": "A", "b": "B", "id": "south"}]
    plan = planner.solve(
        instance_with(pins=LAYOUT, wan__fibre_nodes=NODES, wan__fibre_edges=edges, wan__protection="one_cut")
    )
    assert plan.status == "optimal"
    assert {e.id for e in plan.wan.edges} >= {"north", "south"}


def test_three_sites_exchange_around_a_ring() -> None:
    """Three sites on no given graph: three links, each carried over the third site while its own fibre is cut."""
    pins = LAYOUT | {"sites.racks": 14, "sites.racks.e1": 6, "sites.racks.w1": 4, "sites.racks.w2": 4}
    grid = {"grid__rules__max_sites": 3, "grid__rules__max_rtt_ms": 100, "grid__rules__fault_split__max_share": 0.7}
    plan = planner.solve(instance_with(pins=pins, wan__protection="one_cut", **grid))
    assert (plan.status, plan.wan.exchange, named(plan)) == ("optimal", "ring", set())
    assert sorted((d.a, d.b) for d in plan.wan.demands) == [("e1", "w1"), ("e1", "w2"), ("w1", "w2")]
    assert all(len(d.routes[0].backup_edges) == 2 for d in plan.wan.demands)


def test_two_sites_without_a_graph_and_one_cut_are_no_plan() -> None:
    """With two sites at most and one fibre between them no split is left, and the reason names the fibre."""
    plan = planner.solve(instance_with(pins=LAYOUT, wan__protection="one_cut"))
    assert plan.status == "infeasible"
    assert "wan_capacity" in plan.conflict.rules
    assert {"site_count", "fault_split"} <= set(plan.conflict.rules)
    assert "carries no exchange between e1-w1; e1-w2" in plan.conflict.reason
