"""Choose a model's shape for a number of parameters: layers, heads, hidden and FFN width under what must divide what.

CP-SAT over the layers and the width, in units of the heads that must divide: parameters within the tolerance of the target,
hidden over layers within the bounds, and as near as can be to the depth that the law gives the width, then to the target.
"""

import math

from ortools.sat.python import cp_model

from planner.instance.model_family import DepthLaw, Family
from planner.instance.workload import Experts, Model
from planner.physics.training import scaling_laws, transformer
from planner.solvers import cpsat
from planner.solvers.outcome import Stop

FFN_MULTIPLE = 128  # of the FFN width: whole tiles of the products


def model_of(family: Family, layers: int, units: int) -> Model:
    """Return the shape of so many layers whose heads are `units` times what must divide them."""
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
    """Count the parameters that the laws speak of: those that a token meets, embeddings included."""
    return transformer.active_parameters(model, embedding=True)


def _columns(family: Family, most: int) -> tuple[list[int], list[int]]:
    """Return a layer's parameters and those beside the layers, by units of width from 1."""
    layer, rest = [], []
    for u in range(1, most + 1):
        one, two = size(model_of(family, 1, u)), size(model_of(family, 2, u))
        layer.append(two - one)
        rest.append(2 * one - two)
    return layer, rest


def _of(m: cp_model.CpModel, units: cp_model.IntVar, column: list[int]) -> cp_model.IntVar:
    """Return what a column holds for the width chosen."""
    found = m.new_int_var(min(column), max(column), "")
    m.add_element(units - 1, column, found)
    return found


def most_units(family: Family, target: float) -> int:
    """Bound the width: with as few layers as it may have, it has more than the target."""
    width, u = family.heads_multiple_of * family.head_size, 1
    while size(model_of(family, max(1, math.floor(u * width / family.max_aspect)), u)) <= target * (
        1 + family.tolerance
    ):
        u += max(1, u // 8)
    return u


def choose(family: Family, depth: DepthLaw, target: float) -> Model | None:
    """Return the shape of the family nearest to the depth law with the target's parameters; None where none can be built.

    Raises
    ------
    RuntimeError
        CP-SAT stopped without an answer; it never should, the model is small.
    """
    most = most_units(family, target)
    layer, rest = _columns(family, most)
    low, high = target * (1 - family.tolerance), target * (1 + family.tolerance)
    ends, width = ((math.ceil, low), (math.floor, high)), family.heads_multiple_of * family.head_size
    m = cp_model.CpModel()
    units = m.new_int_var(1, most, "units")
    deepest = max(1, min(10**5, math.floor(high / layer[0]) + 1))
    steps = m.new_int_var(1, max(1, deepest // family.layers_multiple_of), "steps")
    layers = family.layers_multiple_of * steps
    per_layer, beside = _of(m, units, layer), _of(m, units, rest)
    # Implied by the rows below: the layers that the target leaves each width, and how far that is from the law. They make the proof short.
    wanted = [round(1000 * scaling_laws.layers_of(depth, width * u)) for u in range(1, most + 1)]
    fewest, largest = (
        [max(0, min(deepest, way((of - b) / x))) for x, b in zip(layer, rest, strict=True)] for way, of in ends
    )
    apart = [max(0, 1000 * a - w, w - 1000 * z) for a, z, w in zip(fewest, largest, wanted, strict=True)]
    m.add(layers >= _of(m, units, fewest))
    m.add(layers <= _of(m, units, largest))
    body = m.new_int_var(0, math.ceil(high), "body")
    m.add_multiplication_equality(body, [layers, per_layer])
    m.add(body + beside >= math.ceil(low))
    m.add(body + beside <= math.floor(high))
    m.add(1000 * width * units >= math.ceil(1000 * family.min_aspect) * layers)
    m.add(1000 * width * units <= math.floor(1000 * family.max_aspect) * layers)
    away = m.new_int_var(0, 1000 * deepest + max(wanted), "away")
    m.add_abs_equality(away, 1000 * layers - _of(m, units, wanted))
    m.add(away >= _of(m, units, apart))
    missed = m.new_int_var(0, math.ceil(high - low), "missed")
    m.add_abs_equality(missed, body + beside - round(target))
    share = m.new_int_var(0, 1000, "share")  # thousandths of the tolerance by which the target is missed
    m.add(share * math.ceil(target * family.tolerance / 1000) >= missed)
    m.minimize(1000 * away + share)
    out = cpsat.run(m)
    if out.infeasible:
        return None
    if out.stop is not Stop.PROVED or out.solution is None:
        raise RuntimeError(f"no shape for {target:g} parameters was proven ({out.detail})")
    return model_of(family, out.solution.of(layers), out.solution.of(units))
