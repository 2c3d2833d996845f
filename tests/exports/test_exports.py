"""Exported files agree with the plan, cable by cable; cables as built against it; NetBox's files are as it asks."""

import csv
import io
import json
import random
import re
import shutil
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import yaml
from commands import invoke, refusal
from drawn_fabrics import DESIGNS, built
from each_case import each
from worked_plan import edited, edited_at, instance_with, small, worked

from planner.cluster.hostlists import expand, parse
from planner.errors import InputError
from planner.exports import fabric_graph, fabric_parts
from planner.exports.built_cables import differences
from planner.exports.fabric_graph import failure_domains
from planner.exports.fabric_parts import BuiltFabric, built_fabric, cable_list, netbox_files, write_netbox
from planner.instance.network import Floor, Medium
from planner.physics.network import fabric_cost
from planner.physics.network.fabric_cables import NO_MEDIUM, MediaTable, lay, switch_counts
from planner.physics.network.uplink_slowdowns import slowdowns, uplink_loads
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


def cables_of(x: BuiltFabric) -> int:
    """Count the cables of a fabric, those of its WAN gateways too."""
    gateway = x.design.wan_gateway_links if x.fabric.wan_gateway else 0
    return x.fabric.endpoint_links + x.fabric.switch_links + gateway


@each("name", BUILT)
def test_cable_list_names_each_port_once(name: str) -> None:
    """A line a cable; no port of a switch or GPU stands in two of them, and none is beyond the switch."""
    x = BUILT[name]
    rows = table(cable_list(x))
    assert len(rows) == cables_of(x)
    ports = {(r[end], r[f"{end}_port"]) for r in rows for end in ("from", "to")}
    assert len(ports) == 2 * len(rows)
    assert max(int(p) for name, p in ports if "gateway" not in name) < x.design.ports
    switches = {name for name, _ in ports if "gpu" not in name and "gateway" not in name}
    assert len(switches) == x.fabric.switches


def test_no_cable_is_listed_as_within_a_reach_that_it_exceeds() -> None:
    """A length just above a reach is rounded up, and one that is above it by rounding alone is within it.

    The floor and the media are the instance's: without them a medium is the transceiver.
    """
    assert {r["medium"] for r in table(cable_list(E1))} == {"module"}
    near = {"name": "near", "reach_m": 30, "price_usd": 1}
    far = small(network__floor=Floor(row_pitch_m=50, racks_per_row=1).model_dump(), network__media=[near])
    rows = table(cable_list(built_fabric(far, "e1")))
    assert {r["medium"] for r in rows} == {"near", "none reaches"}
    assert all((float(r["length_m"]) <= 30) == (r["medium"] == "near") for r in rows)
    media = [{"name": "dac", "reach_m": 3.0, "price_usd": 1.0}, {"name": "aoc", "reach_m": 99.0, "price_usd": 9.0}]
    for pitch in (0.71, 0.731, 1.0, 0.8):
        plan = small(network__floor=Floor(rack_pitch_m=pitch, spread_m=0.3).model_dump(), network__media=media)
        rows = table(cable_list(built_fabric(plan, "e1")))
        assert all((float(r["length_m"]) <= 3) == (r["medium"] == "dac") for r in rows), pitch
    cheaper = {"name": "far", "reach_m": 100, "price_usd": 0.5, "usd_per_m": 0.2}
    chosen = MediaTable.of([Medium(**medium) for medium in (*media, cheaper)])
    lengths = np.array([1.0, 3.0, 3.0 + 2e-15, 3.001, 200.0])
    assert chosen.choose(lengths).tolist() == [2, 0, 0, 2, NO_MEDIUM]
    assert chosen.usd_watts(lengths)[0].tolist() == pytest.approx([0.7, 1.0, 1.0, 1.1002, np.inf])
    assert [fabric_parts.up_to_cm(x) for x in (3.0, 3.0 + 2e-15, 3.001, 2.996)] == [3.0, 3.0, 3.01, 3.0]


BY_POD = [name for name in BUILT if name != "dragonfly 1k"]  # links of routers inside a group are within its node


