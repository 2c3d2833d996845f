"""Types of an instance's workload: the model to train, its experts and attention, its precision and its tokens."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, ValidationError

from planner.instance.base_types import Count, Dtype, NonNegative, Positive, Sourced
from planner.instance.catalogue_entries import IN_FULL, Named, by_default
from planner.instance.framework_rules import FREE, FrameworkRules, rules_of
from planner.instance.scaling_law import Choose
from planner.instance.software import Software

CHOSEN = ("model", "tokens")  # by workload.choose, where they are left out


class Experts(Sourced):
    """Mixture of experts of a workload's model, in place of the FFN: a token goes through a few and the shared."""

    count: Count = Field(description="Routed experts of one layer.")
    per_token: Count = Field(description="Routed experts that one token goes through (top-k).")
    ffn: Count = Field(description="FFN width of one routed expert.")
    shared_ffn: Annotated[int, Field(ge=0)] = Field(0, description="FFN width of the shared experts together; 0: none.")
    clamped: bool = Field(False, description="With biases and a clamped activation, as GPT-OSS: a dozen operations.")
    dense_layers: Annotated[int, Field(ge=0)] = Field(0, description="First layers that keep the dense FFN.")
    groups: Count = Field(1, description="Groups of experts next to each other, of which a token goes to few.")
    groups_per_token: Count = Field(1, description="Groups that the experts of one token belong to at most.")

    def _faults(self) -> Iterator[str]:
        if self.per_token > self.count:
            yield f"per_token must be at most count ({self.per_token} > {self.count}); change either"
        if self.count % self.groups or self.groups_per_token > self.groups:
            groups = f"{self.groups} of {self.count} experts, {self.groups_per_token} for a token"
            yield f"groups must divide count and be at least groups_per_token ({groups}); change either"


class LatentAttention(Sourced):
    """Multi-head latent attention of a workload's model (DeepSeek-V3, arXiv 2412.19437, 2.1.1): low-rank Q and KV."""

    q_rank: Count | None = Field(
        None, description="Width of a token's compressed queries; absent: not compressed (DeepSeek-V2-Lite)."
    )
    kv_rank: Count = Field(description="Width of a token's compressed keys and values.")
    head_nope: Count = Field(description="Width of a head's query and key without position.")
    head_rope: Count = Field(description="Width of a head's query and shared key with rotary position.")
    head_value: Count = Field(description="Width of a head's value.")


