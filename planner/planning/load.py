"""Load an instance, or a question about a fabric alone, from any form; each error names path, value and remedy."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.calibration.constants import Given, put_constants, read_constants
from planner.errors import InputError, shown
from planner.imports.fabric_question import LOSSES
from planner.imports.instance_file import instance_data, read_instance_file
from planner.instance.consistency import NO_CHOICE, network_problems, reference_problems
from planner.instance.instance import ANY_ACCELERATOR, FabricInstance, Instance
from planner.instance.pins import check_pins, long_names
from planner.instance.plausible_ranges import out_of_range
from planner.instance.scaling_law import Choose
from planner.instance.validation import Faults, validated
from planner.instance.workload import CHOSEN
from planner.models.model_choice import any_model, is_open
from planner.plan.plan import Plan
from planner.plan.plan_files import kind_of


def load_instance(
    given: Instance | Plan | Mapping[str, Any] | str | Path,
    *,
    pins: Mapping[str, Any] | None = None,
    searched: bool = True,
    where: str | None = None,
    constants: Given | None = None,
) -> Instance:
    """Load and check an instance, its catalogue names resolved; `given` is a path, a dict, an Instance or a Plan.

    What only a search needs (the critical batch, the racks at hand) may be missing where nothing is searched. `where`
    is the name in errors of an instance that is no path. `constants` of the user's own cluster replace the catalogue's.
    An InputError names the file, the JSON path, the value, what was expected and the nearest valid key.
    """
    where = where or (str(given) if isinstance(given, (str, Path)) else "instance")
    data = data_of(given.instance if isinstance(given, Plan) else given, where)
    hardware = data.get("hardware")
    if isinstance(hardware, Mapping) and hardware.get("accelerator") == ANY_ACCELERATOR:
        remedy = "give the model to train, or ask for the fabric with `planner fabric design`"
        raise InputError(f"{where}: is a question about a fabric alone, with no workload; {remedy}")
    faults = Faults()
    if isinstance(data.get("pins") or {}, dict):  # pins of another type are refused below
        data["pins"] = {**long_names(data.get("pins") or {}, where), **long_names(pins or {}, where)}
    if kind_of(data) == "question":
        faults.add("workload", f"is missing; add it, or ask `planner fabric design {where}` for its fabric alone")
        faults.replaced.append("workload")
    data = _with_left_out(data, where, faults)
    if constants is not None:
        measured = read_constants(constants)
        data = validated(Instance, data, where, faults=faults).model_dump(mode="json")
        if not put_constants(data, measured):
            names = f"{measured.accelerator!r} and {measured.software!r}"
            raise InputError(f"{where}: constants of {names} are of no use: it has neither; leave out --constants")

    def problems(instance: Instance) -> Iterator[str]:
        sizes = list(out_of_range(instance))
        named = {problem.partition(": ")[0] for problem in sizes}
        relations = chain(reference_problems(instance, searched=searched), check_pins(instance))
        yield from chain(sizes, (problem for problem in relations if problem.partition(": ")[0] not in named))

    return validated(Instance, data, where, problems=problems, faults=faults)


def data_of(given: Instance | Mapping[str, Any] | str | Path, where: str) -> dict[str, Any]:
    """Return an instance's data as JSON would hold them, figures of numpy as plain numbers, without an open model."""
    if isinstance(given, Instance):
        return given.model_dump(mode="json", exclude={"workload": {"model", "tokens"}} if is_open(given) else None)
    if not isinstance(given, Mapping):
        return read_instance_file(Path(given))
    return instance_data(_as_json(given, where), where, Path())


def _as_json(given: Any, where: str) -> Any:
    def plain(value: Any) -> Any:
        if not hasattr(value, "tolist"):
            raise InputError(f"{where}: holds {value!r:.40}, a {type(value).__name__}; give what JSON can hold")
        return value.tolist()

    try:
        return json.loads(json.dumps(given, default=plain))
    except (ValueError, TypeError, RecursionError) as error:  # it holds itself, a number or a key that no file has
        raise InputError(f"{where}: cannot be written as JSON ({error}); give what JSON can hold") from None


