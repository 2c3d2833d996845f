"""Bad input is refused with file, path, value and remedy, all faults at once; implausible figures are named."""

import json
import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from each_case import each
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from stored_plans import stored
from worked_plan import small, with_entries

import planner
from planner import changed
from planner.cluster.job import Job
from planner.errors import InputError
from planner.instance import plausible_ranges
from planner.instance.grid import Scenario
from planner.instance.instance import Instance, Limits, instance_sha256
from planner.instance.plausible_ranges import (
    RANGES,
    USUAL,
    implausible,
    implausible_figures,
    out_of_range,
    range_of,
    usual_range,
)
from planner.instance.validation import put_stand_in
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of, read_plan
from planner.planning.load import load_instance
from planner.report.verdict import implausible_inputs
from planner.simulation.simulated_routes import Fabric
from planner.sweeps.sweep_run import SweepOptions, tasks_for

ROOT = Path(__file__).parents[2]


def data(name: str = "5gw") -> dict[str, Any]:
    return json.loads((ROOT / "instances" / f"{name}.json").read_text())


RACK = {"name": "r", "gpus": 8, "it_kw": -1, "price_usd": 1}
SPLIT = {"name": "m", "layers": 2, "hidden": 192_000, "heads": 280, "vocabulary": 10}
OLD_OPTICS = {"name": "400G-DR4", "price_usd": 700, "power_watts": 9}  # of files before optics had gbps
CASES: list[tuple[str, Any, list[str]]] = [
    ("limits.budget_uds", 1, ["limits.budget_uds", "budget_usd"]),
    ("grid.nodes.3.lattitude", 1, ["grid.nodes[3].lattitude", "latitude"]),
    ("limits.budget_usd", -5, ["limits.budget_usd", "greater than 0", "-5"]),
    ("hardware.rack", RACK, ["hardware.rack", "it_kw", "-1"]),
    ("limits.budget_usd", [7, 8], ["limits.budget_usd", "valid number (is [7, 8]); fix it there"]),
    ("hardware.accelerator", "B2000", ["hardware.accelerator", "B2000", "B200"]),
    ("workload.model", "lama3-70b", ["workload.model", "llama3-70b"]),
    ("workload.model", SPLIT, ["300"]),  # the nearest number of heads that leaves a whole head size
    ("network.switches", ["51T"], ["network.switches[0]", "51T"]),
    ("network.media", ["800G-DAC"], ["network.floor", "missing"]),
    ("network.optics.gbps", 400, ["network.switches", "800 Gb/s", "400 Gb/s", "link_factor"]),
    ("network.optics", OLD_OPTICS, ["network.switches", "400G-DR4, whose gbps is absent", "link_factor"]),
    ("network.families", ["torus"], ["network.families", "rail-only", "torus"]),
    ("network.families", ["rail", "rail"], ["network.families: 'rail' is given 2 times; keep one"]),
    ("network.families", "(rail, rail)", ['(is "(rail, rail)"); write it in square brackets']),
    ("grid.nodes.0.balancing_authority", "PJN", ["grid.nodes[0].balancing_authority", "PJN", "PJM"]),
    ("grid.nodes", lambda x: [*x, x[1]], [".id", "grid.nodes[1]"]),  # both nodes of one id are named
    ("grid.lines.0.b", "nowhere", ["grid.lines[0].b", "nowhere"]),
    ("pins", {"layout.tensor_paralel": 4}, ["pins.layout.tensor_paralel", "layout.tensor_parallel"]),
    ("pins", {"layout.tensor_parallel": "ten"}, ["pins.layout.tensor_parallel", "whole number", "ten"]),
    ("hardware.racks", 5, ["hardware.racks", "5"]),
    ("hardware.accelerator", "A100-80GB", ["workload.precision.compute", "A100-80GB has no fp4"]),
    ("limits.max_batch_tokens", None, ["limits.max_batch_tokens", "missing"]),
    ("workload", lambda x: {k: v for k, v in x.items() if k != "tokens"}, ["workload.tokens", "missing"]),
    ("objective", {"minimize": "cost_usd"}, ["limits.deadline_days"]),  # the cheapest for ever
    ("objective", {"minimize": "total_cost_of_ownership_usd"}, ["limits.deadline_days: is missing"]),
]


