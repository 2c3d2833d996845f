"""A job placed on nodes, and how Slurm, Open MPI and torchrun start it in its rank order."""

import math
import re
import shlex
from collections import Counter
from pathlib import Path

from planner.cluster import HOST_GPUS, Placement, Topology, fold_names, natural
from planner.errors import InputError
from planner.files import read_json
from planner.formats.topology_rows import leaf_of
from planner.instance.validate import validated

# Keys that a placement in JSON states for schedulers in addition to its own fields.
SCHEDULER_KEYS = frozenset(("hostlist", "sbatch", "srun", "mpirun", "torchrun", "hints"))
MAX_ARGUMENT_BYTES = 131_071  # Linux takes no longer argument (MAX_ARG_STRLEN is 32 pages of 4 KiB, its end included).
PORT = 29_500  # torchrun's own, unless MASTER_PORT is set
_NODE = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def gpus_of_node(placed: Placement) -> int:
    """Return the ranks that fill a node of a placed job before the next, one a GPU: 8 where none are stated."""
    return placed.gpus_per_node or HOST_GPUS


def read_placement(running: Path) -> Placement:
    """Read a job's placement from its JSON file. InputError: it is none, or has a node twice."""
    data = read_json(running)
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise InputError(f"{running}: must be a placement (is {kind}); make one with `planner place --format json`")
    own = {key: value for key, value in data.items() if key not in SCHEDULER_KEYS}
    placed = validated(Placement, own, str(running))
    if not placed.job:
        raise InputError(f"{running}: job: must not be empty; name the job")
    twice = next((node for node, times in Counter(placed.nodes).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{running}: nodes: {twice!r} is listed twice; give the placement as it runs")
    if placed.gpus_per_node is not None and placed.gpus_per_node < 1:
        raise InputError(f"{running}: gpus_per_node: must be at least 1 (is {placed.gpus_per_node}); correct it")
    return placed


def hostfile(placed: Placement, topology: Topology | None = None) -> str:
    """Return a placed job's hostfile, a line a rank in rank order. InputError: topology/block, if given, refuses it."""
    if topology is not None and topology.kind == "block":
        remedy = "take the format hostlist to submit, and json or rankfile to give each node its rank"
        raise InputError(f"the hostfile format: topology/block refuses SLURM_HOSTFILE; {remedy}")
    return "".join(f"{node}\n" * gpus_of_node(placed) for node in placed.nodes)


def sbatch_arguments(placed: Placement, topology: Topology | None = None) -> list[str]:
    """Return sbatch's arguments for a placed job: the full node list, and -N as long (a shorter one is filled up).

    Where topology/block takes the nodes in segments, the list is given by excluding all other nodes of the cluster
    (-x): Slurm 24.11 refuses --segment with -w, 26.05 takes either. InputError: the list is too long for one argument.
    """
    nodes, segment = set(placed.nodes), None
    if topology is not None and topology.kind == "block":
        # On 24.11 and 26.05 a list must lie in as few aggregated blocks as its length allows, of the smallest size that
        # fits it; divided into segments, each must lie in one block, wherever these are. The greatest common divisor of
        # the nodes by base block is always such a segment, and never larger than a base block, the largest of 24.11.
        home = {node: i for i, block in enumerate(topology.blocks) for node in block.nodes}
        counts, sizes = Counter(home[node] for node in placed.nodes), _block_sizes(topology)
        level = next((size for size in sizes if size >= len(nodes)), sizes[-1])
        if len({block // (level // sizes[0]) for block in counts}) > -(-len(nodes) // level):
            segment, nodes = math.gcd(*counts.values()), home.keys() - nodes
    # -w sorts the nodes anyway, and in the order of their names they take the fewest bytes.
    listed = fold_names(sorted(nodes, key=natural))
    if len(listed.encode()) > MAX_ARGUMENT_BYTES:
        problem = f"takes {len(listed.encode()):,} bytes, more than the {MAX_ARGUMENT_BYTES:,} of one argument"
        remedy = "split the job, or number nodes so that they fold"
        raise InputError(f"the node list of {placed.job!r} {problem}; {remedy}")
    count, per_node = f"-N{len(placed.nodes)}", f"--ntasks-per-node={gpus_of_node(placed)}"
    start = [f"--job-name={placed.job}", count, per_node, "--exclusive"]
    if segment:
        return [*start, f"--segment={segment}", *(["-x", listed] if listed else [])]
    return [*start, "-w", listed]


def sbatch_line(placed: Placement, topology: Topology | None = None) -> str:
    """Return the sbatch line that submits a placed job, the script left to the user."""
    return shlex.join(["sbatch", *sbatch_arguments(placed, topology)])


def srun_line(placed: Placement, topology: Topology | None = None) -> str:
    """Return the srun line that starts a placed job's ranks in their order; by node name on topology/block."""
    ranks = len(placed.nodes) * gpus_of_node(placed)
    # The arbitrary distribution follows SLURM_HOSTFILE, and takes no -N with it (refused since 26.05); blocks take no
    # hostfile.
    if topology is not None and topology.kind == "block":
        return f"srun -N{len(placed.nodes)} -n{ranks}"
    return f"SLURM_HOSTFILE={shlex.quote(f'{placed.job}.hostfile')} srun -n{ranks} -m arbitrary"


def hints(placed: Placement, topology: Topology) -> dict[str, str]:
    """Return sbatch's options for a placed job without its node list: --switches on a tree, --segment on blocks.

    --segment is left out where a group is larger than the base block (refused by 24.11) or the groups differ in size.
    """
    if topology.kind == "tree":
        leaf = leaf_of(topology)
        return {"switches": f"--switches={len({leaf[node] for node in placed.nodes})}"}
    sizes = {len(group.nodes) for group in placed.groups}
    if len(sizes) == 1 and (size := sizes.pop()) <= _block_sizes(topology)[0] and len(placed.nodes) % size == 0:
        return {"segment": f"--segment={size}"}
    return {}


def _block_sizes(topology: Topology) -> tuple[int, ...]:
    """Return the sizes of the aggregated blocks of Slurm's topology/block; without any, that of the smallest block."""
    return topology.block_sizes or (min(len(block.nodes) for block in topology.blocks),)


def rankfile(placed: Placement) -> str:
    """Return Open MPI's rankfile of a placed job: each rank's node, and its slot on it."""
    slots = ((node, slot) for node in placed.nodes for slot in range(gpus_of_node(placed)))
    return "".join(f"rank {rank}={node} slot={slot}\n" for rank, (node, slot) in enumerate(slots))


def torchrun(placed: Placement) -> str:
    """Return a placed job's torchrun script for one node (SLURMD_NODENAME or host), by rank. InputError: odd names."""
    for node in placed.nodes:
        if not _NODE.fullmatch(node):
            raise InputError(f"the torchrun format: node {node!r} is no host's name; take the format json")
    table = "".join(f"{node} {rank}\n" for rank, node in enumerate(placed.nodes))
    name, nodes = re.sub(r"[^ -~]", "?", placed.job), len(placed.nodes)
    start = f"exec torchrun --nnodes={nodes} --nproc-per-node={gpus_of_node(placed)}"
    master = f'--master-addr={shlex.quote(placed.nodes[0])} --master-port="${{MASTER_PORT:-{PORT}}}"'
    return f"""\
#!/bin/sh
# Job {name}: start it once on each of its {nodes} nodes, with the training script and its arguments:
#   srun -N{nodes} --ntasks-per-node=1 sh THIS_FILE train.py ...
node="${{SLURMD_NODENAME:-$(hostname -s)}}"
rank=$(awk -v node="$node" '$1 == node {{ print $2 }}' <<'END'
{table}END
)
[ -n "$rank" ] || {{ echo "$node is no node of this job" >&2; exit 1; }}
{start} --node-rank="$rank" {master} "$@"
"""


def torchrun_line(placed: Placement, file: str) -> str:
    """Return the srun line that starts the torchrun script on every node of a placed job."""
    return f"srun -N{len(placed.nodes)} --ntasks-per-node=1 sh {shlex.quote(file)} train.py"
