"""Node states: every state has one meaning, and what names no node of the cluster is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cluster import Topology, TopologySwitch
from planner.errors import InputError
from planner.formats.slurm import BUSY, DOWN, FREE, NodeStates, read_states, require_known, states_on

TREE = Topology(switches=(TopologySwitch(name="leaf", nodes=("n1", "n2", "n3", "n4")),))


def _read(directory: Path, text: str) -> NodeStates:
    (directory / "states").write_text(text)
    return read_states(directory / "states")


STATES = {
    FREE: "idle IDLE idle~ idle#",
    BUSY: "alloc allocated mix comp resv plnd mix- alloc~ idle- alloc+",
    DOWN: "down down* drain drng maint idle* idle$ idle% idle! idle@ mix* fail unk futr inval boot^",
}


@pytest.mark.parametrize(
    ("state", "meaning"), [(s, meaning) for meaning, all_s in STATES.items() for s in all_s.split()]
)
def test_each_state_means_one_thing(tmp_path: Path, state: str, meaning: int) -> None:
    """Idle nodes are free though powered off, nodes with work or a promise busy, all others down."""
    found = _read(tmp_path, f"n[1-2] {state}\n")
    assert [len(found.free), len(found.busy), len(found.down)] == [2 * (meaning == m) for m in (FREE, BUSY, DOWN)]


def test_a_node_of_two_partitions_is_as_its_worst(tmp_path: Path) -> None:
    found = _read(tmp_path, "n1 idle\nn1 mix\n\nn2 drain\nn2 idle\nn3 idle\nn3 idle\n")
    assert (found.free, found.busy, found.down) == ({"n3"}, {"n1"}, {"n2"})


def _nodes(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": [{"name": "n1", **first}, {"name": "n2", **second}]}


def _sinfo(*states: list[str]) -> dict[str, Any]:
    return {"sinfo": [{"node": {"state": x}, "nodes": {"nodes": [f"n{i}"]}} for i, x in enumerate(states, 1)]}


def _items(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"items": [{"metadata": {"name": f"n{i}"}, **x} for i, x in enumerate(parts, 1)]}


def _ready(status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


@pytest.mark.parametrize(
    "data",
    [
        _nodes({"state": "idle", "state_flags": ["CLOUD"]}, {"state": "idle", "state_flags": ["DRAIN"]}),
        _nodes({"state": ["IDLE", "CLOUD", "POWERED_DOWN"]}, {"state": ["IDLE", "DRAIN"]}),
        _sinfo(["IDLE"], ["IDLE", "NOT_RESPONDING"]),
        _items({}, {"spec": {"unschedulable": True}}),
        _items(_ready("True"), _ready("Unknown")),
    ],
)
def test_json_of_every_age(tmp_path: Path, data: object) -> None:
    found = _read(tmp_path, json.dumps(data))
    assert (found.free, found.busy, found.down) == ({"n1"}, frozenset(), {"n2"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1 idle\nn2 idel", "line 2: unknown state 'idel'; did you mean 'idle'"),
        ("n1", "line 1: 'n1' must be a hostlist and a state"),
        ("NODELIST STATE\n", "line 1: unknown state 'STATE'"),
        ("n[1-2 idle", r"line 1: 'n\[1-2': a bracket is not closed"),
        ("{}", "must have a list of nodes or sinfo"),
        ('{"nodes": [{"name": "n1"}]}', r"nodes\[0\]: names no node or no state"),
        ('{"sinfo": [3]}', r"sinfo\[0\]: names no node"),
        ('{"sinfo": []}', "names no node; print it"),
        ('{"nodes": []}', "names no node; print it"),
        ('{"sinfo": [{"node": {"state": ["IDLE"]}, "nodes": {"nodes": []}}]}', "names no node; print it"),
        ('{"nodes": [{"name": "n1", "state": []}]}', r"nodes\[0\].state: n1 has no state \(is \[\]\)"),
        ('{"nodes": [{"name": "n1", "state": ""}]}', r"nodes\[0\].state: unknown state ''"),
        ('{"nodes": [{"name": "", "state": "idle"}]}', r"nodes\[0\]: names no node or no state"),
        ('{"items": [{"metadata": {"name": "n1"}, "status": 3}]}', r"items\[0\]\.status: must be an object \(is 3\)"),
        ('{"items": [{"metadata": {"name": "n1"}, "spec": "a"}]}', r"items\[0\]\.spec: must be an object"),
        (
            '{"items": [{"metadata": {"name": "n1"}, "status": {"conditions": 7}}]}',
            r"items\[0\]\.status\.conditions: must be a list \(is 7\)",
        ),
        ('{"nodes": [{"name": "n1", "state": ["IDLY"]}]}', r"nodes\[0\].state: unknown state 'IDLY'"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Line or path, value and remedy; a list that states nothing is not read as a cluster that is full."""
    with pytest.raises(InputError, match=message):
        _read(tmp_path, text)


def test_on_a_topology() -> None:
    """Nodes that the list leaves out cannot be had; nodes that the cluster does not have are refused."""
    found = states_on(TREE, NodeStates(free=frozenset({"n1"}), busy=frozenset({"n2"})))
    assert (found.free, found.taken, found.down) == ({"n1"}, {"n2", "n3", "n4"}, {"n3", "n4"})
    with pytest.raises(InputError, match=r"sinfo\.txt: 'm2' is no node of the topology; did you mean 'n2'"):
        states_on(TREE, NodeStates(busy=frozenset({"m2"})), "sinfo.txt")
    with pytest.raises(InputError, match="--busy: 'x5', 'x6' are no nodes of the topology"):
        require_known(["n1", "x6", "x5"], TREE, "--busy")
