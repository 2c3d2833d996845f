"""Read the layout of a Megatron-LM run from the flags of a shell script, and the effect of each other flag."""

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from planner.errors import InputError
from planner.formats.shell_script import NOWHERE, Script
from planner.imports.unmodelled_items import NO_EFFECT, TrackedItems, UnmodelledItems
from planner.instance.catalogue_entries import catalogue
from planner.instance.framework_rules import FP8_RECIPES, NATIVE_LOSS_BYTES, OVERLAP_FLAGS, Overlap
from planner.instance.software import CORE_ATTENTION, RECOMPUTE_MODULES, Dispatcher

REMEDY = "give a shell script, a file of arguments, TOML, YAML or JSON"
# Values that are what the planner takes anyway.
AS_TAKEN = {"optimizer": "adam", "transformer-impl": "transformer_engine", "distributed-backend": "nccl"}
AS_TAKEN["attention-backend"] = "auto flash fused"
MOST_LAYERS = 100_000  # of a pipeline layout once its multiplications are written out
ZERO = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
FRAMEWORK_KEYS = catalogue("framework_keys")
_DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
DEGREE_FLAGS: dict[str, str] = {name: FRAMEWORK_KEYS["megatron"]["choices"][name][0] for name in _DEGREES}
# The flag of a figure of the model, and where the instance has it.
MODEL_FLAGS: dict[str, str] = FRAMEWORK_KEYS["megatron"]["model"]
# A file without any of these is no training run.
KNOWN_BY = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size", "global-batch-size")
CONTEXT_EXCHANGES = ("p2p", "a2a", "all_gather", "allgather", "a2a+p2p")  # Transformer Engine's, and one of a help
GRAPH_FLAGS = ("enable-cuda-graph", "external-cuda-graph")
FUSED_FLAGS = {"fused_experts": "use-transformer-engine-op-fuser", "fused_loss": "cross-entropy-loss-fusion"}


def megatron_effect(flag: str, value: Any) -> str | None:
    """Return the effect of a Megatron flag that no figure follows: NO_EFFECT, words on it, or None if unknown."""
    name = flag.replace("_", "-")
    if name == "recompute-modules":
        other = sorted(set(_module_names(value)) - set(RECOMPUTE_MODULES))
        return f"no figures for {', '.join(other)}" if other else NO_EFFECT
    return NO_EFFECT if value in AS_TAKEN.get(name, "").split() else listed_effect("megatron", name)


@cache
def _effects(framework: str) -> list[tuple[re.Pattern[str], str]]:
    listed = catalogue("flag_effects")[framework]["effects"].items()
    return [(re.compile("|".join(map(fnmatch.translate, " ".join(names).split()))), effect) for effect, names in listed]


def listed_effect(framework: str, name: str) -> str | None:
    """Return the effect of a framework's flag or key by catalogue/flag_effects.json; None if it is not listed.

    These change time or memory, or the model, in a way that no figure here follows ("-": as the name says), or none of
    them: NO_EFFECT, also where the instance's model or the planner's own prediction states it. The first pattern that
    fits holds.
    """
    return next((effect for names, effect in _effects(framework) if names.match(name)), None)


