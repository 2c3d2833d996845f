"""Files for NetBox hold what its importer asks for, and every cable ends at an interface that they make."""

import csv
import io
import re
import shutil
import subprocess
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import yaml
from commands import invoke, refusal
from each_case import each
from worked_plan import small

from planner.exports import fabric_graph, fabric_parts
from planner.exports.fabric_parts import (
    BuiltFabric,
    built_fabric,
    cable_list,
    end_of,
    interface_of,
    netbox_files,
    write_netbox,
)
from planner.instance.network import Floor

E1 = built_fabric(small(), "e1")
# Rows of fields of NetBox's CableImportForm, DeviceImportForm and InterfaceImportForm, those required first.
CABLE = {"side_a_type", "side_a_name", "side_b_type", "side_b_name"}
CABLE |= {"side_a_device", "side_b_device", "type", "status", "label", "color", "length", "length_unit"}
DEVICE = {"name", "role", "manufacturer", "device_type", "status", "site"} | {"location", "rack", "position", "face"}


def split_in_two(x: BuiltFabric) -> BuiltFabric:
    """Return a fabric whose leaves' ports are split for two NICs of two lanes."""
    return replace(x, design=replace(x.design, split=2, lanes=2))


def rows(x: BuiltFabric, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(netbox_files(x)[name]()))))


@each("x", [E1, split_in_two(E1), replace(E1, floor=Floor(hosts_per_rack=3))])
def test_every_cable_ends_at_an_interface_of_its_own(x: BuiltFabric) -> None:
    """Interfaces are those of a device's type and those of the table, each once; no two cables share one."""
    types = {}
    for name, pieces in netbox_files(x).items():
        if name.startswith("device-types/"):
            t = yaml.safe_load("".join(pieces()))
            assert {"manufacturer", "model", "slug", "u_height", "is_full_depth"} <= set(t)
            assert re.fullmatch(r"[-a-z0-9_]+", t["slug"])
            types[t["model"]] = [i["name"] for i in t.get("interfaces", ())]
    devices = rows(x, "devices.csv")
    assert set(devices[0]) == DEVICE
    standing = Counter(d["rack"] for d in devices if d["rack"])
    assert list(standing) == [r["name"] for r in rows(x, "racks.csv")]
    assert max(standing.values()) == x.floor.hosts_per_rack
    made = Counter((d["name"], port) for d in devices for port in types[d["device_type"]])
    made += Counter((i["device"], i["name"]) for i in rows(x, "interfaces.csv"))
    assert set(made.values()) == {1}
    cables = rows(x, "cables.csv")
    assert set(cables[0]) == CABLE
    used = Counter((c[f"side_{s}_device"], c[f"side_{s}_name"]) for c in cables for s in "ab")
    assert set(used.values()) == {1} and set(used) <= set(made)
    assert len(cables) == x.design.endpoint_links + x.design.switch_links
    assert len({c["label"] for c in cables}) == len(cables)