@each(("name", "by_pod"), [*((x, False) for x in BUILT), *((x, True) for x in BY_POD)])
def test_graph_holds_every_cable(name: str, by_pod: bool) -> None:
    """Edges sum to the cables, nodes to the switches and GPUs, whether by switch or by pod; the file reads back."""
    x = BUILT[name]
    g = nx.parse_graphml("\n".join(nx.generate_graphml(fabric_graph.graph(x, by_pod=by_pod))))
    assert sum(c for *_, c in g.edges(data="cables")) == cables_of(x)
    gateways = x.fabric.wan_gateway.switches if x.fabric.wan_gateway else 0
    assert sum(n.get("switches", 0) for _, n in g.nodes(data=True)) == x.fabric.switches + gateways
    assert sum(n.get("gpus", 0) for _, n in g.nodes(data=True)) == x.fabric.endpoint_links
    assert nx.is_connected(g)
    if not by_pod:
        assert g.number_of_edges() <= fabric_graph.edges(x)
        assert g.number_of_nodes() == x.fabric.switches + gateways + x.design.domains


def command(folder: Path, name: str, *words: str | Path) -> Any:
    """Run a command on the fabric of the worked plan."""
    (folder / "plan.json").write_text(PLAN.model_dump_json())
    return invoke("fabric", name, folder / "plan.json", *words)


def test_edges_of_a_large_graph_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those between switches are as many as pairs of switches with a cable, the others one from each leaf to racks."""
    blocks = [block for block in lay(E1.design) if block.low_tier != "gpu"]
    pairs = {(x.low_tier, *ends) for x in blocks for ends in zip(x.low.tolist(), x.high.tolist(), strict=True)}
    every, leaves = fabric_graph.graph(E1, by_pod=False).number_of_edges(), E1.design.leaves
    assert every == len(pairs) + leaves
    monkeypatch.setattr(fabric_graph, "MAX_EDGES", 1)
    ran = command(tmp_path, "export", "--format", "dot", "--site", "e1", "-o", tmp_path / "out")
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


@each("as_yaml", [False, True])
def test_slurm_names_every_rack_once(as_yaml: bool) -> None:
    """Three leaf domains in pods of two: leaves under pods, pods under the core; racks are named as the placement's."""
    plan = worked(instance_with(), leaf_down=3, domains_per_pod=2)
    for x in (E1, built_fabric(PLAN, "w1"), built_fabric(plan, "e1")):
        text = "".join(fabric_graph.slurm_topology(x, as_yaml=as_yaml))
        named = [n for found in re.findall(r"[Nn]odes[=:] ?(\S+)", text) for n in parse(found)]
        assert sorted(named) == list(range(x.design.racks))
        assert {n for a in PLAN.placement.sites[x.site].assignment for n in parse(a.racks)} <= set(named)
    if not as_yaml:
        tree = ["leaf0 Nodes=r[0-2]", "leaf1 Nodes=r[3-5]", "leaf2 Nodes=r[6-7]"]
        tree += ["pod0 Switches=leaf[0-1]", "pod1 Switches=leaf2", "core Switches=pod[0-1]"]
        assert text.splitlines()[1:] == [f"SwitchName={line}" for line in tree]


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


def test_command_writes_files(tmp_path: Path) -> None:
    forms = ["bom", "csv", "dot", "graphml", "netbox", "slurm-conf", "slurm-yaml", "svg"]
    for form in forms:
        done = command(tmp_path, "export", "--format", form, "--site", "e1", "-o", tmp_path / form)
        assert done.exit_code == 0, done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*forms, "plan.json"])
    for name in ("x.csv", "x.json"):
        form = ("--site", "e1", "--format", "failure-domains")
        assert command(tmp_path, "export", *form, "-o", tmp_path / name).exit_code == 0
    listed = json.loads((tmp_path / "x.json").read_text())
    rows = table((tmp_path / "x.csv").read_text())
    assert [(list(r), r["effect"]) for r in rows] == [(list(r), r["effect"]) for r in listed]


