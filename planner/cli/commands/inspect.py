"""`planner check`, `show`, `compare` and `schema`: look at files without planning anything."""

import json
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import BROKEN, DONE, requiring_sound
from planner.cli.options import PlanFile, Verbose
from planner.errors import InputError
from planner.files import exists
from planner.plan.files import read_plan


def check(plan: PlanFile) -> None:
    """Verify a plan against the instance inside it; print each violated rule, nothing where all hold."""
    import planner

    violations = planner.check(read_plan(plan))
    for violation in violations:
        print(f"{violation.rule}: {violation.message}")
    raise typer.Exit(BROKEN if violations else DONE)


def show(
    plan: PlanFile,
    section: Annotated[
        str | None,
        typer.Argument(help="One section whole: sites, layout, fabric, placement, days, money, limits, warnings, …"),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Print a plan's summary, all that it says, or one section of it."""
    from planner.report.summary import summary, terminal_width

    given = read_plan(plan)
    with requiring_sound(given, plan):
        text = summary(given, terminal_width(), verbose=verbose, section=section)
    print(text)


def compare(
    files: Annotated[
        list[str], typer.Argument(help="Plans (JSON) and sweeps (JSONL, CSV); FILE#N takes the row of index N alone.")
    ],
    diff: Annotated[bool, typer.Option("--diff", help="Only what differs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Compare plans and sweep rows with the first: verdicts, what differs, by which terms, and all figures."""
    from planner.report.compare import MOST_JUDGED, best, columns_of_file, rows_of, table, verdicts
    from planner.report.summary import PIPE, fitted, terminal_width

    several = len({_path(given) for given in files}) > 1
    columns = [c for given in files for c in columns_of_file(_path(given), _index(given), several=several)]
    if len(columns) < 2:
        raise InputError(f"compare: give two plans or rows, or more (is {len(columns)})")
    rows = rows_of(columns, diff=diff)
    if as_json:
        print(json.dumps({"columns": [c.name for c in columns], **rows}, indent=1))
    else:
        width = terminal_width() or PIPE
        judged = [best(columns), ""] if len(columns) > 2 and best(columns) else []
        print(fitted("\n".join([*judged, *verdicts(columns[:MOST_JUDGED])]), width), end="\n\n")
        print(table([c.name for c in columns], rows, width) if rows else "no difference")


def _path(given: str) -> Path:
    """Return the file of FILE#N; an existing file may have a # in its own name."""
    return Path(given if exists(Path(given)) else given.partition("#")[0])


def _index(given: str) -> int | None:
    """Return the N of FILE#N."""
    number = given.removeprefix(str(_path(given))).removeprefix("#")
    if not number:
        return None
    if not (number.isascii() and number.isdigit()):
        raise InputError(f"{given}: after # stands the index of a row, a whole number (is {number!r})")
    return int(number)


def schema(what: Annotated[str, typer.Argument(help="instance, plan, job or placement.")]) -> None:
    """Print the JSON Schema of an instance, a plan, a job or a placement."""
    from planner.cli.schemas import SCHEMAS, schema_text

    if what not in SCHEMAS:
        raise InputError(f"schema: must be one of {', '.join(sorted(SCHEMAS))} (is {what!r})")
    print(schema_text(what), end="")
