"""The first steps of a user: version, names, a first instance, files of another kind, shipped instances."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import invoke, refusal, run_apart
from each_case import each
from worked_plan import with_entries

import planner
from planner.errors import InputError
from planner.formats.yaml_text import read_yaml_data
from planner.imports.command_options import Wish
from planner.imports.instance_file import FABRIC_PARTS, first_instance, shipped_folder
from planner.instance.catalogue_entries import catalogue, racks_with
from planner.instance.plausible_ranges import implausible
from planner.planning.load import load_instance
from planner.report.tables import KINDS
from planner.sweeps.axes import canonical

ROOT = Path(__file__).parents[2]
JOB = {"name": "j", "mesh": {"data": 4}}


def test_version_and_help() -> None:
    """Help loads nothing heavy: it takes the processor well below a third of a second."""
    assert invoke("--version").output == f"planner {planner.__version__}\n"
    before, shown, after = os.times(), run_apart("--help"), os.times()
    assert shown.returncode == 0 and "Exit status: 0 done" in shown.stdout and "3 proven" in shown.stdout
    assert "--install-completion" in shown.stdout
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 1.0  # 0.15 s where nothing else runs


def test_catalogue_of_all_and_of_one() -> None:
    """All kinds without an argument, one entry whole, the instances that ship; others are refused with the nearest."""
    files = {p.stem for p in (ROOT / "planner" / "catalogue").glob("*.json")}
    # Of predictions, of racks, in whose table it is, of first instances, of frameworks and of other tools: nothing
    # names their entries.
    unnamed = {"step_errors", "constant_support", "plausible_ranges", "rack_accelerators", "fabric_parts"}
    unnamed |= {"flag_effects", "framework_keys", "framework_rules", "config_families", "allowed_ranges"}
    unnamed |= {"first_places", "grid_tables", "netbox", "node_labels", "run_columns", "slurm_names"}
    listed = {line.split()[0] for line in invoke("catalogue").output.splitlines()}
    assert listed == set(KINDS) == (files - unnamed) | {"instances"}
    for kind in ("models", "accelerators", "racks", "switches", "media", "precisions", "software"):
        names = [line.split()[0] for line in invoke("catalogue", kind).output.splitlines()]
        assert names[1:] == list(catalogue(kind)) == list(json.loads(invoke("catalogue", kind, "--json").output))
    assert json.loads(invoke("catalogue", "racks", "DGX-H100").output)["gpus"] == 8
    listed = {line.split()[0] for line in invoke("catalogue", "instances").output.splitlines()}
    assert listed == {path.stem for path in shipped_folder().glob("*.json")}
    for words, complaint in (("model",), "did you mean 'models'?"), (("racks", "DGX"), "catalogue racks: 'DGX'"):
        assert complaint in refusal(invoke("catalogue", *words))
    assert "must be one of instance, job, placement, plan" in refusal(invoke("schema", "moon"))


@each("accelerator", sorted(x for x in catalogue("accelerators") if racks_with(x)))
def test_first_instances_load(accelerator: str) -> None:
    dtypes = catalogue("accelerators")[accelerator]["peak_flop_per_second"]
    for sites in (0, 2):
        text = first_instance(Wish(accelerator=accelerator, sites=sites, budget=3e9))
        instance = load_instance(read_yaml_data(text, "first"))
        assert instance.workload.precision.compute == "bf16" and "bf16" in dtypes
        assert (instance.grid is not None) == bool(sites)
        assert instance.limits.budget_usd == 3e9 and list(implausible(instance)) == []
        assert len(text.splitlines()) < 45 and text.count("#") >= 5
        racks = {"B200": "DGX-B200", "GB200": "GB200-NVL72", "A100-40GB": "DGX-A100"}
        assert f"rack: {racks.get(accelerator, '')}" in text
    assert all(set(switches) <= set(catalogue("switches")) for switches, *_ in FABRIC_PARTS.values())


@pytest.mark.slow
def test_a_first_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Init, solve, check and show give the same plan twice but for seconds; a changed one ends with 1 and its rule."""
    monkeypatch.chdir(tmp_path)
    assert invoke("init", "-o", "own.yaml").exit_code == 0
    solved = invoke("solve", "own.yaml", "-q", "-o", "own.json")
    assert (solved.exit_code, solved.stderr) == (0, "") and "LAYOUT" in solved.stdout
    assert (invoke("check", "own.json").output, invoke("show", "own.json").output) == ("", solved.stdout)
    written = Path("own.json").read_text().splitlines()
    again = invoke("solve", "own.yaml", "--json").stdout.splitlines()
    assert [x for x in written if '"seconds"' not in x] == [x for x in again if '"seconds"' not in x]
    plan, instance = json.loads("".join(written)), load_instance("own.json")  # a plan may stand for its instance
    assert instance.model_dump(mode="json") == plan["instance"]
    assert "own.yaml: is there already; name another file, or give --force" in refusal(invoke("init", "-o", "own.yaml"))
    plan["layout"]["metrics"]["step_seconds"] *= 0.99
    Path("changed.json").write_text(json.dumps(plan))
    checked = invoke("check", "changed.json")
    assert checked.exit_code == 1 and "step_seconds" in checked.stdout


