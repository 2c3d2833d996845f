"""Read a user's own recipe, of any framework, as pins for an instance; write a plan into one, where all else stays."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.cluster.hostlists import fold_names, natural
from planner.cluster.placement import Placement
from planner.errors import InputError
from planner.exports import launch
from planner.exports.launch import NEMO_NAMES, SHARDING, LaunchRun, nemo_names
from planner.files import leaves, parse_json
from planner.formats import placed_job
from planner.formats.recipe_text import TableText
from planner.formats.shell_script import Script, read_script, started, typed
from planner.formats.topologies import gpus_of_node
from planner.formats.yaml_text import YAML, read_yaml_data
from planner.imports import megatron_flags
from planner.imports.megatron_flags import DEGREE_FLAGS, KNOWN_BY, OwnRun, RunValues
from planner.imports.unmodelled_items import NO_EFFECT, TrackedItems, UnmodelledItems
from planner.instance.framework_rules import TITAN_LOSS_BYTES, rules_of
from planner.instance.instance import Instance
from planner.instance.software import CORE_ATTENTION
from planner.plan.plan_sections import DEGREES, STAGE_DEGREES

# A comment of a YAML file that starts it by torchrun, which states its GPUs.
STARTED = re.compile(r"#.*--nnodes[ =](\d{1,9})\b.*--nproc[-_]per[-_]node[ =](\d{1,9})\b")
TITAN_TABLES = re.compile(rf"({'|'.join(megatron_flags.FRAMEWORK_KEYS['torchtitan']['tables'])})\.\w")
# Flags of the launchers of recipes, which change neither time nor memory.
LAUNCHER = re.compile(
    r"recipe|dataset|step-func|hf-path|module|config|local-ranks-filter|no-sync|wait|kill-on-bad-exit|label|"
    r"(de)?tach|account|num-gpus|(nemo|log|wandb|task|domain|gpu|model)[a-z-]*|max-steps|peft"
)
# The keys of a framework that say each choice of a layout. A choice that the file has as the plan does is not touched.
# The degree of experts' tensors follows from both degrees that name it, where it is left out.
KEYS: dict[str, dict[str, list[str]]] = {
    name: megatron_flags.FRAMEWORK_KEYS[name]["choices"] for name in ("megatron", "torchtitan", "deepspeed")
}
KEYS["nemo"] = {choice: [nemo_names(flag)[0] for flag in flags] for choice, flags in KEYS["megatron"].items()}
SAME_KEYS = dict.fromkeys(("virtual_stages", "layers_per_stage"), "pipeline_parallel")
SAME_KEYS |= dict.fromkeys(("recomputed_layers_per_stage", "recompute_modules"), "recompute")
SAME_KEYS |= {"microbatches_per_step": "batch"}
# Older names of keys, changed where a file has them.
OLDER = {"training.local_batch_size": "training.batch_size"}
OLDER |= {names[0]: names[1] for names in map(nemo_names, NEMO_NAMES) if len(names) > 1}
# What has no effect where the plan's layout does not state it, so that it stays.
KEPT = """ckpt-format parallelism.pipeline_parallel_schedule parallelism.pipeline_parallel_microbatch_size
    activation_checkpoint.selective_ac_option parallelism.expert_tensor_parallel_degree"""
VIRTUAL_LAYERS, VIRTUAL_STAGES = "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"
GRANULARITY, QUEUES = "recompute-granularity", "CUDA_DEVICE_MAX_CONNECTIONS"


def form_of(path: Path) -> str:
    """Return the format in which a training run's file is read, by its suffix: toml, json, yaml, or sh for a script."""
    return {".toml": "toml", ".json": "json"}.get(path.suffix.lower(), "yaml" if path.suffix.lower() in YAML else "sh")


def parsed(text: str, path: Path) -> Any:
    """Parse a user's training run file into nested data, or a script. InputError: not of the format of its suffix."""
    where, form = str(path), form_of(path)
    if form == "toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{where}: is no TOML ({error}); correct it") from None
    if form == "json":
        return parse_json(text, where) if text.strip() else None
    return read_yaml_data(text, where) if form == "yaml" else read_script(text, where)


