"""Rules of a plan's and of a job's placement, and what sends and rings share against the formula of the search."""

from functools import cache
from typing import Any

import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_plans import stored
from worked_plan import ASSIGNMENT, edited, edited_at, instance_with, named, rules, small, worked

import planner
from planner.checks.fabric_traffic import links_and_flows, sends_that_meet
from planner.checks.placement import check_placement
from planner.cluster.job import Job
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology, TopologyBlock, TopologySwitch
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.locality import locality
from planner.physics.network.uplink_slowdowns import uplink_loads
from planner.physics.plan_physics import PlanPhysics

PLAN = small()
FIGURES = [("groups", 3), ("groups_leaf_local", 3), ("groups_split", 1), ("extra_pieces", 1), ("groups_cross_pod", 1)]


@each(("path", "change", "rule"), [
    ("placement.sites.e1.assignment.0.racks", "r[0-1]", "group_size[e1]"),
    ("placement.sites.e1.assignment.0.racks", "r[0-3]", "group_size[e1]"),
    ("placement.sites.e1.assignment.0.racks", "r[0-1,4]", "one_stage_per_rack[e1]"),
    ("placement.sites.e1.assignment.0.racks", "r[0-1,1]", "one_stage_per_rack[e1]"),
    ("placement.sites.e1.assignment.0.racks", "r[0-1,7]", "leaf_domain[e1]"),
    ("placement.sites.e1.assignment.1.racks", "r[5-7]", None),
    ("placement.sites.e1.assignment.1.racks", "r[6-8]", "known_racks[e1]"),
    ("placement.sites.e1.assignment.1.racks", "r[0-99999999999]", "known_racks[e1]"),
    ("placement.sites.e1.assignment.1.racks", "nodes[4-6]", "known_racks[e1]"),
    ("placement.sites.e1.assignment.1.racks", "", "group_size[e1]"),
    ("placement.sites.e1.assignment.1.leaf_domain", 0, "leaf_domain[e1]"),
    ("placement.sites.e1.assignment.1.stage", 0, "group_size[e1]"),
    ("placement.sites.e1.assignment.1.stage", 2, "known_racks[e1]"),
    ("placement.sites.e1.assignment", lambda x: [*x, x[0]], "one_stage_per_rack[e1]"),
    *((f"placement.{name}", n, "figures") for name, n in FIGURES), ("placement.lower_bound_split", 1, "lower_bound"),
])  # fmt: skip
def test_an_edit_names_its_rule(path: str, change: Any, rule: str | None) -> None:
    """Each edited entry breaks the rule about it; other racks of the same leaf domain do as well as the first ones."""
    found = named(edited_at(PLAN, path, change))
    assert found == set() if rule is None else rule in found


def test_every_site_is_placed() -> None:
    held = PLAN.model_dump(mode="json")["placement"]["sites"]
    assert "every_site[w1]" in named(edited(PLAN, placement__sites={"e1": held["e1"]}))
    assert "every_site[e2]" in named(edited(PLAN, placement__sites={**held, "e2": held["e1"]}))


def test_a_split_group_is_counted_as_one() -> None:
    """A group on two leaf domains is split, a piece more, and still within a pod of two."""
    split = {**ASSIGNMENT, "e1": [(0, 0, "r[0-1]"), (0, 1, "r7"), (1, 1, "r[4-6]")]}
    plan = worked(instance_with(), assignment=split)
    assert (plan.placement.groups_split, plan.placement.extra_pieces, plan.placement.groups_cross_pod) == (1, 1, 0)
    assert rules(plan) == set()
    assert rules(edited(plan, placement__groups_split=0, placement__groups_leaf_local=4)) == {"figures"}
    assert worked(instance_with(), assignment=split, domains_per_pod=1).placement.groups_cross_pod == 1


def test_a_bound_that_no_placement_meets() -> None:
    """Leaf domains of two racks cannot hold groups of three: both groups of e1 must split."""
    pieces = {"e1": [(0, 0, "r[0-1]"), (0, 1, "r2"), (1, 1, "r3"), (1, 2, "r[4-5]")]}
    pieces |= {"w1": [(0, 0, "r[0-1]"), (1, 1, "r[2-3]")]}
    plan = worked(instance_with(), assignment=pieces, leaf_down=2, leaf_up=1, domains_per_pod=4, leaf_bundle=1)
    assert rules(plan) == {"lower_bound"}
    assert "lower_bound" not in rules(edited(plan, placement__lower_bound_split=2))