PINNED = [f"--pin=layout.{key}" for key in ("tensor_parallel=1", "pipeline_parallel=1", "zero_stage=0")]
DEADLINE = ["Rule in conflict (layout): limits.deadline_days.", "Proven over the declared space"]


@pytest.mark.slow
@each(("words", "told"), [
    (PINNED, ["pins.layout.tensor_parallel", "pins.layout.pipeline_parallel", "pins.layout.zero_stage"]),
    (["--set=limits.deadline_days=0.01"], DEADLINE),
])  # fmt: skip
def test_what_no_plan_meets_is_named(words: list[str], told: list[str], tmp_path: Path) -> None:
    """Pins or a deadline that allow no plan end in exit code 3 and their names; the plan that is written says so."""
    done = invoke("solve", "one-rack", *words, "-o", tmp_path / "plan.json")
    assert (done.exit_code, done.stderr) == (3, "") and all(text in done.stdout for text in told)
    assert '"infeasible"' in (tmp_path / "plan.json").read_text()
    assert invoke("check", tmp_path / "plan.json").exit_code == 0


@pytest.mark.slow
def test_a_limit_of_time_still_gives_a_plan(tmp_path: Path) -> None:
    """A limit shorter than the search for a first plan gives that plan with its gap, and says how long it took."""
    done = invoke("solve", "cluster-1k", "--time-limit", "0.001", "-o", tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert (done.exit_code, plan["status"], plan["stopped"]) == (4, "feasible", "limit")
    assert 0 < plan["objective"]["gap"] < 1 and " s instead of 0.001" in done.stdout
    assert invoke("check", tmp_path / "plan.json").exit_code == 0


def test_a_first_instance_of_ones_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = json.loads((ROOT / "tests" / "imports" / "hf_configs" / "qwen2.5-7b.json").read_text())["config"]
    (tmp_path / "qwen.json").write_text(json.dumps(config))
    (tmp_path / "below").mkdir()
    assert invoke("init", "--model", "qwen.json", "-o", "below/own.yaml").exit_code == 0
    instance = load_instance("below/own.yaml")
    assert getattr(instance.workload.model, "name", "") == "qwen"
    assert instance.workload.tokens == pytest.approx(20 * 7.07e9, rel=0.02)


@each("name", ["x\nlimits: {budget_usd: 5}", "true", "on", "5", "1e3", "a: b # c", "é '\"", "-", " a"])
def test_a_name_is_only_a_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a name holds, the file has it as the name, and no other key for it; so have tools that read YAML 1.1."""
    monkeypatch.chdir(tmp_path)
    assert invoke("init", "--sites", "1", "--name", name, "-o", "own.yaml").exit_code == 0
    instance = load_instance("own.yaml")
    assert (instance.name, instance.limits.budget_usd) == (name, 3e9)
    read = yaml.safe_load((tmp_path / "own.yaml").read_text())
    assert read["name"] == name and read["grid"]["rules"]["interconnect"]["enabled"] is True


@each(("words", "complaint"), [
    (("--sites", "9"), "--sites: must be from 0 (one cluster) to 5 (is 9)"),
    (("--sites", "2", "--racks", "4"), "--racks 4: power and budget decide the racks of sites"),
    (("--budget", "3e7"), "--budget: must be at least 32,000,000, the price of 64 DGX-B200 without a fabric"),
    (("--accelerator", "TPU-v7x"), "--accelerator: no rack of the catalogue has 'TPU-v7x'"),
    (("--model", "llama3"), "--model: 'llama3' is not in the catalogue; did you mean 'llama3-70b'?"),
    (("--accelerator", "B20"), "--accelerator: 'B20' is not in the catalogue; did you mean 'B200'?"),
    (("--model", "none/config.json"), "none/config.json: no such file"),
    (("-o", "x.json"), "x.json: must end in .yaml, which has comments; rename it"),
])  # fmt: skip
def test_bad_wishes(words: tuple[str, ...], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wish that cannot be met is named with its option, value and remedy."""
    monkeypatch.chdir(tmp_path)
    assert complaint in refusal(invoke("init", *words))


@each(("words", "output"), [(["init", "mine.yaml"], True), (["solve", "a", "b"], True), (["check", "a", "b"], False)])
def test_a_file_too_many_may_be_the_one_to_write(words: list[str], output: bool) -> None:
    """Where a command has -o the message says so: an output takes no place of its own."""
    done = invoke(*words)
    assert done.exit_code == 2 and f"unexpected extra argument(s) ({words[-1]})" in done.stderr
    assert ("; a file to write is given as -o FILE\n" in done.stderr) == output


def test_shipped_instances_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that ships is found by its name from any folder; a file of that name comes first."""
    monkeypatch.chdir(tmp_path)
    assert load_instance("5gw").name == load_instance("5gw.json").name
    (tmp_path / "cluster-1k").write_text(json.dumps({"name": "x"}))
    with pytest.raises(InputError, match="cluster-1k: workload: is missing"):
        load_instance("cluster-1k")
    with pytest.raises(InputError, match=r"5gv: no such file, and no instance that ships; did you mean '5gw'\?"):
        load_instance("5gv")


YAML = """\
# a comment
$schema: https://example.org/instance.schema.json
name: "1e3"  # quoted: a text
limits: {max_batch_tokens: 16e6}
workload: {model: llama3-70b, tokens: 1_000e9, sequence_length: 8_192, precision: fp8}
hardware: {accelerator: H100, rack: DGX-H100, racks: +16}
pins: {tp: 8, layout.pp: 4, layout.sequence_parallel: true}
"""


def test_yaml(tmp_path: Path) -> None:
    """YAML with comments, its numbers as people write them, `$schema`, presets of precision and short names."""
    (tmp_path / "own.yaml").write_text(YAML)
    instance = load_instance(tmp_path / "own.yaml")
    assert (instance.name, instance.limits.max_batch_tokens, instance.workload.tokens) == ("1e3", 16e6, 1e12)
    assert (instance.workload.precision.compute, instance.hardware.racks) == ("fp8", 16)
    pins = {"tensor_parallel": 8, "pipeline_parallel": 4, "sequence_parallel": True}
    assert instance.pins == {f"layout.{name}": value for name, value in pins.items()}


@each(("text", "value"), [
    ("3e9", 3e9), ("-1.5", -1.5), ("1.", 1.0), (".5", 0.5), ("007", 7), ("1_000", 1000), ("true", True),
    ("null", None), ("~", None), ("yes", "yes"), ("2024-01-01", "2024-01-01"), ("'5'", "5"), ("e9", "e9"),
    ("\u0663E1", "\u0663E1"),  # a digit that JSON has not
])  # fmt: skip
def test_scalars_of_yaml(text: str, value: Any) -> None:
    """Plain scalars are what they would be in JSON; dates, yes and no are texts."""
    found = read_yaml_data(f"a: {text}\n", "x")["a"]
    assert found == value and type(found) is type(value)


@each(("text", "complaint"), [
    ("a: 1\na: 2\n", "own.yaml: line 2: 'a' is given twice in one mapping"),
    ("a: [1\n", "own.yaml: line 2: is no YAML"),
    ("a: 1\nb: ['x, y]\nc: 'z'\n", "line 3: is no YAML: while parsing a flow sequence from line 2; did not find"),
    ("a: &x 1\n", "own.yaml: line 1: anchor x is YAML that is not read here"),
    ("- 1\n", "own.yaml: must be a JSON object or a YAML mapping (is list)"),
    ("# later\n", "own.yaml: must be a JSON object or a YAML mapping (is empty)"),
    ("a: 1e999\n", "own.yaml: line 1: 1e999 is beyond the largest number"),
])  # fmt: skip
def test_bad_yaml(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_instance(tmp_path / "own.yaml")
    assert complaint in str(caught.value)
    (tmp_path / "own.json").write_text('{\n# mine\n"name": 1}')
    with pytest.raises(InputError, match=r"JSON has no comments: name the file \.yaml, which has"):
        load_instance(tmp_path / "own.json")


INSTANCE = json.loads((ROOT / "instances" / "one-rack.json").read_text())


@each(("command", "data", "lines"), [
    ("solve", JOB, ("x.json: is a job, where an instance is due", "place it: `planner place --topology FILE --job")),
    ("solve", {"model_type": "llama"}, ("x.json: is a Hugging Face config.json, where an instance is due", "name it")),
    ("check", INSTANCE, ("x.json: is an instance, where a plan is due", "make a plan of it: `planner solve x.json")),
    ("check", JOB, ("x.json: is a job, where a plan is due", "place it")),
    ("show", {"$defs": {}, "properties": {}}, ("x.json: is a JSON Schema, where a plan is due", "give a plan")),
])  # fmt: skip
def test_files_know_their_kind(command, data, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.json").write_text(json.dumps(data))
    first, second = refusal(invoke(command, "x.json")).splitlines()
    assert first == lines[0] and second.startswith(lines[1])
    told = refusal(invoke("check", "own.yaml"))
    assert "is YAML, where a plan (JSON) is due\nmake a plan of an instance" in told


def test_an_alias_and_its_name() -> None:
    with pytest.raises(InputError, match=r"layout\.tensor_parallel is pinned twice"):
        load_instance(INSTANCE | {"pins": {"tp": 8, "layout.tensor_parallel": 4}})
    assert canonical("tp") == canonical("layout.tp") == "pins.layout.tensor_parallel"
    layout = {"tp": 8, "pp": 9, "dp": 1}
    assert planner.evaluate(INSTANCE, layout).layout.pipeline_parallel == 9


SIZES = {"compute": "bf16", "gradient_bytes": 2, "optimizer_bytes": 8, "activation_bytes": 2, "collective_bytes": 2}
SOFT = {"a": {"usd_per_year": 1, "max_excess": 1}}
SMALLER = SIZES | {"parameter_bytes": 1, "working_parameter_bytes": 2}


@each(("name", "path", "value", "complaint"), [
    ("cluster-1k", "limits.max_batch_tokens", None, "is missing; give the critical batch in tokens"),
    ("cluster-1k", "hardware.racks", None, "is missing; give the racks of the one cluster, or a grid to choose them"),
    ("5gw-fibre", "hardware.overhead_includes_fabric", False, "set hardware.overhead_includes_fabric to true"),
    ("two-sites-405b", "grid.rules.soft", SOFT, "grid.rules.soft.a: no rule of that name can be soft"),
    ("two-sites-405b", "workload.precision", SMALLER, "of both copies"),
    ("5gw-best-6-months", "workload.choose.law", {"kind": "other"}, "workload.choose.law.kind: input should be"),
    ("5gw-fibre", "wan.fibre_edges", [], "wan.fibre_edges: is missing"),
])  # fmt: skip
def test_what_a_question_needs_is_said(name: str, path: str, value: Any, complaint: str) -> None:
    whole = json.loads((ROOT / "instances" / f"{name}.json").read_text())
    with pytest.raises(InputError) as caught:
        load_instance(with_entries(whole, {path: value}))
    assert complaint in str(caught.value) and path in str(caught.value)
    del whole["workload"]
    with pytest.raises(InputError, match="workload: is missing; add it, or ask `planner fabric design "):
        load_instance(whole)
