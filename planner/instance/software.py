"""The software stack of a workload: what its training framework can run, its switches and its costs."""

from collections.abc import Iterator
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from planner.instance.base_types import Count, Fraction, NonNegative, Positive, Share, Sourced
from planner.instance.framework_rules import Overlap

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


class Software(Sourced):
    """The software stack that a user gives of a workload: what its framework can run, its switches and its costs.

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
        """Seconds that a software stack's dispatcher takes for one dispatch or combination of an MoE layer."""
        return float(getattr(self, DISPATCH_SECONDS[self.dispatcher]))

    @property
    def host_seconds(self) -> float:
        """Seconds of a micro-batch that an instance's software has GPUs wait for the host; 0 with whole CUDA graphs."""
        return 0.0 if self.cuda_graphs == "whole" else self.microbatch_seconds

    def zero_stages_under(self, stages: int) -> list[Zero]:
        """List the ZeRO stages that a software stack supports for a pipeline of `stages` stages, ascending."""
        under = self.pipelined_zero_stages
        return sorted(self.zero_stages if stages == 1 or under is None else under)


SWITCHES = (
    *("overlaps", "dispatcher", "cuda_graphs", "fused_experts", "fp8_recipe", "fp8_parameters", "fused_loss"),
    *("fused_gradient_sums", "activation_offload", "recompute_modules", "fp8_attention"),
)
"""Keys of a software stack that turn mechanisms on and off; its other figures are what these cost."""