@each(("options", "message"), [
    (["--format", "cvs", "--site", "e1"], "--format: must be one of csv"),
    (["--format", "csv"], "--site: must be one of e1, w1"),
    (["--format", "csv", "--site", "x"], "(is 'x')"),
    (["--format", "graphml", "--site", "e1", "--detail", "all"], "--detail: must be one of auto"),
    (["--format", "csv", "--site", "e1", "--detail", "pod"], "--detail pod: is of graphml and dot alone; leave it out"),
    (["--format", "svg", "--site", "e1", "-o", "x.png"], "x.png: --format svg ends in .svg; rename it"),
    (["--format", "bom", "--site", "e1", "-o", "x.dot"], "ends in .csv; rename it, or give --format dot"),
    (["--format", "netbox", "--site", "e1", "-o", "x.csv"], "ends in .zip; rename it, or give --format csv or bom or"),
])  # fmt: skip
def test_wrong_options_are_named(tmp_path: Path, options: list[str], message: str) -> None:
    assert message in refusal(command(tmp_path, "export", "-o", tmp_path / "out", *options))  # the last -o holds
    with pytest.raises(InputError, match="planner check"):
        built_fabric(edited(PLAN, fabric__sites__e1__tiers=[]), "e1")


def test_a_bill_lists_cables_by_place_and_medium() -> None:
    media = Medium(name="optics", reach_m=1e3, price_usd=900), Medium(name="copper", reach_m=10, price_usd=100.13)
    x = built(DESIGNS["dragonfly 1k"])
    network = x.network.replaced(floor=Floor(), media=media)
    fabric = x.fabric.replaced(cost_usd=fabric_cost.bill(network, x.switch, x.design).usd)
    bill = table(fabric_parts.bill_of_materials(replace(x, network=network, fabric=fabric)))
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
def test_rows_are_those_of_the_cables(name: str) -> None:
    """Every switch and rack is in one row of its tier, and what a row loses is what its cables carried."""
    x = TREES[name]
    rows = failure_domains(PLAN, x)
    assert {row["tier"] for row in rows} == set(switch_counts(x.design))
    for tier, count in switch_counts(x.design).items():
        own = [row for row in rows if row["tier"] == tier]
        assert sum(row["switches"] for row in own) == count
        assert sorted(r for row in own for r in parse(row["racks"])) == list(range(x.design.racks))
        if tier != "leaf":
            assert own[0]["uplinks_lost"] == pytest.approx(lost_by_cables(x, tier))
    leaves = [row for row in rows if row["tier"] == "leaf"]
    assert sum(row["gpus_cut_off"] * row["switches"] for row in leaves) == x.design.endpoint_links
    cabled = Counter(x.names["leaf"][i] for c in lay(x.design) if c.low_tier == "gpu" for i in c.high.tolist())
    assert all(cabled[row["switch"]] == row["gpus_cut_off"] for row in leaves)


def test_many_rows_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tier has many sets of racks those alike become one row, and every switch is still counted."""
    x = TREES["rail 16k"]
    apart = failure_domains(PLAN, x)
    monkeypatch.setattr(fabric_graph, "MAX_ROWS", 8)
    merged = failure_domains(PLAN, x)
    assert len(apart) == 64 + 32 + 1 and [row["alike"] for row in merged] == [64, 32, 1]
    assert sum(row["switches"] for row in merged) == sum(row["switches"] for row in apart) == x.design.switches


def test_slowdowns_are_those_of_a_fabric_with_a_spine_less() -> None:
    """The plan's formulas, over a design whose leaves have no bundle to the lost spine, say the same."""
    rows, physics = failure_domains(PLAN, E1), PlanPhysics(plan=PLAN)
    row = next(r for r in rows if r["tier"] == "spine")
    less, where = replace(E1.design, leaf_up=E1.design.leaf_up - E1.design.leaf_bundle), physics.crossings["e1"]
    loads = uplink_loads(less, where.share_leaving, where.allreduces_leaving)
    stated = row["pipeline_send_slowdown"], row["allreduce_slowdown"]
    assert stated == pytest.approx(slowdowns(physics.transport_slowdown, loads))
    before = PLAN.fabric.sites["e1"].pipeline_send_slowdown
    assert row["pipeline_send_slowdown"] > before
    # Ranks are those of the racks.
    for row in rows:
        racks = set(parse(row["racks"]))
        stages = enumerate(physics.stages["e1"])
        assert set(expand(row["ranks"])) == {
            f"stage{s}-{q}" for s, own in stages for q, r in enumerate(own) if r in racks
        }
    # Where a NIC is split over two networks a leaf cuts off nobody, and halves the rate of its GPUs.
    split = failure_domains(PLAN, replace(E1, design=replace(E1.design, lanes=2)))[0]
    assert (split["tier"], split["gpus_cut_off"]) == ("leaf", 0)
    assert split["pipeline_send_slowdown"] == pytest.approx(2 * before) and "lose one of 2 lanes" in split["effect"]


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


