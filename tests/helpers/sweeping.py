"""A question small enough to sweep in a test, and workers that misbehave."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from planner.sweeps.sweep_run import PointAnswer, Task, solve_point

ROOT = Path(__file__).parents[2]
PINS = {
    "layout.tensor_parallel": 8, "layout.pipeline_parallel": 1, "layout.zero_stage": 1,
    "layout.microbatch_sequences": 1, "layout.recompute": "full",
}  # fmt: skip


def small() -> dict[str, Any]:
    """Return a layout question with all but a few choices pinned: a few hundredths of a second."""
    data: dict[str, Any] = json.loads((ROOT / "instances" / "one-rack.json").read_text())
    return {**data, "pins": PINS}


def written(folder: Path) -> Path:
    path = folder / "small.json"
    path.write_text(json.dumps(small()))
    return path


def kills_at_two(task: Task) -> PointAnswer:
    """Solve a point, but die at two racks, each time."""
    if task.point["hardware.racks"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return solve_point(task)


def kills_once(task: Task) -> PointAnswer:
    """Solve a point, but die the first time at two racks: the file that the environment names remembers."""
    marker = Path(os.environ["SWEEP_TEST_MARKER"])
    if task.point["hardware.racks"] == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return solve_point(task)
