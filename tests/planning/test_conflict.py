"""What is named where no plan exists, and which limit one more block of racks would meet."""

import re
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from each_case import each
from joint_brute_force import toy
from site_grids import random_case
from stored_plans import stored
from tiers import more, slow
from worked_plan import LAYOUT, instance_with

import planner
from planner.checks import conflict as checked_conflict
from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving
from planner.models.joint.shapes import site_choice
from planner.models.joint.solve_joint import solve_joint, solve_joint_cost
from planner.models.sites.split_model import conflict
from planner.physics.network.fabric_cost import min_fabric
from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST, RESTATED
from planner.plan.plan import Plan
from planner.planning import conflict as conflicts
from planner.planning import solve
from planner.planning.load import load_instance
from planner.planning.solve import solve_instance
from planner.report.summary import summary
from planner.solvers.search_deadline import Deadline
from planner.units import money


def cluster(**limits: Any) -> Instance:
    i = load_instance("instances/cluster-1k.json")
    return i.replaced(limits=i.limits.replaced(**limits))


def solved(i: Instance) -> Plan:
    """Solve without a limit; the plan is checked on its way out."""
    return solve_instance(i, Options(), lambda _: None)


def rules(plan: Plan) -> tuple[str, ...]:
    return () if plan.conflict is None else plan.conflict.rules


@pytest.mark.parametrize("how", [{}, {"sites": 2, "forced": True}])
def test_memory_that_holds_no_layer_is_named(how: dict[str, Any]) -> None:
    """Where the reserve leaves a GPU nothing, memory alone is in conflict, whatever the other limits and pins are."""
    i = toy(5, **how).replaced(limits__memory_reserve_fraction=0.9999999)
    plan, found = solved(i), solve_joint(i, Solving())
    assert (plan.status, rules(plan)) == ("infeasible", ("memory",))
    assert found.status == "infeasible" and set(found.counts) <= {"strategies", "pipelines", "sites MILPs"}  # no search
    if how:  # once will do, as it takes seconds
        return
    small = toy(5, **how).replaced(hardware__accelerator__hbm_bytes=1.0, limits__memory_reserve_fraction=0.0)
    plan = solved(small)
    size, unit = re.findall(r"needs a GPU of (\S+) (MB|GB) or more, .* more than it has", plan.conflict.reason)[0]
    least = float(size) * {"MB": 1e6, "GB": 1e9}[unit]
    assert rules(plan) == ("memory",) and least > 1e3
    assert rules(solved(small.replaced(hardware__accelerator__hbm_bytes=least / 1.01))) == ("memory",)


@pytest.mark.slow
@pytest.mark.parametrize("headroom_mw", [0.1, 0.15])
def test_sites_of_few_nodes_have_an_answer(headroom_mw: float) -> None:
    """Five nodes at each of two sites do not hold the model, as sites share no state; of eight some draw too much."""
    i = load_instance("two-sites-405b")
    areas = tuple(a.replaced(headroom_mw=headroom_mw) for a in i.grid.balancing_authorities)
    i = i.replaced(grid__balancing_authorities=areas)
    i = i.replaced(pins={"layout.context_parallel": 1, "layout.virtual_stages": 1})
    plan = solve_instance(i, Options(gap=0.9), lambda _: None)
    assert not plan.violations
    if headroom_mw > 0.1:
        assert plan.sites is not None and sum(x.racks for x in plan.sites.sites) > 5
    else:
        assert (plan.status, rules(plan)) == ("infeasible", ("memory",))
        assert "no site has room for more than 5 racks of 8 GPUs" in (plan.conflict.reason if plan.conflict else "")


@pytest.mark.slow
def test_replicas_beyond_racks_and_batch_are_refused_in_seconds() -> None:
    i, began = planner.changed("cluster-1k", {"hardware.racks": 16}), time.process_time()
    plan = solved(i.replaced(pins={**i.pins, "layout.data_parallel": 100_000}))
    assert plan.status == "infeasible" and rules(plan)[0] == "pins.layout.data_parallel"
    assert rules(plan)[1:] in (("hardware.racks",), ("limits.max_batch_tokens",))
    assert "100000" in plan.conflict.reason and "16 racks" in plan.conflict.reason
    assert time.process_time() - began < 20


NO_SWITCH = r"leaves none of network.switches; they are 25.6T-64x400G with 64 ports"


