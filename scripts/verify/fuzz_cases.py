"""What the fuzzer starts from and how it changes it: small sound files, the commands that read them, mutations."""

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from import_cases import TEXTS
from sweep_rows import row
from worked_plan import small

from planner.exports.fabric_parts import built_fabric, cable_list

ROOT = Path(__file__).parents[2]
PLAN = small().model_dump_json(indent=1)
CONF = (
    "# a cluster\nSwitchName=leaf1 Nodes=n[01-08]\nSwitchName=leaf2 Nodes=n[09-16]\nSwitchName=top Switches=leaf[1-2]\n"
)
BLOCKS = "BlockName=b1 Nodes=n[01-04]\nBlockName=b2 Nodes=n[05-08]\nBlockSizes=4,8\n"
YAML = """\
---
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: leaf1
        nodes: n[01-08]
      - switch: leaf2
        nodes: n[09-16]
      - switch: top
        children: leaf[1-2]
- topology: blocks
  block:
    block_sizes: [4, 8]
    blocks:
      - block: b1
        nodes: n[01-04]
      - block: b2
        nodes: n[05-08]
"""
GRAPH = json.dumps(
    {"instances": [{"id": f"n{i:02d}", "network_layers": [f"leaf{i // 8}", "top"]} for i in range(1, 17)]}, indent=1
)
LEAF, SPINE = "network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"
KUBERNETES = json.dumps(
    {
        "items": [
            {
                "kind": "Node",
                "metadata": {"name": f"n{i:02d}", "labels": {LEAF: f"leaf{i // 8}", SPINE: "top"}},
                "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            for i in range(1, 9)
        ]
    },
    indent=1,
)
STATES = {
    "states.txt": "n[01-08] idle\nn09 alloc\nn[10-15] mix\nn16 down*\n",
    "sinfo.json": json.dumps(
        {"sinfo": [{"nodes": {"nodes": [f"n{i:02d}" for i in range(1, 9)]}, "node": {"state": ["IDLE"]}}]}, indent=1
    ),
    "scontrol.json": json.dumps({"nodes": [{"name": f"n{i:02d}", "state": ["IDLE"]} for i in range(1, 9)]}, indent=1),
}
MESH = {
    "name": "a",
    "mesh": {"pipeline": 2, "data": 3},
    "gpus_per_node": 8,
    "traffic_bytes_per_step": {"data": 1e9},
}
GROUPS = {"name": "b", "groups": [{"name": "x", "size": 3, "count": 2}, {"name": "y", "size": 2, "count": 1}]}
FABRIC = {"hosts": 32, "ports_per_switch": 8, "tiers": 3, "host_gbps": 400, "oversubscription": [1.0, 2.0]}
ROWS = [row(b) for b in (20, 50, 90)]
JOURNAL = "".join(json.dumps(r) + "\n" for r in ROWS)
PINS = [
    "layout.tensor_parallel=2",
    "layout.pipeline_parallel=6",
    "layout.data_parallel=6",
    "layout.zero_stage=1",
    "layout.microbatch_sequences=1",
    "layout.recompute=full",
    "layout.microbatches_per_step=12",
]
PLACE = ["place", "--time-limit", "0.2", "--format", "json"]
AT = ["--at", "40,-75"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A sound file, and the command that reads it: @ stands for the file, other files are beside it."""

    group: str
    file: str
    text: str
    command: tuple[str, ...]


def _instances() -> list[Subject]:
    evaluate = ["evaluate", "@", *(word for pin in PINS for word in ("--pin", pin))]
    into = ["grid", "import", "case4.m", *AT, "--into", "@"]
    evaluated = ("one-rack", "cluster-1k", "two-sites-405b", "limits-h100", "5gw-fibre", "agache2024-50t")
    given = [(name, evaluate) for name in evaluated] + [(n, into) for n in ("two-sites-405b", "5gw-fibre", "two-pools")]
    return [
        Subject("instance", f"{n}.json", (ROOT / "instances" / f"{n}.json").read_text(encoding="utf-8"), tuple(command))
        for n, command in given
    ]


def _plans() -> list[Subject]:
    commands = (
        ["check", "@"],
        ["check", "@"],
        ["show", "@"],
        ["simulate", "@", "--pattern", "allreduce"],
        ["topology", "@", "--format", "conf"],
        [*PLACE, "--topology", "topology.conf", "--job", "@"],
        ["compare", "@", "plan.json"],
        ["report", "@", "-o", "page.html"],
        *(
            ["fabric", "export", "@", "--site", "e1", "--format", f, "-o", f"out-{f}"]
            for f in ("csv", "bom", "graphml", "dot", "svg", "netbox", "failure-domains")
        ),
        ["fabric", "export", "@", "--site", "e1", "--format", "slurm-yaml", "-o", "out"],
    )
    return [Subject("plan", "p.json", PLAN, tuple(c)) for c in commands]


def _clusters() -> list[Subject]:
    texts = {"t.conf": CONF, "b.conf": BLOCKS, "t.yaml": YAML, "g.json": GRAPH, "k.json": KUBERNETES}
    forms = ("conf", "yaml", "kueue", "volcano")
    write = [Subject("topology", f, t, ("topology", "@", "--format", w)) for f, t in texts.items() for w in forms]
    place = [Subject("topology", f, t, (*PLACE, "--topology", "@", "--job", "job.json")) for f, t in texts.items()]
    states = [
        Subject("states", f, t, (*PLACE, "--topology", "topology.conf", "--job", "job.json", "--state", "@"))
        for f, t in STATES.items()
    ]
    jobs = [
        Subject("job", "j.json", json.dumps(j, indent=1), (*PLACE, "--topology", "topology.conf", "--job", "@"))
        for j in (MESH, GROUPS)
    ]
    running = (*PLACE, "--topology", "topology.conf", "--job", "job.json", "--running", "@", "--replace", "n01")
    return [*write, *place, *states, *jobs, Subject("placement", "r.json", "", running)]


def _tables() -> list[Subject]:
    grid = ["grid", "import"]
    names = {"case4.m": [*AT], "plants.csv": [], "zones.csv": [], "bus.csv": ["branch.csv", "gen.csv"]}
    cases = [Subject("grid", f"x-{n}", TEXTS[n], (*grid, "@", *more)) for n, more in names.items()]
    beside = {"branch.csv": ["bus.csv", "gen.csv"], "interfaces.csv": ["zones.csv"], "peaks.csv": ["plants.csv"]}
    cases += [Subject("grid", f"x-{n}", TEXTS[n], (*grid, "@", *more)) for n, more in beside.items()]
    positions = (*grid, "case4.m", *AT, "--positions", "@")
    cases.append(Subject("grid", "x-positions.csv", TEXTS["positions.csv"], positions))
    flows = Subject("flows", "f.csv", "src,dst,bytes\n0,1,1e6\n1,2,5\n", ("simulate", "fabric.json", "--pattern", "@"))
    fabric = Subject("fabric", "f.json", json.dumps(FABRIC, indent=1), ("simulate", "@"))
    axes = ("-x", "limits.budget_usd", "-y", "layout.metrics.days_to_train", "-o", "plot.svg")
    rows = [Subject("rows", "rows.jsonl", JOURNAL, ("plot", "@", *axes))]
    table = "index,key,hardware.racks,status,objective.value,reason\n0,a,1,optimal,2.5,\n1,b,2,infeasible,,no budget\n"
    rows.append(Subject("rows", "table.csv", table, ("compare", "@")))
    listed = "".join(cable_list(built_fabric(small(), "e1")))
    cables = Subject("cables", "built.csv", listed, ("fabric", "check", "plan.json", "@", "--site", "e1"))
    return [*cases, flows, fabric, fabric, *rows, cables]


SUBJECTS: Sequence[Subject] = (*_instances(), *_plans(), *_plans(), *_clusters(), *_tables())
BESIDE = {
    **TEXTS,
    "topology.conf": CONF,
    "job.json": json.dumps(MESH),
    "plan.json": PLAN,
    "fabric.json": json.dumps(FABRIC),
}

VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 0.5, -0.5, 1e-300, 1e308, -1e308, 1e30, 2**31, 2**63, 10**20, 10**290, 1e-9),
    *(
        True,
        False,
        None,
        "",
        " ",
        "x",
        "x" * 1_000,
        "0",
        "1e400",
        "nan",
        "n[1-4]",
        "n[1-999999999]",
        "[",
        "\u2028",
        "\0",
    ),
    *([], {}, [[]], [None], {"a": 1}, "e1", "../../etc/passwd", "-5", "=1+1"),
)
TOKENS: tuple[bytes, ...] = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b'"', b"'", b"[", b"]", b"{", b"}", b",", b":", b"#", b"%"),
    *(b"=", b"...", b"%{", b"NaN", b"Infinity", b"-1", b"0", b"1e999", b"9" * 400, b"[1-99999999]", b"[" * 2_000),
    *(
        "\u2028".encode(),
        "\u0085".encode(),
        b"\\ud800",
        b"&a",
        b"*a",
        b"!!x",
        b"\xff\xfe",
        b"null",
        b"Nodes=",
        b"1e308",
    ),
)


def mutated(subject: Subject, r: random.Random) -> bytes:
    """Return the file of a subject with one to four changes of bytes, lines, JSON values or JSON structure."""
    data = subject.text.encode()
    kinds: list[Callable[[bytes, random.Random], bytes]] = [_bytes, _lines]
    if subject.text[:1] in "{[" and subject.file.endswith("json"):
        kinds = [_bytes, _value, _value, _value, _structure, _structure]
    for _ in range(r.choice((1, 1, 1, 2, 3, 4))):
        data = r.choice(kinds)(data, r)
    return data


def _bytes(data: bytes, r: random.Random) -> bytes:
    """Cut, repeat, insert, overwrite or truncate a piece."""
    at = r.randrange(len(data) + 1)
    end = min(len(data), at + r.choice((1, 1, 2, 8, 64, 512)))
    change = r.randrange(5)
    if change == 0:
        return data[:at] + data[end:]
    if change == 1:
        return data[:end] + data[at:end] * r.choice((1, 2, 50)) + data[end:]
    if change == 2:
        return data[:at] + r.choice(TOKENS) + data[at:]
    if change == 3:
        return data[:at] + r.randbytes(end - at) + data[end:]
    return data[:at]


def _lines(data: bytes, r: random.Random) -> bytes:
    """Remove, repeat or exchange lines, or replace a word of one."""
    lines = data.split(b"\n")
    i, j = r.randrange(len(lines)), r.randrange(len(lines))
    change = r.randrange(4)
    if change == 0:
        del lines[i]
    elif change == 1:
        lines.insert(j, lines[i])
    elif change == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        mark = r.choice((b",", b" ", b"\t", b"="))
        words = lines[i].split(mark)
        words[r.randrange(len(words))] = str(r.choice(VALUES)).encode()
        lines[i] = mark.join(words)
    return b"\n".join(lines)


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Return every place of JSON data as a holder and a key or an index."""
    places: list[tuple[Any, Any]] = []
    left = [data]
    while left:
        x = left.pop()
        keys: list[Any] = list(x) if isinstance(x, dict) else list(range(len(x))) if isinstance(x, list) else []
        places += [(x, k) for k in keys]
        left += [x[k] for k in keys]
    return places


def _json_changed(data: bytes, r: random.Random, change: Callable[[Any, list[tuple[Any, Any]]], None]) -> bytes:
    """Change parsed JSON; bytes that are none any more are changed as bytes."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return _bytes(data, r)
    places = _places(parsed)
    if not places:
        return _bytes(data, r)
    change(parsed, places)
    return json.dumps(parsed, indent=1).encode()


def _value(data: bytes, r: random.Random) -> bytes:
    """Replace a value, a number now and then by one near it."""

    def change(_: Any, places: list[tuple[Any, Any]]) -> None:
        leaves = [(h, k) for h, k in places if not isinstance(h[k], (dict, list))]
        holder, key = r.choice(leaves or places)
        now = holder[key]
        if isinstance(now, (int, float)) and r.random() < 0.75:
            near = (now + 1, now - 1, now * 2, -now, now * 10**6, now * 10**15, now // 2, now * 1e-6, now / 3)
            kind = float if isinstance(now, float) else int
            far = [v for v in VALUES if type(v) is kind]
            holder[key] = r.choice((*near, *far))
        elif isinstance(now, str) and r.random() < 0.6:
            holder[key] = r.choice([h[k] for h, k in leaves if isinstance(h[k], str)])
        else:
            holder[key] = r.choice(VALUES)

    return _json_changed(data, r, change)


def _structure(data: bytes, r: random.Random) -> bytes:
    """Remove, rename, repeat, exchange or nest a part."""

    def change(_: Any, places: list[tuple[Any, Any]]) -> None:
        (holder, key), (other, there) = r.choice(places), r.choice(places)
        kind = r.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        elif kind == 2 and isinstance(holder, list):
            holder.extend(json.loads(json.dumps(holder[key])) for _ in range(r.choice((1, 3, 40))))
        elif kind == 3:
            holder[key] = json.loads(json.dumps(other[there]))
        elif kind == 4:
            holder[key] = [holder[key]]
        else:
            holder[key] = r.choice(([], {}, None))

    return _json_changed(data, r, change)
