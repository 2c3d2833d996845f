"""Exported files agree with the plan: every cable, rack and switch, and what a failed switch takes with it."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from commands import invoke, refusal
from drawn_fabrics import DESIGNS, built
from each_case import each
from worked_plan import edited, edited_at, instance_with, small, with_entries, worked

from planner.cluster import expand, parse
from planner.errors import InputError
from planner.exports import fabric_graph, fabric_parts
from planner.exports import fabric_graph as exported
from planner.exports.fabric_graph import failure_domains
from planner.exports.fabric_parts import BuiltFabric, built_fabric, up_to_cm
from planner.files import write_streamed
from planner.instance.network import Floor, Medium
from planner.physics.network import fabric_designs
from planner.physics.network.fabric_designs import NO_MEDIUM, MediaTable, lay, switch_counts
from planner.physics.network.transport import slowdowns, uplink_loads
from planner.physics.plan_physics import PlanPhysics
from planner.report.decisions import fabric

PLAN = small()
E1 = built_fabric(PLAN, "e1")


def table(text: Iterable[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(text))))


ZONED = {"leaf_down": 2, "domains_per_pod": 1, "rails_per_zone": 4, "domains_per_zone": 2}
ZONED |= {"core_up": 4, "core_bundle": 2}
SHARED = "rail 1k of four tiers that share boxes"
BUILT = {"worked": E1, "zoned": built_fabric(worked(instance_with(), **ZONED), "e1")}
BUILT |= {
    name: built(DESIGNS[name]) for name in ("rail 1k", "dragonfly 1k", "dragonfly+ 1k", "rail under a gateway", SHARED)
}


@each("name", BUILT)
def test_cable_list_names_each_port_once(name: str) -> None:
    """A line a cable; no port of a switch or GPU stands in two of them, and none is beyond the switch."""
    x = BUILT[name]
    rows = table(fabric_parts.cable_list(x))
    assert len(rows) == x.fabric.endpoint_links + x.fabric.switch_links + uplinks(x)
    ports = {(r[end], r[f"{end}_port"]) for r in rows for end in ("from", "to")}
    assert len(ports) == 2 * len(rows)
    assert max(int(p) for name, p in ports if "gateway" not in name) < x.design.ports
    switches = {name for name, _ in ports if "gpu" not in name and "gateway" not in name}
    assert len(switches) == x.fabric.switches


def uplinks(x: BuiltFabric) -> int:
    """Count the cables of WAN gateways."""
    return x.design.wan_gateway_links if x.fabric.wan_gateway else 0


def test_cable_list_measures_by_the_floor_of_the_instance() -> None:
    assert {r["medium"] for r in table(fabric_parts.cable_list(E1))} == {"module"}
    near = {"name": "near", "reach_m": 30, "price_usd": 1}
    plan = small(network__floor=Floor(row_pitch_m=50, racks_per_row=1).model_dump(), network__media=[near])
    rows = table(fabric_parts.cable_list(built_fabric(plan, "e1")))
    assert {r["medium"] for r in rows} == {"near", "none reaches"}
    assert all((float(r["length_m"]) <= 30) == (r["medium"] == "near") for r in rows)


def test_no_cable_is_listed_as_within_a_reach_that_it_exceeds() -> None:
    """A length just above a reach is rounded up, and one that is above it by rounding alone is within it."""
    media = [{"name": "dac", "reach_m": 3.0, "price_usd": 1.0}, {"name": "aoc", "reach_m": 99.0, "price_usd": 9.0}]
    for pitch in (0.71, 0.731, 1.0, 0.8):
        plan = small(network__floor=Floor(rack_pitch_m=pitch, spread_m=0.3).model_dump(), network__media=media)
        rows = table(fabric_parts.cable_list(built_fabric(plan, "e1")))
        assert all((float(r["length_m"]) <= 3) == (r["medium"] == "dac") for r in rows), pitch
    table_of = MediaTable.of([Medium(**medium) for medium in media])
    assert table_of.choose(np.array([3.0, 3.0 + 2e-15, 3.001])).tolist() == [0, 0, 1]
    assert [up_to_cm(x) for x in (3.0, 3.0 + 2e-15, 3.001, 2.996)] == [3.0, 3.0, 3.01, 3.0]


def test_cheapest_medium_that_reaches() -> None:
    media = (Medium(name="a", reach_m=3, price_usd=10), Medium(name="b", reach_m=100, price_usd=5, usd_per_m=2))
    table = MediaTable.of(media)
    assert table.choose(np.array([1.0, 3.0, 3.5, 200.0])).tolist() == [1, 0, 1, NO_MEDIUM]
    assert table.usd_watts(np.array([1.0, 3.0, 3.5, 200.0]))[0].tolist() == [7.0, 10.0, 12.0, np.inf]


BY_POD = [name for name in BUILT if name != "dragonfly 1k"]  # links of routers inside a group are within its node


@each(("name", "by_pod"), [*((x, False) for x in BUILT), *((x, True) for x in BY_POD)])
def test_graph_holds_every_cable(name: str, by_pod: bool) -> None:
    """Edges sum to the cables, nodes to the switches and GPUs, whether by switch or by pod; the file reads back."""
    x = BUILT[name]
    g = nx.parse_graphml("\n".join(nx.generate_graphml(fabric_graph.graph(x, by_pod=by_pod))))
    cables = x.fabric.endpoint_links + x.fabric.switch_links + uplinks(x)
    assert sum(c for *_, c in g.edges(data="cables")) == cables
    gateways = x.fabric.wan_gateway.switches if x.fabric.wan_gateway else 0
    assert sum(n.get("switches", 0) for _, n in g.nodes(data=True)) == x.fabric.switches + gateways
    assert sum(n.get("gpus", 0) for _, n in g.nodes(data=True)) == x.fabric.endpoint_links
    assert nx.is_connected(g)
    if not by_pod:
        assert g.number_of_edges() <= fabric_graph.edges(x)
        assert g.number_of_nodes() == x.fabric.switches + gateways + x.design.domains


def test_edges_of_a_large_graph_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those between switches are as many as pairs of switches with a cable, the others one from each leaf to racks."""
    x = built_fabric(PLAN, "e1")
    pairs = {
        (block.low_tier, low, high)
        for block in lay(x.design)
        for low, high in zip(block.low.tolist(), block.high.tolist(), strict=True)
        if block.low_tier != "gpu"
    }
    every, leaves = fabric_graph.graph(x, by_pod=False).number_of_edges(), x.design.leaves
    assert every == len(pairs) + leaves
    monkeypatch.setattr(fabric_graph, "MAX_EDGES", 1)
    ran = export(tmp_path, "--format", "dot", "--site", "e1")
    said = f"{every} edges ({len(pairs)} between switches, {leaves} from leaves to racks) > 1: written by pod"
    assert ran.exit_code == 0 and said in ran.output


