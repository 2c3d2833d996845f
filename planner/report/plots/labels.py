"""How figures and their names read: units come from the end of a path."""

from typing import Any

from planner.units import money

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
WRITTEN = {"gpu": "GPU", "gpus": "GPUs", "mw": "MW", "usd": "USD", "wan": "WAN", "zero": "ZeRO"}
NAMES = {
    "days_to_train": ("time to train", "days"),
    "mfu": ("model FLOP utilisation", ""),
    "tokens_per_step": ("tokens a step", "tokens"),
    "racks": ("racks", ""),
    "gpus_used": ("GPUs used", ""),
}


def name_and_unit(path: str) -> tuple[str, str]:
    """Split the last key of a path into plain words and its unit, which may be empty; a part of a whole has the whole's unit."""
    whole, _, last = path.rpartition(".")
    for key in (last, whole.rpartition(".")[2]):
        for end in sorted(UNITS, key=len, reverse=True):
            if key.endswith("_" + end):
                return plain(last.removesuffix("_" + end)), UNITS[end]
    return NAMES.get(last) or (plain(last), "")


def label(path: str) -> str:
    """Name a figure with its unit: `budget (USD)` for limits.budget_usd."""
    name, unit = name_and_unit(path)
    return f"{name} ({unit})" if unit else name


def short(value: Any) -> str:
    """Write a number in four digits with K, M, B or T, anything else as it is."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    for mark, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e5)):
        if abs(value) >= size:
            return f"{value / (1e3 if mark == 'K' else size):,.4g}{mark}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def quantity(path: str, value: Any) -> str:
    """Write a figure with the unit that its path tells: $64B, 2,500 MW."""
    _, unit = name_and_unit(path)
    if unit.startswith("USD") and isinstance(value, (int, float)):
        return ("-$" if value < 0 else "$") + short(abs(value)) + unit.removeprefix("USD")
    return f"{short(value)} {unit}" if unit and isinstance(value, (int, float)) else short(value)


def amount(value: float) -> str:
    """Write a number in four digits, thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.4g}"


def gigabytes(value: float) -> str:
    """Write bytes of memory."""
    return f"{value / 1e9:,.1f} GB" if value >= 1e8 else f"{value / 1e6:,.3g} MB"


def gap(value: float) -> str:
    """Write a relative gap; what rounding leaves is none."""
    return f"{100 * value:.2g} %" if value > 1e-9 else "0 %"


def usd(value: float) -> str:
    """Write dollars as the plan's story does, with a sign before the mark."""
    return f"-{money(-value)}" if value < 0 else money(value)


def share(part: float, whole: float) -> str:
    """Write a part as a percentage of the whole."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def plain(name: str) -> str:
    """Write a key in plain words."""
    return " ".join(WRITTEN.get(word, word) for word in name.split("_"))
