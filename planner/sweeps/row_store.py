"""Rows of a sweep, one a point, and their file: appended by one writer, resumed, made a table at the end."""

import fcntl
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_serializer, field_validator

from planner import files
from planner.errors import InputError, needed
from planner.files import csv_text, leaves, read_bytes, require_writable, unwritable, write_atomically, write_fallback
from planner.instance.base_types import Frozen
from planner.physics.training import step_prediction
from planner.plan.plan import Curve, Plan
from planner.plan.plan_figures import Figure, digest
from planner.planning.frontier import Frontier
from planner.version import __version__

MOST = 1e300  # of a figure
FAILED: Literal["failed"] = "failed"
CURVE_FIGURES = ("capital_usd", "days_to_train", "bound_days", "racks", "layout")  # of each point, in a table of rows
LINES = (".jsonl", ".ndjson")
ROW_BEGINS = b'{"schema_version":1,"index":'
TABLES = (".csv", ".parquet")
CURVE = ".json"  # the curve itself, with its proven epsilon
ENDINGS = (CURVE, *LINES, *TABLES)


class RowObjective(Frozen):
    """The objective in a sweep's row: its name, value, bounds and gaps."""

    name: str
    value: float | None = None
    bound: float | None = None
    gap: float | None = None
    joint_bound: float | None = None
    joint_gap: float | None = None
    fabric_free_bound: float | None = None


class Row(Frozen):
    """The row of a sweep: the answer at one point."""

    schema_version: Literal[1] = 1
    index: int = Field(description="Place of the point in the sweep, from 0.")
    key: str = Field(
        description="SHA-256 of the instance as solved, the planner's version and the options of the solve."
    )
    point: dict[str, Any] = Field(description="Value by path; a pin's path begins with pins.")
    status: Literal["optimal", "feasible", "infeasible", "unknown", "failed"]
    stopped: Literal["proved", "gap", "limit", "interrupted"] | None = None
    verified: bool | None = Field(None, description="Whether the checker agrees with the plan; null: not checked.")
    objective: RowObjective | None = None
    reason: str | None = Field(None, description="Why there is no plan.")
    rules: tuple[str, ...] = Field((), description="Rules in conflict, where the point is infeasible.")
    extrapolated: tuple[str, ...] = Field((), description="What no measured run has shown of the plan's layout.")
    plan: dict[str, Figure] = Field(default_factory=dict, description="Figures of the plan by their own dotted names.")
    curve: Curve | None = Field(None, description="The whole curve, where that is the goal; the plan is a point of it.")
    planner_version: str = __version__
    base: dict[str, str] = Field(
        default_factory=dict, description="SHA-256 (its first 12 digits) of each part of the sweep's instance by key."
    )
    seconds: float = Field(description="Wall time of the solve.")

    @field_validator("point", "plan", "objective", mode="before")
    @classmethod
    def _as_floats(cls, figures: Any) -> Any:
        """Refuse whole numbers of a sweep's row that no float holds: its figures are compared and drawn as floats."""
        for name, value in figures.items() if isinstance(figures, dict) else ():
            if isinstance(value, int) and abs(value) > MOST:
                raise ValueError(f"{name[:40]} is beyond {MOST:g}")
        return figures

    @field_serializer("curve")
    def _whole(self, curve: Curve | None) -> dict[str, Any] | None:
        """Keep a curve's null keys in a sweep's row, which leaves nulls out of everything else."""
        return None if curve is None else curve.model_dump(mode="json")

    def flat(self) -> dict[str, Any]:
        """Return a sweep's row as one level of columns: the point's paths, the plan's names, and the row's own.

        A curve is its proven share and its points: a column for each of their figures, joined by semicolons.
        """
        own = self.model_dump(mode="json", exclude={"point", "plan", "objective", "schema_version", "base"})
        own |= {key: "; ".join(getattr(self, key)) or None for key in ("rules", "extrapolated")}
        objective = (self.objective or RowObjective(name="")).model_dump()
        front, curve = {key: own.pop(key) for key in ("index", "key")}, flat_curve(own.pop("curve"))
        bounds = {f"objective.{key}": value for key, value in objective.items()}
        return {**front, **self.point, **own, **bounds, **self.plan, **curve}


