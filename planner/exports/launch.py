"""A training run as planned, and its layout for other tools: flags and files of launchers."""

import json
import math
import operator
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from planner.checks.layout import broken_rules
from planner.cluster.job import HOST_GPUS
from planner.errors import InputError
from planner.formats.yaml_text import dump
from planner.instance.catalogue_entries import catalogue
from planner.instance.framework_rules import FP8_RECIPES, NATIVE_LOSS_BYTES, OVERLAP_FLAGS, Overlap, rules_of
from planner.instance.software import CORE_ATTENTION, Software
from planner.instance.workload import Model, Precision
from planner.physics.training.parallel_strategy import packing, strategy_of
from planner.physics.training.schedule import chunk_sizes, recomputed_alike, smaller_chunks_first
from planner.physics.training.step_prediction import machine_of
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}  # by ZeRO stage
# Choices of the layout that each framework takes as settings, in addition to tensor and data parallelism.
_CHOICES = {"context_parallel", "expert_parallel", "pipeline_parallel", "virtual_stages", "zero_stage"}
CHOICES = dict.fromkeys(("megatron", "nemo"), _CHOICES | {"recomputed_layers_per_stage"})
CHOICES |= {"torchtitan": _CHOICES, "deepspeed": {"pipeline_parallel", "zero_stage"}}
MEGATRON = catalogue("framework_keys")["megatron"]
MODEL_FLAGS = {flag: path.rpartition(".")[::2] for flag, path in MEGATRON["model"].items()}
STACKS: dict[str, str] = {framework: keys["stack"] for framework, keys in catalogue("framework_keys").items()}
UNSAID = "Counted on by the plan and not said here, yours to set"
FORMS: dict[str, str] = {name: keys["form"] for name, keys in catalogue("framework_keys").items()}  # endings of files
RULES = {framework: rules_of(stack) for framework, stack in STACKS.items()}
# Keys of NeMo for what Megatron's flags say, by the flag; of several the first that a file states holds.
NEMO_NAMES: dict[str, list[str]] = catalogue("framework_keys")["nemo"]["names"]
NEMO_FLAGS: dict[str, list[str]] = catalogue("framework_keys")["nemo"]["overrides"]
# Values by flag without its dashes; True: no value, several: a word each, None or False: the flag is left out.
Flags = dict[str, object]


