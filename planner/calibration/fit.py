"""Fit constants to a user's few measured steps, with the catalogue and what its rows leave open as prior.

How far lines move constants is an average over how far they may, each weighed by how likely it makes them. A line's log
error is a sum of the constants' shifts along its slopes, and of a rest with long tails (Student's t). The shifts are a
factor common to all rates and times, and what the published rows leave open of each constant. How wide these two are
before any line, and how large the rest is, is not known: each combination is fitted, and counts by a power of its
evidence (Laplace's approximation: MacKay 1992). So lines that agree with the catalogue move nothing, lines that are all
off alike move the common factor, and only lines that differ in order move single constants.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from planner.calibration.constants import (
    GPU,
    MAX_SHARE,
    PARTS,
    SIXTEEN_BITS,
    CommonFactor,
    FittedConstant,
    KeptConstant,
    MeasuredConstant,
    MeasuredConstants,
    MeasuredLine,
    machines_with,
)
from planner.calibration.measured_steps import MeasuredRun
from planner.errors import InputError
from planner.physics import step_errors
from planner.physics.training import step_prediction
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step_prediction import Conditions

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
    weights = _shares(evidence)
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
        left_out=np.asarray(np.sum(_shares(evidence[:, None] - BELIEF * density) * without, axis=0)),
    )


def _shares(logarithms: Numbers) -> Numbers:
    shares = np.exp(logarithms - logarithms.max(axis=0))
    return np.asarray(shares / shares.sum(axis=0))


UNLOADED = Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0)
TINY = 1e-12  # in place of a constant of zero, whose logarithm would not be finite
STEP = 1e-4  # of a constant's logarithm, for its slope


class Measured(Protocol):
    """A measured step to fit to: its machine, its layout, and its seconds."""

    @property
    def machine(self) -> Machine:
        """The machine on which the measured step ran."""

    @property
    def strategy(self) -> ParallelStrategy:
        """The layout of the measured step."""

    @property
    def seconds(self) -> float | None:
        """Seconds of the measured step; None where none was measured."""


def step_seconds(m: Machine, strategy: ParallelStrategy) -> float:
    """Predict the seconds of a step on an unloaded network, to fit measured ones."""
    return math.fsum(step_prediction.step_breakdown(m, UNLOADED, strategy).values())


def log_errors(runs: Sequence[Measured], constants: Sequence[FittedConstant], values: Sequence[float]) -> Numbers:
    """Return the log of predicted over measured seconds of each run, with these values of fitted constants."""
    each = zip(machines_with(constants, values, [r.machine for r in runs]), runs, strict=True)
    return np.array([math.log(step_seconds(m, r.strategy) / (r.seconds or 1.0)) for m, r in each])


def slopes_at(x: Numbers, runs: Sequence[Measured], constants: Sequence[FittedConstant], high: Numbers) -> Numbers:
    """Return the slope of each run's log error along each fitted constant's logarithm at `x`, 0 where untouched."""
    slopes, base = np.zeros((len(runs), len(x))), log_errors(runs, constants, list(np.exp(x)))
    for j, constant in enumerate(constants):
        if rows := [i for i, r in enumerate(runs) if constant.touches(r.machine)]:
            step = STEP if x[j] + STEP < high[j] else -STEP
            moved = x.copy()
            moved[j] += step
            slopes[rows, j] = (log_errors([runs[i] for i in rows], constants, list(np.exp(moved))) - base[rows]) / step
    return slopes


SHARES, WORK, SECONDS = 0.25, 0.5, 1.5  # standard deviations of a logarithm where lines alone speak of it
DETERMINED = 0.5  # of that standard deviation, at most, is left of a constant that lines determine
NARROW = 0.4  # standard deviation of a logarithm, at most, of a constant that lines determine: a factor of 2 at 90 %
PLAUSIBLE = 0.5  # of that standard deviation, at most, is that of a constant before any line
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

# Figures that measured steps may determine, of any entries.
TUNABLES: tuple[FittedConstant, ...] = (
    FittedConstant("accelerators", (), "attention_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("accelerators", (), "softmax_width", 1.0, 1000.0, WORK),
    FittedConstant("accelerators", (), "gemm_efficiency.operand_traffic", 0.01, 1.0, WORK),
    FittedConstant("accelerators", (), "hbm_efficiency", 0.3, 1.0, SHARES),
    FittedConstant("accelerators", (), "kernel_seconds", 1e-7, 1e-4, WORK),
    FittedConstant("accelerators", (), "gemm_efficiency.tail_elements", 1.0, 1e7, WORK),
    FittedConstant("accelerators", (), "gemm_efficiency.unaligned_share", 0.1, 1.0, SHARES),
    FittedConstant("accelerators", (), "scale_up_efficiency", 0.2, 1.0, SHARES),
    FittedConstant("accelerators", (), "scale_up_latency_seconds", 1e-7, 2e-4, WORK),
    FittedConstant("accelerators", (), "nic_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("accelerators", (), "nic_latency_seconds", 1e-7, 2e-4, WORK),
    FittedConstant("software", (), "score_efficiency", 0.03, 1.0, WORK),
    FittedConstant("software", (), "elementwise_traffic", 0.2, 8.0, WORK),
    FittedConstant("software", (), "quantise_traffic", 0.1, 8.0, WORK),
    FittedConstant("software", (), "loss_bytes_per_logit", 2.0, 160.0, WORK),
    FittedConstant("software", (), "launch_seconds", 1e-7, 1e-2, SHARES),
    FittedConstant("software", (), "collective_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "microbatch_seconds", 1e-6, 0.2, SECONDS),
    FittedConstant("software", (), "pipeline_start_seconds", 1e-7, 5e-2, SECONDS),
    FittedConstant("software", (), "step_seconds", 1e-5, 10.0, SECONDS),
    FittedConstant("software", (), "tensor_overlap", 0.02, 1.0, WORK),
    FittedConstant("software", (), "expert_overlap", 0.02, 1.0, WORK),
    FittedConstant("software", (), "all_to_all_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "deep_ep_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "hybrid_ep_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "expert_seconds", 1e-8, 1e-3, SECONDS),
    FittedConstant("software", (), "expert_cast_seconds", 1e-8, 1e-3, SECONDS),
    FittedConstant("software", (), "overlap_launch_seconds", 1e-7, 1e-2, SHARES),
    FittedConstant("software", (), "expert_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("software", (), "data_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("software", (), "sharding_exposed", 0.01, 1.0, WORK),
)
TUNABLE_PATHS = frozenset(PARTS[t.kind] + t.path for t in TUNABLES)


def is_tunable(path: str) -> bool:
    """Return whether a fit to measured steps may set the figure at an instance's path; not rates of datasheets."""
    return path in TUNABLE_PATHS or path.startswith(GPU + MAX_SHARE)


