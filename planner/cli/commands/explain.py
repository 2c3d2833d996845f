"""`planner explain`: why there is no plan, or what binds it."""

from typing import Annotated

import typer

from planner.cli.console import DONE, INFEASIBLE, LIMIT, UNVERIFIED, read_pins, what_if
from planner.cli.options import Changes, Constants, InstanceFile, Log, Pins, Quiet
from planner.cli.watch import progress_line


def explain(
    instance: InstanceFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON and nothing else.")] = False,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the plan, and for each alternative.")] = None,
    pin: Pins = None,
    change: Changes = None,
    near: Annotated[int, typer.Option(help="List the N best splits, each over another set of sites.")] = 0,
    within: Annotated[
        float, typer.Option(help="Largest cost of a split of --near above the best: 0.05 is 5 %.")
    ] = 0.05,
    quiet: Quiet = False,
    log: Log = None,
    constants: Constants = None,
) -> None:
    """Explain why there is no plan and what would allow one; or what limits a plan and what each choice costs."""
    import planner
    from planner.planning.explain import summary
    from planner.report.summary import fitted, terminal_width

    pins, asked = read_pins(pin or []), what_if(instance, change)
    with progress_line(quiet, log) as watch:
        explanation = planner.explain(
            asked,
            time_limit=time_limit,
            pins=pins,
            near=near,
            within=within,
            constants=constants,
            on_progress=watch.event,
        )
    print(explanation.model_dump_json(indent=1) if as_json else fitted(summary(explanation), terminal_width()))
    if explanation.violations:
        raise typer.Exit(UNVERIFIED)
    raise typer.Exit({"infeasible": INFEASIBLE, "unknown": LIMIT}.get(explanation.status, DONE))
