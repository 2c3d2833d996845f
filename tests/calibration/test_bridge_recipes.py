"""Which stack of the catalogue a published row of Megatron-Bridge ran on."""

import pytest
from bridge_recipes import ALL_TO_ALL, BRIDGE_2025, FLEX, OVERLAP, bridge_stack

from planner.instance.catalogue import catalogue


@pytest.mark.parametrize(
    ("release", "gpu", "model", "chunks", "stack"),
    [
        ("26.06 NeMo", "GB300", "GPT OSS 120B", "", "megatron-bridge"),
        ("26.08 NeMo", "B300", "Qwen3_30B_a3B", "", "megatron-bridge"),
        ("26.08 NeMo", "B300", "DeepSeekV3", "", FLEX),
        ("26.04 NeMo", "B200", "DeepSeekV3", "2", "megatron-bridge"),  # overlaps under graphs
        ("26.06 NeMo", "H100-SXM", "Qwen3_30B_a3B", "", FLEX),  # the recipes for Hopper have no graphs of whole steps
        ("26.04 NeMo", "H100-SXM", "Qwen3_235B_a22B", "4", OVERLAP),
        ("25.09 NeMo", "H100-SXM", "DeepSeekV3", "4", OVERLAP),
        ("25.09 NeMo", "B200", "Qwen3_235B_a22B", "2", ALL_TO_ALL),  # overlaps on Hopper alone
        ("26.02 NeMo", "B300", "Qwen3_235B_a22B", "4", OVERLAP),
        ("26.02 NeMo", "B200", "DeepSeekV3", "", FLEX),
        ("26.02 NeMo", "B300", "Qwen3_30B_a3B", "", ALL_TO_ALL),
        ("26.04 NeMo", "B300", "Qwen3_30B_a3B", "", FLEX),
        ("26.02 NeMo", "GB200", "Qwen3_235B_a22B", "3", FLEX),
        ("26.04 NeMo", "GB200", "GPT OSS 120B", "", ALL_TO_ALL),
    ],
)
def test_stack_of_a_mixture_of_experts(release: str, gpu: str, model: str, chunks: str, stack: str) -> None:
    """Releases, machines and models as the published recipes have them."""
    row = {"table": release, "gpu_type": gpu, "model": model, "interleave_vp": chunks, "moe": "1"} | {
        "precision": "MXFP8"
    }
    assert bridge_stack(row) == stack


def test_only_steps_in_8_bits_are_graphs_as_a_whole() -> None:
    """In 16 bits the recipes of 26.06 are those of the releases before."""
    row = {"table": "26.06 NeMo", "gpu_type": "GB200", "model": "DeepSeekV3", "interleave_vp": "4", "moe": "1"}
    assert bridge_stack(row | {"precision": "BF16"}) == FLEX


@pytest.mark.parametrize(("release", "stack"), [("25.11 NeMo", ALL_TO_ALL), ("26.06 NeMo", "megatron-bridge")])
def test_dense_models_have_the_stack_of_their_release(release: str, stack: str) -> None:
    """Interleaving changes no stack of a dense model."""
    assert bridge_stack({"table": release, "gpu_type": "GB200", "interleave_vp": "4", "moe": "", "model": "x"}) == stack


def test_stacks_differ_in_their_experts_alone() -> None:
    """The three variants are in the catalogue, alike but for experts and launches."""
    entries = [catalogue("software")[name] for name in BRIDGE_2025]
    apart = {"name", "note", "source", "launch_seconds", "expert_overlap", "expert_once_per_domain"}
    apart |= {"dispatch_seconds", "expert_seconds", "expert_efficiency"}
    plain = [{k: v for k, v in e.items() if k not in apart} for e in entries]
    assert plain[0] == plain[1] == plain[2]
