"""Run a sweep from its points to its rows: which remain, and the workers that solve them here or on a cluster."""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, islice
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from planner.calibration.constants import Given, put_constants, read_constants
from planner.errors import InputError, PlannerError, needed, shown
from planner.files import require_folder, write_atomically
from planner.instance.instance import Instance, instance_sha256
from planner.instance.plausible_ranges import warn
from planner.models import Options
from planner.models.joint.joint_cache import JointCache
from planner.planning.load import data_of, load_instance
from planner.planning.solve import solve_instance
from planner.sweeps.axes import FilePoint, Point, canonical, check_path, in_shard, put
from planner.sweeps.row_store import FAILED, Row, row_of_plan
from planner.version import __version__

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Two solves in threads of one process would fight over the solvers' signal handlers and thread pools.
_one_at_a_time = threading.Lock()
PointAnswer = tuple[Row, str | None]  # of a sweep's point, and its plan as JSON where it was wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of a sweep: a point to solve, its instance in full, since a worker may be on another machine."""

    index: int
    key: str
    point: Point
    data: dict[str, Any]
    options: Options
    with_plan: bool  # whether the plan itself is wanted
    base: dict[str, str] = field(default_factory=dict)  # hashes of the parts of the sweep's instance


def point_text(point: Mapping[str, Any]) -> str:
    """Write a sweep's point for a message."""
    texts = {key: f"{value:g}" if isinstance(value, float) else shown(value) for key, value in point.items()}
    return ", ".join(f"{key}={value}" for key, value in texts.items())


_cache = JointCache()  # what this process keeps from point to point: it saves time and changes no answer


def solve_point(task: Task) -> PointAnswer:
    """Solve one point of a sweep; whatever goes wrong is the reason of its row."""
    started = time.perf_counter()
    try:
        with _one_at_a_time:
            how: dict[str, Any] = {"cache": _cache, "others": task.with_plan}  # a row says nothing of other plans
            plan = solve_instance(load_instance(task.data), task.options, lambda _: None, **how)
    except Exception as error:  # a defect at one point must not end a sweep of thousands
        return _failed(task, f"{type(error).__name__}: {error}", time.perf_counter() - started)
    row = row_of_plan(task.index, task.key, task.point, plan, time.perf_counter() - started)
    return row, plan.model_dump_json(indent=1) + "\n" if task.with_plan else None


def begin_worker() -> None:
    """Prepare a sweep's worker process: one thread, Ctrl-C left to the parent, ended as soon as the parent is."""

    def leave_with_parent() -> None:
        if (parent := parent_process()) is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # in the middle of a point, with all cleaning up
    threading.Thread(target=leave_with_parent, daemon=True).start()


TRIES = 2  # workers that one point may take with it: the first death may be chance, the second is the point's doing
READ_FIRST = 1_000  # points of a sweep that are read before any is solved; more are read in turns of as many
AT_ONCE = 256  # points submitted to an executor ahead of their answers: enough to keep a cluster busy
START_SECONDS = 30.0  # a process that imports the planner on a loaded machine has started by then
GRACE_SECONDS = 2.0  # from the request to end to the kill: solvers check for it every second or so
NO_START = (
    "a worker process cannot start: a new process must be able to import the main script, so guard what it runs by "
    "`if __name__ == '__main__':`, or pass an executor"
)
Call = Callable[[Task], PointAnswer]


def cores() -> int:
    """Return the number of cores that a sweep's processes may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Lane:
    """A sweep's worker process and its points: a crash has one culprit, and neighbours follow each other."""

    def __init__(self, points: Sequence[Task]) -> None:
        self.waiting = deque(points)
        self._pool: ProcessPoolExecutor | None = None
        self.pid: Future[int] | None = None  # what the process reports first: its number
        self._point: Future[PointAnswer] | None = None

    def submit(self, call: Call, task: Task) -> Future[PointAnswer]:
        """Submit a sweep's point to the worker process; start a process where there is none."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=begin_worker)
            self.pid = self._pool.submit(os.getpid)
        self._point = self._pool.submit(call, task)
        return self._point

    def end(self) -> None:
        """End the sweep's worker process, in the middle of a point if need be."""
        if self._pool is None:
            return
        if self.pid is not None and self._point is not None and not self._point.done():
            with suppress(BrokenExecutor, CancelledError, TimeoutError, ProcessLookupError):
                # A process that is only just starting is waited for: until it reports its number it cannot be stopped.
                pid = self.pid.result(timeout=START_SECONDS)
                os.kill(pid, signal.SIGTERM)
                if not wait([self._point], timeout=GRACE_SECONDS).done:
                    os.kill(pid, signal.SIGKILL)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self.pid = self._point = None


