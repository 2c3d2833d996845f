"""What every command shares: exit statuses, pins and plans read, files written whole, the progress line."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError

if TYPE_CHECKING:
    from planner.plan import Plan

DONE, FOUND, BAD_INPUT, INFEASIBLE, LIMIT, INTERRUPTED = 0, 1, 2, 3, 4, 130


def exit_code(plan: "Plan", gap: float | None) -> int:
    """Return the exit status that a plan stands for."""
    if plan.status == "infeasible":
        return INFEASIBLE
    if plan.stopped == "interrupted":
        return INTERRUPTED
    within = gap is not None and plan.objective.gap is not None and plan.objective.gap <= gap
    return DONE if plan.status == "optimal" or within else LIMIT


def read_pins(given: list[str]) -> dict[str, Any]:
    """Read PATH=VALUE pins; a value is JSON, or plain text where it is none."""
    found: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise InputError(f"--pin {text!r}: must be PATH=VALUE, such as layout.tensor_parallel=10")
        try:
            found[path] = json.loads(value)
        except json.JSONDecodeError:
            found[path] = value
    return found


def read_plan(path: Path) -> "Plan":
    """Read a plan file, or say what is wrong with it."""
    from pydantic import ValidationError

    from planner.load import complaints, read_json
    from planner.plan import Plan

    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: must be a plan (is {type(data).__name__}); make one with `planner solve -o`")
    try:
        return Plan.model_validate(data)
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, str(path), Plan))) from None


def require_folder(output: Path | None) -> None:
    """Refuse, before any work is done, to write where there is no folder."""
    if output is not None and not output.resolve().parent.is_dir():
        raise InputError(f"{output}: its folder does not exist; make it, or write elsewhere")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file all at once: to a temporary name beside it, then renamed; a link is followed, a device or a pipe written to."""
    data = content if isinstance(content, bytes) else content.encode()
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            path.write_bytes(data)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
        return
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None


@contextmanager
def progress_line(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the latest word of the search on one line of a terminal; nothing when piped or quiet."""
    shown = not quiet and sys.stderr.isatty()

    def report(text: str) -> None:
        if shown:
            print(f"\r\033[K{text[:110]}", end="", file=sys.stderr, flush=True)

    report("reading")
    try:
        yield report
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
