"""Rules of the site split, of its power flow and of the whole run, on both sides of their edges."""

import json
import time
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
from each_case import each
from stored_plans import stored
from worked_plan import GRID, INSTANCE, edited, edited_at, instance_with, named, rules, small, worked

from planner.api.plan_calls import check
from planner.checks.check_plan import violations
from planner.checks.cost_and_curve import RULES, RUN_RULES
from planner.checks.power_flow import GridArrays, Solved, _without_circuit
from planner.instance.grid import Line, PowerNode
from planner.physics import Floats
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import cost
from planner.plan.plan import Plan

PLAN = small()
ONE_EACH = INSTANCE["wan"] | {"max_wavelengths_per_pair": 1}
# Loads: e1 1.2, w1 0.9 MW. Plants: e1 0.9, e2 0.3, w1 0.9 MW. Flows: e1-e2 0.1, the built circuit 0.2 MW.
EDGES = [
    ("headroom", "grid__balancing_authorities__0__headroom_mw", 1.2, 1.1999),
    ("headroom", "grid__balancing_authorities__1__headroom_mw", 0.9, 0.8999),
    ("generation", "grid__nodes__0__generation_mw", 0.9, 0.8999),
    ("generation", "grid__nodes__1__generation_mw", 0.3, 0.2999),
    ("facility_power", "limits__facility_power_mw", 2.1, 2.0999), ("area", "grid__nodes__0__area_m2", 600, 599.9),
    ("rating", "grid__new_lines__0__rating_mw", 0.2, 0.1999),
    ("new_circuits", "grid__new_lines__0__max_circuits", 1, None), ("min_site", "grid__rules__min_site_modules", 3, 4),
    ("fault_split", "grid__rules__fault_split__max_share", 0.5715, 0.5714),
    ("fault_split", "grid__rules__fault_split__min_interconnections", 2, 3),
    ("site_count", "grid__rules__max_sites", 2, 1), ("rtt", "grid__rules__max_rtt_ms", 39.66, 39.65),
    # Two wavelengths fit two pairs of one wavelength each, and not one.
    ("wan_capacity", "wan", ONE_EACH | {"max_fibre_pairs": 2}, ONE_EACH | {"max_fibre_pairs": 1}),
]  # fmt: skip


@each(("rule", "path", "holds", "breaks"), EDGES)
def test_edges(rule: str, path: str, holds: Any, breaks: Any) -> None:
    assert rules(small(**{path: holds})) == set()
    assert breaks is None or rules(small(**{path: breaks})) == {rule}


E1, W1 = "interconnect[e1]", "interconnect[w1]"
LOAD, OWN = "grid__nodes__0__load_mw", "grid__nodes__0__generation_mw"
LONE = {"grid__lines__1__circuits": 1}
NO_FLOWS = {"grid__rules__grid_model": "none"}


# Capacity: e1 has two circuits of 0.5 MW and a built one of 0.5, w1 two of 0.6 MW. Explicit: the node's own figure
# counts, and half of the 0.9 MW of w1 is needed. Import: e1 draws 1.2 MW and what stands there, less its plants'
# 0.9; two circuits of 0.5 MW remain of three. All of w1 is fed by its own plants, whose generation is written to the
# watt; one circuit leaves none. Where no flows are planned all plants of e1 count for it, over its two circuits.
@each(("reading", "share", "changes", "broken"), [
    ("capacity", 1.0, {}, set()), ("capacity_n1", 2 / 3, {}, set()), ("capacity_n1", 0.67, {}, {W1}),
    ("explicit", 0.5, {"grid__nodes__0__interconnect_mw": 2.0, "grid__nodes__2__interconnect_mw": 0.45}, set()),
    ("explicit", 0.5, {"grid__nodes__0__interconnect_mw": 2.0, "grid__nodes__2__interconnect_mw": 0.4499}, {W1}),
    ("import_share", 1.0, {LOAD: 0.7}, set()), ("import_share", 1.0, {LOAD: 0.71}, {E1}),
    ("import_share", 0.9, {LOAD: 0.71}, set()), ("import_share", 0.9, {LOAD: 0.9}, {E1}),
    *(("import_share", 1.0, LONE | {"grid__nodes__2__load_mw": mw}, x) for mw, x in ((4e-7, set()), (4e-6, {W1}))),
    *(("import_share", 1.0, NO_FLOWS | {OWN: own}, x) for own, x in ((1.3, set()), (0.2, set()), (0.19, {E1}))),
])  # fmt: skip
def test_interconnect_readings(reading: str, share: float, changes: dict[str, Any], broken: set[str]) -> None:
    rule = {"enabled": True, "share": share, "reading": reading}
    found = named(small(grid__rules__interconnect=rule, **changes))
    assert {x for x in found if x.startswith("interconnect")} == broken


