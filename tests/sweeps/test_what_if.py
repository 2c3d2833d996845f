"""An instance with some values changed: outright, against what they are, and with a remedy where that cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from typer.testing import CliRunner

import planner
from planner.cli import main
from planner.errors import InputError
from planner.instance.workload import Software
from planner.sweeps.axes import changed, read_changes

ROOT = Path(__file__).parents[2]
BASE = ROOT / "instances" / "two-sites-405b.json"


@each(
    ("change", "budget"),
    [("x1.2", 3.6e9), ("+20%", 3.6e9), ("-20%", 2.4e9), ("+1e8", 3.1e9), ("-1e8", 2.9e9), (5e9, 5e9), ("x0.1", 3e8)],
)
def test_a_number_moves_as_written(change: Any, budget: float) -> None:
    """Three billion dollars, by a factor, a share, a difference, and outright."""
    assert changed(BASE, {"limits.budget_usd": change}).limits.budget_usd == pytest.approx(budget, rel=1e-12)


def test_whole_numbers_stay_whole() -> None:
    """A model of 126 layers has 63 at half of them, and the rest of the instance stays."""
    base, half = changed(BASE, {}), changed(BASE, {"workload.model.layers": "x0.5"})
    assert (base.workload.model.layers, half.workload.model.layers) == (126, 63)
    put_back = changed(half, {"workload.model.layers": 126})
    assert put_back == base


def test_lists_that_an_instance_leaves_out_have_their_default() -> None:
    """Modules of recompute, which data leave out as long as they are core attention alone, are changed by position."""
    found = changed(BASE, {"workload.software.recompute_modules[0]": "mlp"}).workload.software
    assert isinstance(found, Software) and found.recompute_modules == ("mlp",)
    off = changed(BASE, {"workload.software.fp8_attention": False, "workload.precision": "fp8"}).workload.software
    assert isinstance(off, Software) and not off.fp8_attention


def test_names_of_the_catalogue_stand_for_objects() -> None:
    found = changed(
        BASE,
        {"workload.model": "llama3-70b", "hardware.accelerator": "H100", "network.switches[0]": "51.2T-64x800G",
         "reliability": "llama3-2024"},
    )  # fmt: skip
    assert (found.workload.model.name, found.hardware.accelerator.name) == ("llama3-70b", "H100")
    assert found.network is not None and found.reliability is not None
    assert found.network.switches[0].name == "51.2T-64x800G"


def test_changes_behind_a_name_are_of_what_it_names() -> None:
    """Half as much memory again, of the accelerator that was named before it."""
    plain = changed(BASE, {"hardware.accelerator": "H100"}).hardware.accelerator
    more = changed(BASE, {"hardware.accelerator": "H100", "hardware.accelerator.hbm_bytes": "x1.5"})
    assert more.hardware.accelerator.hbm_bytes == pytest.approx(1.5 * plain.hbm_bytes)
    assert more.hardware.accelerator.hbm_bytes != 1.5 * changed(BASE, {}).hardware.accelerator.hbm_bytes


def test_a_path_is_changed_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"layout\.tensor_parallel: is changed twice"):
        changed(BASE, {"tp": 8, "layout.tensor_parallel": 4})
    out = str(tmp_path / "rows.jsonl")
    options = ["--vary", "limits.budget_usd=1e9,2e9", "--set", "limits.budget_usd=x2"]
    run = CliRunner().invoke(main.app, ["sweep", str(BASE), "-o", out, *options])
    assert "limits.budget_usd: is both set and varied" in str(run.exception)


def test_a_minus_sign_is_a_difference_and_two_equals_signs_a_value() -> None:
    """-77 takes 77 away on the command line and ==-77 sets it; in the library a number is the value itself."""
    found = read_changes(["a=-77", "b==-77", "c=+1e3", "d=none", "e=1e3"])
    assert found == {"a": "-77", "b": -77, "c": "+1e3", "d": "none", "e": 1000.0}


def test_pins_and_entries_of_lists() -> None:
    """A pin by its short name, a node by its id; None takes a value away."""
    base = changed(BASE, {})
    assert base.grid is not None
    node = base.grid.nodes[0]
    path = f"grid.nodes[{node.id}].load_mw"
    found = changed(BASE, {"tp": 8, path: 1.5, "limits.budget_usd": None})
    assert found.grid is not None
    assert found.pins["layout.tensor_parallel"] == 8
    assert found.grid.nodes[0].load_mw == 1.5
    assert found.limits.budget_usd is None


@each(
    ("changes", "words"),
    [
        ({"limits.budgt_usd": "x2"}, ["two-sites-405b.json: limits.budgt_usd", "did you mean limits.budget_usd"]),
        ({"limits.deadline_days": "x2"}, ["limits.deadline_days=x2", "is not in the instance", "give the value"]),
        ({"grid.nodes[0].id": "+1"}, ["grid.nodes[0].id=+1", "not a number"]),
        ({"limits.budget_usd": "x1.2%"}, ["no percent sign"]),
        ({"limits.budget_usd": -5}, ["two-sites-405b.json", "limits.budget_usd", "greater than 0"]),
        ({"hardware.accelerator": "H1000"}, ["hardware.accelerator", "'H1000'", "did you mean 'H100'"]),
        ({"limits": 3}, ["limits", "must be an object"]),
    ],
)
def test_what_cannot_be_changed_is_named(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        changed(BASE, changes)
    assert all(w in str(error.value) for w in words), str(error.value)


@each("text", ["limits.budget_usd", "=3", "limits.budget_usd="])
def test_options_without_path_or_value_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"PATH=x1\.2"):
        read_changes([text])
    with pytest.raises(InputError, match="given twice"):
        read_changes(["a=1", "a=2"])


def test_the_command_line_and_the_library_agree(tmp_path: Path) -> None:
    """`evaluate --set` predicts what the library does of the same change, and the plan of `solve --set` holds it."""
    layout = {"tp": 8, "pp": 9, "dp": 1, "virtual_stages": 1, "microbatch_sequences": 1, "microbatches_per_step": 64}
    rack, more = ROOT / "instances" / "one-rack.json", {"workload.tokens": "x3"}
    pins = [x for k, v in layout.items() for x in ("--pin", f"{k if len(k) == 2 else 'layout.' + k}={v}")]
    run = CliRunner().invoke(main.app, ["evaluate", str(rack), *pins, "--set", "workload.tokens=x3", "--json"])
    ours = planner.evaluate(planner.changed(rack, more), layout)
    assert json.loads(run.stdout)["layout"]["metrics"]["days_to_train"] == ours.layout.metrics.days_to_train
    base = planner.evaluate(rack, layout).layout.metrics.days_to_train
    assert ours.layout.metrics.days_to_train == pytest.approx(3 * base)
    out = tmp_path / "plan.json"
    pin = ["--pin", "tp=8", "--pin", "pp=9", "--pin", "layout.data_parallel=1"]
    run = CliRunner().invoke(main.app, ["solve", str(rack), *pin, "--set", "workload.tokens=x3", "-q", "-o", str(out)])
    tokens = planner.changed(rack, more).workload.tokens
    assert json.loads(out.read_text())["instance"]["workload"]["tokens"] == tokens
