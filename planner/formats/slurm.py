"""Slurm: topology.conf and topology.yaml, read and written; states of nodes and running jobs, also of Kubernetes."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from planner.cluster import Topology, fold_names
from planner.errors import InputError, hint, shown
from planner.files import parse_json, read_text
from planner.formats import topology_rows
from planner.formats.kubernetes import node_states
from planner.formats.topology_rows import Hostlists, TopologyRow
from planner.formats.yaml_text import Node, dump, parse
from planner.instance.base_types import Frozen, ReadItems

KEYWORDS = ("SwitchName", "Nodes", "Switches", "LinkSpeed", "BlockName", "BlockSizes")
_PRINTED = ("Level", "AggregatedBlock", "BlockIndex", "BlockSize")  # by scontrol alone
_SPELLING = {key.lower(): key for key in (*KEYWORDS, *_PRINTED)}
_PAIR = re.compile(r"""\s*(?P<key>[^\s=]+)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]*))(?=\s|$)""")
TREE, BLOCKS = "fabric", "blocks"
_KINDS = ("tree", "block", "flat", "ring", "torus3d")

Pairs = dict[str, str]


def read_conf(text: str, source: str) -> Topology:
    """Read a topology.conf. InputError: Slurm refuses it, or accepts what it should not, as a node under two leaves."""
    hostlists, sizes, sizes_where = Hostlists(source), list[int](), ""
    switches, blocks = list[TopologyRow](), list[TopologyRow]()
    printed, printed_sizes = set[str](), dict[int, str]()  # switches by scontrol; sizes, and where each is first stated
    first, plain = 1, "\n".join(raw.partition("#")[0].rstrip() for raw in text.split("\n"))
    for lines in re.split(r"(?<!\\)\n", plain):  # a line goes on behind a backslash
        where, line = f"line {first}", lines.removesuffix("\\").replace("\\\n", "")
        first += lines.count("\n") + 1
        if not line.strip():
            continue
        pairs = _line_pairs(line, source, where)

        def hosts(key: str, pairs: Pairs = pairs, where: str = where) -> tuple[str, ...]:
            return hostlists.names(f"{where}: {key}", pairs[key]) if key in pairs else ()

        if "SwitchName" in pairs:
            if pairs.pop("Level", None) is not None:
                printed.add(pairs["SwitchName"])
            name = _own(pairs, "SwitchName", ("Nodes", "Switches", "LinkSpeed"), source, where)
            switches.append(TopologyRow(where, name, hosts("Nodes"), hosts("Switches")))
        elif "BlockName" in pairs or "AggregatedBlock" in pairs:
            for size in _sizes(pairs.pop("BlockSize"), source, where) if "BlockSize" in pairs else ():
                printed_sizes.setdefault(size, where)
            if "BlockName" in pairs:
                pairs.pop("BlockIndex", None)
                name = _own(pairs, "BlockName", ("Nodes",), source, where)
                blocks.append(TopologyRow(where, name, hosts("Nodes")))
        elif pairs.keys() == {"BlockSizes"}:
            if sizes:
                raise InputError(f"{source}: {where}: BlockSizes is already at {sizes_where}; keep one")
            sizes, sizes_where = _sizes(pairs["BlockSizes"], source, where), where
        else:
            key, remedy = next(iter(pairs)), "begin the line with SwitchName=, BlockName= or BlockSizes="
            raise InputError(f"{source}: {where}: {key}= has no owner; {remedy}")
    if printed_sizes:
        printed_where = next(iter(printed_sizes.values()))
        if sizes:
            problem = f"BlockSizes= in addition to BlockSize= ({printed_where})"
            raise InputError(f"{source}: {sizes_where}: {problem}; keep one of them")
        sizes, sizes_where = sorted(printed_sizes), printed_where
    if not blocks and not sizes:
        return _conf_tree(source, switches, printed)
    if switches:
        where = blocks[0].where if blocks else sizes_where
        remedy = "Slurm reads one kind a topology.conf, topology.yaml takes both"
        raise InputError(f"{source}: {where}: blocks and switches in one file; {remedy}")
    return topology_rows.block_topology(source, blocks, sizes, sizes_where)


def _conf_tree(source: str, rows: list[TopologyRow], printed: set[str]) -> Topology:
    """Return the tree of a topology.conf; nodes that scontrol prints of an upper switch must be those of its leaves."""
    stated = {row.name: row for row in rows if row.children and row.nodes and row.name in printed}
    topology = topology_rows.tree(source, [row._replace(nodes=()) if row.name in stated else row for row in rows])
    below: dict[str, set[str]] = {name: set() for name in stated}
    nodes = {switch.name: switch.nodes for switch in topology.switches}
    for leaf, above in topology_rows.chains(topology).items():
        for name in below.keys() & above[1:]:
            below[name].update(nodes[leaf])
    for name, row in stated.items():
        if set(row.nodes) != below[name]:
            problem = f"switch {name!r} states nodes that are not those of its switches"
            raise InputError(f"{source}: {row.where}: {problem}; print the whole topology again")
    return topology


def _line_pairs(line: str, source: str, where: str) -> Pairs:
    pairs: Pairs = {}
    at = 0
    while line[at:].strip():
        match = _PAIR.match(line, at)
        if match is None:
            text = f"{line[at:].strip()[:60]!r} is not KEY=VALUE"
            raise InputError(f"{source}: {where}: {text}; write such as SwitchName=leaf1 Nodes=n[1-4]")
        key = _SPELLING.get(match["key"].lower())
        if key is None:
            raise InputError(f"{source}: {where}: unknown keyword {match['key']!r}; {hint(match['key'], KEYWORDS)}")
        if key in pairs:
            raise InputError(f"{source}: {where}: {key}= is given twice on one line; keep one")
        pairs[key] = match["plain"] if match["quoted"] is None else match["quoted"]
        at = match.end()
    return pairs


def _own(pairs: Pairs, owner: str, keys: tuple[str, ...], source: str, where: str) -> str:
    for key in pairs:
        if key != owner and key not in keys:
            use = " or ".join(f"{key}=" for key in keys)
            raise InputError(f"{source}: {where}: {key}= does not belong to {owner}=; use {use}")
    name = pairs[owner]
    if not name or re.search(r"[\[\],\s]", name):
        raise InputError(f"{source}: {where}: {owner}={name} must be one name; write a line for each")
    return name


def _sizes(text: str, source: str, where: str) -> list[int]:
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text, re.ASCII):
        raise InputError(f"{source}: {where}: BlockSizes={text} must be whole numbers, such as 4,8,16")
    return [int(size) for size in text.split(",")]


def write_conf(topology: Topology) -> str:
    """Write a topology.conf that slurmctld accepts; the blocks of a tree are left out, as a file has one kind only."""
    if topology.kind == "block":
        lines = [f"BlockName={block.name} Nodes={fold_names(block.nodes)}" for block in topology.blocks]
        if topology.block_sizes:
            lines.append(f"BlockSizes={','.join(map(str, topology.block_sizes))}")
    else:
        children, lines = topology_rows.children_of(topology), []
        for box in topology.switches:
            own = f"Nodes={fold_names(box.nodes)}" if box.nodes else f"Switches={fold_names(children[box.name])}"
            lines.append(f"SwitchName={box.name} {own}")
    return "".join(f"{line}\n" for line in lines)


def read_yaml(text: str, source: str, name: str | None = None) -> Topology:
    """Read a topology.yaml's named, default or first topology; a tree takes along the blocks of the file's only one."""
    root, hostlists, topologies = parse(text, source), Hostlists(source), dict[str, dict[str, Node]]()
    for item in [] if _is_empty(root) else _list(root, source, "the file"):
        pairs = _mapping(item, source, "a topology", ("topology", "cluster_default", *_KINDS), "topology")
        own = _text(pairs["topology"], source, "topology")
        if own in topologies:
            first = topologies[own]["topology"].line
            raise InputError(f"{source}: line {item.line}: topology {own!r} is already at line {first}; rename one")
        kinds = [kind for kind in _KINDS if kind in pairs and not _is_empty(pairs[kind], "false")]
        if len(kinds) != 1:
            stated = f"must be exactly one of {', '.join(_KINDS)} (is {', '.join(kinds) or 'none'})"
            raise InputError(f"{source}: line {item.line}: topology {own!r} {stated}")
        topologies[own] = {key: value for key, value in pairs.items() if key not in _KINDS or key in kinds}
    if not topologies:
        raise InputError(f"{source}: line 1: there is no topology; write such as - topology: fabric")
    if name is not None and name not in topologies:
        raise InputError(f"{source}: there is no topology {name!r}; {hint(name, topologies)}")
    flags = ((key, pairs["cluster_default"].value) for key, pairs in topologies.items() if "cluster_default" in pairs)
    default = next((key for key, flag in flags if str(flag).lower() in {"true", "yes", "on"}), next(iter(topologies)))
    chosen = topologies[name or default]
    if "block" in chosen:
        return topology_rows.block_topology(source, *_blocks(chosen["block"], hostlists))
    if "tree" not in chosen:
        is_ = f"{name or default!r} is {next(kind for kind in _KINDS if kind in chosen)}"
        raise InputError(f"{source}: line {chosen['topology'].line}: {is_}; only tree and block say where nodes stand")
    rows = []
    switches = _mapping(chosen["tree"], source, "tree", ("switches",), "switches")["switches"]
    for item in _list(switches, source, "switches"):
        row = _mapping(item, source, "a switch", ("switch", "nodes", "children"), "switch")
        nodes, children = (_names(row, key, hostlists) for key in ("nodes", "children"))
        rows.append(TopologyRow(f"line {item.line}", _text(row["switch"], source, "switch"), nodes, children))
    block_topologies = [topology["block"] for topology in topologies.values() if "block" in topology]
    blocks, sizes, _ = _blocks(block_topologies[0], hostlists) if len(block_topologies) == 1 else ([], [], "")
    return topology_rows.tree(source, rows, blocks, sizes)


def _names(row: dict[str, Node], key: str, hostlists: Hostlists) -> tuple[str, ...]:
    if key not in row or _is_empty(row[key]):
        return ()
    return hostlists.names(f"line {row[key].line}: {key}", _text(row[key], hostlists.source, key))


def _blocks(node: Node, hostlists: Hostlists) -> tuple[list[TopologyRow], list[int], str]:
    source = hostlists.source
    pairs = _mapping(node, source, "block", ("block_sizes", "blocks"), "blocks")
    rows, sizes = [], list[int]()
    for item in _list(pairs["blocks"], source, "blocks"):
        row = _mapping(item, source, "a block", ("block", "nodes"), "block")
        name = _text(row["block"], source, "block")
        rows.append(TopologyRow(f"line {item.line}", name, _names(row, "nodes", hostlists)))
    if "block_sizes" not in pairs:
        return rows, sizes, ""
    for item in _list(pairs["block_sizes"], source, "block_sizes"):
        text = _text(item, source, "block_sizes")
        if not (text.isdecimal() and text.isascii() and len(text) < 10):
            raise InputError(f"{source}: line {item.line}: block_sizes must be whole numbers (is {text!r}), such as 4")
        sizes.append(int(text))
    return rows, sizes, f"line {pairs['block_sizes'].line}: block_sizes"


def _is_empty(node: Node, *others: str) -> bool:
    """Return whether a value of a topology.yaml is empty: so controllers print keys that a topology does not have."""
    return not node.value or (isinstance(node.value, str) and node.value.lower() in {"null", "~", *others})


def _list(node: Node, source: str, what: str) -> list[Node]:
    if not isinstance(node.value, list):
        raise InputError(f"{source}: line {node.line}: {what} must be a list, its items beginning with a dash")
    return node.value


def _text(node: Node, source: str, what: str) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise InputError(f"{source}: line {node.line}: {what} must be a text on one line, such as n[1-4]")
    return node.value


def _mapping(node: Node, source: str, what: str, known: tuple[str, ...], needed: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        keys = ", ".join(known)
        raise InputError(f"{source}: line {node.line}: {what} must be a mapping with {keys}; give some of these")
    for key, inner in node.value.items():
        if key not in known:
            raise InputError(f"{source}: line {inner.line}: unknown keyword {key!r} in {what}; {hint(key, known)}")
    if needed not in node.value:
        raise InputError(f"{source}: line {node.line}: {what} has no {needed!r}; add it")
    return node.value


def write_yaml(topology: Topology) -> str:
    """Write a topology.yaml; the blocks of a tree become a second topology of the file."""
    documents: list[dict[str, Any]] = []
    if topology.kind == "tree":
        children, switches = topology_rows.children_of(topology), []
        for box in topology.switches:
            below = {"nodes": box.nodes} if box.nodes else {"children": children[box.name]}
            switches.append({"switch": box.name} | {key: fold_names(names) for key, names in below.items()})
        documents.append({"topology": TREE, "cluster_default": True, "tree": {"switches": switches}})
    if topology.blocks:
        sizes = {"block_sizes": list(topology.block_sizes)} if topology.block_sizes else {}
        blocks = [{"block": block.name, "nodes": fold_names(block.nodes)} for block in topology.blocks]
        own = {"cluster_default": topology.kind == "block", "block": {**sizes, "blocks": blocks}}
        documents.append({"topology": BLOCKS, **own})
    return "---\n" + dump(documents)


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
MEANING = {word: state for state, words in enumerate((_FREE, _BUSY, _DOWN)) for word in words.split()}


class NodeStates(Frozen):
    """States of Slurm's or Kubernetes' nodes, by which a job may take them."""

    free: frozenset[str] = Field(frozenset(), description="Idle nodes.")
    busy: frozenset[str] = Field(frozenset(), description="Nodes that other jobs have or wait for.")
    down: frozenset[str] = Field(frozenset(), description="Nodes that no job can take.")
    items: ReadItems = Field(ReadItems(), description="What became of the fields of the file.")

    @property
    def taken(self) -> frozenset[str]:
        """Nodes whose state is not free."""
        return self.busy | self.down


def read_states(path: str | Path) -> NodeStates:
    """Read node states from sinfo -h -N -o "%N %t", sinfo --json, scontrol show nodes --json, or kubectl get nodes."""
    path = Path(path)
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: names no node; print it by {SINFO}")
    data = parse_json(text, str(path)) if text.lstrip().startswith("{") else None
    if data is not None and "items" in data:
        free, down = node_states(data, str(path))
        return NodeStates(free=free, down=down)
    worst = dict[str, int]()
    for name, state in _listed(text, data, str(path)):
        worst[name] = max(state, worst.get(name, FREE))
    kinds = {"free": FREE, "busy": BUSY, "down": DOWN}
    found = NodeStates(**{key: frozenset(node for node in worst if worst[node] == kind) for key, kind in kinds.items()})
    if data is None:
        return found
    if not worst:
        raise InputError(f"{path}: names no node; print it by sinfo --json")
    listed = data.get("sinfo") or data.get("nodes") or ()
    named = {"nodes", "node", "name", "state", "state_flags"}
    fields = dict.fromkeys(key for item in listed for key in item)
    # Fields that decide a node's jobs are reported where nodes differ.
    differ = [key for key in DECIDING if len({json.dumps(item.get(key), sort_keys=True) for item in listed}) > 1]
    items = ReadItems(
        taken=tuple(key for key in fields if key in named),
        ignored=tuple(key for key in fields if key not in named and key not in differ),
        not_modelled=tuple(f"{key} (nodes differ)" for key in differ),
    )
    return found.replaced(items=items)


def states_on(topology: Topology, states: NodeStates, source: str = "states") -> NodeStates:
    """Keep the states of the topology's nodes, those not listed down. InputError: a listed node is not in it."""
    groups = [switch.nodes for switch in topology.switches] + [block.nodes for block in topology.blocks]
    known = frozenset(node for nodes in groups for node in nodes)
    strange = sorted((states.free | states.taken) - known)
    if strange:
        are = "is no node" if len(strange) == 1 else "are no nodes"
        listed = topology_rows.some([repr(node) for node in strange])
        raise InputError(f"{source}: {listed} {are} of the topology; {hint(strange[0], sorted(known), most=5)}")
    return states.replaced(down=states.down | (known - states.free - states.busy))


