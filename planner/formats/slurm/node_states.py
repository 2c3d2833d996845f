"""Node states: sinfo's text or JSON, scontrol's JSON, Kubernetes' conditions; each node is free, busy or down.

free   idle nodes, powered off (~) or powering up (#) ones too: a job wakes them.
busy   nodes with jobs or promised to some: allocated, mixed (ranks take whole nodes), completing, reserved, planned,
       perfctrs.
down   all others: down, draining and drained, failing, maintenance, unknown, future, powering down, rebooting, not
       responding.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.files import parse_json, read_text
from planner.formats.kubernetes.nodes import down_nodes, node_names
from planner.formats.source import Hostlists, near, shown, some
from planner.instance.base import Frozen
from planner.instance.read_items import ReadItems

SINFO = 'sinfo -h -N -o "%N %t"'
FREE, BUSY, DOWN = 0, 1, 2  # The worst of the states listed for a node counts.
# Slurm's state names, short and long, compact-form flags last; all that is missing here is down.
_FREE = "idle cloud dynamic_norm dynamic_future powered_down powering_up power_up pow_up ~ #"
_BUSY = "alloc allocated mix mixed comp completing resv reserved plnd planned npc perfctrs - +"
_DOWN = """
    down drain drained drng draining fail failg failing error maint maintenance unk unknown futr future
    inval invalid invalid_reg reboot boot rebooting reboot_issued reboot_requested reboot_canceled block blocked
    pow_dn power_down powering_down power_drain no_respond not_responding external undrain resume * % ! $ @ ^
