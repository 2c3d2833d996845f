"""Tables of rows as Parquet, for which pyarrow is loaded only when one is asked for."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import write_atomically
from planner.optional_packages import needed


def write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns as Parquet."""
    pyarrow, parquet = need_pyarrow()
    table = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), table)
    write_atomically(path, table.getvalue())


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a Parquet file.

    Raises
    ------
    InputError
        The file cannot be read as Parquet.
    """
    pyarrow, parquet = need_pyarrow()
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        problem = str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be read as Parquet ({problem}); give the rows of `planner sweep`") from None
    return rows


def need_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module.

    Raises
    ------
    InputError
        It is not installed.
    """
    with needed("a .parquet file, unlike .csv,", "pyarrow", "parquet"):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet
