"""`planner fabric design`: the cheapest fabric of a cluster, and other kinds side by side."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import exit_code, read_pins
from planner.cli.options import Pins
from planner.errors import InputError
from planner.files import require_writable, write_atomically


def design(
    given: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="File with network and hardware and no workload, in place of options."),
    ] = None,
    hosts: Annotated[int | None, typer.Option(help="Hosts, or racks, that the fabric joins; all are cabled.")] = None,
    gpus_per_host: Annotated[int | None, typer.Option(help="GPUs of a host, each with its NIC.")] = None,
    nic_gbps: Annotated[float | None, typer.Option(help="Rate of one NIC, in Gb/s.")] = None,
    switch: Annotated[
        list[str] | None,
        typer.Option(help="Switch to choose from: a name (`planner catalogue switches`) or PORTSxGBPS:DOLLARS:WATTS."),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option(help="rail (unless given), rack, rail-only, dragonfly or dragonfly+.")
    ] = None,
    oversubscription: Annotated[
        str | None, typer.Option(help="Most ports down to one up: 4:1, by tier 1:1,7:1, or any; 1:1 unless given.")
    ] = None,
    survives: Annotated[
        str | None, typer.Option(help="Loss that cuts no two leaves: one_spine (unless given), one_leaf_uplink, none.")
    ] = None,
    planes: Annotated[int | None, typer.Option(help="Planes of the fabric.")] = None,
    max_tiers: Annotated[int, typer.Option(help="Most tiers of switches.")] = 4,
    floor: Annotated[str | None, typer.Option(help="PITCHxROW in metres: cables are priced by length.")] = None,
    transceiver_usd: Annotated[float | None, typer.Option(help="Price of one transceiver.")] = None,
    transceiver_watts: Annotated[float | None, typer.Option(help="Power of one transceiver.")] = None,
    budget: Annotated[float | None, typer.Option(help="Most that the fabric may cost, in dollars.")] = None,
    pin: Pins = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the search.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the fabric here, as a plan.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON and nothing else.")] = False,
) -> None:
    """Print the cheapest fabric that joins all hosts, with its proof, and why other kinds lost."""
    import planner
    from planner.planning.fabric_question import FabricWish, question_of, question_of_options
    from planner.report.summary import summary, terminal_width

    require_writable(output)
    needed = {"--hosts": hosts, "--gpus-per-host": gpus_per_host, "--nic-gbps": nic_gbps}
    named = [name for name, value in needed.items() if value is not None]
    pins = read_pins(pin or [])
    if given is not None:
        if named or switch or family or oversubscription or survives or planes or floor or budget:
            option = (named or ["--switch, --family and the like"])[0]
            raise InputError(f"{option}: {given} says what the fabric is for; give the file or options")
        question = question_of(given, pins)
    elif hosts is None or gpus_per_host is None or nic_gbps is None:
        missing = ", ".join(sorted(needed.keys() - named))
        raise InputError(f"{missing}: missing; or give a file with `network` and `hardware`")
    else:
        wish = FabricWish(
            hosts=hosts,
            gpus_per_host=gpus_per_host,
            nic_gbps=nic_gbps,
            switches=tuple(switch or ()),
            families=tuple(family or ()),
            oversubscription=oversubscription,
            survives=survives,
            planes=planes,
            max_tiers=max_tiers,
            floor=floor,
            transceiver_usd=transceiver_usd,
            transceiver_watts=transceiver_watts,
            budget_usd=budget,
        )
        question = question_of(question_of_options(wish), pins)
    plan = planner.design_fabric(question, time_limit=time_limit)
    if output is not None:
        write_atomically(output, plan.model_dump_json(indent=1) + "\n")
    print(plan.model_dump_json(indent=1) if as_json else summary(plan, terminal_width()))
    raise typer.Exit(exit_code(plan, None))
