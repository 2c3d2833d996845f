"""`planner simulate`: flows on a plan's or a fabric's real wiring."""

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    network: Annotated[
        Path,
        typer.Argument(metavar="PLAN|FABRIC", help="Plan file, or fabric file (hosts, ports_per_switch, tiers, ...)."),
    ],
    pattern: Annotated[
        str,
        typer.Option(help="permutation, p2p, allreduce, alltoall, several (p2p+allreduce), or a CSV src,dst,bytes."),
    ] = "permutation",
    transport: Annotated[str, typer.Option(help="ecmp, spray or adaptive.")] = "ecmp",
    seeds: Annotated[int, typer.Option(help="Runs: other hashes, permutations and failed links.")] = 1,
    site: Annotated[str | None, typer.Option(help="Site of the plan; its largest where not given.")] = None,
    failed_links: Annotated[int, typer.Option(help="Cables between switches that are out.")] = 0,
    hosts: Annotated[int | None, typer.Option(help="Hosts to simulate.")] = None,
    bytes_per_host: Annotated[float | None, typer.Option("--bytes", help="Bytes that one host sends in all.")] = None,
    group: Annotated[
        int | None, typer.Option(help="Hosts of a group (a stage, in p2p), in place of a plan's placement.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Simulate an exchange over every cable, with queues and pauses at switches; print its time over the ideal."""
    import planner
    from planner.simulation.run import summary

    simulation = planner.simulate(
        network,
        pattern=pattern,
        transport=transport,
        seeds=seeds,
        site=site,
        failed_links=failed_links,
        hosts=hosts,
        bytes_per_host=bytes_per_host,
        group=group,
    )
    print(simulation.model_dump_json(indent=1) if as_json else summary(simulation))