"""
DECIDING = ("partition", "partitions", "reservation", "features", "active_features", "gres", "gpus")  # who runs where
MEANING: Mapping[str, int] = {
    word: state for words, state in ((_FREE, FREE), (_BUSY, BUSY), (_DOWN, DOWN)) for word in words.split()
}


class NodeStates(Frozen):
    """Which nodes a job may take."""

    free: frozenset[str] = Field(frozenset(), description="Idle nodes.")
    busy: frozenset[str] = Field(frozenset(), description="Nodes that other jobs have or wait for.")
    down: frozenset[str] = Field(frozenset(), description="Nodes that no job can take.")
    items: ReadItems = Field(ReadItems(), description="What became of the fields of the file.")

    @property
    def taken(self) -> frozenset[str]:
        """Nodes that are not free."""
        return self.busy | self.down


def read_states(path: str | Path) -> NodeStates:
    """Read what sinfo -h -N -o "%N %t", sinfo --json, scontrol show nodes --json or kubectl get nodes -o json printed.

    Raises
    ------
    InputError
        Names file, line or JSON path, value and remedy.
    """
    path = Path(path)
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: names no node; print it by {SINFO}")
    if not text.lstrip().startswith("{"):
        return _worst_states(_from_text(text, str(path)))
    data = parse_json(text, str(path))
    if "items" in data:
        down = down_nodes(data, str(path))
        return NodeStates(free=frozenset(node_names(data, str(path))) - down, down=down)
    found = _worst_states(_from_json(data, str(path))).model_copy(update={"items": _fields_of(data)})
    if not found.free | found.taken:
        raise InputError(f"{path}: names no node; print it by sinfo --json")
    return found


def states_on(topology: Topology, states: NodeStates, source: str = "states") -> NodeStates:
    """Keep to the topology's nodes; those that the list leaves out are down, as nothing says that they can be had.

    Raises
    ------
    InputError
        If the list names a node that the topology does not have.
    """
    known = known_nodes(topology)
    require_known(states.free | states.taken, topology, source)
    return states.model_copy(update={"down": states.down | (known - states.free - states.busy)})


def require_known(names: Iterable[str], topology: Topology, source: str) -> None:
    """Refuse names that are no node of the topology.

    Raises
    ------
    InputError
        Names them.
    """
    known = known_nodes(topology)
    strange = sorted(set(names) - known)
    if strange:
        are = "is no node" if len(strange) == 1 else "are no nodes"
        listed = some([repr(n) for n in strange])
        raise InputError(f"{source}: {listed} {are} of the topology; {near(strange[0], sorted(known))}")


def known_nodes(topology: Topology) -> frozenset[str]:
    """Return every node of a topology."""
    return frozenset(n for s in topology.switches for n in s.nodes) | {n for b in topology.blocks for n in b.nodes}


def _worst_states(states: Iterable[tuple[str, int]]) -> NodeStates:
    worst: dict[str, int] = {}
    for name, state in states:
        worst[name] = max(state, worst.get(name, FREE))
    free, busy, down = (frozenset(n for n, s in worst.items() if s == kind) for kind in (FREE, BUSY, DOWN))
    return NodeStates(free=free, busy=busy, down=down)


def _from_text(text: str, source: str) -> Iterator[tuple[str, int]]:
    hostlists = Hostlists(source)
    for number, line in enumerate(text.split("\n"), 1):
        where, words = f"line {number}", line.split()
        if not words:
            continue
        if len(words) != 2:
            text = f"{line.strip()[:60]!r} must be a hostlist and a state"
            raise InputError(f"{source}: {where}: {text}; print it by {SINFO}")
        state = _meaning(words[1], source, where)
        yield from ((name, state) for name in hostlists.names(where, words[0]))


def _meaning(text: str, source: str, where: str) -> int:
    """Return what one state of the compact form means, flags behind it included."""
    bare = text.rstrip("*~#!%$@^-+")
    worst = FREE
    for word in (bare.lower(), *text[len(bare) :]):
        if word not in MEANING:
            raise InputError(f"{source}: {where}: unknown state {text!r}; {near(word, sorted(MEANING))}")
        worst = max(worst, MEANING[word])
    return worst


def _fields_of(data: Mapping[str, Any]) -> ReadItems:
    """Say what became of the fields of nodes: those that decide its jobs are reported where nodes differ."""
    listed = data.get("sinfo") or data.get("nodes") or ()
    named = {"nodes", "node", "name", "state", "state_flags"}
    fields = {k: {json.dumps(item.get(k), sort_keys=True) for item in listed} for item in listed for k in item}
    reported = tuple(f"{k} (nodes differ)" for k in DECIDING if len(fields.get(k, ())) > 1)
    ignored = tuple(k for k in fields if k not in named and f"{k} (nodes differ)" not in reported)
    return ReadItems(taken=tuple(k for k in fields if k in named), ignored=ignored, not_modelled=reported)


def _from_json(data: Mapping[str, Any], source: str) -> Iterator[tuple[str, int]]:
    """Read scontrol's nodes, or sinfo's groups of nodes in one state (23.02 and newer; older ones print nodes too)."""
    key = next((k for k in ("sinfo", "nodes") if isinstance(data.get(k), list)), None)
    if key is None:
        keys = ", ".join(data) or "nothing"
        raise InputError(f"{source}: must have a list of nodes or sinfo (has {keys}); print it by sinfo --json")
    for i, item in enumerate(data[key]):
        where = f"{key}[{i}]"
        try:
            names = item["nodes"]["nodes"] if key == "sinfo" else [item["name"]]
            states = item["node"]["state"] if key == "sinfo" else item["state"]
            flags = item.get("state_flags", [])
            words = [*([states] if isinstance(states, str) else states), *flags]
            if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
                raise TypeError
        except (KeyError, TypeError, AttributeError):
            problem = f"names no node or no state (is {shown(item)})"
            raise InputError(f"{source}: {where}: {problem}; print it by sinfo --json") from None
        if not words:
            problem = f"{some(names)} has no state (is [])"
            raise InputError(f"{source}: {where}.state: {problem}; print the states again, or leave the node out")
        state = max(_meaning(str(w), source, f"{where}.state") for w in words)
        yield from ((name, state) for name in names)
