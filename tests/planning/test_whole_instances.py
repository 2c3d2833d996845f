"""The shipped instances, and whole ones drawn at random: valid and as described, planned and checked, or refused."""

import csv
import json
import random
from pathlib import Path

import drawn_keys
import pytest
from best_splits import split
from each_case import each
from joint_toys import case, toy
from tiers import more, slow

import planner
from planner.errors import InputError
from planner.instance.plausible_ranges import implausible
from planner.models import Options
from planner.models.joint.joint_question import Solving
from planner.models.joint.solve_joint import solve_joint
from planner.plan.certificate import Conflict
from planner.planning.joint_plan import without_plan
from planner.planning.load import load_instance
from planner.solvers.outcome import Stop

DECISIONS = ["tensor_parallel", "pipeline_parallel", "data_parallel", "virtual_stages", "recompute", "zero_stage"]
DECISIONS += ["microbatch_sequences"]


def test_a_fault_split_that_leaves_no_plan() -> None:
    """Two sites cannot share the one rack that the budget pays: the proof says so, and the check names no column."""
    split = {"on": True, "min_interconnections": 1, "max_share": 0.7}
    i = planner.changed(toy(0, sites=2), {"grid.rules.fault_split": split, "limits.budget_usd": 1900.0})
    plan = without_plan(i, solve_joint(i, Solving()), Options())
    why = Conflict(decision="budget", rules=("limits.budget_usd",), reason="one rack")
    assert plan.status == "infeasible" and not planner.check(plan.replaced(conflict=why))
    assert set(plan.proof.max_racks_by_wired_gpus.values()) == {0}


def test_rates_of_ones_own() -> None:
    """Failures by the rate of one part alone, nothing said of storage or correlation, give a plan that holds."""
    rates = {"parts": {"gpu": {"gpu_hours_per_event": 50_000, "repair_hours": 4}}}
    plan = planner.solve(planner.changed(toy(0), {"reliability": rates}))
    assert plan.status == "optimal" and not planner.check(plan)
    assert plan.reliability.checkpoint_write_seconds == 0 and plan.reliability.useful_share < 1


@pytest.mark.parametrize("seed", [242, 268, *more(116, 184)])
def test_a_budget_below_the_gateways_of_the_fastest_plan(seed: int) -> None:
    """A dollar less than two sites with WAN gateways buys fewer wavelengths; by the old deadline nothing is cheaper."""
    days = {"minimize": "days_to_train", "tolerance": 0.0}
    wired = {"network__wan_gateway": True, "hardware__overhead_includes_fabric": True, "objective": days}
    i = toy(seed, sites=2 if seed % 3 else 3, forced=True).replaced(**wired)
    best = planner.solve(i)
    usd = sum(best.cost.capex_usd.values())
    less = planner.solve(i.replaced(limits__budget_usd=usd - 1))
    assert sum(less.cost.capex_usd.values()) < usd and less.objective.value > best.objective.value
    assert less.sites.links[0].wavelengths < best.sites.links[0].wavelengths
    late = i.replaced(objective__minimize="cost_usd", limits__deadline_days=best.objective.value * (1 + 1e-9))
    assert planner.solve(late).objective.value == pytest.approx(usd)
    assert not planner.check(best) and not planner.check(less)


@pytest.mark.parametrize("seed", [21, *more(35, 49)])
def test_a_bound_over_every_fabric_holds_of_dearer_ones(seed: int) -> None:
    """Where the budget cables few of a cluster's racks, none is stated: more money for the fabric may be faster."""
    i = toy(seed)
    rich, owned = planner.solve(i.replaced(limits__budget_usd=None)), i.hardware.racks * i.hardware.rack.price_usd
    for usd in (220, 500, 900):
        plan = planner.solve(i.replaced(limits__budget_usd=owned + usd))
        free, value = plan.objective.fabric_free_bound, plan.objective.value
        assert free is None or free <= rich.objective.value * (1 + 1e-9)
        if free is None and value is not None:
            parts = {"objective__fabric_free_bound": value, "proof__fabric_free_bound_days": value}
            assert "joint_bounds" in {v.rule for v in planner.check(plan.replaced(**parts))}


QUICK = (1, 60, 171, 300)
ALONE = len(drawn_keys.optional_keys())
TIERS = range(0, 2 * ALONE, 56)  # of the slow one


@pytest.mark.parametrize("seed", [*QUICK, *slow(*TIERS), *more(*(n for n in range(0, 2 * ALONE, 7) if n not in TIERS))])
def test_drawn_keys_are_answered_or_refused(seed: int) -> None:
    """A small instance with one or two keys drawn ends in a plan that the checker agrees with, or in a complaint."""
    data, keys = drawn_keys.instance(seed)
    try:
        plan = planner.solve(data, time_limit=2)
    except InputError as error:
        assert all(": " in line for line in str(error).splitlines()), (keys, error)
        return
    assert planner.check(plan) == [], keys


@pytest.mark.parametrize("seed", [*slow(*range(5)), *more(*range(5, 40))])
def test_the_decisions_of_an_optimum_as_pins_give_its_value(seed: int) -> None:
    """Of a toy of any kind, with failures or a goal in dollars too."""
    r = random.Random(seed)
    asked = r.choice([case(seed), toy(seed), toy(seed, sites=2, forced=r.random() < 0.5)])
    goal = {"objective.minimize": "cost_usd", "limits.deadline_days": r.choice([0.02, 0.1, 1.0])}
    asked = planner.changed(asked, r.choice([{}, {"reliability": "llama3-2024"}, {"objective.tolerance": 0.02}, goal]))
    plan = planner.solve(asked)
    assert plan.status in ("optimal", "infeasible") and not planner.check(plan)
    if plan.layout is not None:
        own = {f"layout.{name}": getattr(plan.layout, name) for name in DECISIONS}
        pinned = planner.solve(asked.replaced(pins=asked.pins | own))
        assert pinned.status == "optimal" and not planner.check(pinned)
        assert pinned.objective.value == pytest.approx(plan.objective.value, rel=1e-6)


