"""Write numbers in units that suit their size, align them in columns, and hold arguments to their ranges."""

import functools
import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar

from planner.errors import InputError


def money(usd: float) -> str:
    """Write money in dollars in the largest unit that suits: $64.00B, -$250."""
    sign, size = ("-" if usd < 0 else ""), abs(usd)
    for unit, scale in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if size >= scale * (1 - 5e-6):  # so that rounding does not write $1,000.00K
            return f"{sign}${size / scale:,.2f}{unit}"
    return f"{sign}${size:,.0f}"


def short(value: Any) -> str:
    """Write a number in four digits with K, M, B or T, anything else as it is."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    for mark, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e5)):
        if abs(value) >= size:
            return f"{value / (1e3 if mark == 'K' else size):,.4g}{mark}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def rounded(value: float, digits: int, *, up: bool) -> float:
    """Round a number to some digits, up or down, so that the claim of a bound stays true; 0 for nothing."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits) if value > 0 else 1.0
    return unit * (math.ceil(value / unit - 1e-9) if up else math.floor(value / unit + 1e-9))


def amount(value: float) -> str:
    """Write a number in four digits, thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.4g}"


def ratio(value: float, digits: int = 2) -> str:
    """Write a ratio in some digits, below a million with no exponent: 1.1, 280."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if 10**digits <= abs(rounded) < 1e6 else f"{rounded:.{digits}g}"


def to_one(value: float, digits: int = 6) -> str:
    """Write a ratio of two rates with the smaller as 1: 4:1, 1:2."""
    return f"{ratio(value, digits)}:1" if value >= 1 else f"1:{ratio(1 / value, digits)}"


def memory(size: float) -> str:
    """Write bytes of memory in the unit that suits."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.3g} MB"


def power(mw: float) -> str:
    """Write MW in kW or MW: 84.86 kW, 194 MW."""
    return f"{mw * 1e3:,.4g} kW" if mw < 1 else f"{amount(mw)} MW"


def storage(size: float) -> str:
    """Write bytes of a checkpoint in the largest unit that suits: 347.0 TB."""
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size / 1e6:,.3g} MB"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits its length: 2.8 s, 3.0 min, 29.3 days."""
    for unit, scale, most in (("s", 1.0, 60.0), ("min", 60.0, 60.0), ("h", 3600.0, 48.0), ("days", 86_400.0, 1e3)):
        if seconds < most * scale:
            return f"{seconds / scale:,.1f} {unit}" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"
    return f"{seconds / (365.25 * 86_400):,.1f} years"


def gap(value: float) -> str:
    """Write a relative gap as a percentage; what rounding leaves is none."""
    return f"{100 * value:.2g} %" if value > 1e-9 else "0 %"