def run_of_text(text: str, path: Path) -> OwnRun:
    """Return the training run of a file's text, by the file's suffix; a script's by whose flags or overrides it has."""
    script, where = parsed(text, path), str(path)
    if not isinstance(script, Script):
        found = STARTED.search(text) if form_of(path) == "yaml" else None
        run_of = {"toml": torchtitan_run, "json": deepspeed_run, "yaml": nemo_run}[form_of(path)]
        run = run_of(RunValues(TrackedItems(dict(leaves(script))), where))
        return replace(run, gpus=run.gpus or (int(found[1]) * int(found[2]) if found else None))
    flags = script.flags
    dotted = {key: typed(value) for key, value in flags.items() if TITAN_TABLES.match(key)}
    overrides = {key: typed(value) for key, value in script.overrides.items()}
    if any(key.startswith(("model.", "train.", "ddp.")) for key in overrides):
        run = nemo_run(RunValues(TrackedItems(overrides), where, script))
    elif any(key.startswith(("parallelism.", "training.")) for key in dotted):
        run = torchtitan_run(RunValues(TrackedItems(dotted), where, script, "--{}"))
    else:
        items, flags = TrackedItems({flag: typed(value) for flag, value in flags.items()}), {}
        values = RunValues(items, where, script, "--{}")
        values.require("Megatron-LM", *KNOWN_BY)
        types = {"fp4": "fp4-format", "fp8": "fp8-format", "fp16": "fp16", "bf16": "bf16"}
        compute = next((kind for kind, flag in types.items() if flag in items), None)
        run = megatron_flags.run_of_flags(values, "megatron", compute)
        run = replace(run, items=items.unmodelled(megatron_flags.megatron_effect, "--{}"))
    launcher = TrackedItems({key: value for key, value in flags.items() if key not in dotted}).unmodelled(
        lambda flag, value: NO_EFFECT if LAUNCHER.fullmatch(flag) else megatron_flags.megatron_effect(flag, value),
        "--{}",
    )
    # Of numbers used and assigned in a branch or more than once the last holds, whatever is run.
    numbers = {name: value for name, value in script.variables.items() if value.isdigit()}
    used = (name for name in numbers if re.search(rf"\$\{{?{name}\b", text))
    doubtful = [f"{name} ({unsure}: {numbers[name]} is taken)" for name in used if (unsure := script.unsure(name))]
    unmodelled = UnmodelledItems((*run.items.known, *launcher.known, *doubtful), run.items.unknown + launcher.unknown)
    return replace(run, gpus=run.gpus or started(script).gpus, items=unmodelled)


def _read(values: RunValues, framework: str, taken: Sequence[str] = ()) -> UnmodelledItems:
    """Return a run's keys not modelled: none off or listed as without effect; those of NeMo by Megatron's flags too."""

    def effect(key: str, value: Any) -> str | None:
        if not value and "overlap" not in key:
            return NO_EFFECT
        listed = megatron_flags.listed_effect(framework, key)
        if listed is not None or framework != "nemo":
            return listed
        return megatron_flags.megatron_effect(key.rpartition(".")[2].replace("_", "-"), value)

    found = values.items.unmodelled(effect)
    return found._replace(known=(*taken, *found.known))


