"""How far measured lines move constants: an average over how far they may, each weighed by how likely it makes them.

A line's log error is a sum of the constants' shifts along its slopes, and of a rest with long tails (Student's t). The
shifts are a factor common to all rates and times, and what the published rows leave open of each constant. How wide
these two are before any line, and how large the rest is, is not known: each combination is fitted, and counts by a
power of its evidence (Laplace's approximation: MacKay 1992). So lines that agree with the catalogue move nothing, lines
that are all off alike move the common factor, and only lines that differ in order move single constants.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    """What is known of the constants before the lines, in logarithms.

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
    """By how much lines move the logarithms of constants, and each line's log error by constants fitted without it."""

    mean: Numbers
    covariance: Numbers
    noise: float
    left_out: Numbers


def shifts(errors: Numbers, slopes: Numbers, prior: Prior) -> Shifts:
    """Return the shifts that lines call for by logarithms of predicted over measured seconds, taken as linear."""
    each = [_fits(errors, slopes, prior, stretch) for stretch in STRETCHES]
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


def _fits(errors: Numbers, slopes: Numbers, prior: Prior, stretch: float) -> tuple[Numbers, ...]:
    """Fit each combination of a standard deviation of the common factor and a scale of the rest, at one stretch.

    Return by combination the scale, the shifts of constants with their covariance, each line's rest and leverage, and
    the evidence.
    """
    # How constants move with the common factor, a column, and with what is open of them, stretched.
    wide = stretch * np.sqrt(np.sum(prior.open_root**2, axis=1)) / prior.plausible
    moves = np.column_stack([prior.common, prior.open_root * (stretch / np.sqrt(1 + wide**2))[:, None]])
    effects, unit = slopes @ moves, np.eye(moves.shape[1])
    combinations = list(itertools.product(COMMON, RESTS))
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
    return scales, values @ moves.T, covariances, rests, leverage, evidence


def _shares(logarithms: Numbers) -> Numbers:
    shares = np.exp(logarithms - logarithms.max(axis=0))
    return np.asarray(shares / shares.sum(axis=0))
