"""Errors of a predicted step: intervals by class of run, extrapolations, and the rows that support the constants."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
from pydantic import Field

from planner.instance.base_types import Count, Frozen, NonNegative, Positive
from planner.instance.catalogue_entries import catalogue
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy

COVERAGE = 0.8  # of measured rows that lie in an interval
FEW_ROWS = 10  # behind a constant: of fewer it is named
MIN_ROWS = 5  # of a class
NODE_GPUS, MANY_GPUS = 8, 1000
ANY = "any"
YEAR = re.compile(r"-\d{4}(-\w+)?$")  # of a release of a software stack, and its variant


class ErrorClass(Frozen):
    """Errors of a class of measured steps against predictions of them; spreads are standard deviations."""

    rows: Count
    sources: Count = Field(description="Sources that the rows come from.")
    between_sources: NonNegative = Field(description="Spread of mean log errors of sources, each left out of the fit.")
    bias: float = Field(description="Mean of predicted over measured seconds, less 1.")
    within_sources: NonNegative = Field(description="Spread round means of sources, shrunk to that of wider classes.")
    measured_over_predicted: tuple[Positive, Positive] = Field(description="Within it 4 of 5 rows of a source lie.")
    unmeasured_over_predicted: tuple[Positive, Positive] = Field(description="With an unmeasured accelerator or stack.")
    ranges: dict[str, tuple[float, float]] = Field(description="Smallest and largest of each degree among the rows.")


class SourceSpreads(Frozen):
    """Errors by source: how far sources of measured steps lie from predictions, and the intervals' width."""

    measured: NonNegative = Field(description="Spread of mean log errors of sources with accelerators of others.")
    unmeasured: NonNegative = Field(description="The same of sources that alone measured an accelerator or a stack.")
    multiple: Positive = Field(description="Standard deviations of a row of a source within which 4 of 5 rows lie.")


class ErrorTable(Frozen):
    """Errors of predicted steps by class of measured rows, their constants fitted without these."""

    source: str
    spreads: SourceSpreads
    classes: dict[str, ErrorClass]
    accelerators: dict[str, tuple[str, ...]]  # types of product by accelerator
    software: dict[str, tuple[str, ...]]  # types of product by stack


class LikeRows(ErrorClass):
    """The class of measured steps that is nearest to a run, and its errors."""

    name: str


def width(m: Machine) -> str:
    """Return the class of a machine's precision, by which step errors are told apart: 16-bit, or the type."""
    return "16-bit" if m.precision.compute in ("bf16", "fp16") else m.precision.compute


def classes_of(m: Machine, strategy: ParallelStrategy) -> Iterator[str]:
    """Yield the error classes of a run: by precision, dense or MoE, scale and stack; then by less and less of these."""
    gpus = strategy.gpus
    scale = "one node" if gpus <= NODE_GPUS else "several nodes" if gpus <= MANY_GPUS else "over 1,000 GPUs"
    kind, stack = "MoE" if m.model.experts else "dense", YEAR.sub("", m.software.name)
    yield f"{width(m)} {kind}, {scale}, {stack}"
    yield f"{width(m)} {kind}, {scale}"
    yield f"{width(m)} {kind}"
    yield width(m)
    yield ANY


def degrees_of(m: Machine, strategy: ParallelStrategy) -> dict[str, int]:
    """Return the degrees of a run that are compared with the ranges of measured steps, by the words of reports."""
    return {
        **dict(zip(("TP", "CP", "EP"), strategy.shape.degrees, strict=True)),
        "PP": strategy.pipeline_parallel,
        "DP": strategy.data_parallel,
        "virtual stages": strategy.virtual_stages,
        "sequences a micro-batch": strategy.micro_batch,
        "GPUs": strategy.gpus,
        "tokens a sequence": m.sequence,
        "hidden width": m.model.hidden,
    }


@cache
def table() -> ErrorTable:
    """Return the catalogue's table of step errors."""
    return ErrorTable.model_validate(catalogue("step_errors"))


def like_rows(m: Machine, strategy: ParallelStrategy, errors: ErrorTable | None = None) -> LikeRows:
    """Return the narrowest class of measured steps like a run with enough rows, of the catalogue unless given."""
    known = (errors or table()).classes
    name = next(name for name in classes_of(m, strategy) if name in known)
    return LikeRows(name="measured rows of all kinds" if name == ANY else name, **dict(known[name]))


