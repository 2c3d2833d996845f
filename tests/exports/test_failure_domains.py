"""What a failed switch takes with it, against cables taken out one by one."""

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from drawn_fabrics import DESIGNS, built
from typer.testing import CliRunner
from worked_plan import instance_with, small, worked

from planner.cli.main import app
from planner.cluster import expand, parse
from planner.exports import fabric_graph as exported
from planner.exports.fabric_graph import failure_domains
from planner.exports.fabric_parts import BuiltFabric, built_fabric
from planner.physics.network.fabric_designs import lay, switch_counts
from planner.physics.network.transport import allreduce_slowdown, pipeline_send_slowdown
from planner.physics.plan_physics import PlanPhysics

PLAN = small()
E1 = built_fabric(PLAN, "e1")
ZONED = {"leaf_down": 2, "domains_per_pod": 1, "rails_per_zone": 4, "domains_per_zone": 2}
ZONED |= {"core_up": 4, "core_bundle": 2}
SHARED = "rail 1k of four tiers that share boxes"
TREES = {"worked": E1, "zoned": built_fabric(worked(instance_with(), **ZONED), "e1")}
TREES |= {name: built(DESIGNS[name]) for name in ("rail 1k", "rail 16k", "rail-only 1k", SHARED)}


def lost_by_cables(x: BuiltFabric, tier: str) -> float:
    """Return the largest share of its links up that a leaf, a pod or a zone loses with the first switch of a tier."""
    before: Counter[tuple[str, int]] = Counter()
    after: Counter[tuple[str, int]] = Counter()
    block = {"leaf": lambda i: i, "spine": lambda i: x.pod_of("spine", i), "core": x.zone_of}
    for c in lay(x.design):
        if c.low_tier == "gpu":
            continue
        ends = zip(block[c.low_tier](c.low).tolist(), c.low.tolist(), c.high.tolist(), strict=True)
        for of, low, high in ends:
            before[c.low_tier, of] += 1
            after[c.low_tier, of] += (tier, 0) not in ((c.low_tier, low), (c.high_tier, high))
    return max(1 - after[k] / n for k, n in before.items())


@pytest.mark.parametrize("name", TREES)
def test_uplinks_lost_are_those_of_the_cables(name: str) -> None:
    x = TREES[name]
    tiers = {row.tier: row for row in failure_domains(PLAN, x)}
    assert set(tiers) == set(switch_counts(x.design))
    for tier in set(tiers) - {"leaf"}:
        assert tiers[tier].uplinks_lost == pytest.approx(lost_by_cables(x, tier))


@pytest.mark.parametrize("name", TREES)
def test_rows_hold_every_switch_and_rack_once(name: str) -> None:
    x = TREES[name]
    rows = failure_domains(PLAN, x)
    for tier, count in switch_counts(x.design).items():
        own = [row for row in rows if row.tier == tier]
        assert sum(row.switches for row in own) == count
        assert sorted(r for row in own for r in parse(row.racks)) == list(range(x.design.racks))
    leaves = [row for row in rows if row.tier == "leaf"]
    assert sum(row.gpus_cut_off * row.switches for row in leaves) == x.design.endpoint_links
    cabled = Counter(x.names["leaf"][i] for c in lay(x.design) if c.low_tier == "gpu" for i in c.high.tolist())
    assert all(cabled[row.switch] == row.gpus_cut_off for row in leaves)


def test_slowdowns_are_those_of_a_fabric_with_a_spine_less() -> None:
    """The plan's formulas, over a design whose leaves have no bundle to the lost spine, say the same."""
    row = next(r for r in failure_domains(PLAN, E1) if r.tier == "spine")
    physics = PlanPhysics(plan=PLAN)
    less, where = replace(E1.design, leaf_up=E1.design.leaf_up - E1.design.leaf_bundle), physics.crossings["e1"]
    phi = physics.transport_slowdown
    assert row.pipeline_send_slowdown == pytest.approx(pipeline_send_slowdown(phi, less, *where.share_leaving))
    assert row.allreduce_slowdown == pytest.approx(allreduce_slowdown(phi, less, *where.allreduces_leaving))
    assert row.pipeline_send_slowdown > PLAN.fabric.sites["e1"].pipeline_send_slowdown