@each("rule", ["headroom", "interconnect", "fault_split"])
def test_a_rule_that_is_off_does_not_bind(rule: str) -> None:
    off: dict[str, Any] = {"headroom": False} if rule == "headroom" else {rule: {"enabled": False}}
    tight = {"grid__balancing_authorities__0__headroom_mw": 0.1} if rule == "headroom" else {}
    assert rules(small(grid__rules={**GRID["rules"], **off}, **tight)) == set()


def test_without_flows_an_authority_feeds_its_own() -> None:
    fed = NO_FLOWS | {"grid__nodes__0__generation_mw": 0.9, "grid__nodes__1__generation_mw": 0.3}
    assert rules(small(**fed)) == set()
    assert "generation[EAST]" in named(small(**fed | {"grid__nodes__1__generation_mw": 0.2999}))


@each(("path", "change", "rule"), [
    ("sites.generation_mw.e1", lambda x: x + 0.001, "balance[e1]"),
    ("sites.generation_mw.e1", lambda x: x + 1e-6, None), ("sites.generation_mw.e2", lambda x: -x, "generation[e2]"),
    ("sites.generation_mw", lambda x: {**x, "nowhere": 0.1}, "generation[nowhere]"),
    ("sites.flows.0.mw", -0.099, "balance[e1]"), ("sites.flows.0.mw", lambda x: -x, "balance[e2]"),
    ("sites.flows.1.mw", 0.51, "rating[e1-e2-new]"), ("sites.flows.1.line", "nowhere", "rating[nowhere]"),
    ("sites.flows.1.line", "e1-e2", "rating[e1-e2]"), ("sites.new_lines.0.circuits", 3, "new_circuits[e1-e2-new]"),
    ("sites.new_lines.0.circuits", 0, "rating[e1-e2-new]"), ("sites.new_lines.0.line", "w1-w2", "new_circuits[w1-w2]"),
    ("sites.sites.0.id", "nowhere", "known_site[nowhere]"), ("sites.sites.0.id", "e2", "known_site[e2]"),
    ("sites.sites.0.id", "w1", "known_site[w1]"), ("sites.sites.0.balancing_authority", "WEST", "site_figures[e1]"),
    ("sites.sites.0.interconnection", "western", "site_figures[e1]"), ("sites.sites.0.racks", 9, "site_figures[e1]"),
    ("sites.sites.0.racks", 0, "demand[e1]"), ("sites.sites.0.racks", -1, "demand[e1]"),
    ("sites.sites.0.interconnect_mw", None, "site_figures[e1]"), ("sites.sites.0.cooling_m2", None, "site_figures[e1]"),
    ("sites.links", [], "linked[e1, w1]"), ("sites.links", lambda x: x * 2, "linked[e1, w1]"),
    ("sites.links.0.b", "e1", "linked[e1]"), ("sites.links.0.b", "w2", "linked[e1, w2]"),
    ("sites.links.0.wavelengths", 1, "wan_capacity[e1, w1]"), ("sites.links.0.fibre_pairs", 0, "link_figures[e1, w1]"),
    ("sites.links.0.required_gbps", lambda x: x * 0.99, "wan_need[e1, w1]"),
    ("sites.links.0.required_gbps", 0.0021, "wan_capacity[e1, w1]"),
])  # fmt: skip
def test_an_edit_names_its_rule(path: str, change: Any, rule: str | None) -> None:
    found = named(edited_at(PLAN, path, change))
    assert found == set() if rule is None else rule in found


@each(("pins", "broken"), [
    ({"sites.racks": 14, "sites.max_sites": 2, "sites.racks.e1": 8, "sites.racks.w1": 6}, set()),
    ({"sites.racks": 16}, {"pins[sites.racks]"}), ({"sites.max_sites": 1}, {"pins[sites.max_sites]"}),
    ({"sites.racks.w1": 8}, {"pins[sites.racks.w1]"}), ({"sites.racks.w2": 2}, {"pins[sites.racks.w2]"}),
])  # fmt: skip
def test_pins(pins: dict[str, Any], broken: set[str]) -> None:
    assert named(worked(instance_with(pins=pins))) == broken


# Loads: e1 1.2, w1 0.9 MW; their plants feed 0.9 and 0.9 MW. Lines at e1: 2 x 0.5 MW and a built one of 0.5.
UPGRADE = {"step_mw": 0.2, "max_steps": 3, "capex_usd": 0.0, "lead_months": 9}