def interval(
    m: Machine, strategy: ParallelStrategy, predicted: float, errors: ErrorTable | None = None
) -> tuple[float, float]:
    """Return the 80 % interval of measured values around a predicted step time, or a quantity proportional to it."""
    # It encloses 4 of 5 rows of a source that no fit has seen, and is wider where no measured row has the machine's
    # accelerator or its stack.
    like = like_rows(m, strategy, errors)
    low, high = like.unmeasured_over_predicted if unmeasured(m, errors) else like.measured_over_predicted
    return predicted * low, predicted * high


def widest(predicted: float, of: Sequence[tuple[float, tuple[float, float]]]) -> tuple[float, float]:
    """Return the interval around a time with the largest error, each way, of several predictions with theirs."""
    low, high = min(low / middle for middle, (low, _) in of), max(high / middle for middle, (_, high) in of)
    return predicted * low, predicted * high


def outside(m: Machine, strategy: ParallelStrategy) -> dict[str, str]:
    """Return each degree of a run outside the range of measured steps like it, with a sentence that says so."""
    like, sentences = like_rows(m, strategy), dict[str, str]()
    for name, value in degrees_of(m, strategy).items():
        low, high = like.ranges[name]
        if not low <= value <= high:
            where, bound = ("below", low) if value < low else ("above", high)
            sentences[name] = f"no measured row ({like.name}) {where} {name} {bound:,.0f} (is {value:,})"
    return sentences


def unmeasured(m: Machine, errors: ErrorTable | None = None) -> dict[str, str]:
    """Return a machine's accelerator and software stack if no measured step of its precision has them, in sentences."""
    known = errors or table()
    parts = ("accelerator", m.gpu.name, known.accelerators), ("software", m.software.name, known.software)
    return {
        part: f"no measured row of {name} in {width(m)}"
        for part, name, measured in parts
        if width(m) not in measured.get(name, ())
    }


MOVE = 0.01  # of a constant's logarithm, for the slope of a step
SIXTEEN_BITS = ("bf16", "fp16")  # one share of peak for both
PARTS = {"accelerators": "gpu", "software": "software"}  # of a machine, by the kind of its constants


class ConstantSupport(Frozen):
    """The step errors' part of one constant, of some accelerators or stacks: the measured steps that support it."""

    kind: Literal["accelerators", "software"]
    entries: tuple[str, ...]
    path: str
    rows: int = Field(description="Rows of the fit whose step changes with it by 1 % or more of its own change.")
    sources: int = Field(description="Sources that these rows come from.")
    deviation: NonNegative = Field(description="Standard deviation that the posterior of the fit leaves its logarithm.")

    def touches(self, machine: Machine) -> bool:
        """Return whether a machine's step errors come in part from this constant, of its accelerator or stack."""
        return getattr(machine, PARTS[self.kind]).name in self.entries


class SupportTable(Frozen):
    """The step errors' parts of all constants, and per cent correlations of pairs by their places, from 5 % on."""

    source: str
    constants: tuple[ConstantSupport, ...]
    correlations: tuple[tuple[int, int, int], ...]


@cache
def support_table() -> SupportTable:
    """Return the catalogue's table of the constants that cause step errors, by the measured steps that support each."""
    return SupportTable.model_validate(catalogue("constant_support"))


def step_deviation(machine: Machine, seconds: Callable[[Machine], float]) -> float:
    """Compute a step's error by its constants: standard deviation of its logarithm in the posterior, linearised."""
    table = support_table()
    own = {i: constant for i, constant in enumerate(table.constants) if constant.touches(machine)}
    if not own:
        return 0.0
    base, place, along = math.log(seconds(machine)), {i: place for place, i in enumerate(own)}, np.zeros(len(own))
    for i, constant in own.items():
        part = PARTS[constant.kind]
        larger = replace(machine, **{part: _scaled(getattr(machine, part), constant.path.split("."))})  # a little
        along[place[i]] = (math.log(seconds(larger)) - base) / MOVE * constant.deviation
    together = np.eye(len(own))
    for i, j, per_cent in table.correlations:
        if i in place and j in place:
            together[place[i], place[j]] = together[place[j], place[i]] = per_cent / 100
    return math.sqrt(max(0.0, float(along @ together @ along)))


def _scaled(part: Any, keys: list[str]) -> Any:
    """Return a machine's accelerator or stack, or a mapping of it, with the fitted constant at some keys scaled."""
    key, *rest = keys
    if isinstance(part, dict):
        both = SIXTEEN_BITS if key in SIXTEEN_BITS else (key,)
        return part | {key: part[key] * math.exp(MOVE) for key in both if key in part}
    value = getattr(part, key)
    # Without validation: a share of 1 moves beyond its range.
    return part.model_copy(update={key: _scaled(value, rest) if rest else value * math.exp(MOVE)})
