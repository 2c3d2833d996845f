"""Find and read the file of an instance: JSON or YAML, a plan's own instance, or one that ships with the planner."""

from importlib import resources
from pathlib import Path
from typing import Any

from planner.errors import InputError, hint
from planner.files import exists
from planner.formats.data import YAML, read_data
from planner.imports.huggingface import read_model
from planner.plan.kinds import kind_of, other_kind, without_schema_key

SHIPPED_IN_WHEEL = "shipped"  # the folder of the package that the wheel has instances/ in


def shipped_folder() -> Path:
    """Return the folder of the instances that ship: of the package, or of the checkout that it runs from."""
    package = Path(str(resources.files("planner")))
    inside = package / SHIPPED_IN_WHEEL
    return inside if inside.is_dir() else package.parent / "instances"


def shipped_names() -> list[str]:
    """Return the names of the instances that ship."""
    return sorted(p.stem for p in shipped_folder().glob("*.json"))


def instance_path(given: Path) -> Path:
    """Return a file that exists under its path, else the instance that ships under that name.

    Raises
    ------
    InputError
        A bare name is neither a file nor the name of an instance that ships.
    """
    if exists(given) or len(given.parts) != 1 or given.suffix in YAML:
        return given
    shipped = shipped_folder() / f"{given.stem if given.suffix == '.json' else given.name}.json"
    if exists(shipped):
        return shipped
    if given.suffix:
        return given  # the complaint about a missing file names the nearest one
    raise InputError(f"{given}: no such file, and no instance that ships; {hint(str(given), shipped_names())}")


def read_instance_file(given: Path) -> dict[str, Any]:
    """Return the data of an instance's file, a `config.json` for its model read; of a plan's file the plan's instance.

    Raises
    ------
    InputError
        The file does not exist, cannot be read, or is of another kind.
    """
    path = instance_path(given)
    data = instance_data(read_data(path), str(given))
    read_config(data, str(given), path.parent)
    return data


def holds_plan(given: Path) -> bool:
    """Return whether a file, which is no pipe, is a plan's and not an instance's own."""
    path = instance_path(given)
    return path.is_file() and kind_of(read_data(path)) == "plan"


def instance_data(data: Any, where: str) -> dict[str, Any]:
    """Return what data hold of an instance: themselves, or a plan's instance.

    Raises
    ------
    InputError
        They are of another kind, or no object.
    """
    if not isinstance(data, dict):
        raise InputError(
            f"{where}: must be a JSON object or a YAML mapping (is {type(data).__name__}); "
            "see `planner schema instance`"
        )
    if kind_of(data) == "plan":
        return instance_data(data["instance"], f"{where}: instance")
    problem = other_kind(data, where, "instance")
    if problem is not None:
        raise InputError(problem)
    return dict(without_schema_key(data))


def read_config(data: dict[str, Any], where: str, folder: Path) -> None:
    """Put the model of a Hugging Face configuration in place of the name of its file, relative to the instance's.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    workload = data.get("workload")
    name = workload.get("model") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(name, str) or Path(name).suffix != ".json":
        return
    try:
        model = read_model(folder / name)
    except InputError as error:
        raise InputError(f"{where}: workload.model: {error}") from None
    workload["model"] = model.model_dump(mode="json", exclude_none=True)
