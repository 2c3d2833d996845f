"""Files of a cluster read: its topology in any format, the states of its nodes, running jobs, and a placement."""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from planner.cluster.placement import Placement
from planner.cluster.topology import Topology
from planner.errors import InputError, hint, shown
from planner.files import parse_json, read_text
from planner.formats import kubernetes, topologies
from planner.formats.topologies import Hostlists, plan_topology
from planner.instance.base_types import NOT_MODELLED, Frozen
from planner.instance.catalogue_entries import catalogue
from planner.instance.validation import validated
from planner.plan.plan_files import kind_of, plan_of
from planner.units import counted, few

# Keys that a placement in JSON states for schedulers in addition to its own fields.
SCHEDULER_KEYS = frozenset(("hostlist", "sbatch", "srun", "mpirun", "torchrun", "hints"))


def read_topology(path: str | Path, *, keys: Sequence[str] = (), name: str | None = None) -> Topology:
    """Return a cluster's topology from a file, by Kubernetes' `keys`, leaf first, or the `name` in a topology.yaml."""
    return topology_of(read_text(Path(path)), Path(path), keys=keys, name=name)


def topology_of(text: str, path: Path, *, keys: Sequence[str] = (), name: str | None = None) -> Topology:
    """Return a cluster's topology from the text of a file, as `read_topology` does."""
    objects = re.search(r"^kind: ", text, re.MULTILINE) is not None  # of Kubernetes
    if not objects and not text.lstrip().startswith("{"):
        lines = (line.strip() for line in text.split("\n"))
        first = next((line for line in lines if line and not line.startswith("#")), "")
        if path.suffix in {".yaml", ".yml"} or first.startswith(("%YAML", "---", "- ", "-\t", "[")):
            return topologies.read_yaml(text, str(path), name)
        return topologies.read_conf(text, str(path))
    source = str(path)
    data = kubernetes.manifests(text, source) if objects else parse_json(text, source)
    if "instances" in data:
        return kubernetes.read_topograph(data, source)
    if "items" in data:
        return kubernetes.read_kubernetes(data, source, keys)
    if "planner_version" in data:
        return plan_topology(plan_of(data, source), source)
    stated = f"is no topology known here (its keys are {', '.join(list(data)[:8]) or 'none'})"
    formats = "topology.conf, topology.yaml, topograph's graph, Kubernetes' nodes or HyperNodes, or a plan"
    raise InputError(f"{source}: {stated}; give {formats}")


def topology_note(text: str, *, with_states: bool = False) -> str | None:
    """Return a sentence on what placements leave of a topology file: LinkSpeeds that differ, nodes cordoned."""
    if not with_states and (cordoned := re.findall(r"unschedulable\"?:\s*true", text)):
        remedy = "give the file by --state too, by which they are not free"
        return f"{NOT_MODELLED}unschedulable ({counted(len(cordoned), 'node')}); {remedy}"
    speeds = {found[1] for found in re.finditer(r"LinkSpeed=\"?([^\s\"]+)", text, re.IGNORECASE)}
    if len(speeds) < 2 or text.lstrip().startswith("{"):
        return None
    return f"{NOT_MODELLED}LinkSpeed (is {', '.join(sorted(speeds))})"


SINFO = 'sinfo -h -N -o "%N %t"'
FREE, BUSY, DOWN = 0, 1, 2  # The worst of the states listed for a node counts.
DECIDING = ("partition", "partitions", "reservation", "features", "active_features", "gres", "gpus")  # who runs where
NODE_STATES = catalogue("slurm_names")["nodes"]  # of which all that is missing is down
MEANING = {word: state for state, kind in enumerate(("free", "busy", "down")) for word in NODE_STATES[kind]}


class NodeStates(Frozen):
    """States of Slurm's or Kubernetes' nodes, by which a job may take them."""

    free: frozenset[str] = Field(frozenset(), description="Idle nodes.")
    busy: frozenset[str] = Field(frozenset(), description="Nodes that other jobs have or wait for.")
    down: frozenset[str] = Field(frozenset(), description="Nodes that no job can take.")
    note: str | None = Field(None, description="Fields of the file that may change the answer, and are not modelled.")