def _meaning(text: str, source: str, where: str) -> int:
    state = text.rstrip("*~#!%$@^-+")
    words = (state.lower(), *text[len(state) :])
    unknown = next((word for word in words if word not in MEANING), None)
    if unknown is not None:
        raise InputError(f"{source}: {where}: unknown state {text!r}; {hint(unknown, sorted(MEANING))}")
    return max(MEANING[word] for word in words)


def _listed(text: str, data: Mapping[str, Any] | None, source: str) -> Iterator[tuple[str, int]]:
    """Yield states of nodes in sinfo's lines, scontrol's nodes, or sinfo's groups (before 23.02 its nodes)."""
    hostlists = Hostlists(source)
    for number, line in enumerate(text.split("\n"), 1) if data is None else ():
        where, words = f"line {number}", line.split()
        if not words:
            continue
        if len(words) != 2:
            text = f"{line.strip()[:60]!r} must be a hostlist and a state"
            raise InputError(f"{source}: {where}: {text}; print it by {SINFO}")
        state = _meaning(words[1], source, where)
        yield from ((name, state) for name in hostlists.names(where, words[0]))
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
            problem = f"{topology_rows.some(names)} has no state (is [])"
            raise InputError(f"{source}: {where}.state: {problem}; print the states again, or leave the node out")
        state = max(_meaning(str(word), source, f"{where}.state") for word in words)
        yield from ((name, state) for name in names)


