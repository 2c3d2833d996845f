"""Hold arguments of library calls and options of commands to their ranges of numbers and their kinds."""

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar

from planner.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")


class NumberRange(NamedTuple):
    """The range of an argument's number, `low` to `high`; `above`: low itself is left out; `below`: high itself is."""

    low: float = 1
    high: float = 10**9  # of whatever is counted, and of seconds: 31 years
    whole: bool = False
    above: bool = False
    below: bool = False
    remedy: str = "give another number"

    def holds(self, value: Any) -> bool:
        """Return whether an argument's number is in its range; nan and infinity never are."""
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
        """Return whether an argument is of the kind; a dict by path or choice has texts alone as its keys."""
        if self.types == (Mapping,) and isinstance(value, Mapping):
            return all(isinstance(key, str) for key in value)
        return isinstance(value, self.types) or not {one.__name__ for one in type(value).__mro__}.isdisjoint(self.names)


_FILE, _TEXT = (str, os.PathLike), ArgumentKind("a text", (str,))
_FILE_OR_DICT = (*_FILE, Mapping)
_PATH, _CALLBACK = ArgumentKind("a path", _FILE), ArgumentKind("a function of one argument", (Callable,))  # type: ignore[arg-type]
_BY_PATH = ArgumentKind('a dict by dotted path, such as {"layout.tensor_parallel": 8}', (Mapping,))
_INSTANCE_WORDS = "the path of a file, the name of an instance that ships, a dict, an Instance or a Plan"
_INSTANCE = ArgumentKind(_INSTANCE_WORDS, _FILE_OR_DICT, ("Instance", "Plan"))
# By the name of the argument; "call.argument" where a call has a kind of its own.
KINDS: Mapping[str, ArgumentKind] = {
    **dict.fromkeys(("instance", "question", "curve.plan"), _INSTANCE),
    **dict.fromkeys(("plan", "start"), ArgumentKind("a Plan", names=("Plan",))),
    "layout": ArgumentKind('a dict by choice, such as {"tensor_parallel": 8}', (Mapping,), ("LayoutPlan",)),
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
    "topology": ArgumentKind("a file's path, a dict, a Topology or a Cluster", _FILE_OR_DICT, ("Topology", "Cluster")),
    "__init__.topology": ArgumentKind("a file's path, a dict or a Topology", _FILE_OR_DICT, ("Topology",)),
    "job": ArgumentKind("the path of a file, a dict, a Job or a Plan", _FILE_OR_DICT, ("Job", "Plan")),
    **dict.fromkeys(("busy", "free", "only"), ArgumentKind("names of nodes, or a hostlist", (Iterable,))),
    "network": ArgumentKind("the path of a file, a dict, a Plan or a Fabric", _FILE_OR_DICT, ("Plan", "Fabric")),
}


def bounded(call: Callable[P, T], spelled: Mapping[str, str] | None = None) -> Callable[P, T]:
    """Refuse arguments of a library call out of their ranges, or of another kind, before the call begins.

    `spelled` names the options of a command, whose kinds are checked already, in complaints.
    """
    signature, names = inspect.signature(call), spelled or {}
    own = {name: f"{call.__name__}.{name}" for name in signature.parameters}
    ranges = {name: RANGES.get(of_call) or RANGES.get(name) for name, of_call in own.items()}
    kinds = {name: KINDS.get(of_call) or KINDS.get(name) for name, of_call in own.items() if spelled is None}
    for name in (name for name in kinds if signature.parameters[name].annotation in (str, str | None)):
        kinds[name] = kinds[name] or _TEXT

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
