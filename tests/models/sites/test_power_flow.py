"""The site split under dc and N-1, in scenarios too: agreement with all rows by angles, matrices and CP-SAT."""

from typing import Any

import bench_sites
import grid_properties
import pyomo.environ as pyo
import pytest
from best_splits import asking
from each_case import each
from power_grids import Value, angles, loaded_case, power_case, same, violations, wire, with_years, years_case
from site_grids import ANY, OPTIONS, case, line, node, solved
from splits_by_matrices import best_split
from tiers import more

from planner import check, solve
from planner.checks import power_flow
from planner.checks import sites as site_rules
from planner.errors import InputError
from planner.instance.instance import Instance, Limits
from planner.models.sites.split_data import gather
from planner.models.sites.split_model import build, conflict, largest_loads
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Certificate
from planner.plan.plan import Plan
from planner.plan.plan_sections import Flow, SitesPlan
from planner.planning.load import load_instance
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop


def value(plan: SitesPlan | None) -> Value:
    return (sum(s.racks for s in plan.sites), plan.certificate.objective or 0.0) if plan else None


def racks(instance: Instance) -> dict[str, int]:
    """Return the racks by site of the best split, which keeps every rule as checked; none where there is none."""
    plan = solved(instance)
    assert plan is None or violations(instance, plan) == []
    return {s.id: s.racks for s in plan.sites} if plan else {}


# Agreement


@pytest.mark.parametrize(("n1", "new"), [("off", 0), ("off", 2), ("margin", 1), ("node", 0), ("full", 0)])
@pytest.mark.parametrize("seed", [0, 200, 1, 201, *range(2, 12), *range(202, 205), *more(*range(205, 212))])
def test_agrees_with_angles_stated_in_full(seed: int, n1: str, new: int) -> None:
    # From 200 on nodes draw power beside the sites, and one line has a negative reactance.
    instance, request = (power_case if seed < 200 else loaded_case)(seed, n1=n1, new=new)
    plan = solved(instance, request)
    assert same(value(plan), angles(instance, request))
    assert plan is None or violations(instance, plan) == []


@pytest.mark.parametrize(("seed", "n1"), [(100, "full"), (103, "full"), (104, "node"), (106, "full"), (108, "node")])
def test_new_circuits_under_outages_agree_with_trying_all(seed: int, n1: str) -> None:
    instance, request = power_case(seed, n1=n1, new=2)
    assert same(value(solved(instance, request)), best_split(instance))


# One rule at a time: E0 is the only site, fed from E1 over lines of 10 MW and 0.01 pu unless said otherwise


def fed(*lines: dict[str, Any], spare: float = 20.0, site: dict[str, Any] | None = None, **rules: Any) -> int:
    """Return the racks of a site that is fed from E1, and maybe over E2."""
    plants = {"generation_mw": spare, "largest_unit_mw": 0.0}
    nodes = [node("E0", **({"generation_mw": 0.0} | (site or {}))), node("E1", **plants, site=False)]
    nodes += [node("E2", generation_mw=0.0, site=False)] if any("E2" in (x["a"], x["b"]) for x in lines) else []
    fed = case(*nodes, lines=list(lines), headroom={"E": 99.0}, rules={"grid_model": "dc"} | rules)
    return sum(racks(fed).values())


PAIR, TWICE = wire("E0", "E1", circuits=2), {"spare": 99.0}
FED: list[tuple[int, tuple[dict[str, Any], ...], dict[str, Any]]] = [
    # Two lines carry 20 when alike; with one of twice the reactance, or half, the other is full at 15.
    *((n, (wire("E0", "E1"), wire("E0", "E1", x, id="q")), {}) for x, n in ((0.01, 20), (0.02, 15), (0.005, 15))),
    # Beside 10 MW at 0.01 pu a line of -0.02 carries half as much the other way, one of -0.005 twice as much.
    *((5, (wire("E0", "E1"), wire("E0", "E1", x, id="q")), {}) for x in (-0.02, -0.005)),
    # What the site's node draws anyway comes over the same line; beyond it nothing is left.
    *(
        (n, (wire("E0", "E1"),), {"site": {"load_mw": load}, "grid_model": model})
        for model in ("transport", "dc")
        for load, n in ((0.0, 10), (3.0, 7), (10.0, 0), (10.5, 0))
    ),
    # Of two circuits one may be lost: 6 MW drawn at the far end of them leave 4 MW to the site.
    (4, (PAIR,), {"site": {"load_mw": 6.0}, "n1": "full"} | TWICE),
    *((n, (wire("E0", "E1"),), {"n1": "margin", "n1_margin": x}) for x, n in ((1.0, 10), (0.5, 5), (0.49, 4))),
    # The circuits that are left carry the load; a site on a single one, without plants, can have none.
    *(
        (n, (PAIR | {"circuits": circuits},), {"n1": n1} | TWICE)
        for n1 in ("node", "full")
        for circuits, n in ((1, 0), (2, 10), (3, 20))
    ),
    # Behind E2 one of two circuits of 5 MW is lost under full only.
    *(
        (n, (wire("E0", "E2", circuits=2), wire("E2", "E1", circuits=2, rating_mw=5.0)), {"n1": n1})
        for n1, n in (("node", 10), ("full", 5))
    ),
    # A site on a single line holds what its own plants can feed.
    *(
        (n, (wire("E0", "E1"),), {"site": {"generation_mw": own, "largest_unit_mw": 0.0}, "n1": "full"})
        for own, n in ((0.0, 0), (3.0, 3), (3.9, 3))
    ),
]