def torchtitan_run(values: RunValues) -> OwnRun:
    """Return the training run of a torchtitan config; a shard degree of -1 takes all GPUs that are left."""
    values.require("torchtitan", "parallelism", "training.local_batch_size", "training.batch_size")
    shard = values.count("parallelism.data_parallel_shard_degree", -1)
    replicate = values.count("parallelism.data_parallel_replicate_degree")
    kept = values.choice("parallelism.fsdp_reshard_after_forward", ("default", "always", "never"), "default")
    stages = values.count("parallelism.pipeline_parallel_degree")
    layout: dict[str, Any] = {choice: values.count(f"parallelism.{choice}_degree") for choice in DEGREE_FLAGS}
    keeps = kept == "never" or (kept == "default" and stages > 1)
    recompute = values.choice("activation_checkpoint.mode", ("none", "selective", "full"), "selective")
    whole = shard == 1 and layout["context_parallel"] == 1  # context ranks are shards too
    every = str(values.get("activation_checkpoint.selective_ac_option", "op")) if recompute == "selective" else "op"
    recompute = "full" if every == "1" else recompute  # each so manyth layer is run again whole
    layout |= {"zero_stage": 0 if whole else 2 if keeps else 3, "recompute": recompute}
    layout["sequence_parallel"] = layout["tensor_parallel"] > 1
    if shard > 0:
        layout["data_parallel"] = shard * replicate
    tensor = values.count("parallelism.expert_tensor_parallel_degree", layout["tensor_parallel"])
    local = values.count("training.local_batch_size", values.count("training.batch_size", 8))
    size = "parallelism.pipeline_parallel_microbatch_size"
    layout["microbatch_sequences"] = values.count(size) if stages > 1 else local
    parts = values.get("parallelism.module_fqns_per_model_part")
    if isinstance(parts, str):
        problem = f"must be a list of lists (is {parts[:40]!r})"
        raise InputError(f"{values.where}: parallelism.module_fqns_per_model_part: {problem}; write it in a .toml")
    if parts:
        chunks = [sum(str(name).startswith("layers.") for name in part) for part in parts]
        where = f"{values.where}: module_fqns_per_model_part"
        layout |= megatron_flags.layout_choices("|".join("t" * count for count in chunks), stages, where)
    elif str(values.get("parallelism.pipeline_parallel_schedule", "1F1B")).lower() not in ("1f1b", "gpipe"):
        layout["virtual_stages"] = 2 if stages > 1 else 1  # torchtitan's own number where the file has none
    whole = values.count("training.global_batch_size", -1)
    if whole < 1:
        if local % layout["microbatch_sequences"]:
            problem = f"must divide local_batch_size {local} (is {layout['microbatch_sequences']})"
            raise InputError(f"{values.where}: {size}: {problem}; change one")
        layout["microbatches_per_step"] = local // layout["microbatch_sequences"]
    over_all = ["parallelism.data_parallel_replicate_degree (states are taken as divided over all replicas)"]
    as_op = ["activation_checkpoint.selective_ac_option (taken as op)"] if every.isdecimal() and every != "1" else []
    compiled = values.on("compile.enable") and "loss" in str(values.get("compile.components", "loss"))
    return OwnRun(
        framework="torchtitan",
        layout=layout,
        batch_sequences=whole if whole > 0 else None,
        expert_tensor=tensor if layout["expert_parallel"] > 1 and layout["tensor_parallel"] > 1 else 1,
        sequence_length=values.count("training.seq_len", 2048),
        compute="fp8" if "float8" in str(values.get("model.converters", "")) else None,
        switches={"fused_loss": compiled, "logit_memory_bytes": TITAN_LOSS_BYTES[compiled]},
        items=_read(values, "torchtitan", as_op + over_all * (replicate > 1 and shard != 1)),
    )


def nemo_run(values: RunValues) -> OwnRun:
    """Return the training run of NeMo's overrides (Megatron Bridge, or the older model and trainer)."""
    named = replace(values, names=nemo_names, complete=False)
    named.require("NeMo", *KNOWN_BY)
    gpus = values.count("trainer.num_nodes", 0) * values.count("trainer.devices", 0) or None
    compute = "fp8" if values.get("model.fp8") or "fp8" in str(values.get("mixed_precision", "")) else None
    return replace(megatron_flags.run_of_flags(named, "nemo", compute), gpus=gpus, items=_read(values, "nemo"))


