"""Axes of a sweep and values changed: what each form means, which paths exist, and the remedy for those that do not."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import invoke, refusal
from each_case import each

import planner
from planner.errors import InputError
from planner.planning.load import load_instance
from planner.sweeps import axes
from planner.sweeps.sweep_run import SweepOptions, tasks_for

ROOT = Path(__file__).parents[2]
MAIN = load_instance(ROOT / "instances" / "5gw.json")
RACK = load_instance(ROOT / "instances" / "one-rack.json")


@each(("spec", "values"), [
    ("1:4:1", [1, 2, 3, 4]), ("4:1:-1.5", [4.0, 2.5, 1.0]), ("20e9:200e9:10e9", [k * 1e10 for k in range(2, 21)]),
    ("0.1:0.3:0.1", [0.1, 0.2, 0.3]), ("1:9:3", [1, 4, 7]), ("1:16:x2", [1, 2, 4, 8, 16]),
    ("8:1:x0.5", [8.0, 4.0, 2.0, 1.0]), ("1:10:x3", [1, 3, 9]), ("log:1:100:3", [1.0, 10.0, 100.0]),
    ("lin:0:1:5", [0.0, 0.25, 0.5, 0.75, 1.0]), ("1,2,4", [1, 2, 4]), ("none,full", ["none", "full"]),
    ("GB200", ["GB200"]), ("true,false", [True, False]), ("[1,2],[3]", [[1, 2], [3]]),
])  # fmt: skip
def test_forms(spec: str, values: list[Any]) -> None:
    """Each form of range has the values that it says, both ends where a step meets them; whole ones can be pinned."""
    parsed = axes.parse_values("x", spec)
    assert (parsed, list(map(type, parsed))) == (values, list(map(type, values)))


@each(("spec", "problem"), [
    ("1:2:0", "a step of 0 never leads from 1 to 2; give another step"),
    ("2:1:1", "a step of 1 never leads from 2 to 1; change its sign, or swap the ends"),
    ("1:2:x1", "a factor of 1 never leads from 1 to 2; give another factor"),
    ("1:8:x0.5", "a factor of 0.5 never leads from 1 to 8; take its inverse, or swap the ends"),
    ("-1:8:x2", "above 0 (one is -1)"),
    ("1:2", "no step"), ("log:1:2", "log:START:STOP:COUNT"), ("log:0:2:3", "above 0"),
    ("lin:0:2:1.5", "whole number from 2"), ("log:1:2:1", "whole number from 2"),
    ("1:x:3", "'x' is not a finite number"), ("1:inf:1", "'inf' is not a finite number"),
    ("0:1:1e-9", "take a larger step"),
])  # fmt: skip
def test_ranges_that_say_nothing(spec: str, problem: str) -> None:
    """A range that cannot be meant is refused, and the message shows it and what to write."""
    with pytest.raises(InputError, match=r"limits\.budget_usd=") as caught:
        axes.parse_values("limits.budget_usd", spec)
    assert problem in str(caught.value)


def test_axes_make_a_grid_and_pairs_are_one_axis(tmp_path: Path) -> None:
    """Two axes make every combination, the last fastest; points of a file stay together."""
    assert axes.points_of({"a": [1, 2], "b": [3, 4]}) == [{"a": x, "b": y} for x in (1, 2) for y in (3, 4)]
    table, lines = tmp_path / "p.csv", tmp_path / "p.jsonl"
    table.write_text("limits.budget_usd,layout.zero_stage\n1e9,0\n2e9,1\n")
    lines.write_text('{"limits.budget_usd": 1e9, "layout.zero_stage": 0}\n{"name": "a\u2028\u2029\u0085b"}\n', "utf-8")
    pairs = axes.read_pairs(table)
    assert pairs == [{"limits.budget_usd": (n + 1) * 1e9, "pins.layout.zero_stage": n} for n in (0, 1)]
    assert axes.read_pairs(lines) == [pairs[0], {"name": "a\u2028\u2029\u0085b"}]
    assert len(axes.points_of({"hardware.racks": "1:3:1"}, pairs)) == 6


@each(("name", "text", "problem"), [
    ("p.csv", "a,b\n1\n", "line 2: has 1 cells where the header has 2"),
    ("p.jsonl", "{}\n", "line 1"),
    ("p.jsonl", "{'a'", "p.jsonl: line 1: column 2: Expecting"),
    ("p.jsonl", f"[{'1, ' * 30}1]\n", f"(is [{'1, ' * 19}1,); give"),  # no more of a long line than its begin
    ("p.csv", "a\n", "no points"),
])  # fmt: skip
def test_bad_pairs_are_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    """A file of points with a bad line is refused by file and line."""
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=name) as caught:
        axes.read_pairs(tmp_path / name)
    assert problem in str(caught.value)


@each(("name", "text", "problem"), [
    ("p.csv", "limits.budget\n1e9\n", "p.csv: line 1: limits.budget: no such key"),
    ("p.jsonl", '{"limits.budget_usd": 1e9}\n{"limits.budgt": 1}\n', "p.jsonl: line 2: limits.budgt: no such key"),
    ("p.csv", "limits.budget_usd\n1e9\n-3\n", "p.csv: line 3: point 1 (limits.budget_usd=-3): "),
    ("p.jsonl", '{"network.max_tiers": 0}\n', "p.jsonl: line 1: point 0 (network.max_tiers=0): "),
])  # fmt: skip
def test_a_pair_that_does_not_fit_is_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    """A path or a value of a file of points that the instance does not take is refused by file and line."""
    (tmp_path / name).write_text(text)
    found = refusal(invoke("sweep", "cluster-1k", "--pairs", tmp_path / name, "-o", tmp_path / "out.jsonl"))
    assert found.startswith(f"{tmp_path / name}"[: -len(name)] + problem)


def test_one_path_on_two_axes_is_refused() -> None:
    """A path and the same pin under its short name are one decision."""
    with pytest.raises(InputError, match="two axes"):
        axes.points_of({"layout.zero_stage": [0], "pins.layout.zero_stage": [1]})
    with pytest.raises(InputError, match="nothing varies"):
        axes.points_of({})


@each(("path", "problem"), [
    ("limits.budget", "did you mean limits.budget_usd?"),
    ("hardware.budget_usd", "did you mean limits.budget_usd?"),
    ("limit.budget_usd", "did you mean limits"),
    ("layout.tensor_paralel", "did you mean 'layout.tensor_parallel'?"),
    ("sites.racks.keyston", "did you mean 'sites.racks.keystone'?"),
    ("network.switches[9].price_usd", "has 4 entries"),
    ("network.switches[51.2T-64x80G].price_usd", "did you mean '51.2T-64x800G'?"),
    ("network.switches", "name one value inside"),
    ("limits.budget_usd.x", "limits.budget_usd is a single value"),
    ("limits..budget_usd", "must be a dotted path"),
    ("network.switches[²].price_usd", "'²'"),
    ("workload.software.pipeline_overlap", "is no key any more; in workload.software give sends among overlaps"),
    ("workload.software.dispatch_seconds", "give all_to_all_seconds, deep_ep_seconds or hybrid_ep_seconds"),
])  # fmt: skip
def test_wrong_paths_are_named(path: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        axes.check_path(MAIN, path)
    assert problem in str(caught.value)


def test_a_hint_is_a_path_of_the_entry_that_it_means() -> None:
    """An entry whose id is a number, as that of a bus is, is hinted by its place, as which a number is read."""
    grid = MAIN.grid
    assert grid is not None
    named = tuple(node.replaced(id=f"{i + 1}") for i, node in enumerate(grid.nodes))
    buses = MAIN.replaced(grid__nodes=named)
    with pytest.raises(InputError, match=r"did you mean grid\.nodes\[0\]\.latitude\?"):
        axes.check_path(buses, "latitude")
    assert axes.check_path(buses, "grid.nodes[0].latitude") == grid.nodes[0].latitude


def test_a_change_keeps_null_elsewhere() -> None:
    """Null is a value of its own where a key has another one by default: any number of rails may share a leaf."""
    free, change = MAIN.replaced(network__max_rails_per_leaf=None), {"limits.budget_usd": 9e9}
    (task,) = tasks_for(free, [change], SweepOptions())
    for found in (planner.changed(free, change), load_instance(task.data)):
        assert found == free.replaced(limits__budget_usd=9e9)


def test_every_leaf_can_be_set() -> None:
    """All paths of the main instance pass the check, and what is put there is there alone."""
    plain = MAIN.model_dump(mode="json")
    paths = sorted(axes.asked_values(MAIN))
    assert len(paths) > 200 and "limits.deadline_days" in paths
    for path in paths:
        axes.check_path(MAIN, path)
        data = json.loads(json.dumps(plain))
        axes.put(data, MAIN, path, "here")
        before, after = (json.dumps(d).split('"here"') for d in (plain, data))
        assert (len(before), len(after)) == (1, 2)


@each(("count", "parts"), [(19, 4), (3, 5), (8, 8), (0, 2)])
def test_shards_part_the_points(count: int, parts: int) -> None:
    """Every point is in exactly one shard, neighbours together and sizes as even as can be."""
    shards = [axes.in_shard(count, (i, parts)) for i in range(1, parts + 1)]
    assert [i for part in shards for i in part] == list(range(count))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@each("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/3"])
def test_bad_shards_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="I/N"):
        axes.shard_of(text)
    assert [axes.shard_of(x) for x in ("1/2", "2/2")] == [(1, 2), (2, 2)]


BASE = ROOT / "instances" / "two-sites-405b.json"


@each(
    ("change", "budget"),
    [("x1.2", 3.6e9), ("+20%", 3.6e9), ("-20%", 2.4e9), ("+1e8", 3.1e9), ("-1e8", 2.9e9), (5e9, 5e9), ("x0.1", 3e8)],
)
def test_a_number_moves_as_written(change: Any, budget: float) -> None:
    """Three billion dollars, by a factor, a share, a difference, and outright."""
    assert axes.changed(BASE, {"limits.budget_usd": change}).limits.budget_usd == pytest.approx(budget, rel=1e-12)


def test_moved_whole_numbers_stay_whole() -> None:
    """A model of 126 layers has 63 at half of them, and the rest of the instance stays."""
    base, half = axes.changed(BASE, {}), axes.changed(BASE, {"workload.model.layers": "x0.5"})
    assert (base.workload.model.layers, half.workload.model.layers) == (126, 63)
    assert axes.changed(half, {"workload.model.layers": 126}) == base


def test_names_of_the_catalogue_stand_for_objects() -> None:
    """What is changed behind a name is of what it names; lists that an instance leaves out have their default."""
    named = {"workload.model": "llama3-70b", "hardware.accelerator": "H100", "network.switches[0]": "51.2T-64x800G"}
    more = {"hardware.accelerator.hbm_bytes": "x1.5", "workload.software.recompute_modules[0]": "mlp"}
    plain, found = axes.changed(BASE, named), axes.changed(BASE, named | more | {"reliability": "llama3-2024"})
    assert (found.workload.model.name, found.hardware.accelerator.name) == ("llama3-70b", "H100")
    assert found.network is not None and found.reliability is not None
    assert found.network.switches[0].name == "51.2T-64x800G"
    assert found.hardware.accelerator.hbm_bytes == pytest.approx(1.5 * plain.hardware.accelerator.hbm_bytes)
    assert plain.hardware.accelerator.hbm_bytes != axes.changed(BASE, {}).hardware.accelerator.hbm_bytes
    assert found.workload.software.recompute_modules == ("mlp",)  # type: ignore[union-attr]


def test_a_path_is_changed_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"layout\.tensor_parallel: is changed twice"):
        axes.changed(BASE, {"tp": 8, "layout.tensor_parallel": 4})
    out = str(tmp_path / "rows.jsonl")
    options = ["--vary", "limits.budget_usd=1e9,2e9", "--set", "limits.budget_usd=x2"]
    run = invoke("sweep", BASE, "-o", out, *options)
    assert "limits.budget_usd: is both set and varied" in str(run.exception)


def test_a_minus_sign_is_a_difference_and_two_equals_signs_a_value() -> None:
    """-77 takes 77 away on the command line and ==-77 sets it; in the library a number is the value itself."""
    found = axes.read_changes(["a=-77", "b==-77", "c=+1e3", "d=none", "e=1e3"])
    assert found == {"a": "-77", "b": -77, "c": "+1e3", "d": "none", "e": 1000.0}


def test_pins_and_entries_of_lists() -> None:
    """A pin by its short name, a node by its id; None takes a value away."""
    base = axes.changed(BASE, {})
    assert base.grid is not None
    node = base.grid.nodes[0]
    path = f"grid.nodes[{node.id}].load_mw"
    found = axes.changed(BASE, {"tp": 8, path: 1.5, "limits.budget_usd": None})
    assert found.grid is not None
    assert found.pins["layout.tensor_parallel"] == 8
    assert found.grid.nodes[0].load_mw == 1.5
    assert found.limits.budget_usd is None
    assert axes.changed(found, {"tp": None}).pins == base.pins
    # Where none is no value of a key, it has what a file without the key has.
    usual = axes.changed(BASE, {"network.max_tiers": None}).network
    assert usual is not None and usual.max_tiers == 4
    several = axes.changed(BASE, {"hardware.alternatives": [{"accelerator": "H100", "rack": "DGX-H100"}]})
    assert len(several.hardware.alternatives) == 1 and axes.changed(several, {"hardware.alternatives": None}) == base


@each(("changes", "words"), [
    ({"limits.budgt_usd": "x2"}, ["two-sites-405b.json: limits.budgt_usd", "did you mean limits.budget_usd"]),
    ({"limits.deadline_days": "x2"}, ["limits.deadline_days=x2", "is not in the instance", "give the value"]),
    ({"grid.nodes[0].id": "+1"}, ["grid.nodes[0].id=+1", "not a number"]),
    ({"limits.budget_usd": "x1.2%"}, ["no percent sign"]),
    ({"limits.budget_usd": -5}, ["two-sites-405b.json", "limits.budget_usd", "greater than 0"]),
    ({"hardware.accelerator": "H1000"}, ["hardware.accelerator", "'H1000'", "did you mean 'H100'"]),
    ({"hardware.rack": "GB200"}, ["hardware.rack", "did you mean 'GB200-NVL72'"]),
    ({"limits": 3}, ["limits", "must be an object"]),
    ({"network.optics": None}, ["two-sites-405b.json with network.optics=null: network.optics: is missing; add it"]),
])  # fmt: skip
def test_what_cannot_be_changed_is_named(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        axes.changed(BASE, changes)
    assert all(w in str(error.value) for w in words), str(error.value)


def test_a_change_gives_what_a_file_leaves_out() -> None:
    """Tokens and racks that stand in no file; a wrong key beside them is named with the nearest."""
    data = json.loads((ROOT / "instances" / "cluster-1k.json").read_text(encoding="utf-8"))
    wanted = {"workload.tokens": data["workload"].pop("tokens"), "hardware.racks": data["hardware"].pop("racks")}
    assert axes.changed(data, wanted) == axes.changed(ROOT / "instances" / "cluster-1k.json", wanted)
    with pytest.raises(InputError, match=r"workload.tokens: is missing(.|\n)*did you mean 'tokens'"):
        axes.changed(data, {"workload.token": 1e12})


@each(("option", "form"), [("--set", r"PATH=x1\.2"), ("--vary", "PATH=VALUES")])
def test_options_without_path_or_value_are_refused(option: str, form: str) -> None:
    for text in ("limits.budget_usd", "=3", "limits.budget_usd="):
        with pytest.raises(InputError, match=form):
            axes.values_by_path(option, [text])
    with pytest.raises(InputError, match="given twice"):
        axes.values_by_path(option, ["a=1", "a=2"])


def test_the_command_line_and_the_library_agree() -> None:
    """`evaluate --set` predicts what the library does of the same change."""
    layout = {"tp": 8, "pp": 9, "dp": 1, "virtual_stages": 1, "microbatch_sequences": 1, "microbatches_per_step": 64}
    rack, more = ROOT / "instances" / "one-rack.json", {"workload.tokens": "x3"}
    pins = [x for k, v in layout.items() for x in ("--pin", f"{k if len(k) == 2 else 'layout.' + k}={v}")]
    run = invoke("evaluate", rack, *pins, "--set", "workload.tokens=x3", "--json")
    ours = planner.evaluate(planner.changed(rack, more), layout)
    assert json.loads(run.stdout)["layout"]["metrics"]["days_to_train"] == ours.layout.metrics.days_to_train
    base = planner.evaluate(rack, layout).layout.metrics.days_to_train
    assert ours.layout.metrics.days_to_train == pytest.approx(3 * base)
