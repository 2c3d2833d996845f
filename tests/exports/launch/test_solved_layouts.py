"""Plans that were solved for a framework: its export neither refuses nor changes the layout, on 20 public models."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from stored_plans import stored
from tiers import more, slow

import planner
from planner.exports.launch import FORMS, STACKS, launch_file, nearest_choices, run_of
from planner.exports.runnable_layout import runnable_layout
from planner.imports.huggingface import read_config
from planner.imports.recipes import layout_of_run, run_of_text
from planner.physics.training.parallel_strategy import layout_values, strategy_of

ROOT = Path(__file__).parents[3]
SEQUENCE = 4096
RACKS = {  # of 8 H100 each; mixtures that DeepSpeed's configuration has no words for are left to the others
    "llama-2-7b": (2, "megatron nemo torchtitan deepspeed"),
    "llama-3.1-8b": (2, "megatron nemo torchtitan deepspeed"),
    "llama-3.1-70b": (8, "megatron nemo torchtitan deepspeed"),
    "mixtral-8x7b": (2, "megatron nemo torchtitan"),
    "qwen3-30b-a3b": (2, "nemo torchtitan"),
    "gpt-oss-20b": (2, "megatron nemo torchtitan"),
}
CASES = [(model, framework) for model, (_, names) in RACKS.items() for framework in names.split()]
QUICK = [("llama-2-7b", "torchtitan"), ("llama-2-7b", "deepspeed")]
SLOW = [("mixtral-8x7b", "megatron"), ("llama-3.1-70b", "nemo")]


def asked(config: str, framework: str) -> dict[str, Any]:
    """Return a question of some H100 nodes for a public configuration under a framework's rules."""
    file, racks = ROOT / "tests" / "imports" / "hf_configs" / f"{config}.json", RACKS[config][0]
    model = read_config(json.loads(file.read_text())["config"], str(file), config)
    given: dict[str, Any] = json.loads((ROOT / "instances" / "cluster-1k.json").read_text())
    given = {key: value for key, value in given.items() if key not in ("network", "pins", "reliability")}
    given["workload"] |= {"software": STACKS[framework], "sequence_length": SEQUENCE, "tokens": 1e12}
    given["workload"]["model"] = model.model_dump(mode="json", exclude_none=True)
    given["hardware"]["racks"], given["limits"] = racks, {"max_batch_tokens": SEQUENCE * 8 * racks}
    return given


def test_replicas_at_several_sites_are_read_back_with_the_plan(tmp_path: Path) -> None:
    """Flags have no sites; of a plan with as many replicas they are the plan's, and so is the exchange at a site."""
    plan = stored("two-sites-405b")
    (own := tmp_path / "own.sh").write_text(launch_file(run_of(plan, "plan"), "megatron"))
    (file := tmp_path / "plan.json").write_text(plan.model_dump_json())
    found = invoke("evaluate", file, "--from-flags", own, "--json")
    parts, asked_for = json.loads(found.stdout)["breakdown_seconds"], plan.layout
    assert asked_for is not None and len(asked_for.data_parallel_by_site) == 2
    assert parts["data_parallel"] == pytest.approx(asked_for.metrics.breakdown_seconds["data_parallel"])


@pytest.mark.parametrize(
    ("config", "framework"), [*QUICK, *slow(*SLOW), *more(*(case for case in CASES if case not in QUICK + SLOW))]
)
def test_the_export_is_the_plan(config: str, framework: str) -> None:
    given = asked(config, framework)
    plan = planner.solve(given)
    assert plan.status == "optimal" and plan.verified
    run = run_of(plan, config)
    assert nearest_choices(run, framework) == {} and runnable_layout(plan, run, framework) is None
    back = run_of_text(launch_file(run, framework), Path(f"own.{FORMS[framework]}"))
    read = layout_of_run(back, plan.instance, "own")
    again = planner.evaluate(plan.instance, {path.removeprefix("layout."): value for path, value in read.items()})
    own, other = (layout_values(strategy_of(x)) for x in (plan.layout, again.layout))
    untold = {"replicas_per_rack", "stages_per_rack"} | ({"sequence_parallel"} if framework == "deepspeed" else set())
    assert {k: v for k, v in other.items() if k not in untold} == {k: v for k, v in own.items() if k not in untold}