@each(("path", "value", "words"), CASES)
def test_refused_with_path_and_remedy(path: str, value: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        load_instance(with_entries(data(), {path: value}))
    assert all(word in str(error.value) for word in words), str(error.value)


RATIO, LOSS, LAW = "network.max_oversubscription", "workload.choose.loss", "workload.choose.law"
POINTS: dict[str, Any] = {"kind": "points", "parameters": [1e9, 2e9], "flop": [1e20, 2e20], "tokens": [1e9, 2e9]}
WRONG_LOSS = {"kind": "loss", "e": 1.0, "a": -1, "b": 1.0, "alpha": 1.0}
ALIKE = {"flop": [1e20, 1e20]}


@each(("path", "value", "complaints"), [
    (RATIO, -0.5, [": input should be greater than 0 (is -0.5); fix it there"]),
    (RATIO, [1, 0], ["[1]: input should be greater than 0 (is 0); fix it there"]),
    (RATIO, [1, 2, 3, 4], [": list should have at most 3 items, not 4; fix it there"]),
    (LOSS, "chinchilla-2", [": input should be 'loss' (is \"points\"); fix it there"]),
    (LAW, POINTS | ALIKE, [": flop must have two different values or more (all are 1e+20)"]),
    (LAW, {x: POINTS[x] for x in POINTS if x != "kind"} | ALIKE, [": flop must have two different values"]),
    (LAW, None, [": must be an object or a name of the catalogue (is null)"]),
    (LAW, POINTS | {"tokens": [1e9]}, [".tokens: list should have at least 2 items, not 1"]),
    (LAW, WRONG_LOSS, [".a: input should be greater than 0 (is -1)", ".beta: is missing; add it"]),
    (LAW, POINTS | {"a": 1}, [".a: unknown key; known: flop, kind, note, parameters, source, tokens"]),
])  # fmt: skip
def test_a_key_of_several_forms_is_read_as_the_one_given(path: str, value: Any, complaints: list[str]) -> None:
    """A ratio may be a number or a list, a law one of several kinds: what is wrong is told of the form given alone."""
    with pytest.raises(InputError) as error:
        load_instance(with_entries(data("cluster-1k" if path == RATIO else "5gw-best-6-months"), {path: value}))
    lines = [line for line in str(error.value).splitlines() if path in line]
    assert len(lines) == len(complaints)
    for line, complaint in zip(lines, complaints, strict=True):
        assert line.startswith(f"instance: {path}{complaint}")


MALFORMED = [("{", "line 1"), ('{"a": 1, "a": 2}', "twice"), ('{"a": NaN}', "NaN"), ("[]", "object"), ("\xff", "JSON")]


@each(("text", "word"), MALFORMED)
def test_malformed_file(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_instance(path)
    assert str(path) in str(error.value) and word in str(error.value)


def test_missing_file_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"5gw\.json"):
        load_instance(ROOT / "instances" / "5qw.json")


def test_loading_twice_changes_nothing() -> None:
    once = load_instance(data())
    assert load_instance(once) == once
    free = load_instance(with_entries(data(), {"network.max_rails_per_leaf": None}))
    assert free.network.max_rails_per_leaf is None and load_instance(free) == free  # null is not the usual value


@each("kind", ["instance", "plan"])
def test_a_file_of_version_1_gets_one_line_with_the_remedy(tmp_path: Path, kind: str) -> None:
    """Keys that have another name since do not hide the line below one complaint each."""
    given = data("one-rack")
    old = given if kind == "instance" else stored(given).model_dump(mode="json")
    old["workload"] = {"border": 1}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old | {"schema_version": 1}))
    with pytest.raises(InputError) as error:
        read_plan(path) if kind == "plan" else load_instance(path)
    remedy = f"write 3, and the keys that are then refused as `planner schema {kind}` names them"
    assert str(error.value) == f"{path}: schema_version: must be 3 (is 1); {remedy}"