@each(("most", "lines", "rules"), FED)
def test_racks_that_lines_feed(most: int, lines: tuple[dict[str, Any], ...], rules: dict[str, Any]) -> None:
    """Flows share themselves by reactance, a margin is kept back, and outages leave what is left."""
    assert fed(*lines, **rules) == most


@each(("plants", "unit", "most"), [(2, 0.0, 8), (2, 2.0, 6), (2, None, 4), (1, 2.0, 2)])
def test_units(plants: int, unit: float | None, most: int) -> None:
    """Two plants of 4 MW lose a unit of 2, which the others make up for; without units named, the whole plant."""
    # One plant alone, in a grid without lines, keeps a reserve for its largest unit: of two of 2 MW the half.
    nodes = [node(f"E{i}", generation_mw=4.0, largest_unit_mw=unit, site=i == 0) for i in range(plants)]
    lines = [wire("E0", "E1", circuits=3)][: plants - 1]
    assert racks(case(*nodes, lines=lines, rules={"grid_model": "dc", "n1": "full"})) == {"E0": most}


@each(("lines", "new", "built", "most"), [
    ([], {"rating_mw": 4.0, "max_circuits": 2, "reactance_pu": 0.01, "capex_usd": 1e5}, [("k", 2)], 8),
    ([wire("E0", "E1")], {"rating_mw": 1.0, "reactance_pu": 0.001, "capex_usd": 0.0}, [], 10),
])  # fmt: skip
def test_new_circuits(lines: list[Any], new: dict[str, Any], built: list[Any], most: int) -> None:
    """They join two parts; one of little reactance attracts flow, and is left unbuilt although it is free."""
    nodes = node("E0", generation_mw=0.0), node("E1", site=False)
    new_lines = [{"id": "k", "a": "E0", "b": "E1"} | new]
    plan = solved(case(*nodes, lines=lines, new_lines=new_lines, rules={"grid_model": "dc"}))
    assert [(n.line, n.circuits) for n in plan.new_lines] == built
    assert sum(s.racks for s in plan.sites) == most


# What comes back


def test_the_space_tells_rounds_cuts_and_outages() -> None:
    instance, request = power_case(1, n1="full")
    plan = solved(instance, request)
    units = sum(n.generation_mw > 0 and n.largest_unit_mw != 0 for n in instance.grid.nodes)
    assert plan.certificate.space["outages"] == len(instance.grid.lines) + units
    assert {"rounds", "rating_cuts", "outage_cuts"} <= set(plan.certificate.space)


@each(("changes", "rules", "name"), [
    ({"rating_mw": 3.0}, {}, "generation rating"),
    ({"rating_mw": 3.0, "circuits": 2}, {"n1": "full"}, "generation security"),
    ({"rating_mw": 30.0, "circuits": 2}, {}, "generation"),
])  # fmt: skip
def test_what_stops_stops_the_next_module(changes: dict[str, Any], rules: dict[str, Any], name: str) -> None:
    nodes = node("E0", generation_mw=0.0), node("E1", site=False, largest_unit_mw=0.0)
    grid = {"lines": [wire("E0", "E1", **changes)], "headroom": {"E": 99.0}, "rules": {"grid_model": "dc"} | rules}
    (found,) = largest_loads(case(*nodes, **grid), OPTIONS)
    assert found.stopped_by == tuple(name.split())


def test_a_second_model_starts_from_the_rows_of_the_first() -> None:
    instance, request = power_case(3, n1="full")
    data = gather(instance, request)
    m = build(data)
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    highs.run(m)
    assert data.network is not None and data.network.pool
    known = build(data).lazy.known()
    assert len(known) == len(data.network.pool)
    assert build(data, without={"security", "rating"}).lazy.known() == []


