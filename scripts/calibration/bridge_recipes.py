"""Which stack of the catalogue a row of Megatron-Bridge ran on, by its published performance recipes.

The tables state no dispatcher, overlap nor CUDA graphs; the recipes of each release do (NVIDIA-NeMo/Megatron-Bridge,
scripts/performance/configs of v0.2.0 to v0.5.0, containers 25.09 to 26.06).
"""

BRIDGE_2025 = ("megatron-core-2025", "megatron-core-2025-flex", "megatron-core-2025-overlap")
ALL_TO_ALL, FLEX, OVERLAP = BRIDGE_2025
NVL72, HOPPER = ("GB200", "GB300"), "H"
OVERLAP_BEYOND_HOPPER = "25.11"
WHOLE_GRAPHS = "26.06"  # from here whole iterations are CUDA graphs, with fused experts, on Blackwell


def bridge_stack(row: dict[str, str]) -> str:
    """Return the stack of a row of Megatron-Bridge.

    From 26.06 Blackwell GPUs run whole iterations as CUDA graphs. Before, interleaved mixtures of experts on nodes of
    8 exchange beside the passes of another micro-batch (moe_a2a_overlap; in 25.09 on Hopper); the flexible dispatcher serves NVL72 racks,
    DeepSeek, and from 26.04 every model on nodes of 8, but never GPT OSS (moe_flex_dispatcher_backend).
    """
    release, gpu, model = row["table"][:5], row["gpu_type"], row["model"]
    if release >= WHOLE_GRAPHS and not gpu.startswith(HOPPER):
        return "megatron-bridge"
    if row["moe"] != "1":
        return ALL_TO_ALL
    rack = gpu in NVL72
    overlaps = gpu.startswith(HOPPER) or release >= OVERLAP_BEYOND_HOPPER
    if not rack and overlaps and int(row["interleave_vp"] or 1) > 1:
        return OVERLAP
    flexible = rack or model.startswith("DeepSeek") or release >= "26.04"
    return FLEX if flexible and not model.startswith("GPT OSS") else ALL_TO_ALL
