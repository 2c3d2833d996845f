"""A sweep from its points to its rows: which points remain, where they run, where their plans go."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.calibration.measured import Given, read_constants
from planner.files import require_folder, write_atomically
from planner.instance.instance import Instance
from planner.planning.load import load_instance
from planner.planning.solve import options_of
from planner.sweeps.axes import Point, in_shard
from planner.sweeps.executors import at_home, on_executor
from planner.sweeps.paths import canonical, check_path
from planner.sweeps.rows import Row
from planner.sweeps.tasks import Task, solve_point, tasks_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """How every point is solved, which points are, and where their plans go."""

    shard: tuple[int, int] | None = None
    time_limit: float | None = None
    gap: float | None = None
    seed: int = 0
    plans: Path | None = None
    constants: Given | None = None


def tasks_for(
    instance: Instance | Mapping[str, Any] | str | Path, points: Sequence[Point], options: SweepOptions
) -> list[Task]:
    """Check every path and every point, and return the tasks of the shard.

    Raises
    ------
    InputError
        A path leads nowhere, or a point is no usable instance.
    """
    constants = None if options.constants is None else read_constants(options.constants)
    base = load_instance(instance, constants=constants)
    points = [{canonical(path): value for path, value in point.items()} for point in points]
    for path in sorted({p for point in points for p in point}):
        check_path(base, path)
    if options.plans is not None:
        require_folder(options.plans)
    solver_options = options_of(time_limit=options.time_limit, gap=options.gap, seed=options.seed, threads=1)
    tasks = tasks_of(base, points, solver_options, with_plan=options.plans is not None, constants=constants)
    return tasks if options.shard is None else [tasks[i] for i in in_shard(len(tasks), options.shard)]


def rows_of(
    tasks: Sequence[Task],
    options: SweepOptions,
    *,
    finished: Collection[str] = (),
    executor: Executor | None = None,
    workers: int | None = None,
) -> Iterator[Row]:
    """Solve the tasks that are not finished; yield their rows as they come, each after its plan is on disk."""
    left = [t for t in tasks if t.key not in finished]
    first = sorted(left, key=_size, reverse=True)
    answers = at_home(first, solve_point, workers) if executor is None else on_executor(left, solve_point, executor)
    for task, answer in answers:
        if answer.plan is not None and options.plans is not None:
            write_atomically(plan_file(options.plans, task), answer.plan)
        yield answer.row.model_copy(update={"base": task.base})


def _size(task: Task) -> tuple[float, ...]:
    """Return the sort key of a point: what is proven of the layouts of more racks is valid for fewer."""
    return tuple(v for v in task.point.values() if isinstance(v, (int, float)))


def plan_file(folder: Path, task: Task) -> Path:
    """Return the file of a point's plan, named by its place in the sweep and its key."""
    return folder / f"{task.index:05d}-{task.key[:12]}.json"
