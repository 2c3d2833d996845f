"""Where points are solved: processes of this machine, or any executor; a point whose worker dies is tried again."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context

from planner.errors import PlannerError
from planner.sweeps.rows import failed_row
from planner.sweeps.tasks import Answer, Task, begin_worker

TRIES = 2  # workers that one point may take with it: the first death may be chance, the second is the point's doing
AT_ONCE = 256  # points submitted to an executor ahead of their answers: enough to keep a cluster busy
START_SECONDS = 30.0  # a process that imports the planner on a loaded machine has started by then
GRACE_SECONDS = 2.0  # from the request to end to the kill: solvers check for it every second or so
NO_START = (
    "a worker process cannot start: a new process must be able to import the main script, so guard what it runs by "
    "`if __name__ == '__main__':`, or pass an executor"
)
Call = Callable[[Task], Answer]


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Lane:
    """One worker process and its points: a death has one culprit, and neighbours follow each other."""

    def __init__(self, points: Sequence[Task]) -> None:
        self.waiting = deque(points)
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int] | None = None
        self._point: Future[Answer] | None = None

    def submit(self, call: Call, task: Task) -> Future[Answer]:
        """Submit one point to the process; start a process where there is none."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=begin_worker)
            self._pid = self._pool.submit(os.getpid)
        self._point = self._pool.submit(call, task)
        return self._point

    @property
    def started(self) -> bool:
        """Whether the process came so far as to report its number."""
        pid = self._pid
        return pid is not None and pid.done() and not pid.cancelled() and pid.exception() is None

    def end(self) -> None:
        """End the process, in the middle of a point if need be."""
        if self._pool is None:
            return
        if self._point is not None and not self._point.done():
            self._stop(self._point)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self._pid = self._point = None

    def _stop(self, point: Future[Answer]) -> None:
        """Ask the process to leave its point, and make it where a solver does not listen."""
        # A process that is only just starting is waited for: until it reports its number it cannot be stopped.
        with suppress(BrokenExecutor, CancelledError, TimeoutError, ProcessLookupError):
            if self._pid is not None:
                pid = self._pid.result(timeout=START_SECONDS)
                os.kill(pid, signal.SIGTERM)
                if not wait([point], timeout=GRACE_SECONDS).done:
                    os.kill(pid, signal.SIGKILL)


def at_home(tasks: Sequence[Task], call: Call, workers: int | None = None) -> Iterator[tuple[Task, Answer]]:
    """Solve points on processes of this machine, one point and one thread each; yield answers as they come.

    Every process takes a stretch of neighbours and, when it has none left, the far end of the longest stretch.
    """
    count = max(1, min(workers or cores(), len(tasks)))
    lanes = [Lane(tasks[len(tasks) * i // count : len(tasks) * (i + 1) // count]) for i in range(count)]
    running: dict[Future[Answer], tuple[Lane, Task]] = {}
    deaths: dict[str, int] = {}
    try:
        for lane in lanes:
            _advance(lane, lanes, call, running)
        while running:
            done, _ = wait(running, return_when="FIRST_COMPLETED")
            for future in sorted(done, key=lambda f: running[f][1].index):
                lane, task = running.pop(future)
                if _died(future):
                    if not lane.started:
                        raise PlannerError(NO_START)
                    lane.end()
                    deaths[task.key] = deaths.get(task.key, 0) + 1
                    if deaths[task.key] < TRIES:
                        _elsewhere(lane, lanes).waiting.append(task)
                    else:
                        yield task, _dead(task)
                else:
                    yield task, _answer(task, future)
                for idle in lanes:
                    if idle not in [busy for busy, _ in running.values()]:
                        _advance(idle, lanes, call, running)
    finally:
        for lane in lanes:
            lane.end()


def _advance(lane: Lane, lanes: Sequence[Lane], call: Call, running: dict[Future[Answer], tuple[Lane, Task]]) -> None:
    """Start the next point of a lane: its own, or the last one of the longest queue."""
    longest = max(lanes, key=lambda other: len(other.waiting))
    if lane.waiting:
        task = lane.waiting.popleft()
    elif longest.waiting:
        task = longest.waiting.pop()
    else:
        return
    running[lane.submit(call, task)] = (lane, task)


def _elsewhere(lane: Lane, lanes: Sequence[Lane]) -> Lane:
    """Return the lane after one."""
    return lanes[(lanes.index(lane) + 1) % len(lanes)]


def on_executor(tasks: Sequence[Task], call: Call, executor: Executor) -> Iterator[tuple[Task, Answer]]:
    """Solve points on an executor of the caller's; yield answers as they come. The executor is left open."""
    waiting = deque(tasks)
    running: dict[Future[Answer], Task] = {}
    deaths: dict[str, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                task = waiting.popleft()
                try:
                    running[executor.submit(call, task)] = task
                except RuntimeError as error:  # shut down, or a pool whose worker died
                    yield task, _failed(task, f"the executor takes no more points ({error}); resume with a new one")
            done, _ = wait(running, return_when="FIRST_COMPLETED")
            for future in sorted(done, key=lambda f: running[f].index):
                task = running.pop(future)
                if _died(future):
                    deaths[task.key] = deaths.get(task.key, 0) + 1
                    if deaths[task.key] < TRIES:
                        waiting.append(task)
                        continue
                yield task, _answer(task, future)
    finally:
        for future in running:
            future.cancel()


def _died(future: Future[Answer]) -> bool:
    """Return whether the worker ended under a point: broken, or asked to end."""
    return not future.cancelled() and isinstance(future.exception(), (BrokenExecutor, SystemExit))


def _answer(task: Task, future: Future[Answer]) -> Answer:
    """Return the result of a point's future; an exception is the reason of a failed row."""
    if future.cancelled():
        return _failed(task, "the executor cancelled the point")
    error = future.exception()
    return future.result() if error is None else _failed(task, f"{type(error).__name__}: {error}")


def _dead(task: Task) -> Answer:
    problem = f"the worker process died at this point, {TRIES} times"
    return _failed(task, f"{problem}; look for memory or a crash in a solver")


def _failed(task: Task, reason: str) -> Answer:
    return Answer(failed_row(task.index, task.key, task.point, reason, 0.0))
