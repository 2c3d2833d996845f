"""Rules of the site split, on both sides of their edges."""

from typing import Any

import pytest
from worked_plan import GRID, INSTANCE, edited, edited_at, instance_with, named, rules, small, worked

PLAN = small()
KM = PLAN.sites.links[0].route_km


# Loads: e1 1.2, w1 0.9 MW. Plants: e1 0.9, e2 0.3, w1 0.9 MW. Flows: e1-e2 0.1, the built circuit 0.2 MW.
EDGES = [
    ("headroom", "grid__balancing_authorities__0__headroom_mw", 1.2, 1.1999),
    ("headroom", "grid__balancing_authorities__1__headroom_mw", 0.9, 0.8999),
    ("generation", "grid__nodes__0__generation_mw", 0.9, 0.8999),
    ("generation", "grid__nodes__1__generation_mw", 0.3, 0.2999),
    ("facility_power", "limits__facility_power_mw", 2.1, 2.0999),
    ("area", "grid__nodes__0__area_m2", 600, 599.9),
    ("rating", "grid__new_lines__0__rating_mw", 0.2, 0.1999),
    ("new_circuits", "grid__new_lines__0__max_circuits", 1, None),
    ("min_site", "grid__rules__min_site_modules", 3, 4),
    ("fault_split", "grid__rules__fault_split__max_share", 0.5715, 0.5714),
    ("fault_split", "grid__rules__fault_split__min_interconnections", 2, 3),
    ("site_count", "grid__rules__max_sites", 2, 1),
    ("rtt", "grid__rules__max_rtt_ms", 39.66, 39.65),
]


@pytest.mark.parametrize(("rule", "path", "holds", "breaks"), EDGES)
def test_edges(rule: str, path: str, holds: Any, breaks: Any) -> None:
    """A figure at its limit keeps the rule, one just beyond breaks it and no other."""
    assert rules(small(**{path: holds})) == set()
    assert breaks is None or rules(small(**{path: breaks})) == {rule}


@pytest.mark.parametrize(
    ("reading", "share", "broken"),
    # e1: two circuits of 0.5 MW and a built one of 0.5; w1: two of 0.6 MW.
    [("capacity", 1.0, False), ("capacity_n1", 2 / 3, False), ("capacity_n1", 0.67, True)],
)
def test_interconnect_readings(reading: str, share: float, broken: bool) -> None:
    plan = small(grid__rules__interconnect={"enabled": True, "share": share, "reading": reading})
    assert rules(plan) == ({"interconnect"} if broken else set())


@pytest.mark.parametrize(("usable", "broken"), [(0.45, False), (0.4499, True)])
def test_the_explicit_reading(usable: float, broken: bool) -> None:
    """The node's own figure counts, and half of 0.9 MW is needed."""
    nodes = [{**n, "interconnect_mw": usable if n["id"] == "w1" else 2.0} for n in GRID["nodes"]]
    plan = small(grid__nodes=nodes, grid__rules__interconnect={"enabled": True, "share": 0.5, "reading": "explicit"})
    assert named(plan) == ({"interconnect[w1]"} if broken else set())


@pytest.mark.parametrize("rule", ["headroom", "interconnect", "fault_split"])
def test_a_rule_that_is_off_does_not_bind(rule: str) -> None:
    off: dict[str, Any] = {"headroom": False} if rule == "headroom" else {rule: {"enabled": False}}
    tight = {"grid__balancing_authorities__0__headroom_mw": 0.1} if rule == "headroom" else {}
    assert rules(small(grid__rules={**GRID["rules"], **off}, **tight)) == set()


def test_without_flows_an_authority_feeds_its_own() -> None:
    fed = {
        "grid__rules__grid_model": "none",
        "grid__nodes__0__generation_mw": 0.9,
        "grid__nodes__1__generation_mw": 0.3,
    }
    assert rules(small(**fed)) == set()
    assert "generation[EAST]" in named(small(**fed | {"grid__nodes__1__generation_mw": 0.2999}))


