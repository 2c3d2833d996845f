"""Return the support of the constants behind a prediction by measured rows: rows, sources, and standard deviations.

`constant_support` of the catalogue has the posterior of the fit: the standard deviation of each constant's logarithm,
and the correlations between them.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
from pydantic import Field

from planner.instance.base import Frozen, NonNegative
from planner.instance.workload import catalogue
from planner.physics.training.operations import Machine

MOVE = 0.01  # of a constant's logarithm, for the slope of a step
SIXTEEN_BITS = ("bf16", "fp16")  # one share of peak for both


class ConstantSupport(Frozen):
    """Measured rows behind one constant of some accelerators or software stacks."""

    kind: Literal["accelerators", "software"]
    entries: tuple[str, ...]
    path: str
    rows: int = Field(description="Rows of the fit whose step changes with it by 1 % or more of its own change.")
    sources: int = Field(description="Sources that these rows come from.")
    deviation: NonNegative = Field(description="Standard deviation left of its logarithm.")

    def touches(self, machine: Machine) -> bool:
        """Return whether it is a constant of a machine."""
        return (machine.gpu.name if self.kind == "accelerators" else machine.software.name) in self.entries


class SupportTable(Frozen):
    """All constants of the fit, and the correlations in per cent of pairs by their places, those from 5 % on."""

    source: str
    constants: tuple[ConstantSupport, ...]
    correlations: tuple[tuple[int, int, int], ...]


@cache
def support_table() -> SupportTable:
    """Return the catalogue's table."""
    return SupportTable.model_validate(catalogue("constant_support"))


def support_of(machine: Machine) -> dict[str, ConstantSupport]:
    """Return the support of each constant of a machine, by `accelerators` or `software` and the constant's path."""
    return {f"{row.kind}.{row.path}": row for row in support_table().constants if row.touches(machine)}


def step_deviation(machine: Machine, seconds: Callable[[Machine], float]) -> float:
    """Return the standard deviation of a step's logarithm that the posterior of its constants leaves, linearised."""
    table = support_table()
    own = [i for i, constant in enumerate(table.constants) if constant.touches(machine)]
    if not own:
        return 0.0
    base, place = math.log(seconds(machine)), {i: place for place, i in enumerate(own)}
    slopes = np.array([math.log(seconds(moved(machine, table.constants[i]))) - base for i in own]) / MOVE
    along = slopes * np.array([table.constants[i].deviation for i in own])
    together = np.eye(len(own))
    for i, j, per_cent in table.correlations:
        if i in place and j in place:
            together[place[i], place[j]] = together[place[j], place[i]] = per_cent / 100
    return math.sqrt(max(0.0, float(along @ together @ along)))


def moved(machine: Machine, constant: ConstantSupport) -> Machine:
    """Return a machine with a constant of it a little larger."""
    if constant.kind == "accelerators":
        return replace(machine, gpu=_scaled(machine.gpu, constant.path.split(".")))
    return replace(machine, software=_scaled(machine.software, constant.path.split(".")))


def _scaled(part: Any, keys: list[str]) -> Any:
    """Return a part of a machine, or a mapping of it, with the figure at some keys scaled."""
    key, *rest = keys
    if isinstance(part, dict):
        both = SIXTEEN_BITS if key in SIXTEEN_BITS else (key,)
        return part | {key: part[key] * math.exp(MOVE) for key in both if key in part}
    value = getattr(part, key)
    return part.model_copy(update={key: _scaled(value, rest) if rest else value * math.exp(MOVE)})
