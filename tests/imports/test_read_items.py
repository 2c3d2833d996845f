"""What readers make of each item of a file: what may change the answer and is not modelled is told."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from commands import invoke
from each_case import each

from planner.exports.runnable_layout import with_switches
from planner.formats.cluster_files import DECIDING, NodeStates, read_states, topology_note
from planner.imports.megatron_flags import megatron_effect
from planner.imports.recipes import doubts, parsed, run_of_text
from planner.imports.unmodelled_items import NO_EFFECT, TrackedItems, UnmodelledItems
from planner.instance.catalogue_entries import catalogue
from planner.instance.framework_rules import Overlap
from planner.instance.software import Software
from planner.planning.load import load_instance

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "instances" / "cluster-1k.json"
ARGUMENTS = json.loads((ROOT / "tests" / "exports" / "launch" / "megatron_arguments.json").read_text())["arguments"]
SCRIPT = Path("own.sh")
BASE = """torchrun --nnodes 128 --nproc-per-node 8 pretrain_gpt.py --num-layers 80 --hidden-size 8192
--num-attention-heads 64 --seq-length 8192 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4
--sequence-parallel --bf16 --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 1024 --lr 3e-4
--tokenizer-type Llama3Tokenizer"""

OFF = "pipeline-model-parallel-layout recompute-granularity recompute-method data-parallel-sharding-strategy"
TOLD_FLAGS = """optimizer-cpu-offload tp-comm-overlap-ag use-precision-aware-optimizer optimizer-cuda-graph
    rampup-batch-size moe-deepep-num-sms moe-expert-capacity-factor mtp-num-layers cpu-offloading-weights
    num-distributed-optimizer-instances grad-reduce-in-bf16 delay-wgrad-compute
    fine-grained-activation-offloading"""


UNKNOWN_FLAGS = """kitchen-attention-backend megatron-fsdp-cuda-graph-mode fsdp-all-gather-in-start-param-sync
    heterogeneous-block-specs window-stride-of-layers hybrid-new enable-mhc-new use-fused-new torch-fsdp2-new"""


def read(text: str, name: str = "own.sh") -> UnmodelledItems:
    return run_of_text(text, Path(name)).items


def test_every_flag_of_megatron_is_known() -> None:
    numbers = {n: "2" for n, how in ARGUMENTS.items() if how.get("type") in ("int", "float")}
    numbers |= {"tensor-model-parallel-size": "1", "num-layers": "6", "pipeline-model-parallel-size": "4"}
    flags = [f"--{n} {numbers.get(n, '')}" for n in ARGUMENTS if n not in OFF.split()]
    text = " ".join(flags)
    assert read(text).unknown == ()
    assert sorted(parsed(text, SCRIPT).flags) == sorted(flag[2:].partition(" ")[0].replace("_", "-") for flag in flags)


@each(("flags", "note"), [
    *((f"--{flag}", f"not modelled: --{flag}") for flag in TOLD_FLAGS.split()),
    ("--recompute-modules mhc", "not modelled: --recompute-modules (no figures for mhc)"),
    ("--recompute-granularity selective --recompute-modules moe_act mhc",
     "not modelled: --recompute-modules (no figures for mhc)"),
    ("--optimizer sgd", "not modelled: --optimizer"), ("--optimizer adam", "None"),
    ("--my-own-flag 3", "not modelled: --my-own-flag (unknown)"),
    # With the flag that it nearly is, unless the file has that one too.
    ("--context-parallel-siz 2 --sequence-paralel", "not modelled: --context-parallel-siz (unknown: did you mean "
     "--context-parallel-size?), --sequence-paralel (unknown)"),
    # A flag that only begins as one of known effect is unknown.
    *((f"--{flag} 3", f"not modelled: --{flag} (unknown)") for flag in UNKNOWN_FLAGS.split()),
])  # fmt: skip
def test_flags_of_time_and_memory_are_told(flags: str, note: str) -> None:
    found = str(read(f"{BASE} {flags}").note())
    assert found.startswith(note) and (found == note or "unknown" not in found)


def test_values_that_are_taken_anyway() -> None:
    """A flag at the value that the planner takes is not told; nor are the modules that selective recompute repeats."""
    assert megatron_effect("optimizer", "adam") == megatron_effect("recompute-modules", "core_attn moe") == NO_EFFECT
    assert megatron_effect("no_such_flag", None) is None
    assert all(one["source"] and all(one["effects"].values()) for one in catalogue("flag_effects").values())
    assert all(one["source"] for one in catalogue("framework_keys").values())
    tracked = TrackedItems({"a": 1, "b": 2, "c": 3})
    assert tracked["a"] == 1 and tracked.get("d", 4) == 4
    assert tracked.unmodelled({"b": NO_EFFECT, "c": "slows"}.get) == UnmodelledItems(known=("c (slows)",))


@each(("flags", "switches"), [
    ("", {"overlaps": ("context", "sends"), "dispatcher": "all_to_all", "cuda_graphs": "none", "fused_loss": False}),
    ("", {"fused_gradient_sums": True}), ("--no-gradient-accumulation-fusion", {"fused_gradient_sums": False}),
    ("--overlap-grad-reduce --tp-comm-overlap", {"overlaps": ("context", "gradients", "sends", "tensor")}),
    ("--no-overlap-p2p-communication --cp-comm-type allgather", {"overlaps": ()}),
    ("--overlap-moe-expert-parallel-comm --moe-enable-deepep", {"dispatcher": "deep_ep"}),
    ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --use-transformer-engine-op-fuser",
     {"dispatcher": "hybrid_ep", "fused_experts": True}),
    ("--no-overlap-p2p-communication --cp-comm-type all_gather", {"overlaps": ()}),
    *((f"--enable-cuda-graph{scope}", {"cuda_graphs": "part"}) for scope in ("", " --cuda-graph-scope full")),
    ("--cuda-graph-impl full_iteration", {"cuda_graphs": "whole"}),
    ("--cuda-graph-impl local --cuda-graph-scope full_iteration", {"cuda_graphs": "whole"}),
    ("--fp8-format hybrid", {"fp8_recipe": "delayed", "fp8_parameters": False}),
    ("--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather", {"fp8_recipe": "mxfp8", "fp8_parameters": True}),
    ("--fp8-format hybrid --fp8-dot-product-attention", {"fp8_attention": True}),
    ("--recompute-activations", {"recompute_modules": ("core_attn",)}),
    ("--recompute-granularity selective --recompute-modules layernorm moe_act mlp",
     {"recompute_modules": ("layernorm", "mlp", "moe_act")}),
    ("--recompute-activations --recompute-modules moe \\\n  --bf16", {"recompute_modules": ("moe",)}),
    ("--recompute-granularity full --recompute-modules moe", {"recompute_modules": ("core_attn",)}),
    ("--cross-entropy-loss-fusion", {"fused_loss": True, "logit_memory_bytes": 10.0}),
    ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl native", {"logit_memory_bytes": 10.0}),
    ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", {"fused_loss": True, "logit_memory_bytes": None}),
    ("--cross-entropy-fusion-impl native", {"fused_loss": False, "logit_memory_bytes": None}),
    ("--cpu-offloading --cpu-offloading-num-layers 20 --num-layers 80", {"activation_offload": 0.25}),
])  # fmt: skip
def test_flags_set_the_switches_of_the_stack(flags: str, switches: dict[str, Any]) -> None:
    run = run_of_text(f"{BASE} {flags}", SCRIPT)
    assert {k: run.switches[k] for k in switches} == switches
    assert run.items.note() is None
    Software.model_validate({"name": "own", **run.switches})


NO_LOGIT = {"logit_memory_bytes": None}


@each(("text", "switches"), [
    ("", {}), ("  cuda_graph_impl: none", {"cuda_graphs": "none"}), ("  cp_comm_type: a2a", {"context": False}),
    ("ddp: {overlap_grad_reduce: true, overlap_param_gather: false}", {"gradients": True, "parameters": False}),
    ("comm_overlap: {tp_comm_overlap: true, overlap_p2p_comm: false}", {"tensor": True, "sends": False}),
    ("  moe_token_dispatcher_type: flex\n  moe_flex_dispatcher_backend: hybridep", {"dispatcher": "hybrid_ep"}),
    ("  moe_enable_deepep: true", {"dispatcher": "deep_ep"}),
    ("  cuda_graph_impl: transformer_engine", {"cuda_graphs": "part"}), ("  cross_entropy_fusion_impl: te", NO_LOGIT),
    ("  moe_token_dispatcher_type: alltoall\n  enable_cuda_graph: true\n  cuda_graph_scope: full_iteration",
     {"dispatcher": "all_to_all", "cuda_graphs": "whole"}),
    ("  cross_entropy_loss_fusion: false\n  gradient_accumulation_fusion: false",
     {"fused_loss": False, "fused_gradient_sums": False}),
    ("  cross_entropy_fusion_impl: native", {"logit_memory_bytes": 10.0}),
    ("  cross_entropy_loss_fusion: true\n  cross_entropy_fusion_impl: te", {"fused_loss": True} | NO_LOGIT),
    ("  num_layers: 48\n  cpu_offloading: true\n  cpu_offloading_num_layers: 12", {"activation_offload": 0.25}),
    ("  fp8: hybrid\n  fp8_recipe: blockwise\n  use_transformer_engine_op_fuser: true\nddp: {fp8_param_gather: true}",
     {"fused_experts": True, "fp8_recipe": "blockwise", "fp8_parameters": True}),
])  # fmt: skip
def test_overrides_set_the_switches_that_they_state(text: str, switches: dict[str, Any]) -> None:
    run = run_of_text(f"model:\n  tensor_model_parallel_size: 2\n{text}\n", Path("own.yaml"))
    overlaps = {k: v for k, v in switches.items() if isinstance(v, bool) and k in get_args(Overlap)}
    assert run.switches == (switches if not overlaps else {"overlaps": overlaps})
    assert run.items.note() is None
    before = load_instance("cluster-1k").workload.software
    after = with_switches(load_instance("cluster-1k"), run.switches, "own.yaml", None).workload.software
    assert isinstance(before, Software) and isinstance(after, Software)
    for name in set(before.overlaps) | set(overlaps):
        assert (name in after.overlaps) == overlaps.get(name, name in before.overlaps)
    assert all(getattr(after, k) == v for k, v in switches.items() if k not in overlaps)


NEMO = "model: {tensor_model_parallel_size: 2"
OFFLOAD = '"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}'


@each(("name", "text", "told"), [
    ("a.yaml", f"{NEMO}, cpu_offloading: true, tp_comm_overlap: false}}\n", "model.cpu_off"),
    ("a.yaml", f"{NEMO}, cpu_offloading: true, cpu_offloading_num_layers: 12}}", "not modelled: model.cpu_offloading"),
    ("a.yaml", f"{NEMO}}}\noptimizer: {{optimizer_cpu_offload: true}}\n", "optimizer.opt"),
    ("a.toml", "[parallelism]\ndata_parallel_shard_degree=8\nenable_async_tensor_parallel=true", "parallelism.enable"),
    ("a.json", f'{{"train_batch_size": 8, {OFFLOAD}}}', ".dev"),
])  # fmt: skip
def test_other_frameworks_tell_too(name: str, text: str, told: str) -> None:
    """Keys of NeMo, torchtitan and DeepSpeed that no figure follows are told by their path."""
    assert told in str(read(text, name).note())


def test_it_is_told_on_stderr_and_in_the_plan(tmp_path: Path) -> None:
    (tmp_path / "own.sh").write_text(f"{BASE} --optimizer-cpu-offload")
    plan, flags, told = tmp_path / "own.json", ("--from-flags", tmp_path / "own.sh"), "not modelled: --optimizer-cpu-"
    assert invoke("evaluate", CLUSTER, *flags, "-o", plan).stderr.count(told) == 1
    data = json.loads(plan.read_text())
    assert told in data["instance"]["workload"]["note"]
    assert told in invoke("show", plan).stdout.replace("\n", " ")
    # Of a plan with a figure that only another planner knows the instance still serves a run's flags.
    before = invoke("evaluate", plan, *flags).stdout
    plan.write_text(json.dumps(data | {"layout": data["layout"] | {"of_another_planner": 1}}))
    assert invoke("evaluate", plan, *flags).stdout == before != ""


def test_nodes_and_links_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nodes only fields that decide who runs where are compared, and the work grows as the nodes do."""

    def states(*nodes: dict[str, Any]) -> NodeStates:
        (tmp_path / "n.json").write_text(json.dumps({"nodes": [{"state": ["IDLE"], **n} for n in nodes]}))
        return read_states(tmp_path / "n.json")

    alike = states({"name": "a", "gres": "gpu:8", "cpus": 96}, {"name": "b", "gres": "gpu:8", "cpus": 64})
    assert alike.note is None
    lines = "SwitchName=a Nodes=n[1-2] LinkSpeed={}\nSwitchName=b Nodes=n[3-4] LinkSpeed=100\n"
    told = [topology_note(lines.format(speed)) for speed in (100, 400)]
    assert told == [None, "not modelled: LinkSpeed (is 100, 400)"]
    assert "unschedulable (1 node); give the file by --state" in str(topology_note("  unschedulable: true\n"))
    assert states({"name": "a", "gres": "gpu:8"}, {"name": "b"}).note == "not modelled: gres (nodes differ)"
    nodes = [{"name": f"n{i}", **{f"field{k}": i for k in range(20)}} for i in range(50)]
    (tmp_path / "n.json").write_text(json.dumps({"nodes": [{"state": "IDLE", **n} for n in nodes]}))
    written: list[object] = []
    monkeypatch.setattr("planner.formats.cluster_files.json.dumps", lambda value, **_: written.append(value) or "")
    assert len(read_states(tmp_path / "n.json").free) == 50
    assert len(written) <= len(nodes) * len(DECIDING)