@pytest.mark.parametrize(
    ("path", "change", "rule"),
    [
        ("sites.generation_mw.e1", lambda x: x + 0.001, "balance[e1]"),
        ("sites.generation_mw.e1", lambda x: x + 1e-6, None),
        ("sites.generation_mw.e2", lambda x: -x, "generation[e2]"),
        ("sites.generation_mw", lambda x: {**x, "nowhere": 0.1}, "generation[nowhere]"),
        ("sites.flows.0.mw", lambda _: -0.099, "balance[e1]"),
        ("sites.flows.0.mw", lambda x: -x, "balance[e2]"),
        ("sites.flows.1.mw", lambda _: 0.51, "rating[e1-e2-new]"),
        ("sites.flows.1.line", lambda _: "nowhere", "rating[nowhere]"),
        ("sites.flows.1.line", lambda _: "e1-e2", "rating[e1-e2]"),
        ("sites.new_lines.0.circuits", lambda _: 3, "new_circuits[e1-e2-new]"),
        ("sites.new_lines.0.circuits", lambda _: 0, "rating[e1-e2-new]"),
        ("sites.new_lines.0.line", lambda _: "w1-w2", "new_circuits[w1-w2]"),
        ("sites.sites.0.id", lambda _: "nowhere", "known_site[nowhere]"),
        ("sites.sites.0.id", lambda _: "e2", "known_site[e2]"),
        ("sites.sites.0.id", lambda _: "w1", "known_site[w1]"),
        ("sites.sites.0.balancing_authority", lambda _: "WEST", "site_figures[e1]"),
        ("sites.sites.0.interconnection", lambda _: "western", "site_figures[e1]"),
        ("sites.sites.0.racks", lambda _: 9, "site_figures[e1]"),
        ("sites.sites.0.interconnect_mw", lambda _: None, "site_figures[e1]"),
        ("sites.sites.0.cooling_m2", lambda _: None, "site_figures[e1]"),
        ("sites.links", lambda _: [], "linked[e1, w1]"),
        ("sites.links", lambda x: x * 2, "linked[e1, w1]"),
        ("sites.links.0.b", lambda _: "e1", "linked[e1]"),
        ("sites.links.0.b", lambda _: "w2", "linked[e1, w2]"),
        ("sites.links.0.wavelengths", lambda _: 1, "wan_capacity[e1, w1]"),
        ("sites.links.0.fibre_pairs", lambda _: 0, "link_figures[e1, w1]"),
        ("sites.links.0.required_gbps", lambda x: x * 0.99, "wan_need[e1, w1]"),
        ("sites.links.0.required_gbps", lambda _: 0.0021, "wan_capacity[e1, w1]"),
    ],
)
def test_an_edit_names_its_rule(path: str, change: Any, rule: str | None) -> None:
    """Each edited entry breaks the rule about it; a watt of rounding breaks none."""
    found = named(edited_at(PLAN, path, change))
    assert found == set() if rule is None else rule in found


def test_fibre_that_cannot_be_leased() -> None:
    """Two wavelengths fit two pairs of one wavelength each, and not one."""
    one_each = {**INSTANCE["wan"], "max_wavelengths_per_pair": 1}
    assert rules(small(wan={**one_each, "max_fibre_pairs": 2})) == set()
    assert rules(small(wan={**one_each, "max_fibre_pairs": 1})) == {"wan_capacity"}


@pytest.mark.parametrize(
    ("pins", "broken"),
    [
        ({"sites.racks": 14, "sites.max_sites": 2, "sites.racks.e1": 8, "sites.racks.w1": 6}, set()),
        ({"sites.racks": 16}, {"pins[sites.racks]"}),
        ({"sites.max_sites": 1}, {"pins[sites.max_sites]"}),
        ({"sites.racks.w1": 8}, {"pins[sites.racks.w1]"}),
        ({"sites.racks.w2": 2}, {"pins[sites.racks.w2]"}),
    ],
)
def test_pins(pins: dict[str, Any], broken: set[str]) -> None:
    """What was fixed by hand is kept."""
    assert named(worked(instance_with(pins=pins))) == broken


def test_the_route_is_the_great_circle_times_the_factor() -> None:
    """A shorter route than the sites' coordinates give is found, and so is the round trip that goes with it."""
    near = edited(PLAN, sites__links__0__route_km=KM * 0.99, sites__links__0__rtt_ms=PLAN.sites.links[0].rtt_ms * 0.99)
    assert "link_figures[e1, w1]" in named(near)
