"""What is trained: the model, its precision, the software stack."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, GetJsonSchemaHandler, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from planner.instance.base import Count, Dtype, Fraction, NonNegative, Positive, Share, Sourced
from planner.instance.catalogue import catalogue
from planner.instance.model_family import Choose


class Experts(Sourced):
    """A mixture of experts in place of the FFN: a token goes through a few routed ones and the shared."""

    count: Count = Field(description="Routed experts of one layer.")
    per_token: Count = Field(description="Routed experts that one token goes through (top-k).")
    ffn: Count = Field(description="FFN width of one routed expert.")
    shared_ffn: Annotated[int, Field(ge=0)] = Field(0, description="FFN width of the shared experts together; 0: none.")
    dense_layers: Annotated[int, Field(ge=0)] = Field(0, description="First layers that keep the dense FFN.")
    groups: Count = Field(1, description="Groups of experts next to each other, of which a token goes to few.")
    groups_per_token: Count = Field(1, description="Groups that the experts of one token belong to at most.")

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        """Refuse a token that goes through more experts than there are."""
        if self.per_token > self.count:
            raise ValueError(f"per_token must be at most count ({self.per_token} > {self.count}); change either")
        if self.count % self.groups or self.groups_per_token > self.groups:
            raise ValueError(
                f"groups must divide count and be at least groups_per_token ({self.groups} of {self.count} experts, "
                f"{self.groups_per_token} for a token); change either"
            )
        return self


class LatentAttention(Sourced):
    """Multi-head latent attention with low-rank queries, keys and values (DeepSeek-V3, arXiv 2412.19437, 2.1.1)."""

    q_rank: Count | None = Field(
        None, description="Width of a token's compressed queries; absent: not compressed (DeepSeek-V2-Lite)."
    )
    kv_rank: Count = Field(description="Width of a token's compressed keys and values.")
    head_nope: Count = Field(description="Width of a head's query and key without position.")
    head_rope: Count = Field(description="Width of a head's query and shared key with rotary position.")
    head_value: Count = Field(description="Width of a head's value.")


class Model(Sourced):
    """A decoder-only Transformer: dense, or with routed experts; attention is full, or in some layers windowed."""

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

    @model_validator(mode="after")
    def _buildable(self) -> Self:
        """Refuse head counts that leave no whole head size."""
        if self.latent_attention is not None:
            if self.head_size is not None or self.kv_heads is not None:
                raise ValueError("latent_attention sets the heads' widths; remove head_size and kv_heads")
            return self
        if self.head_size is None and self.hidden % self.heads:
            divisors = (a for a in range(1, min(self.hidden, 4 * self.heads, 100_000) + 1) if self.hidden % a == 0)
            near = min(divisors, key=lambda a: (abs(a - self.heads), a))
            raise ValueError(f"heads must divide hidden ({self.hidden} / {self.heads}); give {near}, or head_size")
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads must divide heads ({self.heads} / {self.kv_heads} is not whole)")
        return self

    @model_validator(mode="after")
    def _layers_by_kind(self) -> Self:
        """Refuse counts of layers by kind that the layers do not hold."""
        dense = self.experts.dense_layers if self.experts else 0
        if self.experts is not None and dense >= self.layers:
            raise ValueError(f"experts.dense_layers must be less than layers ({dense} of {self.layers}); lower it")
        if self.window_layers > self.layers:
            raise ValueError(f"window_layers must be at most layers ({self.window_layers} > {self.layers}); lower it")
        if (self.window is None) != (self.window_layers == 0):
            raise ValueError(f"give window and window_layers, or neither (are {self.window} and {self.window_layers})")
        return self

    @property
    def kv(self) -> int:
        """KV heads."""
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.head_size or self.hidden // self.heads

    @property
    def ffn_width(self) -> int:
        """Width of the FFN of a dense layer."""
        return self.ffn or 4 * self.hidden

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers


class Precision(Sourced):
    """The type of the matrix products, and the bytes each role takes per element."""

    compute: Dtype = Field(description="Type in which the matrix products run; picks the peak rate.")
    parameter_bytes: Positive = Field(description="Per parameter, master and working copies.")
    working_parameter_bytes: Positive = Field(description="Per parameter, the copy that products read.")
    gradient_bytes: Positive = Field(description="Per parameter.")
    optimizer_bytes: NonNegative = Field(description="Per parameter, all moments.")
    activation_bytes: Positive = Field(description="Per stored activation element.")
    collective_bytes: Positive = Field(description="Per activation element that tensor and pipeline parallelism send.")


DEFAULT_PRECISION = "bf16"  # of the catalogue


def _default_precision() -> Precision:
    """Return the catalogue's precision that holds where none is given."""
    return Precision.model_validate(catalogue("precisions")[DEFAULT_PRECISION])


