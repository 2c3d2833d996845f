"""`planner check`, `planner show` and `planner schema`: look at files without planning anything."""

from typing import Annotated

import typer

from planner.cli.console import BROKEN, DONE, requiring_sound
from planner.cli.options import PlanFile
from planner.errors import InputError
from planner.plan.files import read_plan


def check(plan: PlanFile) -> None:
    """Verify a plan against the instance inside it; print each violated rule, nothing where all hold."""
    import planner

    violations = planner.check(read_plan(plan))
    for violation in violations:
        print(f"{violation.rule}: {violation.message}")
    raise typer.Exit(BROKEN if violations else DONE)


def show(plan: PlanFile) -> None:
    """Print a plan's summary."""
    from planner.report.summary import summary

    given = read_plan(plan)
    with requiring_sound(given, plan):
        text = summary(given)
    print(text)


def schema(what: Annotated[str, typer.Argument(help="instance, plan, job or placement.")]) -> None:
    """Print the JSON Schema of an instance, a plan, a job or a placement."""
    from planner.cli.schemas import SCHEMAS, schema_text

    if what not in SCHEMAS:
        raise InputError(f"schema: must be one of {', '.join(sorted(SCHEMAS))} (is {what!r})")
    print(schema_text(what), end="")
