"""The model that laws give for a compute: its shape, its tokens and its batch."""

from dataclasses import dataclass

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.model_family import Choose, DepthLaw, LossLaw, PointsLaw, PowerOf
from planner.instance.workload import Model
from planner.models import transformer_shape
from planner.physics.training import scaling_laws

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
        raise TypeError("the instance still holds the name of a law")
    return choose.law


def loss_law_of(choose: Choose) -> LossLaw:
    """Return the law that tells the loss: the choice's own where it is one."""
    law = choose.law if isinstance(choose.law, LossLaw) else choose.loss
    if isinstance(law, str):
        raise TypeError("the instance still holds the name of a law")
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
        raise TypeError("the instance still holds the name of a law")
    target = scaling_laws.best_parameters(law_of(choose), flop)
    found = transformer_shape.choose(choose.family, depth, target)
    if found is None:
        f = choose.family
        raise InputError(
            f"workload.choose.family: no shape has {target:.4g} parameters within {f.tolerance:.2%} with heads a multiple of {f.heads_multiple_of} "
            f"of {f.head_size} and hidden/layers from {f.min_aspect:g} to {f.max_aspect:g}; widen tolerance or the aspect, or let less divide"
        )
    parameters = float(transformer_shape.size(found))
    tokens = scaling_laws.tokens_for(parameters, flop)
    most = (
        scaling_laws.power(batch, tokens=tokens, flop=flop, parameters=parameters)
        if isinstance(batch, PowerOf)
        else None
    )
    return Candidate(flop=flop, model=found, parameters=parameters, tokens=tokens, batch_tokens=most)


def any_model(choose: Choose) -> Candidate:
    """Return a model of the family to start from: that of the least power of ten of compute that has one."""
    for exponent in range(*START):
        try:
            return model_for(choose, 10.0**exponent)
        except InputError as error:
            refused = error
    raise refused


def instance_with(instance: Instance, candidate: Candidate) -> Instance:
    """Return the instance that trains a candidate; a batch that the user limits besides stays limited."""
    limits = instance.limits
    given = [b for b in (limits.max_batch_tokens, candidate.batch_tokens) if b is not None]
    work = instance.workload.model_copy(update={"model": candidate.model, "tokens": candidate.tokens})
    least = max(min(given), float(instance.workload.sequence_length)) if given else None
    return instance.model_copy(
        update={"workload": work, "limits": limits.model_copy(update={"max_batch_tokens": least})}
    )
