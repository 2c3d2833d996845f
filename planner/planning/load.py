"""Read an instance: its file, catalogue names, references and pins; each error names path, value and remedy."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.calibration.constants import Given, MeasuredConstants, put_constants, read_constants
from planner.errors import InputError, hint
from planner.imports.instance_file import instance_data, read_config, read_instance_file
from planner.instance.base import out_of_range
from planner.instance.instance import ANY_ACCELERATOR, Instance
from planner.instance.pins import check_pins, long_names
from planner.instance.read import Faults, validated
from planner.instance.references import reference_problems
from planner.instance.workload import DEFAULT_PRECISION, LIKE, Choose, Family, Workload, catalogue, completed

# Where an instance may hold a catalogue name in place of an object, and the catalogue that has it.
NAMED = {
    ("workload", "model"): "models",
    ("hardware", "accelerator"): "accelerators",
    ("hardware", "rack"): "racks",
    ("workload", "software"): "software",
    ("workload", "precision"): "precisions",
}
# The same inside workload.choose.
NAMED_LAWS = {"law": "scaling_laws", "loss": "scaling_laws", "critical_batch": "batch_laws"}


def load_instance(
    given: Instance | Mapping[str, Any] | str | Path,
    *,
    pins: Mapping[str, Any] | None = None,
    searched: bool = True,
    where: str | None = None,
    constants: Given | None = None,
) -> Instance:
    """Return a checked instance with its catalogue names resolved; `given` is a path, a dict or an Instance.

    What only a search needs (the critical batch, the racks at hand) may be missing where nothing is searched. `where`
    is the name in errors of an instance that is no path. `constants` of the user's own cluster replace the catalogue's.

    Raises
    ------
    InputError
        Names the file, the JSON path, the value, what was expected and the nearest valid key.
    """
    where = where or (str(given) if isinstance(given, (str, Path)) else "instance")
    if isinstance(given, Instance):
        data: Any = given.model_dump(mode="json", exclude_none=True)
    elif isinstance(given, Mapping):
        data = instance_data(json.loads(json.dumps(given)), where)
        read_config(data, where, Path())
    else:
        data = read_instance_file(Path(given))
    hardware = data.get("hardware")
    if isinstance(hardware, Mapping) and hardware.get("accelerator") == ANY_ACCELERATOR:
        remedy = "give the model to train, or ask for the fabric with `planner fabric design`"
        raise InputError(f"{where}: is a question about a fabric alone, with no workload; {remedy}")
    faults = Faults()
    if isinstance(data.get("pins") or {}, dict):  # pins of another type are refused below
        data["pins"] = {**long_names(data.get("pins") or {}, where), **long_names(pins or {}, where)}
    data = with_names_resolved(data, where, faults)
    if constants is not None:
        data = _with_constants(data, read_constants(constants), where)

    def problems(instance: Instance) -> Iterator[str]:
        sizes = list(out_of_range(instance))
        named = {problem.partition(": ")[0] for problem in sizes}
        relations = chain(reference_problems(instance, searched=searched), check_pins(instance))
        yield from chain(sizes, (problem for problem in relations if problem.partition(": ")[0] not in named))

    return validated(Instance, data, where, problems=problems, faults=faults)


def _with_constants(data: dict[str, Any], constants: MeasuredConstants, where: str) -> dict[str, Any]:
    """Put a cluster's own constants in place of the catalogue's.

    Raises
    ------
    InputError
        Neither the accelerator nor the software stack is one of the instance's.
    """
    data = json.loads(json.dumps(data))  # entries of the catalogue are shared
    if not put_constants(data, constants):
        names = f"{constants.accelerator!r} and {constants.software!r}"
        raise InputError(f"{where}: constants of {names} are of no use: it has neither; leave out --constants")
    return data


def with_names_resolved(data: dict[str, Any], where: str, faults: Faults) -> dict[str, Any]:
    """Put catalogue entries in place of their names, and any entry in place of a name that is none."""
    data = json.loads(json.dumps(data))
    if isinstance(data.get("workload"), dict):
        data["workload"].setdefault("software", Workload.model_fields["software"].default)
        data["workload"].setdefault("precision", DEFAULT_PRECISION)
        if isinstance(data["workload"].get("choose"), dict):
            _resolve_choice(data["workload"], where, faults)
    for (part, key), kind in NAMED.items():
        if isinstance(data.get(part), dict):
            _resolve(data[part], key, kind, part, faults)
    if isinstance(data.get("hardware"), dict):
        _resolve_pools(data["hardware"], faults)
        alternatives = data["hardware"].get("alternatives")
        for i, choice in enumerate(alternatives if isinstance(alternatives, list) else ()):
            for key in ("accelerator", "rack"):
                if isinstance(choice, dict):
                    _resolve(choice, key, NAMED["hardware", key], f"hardware.alternatives[{i}]", faults)
    if isinstance(data.get("reliability"), str):
        data["reliability"] = _entry("reliability", data["reliability"], "reliability", faults)
    network = data.get("network")
    for kind in ("switches", "media"):
        if isinstance(network, dict) and isinstance(network.get(kind), list):
            network[kind] = [
                _entry(kind, entry, f"network.{kind}[{i}]", faults) if isinstance(entry, str) else entry
                for i, entry in enumerate(network[kind])
            ]
    return data


def _resolve(holder: dict[str, Any], key: str, kind: str, where: str, faults: Faults) -> None:
    """Put an entry of a catalogue in place of its name, and complete an accelerator that is `like` one of them."""
    given = holder.get(key)
    if isinstance(given, str):
        holder[key] = _entry(kind, given, f"{where}.{key}", faults)
    elif kind == "accelerators" and isinstance(given, dict) and isinstance(given.get(LIKE), str):
        _entry(kind, given[LIKE], f"{where}.{key}.{LIKE}", faults)
        if given[LIKE] in catalogue(kind):
            holder[key] = completed(given, catalogue(kind))


def _resolve_pools(hardware: dict[str, Any], faults: Faults) -> None:
    """Put catalogue entries in place of the pools' names; the first pool's are the hardware's where it has none."""
    pools = hardware.get("pools")
    for i, pool in enumerate(pools if isinstance(pools, list) else ()):
        for key in ("accelerator", "rack"):
            if isinstance(pool, dict):
                _resolve(pool, key, NAMED["hardware", key], f"hardware.pools[{i}]", faults)
            if isinstance(pool, dict) and i == 0 and key in pool:
                hardware.setdefault(key, pool[key])