def test_the_rule_that_shuts_a_split_out_is_named() -> None:
    nodes = node("E0", generation_mw=0.0), node("E1", site=False, largest_unit_mw=0.0)
    found = conflict(case(*nodes, lines=[wire("E0", "E1")], rules={"grid_model": "dc", "n1": "full"}), ANY, OPTIONS)
    assert found is not None and set(found.rules) == {"demand", "generation", "security"}


@each(("rules", "lines", "path"), [
    ({"grid_model": "dc"}, [line("E0", "E1", rating_mw=1.0)], r"grid\.lines\[0\]\.reactance_pu"),
    ({"grid_model": "transport", "n1": "full"}, [], r"grid\.rules\.n1"),
    ({"grid_model": "none", "n1": "margin"}, [], r"grid\.rules\.n1"),
])  # fmt: skip
def test_what_a_power_flow_needs_is_named(rules: dict[str, Any], lines: list[dict[str, Any]], path: str) -> None:
    with pytest.raises(InputError, match=path):
        load_instance(case(node("E0"), node("E1"), lines=lines, rules=rules))


# The checker


def test_planted_violations_are_found() -> None:
    """Splits planned without outages in mind are judged with them: most fail, by the name of what is lost."""
    # So are flows against the reactances.
    found, lines = [], [wire("E0", "E1", id="p"), wire("E0", "E1", id="q")]
    for seed in range(10):
        plan = solved(*power_case(seed))
        assert plan is not None
        found.append({v.rule for v in violations(power_case(seed, n1="full")[0], plan)})
    assert sum(bool(names) for names in found) >= 4
    assert all(name.startswith("security[") for names in found for name in names)
    instance = case(node("E0", generation_mw=0.0), node("E1", site=False), lines=lines, rules={"grid_model": "dc"})
    plan = solved(asking(instance, 4))
    turned = tuple(f.replaced(mw=f.mw + (1.0 if f.line == "p" else -1.0)) for f in plan.flows)
    assert {v.rule for v in violations(instance, plan.replaced(flows=turned))} == {"power_flow[p]", "power_flow[q]"}


@each(("seconds", "end", "reason"), [
    (5.1, (Stop.FAILED, False), "no plan within 5 s"), (1.0, (Stop.PROVED, True), "infeasible"),
    (1.0, (Stop.FAILED, False), "no plan: SolveError after 1.0 s"),
])  # fmt: skip
def test_a_measured_run_without_a_plan_says_why(seconds: float, end: tuple[Stop, bool], reason: str) -> None:
    """A run that its limit ended says so, whatever the solver calls it; an earlier end keeps the solver's word."""
    outcome: Outcome[SitesPlan] = Outcome(stop=end[0], infeasible=end[1], detail="SolveError", seconds=seconds)
    assert bench_sites.without_plan(outcome, 5.0) == reason


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["robust", "expected"])
@pytest.mark.parametrize(("n1", "new"), [("off", 0), ("off", 2), ("margin", 0), ("node", 0), ("full", 0)])
@pytest.mark.parametrize("seed", [*range(3), *more(3, 4, 5)])
def test_agrees_with_angles_of_every_year(seed: int, n1: str, new: int, mode: str) -> None:
    instance, request = years_case(seed, mode, n1=n1, new=new)
    plan = solved(instance, request)
    assert same(value(plan), angles(instance, request))
    assert plan is None or violations(instance, plan) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["robust", "expected"])
@pytest.mark.parametrize(("n1", "new"), [("off", 1), ("margin", 0), ("node", 1), ("full", 0), ("full", 1)])
@pytest.mark.parametrize("seed", [200, 201, *more(203)])
def test_agrees_with_every_split_tried(seed: int, n1: str, new: int, mode: str) -> None:
    instance, request = years_case(seed, mode, n1=n1, new=new)
    assert same(value(solved(instance, request)), best_split(instance))


# One thing at a time: a site with 4 MW of its own, and two circuits of 3 MW to the plants beyond


def dry(mode: str, **rules: Any) -> Instance:
    nodes = [node(f"E{i}", generation_mw=mw, largest_unit_mw=0.0, site=not i) for i, mw in enumerate((4.0, 20.0))]
    lines = [wire("E0", "E1", rating_mw=3.0, circuits=2)]
    instance = case(*nodes, lines=lines, headroom={"E": 99.0}, rules={"grid_model": "dc"} | rules)
    year = {"name": "dry", "weight": 0.25, "generation_mw": {"E0": 0.0}}
    return with_years(instance, mode, year, curtailment_usd_per_mwh=500)


@pytest.mark.slow
@each(("rules", "name"), [({}, "rating"), ({"n1": "full"}, "security")])
def test_a_year_may_stop_the_next_module(rules: dict[str, Any], name: str) -> None:
    """In the grid's own year there is room; the corridor of the dry one has none, and the site's plants are out."""
    (found,) = largest_loads(dry("robust", **rules), OPTIONS)
    assert found.stopped_by == ("generation", name)