def test_links_out_of_pods_slow_sends_by_the_share_lost() -> None:
    """Where links out of pods are the slowest, one of four spines or cores makes sends take 4/3; a leaf takes none."""
    plan = worked(instance_with(), ports=32, leaf_down=2, leaf_up=4, domains_per_pod=2, spine_up=1)
    planned = plan.fabric.sites["e1"]
    rows = failure_domains(plan, built_fabric(plan, "e1"))
    assert [row.tier for row in rows] == ["leaf"] * 4 + ["spine"] * 2 + ["core"]
    for row in rows:
        times = 1 if row.tier == "leaf" else 4 / 3
        assert row.pipeline_send_slowdown == pytest.approx(times * planned.pipeline_send_slowdown)
        assert row.allreduce_slowdown == pytest.approx(planned.allreduce_slowdown)


def test_ranks_are_those_of_the_racks() -> None:
    stages = PlanPhysics(plan=PLAN).stages["e1"]
    for row in failure_domains(PLAN, E1):
        racks = set(parse(row.racks))
        own = {f"stage{s}-{q}" for s, ranks in enumerate(stages) for q, r in enumerate(ranks) if r in racks}
        assert set(expand(row.ranks)) == own


def test_a_nic_of_two_lanes_keeps_one() -> None:
    """Where a NIC is split over two networks a leaf cuts off nobody, and halves the rate of its GPUs."""
    x = replace(E1, design=replace(E1.design, lanes=2))
    row = failure_domains(PLAN, x)[0]
    before = PLAN.fabric.sites["e1"].pipeline_send_slowdown
    assert (row.tier, row.gpus_cut_off) == ("leaf", 0)
    assert row.pipeline_send_slowdown == pytest.approx(2 * before) and "lose one of 2 lanes" in row.effect


@pytest.mark.parametrize("name", ["dragonfly 1k", "dragonfly 16k", "dragonfly+ 1k", "dragonfly+ 16k"])
def test_two_groups_lose_what_one_switch_joins(name: str) -> None:
    """Of the links between two groups a switch takes no more than the most that any has of them."""
    x = built(DESIGNS[name])
    d, tier = x.design, "spine" if "+" in name else "leaf"
    per_group = d.spines // d.pods if tier == "spine" else max(d.group_sizes)
    pairs: Counter[tuple[int, int]] = Counter()
    for c in lay(d):
        groups = x.pod_of(tier, c.low), x.pod_of(tier, c.high) if c.low_tier == c.high_tier == tier else None
        if groups[1] is not None:
            across = groups[0] != groups[1]
            pairs.update(zip(c.low[across].tolist(), groups[1][across].tolist(), strict=True))
    row = next(r for r in failure_domains(PLAN, x) if r.tier == tier)
    inside = 1 / per_group if tier == "spine" else 0.0
    assert row.uplinks_lost == pytest.approx(max(inside, max(pairs.values()) / d.group_links))


@pytest.mark.parametrize(("ports", "switches", "share"), [(None, 2, 1.0), (64, 4, 0.5)])
def test_a_gateway_takes_its_share_of_the_wide_area(ports: int | None, switches: int, share: float) -> None:
    """Each of two networks has gateways, with each of which its part of the network's ports to the wide area goes."""
    design = DESIGNS["rail under a gateway"]
    row = failure_domains(PLAN, built(replace(design, wan_ports=ports or design.wan_ports)))[-1]
    assert (row.tier, row.switches, row.gpus_cut_off, row.uplinks_lost) == ("wan-gateway", switches, 0, share)
    assert row.effect == f"{share:.0%} of the ports to the wide area are lost".replace("%", " %")


def test_many_rows_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tier has many sets of racks those alike become one row, and every switch is still counted."""
    x = built(DESIGNS["rail 16k"])
    apart = failure_domains(PLAN, x)
    monkeypatch.setattr(exported, "MAX_ROWS", 8)
    merged = failure_domains(PLAN, x)
    assert len(apart) == 64 + 32 + 1 and len(merged) == 3
    assert [row.alike for row in merged] == [64, 32, 1]
    assert sum(row.switches for row in merged) == sum(row.switches for row in apart) == x.design.switches


def test_command_writes_both_forms(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(PLAN.model_dump_json())
    for name in ("x.csv", "x.json"):
        options = ["--site", "e1", "--format", "failure-domains", "-o", str(tmp_path / name)]
        assert CliRunner().invoke(app, ["fabric", "export", str(tmp_path / "plan.json"), *options]).exit_code == 0
    table = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    listed = json.loads((tmp_path / "x.json").read_text())
    assert [r["effect"] for r in table] == [r["effect"] for r in listed]
    assert list(table[0]) == list(listed[0])