def _resolve_choice(workload: dict[str, Any], where: str, faults: Faults) -> None:
    """Put laws in place of their names, and a model to start from where none is given."""
    choose = workload["choose"]
    for key, kind in NAMED_LAWS.items():
        given = choose.setdefault(key, Choose.model_fields[key].default)
        if isinstance(given, str):
            choose[key] = _entry(kind, given, f"workload.choose.{key}", faults)
    family = choose.setdefault("family", {})
    if isinstance(family, dict):
        depth = family.setdefault("depth", Family.model_fields["depth"].default)
        if isinstance(depth, str):
            family["depth"] = _entry("depth_laws", depth, "workload.choose.family.depth", faults)
    if "model" not in workload or "tokens" not in workload:
        try:
            asked = Choose.model_validate(choose)
        except ValidationError:
            return  # the whole instance is refused with the same complaint, under its own path
        from planner.models.model_size import any_model

        try:
            start = any_model(asked)
        except (OverflowError, TypeError):  # beyond a float, or beyond the 64 bits of CP-SAT
            problem = "its figures are beyond what can be computed with"
            raise InputError(f"{where}: workload.choose: {problem}; give smaller ones") from None
        workload.setdefault("model", start.model.model_dump(mode="json", exclude_none=True))
        workload.setdefault("tokens", start.tokens)


def _entry(kind: str, name: str, path: str, faults: Faults) -> Any:
    """Return an entry of a catalogue; `path` is where its name was given. Another entry replaces an unknown name."""
    known = catalogue(kind)
    if name not in known:
        faults.add(path, f"{name!r} is not in the catalogue; {hint(name, sorted(known))}")
        faults.replaced.append(path)
        return next(iter(known.values()))
    return known[name]
