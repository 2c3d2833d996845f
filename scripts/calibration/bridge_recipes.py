"""Which stack of the catalogue a row of Megatron-Bridge ran on, by its published performance recipes.

The tables state no dispatcher, overlap nor CUDA graphs; the recipes of each release do (NVIDIA-NeMo/Megatron-Bridge,
scripts/performance/configs of v0.2.0 to v0.5.0, containers 25.09 to 26.06).
"""

BRIDGE, BRIDGE_2025 = (
    "megatron-bridge",
    ("megatron-core-2025", "megatron-core-2025-flex", "megatron-core-2025-overlap"),
)
ALL_TO_ALL, FLEX, OVERLAP = BRIDGE_2025
NVL72, HOPPER = ("GB200", "GB300"), "H"
WHOLE_GRAPHS = "26.06"  # from here whole iterations are CUDA graphs, with fused experts, on Blackwell
FLEX_EVERYWHERE = "26.04"
OVERLAP_BEYOND_HOPPER, OVERLAP_UNDER_GRAPHS = "25.11", "26.04"


def bridge_stack(row: dict[str, str]) -> str:
    """Return the stack of a row of Megatron-Bridge: dense models that of their release, on Hopper the one before."""
    release, gpu = row["table"][:5], row["gpu_type"]
    if row["moe"] == "1":
        return _of_experts(row, release, gpu)
    return BRIDGE if release >= WHOLE_GRAPHS and not gpu.startswith(HOPPER) else ALL_TO_ALL


def _of_experts(row: dict[str, str], release: str, gpu: str) -> str:
    """Return the stack of a mixture of experts.

    From 26.06 iterations in 8 bits are CUDA graphs as a whole on NVL72 racks, and of the models on nodes of 8 Qwen3 30B
    on B300 (cuda_graph_impl). Interleaved ones on nodes of 8 exchange beside the passes of another micro-batch
    (moe_a2a_overlap), in 25.09 on Hopper alone, from 26.04 on Blackwell under CUDA graphs, as later. The flexible
    dispatcher serves NVL72 racks, DeepSeek, and from 26.04 every model on nodes of 8, but never GPT OSS
    (moe_flex_dispatcher_backend).
    """
    rack, hopper, model = gpu in NVL72, gpu.startswith(HOPPER), row["model"]
    graphs = rack or (gpu == "B300" and model.startswith("Qwen3_30B"))
    if release >= WHOLE_GRAPHS and graphs and "fp8" in row["precision"].lower():
        return BRIDGE
    if not rack and int(row["interleave_vp"] or 1) > 1 and (hopper or release >= OVERLAP_BEYOND_HOPPER):
        return BRIDGE if not hopper and release >= OVERLAP_UNDER_GRAPHS else OVERLAP
    flexible = rack or model.startswith("DeepSeek") or release >= FLEX_EVERYWHERE
    return FLEX if flexible and not model.startswith("GPT OSS") else ALL_TO_ALL
