"""`planner topology`: a cluster's topology checked, and written for another scheduler."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.errors import InputError
from planner.files import require_folder, write_atomically
from planner.solvers.signals import uninterrupted

if TYPE_CHECKING:
    from planner.cluster.topology import Topology

FORMATS = ("conf", "yaml", "kueue", "volcano")


def topology(
    file: Annotated[Path, typer.Argument(help="Topology file, or a plan.")],
    form: Annotated[
        str | None, typer.Option("--format", help=f"What to write: {', '.join(FORMATS)}; only a summary unless given.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write here in the place of stdout.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Which topology of a topology.yaml; its default unless given.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Kubernetes label that names a switch above a node; once a tier, leaf first."),
    ] = None,
) -> None:
    """Check a cluster's topology, say what it holds, and write it for another scheduler: Slurm, Kueue or Volcano."""
    with uninterrupted():
        from planner.formats.read import read_topology
        from planner.formats.write import write_topology

    if form is not None and form not in FORMATS:
        raise InputError(f"--format: must be one of {', '.join(FORMATS)} (is {form!r})")
    if output is not None and form is None:
        raise InputError(f"-o: say in which --format ({', '.join(FORMATS)})")
    require_folder(output)
    read = read_topology(file, keys=label or (), name=name)
    text = None if form is None else write_topology(read, form)
    if text is not None and output is None:
        print(text, end="")
        return
    if text is not None and output is not None:
        write_atomically(output, text)
    print(summary(read))


def summary(read: "Topology") -> str:
    """Say the tiers, leaves and nodes on one line."""
    from planner.models.placement.data import leaves_of

    leaves = leaves_of(read)
    sizes = sorted({len(leaf.nodes) for leaf in leaves})
    tiers = [f"{len({leaf.path[t] for leaf in leaves}):,} switches of tier {t + 2}" for t in range(len(leaves[0].path))]
    of = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    leaf = "blocks" if read.kind == "block" else "leaves"
    parts = [f"{sum(len(x.nodes) for x in leaves):,} nodes", f"{len(leaves):,} {leaf} of {of}", *tiers]
    if read.kind == "tree" and read.blocks:
        parts.append(f"{len(read.blocks):,} blocks inside the leaves")
    return ", ".join(parts)
