"""Bad input is refused with file, path, value and remedy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.planning.load import load_instance

ROOT = Path(__file__).parents[2]


def data(name: str = "5gw") -> dict[str, Any]:
    """Return an instance as JSON."""
    return json.loads((ROOT / "instances" / f"{name}.json").read_text())


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return an edit that sets a value."""

    def edit(d: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        at: Any = d
        for p in parents:
            at = at[int(p)] if p.isdigit() else at[p]
        at[int(last) if last.isdigit() else last] = value

    return edit


CASES = {
    "unknown key": (put("limits.budget_uds", 1), ["limits.budget_uds", "budget_usd"]),
    "deep unknown key": (put("grid.nodes.3.lattitude", 1), ["grid.nodes[3].lattitude", "latitude"]),
    "negative": (put("limits.budget_usd", -5), ["limits.budget_usd", "greater than 0", "-5"]),
    "negative rack": (
        put("hardware.rack", {"name": "r", "gpus": 8, "it_kw": -1, "price_usd": 1}),
        ["hardware.rack", "it_kw", "-1"],
    ),
    "text": (put("limits.budget_usd", "lots"), ["limits.budget_usd", "lots"]),
    "catalogue": (put("hardware.accelerator", "B2000"), ["hardware.accelerator", "B2000", "B200"]),
    "model": (put("workload.model", "lama3-70b"), ["workload.model", "llama3-70b"]),
    "switch": (put("network.switches", ["51T"]), ["network.switches[0]", "51T"]),
    "medium": (put("network.media", ["800G-DAK"]), ["network.media[0]", "800G-DAK", "800G-DAC"]),
    "media without floor": (put("network.media", ["800G-DAC"]), ["network.floor", "missing"]),
    "family": (put("network.families", ["torus"]), ["network.families", "rail-only", "torus"]),
    "authority": (put("grid.nodes.0.balancing_authority", "PJN"), ["grid.nodes[0].balancing_authority", "PJN", "PJM"]),
    "line": (put("grid.lines.0.b", "nowhere"), ["grid.lines[0].b", "nowhere"]),
    "pin": (put("pins", {"layout.tensor_paralel": 4}), ["pins.layout.tensor_paralel", "layout.tensor_parallel"]),
    "pin value": (
        put("pins", {"layout.tensor_parallel": "ten"}),
        ["pins.layout.tensor_parallel", "whole number", "ten"],
    ),
    "racks and grid": (put("hardware.racks", 5), ["hardware.racks", "5"]),
    "precision": (put("workload.precision.compute", "fp64"), ["workload.precision.compute", "fp64"]),
    "peak": (put("hardware.accelerator", "A100-80GB"), ["workload.precision.compute", "A100-80GB has no fp4"]),
    "no batch": (lambda d: d["limits"].pop("max_batch_tokens"), ["limits.max_batch_tokens", "missing"]),
    "missing": (lambda d: d["workload"].pop("tokens"), ["workload.tokens", "missing"]),
    "cheapest for ever": (put("objective.minimize", "cost_usd"), ["limits.deadline_days"]),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_path_and_remedy(name: str) -> None:
    """Each mistake is named by its path, with the value or the remedy."""
    edit, words = CASES[name]
    d = data()
    d.setdefault("objective", {})
    d.setdefault("pins", {})
    edit(d)
    with pytest.raises(InputError) as error:
        load_instance(d)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_two_nodes_with_one_id() -> None:
    """Two nodes with one id are both named."""
    d = data()
    d["grid"]["nodes"][4]["id"] = d["grid"]["nodes"][1]["id"]
    with pytest.raises(InputError, match=r"grid\.nodes\[4\]\.id.*grid\.nodes\[1\]"):
        load_instance(d)


def test_heads_that_do_not_divide() -> None:
    """A head count that leaves no whole head size is refused, and the nearest that does is offered."""
    d = data()
    d["workload"]["model"] = {"name": "m", "layers": 2, "hidden": 192_000, "heads": 280, "vocabulary": 10}
    with pytest.raises(InputError, match="300"):
        load_instance(d)


@pytest.mark.parametrize(
    ("text", "word"),
    [("{", "line 1"), ('{"a": 1, "a": 2}', "twice"), ('{"a": NaN}', "NaN"), ("[]", "JSON object"), ("\xff", "JSON")],
)
def test_malformed_file(tmp_path: Path, text: str, word: str) -> None:
    """A file that is no JSON object is refused with its name and the place."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_instance(path)
    assert str(path) in str(error.value)
    assert word in str(error.value)


def test_missing_file_names_the_nearest() -> None:
    """A misspelt file name is answered with the nearest one."""
    with pytest.raises(InputError, match=r"5gw\.json"):
        load_instance(ROOT / "instances" / "5qw.json")


def test_a_rack_of_one_megawatt_is_legal() -> None:
    """A rack of 1 MW is legal."""
    d = data()
    d["hardware"]["rack"] = {"name": "r", "gpus": 72, "it_kw": 1000, "price_usd": 1}
    assert load_instance(d).hardware.rack.it_kw == 1000  # type: ignore[union-attr]


def test_loading_twice_changes_nothing() -> None:
    """An instance that is loaded again is the same instance."""
    once = load_instance(data())
    assert load_instance(once) == once
