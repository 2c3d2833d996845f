"""The catalogue's entries by kind and name, in full where one is like another."""

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
    return {name: completed(entry, entries) if isinstance(entry, dict) else entry for name, entry in entries.items()}


def racks_with(accelerator: str) -> list[str]:
    """Return the racks and nodes of the catalogue that are built for an accelerator."""
    return [rack for rack, entry in catalogue("rack_accelerators").items() if accelerator in entry["accelerators"]]


def completed(entry: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a catalogue's entry in full: one `like` another has its figures, but for the name, the note and its own.

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
    rest = {key: value for key, value in entry.items() if key != LIKE and key not in full}
    return {**rest, **full, "source": source if isinstance(source, str) else reasons}
