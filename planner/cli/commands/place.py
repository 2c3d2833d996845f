"""`planner place`: one job on a real cluster's topology."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import DONE, INFEASIBLE, INTERRUPTED, LIMIT
from planner.errors import InputError
from planner.files import require_folder, write_atomically
from planner.solvers.signals import uninterrupted

if TYPE_CHECKING:
    from planner.cluster.placement import Placement
    from planner.cluster.topology import Topology

FORMATS = ("hostlist", "sbatch", "hostfile", "mpi-hostfile", "rankfile", "json", "kueue", "volcano")


def place(
    topology: Annotated[Path, typer.Option(help="Topology file.")],
    job: Annotated[Path, typer.Option(help="Job file, or a plan (JSON).")],
    busy: Annotated[str, typer.Option(help="Hostlist of nodes that are taken or broken.")] = "",
    state: Annotated[Path | None, typer.Option(help="File of node states; only idle nodes are used.")] = None,
    form: Annotated[str, typer.Option("--format", help=f"What to write: {', '.join(FORMATS)}.")] = "hostlist",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write here in the place of stdout.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the proofs, 10 unless given.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads of the solver; 1 unless given.")] = None,
    objective: Annotated[
        str, typer.Option(help="locality, or step-time: a plan's job by its predicted step on the plan's fabric.")
    ] = "locality",
    fragmentation: Annotated[
        bool, typer.Option("--fragmentation", help="Search the fewest leaves left part-free too.")
    ] = False,
    topology_name: Annotated[
        str | None, typer.Option(help="Which topology of a topology.yaml; its default unless given.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Kubernetes label that names a switch above a node; once a tier, leaf first."),
    ] = None,
    running: Annotated[
        Path | None, typer.Option(help="The job's placement as it runs (from --format json), where nodes of it failed.")
    ] = None,
    replace: Annotated[
        str, typer.Option(help="Hostlist of failed nodes of the running job: their ranks alone move.")
    ] = "",
) -> None:
    """Place one job on the free nodes of a cluster: fewest split groups, then pieces, then groups across pods."""
    with uninterrupted():
        import planner
        import planner.formats.write
        import planner.scheduling.session
        from planner.formats.read import read_topology

    if form not in FORMATS:
        raise InputError(f"--format: must be one of {', '.join(FORMATS)} (is {form!r})")
    if time_limit is not None and not time_limit >= 0:
        raise InputError(f"--time-limit: must be 0 or more seconds (is {time_limit:g})")
    require_folder(output)
    if bool(replace) != (running is not None):
        raise InputError("--replace, --running: give both: the failed nodes, and the placement that they failed in")
    options: dict[str, Any] = {"busy": busy, "state": state, "time_limit": time_limit, "seed": seed, "threads": threads}
    cluster = read_topology(topology, keys=label or (), name=topology_name)
    if running is not None:
        from planner.scheduling.repair import replace_in_files

        found = replace_in_files(cluster, job, running, replace, **options)
    else:
        found = planner.place(cluster, job, fragmentation=fragmentation, objective=objective, **options)
    if not found.nodes:
        print(found.reason)
        raise typer.Exit(INFEASIBLE)
    text = written(found, form, cluster)
    if output is not None:
        write_atomically(output, text)
        print(summary(found))
    else:
        print(text, end="")
    if found.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DONE if found.certificate.status == "optimal" else LIMIT)


def written(found: "Placement", form: str, topology: "Topology") -> str:
    """Return a placement in one of the formats; JSON holds all that is known of it beside what schedulers take."""
    from planner.formats.placement import Placed, PlacedGroup
    from planner.formats.write import as_document, write_placed

    gpus = {} if found.gpus_per_node is None else {"gpus_per_node": found.gpus_per_node}
    groups = tuple(PlacedGroup(name=g.name, nodes=g.nodes) for g in found.groups)
    placed = Placed(
        job=found.job, nodes=found.nodes, groups=groups, certificate=found.certificate.model_dump(mode="json"), **gpus
    )
    if form == "json":
        return json.dumps({**as_document(placed, topology), **found.model_dump(mode="json")}, indent=1) + "\n"
    return write_placed(placed, topology, form)


def summary(found: "Placement") -> str:
    """Say the figures and their bounds on one line."""
    searched = found.certificate.minimizes
    levels = ", ".join(
        f"{f.value} {f.name} ({'bound' if f.name in searched else 'not searched, at least'} {f.bound})"
        for f in found.figures
    )
    if found.step_seconds is not None:
        levels = f"step {found.step_seconds:.6g} s (at least {found.step_seconds_bound:.6g} s); {levels}"
    return (
        f"{found.job}: {len(found.nodes):,} nodes, {len(found.groups):,} groups; {levels}; {found.certificate.status}"
    )
