"""What a command shows while it runs: one line on a terminal that lives for it, and lines with timestamps in a log."""

import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from planner.files import require_writable, unwritable
from planner.number_ranges import bounded
from planner.version import __version__

if TYPE_CHECKING:
    from rich.live import Live

    from planner.solvers.running.progress import Event

PATIENCE = 2.0  # seconds before a command shows anything
REFRESH = 0.2  # seconds between pictures of the line
HEARTBEAT = 10.0  # seconds after which the log says again where the command is
BAR = 16  # columns


class Watch:
    """The phase of a command and the last that it reported: shown while it runs, and logged."""

    def __init__(self, phase: str, *, shown: bool, log: TextIO | None = None) -> None:
        self.phase, self.text, self.share = phase, "", 0.0
        self.shown, self.log = shown, log
        self.started = self._logged = time.monotonic()
        self._live: Live | None = None
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True, name="progress")
        self._out, self._err = sys.stdout, sys.stderr

    def __call__(self, text: str) -> None:
        """Take a line of progress."""
        with self._lock:
            self.text = text
            self._note(text)

    def event(self, event: "Event") -> None:
        """Take what a solve reports."""
        with self._lock:
            line = event.line()
            self.phase, _, self.text = line.partition(", ")
            self.share = 0.0 if event.gap is None else max(0.0, 1 - event.gap)
            self._note(line)

    @property
    def elapsed(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self.started

    def begin(self) -> None:
        """Begin to watch; what a command prints erases its line first."""
        if self.shown:
            sys.stdout = _Printing(self._out, self.leave)
            sys.stderr = _Printing(self._err, self.erase)
        self._thread.start()

    def end(self) -> None:
        """Leave the terminal as it was."""
        self._ended.set()
        self.leave()
        if isinstance(sys.stdout, _Printing):
            sys.stdout = self._out
        if isinstance(sys.stderr, _Printing):
            sys.stderr = self._err
        self._thread.join(timeout=1.0)

    def leave(self) -> None:
        """Show no line any more: the command prints its answer."""
        with self._lock:
            self.shown = False
            self.erase()

    def erase(self) -> None:
        """Take the line away until it is drawn again."""
        with self._lock:
            live, self._live = self._live, None
            if live is not None:
                live.stop()

    def _tick(self) -> None:
        while not self._ended.wait(REFRESH):
            with self._lock:
                if self.shown and self.elapsed >= PATIENCE:
                    self._draw()
                if self.log is not None and time.monotonic() - self._logged >= HEARTBEAT:
                    self._note(f"{self.phase}, {self.text}" if self.text else self.phase)

    def _draw(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._err)
            self._live = Live(
                console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(self._line(), refresh=True)

    def _line(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 1))
        text = f"{clock(self.elapsed)}  {self.phase}" + (f", {self.text}" if self.text else "")
        parts: list[Any] = [Spinner("line")]
        if self.share > 0:
            parts.append(ProgressBar(total=1.0, completed=self.share, width=BAR))
        for _ in parts:
            line.add_column(no_wrap=True)
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        line.add_row(*parts, Text(text, no_wrap=True, overflow="ellipsis"))
        return line

    def _note(self, text: str) -> None:
        self._logged = time.monotonic()
        if self.log is not None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.log.write(f"{now} {self.elapsed:9.1f} s  {text}\n")
            self.log.flush()


class _Printing:
    """A stream of the command's own, before whose lines the live one is taken away; in all else the stream itself."""

    def __init__(self, stream: TextIO, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):
            self._before()
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Take the line away, then write."""
        self._before()
        return self._stream.write(text)


_current: Watch | None = None


def watched(command: Callable[..., None]) -> Callable[..., None]:
    """Refuse numbers out of range; show the line of a command that takes longer than two seconds, on a terminal alone.

    A number is named in complaints as its option is written.
    """
    spelled = {}
    for name, parameter in inspect.signature(command).parameters.items():
        option = parameter.annotation.__metadata__[0]
        written = (option.default, *(option.param_decls or ()), f"--{name.replace('_', '-')}")
        spelled[name] = next(x for x in written if isinstance(x, str) and x.startswith("--"))
    called = bounded(command, spelled)

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        with watching(command.__name__):
            called(*args, **options)

    return run


@contextmanager
def watching(name: str) -> Iterator[Watch]:
    """Watch a command by its name until it ends."""
    global _current  # noqa: PLW0603
    watch = _current = Watch(name, shown=sys.stderr.isatty())
    watch.begin()
    try:
        yield watch
    finally:
        watch.end()
        _current = None


@contextmanager
def progress_line(quiet: bool = False, log: Path | None = None) -> Iterator[Watch]:
    """Yield what the search of a command reports to; `quiet`: nothing on the terminal; `log`: lines added to a file."""
    if _current is None:  # called as a function, with no command around it
        with watching("planner"), progress_line(quiet, log) as watch:
            yield watch
        return
    watch = _current
    if quiet:
        watch.leave()
    if log is None:
        yield watch
        return
    require_writable(log)
    try:
        file = log.open("a", encoding="utf-8")
    except OSError as error:
        raise unwritable(log, error) from None
    with file:
        watch.log = file
        watch._note(f"planner {__version__} {watch.phase} begins")
        try:
            yield watch
        finally:
            with watch._lock:
                watch.log = None


def clock(seconds: float) -> str:
    """Write a time as minutes and seconds, with hours where there are any."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
