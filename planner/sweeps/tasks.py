"""What a worker does: one point at a time, and an answer whatever happens."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import connection, parent_process
from typing import Any

from planner.calibration.measured import MeasuredConstants, names_an_entry, put_constants
from planner.errors import InputError
from planner.instance.instance import Instance, instance_sha256
from planner.models.requests import Options
from planner.planning.load import load_instance
from planner.planning.plausible import warn
from planner.sweeps.axes import Point
from planner.sweeps.paths import put
from planner.sweeps.rows import Row, failed_row, row_of_plan
from planner.version import __version__

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Two solves in threads of one process would fight over the solvers' signal handlers and thread pools.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One point to solve: its instance in full, since a worker may be on another machine."""

    index: int
    key: str
    point: Point
    data: dict[str, Any]
    options: Options
    with_plan: bool  # whether the plan itself is wanted
    base: dict[str, str] = field(default_factory=dict)  # hashes of the parts of the sweep's instance


@dataclass(frozen=True, slots=True)
class Answer:
    """The row of a point and, where it was wanted, its plan as JSON."""

    row: Row
    plan: str | None = None


def tasks_of(
    base: Instance,
    points: Sequence[Point],
    options: Options,
    *,
    with_plan: bool,
    constants: MeasuredConstants | None = None,
) -> list[Task]:
    """Make a task of every point, points that ask the same question once; accelerators get their own constants.

    Raises
    ------
    InputError
        A point is no usable instance; the message names the point and what is wrong with it.
    """
    tasks: dict[str, Task] = {}
    asked: list[Instance] = []
    plain = base.model_dump(mode="json", exclude_none=True)
    parts = parts_of(base)
    for index, point in enumerate(points):
        data = _copied(plain)
        for path, value in point.items():
            put(data, base, path, value)
        try:
            instance = load_instance(data)
            if constants is not None and any(names_an_entry(*x) for x in point.items()):
                data = instance.model_dump(mode="json", exclude_none=True)
                put_constants(data, constants)
                instance = load_instance(data)
        except InputError as error:
            raise InputError(f"point {index} ({point_text(point)}): {error}") from None
        asked.append(instance)
        key = key_of(instance, options)
        task = Task(index=index, key=key, point=point, data=data, options=options, with_plan=with_plan, base=parts)
        tasks.setdefault(key, task)
    warn(*asked)
    return list(tasks.values())


def parts_of(base: Instance) -> dict[str, str]:
    """Return a hash of each part of a sweep's instance, so that a resumed sweep can name the part that changed."""
    parts = base.model_dump(mode="json").items()
    return {k: sha256(json.dumps(v, sort_keys=True).encode()).hexdigest()[:12] for k, v in parts}


def _copied(data: Any) -> Any:
    """Copy JSON data, the objects and lists that a path may lead through."""
    if isinstance(data, dict):
        return {k: _copied(v) for k, v in data.items()}
    return [_copied(x) for x in data] if isinstance(data, list) else data


def key_of(instance: Instance, options: Options) -> str:
    """Return a hash of a solve's instance, the planner's version and the options that may change the answer."""
    text = f"{instance_sha256(instance)} {__version__} {options.time_limit} {options.gap} {options.seed}"
    return sha256(text.encode()).hexdigest()


def point_text(point: Mapping[str, Any]) -> str:
    """Write a point for a message."""
    values = {k: repr(v) if isinstance(v, str) else f"{v:g}" if isinstance(v, float) else v for k, v in point.items()}
    return ", ".join(f"{k}={v}" for k, v in values.items())


_kept: dict[str, Any] = {}  # what this process keeps from point to point: it saves time and changes no answer


def solve_point(task: Task) -> Answer:
    """Solve one point; whatever goes wrong is the reason of its row."""
    from planner.models.joint.cache import JointCache
    from planner.planning.solve import solve_instance

    started = time.perf_counter()
    try:
        with _one_at_a_time:
            cache = _kept.setdefault("joint", JointCache())
            plan = solve_instance(load_instance(task.data), task.options, _silent, cache=cache)
    except Exception as error:  # a defect at one point must not end a sweep of thousands
        reason = f"{type(error).__name__}: {error}"
        return Answer(failed_row(task.index, task.key, task.point, reason, time.perf_counter() - started))
    row = row_of_plan(task.index, task.key, task.point, plan, time.perf_counter() - started)
    return Answer(row, plan.model_dump_json(indent=1) + "\n" if task.with_plan else None)


def _silent(_: str) -> None:
    """Report nothing."""


def begin_worker() -> None:
    """Prepare a worker process: one thread, Ctrl-C left to the parent, and ended as soon as the parent is."""
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave(*_: object) -> None:
    """End the process in the middle of its point, with all cleaning up."""
    sys.exit(1)


def _leave_with_parent() -> None:
    """End the process when its parent has ended."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
