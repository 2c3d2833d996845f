"""Layouts as frameworks' flags and back: round trips, Megatron-LM's own argument names, and what is refused."""

import argparse
import json
import math
import random
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import invoke, refusal
from each_case import each
from launch_layouts import DENSE, layout_of, plan_for, question

import planner
from planner.errors import InputError
from planner.exports import launch
from planner.exports.launch import FORMS, LaunchRun, _parallel, decided, launch_file, nearest_choices, run_of
from planner.exports.runnable_layout import runnable_layout, with_switches
from planner.imports.huggingface import read_config
from planner.imports.megatron_flags import OwnRun
from planner.imports.recipes import form_of, layout_of_run, run_of_text
from planner.instance.catalogue_entries import catalogue
from planner.instance.framework_rules import OVERLAP_FLAGS
from planner.instance.instance import Instance
from planner.instance.software import Software
from planner.instance.workload import Model, Precision
from planner.plan.plan import Plan
from planner.planning.evaluate import evaluated

ARGUMENTS = json.loads((Path(__file__).parent / "megatron_arguments.json").read_text())["arguments"]
UNEVEN = [19, 21, 21, 19]
PIPELINE = "--pipeline-model-parallel-layout"
MIXTURE = layout_of(2, 4, 128, expert_parallel=8, sequence_parallel=True)
TE = ["--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl", "te"]

# The framework, the model, and the choices of the layout: each goes out and comes back.
TRIPS: list[tuple[str, str, dict[str, Any]]] = [
    ("megatron", "llama3-70b", DENSE | {"zero_stage": 1, "recompute": "selective", "microbatch_sequences": 2}),
    ("megatron", "llama3-70b", DENSE | {"recompute": "full"}),
    ("megatron", "llama3-70b", DENSE | {"recompute": "full", "recomputed_layers_per_stage": [3, 3, 3, 3]}),
    ("megatron", "llama3-70b", DENSE | {"virtual_stages": 5}),
    ("megatron", "llama3-70b", DENSE | {"layers_per_stage": UNEVEN}),
    ("megatron", "llama3-70b", DENSE | {"layers_per_stage": UNEVEN, "virtual_stages": 3}),
    ("megatron", "llama3-70b", DENSE | {"virtual_stages": 3}),
    ("megatron", "llama3-70b", layout_of(4, 1, 256, zero_stage=3)),
    ("megatron", "llama3-70b", layout_of(8, 2, 16, context_parallel=4)),
    ("megatron", "llama3-70b", layout_of(8, 5, 17, zero_stage=2)),
    ("megatron", "deepseek-v3", layout_of(1, 16, 64, expert_parallel=64, layers_per_stage=[3, *[4] * 14, 2])),
    ("megatron", "mixtral-8x7b", MIXTURE),
    ("torchtitan", "llama3-70b", layout_of(8, 1, 128, zero_stage=3, sequence_parallel=True)),
    ("torchtitan", "llama3-70b", DENSE | {"zero_stage": 2, "recompute": "selective"}),
    ("torchtitan", "llama3-70b", DENSE | {"zero_stage": 0, "virtual_stages": 2, "layers_per_stage": UNEVEN}),
    ("torchtitan", "llama3-70b", layout_of(1, 1, 256, context_parallel=4, zero_stage=3, recompute="full")),
    ("nemo", "llama3-70b", DENSE | {"zero_stage": 1, "virtual_stages": 5, "recompute": "selective"}),
    ("nemo", "llama3-70b", DENSE | {"layers_per_stage": UNEVEN, "virtual_stages": 2}),
    ("nemo", "llama3-70b", DENSE | {"recompute": "full", "recomputed_layers_per_stage": [5, 5, 5, 5]}),
    ("nemo", "qwen3-235b-a22b", layout_of(4, 2, 128, expert_parallel=32, sequence_parallel=True)),
    ("nemo", "llama3-70b", layout_of(8, 1, 128, zero_stage=2)),
    ("deepspeed", "llama3-70b", layout_of(8, 1, 128, zero_stage=3)),
    ("deepspeed", "llama3-70b", layout_of(8, 4, 32, zero_stage=1, recompute="full", microbatch_sequences=2)),
    ("deepspeed", "llama-2-7b", layout_of(1, 1, 1024, zero_stage=2)),
]


def run_for(model: str, layout: dict[str, Any]) -> tuple[LaunchRun, Plan, Instance]:
    """Return the run of a layout, its plan and its instance."""
    instance = question(model)
    if layout.get("virtual_stages", 1) > 1:  # interleaved in whole rounds
        layout = {"microbatches_per_step": 2 * layout["pipeline_parallel"]} | layout
    plan = plan_for(instance, layout)
    return run_of(plan, "plan"), plan, instance


def run_with(model: str, layout: dict[str, Any], software: dict[str, Any], **workload: Any) -> LaunchRun:
    """Return the run of a layout on an ideal stack with some switches."""
    instance = question(model, software=catalogue("software")["ideal"] | software, **workload)
    return run_of(plan_for(instance, layout), "plan")


def back(framework: str, run: LaunchRun) -> OwnRun:
    """Return the run that is read back from what is written of a run for a framework."""
    return run_of_text(launch_file(run, framework), Path(f"own.{FORMS[framework]}"))


def arguments(script: str) -> list[str]:
    """Return the words of the arrays of flags of a script."""
    arrays = [part[: part.index("\n)")] for part in script.split("_ARGS=(\n")[1:]]
    return [word for array in arrays for word in shlex.split(array)]