# Base states and flags of a job (https://slurm.schedmd.com/job_state_codes.html), which may have several. A job with
# any state of HOLDING keeps its nodes, even if another has ended; those of NEITHER leave the answer to the others.
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
_KEY_AND_VALUE = re.compile(r"(\w+)=(\S*)")
_STATES = re.compile(r"\bJobState=(.*?)(?=\s+\w+=|\s*$)", re.MULTILINE)  # several are parted by blanks


class RunningJob(NamedTuple):
    """A job that runs under Slurm, with its nodes in the order of the list, which is that of their names."""

    name: str
    nodes: tuple[str, ...]
    priority: int


def read_running(path: Path) -> list[RunningJob]:
    """Read the jobs of Slurm's output that hold nodes; one of an undocumented state counts too, with a warning."""
    text, where = read_text(path, REMEDY), str(path)
    hostlists = Hostlists(where)
    jobs, is_json = list[RunningJob](), text.lstrip()[:1] in "{["
    for at, row in _json_rows(parse_json(text, where), where) if is_json else _text_rows(text, where):
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


def jobs_in(data: Any) -> list[Any] | None:
    """Return the list of jobs in Slurm's JSON; None where the data are something else."""
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
        pairs = dict(_KEY_AND_VALUE.findall(part))
        if "JobId" in pairs:
            found = True
            states = _STATES.search(part)
            yield f"job {pairs['JobId']}", pairs | ({"JobState": states[1]} if states else {})
        elif part.strip() and i == 0 and "No jobs" not in part:
            break
    if not found and "No jobs" not in text:
        raise InputError(f"{where}: has no JobId=; {REMEDY}")