# Rows of fields of NetBox's CableImportForm, DeviceImportForm and InterfaceImportForm, those required first.
CABLE = {"side_a_type", "side_a_name", "side_b_type", "side_b_name"}
CABLE |= {"side_a_device", "side_b_device", "type", "status", "label", "color", "length", "length_unit"}
DEVICE = {"name", "role", "manufacturer", "device_type", "status", "site"} | {"location", "rack", "position", "face"}
ODD = replace(E1, site='=1+2, "x"')
SPLIT = replace(E1, design=replace(E1.design, split=2, lanes=2))
HEADER = "from,from_port,to,to_port"
Ends = list[str]  # of a cable, so


def netbox_rows(x: BuiltFabric, name: str) -> list[dict[str, str]]:
    return table(netbox_files(x)[name]())


def ends(x: BuiltFabric) -> list[Ends]:
    """Return the cables of a fabric, their ends alone."""
    return [row[:4] for row in list(csv.reader(io.StringIO("".join(cable_list(x)))))[1:]]


def written(path: Path, rows: list[Ends]) -> Path:
    path.write_text("\n".join([HEADER, *(",".join(row) for row in rows)]) + "\n")
    return path


def pair(row: Ends) -> frozenset[str]:
    """Return the two ends of a cable."""
    return frozenset((":".join(row[:2]), ":".join(row[2:])))


@each("x", [E1, SPLIT, ODD])
def test_our_own_lists_are_as_designed(tmp_path: Path, x: BuiltFabric) -> None:
    """The cable list and NetBox's import and export are equal to the design, whichever end comes first.

    NetBox's table of cables has headings in words; ports may bear a label, and other equipment is none of it.
    """
    (tmp_path / "own.csv").write_text("".join(cable_list(x)))
    (tmp_path / "netbox.csv").write_text("".join(netbox_files(x)["cables.csv"]()))
    written(tmp_path / "turned.csv", [row[2:] + row[:2] for row in ends(x)])
    columns = ("label", "side_a_name", "side_b_name", "side_a_device", "side_b_device")
    exported = [[r[c] for c in columns] for r in netbox_rows(x, "cables.csv")]
    exported[3][1] += " (rail 3)"
    exported.append(["m1", "mgmt0", "1", "e1-leaf-0-0", "mgmt-switch"])
    for mark, name in ((",", "comma.csv"), (";", "semicolon.csv")):
        head = ["Label", "Termination A", "Termination B", "Device A", "Device B"]
        with (tmp_path / name).open("w") as file:
            csv.writer(file, delimiter=mark).writerows([head, *exported])
    for path in tmp_path.iterdir():
        assert differences(path, x)[1] == []


