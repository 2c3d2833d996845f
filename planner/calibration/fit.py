"""Read a user's few measured steps, and fit constants to them: the catalogue and what its rows leave open are prior.

How far lines move constants is an average over how far they may, each weighed by how likely it makes them. A line's log
error is a sum of the constants' shifts along its slopes, and of a rest with long tails (Student's t). The shifts are a
factor common to all rates and times, and what the published rows leave open of each constant. How wide these two are
before any line, and how large the rest is, is not known: each combination is fitted, and counts by a power of its
evidence (Laplace's approximation: MacKay 1992). So lines that agree with the catalogue move nothing, lines that are all
off alike move the common factor, and only lines that differ in order move single constants.
"""

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Never, cast, get_args

import numpy as np
from pydantic import ValidationError

from planner.calibration.constants import (
    MAX_SHARE,
    PARTS,
    SHARES,
    TUNABLES,
    TYPES,
    CommonFactor,
    FittedConstant,
    KeptConstant,
    Kind,
    MeasuredConstant,
    MeasuredConstants,
    MeasuredLine,
    put,
)
from planner.errors import InputError, hint
from planner.files import read_text
from planner.instance.base_types import Dtype
from planner.instance.catalogue_entries import catalogue
from planner.instance.hardware import Accelerator, Rack
from planner.instance.software import SWITCHES, Software
from planner.instance.workload import Model, Precision
from planner.physics.training import step_errors, step_prediction
from planner.physics.training.operations import Machine, Recompute
from planner.physics.training.parallel_strategy import ParallelStrategy, even_layers, packing
from planner.physics.training.step_prediction import free_conditions

NODE = Rack(name="node", gpus=8, it_kw=10.0, price_usd=0.0)
Numbers = np.ndarray[Any, np.dtype[np.float64]]
COMMON = (0.0, 1.0, 2.0, 8.0)  # standard deviations of the common factor, in those between sources of the tables
STRETCHES = (0.0, 1.0, 2.0, 4.0)  # of what the tables leave open of each constant
RESTS = (0.003, 0.006, 0.0125, 0.025, 0.05, 0.1)  # scales of what is left of a line
FREEDOM = 2.0  # degrees of freedom of the rest
INFORMATION = (FREEDOM + 1) / (FREEDOM + 3)  # of a line on its mean, in that of a normal rest of the same precision
AS_NORMAL = 1.21  # of a scale: the standard deviation of a normal variable with the same quartiles
BELIEF = 0.5  # power of the evidence, as no combination is quite true (Gruenwald and van Ommen 2017)
REWEIGHTINGS = 5  # of lines by the size of their rest
MOST_LEVERAGE = 0.98  # of a line on its own prediction
TINY = 1e-12  # in place of a constant of zero, whose logarithm would not be finite
STEP = 1e-4  # of a constant's logarithm, for its slope
DETERMINED = 0.5  # of a constant's own standard deviation (`spread`), at most, is left where lines determine it
NARROW = 0.4  # standard deviation of a logarithm, at most, of a constant that lines determine: a factor of 2 at 90 %
PLAUSIBLE = 0.5  # of the same, at most, is the standard deviation of a constant before any line
ROUNDS = 12  # of slopes taken anew, at most
FARTHEST = 1.0  # that a constant's logarithm moves in a round
NEAR_ENOUGH = 1e-4  # change of the lines' logarithms that ends them
REACH = 1.645  # standard deviations of a 90 % interval
EFFECT = 1e-4  # of a step's logarithm a unit of a constant's logarithm: less is no effect
MOVE = 0.01  # of a constant, to see its effect
NO_EFFECT = "no line depends on it"
NONE = "the catalogue's entry has none of it"
TOGETHER = 0.7  # correlation from which two constants are not told apart
RATES = (MAX_SHARE, "attention_efficiency", "hbm_efficiency", "scale_up_efficiency", "nic_efficiency")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A measured step of a user's table: its line, its machine, its layout, and its seconds."""

    line: int
    machine: Machine
    strategy: ParallelStrategy
    seconds: float  # 0 where none were measured, as in some rows of the published tables


