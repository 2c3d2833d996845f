"""What every command shares: options, exit statuses, checks of its input, and what it shows while it runs."""

import functools
import inspect
import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from typer import Argument, Option

from planner.argument_ranges import bounded
from planner.errors import InputError, InternalError, needed
from planner.files import encoded, exists, json_or_text, require_folder, require_writable, unwritable, write_atomically
from planner.plan.plan_files import read_plan
from planner.version import __version__

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.live import Live

    from planner.instance.instance import Instance
    from planner.plan.plan import Plan
    from planner.solvers.progress import Event

PATIENCE = 2.0  # seconds before a command shows anything
REFRESH = 0.2  # seconds between pictures of the line
HEARTBEAT = 10.0  # seconds after which the log says again where the command is
TRIED = ("output", "plot", "geojson")  # parameters of files that are tried for writing before a command begins
WRITTEN = (*TRIED, "log", "into", "target")  # all parameters of files to write; all others are of files to read
SPELLED = {  # how options are written that are not by the name of their parameter
    "output": ("-o", "--output"), "target": ("-o", "--output"), "quiet": ("-q", "--quiet"),
    "verbose": ("-v", "--verbose"), "as_json": ("--json",), "form": ("--format",), "framework": ("--for",),
    "change": ("--set",), "part_of": ("--shard",), "start": ("--from",), "stop": ("--to",),
    "bytes_per_host": ("--bytes",),
}  # fmt: skip


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
    """Return a command's exit status for a plan, solved to the relative gap `gap` at most, if one is given."""
    if plan.verified is False:
        return ExitCode.UNVERIFIED
    if plan.status == "infeasible":
        return ExitCode.INFEASIBLE
    if plan.stopped == "interrupted":
        return ExitCode.INTERRUPTED
    within = gap is not None and plan.objective.gap is not None and plan.objective.gap <= gap
    if plan.instance.objective.minimize == "frontier":
        within = plan.curve is not None and plan.curve.stopped == "proved"
    return ExitCode.DONE if plan.status == "optimal" or within else ExitCode.LIMIT


def require_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Check that an option of a command has one of its values."""
    if value not in choices:
        raise InputError(f"{option}: must be one of {', '.join(choices)} (is {value!r})")


@contextmanager
def folder_for(plans: Path | None) -> Iterator[None]:
    """Make the folder of --plans for what runs inside; bad input there leaves no new folder behind. None: no folder."""
    if plans is None:
        yield
        return
    made = not exists(plans) and plans.parent.is_dir()
    try:
        if made:
            plans.mkdir()
    except OSError as error:
        raise unwritable(plans, error) from None
    try:
        require_folder(plans)
        yield
    except InputError:
        if made:
            plans.rmdir()
        raise


def read_pins(given: list[str] | None) -> dict[str, Any]:
    """Read the PATH=VALUE pins of a command; a value is JSON, or plain text where it is none."""
    from planner.sweeps.axes import values_by_path

    return {path: json_or_text(value, f"--pin {path}") for path, value in values_by_path("--pin", given or []).items()}


def print_or_write(text: str, output: Path | None) -> None:
    """Write a command's text to the file of -o, or print it to stdout where there is none."""
    if output is None:
        encoded(text, "stdout")
        print(text, end="")
    else:
        write_atomically(output, text)


def write_model(model: "BaseModel", output: Path | None) -> None:
    """Write the answer of a command, such as a plan, as JSON to the file of -o, if there is one."""
    if output is not None:
        write_atomically(output, model.model_dump_json(indent=1) + "\n")


def terminal_width() -> int | None:
    """Return the columns of text that a command prints: COLUMNS, or the terminal's, 40 at least; None for a pipe."""
    given = os.environ.get("COLUMNS", "")
    known = sys.stdout.isatty() or (given.isdecimal() and int(given) > 0)
    return max(shutil.get_terminal_size().columns, 40) if known else None


def tell_not_modelled(instance: "Instance") -> None:
    """Print to stderr which items of the files that an instance was read from are not modelled by any figure."""
    from planner.imports.unmodelled_items import not_modelled_notes

    for note in not_modelled_notes(instance):
        print(note, file=sys.stderr)


@contextmanager
def showable_plan(path: Path) -> Iterator["Plan"]:
    """Read the plan that a command shows; where that fails, InputError with a rule that the plan breaks, if it does."""
    plan = read_plan(path)
    try:
        yield plan
    except (ArithmeticError, InternalError, LookupError, TypeError, ValueError):
        from planner.checks.check_plan import check

        violations = check(plan)
        if not violations:
            raise
        rule = f"{violations[0].rule} ({violations[0].message})"
        raise InputError(f"{path}: the plan breaks {rule}; see what `planner check` says of it") from None