@each("rule", ["interconnect", "fault_split", "share_balance"])
def test_rules_of_version_2_are_read(rule: str) -> None:
    """A rule of version 2 says `on` for what is called enabled now: it binds as it did, under one name."""
    d = data()
    d["grid"]["rules"][rule] = {"enabled": True}
    new = load_instance(d)
    d["grid"]["rules"][rule] = {"on": True}
    assert load_instance(d | {"schema_version": 2}) == load_instance(d) == new
    assert new.schema_version == 3 and getattr(new.grid.rules, rule).enabled  # type: ignore[union-attr]
    assert "'on'" not in repr(new.model_dump())
    assert changed(new, {f"grid.rules.{rule}.on": "false"}).grid.rules != new.grid.rules  # type: ignore[union-attr]
    d["grid"]["rules"][rule] = {"on": True, "enabled": True}
    with pytest.raises(InputError, match=f"grid.rules.{rule}: has both enabled and on, its old name; keep enabled"):
        load_instance(d)
    with pytest.raises(InputError, match="schema_version: input should be 3"):
        load_instance(data() | {"schema_version": 4})


def test_a_plan_of_version_2_is_read_and_checked(tmp_path: Path) -> None:
    """A plan of version 2 keeps every rule once its keys are read as the newest; a changed instance is still found."""
    plan = json.loads(small().model_dump_json())
    rule = plan["instance"]["grid"]["rules"]["fault_split"]
    rule["on"] = rule.pop("enabled")
    plan["schema_version"] = plan["instance"]["schema_version"] = 2
    del plan["instance"]["network"]["optics"]["gbps"]  # a key that came later
    plan["instance_sha256"] = instance_sha256(plan["instance"])
    path = tmp_path / "old.plan.json"
    path.write_text(json.dumps(plan))
    assert read_plan(path) == small() and planner.check(read_plan(path)) == []
    plan["instance"]["workload"]["tokens"] += 1
    path.write_text(json.dumps(plan))
    assert "instance_hash" in {v.rule for v in planner.check(read_plan(path))}


def test_public_functions_are_no_modules() -> None:
    assert [name for name in planner.__all__ if find_spec(f"planner.{name}") is not None] == []


WORKLOAD = {"model": "llama3-70b", "tokens": 1e11, "sequence_length": 8192}
WIDE = {"name": "m", "layers": 2, "hidden": 10**18 + 1, "heads": 10**17, "vocabulary": 9}
SOUND = {
    "schema_version": 2, "name": "one", "limits": {"max_batch_tokens": 4e6}, "workload": WORKLOAD,
    "hardware": {"accelerator": "GB200", "rack": "GB200-NVL72", "racks": 1},
}  # fmt: skip


def told(data: dict[str, Any]) -> list[str]:
    """Return the places that the message about an instance names, sorted."""
    with pytest.raises(InputError) as error:
        load_instance(data)
    return sorted(line.split(": ")[1] for line in str(error.value).splitlines())


def test_faults_of_every_kind_come_at_once() -> None:
    """Unknown names and keys, missing and wrong values, broken relations and useless pins are one message."""
    own = {
        "schema_version": 2,
        "limits": {"budget_uds": 3, "max_batch_tokens": 1024, "deadline_days": -4},
        "workload": {"model": "lama3-70b", "tokens": "many", "sequence_length": 4096, "precision": "bf17"},
        "hardware": {"accelerator": "B2000", "rack": {"name": "r", "gpus": 8, "it_kw": -1}, "racks": -1},
        "objective": {"minimize": "cost_usd"},
        "network": {"switches": ["51T"], "optics": {"name": "a", "price_usd": 1}, "families": ["torus"]},
        "pins": {"layout.tensor_paralel": 4, "layout.pipeline_parallel": "x", "sites.racks": 3},
    }
    assert told(own) == [
        *("hardware.accelerator", "hardware.rack.it_kw", "hardware.rack.price_usd", "hardware.racks"),
        *("limits.budget_uds", "limits.deadline_days", "limits.max_batch_tokens", "name"),
        *("network.families[0]", "network.optics.power_watts", "network.switches[0]"),
        *("pins.layout.pipeline_parallel", "pins.layout.tensor_paralel", "pins.sites.racks"),
        *("workload.model", "workload.precision", "workload.tokens"),
    ]


