"""Translate flags of Megatron-LM into switches of a software stack."""

from planner.instance.workload import RECOMPUTE_MODULES, Overlap

FP8_RECIPES = {"delayed": "delayed", "tensorwise": "per_tensor", "mxfp8": "mxfp8", "blockwise": "blockwise"}
OVERLAP_FLAGS: dict[Overlap, str] = {
    "experts": "overlap-moe-expert-parallel-comm",
    "gradients": "overlap-grad-reduce",
    "parameters": "overlap-param-gather",
    "tensor": "tp-comm-overlap",
}
# Modules that Megatron-Core may recompute (transformer_config.py): those with figures here, and others.
MEGATRON_MODULES = (*RECOMPUTE_MODULES, "gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc")