@dataclass(frozen=True, slots=True)
class LaunchRun:
    """A training run as planned, which launch files of frameworks are written from."""

    name: str
    model: Model
    precision: Precision
    sequence_length: int
    layout: LayoutPlan
    rack_gpus: int
    software: Software

    @property
    def gpus(self) -> int:
        """GPUs that the launch files of a run need, one for each rank."""
        return self.layout.stage_gpus * self.layout.pipeline_parallel * self.layout.data_parallel

    @property
    def host_gpus(self) -> int:
        """GPUs of one host of a run."""
        return 4 if self.rack_gpus == 72 else min(self.rack_gpus, HOST_GPUS)  # of a rack of 72 four on a board

    @property
    def node_gpus(self) -> int:
        """GPUs that the launcher of a run starts on one host: as many as all hosts can start alike."""
        return math.gcd(self.host_gpus, self.gpus)

    @property
    def nodes(self) -> int:
        """Hosts on which the launcher of a run starts ranks."""
        return self.gpus // self.node_gpus

    @property
    def global_batch(self) -> int:
        """Global batch that the launch files of a run state: the sequences of one step."""
        return self.layout.microbatch_sequences * self.layout.microbatches_per_step * self.layout.data_parallel

    @property
    def chunks(self) -> list[int]:
        """Layers of each chunk of a launched run in pass order: the first of every stage, then the second of each."""
        stages = ((smaller_chunks_first(self.model, i), count) for i, count in enumerate(self.layout.layers_per_stage))
        sizes = [chunk_sizes(count, self.layout.virtual_stages, smaller_first=bool(first)) for first, count in stages]
        return [count for chunks in zip(*sizes, strict=True) for count in chunks]

    @property
    def packing_of_ranks(self) -> tuple[int, int]:
        """Stages, and replicas of each, in a rack that a launched run's ranks in order fill."""
        degrees = self.layout.stage_gpus, 1, self.layout.pipeline_parallel, self.layout.data_parallel
        return packing(self.rack_gpus, *degrees, self.gpus)

    @property
    def stages_in_racks(self) -> Literal["as ranks", "pipelines", "mixed"]:
        """Whether racks hold what a launched run's ranks in order fill them with, whole pipelines first, or neither.

        Megatron orders ranks by tensor, context, data, pipeline, or by pipeline first (--use-tp-pp-dp-mapping), which
        it refuses under its FSDP and where experts and the other weights have other replicas (parallel_state.py).
        """
        layout, unit, stages = self.layout, self.layout.stage_gpus, self.layout.pipeline_parallel
        if layout.stages_per_rack <= self.packing_of_ranks[0]:
            return "as ranks"
        refused = self.model.experts is not None or layout.context_parallel > 1 or layout.zero_stage in SHARDING
        return "mixed" if refused or layout.stages_per_rack != min(stages, self.rack_gpus // unit) else "pipelines"

    def fills_racks(self, framework: str) -> bool:
        """Return whether a framework's ranks in order fill racks as a launched run's layout has stages in them."""
        return self.stages_in_racks in ("as ranks", "pipelines" if framework in ("megatron", "nemo") else "")

    @property
    def is_even(self) -> bool:
        """Whether all pipeline chunks of a launched run have as many layers."""
        return len(set(self.chunks)) == 1


def run_of(plan: Plan, where: str) -> LaunchRun:
    """Return the run that a plan's launch files start. InputError: the plan has no layout, or one for each pool."""
    if plan.layout is None:
        why = "each pool has a layout of its own" if plan.pools else f"status {plan.status}"
        raise InputError(f"{where}: has no layout to start ({why}); give a plan with one")
    m, name = machine_of(plan.instance), plan.instance.name
    return LaunchRun(name, m.model, m.precision, m.sequence, plan.layout, m.rack.gpus, m.software)


def pipeline_layout(run: LaunchRun, *, grouped: bool = True) -> str:
    """Return a run's chunks as Megatron's pipeline layout: E embedding, t a layer, L the loss, stages divided by |."""
    parts = [f"t*{count}" if count > 2 else "t" * count for count in run.chunks]
    parts[0], parts[-1] = f"E{parts[0]}", f"{parts[-1]}L"
    if not grouped:
        return "|".join(parts)
    pieces: list[str] = []
    for part, group in groupby(parts[:-1]):
        count = len(list(group))
        pieces.append(f"({part}|)*{count}" if count > 2 else f"{part}|" * count)
    return "".join(pieces) + parts[-1]


def nearest_choices(run: LaunchRun, framework: str) -> dict[str, Any]:
    """Return the choices by which the nearest layout that a framework can launch differs; none where it is the plan's.

    More layers are recomputed, never fewer, and activations are divided further, never less, so that memory holds; less
    is sharded by ZeRO only under DeepSpeed's pipelines.
    """
    layout, counts, changes = run.layout, run.layout.recomputed_layers_per_stage, dict[str, Any]()
    megatron, virtual = framework in ("megatron", "nemo"), layout.virtual_stages
    if layout.tensor_parallel_inner > 1:
        changes["tensor_parallel_inner"] = 1
    if layout.schedule != "1f1b":
        changes["schedule"] = "1f1b"
    rounds = RULES[framework].whole_rounds and layout.microbatches_per_step % layout.pipeline_parallel
    if virtual > 1 and (rounds or "virtual_stages" not in CHOICES[framework]):
        changes["virtual_stages"] = virtual = 1
    if layout.zero_stage not in (zeros := zero_stages(framework, layout)):
        changes["zero_stage"] = min(zeros, key=lambda stage: (abs(stage - layout.zero_stage), -stage))
    divides = framework == "torchtitan" or (megatron and run.model.experts is not None)
    if divides and layout.tensor_parallel > 1 and not layout.sequence_parallel:
        changes["sequence_parallel"] = True
    layers = layout.layers_per_stage
    if framework == "deepspeed" and len(set(layers)) > 1 and sum(layers) % len(layers) == 0:
        changes["layers_per_stage"] = layers = (sum(layers) // len(layers),) * len(layers)
    modules = run.software.recompute_modules
    scores_alone = framework == "deepspeed" or (framework == "torchtitan" and modules != CORE_ATTENTION)
    if layout.recompute == "selective" and scores_alone:
        changes["recompute"] = "full"
    if changes.get("recompute", layout.recompute) == "full" and (counts or "recompute" in changes):
        wanted = layers
        if megatron and counts != layers:
            each = (recomputed_alike(layers, virtual, number).tolist() for number in range(max(layers) + 1))
            wanted = next(tuple(under) for under in each if all(map(operator.ge, under, counts)))
        if wanted != counts:
            changes["recomputed_layers_per_stage"] = wanted
    if not run.fills_racks(framework) and layout.replicas_per_rack * layout.stage_gpus % run.host_gpus:
        changes["stages_per_rack"], changes["replicas_per_rack"] = run.packing_of_ranks
    return changes


def zero_stages(framework: str, layout: LayoutPlan) -> tuple[int, ...]:
    """Return the ZeRO stages that a framework can launch with a layout's pipeline and experts."""
    if framework == "torchtitan":  # which takes the GPUs of experts beyond TP x CP from sharded replicas
        return (2, 3) if layout.expert_parallel > layout.stage_gpus else (0, 2, 3)
    return (0, 1) if framework == "deepspeed" and layout.pipeline_parallel > 1 else (0, 1, 2, 3)


def unsaid(run: LaunchRun, framework: str) -> list[str]:
    """Return what a plan counts on and a framework's launch file does not say, with the key or flag that sets it."""
    layout, software, compute, overlapped = run.layout, run.software, run.precision.compute, _overlapped(run)
    bridge, deepspeed, routed = framework == "nemo", framework == "deepspeed", layout.expert_parallel > 1
    tensor = "comm_overlap.tp_comm_overlap" if bridge else "parallelism.enable_async_tensor_parallel"
    sequence = "--sequence-parallel of Megatron-DeepSpeed, under CUDA_DEVICE_MAX_CONNECTIONS=1"
    counted = {
        f"products in {compute}": compute not in (("bf16", "fp16", "fp32") if deepspeed else ("bf16",)),
        "gradients of 2 bytes": run.precision.gradient_bytes <= 2,
        f"sequence parallelism ({sequence})": deepspeed and layout.sequence_parallel and layout.tensor_parallel > 1,
        f"overlap of tensor ({tensor})": not deepspeed and overlapped["tensor"] and software.tensor_overlap > 0,
        "overlap of experts (comm_overlap.overlap_moe_expert_parallel_comm)": bridge and overlapped["experts"],
        f"CUDA graphs ({software.cuda_graphs})": software.cuda_graphs != "none",
        f"dispatcher {software.dispatcher}": routed and software.dispatcher != "all_to_all",
        "one kernel of all experts": routed and software.fused_experts,
    }
    return [what for what, counts in counted.items() if counts and framework != "megatron"]  # whose script says all


def connections(run: LaunchRun) -> int:
    """Return CUDA_DEVICE_MAX_CONNECTIONS of a run: one, more for Megatron FSDP and experts whose exchange overlaps."""
    return 32 if run.layout.zero_stage in SHARDING or _overlapped(run)["experts"] else 1


def _stated(flags: Flags) -> Flags:
    return {name: value for name, value in flags.items() if value is not None and value is not False}


def _model(run: LaunchRun) -> Flags:
    model, latent, experts = run.model, run.model.latent_attention, run.model.experts
    holders: dict[str, Any] = {"": model, "latent_attention": latent, "experts": experts}
    figures = ((flag, holders[part], name) for flag, (part, name) in MODEL_FLAGS.items())
    flags: Flags = {flag: getattr(holder, name) or None for flag, holder, name in figures if holder is not None}
    grouped = latent is None and model.kv != model.heads
    flags |= {
        "multi-latent-attention": latent is not None,
        "kv-channels": model.head if latent is None else None,
        "group-query-attention": grouped,
        "num-query-groups": model.kv if grouped else None,
        "moe-grouped-gemm": experts is not None,
        "seq-length": run.sequence_length,
        "max-position-embeddings": run.sequence_length,
        "vocab-size": model.vocabulary,
        "position-embedding-type": "rope",
        "normalization": "RMSNorm",
        "disable-bias-linear": True,
        "swiglu": model.gated_ffn,
        "untie-embeddings-and-output-weights": not model.tied_embeddings,
    }
    if experts is not None and experts.dense_layers:
        flags["moe-layer-freq"] = f"([0]*{experts.dense_layers}+[1]*{model.layers - experts.dense_layers})"
    if model.window is not None:  # of each run of layers the last one sees all, or the last ones of all
        windows, full = model.window_layers, model.layers - model.window_layers
        every = model.layers // full if full and model.layers % full == 0 else f"([1]*{windows}+[0]*{full})"
        flags |= {"window-size": f"{model.window},0", "window-attn-skip-freq": every if full else None}
    return flags


def _overlapped(run: LaunchRun) -> dict[Overlap, bool]:
    """Return which exchanges overlap compute in a run as its layout allows; sends and context follow other rules."""
    layout, overlaps = run.layout, run.software.overlaps
    moe_repeated = layout.recompute == "selective" and "moe" in run.software.recompute_modules
    possible: dict[Overlap, bool] = {
        "gradients": True,
        "parameters": layout.zero_stage > 0 and "gradients" in overlaps,
        "tensor": layout.tensor_parallel > 1 and layout.sequence_parallel and run.precision.compute != "fp4",
        "experts": layout.expert_parallel > 1 and strategy_of(layout).shape.experts_overlap and not moe_repeated,
    }
    return {what: able and what in overlaps for what, able in possible.items()}


def loss_implementation(software: Software) -> str:
    """Return Megatron's fused-loss flag that keeps no more of a logit than the plan counts: native where it may."""
    return "native" if (software.logit_memory_bytes or 0.0) >= NATIVE_LOSS_BYTES else "te"


def _parallel(run: LaunchRun) -> Flags:
    layout, routed = run.layout, run.model.experts is not None
    fsdp, uneven = layout.zero_stage in SHARDING, layout.pipeline_parallel > 1 and not run.is_even
    flags: Flags = {
        "tensor-model-parallel-size": layout.tensor_parallel,
        "pipeline-model-parallel-size": layout.pipeline_parallel,
        "context-parallel-size": layout.context_parallel,
        "expert-model-parallel-size": layout.expert_parallel if routed else None,
        "expert-tensor-parallel-size": 1 if routed else None,  # an expert is whole on its GPU
        "sequence-parallel": layout.sequence_parallel,
        "pipeline-model-parallel-layout": pipeline_layout(run) if uneven else None,
        "num-layers-per-virtual-pipeline-stage": run.chunks[0] if layout.virtual_stages > 1 and not uneven else None,
        "use-tp-pp-dp-mapping": run.stages_in_racks == "pipelines",
        "use-megatron-fsdp": fsdp,
        "data-parallel-sharding-strategy": SHARDING.get(layout.zero_stage),
        "ckpt-format": "fsdp_dtensor" if fsdp else None,  # the only one that Megatron FSDP takes
        "use-distributed-optimizer": layout.zero_stage > 0,
    }
    # What the software overlaps and fuses.
    software = run.software
    flags |= {OVERLAP_FLAGS[what]: does for what, does in _overlapped(run).items()}
    flags["no-overlap-p2p-communication"] = "sends" not in software.overlaps and layout.virtual_stages > 1
    gathered = layout.context_parallel > 1 and "context" not in software.overlaps
    flags["cp-comm-type"] = "all_gather" if gathered else None  # the default, p2p, overlaps
    if routed:
        flags["moe-token-dispatcher-type"] = "alltoall" if software.dispatcher == "all_to_all" else "flex"
        flags["moe-enable-deepep"] = software.dispatcher == "deep_ep"
        flags["moe-flex-dispatcher-backend"] = "hybridep" if software.dispatcher == "hybrid_ep" else None
        flags["use-transformer-engine-op-fuser"] = software.fused_experts
    if software.cuda_graphs == "whole":
        flags |= {"enable-cuda-graph": True, "cuda-graph-scope": "full_iteration"}
        flags["no-check-for-nan-in-loss-and-grad"] = True  # else it refuses to start
    elif software.cuda_graphs == "part" and routed:
        flags |= {"external-cuda-graph": True, "cuda-graph-scope": "attn"}  # else whole layers, with the experts
    elif software.cuda_graphs == "part":
        flags["enable-cuda-graph"] = True
    flags["no-gradient-accumulation-fusion"] = not software.fused_gradient_sums
    if software.fused_loss:
        flags |= {"cross-entropy-loss-fusion": True, "cross-entropy-fusion-impl": loss_implementation(software)}
    if run.precision.compute == "fp8":
        flags["fp8-recipe"] = next(flag for flag, recipe in FP8_RECIPES.items() if recipe == software.fp8_recipe)
        flags["fp8-param-gather"] = software.fp8_parameters
    return flags | {"fp8-dot-product-attention": software.fp8_attention}


def _training(run: LaunchRun) -> Flags:
    compute, wide = run.precision.compute, run.precision.gradient_bytes > 2
    flags: Flags = {"micro-batch-size": run.layout.microbatch_sequences, "global-batch-size": run.global_batch}
    plain = run.layout.recompute == "selective" and run.software.recompute_modules == CORE_ATTENTION
    flags |= {"recompute-activations": True} if plain else _recompute(run)
    if run.software.flash_attention:  # whose masks are not counted; the defaults are 0.1
        flags |= {"attention-dropout": 0, "hidden-dropout": 0}
    if compute == "fp16":
        flags |= {"fp16": True, "accumulate-allreduce-grads-in-fp32": wide}
    elif compute != "fp32":
        flags |= {"bf16": True, "grad-reduce-in-bf16": not wide}
    formats = {"fp8": ("fp8-format", "hybrid"), "fp4": ("fp4-format", "e2m1")}  # fp4 is of core 0.15
    return flags | dict([formats[compute]] if compute in formats else [])


def _recompute(run: LaunchRun) -> Flags:
    if run.layout.recompute == "none":
        return {}
    if run.layout.recompute == "selective":
        modules = None if run.software.recompute_modules == CORE_ATTENTION else run.software.recompute_modules
        return {"recompute-granularity": "selective", "recompute-modules": modules}
    counts, layers = run.layout.recomputed_layers_per_stage, run.layout.layers_per_stage
    whole = not counts or counts == layers
    of_stages = (recomputed_alike(layers, run.layout.virtual_stages, each) for each in range(max(layers) + 1))
    return {
        "recompute-granularity": "full",
        "recompute-method": "uniform" if whole else "block",
        "recompute-num-layers": 1 if whole else [tuple(under.tolist()) for under in of_stages].index(counts),
    }


def _torchtitan(run: LaunchRun) -> dict[str, dict[str, Any]]:
    """Return torchtitan's tables of the layout (torchtitan/config/job_config.py)."""
    layout, replicas = run.layout, run.layout.data_parallel
    pipelined = layout.pipeline_parallel > 1
    selective = {"selective_ac_option": "op"} if layout.recompute == "selective" else {}
    # A pipeline cuts the local batch into micro-batches; without one gradients are accumulated.
    local = layout.microbatch_sequences * (layout.microbatches_per_step if pipelined else 1)
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if layout.zero_stage else replicas,
        "data_parallel_shard_degree": replicas if layout.zero_stage else 1,
        "fsdp_reshard_after_forward": "never" if layout.zero_stage == 2 else "always",
    }
    for choice in ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel"):
        parallelism[f"{choice}_degree"] = getattr(layout, choice)
    if run.model.experts is not None and layout.tensor_parallel > 1:
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
    return {
        "training": {"seq_len": run.sequence_length, "local_batch_size": local, "global_batch_size": run.global_batch},
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": layout.recompute, **selective},
        **({"compile": {"enable": True}} if run.software.fused_loss else {}),
    }


def nemo_names(flag: str) -> tuple[str, ...]:
    """Return the keys of NeMo that correspond to a flag of Megatron: its own name in `model` unless it has others."""
    return tuple(NEMO_NAMES.get(flag, [f"model.{flag.replace('-', '_')}"]))


def _nemo(run: LaunchRun) -> dict[str, dict[str, Any]]:
    """Return NeMo's overrides of the layout (Megatron Bridge's ConfigContainer): what Megatron's flags say of it."""
    flags = {"seq-length": run.sequence_length} | _parallel(run) | _training(run) | _recompute(run)
    flags["expert-model-parallel-size"] = run.layout.expert_parallel
    flags["cross-entropy-loss-fusion"] = run.software.fused_loss  # GPTModelProvider fuses it, by native
    model: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {"model": model, "train": {}, "ddp": {}}
    tables["dataset"] = {"seq_length": run.sequence_length}
    for flag in NEMO_FLAGS["flags"]:
        table, _, key = nemo_names(flag)[0].partition(".")
        if (value := flags.get(flag)) is not None and (value is not False or flag in NEMO_FLAGS["stated"]):
            tables.setdefault(table, {})[key] = list(value) if isinstance(value, tuple) else value
    if "pipeline_model_parallel_layout" not in model:  # which says it
        virtual = run.layout.virtual_stages
        model["virtual_pipeline_model_parallel_size"] = virtual if virtual > 1 else None
    if not run.software.fused_gradient_sums:
        model["gradient_accumulation_fusion"] = False
    return tables


def decided(run: LaunchRun, framework: str) -> dict[str, Any]:
    """Return what a run's layout decides, by a framework's keys. InputError: a choice has none; it says what to pin."""
    layout, near = run.layout, nearest_choices(run, framework)
    nearest = {f"layout.{key}": "leave out --exact to take the nearest, or " for key in near}
    degrees = ("tensor_parallel_inner", "context_parallel", "expert_parallel", "pipeline_parallel", "virtual_stages")
    plain = dict.fromkeys(degrees, 1) | {"schedule": "1f1b", "recomputed_layers_per_stage": (), "zero_stage": 0}
    for key, without in plain.items():
        value = getattr(layout, key)
        some = key == "recomputed_layers_per_stage"  # where they are all layers, the flag of full recompute says it
        if key not in CHOICES[framework] and value != without and not (some and value == layout.layers_per_stage):
            pin = "layout.recompute=none" if some else f"layout.{key}={without}"
            problem = f"{framework} cannot be told {list(value) if some else value!r}"
            others = " or ".join(name for name in CHOICES if key in CHOICES[name])
            more = f", or give --for {others}, which can" if others else ""
            raise InputError(f"layout.{key}: {problem}; {nearest.get(f'layout.{key}', '')}plan with --pin {pin}{more}")
    modules = run.software.recompute_modules
    if framework == "torchtitan" and layout.recompute == "selective" and modules != CORE_ATTENTION:
        problem = f"torchtitan cannot be told {', '.join(modules)}"
        remedy = f"{nearest['layout.recompute']}plan with --pin layout.recompute=none, or give --for megatron or nemo"
        raise InputError(f"workload.software.recompute_modules: {problem}; {remedy}")
    for what in broken_rules(RULES[framework], layout, run.model, run.sequence_length):
        path, _, rule = what.partition(": ")
        remedy = f"{nearest.get(path, '')}plan with --set workload.software={STACKS[framework]}"
        raise InputError(f"{path}: {framework} needs {rule}; {remedy}")
    if layout.zero_stage not in (zeros := zero_stages(framework, layout)):
        under = " under a pipeline" if framework == "deepspeed" else " where EP is above TP x CP" * (len(zeros) == 2)
        problem = f"{framework} has ZeRO-{', '.join(map(str, zeros))}{under} (is {layout.zero_stage})"
        remedy = f"{nearest['layout.zero_stage']}plan with --pin layout.zero_stage={near['zero_stage']}"
        raise InputError(f"layout.zero_stage: {problem}; {remedy}")
    if "stages_per_rack" in near:
        problem = f"the ranks of {framework} have {near['stages_per_rack']} of a pipeline in a rack"
        remedy = f"{nearest['layout.stages_per_rack']}plan with --pin layout.stages_per_rack=1"
        raise InputError(f"layout.stages_per_rack: {problem} (is {layout.stages_per_rack}); {remedy}")
    if framework == "megatron":  # flags without their dashes; True: without a value
        return _stated(_parallel(run) | _training(run))
    if framework != "deepspeed":
        return _torchtitan(run) if framework == "torchtitan" else _nemo(run)
    return {
        "train_batch_size": run.global_batch,
        "train_micro_batch_size_per_gpu": layout.microbatch_sequences,
        "gradient_accumulation_steps": layout.microbatches_per_step,
        "zero_optimization": {"stage": layout.zero_stage, "overlap_comm": True},
        ("fp16" if run.precision.compute == "fp16" else "bf16"): {"enabled": run.precision.compute != "fp32"},
        "tensor_parallel": {"autotp_size": layout.tensor_parallel},
        "pipeline": {  # its stages are cut evenly
            "stages": layout.pipeline_parallel,
            "partition": "uniform",
            "activation_checkpoint_interval": 1 if layout.recompute == "full" else 0,
        },
    }


def launch_file(run: LaunchRun, framework: str, differs: Sequence[str] = ()) -> str:
    """Write a run's file for a framework, with what `differs` in comments. InputError: a choice cannot be stated."""
    if run.software.activation_offload:  # else they would stay on the GPU
        key = "workload.software.activation_offload"
        remedy = f"plan with --set {key}=0, or give a recipe that has it by --like"
        raise InputError(f"{key}: {framework} cannot be told {run.software.activation_offload:g}; {remedy}")
    keys, notes = decided(run, framework), list(differs)
    if framework == "deepspeed":  # JSON has no comments
        return json.dumps(keys, indent=2) + "\n"
    if not run.fills_racks(framework):  # whose hosts have a stage each
        notes.append(f"Give hosts their ranks so that each rack has {run.layout.stages_per_rack} stages of a pipeline.")
    if counted := unsaid(run, framework):
        notes.append(f"{UNSAID}: {'; '.join(counted)}")
    if framework == "torchtitan":
        lines = [f"# {run.name}: NNODES={run.nodes} NGPU={run.node_gpus}; model, data and optimiser are yours to add."]
        lines += ['# Environment: PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"', *(f"# {note}" for note in notes)]
        for name, table in keys.items():
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"
    # Sites and racks of ranks, as far as no flag states them.
    by_site = run.layout.data_parallel_by_site
    if len(by_site) > 1:
        notes.append(f"Replicas by site: {', '.join(f'{site} {count:,}' for site, count in sorted(by_site.items()))}.")
    if framework == "nemo":
        start = f"torchrun --nnodes {run.nodes} --nproc-per-node {run.node_gpus}"
        head = f"{run.name}: {start}; environment: CUDA_DEVICE_MAX_CONNECTIONS={connections(run)}"
        return "".join(f"# {line}\n" for line in (head, *notes)) + dump(keys)
    return _script(run, notes)


def _script(run: LaunchRun, notes: list[str]) -> str:
    """Write the script that starts Megatron-LM, with notes on what its releases refuse after those on ranks."""
    software = run.software
    if run.precision.compute == "fp8" and software.fp8_parameters and not run.layout.zero_stage:
        key, problem = "workload.software.fp8_parameters", "Megatron has weights in FP8 under ZeRO alone"
        remedy = f"plan with --pin layout.zero_stage=1, or --set {key}=false"
        raise InputError(f"{key}: {problem} (layout.zero_stage is 0); {remedy}")
    # As releases of Megatron-LM have it (arguments.py, transformer_config.py).
    routed, graphs = run.model.experts is not None, software.cuda_graphs
    holding = {
        "model": True,
        "hybrid_ep": routed and software.dispatcher == "hybrid_ep",
        "fused_experts": routed and software.fused_experts,
        "windows": run.model.window is not None,
        "whole_graphs": routed and graphs == "whole",
        "recomputed_graphs": graphs != "none" and run.layout.recompute != "none",
        "fused_loss": software.fused_loss and loss_implementation(software) == "te",
    }
    notes += [MEGATRON["releases"][name] for name, holds in holding.items() if holds]
    arrays, groups = "", {"MODEL_ARGS": _model(run), "PARALLEL_ARGS": _parallel(run), "TRAINING_ARGS": _training(run)}
    for name, flags in groups.items():
        arrays += f"{name}=(\n"
        for flag, value in _stated(flags).items():
            words = value if isinstance(value, tuple) else () if value is True else (str(value),)
            arrays += f"    {shlex.join([f'--{flag}', *words])}\n"
        arrays += ")\n\n"
    use, comments = " ".join(f'"${{{name}[@]}}"' for name in groups), "".join(f"# {note}\n" for note in notes)
    return f"""\
#!/bin/bash
# {run.name}: {run.gpus:,} GPUs on {run.nodes:,} nodes. Data, optimiser and checkpoints are yours to add.
{comments}export CUDA_DEVICE_MAX_CONNECTIONS={connections(run)}
NNODES={run.nodes}
GPUS_PER_NODE={run.node_gpus}

{arrays}torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" \\
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \\
    pretrain_gpt.py {use} "$@"
"""