InstanceFile = Annotated[
    Path, Argument(help="Instance (JSON or YAML), a plan for its instance, or a name that ships, such as 5gw.")
]
PlanFile = Annotated[Path, Argument(help="Plan file (JSON).")]
Pins = Annotated[list[str] | None, "Fix a decision: PATH=VALUE, such as layout.tensor_parallel=10."]
Changes = Annotated[list[str] | None, "Change the instance: PATH=VALUE, PATH=x1.2, PATH=+100 or PATH=-20%."]
Gap = Annotated[float | None, "Stop at this relative gap to the proven bound."]
Seed = Annotated[int, "Seed of the solvers."]
Threads = Annotated[int | None, "Threads of the solvers; 1 unless given."]
Verbose = Annotated[bool, "All that the plan says, proofs included."]
Log = Annotated[Path | None, "Add lines of progress with timestamps to this file."]
InsteadOfStdout = Annotated[Path | None, "Write here in place of stdout."]
TopologyName = Annotated[str | None, "Which topology of a topology.yaml; its default unless given."]
NodeLabels = Annotated[list[str] | None, "Kubernetes label that names a switch above a node; once a tier, leaf first."]
Constants = Annotated[Path | None, "Constants of your cluster, from `planner calibrate`; they replace the catalogue's."]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedInstance:
    """Options of a command for its instance: the file, the user's changes (--set) and constants."""

    instance: InstanceFile
    change: Changes = None
    constants: Constants = None

    def changed(self, *, searched: bool = True) -> "Instance | Path":
        """Return the instance that a command line names, with its --set; the path of its file where there are none."""
        if not self.change:
            return self.instance
        from planner.sweeps.axes import changed, read_changes

        return changed(self.instance, read_changes(self.change), searched=searched)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedInstance(AskedInstance):
    """Options of a command for its instance, with some decisions pinned (--pin)."""

    pin: Pins = None


class Watch:
    """The live progress line of a command: its phase and last report, shown on stderr while it runs, and logged."""

    def __init__(self, phase: str, *, shown: bool) -> None:
        self.phase, self.text, self.share, self.shown = phase, "", 0.0, shown
        self.log: TextIO | None = None
        self.started = self._logged = time.monotonic()
        self._live: Live | None = None
        self._lock, self._err = threading.RLock(), sys.stderr

    def __call__(self, given: "Event | str") -> None:
        """Take a progress event of a solve, or another line of progress of a command, to show and log it."""
        with self._lock:
            if isinstance(given, str):
                line = self.text = given
            else:
                line = given.line()
                self.phase, _, self.text = line.partition(", ")
                self.share = 0.0 if given.gap is None else max(0.0, 1 - given.gap)
            self._note(line)

    def erase(self, *, for_good: bool = False) -> None:
        """Erase the progress line from the terminal until it is drawn again; `for_good`: an answer is printed."""
        with self._lock:
            self.shown = self.shown and not for_good
            live, self._live = self._live, None
            if live is not None:
                live.stop()

    def tick(self, ended: threading.Event) -> None:
        """Draw the progress line and log heartbeats until the command has ended."""
        while not ended.wait(REFRESH):
            with self._lock:
                if self.shown and time.monotonic() - self.started >= PATIENCE:
                    self._draw()
                if self.log is not None and time.monotonic() - self._logged >= HEARTBEAT:
                    self._note(f"{self.phase}, {self.text}" if self.text else self.phase)

    def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        if self._live is None:
            still: dict[str, Any] = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
            self._live = Live(console=Console(file=self._err), transient=True, **still)
            self._live.start()
        line, parts = Table.grid(padding=(0, 1)), list[Any]([Spinner("line")])
        if self.share > 0:
            parts.append(ProgressBar(total=1.0, completed=self.share, width=16))
        for _ in parts:
            line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        hours, minutes = divmod(minutes, 60)
        elapsed = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
        text = f"{elapsed}  {self.phase}" + (f", {self.text}" if self.text else "")
        line.add_row(*parts, Text(text, no_wrap=True, overflow="ellipsis"))
        self._live.update(line, refresh=True)

    def _note(self, text: str) -> None:
        self._logged = time.monotonic()
        if self.log is not None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.log.write(f"{now} {self._logged - self.started:9.1f} s  {text}\n")
            self.log.flush()


