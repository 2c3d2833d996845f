"""The rule of thumb that physics must beat: one useful rate of a GPU for each precision and kind of model."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from calibration_rows import Case

from planner.physics.training.step_errors import width
from planner.physics.training.transformer import model_flop_per_token

Key = tuple[str, str, str]


def key_of(case: Case) -> Key:
    """Return the GPU, the precision and the kind of model of a row."""
    m = case.machine
    return m.gpu.name, width(m), "MoE" if m.model.experts else "dense"


def useful_flop_per_second(case: Case) -> float:
    """Return the model's FLOP of a GPU and second, without what is computed twice."""
    m, s = case.machine, case.strategy
    tokens = s.data_parallel * s.micro_batches * s.micro_batch * m.sequence
    return float(tokens * model_flop_per_token(m.model, m.sequence)) / (case.seconds or 1.0) / s.gpus


def errors_of_rule(cases: Sequence[Case]) -> dict[str, float]:
    """Return predicted over measured seconds, less 1, of rows: by the median rate of other sources' like rows."""
    rates: dict[Key, list[tuple[str, float]]] = {}
    for c in cases:
        rates.setdefault(key_of(c), []).append((c.source, useful_flop_per_second(c)))
    errors = {}
    for c in cases:
        others = [rate for source, rate in rates[key_of(c)] if source != c.source]
        if others:
            errors[c.id] = useful_flop_per_second(c) / float(np.median(others)) - 1
    return errors


def comparison(cases: Sequence[Case], errors: Mapping[str, float]) -> Iterator[str]:
    """Yield the mean errors of physics and of the rule by precision and kind, each without the row's source."""
    rule = errors_of_rule(cases)
    yield f"{'unseen source':40}{'rows':>6}{'physics':>10}{'rule of thumb':>15}"
    kinds = sorted({key_of(c)[1:] for c in cases if c.id in rule})
    for kind in (*kinds, None):
        some = [c.id for c in cases if c.id in rule and kind in (key_of(c)[1:], None)]
        ours, theirs = (float(np.mean(np.abs([e[i] for i in some]))) for e in (errors, rule))
        yield f"{' '.join(kind or ('all',)):40}{len(some):>6}{ours:>9.1%}{theirs:>14.1%}"
