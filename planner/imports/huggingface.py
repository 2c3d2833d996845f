"""Read a model from a Hugging Face config.json: dense, grouped-query, latent attention and experts.

Keys and defaults are those of transformers 5 (src/transformers/models/*/configuration_*.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from planner.errors import InputError, hint
from planner.files import read_json
from planner.imports.unmodelled_items import NO_EFFECT, TrackedItems
from planner.instance.catalogue_entries import catalogue
from planner.instance.validation import validated
from planner.instance.workload import Model

LINEAR_HEADS = ("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
INSIDE = ("text_config", "llm_config", "language_config")  # where a model of pictures and text has its Transformer


class ConfigFamily(NamedTuple):
    """Defaults of a Hugging Face model_type; `window_every` n: all layers but each nth, 1: all, 0: none."""

    gated: bool = True
    tied: bool = False
    experts: bool = False
    latent: bool = False
    window_every: int = 0
    head_size: int | None = None
    vocabulary: int | None = None
    window: int | None = None
    dense_layers: int = 0


FAMILIES = {kind: ConfigFamily(**own) for kind, own in catalogue("config_families").items()}


def read_model(path: Path) -> Model:
    """Read the model of a config.json. InputError: family unknown, a figure missing, or layers unlike any here."""
    if path.is_dir():
        path = path / "config.json"
    return read_config(read_json(path), str(path), path.resolve().parent.name if path.stem == "config" else path.stem)


def read_config(data: Any, where: str, name: str) -> Model:
    """Return the model of a Hugging Face configuration, its keys not modelled noted; `name` if it states no name."""
    if not isinstance(data, Mapping) or not isinstance(data.get("model_type"), str):
        raise InputError(f"{where}: model_type: is missing; give a Hugging Face config.json")
    inner = next((part for part in INSIDE if isinstance(data.get(part), Mapping)), None)
    config = TrackedItems(data if inner is None else data[inner])
    kind = str(config.get("model_type", data["model_type"]))
    if (family := FAMILIES.get(kind)) is None:
        remedy = f"{hint(kind, sorted(FAMILIES), 0.7)}; or give workload.model inline (`planner schema instance`)"
        raise InputError(f"{where}: model_type: {kind!r} is not read; {remedy}")
    given = str(config.get("_name_or_path") or data.get("_name_or_path") or name)
    reader = _Reader(config, where, family, kind)
    entry = reader.entry() | {"name": given.rstrip("/").rpartition("/")[2] or name}
    entry["source"] = f"config.json of {entry['name']} ({kind})"
    items, outer = config.unmodelled(_effect), {} if inner is None else data
    settings = (inner, "quantization_config", "rope_scaling", "rope_parameters", "auto_map", "generation_config")
    other_parts = (key for key in outer if key not in settings and isinstance(outer[key], Mapping))
    entry["note"] = items._replace(known=(*reader.approximated, *items.known, *other_parts)).note()
    return validated(Model, entry, where)


def _effect(key: str, value: Any) -> str | None:
    """Return the effect of a configuration key that is not read: NO_EFFECT (also if off), words, or None if unknown."""
    from planner.imports.megatron_flags import listed_effect  # which instances do without

    # What the figures here do not follow.
    if key in ("num_nextn_predict_layers", "num_mtp_modules", "parallel_attn", "use_parallel_residual"):
        return f"is {value}" if value else NO_EFFECT
    return listed_effect("huggingface", key) if value else NO_EFFECT


@dataclass(frozen=True, slots=True)
class _Reader:
    config: TrackedItems
    where: str
    family: ConfigFamily
    kind: str
    approximated: list[str] = field(default_factory=list)  # keys whose layers are approximated by others, with how

    def entry(self) -> dict[str, Any]:
        hidden, heads = self.count("hidden_size n_embd d_model"), self.count("num_attention_heads n_head n_heads")
        tied = self.config.get("tie_word_embeddings")
        entry: dict[str, Any] = {
            "layers": self.count("num_hidden_layers n_layer num_layers n_layers"),
            "hidden": hidden,
            "heads": heads,
            "gated_ffn": self.family.gated,
            "vocabulary": self.count("vocab_size padded_vocab_size", self.family.vocabulary),
            "tied_embeddings": self.family.tied if tied is None else tied,
        }
        if self.kind == "qwen3_next" and not (heads and entry["layers"]):
            return entry  # which the model's own rules refuse
        if width := self.count("intermediate_size ffn_hidden_size ffn_dim n_inner", 0):
            entry["ffn"] = width
        elif self.family.gated and not self.family.experts:
            self.refuse("intermediate_size", "is missing; add it")
        if self.family.latent:
            names = {"kv_rank": "kv_lora_rank", "head_nope": "qk_nope_head_dim", "head_rope": "qk_rope_head_dim"}
            names["head_value"] = "v_head_dim"
            if self.config.get("q_lora_rank") is not None:
                names["q_rank"] = "q_lora_rank"
            entry["latent_attention"] = {ours: self.count(theirs) for ours, theirs in names.items()}
        else:
            item, kv = self.config.get, heads
            old_falcon = self.kind == "falcon" and not item("new_decoder_architecture")
            if old_falcon or self.kind == "gpt_bigcode":
                kv = 1 if item("multi_query", True) else heads
            elif self.kind != "chatglm" or item("multi_query_attention"):
                usual = "num_key_value_heads num_kv_heads n_head_kv multi_query_group_num"
                kv = self.count("kv_n_heads" if self.kind == "mpt" else usual, heads)
            if kv != heads:
                entry["kv_heads"] = kv
            size = self.count("head_dim kv_channels", self.family.head_size or 0)
            if size and size * heads != hidden:
                entry["head_size"] = size
        self._windows(entry)
        if self.family.experts:
            self._experts(entry)
            if self.config.get("swiglu_limit") is not None and "experts" in entry:
                entry["experts"]["clamped"] = True
        if self.kind == "qwen3_next" and "experts" not in entry:
            self.refuse("num_experts", "is missing; add it")
        if self.kind == "qwen3_next":  # each token's shared expert has its other projections, on the mean of layers
            values_heads, key, value = (self.count(name) for name in LINEAR_HEADS)
            keys, values = self.count("linear_num_key_heads") * key, values_heads * value
            self.count("linear_conv_kernel_dim", 4)
            layers, linear = entry["layers"], entry.get("window_layers", 0)
            size = entry.get("head_size", hidden // heads)
            projected = 2 * keys + 3 * values + 2 * values_heads - 2 * size * (heads + entry.get("kv_heads", heads))
            extra = (linear * projected + (layers - linear) * heads * size) / layers
            entry["experts"]["shared_ffn"] += round(extra / 3)
            done = "windows of equal work, its projections in the shared expert"
            self.approximated.append(f"linear attention of {linear} of {layers} layers ({done})")
        return entry

    def count(self, names: str, default: int | None = None) -> int:
        """Return the count that families of models give under one of several names, the usual one first."""
        name = next((name for name in names.split() if self.config.get(name) is not None), None)
        if name is None:
            if default is None:
                self.refuse(names.partition(" ")[0], "is missing; add it")
            return default
        value = self.config[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.refuse(name, f"must be a whole number from 0 (is {value!r}); correct it")
        return value

    def listed(self, key: str) -> list[Any]:
        value = self.config.get(key) or []
        if not isinstance(value, list):
            self.refuse(key, f"must be a list (is {value!r}); correct it")
        return value

    def refuse(self, key: str, problem: str) -> NoReturn:
        raise InputError(f"{self.where}: {key}: {problem}")

    def _windows(self, entry: dict[str, Any]) -> None:
        kinds, layers = self.config.get("layer_types"), entry["layers"]
        window = self.config.get("sliding_window") or (self.family.window if self.family.window_every else None)
        if kinds is not None:
            full, alike = "full_attention", {"llama4_text": "chunked_attention", "qwen3_next": "linear_attention"}
            known = {full, "sliding_attention", alike.get(self.kind)}  # kinds alike are read as windowed
            odd = sorted({str(kind) for kind in kinds} - known) if isinstance(kinds, list) else [repr(kinds)]
            if odd:
                self.refuse("layer_types", f"{odd[0]} is not known to the planner, only {full} and sliding_attention")
            windowed = sum(kind != full for kind in kinds)
        elif "use_sliding_window" in self.config:  # Qwen: the layers from max_window_layers on
            first = self.count("max_window_layers", 0) if self.config["use_sliding_window"] else layers
            windowed = max(0, layers - first)
        elif self.kind == "llama4_text" and self.listed("no_rope_layers"):
            windowed = sum(map(bool, self.listed("no_rope_layers")))
        else:
            every = 1 if self.kind == "phi3" else self.family.window_every  # where it gives sliding_window
            name = "full_attention_interval" if self.kind == "qwen3_next" else "sliding_window_pattern"
            every = self.count(name, self.config.get(name, every) or 0) if every > 1 else every  # 0 where it is null
            windowed = layers if every == 1 else layers - layers // every if every else 0
        if self.kind == "llama4_text":
            window = self.count("attention_chunk_size", window)
            self.approximated.append("attention_chunk_size (chunks are taken as windows)")
        if self.kind == "qwen3_next":  # as much work on scores as the states of linear attention and its chunks
            heads, key, value = (self.count(name) for name in LINEAR_HEADS)
            work = heads * (key * value + 64 * (key + value) // 2)  # a kernel takes 64 tokens at once
            window = round(work / (entry["heads"] * entry.get("head_size", entry["hidden"] // entry["heads"])))
        if windowed and window:
            entry |= {"window": self.count("sliding_window", window), "window_layers": windowed}

    def _experts(self, entry: dict[str, Any]) -> None:
        count = self.count("n_routed_experts num_local_experts num_experts moe_num_experts", 0)
        if not count:
            return
        for key in ("decoder_sparse_step", "moe_layer_freq", "moe_layer_interval"):
            if (every := self.config.get(key, 1)) != 1:
                self.refuse(key, f"is {every!r}; the planner knows dense layers only before all with experts")
        width, own = self.count("moe_intermediate_size intermediate_size"), "shared_expert_intermediate_size"
        counts = "n_shared_experts num_shared_experts moe_num_shared_experts"
        shared = self.count(counts, 0) * width if self.config.get(own) is None else self.count(own)
        dense_list = self.listed("mlp_only_layers")
        first = self.count("first_k_dense_replace moe_layer_start_index", self.family.dense_layers)
        dense = max(first, len(dense_list))
        if not all(layer in dense_list for layer in range(len(dense_list))):
            self.refuse("mlp_only_layers", f"is {dense_list!r}; the planner knows dense layers only before the others")
        if self.kind == "llama4_text":  # of the mean width where layers with experts and dense ones alternate
            layers, dense_width = entry["layers"], self.count("intermediate_size_mlp")
            step = self.count("interleave_moe_layer_step", 1) if not self.listed("moe_layers") else 1
            if not step:
                self.refuse("interleave_moe_layer_step", "must be at least 1 (is 0); correct it")
            routed = len(self.listed("moe_layers")) or layers // step
            both, shared = width * routed + dense_width * (layers - routed), width
            if routed != layers and layers:  # a model without layers is refused by its own rules
                if width * routed % layers or both % layers:
                    remedy = "write workload.model inline"
                    self.refuse("interleave_moe_layer_step", f"leaves no whole width of the mean layer; {remedy}")
                done = f"{routed} of {layers} layers have experts, each layer here has their mean"
                self.approximated.append(f"interleave_moe_layer_step ({done})")
                width, shared = width * routed // layers, both // layers
        per_token = self.count("num_experts_per_tok experts_per_token moe_topk moe_k")
        entry["experts"] = {"count": count, "per_token": per_token, "ffn": width}
        entry["experts"] |= {"shared_ffn": shared, "dense_layers": dense}
        groups = self.count("n_group", 1)
        if groups > 1:
            entry["experts"] |= {"groups": groups, "groups_per_token": self.count("topk_group", groups)}
        if not dense:
            entry.pop("ffn", None)  # no layer has the dense FFN