def with_upgrades(*bought: tuple[str, int], months: float | None = None) -> Plan:
    """Return the worked plan whose node e1 can be upgraded, with steps bought and nothing recomputed."""
    nodes = [{**n, "upgrade": UPGRADE} if n["id"] == "e1" else n for n in GRID["nodes"]]
    plan = small(grid__nodes=nodes, grid__rules__ready_within_months=months)
    return edited(plan, sites__upgrades=[{"node": n, "steps": s} for n, s in bought])


@each(("bought", "words"), [
    ([("w1", 1)], "1 steps where none can be had"), ([("e1", 4)], "4 steps (in all 4) are not from 1 to 3"),
    ([("e1", 0)], "0 steps (in all 0) are not from 1 to 3"), ([("e1", -1)], "-1 steps (in all -1) are not from 1 to 3"),
    ([("e1", 2), ("e1", 2)], "2 steps (in all 4) are not from 1 to 3"), ([("e1", 3)], None), ([("e1", 1)], None),
])  # fmt: skip
def test_upgrades(bought: list[tuple[str, int]], words: str | None) -> None:
    found = {v.message for v in check(with_upgrades(*bought)) if v.rule.startswith("upgrades[")}
    assert found == ({words} if words else set())


def test_circuits_and_steps_are_counted_in_one_pass() -> None:
    """A plan that names one corridor or node twenty thousand times over is counted at once, not row by row."""
    rows, plan = 20_000, with_upgrades(("e1", 1))
    line = plan.sites.new_lines[0].replaced(circuits=1)
    split = plan.sites.replaced(new_lines=(line,) * rows, upgrades=plan.sites.upgrades * rows)
    physics, start = PlanPhysics(plan=plan.replaced(sites=split)), time.process_time()
    assert (physics.built, physics.steps) == ({line.line: rows}, {"e1": rows})
    assert time.process_time() - start < 2


@each(("path", "rule"), [("grid__nodes__0__ready_months", "e1"), ("grid__new_lines__0__lead_months", "e1-e2-new")])
def test_what_comes_late(path: str, rule: str) -> None:
    """A site and a line in use are ready within the months allowed, to the month."""
    for late, broken in ((12, set()), (12.1, {f"ready[{rule}]"})):
        assert named(small(**{path: late, "grid__rules__ready_within_months": 12})) == broken
    assert named(small(**{path: 500})) == set()
    idle = {"grid__nodes__1__ready_months": 99, "grid__rules__ready_within_months": 12}
    assert named(small(**idle)) == set()  # no site stands at e2
    for months in (8.9, 9):  # an upgrade is ready after its own nine; without it nobody waits for it
        assert ("ready[e1]" in named(with_upgrades(("e1", 1), months=months))) == (months < 9)
        assert "ready[e1]" not in named(with_upgrades(months=months))


@each(("ratio", "broken"), [(4 / 3, set()), (1.3, {"share_balance[e1]"}), (1, {"share_balance[e1]"})])
def test_balanced_sites(ratio: float, broken: set[str]) -> None:
    assert named(small(grid__rules__share_balance={"enabled": True, "max_ratio": ratio})) == broken
    assert named(small(grid__rules__share_balance={"enabled": False, "max_ratio": ratio})) == set()


def test_sites_exchange_at_a_rate() -> None:
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


FULL_USD = HOURS * (1.2 * 40 + 0.9 * 80)  # eastern energy at the grid's own 40 a MWh, western at the year's 80


def test_a_year_in_full() -> None:
    """All sites draw what they hold, in the scenarios of the grid and no other."""
    full = run(FULL_USD, FULL)
    assert rules(with_scenarios("robust", dry=full)) == rules(with_scenarios("off")) == set()
    assert named(with_scenarios("robust", dry=run(FULL_USD * 1.001, FULL))) == {"scenarios[dry]"}
    assert named(with_scenarios("robust", dry=full, wet=full)) == {"scenarios[wet]"}
    assert named(with_scenarios("robust")) == {"scenarios[dry]"}
    assert "scenarios[dry]" in named(with_scenarios("off", dry=full))


@each("mode", ["robust", "expected"])
def test_a_year_in_part(mode: str) -> None:
    """A site that draws less than it holds pays for what is left undone, and breaks a robust split."""
    usd = HOURS * (1.1 * 40 + 0.9 * 80) + (HOURS * 0.1 * 500 if mode == "expected" else 0.0)
    found = named(with_scenarios(mode, dry=run(usd, FULL | {"e1": 1.1}, generation_mw=FED | {"e1": 0.8})))
    assert ("scenarios[dry, e1]" in found) == (mode == "robust") and "scenarios[dry, w1]" not in found
    assert mode == "robust" or "scenarios[dry]" not in found


