"""How often a job stops: the rates of the parts that work for it, and their growth with its size."""

from typing import Any

import numpy as np

from planner.instance.reliability import Reliability
from planner.physics.num import Num

SECONDS_PER_HOUR = 3600.0


def part_stops_per_gpu_second(r: Reliability) -> dict[str, float]:
    """Return the stops that each kind of part causes in a second of one GPU at work, at the measured size."""
    return {name: 1 / (p.gpu_hours_per_event * SECONDS_PER_HOUR) for name, p in r.parts.items()}


def stops_per_gpu_second(r: Reliability) -> float:
    """Return the stops of all parts in a second of one GPU at work, at the measured size."""
    return sum(part_stops_per_gpu_second(r).values())


def scale_factor(r: Reliability, gpus: Num) -> Any:
    """Return by how much a job of so many GPUs stops more often than in proportion to them: 1 up to those measured."""
    if not r.scale_exponent:
        return 1.0
    return np.maximum(1.0, np.asarray(gpus, dtype=np.float64) / r.measured_gpus) ** r.scale_exponent


def stops_per_second(r: Reliability, gpus: Num) -> Any:
    """Return the stops in a second of a job of so many GPUs at work: the sum over their parts."""
    return gpus * stops_per_gpu_second(r) * scale_factor(r, gpus)
