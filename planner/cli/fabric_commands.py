"""`planner fabric` and `simulate`: a plan's fabric as files, the cheapest fabric alone, flows on a fabric."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Typer

import planner
from planner.cli import console
from planner.cli.console import ExitCode
from planner.errors import InputError
from planner.files import require_writable, write_streamed
from planner.imports.command_options import FabricWish
from planner.plan.plan_files import kind_of, plan_of

if TYPE_CHECKING:
    from planner.exports.fabric_parts import BuiltFabric

KEYS = {  # where a file says what an option asks for
    "--hosts": "hardware.racks",
    "--gpus-per-host": "hardware.rack.gpus",
    "--nic-gbps": "hardware.nic_bytes_per_second",
    "--switch": "network.switches",
    "--family": "network.families",
    "--oversubscription": "network.max_oversubscription",
    "--survives": "network.survives",
    "--planes": "pins: {fabric.planes: ...}",
    "--max-lanes": "network.max_lanes",
    "--rails-per-leaf": "network.max_rails_per_leaf",
    "--max-tiers": "network.max_tiers",
    "--floor": "network.floor",
    "--transceiver-usd": "network.optics.price_usd",
    "--transceiver-watts": "network.optics.power_watts",
    "--budget": "limits.budget_usd",
}


app = Typer(help="Work with the fabric of a site.", rich_markup_mode=None, no_args_is_help=True)


@app.command()
def design(
    given: Annotated[
        Path | None,
        Argument(metavar="[FILE]", help="File with network and hardware and no workload, in place of options."),
    ] = None,
    *,
    wish: FabricWish,
    pin: console.Pins = None,
    time_limit: Annotated[float | None, "Seconds for the search."] = None,
    output: Annotated[Path | None, "Write the fabric here, as a plan."] = None,
    as_json: Annotated[bool, "Print the plan as JSON and nothing else."] = False,
) -> None:
    """Print the cheapest fabric that joins all hosts, with its proof, and why other kinds lost."""
    from planner.imports.fabric_question import fabric_data
    from planner.planning.load import question_of
    from planner.report.summary import summary

    pins = console.read_pins(pin)
    options = [f"--{name.replace('_', '-')}" for name, value in asdict(wish).items() if value is not None]
    if given is not None and options:
        what = f"{given} says what the fabric is for: write {KEYS[options[0]]} there, or give options alone"
        raise InputError(f"{options[0]}: {what}")
    question = question_of(fabric_data(wish) if given is None else given, pins)
    plan = planner.design_fabric(question, time_limit=time_limit)
    console.write_model(plan, output)
    print(plan.model_dump_json(indent=1) if as_json else summary(plan, console.terminal_width()))
    raise Exit(console.exit_code(plan, None))


ENDINGS = {  # of the file of each format of an export
    **{"csv": (".csv",), "bom": (".csv",), "graphml": (".graphml", ".xml"), "dot": (".dot", ".gv")},
    **{"slurm-conf": (".conf",), "slurm-yaml": (".yaml", ".yml"), "svg": (".svg",)},
    **{"netbox": (".zip",), "failure-domains": (".csv", ".json")},
}
FORMATS = tuple(ENDINGS)
AXES = "cost,time,splits"
AXES_HELP = "Not beaten in all at once: cost, and any of time (slowdown of sends), power, leaf (larger), splits."


@app.command()
def export(
    plan: console.PlanFile,
    form: Annotated[str, f"One of {', '.join(FORMATS)}."],
    target: Annotated[Path, "With the format's ending: of netbox a folder or .zip, of failure-domains .csv or .json."],
    site: Annotated[str | None, "The site, where the plan has several."] = None,
    detail: Annotated[str, "Of graphml, dot: switch (a node each), pod (one a tier of a pod), auto by size."] = "auto",
) -> None:
    """Write a fabric: cable list (csv), bill of materials (bom), graph, Slurm topology, picture, NetBox import."""
    console.require_choice("--format", form, FORMATS)
    console.require_choice("--detail", detail, ("auto", "switch", "pod"))
    if detail != "auto" and form not in ("graphml", "dot"):
        raise InputError(f"--detail {detail}: is of graphml and dot alone; leave it out")
    suffix = target.suffix.lower()
    of = [name for name, endings in ENDINGS.items() if suffix in endings]
    if form not in of and suffix and (of or form != "netbox"):  # a folder may have any other name
        others = f", or give --format {' or '.join(of)}" if of else ""
        raise InputError(f"{target}: --format {form} ends in {' or '.join(ENDINGS[form])}; rename it{others}")
    require_writable(None if form == "netbox" and target.suffix.lower() != ".zip" else target)
    from planner.exports import fabric_graph, fabric_parts
    from planner.report.page.drawings import fabric_svg

    with console.showable_plan(plan) as given:
        writers: dict[str, Callable[[BuiltFabric], Iterator[str]]] = {
            "csv": fabric_parts.cable_list,
            "bom": fabric_parts.bill_of_materials,
            "slurm-conf": partial(fabric_graph.slurm_topology, as_yaml=False),
            "slurm-yaml": partial(fabric_graph.slurm_topology, as_yaml=True),
            "svg": fabric_svg,
            "failure-domains": partial(fabric_graph.failure_domains_text, given, as_json=suffix == ".json"),
        }
        wired = fabric_parts.built_fabric(given, site, str(plan))
        if form == "netbox":
            fabric_parts.write_netbox(target, wired)
        elif form in ("graphml", "dot"):
            count, most, leaves = fabric_graph.edges(wired), fabric_graph.MAX_EDGES, wired.design.leaves
            if detail == "auto" and count > most:
                choice = "written by pod; `--detail switch` writes every switch"
                parts = f"{count - leaves:,} between switches, {leaves:,} from leaves to racks"
                print(f"{count:,} edges ({parts}) > {most:,}: {choice}", file=sys.stderr)
            nodes = fabric_graph.graph(wired, by_pod=detail == "pod" or (detail == "auto" and count > most))
            write = fabric_graph.graphml if form == "graphml" else fabric_graph.dot
            write_streamed(target, lambda: write(nodes))
        else:
            write_streamed(target, partial(writers[form], wired))


@app.command()
def check(
    plan: console.PlanFile,
    cables: Annotated[
        Path, Argument(metavar="CABLES", help="Cables as built: a list of `fabric export`, or NetBox's cables (CSV).")
    ],
    site: Annotated[str | None, "The site, where the plan has several."] = None,
    show: Annotated[int, "Lines of differences to print; all are counted."] = 20,
) -> None:
    """Print which built cables are missing, extra, moved, doubled or swapped; exit status 1 where any differ."""
    from planner.exports.built_cables import differences
    from planner.exports.fabric_parts import built_fabric

    with console.showable_plan(plan) as given:
        wired = built_fabric(given, site, str(plan))
    verdict, lines = differences(cables, wired)
    print("\n".join([verdict, *lines[:show]]))
    if len(lines) > show:
        print(f"and {len(lines) - show:,} more")
    raise Exit(ExitCode.BROKEN if lines else ExitCode.DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierWish:
    """Options of `planner fabric pareto` for the fabric designs that it compares."""

    leaf_sizes: Annotated[str | None, "Racks of a leaf domain to compare: A,B,C."] = None
    axes: Annotated[str, AXES_HELP] = AXES
    every: Annotated[bool, "At every slowdown, and not only the best below each step of a ladder."] = False


@app.command()
def pareto(
    given: Annotated[
        Path, Argument(metavar="INSTANCE|PLAN", help="Instance file, which is planned first, or plan file (JSON).")
    ],
    *,
    wish: FrontierWish,
    time_limit: Annotated[float, "Seconds for each site and leaf size."] = 60.0,
    pin: Annotated[list[str] | None, "Fix a decision of an instance: PATH=VALUE."] = None,
    output: Annotated[Path | None, "Write the designs here too, for `planner plot`: .jsonl, .csv or .parquet."] = None,
    as_json: Annotated[bool, "Print the designs as JSON and nothing else."] = False,
    constants: console.Constants = None,
) -> None:
    """Print the fabrics that no other matches or beats on every axis, each with its proof.

    Of a question or plan without a workload it prints the cheapest fabric at each oversubscription that saves money.
    """
    from planner.formats.yaml_text import read_data
    from planner.imports.instance_file import instance_path
    from planner.planning.load import load_instance, question_of
    from planner.planning.site_fabrics import axes_of, frontier, rules_given
    from planner.report.tables import fabric_ratio_table, fabric_table
    from planner.sweeps.row_store import journal_of, write_rows

    parts = [] if wish.leaf_sizes is None else wish.leaf_sizes.split(",")
    if wrong := [part for part in parts if not (part.isdecimal() and int(part) >= 1)]:
        raise InputError(f"--leaf-sizes: must be whole numbers from 1, such as 200,208,210 (is {wrong[0]!r})")
    sizes, axis_names = [int(part) for part in parts], axes_of(wish.axes)
    if output is not None:
        journal_of(output)
    path, late = instance_path(given), list[str]()
    data = read_data(path)

    if kind_of(data) == "question" or (kind_of(data) == "plan" and not data["instance"].get("workload")):
        from planner.planning.cheapest_fabric import by_ratio

        if sizes or wish.every or constants is not None or wish.axes != AXES:
            without = "a fabric alone has no traffic; leave out --leaf-sizes, --axes, --every, --constants"
            raise InputError(f"{given}: {without}")
        asked = question_of(path if kind_of(data) == "question" else data["instance"], console.read_pins(pin))
        rows = list(by_ratio(asked, time_limit))
        text = fabric_ratio_table(rows)
    else:
        if kind_of(data) == "plan" and (pin or constants is not None):
            what = f"{'--pin' if pin else '--constants'}: {given} is a plan, which has its own"
            raise InputError(f"{what}; give the instance, or leave them out")
        if kind_of(data) == "plan":
            plan = plan_of(data, str(given))
        else:
            plan = planner.solve(load_instance(path, pins=console.read_pins(pin), constants=constants))
        if plan.conflict is not None:
            print(f"{given}: no plan, and so no fabric to compare: {plan.conflict.reason}", file=sys.stderr)
            raise Exit(console.exit_code(plan, None))
        if plan.layout is None or plan.fabric is None:
            raise InputError(f"{given}: holds no fabric to compare; give it a network")
        own: dict[str, Any] = {"leaf_sizes": sizes, "axes": axis_names, "every": wish.every, "time_limit": time_limit}
        rows = list(frontier(plan, report=late.append, **own))
        print(*late, sep="\n", end="\n" * bool(late), file=sys.stderr)
        text = fabric_table(rows) if rows else ""
        if not rows:
            none = f"no fabric carries the plan's traffic\ngiven: {rules_given(plan.instance, sizes)}"
            print("no fabric was proven in the time given; give more" if late else none, file=sys.stderr)
    if output is not None and rows:
        write_rows(output, [{"status": "optimal", **row} for row in rows])
    if as_json or text:
        print(json.dumps(rows, indent=1) if as_json else text)
    raise Exit(ExitCode.LIMIT if late else ExitCode.DONE if rows else ExitCode.INFEASIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOptions:
    """Options of `planner simulate`: the exchange to simulate, and the runs of it, as `planner.simulate` takes them."""

    pattern: Annotated[
        str, "permutation, p2p, allreduce, alltoall, several (p2p+allreduce), or a CSV src,dst,bytes."
    ] = "permutation"
    transport: Annotated[str, "ecmp, spray or adaptive."] = "ecmp"
    seeds: Annotated[int, "Runs: other hashes, permutations and failed links."] = 1
    site: Annotated[str | None, "Site of the plan; its largest where not given."] = None
    failed_links: Annotated[int, "Cables between switches that are out."] = 0
    hosts: Annotated[int | None, "Hosts to simulate, in a plan GPUs: no more than there are."] = None
    bytes_per_host: Annotated[float | None, "Bytes that one host sends in all."] = None
    group: Annotated[int | None, "Hosts of a group (of a stage, in p2p): of a plan's placement, else 16."] = None


def simulate(
    network: Annotated[
        Path, Argument(metavar="PLAN|FABRIC", help="Plan file, or fabric file (hosts, ports_per_switch, tiers, ...).")
    ],
    exchange: ExchangeOptions,
    watched: console.ProgressOptions,
    as_json: Annotated[bool, "Print the result as JSON and nothing else."] = False,
) -> None:
    """Simulate an exchange over every cable, with queues and pauses at switches; print its time over the ideal."""
    from planner.simulation.simulate import summary

    with watched.line() as watch:
        simulation = planner.simulate(network, **asdict(exchange), progress=watch)
    print(simulation.model_dump_json(indent=1) if as_json else summary(simulation))
