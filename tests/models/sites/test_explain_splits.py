"""What a node could carry alone and what a site costs that is forced on a split, against every split there is."""

from typing import Any

import pytest
from site_grids import OPTIONS, case, line, node, placed_splits, random_case

from planner.instance.instance import Instance
from planner.models.requests import SitesRequest
from planner.models.sites import solve as sites
from planner.solvers.signals import Deadline

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
        assert x.proved and x.mw == pytest.approx(x.racks * 1.0)


@pytest.mark.parametrize(
    ("figures", "rules", "stops"),
    [
        ({"generation_mw": 0.9}, {"grid_model": "none"}, {"generation"}),
        ({"area_m2": 500.0}, {}, {"area[E0]"}),
        (
            {"interconnect_mw": 0.4},
            {"interconnect": {"enabled": True, "share": 0.5, "reading": "explicit"}},
            {"interconnect[E0]"},
        ),
        ({"area_m2": 500.0, "interconnect_mw": 0.4}, {"interconnect": {"enabled": True, "reading": "explicit"}}, set()),
    ],
)
def test_what_stops_a_node_that_carries_nothing(
    figures: dict[str, Any], rules: dict[str, Any], stops: set[str]
) -> None:
    """Each rule without which alone one module would fit is named; of two that both stop it neither is."""
    i = case(node("E0", **figures), rules=rules, hardware={"cooling_kw_per_m2": 1.0})
    (found,) = sites.largest_loads(i, SitesRequest(), OPTIONS)
    assert (found.racks, found.mw, found.proved) == (0, 0.0, True)
    assert {
        x if "[" in x and stops and "[" in next(iter(stops)) else x.partition("[")[0] for x in found.stopped_by
    } == stops


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
    found = {x.node: x for x in sites.forced_open(i, asked, OPTIONS, nodes, Deadline())}
    assert list(found) == nodes
    least = min(usd for _, usd in priced)
    for s in nodes:
        own = min((usd for sites, usd in priced if s in sites), default=None)
        assert found[s].proved
        if own is None:
            assert found[s].dearer_usd_per_year is None
        else:
            assert found[s].dearer_usd_per_year == pytest.approx(own - least, abs=2.0)


def test_nothing_is_forced_without_time_or_a_split() -> None:
    """Where time is up nothing is claimed, and where no split exists there is none to be dearer than."""
    i = case(node("E0"), node("W0"))
    assert not list(sites.forced_open(i, SitesRequest(racks=2), OPTIONS, ["E0"], Deadline(0.0)))
    assert not list(sites.forced_open(i, SitesRequest(racks=999), OPTIONS, ["E0"], Deadline()))


@pytest.mark.parametrize(
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
def test_what_stops_the_third_module(
    area: float, rating: float, spare: float, headroom: float, names: set[str]
) -> None:
    """Plants that are not at work, and room on lines, count as what they are; all that stops it is named, no more."""
    wire = line("E0", "E1", rating_mw=rating)
    nodes = node("E0", generation_mw=2.0, area_m2=area), node("E1", generation_mw=spare, site=False)
    i = case(*nodes, headroom={"E": headroom}, lines=[wire], hardware={"cooling_kw_per_m2": 1.0})
    plan = sites.solve(i, SitesRequest(), OPTIONS).solution
    assert plan is not None and sum(s.racks for s in plan.sites) == 2
    assert set(plan.certificate.binding) == names