def at_home(tasks: Sequence[Task], call: Call, workers: int | None = None) -> Iterator[tuple[Task, PointAnswer]]:
    """Solve a sweep's points in local processes, a run of neighbours each, then the end of the longest run left."""
    count = max(1, min(workers or cores(), len(tasks)))
    lanes = [Lane(tasks[len(tasks) * i // count : len(tasks) * (i + 1) // count]) for i in range(count)]
    running: dict[Future[PointAnswer], tuple[Lane, Task]] = {}
    deaths = Counter[str]()

    def advance() -> None:
        for lane in lanes:
            longest = max(lanes, key=lambda other: len(other.waiting))
            if lane not in [busy for busy, _ in running.values()] and (lane.waiting or longest.waiting):
                task = lane.waiting.popleft() if lane.waiting else longest.waiting.pop()
                running[lane.submit(call, task)] = (lane, task)

    try:
        advance()
        while running:
            done, _ = wait(running, return_when="FIRST_COMPLETED")
            for future in sorted(done, key=lambda future: running[future][1].index):
                lane, task = running.pop(future)
                answer, died = _answer(task, future)
                if died:
                    if lane.pid is None or lane.pid.exception() is not None:  # it never reported its number
                        raise PlannerError(NO_START)
                    lane.end()
                    deaths[task.key] += 1
                    if deaths[task.key] < TRIES:
                        lanes[(lanes.index(lane) + 1) % len(lanes)].waiting.append(task)
                    else:
                        problem = f"the worker process died at this point, {TRIES} times"
                        yield task, _failed(task, f"{problem}; look for memory or a crash in a solver")
                else:
                    yield task, answer
                advance()
    finally:
        for lane in lanes:
            lane.end()


def on_executor(tasks: Iterable[Task], call: Call, executor: Executor) -> Iterator[tuple[Task, PointAnswer]]:
    """Solve a sweep's points on the caller's executor, which is left open; yield answers as they come."""
    waiting, retried = iter(tasks), deque[Task]()
    running: dict[Future[PointAnswer], Task] = {}
    deaths = Counter[str]()
    try:
        while True:
            while len(running) < AT_ONCE and (next_one := retried.popleft() if retried else next(waiting, None)):
                try:
                    running[executor.submit(call, next_one)] = next_one
                except RuntimeError as error:  # shut down, or a pool whose worker died
                    problem = f"the executor takes no more points ({error}); resume with a new one"
                    yield next_one, _failed(next_one, problem)
            if not running:
                return
            done, _ = wait(running, return_when="FIRST_COMPLETED")
            for future in sorted(done, key=lambda future: running[future].index):
                task = running.pop(future)
                answer, died = _answer(task, future)
                deaths[task.key] += died
                if died and deaths[task.key] < TRIES:
                    retried.append(task)
                else:
                    yield task, answer
    finally:
        for future in running:
            future.cancel()


def _answer(task: Task, future: Future[PointAnswer]) -> tuple[PointAnswer, bool]:
    """Return the answer of a sweep's point, and whether its worker died at it."""
    if future.cancelled():
        return _failed(task, "the executor cancelled the point"), False
    error = future.exception()
    answer = future.result() if error is None else _failed(task, f"{type(error).__name__}: {error}")
    return answer, isinstance(error, (BrokenExecutor, SystemExit))


def _failed(task: Task, reason: str, seconds: float = 0.0) -> PointAnswer:
    return Row(index=task.index, key=task.key, point=task.point, status=FAILED, reason=reason, seconds=seconds), None


@contextmanager
def dask_executor(address: str, workers: int | None = None) -> Iterator[Executor]:
    """Connect a sweep to a Dask scheduler; yield its executor, which retries elsewhere. InputError: none answers."""
    with needed("--dask", "distributed", "dask"):
        import dask
        from distributed import Client, LocalCluster
    with ExitStack() as stack:
        if address == "local":
            # One death more than this and a point is given up: it has taken TRIES workers with it.
            stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": TRIES - 1}))
            one_each: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
            client = Client(stack.enter_context(LocalCluster(n_workers=workers or cores(), **one_each)))
        else:
            try:
                client = Client(address, timeout="10s")
            except (OSError, ValueError) as error:
                problem = f"no scheduler answers there ({error})"
                raise InputError(f"--dask {address}: {problem}; give HOST:PORT of a running one, or local") from None
        yield stack.enter_context(client).get_executor(pure=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options of a sweep: how every point is solved, which points are, and where their plans go."""

    shard: tuple[int, int] | None = None
    time_limit: float | None = None
    gap: float | None = None
    seed: int = 0
    plans: Path | None = None
    constants: Given | None = None
    pairs: Sequence[FilePoint] = ()  # whose lines errors name; they vary fastest


def tasks_for(
    instance: Instance | Mapping[str, Any] | str | Path, points: Sequence[Point], options: SweepOptions
) -> Iterator[Task]:
    """Check a sweep's paths and first points, and return the shard's tasks. InputError: one of these cannot be used."""
    constants = None if options.constants is None else read_constants(options.constants)
    base = load_instance(instance, searched=False, constants=constants)
    names = {path: canonical(path) for path in {path for point in points for path in point}}
    for path in sorted(names.values()):
        try:
            check_path(base, path)
        except InputError as error:
            at = next((f"{own.paths_at}: " for own in options.pairs if path in own), "")
            raise InputError(f"{at}{error}") from None
    if options.plans is not None:
        require_folder(options.plans)
    plain, keys = data_of(base, "instance"), set[str]()
    # A hash of each part of the instance, so that a resumed sweep can name the part that changed.
    hashes = {name: sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:12] for name, part in plain.items()}
    how = Options(time_limit=options.time_limit, gap=options.gap, seed=options.seed, threads=1)

    def made() -> Iterator[tuple[Task, Instance | None]]:
        """Make a task of every different point of a sweep; constants are put in where a point names their part."""
        for number, index in enumerate(in_shard(len(points), options.shard or (1, 1))):
            point = {names[path]: value for path, value in points[index].items()}
            data, instance = deepcopy(plain), None
            for path, value in point.items():
                put(data, base, path, value)
            try:
                instance = load_instance(data)
                named = {path for path, value in point.items() if isinstance(value, str)}
                if constants is not None and any(path.endswith((".accelerator", ".software")) for path in named):
                    data = instance.model_dump(mode="json")
                    put_constants(data, constants)
                    instance = load_instance(data)
                asked = instance_sha256(instance)
            except InputError as error:
                if number < READ_FIRST:  # one behind them fails where it is solved
                    at = next((f"{own.at}: " for own in options.pairs if own.items() <= point.items()), "")
                    raise InputError(f"{at}point {index} ({point_text(point)}): {error}") from None
                asked = json.dumps(data, sort_keys=True)
            # The options that may change the answer are a part of the key.
            key = sha256(f"{asked} {__version__} {how.time_limit} {how.gap} {how.seed}".encode()).hexdigest()
            if key not in keys:
                keys.add(key)
                more: dict[str, Any] = {"options": how, "with_plan": options.plans is not None, "base": hashes}
                yield Task(index=index, key=key, point=point, data=data, **more), instance

    tasks = made()
    first = list(islice(tasks, READ_FIRST))
    warn(*(asked for _, asked in first if asked is not None))
    return (task for task, _ in chain(first, tasks))


def rows_of(
    tasks: Iterable[Task],
    options: SweepOptions,
    *,
    finished: Collection[str] = (),
    executor: Executor | None = None,
    workers: int | None = None,
) -> Iterator[Row]:
    """Solve a sweep's tasks that are not finished; yield their rows as they come, each after its plan is on disk."""
    left = (task for task in tasks if task.key not in finished)

    def numbers(task: Task) -> list[float]:
        """Return a sweep point's numbers, to order points: bounds proven on layouts of more racks hold for fewer."""
        return [x for x in task.point.values() if isinstance(x, (int, float))]

    turns = iter(lambda: sorted(islice(left, READ_FIRST), key=numbers, reverse=True), [])
    at_once = (answer for turn in turns for answer in at_home(turn, solve_point, workers))
    for task, (row, plan) in at_once if executor is None else on_executor(left, solve_point, executor):
        if plan is not None and options.plans is not None:
            write_atomically(options.plans / f"{task.index:05d}-{task.key[:12]}.json", plan)
        yield row.replaced(base=task.base)
