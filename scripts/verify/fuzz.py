"""Fuzz the readers and the light commands: no changed file may end in a traceback, a hang or much memory.

Run `.venv/bin/python scripts/verify/fuzz.py [--cases N] [--seconds S] [--seed N] [--first N]`. Every case changes one
small sound file and runs one command on it, in this process, without a network. Case N of a seed is the same on every
machine, so `--seed S --first N --cases 1 --show` repeats one. Prints a table and the distinct tracebacks; exits with 1
where there is a traceback, a hang, or a file that a refused command left behind.
"""

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fuzz_cases import BESIDE, PLACE, SUBJECTS, Subject, mutated
from typer.testing import CliRunner

import planner
from planner.cli.main import app
from planner.errors import InputError, PlannerError
from planner.units import aligned

PACKAGE = Path(planner.__file__).parent
SECONDS = 10.0  # of one case: a light command takes a fraction of one
MAX_MEMORY = 3 << 30  # bytes of data of this process; more is a MemoryError, which is a traceback
OUTCOMES = ("done", "refused", "traceback", "hang", "litter")


class Hang(BaseException):
    """A case took too long."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one case ended."""

    number: int
    subject: Subject
    outcome: str
    seconds: float
    text: str  # of the message, or the traceback
    place: str = ""  # where a traceback or a hang was


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Hang after so many seconds."""

    def ring(_: int, __: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def prepare(folder: Path) -> str:
    """Write the sound files beside which changed ones stand; return a running placement made from them."""
    for name, text in BESIDE.items():
        (folder / name).write_text(text, encoding="utf-8")
    os.chdir(folder)
    placed = CliRunner().invoke(app, [*PLACE, "--topology", "topology.conf", "--job", "job.json"])
    return placed.stdout


def run(number: int, seed: int, running: str, seconds: float = SECONDS) -> Result:
    """Run one case in the current folder."""
    r = random.Random(f"{seed}-{number}")
    subject = SUBJECTS[r.randrange(len(SUBJECTS))]
    if subject.group == "placement":
        subject = Subject(subject.group, subject.file, running, subject.command)
    Path(subject.file).write_bytes(mutated(subject, r))
    before = {p.name for p in Path().iterdir()}
    started = time.monotonic()
    outcome, text, place = _outcome(subject, seconds)
    spent = time.monotonic() - started
    left = {p.name for p in Path().iterdir()} - before
    if left and outcome == "refused":
        outcome, text = "litter", f"left behind: {', '.join(sorted(left))}"
    for name in left | {subject.file}:
        Path(name).unlink()
    return Result(number, subject, outcome, spent, text, place)


def _outcome(subject: Subject, seconds: float) -> tuple[str, str, str]:
    """Run a subject's command and return how it ended, its text and the place of a traceback."""
    try:
        with limited(seconds):
            done = CliRunner().invoke(app, [subject.file if w == "@" else w for w in subject.command])
    except Hang as error:
        return "hang", "".join(traceback.format_exception(error)), _place(error)
    raised = done.exception
    if raised is None or isinstance(raised, SystemExit):
        return "done", done.output, ""
    if isinstance(raised, InputError):
        return "refused", str(raised), ""
    kind = "internal error" if isinstance(raised, PlannerError) else type(raised).__name__
    return "traceback", "".join(traceback.format_exception(raised)), f"{kind} at {_place(raised)}"


def _place(error: BaseException) -> str:
    """Return the last line of the planner that an exception came through."""
    inside = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(PACKAGE)]
    return f"{Path(inside[-1].filename).relative_to(PACKAGE).as_posix()}:{inside[-1].lineno}" if inside else "outside"


def results(numbers: Iterable[int], seed: int, seconds: float | None = None) -> Iterator[Result]:
    """Run cases, until the time is up where there is one, in a folder of their own."""
    limits, home = resource.getrlimit(resource.RLIMIT_DATA), Path.cwd()
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, limits[1]))
    until = time.monotonic() + (seconds or float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            running = prepare(Path(folder))
            for number in numbers:
                if time.monotonic() > until:
                    return
                yield run(number, seed, running)
        finally:
            os.chdir(home)
            resource.setrlimit(resource.RLIMIT_DATA, limits)


def table(found: list[Result]) -> str:
    """Write the cases by kind of file and outcome, with the slowest of each kind."""
    rows = [["file", "cases", *OUTCOMES, "slowest, s"]]
    for group in [*dict.fromkeys(s.group for s in SUBJECTS), "all"]:
        part = [x for x in found if group in (x.subject.group, "all")]
        counts = Counter(x.outcome for x in part)
        slowest = max((x.seconds for x in part), default=0.0)
        rows.append([group, f"{len(part):,}", *(f"{counts[o]:,}" for o in OUTCOMES), f"{slowest:.2f}"])
    return aligned(rows, left=1)


def main() -> int:
    """Run the cases and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, help="end after so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print what each case ended with")
    given = parser.parse_args()
    found = []
    for x in results(range(given.first, given.first + given.cases), given.seed, given.seconds):
        found.append(x)
        if given.show:
            print(f"{x.number} {' '.join(x.subject.command)} {x.outcome} {x.seconds:.2f} s\n{x.text}")
    print(table(found))
    bad = [x for x in found if x.outcome in ("traceback", "hang", "litter")]
    for (place, outcome), n in Counter((x.place, x.outcome) for x in bad).most_common():
        x = next(x for x in bad if (x.place, x.outcome) == (place, outcome))
        last = x.text.strip().rpartition("\n")[2]
        print(f"{n} x {outcome}: {place}: {last[:160]} (case {x.number}: {' '.join(x.subject.command)})")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{len(found):,} cases of seed {given.seed}; {len(bad):,} bad; peak memory {memory:,.0f} MiB")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
