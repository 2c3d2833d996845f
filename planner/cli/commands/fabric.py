"""`planner fabric`: what is built of a plan's fabric, as files that others read."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.commands.design_fabric import design
from planner.cli.console import BROKEN, DONE, INFEASIBLE, LIMIT, read_pins, require_choice, requiring_sound
from planner.cli.options import Constants, PlanFile
from planner.errors import InputError
from planner.files import require_writable, write_atomically, write_streamed
from planner.plan.files import plan_of, read_plan
from planner.plan.kinds import kind_of

if TYPE_CHECKING:
    from planner.exports.from_plan import BuiltFabric

app = typer.Typer(help="Work with the fabric of a site.", rich_markup_mode=None, no_args_is_help=True)
FORMATS = ("csv", "bom", "graphml", "dot", "slurm-conf", "slurm-yaml", "svg", "netbox", "failure-domains")
DETAILS = ("auto", "switch", "pod")
AXES_HELP = (
    "What no design may be beaten in at once: cost, and any of time (the slowdown of a pipeline send), power, "
    "leaf (larger), splits."
)


@app.callback()
def fabric() -> None:
    """Work with the fabric of a site."""


app.command()(design)


@app.command()
def export(
    plan: PlanFile,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Write the file here: of netbox a folder or .zip, of failure-domains .csv or .json."
        ),
    ],
    site: Annotated[str | None, typer.Option(help="The site, where the plan has several.")] = None,
    detail: Annotated[
        str,
        typer.Option(
            help="Of graphml and dot: switch (a node a switch), pod (a node a tier of a pod), or auto by size."
        ),
    ] = "auto",
) -> None:
    """Write a fabric: cable list (csv), bill of materials (bom), graph, Slurm topology, picture, NetBox import."""
    require_choice("--format", form, FORMATS)
    require_choice("--detail", detail, DETAILS)
    require_writable(None if form == "netbox" and output.suffix != ".zip" else output)
    from planner.exports import bill_of_materials, cable_list, graph, slurm
    from planner.exports.failure_domains import failure_domains_csv, failure_domains_json
    from planner.exports.from_plan import built_fabric
    from planner.report.page.fabric_tiers import fabric_svg

    given = read_plan(plan)
    with requiring_sound(given, plan):
        wired = built_fabric(given, site)
    writers: dict[str, Callable[[BuiltFabric], Iterator[str]]] = {
        "csv": cable_list.cable_list,
        "bom": bill_of_materials.bill_of_materials,
        "slurm-conf": slurm.topology_conf,
        "slurm-yaml": slurm.topology_yaml,
        "svg": fabric_svg,
        "graphml": partial(_graph, detail=detail, write=graph.graphml),
        "dot": partial(_graph, detail=detail, write=graph.dot),
        "failure-domains": partial(failure_domains_json if output.suffix == ".json" else failure_domains_csv, given),
    }
    with requiring_sound(given, plan):
        if form == "netbox":
            from planner.exports.netbox import write_netbox

            write_netbox(output, wired)
        else:
            write_streamed(output, partial(writers[form], wired))


def _graph(wired: "BuiltFabric", detail: str, write: "Callable[[Any], Iterator[str]]") -> Iterator[str]:
    """Write the graph of a fabric, of its switches or of the tiers of its pods."""
    from planner.exports.graph import MAX_EDGES, edges, graph

    count = edges(wired)
    by_pod = detail == "pod" or (detail == "auto" and count > MAX_EDGES)
    if by_pod and detail == "auto":
        choice = "written by pod; `--detail switch` writes every switch"
        print(f"{count:,} edges between switches > {MAX_EDGES:,}: {choice}", file=sys.stderr)
    return write(graph(wired, by_pod=by_pod))


@app.command()
def check(
    plan: PlanFile,
    cables: Annotated[
        Path,
        typer.Argument(metavar="CABLES", help="Cables as built: a list of `fabric export`, or NetBox's cables (CSV)."),
    ],
    site: Annotated[str | None, typer.Option(help="The site, where the plan has several.")] = None,
    show: Annotated[int, typer.Option(help="Lines of differences to print; all are counted.")] = 20,
) -> None:
    """Print which built cables are missing, extra or swapped against the design; exit status 1 where any differ."""
    from planner.exports.from_plan import built_fabric
    from planner.imports.built_cables import differences

    given = read_plan(plan)
    with requiring_sound(given, plan):
        wired = built_fabric(given, site)
    compared = differences(cables, wired)
    print("\n".join([compared.verdict, *compared.lines[:show]]))
    if len(compared.lines) > show:
        print(f"and {len(compared.lines) - show:,} more")
    raise typer.Exit(BROKEN if compared.lines else DONE)


@app.command()
def pareto(
    given: Annotated[
        Path,
        typer.Argument(metavar="INSTANCE|PLAN", help="Instance file, which is planned first, or plan file (JSON)."),
    ],
    leaf_sizes: Annotated[str | None, typer.Option(help="Racks of a leaf domain to compare: A,B,C.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for each site and leaf size.")] = 60.0,
    pin: Annotated[list[str] | None, typer.Option(help="Fix a decision of an instance: PATH=VALUE.")] = None,
    axes: Annotated[str, typer.Option(help=AXES_HELP)] = "cost,time,splits",
    every: Annotated[
        bool, typer.Option("--every", help="At every slowdown, and not only the best below each step of a ladder.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the designs here too, as rows for `planner plot` (.jsonl)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the designs as JSON and nothing else.")] = False,
    constants: Constants = None,
) -> None:
    """Print the fabrics that no other matches or beats on every axis, each with its proof."""
    from planner.formats.data import read_data
    from planner.imports.instance_file import instance_path
    from planner.planning.pareto import axes_of, frontier, lines, records, rules_given, table

    sizes, axis_names = _sizes(leaf_sizes), axes_of(axes)
    if output is not None and output.suffix != ".jsonl":
        raise InputError(f"{output}: must end in .jsonl")
    require_writable(output)
    path = instance_path(given)
    data = read_data(path)
    if kind_of(data) == "plan":
        if constants is not None:
            raise InputError(f"--constants: {given} is a plan, which has its own; give the instance, or leave them out")
        plan = plan_of(data, str(given))
    else:
        import planner
        from planner.planning.load import load_instance

        plan = planner.solve(load_instance(path, pins=read_pins(pin or []), constants=constants))
    if plan.layout is None or plan.fabric is None:
        why = f" ({plan.conflict.reason})" if plan.conflict else "; give it a network"
        raise InputError(f"{given}: holds no fabric to compare{why}")
    late: list[str] = []

    def report(line: str) -> None:
        late.append(line)
        print(line, file=sys.stderr)

    rows = list(frontier(plan, leaf_sizes=sizes, time_limit=time_limit, axes=axis_names, every=every, report=report))
    if output is not None:
        write_atomically(output, lines(rows))
    if not rows and late:
        print("no fabric was proven in the time given; give more", file=sys.stderr)
    elif not rows:
        given_rules = rules_given(plan.instance, sizes)
        print(f"no fabric carries the plan's traffic\ngiven: {given_rules}", file=sys.stderr)
    if as_json:
        print(json.dumps(records(rows), indent=1))
    elif rows:
        print(table(rows))
    raise typer.Exit(DONE if rows else LIMIT if late else INFEASIBLE)


def _sizes(text: str | None) -> list[int]:
    """Read the leaf sizes."""
    parts = [] if text is None else text.split(",")
    wrong = [x for x in parts if not (x.isdecimal() and int(x) >= 1)]
    if wrong:
        raise InputError(f"--leaf-sizes: must be whole numbers from 1, such as 200,208,210 (is {wrong[0]!r})")
    return [int(x) for x in parts]