@each(("text", "line"), [
    ('TP=2\nif [ "$BIG" = 1 ]; then TP=4; fi\n', "TP (assigned at lines 1 and 2, in a branch: 4 is taken)"),
    ("TP=1\nfor i in 1 2 3; do\n  TP=$((TP*2))\ndone\n", "TP (assigned at lines 1 and 3: 2 is taken)"),
    ("TP=2\nUNUSED=1\nUNUSED=2\n", None), ("TP=2\n", None),
])  # fmt: skip
def test_numbers_that_a_script_may_set_otherwise_are_told(text: str, line: str | None) -> None:
    items = read(f"{text}pretrain_gpt.py --tensor-model-parallel-size $TP --micro-batch-size 1\n")
    assert items.known == (() if line is None else (line,))


def test_a_run_of_another_stack_or_of_no_stated_model_is_told() -> None:
    titan = run_of_text("[parallelism]\ntensor_parallel_degree = 2\n", Path("own.toml"))
    lines = list(doubts(titan, load_instance("cluster-1k")))
    assert len(lines) == 2 and "states no figures of the model" in lines[0] and "run of torchtitan" in lines[1]
    assert list(doubts(run_of_text(f"{BASE} --num-layers 80", SCRIPT), load_instance("cluster-1k"))) == []