def precision(
    dtype: str, *, gradient_bytes: float, master_bytes: float = 4.0, optimizer_bytes: float = 8.0
) -> Precision:
    """Return a measured run's mixed precision: working weights as wide as the type, FP32 master weights and moments."""
    working = {"fp4": 1.0, "fp8": 1.0}.get(dtype, 2.0)
    return Precision(
        compute=dtype,
        parameter_bytes=working + master_bytes,
        working_parameter_bytes=working,
        gradient_bytes=gradient_bytes,
        optimizer_bytes=optimizer_bytes,
        activation_bytes=2.0,
        collective_bytes=2.0,
    )


# Columns of the table, and what else they may be called; letter case, blanks and dashes do not count.
COLUMNS: dict[str, list[str]] = catalogue("run_columns")["columns"]
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "none")
REMEDY = "give a CSV table with a column for each of these: `planner calibrate --help`"
SHAPE = ("layers", "hidden", "heads")
CATALOGUE_OF = {"accelerator": "accelerators", "software": "software", "model": "models"}  # by column
MAX_COUNT, MAX_LAYERS = 10**7, 10**4  # of any count; every stage has a layer, so the second bounds stages too
RECOMPUTE: dict[str, Recompute] = {"none": "none", "selective": "selective", "full": "full"}


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of a table of measured steps: the file, its number from 1 with the header, and the texts by column."""

    path: Path
    number: int
    texts: dict[str, str]

    def refuse(self, column: str, problem: str, remedy: str) -> Never:
        """Raise an InputError about a column of a measured step's line."""
        value = f" (is {self.texts[column][:60]!r})" if self.texts.get(column) else ""
        raise InputError(f"{self.path}: line {self.number}: column {column}: {problem}{value}; {remedy}")

    def text(self, column: str, absent: str | None = None) -> str:
        """Return a measured line's text in a column, or `absent` if empty. InputError: empty, and `absent` is None."""
        value = self.texts.get(column) or absent
        return value if value is not None else self.refuse(column, "is missing", "add it")

    def number_of(self, column: str) -> float:
        """Return a measured line's number in a column, greater than 0."""
        try:
            value = float(self.text(column))
        except ValueError:
            self.refuse(column, "must be a number", "correct it")
        if not 0 < value < math.inf:
            self.refuse(column, "must be a finite number greater than 0", "correct it")
        return value

    def count(self, column: str, absent: int | None = None, least: int = 1, most: int = MAX_COUNT) -> int:
        """Return a measured line's whole number in a column, `absent` if none. InputError outside `least` to `most`."""
        text = self.text(column, None if absent is None else str(absent))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value.is_integer() and least <= value <= most):
            self.refuse(column, f"must be a whole number from {least} to {most:,}", "correct it")
        return int(value)

    def yes(self, column: str, absent: bool) -> bool:
        """Return whether a measured line says yes in a column, `absent` if empty. InputError: neither yes nor no."""
        text = self.text(column, "yes" if absent else "no").lower()
        if text not in (*YES, *NO):
            self.refuse(column, "must be yes or no", "correct it")
        return text in YES

    def entry(self, column: str, absent: str | None = None) -> str:
        """Return the catalogue name that a measured line has in a column."""
        name, kind = self.text(column, absent), CATALOGUE_OF[column]
        known = _entry_named(kind, name)
        if known is None:
            self.refuse(column, f"is no entry of the catalogue's {kind}", hint(name, sorted(catalogue(kind))))
        return known