@each(("pins", "reason"), [
    ({"placement.stripes": 999}, "the model has 80 layers; pin 1 to 80"),
    ({"placement.stripes": 9, "layout.pipeline_parallel": 8}, "pins.layout gives 8 stages; pin 1 to 8"),
    ({"fabric.ports_per_switch": 7}, NO_SWITCH),
    ({"fabric.planes": 9}, NO_SWITCH),
])  # fmt: skip
def test_pins_that_nothing_can_have_are_refused(pins: dict[str, int], reason: str) -> None:
    i = cluster()
    with pytest.raises(InputError, match=reason):
        solved(i.replaced(pins={**i.pins, **pins}))


def test_switches_slower_than_the_nic_are_refused() -> None:
    """Without a fabric for any column the search had no answer in minutes; more lanes make one possible."""
    i = cluster()
    slow = i.network.switches[0].replaced(port_gbps=100, name="slow")  # type: ignore[union-attr]
    network = i.network.replaced(switches=(slow,))
    with pytest.raises(InputError, match=r"network.switches.*NIC of 400 Gbps.*max_lanes = 1 \(slow: 100 Gbps\)"):
        solved(i.replaced(network=network))
    laned = i.replaced(network=network.replaced(max_lanes=4))
    assert solve_joint(laned, Solving(deadline=Deadline(0.01))).status == "unknown"


def test_the_pins_with_which_a_deadline_is_missed_are_named() -> None:
    """They miss it without the other pins, and none of them can be left out."""
    free = toy(6).replaced(pins={})
    late = free.replaced(limits__deadline_days=(solved(free).objective.value or 0.0) * 1.001)
    pins = {"layout.tensor_parallel": 1, "layout.zero_stage": 3}
    named = [path.removeprefix("pins.") for path in rules(solved(late.replaced(pins=pins))) if path.startswith("pins.")]
    assert named and solved(late.replaced(pins={path: pins[path] for path in named})).status == "infeasible"
    for left_out in named:
        others = {path: pins[path] for path in named if path != left_out}
        assert solved(late.replaced(pins=others)).status == "optimal"


def test_a_deadline_below_every_bound_takes_no_search() -> None:
    i = toy(6)
    free = solve_joint(i, Solving())
    assert free.days is not None
    late = i.replaced(limits__deadline_days=free.days / 1e6)
    found = solve_joint(late, Solving())
    assert found.status == "infeasible" and "ranges nodes" not in found.counts
    assert found.lower_bound is not None and free.days / 1e6 < found.lower_bound <= free.days
    for goal in ("days_to_train", "cost_usd"):  # with the fewest days, as they are proven without the deadline
        plan = solved(late.replaced(objective__minimize=goal))
        assert plan.status == "infeasible" and rules(plan)[0] == "limits.deadline_days"
        bound, named = (float(x) for x in re.findall(r"less than (\S+) days .*; (\S+) days", plan.conflict.reason)[0])
        met = solved(i.replaced(limits__deadline_days=named))
        assert met.objective.value == pytest.approx(free.days) and free.days <= named <= free.days * 1.001
        assert bound == pytest.approx(free.days)


@pytest.mark.parametrize("seed", [7, *slow(2), *more(9)])
def test_a_budget_is_named_beside_a_deadline_only_where_more_money_would_be_in_time(seed: int) -> None:
    """Days that no money buys are the deadline's alone; days that the budget forbids name both."""
    i = toy(seed, sites=2).replaced(limits__budget_usd=None)
    rich = solve_joint(i, Solving())
    assert rich.plan is not None and rich.days is not None
    less = i.replaced(limits__budget_usd=rich.plan.capital_usd * 0.95)
    poor = solve_joint(less, Solving()).days
    assert poor is not None and poor > rich.days * 1.01
    both, alone = (less.replaced(limits__deadline_days=x) for x in ((rich.days + poor) / 2, rich.days * 0.999))
    for late, named in ((both, ("limits.deadline_days", "limits.budget_usd")), (alone, ("limits.deadline_days",))):
        plan = solved(late)
        assert plan.status == "infeasible" and rules(plan) == named
        assert not planner.check(plan)
        amounts = re.findall(r"costs \$[\d.]+[KMB]?, and none less", plan.conflict.reason)
        assert len(amounts) == (late is both), plan.conflict.reason
        # The days are those of the budget, which is said; other limits that they hold for are named.
        assert plan.conflict.reason.startswith(
            f"no plan within the budget of {money(less.limits.budget_usd)} trains in "
        )
        assert ("no budget meets that deadline" in plan.conflict.reason) == (late is alone)
        assert "(with limits.max_batch_tokens" in plan.conflict.reason


