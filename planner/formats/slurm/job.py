"""A placement for Slurm: the node list, the hostfile in rank order, the matching sbatch and srun, and hints."""

import math
import shlex
from collections import Counter

from planner.cluster.hostlist import fold_names, natural
from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.formats.placement import Placed
from planner.formats.tiers import leaf_of

MAX_ARGUMENT_BYTES = 131_071  # Linux takes no longer argument (MAX_ARG_STRLEN is 32 pages of 4 KiB, its end included).
HOSTFILE = "{job}.hostfile"


def rank_hostlist(placed: Placed) -> str:
    """Return the nodes folded in rank order."""
    return fold_names(placed.nodes)


def node_set(placed: Placed) -> str:
    """Return the nodes folded in the order of their names: -w sorts them anyway, and so they take the fewest bytes."""
    return fold_names(sorted(placed.nodes, key=natural))


def hostfile(placed: Placed, topology: Topology | None = None) -> str:
    """Return a SLURM_HOSTFILE: a line a rank, in rank order.

    Raises
    ------
    InputError
        If the cluster places by blocks: topology/block refuses hostfiles.
    """
    if topology is not None and topology.kind == "block":
        raise InputError(
            "the hostfile format: topology/block refuses SLURM_HOSTFILE; take the format hostlist to submit, "
            "and json or rankfile to give each node its rank"
        )
    return placed.hostfile


def sbatch_arguments(placed: Placed, topology: Topology | None = None) -> list[str]:
    """Return sbatch's arguments: the full list, and -N as long, as a shorter one is refused or filled up with others.

    A list that topology/block takes in segments alone is given by all other nodes of the cluster (-x): 24.11 refuses
    --segment beside -w, 26.05 takes either.

    Raises
    ------
    InputError
        If the list is too long for one argument.
    """
    segment = _segment(placed, topology) if topology is not None and topology.kind == "block" else None
    listed = node_set(placed)
    if segment and topology is not None:
        own = set(placed.nodes)
        listed = fold_names(sorted((n for b in topology.blocks for n in b.nodes if n not in own), key=natural))
    if len(listed.encode()) > MAX_ARGUMENT_BYTES:
        limit = f"more than the {MAX_ARGUMENT_BYTES:,} of one argument"
        raise InputError(
            f"the node list of {placed.job!r} takes {len(listed.encode()):,} bytes, {limit}; "
            "split the job, or number nodes so that they fold"
        )
    start = [
        f"--job-name={placed.job}",
        f"-N{len(placed.nodes)}",
        f"--ntasks-per-node={placed.gpus_per_node}",
        "--exclusive",
    ]
    if segment:
        return [*start, f"--segment={segment}", *(["-x", listed] if listed else [])]
    return [*start, "-w", listed]


def srun_arguments(placed: Placed, topology: Topology | None = None) -> list[str]:
    """Return srun's arguments inside the allocation.

    The arbitrary distribution follows SLURM_HOSTFILE, and takes no -N beside it (refused since 26.05); blocks take no
    hostfile.
    """
    if topology is not None and topology.kind == "block":
        return [f"-N{len(placed.nodes)}", f"-n{placed.ranks}"]
    return [f"-n{placed.ranks}", "-m", "arbitrary"]


def sbatch_line(placed: Placed, topology: Topology | None = None) -> str:
    """Return the line to submit with, the script left to the user."""
    return shlex.join(["sbatch", *sbatch_arguments(placed, topology)])


def srun_line(placed: Placed, topology: Topology | None = None) -> str:
    """Return the line that starts the ranks inside the allocation, in their order; by node name on topology/block."""
    line = shlex.join(["srun", *srun_arguments(placed, topology)])
    if topology is not None and topology.kind == "block":
        return line
    return f"SLURM_HOSTFILE={shlex.quote(HOSTFILE.format(job=placed.job))} {line}"


def hints(placed: Placed, topology: Topology) -> dict[str, str]:
    """Return what a submission without the node list may ask: --switches on a tree, --segment on blocks.

    --segment is left out where a group is larger than the base block (refused by 24.11) or the groups differ in size.
    """
    if topology.kind == "tree":
        leaf = leaf_of(topology)
        return {"switches": f"--switches={len({leaf[n] for n in placed.nodes})}"}
    sizes = {len(g.nodes) for g in placed.groups}
    if len(sizes) == 1 and (size := sizes.pop()) <= _block_sizes(topology)[0] and len(placed.nodes) % size == 0:
        return {"segment": f"--segment={size}"}
    return {}


def _segment(placed: Placed, topology: Topology) -> int | None:
    """Return the --segment that makes topology/block take the nodes, None where it takes their list without.

    On 24.11 and 26.05 a list must lie in as few aggregated blocks as its length allows, of the smallest size that fits
    it; divided into segments, each must lie in one block, wherever these are. The greatest common divisor of the nodes
    by base block is always such a segment, and never larger than a base block, the largest that 24.11 takes.
    """
    home = {n: i for i, b in enumerate(topology.blocks) for n in b.nodes}
    counts = Counter(home[n] for n in placed.nodes)
    sizes = _block_sizes(topology)
    level = next((s for s in sizes if s >= len(placed.nodes)), sizes[-1])
    used = len({i // (level // sizes[0]) for i in counts})
    return None if used <= -(-len(placed.nodes) // level) else math.gcd(*counts.values())


def _block_sizes(topology: Topology) -> tuple[int, ...]:
    """Return the sizes of aggregated blocks; without any, a block is only its own."""
    return topology.block_sizes or (min(len(b.nodes) for b in topology.blocks),)
