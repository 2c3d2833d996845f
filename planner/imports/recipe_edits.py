"""Write a plan into a user's own recipe: its degrees, stages, batch, recompute, sharding, nodes; all else stays."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.cluster import Placement, fold_names, natural
from planner.errors import InputError
from planner.exports import launch
from planner.exports.launch import SHARDING, LaunchRun
from planner.formats import topology_files
from planner.formats.shell_script import Script, started, typed
from planner.formats.topology_rows import gpus_of_node
from planner.formats.yaml_text import TableText
from planner.imports import training_run
from planner.imports.megatron_flags import DEGREE_KEYS, OwnRun
from planner.instance.instance import Instance
from planner.instance.workload import CORE_ATTENTION
from planner.plan.plan_sections import DEGREES

# The keys of a framework that say each choice of a layout. A choice that the file has as the plan does is not touched.
_MEGATRON_STAGES = """pipeline-model-parallel-size pipeline-model-parallel-layout num-layers-per-virtual-pipeline-stage
    num-virtual-stages-per-pipeline-rank decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers"""
_TITAN_STAGES = """parallelism.pipeline_parallel_degree parallelism.pipeline_parallel_schedule
    parallelism.module_fqns_per_model_part parallelism.pipeline_parallel_microbatch_size training.local_batch_size
    training.global_batch_size parallelism.fsdp_reshard_after_forward"""
_TITAN_DATA = "parallelism.data_parallel_replicate_degree parallelism.data_parallel_shard_degree"
_TITAN_BATCH = "training.local_batch_size training.global_batch_size parallelism.pipeline_parallel_microbatch_size"
_DEEPSPEED_BATCH = "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps"
KEYS: dict[str, dict[str, str]] = {
    "megatron": {
        **DEGREE_KEYS["megatron"],
        "expert_tensor": "expert-tensor-parallel-size",
        "sequence_parallel": "sequence-parallel",
        "pipeline_parallel": _MEGATRON_STAGES,
        "zero_stage": "use-distributed-optimizer use-megatron-fsdp data-parallel-sharding-strategy ckpt-format",
        "recompute": """recompute-granularity recompute-activations recompute-method recompute-num-layers
            recompute-modules""",
        "microbatch_sequences": "micro-batch-size",
        "batch": "global-batch-size",
    },
    "torchtitan": {
        **DEGREE_KEYS["torchtitan"],
        "expert_tensor": "parallelism.expert_tensor_parallel_degree",
        "pipeline_parallel": _TITAN_STAGES,
        "data_parallel": f"{_TITAN_DATA} {_TITAN_BATCH}",
        "zero_stage": f"{_TITAN_DATA} parallelism.fsdp_reshard_after_forward",
        "recompute": "activation_checkpoint.mode activation_checkpoint.selective_ac_option",
        "microbatch_sequences": _TITAN_BATCH,
        "batch": _TITAN_BATCH,
    },
    "deepspeed": {
        "tensor_parallel": "tensor_parallel.autotp_size",
        "pipeline_parallel": "pipeline.stages",
        "data_parallel": _DEEPSPEED_BATCH,
        "zero_stage": "zero_optimization.stage",
        "recompute": "pipeline.activation_checkpoint_interval",
        "microbatch_sequences": _DEEPSPEED_BATCH,
        "batch": _DEEPSPEED_BATCH,
    },
}
for _framework in DEGREE_KEYS:  # the degree of experts' tensors follows from both where it is left out
    for _choice in ("tensor_parallel", "expert_parallel"):
        KEYS[_framework][_choice] += " " + KEYS[_framework]["expert_tensor"]
_flags = KEYS["megatron"].items()
KEYS["nemo"] = {
    choice: " ".join(training_run.nemo_names(flag)[0] for flag in flags.split()) for choice, flags in _flags
}
SAME_KEYS = dict.fromkeys(("virtual_stages", "layers_per_stage"), "pipeline_parallel")
SAME_KEYS |= dict.fromkeys(("recomputed_layers_per_stage", "recompute_modules"), "recompute")
SAME_KEYS |= {"microbatches_per_step": "batch"}
# Older names of keys, changed where a file has them.
OLDER = {"training.local_batch_size": "training.batch_size"}
OLDER |= {names[0]: names[1] for names in map(training_run.nemo_names, training_run.NEMO_NAMES) if len(names) > 1}
# What has no effect where the plan's layout does not state it, so that it stays.
KEPT = (
    "ckpt-format",
    "parallelism.pipeline_parallel_schedule",
    "parallelism.pipeline_parallel_microbatch_size",
    "activation_checkpoint.selective_ac_option",
    "parallelism.expert_tensor_parallel_degree",
)
# Degrees that a recipe has of its own where its overrides do not state them.
OF_RECIPE = (*DEGREE_KEYS["megatron"], "zero_stage", "recompute")
GRANULARITY, VIRTUAL_LAYERS = "recompute-granularity", "num-layers-per-virtual-pipeline-stage"
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
VIRTUAL_STAGES = "num-virtual-stages-per-pipeline-rank"


def written_like(
    text: str, path: Path, run: LaunchRun, instance: Instance, placed: Placement | None = None
) -> tuple[str, list[str]]:
    """Return a user's recipe with the plan's choices in it, and a line on each. InputError: of another question."""
    file = training_run.run_of_text(text, path)
    for problem in training_run.model_differences(file, instance):
        raise InputError(f"{path}: {problem}")
    recipe = data = training_run.parsed(text, path)
    if isinstance(data, Script):
        named, data.dashes = (data.overrides, "") if file.framework == "nemo" else (data.flags, "--")
        present = {key: typed(value) for key, value in named.items()}  # True where a flag has no value
    else:
        kind, present = path.suffix.lower()[1:].replace("yml", "yaml"), dict(training_run.leaves(data))
        recipe = TableText(text, str(path), kind=kind)
    reported = [f"{path}: {line}" for line in training_run.doubts(file, instance)]
    if placed is not None and (gpus := len(placed.nodes) * gpus_of_node(placed)) != run.gpus:
        raise InputError(f"{path}: the placement has {gpus:,} GPUs, the plan {run.gpus:,}; place that plan")
    wrong, keys = differences(file, run), KEYS[file.framework]
    if file.framework == "nemo" or (file.framework == "torchtitan" and isinstance(recipe, Script)):
        alike = [keys[name].split() for name in OF_RECIPE if name not in wrong]
        if unstated := [names[0] for names in alike if not set(names) & set(present)]:
            taken = "taken as 1, off or none; its recipe's own hold"
            reported.append(f"{path}: states none of {', '.join(unstated)}: {taken}")
    changed = {key for choice in wrong for key in keys.get(SAME_KEYS.get(choice, choice), "").split()}
    _change_keys(recipe, file.framework, changed, present, run)
    fsdp = [zero in SHARDING for zero in wrong.get("zero_stage", ())]
    if isinstance(recipe, Script) and len(set(fsdp)) > 1 and QUEUES in recipe.variables:
        recipe.set_value(recipe.variables[QUEUES], str(launch.connections(run)), QUEUES)
    if "gpus" in wrong or placed is not None or file.gpus is None:
        _change_nodes(recipe, text, run, placed)
    if file.gpus is None:
        reported.append(f"{path}: states no nodes or no GPUs; start it on {run.nodes:,} nodes of {run.node_gpus} GPUs")
    new = recipe.result()
    try:
        back = training_run.run_of_text(new, path)
    except InputError as error:
        problem = re.sub(r"^line \d+: ", "", str(error).removeprefix(f"{path}: "))  # a line that the file has not
        raise InputError(f"{path}: cannot be read once the plan is in it: {problem}") from None
    for choice, (is_, ought) in differences(back, run).items():
        key = next((key for key in keys.get(SAME_KEYS.get(choice, choice), choice).split() if key in present), choice)
        problem = f"is read back as {is_}, the plan has {ought}: it shares a variable, or is in a part that is not read"
        raise recipe.refused(recipe.place(key), recipe.dashes + key, f"{choice} {problem}")
    return new, reported + recipe.messages()


def _change_keys(
    recipe: TableText | Script, framework: str, changed: set[str], present: Mapping[str, Any], run: LaunchRun
) -> None:
    layout, keys = run.layout, KEYS[framework].values()
    wanted = dict(training_run.leaves(launch.decided(run, framework)))
    if "model.pipeline_model_parallel_layout" in wanted:  # an override takes no parentheses
        wanted["model.pipeline_model_parallel_layout"] = launch.pipeline_layout(run, grouped=False)
    by_granularity = wanted.get("recompute-activations") and GRANULARITY in present  # as the file has it
    likes = tuple(dict.fromkeys(key for names in keys for key in names.split()))
    for key in (key for key in likes if key in changed):
        value, own = wanted.get(key), key if key in present else OLDER.get(key, key)
        if framework == "megatron":
            if by_granularity and key in ("recompute-activations", GRANULARITY):
                value = "selective" if key == GRANULARITY else None
            elif VIRTUAL_LAYERS in wanted and (VIRTUAL_STAGES in present or "num-layers" not in present):
                value = {VIRTUAL_LAYERS: None, VIRTUAL_STAGES: layout.virtual_stages}.get(key, value)
            elif key == "ckpt-format" and value is None and present.get(key) == "fsdp_dtensor":
                value = "torch_dist"
        elif key in _TITAN_DATA.split() and layout.zero_stage:  # as it has replicas of shards, and a degree of all left
            replicas = present.get("parallelism.data_parallel_replicate_degree", 1)
            kept = replicas if isinstance(replicas, int) and layout.data_parallel % replicas == 0 else 1
            left = present.get(key, -1) == -1
            value = (-1 if key in present else None) if left else layout.data_parallel // kept
            value = kept if key.endswith("replicate_degree") else value
        elif key.endswith("after_forward") and key not in present:  # its default is ZeRO-3, ZeRO-2 under a pipeline
            value = None if layout.zero_stage in (0, 2 if layout.pipeline_parallel > 1 else 3) else value
        elif key == "training.global_batch_size" and key not in present:
            value = None if layout.pipeline_parallel > 1 or layout.microbatches_per_step == 1 else value
        if own in present and (present[own] == value or (value is None and key in KEPT)):
            continue
        # What a file does not have may stay out of it where it says no more than its absence.
        silent = value is None or value is False or (key.endswith("replicate_degree") and value == 1)
        silent = silent or (run.model.experts is None and bool(re.search("expert.tensor", key)))
        if own in present or not silent:
            if isinstance(recipe, TableText) and own in present and own not in recipe.places:
                raise recipe.refused(recipe.place(own), own, "is in an inline table, which is not changed")
            near = next(tuple(names.split()) for names in keys if key in names.split())
            recipe.change(own if own in present else key, value, near + likes)


def differences(file: OwnRun, run: LaunchRun) -> dict[str, tuple[Any, Any]]:
    """Return the choices that a user's recipe has otherwise than a plan's run, each with both values."""
    layout, own = run.layout, dict.fromkeys((*DEGREES[1:3], "virtual_stages"), 1) | file.layout
    names = [*DEGREE_KEYS["megatron"], "virtual_stages", "microbatch_sequences", "zero_stage", "recompute"]
    pairs: dict[str, tuple[Any, Any]] = {"expert_tensor": (file.expert_tensor, 1)}
    if "sequence_parallel" in own and max(own["tensor_parallel"], layout.tensor_parallel) > 1:
        names.append("sequence_parallel")
    pairs |= {name: (own[name], getattr(layout, name)) for name in names}
    layers = own.get("layers_per_stage")
    even = "even" if run.is_even else list(layout.layers_per_stage)
    pairs["layers_per_stage"] = ("even", even) if layers is None else (list(layers), list(layout.layers_per_stage))
    if layout.recompute == own["recompute"] == "full":
        recomputed = layout.recomputed_layers_per_stage
        some = [] if recomputed == layout.layers_per_stage else list(recomputed)
        pairs["recomputed_layers_per_stage"] = (list(own.get("recomputed_layers_per_stage", ())), some)
    if layout.recompute == "selective" and run.software is not None:
        modules = (file.switches.get("recompute_modules", CORE_ATTENTION), run.software.recompute_modules)
        pairs["recompute_modules"] = (sorted(modules[0]), sorted(set(modules[1])))
    if "data_parallel" in own:
        pairs["data_parallel"] = (own["data_parallel"], run.layout.data_parallel)
    if file.gpus is not None:
        pairs["gpus"] = (file.gpus, run.gpus)
    if file.batch_sequences is None and "microbatches_per_step" in own:
        pairs["microbatches_per_step"] = (own["microbatches_per_step"], layout.microbatches_per_step)
    else:
        pairs["batch"] = (file.batch_sequences, run.global_batch)
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _change_nodes(recipe: TableText | Script, text: str, run: LaunchRun, placed: Placement | None) -> None:
    nodes = run.nodes if placed is None else len(placed.nodes)
    each = run.node_gpus if placed is None else gpus_of_node(placed)
    if isinstance(recipe, TableText):
        for key, number in (("trainer.num_nodes", nodes), ("trainer.devices", each)):
            if key in recipe.places:
                recipe.change(key, number, ())
        for found in training_run.STARTED.finditer(text) if recipe.kind == "yaml" else ():
            recipe.edit(*found.span(1), str(nodes), f"--nnodes: {found[1]} becomes {nodes}")
            recipe.edit(*found.span(2), str(each), f"--nproc-per-node: {found[2]} becomes {each}")
        return
    named = {value.span: f"#SBATCH --{key}" for key, value in recipe.sbatch.items()}
    stated = started(recipe)
    for places, number in ((stated.nodes, nodes), (stated.per_node, each), (stated.total, run.gpus)):
        for name, located in places.items():
            if located.span is not None:  # a value computed from others follows them
                recipe.set_value(located, str(number), named.get(located.span, name))
    listed = recipe.sbatch.get("nodelist")
    if placed is None:
        if listed is not None and stated.gpus is not None:
            problem = f"names the hosts of another number of nodes than {nodes:,}"
            raise recipe.refused(listed.offsets[0], "#SBATCH --nodelist", problem, "give --placement, or take it out")
        return
    hosts = fold_names(sorted(placed.nodes, key=natural))
    if listed is not None and listed.span is not None:
        recipe.edit(*listed.span, hosts, f"#SBATCH --nodelist: becomes {hosts}")
    elif recipe.sbatch:
        at = recipe.line_start(next(iter(recipe.sbatch.values())).offsets[0])
        recipe.edit(at, at, f"#SBATCH --nodelist={hosts}\n", f"#SBATCH --nodelist={hosts} added")
    else:
        recipe.tell(f"submit it by {topology_files.sbatch_line(placed)}")
    form, start = "hostfile", topology_files.srun_line(placed)
    if "--nproc-per-node" in stated.per_node:
        form, start = "torchrun", topology_files.torchrun_line(placed, f"{placed.job}.torchrun")
    made = f"`planner place --format {form} -o {placed.job}.{form}`"
    recipe.tell(f"the placement's order of ranks is kept by `{start}`, with {made}")
