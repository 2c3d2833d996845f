"""The number type of formulas that broadcast."""

from typing import Any, TypeAlias

Num: TypeAlias = Any  # a float or an array of floats: mypy has no type under which both take the same arithmetic
