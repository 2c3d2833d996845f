"""The ranges of the numbers that options and arguments take: one table and one check for commands and library calls."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from planner.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
MOST = 10**9  # of whatever is counted, and of seconds: 31 years
MAX_SEED = 2**31 - 1  # CP-SAT takes no larger one.


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Numbers from `low` to `high`; `above`: low itself is left out; `below`: high itself is."""

    low: float
    high: float
    whole: bool = False
    above: bool = False
    below: bool = False
    remedy: str = "give another number"

    def holds(self, value: Any) -> bool:
        """Return whether a value is a number of the range; nan and infinity never are."""
        if isinstance(value, bool) or not issubclass(type(value), Integral if self.whole else Real):
            return False
        above = self.low < value if self.above else self.low <= value
        return bool(above and (value < self.high if self.below else value <= self.high))

    def words(self) -> str:
        """Write the range."""
        kind = "a whole number" if self.whole else "a number"
        low, high = (f"{bound:,}" if isinstance(bound, int) else f"{bound:g}" for bound in (self.low, self.high))
        ends = "to below" if self.below else "up to" if self.above else "to"
        return f"{kind} {'above' if self.above else 'from'} {low} {ends} {high}"


def _counted(low: int = 1, high: int = MOST) -> NumberRange:
    return NumberRange(low, high, whole=True)


SECONDS = NumberRange(0, MOST, above=True, remedy="leave it out for no limit")
PROOF_SECONDS = NumberRange(0, MOST)  # of what places jobs, which answers without a proof too
# By the name of the argument; "call.argument" where a call has a range of its own.
RANGES: Mapping[str, NumberRange] = {
    "time_limit": SECONDS,
    **{f"{call}.time_limit": PROOF_SECONDS for call in ("place", "place_queue", "preempt", "defragment", "resize")},
    **{f"{call}.time_limit": PROOF_SECONDS for call in ("replace", "queue")},
    "gap": NumberRange(0, 1, below=True, remedy="0.01 is one percent"),
    "epsilon": NumberRange(0, 1, above=True, remedy="0.1 is ten percent"),
    "seed": _counted(0, MAX_SEED),
    "threads": _counted(1, 1_024),
    "workers": _counted(1, 1_024),
    "shard": _counted(),
    "near": _counted(0, 1_000),
    "within": NumberRange(0, 1_000, remedy="0.05 is five percent"),
    "layouts.within": NumberRange(0, 10, remedy="0.02 is two percent"),
    # Of `limits`.
    "days": NumberRange(0, 1e6, above=True),
    "flop": NumberRange(1e12, 1e40),
    "limits.start": NumberRange(1e12, 1e40),
    "limits.stop": NumberRange(1e12, 1e40),
    "points": _counted(2, 10_000),
    "tolerance": NumberRange(1e-6, 1, below=True, remedy="0.01 is one percent"),
    # Of `simulate`.
    "seeds": _counted(1, 10_000),
    "failed_links": _counted(0),
    "hosts": _counted(2, 1 << 20),
    "bytes_per_host": NumberRange(1e-3, 1e18),
    "group": _counted(),
    # Of a fabric alone.
    "design.hosts": _counted(1, 1 << 20),
    "gpus_per_host": _counted(1, 1_024),
    "nic_gbps": NumberRange(0, 1e5, above=True),
    "planes": _counted(1, 1_024),
    "max_tiers": _counted(1, 4),
    "transceiver_usd": NumberRange(0, 1e6),
    "transceiver_watts": NumberRange(0, 1e4),
    # Of jobs and clusters.
    "nodes": _counted(),
    "gpus_per_node": _counted(),
    "leaves": _counted(),
    "max_split": _counted(0),
    "show": _counted(0),
    # Of a first instance and of imported grids.
    "sites": _counted(),
    "init.sites": _counted(0, 1_000),
    "budget": NumberRange(0, 1e15, above=True),
    "racks": _counted(),
    "tokens": NumberRange(1, 1e20),
    "radius_km": NumberRange(0, 20_040, remedy="half the way around the Earth is 20,040 km"),
    "headroom_share": NumberRange(0, 100, remedy="0.1 is ten percent of the peak demand"),
    "energy_usd_per_mwh": NumberRange(0, 1e6),
    "spare_share": NumberRange(0, 1),
}


def bounded(call: Callable[P, T], spelled: Mapping[str, str] | None = None) -> Callable[P, T]:
    """Refuse numbers out of their ranges before the call begins; `spelled` names its arguments in complaints."""
    signature, names = inspect.signature(call), spelled or {}
    ranges = {name: RANGES.get(f"{call.__name__}.{name}") or RANGES.get(name) for name in signature.parameters}

    @functools.wraps(call)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        given = signature.bind_partial(*args, **options).arguments
        wrong = [
            f"{names.get(name, name)}: must be {allowed.words()} (is {_shown(number)}); {allowed.remedy}"
            for name, value in given.items()
            if (allowed := ranges[name]) is not None and value is not None
            for number in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])
            if not allowed.holds(number)
        ]
        if wrong:
            raise InputError("\n".join(wrong))
        return call(*args, **options)

    return checked


def _shown(value: Any) -> str:
    """Write a value of any size on part of a line."""
    try:
        return repr(value)[:40]
    except ValueError:  # more digits than Python writes
        return "a number of thousands of digits"
