"""Read a plan from its file."""

from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import InputError

if TYPE_CHECKING:
    from planner.plan.plan import Plan


def read_plan(path: Path) -> "Plan":
    """Read a plan file.

    Raises
    ------
    InputError
        Names the file, the JSON path, the value and what was expected.
    """
    from planner.instance.read import read_json, validated
    from planner.plan.plan import Plan

    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: must be a plan (is {type(data).__name__}); make one with `planner solve -o`")
    return validated(Plan, data, str(path))