@each(("left", "fewer"), [(0.5, "it pays no rack"), (1.5, "1 rack or fewer may do")])
def test_a_budget_below_the_price_of_the_racks_takes_no_search_for_rules(left, fewer, monkeypatch) -> None:
    """It is named with the least that any plan costs, and with what one costs; at their price rules are searched."""
    i = toy(6).replaced(hardware__racks=2)
    price, fabric = i.hardware.rack.price_usd, min_fabric(i.network).usd
    least = 2 * price + fabric
    asked: list[float | None] = []

    def searched(question: Instance, *_: Any) -> Any:
        asked.append(question.limits.budget_usd)
        return SimpleNamespace(plan="any", days=1.0, status="infeasible")

    def cheapest(question: Instance, how: Solving, *_: Any, **__: Any) -> Any:
        assert question.limits.budget_usd is None and (how.options.gap, how.deadline.seconds) == (0.05, 10.0)
        return SimpleNamespace(plan="cheap", usd=9e9, lower_bound=8e9)

    monkeypatch.setattr(conflicts, "plan_in_time", searched)
    monkeypatch.setattr(conflicts, "solve_joint_cost", cheapest)
    why = conflicts.conflict_of(i.replaced(limits__budget_usd=left * price), Options())
    assert (why.rules, asked) == (("limits.budget_usd",), [])
    assert f"cost at least {money(least)} ({money(price)} a rack; {fewer})" in why.reason
    assert why.reason.endswith("; a plan that keeps the rest costs $9.00B, and none less than $8.00B")
    between = conflicts.conflict_of(i.replaced(limits__budget_usd=2 * price), Options())  # the racks, and no fabric
    assert asked == [] and "; 1 rack or fewer may do" in between.reason and f"at least {money(least)}" in between.reason
    free = conflicts.conflict_of(i.replaced(hardware__rack__price_usd=0.0, limits__budget_usd=1.0), Options())
    assert f"its 2 racks with the least fabric cost at least {money(fabric)} ($0 a rack)" in free.reason
    conflicts.conflict_of(i.replaced(limits__budget_usd=least), Options())
    assert len(asked) > 2


@pytest.mark.parametrize("sites", [0, *slow(2)])
def test_a_goal_in_money_names_the_deadline_and_each_rule_that_would_do(sites: int) -> None:
    """Racks that are relaxed are paid no more than before, and a plan that is late meets no deadline."""
    days = 0.0334799
    asked = toy(9, sites=sites).replaced(objective__minimize="cost_usd", limits__deadline_days=days)
    usd = 0.985 * planner.solve(asked.replaced(limits__budget_usd=None)).cost.total_usd
    tight = asked.replaced(limits__budget_usd=usd)
    rules = {"limits.max_batch_tokens": 64 * asked.limits.max_batch_tokens}
    rules |= {"limits.budget_usd": usd / 0.98, "limits.deadline_days": 10 * days}
    assert planner.solve(tight).conflict.rules == tuple(rules)
    for rule, value in rules.items():
        assert planner.solve(tight.replaced(**{rule.replace(".", "__"): value})).status == "optimal"


@pytest.mark.slow
def test_no_plan_costs_less_than_the_least_that_a_refusal_names() -> None:
    i = toy(6).replaced(limits__budget_usd=1.0)
    plan = solved(i)
    figures = r"at least \$([\d.]+)K .* keeps the rest costs \$([\d.]+)K, and none less than \$([\d.]+)K"
    least, enough, bound = (1e3 * float(x) for x in re.findall(figures, plan.conflict.reason)[0])
    cheapest = solve_joint_cost(i.replaced(limits__budget_usd=None), Solving()).usd
    assert plan.status == "infeasible" and not check(plan)
    assert 0.9 * cheapest < least <= cheapest <= enough * 1.01 < 1.1 * cheapest
    assert 0.94 * cheapest < bound <= cheapest * 1.001


@pytest.mark.parametrize(("name", "pins", "seconds"), [
    *slow(("cluster-1k", {"fabric.leaf_domain_racks": 64}, 15)),
    *more(("cluster-1k", {"fabric.leaf_up_ports": 60}, 15)),
    ("two-sites-405b", {"fabric.leaf_up_ports": 600}, 30),
])  # fmt: skip
def test_a_leaf_that_joins_nothing_is_proven_in_seconds(name: str, pins: dict[str, int], seconds: float) -> None:
    """Switches of 64 ports keep none for an uplink, or not 60 of them for 32 racks: no column is timed to prove it."""
    i, began = load_instance(name), time.process_time()
    plan = solved(i.replaced(pins={**i.pins, **pins}))
    assert plan.status == "infeasible" and set(pins) <= {r.removeprefix("pins.") for r in rules(plan)}
    assert i.grid is None or rules(plan) == ("pins.fabric.leaf_up_ports",)
    assert time.process_time() - began < seconds


