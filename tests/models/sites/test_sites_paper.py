"""The 5 GW campus of Agache et al. 2024: the rule that excludes a single site, a reading that allows it, two sites."""

import json
from pathlib import Path
from typing import Any

from planner.instance.instance import Instance
from planner.models.requests import Options, SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites.solve import conflict
from planner.planning.load import load_instance

OPTIONS = Options()
FIVE_GW = Path(__file__).parents[3] / "instances" / "5gw-one-site.json"


def one_site(reading: str = "explicit", **rules: Any) -> Instance:
    data = json.loads(FIVE_GW.read_text(encoding="utf-8"))
    data["grid"]["rules"]["interconnect"]["reading"] = reading
    data["grid"]["rules"] |= rules
    return load_instance(data)


def test_the_interconnect_shuts_the_single_site_out() -> None:
    """Half of 5 GW must fit on the circuits left, half loaded: nowhere in the east, where headroom would do."""
    found = conflict(one_site(), SitesRequest(), OPTIONS)
    assert found is not None and set(found.rules) == {"interconnect", "headroom", "site_count", "pins"}
    east = [x for x in sites.largest_loads(one_site(), SitesRequest(), OPTIONS) if x.node == "peach-bottom"]
    assert east[0].stopped_by == ("interconnect[peach-bottom]",)
    assert 2849 < east[0].mw <= 2850  # twice 1,425 MW


def test_the_interconnect_that_is_missing_is_named() -> None:
    """1,075 MW more at the node that comes closest would do, and no less."""
    moved = {x.rule: x for x in sites.relaxations(one_site(), SitesRequest(), ("interconnect",), OPTIONS)}[
        "interconnect"
    ]
    assert list(moved.rows.values()) == [moved.amount] and 1074 < moved.amount < 1075
    (row,) = moved.rows
    node = row.removeprefix("interconnect[").removesuffix("]")

    def with_more(mw: float) -> Instance:
        data = one_site().model_dump(mode="json", exclude_none=True)
        for n in data["grid"]["nodes"]:
            n["interconnect_mw"] += mw if n["id"] == node else 0
        return load_instance(data)

    assert sites.solve(with_more(moved.amount + 0.01), SitesRequest(), OPTIONS).solution is not None
    assert sites.solve(with_more(moved.amount - 0.01), SitesRequest(), OPTIONS).infeasible


def test_with_thermal_ratings_one_site_passes() -> None:
    """Under the circuits' own ratings, the largest out, one eastern node carries half of 5 GW."""
    plan = sites.solve(one_site("capacity_n1"), SitesRequest(), OPTIONS).solution
    assert plan is not None
    assert [s.interconnection for s in plan.sites] == ["eastern"]
    assert plan.sites[0].interconnect_mw is not None and plan.sites[0].interconnect_mw >= 2499


def test_east_and_west_are_pjm_and_srp_at_half_each() -> None:
    """Under the fault rule two sites share the 5 GW: SRP alone in the west has headroom for half."""
    split = {"enabled": True, "min_interconnections": 2, "max_share": 0.51}
    plan = sites.solve(one_site(max_sites=2, fault_split=split), SitesRequest(), OPTIONS).solution
    assert plan is not None
    assert {s.balancing_authority for s in plan.sites} == {"PJM", "SRP"}
    assert all(2400 < s.facility_mw < 2600 for s in plan.sites)
