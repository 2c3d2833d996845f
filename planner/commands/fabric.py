"""`planner fabric`: what is built of a plan's fabric, as files that others read."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError
from planner.terminal import read_plan

app = typer.Typer(help="Work with the fabric of a site.", rich_markup_mode=None, no_args_is_help=True)
FORMATS = ("csv", "graphml", "slurm-conf", "slurm-yaml", "svg")
DETAILS = ("auto", "switch", "pod")


@app.callback()
def fabric() -> None:
    """Work with the fabric of a site."""


@app.command()
def export(
    plan: Annotated[Path, typer.Argument(help="Plan file (JSON).")],
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the file here.")],
    site: Annotated[str | None, typer.Option(help="The site, where the plan has several.")] = None,
    detail: Annotated[str, typer.Option(help="Of graphml: switch (a node a switch), pod (a node a tier of a pod), or auto by size.")] = "auto",
) -> None:
    """Write the fabric of a site: cable list, graph, Slurm topology or picture."""
    for name, value, known in (("--format", form, FORMATS), ("--detail", detail, DETAILS)):
        if value not in known:
            raise InputError(f"{name}: must be one of {', '.join(known)} (is {value!r})")
    if not output.resolve().parent.is_dir():
        raise InputError(f"{output}: its folder does not exist; make it, or write elsewhere")
    from planner.export import cable_list, picture, slurm
    from planner.export.built import built
    from planner.export.files import write_streamed

    x = built(read_plan(plan), site)
    pieces = {"csv": cable_list.cable_list, "slurm-conf": slurm.topology_conf, "slurm-yaml": slurm.topology_yaml, "svg": picture.picture}
    if form == "graphml":
        import networkx as nx

        from planner.export.graph import MOST_EDGES, edges, graph

        by_pod = detail == "pod" or (detail == "auto" and edges(x) > MOST_EDGES)
        if by_pod and detail == "auto":
            told = f"{edges(x):,} edges between switches > {MOST_EDGES:,}: written by pod; `--detail switch` writes every switch"
            print(told, file=sys.stderr)
        write_streamed(output, (f"{line}\n" for line in nx.generate_graphml(graph(x, by_pod=by_pod))))
    else:
        write_streamed(output, pieces[form](x))
