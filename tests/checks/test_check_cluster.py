"""The replay of a job's placement: each false statement breaks the rule about it."""

from typing import Any

from each_case import each

import planner
from planner.checks.placement import check_placement
from planner.cluster import Job, Placement, Topology, TopologyBlock, TopologySwitch

NODES = tuple(f"n{i}" for i in range(12))
TOPOLOGY = Topology(
    switches=(
        TopologySwitch(name="root"),
        *(TopologySwitch(name=f"pod{p}", parent="root") for p in range(2)),
        *(TopologySwitch(name=f"leaf{i}", parent=f"pod{i // 2}", nodes=NODES[3 * i : 3 * i + 3]) for i in range(4)),
    ),
    blocks=tuple(TopologyBlock(name=f"b{i}", nodes=NODES[i : i + 1]) for i in range(12)),
)
JOB = Job(name="j", mesh={"pipeline": 2, "data": 3})
BUSY = ["n0", "n6"]


def placed() -> Placement:
    return planner.place(TOPOLOGY, JOB, busy=BUSY)


def rules(p: Placement, job: Job = JOB) -> set[str]:
    return {v.rule for v in check_placement(TOPOLOGY, job, p, busy=BUSY)}


def test_a_good_placement_breaks_nothing() -> None:
    """Two groups of three on the two leaves that are wholly free."""
    p = placed()
    assert (p.groups_split, rules(p)) == (0, set())


@each(("key", "change", "rule"), [
    ("nodes", lambda n: ("n99", *n[1:]), "known_nodes"),
    ("nodes", lambda n: ("n0", *n[1:]), "free_nodes"),
    ("nodes", lambda n: (n[1], *n[1:]), "one_rank_per_node"),
    ("nodes", lambda n: n[:-1], "job_size"),
    ("nodes", lambda n: (n[1], n[0], *n[2:]), "ranks_of_groups"),
    ("groups", lambda g: g[:1], "job_size"),
    ("groups", lambda g: (g[0].replaced(leaves=("leaf0",)), g[1]), "leaves_of_groups"),
    ("groups_split", lambda n: n + 1, "figures"),
    ("extra_pieces", lambda n: n + 1, "figures"),
    ("groups_cross_pod", lambda n: n + 1, "figures"),
    ("lower_bound_split", lambda n: n + 1, "lower_bound"),
    ("figures", lambda f: (*f[:3], f[3].replaced(value=0, bound=0, analytic_bound=0), f[4]), "figures"),
    ("figures", lambda f: (f[0].replaced(bound=1), *f[1:]), "bounds"),
    ("figures", lambda f: (f[0], f[1].replaced(value=1), *f[2:]), "certificate"),
    ("certificate", lambda c: c.replaced(status="feasible"), "certificate"),
    ("nodes", lambda n: n[:0], "refusal"),
])  # fmt: skip
def test_a_false_statement_names_its_rule(key: str, change: Any, rule: str) -> None:
    p = placed()
    assert rule in rules(p.replaced(**{key: change(getattr(p, key))}))


def test_a_bound_below_the_closed_form() -> None:
    """Three groups of three with two nodes busy: one must split, whoever says less."""
    job = Job(name="j", mesh={"pipeline": 3, "data": 3})
    p = planner.place(TOPOLOGY, job, busy=BUSY)
    assert (p.groups_split, p.lower_bound_split, rules(p, job)) == (1, 1, set())
    assert "lower_bound" in rules(p.replaced(lower_bound_split=0), job)


def test_segments_across_blocks() -> None:
    assert "segments" in rules(placed(), JOB.replaced(segment_nodes=3))