def test_every_optional_key_is_drawn() -> None:
    names = {name for _, name in drawn_keys.optional_keys()}
    assert ALONE > 250 and {"grid.nodes.0.area_m2", "reliability.parts.gpu.repair_hours"} <= names
    assert all(len(drawn_keys.instance(seed)[1]) == 1 for seed in range(0, ALONE, 5))


@pytest.mark.slow
def test_a_proof_without_a_plan_states_the_simulated_slowdown() -> None:
    data, keys = drawn_keys.instance(182)
    assert "network.transport.simulate" in keys
    data["limits"]["deadline_days"] = 1e-9
    data["network"]["transport"]["simulate"] |= {"seeds": 2, "hosts": 64}
    plan = planner.solve(data, time_limit=60)
    assert plan.status == "infeasible"
    assert plan.transport is not None
    assert planner.check(plan) == []
    assert {v.rule for v in planner.check(plan.replaced(transport=None))} >= {"transport_factor"}


INSTANCES = Path(__file__).parents[2] / "instances"
NAMES = sorted(p.stem for p in INSTANCES.glob("*.json"))
CHOICES = ("objective", "pins", "schema_version")  # what is asked, and not a figure of the world


def read(name):
    return json.loads((INSTANCES / f"{name}.json").read_text(encoding="utf-8"))


def resolved(name):
    """Return the instance with its catalogue names replaced by the entries."""
    return load_instance(INSTANCES / f"{name}.json", searched=False)


def unsourced(value, path, inherited):
    """Yield the path of each number that no source covers."""
    # A source text covers the figures of its object and of those below it; a source by key covers its keys. The
    # instance's own source is a title and covers nothing.
    if isinstance(value, dict):
        source = value.get("source") if path else None
        for key, item in value.items():
            if key == "source" or (not path and key in CHOICES):
                continue
            covered = bool(source.get(key)) if isinstance(source, dict) else bool(source)
            yield from unsourced(item, (*path, key), inherited or covered)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from unsourced(item, (*path, i), inherited)
    elif isinstance(value, int | float) and not inherited:
        yield ".".join(map(str, path))


@each("name", NAMES)
def test_instance_is_valid_and_plausible_and_figures_have_sources(name):
    """Every number has a source, and every source by key names a key that is there."""
    assert resolved(name).name == name
    assert name == "limits-h100" or list(implausible(load_instance(name))) == []  # that is for `planner limits`

    def walk(value):
        if isinstance(value, dict):
            assert not isinstance(value.get("source"), dict) or set(value["source"]) <= set(value)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(item)

    walk(read(name))
    assert list(unsourced(read(name), (), False)) == []


@each("name", [n for n in NAMES if "grid" in read(n)])
def test_lines_stay_in_their_interconnection(name):
    """No AC line joins two interconnections; what does is marked as a tie that can be controlled."""
    grid = resolved(name).grid
    area = {b.id: b.interconnection for b in grid.balancing_authorities}
    side = {n.id: area[n.balancing_authority] for n in grid.nodes}
    across = [line for line in (*grid.lines, *grid.new_lines) if side[line.a] != side[line.b]]
    assert all("tie, controllable" in (line.note or "") for line in across)


def test_us_134_zones_covers_the_country():
    """134 zones of three interconnections, all of them candidates, prices as in the table beside, notices there."""
    grid = resolved("us-134-zones").grid
    area = {b.id: b.interconnection for b in grid.balancing_authorities}
    assert len(grid.nodes) == sum(n.site for n in grid.nodes) == 134
    assert {area[n.balancing_authority] for n in grid.nodes if n.site} == {"eastern", "western", "ercot"}
    with (INSTANCES / "us-134-zones-authorities.csv").open(encoding="utf-8") as file:
        prices = {row["authority"]: float(row["energy_usd_per_mwh"]) for row in csv.DictReader(file)}
    assert {b.id: b.energy_usd_per_mwh for b in grid.balancing_authorities} == prices
    assert (INSTANCES / "us-134-zones-NOTICE.txt").exists()


@pytest.mark.slow
def test_us_134_zones_has_a_site_split():
    """The sites alone are decided, proven: the most racks that the budget buys, in two interconnections."""
    outcome = split(load_instance(INSTANCES / "us-134-zones.json"))
    found = outcome.solution
    assert outcome.stop is Stop.PROVED and found.certificate.status == "optimal"
    assert len(found.sites) == len({s.interconnection for s in found.sites}) == 2


@each(("free", "pinned"), [("5gw", "agache2024-100t"), ("5gw-50t", "agache2024-50t")])
def test_pinned_instances_share_the_grid(free, pinned):
    """The instances of the paper's choices stand on the grid of the free ones, and pin 23,200 racks."""
    a, b = resolved(free), resolved(pinned)
    for part in ("balancing_authorities", "nodes", "lines", "rules"):
        assert getattr(a.grid, part) == getattr(b.grid, part)
    assert a.hardware == b.hardware and not a.pins and b.pins["sites.racks"] == 23_200
