"""The most racks by arithmetic are never below what a plan may have."""

import math
from pathlib import Path
from typing import Any

import pytest
from joint_brute_sites import SiteCosts
from joint_toys import case, toy, with_pins

from planner.checks.joint_columns import MaxRacks, max_racks, max_sites
from planner.instance.instance import Instance
from planner.models.joint.sites import Sites
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[3] / "instances"


def affordable(i: Instance, racks: int) -> bool:
    """Return whether some sites hold so many racks within the budget, without fabrics and fibre, by plain loops."""
    costs, budget = SiteCosts(i=i), (i.limits.budget_usd or math.inf)
    none = (0.0,) * len(costs.nodes)
    return any(costs.least(counts, 0, none) <= budget for counts in costs.splits(racks))


CASES = [toy(seed, sites=sites) for seed in range(8) for sites in (1, 2)]
CASES += [i for i in map(case, range(40)) if i.grid is not None][:16]


@pytest.mark.parametrize("i", CASES, ids=[i.name for i in CASES])
def test_every_placement_is_within(i: Instance) -> None:
    """No way to put racks on the sites of a toy, fabrics left out, has more."""
    most = max_racks(i, 0)
    assert not any(affordable(i, racks) for racks in range(most + 1, most + 4))


@pytest.mark.parametrize("years", [0.0, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_the_sites_milp_is_within(seed: int, years: float) -> None:
    """The most racks that the sites' MILP finds are no more, with few and with many GPUs cabled, energy counted."""
    i = toy(seed, sites=2)
    assert i.limits.budget_usd is not None
    limits = {"operation_years": years, "budget_usd": i.limits.budget_usd + years * 1e6}
    i = i.model_copy(update={"limits": i.limits.model_copy(update=limits)})
    sites = Sites(instance=i)
    for wired in (1, 2, 3):
        assert sites.max_racks(wired) <= max_racks(i, wired)


@pytest.mark.parametrize("name", ["5gw", "5gw-one-site", "agache2024-100t"])
def test_the_sites_milp_of_a_shipped_instance_is_within(name: str) -> None:
    i = load_instance(INSTANCES / f"{name}.json")
    most = Sites(instance=i).max_racks(60)
    assert most <= max_racks(i, 60) <= 1.05 * most


def grid(i: Instance, **rules: Any) -> Instance:
    assert i.grid is not None
    given = i.model_dump(mode="json", exclude_none=True)
    given["grid"]["rules"] |= rules
    return Instance.model_validate(given)


def test_single_limits() -> None:
    """Each limit alone is what it says: modules, pins, the campus's power, headroom, land and the split by share."""
    i = toy(3, sites=2)
    given = i.model_dump(mode="json", exclude_none=True)
    given["limits"].pop("budget_usd")
    given["grid"]["balancing_authorities"][0]["headroom_mw"] = 12.0
    given["grid"]["balancing_authorities"][1]["headroom_mw"] = 3.0
    free = Instance.model_validate(given)  # racks of 1 MW, 1.2 MW at the grid
    assert max_racks(free, 2) == 12  # 10 of one authority, 2.5 of the other: 12.5
    assert max_racks(grid(free, max_sites=1), 2) == 10 and max_sites(grid(free, max_sites=1)) == 1
    split = grid(free, fault_split={"enabled": True, "max_share": 0.6})
    assert max_racks(split, 2) == 6  # 2.5 racks are 40 % of 6.25
    assert max_racks(with_pins(free, **{"sites.racks": 7}), 2) == 7
    assert max_racks(with_pins(free, **{"sites.racks": 13}), 2) == 0
    assert max_racks(with_pins(free, **{"sites.racks.E1": 4}), 2) == 6
    soft = grid(free, soft={"headroom": {"usd_per_year": 1.0, "max_excess": 100.0}})
    assert max_racks(soft, 2) > 10**6
    given["hardware"]["racks_per_module"] = 5
    assert max_racks(Instance.model_validate(given), 2) == 10
    given["limits"]["facility_power_mw"] = 11.9
    assert max_racks(Instance.model_validate(given), 2) == 5


def test_one_cluster() -> None:
    i = toy(3)
    assert max_racks(i, 1) == i.hardware.racks and max_sites(i) == 1
    poor = i.model_copy(update={"limits": i.limits.model_copy(update={"budget_usd": 1.0})})
    assert max_racks(poor, 1) == 0


def test_stated_racks_hold_from_their_gpus_on() -> None:
    i = toy(3, sites=2)
    own = max_racks(i, 2)
    assert own > 1
    racks = MaxRacks(i, {2: own - 1, 5: 10**6})
    assert (racks(1), racks(2), racks(3)) == (max_racks(i, 1), own - 1, min(max_racks(i, 3), own - 1))
    assert racks(6) == max_racks(i, 6)
