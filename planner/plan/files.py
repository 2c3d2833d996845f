"""Read a plan from its file."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.files import read_json
from planner.plan.kinds import other_kind, without_schema_key

if TYPE_CHECKING:
    from planner.plan.plan import Plan


def read_plan(path: Path) -> "Plan":
    """Read a plan file.

    Raises
    ------
    InputError
        Names the file, the JSON path, the value and what was expected.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        remedy = f"make a plan of an instance: `planner solve {path} -o plan.json`"
        raise InputError(f"{path}: is YAML, where a plan (JSON) is due\n{remedy}")
    return plan_of(read_json(path), str(path))


def plan_of(data: Any, where: str) -> "Plan":
    """Return the plan that JSON data are; `where` names them in errors.

    Raises
    ------
    InputError
        Names the JSON path, the value and what was expected.
    """
    from planner.instance.base import out_of_range
    from planner.instance.read import validated
    from planner.plan.plan import Plan

    if not isinstance(data, dict):
        raise InputError(f"{where}: must be a plan (is {type(data).__name__}); make one with `planner solve -o`")
    problem = other_kind(data, where, "plan")
    if problem is not None:
        raise InputError(problem)

    def problems(plan: Plan) -> Iterator[str]:
        return (f"instance.{x}" for x in out_of_range(plan.instance))

    return validated(Plan, without_schema_key(data), where, problems=problems)