@pytest.mark.slow
def test_violations_in_one_year_are_found() -> None:
    """An outage, and a flow against the reactances; a plan of every decision has none."""
    plan = solved(dry("robust"))
    flow, run = tuple(f.replaced(mw=-2.0) for f in plan.flows), plan.scenarios["dry"]
    own = plan.replaced(generation_mw={"E0": 4.0, "E1": 2.0}, flows=flow)
    assert {v.rule for v in violations(dry("robust", n1="full"), own)} == {"security[E0-E1, E0-E1] in dry"}
    turned = run.replaced(flows=tuple(f.replaced(mw=f.mw / 2) for f in run.flows))
    broken = violations(dry("robust"), plan.replaced(scenarios={"dry": turned}))
    assert "power_flow[E0-E1] in dry" in {v.rule for v in broken}
    instance = dry("expected", n1="full").replaced(limits=Limits(max_batch_tokens=12800))
    whole = solve(load_instance(instance.model_dump(mode="json", exclude_none=True)))
    assert check(whole) == [] and whole.sites.certificate.space["outage_cuts"]


@pytest.mark.parametrize("seed", range(40))
def test_properties_of_random_grids(seed: int) -> None:
    assert grid_properties.faults(grid_properties.random_grid(seed).grid, seed) == []


@pytest.mark.parametrize("seed", range(40))
def test_a_dispatch_without_sites_keeps_the_rules_as_checked(seed: int) -> None:
    made = grid_properties.random_grid(seed)
    instance = grid_properties.instance_of(made.grid)
    plan = SitesPlan.model_construct(
        sites=(), links=(), new_lines=(), upgrades=(), excess=(), scenarios={}, generation_mw=made.fed,
        flows=tuple(Flow(line=k, mw=x) for k, x in made.flow.items()), certificate=Certificate.model_construct(),
    )  # fmt: skip
    c = PlanPhysics(plan=Plan.model_construct(instance=instance, sites=plan, layout=None, fabric=None, placement=None))
    rules = (*power_flow.YEAR_RULES, site_rules.each_site)
    assert [v for rule in rules for v in rule(c)] == []


@each("model", ["none", "transport", "dc"])
def test_the_load_of_a_node_without_a_site_is_no_draw_of_one(model: str) -> None:
    """A candidate that draws 0.3 MW of its own over its only line forbids no site elsewhere while it is closed."""
    nodes = node("E0", generation_mw=50.0), node("E1", generation_mw=0.0, load_mw=0.3)
    imports = {"enabled": True, "share": 0.5, "reading": "import_share"}
    grid = {"lines": [wire("E0", "E1", rating_mw=6.0)], "rules": {"grid_model": model, "interconnect": imports}}
    assert racks(case(*nodes, **grid)) == {"E0": 10}


@each(("generation", "expected"), [(3.0, {"W0": 9}), (9.0, {"E0": 6, "W0": 9})])
def test_an_area_short_of_plants_forbids_no_site_elsewhere(generation: float, expected: dict[str, int]) -> None:
    nodes = node("E0", generation_mw=generation, load_mw=3.0 + 0.5 * (generation < 9)), node("W0", generation_mw=9.0)
    assert racks(case(*nodes, rules={"grid_model": "none"})) == expected


@each("model", ["transport", "dc"])
@each(("rating", "expected"), [(3.0, {"W0": 2}), (2.0, {})])
def test_what_is_fed_in_whatever_is_planned_must_go_somewhere(model, rating, expected) -> None:
    nodes = node("E0", generation_mw=0.0, load_mw=-3.0, site=False), node("W0", generation_mw=0.0, load_mw=1.0)
    assert racks(case(*nodes, lines=[wire("E0", "W0", rating_mw=rating)], rules={"grid_model": model})) == expected


@each("first", ["E0", "E9"])
@each("n1", ["node", "full"])
def test_load_that_a_lost_line_leaves_dark_forbids_no_site_whatever_its_name(first: str, n1: str) -> None:
    """A node without plants behind one line loses its load with it, be it the first of its island or the last."""
    dark = node(first, generation_mw=0.0, load_mw=0.5, site=False)
    plants = {"generation_mw": 8.0, "largest_unit_mw": 1.0}
    nodes = dark, node("E1", **plants), node("E2", **plants, site=False)
    grid = {"lines": [wire(first, "E1"), wire("E1", "E2", circuits=3)], "rules": {"grid_model": "dc", "n1": n1}}
    assert racks(case(*nodes, **grid, headroom={"E": 5.0})) == {"E1": 5}