def test_a_part_is_the_entry_that_it_is_named_by() -> None:
    """A file, its data and the pydantic type take a catalogue's names alike, also where a part is left out."""
    named = data("cluster-1k")
    del named["workload"]["software"]
    asked = Instance.model_validate(named)
    assert asked.workload.software.name == "megatron-core" and asked.network is not None
    assert [switch.name for switch in asked.network.switches] == named["network"]["switches"]
    assert instance_sha256(asked) == instance_sha256(load_instance(named))
    with pytest.raises(ValidationError, match="'B2000' is not in the catalogue; did you mean 'B200'"):
        Instance.model_validate(with_entries(named, {"hardware.accelerator": "B2000"}))


@each(("name", "changes", "place"), [
    ("two-pools", {"hardware.pools.0.accelerator": "B2000"}, "hardware.pools[0].accelerator"),
    ("cluster-1k", {"hardware.accelerator": "B2000", "workload.precision": "fp8"}, "hardware.accelerator"),
    ("5gw-best-6-months", {"workload.choose.law": "chinchila"}, "workload.choose.law"),
    ("5gw-best-6-months", {"workload.choose.loss": 5}, "workload.choose.loss"),
])  # fmt: skip
def test_a_wrong_part_is_named_alone(name: str, changes: dict[str, Any], place: str) -> None:
    """What rests on it, hardware of the first pool, types of an accelerator or a model to start from, is not named."""
    assert told(with_entries(data(name), changes)) == [place]


def test_faults_of_a_grid_come_at_once() -> None:
    """Names that may be those of a node without a name are not called unknown; all else is."""
    node = {"id": "n", "balancing_authority": "A", "latitude": 1, "longitude": 1, "generation_mw": 4}
    area = {"id": "A", "interconnection": "e", "headroom_mw": "5k", "energy_usd_per_mwh": 3}
    nameless = {k: v for k, v in node.items() if k != "id"} | {"latitude": 100}
    lines = [{"id": "l", "a": "n", "b": "n", "rating_mw": 3}, {"id": "l", "a": "n", "b": "z", "rating_mw": 3}]
    grid = {"balancing_authorities": [area], "nodes": [nameless, node], "lines": lines, "rules": {"n1": "node"}}
    own = {**SOUND, "hardware": {"accelerator": "GB200", "rack": "GB200-NVL72"}, "grid": grid}
    assert told(own) == [
        "grid.balancing_authorities[0].headroom_mw",
        *("grid.lines[0]", "grid.lines[1].id", "grid.nodes[0].id", "grid.nodes[0].latitude", "grid.rules.n1"),
    ]


@each(("part", "value", "places"), [
    ("grid", "none", ["grid", "hardware.racks"]),
    ("network", 3, ["network"]),
    ("hardware", [], ["hardware"]),
    ("workload", None, ["workload"]),
    ("workload", {**WORKLOAD, "model": {"name": "m", "hidden": 10, "heads": 3}, "tokens": -1}, None),
    ("workload", {**WORKLOAD, "model": WIDE}, ["workload.model"]),  # a width beyond any model
    ("pins", 3, ["pins"]),
])  # fmt: skip
def test_a_part_of_the_wrong_type_is_named_alone(part: str, value: Any, places: list[str] | None) -> None:
    expected = places or ["workload.model.layers", "workload.model.vocabulary", "workload.tokens"]
    assert told({**SOUND, part: value}) == expected


