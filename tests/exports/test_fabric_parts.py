"""Cables as built against a design, counted by other means; NetBox's files are as its importer asks."""

import csv
import io
import random
import re
import shutil
import subprocess
import zipfile
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import yaml
from commands import invoke
from each_case import each
from worked_plan import small

from planner.errors import InputError
from planner.exports import fabric_graph, fabric_parts
from planner.exports.fabric_parts import (
    BuiltFabric,
    built_fabric,
    cable_list,
    differences,
    netbox_files,
    write_netbox,
)
from planner.instance.network import Floor

E1 = built_fabric(small(), "e1")
# Rows of fields of NetBox's CableImportForm, DeviceImportForm and InterfaceImportForm, those required first.
CABLE = {"side_a_type", "side_a_name", "side_b_type", "side_b_name"}
CABLE |= {"side_a_device", "side_b_device", "type", "status", "label", "color", "length", "length_unit"}
DEVICE = {"name", "role", "manufacturer", "device_type", "status", "site"} | {"location", "rack", "position", "face"}
ODD = replace(E1, site='=1+2, "x"')
SPLIT = replace(E1, design=replace(E1.design, split=2, lanes=2))
Ends = list[str]  # from, from_port, to, to_port


def rows(x: BuiltFabric, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(netbox_files(x)[name]()))))


def ends(x: BuiltFabric) -> list[Ends]:
    """Return the cables of a fabric, their ends alone."""
    return [row[:4] for row in list(csv.reader(io.StringIO("".join(cable_list(x)))))[1:]]


def written(path: Path, rows: list[Ends], header: str = "from,from_port,to,to_port") -> Path:
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
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
    exported = [[r[c] for c in columns] for r in rows(x, "cables.csv")]
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
    """Run the command on the worked plan, and return its status and what it prints."""
    plan = folder / "plan.json"
    plan.write_text(small().model_dump_json())
    table = written(folder / "built.csv", rows)
    ran = invoke("fabric", "check", plan, table, "--site", "e1", *options)
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
    twice = checked(tmp_path, [*ends(E1), ends(E1)[0]])[1]
    assert twice.splitlines()[0] == "e1: 1 cable differs: 1 doubled"
    looped = checked(tmp_path, [*ends(E1)[1:], ["r0-gpu0", "0", "r0-gpu0", "0"]])[1]
    assert looped.splitlines()[0] == "e1: 2 cables differ: 1 missing, 1 doubled"
    first, *_, last = lines = checked(tmp_path, ends(E1)[:1], "--show", "2")[1].splitlines()
    assert (first, last, len(lines)) == ("e1: 55 cables differ: 55 missing", "and 53 more", 4)


HEADER = "from,from_port,to,to_port\n"


@each(("text", "message"), [
    ("a,b\n1,2\n", "line 1: has no columns from, from_port, to, to_port of a cable list"),
    ("", "line 1: has no columns"),
    (f"{HEADER}r0-gpu0,0,leaf-0-0\n", "line 2: has 3 cells where the header has 4; add or remove"),
    (f"{HEADER}a,0,b,0\n", "none of its 1 cable is at a port of the fabric of e1, such as r0-gpu0:0"),
    (f'{HEADER}"a"b,0,b,0\n', "line 2: ',' expected after"),
    (f'{HEADER}a,0,b,0\na,0,"b,0\na,0,b,0\n', "line 3: unexpected end of data; correct the quotes there"),
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
    # The cable list has the labels, and the lane of either end.
    listed = list(csv.DictReader(io.StringIO("".join(cable_list(x)))))
    assert all(r["label"] == f"{r['from']}:{r['from_port']}--{r['to']}:{r['to_port']}" for r in listed)
    assert all("gpu" not in r["from"] or r["lane"] == r["from_port"] for r in listed)
    lanes = {(r[end], r["lane"]) for r in listed for end in ("from", "to") if "gpu" not in r[end]}
    assert len(dict(lanes)) == len(lanes)
    assert set(Counter(r["lane"] for r in listed).values()) == {len(listed) // x.design.lanes}
    # GPUs take no unit of their rack.
    assert {r["u_height"] for r in rows(x, "racks.csv")} == {"42"}
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
        assert {r["type"] for r in rows(at_rates(E1, 400, gbps), "interfaces.csv")} == {cage}
    assert {r["type"] for r in rows(E1, "interfaces.csv")} == {"other"}
    split = at_rates(SPLIT, 400, 200)
    interfaces = rows(split, "interfaces.csv")
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
