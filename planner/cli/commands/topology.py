"""`planner topology`: a cluster's topology checked, and written for another scheduler."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import require_choice
from planner.cli.options import InsteadOfStdout, NodeLabels, TopologyName
from planner.errors import InputError
from planner.files import require_writable, write_atomically
from planner.formats.names import TOPOLOGY_FORMATS
from planner.solvers.signals import uninterrupted

if TYPE_CHECKING:
    from planner.cluster.topology import Topology


def topology(
    file: Annotated[Path, typer.Argument(help="Topology file, or a plan.")],
    form: Annotated[
        str | None,
        typer.Option("--format", help=f"What to write: {', '.join(TOPOLOGY_FORMATS)}; only a summary unless given."),
    ] = None,
    output: InsteadOfStdout = None,
    name: TopologyName = None,
    label: NodeLabels = None,
) -> None:
    """Check a cluster's topology, say how large it is, and write it for another scheduler: Slurm, Kueue or Volcano."""
    with uninterrupted():
        from planner.formats.read import read_topology
        from planner.formats.write import write_topology

    if form is not None:
        require_choice("--format", form, TOPOLOGY_FORMATS)
    if output is not None and form is None:
        raise InputError(f"-o: say in which --format ({', '.join(TOPOLOGY_FORMATS)})")
    require_writable(output)
    cluster = read_topology(file, keys=label or (), name=name)
    text = None if form is None else write_topology(cluster, form)
    if text is not None and output is None:
        print(text, end="")
        return
    if text is not None and output is not None:
        write_atomically(output, text)
    print(summary(cluster))


def summary(cluster: "Topology") -> str:
    """Write the number of nodes, leaves and switches of each tier on one line."""
    from planner.models.placement.data import leaves_of

    leaves = leaves_of(cluster)
    sizes = sorted({len(leaf.nodes) for leaf in leaves})
    tiers = [f"{len({leaf.path[t] for leaf in leaves}):,} switches of tier {t + 2}" for t in range(len(leaves[0].path))]
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    noun = "blocks" if cluster.kind == "block" else "leaves"
    parts = [f"{sum(len(leaf.nodes) for leaf in leaves):,} nodes", f"{len(leaves):,} {noun} of {size}", *tiers]
    if cluster.kind == "tree" and cluster.blocks:
        parts.append(f"{len(cluster.blocks):,} blocks inside the leaves")
    return ", ".join(parts)
