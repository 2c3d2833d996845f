"""Types of the workload: the model or the family to choose it from, precision and software stack."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from planner.instance.base_types import Count, Dtype, Fraction, Frozen, NonNegative, Positive, Share, Sourced
from planner.instance.catalogue_entries import Named, by_default, catalogue
from planner.instance.framework_rules import FREE, FrameworkRules, Overlap

Zero = Literal[0, 1, 2, 3]
Dispatcher = Literal["all_to_all", "deep_ep", "hybrid_ep"]
Fp8Recipe = Literal["delayed", "per_tensor", "mxfp8", "blockwise"]
Parallelism = Literal["tensor", "tensor-2d", "sequence", "context", "expert", "pipeline", "interleaved"]
RecomputeModule = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"]
CORE_ATTENTION: tuple[RecomputeModule, ...] = ("core_attn",)
RECOMPUTE_MODULES: tuple[RecomputeModule, ...] = get_args(RecomputeModule)
NEEDS: dict[Parallelism, Parallelism] = {"tensor-2d": "tensor", "sequence": "tensor", "interleaved": "pipeline"}
REPLACED = {  # keys of before, by what says the same now
    "pipeline_overlap": "sends among overlaps",
    "data_exposed": "gradients among overlaps",
    "context_overlap": "context among overlaps",
    "expert_once_per_domain": "dispatcher: deep_ep",
    "dispatch_seconds": "all_to_all_seconds, deep_ep_seconds or hybrid_ep_seconds",
}
# Of these, shares that were hidden, or of gradients shown, by the exchange.
HIDING: dict[str, Overlap] = {"pipeline_overlap": "sends", "data_exposed": "gradients", "context_overlap": "context"}
DISPATCH_SECONDS: dict[Dispatcher, str] = {kind: f"{kind}_seconds" for kind in get_args(Dispatcher)}


@cache
def rules_of(software: str) -> FrameworkRules:
    """Return the layout rules of the training framework that a stack's name begins with; none for a user's own."""
    known = catalogue("framework_rules")  # a longer beginning comes before a shorter one
    entry: Mapping[str, Any] = next((known[start] for start in known if software.startswith(start)), {})
    rules = {key: value for key, value in entry.items() if key not in ("note", "source")}
    return TypeAdapter(FrameworkRules).validate_python(rules) if rules else FREE


class PointsLaw(Sourced):
    """A compute-optimal law given by published points: power laws through them (Hoffmann et al. 2022, Table A3)."""

    kind: Literal["points"] = Field("points", description="A law by its points.")
    parameters: tuple[Positive, ...] = Field(min_length=2, description="Sizes of the published models, in parameters.")
    flop: tuple[Positive, ...] = Field(min_length=2, description="Training FLOP at which each size is the best.")
    tokens: tuple[Positive, ...] = Field(min_length=2, description="Tokens at which each size is the best.")

    def _faults(self) -> Iterator[str]:
        if not len(self.parameters) == len(self.flop) == len(self.tokens):
            yield "parameters, flop and tokens must be of one length; complete the points"
        if len(set(self.flop)) < 2:
            yield f"flop must have two different values or more (all are {self.flop[0]:g}); give points apart"


class LossLaw(Sourced):
    """Loss of a model of N parameters trained on D tokens: E + A / N^alpha + B / D^beta."""

    kind: Literal["loss"] = Field("loss", description="A law of the loss.")
    e: Positive = Field(description="Loss of an endless model on endless data, in nats.")
    a: Positive = Field(description="Weight of the model's size.")
    b: Positive = Field(description="Weight of the data's size.")
    alpha: Positive = Field(description="Exponent of the parameters.")
    beta: Positive = Field(description="Exponent of the tokens.")


def _kind_of_law(given: Mapping[str, Any] | PointsLaw | LossLaw) -> str:
    if not isinstance(given, Mapping):
        return given.kind
    of_loss = len(given.keys() & LossLaw.model_fields.keys()) > len(given.keys() & PointsLaw.model_fields.keys())
    return str(given.get("kind", "loss" if of_loss else "points"))


# By the kind that it says, or else the one whose keys it has.
Law = Annotated[
    Annotated[PointsLaw, Tag("points")] | Annotated[LossLaw, Tag("loss")],
    Discriminator(_kind_of_law),
    Named("scaling_laws"),
]


class PowerOf(Sourced):
    """A power law between two figures of a model family, such as its width: coefficient · x^exponent."""

    of: Literal["tokens", "flop", "parameters", "fixed"] = Field(description="What it grows with; fixed: nothing.")
    coefficient: Positive = Field(description="Its value where what it grows with is 1.")
    exponent: float = Field(0.0, description="Of what it grows with; 0: a constant.")


class DepthLaw(Sourced):
    """The depth of a model family by width: hidden = aspect · layers, or layers = (ln hidden - intercept) / slope."""

    kind: Literal["aspect", "log"] = Field(
        "aspect", description="aspect: hidden over layers is fixed; log: layers grow with the logarithm of hidden."
    )
    aspect: Positive | None = Field(None, description="Hidden width over layers.")
    intercept: float | None = Field(None, description="Of a log law: ln hidden at no layers.")
    slope: Positive | None = Field(None, description="Of a log law: growth of ln hidden by layer.")

    def _faults(self) -> Iterator[str]:
        if self.kind == "aspect" and self.aspect is None:
            yield "an aspect law needs aspect"
        if self.kind == "log" and (self.intercept is None or self.slope is None):
            yield "a log law needs intercept and slope"


class Family(Sourced):
    """A family of models that may be built: which figure divides which, and how wide for how deep."""

    depth: Annotated[DepthLaw, Named("depth_laws")] = by_default(
        "depth_laws", "aspect-128", "A named law of the catalogue, or one's own."
    )
    min_aspect: Positive = Field(32.0, description="Smallest hidden width over layers.")
    max_aspect: Positive = Field(2048.0, description="Largest hidden width over layers.")
    head_size: Count = Field(128, description="Width of a head.")
    heads_multiple_of: Count = Field(8, description="Divides the heads, for tensor parallelism.")
    layers_multiple_of: Count = Field(1, description="Divides the layers.")
    ffn_ratio: Positive = Field(4.0, description="FFN width over hidden.")
    gated_ffn: bool = Field(False, description="Three FFN matrices (SwiGLU) and not two.")
    kv_heads: Count | None = Field(None, description="KV heads of grouped-query attention; absent: heads.")
    vocabulary: Count = Field(256_000, description="Entries of the embedding.")
    tolerance: Annotated[float, Field(gt=0, lt=0.5)] = Field(0.01, description="Relative distance from the law's size.")
    experts: Count | None = Field(None, description="Routed experts of a layer; absent: dense.")
    experts_per_token: Count = Field(1, description="Routed experts that one token goes through.")


class Choose(Sourced):
    """The choice of a workload's model: the best by a law that the datacenter can train by the deadline."""

    law: Law = by_default("scaling_laws", "chinchilla-2", "A named law of the catalogue, or one's own.")
    critical_batch: Annotated[PowerOf, Named("batch_laws")] | None = Field(
        None, description="Law of the batch; absent: limits.max_batch_tokens."
    )
    family: Family = Field(Family(), description="The shapes that may be built.")
    loss: Annotated[LossLaw, Named("scaling_laws")] = by_default(
        "scaling_laws", "parametric-2024", "Law of the loss; not read where `law` is a law of loss."
    )
    assumed_flop_per_second: Positive | None = Field(
        None, description="Rate assumed of each GPU at all times; the law's model for it is stated too."
    )
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(0.01, description="Relative width of compute's bracket.")


