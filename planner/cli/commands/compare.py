"""`planner compare`: plans and rows of sweeps side by side."""

import json
from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError


def compare(
    files: Annotated[
        list[str], typer.Argument(help="Plans (JSON) and sweeps (JSONL, CSV); FILE#N takes the row of index N alone.")
    ],
    diff: Annotated[bool, typer.Option("--diff", help="Only what differs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Print plans and rows of sweeps side by side: decisions, times, cost, slack and proofs."""
    from planner.report.compare import columns_of_file, rows_of, table

    several = len({_path(given) for given in files}) > 1
    columns = [c for given in files for c in columns_of_file(_path(given), _index(given), several=several)]
    if len(columns) < 2:
        raise InputError(f"compare: give two plans or rows, or more (is {len(columns)})")
    rows = rows_of(columns, diff=diff)
    if as_json:
        print(json.dumps({"columns": [c.name for c in columns], **rows}, indent=1))
    else:
        print(table([c.name for c in columns], rows) if rows else "no difference")


def _path(given: str) -> Path:
    """Return the file of FILE#N; an existing file may have a # in its own name."""
    return Path(given if Path(given).exists() else given.partition("#")[0])


def _index(given: str) -> int | None:
    """Return the N of FILE#N."""
    number = given.removeprefix(str(_path(given))).removeprefix("#")
    if not number:
        return None
    if not number.isdigit():
        raise InputError(f"{given}: after # stands the index of a row, a whole number (is {number!r})")
    return int(number)
