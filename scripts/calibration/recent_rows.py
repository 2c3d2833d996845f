"""The rows of `rows/steps_2025_26.csv`, by whom no constant of the catalogue was fitted until they came.

The table states, as all rows of runs, a model, a layout and a step; its sources state no dispatcher nor overlap in a
column, so that the stack of a row follows from its source and release by one rule, and from the words in the id of a
row of Megatron-LM's recipes, which name them.
"""

from bridge_recipes import BRIDGE, BRIDGE_2025, FLEX, bridge_stack

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
NATURAL = "natural routing"
"""In the notes of a row whose tokens choose their experts; elsewhere routing is forced to be even."""


def recent_stack(row: dict[str, str]) -> str:
    """Return the stack of a row, by its source and release."""
    source = row["source"]
    if source.startswith("Megatron-LM examples"):
        return _of_recipe(row["id"])
    if source.startswith("Megatron-Bridge"):
        named = {"Qwen3-30B": "Qwen3_30B_a3B", "DeepSeek-V3": "DeepSeekV3"}
        return bridge_stack(
            row
            | {
                "table": row["release"],
                "moe": str(int(is_mixture(row))),
                "model": named.get(row["model"], row["model"]),
            }
        )
    if source.startswith("torchtitan"):
        return "torchtitan"
    if source.startswith("tpu-recipes"):
        return "maxtext"
    return BRIDGE_2025[0] if row["release"] >= "25" or row["release"].startswith("5") else "nemo-2024"


def _of_recipe(name: str) -> str:
    """Return the stack that the words of a recipe of Megatron-LM describe."""
    if ("CG_" in name and "EP-overlap" in name) or "fullCG" in name:
        return BRIDGE
    return FLEX if "DeepEP" in name or "HybridEP" in name else BRIDGE_2025[0]


def is_mixture(row: dict[str, str]) -> bool:
    """Return whether a row's model has experts."""
    return row["model"].startswith(MIXTURES)