def calibrated(runs: Sequence[MeasuredRun], path: Path) -> MeasuredConstants:
    """Return constants as fitted to measured steps, else the catalogue's. InputError: there are too few lines."""
    if len(runs) < 2:
        raise InputError(f"{path}: has {len(runs)} measured line; give at least 2, better 10 with varied micro-batches")
    gpu, software = runs[0].machine.gpu.name, runs[0].machine.software.name
    entries = {"accelerators": (gpu,), "software": (software,)}
    computed = {r.machine.precision.compute for r in runs}
    types: set[str] = {"bf16" if dtype in SIXTEEN_BITS else dtype for dtype in computed}
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
    errors = log_errors(runs, constants, values)
    # How much longer than by the catalogue the lines' steps are predicted, in a mean of logarithms.
    along, moved_by = np.mean(slopes, axis=0), float(np.mean(errors - base))
    reach = REACH * math.sqrt(max(0.0, float(along @ found.covariance @ along)))
    low, factor, high = (float(f"{math.exp(moved_by + x):.4g}") for x in (-reach, 0.0, reach))
    left = sorted((c for c in named if c not in constants), key=lambda c: c.read() == 0)
    kept = {PARTS[c.kind] + c.path: c.read() for c in left}
    return MeasuredConstants(
        accelerator=gpu,
        software=software,
        measured=path.name,
        number_of_lines=len(runs),
        noise=found.noise,
        common=CommonFactor(value=factor, interval=(low, high)),
        values=_measured(constants, values, found, slopes),
        kept={place: KeptConstant(value=x, reason=NO_EFFECT if x else NONE) for place, x in kept.items()},
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


def _measured(
    constants: Sequence[FittedConstant], values: Sequence[float], found: Shifts, slopes: Numbers
) -> dict[str, MeasuredConstant]:
    """Return fitted constants by path with intervals, and why lines do not determine one without a prior."""
    spreads = np.array([c.spread for c in constants])
    covariance = np.linalg.inv(slopes.T @ slopes / found.noise**2 + np.diag(spreads**-2))
    deviations, measured = np.sqrt(np.diag(covariance)), {}
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
    return measured