@pytest.mark.parametrize("seed", range(12))
def test_differences_are_those_of_the_sets(tmp_path: Path, seed: int) -> None:
    """Cables swapped, moved, taken out and added at random: the same differences as of sets of named pairs."""
    rng, x = random.Random(seed), (E1, SPLIT)[seed % 2]
    planned = ends(x)
    built = [list(row) for row in planned]
    for _ in range(rng.randrange(4)):
        a, b = rng.sample(built, 2)
        a[2:], b[2:] = b[2:], a[2:]
    for _ in range(rng.randrange(3)):
        built.remove(rng.choice(built))
    for n in range(rng.randrange(3)):
        rng.choice(built)[2:] = ["elsewhere", str(n)]
    for n in range(rng.randrange(3)):
        rng.choice(built)[3] = str(x.design.ports + n)
    again = [rng.choice(planned)[:2] + rng.choice(planned)[2:] for _ in range(rng.randrange(3))]
    built += again
    if rng.random() < 0.5:
        built.append(["leaf-0-0", str(x.design.ports - 1), "leaf-0-1", str(x.design.ports - 1)])
    rng.shuffle(built)
    found = differences(written(tmp_path / "x.csv", built), x)[1]
    listed: dict[str, list[frozenset[str]]] = {kind: [] for kind in ("missing", "extra", "moved", "doubled", "swapped")}
    meant = set()
    for line in found:
        kind, text = line.split(maxsplit=1)
        for cable in text.partition(" (")[0].split(" and "):
            listed[kind].append(frozenset(cable.split(" -- ")))
        if kind in ("moved", "doubled"):
            cables = [frozenset(cable.split(" -- ")) for cable in text.split("; planned ")[1:]]
            assert kind == "doubled" or len(cables) == 1
            meant |= set(cables)
    old, new = Counter(map(pair, planned)), Counter(map(pair, built))
    is_new = Counter(chain.from_iterable(listed[kind] for kind in listed if kind != "missing"))
    assert is_new == new - old
    assert set(listed["missing"]) | meant <= (old - new).keys()
    assert len(listed["missing"]) + len(listed["swapped"]) + len(meant) == (old - new).total()
    ports = Counter(end for row in built for end in pair(row) if not end.startswith("elsewhere"))
    assert bool(listed["doubled"]) == (max(ports.values()) > 1)


def checked(folder: Path, rows: list[Ends], *options: str) -> tuple[int, str]:
    """Check cables against the worked plan, and return the status of the command and what it prints."""
    ran = command(folder, "check", written(folder / "built.csv", rows), "--site", "e1", *options)
    return ran.exit_code, ran.output


def test_differences_are_told_line_by_line(tmp_path: Path) -> None:
    """The command prints what differs, with the lines of the file, and ends with status 1; else with 0.

    Two swapped cables are one slip. A cable of which one end and the other switch are as planned is moved, and not
    missing and extra. Of two cables at a port the planned one has it. A long list is counted.
    """
    rows = ends(E1)
    assert checked(tmp_path, rows) == (0, f"e1: all {len(rows)} cables are as designed\n")
    rows[0][2:], rows[1][2:] = rows[1][2:], rows[0][2:]
    swapped = "r0-gpu0:0 -- leaf-0-1:0 and r0-gpu1:0 -- leaf-0-0:0 (lines 2 and 3); planned r0-gpu0:0 -- leaf-0-0:0"
    assert checked(tmp_path, rows) == (1, f"e1: 2 cables differ: 2 swapped\nswapped  {swapped}\n")
    rows, free = ends(E1), str(E1.design.ports + 1)
    rows[0][3] = free
    del rows[5]
    status, said = checked(tmp_path, rows)
    first, _, moved = said.splitlines()
    assert (status, first) == (1, "e1: 2 cables differ: 1 missing, 1 moved")
    assert moved == f"moved    r0-gpu0:0 -- leaf-0-0:{free} (line 2); planned r0-gpu0:0 -- leaf-0-0:0"
    rows = ends(E1)
    rows[8][3] = "0"
    rows[9][2:] = rows[2][2:]
    told = [
        "e1: 3 cables differ: 1 missing, 2 doubled",
        "missing  r2-gpu1:0 -- leaf-0-1:2",
        "doubled  r2-gpu0:0 -- leaf-0-0:0 (line 2): port leaf-0-0:0 has a cable already, of line 4; "
        "planned r2-gpu0:0 -- leaf-0-0:2",
        "doubled  r2-gpu1:0 -- leaf-0-2:0 (line 3): port leaf-0-2:0 has a cable already, of line 6",
    ]
    assert checked(tmp_path, [*rows[8:10], *rows[:8], *rows[10:]]) == (1, "\n".join(told) + "\n")
    assert checked(tmp_path, [*ends(E1), ends(E1)[0]])[1].splitlines()[0] == "e1: 1 cable differs: 1 doubled"
    looped = checked(tmp_path, [*ends(E1)[1:], ["r0-gpu0", "0", "r0-gpu0", "0"]])[1]
    assert looped.splitlines()[0] == "e1: 2 cables differ: 1 missing, 1 doubled"
    first, *_, last = lines = checked(tmp_path, ends(E1)[:1], "--show", "2")[1].splitlines()
    assert (first, last, len(lines)) == ("e1: 55 cables differ: 55 missing", "and 53 more", 4)