def flat_curve(curve: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a sweep row's columns of a curve: its proven share, number of points, and the figures of all of them."""
    if curve is None:
        return {}
    columns: dict[str, Any] = {"curve.epsilon": curve["epsilon"], "curve.stopped": curve["stopped"]}
    columns["curve.count"] = len(curve["points"])
    for name in CURVE_FIGURES:
        values = [point[name] for point in curve["points"]]
        texts = ["-" if x is None else x if isinstance(x, str) else f"{x:.10g}" for x in values]
        columns[f"curve.points.{name}"] = "; ".join(texts)
    return columns


def row_of_plan(index: int, key: str, point: dict[str, Any], plan: Plan, seconds: float) -> Row:
    """Return the sweep's row that sums up the plan at a point."""
    return Row(
        index=index,
        key=key,
        point=point,
        objective=RowObjective.model_validate(plan.objective.model_dump(include=set(RowObjective.model_fields))),
        reason=plan.conflict.reason if plan.conflict else None,
        rules=plan.conflict.rules if plan.conflict else (),
        extrapolated=tuple(step_prediction.extrapolations(plan.instance, plan.layout).values()) if plan.layout else (),
        plan=digest(plan),
        seconds=seconds,
        **{name: getattr(plan, name) for name in ("status", "stopped", "verified", "curve")},
    )


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Read a sweep's rows from a Parquet file. InputError: the file cannot be read as Parquet."""
    pyarrow, parquet = need_pyarrow()
    try:
        return list(parquet.read_table(path).to_pylist())
    except (OSError, pyarrow.ArrowException) as error:
        problem = str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be read as Parquet ({problem}); give the rows of `planner sweep`") from None


def need_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module, to store a sweep's rows. InputError: it is not installed."""
    with needed("a .parquet file, unlike .csv,", "pyarrow", "parquet"):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet


def journal_of(output: Path) -> Path:
    """Return the file that a sweep's rows are appended to: JSON lines, or a table's journal. InputError: neither."""
    if output.suffix in LINES:
        return output
    if output.suffix in TABLES:
        if output.suffix == ".parquet":
            need_pyarrow()
        return output.with_name(output.name + ".jsonl")
    ending = output.suffix or "without an ending"
    raise InputError(f"{output}: must end in {', '.join((*LINES, *TABLES))} (is {ending!r})")


class Store(AbstractContextManager["Store"]):
    """A sweep's rows on disk, locked while open. InputError: in use, not resumed, another instance or version."""

    def __init__(self, output: Path, *, resume: bool, base: Mapping[str, str] | None = None) -> None:
        # The journal of a link's table is the table's own; the lock is on the file itself, by whatever name.
        self.output = output
        self.path = journal_of(Path(os.path.realpath(output)) if output.is_symlink() else output)
        rows = Path(os.path.realpath(self.path))
        self._owner = rows.with_name(f".{rows.name}.lock")  # names the process that writes the rows
        require_writable(output, self.path)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise unwritable(self.path, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the process ends, however it ends
            data = self.path.read_bytes()
            if data and not resume:
                raise InputError(f"{self.path}: holds a sweep already; go on with --resume, or choose another file")
            self.rows = parse_rows(self.path, data)
            if not data.endswith(b"\n"):
                os.truncate(self.path, data.rfind(b"\n") + 1)
            for row in self.rows:
                if row.planner_version != __version__:
                    differs = f"planner {row.planner_version} wrote its rows, this is {__version__}"
                elif base is not None and row.base != base:
                    parts = sorted(key for key in {*row.base, *base} if row.base.get(key) != base.get(key))
                    differs = f"its rows are of another instance, which differs in {', '.join(parts)}"
                else:
                    continue
                begun = "go on with what it was begun with, or begin anew in another file"
                raise InputError(f"{self.path}: {differs}; {begun}")
        except (InputError, OSError) as error:
            os.close(self._file)
            if isinstance(error, InputError):
                raise
            if isinstance(error, BlockingIOError):
                owner = self._owner.read_text(encoding="utf-8").strip() if self._owner.exists() else ""
                problem = f"another sweep is writing it (process {owner or 'unknown'})"
                raise InputError(f"{self.path}: {problem}; wait for it, or choose another file") from None
            raise unwritable(self.path, error) from None
        self._owner.write_text(f"{os.getpid()}\n", encoding="utf-8")

    def append(self, row: Row) -> None:
        """Write a sweep's row in one piece, and return once it is on disk."""
        line = (row.model_dump_json(exclude_none=True) + "\n").encode()
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            problem = f"cannot be written ({error.strerror})"
        else:
            problem = "" if written == len(line) else "cannot be written to its end: the disk is full"
        if problem:
            fallback = write_fallback(self.path, lambda: [line])
            kept = f"; the last row is in {fallback}" if fallback else ""
            raise InputError(f"{self.path}: {problem}{kept}; free space and go on with --resume")
        self.rows.append(row)

    def tabulate(self) -> None:
        """Write the sweep's table, where one was asked for, from all rows on disk in the order of the points."""
        # An interrupt may have come between a row's way to the disk and to the list.
        self.rows = read_rows(self.path)
        rows = sorted(self.rows, key=lambda row: row.index)
        if self.output.suffix in TABLES:
            write_table(self.output, [row.flat() for row in rows])

    def __exit__(self, *_: object) -> None:
        """Close the file of a sweep's rows, which releases the lock."""
        with suppress(OSError):
            self._owner.unlink(missing_ok=True)
        os.close(self._file)


def read_rows(path: Path) -> list[Row]:
    """Read a sweep's rows from a JSONL file, the latest of each point; a torn last line is left out."""
    return parse_rows(path, read_bytes(path, "give a file of rows"))


def parse_rows(path: Path, data: bytes) -> list[Row]:
    """Read the latest row of each key of a sweep; InputError: an invalid line, or an end that is no row's start."""
    # Not splitlines of the text: JSON may hold U+0085, U+2028 and U+2029 as they are.
    *lines, torn = data.split(b"\n")
    if not (torn.startswith(ROW_BEGINS) or ROW_BEGINS.startswith(torn)):
        raise InputError(f"{path}: its last line is no row of a sweep; remove the line, or choose another file")
    rows: dict[str, Row] = {}  # a failed point that was solved later is solved
    for number, line in enumerate(lines, 1):
        try:
            row = Row.model_validate_json(line.decode("utf-8", "replace"))
        except ValidationError as error:
            problem = f"is no row of a sweep ({error.errors(include_url=False)[0]['msg']})"
            raise InputError(f"{path}: line {number}: {problem}; remove the line, or choose another file") from None
        rows[row.key] = row
    return list(rows.values())


def write_rows(path: Path, rows: Sequence[Row | dict[str, Any]]) -> None:
    """Write all rows of a sweep at once, or rows of other figures, as the ending asks: lines, CSV or Parquet."""
    if path.suffix in TABLES:
        write_table(path, [row.flat() if isinstance(row, Row) else flattened(row) for row in rows])
        return
    lines = (row.model_dump_json(exclude_none=True) if isinstance(row, Row) else json.dumps(row) for row in rows)
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write flat rows of a sweep as a CSV or Parquet table: mixed numbers become floats, numbers and texts texts."""
    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        plain = [json.dumps(value) if isinstance(value, (dict, list)) else value for value in values]
        kinds = {type(value) for value in plain if value is not None}
        if kinds == {int, float}:
            plain = [None if value is None else float(value) for value in plain]
        elif len(kinds) > 1:
            plain = [None if item is None else item if isinstance(item, str) else json.dumps(item) for item in plain]
        columns[name] = plain
    if path.suffix == ".csv":
        write_atomically(path, csv_text([columns, *zip(*columns.values(), strict=True)]))
        return
    pyarrow, parquet = need_pyarrow()
    table = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), table)
    write_atomically(path, table.getvalue())


def curve_rows(frontier: Frontier, seconds: float) -> Iterator[Row]:
    """Yield a frontier's points as rows of a sweep, by capital, each with the bound of plans up to it and `seconds`."""
    instance = frontier.instance.model_dump_json()
    for index, (found, plan) in enumerate(zip(frontier.curve.points, frontier.plans, strict=True)):
        point = {"frontier.capital_usd": found.capital_usd}
        key = sha256(f"{instance} {found.capital_usd!r} {found.days_to_train!r}".encode()).hexdigest()
        days, bound = found.days_to_train, found.bound_days
        gap = None if bound is None else max(0.0, days - bound) / days
        objective = RowObjective(name="days_to_train", value=days, bound=bound, gap=gap)
        own = {"frontier.layout": found.layout, "frontier.idle_gpus": found.idle_gpus, "frontier.knee": found.knee}
        yield row_of_plan(index, key, point, plan, seconds).replaced(objective=objective, plan={**digest(plan), **own})


FlatRow = dict[str, Any]  # figures of a row on one level, by dotted name
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def read_flat_rows(path: Path) -> list[FlatRow]:
    """Read a sweep's rows, flat: JSON lines (less a torn last one), CSV or Parquet. InputError: there are none."""
    if path.suffix == ".parquet":
        numbered = list(enumerate(read_parquet(path), 1))
    else:
        remedy = "give the rows of `planner sweep`"
        text = files.read_text(path, remedy)
        if path.suffix == ".csv":
            cells = files.csv_rows(path, text)
            head = next(cells, (1, []))[1]
            numbered = [(line, {key: cell or None for key, cell in zip(head, row, strict=True)}) for line, row in cells]
        else:
            numbered = [(line, flattened(row)) for line, row in files.json_lines(path, text, remedy, torn=True)]
    rows: dict[Any, FlatRow] = {}
    for number, found in numbered:
        where = f"{path}: line {number}"
        row = {key: value for key, value in found.items() if value is not None}
        if path.suffix not in LINES:
            texts = {key: value for key, value in row.items() if isinstance(value, str)}
            for key, text in texts.items():
                if not NUMBER.fullmatch(text):
                    row[key] = {"true": True, "false": False}.get(text.lower(), files.unescaped(text))
                elif not math.isfinite(float(text)):
                    problem = f"{text[:40]} is beyond the largest number of 1.8e308; give a finite figure"
                    raise InputError(f"{where}: {key}: {problem}")
                else:
                    whole = text.lstrip("+-").isdigit() and len(text) < files.MAX_DIGITS
                    row[key] = int(text) if whole else float(text)
        if not isinstance(row.get("index", 0), int):
            raise InputError(f"{where}: index: must be a whole number (is {row['index']}); give the rows of a sweep")
        rows[row.get("key", number)] = row  # of each point the latest
    if not rows:
        raise InputError(f"{path}: holds no rows; run `planner sweep -o {path}` first")
    return list(rows.values())


def flattened(row: dict[str, Any]) -> FlatRow:
    """Return a sweep's row on one level; entries of lists go by their id or name, else by position."""
    plain = {key: value for key, value in row.items() if key not in ("schema_version", "base", "curve")}
    plain |= {key: "; ".join(row[key]) for key in ("rules", "extrapolated") if row.get(key)}
    figures: FlatRow = {}
    for path, value in leaves(plain, entry=".{}"):  # figures of the point and of the plan go by their own names
        figures.setdefault(path.removeprefix("plan." if path.startswith("plan.") else "point."), value)
    return figures | flat_curve(row.get("curve"))


def planned(row: FlatRow) -> bool:
    """Return whether a sweep's row has a plan."""
    return row.get("status") in ("optimal", "feasible")


def number(row: FlatRow, path: str) -> float | None:
    """Return a figure of a sweep's row that is a finite number, or None."""
    value = row.get(path)
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain and value is not None else None


def why_none(row: FlatRow) -> str:
    """Return why a sweep's row has no plan: its status and the rules in conflict, or else the reason."""
    status = str(row.get("status") or "no status")
    why = str(row.get("rules") or row.get("reason") or row.get("stopped") or "")
    return f"{status}: {why}" if why else status