@each(("drawn", "change", "rule"), [
    (FULL | {"e1": 1.3}, {"generation_mw": FED | {"e1": 1.0}}, "scenarios[dry, e1]"),
    (FULL | {"e2": 0.0}, {}, "scenarios[dry, e2]"), ({"e1": 1.2}, {}, "scenarios[dry, w1]"),
    (FULL, {"generation_mw": FED | {"e1": 0.91}}, "balance[e1] in dry"),
    (FULL, {"generation_mw": FED | {"e2": 0.6}}, "balance[e2] in dry"),
    (FULL, {"generation_mw": FED | {"w1": 1.3}}, "generation[w1] in dry"),
    (FULL, {"flows": [{**x, "mw": x["mw"] * 6} for x in FLOWS]}, "rating[e1-e2-new] in dry"),
])  # fmt: skip
def test_a_year_has_its_own_grid(drawn: dict[str, float], change: dict[str, Any], rule: str) -> None:
    """A site draws no more than it holds, where it stands, and the power of the year flows in its own grid."""
    assert rule in named(with_scenarios("robust", dry=run(FULL_USD, drawn, **change)))


def grid_of(lines: Iterable[tuple[int, int, float]], generated: Floats, load: Floats, **line: float) -> GridArrays:
    """Return nodes a, b, … with 100 MW of plants each, and corridors between two of them by reactance."""
    names, none = "abcdefghi", np.zeros(len(generated))
    each = zip(names, load, strict=False)
    nodes = [PowerNode.model_construct(id=name, generation_mw=100.0, load_mw=mw) for name, mw in each]
    ends = ((names[a], names[b], x) for a, b, x in lines)
    own = [Line.model_construct(id=f"{a}{b}", a=a, b=b, reactance_pu=x, **line) for a, b, x in ends]
    return GridArrays(nodes, [(one, 1 + k % 2) for k, one in enumerate(own)], generated, none)


def ring(*reactance_pu: float) -> GridArrays:
    corridors = zip((0, 1, 2), (1, 2, 0), reactance_pu, strict=True)
    return grid_of(corridors, np.zeros(3), np.zeros(3), rating_mw=0.0)


def test_reactances_that_cancel_are_named() -> None:
    """In a ring of x, x and -2x no flow follows: that is said of the figures, which end in no traceback."""
    with pytest.raises(ArithmeticError, match="no flow follows from their reactances"):
        Solved(ring(0.1, 0.1, -0.2), np.ones(3))


def test_a_compensated_line_carries_what_its_reactance_says() -> None:
    """Of 90 MW from a to b, x = 0.3 beside a detour of 0.2 - 0.05 carries a third: 30 MW, and the detour 60."""
    flows = cast(Any, Solved(ring(0.3, 0.2, -0.05), np.ones(3)).flows(np.array([90.0, -90.0, 0.0])))
    assert flows == pytest.approx([30.0, -60.0, -60.0])


@pytest.mark.parametrize("seed", range(28))
def test_flows_without_a_circuit_are_those_of_the_grid_without_it(seed: int) -> None:
    r = np.random.default_rng(seed)
    pairs = [(i, (i + 1) % 9) for i in range(9)] + [tuple(r.choice(9, 2, replace=False)) for _ in range(8)]
    reactance = r.uniform(0.05, 0.5, len(pairs)) * np.where(r.random(len(pairs)) < 0.2 * (seed % 3), -1.0, 1.0)
    generated, load = r.uniform(0, 50, 9), r.uniform(0, 50, 9)
    load *= generated.sum() / load.sum()
    corridors = ((a, b, x) for (a, b), x in zip(pairs, reactance.tolist(), strict=True))
    g = grid_of(corridors, generated, load, rating_mw=0.0)
    for line in range(len(pairs)):
        fresh = Solved(g, g.without(line)).flows(generated - load)
        assert g.base.flows_without(line) == pytest.approx(fresh, rel=1e-5, abs=1e-4)


@each(("load", "named"), [(100.0, []), (120.0, ["security[b, ab]"])])
def test_an_island_that_its_plants_cannot_feed_is_named(load: float, named: list[str]) -> None:
    """Without its one circuit, b has its own 100 MW of plants, whatever a could send it."""
    g = grid_of([(0, 1, 0.1)], np.array([80.0, load - 60.0]), np.array([20.0, load]), rating_mw=200.0)
    found = list(_without_circuit(g, 0))
    assert [v.rule for v in found] == named
    assert not named or "120 MW fed in after the loss of ab > 100 MW" in found[0].message


