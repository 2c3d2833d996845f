"""Rules of sites that most instances leave alone: what comes late, is bought, balanced or at stake in a scenario."""

import json
from typing import Any

import pytest
from worked_plan import GRID, edited, named, rules, small

from planner.api.plans import check
from planner.plan.plan import Plan

# Loads: e1 1.2, w1 0.9 MW; their plants feed 0.9 and 0.9 MW. Lines at e1: 2 x 0.5 MW and a built one of 0.5.
UPGRADE = {"step_mw": 0.2, "max_steps": 3, "capex_usd": 0.0, "lead_months": 9}


def with_upgrades(*bought: tuple[str, int], months: float | None = None) -> Plan:
    """Return the worked plan whose node e1 can be upgraded, with steps bought and nothing recomputed."""
    nodes = [{**n, "upgrade": UPGRADE} if n["id"] == "e1" else n for n in GRID["nodes"]]
    plan = small(grid__nodes=nodes, grid__rules__ready_within_months=months)
    return edited(plan, sites__upgrades=[{"node": n, "steps": s} for n, s in bought])


@pytest.mark.parametrize(
    ("bought", "words"),
    [
        ([("w1", 1)], "1 steps at a node that is none of the 1 that can be upgraded"),
        ([("e1", 4)], "4 steps (in all 4) are not from 1 to 3"),
        ([("e1", 0)], "0 steps (in all 0) are not from 1 to 3"),
        ([("e1", -1)], "-1 steps (in all -1) are not from 1 to 3"),
        ([("e1", 2), ("e1", 2)], "2 steps (in all 4) are not from 1 to 3"),
        ([("e1", 3)], None),
        ([("e1", 1)], None),
    ],
)
def test_upgrades(bought: list[tuple[str, int]], words: str | None) -> None:
    found = {v.message for v in check(with_upgrades(*bought)) if v.rule.startswith("upgrades[")}
    assert found == ({words} if words else set())


@pytest.mark.parametrize("months", [8.9, 9, 9.1])
def test_upgrades_that_come_late(months: float) -> None:
    """An upgrade is ready after its own nine months; without it nobody waits for it."""
    assert ("ready[e1]" in named(with_upgrades(("e1", 1), months=months))) == (months < 9)
    assert "ready[e1]" not in named(with_upgrades(months=months))


@pytest.mark.parametrize(
    ("path", "rule"), [("grid__nodes__0__ready_months", "e1"), ("grid__new_lines__0__lead_months", "e1-e2-new")]
)
def test_what_comes_late(path: str, rule: str) -> None:
    """A site and a line in use are ready within the months allowed, to the month."""
    for late, broken in ((12, set()), (12.1, {f"ready[{rule}]"})):
        assert named(small(**{path: late, "grid__rules__ready_within_months": 12})) == broken
    assert named(small(**{path: 500})) == set()
    idle = {"grid__nodes__1__ready_months": 99, "grid__rules__ready_within_months": 12}
    assert named(small(**idle)) == set()  # no site stands at e2


@pytest.mark.parametrize(
    ("load", "share", "broken"),
    # e1 draws 1.2 MW and what stands there already, less its plants' 0.9 MW; two circuits of 0.5 MW remain of three.
    [(0.0, 1.0, False), (0.5, 1.0, False), (0.7, 1.0, False), (0.71, 1.0, True), (0.71, 0.9, False), (0.9, 0.9, True)],
)
def test_imports_beyond_own_plants(load: float, share: float, broken: bool) -> None:
    rule = {"enabled": True, "share": share, "reading": "import_share"}
    plan = small(grid__nodes__0__load_mw=load, grid__rules__interconnect=rule)
    assert ("interconnect[e1]" in named(plan)) == broken
    assert "interconnect[w1]" not in named(plan)  # its plants feed all that it draws


@pytest.mark.parametrize(("own", "broken"), [(1.3, False), (0.2, False), (0.19, True)])
def test_imports_without_flows(own: float, broken: bool) -> None:
    """Where no flows are planned, all of a node's plants count for it: 1.2 MW less 0.2 over two circuits of 0.5 MW."""
    rule = {"enabled": True, "share": 1.0, "reading": "import_share"}
    plan = small(grid__rules__grid_model="none", grid__nodes__0__generation_mw=own, grid__rules__interconnect=rule)
    assert ("interconnect[e1]" in named(plan)) == broken


@pytest.mark.parametrize(
    ("ratio", "broken"), [(4 / 3, set()), (1.3, {"share_balance[e1]"}), (1, {"share_balance[e1]"})]
)
def test_balanced_sites(ratio: float, broken: set[str]) -> None:
    """Eight racks are four thirds of six."""
    assert named(small(grid__rules__share_balance={"enabled": True, "max_ratio": ratio})) == broken
    assert named(small(grid__rules__share_balance={"enabled": False, "max_ratio": ratio})) == set()