def test_cable_list_has_lanes_and_labels() -> None:
    x = split_in_two(E1)
    listed = list(csv.DictReader(io.StringIO("".join(cable_list(x)))))
    assert all(r["label"] == f"{r['from']}:{r['from_port']}--{r['to']}:{r['to_port']}" for r in listed)
    lanes: dict[str, set[str]] = {}
    for r in listed:
        for end in ("from", "to"):
            if "gpu" not in r[end]:
                lanes.setdefault(r[end], set()).add(r["lane"])
        assert "gpu" not in r["from"] or r["lane"] == r["from_port"]
    assert all(len(own) == 1 for own in lanes.values())
    assert Counter(r["lane"] for r in listed) == {lane: len(listed) // 2 for lane in "01"}


def at_rates(x: BuiltFabric, port_gbps: float, nic_gbps: float) -> BuiltFabric:
    """Return a fabric with other rates of a switch's ports and of a NIC's lane."""
    design = replace(x.design, nic_gbps=nic_gbps, link_gbps=port_gbps)
    return replace(x, switch=x.switch.replaced(port_gbps=port_gbps), design=design)


def test_parts_of_a_split_port_have_a_cage_at_their_own_rate() -> None:
    """A port of 400 Gb/s split in two has parts of 200; a NIC has its own rate, whatever the port's."""
    split = at_rates(split_in_two(E1), 400, 200)
    for nic, cage in ((400, "400gbase-x-osfp"), (100, "100gbase-x-qsfp28")):
        assert {r["type"] for r in rows(at_rates(E1, 400, nic), "interfaces.csv")} == {cage}
    interfaces = rows(split, "interfaces.csv")
    assert {"gpu" in r["name"] for r in interfaces} == {True, False}
    assert {r["type"] for r in interfaces} == {"200gbase-x-qsfp56"}
    box = yaml.safe_load("".join(netbox_files(split)["device-types/box.yaml"]()))
    assert {p["type"] for p in box["interfaces"]} == {"400gbase-x-osfp"}


def test_cages_are_of_the_rate_in_their_name() -> None:
    """NetBox names a cage by its rate: 400gbase is 400 Gb/s, 1.6tbase 1,600; a rate that it has none of is other."""
    for gbps, cage in fabric_parts.CAGES.items():
        number, unit = re.fullmatch(r"([\d.]+)(g|t)base-.*", cage).groups()
        assert float(number) * {"g": 1, "t": 1000}[unit] == gbps
        assert {r["type"] for r in rows(at_rates(E1, gbps, gbps), "interfaces.csv")} == {cage}
    assert {r["type"] for r in rows(E1, "interfaces.csv")} == {"other"}


def test_gpus_take_no_unit_of_their_rack() -> None:
    types = {n: "".join(pieces()) for n, pieces in netbox_files(E1).items() if n.startswith("device-types/")}
    heights = {Path(name).stem: yaml.safe_load(text)["u_height"] for name, text in types.items()}
    assert heights == {"box": 1, "gpu-rack-of-4": 0}
    assert {r["u_height"] for r in rows(E1, "racks.csv")} == {"42"}
    assert {(d["position"], d["face"]) for d in rows(E1, "devices.csv")} == {("", "")}


@each(("name", "port"), [("r00-gpu3", "1"), ("leaf-0-0", "7"), ("leaf-0-0", "7/1")])
def test_interfaces_turn_back_into_ends(name: str, port: str) -> None:
    assert end_of(*interface_of(name, port)) == (name, port)


def test_a_folder_and_a_zip_hold_the_same(tmp_path: Path) -> None:
    write_netbox(tmp_path / "netbox", E1)
    for name in ("a.zip", "b.zip"):
        write_netbox(tmp_path / name, E1)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == list(netbox_files(E1))
        for name in archive.namelist():
            assert archive.read(name) == (tmp_path / "netbox" / name).read_bytes()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "netbox").write_text("")
    (tmp_path / "plan.json").write_text(small().model_dump_json())
    options = ["--site", "e1", "--format", "netbox", "-o", str(tmp_path / "netbox")]
    assert "netbox: cannot be written" in refusal(invoke("fabric", "export", tmp_path / "plan.json", *options))


@each("by_pod", [False, True])
def test_graphviz_reads_the_graph(by_pod: bool) -> None:
    g = fabric_graph.graph(E1, by_pod=by_pod)
    text = "".join(fabric_graph.dot(g))
    drawn = re.findall(r'^  "(\S+)" -- "(\S+)" \[label="(\d+)"', text, re.MULTILINE)
    assert {frozenset(e[:2]): int(e[2]) for e in drawn} == {frozenset((a, b)): n for a, b, n in g.edges(data="cables")}
    upward = ["racks", "leaf", "spine", "core"].index
    assert all(upward(g.nodes[a]["tier"]) < upward(g.nodes[b]["tier"]) for a, b, _ in drawn)
    if shutil.which("dot"):
        ran = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
        assert ran.stdout.count('class="edge"') == g.number_of_edges()


@each("by_pod", [False, True])
def test_a_tier_is_a_row_of_the_drawing(by_pod: bool) -> None:
    g = fabric_graph.graph(E1, by_pod=by_pod)
    lines = re.findall(r"^  \{ rank=same; (.*) \}$", "".join(fabric_graph.dot(g)), re.MULTILINE)
    drawn = [set(re.findall(r'"(\S+)";', line)) for line in lines]
    tiers = "leaf", "spine", "core", "racks"
    assert drawn == [{n for n, own in g.nodes(data="tier") if own == tier} for tier in tiers]


def test_a_drawing_says_how_much_a_node_stands_for() -> None:
    """Racks say how many GPUs they hold and pods how many switches; a switch alone has its name and no more."""
    by_switch, by_pod = (fabric_graph.graph(E1, by_pod=x) for x in (False, True))
    label = re.compile(r'^  "(\S+)" \[label="\1\\n(.*)"\];$', re.MULTILINE)
    holds, pods = (dict(label.findall("".join(fabric_graph.dot(g)))) for g in (by_switch, by_pod))
    assert holds == {n: f"{own} GPUs" for n, own in by_switch.nodes(data="gpus") if own}
    switches = {n: f"x {own}" for n, own in by_pod.nodes(data="switches") if own and own > 1}
    assert pods == switches | {"racks": "32 GPUs"} != {"racks": "32 GPUs"}
