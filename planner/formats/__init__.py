"""Read a cluster's topology from a file."""

from pathlib import Path

from pydantic import ValidationError

from planner.errors import InputError
from planner.load import complaints, read_json
from planner.topology import Topology


def read_topology(path: Path) -> Topology:
    """Read a topology from its own JSON, or say what is wrong with it."""
    data = read_json(path)
    try:
        return Topology.model_validate(data)
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, str(path), Topology))) from None