@cache
def megatron_parser() -> argparse.ArgumentParser:
    """Return a parser with Megatron-LM's own names, types, choices and actions."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    types = {"int": int, "float": float, "str": str}
    for name, how in ARGUMENTS.items():
        if how.get("action") in ("store_true", "store_false", "store_const"):
            parser.add_argument(f"--{name}", action="store_true")
            continue
        choices = how.get("choices") if isinstance(how.get("choices"), list) else None
        kind = types.get(how.get("type", "str"), str)
        parser.add_argument(f"--{name}", type=kind, choices=choices, nargs=how.get("nargs"))
    return parser


@pytest.mark.parametrize(("framework", "model", "layout"), TRIPS)
def test_round_trip(framework: str, model: str, layout: dict[str, Any]) -> None:
    """What is written of a run is read back as its layout, and evaluates as it; Megatron takes each of its flags."""
    run, _, instance = run_for(model, layout)
    pins = layout_of_run(back(framework, run), instance, "own")
    own = run.layout.model_dump()
    for path, value in pins.items():
        expected = own[path.removeprefix("layout.")]
        assert value == (list(expected) if isinstance(value, list) else expected), path
    assert {"layout.tensor_parallel", "layout.data_parallel", "layout.microbatches_per_step"} <= set(pins)
    again = planner.evaluate(instance, {k.removeprefix("layout."): v for k, v in pins.items()})
    assert again.layout.microbatches_per_step == own["microbatches_per_step"]
    if framework != "deepspeed":  # it has no word for sequence parallelism
        assert again.step_seconds == pytest.approx(run.layout.metrics.step_seconds, rel=1e-12)
    if framework == "megatron":
        words = arguments(launch_file(run, framework))
        parsed, left = megatron_parser().parse_known_args(words)
        assert left == [] and len(words) > 30
        assert parsed.tensor_model_parallel_size == layout["tensor_parallel"]


@each("framework", ["megatron", "nemo"])
def test_switches_of_the_stack_go_out_and_come_back(framework: str) -> None:
    """Megatron is told modules word by word, its recipes as a list; torchtitan, which has none, refuses them."""
    own = {"recompute_modules": ["layernorm", "moe_act"], "fp8_attention": True, "fp8_recipe": "per_tensor"}
    layout = layout_of(1, 4, 256, expert_parallel=8, recompute="selective")
    run = run_with("mixtral-8x7b", layout, own, precision="fp8")
    read = back(framework, run)
    assert read.layout["recompute"] == "selective" and "not modelled" not in str(read.items.note())
    assert read.switches["recompute_modules"] == ("layernorm", "moe_act") and read.switches["fp8_attention"] is True
    if framework == "megatron":
        words = arguments(launch_file(run, framework))
        at = words.index("--recompute-modules")
        assert words[at + 1 : at + 3] == ["layernorm", "moe_act"] and "--recompute-activations" not in words
    with pytest.raises(InputError, match="torchtitan cannot be told layernorm, moe_act"):
        launch_file(run, "torchtitan")
    assert nearest_choices(run, "torchtitan")["recompute"] == "full"
    apart = run_with("llama-3.1-8b", layout_of(1, 1, 1024, zero_stage=1), {"fused_gradient_sums": False})
    assert back(framework, apart).switches["fused_gradient_sums"] is False


@each("framework", ["megatron", "nemo"])
@each(("loss", "words"), [  # the bytes that a plan counts of a logit, and the words of Megatron for it
    ({"fused_loss": True}, TE), ({"fused_loss": True, "logit_memory_bytes": 4.0}, TE), ({"fused_loss": False}, []),
    ({"fused_loss": True, "logit_memory_bytes": 10.0}, [*TE[:-1], "native"]),
])  # fmt: skip
def test_the_loss_of_the_run_has_the_memory_of_the_plan(framework, loss, words):
    """The implementation of the loss goes out and comes back, with as many bytes of a logit as planned or fewer."""
    instance = question("llama-3.1-8b", software=catalogue("software")["ideal"] | loss)
    plan = plan_for(instance, layout_of(1, 1, 1024, zero_stage=1))
    run = back(framework, written := run_of(plan, "plan"))
    assert "not modelled" not in str(run.items.note())
    launched = with_switches(instance, run.switches, "own", None)
    again = evaluated(launched.replaced(pins=layout_of_run(run, instance, "own")))
    held = plan.layout.metrics.memory_bytes_per_gpu
    assert again.memory_bytes_per_gpu <= held * (1 + 1e-12)
    if loss.get("logit_memory_bytes") != 4.0:
        assert again.memory_bytes_per_gpu == pytest.approx(held, rel=1e-12)
    if framework == "megatron":
        text = launch_file(written, framework)
        assert [word for word in arguments(text) if "cross-entropy" in word or word in ("te", "native")] == words
        assert ("core_v0.18.2 and later refuse" in text) == ("te" in words)


def flags_of(software: dict[str, Any], precision: str = "bf16", *, model: str = "llama-3.1-8b", **choices: Any) -> str:
    """Return the flags of a run of 64 GPUs on a stack with some switches, in one line."""
    run = run_with(model, layout_of(1, 1, 64, zero_stage=1) | choices, software)
    run = replace(run, precision=Precision.model_validate(catalogue("precisions")[precision]))
    return " ".join(arguments(launch_file(run, "megatron"))) + " "


@each(("software", "precision", "has", "has_not"), [
    ({}, "bf16", ("--attention-dropout 0", "--hidden-dropout 0", "--bf16"), ()),
    ({"flash_attention": False}, "bf16", (), ("dropout",)),
    ({}, "fp16", ("--fp16", "--accumulate-allreduce-grads-in-fp32"), ("bf16",)),
    ({}, "fp32", (), ("bf16", "fp16")),
    ({}, "fp4", ("--bf16", "--fp4-format e2m1"), ("fp8",)),
    ({"cuda_graphs": "whole"}, "bf16", ("full_iteration", "--no-check-for-nan-in-loss-and-grad"), ("external",)),
    ({"cuda_graphs": "part"}, "bf16", ("--enable-cuda-graph",), ("scope", "nan")),
    ({"fp8_parameters": True}, "fp8", ("--fp8-param-gather",), ()),
])  # fmt: skip
def test_defaults_of_megatron_that_are_not_the_plans_are_written(software, precision, has, has_not):
    """Dropout, types, and what whole graphs need: each is said where Megatron would take another or refuse."""
    flags = flags_of(software, precision)
    assert all(f"{words} " in flags for words in has) and not any(word in flags for word in has_not)


def test_what_megatron_refuses_is_not_written() -> None:
    """It keeps weights in FP8 where they are divided, and takes graphs of attention alone around experts.

    A plan with activations on the host is not started, by any framework, as one that has them on the GPU.
    """
    complaint = r"fp8_parameters: .* \(layout\.zero_stage is 0\); plan with --pin layout\.zero"
    with pytest.raises(InputError, match=complaint):
        flags_of({"fp8_parameters": True}, "fp8", zero_stage=0)
    assert "fp8-param-gather" not in flags_of({"fp8_parameters": False}, "fp8", zero_stage=0)
    part = flags_of({"cuda_graphs": "part"}, model="mixtral-8x7b", expert_parallel=8)
    assert "--external-cuda-graph --cuda-graph-scope attn " in part and "--enable-cuda-graph" not in part
    run = run_with("llama-3.1-8b", layout_of(1, 1, 64, zero_stage=2), {"activation_offload": 0.5})
    for framework in launch.STACKS:
        with pytest.raises(InputError, match=r"activation_offload: .* cannot be told 0\.5"):
            launch_file(run, framework)


def test_what_later_releases_have_is_named() -> None:
    """What core 0.14 has no flag for is a flag all the same, and in the head of the script with its release."""
    run = run_with("mixtral-8x7b", MIXTURE, {"dispatcher": "hybrid_ep", "fused_experts": True})
    head, _, flags = launch_file(run, "megatron").partition("export ")
    assert "HybridEP is of core_v0.16.0" in head and "--use-transformer-engine-op-fuser, is of core_v0.18.0" in head
    assert "--moe-flex-dispatcher-backend hybridep" in flags and "--use-transformer-engine-op-fuser" in flags
    assert "core_v0.16.0" not in launch_file(run_for("llama3-70b", DENSE)[0], "megatron")
    for recompute in ("none", "full", "selective"):
        layout = layout_of(1, 1, 64, zero_stage=1, recompute=recompute)
        text = launch_file(run_with("llama-3.1-8b", layout, {"cuda_graphs": "whole"}), "megatron")
        assert ("before core_v0.16.0 refuse CUDA graphs" in text) == (recompute != "none")


@each("fused", [True, False])
def test_torchtitan_compiles_the_loss_that_the_plan_has_fused(fused: bool) -> None:
    """Its default compiles nothing: logits in 16 bits, their copy, softmax and gradient in 32 are 14 bytes."""
    software = catalogue("software")["torchtitan"] | ({} if fused else {"fused_loss": False, "logit_memory_bytes": 14})
    plan = plan_for(question("llama-3.1-8b", software=software), layout_of(1, 1, 64, zero_stage=3))
    launched = run_of(plan, "plan")
    assert ("[compile]\nenable = true\n" in launch_file(launched, "torchtitan")) == fused
    run = back("torchtitan", launched)
    assert run.switches == {"fused_loss": fused, "logit_memory_bytes": 4.0 if fused else 14.0}
    assert run.items.note() is None


@each(("virtual", "schedule"), [(1, "1F1B"), (2, "Interleaved1F1B")])
def test_titan_has_every_module_once(virtual: int, schedule: str) -> None:
    """The modules of torchtitan's parts are all layers, once, with the embedding and the head at the ends."""
    run, _, _ = run_for("llama3-70b", DENSE | {"layers_per_stage": UNEVEN, "zero_stage": 0, "virtual_stages": virtual})
    written = tomllib.loads(launch_file(run, "torchtitan"))["parallelism"]
    parts = written["module_fqns_per_model_part"]
    modules = ["tok_embeddings", *(f"layers.{i}" for i in range(80)), "norm", "output"]
    assert [name for part in parts for name in part] == modules
    assert written["pipeline_parallel_schedule"] == schedule and len(parts) == 4 * virtual
    alone = f'[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = "{schedule}"'
    read = run_of_text(alone, Path("a.toml")).layout.get("virtual_stages", 1)  # torchtitan's own number of chunks
    assert read == virtual and (virtual > 1 or [len(p) for p in parts] == [20, 21, 21, 21])
    if virtual > 1:  # Megatron's chunks go round the stages too; the first and the last are smaller of their stages
        assert run.chunks == [9, 11, 11, 10, 10, 10, 10, 9]
        words = arguments(launch_file(run, "megatron"))
        assert words[words.index(PIPELINE) + 1] == "Et*9|t*11|t*11|(t*10|)*4t*9L"


