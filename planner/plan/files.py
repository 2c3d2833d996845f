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
    from pydantic import ValidationError

    from planner.instance.read import complaints, read_json
    from planner.plan.plan import Plan

    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: must be a plan (is {type(data).__name__}); make one with `planner solve -o`")
    try:
        return Plan.model_validate(data)
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, str(path), Plan))) from None
