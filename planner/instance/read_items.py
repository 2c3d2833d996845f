"""What a reader made of a file, item by item: taken, taken at its default, without effect, not modelled, unknown."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.instance import Instance

NO_EFFECT = ""  # the effect of an item that changes neither time nor memory nor money
NOT_MODELLED = "not modelled: "  # begins what a note says of items that may change the answer


class ReadItems(Frozen):
    """The items of a file by their names there, each in one of five groups."""

    taken: tuple[str, ...] = Field((), description="The answer follows their values.")
    defaulted: tuple[str, ...] = Field((), description="Left out by the file, with the value taken for them.")
    ignored: tuple[str, ...] = Field((), description="They change neither time nor memory nor money.")
    not_modelled: tuple[str, ...] = Field((), description="They may change the answer, which does not follow them.")
    unknown: tuple[str, ...] = Field((), description="Of no name that the reader knows.")

    def note(self) -> str | None:
        """Return what a user must know of them in one sentence; None where nothing may change the answer."""
        names = [*self.not_modelled, *(f"{name} (unknown)" for name in self.unknown)]
        return f"{NOT_MODELLED}{', '.join(names)}" if names else None


class TrackedItems(Mapping[str, Any]):
    """Items of a file by name, that remember which of them were looked up, and what stood in for those left out."""

    def __init__(self, items: Mapping[str, Any], looked_up: set[str] | None = None) -> None:
        self._items, self.defaults = items, dict[str, Any]()
        self.looked_up: set[str] = set() if looked_up is None else looked_up  # rows of a table share it

    def __getitem__(self, name: str) -> Any:
        self.looked_up.add(name)
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an item, or the default that is taken for it."""
        if self._items.get(name) is None and default is not None:
            self.defaults[name] = default
        return super().get(name, default)

    def read(self, effect_of: Callable[[str, Any], str | None], show: str = "{}") -> ReadItems:
        """Group the items; `effect_of` one never looked up is `NO_EFFECT`, words on what it does, or None: unknown."""
        left = {name: effect_of(name, self._items[name]) for name in self._items if name not in self.looked_up}
        reported = {n: f"{show.format(n)} ({e})" if e != "-" else show.format(n) for n, e in left.items() if e}
        return ReadItems(
            taken=tuple(show.format(n) for n in self._items if n in self.looked_up),
            defaulted=tuple(f"{show.format(n)} {v}" for n, v in self.defaults.items()),
            ignored=tuple(show.format(n) for n, effect in left.items() if effect == NO_EFFECT),
            not_modelled=tuple(reported.values()),
            unknown=tuple(show.format(n) for n, effect in left.items() if effect is None),
        )


def with_note(note: str | None, more: str | None) -> str | None:
    """Return a note with a sentence added."""
    return "; ".join(x for x in (note, more) if x) or None


def not_modelled_notes(instance: Instance) -> Iterator[str]:
    """Yield what the notes of an instance tell of items that are not modelled, by the part that has the note."""
    work = getattr(instance, "workload", None)
    parts = {"workload": work, "model": getattr(work, "model", None), "grid": getattr(instance, "grid", None)}
    for name, part in parts.items():
        for sentence in (getattr(part, "note", None) or "").split("; "):
            if NOT_MODELLED in sentence:
                yield sentence if name == "workload" else f"{name}: {sentence}"