REPEATS = {"recompute": "full", "recomputed_layers_per_stage": [3, 3, 3, 4]}


@each(("framework", "choices", "complaint"), [
    ("torchtitan", {"zero_stage": 1}, "torchtitan has ZeRO-0, 2, 3 (is 1); leave out --exact to take the nearest"),
    ("torchtitan", {"sequence_parallel": False, "zero_stage": 3}, "sequence_parallel: torchtitan needs true under TP"),
    ("torchtitan", REPEATS, "cannot be told [3, 3, 3, 4]"),
    ("deepspeed", {"zero_stage": 2}, "zero_stage: deepspeed has ZeRO-0, 1 under a pipeline (is 2); leave out --exact"),
    ("deepspeed", {"context_parallel": 2, "data_parallel": 16}, "cannot be told 2; plan with --pin layout.context_par"),
    ("deepspeed", {"layers_per_stage": UNEVEN}, "layers_per_stage: deepspeed needs as many on each stage (are "),
    ("deepspeed", {"virtual_stages": 5}, "virtual_stages: deepspeed cannot be told 5; leave out --exact"),
    ("deepspeed", {"recompute": "selective"}, "deepspeed needs none or full (is 'selective'); leave out --exact"),
    ("megatron", REPEATS, "leave out --exact"),
    ("megatron", {"schedule": "zb-h1"}, "layout.schedule: megatron cannot be told 'zb-h1'; leave out --exact"),
])  # fmt: skip
def test_refused_layouts(framework: str, choices: dict[str, Any], complaint: str) -> None:
    run, _, _ = run_for("llama3-70b", DENSE | choices)
    with pytest.raises(InputError, match=re.escape(complaint)):
        launch_file(run, framework)