OPERATION = {"maintenance_share_per_year": 0.03, "staff_usd_per_year": 1e5, "fabric_life_years": 3.0}
AREAS = {f"grid__balancing_authorities__{i}__carbon_kg_per_mwh": 300.0 + i for i in range(2)}
LIMITS = {"limits__operation_years": 5.5, "limits__budget_usd": 1e9}
ALL = {"operation": OPERATION, "hardware__rack__life_years": 2.0, **LIMITS, **AREAS}


def with_run(**changes: Any) -> Plan:
    """Return the worked plan of an instance with changed figures, with its run."""
    plan = small(**changes)
    return plan.replaced(run=cost.section(plan.instance, plan.layout.metrics.days_to_train, plan.cost, 0, plan.sites))


def broken(plan: Plan) -> set[str]:
    return {v.rule for rule in (*RULES, *RUN_RULES) for v in rule(PlanPhysics(plan=plan))}


@each("changes", [{}, ALL, {"operation": OPERATION}, {"limits__operation_years": 0}])
def test_a_sound_run_breaks_no_rule(changes: dict[str, Any]) -> None:
    assert rules(with_run(**changes)) == set()


@each(("path", "change", "rule"), [
    ("run.days", lambda x: x * 2, "run_length"), ("run.years", 5.4, "run_length"),
    ("run.replacements.racks", 1, "run_replaced[racks]"), ("run.usd.capital", lambda x: x - 1e6, "run_money[capital]"),
    ("run.usd.staff", 0.0, "run_money[staff]"), ("run.sites.e1.energy_usd", 0.0, "run_energy[e1]"),
    ("run.not_counted", ["operation.staff_usd_per_year"], "run_money"),
    ("run.by_year", lambda x: x[:-1], "run_by_year"),
])  # fmt: skip
def test_an_edit_of_the_run_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(with_run(**ALL), path, change))


def test_a_run_is_not_of_a_plan_without_days() -> None:
    sound = with_run()
    refused = stored(sound.instance.replaced(limits__budget_usd=1.0))
    assert refused.status == "infeasible" and "reason" not in rules(refused)
    assert "reason" in rules(refused.replaced(run=sound.run))
    found = {v.message for rule in RUN_RULES for v in rule(PlanPhysics(plan=sound.replaced(layout=None)))}
    assert found == {f"{sound.run.days:g} days stated of a plan that has 0 layouts"}


def test_a_cluster_has_its_run() -> None:
    plan = stored("instances/one-rack.json")
    assert broken(plan) == set()
    assert "operation.energy_usd_per_mwh" in plan.run.not_counted and plan.run.energy_joules_per_token > 0


@each(("over", "found"), [(-1.0, set()), (-0.02, set()), (0.02, {"budget[run]"}), (1e6, {"budget[run]"})])
def test_the_budget_of_a_run(over: float, found: set[str]) -> None:
    """Where the whole run is to cost least it is within the budget to the cent; elsewhere capital alone is."""
    plan = with_run(**(ALL | {"objective__minimize": "total_cost_of_ownership_usd", "limits__deadline_days": 1e6}))
    limit = plan.run.total_cost_of_ownership_usd - over
    assert plan.run.usd["energy"] > 0 and plan.run.total_cost_of_ownership_usd > plan.cost.total_usd
    for name, expected in (("total_cost_of_ownership_usd", found), ("days_to_train", set())):
        changed = edited_at(edited_at(plan, "instance.limits.budget_usd", limit), "instance.objective.minimize", name)
        assert {r for r in broken(changed) if r.startswith("budget")} == expected
    assert not any(r.startswith("budget") for r in broken(edited_at(plan, "instance.limits.budget_usd", None)))


def test_loads_without_end_and_links_without_length_are_judged_by_their_rules() -> None:
    """Racks whose draw is infinite in MW break the headroom of their area; no rule of the power flow fails on them."""
    found = named(edited_at(PLAN, "sites.sites.0.racks", 10**307))
    assert "headroom[EAST]" in found and not {"sites.generation", "sites.balance", "sites.rating"} & found
    # Two sites at one place: the bill has the 0 km between them, whatever length the link states.
    nodes = [{**node, "latitude": 40, "longitude": -76} for node in GRID["nodes"]]
    plan = edited_at(edited_at(PLAN, "instance.grid.nodes", nodes), "sites.links.0.route_km", 500.0)
    at_0_km = next(v for v in violations(plan, stop=lambda: True) if v.rule == "parts[capex_usd.wan]")
    assert at_0_km.recomputed == pytest.approx(1e3 * plan.sites.links[0].wavelengths)
