"""The choice of a workload's model by a scaling law: the law, the family that may be built, and the model chosen."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from planner.instance.base_types import Count, Frozen, Positive, Sourced
from planner.instance.catalogue_entries import Named, by_default


class PointsLaw(Sourced):
    """Scaling law by published points: compute-optimal power laws through them (Hoffmann et al. 2022, Table A3)."""

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
    """Scaling law of the loss of a model of N parameters trained on D tokens: E + A / N^alpha + B / D^beta."""

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
    """A power law of a figure that goes with a scaling law, as of the critical batch: coefficient · x^exponent."""

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
    """The family of models among which a scaling law chooses: which figure divides which, how wide for how deep."""

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
    """The choice that a workload may ask for: the best model by a scaling law that is trained by the deadline."""

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

    @property
    def loss_law(self) -> LossLaw:
        """Law of the loss of a model's choice: the scaling law that chooses its size, where that is a law of loss."""
        return self.law if isinstance(self.law, LossLaw) else self.loss


class Ideal(Frozen):
    """The ideal model by the scaling law, were every GPU used at its peak all the time: compute, size and loss."""

    flop: float = Field(description="Training compute, 6·N·D.")
    parameters: float = Field(description="That a token meets.")
    tokens: float = Field(description="Training tokens.")
    loss: float = Field(description="By the law of the loss, in nats.")


class ModelChoice(Frozen):
    """The model chosen by the scaling law: its compute, size and loss, and what keeps it from the ideal one."""

    flop: float = Field(description="6·N·D of the model: the compute that is had by the deadline.")
    flop_bound: float = Field(description="The law's model for this compute provably has no plan by the deadline.")
    parameters: float = Field(description="That a token meets, embeddings included.")
    tokens: float = Field(description="Training tokens.")
    batch_tokens: float = Field(description="Most tokens of a step, by the law of the critical batch or as given.")
    loss: float = Field(description="By the law of the loss, in nats.")
    loss_bound: float = Field(description="No loss is below it, as long as larger models take longer.")
    ideal: Ideal = Field(description="The model at full use of every GPU.")
    assumed: Ideal | None = Field(None, description="The same for workload.choose.assumed_flop_per_second.")
    compute_shares: dict[str, float] = Field(
        description="Shares of the ideal's compute: what is used, and what each part of the step costs; they sum to 1."
    )
    days_by_flop: dict[str, float] = Field(description="Days to train the law's model for each compute that was tried.")