def percent(value: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * value:.1f} %"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural unless it is 1."""
    many = "leaves" if noun == "leaf" else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def few(names: Sequence[str], most: int = 5) -> str:
    """List the first of some names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def words(key: str) -> str:
    """Write a key in words, without underscores."""
    return key.replace("_", " ")


def aligned(lines: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Write rows of cells as text in aligned columns: the first `left` columns to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    columns = ("<" if column < left else ">" for column in range(len(widths)))
    row = "  ".join(f"{{:{side}{width}}}" for side, width in zip(columns, widths, strict=True))
    return "\n".join(row.format(*line).rstrip() for line in lines)


P = ParamSpec("P")
T = TypeVar("T")


class NumberRange(NamedTuple):
    """A range of numbers from `low` to `high`; `above`: low itself is left out; `below`: high itself is."""

    low: float = 1
    high: float = 10**9  # of whatever is counted, and of seconds: 31 years
    whole: bool = False
    above: bool = False
    below: bool = False
    remedy: str = "give another number"

    def holds(self, value: Any) -> bool:
        """Return whether an argument is a number of the range; nan and infinity never are."""
        if isinstance(value, bool) or not issubclass(type(value), Integral if self.whole else Real):
            return False
        above = self.low < value if self.above else self.low <= value
        return bool(above and (value < self.high if self.below else value <= self.high))

    def words(self) -> str:
        """Write the range of an argument in words."""
        kind = "a whole number" if self.whole else "a number"
        low, high = (f"{bound:,}" if isinstance(bound, int) else f"{bound:g}" for bound in (self.low, self.high))
        ends = "to below" if self.below else "up to" if self.above else "to"
        return f"{kind} {'above' if self.above else 'from'} {low} {ends} {high}"


_counted = functools.partial(NumberRange, whole=True)
PLACING_CALLS = ("place", "place_queue", "preempt", "defragment", "resize", "replace", "queue")
# By the name of the argument; "call.argument" where a call has a range of its own.
RANGES: Mapping[str, NumberRange] = {
    "time_limit": NumberRange(0, above=True, remedy="leave it out for no limit"),
    **{f"{call}.time_limit": NumberRange(0) for call in PLACING_CALLS},  # they answer without a proof too
    **dict.fromkeys(("shard", "group", "nodes", "gpus_per_node", "leaves", "sites", "racks"), _counted()),
    **dict.fromkeys(("failed_links", "max_split", "show"), _counted(0)),
    **dict.fromkeys(("threads", "workers", "gpus_per_host", "planes", "rails_per_leaf"), _counted(1, 1_024)),
    "seed": _counted(0, 2**31 - 1),  # CP-SAT takes no larger one
    "near": _counted(0, 1_000),
    "gap": NumberRange(0, 1, below=True, remedy="0.01 is one percent"),
    "epsilon": NumberRange(0, 1, above=True, remedy="0.03 is three percent"),
    "within": NumberRange(0, 1_000, remedy="0.05 is five percent"),
    "layouts.within": NumberRange(0, 1, remedy="0.02 is two percent"),
    # Of `limits`.
    "days": NumberRange(0, 1e6, above=True),
    **dict.fromkeys(("flop", "limits.start", "limits.stop"), NumberRange(1e12, 1e40)),
    "points": _counted(2, 10_000),
    "tolerance": NumberRange(1e-6, 1, below=True, remedy="0.01 is one percent"),
    # Of `simulate`, and of a fabric alone.
    "seeds": _counted(1, 10_000),
    "hosts": _counted(2, 1 << 20),
    "design.hosts": _counted(1, 1_000_000),
    "bytes_per_host": NumberRange(1e-3, 1e18),
    "nic_gbps": NumberRange(0, 1e5, above=True),
    "max_lanes": _counted(1, 16),
    "max_tiers": _counted(1, 4),
    "transceiver_usd": NumberRange(0, 1e6),
    "transceiver_watts": NumberRange(0, 1e4),
    # Of a first instance, of imported grids and of the local page.
    "init.sites": _counted(0, 1_000),
    "budget": NumberRange(0, 1e15, above=True),
    "tokens": NumberRange(1, 1e20),
    "radius_km": NumberRange(0, 20_040, remedy="half the way around the Earth is 20,040 km"),
    "headroom_share": NumberRange(0, 100, remedy="0.1 is ten percent of the peak demand"),
    "energy_usd_per_mwh": NumberRange(0, 1e6),
    "spare_share": NumberRange(0, 1),
    "port": NumberRange(0, 65_535, whole=True, remedy="0 is any that is free"),
}


class ArgumentKind(NamedTuple):
    """The kind of a library call's argument: types, and names of our own classes, which are not imported here."""

    words: str
    types: tuple[type, ...] = ()
    names: tuple[str, ...] = ()

    def holds(self, value: Any) -> bool:
        """Return whether an argument is of the kind."""
        return isinstance(value, self.types) or not {one.__name__ for one in type(value).__mro__}.isdisjoint(self.names)