@each("framework", ["megatron", "nemo"])
def test_stages_that_share_a_rack_are_read_back(framework: str) -> None:
    """Ranks go through a pipeline first where the plan has its stages in one rack; Megatron cannot with experts."""
    run, _, instance = run_for("llama3-70b", layout_of(2, 4, 64, stages_per_rack=4))
    assert layout_of_run(back(framework, run), instance, "x")["layout.stages_per_rack"] == 4
    mixed, plan, _ = run_for("mixtral-8x7b", MIXTURE | {"pipeline_parallel": 4, "stages_per_rack": 4})
    with pytest.raises(InputError, match=f"the ranks of {framework} have 1 of a pipeline in a rack .is 4.; leave out"):
        launch_file(mixed, framework)
    near = runnable_layout(plan, mixed, framework)
    assert near.changes["stages_per_rack"] == (4, 1) and near.run.stages_in_racks == "as ranks"
    of_hosts = replace(mixed, rack_gpus=72, layout=mixed.layout.replaced(replicas_per_rack=8))  # of 4 GPUs
    assert "Give hosts their ranks so that each rack has 4 stages of a pipeline." in launch_file(of_hosts, framework)
    assert "pp-dp-mapping" not in launch_file(near.run, framework).replace("_", "-")


def test_windows_go_out_and_come_back() -> None:
    run, _, instance = run_for("gpt-oss-120b", MIXTURE)
    assert layout_of_run(back("megatron", run), instance, "x") and "--window-size 128,0" in launch_file(run, "megatron")


def test_experts_are_whole_on_their_gpu() -> None:
    """Experts are not divided by tensor parallelism: exports say so, and runs that divide them are refused."""
    run, _, instance = run_for("mixtral-8x7b", MIXTURE)
    text = launch_file(run, "megatron")
    assert "--expert-tensor-parallel-size 1\n" in text
    apart = text.replace("--expert-tensor-parallel-size 1\n", "")
    without = launch_file(run, "nemo").replace("expert_tensor_parallel_size: 1", "x: 1")
    cases = ("own.sh", apart, "--expert-tensor-parallel-size"), ("own.yaml", without, r"model\.expert_tensor_")
    for name, own, key in cases:
        with pytest.raises(InputError, match=rf"x: {key}.*: must be 1 \(is 2, the tensor parall"):
            layout_of_run(run_of_text(own, Path(name)), instance, "x")
    apart, _, _ = run_for("mixtral-8x7b", MIXTURE | {"sequence_parallel": False})
    for framework in ("megatron", "nemo"):
        with pytest.raises(InputError, match=r"layout\.sequence_parallel: \w+ needs true under TP 2"):
            launch_file(apart, framework)
    alone = run_for("mixtral-8x7b", MIXTURE | {"expert_parallel": 1})[0]
    with pytest.raises(InputError, match=r"layout\.expert_parallel: torchtitan needs a multiple of TP x CP, 2 \(is 1"):
        launch_file(alone, "torchtitan")
    odd = replace(apart, layout=apart.layout.replaced(sequence_parallel=True), sequence_length=4_097)
    with pytest.raises(InputError, match=r"sequence_length: megatron needs a multiple of TP x CP, 2 \(is 4,097\); "):
        launch_file(odd, "megatron")
    titan = launch_file(run_for("mixtral-8x7b", MIXTURE | {"zero_stage": 2})[0], "torchtitan")
    with pytest.raises(InputError, match=r"torchtitan has ZeRO-2, 3 where EP is above TP x CP \(is 0\); leave"):
        launch_file(run_for("mixtral-8x7b", MIXTURE | {"zero_stage": 0})[0], "torchtitan")
    assert "expert_tensor_parallel_degree = 1\n" in titan
    assert layout_of_run(back("megatron", run), instance, "x")["layout.expert_parallel"] == 8


