"""What every reader shares: the text of a file, hostlists and labels in it, complaints that name file and place."""

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from planner.cluster.hostlist import expand
from planner.errors import InputError

SHOWN = 20  # Further complaints are counted, not printed: a file with one fault may have a thousand.


def read_text(path: Path) -> str:
    """Read a text file, or say what is wrong with it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error}); give a text file") from None


def names_at(source: str, where: str, text: str) -> tuple[str, ...]:
    """Expand a hostlist found at a place of a file."""
    try:
        names = tuple(expand(text))
    except ValueError as error:
        raise InputError(f"{source}: {where}: {error}") from None
    if not names:
        raise InputError(f"{source}: {where}: the hostlist is empty; name at least one, such as n[1-4]")
    return names


def raise_all(source: str, problems: Iterable[str]) -> None:
    """Raise every complaint at once; nothing where there are none."""
    lines = [f"{source}: {p}" for p in problems]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"{source}: and {len(lines) - SHOWN:,} more like these"]
    if lines:
        raise InputError("\n".join(lines))


def near(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name, or some of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, 1, 0.4) if len(names) <= 5_000 else []
    return f"did you mean {close[0]!r}?" if close else f"known: {some(names)}"


def some(names: Sequence[str], limit: int = 5) -> str:
    """List a few names, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit:,} more" if len(names) > limit else "")


def shown(value: Any) -> str:
    """Show a value as it stands in a JSON file, shortened."""
    return json.dumps(value, default=str)[:80]
