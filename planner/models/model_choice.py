"""Choose the model that laws give for a compute: its shape (layers, heads, widths), its tokens and its batch.

Layers and width, in units of the heads that must divide, have parameters within the tolerance of the target and hidden
over layers within the bounds, and are as near as any to the law's depth for the width, then to the target.
"""

import math
from dataclasses import dataclass
from itertools import count

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.scaling_law import Choose, DepthLaw, Family
from planner.instance.workload import Experts, Model
from planner.physics.training import scaling_laws, transformer

FFN_MULTIPLE = 128  # of the FFN width: whole tiles of the products
SCALE = 1000  # distances from a depth law are in whole thousandths of a layer
MAX_LAYERS, MAX_PARAMETERS = 10**5, 1e16  # far above any model
START = 24, 31  # powers of ten of FLOP among which a model to start from is sought


def model_of(family: Family, layers: int, units: int) -> Model:
    """Return the model to choose of a family with `layers` layers and heads `units` times the family's multiple."""
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
    """Return the parameters by which scaling laws choose a model: those that a token meets, embeddings included."""
    return transformer.active_parameters(model, embedding=True)


def choose_shape(family: Family, depth: DepthLaw, target: float) -> Model | None:
    """Return the family's model shape nearest to the depth law at the target's parameters, if any can be built."""
    # Parameters grow with the layers of a width, so that the layers with the target's are a range, and the nearest to
    # the law among them are its ends or the law's own neighbours. Of shapes as near the one nearest to the target.
    width, multiple = family.heads_multiple_of * family.head_size, family.layers_multiple_of
    low, high = target * (1 - family.tolerance), target * (1 + family.tolerance)
    found: list[tuple[int, float, int, int]] = []  # thousandths of a layer from the law, parameters missed, shape
    for units in count(1):
        hidden, heads = width * units, units * family.heads_multiple_of
        if family.kv_heads and heads > family.kv_heads and heads % family.kv_heads:
            continue
        if size(model_of(family, max(1, math.floor(hidden / family.max_aspect)), units)) > high:
            break  # and wider ones too, with as few layers as they may have
        one, two = (size(model_of(family, layers, units)) for layers in (1, 2))
        each, rest = two - one, 2 * one - two
        first = max(1, math.ceil(hidden / family.max_aspect), math.ceil((low - rest) / each))
        last = min(MAX_LAYERS, math.floor(hidden / family.min_aspect), math.floor((high - rest) / each))
        law = scaling_laws.layers_of(depth, hidden)
        fewest, most = -(-first // multiple), last // multiple
        for near in {math.floor(law / multiple), math.ceil(law / multiple)} if fewest <= most else ():
            layers = multiple * min(max(near, fewest), most)
            away = abs(SCALE * layers - round(SCALE * law))
            found.append((away, abs(each * layers + rest - target), layers, units))
    if not found:
        return None
    *_, layers, units = min(found)
    return model_of(family, layers, units)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCandidate:
    """A model that scaling laws choose, with its tokens and batch: 6·N·D is the compute in FLOP."""

    model: Model
    parameters: float
    tokens: float
    batch_tokens: float | None  # by the law of the critical batch; None: as the instance gives it


def model_for(choose: Choose, flop: float) -> ModelCandidate:
    """Return the family's model that scaling laws choose for `flop` of compute; InputError: no shape is near it."""
    target, family = scaling_laws.best_parameters(choose.law, flop), choose.family
    model = choose_shape(family, family.depth, target) if target < MAX_PARAMETERS else None
    if model is None:
        raise InputError(
            f"workload.choose.family: no shape has {target:.4g} parameters within {family.tolerance:.2%} with heads a "
            f"multiple of {family.heads_multiple_of} of {family.head_size} and hidden/layers from "
            f"{family.min_aspect:g} to {family.max_aspect:g}; widen tolerance or the aspect, or let less divide"
        )
    parameters = float(size(model))
    tokens = scaling_laws.tokens_for(parameters, flop)
    batch, critical = choose.critical_batch, None
    if batch is not None:
        critical = scaling_laws.power(batch, tokens=tokens, flop=flop, parameters=parameters)
    return ModelCandidate(model=model, parameters=parameters, tokens=tokens, batch_tokens=critical)


def any_model(choose: Choose) -> ModelCandidate:
    """Return a model of the family to start the model's choice from: at the least power of ten of compute."""
    for exponent in range(*START):
        try:
            return model_for(choose, 10.0**exponent)
        except InputError as error:
            refused = error
    raise refused


def is_open(instance: Instance) -> bool:
    """Return whether an instance's model is the one that its choice starts from, which nobody asked for."""
    work = instance.workload
    start = any_model(work.choose) if work is not None and work.choose is not None else None
    return start is not None and (work.model, work.tokens) == (start.model, start.tokens)


def of_one_model(instance: Instance) -> Instance:
    """Return an instance whose model is given, or chosen by a plan. InputError: workload.choose leaves it open."""
    if is_open(instance):
        remedy = 'give workload.model and workload.tokens, with another goal than "loss", or the plan that chose them'
        raise InputError(f"{instance.name}: workload.choose leaves the model open; {remedy}")
    return instance


def instance_with(instance: Instance, candidate: ModelCandidate) -> Instance:
    """Return the instance that trains a chosen model; the user's own limit on the batch is kept."""
    given = [limit for limit in (instance.limits.max_batch_tokens, candidate.batch_tokens) if limit is not None]
    batch = max(min(given), float(instance.workload.sequence_length)) if given else None
    own = {"workload__model": candidate.model, "workload__tokens": candidate.tokens}
    return instance.replaced(**own, limits__max_batch_tokens=batch)
