"""The file of a sweep: complete rows appended by one writer, read when it is resumed, and made a table at the end."""

import csv
import fcntl
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from planner.errors import InputError
from planner.files import require_writable, unwritable, write_atomically
from planner.sweeps.parquet import need_pyarrow, write_parquet
from planner.sweeps.rows import Row

LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".parquet")


def journal_of(output: Path) -> Path:
    """Return the file that rows go to as they come: the output, or the journal beside a table."""
    if output.suffix in LINES:
        return output
    if output.suffix in TABLES:
        return output.with_name(output.name + ".jsonl")
    ending = output.suffix or "without an ending"
    raise InputError(f"{output}: must end in {', '.join((*LINES, *TABLES))} (is {ending!r})")


class Store:
    """Rows on disk, under a lock for as long as it is open.

    Raises
    ------
    InputError
        Another sweep writes the file, it has rows and is not resumed, or a line of it is no row.
    """

    def __init__(self, output: Path, *, resume: bool) -> None:
        self.output, self.path = output, journal_of(output)
        require_writable(output)
        if output.suffix == ".parquet":
            need_pyarrow()
        self._lock = self._locked()
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            self.rows = self._rows_of_earlier_run(resume)
        except OSError as error:
            self._lock.close()
            raise unwritable(self.path, error) from None
        except InputError:
            self.close()
            raise

    def _locked(self) -> io.TextIOWrapper:
        """Take the lock; the kernel gives it back when the process ends, however it ends."""
        beside = self.path.with_name(f".{self.path.name}.lock")
        try:
            lock = beside.open("a+", encoding="utf-8")
        except OSError as error:
            raise unwritable(self.path, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            problem = f"another sweep is writing it (process {owner})"
            raise InputError(f"{self.path}: {problem}; wait for it, or choose another file") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def _rows_of_earlier_run(self, resume: bool) -> list[Row]:
        """Read the rows that are there; cut off what a killed run left of its last line."""
        data = self.path.read_bytes()
        if data and not resume:
            raise InputError(f"{self.path}: holds a sweep already; go on with --resume, or choose another file")
        complete = data[: data.rfind(b"\n") + 1]
        if len(complete) < len(data):
            os.truncate(self.path, len(complete))
        return parse_rows(self.path, complete)

    @property
    def finished(self) -> frozenset[str]:
        """Keys of the points that have a row."""
        return frozenset(r.key for r in self.rows)

    def append(self, row: Row) -> None:
        """Write a row in one piece, and return when it is on the disk."""
        line = (row.model_dump_json(exclude_none=True) + "\n").encode()
        if os.write(self._file, line) < len(line):
            raise InputError(f"{self.path}: the disk is full; free space and go on with --resume")
        os.fsync(self._file)
        self.rows.append(row)

    def tabulate(self) -> None:
        """Write the table, where one was asked for, from all rows on the disk in the order of the sweep."""
        # An interrupt may have come between a row's way to the disk and to the list.
        self.rows = read_rows(self.path)
        rows = sorted(self.rows, key=lambda r: r.index)
        if self.output.suffix == ".csv":
            write_atomically(self.output, csv_text(rows))
        elif self.output.suffix == ".parquet":
            write_parquet(self.output, columns_of(rows))

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._file)
        self._lock.close()

    def __enter__(self) -> Self:
        """Return the open store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a JSONL file; a torn last line is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a file of rows") from None
    return parse_rows(path, data[: data.rfind(b"\n") + 1])


def parse_rows(path: Path, data: bytes) -> list[Row]:
    """Read rows from complete lines, or name the line that is none."""
    from pydantic import ValidationError

    rows = []
    # Not splitlines of the text: JSON may hold U+0085, U+2028 and U+2029 as they are.
    for n, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            rows.append(Row.model_validate_json(line.decode("utf-8", "replace")))
        except ValidationError as error:
            problem = f"is no row of a sweep ({error.errors(include_url=False)[0]['msg']})"
            raise InputError(f"{path}: line {n}: {problem}; remove the line, or choose another file") from None
    return rows


def columns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return rows as columns; a column of numbers and texts becomes texts, one of integers and other numbers floats."""
    flat = [r.flat() for r in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return {name: _of_one_type([row.get(name) for row in flat]) for name in names}


def _of_one_type(values: list[Any]) -> list[Any]:
    """Convert the values of a column to one type."""
    plain = [json.dumps(v) if isinstance(v, (dict, list)) else v for v in values]
    kinds = {type(v) for v in plain if v is not None}
    if len(kinds) <= 1:
        return plain
    if kinds == {int, float}:
        return [None if v is None else float(v) for v in plain]
    return [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in plain]


def csv_text(rows: Sequence[Row]) -> str:
    """Write rows as CSV."""
    columns = columns_of(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()
