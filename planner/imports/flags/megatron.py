"""Read the layout of a Megatron-LM run from its flags (core 0.14: megatron/training/arguments.py)."""

import re
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError
from planner.imports.flags.effects import megatron_effect
from planner.imports.flags.shell import read_flags
from planner.instance.read_items import ReadItems, TrackedItems

MOST_LAYERS = 100_000  # of a pipeline layout once its multiplications are written out
ZERO = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
# The flag of a figure of the model, and where the instance has it.
MODEL_FLAGS = {
    "num-layers": "layers",
    "hidden-size": "hidden",
    "num-attention-heads": "heads",
    "num-query-groups": "kv",
    "kv-channels": "head",
    "ffn-hidden-size": "ffn_width",
    "num-experts": "experts.count",
    "moe-router-topk": "experts.per_token",
    "moe-ffn-hidden-size": "experts.ffn",
    "moe-shared-expert-intermediate-size": "experts.shared_ffn",
    "q-lora-rank": "latent_attention.q_rank",
    "kv-lora-rank": "latent_attention.kv_rank",
    "qk-head-dim": "latent_attention.head_nope",
    "qk-pos-emb-head-dim": "latent_attention.head_rope",
    "v-head-dim": "latent_attention.head_value",
}
# A file without any of these is no training run.
KNOWN_BY = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size", "global-batch-size")
NODES = ("nnodes", "NNODES", "NUM_NODES", "SLURM_NNODES")
PER_NODE = ("nproc-per-node", "GPUS_PER_NODE", "NPROC_PER_NODE", "GPU_PER_NODE")


@dataclass(frozen=True, slots=True)
class OwnRun:
    """What a user's own files say: the layout's choices, and figures that the instance must agree with."""

    framework: str
    layout: dict[str, Any]
    batch_sequences: int | None = None
    gpus: int | None = None
    model: dict[str, int] = field(default_factory=dict)
    sequence_length: int | None = None
    compute: str | None = None  # type of the matrix products
    items: ReadItems = field(default_factory=ReadItems)


def megatron_run(text: str, where: str) -> OwnRun:
    """Return the run of a shell script or a file of arguments.

    Raises
    ------
    InputError
        Names the flag, its value and what was expected.
    """
    given, variables = read_flags(text, where)
    flags = TrackedItems(given)
    if not any(flag in flags for flag in KNOWN_BY):
        known = ", ".join(f"--{flag}" for flag in KNOWN_BY)
        raise InputError(
            f"{where}: has none of {known}; give a Megatron script, or .toml, .yaml or .json of another run"
        )
    f = _Flags(flags, where)
    stages = f.count("pipeline-model-parallel-size", 1)
    layout: dict[str, Any] = {
        "tensor_parallel": f.count("tensor-model-parallel-size", 1),
        "pipeline_parallel": stages,
        "context_parallel": f.count("context-parallel-size", 1),
        "expert_parallel": f.count("expert-model-parallel-size", 1),
        "microbatch_sequences": f.count("micro-batch-size", 1),
        "sequence_parallel": "sequence-parallel" in flags,
        "zero_stage": _zero(f),
    }
    require_whole_experts(
        f.count("num-experts", 0) > 0 or layout["expert_parallel"] > 1,
        layout["tensor_parallel"],
        f.count("expert-tensor-parallel-size", layout["tensor_parallel"]),
        f"{where}: --expert-tensor-parallel-size",
    )
    layout |= stage_layers(f, stages)
    layout |= _recompute(f, layout.get("layers_per_stage"), stages, layout["virtual_stages"])
    nodes = next((n for n in (_whole(flags.get(k) or variables.get(k)) for k in NODES) if n), None)
    each = next((n for n in (_whole(flags.get(k) or variables.get(k)) for k in PER_NODE) if n), None)
    world = _whole(variables.get("WORLD_SIZE")) or (nodes * each if nodes and each else None)
    model = {key: f.count(flag, 0) for flag, key in MODEL_FLAGS.items() if flags.get(flag)}
    types = {"fp8": "fp8-format", "fp16": "fp16", "bf16": "bf16"}
    return OwnRun(
        framework="megatron",
        layout=layout,
        batch_sequences=f.count("global-batch-size", 0) or None,
        gpus=world,
        model=model,
        sequence_length=f.count("seq-length", 0) or None,
        compute=next((kind for kind, flag in types.items() if flag in flags), None),
        items=flags.read(megatron_effect, "--{}"),
    )


def require_whole_experts(routed: bool, tensor: int, expert_tensor: int, where: str) -> None:
    """Refuse experts that are divided over tensor parallelism, as they are where nothing else is said.

    Raises
    ------
    InputError
        The step time is known only of experts that are whole on their GPU.
    """
    if routed and tensor > 1 and expert_tensor > 1:
        raise InputError(
            f"{where}: must be 1 (is {expert_tensor}, by default the tensor parallelism): "
            "experts are whole on their GPU here; add it with 1"
        )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else None


