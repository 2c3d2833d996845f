"""How figures and their names read: units come from the end of a path."""

from typing import Any

from planner.units import short

UNITS = {
    "usd_per_year": "USD a year",
    "usd": "USD",
    "mw": "MW",
    "bytes": "bytes",
    "bytes_per_gpu": "bytes a GPU",
    "seconds": "s",
    "tokens": "tokens",
    "flop": "FLOP",
    "m2": "m²",
    "km": "km",
    "gbps": "Gb/s",
    "ms": "ms",
    "days": "days",
    "watts": "W",
    "kw": "kW",
}
SPELLED = {"gpu": "GPU", "gpus": "GPUs", "mw": "MW", "usd": "USD", "wan": "WAN", "zero": "ZeRO"}
NAMES = {
    "days_to_train": ("time to train", "days"),
    "mfu": ("model FLOP utilisation", ""),
    "tokens_per_step": ("tokens a step", "tokens"),
    "racks": ("racks", ""),
    "gpus_used": ("GPUs used", ""),
}


def name_and_unit(path: str) -> tuple[str, str]:
    """Return the last key of a path in plain words and its unit or ""; a part has the unit of its total."""
    parent, _, last = path.rpartition(".")
    for key in (last, parent.rpartition(".")[2]):
        for end in sorted(UNITS, key=len, reverse=True):
            if key.endswith("_" + end):
                return plain(last.removesuffix("_" + end)), UNITS[end]
    return NAMES.get(last) or (plain(last), "")


def label(path: str) -> str:
    """Name a figure with its unit: `budget (USD)` for limits.budget_usd."""
    name, unit = name_and_unit(path)
    return f"{name} ({unit})" if unit else name


def quantity(path: str, value: Any) -> str:
    """Write a figure with the unit of its path: $64B, 2,500 MW."""
    _, unit = name_and_unit(path)
    if not unit or not isinstance(value, (int, float)):
        return short(value)
    if unit.startswith("USD"):
        return ("-$" if value < 0 else "$") + short(abs(value)) + unit.removeprefix("USD")
    return f"{short(value)} {unit}"


def plain(name: str) -> str:
    """Write a key in plain words."""
    return " ".join(SPELLED.get(word, word) for word in name.split("_"))
