"""Errors on the table of recent rows by the classes that a user meets, whatever constants predicted them."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from calibration_rows import Case

from planner.physics.training.step_errors import interval

SHORT_SECONDS = 0.6


def _large(gpu: str) -> Callable[[Case], bool]:
    return lambda c: c.machine.model.name == "llama-3.1-405b" and c.machine.gpu.name == gpu and c.strategy.gpus >= 128


CLASSES: dict[str, Callable[[Case], bool]] = {
    "dense": lambda c: c.machine.model.experts is None,
    "dense, but TPUs": lambda c: c.machine.model.experts is None and not c.machine.gpu.name.startswith("TPU"),
    "MoE": lambda c: c.machine.model.experts is not None,
    "MoE, routing forced even": lambda c: c.machine.model.experts is not None and not c.natural,
    "steps under 0.6 s": lambda c: (c.seconds or 1.0) < SHORT_SECONDS,
    "one micro-batch a step": lambda c: c.strategy.micro_batches == 1,
    **{f"Llama 3.1 405B on {gpu}": _large(gpu) for gpu in ("H100", "B200", "GB200")},
    "GPT-3 175B": lambda c: c.machine.model.name == "gpt3-175b",
    "all": lambda _: True,
}
"""By name, which rows belong to a class; a row may belong to several."""


def recent(cases: Sequence[Case]) -> list[Case]:
    """Return the rows of the table of recent steps."""
    return [c for c in cases if c.recent and c.seconds]


def lines(cases: Sequence[Case], errors: Mapping[str, float]) -> Iterator[str]:
    """Yield the errors of each class and of each source: mean, bias, worst, and the share inside their intervals."""
    yield f"{'recent rows of':48}{'rows':>6}{'mean |error|':>14}{'median':>9}{'bias':>8}{'worst':>8}{'4 of 5':>8}"
    for name, belongs in CLASSES.items():
        yield _line(name, [c for c in cases if belongs(c)], errors)
    for source in sorted({c.source for c in cases}):
        yield _line(source, [c for c in cases if c.source == source], errors)
    yield from memory_lines(cases)


def _line(name: str, cases: Sequence[Case], errors: Mapping[str, float]) -> str:
    if not cases:
        return f"{name:48}{0:>6}"
    each = np.array([errors[c.id] for c in cases])
    inside = np.mean([_is_inside(c, errors[c.id]) for c in cases])
    size, worst = np.abs(each), each[np.argmax(np.abs(each))]
    return (
        f"{name:48}{len(each):>6}{np.mean(size):>13.1%}{np.median(size):>10.1%}{np.mean(each):>+8.1%}"
        f"{worst:>+8.0%}{inside:>8.0%}"
    )


def _is_inside(case: Case, error: float) -> bool:
    """Return whether the measured step lies in the interval of its prediction."""
    seconds = case.seconds
    low, high = interval(case.machine, case.strategy, seconds * (1 + error))
    return low <= seconds <= high


def memory_lines(cases: Sequence[Case]) -> Iterator[str]:
    """Yield predicted over logged bytes, of the first and the last stage, where a log states what a rank took."""
    for c in cases:
        if c.logged_bytes is not None:
            stages = [b / c.logged_bytes - 1 for b in c.stages_memory()]
            yield f"memory over the log, first and last stage: {stages[0]:+.1%} {stages[-1]:+.1%}  {c.id}"