class _OrName:
    """Lets the JSON Schema take the name of a catalogue's entry, which is put in its place before the types are."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "string"}]}


Zero = Literal[0, 1, 2, 3]
Parallelism = Literal["tensor", "tensor-2d", "sequence", "context", "expert", "pipeline", "interleaved"]
NEEDS: dict[Parallelism, Parallelism] = {"tensor-2d": "tensor", "sequence": "tensor", "interleaved": "pipeline"}
ZERO_STAGES: tuple[Zero, ...] = get_args(Zero)
PARALLELISM: tuple[Parallelism, ...] = get_args(Parallelism)


class Software(Sourced):
    """A training framework: what it can run, which overlaps it has, and what it costs beside the GPUs' work.

    One that does not say what it can run is the user's own, which can run all.
    """

    name: str = Field(description="By which files name it.")
    flash_attention: bool = Field(True, description="One kernel keeps no scores and skips the causal half.")
    attention_share: Share = Field(1.0, description="Share of the accelerator's attention efficiency.")
    score_efficiency: Share = Field(0.5, description="Share of the GEMM efficiency that unfused scores reach.")
    fused_softmax_multiple: Count | None = Field(
        None,
        description="Of which heads of a GPU times sequences must be for one kernel to scale, mask and take the "
        "softmax of unfused scores; absent: any.",
    )
    elementwise_traffic: Positive = Field(1.0, description="HBM traffic of element-wise work over fused kernels'.")
    quantise_traffic: NonNegative = Field(
        1.0, description="HBM traffic of casts to FP8 and FP4 over one read and two writes (row-wise, column-wise)."
    )
    loss_bytes_per_logit: NonNegative = Field(8.0, description="HBM traffic of the loss for one logit, both passes.")
    launch_seconds: NonNegative = Field(0.0, description="CPU time of a launch; hidden while the GPU has work.")
    collective_seconds: NonNegative = Field(0.0, description="Time to start one collective on the critical path.")
    microbatch_seconds: NonNegative = Field(0.0, description="Exposed CPU overhead of a micro-batch.")
    step_seconds: NonNegative = Field(0.0, description="Exposed CPU overhead of a step: data, logging.")
    schedules: tuple[Literal["1f1b", "zb-h1"], ...] = Field(
        ("1f1b",), min_length=1, description="Of a pipeline; 1f1b: interleaved too, where parallelism has it."
    )
    zero_stages: tuple[Zero, ...] = Field(ZERO_STAGES, min_length=1, description="ZeRO stages that it has.")
    pipelined_zero_stages: tuple[Zero, ...] | None = Field(
        None, description="Those of them that it has under pipeline parallelism too; absent: all."
    )
    parallelism: tuple[Parallelism, ...] = Field(
        PARALLELISM, description="Ways to divide a step, beside replicas, that it has; absent: all."
    )
    tensor_overlap: Fraction = Field(0.0, description="Share of the TP exchange hidden under sequence parallelism.")
    pipeline_overlap: Fraction = Field(1.0, description="Share of the pipeline exchange that may run beside compute.")
    pipeline_start_seconds: NonNegative = Field(0.0, description="CPU overhead of one pipeline exchange.")
    pipeline_scatter: bool = Field(True, description="Each TP rank sends its 1/t of a pipeline exchange.")
    data_exposed: Fraction = Field(0.0, description="Least exposed share of the gradient exchange.")
    data_efficiency: Share = Field(1.0, description="Share of the rate of collectives that the gradient exchange has.")
    sharding_exposed: Fraction = Field(0.0, description="Share of hidden ZeRO traffic that slows a micro-batch.")
    expert_overlap: Fraction = Field(0.0, description="Share of the experts' all-to-all hidden behind products.")
    expert_once_per_domain: bool = Field(False, description="A token crosses once for all experts of a domain.")
    dispatch_seconds: NonNegative = Field(
        0.0, description="Routing, and the start of a dispatch or a combination of tokens, beside its traffic."
    )
    expert_seconds: NonNegative = Field(0.0, description="Start of one expert's product or cast among the grouped.")
    expert_efficiency: Share = Field(1.0, description="Share of the GEMM efficiency that experts' products reach.")
    context_overlap: Fraction = Field(
        1.0,
        description="Share of the exchange of keys and values that may run beside attention (ring; 0: gathered first).",
    )
    selective_gemm_share: Fraction = Field(0.0, description="Of a layer's products: repeated by selective recompute.")
    logit_memory_bytes: Positive = Field(4.0, description="Memory of the loss for one logit, at its peak.")
    weight_gradient_copy_bytes: NonNegative = Field(
        0.0, description="Stand-in gradients: bytes for each weight of one layer, and of the head at its peak."
    )
    keeps_cast_inputs: bool = Field(
        False, description="Keeps the inputs of products for their backward pass in the products' type, FP8 or FP4."
    )
    buffer_bytes_per_parameter: NonNegative = Field(0.0, description="Copies and buckets that no sharding divides.")
    sharded_buffer_bytes_per_parameter: NonNegative = Field(0.0, description="Copies and buckets that ZeRO divides.")

    @model_validator(mode="after")
    def _under_pipelines(self) -> Self:
        """Refuse ZeRO stages under pipelines that there are not without, and interleaving without pipelines."""
        more = sorted(set(self.pipelined_zero_stages or ()) - set(self.zero_stages))
        if more:
            raise ValueError(f"pipelined_zero_stages must be among zero_stages ({more[0]} is not); add it there")
        for part, whole in NEEDS.items():
            if part in self.parallelism and whole not in self.parallelism:
                raise ValueError(f'parallelism has "{part}" and not "{whole}", which it needs; add that')
        return self

    def has(self, parallelism: Parallelism) -> bool:
        """Return whether it has a way to divide a step."""
        return parallelism in self.parallelism

    def zero_stages_under(self, stages: int) -> list[Zero]:
        """List the ZeRO stages that it has for a pipeline of so many stages, ascending."""
        under = self.pipelined_zero_stages
        return sorted(self.zero_stages if stages == 1 or under is None else under)


RecomputeRule = Literal["free", "chunks alike", "all or none"]
# By the first words of a framework's name, the longer before the shorter.
RECOMPUTE_RULES: dict[str, RecomputeRule] = {
    "megatron-deepspeed": "all or none",  # DeepSpeed's activation_checkpoint_interval
    "megatron": "chunks alike",  # recompute-num-layers
    "nemo": "chunks alike",
    "torchtitan": "all or none",  # activation_checkpoint.mode
    "llm-foundry": "all or none",
}


class Workload(Sourced):
    """What to train: a model on a number of tokens."""

    model: Model | str = Field(description="The architecture, inline or by catalogue name.")
    tokens: Positive = Field(description="Training tokens.")
    sequence_length: Count = Field(description="Tokens per sequence.")
    precision: Annotated[Precision, _OrName()] = Field(
        default_factory=_default_precision, description="Inline or by catalogue name (bf16, fp8, ...); absent: bf16."
    )
    software: Software | str = Field("megatron-core", description="The framework, inline or by catalogue name.")
    expert_imbalance: Annotated[float, Field(ge=1)] = Field(
        1.0,
        description="Tokens of the busiest expert-parallel rank over the mean; 1: routing is forced to be even, as in "
        "published steps. Natural routing without tuning took 1.3 to 2.2 times as long (docs/accuracy.md).",
    )
    availability: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Share of wall time that trains.")
    choose: Choose | None = Field(None, description="Choose model and tokens, which may then be left out.")
    framework_rules: bool | None = Field(
        None,
        description="Plan only what the named framework runs: all chunks recompute as many layers, or all or none.",
    )

    @model_serializer(mode="wrap")
    def _without_unset_rules(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out rules that are not asked for, so that the hash of an instance without them stays."""
        data: dict[str, Any] = serialise(self)
        if data.get("framework_rules") is None:
            data.pop("framework_rules", None)
        return data

    @property
    def recompute_rule(self) -> RecomputeRule:
        """How the layers that stages recompute are bound together."""
        name = self.software.name if isinstance(self.software, Software) else self.software
        rules = (rule for start, rule in RECOMPUTE_RULES.items() if name.startswith(start))
        return next(rules, "free") if self.framework_rules else "free"