@pytest.mark.slow
def test_the_tiers_are_named_where_they_leave_no_plan() -> None:
    """A pinned leaf of 32 racks joins no 128 in one tier: either of the two may be left out."""
    plan = planner.solve(planner.changed("cluster-1k", {"network.max_tiers": 1}))
    assert rules(plan) == ("pins.fabric.leaf_domain_racks", "network.max_tiers") and not check(plan)


def test_a_grid_that_balances_in_no_way_is_no_conflict_of_rules() -> None:
    """Feed that no load takes leaves no split under any rules; the reason says so."""
    i = toy(6, sites=2)
    feed = i.grid.nodes[0].replaced(id="feed", site=False, load_mw=-1.0)
    plan = solved(i.replaced(grid__nodes=(*i.grid.nodes, feed), grid__rules__grid_model="transport"))
    assert (plan.status, rules(plan)) == ("infeasible", ()) and "balance in no way" in summary(plan)


def test_every_rule_in_conflict_is_known_to_the_checker() -> None:
    """Each limit, pin and rule that may be named is one of the instance's by the checker."""
    i = toy(0, sites=2).replaced(limits__facility_power_mw=5.0, limits__deadline_days=1.0)
    data = i.model_dump(mode="json", exclude_none=True)
    data["network"] |= {"max_oversubscription": 1, "survives": "one_spine"}
    data["wan"]["protection"] = "one_cut"
    data["pins"] |= {"fabric.tiers": 2, "placement.stripes": 1, "wan.wavelengths": 1}
    names = [*conflicts._rules(Instance.model_validate(data)), "hardware.racks"]
    assert set(names[:-1]) <= checked_conflict.rules_of(Instance.model_validate(data)) and len(names) > 10


ROOT = Path(__file__).parents[2]


def test_a_shipped_conflict_is_confirmed() -> None:
    """The campus at one site says why not, twice; a mark that no such conflict has is refused, one of old is known."""
    plan = stored(ROOT / "instances" / "5gw-one-site.json")
    assert plan.status == "infeasible"
    assert plan.conflict.checked == CONFIRMED and check(plan) == []
    assert check(plan.replaced(conflict__checked=RESTATED)) == []
    assert {v.rule for v in check(plan.replaced(conflict__checked="recomputed"))} == {"known_rules"}


@cache
def conflict_of(seed: int, solver: str | None) -> Any:
    return conflict(*random_case(seed), Options(solver=solver))


@pytest.mark.parametrize("solver", ["highs", "cpsat"])
def test_a_conflict_is_that_of_either_solver(solver: str) -> None:
    """CP-SAT alone names the same rules; what HiGHS alone says is confirmed in fractions where no row is whole."""
    marks = set()
    for seed in (3, 13, 20, 29, 53, 59, 108):
        usual, other = (conflict_of(seed, x) for x in (None, solver))
        assert (usual is None) == (other is None)
        if usual is not None and other is not None:
            assert usual.rules == other.rules and usual.checked == CONFIRMED
            marks.add(other.checked)
    assert marks <= ({CONFIRMED} if solver == "cpsat" else {BOUNDED, ON_TRUST}) and marks


RACK, SITE, CABLED = 10.0, 1000.0, 1.0  # dollars of a rack, of a site, and of the fabric of a rack for each rail
BLOCK = SimpleNamespace(racks=2, rails=4)
CAPITAL = 50.0
SOLVING = Solving(options=Options(), deadline=Deadline(), progress=print, cache=JointCache())