def test_every_number_has_a_range() -> None:
    """A figure that no datacenter has is named with its range; 0 stays where its type allows it."""
    assert list(out_of_range(load_instance(SOUND))) == []
    assert all(0 < low < high for low, high in RANGES.values())
    for key, value in (("tokens", 1e-300), ("tokens", 1e30)):
        assert told({**SOUND, "workload": {**WORKLOAD, key: value}}) == [f"workload.{key}"]
    for batch in (1e18, 1e300):
        assert told({**SOUND, "limits": {"max_batch_tokens": batch}}) == ["limits.max_batch_tokens"]
    assert told({**SOUND, "hardware": {**SOUND["hardware"], "racks": 10**8}}) == ["hardware.racks"]  # type: ignore[dict-item]
    assert range_of("ports", whole=True) == (1, 4096)


@each("pin", ["wan.wavelengths", "sites.racks", "sites.max_sites", "fabric.tiers", "placement.stripes"])
def test_a_pin_of_a_part_that_is_not_there_is_refused(pin: str) -> None:
    """A decision that the instance does not ask for cannot be fixed: the reason is told, not the pin ignored."""
    with pytest.raises(InputError, match=f"pins.{pin}: decides nothing, as the instance has no (grid|network); "):
        load_instance(SOUND, pins={pin: 1})


def test_faults_of_a_plan_come_at_once() -> None:
    data = json.loads(small().model_dump_json())
    data["layout"]["tensor_parallel"] = "x"
    data["certificate"] = 3
    data["instance"]["limits"]["budget_usd"] = -1
    with pytest.raises(InputError) as error:
        plan_of(data, "p.json")
    named = {line.split(": ")[1] for line in str(error.value).splitlines()}
    assert {"layout.tensor_parallel", "certificate", "instance.limits.budget_usd"} <= named
    for model in (Plan, Instance, Job, Fabric):
        for name, field in model.model_fields.items():
            given: dict[str, Any] = {name: object()}
            assert put_stand_in(model, given, (name,), drop=False)
            assert (name in given) or not field.is_required()


BATCH = "limits.max_batch_tokens is 5e+12, not from 10000 to 3e+09: published runs take 0.5 to 60 million tokens a step"