def read_states(path: str | Path) -> NodeStates:
    """Read node states from sinfo -h -N -o "%N %t", sinfo --json, scontrol show nodes --json, or kubectl get nodes."""
    path = Path(path)
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: names no node; print it by {SINFO}")
    data = parse_json(text, str(path)) if text.lstrip().startswith("{") else None
    if data is not None and "items" in data:
        free, down = kubernetes.node_states(data, str(path))
        return NodeStates(free=free, down=down)
    worst, hostlists = dict[str, int](), Hostlists(str(path))
    for where, hosts, words in _listed(text, data, str(path)):
        state = FREE
        for word in map(str, words):
            base = word.rstrip("*~#!%$@^-+")
            parts = (base.lower(), *word[len(base) :])  # and each flag behind it
            unknown = next((part for part in parts if part not in MEANING), None)
            if unknown is not None:
                raise InputError(f"{path}: {where}: unknown state {word!r}; {hint(unknown, sorted(MEANING))}")
            state = max(state, *(MEANING[part] for part in parts))
        for name in hostlists.names(where, hosts) if isinstance(hosts, str) else hosts:
            worst[name] = max(state, worst.get(name, FREE))
    if not worst:
        raise InputError(f"{path}: names no node; print it by sinfo --json")
    free, busy, down = (frozenset(node for node in worst if worst[node] == kind) for kind in (FREE, BUSY, DOWN))
    listed = () if data is None else data.get("sinfo") or data.get("nodes") or ()
    # Fields that decide a node's jobs are reported where nodes differ.
    differ = [key for key in DECIDING if len({json.dumps(item.get(key), sort_keys=True) for item in listed}) > 1]
    note = f"{NOT_MODELLED}{', '.join(f'{key} (nodes differ)' for key in differ)}" if differ else None
    return NodeStates(free=free, busy=busy, down=down, note=note)


def _listed(text: str, data: Mapping[str, Any] | None, source: str) -> Iterator[tuple[str, str | list[str], list[Any]]]:
    """Yield places, nodes, states of sinfo's lines, scontrol's nodes, or sinfo's groups (before 23.02 its nodes)."""
    for number, line in enumerate(text.split("\n"), 1) if data is None else ():
        where, words = f"line {number}", line.split()
        if not words:
            continue
        if len(words) != 2:
            text = f"{line.strip()[:60]!r} must be a hostlist and a state"
            raise InputError(f"{source}: {where}: {text}; print it by {SINFO}")
        yield where, words[0], words[1:]
    if data is None:
        return
    key = next((key for key in ("sinfo", "nodes") if isinstance(data.get(key), list)), None)
    if key is None:
        keys = ", ".join(data) or "nothing"
        raise InputError(f"{source}: must have a list of nodes or sinfo (has {keys}); print it by sinfo --json")
    for i, item in enumerate(data[key]):
        where = f"{key}[{i}]"
        try:
            names = item["nodes"]["nodes"] if key == "sinfo" else [item["name"]]
            states = item["node"]["state"] if key == "sinfo" else item["state"]
            words = [*([states] if isinstance(states, str) else states), *item.get("state_flags", [])]
            if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
                raise TypeError
        except (KeyError, TypeError, AttributeError):
            problem = f"names no node or no state (is {shown(item)})"
            raise InputError(f"{source}: {where}: {problem}; print it by sinfo --json") from None
        if not words:
            problem = f"{few(names)} has no state (is [])"
            raise InputError(f"{source}: {where}.state: {problem}; print the states again, or leave the node out")
        yield f"{where}.state", names, words


JOB_STATES = catalogue("slurm_names")["jobs"]
HOLDS: Mapping[str, bool | None] = {
    state: holds for kind, holds in (("holds", True), ("ended", False), ("neither", None)) for state in JOB_STATES[kind]
}
REMEDY = "give what `squeue --json` or `scontrol show job` prints"
_STATES = re.compile(r"\bJobState=(.*?)(?=\s+\w+=|\s*$)", re.MULTILINE)  # several are parted by blanks