@pytest.mark.parametrize("count", [0, -1])
def test_a_site_of_no_racks(count: int) -> None:
    plan = small()
    assert "demand[e1]" in named(edited(plan, sites__sites__0__racks=count))
    assert not any(r.startswith("demand") for r in named(edited(plan, sites__sites__0__racks=1)))


def test_sites_exchange_at_a_rate() -> None:
    """Two sites with replicas need a rate between them; one that has them all needs none."""
    plan = small()
    found = [v for v in check(edited(plan, layout__assumptions__wan_gbps=None)) if v.rule == "wan_need"]
    assert [v.message for v in found] == ["2 sites exchange gradients > 1, and no rate is assumed between them"]
    alone = {"e1": 10, "w1": 0}
    one = edited(plan, layout__assumptions__wan_gbps=None, layout__data_parallel_by_site=alone)
    assert "wan_need" not in named(one)


def with_scenarios(mode: str, **runs: Any) -> Plan:
    """Return the worked plan, built, for a year in which western energy costs 80 a MWh, with how it runs in it."""
    years = [{"name": "dry", "weight": 0.25, "energy_usd_per_mwh": {"WEST": 80}}]
    extra = {"scenarios": mode} | ({"curtailment_usd_per_mwh": 500} if mode == "expected" else {})
    plan = small(grid__scenarios=years, grid__rules={**GRID["rules"], **extra})
    return edited(plan, sites__scenarios=json.loads(json.dumps(runs)))


HOURS = 8760.0
FED = {"e1": 0.9, "e2": 0.3, "w1": 0.9}
FLOWS = small().model_dump(mode="json")["sites"]["flows"]
FULL = {"e1": 1.2, "w1": 0.9}


def run(energy: float, drawn: dict[str, float], **other: Any) -> dict[str, Any]:
    return {"running_mw": drawn, "generation_mw": FED, "flows": FLOWS, "energy_usd_per_year": energy} | other


def test_a_year_in_full() -> None:
    """All sites draw what they hold, eastern energy at the grid's own 40 a MWh and western at the year's 80."""
    usd = HOURS * (1.2 * 40 + 0.9 * 80)
    assert rules(with_scenarios("robust", dry=run(usd, FULL))) == set()
    assert named(with_scenarios("robust", dry=run(usd * 1.001, FULL))) == {"scenarios[dry]"}
    assert named(with_scenarios("robust", dry=run(usd, FULL), wet=run(usd, FULL))) == {"scenarios[wet]"}
    assert named(with_scenarios("robust")) == {"scenarios[dry]"}
    assert "scenarios[dry]" in named(with_scenarios("off", dry=run(usd, FULL)))
    assert rules(with_scenarios("off")) == set()


@pytest.mark.parametrize("mode", ["robust", "expected"])
def test_a_year_in_part(mode: str) -> None:
    """A site that draws less than it holds pays for what is left undone, and breaks a robust split."""
    usd = HOURS * (1.1 * 40 + 0.9 * 80) + (HOURS * 0.1 * 500 if mode == "expected" else 0.0)
    less = run(usd, FULL | {"e1": 1.1}, generation_mw=FED | {"e1": 0.8})
    found = named(with_scenarios(mode, dry=less))
    assert ("scenarios[dry, e1]" in found) == (mode == "robust")
    assert "scenarios[dry, w1]" not in found
    if mode == "expected":
        assert "scenarios[dry]" not in found


def test_a_year_beyond_what_stands() -> None:
    more = run(HOURS * (1.3 * 40 + 0.9 * 80), FULL | {"e1": 1.3}, generation_mw=FED | {"e1": 1.0})
    assert "scenarios[dry, e1]" in named(with_scenarios("robust", dry=more))
    usd = HOURS * (1.2 * 40 + 0.9 * 80)
    assert "scenarios[dry, e2]" in named(with_scenarios("robust", dry=run(usd, FULL | {"e2": 0.0})))
    assert "scenarios[dry, w1]" in named(with_scenarios("robust", dry=run(usd, {"e1": 1.2})))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"generation_mw": FED | {"e1": 0.91}}, "balance[e1] in dry"),
        ({"generation_mw": FED | {"e2": 0.6}}, "balance[e2] in dry"),
        ({"generation_mw": FED | {"w1": 1.3}}, "generation[w1] in dry"),
        ({"flows": [{**x, "mw": x["mw"] * 6} for x in FLOWS]}, "rating[e1-e2-new] in dry"),
    ],
)
def test_a_year_has_its_own_grid(change: dict[str, Any], rule: str) -> None:
    usd = HOURS * (1.2 * 40 + 0.9 * 80)
    assert rule in named(with_scenarios("robust", dry=run(usd, FULL, **change)))