def read_runs(path: Path, gpu: str | None = None, software: str | None = None) -> list[MeasuredRun]:
    """Read a user's table of measured steps; accelerator and stack are those given, else the table's own columns."""
    given = {column: name for column, name in (("accelerator", gpu), ("software", software)) if name is not None}
    for column, name in given.items():
        kind = CATALOGUE_OF[column]
        if _entry_named(kind, name) is None:
            remedy = hint(name, sorted(catalogue(kind)))
            raise InputError(f"--{column}: {name!r} is no entry of the catalogue's {kind}; {remedy}")
    lines = list(_lines(path))
    if not lines:
        raise InputError(f"{path}: has no measured line; {REMEDY}")
    runs = []
    for line in lines:
        line.texts.update(given)
        machine = _machine(line)
        seconds = line.number_of("step_s") if line.texts.get("step_s") else line.number_of("step_ms") / 1e3
        runs.append(MeasuredRun(line=line.number, machine=machine, strategy=_strategy(line, machine), seconds=seconds))
    for column in ("accelerator", "software"):
        names = [(r.machine.gpu if column == "accelerator" else r.machine.software).name for r in runs]
        for line, name in zip(lines, names, strict=True):
            if name != names[0]:
                line.refuse(column, f"constants belong to one {column}, here {names[0]}", "calibrate each alone")
    return runs


def _entry_named(kind: str, name: str) -> str | None:
    """Return the catalogue's entry that a measured line names, case and punctuation aside; None where there is none."""
    *known, wanted = (re.sub(r"[\W_]", "", one.lower()) for one in (*catalogue(kind), name))
    return dict(zip(known, catalogue(kind), strict=True)).get(wanted)