@each(("zero", "connections"), [(0, 1), (1, 1), (2, 32), (3, 32)])
def test_environment(zero: int, connections: int) -> None:
    """Tensor parallelism asks for one work queue; Megatron FSDP for more, and for its own form of checkpoints."""
    run, _, _ = run_for("llama3-70b", layout_of(4, 1, 256, zero_stage=zero))
    text = launch_file(run, "megatron")
    assert f"export CUDA_DEVICE_MAX_CONNECTIONS={connections}\n" in text
    assert ("--ckpt-format fsdp_dtensor" in text) == (connections > 1) == ("--use-megatron-fsdp" in text)
    assert f"CUDA_DEVICE_MAX_CONNECTIONS={connections}\n" in launch_file(run, "nemo")


@each(("changes", "able"), [
    ({"pipeline_parallel": 1, "virtual_stages": 1}, True), ({"pipeline_parallel": 2, "virtual_stages": 2}, True),
    ({"pipeline_parallel": 2, "virtual_stages": 1}, False),  # no chunk of another micro-batch to run beside
    ({"pipeline_parallel": 1, "virtual_stages": 1, "expert_parallel": 1}, False),  # nothing is exchanged
    ({"pipeline_parallel": 2, "virtual_stages": 2, "expert_parallel": 1}, False),
    ({"pipeline_parallel": 1, "virtual_stages": 1, "recompute": "full"}, False),
])  # fmt: skip
def test_experts_overlap_where_megatron_can(changes: dict[str, Any], able: bool) -> None:
    """Megatron refuses it without expert parallelism or interleaving, and where a whole layer or its MoE runs again."""
    run, software = mixture(), Software.model_validate(catalogue("software")["megatron-bridge"])
    assert "experts" in software.overlaps
    run = replace(run, software=software, layout=run.layout.replaced(**changes))
    assert ("overlap-moe-expert-parallel-comm" in decided(run, "megatron")) == able
    for modules, runs in ((("moe", "core_attn"), False), (("core_attn", "layernorm"), able)):
        own = software.replaced(recompute_modules=modules)
        again = run.layout.replaced(**{"recompute": "selective"} if run.layout.recompute != "full" else {})
        flags = decided(replace(run, software=own, layout=again), "megatron")
        assert ("overlap-moe-expert-parallel-comm" in flags) == runs
    quiet = software.replaced(overlaps=("gradients",))
    assert "overlap-moe-expert-parallel-comm" not in decided(replace(run, software=quiet), "megatron")


@each(("changes", "overlaps", "flags"), [
    ({"zero_stage": 0}, ("gradients", "parameters"), {"overlap-grad-reduce"}),
    ({"zero_stage": 1}, ("gradients", "parameters"), {"overlap-grad-reduce", "overlap-param-gather"}),
    ({"zero_stage": 1}, ("parameters",), set()),
    ({"tensor_parallel": 2, "sequence_parallel": True}, ("tensor",), {"tp-comm-overlap"}),
    ({"tensor_parallel": 2, "sequence_parallel": False}, ("tensor",), set()),
    ({"tensor_parallel": 1, "sequence_parallel": True}, ("tensor",), set()),
])  # fmt: skip
def test_other_exchanges_overlap_where_megatron_can(changes, overlaps, flags):
    """Parameters are gathered beside compute where ZeRO divides them and gradients are too; TP under sequences."""
    software = Software.model_validate(catalogue("software")["megatron-bridge"])
    switched = software.replaced(overlaps=overlaps)
    layout = mixture().layout.replaced(**changes)
    found = _parallel(replace(mixture(), layout=layout, software=switched))
    assert {flag for flag in OVERLAP_FLAGS.values() if found.get(flag)} == flags


@cache
def mixture() -> LaunchRun:
    """Return a run of a mixture of experts over 8 ranks, in two stages of two chunks."""
    return run_for("mixtral-8x7b", layout_of(1, 2, 512, expert_parallel=8, virtual_stages=2))[0]


def test_plain_stages_are_not_interleaved() -> None:
    """One chunk a stage needs no whole rounds and no flag of chunks; two of them need both."""
    odd = {"pipeline_parallel": 4, "layers_per_stage": (8,) * 4, "microbatches_per_step": 13}
    for virtual, changes in ((1, {}), (2, {"virtual_stages": 1})):
        layout = mixture().layout.replaced(**odd | {"virtual_stages": virtual})
        run = replace(mixture(), layout=layout)
        assert nearest_choices(run, "megatron") == changes
        whole = replace(run, layout=layout.replaced(microbatches_per_step=16))
        assert nearest_choices(whole, "megatron") == {}
        chunk = decided(whole, "megatron").get("num-layers-per-virtual-pipeline-stage")
        assert chunk == (4 if virtual > 1 else None)


@each(("pools", "why"), [(None, "status optimal"), ("some", "each pool has a layout of its own")])
def test_a_plan_without_one_layout_has_none_to_start(pools: str | None, why: str) -> None:
    _, plan, _ = run_for("llama3-70b", DENSE)
    with pytest.raises(InputError, match=why):
        run_of(plan.model_copy(update={"status": "optimal", "layout": None, "pools": pools}), "plan.json")