def deepspeed_run(values: RunValues) -> OwnRun:
    """Return the training run of a DeepSpeed configuration."""
    values.require("DeepSpeed", "train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization")
    micro, steps = values.count("train_micro_batch_size_per_gpu"), values.count("gradient_accumulation_steps")
    batch = values.count("train_batch_size", 0)
    layout: dict[str, Any] = {
        "tensor_parallel": values.count("tensor_parallel.autotp_size"),
        "pipeline_parallel": values.count("pipeline.stages"),
        "microbatch_sequences": micro,
        "microbatches_per_step": steps,
        "zero_stage": values.count("zero_optimization.stage", 0),
        "recompute": "full" if values.count("pipeline.activation_checkpoint_interval", 0) else "none",
    }
    if batch:
        if batch % (micro * steps):
            problem = f"must be a multiple of {micro} x {steps} sequences (is {batch})"
            raise InputError(f"{values.where}: train_batch_size: {problem}; change one")
        layout["data_parallel"] = batch // (micro * steps)
    return OwnRun(
        framework="deepspeed",
        layout=layout,
        batch_sequences=batch or None,
        compute="fp16" if values.get("fp16.enabled") is True else None,
        items=_read(values, "deepspeed"),
    )


def doubts(run: OwnRun, instance: Instance) -> Iterator[str]:
    """Yield doubts that a user's recipe is for the instance: it states no model, or is of another software stack."""
    work = instance.workload
    if not run.model:
        yield f"states no figures of the model, and is taken for {work.model.name}'s"
    name = work.software.name
    own = {"torchtitan": "torchtitan", "deepspeed": "deepspeed"}.get(run.framework, "megatron|nemo")
    if rules_of(name).framework and not re.search(own, name):
        yield f"is a run of {run.framework}, and workload.software is {name}: set that to what it runs on"


