"""Read a plan from its file, and recognise which kind of file JSON data are (instance, plan, job, placement)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from planner.errors import InputError
from planner.files import read_json

if TYPE_CHECKING:
    from planner.plan.plan import Plan


Kind = Literal["instance", "question", "plan", "job", "placement", "prediction", "schema", "model"]
MARKS: tuple[tuple[Kind, tuple[str, ...]], ...] = (  # a kind, and keys that together no other kind has
    ("plan", ("planner_version", "instance")),
    ("instance", ("workload", "hardware")),
    ("question", ("network", "hardware")),
    ("prediction", ("rests_on", "breakdown_seconds")),
    ("placement", ("nodes", "groups", "certificate")),
    ("schema", ("$defs", "properties")),
    ("model", ("model_type",)),
    ("job", ("mesh",)),
    ("job", ("name", "groups")),
)
NAMES: dict[Kind, str] = {
    "plan": "a plan",
    "instance": "an instance",
    "question": "a question about a fabric alone",
    "prediction": "a prediction of `planner evaluate --json`",
    "placement": "a placement of `planner place`",
    "schema": "a JSON Schema",
    "model": "a Hugging Face config.json",
    "job": "a job",
}
REMEDIES: dict[tuple[Kind, Kind], str] = {  # what to do with a file of a kind, by the kind that is due
    ("instance", "plan"): "make a plan of it: `planner solve {file} -o plan.json`",
    ("question", "plan"): "make a plan of it: `planner fabric design {file} -o plan.json`",
    ("instance", "job"): "plan it first: `planner solve {file} -o plan.json`; the plan is a job",
    ("job", "instance"): "place it: `planner place --topology FILE --job {file}`",
    ("job", "plan"): "place it: `planner place --topology FILE --job {file}`",
    ("model", "instance"): 'name it in an instance: "workload": {{"model": "{file}"}}; `planner init` writes one',
    ("prediction", "plan"): "`planner evaluate -o FILE` writes the plan of a layout given in full",
    ("placement", "job"): "give the job that it was placed for",
}


def kind_of(data: Any) -> Kind | None:
    """Return which kind of file (instance, plan, job) JSON data are, by their keys; None where it cannot be told."""
    if not isinstance(data, Mapping):
        return None
    return next((kind for kind, keys in MARKS if all(data.get(key) is not None for key in keys)), None)


def of_kind(data: Mapping[str, Any], where: str, due: Kind) -> dict[str, Any]:
    """Return the data of a plan file, or another kind that is due, without `$schema`. InputError: of another kind."""
    kind = kind_of(data)
    # A question may be the rest of an instance.
    if kind is not None and kind != due and (kind, due) != ("question", "instance"):
        remedy = REMEDIES.get((kind, due), f"give {NAMES[due]}").format(file=where)
        raise InputError(f"{where}: is {NAMES[kind]}, where {NAMES[due]} is due\n{remedy}")
    return {key: value for key, value in data.items() if key != "$schema"}


def read_plan(path: Path) -> "Plan":
    """Read a plan file. InputError names the file, the JSON path, the value and what was expected."""
    if path.suffix.lower() in (".yaml", ".yml"):
        alone = f"of network and hardware alone: `planner fabric design {path} -o plan.json`"
        remedy = f"make a plan of an instance: `planner solve {path} -o plan.json`; {alone}"
        raise InputError(f"{path}: is YAML, where a plan (JSON) is due\n{remedy}")
    if path.suffix.lower() in (".jsonl", ".ndjson", ".csv", ".parquet"):
        remedy = "`planner sweep --plans` and `frontier --plans` write these"
        raise InputError(f"{path}: has rows, where a plan (JSON) is due; {remedy}")
    return plan_of(read_json(path), str(path))


def plan_of(data: Any, where: str) -> "Plan":
    """Return the plan that JSON data of `where` are. InputError names the JSON path, its value and what was due."""
    from planner.instance.plausible_ranges import out_of_range
    from planner.instance.validation import validated
    from planner.plan.plan import Plan

    if not isinstance(data, dict):
        raise InputError(f"{where}: must be a plan (is {type(data).__name__}); make one with `planner solve -o`")
    own = of_kind(data, where, "plan")
    return validated(Plan, own, where, problems=lambda plan: (f"instance.{one}" for one in out_of_range(plan.instance)))