class _Printing:
    """A command's output stream, which erases the live progress line before it writes; in all else the stream."""

    def __init__(self, stream: TextIO, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):
            self._before()
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._before()
        return self._stream.write(text)


_current: Watch | None = None


@contextmanager
def watching(name: str) -> Iterator[Watch]:
    """Show the progress line of a command until it ends; what it prints erases the line, and streams are put back."""
    global _current  # noqa: PLW0603
    watch, ended = Watch(name, shown=sys.stderr.isatty()), threading.Event()
    thread = threading.Thread(target=watch.tick, args=[ended], daemon=True, name="progress")
    _current, out, err = watch, sys.stdout, sys.stderr
    if watch.shown:
        sys.stdout = _Printing(out, functools.partial(watch.erase, for_good=True))
        sys.stderr = _Printing(err, watch.erase)
    thread.start()
    try:
        yield watch
    finally:
        _current = None
        ended.set()
        watch.erase(for_good=True)
        sys.stdout = out if isinstance(sys.stdout, _Printing) else sys.stdout
        sys.stderr = err if isinstance(sys.stderr, _Printing) else sys.stderr
        thread.join(timeout=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressOptions:
    """Options of a command for its progress. quiet: nothing on the terminal; log: lines added to a file."""

    quiet: Annotated[bool, "No progress on stderr."] = False
    log: Log = None

    @contextmanager
    def line(self) -> Iterator[Watch]:
        """Yield the progress line to which the search of a command reports."""
        with ExitStack() as stack:
            # Called as a function it has no command around it.
            watch = _current or stack.enter_context(watching("planner"))
            if self.quiet:
                watch.erase(for_good=True)
            if self.log is not None:
                require_writable(self.log)
                try:
                    watch.log = stack.enter_context(self.log.open("a", encoding="utf-8"))
                except OSError as error:
                    raise unwritable(self.log, error) from None
                watch._note(f"planner {__version__} {watch.phase} begins")
            try:
                yield watch
            finally:
                with watch._lock:
                    watch.log = None


def watched(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that shows its progress, with each field of its records of options as an option.

    An option is annotated by its help, and written as SPELLED or its name says; a flag has no negation. The command
    refuses numbers out of range, named as options, and to write over a file that it reads or where none can be.
    """
    parameters, records, spelled = list[inspect.Parameter](), dict[str, Any](), dict[str, str]()
    for name, parameter in inspect.signature(command).parameters.items():
        options = [(name, parameter.annotation, parameter.default)]
        if is_dataclass(parameter.annotation):
            records[name] = parameter.annotation
            options = [(x.name, x.type, x.default) for x in fields(parameter.annotation)]
        for option, annotation, default in options:
            spellings = SPELLED.get(option, (f"--{option.replace('_', '-')}",))
            declared, spelled[option] = annotation.__metadata__[0], spellings[-1]
            if isinstance(declared, str):  # its help alone
                declared = Option(*spellings, help=declared)
            kind, given = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty if default is MISSING else default
            stated: Any = Annotated[annotation.__origin__, declared]
            parameters.append(inspect.Parameter(option, kind, default=given, annotation=stated))

    def run(**options: Any) -> None:
        given = (value for name, value in options.items() if name not in WRITTEN)
        read = list(itertools.chain.from_iterable(x if isinstance(x, list) else [x] for x in given))
        written = [(spelled[name], path) for name in WRITTEN if isinstance(path := options.get(name), Path)]
        for (option, path), other in itertools.product(written, read):
            same = False
            with suppress(OSError):  # one that is missing, or cannot be named, is complained of where it is used
                same = isinstance(other, Path) and other.is_file() and other.samefile(path)
            if same:
                raise InputError(f"{path}: is read by this command, and {option} would write over it; write elsewhere")
        require_writable(*map(options.get, TRIED))
        if (picture := options.get("plot")) is not None:  # whether it can be drawn is seen before any work is done
            if picture.suffix not in (".svg", ".png"):
                raise InputError(f"{picture}: must end in .svg or .png")
            with needed("--plot", "matplotlib", "plot"):
                import matplotlib as mpl
            mpl.use("Agg")
        made = {name: kind(**{x.name: options.pop(x.name) for x in fields(kind)}) for name, kind in records.items()}
        with watching(command.__name__):
            command(**made, **options)

    functools.update_wrapper(run, command)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return bounded(run, spelled)