_FILE = (str, os.PathLike)
_PATH, _CALLBACK = ArgumentKind("a path", _FILE), ArgumentKind("a function of one argument", (Callable,))  # type: ignore[arg-type]
_BY_PATH = ArgumentKind('a dict by dotted path, such as {"layout.tensor_parallel": 8}', (Mapping,))
_INSTANCE_WORDS = "the path of a file, the name of an instance that ships, a dict, an Instance or a Plan"
_INSTANCE = ArgumentKind(_INSTANCE_WORDS, (*_FILE, Mapping), ("Instance", "Plan"))
# By the name of the argument; "call.argument" where a call has a kind of its own.
KINDS: Mapping[str, ArgumentKind] = {
    **dict.fromkeys(("instance", "question", "curve.plan"), _INSTANCE),
    **dict.fromkeys(("plan", "start"), ArgumentKind("a Plan", names=("Plan",))),
    "layout": ArgumentKind('a dict by choice, such as {"tensor_parallel": 8}', (Mapping,)),
    **dict.fromkeys(("pins", "set", "changes", "vary"), _BY_PATH),
    **dict.fromkeys(("models", "plans", "measured", "state"), _PATH),
    **dict.fromkeys(("progress", "on_progress", "on_part"), _CALLBACK),
    "interrupt": ArgumentKind("a planner.Interrupter", names=("Interrupter",)),
    "executor": ArgumentKind("an Executor of concurrent.futures", names=("Executor",)),
    "flop": ArgumentKind("a list of numbers", (Sequence,)),
    "pairs": ArgumentKind("a list of dicts by dotted path", (Sequence,)),
    "shard": ArgumentKind("two whole numbers, part and parts, such as (1, 8)", (Sequence,)),
    "finished": ArgumentKind("keys of rows", (Collection,)),
    "rows": ArgumentKind("rows of a sweep, or plans", (Iterable,)),
    "topology": ArgumentKind("the path of a file, a Topology or a Cluster", _FILE, ("Topology", "Cluster")),
    "job": ArgumentKind("the path of a file, a dict, a Job or a Plan", (*_FILE, Mapping), ("Job", "Plan")),
    **dict.fromkeys(("busy", "free", "only"), ArgumentKind("names of nodes, or a hostlist", (Iterable,))),
    "network": ArgumentKind("the path of a file, a dict, a Plan or a Fabric", (*_FILE, Mapping), ("Plan", "Fabric")),
}


def bounded(call: Callable[P, T], spelled: Mapping[str, str] | None = None) -> Callable[P, T]:
    """Refuse arguments out of their number ranges before the call begins, and those of a library call of another kind.

    `spelled` names the options of a command, whose kinds are checked already, in complaints.
    """
    signature, names = inspect.signature(call), spelled or {}
    own = {name: f"{call.__name__}.{name}" for name in signature.parameters}
    ranges = {name: RANGES.get(of_call) or RANGES.get(name) for name, of_call in own.items()}
    kinds = {name: KINDS.get(of_call) or KINDS.get(name) for name, of_call in own.items() if spelled is None}

    @functools.wraps(call)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        try:
            given = signature.bind_partial(*args, **options).arguments
        except TypeError:
            return call(*args, **options)  # raises the same, with the name of the call
        wrong = [
            f"{names.get(name, name)}: must be {allowed.words()} (is {_shown(number)}); {allowed.remedy}"
            for name, value in given.items()
            if (allowed := ranges[name]) is not None
            and (value is not None or isinstance(signature.parameters[name].default, (int, float)))
            for number in (value if name in ("flop", "shard") and isinstance(value, (list, tuple)) else [value])
            if not allowed.holds(number)
        ]
        for name, value in given.items() if not wrong else ():
            optional = signature.parameters[name].default is None and value is None
            if (kind := kinds.get(name)) is not None and not optional and not kind.holds(value):
                wrong.append(f"{name}: must be {kind.words} (is {_shown(value)})")
        if wrong:
            raise InputError("\n".join(wrong))
        return call(*args, **options)

    return checked


def _shown(value: Any) -> str:
    try:
        return repr(value)[:40]
    except ValueError:  # more digits than Python writes
        return "a number of thousands of digits"
