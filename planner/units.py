"""Write numbers in units that suit their size, and align them in columns."""

import math
from collections.abc import Sequence
from typing import Any


def money(usd: float) -> str:
    """Write money in dollars in the largest unit that suits: $64.00B, -$250."""
    sign, size = ("-" if usd < 0 else ""), abs(usd)
    for unit, scale in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if size >= scale * (1 - 5e-6):  # so that rounding does not write $1,000.00K
            return f"{sign}${size / scale:,.2f}{unit}"
    return f"{sign}${size:,.0f}"


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


def rounded(value: float, digits: int, *, up: bool) -> float:
    """Round a number to some digits, up or down, so that the bound that it states stays true; 0 for nothing."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits) if value > 0 else 1.0
    return unit * (math.ceil(value / unit - 1e-9) if up else math.floor(value / unit + 1e-9))


def amount(value: float) -> str:
    """Write a number in four digits, thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.4g}"


def ratio(value: float, digits: int = 2) -> str:
    """Write a ratio in some digits, below a million with no exponent: 1.1, 280."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if 10**digits <= abs(rounded) < 1e6 else f"{rounded:.{digits}g}"


def to_one(value: float, digits: int = 6) -> str:
    """Write a ratio of two rates with the smaller as 1: 4:1, 1:2."""
    return f"{ratio(value, digits)}:1" if value >= 1 else f"1:{ratio(1 / value, digits)}"


def memory(size: float) -> str:
    """Write bytes of memory in the unit that suits."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.3g} MB"


def power(mw: float) -> str:
    """Write MW in kW or MW: 84.86 kW, 194 MW."""
    return f"{mw * 1e3:,.4g} kW" if mw < 1 else f"{amount(mw)} MW"


def storage(size: float) -> str:
    """Write bytes of a checkpoint in the unit that suits, MB to PB: 347.0 TB."""
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size / 1e6:,.3g} MB"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits its length: 2.8 s, 3.0 min, 29.3 days."""
    for unit, scale, most in (("s", 1.0, 60.0), ("min", 60.0, 60.0), ("h", 3600.0, 48.0), ("days", 86_400.0, 1e3)):
        if seconds < most * scale:
            return f"{seconds / scale:,.1f} {unit}" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"
    return f"{seconds / (365.25 * 86_400):,.1f} years"


def gap(value: float) -> str:
    """Write a number that is a relative gap as a percentage; what rounding leaves is none."""
    return f"{100 * value:.2g} %" if value > 1e-9 else "0 %"


def percent(value: float) -> str:
    """Write a number that is a share as a percentage."""
    return f"{100 * value:.1f} %"


def short_percent(share: float) -> str:
    """Write a number that is a share as whole percent from 10 on, in tenths below."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else percent(share)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural unless it is 1."""
    many = "leaves" if noun == "leaf" else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def few(names: Sequence[str], most: int = 5) -> str:
    """Write the first of some names, and the number of those left out."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def words(key: str) -> str:
    """Write a key in words, without underscores, as numbers are written in units."""
    return key.replace("_", " ")


def aligned(lines: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Align rows of numbers and words in columns of text: the first `left` to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    columns = ("<" if column < left else ">" for column in range(len(widths)))
    row = "  ".join(f"{{:{side}{width}}}" for side, width in zip(columns, widths, strict=True))
    return "\n".join(row.format(*line).rstrip() for line in lines)