def ended(
    left: float, *, spare_racks: int = 0, most_racks: float = 100.0, stopped: str = "proved", **changes: Any
) -> str | None:
    """Return the limit of a plan of three blocks and some racks beside them, with so many dollars left."""

    def sites(**_: Any) -> Any:
        return SimpleNamespace(
            floor_usd=lambda racks, sites: RACK * racks + SITE * sites,
            min_fabric_usd=lambda rails: CABLED * rails,
            max_racks=lambda _: most_racks,
            max_open=2,
        )

    placed, column = SimpleNamespace(racks={"e1": 3 * BLOCK.racks + spare_racks}), SimpleNamespace(block=BLOCK)
    plan = SimpleNamespace(column=column, blocks_by_site={"e1": 2, "w1": 1}, capital_usd=CAPITAL, placed=placed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(site_choice, "Sites", sites)
        asked = instance_with(limits__budget_usd=CAPITAL + left, **changes)
        return solve.limited_by(asked, SimpleNamespace(plan=plan, stopped=stopped), SOLVING)


@each(("racks", "end"), [(0, "layout"), (1, "fabric"), (99, "owned_racks")])
def test_a_lone_tier_of_switches_ends_a_plan_where_it_joins_no_further_block(racks: int, end: str) -> None:
    """64 ports join 16 racks by 4 GPUs of each; of a cluster without that many racks these end the plan."""
    i = planner.changed("cluster-1k", {"network.max_tiers": 1, "hardware.racks": 40}).replaced(pins={})
    plan = SimpleNamespace(column=SimpleNamespace(block=BLOCK), blocks_by_site={"cluster": 7 + racks})
    assert solve.limited_by(i, SimpleNamespace(plan=plan, stopped="proved"), SOLVING) == end


@pytest.mark.slow
@pytest.mark.parametrize(("tiers", "racks", "pins", "text"), [
    (1, 16, {}, "(network.max_tiers is 1) joins at most 8 racks, no room for"),
    (2, 700, {"fabric.leaf_domain_racks": 32}, "(network.max_tiers is 2, the leaf as pinned) join at most 256 racks"),
])  # fmt: skip
def test_racks_that_few_tiers_leave_idle_are_their_own(tiers: int, racks: int, pins: dict[str, int], text: str) -> None:
    """The plan is proven and says so, not that no fabric were faster, and the checker takes no other limit for it."""
    i = planner.changed("cluster-1k", {"network.max_tiers": tiers, "hardware.racks": racks})
    plan = planner.solve(i.replaced(pins=pins))
    assert (plan.status, plan.objective.limited_by, check(plan)) == ("optimal", "fabric", [])
    assert text in summary(plan, 200) and "no fabric is" not in summary(plan, 200)
    layout = plan.replaced(objective__limited_by="layout")
    assert {v.rule for v in check(layout)} == {"limited_by"}


def test_the_budget_ends_a_plan_where_the_rest_does_not_buy_a_block() -> None:
    """Two racks and their fabric cost 28 dollars, at a site that is there; what is idle already is not bought again."""
    assert [ended(left) for left in (27.0, 28.0)] == ["budget", "layout"]
    assert [ended(left, spare_racks=1) for left in (17.0, 18.0)] == ["budget", "layout"]
    assert [ended(left, spare_racks=9) for left in (7.0, 8.0)] == ["budget", "layout"]


def test_the_grid_ends_a_plan_where_no_money_makes_room() -> None:
    """Eight racks are wanted: where the sites have seven at any price it is the grid; of an end by time nothing."""
    assert [ended(1e9, most_racks=most) for most in (7.0, 8.0)] == ["grid", "layout"]
    assert ended(0.0, stopped="limit") is None
    leaf = {"fabric.leaf_domain_racks": 3}
    for most in (7.0, 100.0):  # modules of more racks than are joined leave room in them
        assert ended(1e9, most_racks=most, network__max_tiers=1, pins=leaf) == "fabric"


@pytest.mark.slow
def test_one_more_block_breaks_the_budget() -> None:
    """What is left buys no further block of replicas: its racks, their buildings grid connection and least fabric."""
    asked = instance_with(pins=LAYOUT)
    plan, prices, rack = stored(asked), asked.grid.prices, asked.hardware.rack
    left, racks = asked.limits.budget_usd - plan.cost.total_usd, plan.placement.block_racks
    it_mw = racks * rack.it_kw / 1e3
    site_usd = racks * rack.price_usd + it_mw * prices.building_usd_per_it_mw
    site_usd += it_mw * asked.hardware.facility_overhead_factor * prices.interconnection_usd_per_mw
    cabled = racks * plan.fabric.sites["e1"].wired_gpus_per_rack
    assert plan.objective.limited_by == "budget"
    assert 0 <= left < site_usd + cabled * min_fabric(asked.network).usd


def test_a_limit_leaves_the_rules_undetermined() -> None:
    """Without time to judge them no rule is said to be needed: those that remain are named as candidates."""
    i = toy(5).replaced(limits__memory_reserve_fraction=0.9999)
    why = conflicts.conflict_of(i, Options(time_limit=0.0))
    assert why.rules == () and "not determined (the time limit came first); they are among" in why.reason
    assert "memory" in why.reason.partition("among")[2]
