"""What every reader shares: the text of a file, hostlists and labels in it, complaints that name file and place."""

import difflib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from planner.cluster.hostlist import MAX_NAMES, expand
from planner.errors import InputError

MAX_NAMES_OF_FILE = MAX_NAMES
SHOWN = 20  # Further complaints are counted, not printed: a file with one fault may have a thousand.


class Hostlists:
    """The hostlists of one file, which together may stand for so many names and no more."""

    def __init__(self, source: str) -> None:
        self.source, self.count = source, 0

    def names(self, where: str, text: str) -> tuple[str, ...]:
        """Expand a hostlist found at a place of the file.

        Raises
        ------
        InputError
            Names file and place: the text is no hostlist, is empty, or is one too many.
        """
        try:
            names = tuple(expand(text))
        except ValueError as error:
            raise InputError(f"{self.source}: {where}: {error}") from None
        if not names:
            raise InputError(f"{self.source}: {where}: the hostlist is empty; name at least one, such as n[1-4]")
        self.count += len(names)
        if self.count > MAX_NAMES_OF_FILE:
            problem = f"the file stands for more than {MAX_NAMES_OF_FILE:,} names"
            raise InputError(f"{self.source}: {where}: {problem}; check its ranges")
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
