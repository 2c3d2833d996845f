"""Rules of the placement, on both sides of their edges."""

from typing import Any

import pytest
from worked_plan import ASSIGNMENT, edited, edited_at, instance_with, named, rules, small, worked

PLAN = small()


@pytest.mark.parametrize(
    ("path", "change", "rule"),
    [
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
        ("placement.groups", 3, "figures"),
        ("placement.groups_leaf_local", 3, "figures"),
        ("placement.groups_split", 1, "figures"),
        ("placement.extra_pieces", 1, "figures"),
        ("placement.groups_cross_pod", 1, "figures"),
        ("placement.lower_bound_split", 1, "lower_bound"),
    ],
)
def test_an_edit_names_its_rule(path: str, change: Any, rule: str | None) -> None:
    """Each edited entry breaks the rule about it; other racks of the same leaf domain do as well as the first ones."""
    found = named(edited_at(PLAN, path, change))
    assert found == set() if rule is None else rule in found


def test_every_site_is_placed() -> None:
    held = PLAN.model_dump(mode="json")["placement"]["sites"]
    assert "every_site[w1]" in named(edited(PLAN, placement__sites={"e1": held["e1"]}))
    assert "every_site[e2]" in named(edited(PLAN, placement__sites={**held, "e2": held["e1"]}))


def test_a_split_group_is_counted_as_one() -> None:
    """A group on two leaf domains is split, a piece more, and still within a pod of two.

    Its certificate then is not tight.
    """
    split = {**ASSIGNMENT, "e1": [(0, 0, "r[0-1]"), (0, 1, "r7"), (1, 1, "r[4-6]")]}
    plan = worked(instance_with(), assignment=split)
    assert (plan.placement.groups_split, plan.placement.extra_pieces, plan.placement.groups_cross_pod) == (1, 1, 0)
    assert rules(plan) == set()
    assert rules(edited(plan, placement__groups_split=0, placement__groups_leaf_local=4)) == {"figures"}
    across = worked(instance_with(), assignment=split, domains_per_pod=1)
    assert across.placement.groups_cross_pod == 1


def test_a_bound_that_no_placement_meets() -> None:
    """Leaf domains of two racks cannot hold groups of three: both groups of e1 must split."""
    pieces = {
        "e1": [(0, 0, "r[0-1]"), (0, 1, "r2"), (1, 1, "r3"), (1, 2, "r[4-5]")],
        "w1": [(0, 0, "r[0-1]"), (1, 1, "r[2-3]")],
    }
    plan = worked(instance_with(), assignment=pieces, leaf_down=2, leaf_up=1, domains_per_pod=4, leaf_bundle=1)
    assert rules(plan) == {"lower_bound"}
    assert "lower_bound" not in rules(edited(plan, placement__lower_bound_split=2))