@st.composite
def placed(draw: st.DrawFn) -> tuple[Design, list[list[int]], bool]:
    """Draw a dragonfly, or a tree of two to four tiers, that can be wired, and stages on its racks in any order."""
    tiers, rails, split = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 2]))
    racks, domain = draw(st.integers(4, 24)), draw(st.integers(1, 4 if tiers > 1 else 3))
    own: dict[str, Any] = {"ports": 4096, "rails": rails, "racks": racks, "leaf_down": domain, "split": split}
    own |= {"leaf_up": 2 * draw(st.integers(1, 3)), "leaf_bundle": draw(st.sampled_from([1, 2]))}
    own |= {"rails_per_pod": rails, "domains_per_pod": draw(st.integers(1, 3)) if tiers != 2 else 24}
    own |= {"lanes": draw(st.integers(1, 2)), "nic_gbps": 400.0, "link_gbps": draw(st.sampled_from([400.0, 1000.0]))}
    if tiers > 2:
        own |= {"spine_up": draw(st.integers(1, 4)), "spine_bundle": 1}
    if tiers > 3:
        own |= {"core_up": draw(st.integers(1, 3)), "core_bundle": 1, "rails_per_zone": rails}
        own |= {"domains_per_zone": own["domains_per_pod"] * draw(st.integers(1, 2))}
    order, stages = draw(st.permutations(range(racks))), draw(st.integers(1, 4))
    size = racks // stages
    if tiers == 1:
        own |= {"leaf_up": 0, "group_links": 2 * (-(-racks // domain) > own["domains_per_pod"])}
    kind = Design if tiers > 1 else Dragonfly
    return kind.of(**own), [list(order[i * size : (i + 1) * size]) for i in range(stages)], draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(placed())
def test_loads_of_cables_and_racks_are_those_of_the_formula(x: tuple[Design, list[list[int]], bool]) -> None:
    """Flows out of the fullest block over the cables that leave it are shares times oversubscriptions."""
    d, stages, wrap = x
    assert d.faults() == []
    where = locality(stages, d.block_racks, wrap=wrap)
    loads = uplink_loads(d, where.share_leaving, where.allreduces_leaving)
    for level, links, flows, groups in links_and_flows(d, stages, wrap=wrap):
        assert (flows / links, groups / links) == pytest.approx(loads[level])


@each(("change", "met"), [
    ({}, 3), ({"virtual_stages": 1}, 1), ({"virtual_stages": 1, "schedule": "zb-h1"}, 0), ({"stages_per_rack": 2}, 0),
    ({"racks_per_stage_by_site": {"e1": 1, "w1": 1}}, 0), ({"zero_stage": 3}, 2 * 3),
    ({"zero_stage": 3, "virtual_stages": 1}, 2 * 1 + 2 * 4),
])  # fmt: skip
def test_sends_are_counted_from_the_order_of_passes(change: dict[str, Any], met: int) -> None:
    """On two stages of two chunks three sends go back; four micro-batches of ZeRO-3 meet rings at all that show."""
    layout = small().layout.replaced(**change)
    assert sends_that_meet(PlanPhysics(plan=small()), layout) == met


def test_plans_in_which_nothing_meets_say_nothing_of_it() -> None:
    layout = stored("instances/one-rack.json").layout
    assert layout.metrics.sends_beside_rings == 0 and "ring_wait" not in layout.metrics.breakdown_seconds


NODES = tuple(f"n{i}" for i in range(12))
LEAVES = (TopologySwitch(name=f"leaf{i}", parent=f"pod{i // 2}", nodes=NODES[3 * i : 3 * i + 3]) for i in range(4))
PODS = (TopologySwitch(name=f"pod{p}", parent="root") for p in range(2))
BLOCKS = tuple(TopologyBlock(name=f"b{i}", nodes=NODES[i : i + 1]) for i in range(12))
TOPOLOGY = Topology(switches=(TopologySwitch(name="root"), *PODS, *LEAVES), blocks=BLOCKS)
JOB = Job(name="j", mesh={"pipeline": 2, "data": 3})
BUSY = ["n0", "n6"]


@cache
def placed_job() -> Placement:
    return planner.place(TOPOLOGY, JOB, busy=BUSY)


def broken(p: Placement, job: Job = JOB) -> set[str]:
    return {v.rule for v in check_placement(TOPOLOGY, job, p, busy=BUSY)}


def test_jobs_are_replayed_on_their_cluster() -> None:
    """Two groups of three take the two leaves that are free; of three one must split, whoever says less."""
    assert (placed_job().groups_split, broken(placed_job())) == (0, set())
    assert "segments" in broken(placed_job(), JOB.replaced(segment_nodes=3))  # across blocks
    job = Job(name="j", mesh={"pipeline": 3, "data": 3})
    p = planner.place(TOPOLOGY, job, busy=BUSY)
    assert (p.groups_split, p.lower_bound_split, broken(p, job)) == (1, 1, set())
    assert "lower_bound" in broken(p.replaced(lower_bound_split=0), job)


@each(("key", "change", "rule"), [
    ("nodes", lambda n: ("n99", *n[1:]), "known_nodes"), ("nodes", lambda n: ("n0", *n[1:]), "free_nodes"),
    ("nodes", lambda n: (n[1], *n[1:]), "one_rank_per_node"), ("nodes", lambda n: n[:-1], "job_size"),
    ("nodes", lambda n: (n[1], n[0], *n[2:]), "ranks_of_groups"), ("nodes", lambda n: n[:0], "refusal"),
    ("groups", lambda g: g[:1], "job_size"),
    ("groups", lambda g: (g[0].replaced(leaves=("leaf0",)), g[1]), "leaves_of_groups"),
    *((name, lambda n: n + 1, "figures") for name in ("groups_split", "extra_pieces", "groups_cross_pod")),
    ("lower_bound_split", lambda n: n + 1, "lower_bound"),
    ("figures", lambda f: (*f[:3], f[3].replaced(value=0, bound=0, analytic_bound=0), f[4]), "figures"),
    ("figures", lambda f: (f[0].replaced(bound=1), *f[1:]), "bounds"),
    ("figures", lambda f: (f[0], f[1].replaced(value=1), *f[2:]), "certificate"),
    ("certificate", lambda c: c.replaced(status="feasible"), "certificate"),
])  # fmt: skip
def test_a_false_statement_of_a_job_names_its_rule(key: str, change: Any, rule: str) -> None:
    assert rule in broken(placed_job().replaced(**{key: change(getattr(placed_job(), key))}))
