"""A file with several faults is told of all of them in one message, and of none that its faults only seem to make."""

import json
from typing import Any

import pytest
from worked_plan import small

from planner.cluster import Job
from planner.errors import InputError
from planner.instance.base import RANGES, out_of_range, range_of
from planner.instance.instance import Instance
from planner.instance.read import put_stand_in
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of
from planner.planning.load import load_instance
from planner.simulation.routing import Fabric

WORKLOAD = {"model": "llama3-70b", "tokens": 1e11, "sequence_length": 8192}
SOUND = {
    "schema_version": 2,
    "name": "one",
    "limits": {"max_batch_tokens": 4e6},
    "workload": WORKLOAD,
    "hardware": {"accelerator": "GB200", "rack": "GB200-NVL72", "racks": 1},
}


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


@pytest.mark.parametrize(
    ("part", "value", "places"),
    [
        ("grid", "none", ["grid", "hardware.racks"]),
        ("network", 3, ["network"]),
        ("hardware", [], ["hardware"]),
        ("workload", None, ["workload"]),
        ("workload", {**WORKLOAD, "model": {"name": "m", "hidden": 10, "heads": 3}, "tokens": -1}, None),
        ("pins", 3, ["pins"]),
    ],
)
def test_a_part_of_the_wrong_type_is_named_alone(part: str, value: Any, places: list[str] | None) -> None:
    expected = places or ["workload.model.layers", "workload.model.vocabulary", "workload.tokens"]
    assert told({**SOUND, part: value}) == expected


def test_every_number_has_a_range() -> None:
    """A figure that no datacenter has is named with its range; 0 stays where its type allows it."""
    sound = load_instance(SOUND)
    assert list(out_of_range(sound)) == []
    for pattern, low, high in RANGES:
        assert 0 < low < high, pattern
    for key, value in (("tokens", 1e-300), ("tokens", 1e30)):
        assert told({**SOUND, "workload": {**WORKLOAD, key: value}}) == [f"workload.{key}"]
    for batch in (1e18, 1e300):
        assert told({**SOUND, "limits": {"max_batch_tokens": batch}}) == ["limits.max_batch_tokens"]
    assert told({**SOUND, "hardware": {**SOUND["hardware"], "racks": 10**8}}) == ["hardware.racks"]  # type: ignore[dict-item]
    assert range_of("ports", whole=True) == (1, 4096)
    assert isinstance(sound, Instance)


@pytest.mark.parametrize(
    "pin", ["wan.wavelengths", "sites.racks", "sites.max_sites", "fabric.tiers", "placement.stripes"]
)
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


def test_a_hidden_width_beyond_any_model_is_told_at_once() -> None:
    model = {"name": "m", "layers": 2, "hidden": 10**18 + 1, "heads": 10**17, "vocabulary": 9}
    assert told({**SOUND, "workload": {**WORKLOAD, "model": model}}) == ["workload.model"]
