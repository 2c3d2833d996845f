"""The stack and the switches of a row of Megatron-Bridge or Megatron-LM, by published performance recipes.

The tables state no dispatcher, overlap nor CUDA graphs; the recipes of each release do (NVIDIA-NeMo/Megatron-Bridge,
scripts/performance/configs of v0.2.0 to v0.5.0 for containers 25.11 to 26.06; fused experts are its
cutedsl_fused_grouped_mlp). `rows/bridge_recipes.csv` has them for mixtures of experts, with what of a layer selective
recompute runs again (recompute_modules of the recipe of the largest batch); 26.08 is taken as 26.06, and 25.09 as its
interleaved runs on Hopper, which alone exchange beside another micro-batch.
"""

import csv
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from planner.instance.framework_rules import TITAN_LOSS_BYTES

BRIDGE, BRIDGE_2025 = "megatron-bridge", "megatron-core-2025"
OVERLAPS = ("context", "gradients", "parameters", "sends", "tensor")
WHOLE_GRAPHS = (26, 6)  # from here dense models run as the newest preset but on Hopper
RECIPES = Path(__file__).parent / "rows" / "bridge_recipes.csv"
PLAIN = {"dispatcher": "all_to_all", "cuda_graphs": "none", "recompute_modules": ""}
PLAIN |= dict.fromkeys(("experts_overlap", "fused_experts"), "0")
KEY = ("release", "model", "gpu_type", "precision")


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack of the catalogue, and the switches in which a run differs from it."""

    name: str
    switches: dict[str, Any] = field(default_factory=dict)


def numbers(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, in the order of which releases of one series follow each other."""
    return tuple(int(part) for part in release.split("."))


def fp8_recipe(row: dict[str, str]) -> str:
    """Return how a row's products in FP8 are scaled: by blocks where it says so, else by tensors as they are."""
    stated = row["precision"].lower()
    return "mxfp8" if "mx" in stated else "blockwise" if "blockwise" in row["id"] else "per_tensor"


def bridge_stack(row: dict[str, str], model: str) -> Stack:
    """Return the stack of a row of Megatron-Bridge that trains a model of the catalogue."""
    release, gpu, recipe = row["table"].split(" ")[0], row["gpu_type"], {"fp8_recipe": fp8_recipe(row)}
    if row["moe"] != "1":
        return Stack(BRIDGE if numbers(release) >= WHOLE_GRAPHS and not gpu.startswith("H") else BRIDGE_2025, recipe)
    stated = row["precision"].lower()
    kind = "mxfp8" if "mx" in stated else "fp8" if "fp8" in stated else "bf16"
    known = recipes().get((release, model, gpu.removesuffix("-SXM"), kind), PLAIN)
    beside = known["experts_overlap"] == "1" or "EP overlap" in row.get("notes", "")
    return Stack(
        BRIDGE if known["cuda_graphs"] == "whole" else BRIDGE_2025,
        recipe
        | {key: known[key] for key in ("dispatcher", "cuda_graphs")}
        | {"fused_experts": known["fused_experts"] == "1"}
        | ({"recompute_modules": tuple(modules.split("+"))} if (modules := known["recompute_modules"]) else {})
        | {"overlaps": (*OVERLAPS, "experts") if beside else OVERLAPS},
    )


@cache
def recipes() -> dict[tuple[str, ...], dict[str, str]]:
    """Read the recipes by release, model, GPU and precision."""
    with RECIPES.open(encoding="utf-8", newline="") as file:
        return {tuple(row[k] for k in KEY): row for row in csv.DictReader(file)}


def recipe_stack(row: dict[str, str]) -> Stack:
    """Return the stack of one of Megatron-LM's recipes, by the words in its name and its file (examples/moe_recipes).

    All but DeepEP's dispatch by HybridEP, those of whole graphs fuse experts, and those of Qwen3-30B on GB200 leave the
    exchange of gradients and weights out of the passes.
    """
    name = row["id"]
    graphs = "whole" if "fullCG" in name else "part" if "CG" in name else "none"
    overlaps = OVERLAPS if "Qwen3-30B-GB200" not in name else ("context", "sends", "tensor")
    switches = {
        "cuda_graphs": graphs,
        "fused_experts": graphs == "whole",
        "dispatcher": "deep_ep" if "DeepEP" in name else "hybrid_ep",
        "fp8_recipe": fp8_recipe(row),
        "overlaps": (*overlaps, "experts") if "EP-overlap" in name else overlaps,
    }
    return Stack(BRIDGE if graphs == "whole" else BRIDGE_2025, switches)


def titan_stack(row: dict[str, str]) -> Stack:
    """Return the stack of a row of torchtitan: its notes say where TP is not asynchronous.

    Its rows of the end of 2024, which name a table, compute the loss without torch.compile.
    """
    switches: dict[str, Any] = (
        {"logit_memory_bytes": TITAN_LOSS_BYTES[False], "fused_loss": False} if row["table"] else {}
    )
    if "vanilla" in row["notes"] or "; 2D;" in row["notes"]:
        switches["overlaps"] = tuple(x for x in OVERLAPS if x != "tensor")
    return Stack("torchtitan", switches)
