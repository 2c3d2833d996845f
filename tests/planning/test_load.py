"""Bad input is refused with file, path, value and remedy."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from stored_plans import stored
from worked_plan import small

import planner
from planner import changed
from planner.cli.schemas import SCHEMAS, schema_text
from planner.errors import InputError
from planner.instance.instance import instance_sha256
from planner.instance.read import BREAKDOWN_PARTS, RENAMED_KEYS, renames_in
from planner.plan.plan_files import read_plan
from planner.planning.evaluate import BEHIND
from planner.planning.load import load_instance

ROOT = Path(__file__).parents[2]


def data(name: str = "5gw") -> dict[str, Any]:
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
    d = data()
    d["workload"]["model"] = {"name": "m", "layers": 2, "hidden": 192_000, "heads": 280, "vocabulary": 10}
    with pytest.raises(InputError, match="300"):
        load_instance(d)


@pytest.mark.parametrize(
    ("text", "word"),
    [("{", "line 1"), ('{"a": 1, "a": 2}', "twice"), ('{"a": NaN}', "NaN"), ("[]", "JSON object"), ("\xff", "JSON")],
)
def test_malformed_file(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_instance(path)
    assert str(path) in str(error.value)
    assert word in str(error.value)


def test_missing_file_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"5gw\.json"):
        load_instance(ROOT / "instances" / "5qw.json")


def test_a_rack_of_one_megawatt_is_legal() -> None:
    """A rack of 1 MW is legal."""
    d = data()
    d["hardware"]["rack"] = {"name": "r", "gpus": 72, "it_kw": 1000, "price_usd": 1}
    assert load_instance(d).hardware.rack.it_kw == 1000  # type: ignore[union-attr]


def test_loading_twice_changes_nothing() -> None:
    once = load_instance(data())
    assert load_instance(once) == once


def as_version_1(x: Any) -> Any:
    """Return data of version 3 under the keys of version 1."""
    old = {
        "gemm_efficiency": "matrix_efficiency",
        "max_share": "most",
        "max_excess": "most",
        "min_aspect": "least_aspect",
    }
    old |= {"wan_gateway": "border", "schema_version": "schema_version"}
    old |= {"model_choice": "choice", "compute_shares": "lost", "pipeline_send_slowdown": "hop_slowdown"}
    if isinstance(x, dict):
        return {old.get(k, k): 1 if k == "schema_version" else as_version_1(v) for k, v in x.items()}
    return [as_version_1(v) for v in x] if isinstance(x, list) else x


def test_an_instance_of_version_1_is_told_what_to_rename(tmp_path: Path) -> None:
    """One line names the file, the paths of the old keys and their new names."""
    d = data()
    d["network"] |= {"wan_gateway": True}
    d["grid"]["rules"]["soft"] = {"headroom": {"usd_per_year": 1, "max_excess": 5}}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(as_version_1(d)))
    with pytest.raises(InputError) as error:
        load_instance(path)
    text = str(error.value)
    assert text.startswith(f"{path}: schema_version: must be 3 (is 1); rename ") and "\n" not in text
    assert "grid.rules.soft.headroom.most to max_excess" in text
    assert "network.border to wan_gateway" in text


def test_a_version_1_whose_keys_are_all_as_before_has_only_its_number_to_change() -> None:
    """A file without any renamed key needs the number 3 alone."""
    with pytest.raises(InputError, match="none of its keys has a new name, so write 3"):
        load_instance(data("one-rack") | {"schema_version": 1})


RULES = ("interconnect", "fault_split", "share_balance")


@pytest.mark.parametrize("rule", RULES)
def test_rules_of_version_2_are_read(rule: str) -> None:
    """A rule of version 2 says `on` for what is called enabled now: it binds as it did, in the newest version."""
    d = data()
    d["grid"]["rules"][rule] = {"enabled": True}
    new = load_instance(d)
    d["grid"]["rules"][rule] = {"on": True}
    assert load_instance(d | {"schema_version": 2}) == load_instance(d) == new
    assert new.schema_version == 3 and getattr(new.grid.rules, rule).enabled  # type: ignore[union-attr]
    assert "'on'" not in repr(new.model_dump())
    assert changed(new, {f"grid.rules.{rule}.on": "false"}).grid.rules != new.grid.rules  # type: ignore[union-attr]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_one_of_its_two_names(rule: str) -> None:
    d = data()
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
    plan["instance_sha256"] = instance_sha256(plan["instance"])
    path = tmp_path / "old.plan.json"
    path.write_text(json.dumps(plan))
    assert read_plan(path) == small() and planner.check(read_plan(path)) == []
    plan["instance"]["workload"]["tokens"] += 1
    path.write_text(json.dumps(plan))
    assert "instance_hash" in {v.rule for v in planner.check(read_plan(path))}


def test_an_old_key_without_a_version_has_its_new_name_in_the_hint() -> None:
    d = data()
    d["network"]["border"] = True
    with pytest.raises(InputError, match="'wan_gateway' since schema version 2"):
        load_instance(d)


def test_a_plan_of_version_1_is_told_what_to_rename(tmp_path: Path) -> None:
    """Keys that stand many times in a plan are named once, with how many more there are."""
    plan = stored(data("one-rack")).model_dump(mode="json")
    plan["layout"]["metrics"]["breakdown_seconds"] = {"matrix": 1.0, "host": 2.0}
    path = tmp_path / "old.plan.json"
    path.write_text(json.dumps(as_version_1(plan)))
    with pytest.raises(InputError) as error:
        read_plan(path)
    text = str(error.value)
    assert text.startswith(f"{path}: schema_version: must be 3 (is 1); rename ") and "\n" not in text
    for old in (
        "layout.assumptions.hop_slowdown to pipeline",
        "breakdown_seconds.matrix to gemm",
        "choice to model_choice",
    ):
        assert old in text
    assert "instance.hardware.accelerator.matrix_efficiency to gemm_efficiency," in text
    assert "instance.hardware.accelerator.matrix_efficiency.most to max_share" in text
    tiers = {"tiers": [{"name": "leaf"}, {"name": "super-core"}]}
    assert list(renames_in((), tiers)) == [(("tiers", 1, "name"), "super-spine")]


def test_every_new_name_is_a_key_of_a_schema() -> None:
    """The map of renamed keys leads to keys that exist, and a key renamed everywhere exists no more."""
    text = "".join(schema_text(what) for what in SCHEMAS)
    for (above, old), new in RENAMED_KEYS.items():
        assert above == "space" or (new in BEHIND if old in BREAKDOWN_PARTS else f'"{new}"' in text)
        assert above or f'"{old}":' not in text


def test_public_functions_are_no_modules() -> None:
    assert [name for name in planner.__all__ if find_spec(f"planner.{name}") is not None] == []
