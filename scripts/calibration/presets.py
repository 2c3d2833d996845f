"""How near the preset that the catalogue documents for a run comes, beside the best preset of all in hindsight."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from bridge_recipes import BRIDGE, BRIDGE_2025
from calibration_rows import Case
from fitted_constants import TUNED

from planner.calibration.fit import Numbers, log_errors
from planner.instance.catalogue_entries import catalogue
from planner.instance.software import Software
from planner.physics.training.step_errors import width


def documented(case: Case) -> str:
    """Return the preset of a row by the catalogue's notes: by release, and of 2025 by its experts' way and machine."""
    if case.machine.software.name == BRIDGE or case.machine.model.experts is None:
        return case.machine.software.name
    beside = "-flex" if case.machine.rack.gpus > 8 else "-overlap" if case.strategy.virtual_stages > 1 else ""
    return BRIDGE_2025 + beside


def errors_with(cases: Sequence[Case], names: Sequence[str]) -> Numbers:
    """Return the absolute errors of rows under presets as they are, but for how products in FP8 are scaled."""
    given = []
    for c, name in zip(cases, names, strict=True):
        own = Software.model_validate(catalogue("software")[name])
        software = own.model_copy(update={"fp8_recipe": c.machine.software.fp8_recipe})
        given.append(replace(c, machine=replace(c.machine, software=software)))
    return np.abs(np.expm1(log_errors(given, [], [])))


def preset_lines(cases: Sequence[Case]) -> Iterator[str]:
    """Yield the mean errors by precision and kind: with a row's own switches, its documented preset, and the best."""
    yield f"{'presets of Megatron-Bridge and its library':44}{'rows':>6}{'own':>8}{'documented':>12}{'best of all':>13}"
    of_library = [c for c in cases if c.machine.software.name in TUNED and not c.natural]
    kinds = {c.id: f"{width(c.machine)} {'MoE' if c.machine.model.experts else 'dense'}" for c in of_library}
    for kind in sorted(set(kinds.values())):
        some = [c for c in of_library if kinds[c.id] == kind]
        own = np.mean(np.abs(np.expm1(log_errors(some, [], []))))
        stated = np.mean(errors_with(some, [documented(c) for c in some]))
        best, name = min((float(np.mean(errors_with(some, [x] * len(some)))), x) for x in TUNED)
        yield f"{kind:44}{len(some):>6}{own:>8.1%}{stated:>12.1%}{best:>13.1%}  {name}"