def _with_left_out(data: dict[str, Any], where: str, faults: Faults) -> dict[str, Any]:
    """Return an instance's data with a model to start a choice from, and with its first pool's parts as hardware's."""
    data = _as_json(data, where)
    parts = (data.get(key) for key in ("workload", "hardware", "objective"))
    workload, hardware, objective = (part if isinstance(part, dict) else {} for part in parts)
    given = {key: workload[key] for key in CHOSEN if workload.get(key) is not None}
    if workload.get("choose") is not None:
        model = given.get("model")
        if not (isinstance(model, dict) and model.get("name") == f"{model.get('layers')}x{model.get('hidden')}"):
            for key, value in given.items():  # else of a plan that chose them
                is_ = shown(value.get("name", value) if isinstance(value, dict) else value)
                faults.add(f"workload.{key}", f"workload.choose chooses it (is {is_}); remove one of the two by null")
            given = {}
        try:
            start = any_model(Choose.model_validate(workload["choose"]))
            chosen = {"model": start.model.model_dump(mode="json", exclude_none=True), "tokens": start.tokens}
            workload |= chosen | given
        except ValidationError:  # the whole instance is refused with the same complaint, under its own path
            faults.replaced += ["workload.model", "workload.tokens"]
        except OverflowError:  # beyond a float
            problem = "its figures are beyond what can be computed with"
            raise InputError(f"{where}: workload.choose: {problem}; give smaller ones") from None
    elif objective.get("minimize") == "loss" and workload and len(given) < len(CHOSEN):
        faults.add("workload.choose", NO_CHOICE)
        faults.replaced += ["workload.model", "workload.tokens", "workload.choose"]
    pools = hardware.get("pools")
    first = pools[0] if isinstance(pools, list) and pools and isinstance(pools[0], dict) else {}
    for key in ("accelerator", "rack"):
        if key in first and key not in hardware:
            hardware[key] = first[key]
            faults.copied.append(f"hardware.{key}")
    return data


def question_of(given: FabricInstance | Mapping[str, Any] | str | Path, pins: Mapping[str, Any]) -> FabricInstance:
    """Load the question about a fabric alone, from a file, from its content as a dict, or as already loaded.

    An InputError names file, JSON path, value and what was expected, also for keys that a fabric alone does not use.
    """
    where, faults = "fabric design" if isinstance(given, (FabricInstance, Mapping)) else str(given), Faults()
    if isinstance(given, FabricInstance) and not pins:
        return given
    data = data_of(given, where)  # null is no limit where an absent key has its usual value
    ignored = [key for key in ("grid", "operation", "reliability", "wan", "workload") if data.get(key) is not None]
    if ignored:
        remedy = "`planner solve` decides over all; leave them out to design a fabric alone"
        raise InputError(f"{where}: has {', '.join(ignored)}, which a fabric alone does not count; {remedy}")
    network = data.get("network")
    if not network:
        raise InputError(f"{where}: network: missing; say what the fabric may be built from")
    if isinstance(network, Mapping):
        # The options' rules, 1:1, a loss to survive and rails that share leaves, where their keys are absent, not null.
        usual: dict[str, Any] = {"max_oversubscription": 1.0} if "min_core_share" not in network else {}
        if "dragonfly" not in str(network.get("families")):
            usual["survives"] = LOSSES[0]
        data["network"] = {**usual, "max_rails_per_leaf": None, **network}
    if isinstance(data.get("pins") or {}, dict):  # pins of another type are refused below
        data["pins"] = {**(data.get("pins") or {}), **pins}
    data = _with_left_out(data, where, faults)

    def problems(instance: FabricInstance) -> Iterator[str]:
        yield from out_of_range(instance)
        yield from network_problems(instance.network)
        yield from check_pins(instance)
        others = [path for path in instance.pins if not path.startswith("fabric.")]
        yield from (f"pins.{path}: decides nothing of a fabric alone; remove the pin" for path in others)

    question = validated(FabricInstance, data, where, problems=problems, faults=faults)
    if question.hardware.racks is None:
        raise InputError(f"{where}: hardware.racks: missing; say how many racks or hosts the fabric joins")
    return question