def _lines(path: Path) -> Iterator[TableLine]:
    reader = csv.reader(io.StringIO(read_text(path, REMEDY), newline=""), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: is no CSV ({error}); fix it there") from None
    if not rows:
        return
    (first, cells), names = rows[0], {alias: column for column, own in COLUMNS.items() for alias in (column, *own)}
    columns = [names.get(re.sub(r"[^a-z0-9]+", "_", cell.lower()).strip("_"), "") for cell in cells]
    for cell, column in zip(cells, columns, strict=True):
        if column and columns.count(column) > 1:
            raise InputError(f"{path}: line {first}: column {cell!r}: {column} is given twice; keep one")
    if "step_ms" not in columns and "step_s" not in columns:
        raise InputError(f"{path}: line {first}: column step_ms or step_s: is missing; {REMEDY}")
    for number, row in rows[1:]:
        if len(row) > len(columns):
            problem = f"has {len(row)} cells where the header has {len(columns)}"
            raise InputError(f"{path}: line {number}: {problem}; correct it")
        yield TableLine(path, number, {c: cell.strip() for c, cell in zip(columns, row, strict=False) if c})


def _machine(line: TableLine) -> Machine:
    if not line.texts.get("accelerator"):
        line.refuse("accelerator", "is missing", "add it, or --accelerator")
    name, stack = line.entry("accelerator"), line.entry("software", "megatron-bridge")
    found = Accelerator.model_validate(catalogue("accelerators")[name])
    plain, types = line.text("precision", "bf16").lower(), cast("tuple[Dtype, ...]", get_args(Dtype))
    dtype = next((x for x in types if x in plain.replace("bfloat", "bf").replace("float", "fp")), None)
    if line.texts.get("nic_gbps"):
        found = found.replaced(nic_bytes_per_second=line.number_of("nic_gbps") * 1e9 / 8)
    if dtype not in found.peak_flop_per_second:
        has = ", ".join(sorted(found.peak_flop_per_second))
        line.refuse("precision", f"must be a type that {name} has", f"choose one of {has}")
    own = next((rack for key, rack in catalogue("racks").items() if key.startswith(f"{name}-NVL")), None)
    data: dict[str, Any]
    if line.texts.get("model", "").lower() in {k.lower() for k in catalogue("models")} or not line.texts.get("hidden"):
        data = dict(catalogue("models")[line.entry("model")])
        if line.texts.get("layers"):
            data["layers"] = line.count("layers", most=MAX_LAYERS)
    else:
        data = {
            "name": line.text("model", "own model"),
            **{key: line.count(key, most=MAX_LAYERS if key == "layers" else MAX_COUNT) for key in SHAPE},
            "vocabulary": line.count("vocab"),
            "gated_ffn": line.yes("gated", absent=False),
            "tied_embeddings": line.yes("tied", absent=True),
        } | {key: line.count(key) for key in ("kv_heads", "ffn") if line.texts.get(key)}
    try:
        model = Model.model_validate(data)
    except ValidationError as error:
        line.refuse("model", error.errors(include_url=False)[0]["msg"].removeprefix("Value error, "), "correct it")
    return Machine(
        gpu=found,
        rack=NODE if own is None else Rack.model_validate(own),  # the GPU comes in racks alone, or in nodes of 8
        software=Software.model_validate(catalogue("software")[stack]),
        model=model,
        precision=precision(dtype, gradient_bytes=4.0),
        sequence=line.count("seq"),
    )


def _strategy(line: TableLine, m: Machine) -> ParallelStrategy:
    t, p, c, v, b = (line.count(name, absent=1) for name in ("tp", "pp", "cp", "vp", "micro_batch"))
    if line.texts.get("gpus"):
        gpus = line.count("gpus")
        d = line.count("dp", absent=max(1, gpus // (t * c * p)))
        if d * t * c * p != gpus:
            also = f", and DP {d}" if line.texts.get("dp") else ""
            remedy = f"correct it, or the degrees: TP x CP x PP is {t * c * p}{also}"
            line.refuse("gpus", "must be TP x CP x PP x DP", remedy)
    else:
        d = line.count("dp", absent=1)
    e = line.count("ep", absent=1)
    if m.model.heads % t:
        line.refuse("tp", f"must divide the {m.model.heads} heads", "correct it")
    if p * v > m.model.layers + 2:  # the embedding and the head may count as a layer each
        line.refuse("pp", f"{p * v} chunks of stages have fewer layers than one each of {m.model.layers}", "correct it")
    experts = m.model.experts.count if m.model.experts else 1
    if experts % e:
        line.refuse("ep", f"must divide the {experts} experts", "correct it")
    stages, replicas = packing(m.rack.gpus, t, c, p, d, t * c * p * d)
    recompute = line.text("recompute", "none").lower()
    if recompute not in RECOMPUTE:
        line.refuse("recompute", f"must be one of {', '.join(RECOMPUTE)}", "correct it")
    stages_of_zero = m.software.zero_stages
    zero = line.count("zero", absent=1 if 1 in stages_of_zero else min(stages_of_zero), least=0)
    if zero > 3:
        line.refuse("zero", "must be 0, 1, 2 or 3", "correct it")
    if line.texts.get("micro_batches"):
        micro_batches = line.count("micro_batches")
    else:
        if not line.texts.get("global_batch"):
            line.refuse("micro_batches", "is missing", "add it, or global_batch")
        micro_batches, rest = divmod(line.count("global_batch"), d * b)
        if rest:
            remedy = f"give a multiple of {d * b}, or correct these"
            line.refuse("global_batch", "must divide by DP x micro_batch", remedy)
    return ParallelStrategy(
        tensor_parallel=t,
        pipeline_parallel=p,
        data_parallel_by_site=(d,),
        virtual_stages=v if p > 1 else 1,
        micro_batch=b,
        micro_batches=micro_batches,
        recompute=RECOMPUTE[recompute],
        sequence_parallel=t > 1 and line.yes("sequence_parallel", absent="sequence" in m.software.parallelism),
        zero_stage=zero,
        layers_per_stage=even_layers(m.model.layers, p),
        context_parallel=c,
        expert_parallel=e,
        replicas_per_rack=replicas,
        stages_per_rack=stages,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is known of the constants before the fit to measured lines, in logarithms.

    `common`: how they move with a factor of all steps; `between`: the standard deviation of that factor between
    sources; `open_root`: a matrix root of the covariance that the tables leave of them; `plausible`: the standard
    deviation of each that no stretch of it exceeds.
    """

    common: Numbers
    between: float
    open_root: Numbers
    plausible: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifts:
    """By how much the fit moves the logarithms of constants, and each line's log error by a fit without it."""

    mean: Numbers
    covariance: Numbers
    noise: float
    left_out: Numbers


def shifts(errors: Numbers, slopes: Numbers, prior: Prior) -> Shifts:
    """Fit the shifts of constants to logarithms of predicted over measured seconds, taken as linear in them."""
    from scipy.special import softmax  # slow to load

    # Each combination of a stretch, a common factor's deviation and a scale of the rest is fitted: its scale, the
    # shifts of constants with their covariance, each line's rest and leverage, and the evidence.
    combinations, each = list(itertools.product(COMMON, RESTS)), list[tuple[Numbers, ...]]()
    for stretch in STRETCHES:
        # How constants move with the common factor (a column), and with their undetermined directions, stretched.
        wide = stretch * np.sqrt(np.sum(prior.open_root**2, axis=1)) / prior.plausible
        moves = np.column_stack([prior.common, prior.open_root * (stretch / np.sqrt(1 + wide**2))[:, None]])
        effects, unit = slopes @ moves, np.eye(moves.shape[1])
        widths = np.ones((len(combinations), len(unit)))
        widths[:, 0] = [prior.between * common for common, _ in combinations]
        scales = np.array([scale for _, scale in combinations])
        pairs, rests = widths[:, :, None] * widths[:, None, :], np.zeros((len(scales), len(errors)))
        for _ in range(REWEIGHTINGS):
            trust = (FREEDOM + 1) / (FREEDOM * scales[:, None] ** 2 + rests**2)
            inner = unit + pairs * ((effects.T * trust[:, None, :]) @ effects)
            shrunk = np.linalg.inv(inner)
            scores = -np.einsum("mij,mj->mi", shrunk, widths * ((trust * errors) @ effects))
            values = widths * scores
            rests = errors + values @ effects.T
        known = unit + INFORMATION * (inner - unit)
        tails = np.sum(np.log1p((rests / scales[:, None]) ** 2 / FREEDOM), axis=1)
        fit = -len(errors) * np.log(scales) - (FREEDOM + 1) / 2 * tails - np.sum(scores**2, axis=1) / 2
        covariances = moves @ (pairs * np.linalg.inv(known)) @ moves.T
        leverage = trust * np.einsum("mni,ni->mn", effects @ (pairs * shrunk), effects)
        evidence = BELIEF * (fit - np.linalg.slogdet(known)[1] / 2)
        each.append((scales, values @ moves.T, covariances, rests, leverage, evidence))
    scales, means, covariances, rests, leverage, evidence = map(np.concatenate, zip(*each, strict=True))
    weights = softmax(evidence)
    mean = weights @ means
    apart = means - mean
    # Log errors without each line (rest / (1 - leverage): Allen 1974, PRESS), and combinations' weights without it.
    spare = 1 - np.minimum(MOST_LEVERAGE, leverage)
    without, scale = rests / spare, scales[:, None] / np.sqrt(spare)
    density = -np.log(scale) - (FREEDOM + 1) / 2 * np.log1p((without / scale) ** 2 / FREEDOM)
    return Shifts(
        mean=mean,
        covariance=np.tensordot(weights, covariances, 1) + (apart.T * weights) @ apart,
        noise=AS_NORMAL * float(np.exp(weights @ np.log(scales))),
        left_out=np.asarray(np.sum(softmax(evidence[:, None] - BELIEF * density, axis=0) * without, axis=0)),
    )


def log_errors(runs: Sequence[MeasuredRun], constants: Sequence[FittedConstant], values: Sequence[float]) -> Numbers:
    """Return the log of predicted over measured seconds of each run, with these values of fitted constants."""
    # Machines are those of the catalogue's entries with these values, but for their NIC and switches; networks are
    # unloaded.

    @cache
    def entry(kind: Kind, name: str) -> Any:
        data = json.loads(json.dumps(catalogue(kind)[name]))
        for constant, value in zip(constants, values, strict=True):
            if constant.kind == kind and name in constant.entries:
                put(data, constant.path, float(value))
        return TYPES[kind].model_validate(data)

    def predicted(m: Machine, strategy: ParallelStrategy) -> float:
        gpu = entry("accelerators", m.gpu.name).replaced(nic_bytes_per_second=m.gpu.nic_bytes_per_second)
        switches = {key: getattr(m.software, key) for key in SWITCHES}
        m = replace(m, gpu=gpu, software=entry("software", m.software.name).replaced(**switches))
        return math.fsum(step_prediction.step_breakdown(m, free_conditions(), strategy).values())

    return np.array([math.log(predicted(r.machine, r.strategy) / (r.seconds or 1.0)) for r in runs])


def slopes_at(x: Numbers, runs: Sequence[MeasuredRun], constants: Sequence[FittedConstant], high: Numbers) -> Numbers:
    """Return the slope of each run's log error along each fitted constant's logarithm at `x`, 0 where untouched."""
    slopes, base = np.zeros((len(runs), len(x))), log_errors(runs, constants, list(np.exp(x)))
    for j, constant in enumerate(constants):
        if rows := [i for i, r in enumerate(runs) if constant.touches(r.machine)]:
            step = STEP if x[j] + STEP < high[j] else -STEP
            moved = x.copy()
            moved[j] += step
            slopes[rows, j] = (log_errors([runs[i] for i in rows], constants, list(np.exp(moved))) - base[rows]) / step
    return slopes


def calibrated(runs: Sequence[MeasuredRun], path: Path) -> MeasuredConstants:
    """Return constants as fitted to measured steps, else the catalogue's. InputError: there are too few lines."""
    if len(runs) < 2:
        raise InputError(f"{path}: has {len(runs)} measured line; give at least 2, better 10 with varied micro-batches")
    gpu, software = runs[0].machine.gpu.name, runs[0].machine.software.name
    entries = {"accelerators": (gpu,), "software": (software,)}
    computed = {r.machine.precision.compute for r in runs}
    types: set[str] = {"bf16" if dtype in step_errors.SIXTEEN_BITS else dtype for dtype in computed}
    types |= {"bf16"} & set(runs[0].machine.gpu.peak_flop_per_second)
    peaks = [FittedConstant("accelerators", (), MAX_SHARE + dtype, 0.1, 1.0, SHARES) for dtype in sorted(types)]
    named = [replace(t, entries=entries[t.kind]) for t in (*peaks, *TUNABLES)]
    base, constants = log_errors(runs, [], []), list[FittedConstant]()
    for c in (c for c in named if c.read() > 0):
        # By how much the logarithm of any run's step changes with the constant's logarithm, from the catalogue's.
        moved = np.abs(log_errors(runs, [c], [max(c.read(), c.low) / (1 + MOVE)]) - base)
        if float(np.max(moved)) / math.log(1 + MOVE) >= EFFECT:
            constants.append(c)
    values, found, slopes = _posterior(runs, constants)
    # Each constant's interval, and why lines do not determine it without a prior.
    spreads = np.array([c.spread for c in constants])
    covariance = np.linalg.inv(slopes.T @ slopes / found.noise**2 + np.diag(spreads**-2))
    deviations, measured = np.sqrt(np.diag(covariance)), dict[str, MeasuredConstant]()
    for i, (c, value) in enumerate(zip(constants, values, strict=True)):
        reach = REACH * math.sqrt(found.covariance[i, i])
        low, high = max(c.low, value * math.exp(-reach)), min(c.high, value * math.exp(reach))
        others = np.abs(covariance[i] / deviations)
        others[i] = 0.0
        j = int(np.argmax(others))
        reason = "the lines depend on it too little"
        if deviations[i] <= min(NARROW, DETERMINED * spreads[i]):
            reason = ""
        elif others[j] >= TOGETHER * deviations[i]:
            reason = f"the lines do not tell it from {constants[j].path}"
        measured[PARTS[c.kind] + c.path] = MeasuredConstant(
            value=value, interval=(float(f"{low:.4g}"), float(f"{high:.4g}")), catalogue=c.read(), shared_with=reason
        )
    errors = log_errors(runs, constants, values)
    # How much longer than by the catalogue the lines' steps are predicted, in a mean of logarithms.
    along, moved_by = np.mean(slopes, axis=0), float(np.mean(errors - base))
    reach = REACH * math.sqrt(max(0.0, float(along @ found.covariance @ along)))
    low, factor, high = (float(f"{math.exp(moved_by + x):.4g}") for x in (-reach, 0.0, reach))
    left = sorted(((PARTS[c.kind] + c.path, c.read()) for c in named if c not in constants), key=lambda x: x[1] == 0)
    return MeasuredConstants(
        accelerator=gpu,
        software=software,
        measured=path.name,
        number_of_lines=len(runs),
        noise=found.noise,
        common=CommonFactor(value=factor, interval=(low, high)),
        values=measured,
        kept={place: KeptConstant(value=x, reason=NO_EFFECT if x else NONE) for place, x in left},
        lines=tuple(
            MeasuredLine(
                line=r.line,
                measured_seconds=r.seconds,
                predicted_seconds=r.seconds * math.exp(x),
                catalogue_seconds=r.seconds * math.exp(y),
                error=math.expm1(x),
                left_out_error=math.expm1(z),
            )
            for r, x, y, z in zip(runs, errors.tolist(), base.tolist(), found.left_out.tolist(), strict=True)
        ),
    )


def _posterior(runs: Sequence[MeasuredRun], constants: Sequence[FittedConstant]) -> tuple[list[float], Shifts, Numbers]:
    """Fit constants; return them, their logarithms' shifts and lines' slopes there; one that meets a bound stays."""
    low, high = np.log([c.low for c in constants]), np.log([c.high for c in constants])
    start = np.clip(np.log(np.maximum([c.read() for c in constants], TINY)), low, high)
    # The prior: what the catalogue's published rows leave open of each constant, and how sources differ.
    machine, table, sources = runs[0].machine, step_errors.support_table(), step_errors.table().spreads
    place = {(s.kind, s.path): i for i, s in enumerate(table.constants) if s.touches(machine)}
    at = [place.get((c.kind, c.path), -1 - j) for j, c in enumerate(constants)]
    plausible = PLAUSIBLE * np.array([c.spread for c in constants])
    wide = [table.constants[i].deviation if i >= 0 else own for i, own in zip(at, plausible, strict=True)]
    per_cent = {(i, j): x for i, j, x in table.correlations}
    together = [[100 * (i == j) + per_cent.get((i, j), 0) + per_cent.get((j, i), 0) for j in at] for i in at]
    sizes, axes = np.linalg.eigh(np.array(together) / 100)
    prior = Prior(
        common=np.array([-1.0 if c.path.startswith(RATES) else float(c.path.endswith("_seconds")) for c in constants]),
        between=sources.unmeasured if step_errors.unmeasured(machine) else sources.measured,
        open_root=np.array(wide)[:, None] * axes * np.sqrt(np.maximum(sizes, 0.0)),
        plausible=plausible,
    )
    x, bound = start, np.zeros(len(constants), dtype=bool)
    for _ in range(ROUNDS):
        slopes = slopes_at(x, runs, constants, high) * ~bound
        found = shifts(log_errors(runs, constants, list(np.exp(x))) - slopes @ (x - start), slopes, prior)
        towards = np.where(bound, x, x + np.clip(start + found.mean - x, -FARTHEST, FARTHEST))
        before, x = x, np.clip(towards, low, high)
        bound |= x != towards
        if np.max(np.abs(slopes @ (x - before)), initial=0.0) < NEAR_ENOUGH:
            break
    return [float(f"{v:.4g}") for v in np.exp(x)], found, slopes
