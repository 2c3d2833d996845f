"""A layout for other tools: flags and files of launchers."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from planner.checks.layout import broken_rules
from planner.errors import InputError
from planner.exports.launch_run import SHARDING, LaunchRun
from planner.formats.yaml_text import dump
from planner.instance.framework_rules import FP8_RECIPES, NATIVE_LOSS_BYTES, OVERLAP_FLAGS, Overlap, rules_of
from planner.instance.workload import CORE_ATTENTION, Dispatcher, Software
from planner.physics.training.parallel_strategy import strategy_of

# Choices of the layout that each framework takes as settings, in addition to tensor and data parallelism.
_CHOICES = {"context_parallel", "expert_parallel", "pipeline_parallel", "virtual_stages", "zero_stage"}
CHOICES = {
    "megatron": _CHOICES | {"recomputed_layers_per_stage"},
    "nemo": _CHOICES | {"recomputed_layers_per_stage"},
    "torchtitan": _CHOICES,
    "deepspeed": {"pipeline_parallel", "zero_stage"},
}
STACKS = {
    "megatron": "megatron-core",
    "nemo": "megatron-bridge",
    "torchtitan": "torchtitan",
    "deepspeed": "megatron-deepspeed",
}
RULES = {framework: rules_of(stack) for framework, stack in STACKS.items()}


def require(run: LaunchRun, framework: str) -> None:
    """Refuse a layout with a choice for which a framework has no setting: InputError names it and what to pin."""
    layout = run.layout
    recomputed = layout.recomputed_layers_per_stage
    some = [] if recomputed == layout.layers_per_stage else list(recomputed)
    asked = {
        "tensor_parallel_inner": (layout.tensor_parallel_inner, 1),
        "context_parallel": (layout.context_parallel, 1),
        "expert_parallel": (layout.expert_parallel, 1),
        "pipeline_parallel": (layout.pipeline_parallel, 1),
        "virtual_stages": (layout.virtual_stages, 1),
        "schedule": (layout.schedule, "1f1b"),
        "recomputed_layers_per_stage": (some, []),
        "zero_stage": (layout.zero_stage, 0),
    }
    for key, (value, plain) in asked.items():
        if value != plain and key not in CHOICES[framework]:
            pin = f"plan with --pin layout.{key}={plain}" if plain != [] else "plan with --pin layout.recompute=none"
            raise InputError(f"layout.{key}: {framework} cannot be told {value!r}; {pin}, or choose another framework")
    if framework == "torchtitan" and layout.recompute == "selective" and run.modules != CORE_ATTENTION:
        raise InputError(
            f"workload.software.recompute_modules: torchtitan cannot be told {', '.join(run.modules)}; "
            "plan with --pin layout.recompute=none, or choose another framework"
        )
    for what in broken_rules(RULES[framework], layout, run.model, run.sequence_length):
        path, _, rule = what.partition(": ")
        remedy = f"leave out --exact to take the nearest, or plan with workload.software {STACKS[framework]}"
        raise InputError(f"{path}: {framework} has {rule}; {remedy}")


def require_on_gpu(run: LaunchRun, framework: str) -> None:
    """Refuse activations on the host, which would stay on the GPU: a recipe of one's own may move them, by --like."""
    if run.software is not None and run.software.activation_offload:
        share = run.software.activation_offload
        raise InputError(
            f"workload.software.activation_offload: {framework} cannot be told {share:g}; "
            "plan with --set workload.software.activation_offload=0, or give a recipe that has it by --like"
        )


def pipeline_layout(run: LaunchRun, *, grouped: bool = True) -> str:
    """Return the chunks as Megatron's pipeline layout: E embedding, t a layer, L the loss, stages divided by |."""
    parts = [f"t*{count}" if count > 2 else "t" * count for count in run.chunks]
    parts[0], parts[-1] = f"E{parts[0]}", f"{parts[-1]}L"
    if not grouped:
        return "|".join(parts)
    pieces: list[str] = []
    for part, group in groupby(parts[:-1]):
        count = len(list(group))
        pieces.append(f"({part}|)*{count}" if count > 2 else f"{part}|" * count)
    return "".join(pieces) + parts[-1]


