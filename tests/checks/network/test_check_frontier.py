"""Rows of a frontier of fabrics: true ones hold, and every figure, choice and order that is changed is refused."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from worked_plan import edited_at, small

from planner.checks import fabric
from planner.checks.fabric import frontier as rules
from planner.models import FABRIC_AXES
from planner.physics.network.fabric_designs import design_for
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.planning.site_fabrics import frontier

SITE = "e1"
SAME_FABRIC = {"domains_per_pod"}  # a pod with room for more domains than there are
OF_TREES = {"spine_up", "spine_bundle", "core_boxes"}  # a dragonfly's follow from its other choices
MERITS = [FABRIC_AXES[k] for k in ("cost", "time", "power")]


@cache
def plan_of(families: tuple[str, ...]) -> Plan:
    """Return the worked plan with the families that a frontier may choose from."""
    return edited_at(small(), "instance.network.families", list(families))


@cache
def rows_of(*families: str) -> tuple[dict[str, Any], ...]:
    found = frontier(plan_of(families), axes=["cost", "time", "power"])
    return tuple(x for x in found if x["site"] == SITE)


def broken(rows: Sequence[dict[str, Any]], *families: str, leaf_size: int | None = None) -> set[str]:
    physics = PlanPhysics(plan=plan_of(families))
    return {v.rule for v in rules(physics, SITE, rows, MERITS, leaf_size=leaf_size)}


@pytest.mark.parametrize("families", [("rail",), ("rail", "rack"), ("dragonfly",), ("rail", "dragonfly+")])
def test_true_frontiers_hold(families: tuple[str, ...]) -> None:
    rows = rows_of(*families)
    assert rows and broken(rows, *families) == set()


@pytest.mark.parametrize("families", [("rail",), ("rack",), ("dragonfly",)])
def test_every_changed_figure_is_refused(families: tuple[str, ...]) -> None:
    rows = rows_of(*families)
    same = SAME_FABRIC | (OF_TREES if families[0].startswith("dragonfly") else set())
    for i, row in enumerate(rows):
        for name, value in row.items():
            if name in same or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            other = value + 1 if isinstance(value, int) else value * 1.01 + 1e-6
            changed = [*rows[:i], {**row, name: other}, *rows[i + 1 :]]
            assert broken(changed, *families), f"row {i}: {name} {value} -> {other}"


def test_choices_that_there_are_not() -> None:
    row = rows_of("rail")[0]
    for name, value in (("switch", "none"), ("family", "dragonfly"), ("lanes", 0), ("leaf_down", -1), ("split", 99)):
        assert broken([{**row, name: value}], "rail") == {f"frontier[{SITE}, 0]"}


def test_rows_of_two_models() -> None:
    row, rule, box = rows_of("rail")[0], {f"frontier[{SITE}, 0]"}, plan_of(("rail",)).instance.network.switches[0]
    large = {"name": "large", "ports": 2 * box.ports, "price_usd": box.price_usd + 1000}
    boxes = [{**box.model_dump(), **x} for x in ({}, large, {"name": "fast", "port_gbps": 2 * box.port_gbps})]
    physics = PlanPhysics(plan=edited_at(plan_of(("rail",)), "instance.network.switches", boxes))
    dearer = row["cost_usd"] + 1000  # one spine above four leaves
    for name, usd, expected in (
        ("large", dearer, set()), ("large", row["cost_usd"], rule), ("fast", dearer, rule), ("none", dearer, rule),
    ):  # fmt: skip
        changed = {**row, "spine_switch": name, "cost_usd": usd}
        assert {v.rule for v in rules(physics, SITE, [changed], MERITS)} == expected, name


def test_rows_that_others_beat() -> None:
    rows = rows_of("rack")
    assert f"frontier[{SITE}, 1]" in broken([rows[0], rows[0]], "rack")
    size = rows[0]["leaf_domain_racks"]
    assert broken(rows[:1], "rack", leaf_size=size) == set() != broken(rows[:1], "rack", leaf_size=size + 1)
    assert len(rows) > 1 and broken(rows[::-1], "rack") != set()


def test_a_row_dearer_and_no_better_is_beaten() -> None:
    def beaten(*rows: dict[str, Any]) -> list[str]:
        found = rules(PlanPhysics(plan=plan_of(("rack",))), SITE, rows, MERITS)
        return [f"{v.rule}: {v.message.partition(' is ')[0]}" for v in found if "as good or better" in v.message]

    row = rows_of("rack")[0]
    dearer = {**row, "cost_usd": row["cost_usd"] + 1}
    frugal = {**dearer, "power_mw": row["power_mw"] / 2}
    assert beaten(row, dearer) == [f"frontier[{SITE}, 1]: row 0"]
    assert beaten(row, frugal) == []
    assert beaten(row, frugal, {**frugal, "cost_usd": row["cost_usd"] + 2}) == [f"frontier[{SITE}, 2]: row 1"]


def test_a_site_without_a_wan_gateway_leaves_no_ports_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = [{**small().instance.network.switches[0].model_dump(), "port_gbps": 0.01}]
    row, ports = rows_of("rail")[0], list[int]()

    def noted(*given: Any, wan_ports: int, **choices: Any) -> Any:
        ports.append(wan_ports)
        return design_for(*given, wan_ports=wan_ports, **choices)

    monkeypatch.setattr(fabric, "design_for", noted)
    list(rules(PlanPhysics(plan=small(network__switches=switches)), SITE, [row], MERITS))
    assert ports == [0]