@each("name", ["worked", "rail 1k", "rail under a gateway"])
def test_leaves_of_a_pod_lead_to_its_own_spines(name: str) -> None:
    x = BUILT[name]
    g = fabric_graph.graph(x, by_pod=True)
    joined = {(a, b) for a, b in g.edges if {g.nodes[n]["tier"] for n in (a, b)} == {"leaf", "spine"}}
    pods = range(x.design.networks * x.design.pods)
    assert {tuple(sorted(pair)) for pair in joined} == {(f"leaf-pod-{i}", f"spine-pod-{i}") for i in pods}
    leaves = [g.nodes[f"leaf-pod-{i}"]["switches"] for i in pods]
    assert sum(leaves) == x.design.leaves and max(leaves) == x.design.rails_per_pod * x.design.domains_per_pod


def racks_in(text: str) -> list[int]:
    """Return the racks of every hostlist of nodes in a topology file."""
    return sorted(n for found in re.findall(r"[Nn]odes[=:] ?(\S+)", text) for n in parse(found))


@each("as_yaml", [False, True])
@each("site", ["e1", "w1"])
def test_slurm_names_every_rack_once(as_yaml: bool, site: str) -> None:
    x = built_fabric(PLAN, site)
    text = "".join(fabric_graph.slurm_topology(x, as_yaml=as_yaml))
    assert racks_in(text) == list(range(x.design.racks))
    placed = {n for a in PLAN.placement.sites[site].assignment for n in parse(a.racks)}
    assert placed <= set(racks_in(text))


