"""Read a cluster's topology from a file."""

from pathlib import Path

from pydantic import ValidationError

from planner.errors import InputError
from planner.load import complaints, read_json
from planner.placement import Placement
from planner.topology import Topology


def read_topology(path: Path) -> Topology:
    """Read a topology from its own JSON, or say what is wrong with it."""
    data = read_json(path)
    try:
        return Topology.model_validate(data)
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, str(path), Topology))) from None


def unavailable_nodes(path: Path, topology: Topology) -> list[str]:
    """Read the nodes that are not idle from lines of a hostlist and a state, such as `sinfo -h -N -o "%N %t"` prints."""
    from planner.physics.hostlist import expand

    known = {n for s in topology.switches for n in s.nodes} | {n for b in topology.blocks for n in b.nodes}
    found = []
    for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        nodes, _, state = line.strip().partition(" ")
        if nodes and not state.strip():
            raise InputError(f"{path}: line {at}: {line!r} has no state; write a hostlist and a state")
        found += [n for n in expand(nodes) if n in known and state.strip() != "idle"]
    return found


def write_placement(placed: Placement, form: str, topology: Topology) -> str:
    """Write a placement for a scheduler."""
    raise InputError(f"--format {form}: {placed.job} on {len(topology.switches)} switches: choose hostlist or json")
