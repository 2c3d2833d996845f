"""Fuzz the readers, the commands and small solves: none may end in a traceback, a hang, a late answer or much memory.

Run `.venv/bin/python scripts/verify/fuzz.py [--cases N] [--seconds S] [--seed N] [--first N] [--kind K]`. Every case
changes one small sound file, an option, a path or the environment of one command, or draws keys of a small instance and
solves it; it runs in this process (some cases of the environment in one of their own), without a network. Case N of a
seed is the same on every machine, so `--seed S --first N --cases 1 --show` repeats one. Prints a table and the distinct
tracebacks; exits with 1 where there is a traceback, a hang, an answer behind its limit of time or with more than the
memory allowed, or a file that a refused command left behind.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
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

from fuzz_cases import BESIDE, PLACE, SUBJECTS, Subject
from fuzz_commands import ALL_GROUPS, KINDS, Case, case, kind_of
from fuzz_commands import prepare as prepare_paths
from typer.testing import CliRunner

import planner
from planner.cli.main import app
from planner.errors import InputError, PlannerError
from planner.units import aligned

PACKAGE = Path(planner.__file__).parent
SECONDS = 10.0  # of the processor for one case: a light command takes a fraction of one
PATIENCE = 3  # times as long until a case is given up
ASLEEP = 300.0  # seconds on the wall until one is that waits for something: other work may hold the processor
MAX_MEMORY = 2 << 30  # bytes of data beside those that this process has before the cases; one that needs more fails
OUTCOMES = ("done", "refused", "traceback", "hang", "late", "memory", "litter")


class Hang(BaseException):
    """A case took too long."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one case ended."""

    number: int
    subject: Subject
    outcome: str
    seconds: float  # of the processor
    text: str  # of the message, or the traceback
    place: str = ""  # where a traceback or a hang was


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Hang after so many seconds of the processor, or where nothing is done for very long."""

    def ring(_: int, __: FrameType | None) -> None:
        raise Hang

    before = {number: signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, ASLEEP)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def prepare(folder: Path) -> str:
    """Write the sound files beside which changed ones stand; return a running placement made from them."""
    for name, text in BESIDE.items():
        (folder / name).write_text(text, encoding="utf-8")
    prepare_paths(folder)
    os.chdir(folder)
    placed = CliRunner().invoke(app, [*PLACE, "--topology", "topology.conf", "--job", "job.json"])
    return placed.stdout


def run(number: int, seed: int, running: str, seconds: float = SECONDS, kind: str | None = "files") -> Result:
    """Run one case in the current folder; `kind` None: of any kind."""
    r = random.Random(f"{seed}-{number}")
    subject = SUBJECTS[r.randrange(len(SUBJECTS))]
    if subject.group == "placement":
        subject = Subject(subject.group, subject.file, running, subject.command)
    asked = case(kind or kind_of(r), subject, seed, number, r)
    Path(asked.subject.file).write_bytes(asked.data)
    before = {p.name for p in Path().iterdir()}
    started, limit = time.process_time(), asked.seconds or seconds
    outcome, text, place = _outcome(asked, limit)
    spent = time.process_time() - started
    if outcome in ("done", "refused") and spent > limit:
        outcome = "late"
    left = {p.name for p in Path().iterdir()} - before
    if left and outcome == "refused":
        outcome, text = "litter", f"left behind: {', '.join(sorted(left))}"
    for name in left | {asked.subject.file}:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()
    subject = Subject(asked.subject.group, asked.subject.file, asked.subject.text, asked.words)
    return Result(number, subject, outcome, spent, text, place)


def _outcome(asked: Case, seconds: float) -> tuple[str, str, str]:
    """Run the command of a case and return how it ended, its text and the place of a traceback."""
    if asked.apart:
        return _apart(asked)
    try:
        with limited(PATIENCE * seconds):
            done = CliRunner().invoke(app, list(asked.words), env=asked.environment)
    except Hang as error:
        return "hang", "".join(traceback.format_exception(error)), _place(error)
    raised = done.exception
    if raised is None or isinstance(raised, SystemExit):
        return "done", done.output, ""
    # What the system refuses is told by the file that it names, or as the standard output, which no file is here.
    if isinstance(raised, InputError) or (isinstance(raised, OSError) and raised.filename is not None):
        return "refused", str(raised), ""
    if isinstance(raised, KeyboardInterrupt):
        raise raised
    kind = "internal error" if isinstance(raised, PlannerError) else type(raised).__name__
    outcome = "memory" if isinstance(raised, MemoryError) else "traceback"
    return outcome, "".join(traceback.format_exception(raised)), f"{kind} at {_place(raised)}"


def _apart(asked: Case) -> tuple[str, str, str]:
    """Run the command of a case in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), **asked.environment}
    command = [sys.executable, "-m", "planner", *asked.words]
    done = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=ASLEEP)
    text = done.stderr.decode("utf-8", "replace")
    if "Traceback" in text or "internal error" in text:
        return "traceback", text, f"apart: {sorted(asked.environment.items())}"
    return ("refused" if done.returncode == 2 else "done"), text, ""


def _place(error: BaseException) -> str:
    """Return the last line of the planner that an exception came through."""
    inside = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(PACKAGE)]
    return f"{Path(inside[-1].filename).relative_to(PACKAGE).as_posix()}:{inside[-1].lineno}" if inside else "outside"


def _data_bytes() -> int:
    """Return the bytes of data that this process has: a worker of the tests keeps what tests before loaded."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(x.split()[1]) << 10 for x in lines if x.startswith("VmData:")), 0)


def results(
    numbers: Iterable[int], seed: int, seconds: float | None = None, kind: str | None = "files"
) -> Iterator[Result]:
    """Run cases, until the time is up where there is one, in a folder of their own."""
    limits, home = resource.getrlimit(resource.RLIMIT_DATA), Path.cwd()
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MAX_MEMORY, limits[1]))
    until = time.monotonic() + (seconds or float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            running = prepare(Path(folder))
            for number in numbers:
                if time.monotonic() > until:
                    return
                yield run(number, seed, running, kind=kind)
        finally:
            os.chdir(home)
            resource.setrlimit(resource.RLIMIT_DATA, limits)


def table(found: list[Result]) -> str:
    """Write the cases by kind of file and outcome, with the slowest of each kind."""
    rows = [["kind", "cases", *OUTCOMES, "slowest, s"]]
    for group in [*ALL_GROUPS, "all"]:
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
    parser.add_argument("--kind", choices=list(KINDS), help="all kinds unless given")
    parser.add_argument("--show", action="store_true", help="print what each case ended with")
    given = parser.parse_args()
    found = []
    for x in results(range(given.first, given.first + given.cases), given.seed, given.seconds, given.kind):
        found.append(x)
        if given.show:
            print(f"{x.number} {' '.join(x.subject.command)} {x.outcome} {x.seconds:.2f} s\n{x.text}")
    print(table(found))
    bad = [x for x in found if x.outcome not in ("done", "refused")]
    for (place, outcome), n in Counter((x.place, x.outcome) for x in bad).most_common():
        x = next(x for x in bad if (x.place, x.outcome) == (place, outcome))
        last = x.text.strip().rpartition("\n")[2]
        print(f"{n} x {outcome}: {place}: {last[:160]} (case {x.number}: {' '.join(x.subject.command)})")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{len(found):,} cases of seed {given.seed}; {len(bad):,} bad; peak memory {memory:,.0f} MiB")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
