"""A job from a few words: its nodes and its mesh."""

import math
from typing import Any

from planner.cluster.job import Job, read_job
from planner.errors import InputError

EXAMPLE = "such as pipeline=4,data=12"


def parse_mesh(text: str, option: str) -> dict[str, int]:
    """Read AXIS=SIZE,AXIS=SIZE in rank order, slowest first; tp, pp, dp, ep and cp are axes too.

    Raises
    ------
    InputError
        A part is no AXIS=SIZE, or an axis stands twice.
    """
    mesh: dict[str, int] = {}
    for part in text.split(","):
        axis, equals, size = (x.strip() for x in part.partition("="))
        if not equals or not axis or not size.isascii() or not size.isdigit() or not 0 < int(size[:10]) <= 10**9:
            raise InputError(f"{option}: must be AXIS=SIZE,... {EXAMPLE} (is {part!r})")
        if axis in mesh:
            raise InputError(f"{option}: axis {axis!r} stands twice; keep one")
        mesh[axis] = int(size)
    return mesh


def mesh_job(
    name: str, mesh: str | None, nodes: int | None, *, gpus_per_node: int | None = None, option: str = "--mesh"
) -> Job:
    """Return the job of a mesh on some nodes: each member has its equal share of them.

    Without a mesh all nodes are one all-reduce group; without nodes each member has one.

    Raises
    ------
    InputError
        Nodes are not a multiple of the mesh's members, or the mesh is none.
    """
    if mesh is None and nodes is None:
        raise InputError(f"--job, --nodes, --mesh: give a job file, or nodes and a mesh {EXAMPLE}")
    axes = {"data": nodes} if mesh is None else parse_mesh(mesh, option)
    members = math.prod(n for n in axes.values() if n is not None)
    each, rest = divmod(nodes or members, members)
    if rest or not each:
        raise InputError(f"--nodes: must be a multiple of the {members:,} members of {option} (is {nodes}); change one")
    data: dict[str, Any] = {"name": name, "mesh": axes, "nodes_per_member": each}
    return read_job(data if gpus_per_node is None else data | {"gpus_per_node": gpus_per_node})
