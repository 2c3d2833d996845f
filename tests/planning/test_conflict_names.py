"""What is named where no plan exists: memory without a search, deadlines by first bounds, pins that ask too much."""

import itertools
import time
from typing import Any

import pytest
from joint_brute_force import toy
from tiers import slow

import planner
from planner.checks import check_plan
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models.joint.solution import JointStatus
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options
from planner.plan.plan import Plan
from planner.planning import conflict
from planner.planning.load import load_instance
from planner.planning.solve import solve_instance


def limited(i: Instance, **limits: Any) -> Instance:
    return i.model_copy(update={"limits": i.limits.model_copy(update=limits)})


def cluster(**limits: Any) -> Instance:
    return limited(load_instance("instances/cluster-1k.json"), **limits)


def solved(i: Instance) -> Plan:
    """Solve without a limit; the plan is checked on its way out."""
    return solve_instance(i, Options(), lambda _: None)


def rules(plan: Plan) -> tuple[str, ...]:
    return () if plan.conflict is None else plan.conflict.rules


@pytest.mark.parametrize("how", [{}, {"sites": 2, "forced": True}])
def test_memory_that_holds_no_layer_is_named(how: dict[str, Any]) -> None:
    """Where the reserve leaves a GPU nothing, memory alone is in conflict, whatever the other limits and pins are."""
    plan = solved(limited(toy(5, **how), memory_reserve_fraction=0.9999999))
    assert (plan.status, rules(plan)) == ("infeasible", ("memory",))


@pytest.mark.slow
def test_memory_of_a_large_cluster_takes_no_search() -> None:
    """Memory is judged by the bytes of pipelines: a search, and one more over relaxed limits, took minutes."""
    i = cluster(memory_reserve_fraction=0.999)
    plan = solved(i)
    assert rules(plan) == ("memory",) and "leaves none" in (plan.conflict.reason if plan.conflict else "")
    found = solve_joint(i, Options(), lambda _: None)
    assert found.status is JointStatus.INFEASIBLE and set(found.counts) <= {"strategies", "pipelines"}


@pytest.mark.slow
def test_replicas_beyond_racks_and_batch_are_refused_in_seconds() -> None:
    i, began = cluster(), time.process_time()
    plan = solved(i.model_copy(update={"pins": {**i.pins, "layout.data_parallel": 100_000}}))
    assert plan.status == "infeasible" and rules(plan)[0] == "pins.layout.data_parallel"
    assert rules(plan)[1:] in (("hardware.racks",), ("limits.max_batch_tokens",))
    assert "100000" in plan.conflict.reason and "128 racks" in plan.conflict.reason
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        ({"placement.stripes": 999}, "the model has 80 layers; pin 1 to 80"),
        ({"placement.stripes": 9, "layout.pipeline_parallel": 8}, "pins.layout gives 8 stages; pin 1 to 8"),
    ],
)
def test_more_stripes_than_stages_are_refused(pins: dict[str, int], reason: str) -> None:
    i = cluster()
    with pytest.raises(InputError, match=reason):
        solved(i.model_copy(update={"pins": {**i.pins, **pins}}))


def test_switches_slower_than_the_nic_are_refused() -> None:
    """Without a fabric for any column the search had no answer in minutes; more lanes make one possible."""
    i = cluster()
    assert isinstance(i.network.switches[0], Switch)
    slow = i.network.switches[0].model_copy(update={"port_gbps": 100, "name": "slow"})
    network = i.network.model_copy(update={"switches": (slow,)})
    with pytest.raises(InputError, match=r"network.switches.*NIC of 400 Gbps.*max_lanes = 1 \(slow: 100 Gbps\)"):
        solved(i.model_copy(update={"network": network}))
    laned = i.model_copy(update={"network": network.model_copy(update={"max_lanes": 4})})
    assert solve_joint(laned, Options(time_limit=0.01), lambda _: None).status is JointStatus.UNKNOWN