def layout_of_run(run: OwnRun, instance: Instance, where: str) -> dict[str, Any]:
    """Return a training run's pins for an instance, completed by its batch and GPUs or the instance's; both must agree.

    InputError: another model or sequence length, or no whole number of replicas or of micro-batches.
    """
    for problem in model_differences(run, instance):
        raise InputError(f"{where}: {problem}")
    if run.expert_tensor > 1:
        is_ = f"{run.expert_tensor}, the tensor parallelism where it is left out"
        (key,) = KEYS[run.framework]["expert_tensor"]
        why = "the step time is known of experts that are whole on their GPU"
        shown = f"--{key}" if run.framework == "megatron" else key
        raise InputError(f"{where}: {shown}: must be 1 (is {is_}): {why}; set it to 1")
    layout = dict(run.layout)
    stage = math.prod(layout.get(name, 1) for name in STAGE_DEGREES)
    unit, rack, racks = layout["pipeline_parallel"] * stage, instance.hardware.rack, instance.hardware.racks
    if run.pipelines_first:
        layout["stages_per_rack"] = max(1, min(layout["pipeline_parallel"], rack.gpus // stage))
    if "data_parallel" not in layout:
        gpus = run.gpus or (racks * rack.gpus if racks is not None else None)
        if gpus is None:
            raise InputError(f"{where}: says no number of GPUs (--nnodes, --nproc-per-node); add it, or --pin dp=...")
        if gpus < unit:
            raise InputError(f"{where}: {gpus:,} GPUs are fewer than the {unit:,} of one replica; correct the degrees")
        if run.gpus is not None and gpus % unit:
            raise InputError(f"{where}: {gpus:,} GPUs are no multiple of the {unit:,} of one replica; correct either")
        layout["data_parallel"] = gpus // unit
    if "microbatches_per_step" not in layout and run.batch_sequences is not None:
        each = layout["data_parallel"] * layout["microbatch_sequences"]
        if run.batch_sequences % each:
            factors = f"{each:,} = {layout['data_parallel']:,} replicas x {layout['microbatch_sequences']}"
            batch = f"the global batch of {run.batch_sequences:,} sequences"
            raise InputError(f"{where}: {batch} is no multiple of {factors}; change one")
        layout["microbatches_per_step"] = run.batch_sequences // each
    return {f"layout.{key}": value for key, value in layout.items()}


def model_differences(run: OwnRun, instance: Instance) -> list[str]:
    """Return a training run's differences from the instance in model, sequence length, precision, with both figures."""
    model, problems = instance.workload.model, []
    if run.sequence_length not in (None, instance.workload.sequence_length):
        own = instance.workload.sequence_length
        both = f"sequence length is {run.sequence_length:,}, workload.sequence_length {own:,}"
        problems.append(f"{both}; make them the same")
    compute = instance.workload.precision.compute
    if run.compute not in (None, compute):
        both = f"products run in {run.compute}, workload.precision.compute is {compute}"
        problems.append(f"{both}; give --set workload.precision={run.compute}")
    for key, value in run.model.items():
        part = key.rpartition(".")[0]
        holder: Any = getattr(model, part) if part else model
        if holder is None and key != "experts.count":
            continue  # flags of what the run does not have have no effect
        if (key == "ffn_width" and model.moe_layers == model.layers) or (key == "head" and model.latent_attention):
            continue  # no layer has it
        own = getattr(holder, key.rpartition(".")[2], 0) or 0
        if value != own:
            problems.append(f"{key} is {value:,}, workload.model.{key} {own:,}; name that model in the instance")
    return problems


def written_like(
    text: str, path: Path, run: LaunchRun, instance: Instance, placed: Placement | None = None
) -> tuple[str, list[str]]:
    """Read a user's recipe with a plan's choices put in; return it, a line on each. InputError: another question."""
    file = run_of_text(text, path)
    for problem in model_differences(file, instance):
        raise InputError(f"{path}: {problem}")
    recipe = data = parsed(text, path)
    if isinstance(data, Script):
        named, data.dashes = (data.overrides, "") if file.framework == "nemo" else (data.flags, "--")
        present = {key: typed(value) for key, value in named.items()}  # True where a flag has no value
    else:
        recipe, present = TableText(text, str(path), kind=form_of(path)), dict(leaves(data))
    reported = [f"{path}: {line}" for line in doubts(file, instance)]
    if placed is not None and (gpus := len(placed.nodes) * gpus_of_node(placed)) != run.gpus:
        raise InputError(f"{path}: the placement has {gpus:,} GPUs, the plan {run.gpus:,}; place that plan")
    wrong, keys = differences(file, run), KEYS[file.framework]
    if file.framework == "nemo" or (file.framework == "torchtitan" and isinstance(recipe, Script)):
        own = (*DEGREE_FLAGS, "zero_stage", "recompute")  # which a recipe has where its overrides do not state them
        alike = [keys[name] for name in own if name not in wrong]
        if unstated := [names[0] for names in alike if not set(names) & set(present)]:
            taken = "taken as 1, off or none; its recipe's own hold"
            reported.append(f"{path}: states none of {', '.join(unstated)}: {taken}")
    changed = {key for choice in wrong for key in keys.get(SAME_KEYS.get(choice, choice), ())}
    _change_keys(recipe, file.framework, changed, present, run)
    fsdp = [zero in SHARDING for zero in wrong.get("zero_stage", ())]
    if isinstance(recipe, Script) and len(set(fsdp)) > 1 and QUEUES in recipe.variables:
        recipe.set_value(recipe.variables[QUEUES], str(launch.connections(run)), QUEUES)
    if "gpus" in wrong or placed is not None or file.gpus is None:
        _change_nodes(recipe, run, placed)
    if file.gpus is None:
        reported.append(f"{path}: states no nodes or no GPUs; start it on {run.nodes:,} nodes of {run.node_gpus} GPUs")
    new = recipe.result()
    try:
        back = run_of_text(new, path)
    except InputError as error:
        problem = re.sub(r"^line \d+: ", "", str(error).removeprefix(f"{path}: "))  # a line that the file has not
        raise InputError(f"{path}: cannot be read once the plan is in it: {problem}") from None
    for choice, (is_, ought) in differences(back, run).items():
        key = next((key for key in keys.get(SAME_KEYS.get(choice, choice), [choice]) if key in present), choice)
        problem = f"is read back as {is_}, the plan has {ought}: it shares a variable, or is in a part that is not read"
        raise recipe.refused(recipe.place(key), recipe.dashes + key, f"{choice} {problem}")
    return new, reported + [line for _, line in sorted(recipe.reported, key=lambda entry: entry[0])]


def _change_keys(
    recipe: TableText | Script, framework: str, changed: set[str], present: Mapping[str, Any], run: LaunchRun
) -> None:
    layout, keys = run.layout, KEYS[framework].values()
    wanted = dict(leaves(launch.decided(run, framework)))
    if "model.pipeline_model_parallel_layout" in wanted:  # an override takes no parentheses
        wanted["model.pipeline_model_parallel_layout"] = launch.pipeline_layout(run, grouped=False)
    by_granularity = wanted.get("recompute-activations") and GRANULARITY in present  # as the file has it
    likes = tuple(dict.fromkeys(key for names in keys for key in names))
    for key in (key for key in likes if key in changed):
        value, own = wanted.get(key), key if key in present else OLDER.get(key, key)
        if framework == "megatron":
            if by_granularity and key in ("recompute-activations", GRANULARITY):
                value = "selective" if key == GRANULARITY else None
            elif VIRTUAL_LAYERS in wanted and (VIRTUAL_STAGES in present or "num-layers" not in present):
                value = {VIRTUAL_LAYERS: None, VIRTUAL_STAGES: layout.virtual_stages}.get(key, value)
            elif key == "ckpt-format" and value is None and present.get(key) == "fsdp_dtensor":
                value = "torch_dist"
        elif key.startswith("parallelism.data_") and layout.zero_stage:  # replicas of shards, and a degree of all left
            replicas = present.get("parallelism.data_parallel_replicate_degree", 1)
            kept = replicas if isinstance(replicas, int) and layout.data_parallel % replicas == 0 else 1
            left = present.get(key, -1) == -1
            value = (-1 if key in present else None) if left else layout.data_parallel // kept
            value = kept if key.endswith("replicate_degree") else value
        elif key.endswith("after_forward") and key not in present:  # its default is ZeRO-3, ZeRO-2 under a pipeline
            value = None if layout.zero_stage in (0, 2 if layout.pipeline_parallel > 1 else 3) else value
        elif key == "training.global_batch_size" and key not in present:
            value = None if layout.pipeline_parallel > 1 or layout.microbatches_per_step == 1 else value
        if own in present and (present[own] == value or (value is None and key in KEPT.split())):
            continue
        # What a file does not have may stay out of it where it says no more than its absence.
        silent = value is None or value is False or (key.endswith("replicate_degree") and value == 1)
        silent = silent or (run.model.experts is None and bool(re.search("expert.tensor", key)))
        if own in present or not silent:
            if isinstance(recipe, TableText) and own in present and own not in recipe.places:
                raise recipe.refused(recipe.place(own), own, "is in an inline table, which is not changed")
            near = next(names for names in keys if key in names)
            recipe.change(own if own in present else key, value, (*near, *likes))


def differences(file: OwnRun, run: LaunchRun) -> dict[str, tuple[Any, Any]]:
    """Return the choices that a user's recipe has otherwise than a plan's run, each with both values."""
    layout, own = run.layout, dict.fromkeys((*DEGREES[1:3], "virtual_stages"), 1) | file.layout
    names = [*DEGREE_FLAGS, "virtual_stages", "microbatch_sequences", "zero_stage", "recompute"]
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
    if layout.recompute == "selective":
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


def _change_nodes(recipe: TableText | Script, run: LaunchRun, placed: Placement | None) -> None:
    nodes = run.nodes if placed is None else len(placed.nodes)
    each = run.node_gpus if placed is None else gpus_of_node(placed)
    if isinstance(recipe, TableText):
        for key, number in (("trainer.num_nodes", nodes), ("trainer.devices", each)):
            if key in recipe.places:
                recipe.change(key, number, ())
        for found in STARTED.finditer(recipe.text) if recipe.kind == "yaml" else ():
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
        recipe.tell(f"submit it by {placed_job.sbatch_line(placed)}")
    form, start = "hostfile", placed_job.srun_line(placed)
    if "--nproc-per-node" in stated.per_node:
        form, start = "torchrun", placed_job.torchrun_line(placed, f"{placed.job}.torchrun")
    made = f"`planner place --format {form} -o {placed.job}.{form}`"
    recipe.tell(f"the placement's order of ranks is kept by `{start}`, with {made}")
