"""Lines within the width of a terminal: long ones are broken between words, the rest of them set in."""

import os
import shutil
import sys
import textwrap

INDENT = 11  # columns of a section's name in summaries
HANG = 2  # columns that the rest of a line is set in by
LEAST = 40  # columns that are taken to be there
PIPE = 200  # columns of a table in a file or a pipe
PERCENT, TOGETHER = " %", "\u00a0%"  # a number and its unit are not parted


def terminal_width() -> int | None:
    """Return the columns that output may have: COLUMNS, or the terminal's; None where it goes to a file or a pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return max(int(given), LEAST)
    return max(shutil.get_terminal_size().columns, LEAST) if sys.stdout.isatty() else None


def fitted(text: str, width: int | None) -> str:
    """Break lines that are wider; None: leave them as they are."""
    return text if width is None else "\n".join(_broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    named = line[:INDENT].strip().isupper() and line[INDENT - 1 : INDENT] == " "
    rest = " " * ((INDENT if named else len(line) - len(line.lstrip())) + HANG)
    lead = line[: len(line) - len(line.lstrip())]
    text = line.lstrip().replace(PERCENT, TOGETHER)
    found = textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=rest, break_on_hyphens=False)
    return "\n".join(found).replace(TOGETHER, PERCENT)
