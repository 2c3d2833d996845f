"""Put fitted constants into the files of a catalogue, and name those that lie on a bound of their fit."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from planner.calibration.constants import TYPES, FittedConstant, put
from planner.instance.catalogue_entries import catalogue


def name_of(constant: FittedConstant) -> str:
    """Return the name of a fitted constant: its catalogue entries and its path."""
    entries = "/".join(constant.entries) if len(constant.entries) < 4 else f"all {constant.kind}"
    return f"{entries}: {constant.path}"


def on_a_bound(constants: Sequence[FittedConstant], values: Sequence[float], tolerance: float = 0.01) -> list[str]:
    """Return a line for each constant that lies on a bound of its fit, within a tolerance of its logarithm.

    Such a constant stands in for a term that the model lacks.
    """
    lines = []
    for constant, value in zip(constants, values, strict=True):
        for bound in (constant.low, constant.high):
            if bound * (1 - tolerance) <= value <= bound * (1 + tolerance):
                lines.append(f"{name_of(constant)} is {value:.4g}, on the bound {bound:g} of its fit")
    return lines


def write(folder: Path, constants: Sequence[FittedConstant], values: Sequence[float]) -> None:
    """Write the constants into the files of a catalogue's folder."""
    for kind in TYPES:
        path = folder / f"{kind}.json"
        entries = json.loads(path.read_text(encoding="utf-8"))
        for constant, value in zip(constants, values, strict=True):
            for name in constant.entries if constant.kind == kind else ():
                put(entries[name], constant.path, value)
        path.write_text(laid_out(entries), encoding="utf-8")


@contextmanager
def catalogue_with(constants: Sequence[FittedConstant], values: Sequence[float]) -> Iterator[None]:
    """Put the constants into this process's catalogue for a while."""
    for kind in TYPES:
        entries = catalogue(kind)
        entries |= deepcopy(entries)
        for constant, value in zip(constants, values, strict=True):
            for name in constant.entries if constant.kind == kind else ():
                put(entries[name], constant.path, value)
    try:
        yield
    finally:
        catalogue.cache_clear()


def laid_out(entries: dict[str, Any]) -> str:
    """Lay a catalogue out with one key of an entry a line, its sources below one another."""
    blocks = []
    for name, entry in entries.items():
        lines = []
        for key, value in entry.items():
            if key == "source" and isinstance(value, dict):
                each = ",\n".join(
                    f"      {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()
                )
                lines.append(f'    "source": {{\n{each}\n    }}')
            else:
                lines.append(f"    {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
        blocks.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"
