"""`planner place`: one job on a real cluster's topology."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import DONE, INFEASIBLE, INTERRUPTED, LIMIT, require_choice
from planner.cli.options import InsteadOfStdout, Log, NodeLabels, TopologyName
from planner.cli.watch import progress_line
from planner.errors import InputError
from planner.files import require_writable, write_atomically
from planner.formats.names import PLACEMENT_FORMATS
from planner.solvers.signals import uninterrupted

if TYPE_CHECKING:
    from planner.cluster.placement import Placement
    from planner.cluster.topology import Topology


def place(
    topology: Annotated[Path, typer.Option(help="Topology file.")],
    job: Annotated[Path | None, typer.Option(help="Job file, or a plan (JSON).")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of the job, in place of a file.")] = None,
    mesh: Annotated[str | None, typer.Option(help="Its mesh in rank order, such as pipeline=4,data=12.")] = None,
    name: Annotated[str, typer.Option(help="Its name.")] = "job",
    gpus_per_node: Annotated[int | None, typer.Option(help="Its ranks on one node.")] = None,
    busy: Annotated[str, typer.Option(help="Hostlist of nodes in use or down; the job avoids them.")] = "",
    state: Annotated[Path | None, typer.Option(help="File of node states; only idle nodes are used.")] = None,
    form: Annotated[str, typer.Option("--format", help=f"What to write: {', '.join(PLACEMENT_FORMATS)}.")] = "hostlist",
    output: InsteadOfStdout = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the proofs, 10 unless given.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads of the solver; 1 unless given.")] = None,
    objective: Annotated[
        str, typer.Option(help="locality, or step-time: a plan's job by its predicted step on the plan's fabric.")
    ] = "locality",
    fragmentation: Annotated[
        bool, typer.Option("--fragmentation", help="Among equal placements, leave the fewest leaves partly free.")
    ] = False,
    order: Annotated[
        str, typer.Option(help="Order of ranks: any, or name where the launcher numbers them by node name.")
    ] = "any",
    only: Annotated[str | None, typer.Option(help="Hostlist of nodes that the job may use: an allocation.")] = None,
    topology_name: TopologyName = None,
    label: NodeLabels = None,
    running: Annotated[
        Path | None, typer.Option(help="The job's placement as it runs (from --format json), where nodes of it failed.")
    ] = None,
    replace: Annotated[
        str, typer.Option(help="Hostlist of failed nodes of the running job: their ranks alone move.")
    ] = "",
    log: Log = None,
) -> None:
    """Place one job on free nodes with the fewest split groups, then fragments, then groups across pods."""
    with uninterrupted():
        import planner
        import planner.formats.write
        import planner.scheduling.session
        from planner.formats.read import read_topology

    require_choice("--format", form, PLACEMENT_FORMATS)
    require_writable(output)
    if bool(replace) != (running is not None):
        raise InputError("--replace, --running: give both: the failed nodes, and the placement that they failed in")
    inline = job is None or nodes is not None or mesh is not None
    if inline and job is not None:
        raise InputError(f"--job {job}: a job's file has its nodes and its mesh; leave out --nodes and --mesh")
    if inline and (running is not None or objective != "locality"):
        raise InputError("--job: --replace and --objective step-time need the job's file; give it")
    from planner.cluster.mesh import mesh_job

    wanted = mesh_job(name, mesh, nodes, gpus_per_node=gpus_per_node) if job is None else job
    options: dict[str, Any] = {"state": None, "time_limit": time_limit, "seed": seed, "threads": threads}
    cluster = read_topology(topology, keys=label or (), name=topology_name)
    options |= _nodes_in_use(cluster, topology, state, busy)
    if running is not None and job is not None:
        from planner.scheduling.repair import replace_in_files

        if order != "any" or only is not None:
            raise InputError("--replace: --order and --only do not go with it; leave them out")
        placement = replace_in_files(cluster, job, running, replace, **options)
    else:
        with progress_line(log=log) as report:
            report("placing")
            placement = planner.place(
                cluster, wanted, fragmentation=fragmentation, objective=objective, order=order, only=only, **options
            )
            report(f"placed: {placement.certificate.status}")
    if not placement.nodes:
        print(f"{placement.reason}\ngiven: {placement.certificate.given}")
        raise typer.Exit(INFEASIBLE)
    text = placement_text(placement, form, cluster)
    if output is not None:
        write_atomically(output, text)
        print(summary(placement))
    else:
        print(text, end="")
    if placement.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(DONE if placement.certificate.status == "optimal" else LIMIT)


def _nodes_in_use(cluster: "Topology", topology: Path, state: Path | None, busy: str) -> dict[str, Any]:
    """Return the nodes in use by name and by state; tell what of both files no placement follows.

    States are read once: they may come from a pipe.
    """
    from planner.cluster.hostlist import read_hosts
    from planner.formats.read import topology_items
    from planner.formats.slurm.node_states import read_states, states_on

    reported, found = [(topology, topology_items(topology))], read_hosts(busy, "busy") if busy else []
    if state is not None:
        states = read_states(state)
        reported.append((state, states.items))
        found += sorted(states_on(cluster, states, str(state)).taken)
    for path, items in reported:
        if note := items.note():
            print(f"{path}: {note}", file=sys.stderr)
    return {"busy": found}


def placement_text(placement: "Placement", form: str, topology: "Topology") -> str:
    """Write a placement in one of the formats; JSON has its figures and proof beside what schedulers take."""
    from planner.formats.placement import Placed, PlacedGroup
    from planner.formats.write import as_document, write_placed

    gpus = {} if placement.gpus_per_node is None else {"gpus_per_node": placement.gpus_per_node}
    groups = tuple(PlacedGroup(name=g.name, nodes=g.nodes) for g in placement.groups)
    certificate = placement.certificate.model_dump(mode="json")
    placed = Placed(job=placement.job, nodes=placement.nodes, groups=groups, certificate=certificate, **gpus)
    if form == "json":
        return json.dumps({**as_document(placed, topology), **placement.model_dump(mode="json")}, indent=1) + "\n"
    return write_placed(placed, topology, form)


def summary(placement: "Placement") -> str:
    """Write the figures and their bounds on one line."""
    searched = placement.certificate.minimizes
    levels = ", ".join(
        f"{f.value} {f.name} ({'bound' if f.name in searched else 'not searched, at least'} {f.bound})"
        for f in placement.figures
    )
    if placement.step_seconds is not None:
        levels = f"step {placement.step_seconds:.6g} s (at least {placement.step_seconds_bound:.6g} s); {levels}"
    size = f"{len(placement.nodes):,} nodes, {len(placement.groups):,} groups"
    return f"{placement.job}: {size}; {levels}; {placement.certificate.status}"
