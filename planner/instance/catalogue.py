"""The catalogues that ship with the planner, by name."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

LIKE = "like"  # the key by which an entry names another, and of its sources the one that says why


@cache
def catalogue(kind: str) -> dict[str, Any]:
    """Return a catalogue by kind: accelerators, racks, switches, models or scaling_laws."""
    text = resources.files("planner").joinpath("catalogue", f"{kind}.json").read_text(encoding="utf-8")
    entries: dict[str, Any] = json.loads(text)
    return {k: completed(v, entries) if isinstance(v, dict) else v for k, v in entries.items()}


def completed(entry: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry in full: one that is `like` another has its figures, but for the name, the note and its own.

    A part with a source of its own is completed key by key; every other value, peaks by type too, is replaced whole.
    """
    if LIKE not in entry:
        return dict(entry)
    source = entry.get("source")
    reasons = dict(source) if isinstance(source, Mapping) else {}
    taken = ", ".join([f"taken over from {entry[LIKE]}", *([reasons.pop(LIKE)] if LIKE in reasons else [])])
    full: dict[str, Any] = {}
    for key, value in known[entry[LIKE]].items():
        own = entry.get(key, {})
        if isinstance(value, dict) and "source" in value and isinstance(own, Mapping):
            full[key] = {**value, "source": taken, **own}
        elif key not in ("name", "note", "source"):
            full[key] = entry.get(key, value)
            reasons.setdefault(key, taken)
    rest = {k: v for k, v in entry.items() if k != LIKE and k not in full}
    return {**rest, **full, "source": source if isinstance(source, str) else reasons}
