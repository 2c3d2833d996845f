"""Tables of rows as Parquet, for which pyarrow is loaded only when one is asked for."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.optional_packages import needed


def write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns as Parquet, to a temporary name first."""
    pyarrow, parquet = need_pyarrow()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        parquet.write_table(pyarrow.table(dict(columns)), beside)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({error}); choose another place") from None


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a Parquet file.

    Raises
    ------
    InputError
        The file cannot be read as Parquet.
    """
    pyarrow, parquet = need_pyarrow()
    try:
        found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(
            f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]}); give the rows of `planner sweep`"
        ) from None
    return found


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
