"""Write figures in units that suit their size, and text in aligned columns."""

from collections.abc import Sequence
from typing import Any


def money(usd: float) -> str:
    """Write dollars in the largest unit that suits: $64.00B, -$250."""
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


def amount(value: float) -> str:
    """Write a number in four digits, thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.4g}"


def memory(size: float) -> str:
    """Write bytes of memory."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.3g} MB"


def power(mw: float) -> str:
    """Write MW in kW or MW: 84.86 kW, 194 MW."""
    return f"{mw * 1e3:,.4g} kW" if mw < 1 else f"{amount(mw)} MW"


def storage(size: float) -> str:
    """Write bytes of a checkpoint in the largest unit that suits: 347.0 TB."""
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
    """Write a relative gap; what rounding leaves is none."""
    return f"{100 * value:.2g} %" if value > 1e-9 else "0 %"


def percent(value: float) -> str:
    """Write a share in percent."""
    return f"{100 * value:.1f} %"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural where it is not one."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def words(key: str) -> str:
    """Write a key in words."""
    return key.replace("_", " ")


def aligned(lines: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Write cells in aligned columns, the first `left` columns to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    )
    return "\n".join("  ".join(cells).rstrip() for cells in padded)
