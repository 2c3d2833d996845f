"""What every command shares: exit statuses, pins and changes, and what is checked before and behind its work."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError, InternalError, needed
from planner.files import exists, json_or_text, require_folder, unwritable, write_atomically

if TYPE_CHECKING:
    from planner.instance.instance import Instance
    from planner.plan.plan import Plan


class ExitCode(IntEnum):
    """Exit statuses of all commands."""

    DONE = 0
    BROKEN = 1  # a plan given breaks a rule, or the planner has a defect
    BAD_INPUT = 2
    INFEASIBLE = 3
    LIMIT = 4
    UNVERIFIED = 5  # the checker disagrees with the plan that was made
    INTERRUPTED = 130


def exit_code(plan: "Plan", gap: float | None) -> int:
    """Return the exit status that a plan stands for."""
    if plan.verified is False:
        return ExitCode.UNVERIFIED
    if plan.status == "infeasible":
        return ExitCode.INFEASIBLE
    if plan.stopped == "interrupted":
        return ExitCode.INTERRUPTED
    within = gap is not None and plan.objective.gap is not None and plan.objective.gap <= gap
    return ExitCode.DONE if plan.status == "optimal" or within else ExitCode.LIMIT


def require_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Check that an option has one of its values."""
    if value not in choices:
        raise InputError(f"{option}: must be one of {', '.join(choices)} (is {value!r})")


def require_picture(path: Path | None) -> None:
    """Check, before any work is done, that the picture of --plot can be drawn; None is no picture."""
    if path is None:
        return
    if path.suffix not in (".svg", ".png"):
        raise InputError(f"{path}: must end in .svg or .png")
    with needed("--plot", "matplotlib", "plot"):
        import matplotlib as mpl
    mpl.use("Agg")


@contextmanager
def folder_for(plans: Path | None) -> Iterator[None]:
    """Make the folder of --plans for what runs inside; bad input there leaves no new folder behind. None: no folder."""
    made = False
    if plans is not None and not exists(plans) and plans.parent.is_dir():
        try:
            plans.mkdir()
        except OSError as error:
            raise unwritable(plans, error) from None
        made = True
    try:
        if plans is not None:
            require_folder(plans)
        yield
    except InputError:
        if made and plans is not None:
            plans.rmdir()
        raise


def read_pins(given: list[str]) -> dict[str, Any]:
    """Read PATH=VALUE pins; a value is JSON, or plain text where it is none."""
    pins: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise InputError(f"--pin {text!r}: must be PATH=VALUE, such as layout.tensor_parallel=10")
        pins[path] = json_or_text(value, f"--pin {path}")
    return pins


def what_if(instance: Path, changes: list[str] | None, *, searched: bool = True) -> "Instance | Path":
    """Return an instance with the values of --set in place of its own; its path where there are none."""
    if not changes:
        return instance
    from planner.sweeps.instance_paths import changed, read_changes

    return changed(instance, read_changes(changes), searched=searched)


def print_or_write(text: str, output: Path | None) -> None:
    """Write a text to the file of -o, or print it where there is none."""
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)


def tell_not_modelled(instance: "Instance") -> None:
    """Print on stderr what files that the instance was read from say that no figure follows."""
    from planner.instance.read_items import not_modelled_notes

    for note in not_modelled_notes(instance):
        print(note, file=sys.stderr)


@contextmanager
def requiring_sound(plan: "Plan", path: Path) -> Iterator[None]:
    """Name a rule that a plan breaks where it cannot be shown or written; the failure of a sound plan is a defect.

    Raise InputError where the plan of the file breaks a rule.
    """
    try:
        yield
    except (ArithmeticError, InternalError, LookupError, TypeError, ValueError):
        from planner.checks.registry import check

        violations = check(plan)
        if not violations:
            raise
        rule = f"{violations[0].rule} ({violations[0].message})"
        raise InputError(f"{path}: the plan breaks {rule}; see what `planner check` says of it") from None