def _module_names(value: Any) -> list[str]:
    text = " ".join(value) if isinstance(value, (list, tuple)) else "" if value is True else str(value or "")
    return [name.replace("-", "_") for name in re.findall(r"[\w-]+", text)]


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A user's own training run, read from Megatron's flags or other files: its layout, and figures to agree with."""

    framework: str
    layout: dict[str, Any]
    batch_sequences: int | None = None
    gpus: int | None = None
    model: dict[str, int] = field(default_factory=dict)
    sequence_length: int | None = None
    compute: str | None = None  # type of the matrix products
    switches: dict[str, Any] = field(default_factory=dict)  # of the software stack
    expert_tensor: int = 1  # ranks that each expert is divided over
    pipelines_first: bool = False  # whether ranks go through all stages before the next replica
    items: UnmodelledItems = field(default_factory=UnmodelledItems)


def run_of_flags(values: "RunValues", framework: str, compute: str | None) -> OwnRun:
    """Return the training run of values that have the names of Megatron's flags, or names that correspond to them."""
    if values.on("use-megatron-fsdp"):  # without it the strategy has no effect
        zero = ZERO[values.choice("data-parallel-sharding-strategy", tuple(ZERO), "no_shard")]
    else:
        zero = int(values.on("use-distributed-optimizer") or values.get("optim.name") == "distributed_fused_adam")
    layout: dict[str, Any] = {choice: values.count(key) for choice, key in DEGREE_FLAGS.items()}
    stages = layout["pipeline_parallel"]
    layout["microbatch_sequences"] = values.count("micro-batch-size")
    layout |= {"sequence_parallel": values.on("sequence-parallel"), "zero_stage": zero}
    layout |= stage_layers(values, stages)
    layout["recompute"] = granularity = values.choice("recompute-granularity", ("none", "selective", "full"), "none")
    if granularity == "none" and values.on("recompute-activations"):
        layout["recompute"] = "selective"
    elif granularity == "full" and values.choice("recompute-method", ("uniform", "block"), "uniform") == "block":
        number, total = values.count("recompute-num-layers") * layout["virtual_stages"], values.count("num-layers", 0)
        even = [total // stages] * stages if total and total % stages == 0 else []
        by_stage = layout.get("layers_per_stage") or even
        if not by_stage and values.complete:
            where = f"{values.where}: {values.called('recompute-method')} block"
            raise InputError(f"{where}: {values.called('num-layers')} is missing or uneven; add it")
        by_stage = by_stage or [number] * stages  # they are known once the instance is
        layout["recomputed_layers_per_stage"] = [min(number, count) for count in by_stage]
    tensor = values.count("expert-tensor-parallel-size", layout["tensor_parallel"])
    model = {key: values.count(flag, 0) for flag, key in MODEL_FLAGS.items() if values.get(flag)}
    every, window = values.get("window-attn-skip-freq"), re.match(r"\D*(\d+)", str(values.get("window-size")))
    if window or (values.complete and model):
        model["window"] = int(window[1]) if window else 0
        if window and str(every).isdecimal():
            model["window_layers"] = model.get("layers", 0) - model.get("layers", 0) // int(str(every))
    routed = values.count("num-experts", 0) > 0 or layout["expert_parallel"] > 1
    return OwnRun(
        framework=framework,
        layout=layout,
        batch_sequences=values.count("global-batch-size", 0) or None,
        expert_tensor=tensor if routed and layout["tensor_parallel"] > 1 else 1,
        pipelines_first=values.on("use-tp-pp-dp-mapping"),
        model=model,
        sequence_length=values.count("seq-length", 0) or None,
        compute=compute,
        switches=_switches(values, narrow=compute == "fp8", selective=layout["recompute"] == "selective"),
    )


def _switches(values: "RunValues", *, narrow: bool, selective: bool) -> dict[str, Any]:
    """Return the software switches that a run's file states; of a complete one all, off where it has no flag."""
    overlaps: dict[Overlap, bool] = {key: values.on(flag) for key, flag in OVERLAP_FLAGS.items() if values.states(flag)}
    if values.states("overlap-p2p-comm"):
        unless_off = values.complete and not values.on("no-overlap-p2p-communication")
        overlaps["sends"] = values.on("overlap-p2p-comm") or unless_off
    if values.states("cp-comm-type"):
        overlaps["context"] = values.choice("cp-comm-type", CONTEXT_EXCHANGES, "p2p") == "p2p"
    found: dict[str, Any] = {name: values.on(flag) for name, flag in FUSED_FLAGS.items() if values.states(flag)}
    if values.states(sums := "gradient-accumulation-fusion"):
        found["fused_gradient_sums"] = not values.on(f"no-{sums}") if values.complete else values.on(sums)
    if values.states("cross-entropy-fusion-impl"):
        native = values.choice("cross-entropy-fusion-impl", ("native", "te"), "native") == "native"
        found["logit_memory_bytes"] = NATIVE_LOSS_BYTES if native and found.get("fused_loss", True) else None
    if overlaps:
        found["overlaps"] = tuple(sorted(name for name in overlaps if overlaps[name])) if values.complete else overlaps
    if values.states("moe-token-dispatcher-type", "moe-enable-deepep"):
        kind = values.choice("moe-token-dispatcher-type", ("allgather", "alltoall", "flex"), "alltoall")
        backend = values.choice("moe-flex-dispatcher-backend", ("deepep", "hybridep"), "deepep")
        fused: Dispatcher = "hybrid_ep" if backend == "hybridep" else "deep_ep"
        found["dispatcher"] = fused if values.on("moe-enable-deepep") or kind == "flex" else "all_to_all"
    if values.states("cuda-graph-impl", *GRAPH_FLAGS):
        scope = {values.choice("cuda-graph-impl", ("none", "local", "transformer_engine", "full_iteration"), "none")}
        graphed = scope != {"none"} or {flag for flag in GRAPH_FLAGS if values.on(flag)}
        scope |= {str(values.get(flag) or "") for flag in ("cuda-graph-scope", "cuda-graph-modules")}
        found["cuda_graphs"] = ("whole" if "full_iteration" in scope else "part") if graphed else "none"
    if values.states("cpu-offloading") and values.states("num-layers"):  # of a recipe's own layers no share is known
        layers, offloaded = values.count("num-layers", 0), values.count("cpu-offloading-num-layers", 0)
        found["activation_offload"] = min(1.0, offloaded / layers) if values.on("cpu-offloading") and layers else 0.0
    scaled: dict[str, Any] = {}
    if values.states("fp8-recipe"):
        scaled["fp8_recipe"] = FP8_RECIPES[values.choice("fp8-recipe", tuple(FP8_RECIPES), "delayed")]
    if values.states("fp8-param-gather", "fp8-param"):
        scaled["fp8_parameters"] = any([values.on("fp8-param-gather"), values.on("fp8-param")])
    if values.states("fp8-dot-product-attention") and (narrow or not values.complete):
        scaled["fp8_attention"] = values.on("fp8-dot-product-attention")
    if selective and values.states("recompute-modules"):
        key = values.key("recompute-modules")
        named = set(_module_names(values.items.get(key)))
        if named - set(RECOMPUTE_MODULES):  # without figures here: unread, to be reported
            values.items.looked_up.discard(key)
        found["recompute_modules"] = tuple(name for name in RECOMPUTE_MODULES if name in named) or CORE_ATTENTION
    elif values.complete:
        found["recompute_modules"] = CORE_ATTENTION
    return found | (scaled if narrow or not values.complete else {})


@dataclass(frozen=True, slots=True)
class RunValues:
    """Values of a run's file by Megatron's names, with `names` and `shown` for its keys; `complete`: defaults too."""

    items: TrackedItems
    where: str
    script: Script | None = None
    shown: str = "{}"
    names: Callable[[str], tuple[str, ...]] = lambda name: (name,)
    complete: bool = True

    def key(self, name: str) -> str:
        """Return the first key of a Megatron name that the run's file states, or else the first of its keys."""
        return next((key for key in self.names(name) if key in set(self.items)), self.names(name)[0])

    def called(self, name: str) -> str:
        """Return the key of a Megatron name as it is written in the run's file."""
        return self.shown.format(self.key(name))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value that a run's file has for a Megatron flag, or the default."""
        value = self.items.get(self.key(name), default)
        return default if value is None else value

    def on(self, name: str) -> bool:
        """Return whether a run's file has a Megatron flag, or a key for one that is not off."""
        return bool(self.get(name))

    def states(self, *names: str) -> bool:
        """Return whether a run's file determines one of some Megatron flags; a complete one also by leaving it out."""
        return self.complete or any(self.key(name) in set(self.items) for name in names)

    def count(self, name: str, default: int = 1) -> int:
        """Return a whole number from 1 that a run's file has for a Megatron flag, or from a default that is less."""
        value, least = self.get(name, default), min(default, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(name, value, f"a whole number from {least}", "write the figure there")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return one of several words that a run's file has for a Megatron flag."""
        value = self.get(name, default)
        value = default if value is True and self.script else value  # a flag without its word
        if value not in choices:
            raise self._wrong(name, value, f"one of {', '.join(choices)}", "correct it")
        return str(value)

    def _wrong(self, name: str, value: Any, ought: str, remedy: str) -> InputError:
        line, is_ = "", "has no value" if value is True and self.script else f"is {value!r}"
        if self.script is not None:
            # That of the value as it is written, or else of the last flag of its name.
            known = [offset for offset in getattr(value, "offsets", ()) if offset != NOWHERE]
            flags = (item.word.start for item in reversed(self.script.items) if item.key == self.key(name))
            line = f"line {self.script.line(known[0] if known else next(flags))}: "
            why = self.script.why_unknown(value) if isinstance(value, str) else ""
            is_ += f": {why}" if why else ""
        return InputError(f"{self.where}: {line}{self.called(name)}: must be {ought} ({is_}); {remedy}")

    def require(self, framework: str, *names: str) -> None:
        """Require a run's file to state one of the names by which a framework, Megatron or other, is known."""
        keys = [self.key(name) for name in names]
        if not any(item == key or item.startswith(f"{key}.") for item in self.items for key in keys):
            known = f"{', '.join(map(self.shown.format, keys))}, by which a recipe of {framework} is known"
            raise InputError(f"{self.where}: has none of {known}; {REMEDY} of a training run")


def stage_layers(values: RunValues, stages: int) -> dict[str, Any]:
    """Return the layers of every pipeline stage and the virtual stages of a run, from whichever flags state them."""
    layers = values.count("num-layers", 0)
    text = values.get("pipeline-model-parallel-layout")
    if text not in (None, True):
        return layout_choices(str(text), stages, f"{values.where}: {values.called('pipeline-model-parallel-layout')}")
    each = values.count("num-layers-per-virtual-pipeline-stage", 0)
    virtual = values.count("num-virtual-stages-per-pipeline-rank", 1)
    ends = [int(values.on(f"account-for-{end}-in-pipeline-split")) for end in ("embedding", "loss")]
    slots = layers + sum(ends)
    if layers and (each or any(ends)):
        if slots % (stages * (each or 1)):
            flag = values.called("num-layers-per-virtual-pipeline-stage")
            counted = f", {slots} with the ends that count as layers" if any(ends) else ""
            divisor = f"{f'{flag}: {each} x ' * bool(each)}{stages} stages"
            divided = f"{values.called('num-layers')} (is {layers}{counted})"
            raise InputError(f"{values.where}: {divisor} must divide {divided}; change one")
        virtual = slots // (stages * each) if each else virtual
    if layers and any(ends) and stages > 1:
        own = [slots // stages] * stages
        own[0], own[-1] = own[0] - ends[0], own[-1] - ends[1]
        return {"virtual_stages": virtual, "layers_per_stage": own}
    first, last = (values.count(f"decoder-{end}-pipeline-num-layers", 0) for end in ("first", "last"))
    if not layers or not (first or last):
        return {"virtual_stages": virtual}
    middle = stages - bool(first) - bool(last)
    if middle < 1 or (layers - first - last) % middle:
        flag, ends_text = values.called("num-layers"), f"{layers} less {first + last} of the first and last stage"
        problem = f"{ends_text} must be divided evenly by {middle} other stages"
        raise InputError(f"{values.where}: {flag}: {problem}; change theirs, or {flag}")
    inner = [(layers - first - last) // middle] * middle
    return {"virtual_stages": virtual, "layers_per_stage": [*[first] * bool(first), *inner, *[last] * bool(last)]}


def layout_choices(text: str, stages: int, where: str) -> dict[str, Any]:
    """Return layers by stage of a Megatron layout such as `Et*3|(tt|)*6tL`, chunks round the stages, or InputError."""
    plain = re.sub(r"[,\s]", "", text)
    for pattern in (r"\(([^()]+)\)\*(\d{1,6})", r"([EtmL|])\*(\d{1,6})"):
        size = len(plain) + sum(len(match[1]) * int(match[2]) for match in re.finditer(pattern, plain))
        if size > MOST_LAYERS:
            raise InputError(f"{where}: expands to more than {MOST_LAYERS:,} layers; shorten it")
        plain = re.sub(pattern, lambda match: match[1] * int(match[2]), plain)
    if odd := re.search(r"[^EtmL|]", plain):
        raise InputError(f"{where}: {odd[0]!r} is none of E, t, m, L and | (in {text[:60]!r}); correct it")
    chunks = [chunk.count("t") for chunk in plain.split("|")]
    if len(chunks) % stages:
        raise InputError(f"{where}: has {len(chunks)} chunks, which {stages} stages do not divide; change one")
    layers = [sum(chunks[stage::stages]) for stage in range(stages)]
    return {"virtual_stages": len(chunks) // stages, "layers_per_stage": layers}
