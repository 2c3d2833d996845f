"""Put a point into the rows of its model: what a back end calls a solution is one only where it keeps them all."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-6  # of what a row adds up, as the checks of plans have it; HiGHS works to 1e-9 of a scaled row
WHOLE = 1e-5  # from a whole number

Expression = Callable[[Any], int]


def broken_by(lp: Any, x: npt.NDArray[np.float64]) -> str:
    """Return which row, bound or whole column of a model in HiGHS a point breaks; nothing where it keeps all."""
    lower, upper = np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)
    if len(x) != len(lower) or not np.all(np.isfinite(x)):
        return f"{int(np.isfinite(x).sum())} values for {len(lower)} columns"
    room = TOLERANCE * np.maximum(1.0, np.abs(x))
    outside = np.maximum(lower - x, x - upper) - room
    whole = np.asarray([int(kind) == 1 for kind in lp.integrality_], dtype=bool)
    if len(whole):
        fraction = np.where(whole, np.abs(x - np.round(x)), 0.0)
        if fraction.max(initial=0.0) > WHOLE:
            return f"column {int(fraction.argmax())} is {float(x[fraction.argmax()]):g}, a whole number expected"
    if outside.max(initial=-1.0) > 0:
        i = int(outside.argmax())
        return f"column {i} is {float(x[i]):g}, not from {float(lower[i]):g} to {float(upper[i]):g}"
    total, size = _rows_at(lp, x)
    low, high = np.asarray(lp.row_lower_), np.asarray(lp.row_upper_)
    excess = np.maximum(low - total, total - high) - TOLERANCE * np.maximum(1.0, size)
    if excess.max(initial=-1.0) > 0:
        i = int(excess.argmax())
        return f"row {i} is {float(total[i]):g}, not from {float(low[i]):g} to {float(high[i]):g}"
    return ""


def _rows_at(lp: Any, x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return what each row adds up at a point, and the sum of its absolute terms."""
    matrix = lp.a_matrix_
    start, index = np.asarray(matrix.start_, dtype=np.int64), np.asarray(matrix.index_, dtype=np.int64)
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    by_column = str(matrix.format_).endswith("kColwise")
    rows, columns = (index, owner) if by_column else (owner, index)
    terms = np.asarray(matrix.value_) * x[columns]
    count = int(lp.num_row_)
    total = np.bincount(rows, terms, count).astype(np.float64)
    return total, np.bincount(rows, np.abs(terms), count).astype(np.float64)


def value_of(lp: Any, x: npt.NDArray[np.float64]) -> float:
    """Return the objective of a model in HiGHS at a point."""
    return float(np.asarray(lp.col_cost_) @ x + lp.offset_)


def broken_by_integers(proto: Any, x: Sequence[int]) -> str:
    """Return which constraint or domain of a CP-SAT model a point breaks; nothing where it keeps all.

    A constraint of a kind that no formulation here has is not judged.
    """
    if len(x) != len(proto.variables):
        return f"{len(x)} values for {len(proto.variables)} variables"
    for i, v in enumerate(proto.variables):
        if not _in_domain(x[i], list(v.domain)):
            return f"variable {v.name or i} is {x[i]}, outside its domain"
    for i, constraint in enumerate(proto.constraints):
        if all(_true(x, literal) for literal in constraint.enforcement_literal) and not _kept(constraint, x):
            return f"constraint {constraint.name or i} does not hold"
    return ""


def integer_value(proto: Any, x: Sequence[int]) -> float:
    """Return the objective of a CP-SAT model at a point."""
    o = proto.objective
    total = sum(int(c) * x[v] for v, c in zip(o.vars, o.coeffs, strict=True))
    return float((total + o.offset) * (o.scaling_factor or 1.0))


def _true(x: Sequence[int], literal: int) -> bool:
    return bool(x[literal]) if literal >= 0 else not x[-literal - 1]


def _in_domain(value: int, domain: Sequence[int]) -> bool:
    return any(a <= value <= b for a, b in zip(domain[::2], domain[1::2], strict=True))


def _at(x: Sequence[int], expression: Any) -> int:
    return int(expression.offset) + sum(
        int(c) * int(x[v]) for v, c in zip(expression.vars, expression.coeffs, strict=True)
    )


def _linear(c: Any, x: Sequence[int]) -> bool:
    return _in_domain(_at_linear(c, x), list(c.linear.domain))


def _at_linear(c: Any, x: Sequence[int]) -> int:
    return sum(int(k) * int(x[v]) for v, k in zip(c.linear.vars, c.linear.coeffs, strict=True))


def _element(c: Any, x: Sequence[int]) -> bool:
    place, entries = _at(x, c.element.linear_index), c.element.exprs
    return 0 <= place < len(entries) and _at(x, entries[place]) == _at(x, c.element.linear_target)


def _table(c: Any, x: Sequence[int]) -> bool:
    wide, values = len(c.table.exprs), list(c.table.values)
    point = [_at(x, e) for e in c.table.exprs]
    among = any(values[i : i + wide] == point for i in range(0, len(values), wide))
    return among != bool(c.table.negated)


_KINDS: dict[str, Callable[[Any, Sequence[int]], bool]] = {
    "linear": _linear,
    "bool_or": lambda c, x: any(_true(x, i) for i in c.bool_or.literals),
    "bool_and": lambda c, x: all(_true(x, i) for i in c.bool_and.literals),
    "exactly_one": lambda c, x: sum(_true(x, i) for i in c.exactly_one.literals) == 1,
    "at_most_one": lambda c, x: sum(_true(x, i) for i in c.at_most_one.literals) <= 1,
    "lin_max": lambda c, x: max(_at(x, e) for e in c.lin_max.exprs) == _at(x, c.lin_max.target),
    "int_prod": lambda c, x: math.prod(_at(x, e) for e in c.int_prod.exprs) == _at(x, c.int_prod.target),
    "element": _element,
    "table": _table,
}


def _kept(constraint: Any, x: Sequence[int]) -> bool:
    for kind, holds in _KINDS.items():
        if getattr(constraint, f"has_{kind}")():
            return holds(constraint, x)
    return True
