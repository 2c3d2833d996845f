"""Choose the model that laws give for a compute: its shape, its tokens and its batch."""

from dataclasses import dataclass

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.model_family import Choose, DepthLaw, LossLaw, PointsLaw, PowerOf
from planner.instance.workload import Model
from planner.physics.training import scaling_laws
from planner.solvers.signals import uninterrupted

START = 24, 31  # powers of ten of FLOP among which a model to start from is sought


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model with its training: 6·N·D is the compute."""

    flop: float
    model: Model
    parameters: float
    tokens: float
    batch_tokens: float | None  # by the law of the critical batch; None: as the instance gives it


def law_of(choose: Choose) -> PointsLaw | LossLaw:
    """Return the law by which the size is chosen, its name resolved."""
    if isinstance(choose.law, str):
        raise TypeError("the instance still has the name of a law")
    return choose.law


def loss_law_of(choose: Choose) -> LossLaw:
    """Return the law of the loss: the one of the size where that is a law of loss."""
    law = choose.law if isinstance(choose.law, LossLaw) else choose.loss
    if isinstance(law, str):
        raise TypeError("the instance still has the name of a law")
    return law


def model_for(choose: Choose, flop: float) -> Candidate:
    """Return the model of the family that the law gives for a compute.

    Raises
    ------
    InputError
        No shape of the family has so many parameters.
    """
    depth, batch = choose.family.depth, choose.critical_batch
    if not isinstance(depth, DepthLaw) or isinstance(batch, str):
        raise TypeError("the instance still has the name of a law")
    target, f = scaling_laws.best_parameters(law_of(choose), flop), choose.family
    with uninterrupted():
        from planner.models import transformer_shape  # loads CP-SAT
    model = transformer_shape.choose(f, depth, target)
    if model is None:
        raise InputError(
            f"workload.choose.family: no shape has {target:.4g} parameters within {f.tolerance:.2%} with heads a "
            f"multiple of {f.heads_multiple_of} of {f.head_size} and hidden/layers from {f.min_aspect:g} to "
            f"{f.max_aspect:g}; widen tolerance or the aspect, or let less divide"
        )
    parameters = float(transformer_shape.size(model))
    tokens = scaling_laws.tokens_for(parameters, flop)
    critical = None
    if isinstance(batch, PowerOf):
        critical = scaling_laws.power(batch, tokens=tokens, flop=flop, parameters=parameters)
    return Candidate(flop=flop, model=model, parameters=parameters, tokens=tokens, batch_tokens=critical)


def any_model(choose: Choose) -> Candidate:
    """Return a model of the family to start from: of the smallest power of ten of compute that has one."""
    for exponent in range(*START):
        try:
            return model_for(choose, 10.0**exponent)
        except InputError as error:
            refused = error
    raise refused


def instance_with(instance: Instance, candidate: Candidate) -> Instance:
    """Return the instance that trains a candidate; the user's own limit on the batch stays."""
    limits = instance.limits
    given = [b for b in (limits.max_batch_tokens, candidate.batch_tokens) if b is not None]
    work = instance.workload.model_copy(update={"model": candidate.model, "tokens": candidate.tokens})
    batch = max(min(given), float(instance.workload.sequence_length)) if given else None
    limits = limits.model_copy(update={"max_batch_tokens": batch})
    return instance.model_copy(update={"workload": work, "limits": limits})