class Ideal(Frozen):
    """The model that the scaling law gives where every GPU is used at its peak all the time."""

    flop: float = Field(description="Training compute, 6·N·D.")
    parameters: float = Field(description="That a token meets.")
    tokens: float = Field(description="Training tokens.")
    loss: float = Field(description="By the law of the loss, in nats.")


class ModelChoice(Frozen):
    """The model that was chosen by the scaling law, and what keeps it from the ideal one."""

    flop: float = Field(description="6·N·D of the model: the compute that is had by the deadline.")
    flop_bound: float = Field(description="The law's model for this compute provably misses the deadline.")
    parameters: float = Field(description="That a token meets, embeddings included.")
    tokens: float = Field(description="Training tokens.")
    batch_tokens: float = Field(description="Most tokens of a step, by the law of the critical batch or as given.")
    loss: float = Field(description="By the law of the loss, in nats.")
    loss_bound: float = Field(description="Loss at flop_bound; a larger model of fewer days may be below it.")
    ideal: Ideal = Field(description="The model at full use of every GPU.")
    assumed: Ideal | None = Field(None, description="The same for workload.choose.assumed_flop_per_second.")
    compute_shares: dict[str, float] = Field(
        description="Shares of the ideal's compute: what is used, and what each part of the step costs; they sum to 1."
    )
    days_by_flop: dict[str, float] = Field(description="Days to train the law's model for each compute that was tried.")


