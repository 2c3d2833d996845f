"""Rules of training frameworks on the layouts that a search may choose; the catalogue has those of each by name."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from planner.instance.catalogue_entries import catalogue

Overlap = Literal["tensor", "experts", "context", "gradients", "parameters", "sends"]  # an exchange behind products


class FrameworkRules(NamedTuple):
    """Rules that a training framework holds a layout to; degrees, ZeRO stages and schedules are keys of its stack."""

    framework: str = ""  # whose rules they are; empty: none
    recompute: Literal["free", "chunks alike", "all or none"] = "free"  # of the layers that stages recompute
    selective: bool = True  # whether a part of each layer may be recomputed
    even_stages: bool = False  # all stages have as many layers
    whole_rounds: bool = False  # micro-batches of an interleaved pipeline are a multiple of its stages
    sequence_parts: Literal["any", "ranks", "halves"] = "any"  # that divide a sequence: Megatron's, torchtitan's
    sequence_parallel: Literal["free", "with experts", "always"] = "free"  # where tensors are parallel
    whole_expert_groups: bool = False  # EP divides TP x CP x DP
    experts_over_tensors: bool = False  # TP x CP divides EP, under TP or EP
    tensor_2d: bool = True  # whether TP ranks may form a grid

    @property
    def text(self) -> str:
        """The rules of a training framework in words, as the space of a bound states them."""
        parts = {
            "every chunk recomputes as many layers or all of its own": self.recompute == "chunks alike",
            "all layers are recomputed or none": self.recompute == "all or none",
            "no selective recompute": not self.selective,
            "all stages have as many layers": self.even_stages,
            "micro-batches of interleaved pipelines in whole rounds of the stages": self.whole_rounds,
            "2 x CP and, under sequence parallelism, CP x TP divide a sequence": self.sequence_parts == "ranks",
            "2 x CP x TP divides a sequence": self.sequence_parts == "halves",
            "sequence parallelism wherever tensors are parallel": self.sequence_parallel == "always",
            "sequence parallelism where tensors of a model with experts are parallel": self.sequence_parallel
            == "with experts",
            "EP divides TP x CP x DP": self.whole_expert_groups,
            "TP x CP divides EP": self.experts_over_tensors,
            "TP in one dimension": not self.tensor_2d,
        }
        return ", ".join(part for part, holds in parts.items() if holds)


FREE = FrameworkRules()

# Names of Megatron-LM for the switches of a software stack.
FP8_RECIPES = {"delayed": "delayed", "tensorwise": "per_tensor", "mxfp8": "mxfp8", "blockwise": "blockwise"}
OVERLAP_FLAGS: dict[Overlap, str] = {
    "experts": "overlap-moe-expert-parallel-comm",
    "gradients": "overlap-grad-reduce",
    "parameters": "overlap-param-gather",
    "tensor": "tp-comm-overlap",
}
NATIVE_LOSS_BYTES = 10.0
"""What Megatron-Core's own fused loss keeps of a logit at its peak; Transformer Engine's writes the gradient over the
16-bit logit. Its compiled passes (megatron/core/fusions/fused_cross_entropy.py of core_v0.14.0) keep the softmax in 32
bits for the backward pass, which scatters into it, scales it and casts it: with one copy that these need, and the
gradient in 16 bits, 4 + 4 + 2. It is the default where the loss is fused (--cross-entropy-fusion-impl native)."""
TITAN_LOSS_BYTES = {True: 4.0, False: 14.0}
"""What torchtitan keeps of a logit at the loss's peak, by whether torch.compile fuses the loss (components/loss.py):
logits in 16 bits and their gradient; or the logits, and their copy, softmax and gradient in 32 bits."""


@cache
def rules_of(software: str) -> FrameworkRules:
    """Return the framework rules for a software stack's name, by its beginning; none for a user's own stack."""
    known = catalogue("framework_rules")  # a longer beginning comes before a shorter one
    entry: Mapping[str, Any] = next((known[start] for start in known if software.startswith(start)), {})
    rules = {key: value for key, value in entry.items() if key not in ("note", "source")}
    return TypeAdapter(FrameworkRules).validate_python(rules) if rules else FREE
