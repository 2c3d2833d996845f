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


def kills_workers(task: Task) -> PointAnswer:
    """Solve a point, but die at two racks, and at three once: the file that the environment names remembers."""
    marker, racks = Path(os.environ["SWEEP_TEST_MARKER"]), task.point["hardware.racks"]
    if racks == 2 or (racks == 3 and not marker.exists()):
        if racks == 3:
            marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return solve_point(task)
