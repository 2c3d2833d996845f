"""Why a row of a table of measured runs cannot be a case, so that any table can be read to its end."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from calibration_rows import Case

Row = dict[str, str]
COUNTS = {
    "gpus": ("gpus", "# GPUs"),
    "batch": ("global_batch", "global batch"),
    "micro_batch": ("micro_batch", "micro batch"),
    "heads": ("heads", "attention heads"),
    "EP": ("EP",),
    **{name: (name, text) for name, text in (("TP", "tensor parallelism"), ("PP", "pipeline parallelism"))},
    **{name: (name, text) for name, text in (("DP", "data parallelism"), ("layers", "# layers"))},
    **{name: (name, text) for name, text in (("hidden", "hidden size"), ("seq", "sequence length"))},
    **{name: (name,) for name in ("CP", "kv_heads", "ffn", "vocab", "micro_batches")},
}
"""Columns of whole numbers from 1, by what tables call them; an empty cell is not stated."""
SECONDS = ("step_s", "derived_step_s", "step_ms", "iteration time (ms)")
END_LAYERS = 2  # a pipeline may count the embedding and the head as a layer each


def case_of(reader: "Callable[[Row], Case | str]", row: Row, table: str) -> "Case | str":
    """Return the case that a reader makes of a row of a table, or why the row cannot be one.

    A row that names no source has that of its table: the first word of its name.
    """
    problem = next(number_problems(row), None)
    if problem is not None:
        return problem
    try:
        case = reader(row)
        if isinstance(case, str):
            return case
        named = replace(case, source=row.get("source") or table.split("_", maxsplit=1)[0])
        return next(shape_problems(case, row), named)
    except KeyError as error:
        return f"names or lacks {error}, which is in no catalogue and no column"
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"describes no run: {'.'.join(map(str, first['loc']))} {first['msg']}".replace("  ", " ")
    except (ArithmeticError, TypeError, ValueError) as error:
        return f"describes no run: {str(error).splitlines()[0]}"


def stated(row: Row, what: str) -> str:
    """Return the text of a column, under any of its names; empty where it is not stated."""
    return next((row[name] for name in COUNTS[what] if row.get(name)), "")


def number_problems(row: Row) -> Iterator[str]:
    """Return what stands in a row's columns of numbers and is none, or none that is possible."""
    if None in row or None in row.values():
        yield "has more or fewer cells than the table has columns"
        return
    for what in COUNTS:
        text = stated(row, what)
        if text and not (_number(text) >= 1 and _number(text).is_integer()):
            yield f"{what} is not a whole number from 1"
    for name in SECONDS:
        if row.get(name) and not 0 < _number(row[name]) < math.inf:
            yield f"{name} is not a time"


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def shape_problems(case: "Case", row: Row) -> Iterator[str]:
    """Return why a case's degrees cannot be those of a run."""
    s, model = case.strategy, case.machine.model
    gpus, batch = stated(row, "gpus"), stated(row, "batch")
    if gpus and s.gpus != float(gpus):
        yield "TP x CP x PP x DP is not the number of GPUs"
    if batch and stated(row, "micro_batch") and s.data_parallel * s.micro_batch * s.micro_batches != float(batch):
        yield "DP x micro-batch does not divide the global batch"
    if s.pipeline_parallel * s.virtual_stages > model.layers + END_LAYERS:
        yield "has more stages than layers"
    if stated(row, "heads") and model.heads % s.tensor_parallel:
        yield "TP does not divide the heads"
    if model.experts and model.experts.count % s.expert_parallel:
        yield "EP does not divide the experts"
    if not 0 < case.predict() < math.inf:
        yield "has no step that can be predicted"
