"""What every command shares: exit statuses, pins, and arguments and options by name."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.errors import InputError, InternalError
from planner.files import exists, json_or_text, require_folder, unwritable
from planner.optional_packages import needed

if TYPE_CHECKING:
    from planner.instance.instance import Instance
    from planner.plan.plan import Plan


# Exit statuses; BROKEN: a plan given breaks a rule, or the planner has a defect; UNVERIFIED: the checker disagrees with
# the plan that was made.
DONE, BROKEN, BAD_INPUT, INFEASIBLE, LIMIT, UNVERIFIED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def exit_code(plan: "Plan", gap: float | None) -> int:
    """Return the exit status that a plan stands for."""
    if plan.verified is False:
        return UNVERIFIED
    if plan.status == "infeasible":
        return INFEASIBLE
    if plan.stopped == "interrupted":
        return INTERRUPTED
    within = gap is not None and plan.objective.gap is not None and plan.objective.gap <= gap
    return DONE if plan.status == "optimal" or within else LIMIT


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


def tell_not_modelled(instance: "Instance") -> None:
    """Print on stderr what files that the instance was read from say that no figure follows."""
    from planner.instance.read_items import not_modelled_notes

    for note in not_modelled_notes(instance):
        print(note, file=sys.stderr)


@contextmanager
def requiring_sound(plan: "Plan", path: Path) -> Iterator[None]:
    """Name a rule that a plan breaks where it cannot be shown or written; the failure of a sound plan is a defect.

    InputError: the plan of the file breaks a rule.
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


InstanceFile = Annotated[
    Path, typer.Argument(help="Instance (JSON or YAML), a plan for its instance, or a name that ships, such as 5gw.")
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file (JSON).")]
Pins = Annotated[list[str] | None, typer.Option("--pin", help="Fix a decision: PATH=VALUE.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change the instance: PATH=VALUE, PATH=x1.2, PATH=+100 or PATH=-20%."),
]
Gap = Annotated[float | None, typer.Option(help="Stop at this relative gap to the proven bound.")]
Seed = Annotated[int, typer.Option(help="Seed of the solvers.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="All that the plan says, proofs included.")]
Log = Annotated[Path | None, typer.Option("--log", help="Add lines of progress with timestamps to this file.")]
InsteadOfStdout = Annotated[Path | None, typer.Option("-o", "--output", help="Write here in place of stdout.")]
TopologyName = Annotated[str | None, typer.Option(help="Which topology of a topology.yaml; its default unless given.")]
NodeLabels = Annotated[
    list[str] | None, typer.Option(help="Kubernetes label that names a switch above a node; once a tier, leaf first.")
]
Constants = Annotated[
    Path | None,
    typer.Option(help="Constants of your cluster, from `planner calibrate`; they replace the catalogue's."),
]
