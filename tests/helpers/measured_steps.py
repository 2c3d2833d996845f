"""Logs of steps as a cluster of known constants would write them: the predictor's own times."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import planner
from planner.calibration.constants import CODE, GPU, FittedConstant, MeasuredConstants
from planner.calibration.fit import log_errors, read_runs

ACCELERATOR, SOFTWARE = "H100", "megatron-core-2025"
HEADER = ("model", "layers", "gpus", "TP", "PP", "seq", "micro_batch", "micro_batches", "precision", "step_s")
SHAPES = (
    ("llama-3.1-8b", 8, 8, 1, 1, 4096, 1, 4), ("llama-3.1-8b", 8, 8, 1, 1, 4096, 1, 32),
    ("llama-3.1-8b", 8, 8, 8, 1, 4096, 1, 4), ("llama-3.1-8b", 8, 8, 8, 1, 4096, 1, 32),
    ("llama-3.1-8b", 8, 8, 1, 1, 32768, 1, 4), ("llama-3.1-8b", 1, 8, 1, 1, 512, 1, 4),
    ("llama-3.1-8b", 1, 8, 1, 1, 512, 1, 64), ("llama-3.1-8b", 8, 8, 2, 2, 4096, 1, 8),
    ("llama-3.1-8b", 8, 8, 2, 2, 4096, 1, 64), ("llama-3.1-70b", 4, 8, 4, 1, 8192, 1, 4),
    ("llama-3.1-70b", 4, 8, 4, 1, 8192, 1, 16), ("llama-3.1-70b", 4, 8, 8, 1, 8192, 2, 8),
)  # fmt: skip
"""Twelve lines of one node: models cut to a few layers, varied micro-batches, degrees and sequences."""


def constants_at(paths: Mapping[str, float]) -> tuple[list[FittedConstant], list[float]]:
    """Return constants of the cluster by their paths in an instance, and their values."""
    own = {GPU: ("accelerators", (ACCELERATOR,)), CODE: ("software", (SOFTWARE,))}
    constants = [FittedConstant(*own[x], path[len(x) :], 0.0, 1e9) for path in paths for x in own if path.startswith(x)]
    return constants, list(paths.values())


def write_rows(path: Path, rows: Sequence[Sequence[object]], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_log(path: Path, paths: Mapping[str, float], shapes: Sequence[Sequence[object]], factor: float = 1.0) -> Path:
    """Write the log of a cluster whose constants are the catalogue's but for those given, its steps a factor longer."""
    write_rows(path, [(*s, "bf16", 1.0) for s in shapes])
    ratios = np.exp(log_errors(read_runs(path, ACCELERATOR, SOFTWARE), *constants_at(paths)))
    return write_rows(path, [(*s, "bf16", factor * t) for s, t in zip(shapes, ratios.tolist(), strict=True)])


def fitted(
    path: Path, paths: Mapping[str, float], shapes: Sequence[Sequence[object]], factor: float = 1.0
) -> MeasuredConstants:
    """Write such a log, and return the constants fitted to it."""
    return planner.calibrate(write_log(path, paths, shapes, factor), accelerator=ACCELERATOR, software=SOFTWARE)