def recomputed_under(run: LaunchRun, each: int) -> tuple[int, ...]:
    """Return the layers that every stage recomputes where each of its chunks recomputes `each`, as frameworks count."""
    stages = run.layout.pipeline_parallel
    return tuple(sum(min(each, count) for count in run.chunks[stage::stages]) for stage in range(stages))


def nearest_choices(run: LaunchRun, framework: str) -> dict[str, Any]:
    """Return the choices by which the nearest layout that a framework runs differs; nothing where it runs the plan's.

    More layers are recomputed, never fewer, and activations are divided further, never less, so that memory holds.
    """
    layout, counts, changes = run.layout, run.layout.recomputed_layers_per_stage, dict[str, Any]()
    megatron, virtual = framework in ("megatron", "nemo"), layout.virtual_stages
    if layout.tensor_parallel_inner > 1:
        changes["tensor_parallel_inner"] = 1
    if layout.schedule != "1f1b":
        changes["schedule"] = "1f1b"
    if RULES[framework].whole_rounds and virtual > 1 and layout.microbatches_per_step % layout.pipeline_parallel:
        changes["virtual_stages"] = virtual = 1
    divides = framework == "torchtitan" or (megatron and run.model.experts is not None)
    if divides and layout.tensor_parallel > 1 and not layout.sequence_parallel:
        changes["sequence_parallel"] = True
    layers = layout.layers_per_stage
    if framework == "deepspeed" and len(set(layers)) > 1 and sum(layers) % len(layers) == 0:
        changes["layers_per_stage"] = layers = (sum(layers) // len(layers),) * len(layers)
    scores_alone = framework == "deepspeed" or (framework == "torchtitan" and run.modules != CORE_ATTENTION)
    if layout.recompute == "selective" and scores_alone:
        changes["recompute"] = "full"
    if changes.get("recompute", layout.recompute) == "full" and (counts or "recompute" in changes):
        other = replace(run, layout=layout.replaced(virtual_stages=virtual, layers_per_stage=layers))
        fewest = max((-(-count // virtual) for count in counts), default=0)
        wanted = recomputed_under(other, fewest) if megatron and counts != layout.layers_per_stage else layers
        while megatron and any(one < other for one, other in zip(wanted, counts, strict=True)):
            fewest += 1
            wanted = recomputed_under(other, fewest)
        if wanted != counts:
            changes["recomputed_layers_per_stage"] = wanted
    return changes


Flag = tuple[str, object]  # the name without its dashes, and the value; True: no value, several: a word each


def megatron_script(run: LaunchRun) -> str:
    """Write the environment, the flags by group, and the command. InputError: Megatron-LM cannot be told the layout."""
    require(run, "megatron")
    require_on_gpu(run, "megatron")
    narrow = run.precision.compute == "fp8" and run.software is not None and run.software.fp8_parameters
    if narrow and not run.layout.zero_stage:
        raise InputError(
            "workload.software.fp8_parameters: Megatron has weights in FP8 under ZeRO alone (layout.zero_stage is 0); "
            "plan with --pin layout.zero_stage=1, or --set workload.software.fp8_parameters=false"
        )
    groups = {"MODEL_ARGS": _model(run), "PARALLEL_ARGS": _parallel(run), "TRAINING_ARGS": _training(run)}
    notes = "".join(f"# {line}\n" for line in (*_ranks(run), *_releases(run)))
    texts = {name: "".join(f"    {_text(flag)}\n" for flag in flags) for name, flags in groups.items()}
    arrays = "\n\n".join(f"{name}=(\n{text})" for name, text in texts.items())
    use = " ".join(f'"${{{name}[@]}}"' for name in groups)
    return f"""\
#!/bin/bash
# {run.name}: {run.gpus:,} GPUs on {run.nodes:,} nodes. Data, optimiser and checkpoints are yours to add.
{notes}export CUDA_DEVICE_MAX_CONNECTIONS={connections(run)}
NNODES={run.nodes}
GPUS_PER_NODE={run.node_gpus}

{arrays}

torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \\
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \\
    pretrain_gpt.py {use} "$@"
"""


def _ranks(run: LaunchRun) -> Iterator[str]:
    """Yield where ranks stand, as far as no flag says it: at which sites, and otherwise than in the plan."""
    if len(by_site := run.layout.data_parallel_by_site) > 1:
        yield f"Replicas by site: {', '.join(f'{site} {count:,}' for site, count in sorted(by_site.items()))}."
    if run.stages_in_racks == "mixed":
        have = f"The plan has {run.layout.stages_per_rack} stages of a pipeline in a rack"
        yield f"{have}; ranks in order have replicas of one there. `planner evaluate --from-flags` counts the step so."


def _releases(run: LaunchRun) -> Iterator[str]:
    """Yield what releases of Megatron-LM refuse or have alone (arguments.py and transformer_config.py of each)."""
    if run.software is None:
        return
    if run.model.experts is not None and run.software.dispatcher == "hybrid_ep":
        yield "HybridEP is of core_v0.16.0 and later; before, --moe-enable-deepep in its place."
    if run.model.experts is not None and run.software.fused_experts:
        yield "One kernel of all experts, --use-transformer-engine-op-fuser, is of core_v0.18.0 and later."
    if run.software.cuda_graphs != "none" and run.layout.recompute != "none":
        yield "Releases before core_v0.16.0 refuse CUDA graphs of layers that recompute."
    if run.software.fused_loss and loss_implementation(run.software) == "te":
        yield (
            "core_v0.18.2 and later refuse --cross-entropy-fusion-impl te: for these plan with workload.software."
            f"logit_memory_bytes={NATIVE_LOSS_BYTES:g}, which native takes."
        )


def connections(run: LaunchRun) -> int:
    """Return CUDA's work queues: one, as tensor and context parallelism require; more, as Megatron FSDP does."""
    return 32 if run.layout.zero_stage in SHARDING else 1


def _text(flag: Flag) -> str:
    name, value = flag
    if isinstance(value, tuple):
        return f"--{name} {' '.join(value)}"
    quote = "'" if set(str(value)) & set("()|*[] ") else ""
    return f"--{name}" if value is True else f"--{name} {quote}{value}{quote}"


def _model(run: LaunchRun) -> Iterator[Flag]:
    model = run.model
    yield "num-layers", model.layers
    yield "hidden-size", model.hidden
    yield "num-attention-heads", model.heads
    yield "ffn-hidden-size", model.ffn_width
    yield "seq-length", run.sequence_length
    yield "max-position-embeddings", run.sequence_length
    yield "vocab-size", model.vocabulary
    yield "position-embedding-type", "rope"
    yield "normalization", "RMSNorm"
    yield "disable-bias-linear", True
    if model.gated_ffn:
        yield "swiglu", True
    if not model.tied_embeddings:
        yield "untie-embeddings-and-output-weights", True
    latent = model.latent_attention
    if latent is not None:
        yield "multi-latent-attention", True
        if latent.q_rank is not None:
            yield "q-lora-rank", latent.q_rank
        yield "kv-lora-rank", latent.kv_rank
        yield "qk-head-dim", latent.head_nope
        yield "qk-pos-emb-head-dim", latent.head_rope
        yield "v-head-dim", latent.head_value
    else:
        yield "kv-channels", model.head
        if model.kv != model.heads:
            yield "group-query-attention", True
            yield "num-query-groups", model.kv
    if model.experts is not None:
        experts = model.experts
        yield "num-experts", experts.count
        yield "moe-router-topk", experts.per_token
        yield "moe-ffn-hidden-size", experts.ffn
        yield "moe-grouped-gemm", True
        if experts.shared_ffn:
            yield "moe-shared-expert-intermediate-size", experts.shared_ffn
        if experts.dense_layers:
            yield "moe-layer-freq", f"([0]*{experts.dense_layers}+[1]*{model.layers - experts.dense_layers})"


def _parallel(run: LaunchRun) -> Iterator[Flag]:
    layout = run.layout
    yield "tensor-model-parallel-size", layout.tensor_parallel
    yield "pipeline-model-parallel-size", layout.pipeline_parallel
    yield "context-parallel-size", layout.context_parallel
    if run.model.experts is not None:
        yield "expert-model-parallel-size", layout.expert_parallel
        yield "expert-tensor-parallel-size", 1  # an expert is whole on its GPU
    if layout.sequence_parallel:
        yield "sequence-parallel", True
    if layout.pipeline_parallel > 1 and not run.is_even:
        yield "pipeline-model-parallel-layout", pipeline_layout(run)
    elif layout.virtual_stages > 1:
        yield "num-layers-per-virtual-pipeline-stage", run.chunks[0]
    if run.stages_in_racks == "pipelines":
        yield "use-tp-pp-dp-mapping", True
    if layout.zero_stage in SHARDING:
        yield "use-megatron-fsdp", True
        yield "data-parallel-sharding-strategy", SHARDING[layout.zero_stage]
        yield "ckpt-format", "fsdp_dtensor"  # the only one that Megatron FSDP takes
    if layout.zero_stage:
        yield "use-distributed-optimizer", True
    if run.software is not None:
        yield from _switches(run, run.software)


def loss_implementation(software: Software) -> str:
    """Return the fused loss of Megatron that keeps no more of a logit than the plan counts, native where it may."""
    return "native" if (software.logit_memory_bytes or 0.0) >= NATIVE_LOSS_BYTES else "te"


_DISPATCHERS: dict[Dispatcher, tuple[Flag, ...]] = {
    "all_to_all": (("moe-token-dispatcher-type", "alltoall"),),
    "deep_ep": (("moe-token-dispatcher-type", "flex"), ("moe-enable-deepep", True)),
    "hybrid_ep": (("moe-token-dispatcher-type", "flex"), ("moe-flex-dispatcher-backend", "hybridep")),
}


def _switches(run: LaunchRun, software: Software) -> Iterator[Flag]:
    """Yield the flags of the switches that are on in the plan's software stack, as far as the layout allows them."""
    layout, overlaps = run.layout, set(software.overlaps)
    shape, moe_repeated = strategy_of(layout).shape, layout.recompute == "selective" and "moe" in run.modules
    possible: dict[Overlap, bool] = {
        "gradients": True,
        "parameters": layout.zero_stage > 0 and "gradients" in overlaps,
        "tensor": layout.tensor_parallel > 1 and layout.sequence_parallel and run.precision.compute != "fp4",
        "experts": layout.expert_parallel > 1 and shape.experts_overlap and not moe_repeated,
    }
    for what, able in possible.items():
        if able and what in overlaps:
            yield OVERLAP_FLAGS[what], True
    if "sends" not in overlaps and layout.virtual_stages > 1:
        yield "no-overlap-p2p-communication", True
    if run.model.experts is not None:
        yield from _DISPATCHERS[software.dispatcher]
        if software.fused_experts:
            yield "use-transformer-engine-op-fuser", True
    if software.cuda_graphs == "whole":
        yield "enable-cuda-graph", True
        yield "cuda-graph-scope", "full_iteration"
        yield "no-check-for-nan-in-loss-and-grad", True  # else it refuses to start
    elif software.cuda_graphs == "part" and run.model.experts is not None:
        yield "external-cuda-graph", True  # the other captures whole layers, with the experts
        yield "cuda-graph-scope", "attn"
    elif software.cuda_graphs == "part":
        yield "enable-cuda-graph", True
    if not software.fused_gradient_sums:
        yield "no-gradient-accumulation-fusion", True
    if software.fused_loss:
        yield "cross-entropy-loss-fusion", True
        yield "cross-entropy-fusion-impl", loss_implementation(software)
    if run.precision.compute == "fp8":
        yield "fp8-recipe", next(flag for flag, recipe in FP8_RECIPES.items() if recipe == software.fp8_recipe)
        if software.fp8_parameters:
            yield "fp8-param-gather", True
    if software.fp8_attention:
        yield "fp8-dot-product-attention", True


def _training(run: LaunchRun) -> Iterator[Flag]:
    layout, precision = run.layout, run.precision
    yield "micro-batch-size", layout.microbatch_sequences
    yield "global-batch-size", run.global_batch
    if layout.recompute == "selective" and run.modules == CORE_ATTENTION:
        yield "recompute-activations", True
    else:
        yield from _recompute(run)
    if run.software is None or run.software.flash_attention:  # whose masks are not counted; the defaults are 0.1
        yield "attention-dropout", 0
        yield "hidden-dropout", 0
    if precision.compute == "fp16":
        yield "fp16", True
        if precision.gradient_bytes > 2:
            yield "accumulate-allreduce-grads-in-fp32", True
    elif precision.compute != "fp32":
        yield "bf16", True
        if precision.gradient_bytes <= 2:
            yield "grad-reduce-in-bf16", True
    if precision.compute == "fp8":
        yield "fp8-format", "hybrid"
    elif precision.compute == "fp4":
        yield "fp4-format", "e2m1"  # of core 0.15


def _recompute(run: LaunchRun) -> Iterator[Flag]:
    if run.layout.recompute == "selective":
        yield "recompute-granularity", "selective"
        if run.modules != CORE_ATTENTION:
            yield "recompute-modules", run.modules
    elif run.layout.recompute == "full":
        counts = run.layout.recomputed_layers_per_stage
        whole = not counts or counts == run.layout.layers_per_stage
        yield "recompute-granularity", "full"
        yield "recompute-method", "uniform" if whole else "block"
        most = range(max(run.chunks) + 1)
        yield "recompute-num-layers", 1 if whole else next(n for n in most if recomputed_under(run, n) == counts)


def megatron_flags(run: LaunchRun) -> dict[str, Any]:
    """Return the flags of Megatron-LM that the layout decides, with their values; True: a flag without a value."""
    require(run, "megatron")
    return dict([*_parallel(run), *_training(run)])


def torchtitan_tables(run: LaunchRun) -> dict[str, dict[str, Any]]:
    """Return the tables of a train config that the layout decides (torchtitan/config/job_config.py).

    Under a pipeline torchtitan cuts the local batch into micro-batches; without one it accumulates gradients.

    InputError: the layout has what torchtitan cannot be told.
    """
    require(run, "torchtitan")
    layout, replicas = run.layout, run.data_parallel
    routed = run.model.experts is not None and layout.tensor_parallel > 1
    if layout.zero_stage == 1:
        raise InputError("layout.zero_stage: torchtitan has replicas, ZeRO-2 and ZeRO-3 (is 1); pin 0, 2 or 3")
    pipelined = layout.pipeline_parallel > 1
    selective = {"selective_ac_option": "op"} if layout.recompute == "selective" else {}
    local = layout.microbatch_sequences * (layout.microbatches_per_step if pipelined else 1)
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if layout.zero_stage else replicas,
        "data_parallel_shard_degree": replicas if layout.zero_stage else 1,
        "fsdp_reshard_after_forward": "never" if layout.zero_stage == 2 else "always",
        "tensor_parallel_degree": layout.tensor_parallel,
        "context_parallel_degree": layout.context_parallel,
        "pipeline_parallel_degree": layout.pipeline_parallel,
        "expert_parallel_degree": layout.expert_parallel,
    }
    if routed:
        parallelism["expert_tensor_parallel_degree"] = 1  # an expert is whole on its GPU
    if pipelined:
        parallelism["pipeline_parallel_schedule"] = "Interleaved1F1B" if layout.virtual_stages > 1 else "1F1B"
        parallelism["pipeline_parallel_microbatch_size"] = layout.microbatch_sequences
        first, parts = 0, list[list[str]]()
        for i, count in enumerate(run.chunks):
            layers = [f"layers.{k}" for k in range(first, first + count)]
            parts.append(["tok_embeddings"] * (i == 0) + layers + ["norm", "output"] * (i == len(run.chunks) - 1))
            first += count
        parallelism["module_fqns_per_model_part"] = parts
    fused = run.software is not None and run.software.fused_loss
    return {
        "training": {"seq_len": run.sequence_length, "local_batch_size": local, "global_batch_size": run.global_batch},
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": layout.recompute, **selective},
        **({"compile": {"enable": True}} if fused else {}),
    }


def torchtitan_toml(run: LaunchRun) -> str:
    """Write a train config. InputError: torchtitan has no setting for a choice of the layout."""
    require_on_gpu(run, "torchtitan")
    tables = torchtitan_tables(run)
    lines = [f"# {run.name}: NNODES={run.nodes} NGPU={run.node_gpus}; model, data and optimiser are yours to add."]
    lines.append('# Environment: PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"')
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def nemo_overrides(run: LaunchRun) -> dict[str, dict[str, Any]]:
    """Return the overrides of NeMo's Megatron Bridge (ConfigContainer). InputError: it cannot be told the layout."""
    require(run, "nemo")
    layout = run.layout
    model: dict[str, Any] = {
        "seq_length": run.sequence_length,
        "tensor_model_parallel_size": layout.tensor_parallel,
        "pipeline_model_parallel_size": layout.pipeline_parallel,
        "virtual_pipeline_model_parallel_size": layout.virtual_stages if layout.virtual_stages > 1 else None,
        "context_parallel_size": layout.context_parallel,
        "expert_model_parallel_size": layout.expert_parallel,
        **({"expert_tensor_parallel_size": 1} if run.model.experts else {}),  # an expert is whole on its GPU
        "sequence_parallel": layout.sequence_parallel,
    }
    if layout.pipeline_parallel > 1 and not run.is_even:
        model["pipeline_model_parallel_layout"] = pipeline_layout(run)
        del model["virtual_pipeline_model_parallel_size"]  # the layout says it
    for flag, value in _recompute(run):
        model[flag.replace("-", "_")] = list(value) if isinstance(value, tuple) else value
    if run.software is not None:
        if not run.software.fused_gradient_sums:
            model["gradient_accumulation_fusion"] = False
        model["cross_entropy_loss_fusion"] = run.software.fused_loss  # GPTModelProvider fuses it, by native
        if run.software.fused_loss:
            model["cross_entropy_fusion_impl"] = loss_implementation(run.software)
        if run.software.fp8_attention:
            model["fp8_dot_product_attention"] = True
    ddp: dict[str, Any] = {"use_distributed_optimizer": layout.zero_stage > 0, "overlap_grad_reduce": True}
    if layout.zero_stage in SHARDING:
        ddp |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": SHARDING[layout.zero_stage]}
    return {
        "model": model,
        "train": {"micro_batch_size": layout.microbatch_sequences, "global_batch_size": run.global_batch},
        "ddp": ddp,
        "dataset": {"seq_length": run.sequence_length},
        **({"dist": {"use_tp_pp_dp_mapping": True}} if run.stages_in_racks == "pipelines" else {}),
    }


def nemo_yaml(run: LaunchRun) -> str:
    """Write a file of overrides. InputError: Megatron Bridge has no setting for a choice of the layout."""
    require_on_gpu(run, "nemo")
    data = nemo_overrides(run)
    start = f"torchrun --nnodes {run.nodes} --nproc-per-node {run.node_gpus}"
    head = (f"{run.name}: {start}; environment: CUDA_DEVICE_MAX_CONNECTIONS={connections(run)}", *_ranks(run))
    return "".join(f"# {line}\n" for line in head) + dump(data)


def deepspeed_keys(run: LaunchRun) -> dict[str, Any]:
    """Return a DeepSpeed configuration; its stages are cut evenly. InputError: it cannot be told the layout."""
    require(run, "deepspeed")
    layout = run.layout
    if layout.pipeline_parallel > 1 and layout.zero_stage > 1:
        raise InputError(f"layout.zero_stage: DeepSpeed has 0 or 1 under a pipeline (is {layout.zero_stage}); pin 1")
    return {
        "train_batch_size": run.global_batch,
        "train_micro_batch_size_per_gpu": layout.microbatch_sequences,
        "gradient_accumulation_steps": layout.microbatches_per_step,
        "zero_optimization": {"stage": layout.zero_stage, "overlap_comm": True},
        ("fp16" if run.precision.compute == "fp16" else "bf16"): {"enabled": True},
        "tensor_parallel": {"autotp_size": layout.tensor_parallel},
        "pipeline": {
            "stages": layout.pipeline_parallel,
            "partition": "uniform",
            "activation_checkpoint_interval": 1 if layout.recompute == "full" else 0,
        },
    }


def deepspeed_json(run: LaunchRun) -> str:
    """Write a configuration of DeepSpeed. InputError: it cannot be told the layout."""
    require_on_gpu(run, "deepspeed")
    return json.dumps(deepspeed_keys(run), indent=2) + "\n"


# What the layout decides, by key of a framework; and the file that states it.
DECIDED: dict[str, Callable[[LaunchRun], dict[str, Any]]] = {
    "megatron": megatron_flags,
    "torchtitan": torchtitan_tables,
    "nemo": nemo_overrides,
    "deepspeed": deepspeed_keys,
}
WRITERS: dict[str, Callable[[LaunchRun], str]] = {
    "megatron": megatron_script,
    "torchtitan": torchtitan_toml,
    "nemo": nemo_yaml,
    "deepspeed": deepspeed_json,
}
