"""The rows of `rows/steps_2025_26.csv`, by whom no constant of the catalogue was fitted until they came.

The table states, as all rows of runs, a model, a layout and a step; its sources state no dispatcher nor overlap in a
column, so that the stack of a row follows from its source and release by one rule, and from the words in the id of a
row of Megatron-LM's recipes, which name them.
"""

from typing import Any

from bridge_recipes import BRIDGE_2025, OVERLAPS, Stack, bridge_stack, numbers, recipe_stack, titan_stack

from planner.instance.framework_rules import NATIVE_LOSS_BYTES

MODELS = {
    "DeepSeek-V3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "GPT OSS 20B": "gpt-oss-20b",
    "GPT-3 175B": "gpt3-175b",
    "Llama 2 70B": "llama-2-70b",
    "Llama 3.1 8B": "llama-3.1-8b",
    "Llama 3.1 70B": "llama-3.1-70b",
    "Llama 3.1 405B": "llama-3.1-405b",
    "Mixtral 8x7B": "mixtral-8x7b",
    "Mixtral 8x22B": "mixtral-8x22b",
    "Nemotron-4 15B": "nemotron-4-15b",
    "Nemotron-4 340B": "nemotron-4-340b",
    "Qwen3-8B": "qwen3-8b",
    "Qwen3-30B": "qwen3-30b-a3b",
    "Qwen3-235B": "qwen3-235b-a22b",
}
"""The catalogue's names of the table's models."""
MIXTURES = ("DeepSeek", "GPT OSS", "Mixtral", "Qwen3-30B", "Qwen3-235B")
CUSTOM_REMAT = "remat custom"
"""In the notes of a row that runs its layers again, but for some products that it keeps on the host."""
NEMO_2_SINCE = {"MLPerf": (5, 0), "NVIDIA": (24, 9)}
"""The first release on NeMo 2 of each series of NeMo's rows, by the first word of its source."""
NEMO_2: dict[str, Any] = {"fused_loss": True, "fp8_parameters": True}
"""What NeMo 2 has over NeMo 24.07: its GPTConfig fuses the loss, and bf16_with_fp8_mixed gathers weights in FP8, scaled
as before. Its recipes of Mixtral keep the all-to-all dispatcher, overlap no exchange of experts and have no kernel
of all experts, of which each GPU has one; so mixtures of experts need no stack of their own."""
LATE_2025 = (5, 1)
"""From this round on rows of MLPerf are on the library of the releases of Megatron-Bridge."""
LOSS_OF_MLPERF = {"logit_memory_bytes": NATIVE_LOSS_BYTES}
"""What rows of MLPerf on NeMo 2 keep of a logit at the peak of the loss. Their scripts build GPTConfig, which fuses the
loss and names no implementation, so that it is Megatron-Core's own (the performance scripts of NeMo and of
Megatron-Bridge name Transformer Engine's)."""
OF_NOTES: dict[str, dict[str, Any]] = {
    "whole graphs": {"cuda_graphs": "whole"},
    "graphs of layers": {"cuda_graphs": "part"},
    "scales by tensor": {"fp8_recipe": "per_tensor"},
    "no TP overlap": {"overlaps": tuple(x for x in OVERLAPS if x != "tensor")},
}
"""Switches of a run of MLPerf by the words in its notes, from its config_*.sh (FULL_CUDA_GRAPH, LAYER_CUDA_GRAPH,
FP8_RECIPE, TP_COMM_OVERLAP)."""
NATURAL = "natural routing"
"""In the notes of a row whose tokens choose their experts; elsewhere routing is forced to be even."""


def recent_stack(row: dict[str, str]) -> Stack:
    """Return the stack of a row, by its source and release."""
    source = row["source"]
    if source.startswith("Megatron-LM examples"):
        return recipe_stack(row)
    if source.startswith("Megatron-Bridge"):
        return bridge_stack(row | {"table": row["release"], "moe": str(int(is_mixture(row)))}, MODELS[row["model"]])
    if source.startswith("torchtitan"):
        return titan_stack(row | {"table": ""})
    if source.startswith("tpu-recipes"):
        return Stack("maxtext")
    series, release = source.split(" ")[0], numbers(row["release"])
    notes = row.get("notes", "")
    own = {key: value for words, some in OF_NOTES.items() if words in notes for key, value in some.items()}
    if series == "MLPerf" and release >= LATE_2025:
        return Stack(BRIDGE_2025, {"fp8_recipe": "delayed"} | LOSS_OF_MLPERF | own)
    newer = NEMO_2 | (LOSS_OF_MLPERF if series == "MLPerf" else {})
    return Stack("nemo-2024", (newer if release >= NEMO_2_SINCE[series] else {}) | own)


def is_mixture(row: dict[str, str]) -> bool:
    """Return whether a row's model has experts."""
    return row["model"].startswith(MIXTURES)