@each(("text", "message"), [
    ("a,b\n1,2\n", "line 1: has no columns from, from_port, to, to_port of a cable list"),
    ("", "line 1: has no columns"),
    (f"{HEADER}\nr0-gpu0,0,leaf-0-0\n", "line 2: has 3 cells where the header has 4; add or remove"),
    (f"{HEADER}\na,0,b,0\n", "none of its 1 cable is at a port of the fabric of e1, such as r0-gpu0:0"),
    (f'{HEADER}\n"a"b,0,b,0\n', "line 2: ',' expected after"),
    (f'{HEADER}\na,0,b,0\na,0,"b,0\na,0,b,0\n', "line 3: unexpected end of data; correct the quotes there"),
])  # fmt: skip
def test_a_bad_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=r"x\.csv") as refused:
        differences(tmp_path / "x.csv", E1)
    assert message in str(refused.value)


@each("x", [E1, SPLIT, replace(E1, floor=Floor(hosts_per_rack=3))])
def test_every_cable_ends_at_an_interface_of_its_own(x: BuiltFabric) -> None:
    """Interfaces are those of a device's type and those of the table, each once; no two cables share one."""
    types = {}
    for name, pieces in netbox_files(x).items():
        if name.startswith("device-types/"):
            t = yaml.safe_load("".join(pieces()))
            assert {"manufacturer", "model", "slug", "u_height", "is_full_depth"} <= set(t)
            assert re.fullmatch(r"[-a-z0-9_]+", t["slug"])
            assert t["u_height"] == ("gpu" not in name)
            types[t["model"]] = [i["name"] for i in t.get("interfaces", ())]
    devices = netbox_rows(x, "devices.csv")
    assert set(devices[0]) == DEVICE
    standing = Counter(d["rack"] for d in devices if d["rack"])
    assert list(standing) == [r["name"] for r in netbox_rows(x, "racks.csv")]
    assert max(standing.values()) == x.floor.hosts_per_rack
    made = Counter((d["name"], port) for d in devices for port in types[d["device_type"]])
    made += Counter((i["device"], i["name"]) for i in netbox_rows(x, "interfaces.csv"))
    assert set(made.values()) == {1}
    cables = netbox_rows(x, "cables.csv")
    assert set(cables[0]) == CABLE
    used = Counter((c[f"side_{s}_device"], c[f"side_{s}_name"]) for c in cables for s in "ab")
    assert set(used.values()) == {1} and set(used) <= set(made)
    assert len(cables) == x.design.endpoint_links + x.design.switch_links
    assert len({c["label"] for c in cables}) == len(cables)
    # The cable list has the labels, and the lane of either end.
    listed = table(cable_list(x))
    assert all(r["label"] == f"{r['from']}:{r['from_port']}--{r['to']}:{r['to_port']}" for r in listed)
    assert all("gpu" not in r["from"] or r["lane"] == r["from_port"] for r in listed)
    lanes = {(r[end], r["lane"]) for r in listed for end in ("from", "to") if "gpu" not in r[end]}
    assert len(dict(lanes)) == len(lanes)
    assert set(Counter(r["lane"] for r in listed).values()) == {len(listed) // x.design.lanes}
    # GPUs take no unit of their rack.
    assert {r["u_height"] for r in netbox_rows(x, "racks.csv")} == {"42"}
    assert {(d["position"], d["face"]) for d in devices} == {("", "")}


def at_rates(x: BuiltFabric, port_gbps: float, nic_gbps: float) -> BuiltFabric:
    """Return a fabric with other rates of a switch's ports and of a NIC's lane."""
    design = replace(x.design, nic_gbps=nic_gbps, link_gbps=port_gbps)
    return replace(x, switch=x.switch.replaced(port_gbps=port_gbps), design=design)


def test_cages_are_of_the_rate_in_their_name() -> None:
    """NetBox names a cage by its rate: 400gbase is 400 Gb/s, 1.6tbase 1,600; a rate that it has none of is other.

    A port of 400 Gb/s split in two has parts of 200; a NIC has its own rate, whatever the port's.
    """
    for gbps, cage in fabric_parts.CAGES.items():
        number, unit = re.fullmatch(r"([\d.]+)(g|t)base-.*", cage).groups()
        assert float(number) * {"g": 1, "t": 1000}[unit] == gbps
        assert {r["type"] for r in netbox_rows(at_rates(E1, 400, gbps), "interfaces.csv")} == {cage}
    assert {r["type"] for r in netbox_rows(E1, "interfaces.csv")} == {"other"}
    split = at_rates(SPLIT, 400, 200)
    interfaces = netbox_rows(split, "interfaces.csv")
    assert {"gpu" in r["name"] for r in interfaces} == {True, False}
    assert {r["type"] for r in interfaces} == {"200gbase-x-qsfp56"}
    box = yaml.safe_load("".join(netbox_files(split)["device-types/box.yaml"]()))
    assert {p["type"] for p in box["interfaces"]} == {"400gbase-x-osfp"}


def test_a_folder_and_a_zip_hold_the_same(tmp_path: Path) -> None:
    write_netbox(tmp_path / "netbox", E1)
    for name in ("a.zip", "b.zip"):
        write_netbox(tmp_path / name, E1)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == list(netbox_files(E1))
        for name in archive.namelist():
            assert archive.read(name) == (tmp_path / "netbox" / name).read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot be written"):
        write_netbox(tmp_path / "file", E1)


@each("by_pod", [False, True])
def test_graphviz_reads_the_graph(by_pod: bool) -> None:
    """Lines are the edges, upward; a tier is a row; racks say how many GPUs they hold, and pods how many switches."""
    g = fabric_graph.graph(E1, by_pod=by_pod)
    text = "".join(fabric_graph.dot(g))
    drawn = re.findall(r'^  "(\S+)" -- "(\S+)" \[label="(\d+)"', text, re.MULTILINE)
    assert {frozenset(e[:2]): int(e[2]) for e in drawn} == {frozenset((a, b)): n for a, b, n in g.edges(data="cables")}
    upward = ["racks", "leaf", "spine", "core"].index
    assert all(upward(g.nodes[a]["tier"]) < upward(g.nodes[b]["tier"]) for a, b, _ in drawn)
    rows = [set(re.findall(r'"(\S+)";', x)) for x in re.findall(r"^  \{ rank=same; (.*) \}$", text, re.MULTILINE)]
    tiers = ("leaf", "spine", "core", "racks")
    assert rows == [{n for n, own in g.nodes(data="tier") if own == tier} for tier in tiers]
    holds = {n: f"{own} GPUs" for n, own in g.nodes(data="gpus") if own}
    holds |= {n: f"x {own}" for n, own in g.nodes(data="switches") if own and own > 1}
    assert dict(re.findall(r'^  "(\S+)" \[label="\1\\n(.*)"\];$', text, re.MULTILINE)) == holds
    assert ("32 GPUs" in holds.values()) == (len(holds) > len(rows[3])) == by_pod
    if shutil.which("dot"):
        ran = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
        assert ran.stdout.count('class="edge"') == g.number_of_edges()