@dataclass(frozen=True, slots=True)
class _Flags:
    """The flags of a file, read as whole numbers and choices."""

    flags: TrackedItems
    where: str

    def count(self, name: str, default: int) -> int:
        """Return the whole number behind a flag."""
        if name not in self.flags:
            return int(self.flags.get(name, default))
        value = _whole(self.flags[name])
        if value is None:
            raise InputError(
                f"{self.where}: --{name}: must be a whole number (is {self.flags[name]!r}); "
                "write the figure, or assign its variable in the file"
            )
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return the choice behind a flag."""
        value = self.flags.get(name, default)
        if value not in choices:
            raise InputError(f"{self.where}: --{name}: must be one of {', '.join(choices)} (is {value!r}); correct it")
        return str(value)


def _zero(f: _Flags) -> int:
    """Return the ZeRO stage."""
    if "data-parallel-sharding-strategy" in f.flags:
        return ZERO[f.choice("data-parallel-sharding-strategy", tuple(ZERO), "no_shard")]
    return 1 if "use-distributed-optimizer" in f.flags else 0


def stage_layers(f: _Flags, stages: int) -> dict[str, Any]:
    """Return the layers of every stage and the virtual stages, from whichever flags say them."""
    layers = f.count("num-layers", 0)
    text = f.flags.get("pipeline-model-parallel-layout")
    if text:
        return layout_choices(text, stages, f"{f.where}: --pipeline-model-parallel-layout")
    each = f.count("num-layers-per-virtual-pipeline-stage", 0)
    virtual = f.count("num-virtual-stages-per-pipeline-rank", 1)
    if each and layers:
        if layers % (stages * each):
            raise InputError(
                f"{f.where}: --num-layers-per-virtual-pipeline-stage: {each} x {stages} stages must divide "
                f"--num-layers (is {layers}); change one"
            )
        virtual = layers // (stages * each)
    first, last = f.count("decoder-first-pipeline-num-layers", 0), f.count("decoder-last-pipeline-num-layers", 0)
    if not layers or not (first or last):
        return {"virtual_stages": virtual}
    middle = stages - bool(first) - bool(last)
    if middle < 1 or (layers - first - last) % middle:
        raise InputError(
            f"{f.where}: --num-layers: {layers} less {first + last} of the first and last stage must be divided "
            f"evenly by {middle} other stages; change --decoder-first-pipeline-num-layers or the last"
        )
    inner = [(layers - first - last) // middle] * middle
    return {"virtual_stages": virtual, "layers_per_stage": [*[first] * bool(first), *inner, *[last] * bool(last)]}


def layout_choices(text: str, stages: int, where: str) -> dict[str, Any]:
    """Return the layers of every stage of a pipeline layout such as `Et*3|(tt|)*6tL`: chunks go round the stages.

    Raises
    ------
    InputError
        It has other letters than E, t, m and L, or chunks that the stages do not divide.
    """
    chunks = [chunk.count("t") for chunk in _written_out(text, where).split("|")]
    if len(chunks) % stages:
        raise InputError(f"{where}: has {len(chunks)} chunks, which {stages} stages do not divide; change one")
    return {
        "virtual_stages": len(chunks) // stages,
        "layers_per_stage": [sum(chunks[stage::stages]) for stage in range(stages)],
    }


def _written_out(text: str, where: str) -> str:
    """Write out the multiplications of a pipeline layout."""
    plain = re.sub(r"[,\s]", "", text)
    for pattern in (r"\(([^()]+)\)\*(\d{1,6})", r"([EtmL|])\*(\d{1,6})"):
        size = len(plain) + sum(len(m[1]) * int(m[2]) for m in re.finditer(pattern, plain))
        if size > MOST_LAYERS:
            raise InputError(f"{where}: stands for more than {MOST_LAYERS:,} layers; shorten it")
        plain = re.sub(pattern, lambda m: m[1] * int(m[2]), plain)
    odd = re.search(r"[^EtmL|]", plain)
    if odd:
        raise InputError(f"{where}: {odd[0]!r} is none of E, t, m, L and | (in {text[:60]!r}); correct it")
    return plain


def _recompute(f: _Flags, layers: list[int] | None, stages: int, virtual: int) -> dict[str, Any]:
    """Return the recompute, and its layers by stage where some of them are recomputed."""
    granularity = f.choice("recompute-granularity", ("none", "selective", "full"), "none")
    if granularity == "none":
        return {"recompute": "selective" if "recompute-activations" in f.flags else "none"}
    if granularity == "full" and f.choice("recompute-method", ("uniform", "block"), "uniform") == "block":
        number, total = f.count("recompute-num-layers", 1) * virtual, f.count("num-layers", 0)
        by_stage = layers or ([total // stages] * stages if total and total % stages == 0 else [])
        if not by_stage:
            raise InputError(f"{f.where}: --recompute-method block: --num-layers is missing or uneven; add it")
        return {"recompute": "full", "recomputed_layers_per_stage": [min(number, n) for n in by_stage]}
    return {"recompute": granularity}
