"""Flags of Megatron-LM and the switches of a software stack that they stand for."""

from planner.instance.workload import Overlap

FP8_RECIPES = {"delayed": "delayed", "tensorwise": "per_tensor", "mxfp8": "mxfp8", "blockwise": "blockwise"}
OVERLAP_FLAGS: dict[Overlap, str] = {
    "experts": "overlap-moe-expert-parallel-comm",
    "gradients": "overlap-grad-reduce",
    "parameters": "overlap-param-gather",
    "tensor": "tp-comm-overlap",
}
