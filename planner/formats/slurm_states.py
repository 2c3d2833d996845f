"""States of nodes and running jobs, as Slurm and Kubernetes print them."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from planner.cluster.placement import Topology
from planner.errors import InputError
from planner.files import parse_json, read_text
from planner.formats.kubernetes import down_nodes, node_names
from planner.formats.topology_rows import Hostlists, near, shown, some
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
    """Read what sinfo -h -N -o "%N %t" (or --json), scontrol show nodes --json or kubectl get nodes -o json printed."""
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

    Raise InputError if the list names a node that the topology does not have.
    """
    known = known_nodes(topology)
    require_known(states.free | states.taken, topology, source)
    return states.model_copy(update={"down": states.down | (known - states.free - states.busy)})


def require_known(names: Iterable[str], topology: Topology, source: str) -> None:
    """Refuse names that are no node of the topology."""
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


# Base states and flags of a job (https://slurm.schedmd.com/job_state_codes.html), which may have both. Of HOLDING each
# keeps its nodes, also beside an ended state; those of NEITHER leave it to the state beside them.
HOLDING = "RUNNING SUSPENDED COMPLETING CONFIGURING POWER_UP_NODE RESIZING SIGNALING STAGE_OUT STOPPED"
ENDED = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT"
NEITHER = (
    "EXPEDITING LAUNCH_FAILED RECONFIG_FAIL REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT UPDATE_DB"
)
HOLDS: Mapping[str, bool | None] = {
    **dict.fromkeys(HOLDING.split(), True),
    **dict.fromkeys(("PENDING", *ENDED.split()), False),
    **dict.fromkeys(NEITHER.split()),
}
REMEDY = "give what `squeue --json` or `scontrol show job` prints"
_PAIR = re.compile(r"(\w+)=(\S*)")
_STATES = re.compile(r"\bJobState=(.*?)(?=\s+\w+=|\s*$)", re.MULTILINE)  # several are parted by blanks


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job with its nodes; they are in the order of the list, which is that of their names."""

    name: str
    nodes: tuple[str, ...]
    priority: int


def read_running(path: Path) -> list[RunningJob]:
    """Read the jobs of a file that hold nodes; those that wait or have ended are left out.

    A state that Slurm does not document is named in a warning; such a job holds the nodes that it lists.
    """
    text, where = read_text(path, REMEDY), str(path)
    hostlists = Hostlists(where)
    rows = _json_rows(parse_json(text, where), where) if text.lstrip()[:1] in "{[" else _text_rows(text, where)
    jobs = [_job(row, hostlists, at) for at, row in rows if _holds_nodes(row, where, at)]
    names = [j.name for j in jobs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: job {name!r} stands twice; keep one")
    return jobs


def jobs_in(data: Any) -> list[Any] | None:
    """Return the jobs of what Slurm's JSON says; None where it is something else."""
    jobs = data.get("jobs") if isinstance(data, Mapping) else None
    return jobs if isinstance(jobs, list) else None


def _json_rows(data: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    jobs = jobs_in(data)
    if jobs is None:
        raise InputError(f"{where}: jobs: is missing; {REMEDY}")
    for i, job in enumerate(jobs):
        at = f"jobs[{i}]"
        if not isinstance(job, Mapping):
            raise InputError(f"{where}: {at}: must be an object (is {job!r}); {REMEDY}")
        states, priority = job.get("job_state", "RUNNING"), job.get("priority")
        if isinstance(priority, Mapping):  # {"set": true, "number": n}
            priority = priority.get("number")
        states = " ".join(map(str, states)) if isinstance(states, list) else str(states)
        names = {"JobId": job.get("job_id"), "JobName": job.get("name"), "NodeList": job.get("nodes")}
        yield at, {**names, "JobState": states, "Priority": priority}


def _text_rows(text: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    found = False
    for i, part in enumerate(re.split(r"(?m)^(?=JobId=)", text)):
        pairs = dict(_PAIR.findall(part))
        if "JobId" in pairs:
            found = True
            states = _STATES.search(part)
            yield f"job {pairs['JobId']}", pairs | ({"JobState": states[1]} if states else {})
        elif part.strip() and i == 0 and "No jobs" not in part:
            break
    if not found and "No jobs" not in text:
        raise InputError(f"{where}: has no JobId=; {REMEDY}")


def _holds_nodes(row: Mapping[str, Any], where: str, at: str) -> bool:
    states = re.findall(r"[^\s,|+]+", str(row.get("JobState", "RUNNING")).upper())
    unknown = next((s for s in states if s not in HOLDS), None)
    if unknown is not None:
        text = "%s: %s: state %r is none of Slurm's; it is taken to hold its nodes"
        logging.getLogger("planner").warning(text, where, at, unknown)
    kept = {HOLDS.get(s) for s in states}
    listed = row.get("NodeList") not in (None, "", "(null)")
    return True in kept or (listed and (unknown is not None or False not in kept))


def _job(row: Mapping[str, Any], hostlists: Hostlists, at: str) -> RunningJob:
    nodes, number = row.get("NodeList"), row.get("JobId")
    if not isinstance(nodes, str) or nodes in ("", "(null)"):
        raise InputError(f"{hostlists.source}: {at}: a running job has no nodes (is {nodes!r}); {REMEDY}")
    priority = row.get("Priority")
    cost = int(str(priority)) if re.fullmatch(r"[0-9]{1,18}", str(priority)) else 1
    name = f"{row['JobName']}-{number}" if row.get("JobName") else str(number)
    return RunningJob(name=name[:200], nodes=hostlists.names(at, nodes), priority=cost)