@each(("rack_gpus", "node_gpus"), [(2, 2), (4, 4), (8, 8), (16, 8), (72, 4)])
def test_a_host_starts_the_gpus_of_its_board(rack_gpus: int, node_gpus: int) -> None:
    """A small rack is one host; of larger ones a host has 8 GPUs, and 4 in a rack of 72."""
    run = replace(mixture(), rack_gpus=rack_gpus)
    assert (run.node_gpus, run.nodes) == (node_gpus, run.gpus // node_gpus)
    assert f"\nNNODES={run.nodes}\nGPUS_PER_NODE={node_gpus}\n" in launch_file(run, "megatron")


CONFIGS = sorted((Path(__file__).parents[2] / "imports" / "hf_configs").glob("*.json"))
STACKS = launch.STACKS | {"megatron": "megatron-bridge"}


def drawn_layout(rng: random.Random, model: Model, stack: Software) -> dict[str, Any]:
    """Draw a layout of 64 GPUs that a stack has, with stages and recomputed layers as uneven as a search makes them."""
    heads, experts = math.gcd(model.heads, model.kv), 1
    if model.experts is not None and "expert" in stack.parallelism:
        experts = model.experts.count
        heads = math.gcd(heads, experts)  # torchtitan keeps experts whole only where TP divides EP
    tensor = rng.choice([t for t in (1, 2, 4, 8) if heads % t == 0 and "tensor" in stack.parallelism] or [1])
    stages = rng.choice([p for p in (1, 2, 4) if model.layers >= 2 * p + 8])
    even = [model.layers // stages + (i < model.layers % stages) for i in range(stages)]
    zero = [z for z in stack.zero_stages_under(stages) if z != 1 or "torchtitan" not in stack.name]
    repeats = {"recompute": "full", "recomputed_layers_per_stage": [rng.randint(0, min(5, n)) for n in even]}
    return {
        "tensor_parallel": tensor, "pipeline_parallel": stages, "data_parallel": 64 // tensor // stages,
        "expert_parallel": rng.choice([e for e in (tensor, 2 * tensor, 8) if experts % e == 0] or [1]),
        "virtual_stages": rng.choice([1, 2]) if stages > 1 and "interleaved" in stack.parallelism else 1,
        "sequence_parallel": tensor > 1 and "sequence" in stack.parallelism and rng.random() < 0.5,
        "zero_stage": rng.choice(zero), "microbatches_per_step": rng.choice([2, 8, 13]), "layers_per_stage": even,
        **(repeats if any(repeats["recomputed_layers_per_stage"]) and rng.random() < 0.7 else {"recompute": "none"}),
    }  # fmt: skip


@pytest.mark.parametrize("framework", sorted(STACKS))
def test_no_layout_of_a_framework_is_refused(framework: str) -> None:
    """Of 31 public configurations any layout that the stack has is written, as it is or as the nearest that it runs."""
    rng, stack = random.Random(1), Software.model_validate(catalogue("software")[STACKS[framework]])
    assert len(CONFIGS) >= 20
    for config in CONFIGS:
        model = read_config(json.loads(config.read_text())["config"], str(config), config.stem)
        if framework == "deepspeed" and model.experts is not None:
            continue  # it has experts by code alone, not by its configuration
        instance = question("llama3-70b").replaced(workload__model=model)
        drawn = drawn_layout(rng, model, stack)
        if framework == "deepspeed" and model.layers % drawn["pipeline_parallel"]:
            continue  # it divides layers evenly alone
        plan = plan_for(instance, drawn)
        run = run_of(plan, "plan")
        changes = nearest_choices(run, framework)
        given = {k: list(v) if isinstance(v, tuple) else v for k, v in changes.items()}
        near, held = planner.evaluate(instance, drawn | given), plan.layout.metrics.memory_bytes_per_gpu
        assert near.memory_bytes_per_gpu <= held * (1 + 1e-9)
        written = replace(run, layout=run.layout.replaced(**changes))
        assert launch_file(written, framework) and not nearest_choices(written, framework)


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed"])
def test_the_fastest_near_layout_fits(framework: str) -> None:
    """It has the memory, is no slower than the nearest, keeps GPUs and batch, and is written without complaint."""
    rng, instance = random.Random(5), question("llama3-70b")
    stack = Software.model_validate(catalogue("software")[STACKS[framework]])
    instance = instance.replaced(workload__software=stack)
    for _ in range(2):
        drawn = drawn_layout(rng, Model.model_validate(catalogue("models")["llama3-70b"]), stack)
        drawn |= layout_of(8, 4, 2, zero_stage=min(stack.zero_stages_under(4)), layers_per_stage=[20] * 4)
        drawn |= {"recompute": "full", "recomputed_layers_per_stage": [20, 20, rng.randint(8, 19), 9]}
        plan = plan_for(instance, drawn)
        run = run_of(plan, "plan")
        near = runnable_layout(plan, run, framework)
        assert launch_file(near.run, framework)
        assert (near.run.gpus, near.run.global_batch) == (run.gpus, run.global_batch)
        nearest = planner.evaluate(instance, drawn | nearest_choices(run, framework))
        if nearest.memory_bytes_per_gpu <= nearest.memory_limit_bytes:
            assert near.step_seconds <= nearest.step_seconds * (1 + 1e-9)
        assert nearest_choices(near.run, framework) == {}


def test_a_near_layout_is_timed_as_its_ranks_fill_racks(tmp_path: Path) -> None:
    """Of stages that share racks, which torchtitan does not place so, the step is that of the file read back."""
    packed = layout_of(2, 4, 128, zero_stage=1, sequence_parallel=True, stages_per_rack=4, replicas_per_rack=1)
    (plan := tmp_path / "plan.json").write_text(run_for("llama3-70b", packed)[1].model_dump_json())
    done = invoke("export", "launch", plan, "--for", "torchtitan", "-o", file := tmp_path / "run.toml")
    assert "layout.stages_per_rack: torchtitan runs 1 in place of 4" in done.stderr
    predicted = re.search(r"predicted step: (\S+) s", file.read_text())
    read = invoke("evaluate", plan, "--from-flags", file, "--json")
    assert predicted and float(predicted[1]) == pytest.approx(json.loads(read.stdout)["step_seconds"], rel=1e-3)


def test_the_nearest_is_told(tmp_path: Path) -> None:
    _, plan, _ = run_for("llama3-70b", DENSE | REPEATS)
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    command = ["export", "launch", str(tmp_path / "plan.json")]
    out = invoke(*command)
    assert "--recompute" not in out.stdout
    assert "layout.recompute: megatron runs none in place of full" in out.stderr
    assert "layout.recomputed_layers_per_stage: megatron runs none in place of 3, 3, 3, 4\n" in out.stderr
    assert "predicted step: " in out.stderr and "% on the plan's layout" in out.stderr
    assert invoke(*command, "--exact").exit_code != 0


@each(("framework", "choices", "told"), [
    ("torchtitan", {"zero_stage": 1}, "layout.zero_stage: torchtitan runs 0 in place of 1"),
    ("deepspeed", {"virtual_stages": 5, "microbatches_per_step": 32}, "virtual_stages: deepspeed runs 1 in place of 5"),
    ("deepspeed", {"zero_stage": 3}, "layout.zero_stage: deepspeed runs 1 in place of 3"),
])  # fmt: skip
def test_a_layout_that_the_framework_does_not_run_is_told_in_the_file(framework, choices, told, tmp_path):
    """What differs is told on stderr and in the file's comments, of which JSON has none; --exact alone refuses it."""
    (tmp_path / "plan.json").write_text(run_for("llama3-70b", DENSE | choices)[1].model_dump_json())
    command = ["export", "launch", tmp_path / "plan.json", "--for", framework]
    done = invoke(*command)
    assert done.exit_code == 0 and told in done.stderr and "predicted step: " in done.stderr
    of_json = "--sequence-parallel of Megatron-DeepSpeed" in done.stderr
    assert of_json if framework == "deepspeed" else f"# {told}\n" in done.stdout
    assert "leave out --exact" in refusal(invoke(*command, "--exact"))


@each(("framework", "said"), [
    ("megatron", []), ("deepspeed", ["products in fp8", "gradients of 2 bytes", "CUDA graphs", "dispatcher"]),
    ("nemo", ["products in fp8", "gradients of 2 bytes", "overlap of experts", "CUDA graphs", "dispatcher"]),
    ("torchtitan", ["products in fp8", "gradients of 2 bytes", "CUDA graphs (whole)", "dispatcher deep_ep"]),
])  # fmt: skip
def test_what_a_file_does_not_say_is_told(framework: str, said: list[str]) -> None:
    """Of a plan that counts on types, overlaps and graphs Megatron is told all; other files name what is missing."""
    switches = {"cuda_graphs": "whole", "dispatcher": "deep_ep", "overlaps": ["experts"]}
    layout = layout_of(1, 2, 512, expert_parallel=8, virtual_stages=2, microbatches_per_step=4, zero_stage=0)
    run = run_with("mixtral-8x7b", layout, switches, precision="fp8-bf16-gradients")
    assert all(a.startswith(b) for a, b in zip(launch.unsaid(run, framework), said, strict=True))
    assert f"# {launch.UNSAID}: products in fp8; " in launch_file(run, "nemo")
    for overlaps in ((), ("context",)):
        run = run_with("llama3-70b", layout_of(8, 2, 16, context_parallel=4), {"overlaps": overlaps})
        assert ("context" in back("megatron", run).switches["overlaps"]) == bool(overlaps)


OWN = """\
#!/bin/bash
# one of many ways to write it
GPUS_PER_NODE=8
NNODES=${SLURM_JOB_NUM_NODES:-128}  # nodes
WORLD_SIZE=$(($GPUS_PER_NODE * $NNODES))
TP=8; PP=4
GPT_ARGS="
    --num-layers 80 --hidden-size 8192 --num-attention-heads 64
    --seq-length 8192
"
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}   # inside the node
    --pipeline-model-parallel-size $PP
    --sequence-parallel
    --use-distributed-optimizer )
torchrun --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py $GPT_ARGS ${MODEL_PARALLEL_ARGS[@]} \\
    --micro-batch-size 1 --global-batch-size=1024 --recompute-activations
"""


def test_a_script_of_ones_own() -> None:
    """Variables, defaults, arithmetic, comments, arrays and continued lines are read; nothing is run."""
    pins = layout_of_run(run_of_text(OWN, Path("own.sh")), question("llama3-70b"), "own.sh")
    ones = dict.fromkeys(("context_parallel", "expert_parallel", "microbatch_sequences", "zero_stage"), 1)
    stated = DENSE | ones | {"virtual_stages": 1, "recompute": "selective", "microbatches_per_step": 32}
    assert pins == {f"layout.{key}": value for key, value in stated.items()}


@each(("name", "old", "new", "complaint"), [
    ("own.sh", "--num-layers 80", "--num-layers 96", "own.sh: layers is 96, workload.model.layers 80"),
    ("own.sh", "length 8192", "length 4096", "sequence length is 4,096, workload.sequence_length 8,192"),
    ("own.sh", "TP=8;", "TP=x;", "line 6: --tensor-model-parallel-size: must be a whole number from 1 (is 'x')"),
    ("own.sh", "=1024", "=1025", "global batch of 1,025 sequences is no multiple of 32 = 32 replicas x 1"),
    ("own.sh", "PP=4", "PP=400", "own.sh: 1,024 GPUs are fewer than the 3,200 of one replica"),
    ("own.sh", "PP=4", "PP=3", "own.sh: 1,024 GPUs are no multiple of the 24 of one replica; correct either"),
    ("own.sh", '"\nMODEL', "\nMODEL", "own.sh: cannot be read as a shell script"),
    ("own.sh", "--sequence-parallel", f"{PIPELINE} 'Et*40|xt*40L'", "'x' is none of E, t, m, L"),
    ("own.sh", "--sequence-parallel", f"{PIPELINE} 'Et*999999|L'", "expands to more than 100,000"),
    ("own.sh", "--sequence-parallel", f"{PIPELINE} 'E|(t*11|)*7,t*3L'", "9 chunks, which 4 stages do not divide"),
    ("own.sh", OWN, "SwitchName=leaf0 Nodes=m[0-3]", "own.sh: has none of --tensor-model-parallel-size"),
    ("own.toml", OWN, "[a", "own.toml: is no TOML"),
    ("own.toml", OWN, "a = 1", "own.toml: has none of parallelism, training.local_batch_size"),
    ("own.json", OWN, "", "own.json: has none of train_batch_size"),
    ("own.yaml", OWN, "# later\n", "by which a recipe of NeMo is known; give a shell script"),
    ("own.sh", "--micro-batch-size 1 ", "--micro-batch-size ", "must be a whole number from 1 (has no value)"),
    ("own.yaml", OWN, "model:\n  tensor_model_parallel_size: x\n", "must be a whole number from 1 (is 'x')"),
])  # fmt: skip
def test_bad_files(name: str, old: str, new: str, complaint: str) -> None:
    """A file that cannot be read, or that contradicts the instance, is named with key, value and remedy."""
    with pytest.raises(InputError, match=re.escape(complaint)):
        layout_of_run(run_of_text(OWN.replace(old, new), Path(name)), question("llama3-70b"), name)


ENDS = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"


@each(("flags", "expected"), [
    ("--decoder-first-pipeline-num-layers 19 --decoder-last-pipeline-num-layers 19", (1, [19, 21, 21, 19])),
    ("--decoder-last-pipeline-num-layers 17", (1, [21, 21, 21, 17])),
    ("--num_layers_per_virtual_pipeline_stage 5", (4, None)),
    ("--num-virtual-stages-per-pipeline-rank 2", (2, None)),
    (f"{PIPELINE} 'Et*19|(t*21|)*2t*19L'", (1, [19, 21, 21, 19])),
    (f"--num-layers 78 {ENDS} --num-layers-per-virtual-pipeline-stage 5", (4, [19, 20, 20, 19])),
])  # fmt: skip
def test_stages_in_every_writing(flags: str, expected: Any) -> None:
    """Layers of the first and the last stage, virtual stages, and Megatron's layout with its multiplications."""
    text = f"--num-layers 80 --pipeline-model-parallel-size 4 {flags}"
    layout = run_of_text(text, Path("args")).layout
    assert (layout["virtual_stages"], layout.get("layers_per_stage")) == expected


@each(("framework", "form"), FORMS.items())
def test_a_file_is_written_where_it_can_be_read_back(framework: str, form: str, tmp_path: Path) -> None:
    """The ending says how a file is read: another, or none where it is needed, is refused before all work."""
    due = {"sh": ".sh, or any but .toml, .json, .yaml and .yml", "yaml": ".yaml or .yml"}.get(form, f".{form}")
    (tmp_path / "plan.json").write_text(run_for("llama3-70b", DENSE)[1].model_dump_json())
    for name in ("own", "own.sh", "own.toml", "own.yml", "own.json"):
        output = tmp_path / name
        done = invoke("export", "launch", tmp_path / "plan.json", "--for", framework, "-o", output)
        if form_of(output) == form:
            assert done.exit_code == 0 and run_of_text(output.read_text(), output).framework == framework
        else:
            assert refusal(done) == f"{output}: must end in {due}, by which it is read back; rename it"
            assert not output.exists()
    assert invoke("export", "launch", tmp_path / "plan.json", "--for", framework, "-o", "/dev/null").exit_code == 0


@pytest.mark.slow
def test_a_device_behind_which_a_file_stands_takes_any_form(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(run_for("llama3-70b", DENSE)[1].model_dump_json())
    words = ["export", "launch", str(tmp_path / "plan.json"), "--for", "nemo", "-o", "/dev/stdout"]
    with (tmp_path / "own.txt").open("wb") as written:
        subprocess.run([sys.executable, "-m", "planner", *words], stdout=written, check=True)
    assert run_of_text((tmp_path / "own.txt").read_text(), Path("own.yaml")).framework == "nemo"