@pytest.mark.parametrize("pins", [{"fabric.ports_per_switch": 7}, {"fabric.planes": 9}])
def test_pins_that_leave_no_switch_are_refused(pins: dict[str, int]) -> None:
    i = cluster()
    with pytest.raises(InputError, match=r"leaves none of network.switches; they are 25.6T-64x400G with 64 ports"):
        solved(i.model_copy(update={"pins": {**i.pins, **pins}}))


def test_a_deadline_below_every_bound_takes_no_search() -> None:
    i = toy(6)
    free = solve_joint(i, Options(), lambda _: None)
    assert free.days is not None
    late = limited(i, deadline_days=free.days / 1e6)
    found = solve_joint(late, Options(), lambda _: None)
    assert found.status is JointStatus.INFEASIBLE and "ranges nodes" not in found.counts
    assert found.lower_bound is not None and free.days / 1e6 < found.lower_bound <= free.days
    plan = solved(late)
    assert plan.status == "infeasible" and rules(plan)[0] == "limits.deadline_days"
    met = solved(limited(i, deadline_days=free.days * 1.001))
    assert met.objective.value == pytest.approx(free.days)


@pytest.mark.parametrize("seed", [7, *slow(2, 9)])
def test_a_budget_is_named_beside_a_deadline_only_where_more_money_would_be_in_time(seed: int) -> None:
    """Days that no money buys are the deadline's alone; days that the budget forbids name both."""
    i = limited(toy(seed, sites=2), budget_usd=None)
    rich = solve_joint(i, Options(), lambda _: None)
    assert rich.plan is not None and rich.days is not None
    less = limited(i, budget_usd=rich.plan.capital_usd * 0.95)
    poor = solve_joint(less, Options(), lambda _: None).days
    assert poor is not None and poor > rich.days * 1.01
    both, alone = limited(less, deadline_days=(rich.days + poor) / 2), limited(less, deadline_days=rich.days * 0.999)
    for late, named in ((both, ("limits.deadline_days", "limits.budget_usd")), (alone, ("limits.deadline_days",))):
        plan = solved(late)
        assert plan.status == "infeasible" and rules(plan) == named
        assert not planner.check(plan)


@pytest.mark.parametrize("pins", [{"fabric.leaf_domain_racks": 64}, {"fabric.leaf_up_ports": 60}])
def test_a_leaf_that_joins_nothing_is_proven_in_seconds(pins: dict[str, int]) -> None:
    """Switches of 64 ports keep none for an uplink, or not 60 beside 32 racks: no column is timed to prove it."""
    i, began = cluster(), time.process_time()
    plan = solved(i.model_copy(update={"pins": {**i.pins, **pins}}))
    assert plan.status == "infeasible" and set(pins) <= {r.removeprefix("pins.") for r in rules(plan)}
    assert time.process_time() - began < 15


def test_a_leaf_that_joins_nothing_is_proven_on_a_grid() -> None:
    """More uplinks than a switch has ports: no site has a fabric, which no search over columns is needed for."""
    i, began = load_instance("instances/two-sites-405b.json"), time.process_time()
    plan = solved(i.model_copy(update={"pins": {**i.pins, "fabric.leaf_up_ports": 600}}))
    assert (plan.status, rules(plan)) == ("infeasible", ("pins.fabric.leaf_up_ports",))
    assert time.process_time() - began < 30


def test_every_rule_in_conflict_is_known_to_the_checker() -> None:
    """Each limit, pin and rule that may be named is one of the instance's by the checker, about the same decision."""
    i = limited(toy(0, sites=2), facility_power_mw=5.0, deadline_days=1.0)
    data = i.model_dump(mode="json", exclude_none=True)
    data["network"] |= {"max_oversubscription": 1, "survives": "one_spine"}
    data["wan"]["protection"] = "one_cut"
    data["pins"] |= {"fabric.tiers": 2, "placement.stripes": 1, "wan.wavelengths": 1}
    names = [*conflict._relaxations(Instance.model_validate(data)), "hardware.racks"]
    assert set(names[:-1]) <= check_plan.rules_of(Instance.model_validate(data)) and len(names) > 10
    for some in itertools.chain(itertools.combinations(names, 1), itertools.combinations(names, 2)):
        assert conflict._decision(list(some)) == check_plan._decision(some), some