def keys(kind: Any, key: str = "", bounds: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield every key of a type that holds numbers, with what its annotations say of them."""
    origin = get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if name not in ("pins", "schema_version", "source"):
                at = f"{key}.{name}" if key else name
                yield from keys(field.annotation, at, tuple(field.metadata))
    elif origin is Annotated:
        inner, *said = get_args(kind)
        found = [m for s in said for m in (s.metadata if isinstance(s, FieldInfo) else [s])]
        yield from keys(inner, key, (*bounds, *found))
    elif origin in (Union, UnionType):
        for part in get_args(kind):
            yield from keys(part, key, bounds)
    elif origin is dict:
        yield from keys(get_args(kind)[1], f"{key}.*")
    elif origin is tuple:
        yield from keys(get_args(kind)[0], key)
    elif kind in (int, float) and origin is not Literal:
        yield key, bounds


KEYS = sorted(dict(keys(Instance)).items())


def test_every_numeric_key_has_a_range() -> None:
    """A number is bounded by its type on both sides, or has a row in the table; and no row is of no key."""
    assert len(KEYS) > 200
    ends = ("ge", "gt"), ("le", "lt")
    unbounded = [key for key, own in KEYS if not all(any(hasattr(b, x) or hasattr(b, y) for b in own) for x, y in ends)]
    assert [key for key in unbounded if usual_range(key) is None] == []
    used = {id(usual_range(key)) for key, _ in KEYS}
    assert [end for end, usual in USUAL.items() if id(usual) not in used] == []
    assert all(x["low"] < x["high"] and x["reason"] for x in USUAL.values())


def test_each_warning_fires_just_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """At either end of a range nothing is said, just beyond it the path, the value and the range; 0 is none."""
    sound = load_instance(SOUND)

    def told(key: str, value: float) -> list[str]:
        monkeypatch.setattr(plausible_ranges, "figures", lambda _: [(f"at {key}", key, value)])
        return list(implausible_figures(sound))

    for key, usual in ((key, usual_range(key)) for key, _ in KEYS):
        for end, beyond in () if usual is None else ((usual["low"], -1), (usual["high"], 1)):
            assert told(key, end) == told(key, 0) == [], key
            (line,) = told(key, math.nextafter(end, beyond * math.inf))
            assert line.startswith(f"at {key} is ") and line.endswith(usual["reason"])


def test_a_key_is_named_once() -> None:
    """Many figures of one key outside their range are one line, with the first of them and how many there are."""
    nodes = load_instance("two-sites-405b").grid.nodes  # type: ignore[union-attr]
    changes = {f"grid.nodes.{n.id}.generation_mw": 1e9 for n in nodes}
    (line,) = implausible(planner.changed("two-sites-405b", changes))
    assert line.startswith(f"grid.nodes[0].generation_mw is 1e+09 (and {len(nodes) - 1} more), not from 0.001 to 2")


def test_what_is_given_and_not_read_is_named() -> None:
    """Limits of a site and years that may come do not bind until they are asked for; a wide area joins sites alone."""
    nodes = load_instance("two-sites-405b").grid.nodes  # type: ignore[union-attr]
    changes: dict[str, Any] = {f"grid.nodes.{n.id}.area_m2": 1e6 for n in nodes}
    changed = planner.changed("two-sites-405b", changes | {"grid.rules.interconnect.enabled": False})
    assert changed.grid is not None
    dry = changed.grid.replaced(scenarios=(Scenario(name="dry", weight=0.5),))
    assert [line.partition(":")[0] for line in implausible(changed.replaced(grid=dry))] == [
        "grid.nodes[0].area_m2 (and 1 more) limits no site",
        "grid.nodes[0].interconnect_mw (and 1 more) limits no site",
        "grid.scenarios are not read",
    ]
    assert list(implausible(planner.changed("two-sites-405b", {"grid.rules.interconnect.enabled": True}))) == []
    (line,) = implausible(planner.changed("two-sites-405b", {"grid.rules.scenarios": "robust"}))
    assert line.startswith("grid.rules.scenarios is robust without grid.scenarios")
    (line,) = implausible(planner.changed("one-rack", {"wan": {}}))
    assert line.startswith("wan is not read")


def test_a_batch_larger_than_any_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A batch of 5e12 tokens made the whole training one step: every call says so, and so does the plan's summary."""
    asked = planner.changed("one-rack", {"limits.max_batch_tokens": 5e12})
    layout = {"tensor_parallel": 8, "pipeline_parallel": 1, "data_parallel": 1, "microbatches_per_step": 8}
    calls: dict[str, Callable[[], object]] = {
        "evaluate": lambda: planner.evaluate(asked, layout),
        "solve": lambda: planner.solve(asked, time_limit=0.01),
        "explain": lambda: planner.explain(asked, time_limit=0.01),
        "sweep": lambda: tasks_for("one-rack", [{"limits.max_batch_tokens": x} for x in (1e6, 5e12)], SweepOptions()),
    }
    for name, call in calls.items():
        caplog.clear()
        call()
        assert [r.message.startswith(f"implausible: {BATCH}") for r in caplog.records] == [True], name
    assert any(x.text.startswith(BATCH) for x in implausible_inputs(small(limits__max_batch_tokens=5e12)))


@each(("changes", "words"), [
    ({"accelerator": "H100"}, ["hardware.rack is DGX-B200", "a rack of B200", "is H100", "to DGX-H100"]),
    ({"accelerator": "H200", "rack": "DGX-H100"}, ["a rack of H100", "is H200", "to DGX-H200"]),
    ({"accelerator": "TPU-v7x"}, ["to one of your own with its gpus, it_kw and price_usd"]),
    ({"alternatives": [{"accelerator": "H100", "rack": "DGX-A100"}]}, ["hardware.alternatives[0].rack is DGX-A100"]),
    ({"accelerator": "H100", "rack": "DGX-H100"}, []),
    ({"accelerator": {"like": "H100", "name": "my-gpu"}}, []),  # whoever has a GPU of his own has its rack
    ({"rack": {"name": "my-rack", "gpus": 8, "it_kw": 10, "price_usd": 3e5}}, []),
    ({"accelerator": "H100", "rack": "DGX-H100", "workload.precision": "fp8"}, ["mxfp8, which H100 does not run"]),
    ({"workload.precision": "fp8"}, []),
])  # fmt: skip
def test_a_rack_or_a_recipe_for_another_accelerator_is_named(changes: dict[str, Any], words: list[str]) -> None:
    """The line names both and the racks that carry the accelerator; `two-sites-405b` has B200 in DGX-B200."""
    own = {key if "." in key else f"hardware.{key}": value for key, value in changes.items()}
    found = list(implausible(load_instance(with_entries(data("two-sites-405b"), own))))
    assert len(found) == bool(words) and all(word in line for line in found for word in words), found


def test_other_values_are_of_keys_that_there_are() -> None:
    """One of a part is named by both keys; the rest stays, and a key that there is not is refused, in a part too.

    A name of the catalogue is its entry, in a list of parts too.
    """
    instance = load_instance("one-rack")
    other = instance.replaced(name="other", limits__budget_usd=7.0, limits__deadline_days=9.0)
    assert (other.name, other.limits.budget_usd, other.limits.deadline_days) == ("other", 7.0, 9.0)
    assert other.replaced(name=instance.name, limits=instance.limits) == instance
    for wrong in ("nam", "limit__budget_usd", "limits__budget"):
        with pytest.raises(InputError, match="unknown key; did you mean"):
            instance.replaced(**{wrong: 7.0})
    named = load_instance("cluster-1k").replaced(hardware__accelerator="H200", network__switches=("51.2T-64x800G",))
    assert named.hardware.accelerator == changed("cluster-1k", {"hardware.accelerator": "H200"}).hardware.accelerator
    assert [switch.port_gbps for switch in named.network.switches] == [800]  # type: ignore[union-attr]
    asked = instance.replaced(limits={"budget_usd": 7}, pins={"layout.zero_stage": 1})
    assert asked.limits == Limits(budget_usd=7.0) and asked.pins == {"layout.zero_stage": 1}
    for change, words in (
        ({"hardware__accelerator": "H2000"}, "'H2000' is not in the catalogue; did you mean 'H200'"),
        ({"hardware__racks": True}, "hardware.racks: .*valid number"), ({"limits": {"budget": 7}}, "limits.budget: "),
        ({"hardware__racks": -1}, "hardware.racks: .*greater than"), ({"objective__minimize": "money"}, "minimize: "),
        ({"reliability__restart_seconds": 4}, r"reliability.restart_seconds: reliability is null; give it whole$"),
        ({"hardware__rack__price_usd": None}, "hardware.rack.price_usd: is missing; add it$"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"^Instance: [^\n]*{words}"):
            instance.replaced(**change)
    with pytest.raises(InputError, match=r"^Instance: network.switches\[0\]: 'x' is not in the catalogue; [^\n]*$"):
        load_instance("cluster-1k").replaced(network__switches=["x"])


def test_a_model_is_chosen_for_the_least_loss_alone() -> None:
    """Under another goal the model to start the choice from would be planned as if it were asked for."""
    fewest = {"objective.minimize": "days_to_train"}
    goal = r'workload.choose: chooses a model where objective.minimize is "loss" alone \(is "days_to_train"\); set that'
    with pytest.raises(InputError, match=goal):
        changed("5gw-best-6-months", fewest)
    with pytest.raises(InputError, match=r"^\S+( with \S+)?: objective\.minimize: [^\n]*$"):  # alone
        changed("5gw-best-6-months", {"objective.minimize": "foo"})
    own = {"workload.choose": None, "workload.model": "llama3-70b", "workload.tokens": 1e12}
    assert changed("5gw-best-6-months", own | fewest).workload.model.name == "llama3-70b"
    for goal in ("days_to_train", "cost_usd", "loss"):  # `limits` has a deadline of its own
        asked = changed("limits-h100", {"objective.minimize": goal}, searched=False)
        assert asked.workload.choose is not None and asked.objective.minimize == goal


def test_data_that_no_file_holds_are_refused() -> None:
    """What holds itself, in an instance, a pin or a change, has no end."""
    endless: dict[str, Any] = {}
    endless["note"] = endless
    for ask in (
        lambda: load_instance(data("one-rack") | endless), lambda: load_instance("one-rack", pins=endless),
        lambda: changed("one-rack", {"limits": endless}),
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"cannot be written as JSON .*; give what JSON can hold"):
            ask()


@each(("changes", "key"), [
    ({"workload.model": "llama3-70b"}, "model"), ({"workload.tokens": 1e12}, "tokens"),
    ({"workload.model.layers": "x2"}, "model"), ({"workload.choose.tolerance": 0.1, "workload.tokens": 1e12}, "tokens"),
])  # fmt: skip
def test_a_model_is_not_given_where_one_is_chosen(changes: dict[str, Any], key: str) -> None:
    """What would be ignored is refused, in a file too; without its choice an instance needs a model."""
    with pytest.raises(InputError, match=rf"workload\.{key}: workload\.choose chooses it \(is .*; remove one of"):
        changed("5gw-best-6-months", changes)
    asked = with_entries(data("5gw-best-6-months"), {"workload.model": "llama3-70b"})
    with pytest.raises(InputError, match=r'workload\.model: .* \(is "llama3-70b"\)'):
        load_instance(asked, searched=False)
    with pytest.raises(InputError, match=r"workload\.model: is missing"):
        changed("5gw-best-6-months", {"workload.choose": None, "objective.minimize": "days_to_train"})
    whole = r'^[^\n]*: workload.choose: is missing, and objective.minimize is "loss"; [^\n]* workload.tokens$'
    for searched in (True, False):  # all that has to change, in one message
        with pytest.raises(InputError, match=whole):
            changed("5gw-best-6-months", {"workload.choose": None}, searched=searched)
    with pytest.raises(InputError, match=r"workload\.choose leaves the model open; give workload\.model and"):
        planner.evaluate("5gw-best-6-months", {"tp": 8, "pp": 1, "dp": 8})


def test_a_model_gives_way_to_a_choice() -> None:
    """None takes model and tokens away, by paths or by keys, and a file without them is an instance as it is."""
    own: dict[str, Any] = {"hardware.rack": "DGX-B200", "hardware.accelerator": "B200", "workload.model": None}
    own |= {"workload.choose": {"law": "chinchilla-2"}, "workload.tokens": None, "objective.minimize": "loss"}
    own |= {"limits.deadline_days": 60, "limits.max_batch_tokens": 16e6}
    asked = changed("one-rack", own)
    by_key = load_instance("one-rack").replaced(**{path.replace(".", "__"): value for path, value in own.items()})
    assert by_key.workload.model is None and load_instance(by_key) == asked
    read = Instance.model_validate(data("5gw-best-6-months"))
    assert read.workload.model is None and load_instance(read) == load_instance("5gw-best-6-months")
    with pytest.raises(InputError, match=r'workload.model: workload.choose chooses it \(is "[^"{]*"\); remove one'):
        changed("one-rack", own | {"workload.model": "llama3-70b"})
    with pytest.raises(InputError, match=r"workload\.choose leaves the model open"):
        planner.layouts("5gw-best-6-months")


@each(("path", "value"), [("workload.tokens", True), ("limits.budget_usd", False), ("hardware.racks", True)])
def test_true_and_false_are_no_numbers(path: str, value: bool) -> None:
    """Python takes them for 1 and 0; where a flag is meant they are taken."""
    with pytest.raises(InputError, match=rf"{path}: input should be a valid number \(is {str(value).lower()}\)"):
        changed("one-rack", {path: value})
    pinned = changed("one-rack", {"pins.layout.sequence_parallel": value})
    assert pinned.pins["layout.sequence_parallel"] is value