class Model(Sourced):
    """The model of a workload: a decoder-only Transformer, dense or with routed experts; attention full or windowed."""

    name: str = Field(description="By which plans name it.")
    layers: Count = Field(description="Transformer layers.")
    hidden: Count = Field(description="Width of the hidden state.")
    heads: Count = Field(description="Attention heads.")
    kv_heads: Count | None = Field(None, description="KV heads of grouped-query attention; absent: heads.")
    head_size: Count | None = Field(None, description="Width of a head; absent: hidden / heads.")
    latent_attention: LatentAttention | None = Field(None, description="In place of kv_heads and head_size.")
    window: Count | None = Field(None, description="Tokens that a position sees in a windowed layer, itself included.")
    window_layers: Annotated[int, Field(ge=0)] = Field(0, description="Layers with windowed attention.")
    ffn: Count | None = Field(None, description="FFN width of a dense layer; absent: 4 hidden.")
    gated_ffn: bool = Field(False, description="Three FFN matrices (SwiGLU) and not two, in experts too.")
    experts: Experts | None = Field(None, description="Routed experts; absent: every layer is dense.")
    vocabulary: Count = Field(description="Entries of the embedding, padding included.")
    tied_embeddings: bool = Field(True, description="The LM head shares the embedding's weights.")

    def _faults(self) -> Iterator[str]:
        if self.latent_attention is not None and (self.head_size is not None or self.kv_heads is not None):
            yield "latent_attention sets the heads' widths; remove head_size and kv_heads"
        if self.latent_attention is None and self.head_size is None and self.hidden % self.heads:
            most = min(self.hidden, 4 * self.heads, 100_000)
            divisors = (divisor for divisor in range(1, most + 1) if self.hidden % divisor == 0)
            near = min(divisors, key=lambda divisor: (abs(divisor - self.heads), divisor))
            yield f"heads must divide hidden ({self.hidden} / {self.heads}); give {near}, or head_size"
        if self.latent_attention is None and self.heads % (self.kv_heads or self.heads):
            yield f"kv_heads must divide heads ({self.heads} / {self.kv_heads} is not whole)"
        dense = self.experts.dense_layers if self.experts else 0
        if self.experts is not None and dense >= self.layers:
            yield f"experts.dense_layers must be less than layers ({dense} of {self.layers}); lower it"
        if self.window_layers > self.layers:
            yield f"window_layers must be at most layers ({self.window_layers} > {self.layers}); lower it"
        if (self.window is None) != (self.window_layers == 0):
            yield f"give window and window_layers, or neither (are {self.window} and {self.window_layers})"

    @property
    def kv(self) -> int:
        """Key and value heads of the attention of a workload's model."""
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        """Width of one attention head of a workload's model."""
        return self.head_size or self.hidden // self.heads

    @property
    def ffn_width(self) -> int:
        """Width of the FFN of a dense layer of a workload's model."""
        return self.ffn or 4 * self.hidden

    @property
    def moe_layers(self) -> int:
        """Layers of an instance's model that have routed experts."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers


class Precision(Sourced):
    """Numeric precision of a workload: the type of the matrix products, and the bytes each role takes per element."""

    compute: Dtype = Field(description="Type in which the matrix products run; picks the peak rate.")
    parameter_bytes: Positive = Field(
        description="Per parameter, the copy that products read and the master copy, which ZeRO divides with the "
        "optimiser's moments."
    )
    working_parameter_bytes: Positive = Field(description="Per parameter, the copy that products read.")
    gradient_bytes: Positive = Field(description="Per parameter.")
    optimizer_bytes: NonNegative = Field(description="Per parameter, all moments.")
    activation_bytes: Positive = Field(description="Per stored activation element.")
    collective_bytes: Positive = Field(description="Per activation element that tensor and pipeline parallelism send.")

    def _faults(self) -> Iterator[str]:
        if self.parameter_bytes < self.working_parameter_bytes:
            least = f"working_parameter_bytes ({self.working_parameter_bytes:g}), which it includes"
            both = f"parameter_bytes ({self.parameter_bytes:g}) is less than {least}"
            yield f"{both}; give the bytes of both copies"


_CHOOSES = {"required": ["choose"], "properties": {"choose": {"type": "object"}}}
DUE = {"if": {"not": _CHOOSES}, "then": {"required": [*CHOSEN, "sequence_length"]}}


class Workload(Sourced, json_schema_extra=DUE):
    """The workload of an instance: a model to train on a number of tokens."""

    model: Annotated[Model, Named("models")] = Field(  # type: ignore[assignment]  # there once it is chosen
        None, description="The architecture, inline or by catalogue name; left out where `choose` chooses it."
    )
    tokens: Positive = Field(  # type: ignore[assignment]
        None, description="Training tokens; left out where `choose` chooses them."
    )
    sequence_length: Count = Field(description="Tokens per sequence.")
    precision: Annotated[Precision, Named("precisions")] = by_default(
        "precisions", "bf16", "Inline or by catalogue name (bf16, fp8, ...); absent: bf16."
    )
    software: Annotated[Software, Named("software")] = by_default(
        "software", "megatron-core", "The framework, inline or by catalogue name."
    )
    expert_imbalance: Annotated[float, Field(ge=1)] = Field(
        1.0,
        description="Tokens of the busiest expert-parallel rank over the mean; 1: routing is forced to be even, as in "
        "published steps. Natural routing without tuning took 1.3 to 2.2 times as long (docs/accuracy.md).",
    )
    availability: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Share of wall time that trains.")
    choose: Choose | None = Field(None, description="Choose model and tokens, which must then be left out.")
    framework_rules: bool | None = Field(
        None,
        exclude_if=lambda rules: rules is None,  # so that an instance without it keeps its hash
        description="Plan only what the named framework runs (docs/layout.md lists its rules); false: any layout, as "
        "a stack of one's own may run it. Absent: true.",
    )

    @model_validator(mode="before")
    @classmethod
    def _given_or_chosen(cls, data: Any, info: ValidationInfo) -> Any:
        """Require a workload's model and tokens where nothing chooses them, and in a plan; null is as left out."""
        lacks = [key for key in CHOSEN if isinstance(data, Mapping) and data.get(key) is None]
        if lacks and (data.get("choose") is None or info.context == IN_FULL):
            faults = [InitErrorDetails(type="missing", loc=(key,), input=data) for key in lacks]
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return {key: value for key, value in data.items() if key not in lacks} if lacks else data

    @property
    def rules(self) -> FrameworkRules:
        """Framework rules that a workload is held to; none where it is freed of them, or the stack is the user's."""
        return FREE if self.framework_rules is False else rules_of(self.software.name)
