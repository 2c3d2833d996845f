"""The catalogues that ship with the planner, by name."""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def catalogue(kind: str) -> dict[str, Any]:
    """Return a catalogue by kind: accelerators, racks, switches, models or scaling_laws."""
    text = resources.files("planner").joinpath("catalogue", f"{kind}.json").read_text(encoding="utf-8")
    entries: dict[str, Any] = json.loads(text)
    return entries