class Experts(Sourced):
    """A mixture of experts in place of the FFN: a token goes through a few routed ones and the shared."""

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
        """Key and value heads of the model's attention."""
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        """Width of one attention head of the model."""
        return self.head_size or self.hidden // self.heads

    @property
    def ffn_width(self) -> int:
        """Width of the FFN of a dense layer of the model."""
        return self.ffn or 4 * self.hidden

    @property
    def moe_layers(self) -> int:
        """Layers of the model with routed experts."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers


class Precision(Sourced):
    """Numeric precision of training: the type of the matrix products, and the bytes each role takes per element."""

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


class Software(Sourced):
    """The software stack of a workload: what the framework can run, its switches, and costs in addition to GPUs' work.

    One that does not say what it can run is the user's own, which can run all.
    """

    name: str = Field(description="By which files name it.")
    released: str | None = Field(None, description="Year and month of the release that has these switches.")
    overlaps: tuple[Overlap, ...] = Field(
        ("experts", "context", "gradients", "parameters", "sends", "tensor"),
        description="Exchanges that overlap compute: of TP under sequence parallelism (tensor_overlap of it), of "
        "experts with another micro-batch (expert_overlap), of keys and values with attention (else gathered "
        "first), gradients behind the last micro-batches, parameters behind the first, sends under interleaving.",
    )
    dispatcher: Dispatcher = Field(
        "all_to_all",
        description="Carries tokens to experts: every copy to its GPU (all_to_all), or once to each domain of GPUs "
        "and there once to each GPU with experts of the token (deep_ep, hybrid_ep).",
    )
    cuda_graphs: Literal["none", "part", "whole"] = Field(
        "none", description="What is launched as CUDA graphs: nothing, all but routed experts, or whole iterations."
    )
    fused_experts: bool = Field(
        False,
        description="One kernel takes all of a GPU's experts with their activation, and their casts where 256 divides "
        "the widths; else each has its own.",
    )
    fp8_recipe: Fp8Recipe = Field(
        "delayed",
        description="Scales of products in FP8: one a tensor, from steps before (delayed) or from its own largest "
        "element, sought first (per_tensor); a byte for 32 elements (mxfp8); four for 128 (blockwise).",
    )
    fp8_parameters: bool | None = Field(
        None,
        description="Gathers weights in FP8 where products run in 8 or 4 bits (in BF16 under mxfp8), or in BF16; "
        "absent: as wide as working_parameter_bytes.",
    )
    fused_loss: bool = Field(True, description="One kernel takes the loss; else it is a dozen passes in 32 bits.")
    # Switches that came later are left out where they are as before, so that an instance without them keeps its hash.
    fused_gradient_sums: bool = Field(
        True,
        exclude_if=lambda fused: fused,
        description="Products add weight gradients to other micro-batches'; else a kernel of its own does.",
    )
    activation_offload: Fraction = Field(
        0.0, description="Share of stored activations that wait in the host's memory between the passes."
    )
    recompute_modules: tuple[RecomputeModule, ...] = Field(
        CORE_ATTENTION,
        exclude_if=lambda modules: modules == CORE_ATTENTION,
        min_length=1,
        description="What selective recompute runs again of a layer, in place of keeping its tensors, by the names of "
        "Megatron-Core: scores that are not fused, norms in front of experts and of latent attention, the latter's "
        "up-projections, a dense FFN, all of a mixture of experts, its experts' activation, or its shared experts.",
    )
    fp8_attention: bool = Field(
        False,
        exclude_if=lambda narrow: not narrow,
        description="Flash attention multiplies in FP8 where products run in 8 or 4 bits, and keeps Q, K, V so.",
    )
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
    zero_stages: tuple[Zero, ...] = Field(get_args(Zero), min_length=1, description="ZeRO stages that it has.")
    pipelined_zero_stages: tuple[Zero, ...] | None = Field(
        None, description="Those of them that it has under pipeline parallelism too; absent: all."
    )
    parallelism: tuple[Parallelism, ...] = Field(
        get_args(Parallelism), description="Ways to divide a step, other than replicas, that it has; absent: all."
    )
    tensor_overlap: Fraction = Field(0.0, description="Share of the TP exchange that products hide where it overlaps.")
    pipeline_start_seconds: NonNegative = Field(0.0, description="CPU overhead of one pipeline exchange.")
    pipeline_scatter: bool = Field(True, description="Each TP rank sends its 1/t of a pipeline exchange.")
    data_efficiency: Share = Field(1.0, description="Share of the rate of collectives that the gradient exchange has.")
    sharding_exposed: Fraction = Field(0.0, description="Share of hidden ZeRO traffic that slows a micro-batch.")
    expert_overlap: Fraction = Field(
        0.0, description="Share of the experts' exchange that is hidden where it overlaps."
    )
    expert_overlap_layouts: Literal["any", "interleaved"] = Field(
        "any",
        exclude_if=lambda layouts: layouts == "any",
        description="Layouts in which the experts' exchange overlaps: any, or those that recompute no layer and have "
        "one stage or interleaved ones (Megatron-Core).",
    )
    all_to_all_seconds: NonNegative = Field(
        0.0, description="Routing, and the start of a dispatch or a combination of tokens, without its traffic."
    )
    deep_ep_seconds: NonNegative = Field(0.0, description="The same of the dispatcher deep_ep.")
    hybrid_ep_seconds: NonNegative = Field(0.0, description="The same of the dispatcher hybrid_ep.")
    expert_seconds: NonNegative = Field(0.0, description="Start of one expert's product among the grouped.")
    expert_cast_seconds: NonNegative = Field(0.0, description="Start of the casts of one expert's input.")
    overlap_launch_seconds: NonNegative = Field(
        0.0, description="CPU time of a launch where experts overlap: the host takes two micro-batches by turns."
    )
    expert_efficiency: Share = Field(1.0, description="Share of the GEMM efficiency that experts' products reach.")
    selective_gemm_share: Fraction = Field(0.0, description="Of a layer's products: repeated by selective recompute.")
    copies_split_sequences: bool = Field(
        False,
        description="TP exchanges under sequence parallelism copy the tensor, divided along its second dimension.",
    )
    recompute_stops_early: bool = Field(
        False, description="Full recompute of a dense layer stops before the FFN's last product, which no pass reads."
    )
    logit_memory_bytes: Positive | None = Field(
        None,
        description="Memory of the loss for one logit, at its peak; absent: 2 of a fused loss, as Transformer Engine's "
        "takes, else 4. Megatron-Core's own fused loss takes 10.",
    )
    weight_gradient_copy_bytes: NonNegative = Field(
        0.0, description="Stand-in gradients: bytes for each weight of one layer, and of the head at its peak."
    )
    keeps_cast_inputs: bool = Field(
        False, description="Keeps the inputs of products for their backward pass in the products' type, FP8 or FP4."
    )
    buffer_bytes_per_parameter: NonNegative = Field(0.0, description="Copies and buckets that no sharding divides.")
    sharded_buffer_bytes_per_parameter: NonNegative = Field(0.0, description="Copies and buckets that ZeRO divides.")

    @model_validator(mode="before")
    @classmethod
    def _read_replaced(cls, data: Any) -> Any:
        """Read a software stack's old keys as the switches that replaced them, and note shares these cannot say."""
        old = sorted(REPLACED.keys() & data.keys()) if isinstance(data, dict) else []
        if not old:
            return data
        new = {key: value for key, value in data.items() if key not in REPLACED}
        for key in old:
            if {"overlaps", "dispatcher", *DISPATCH_SECONDS.values()} & new.keys():
                raise ValueError(f"has {key}, which is no key any more; give {REPLACED[key]}")
            if not isinstance(data[key], (int, float)) or not 0 <= data[key] <= 1:
                problem = f"{key} must be from 0 to 1 (is {data[key]!r}), and is no key any more"
                raise ValueError(f"{problem}; give {REPLACED[key]}")
        if shares := {key: data[key] for key in HIDING if key in old}:
            exposed = {HIDING[key] for key, share in shares.items() if share == (key == "data_exposed")}
            new["overlaps"] = tuple(name for name in cls.model_fields["overlaps"].default if name not in exposed)
            if partly := [f"{key} {share:g}" for key, share in shares.items() if 0 < share < 1]:
                noted = f"not modelled: {', '.join(partly)} (overlaps follow the schedule)"
                new["note"] = f"{new['note']}; {noted}" if new.get("note") else noted
        if "expert_once_per_domain" in old:
            new["dispatcher"] = "deep_ep" if data["expert_once_per_domain"] else "all_to_all"
        if "dispatch_seconds" in old:
            new[DISPATCH_SECONDS[new.get("dispatcher", "all_to_all")]] = data["dispatch_seconds"]
        return new

    def _faults(self) -> Iterator[str]:
        more = sorted(set(self.pipelined_zero_stages or ()) - set(self.zero_stages))
        if more:
            yield f"pipelined_zero_stages must be among zero_stages ({more[0]} is not); add it there"
        for part, whole in NEEDS.items():
            if part in self.parallelism and whole not in self.parallelism:
                yield f'parallelism has "{part}" and not "{whole}", which it needs; add that'

    @property
    def dispatch_seconds(self) -> float:
        """Seconds of routing and starting one dispatch or combination of an MoE layer, by the software's dispatcher."""
        return float(getattr(self, DISPATCH_SECONDS[self.dispatcher]))

    @property
    def host_seconds(self) -> float:
        """Seconds of a micro-batch that the host keeps GPUs waiting; none with whole iterations as CUDA graphs."""
        return 0.0 if self.cuda_graphs == "whole" else self.microbatch_seconds

    def zero_stages_under(self, stages: int) -> list[Zero]:
        """List the ZeRO stages that the framework supports for a pipeline of `stages` stages, ascending."""
        under = self.pipelined_zero_stages
        return sorted(self.zero_stages if stages == 1 or under is None else under)


SWITCHES = (
    *("overlaps", "dispatcher", "cuda_graphs", "fused_experts", "fp8_recipe", "fp8_parameters", "fused_loss"),
    *("fused_gradient_sums", "activation_offload", "recompute_modules", "fp8_attention"),
)
"""Keys of a software stack that turn mechanisms on and off; its other figures are what these cost."""


class Workload(Sourced):
    """The workload of an instance: a model to train on a number of tokens."""

    model: Annotated[Model, Named("models")] = Field(description="The architecture, inline or by catalogue name.")
    tokens: Positive = Field(description="Training tokens.")
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
    choose: Choose | None = Field(None, description="Choose model and tokens, which may then be left out.")
    framework_rules: bool | None = Field(
        None,
        exclude_if=lambda rules: rules is None,  # so that an instance without it keeps its hash
        description="Plan only what the named framework runs (docs/layout.md lists its rules); false: any layout, as "
        "a stack of one's own may run it. Absent: true.",
    )

    @property
    def rules(self) -> FrameworkRules:
        """Layout rules of the workload's framework; none where it is freed of them, or the stack is the user's."""
        return FREE if self.framework_rules is False else rules_of(self.software.name)