def test_slurm_tree_has_pods_and_a_core() -> None:
    """Three leaf domains in pods of two: leaves under pods, pods under the core."""
    plan = worked(instance_with(), leaf_down=3, domains_per_pod=2)
    text = "".join(fabric_graph.slurm_topology(built_fabric(plan, "e1"), as_yaml=False))
    names = [line.split()[0].removeprefix("SwitchName=") for line in text.splitlines()[1:]]
    assert names == ["leaf0", "leaf1", "leaf2", "pod0", "pod1", "core"]
    for line in ("leaf2 Nodes=r[6-7]", "pod0 Switches=leaf[0-1]", "pod1 Switches=leaf2", "core Switches=pod[0-1]"):
        assert f"SwitchName={line}" in text


def test_exports_name_the_model_of_each_tier() -> None:
    """Spines of another model have a line of the bill; picture, graph, Slurm and summary name them."""
    box = PLAN.instance.network.switches[0]
    large = box.replaced(name="large", ports=2 * box.ports, price_usd=3e4)
    two = small(network__switches=[box.model_dump(), large.model_dump()])
    spines = two.fabric.sites["e1"].tiers[1].switches
    usd = two.fabric.sites["e1"].cost_usd + spines * (large.price_usd - box.price_usd)
    mixed = edited_at(edited_at(two, "fabric.sites.e1.tiers.1.switch", "large"), "fabric.sites.e1.cost_usd", usd)
    x = built_fabric(mixed, "e1")
    bill = table(fabric_parts.bill_of_materials(x))
    counts = {r["part"]: int(r["count"]) for r in bill if r["where"] == "fabric"}
    assert "0" not in {r["count"] for r in bill}
    assert counts == {"box": x.design.leaves + x.design.cores, "large": spines}
    models = {(n["tier"], n["model"]) for _, n in fabric_graph.graph(x, by_pod=False).nodes(data=True) if "model" in n}
    assert models == {("leaf", "box"), ("spine", "large"), ("core", "box")}
    assert "switches of box and large" in next(fabric_graph.slurm_topology(x, as_yaml=False))
    assert f"{spines} spines of large" in next(fabric(mixed, mixed.fabric)).text


def test_a_fabric_that_cannot_be_wired_is_refused() -> None:
    bad = edited(PLAN, fabric__sites__e1__tiers=[])
    with pytest.raises(InputError, match="planner check"):
        built_fabric(bad, "e1")


def test_a_broken_write_leaves_no_file(tmp_path: Path) -> None:
    """Where writing stops half-way neither the file nor the temporary one stays."""

    def pieces():
        yield "a"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_streamed(tmp_path / "x", pieces)
    assert list(tmp_path.iterdir()) == []


def export(folder: Path, *options: str, out: str = "out", data: str = PLAN.model_dump_json()) -> Any:
    (folder / "plan.json").write_text(data)
    command = ["fabric", "export", str(folder / "plan.json"), *options, "-o", str(folder / out)]
    return invoke(*command)


def test_command_writes_files(tmp_path: Path) -> None:
    forms = ["bom", "csv", "dot", "graphml", "netbox", "slurm-conf", "slurm-yaml", "svg"]
    for form in forms:
        done = export(tmp_path, "--format", form, "--site", "e1", out=form)
        assert done.exit_code == 0, done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*forms, "plan.json"])