class RunningJob(NamedTuple):
    """A job that runs under Slurm, with its nodes in the order of the list, which is that of their names."""

    name: str
    nodes: tuple[str, ...]
    priority: int


def read_running(path: Path) -> list[RunningJob] | Placement:
    """Read the jobs of Slurm's output that hold nodes, or a placement in JSON.

    A job of an undocumented state counts too, with a warning.
    """
    text, where = read_text(path, REMEDY), str(path)
    data = parse_json(text, where) if text.lstrip()[:1] in "{[" else None
    if isinstance(data, dict) and kind_of(data) == "placement":
        return placement_of(data, path)
    hostlists, jobs = Hostlists(where), list[RunningJob]()
    for at, row in _job_rows(text, data, where):
        states = re.findall(r"[^\s,|+]+", str(row.get("JobState", "RUNNING")).upper())
        unknown = next((state for state in states if state not in HOLDS), None)
        if unknown is not None:
            problem = "%s: %s: state %r is none of Slurm's; it is taken to hold its nodes"
            logging.getLogger("planner").warning(problem, where, at, unknown)
        kept = {HOLDS.get(state) for state in states}
        nodes, number, priority = row.get("NodeList"), row.get("JobId"), str(row.get("Priority"))
        if True not in kept and (nodes in (None, "", "(null)") or (unknown is None and False in kept)):
            continue
        if not isinstance(nodes, str) or nodes in ("", "(null)"):
            raise InputError(f"{where}: {at}: a running job has no nodes (is {nodes!r}); {REMEDY}")
        cost = int(priority) if re.fullmatch(r"[0-9]{1,18}", priority) else 1
        name = f"{row['JobName']}-{number}" if row.get("JobName") else str(number)
        jobs.append(RunningJob(name=name[:200], nodes=hostlists.names(at, nodes), priority=cost))
    for name, times in Counter(job.name for job in jobs).items():
        if times > 1:
            raise InputError(f"{where}: job {name!r} is listed twice; keep one")
    return jobs


def _job_rows(text: str, data: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place of each job of Slurm's output with its fields as `scontrol show job` names them."""
    if data is None:
        head, *paragraphs = re.split(r"(?m)^[ \t]*(?=JobId=)", text)
        if "No jobs" not in text and (head.strip() or not paragraphs):
            raise InputError(f"{where}: has no JobId=; {REMEDY}")
        for paragraph in paragraphs:
            pairs, stated = dict(re.findall(r"(\w+)=(\S*)", paragraph)), _STATES.search(paragraph)
            yield f"job {pairs['JobId']}", pairs | ({"JobState": stated[1]} if stated else {})
        return
    jobs = data.get("jobs") if isinstance(data, Mapping) else None
    if not isinstance(jobs, list):
        raise InputError(f"{where}: holds no running jobs; {REMEDY}, or a placement of `planner place --format json`")
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


def placement_of(data: Any, running: Path) -> Placement:
    """Return a job's placement from its JSON of a file. InputError: it is none, or has a node twice."""
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise InputError(f"{running}: must be a placement (is {kind}); make one with `planner place --format json`")
    own = {key: value for key, value in data.items() if key not in SCHEDULER_KEYS}
    placed = validated(Placement, own, str(running))
    if not placed.job:
        raise InputError(f"{running}: job: must not be empty; name the job")
    if twice := [node for node, times in Counter(placed.nodes).items() if times > 1]:
        raise InputError(f"{running}: nodes: {twice[0]!r} is listed twice; give the placement as it runs")
    if placed.gpus_per_node is not None and placed.gpus_per_node < 1:
        raise InputError(f"{running}: gpus_per_node: must be at least 1 (is {placed.gpus_per_node}); correct it")
    return placed


TOPOLOGY_WRITERS: Mapping[str, Callable[[Topology], str]] = {
    "conf": topologies.write_conf,
    "yaml": topologies.write_yaml,
    "kueue": kubernetes.kueue_topology,
    "volcano": kubernetes.volcano_hypernodes,
}
