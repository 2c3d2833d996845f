"""Choose the model that laws give for a compute: its shape (layers, heads, widths), its tokens and its batch.

CP-SAT decides the layers and the width, in units of the heads that must divide: parameters within the tolerance of the
target, hidden over layers within the bounds, and near the law's depth for the width, then near the target.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.workload import Choose, DepthLaw, Experts, Family, LossLaw, Model, PointsLaw, PowerOf
from planner.physics.training import transformer
from planner.solvers.outcome import Stop, UnansweredError
from planner.solvers.signals import uninterrupted

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

FFN_MULTIPLE = 128  # of the FFN width: whole tiles of the products
SCALE = 1000  # depths and aspects are whole thousandths in CP-SAT
MAX_LAYERS = 10**5  # far above any model, so that products stay within 64 bits


def model_of(family: Family, layers: int, units: int) -> Model:
    """Return the family's model of `layers` layers whose heads are `units` times the family's multiple."""
    heads = units * family.heads_multiple_of
    hidden = heads * family.head_size
    ffn = math.ceil(family.ffn_ratio * hidden / FFN_MULTIPLE) * FFN_MULTIPLE
    experts = Experts(count=family.experts, per_token=family.experts_per_token, ffn=ffn) if family.experts else None
    return Model(
        name=f"{layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        head_size=family.head_size,
        kv_heads=min(family.kv_heads, heads) if family.kv_heads else None,
        ffn=None if ffn == 4 * hidden and not family.gated_ffn else ffn,
        gated_ffn=family.gated_ffn,
        vocabulary=family.vocabulary,
        experts=experts,
    )


def size(model: Model) -> int:
    """Return the parameters that the laws are about: those that a token meets, embeddings included."""
    return transformer.active_parameters(model, embedding=True)


def _at(model: "cp_model.CpModel", units: "cp_model.IntVar", values: list[int]) -> "cp_model.IntVar":
    value = model.new_int_var(min(values), max(values), "")
    model.add_element(units - 1, values, value)
    return value


def _near(family: Family, widths: list[tuple[int, int, int, int]], fits: Callable[[int, int], bool]) -> list[int]:
    """Return the units of width at which a shape may be as near to the depth law as the nearest that the search met."""
    # By width, `widths` holds the fewest and most layers for the target's parameters, the law's layers in thousandths,
    # and their least distance from it. `fits` says whether a shape of some units and layers has the parameters.
    width, multiple = family.heads_multiple_of * family.head_size, family.layers_multiple_of
    found: list[tuple[int, int]] = []
    nearest = math.inf
    for units, (first, last, law, apart) in enumerate(widths, start=1):
        thousandths = SCALE * width * units
        fewest = max(first, -(-thousandths // max(1, math.floor(SCALE * family.max_aspect))), 1)
        most = min(last, thousandths // max(1, math.ceil(SCALE * family.min_aspect)))
        low, high = -(-fewest // multiple), most // multiple
        if low > high:
            continue
        found.append((units, apart))
        layers = multiple * min(max(round(law / SCALE / multiple), low), high)
        if fits(units, layers):
            nearest = min(nearest, abs(SCALE * layers - law))
    return [units for units, apart in found if apart <= nearest]


def choose_shape(family: Family, depth: DepthLaw, target: float) -> Model | None:
    """Return the shape of the family nearest to the depth law with the target's parameters, if any can be built."""
    with uninterrupted():
        from ortools.sat.python import cp_model

        from planner.solvers import cpsat

    width, multiple = family.heads_multiple_of * family.head_size, family.layers_multiple_of
    low, high = target * (1 - family.tolerance), target * (1 + family.tolerance)
    widest = 1  # or wider: with as few layers as it may have, it has more parameters than the target
    while size(model_of(family, max(1, math.floor(widest * width / family.max_aspect)), widest)) <= high:
        widest += max(1, widest // 8)  # grows by an eighth, so that wide families end soon
    one, two = ([size(model_of(family, layers, units)) for units in range(1, widest + 1)] for layers in (1, 2))
    layer = [more - less for less, more in zip(one, two, strict=True)]
    rest = [2 * less - more for less, more in zip(one, two, strict=True)]
    deepest = max(1, min(MAX_LAYERS, math.floor(high / layer[0]) + 1))
    law = [round(SCALE * transformer.layers_of(depth, width * units)) for units in range(1, widest + 1)]
    # Implied, for a short proof: the layers that the target leaves each width, and how far they are from the law.
    first = [max(0, min(deepest, math.ceil((low - base) / each))) for each, base in zip(layer, rest, strict=True)]
    last = [max(0, min(deepest, math.floor((high - base) / each))) for each, base in zip(layer, rest, strict=True)]
    apart = [max(0, SCALE * few - own, own - SCALE * most) for few, most, own in zip(first, last, law, strict=True)]

    def fits(units: int, layers: int) -> bool:
        return low <= layer[units - 1] * layers + rest[units - 1] <= high

    near = _near(family, list(zip(first, last, law, apart, strict=True)), fits)
    if not near:
        return None
    model = cp_model.CpModel()
    units = model.new_int_var_from_domain(cp_model.Domain.from_values(near), "units")
    layers = multiple * model.new_int_var(1, max(1, deepest // multiple), "steps")
    body = model.new_int_var(0, math.ceil(high), "body")
    model.add_multiplication_equality(body, [layers, _at(model, units, layer)])
    parameters = body + _at(model, units, rest)
    model.add(parameters >= math.ceil(low))
    model.add(parameters <= math.floor(high))
    model.add(SCALE * width * units >= math.ceil(SCALE * family.min_aspect) * layers)
    model.add(SCALE * width * units <= math.floor(SCALE * family.max_aspect) * layers)
    away = model.new_int_var(0, SCALE * deepest + max(law), "away")
    model.add_abs_equality(away, SCALE * layers - _at(model, units, law))
    model.add(layers >= _at(model, units, first))
    model.add(layers <= _at(model, units, last))
    model.add(away >= _at(model, units, apart))
    missed = model.new_int_var(0, math.ceil(high - low), "missed")
    model.add_abs_equality(missed, parameters - round(target))
    share = model.new_int_var(0, SCALE, "share")  # thousandths of the tolerance by which the target is missed
    model.add(share * math.ceil(target * family.tolerance / SCALE) >= missed)
    model.minimize(SCALE * away + share)
    out = cpsat.run(model)
    if out.infeasible:
        return None
    if out.stop is not Stop.PROVED or out.solution is None:
        raise UnansweredError(f"no shape for {target:g} parameters was proven ({out.detail})")
    return model_of(family, out.solution.of(layers), out.solution.of(units))


START = 24, 31  # powers of ten of FLOP among which a model to start from is sought


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCandidate:
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


def model_for(choose: Choose, flop: float) -> ModelCandidate:
    """Return the model of the family that the law gives for a compute; InputError: no shape is near its parameters."""
    depth, batch = choose.family.depth, choose.critical_batch
    if not isinstance(depth, DepthLaw) or isinstance(batch, str):
        raise TypeError("the instance still has the name of a law")
    target, family = transformer.best_parameters(law_of(choose), flop), choose.family
    model = choose_shape(family, depth, target)
    if model is None:
        raise InputError(
            f"workload.choose.family: no shape has {target:.4g} parameters within {family.tolerance:.2%} with heads a "
            f"multiple of {family.heads_multiple_of} of {family.head_size} and hidden/layers from "
            f"{family.min_aspect:g} to {family.max_aspect:g}; widen tolerance or the aspect, or let less divide"
        )
    parameters = float(size(model))
    tokens = transformer.tokens_for(parameters, flop)
    critical = None
    if isinstance(batch, PowerOf):
        critical = transformer.power(batch, tokens=tokens, flop=flop, parameters=parameters)
    return ModelCandidate(flop=flop, model=model, parameters=parameters, tokens=tokens, batch_tokens=critical)


def any_model(choose: Choose) -> ModelCandidate:
    """Return a model of the family to start from: of the smallest power of ten of compute that has one."""
    for exponent in range(*START):
        try:
            return model_for(choose, 10.0**exponent)
        except InputError as error:
            refused = error
    raise refused


def instance_with(instance: Instance, candidate: ModelCandidate) -> Instance:
    """Return the instance that trains a candidate; the user's own limit on the batch stays."""
    limits = instance.limits
    given = [limit for limit in (limits.max_batch_tokens, candidate.batch_tokens) if limit is not None]
    work = instance.workload.model_copy(update={"model": candidate.model, "tokens": candidate.tokens})
    batch = max(min(given), float(instance.workload.sequence_length)) if given else None
    limits = limits.model_copy(update={"max_batch_tokens": batch})
    return instance.model_copy(update={"workload": work, "limits": limits})