@each(
    ("options", "message"),
    [
        (["--format", "cvs", "--site", "e1"], "--format: must be one of csv"),
        (["--format", "csv"], "--site: must be one of e1, w1"),
        (["--format", "csv", "--site", "x"], "(is 'x')"),
        (["--format", "graphml", "--site", "e1", "--detail", "all"], "--detail: must be one of auto"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: list[str], message: str) -> None:
    assert message in refusal(export(tmp_path, *options))


def test_a_plan_whose_rack_is_a_name_is_refused(tmp_path: Path) -> None:
    named = json.dumps(with_entries(PLAN.model_dump(mode="json"), {"instance.hardware.rack": "e1"}))
    refused = refusal(export(tmp_path, "--site", "e1", "--format", "csv", data=named))
    assert 'instance.hardware.rack: must be an object, as a plan has every part in full (is "e1")' in refused


def test_a_bill_lists_cables_by_place_and_medium() -> None:
    media = Medium(name="optics", reach_m=1e3, price_usd=900), Medium(name="copper", reach_m=10, price_usd=100.13)
    x = built(DESIGNS["dragonfly 1k"])
    network = x.network.replaced(floor=Floor(), media=media)
    fabric = x.fabric.replaced(cost_usd=fabric_designs.bill(network, x.switch, x.design).usd)
    priced = replace(x, network=network, fabric=fabric)
    bill = table(fabric_parts.bill_of_materials(priced))
    usd = [float(r["usd"]) for r in bill]
    assert round(sum(usd[:-1]), 2) == usd[-1] == round(fabric.cost_usd, 2)
    order = [m.name for m in media]
    cables = [(r["where"], order.index(r["part"])) for r in bill if r["part"] in order]
    assert cables == sorted(cables)
    # Routers of one group are near each other, those of two groups are not: one place, two media.
    assert [r["part"] for r in bill if r["where"] == "leaf to leaf"] == order


TREES = {name: x for name, x in BUILT.items() if not ("dragonfly" in name or "gateway" in name)}
TREES |= {name: built(DESIGNS[name]) for name in ("rail 16k", "rail-only 1k")}


def lost_by_cables(x: BuiltFabric, tier: str) -> float:
    """Return the largest share of its links up that a leaf, a pod or a zone loses with the first switch of a tier."""
    before: Counter[tuple[str, int]] = Counter()
    after: Counter[tuple[str, int]] = Counter()
    zones = x.design.zone_cores if x.design.zones else x.design.cores + 1
    block = {"leaf": lambda i: i, "spine": lambda i: x.pod_of("spine", i), "core": lambda i: i // zones}
    for c in lay(x.design):
        if c.low_tier == "gpu":
            continue
        ends = zip(block[c.low_tier](c.low).tolist(), c.low.tolist(), c.high.tolist(), strict=True)
        for of, low, high in ends:
            before[c.low_tier, of] += 1
            after[c.low_tier, of] += (tier, 0) not in ((c.low_tier, low), (c.high_tier, high))
    return max(1 - after[k] / n for k, n in before.items())


@each("name", TREES)
def test_uplinks_lost_are_those_of_the_cables(name: str) -> None:
    x = TREES[name]
    tiers = {row["tier"]: row for row in failure_domains(PLAN, x)}
    assert set(tiers) == set(switch_counts(x.design))
    for tier in set(tiers) - {"leaf"}:
        assert tiers[tier]["uplinks_lost"] == pytest.approx(lost_by_cables(x, tier))


@each("name", TREES)
def test_rows_hold_every_switch_and_rack_once(name: str) -> None:
    x = TREES[name]
    rows = failure_domains(PLAN, x)
    for tier, count in switch_counts(x.design).items():
        own = [row for row in rows if row["tier"] == tier]
        assert sum(row["switches"] for row in own) == count
        assert sorted(r for row in own for r in parse(row["racks"])) == list(range(x.design.racks))
    leaves = [row for row in rows if row["tier"] == "leaf"]
    assert sum(row["gpus_cut_off"] * row["switches"] for row in leaves) == x.design.endpoint_links
    cabled = Counter(x.names["leaf"][i] for c in lay(x.design) if c.low_tier == "gpu" for i in c.high.tolist())
    assert all(cabled[row["switch"]] == row["gpus_cut_off"] for row in leaves)


def test_slowdowns_are_those_of_a_fabric_with_a_spine_less() -> None:
    """The plan's formulas, over a design whose leaves have no bundle to the lost spine, say the same."""
    row = next(r for r in failure_domains(PLAN, E1) if r["tier"] == "spine")
    physics = PlanPhysics(plan=PLAN)
    less, where = replace(E1.design, leaf_up=E1.design.leaf_up - E1.design.leaf_bundle), physics.crossings["e1"]
    loads = uplink_loads(less, where.share_leaving, where.allreduces_leaving)
    stated = row["pipeline_send_slowdown"], row["allreduce_slowdown"]
    assert stated == pytest.approx(slowdowns(physics.transport_slowdown, loads))
    assert row["pipeline_send_slowdown"] > PLAN.fabric.sites["e1"].pipeline_send_slowdown


def test_links_out_of_pods_slow_sends_by_the_share_lost() -> None:
    """Where links out of pods are the slowest, one of four spines or cores makes sends take 4/3; a leaf takes none."""
    plan = worked(instance_with(), ports=32, leaf_down=2, leaf_up=4, domains_per_pod=2, spine_up=1)
    planned = plan.fabric.sites["e1"]
    rows = failure_domains(plan, built_fabric(plan, "e1"))
    assert [row["tier"] for row in rows] == ["leaf"] * 4 + ["spine"] * 2 + ["core"]
    for row in rows:
        times = 1 if row["tier"] == "leaf" else 4 / 3
        assert row["pipeline_send_slowdown"] == pytest.approx(times * planned.pipeline_send_slowdown)
        assert row["allreduce_slowdown"] == pytest.approx(planned.allreduce_slowdown)


def test_ranks_are_those_of_the_racks() -> None:
    stages = PlanPhysics(plan=PLAN).stages["e1"]
    for row in failure_domains(PLAN, E1):
        racks = set(parse(row["racks"]))
        own = {f"stage{s}-{q}" for s, ranks in enumerate(stages) for q, r in enumerate(ranks) if r in racks}
        assert set(expand(row["ranks"])) == own


def test_a_nic_of_two_lanes_keeps_one() -> None:
    """Where a NIC is split over two networks a leaf cuts off nobody, and halves the rate of its GPUs."""
    x = replace(E1, design=replace(E1.design, lanes=2))
    row = failure_domains(PLAN, x)[0]
    before = PLAN.fabric.sites["e1"].pipeline_send_slowdown
    assert (row["tier"], row["gpus_cut_off"]) == ("leaf", 0)
    assert row["pipeline_send_slowdown"] == pytest.approx(2 * before) and "lose one of 2 lanes" in row["effect"]


@each("name", ["dragonfly 1k", "dragonfly 16k", "dragonfly+ 1k", "dragonfly+ 16k"])
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
    row = next(r for r in failure_domains(PLAN, x) if r["tier"] == tier)
    inside = 1 / per_group if tier == "spine" else 0.0
    assert row["uplinks_lost"] == pytest.approx(max(inside, max(pairs.values()) / d.group_links))


@each(("ports", "switches", "share"), [(None, 2, 1.0), (64, 4, 0.5)])
def test_a_gateway_takes_its_share_of_the_wide_area(ports: int | None, switches: int, share: float) -> None:
    design = DESIGNS["rail under a gateway"]
    row = failure_domains(PLAN, built(replace(design, wan_ports=ports or design.wan_ports)))[-1]
    figures = [row[key] for key in ("tier", "switches", "gpus_cut_off", "uplinks_lost")]
    assert figures == ["wan-gateway", switches, 0, share]
    assert row["effect"] == f"{share:.0%} of the ports to the wide area are lost".replace("%", " %")


def test_many_rows_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tier has many sets of racks those alike become one row, and every switch is still counted."""
    x = built(DESIGNS["rail 16k"])
    apart = failure_domains(PLAN, x)
    monkeypatch.setattr(exported, "MAX_ROWS", 8)
    merged = failure_domains(PLAN, x)
    assert len(apart) == 64 + 32 + 1 and len(merged) == 3
    assert [row["alike"] for row in merged] == [64, 32, 1]
    assert sum(row["switches"] for row in merged) == sum(row["switches"] for row in apart) == x.design.switches


def test_command_writes_both_forms(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(PLAN.model_dump_json())
    for name in ("x.csv", "x.json"):
        options = ["--site", "e1", "--format", "failure-domains", "-o", str(tmp_path / name)]
        assert invoke("fabric", "export", tmp_path / "plan.json", *options).exit_code == 0
    table = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    listed = json.loads((tmp_path / "x.json").read_text())
    assert [r["effect"] for r in table] == [r["effect"] for r in listed]
    assert list(table[0]) == list(listed[0])
