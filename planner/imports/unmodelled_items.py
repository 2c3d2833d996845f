"""Items of an imported file that the model leaves out: tracked as they are read, named in a note."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from planner.instance.base_types import NOT_MODELLED

NO_EFFECT = ""  # the effect of an item that changes neither time nor memory nor money
NEARLY = 0.8  # of difflib's ratio: an item is nearly another's name


class UnmodelledItems(NamedTuple):
    """Items of an imported file that are not modelled though they may change the answer: known ones, and unknown."""

    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # with the name that is nearly theirs

    def note(self) -> str | None:
        """Return a note on an imported file's items that are not modelled or unknown; None where none matters."""
        unknown = (name.partition(": ") for name in self.unknown)
        names = [*self.known, *(f"{name} (unknown{sign}{meant})" for name, sign, meant in unknown)]
        return f"{NOT_MODELLED}{', '.join(names)}" if names else None


class TrackedItems(Mapping[str, Any]):
    """Items of an imported file by name, tracked: they record which are looked up, so that the rest is not modelled."""

    def __init__(self, items: Mapping[str, Any], looked_up: set[str] | None = None) -> None:
        self._items = items
        self.looked_up: set[str] = set() if looked_up is None else looked_up  # rows of a table share it

    def __getitem__(self, name: str) -> Any:
        self.looked_up.add(name)
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def unmodelled(self, effect_of: Callable[[str, Any], str | None], show: str = "{}") -> UnmodelledItems:
        """Return the imported items not modelled, as never looked up; `effect_of`: their effect, None if unknown.

        An unknown one comes with the name that was looked up in vain and that it is nearly.
        """
        left = {name: effect_of(name, self._items[name]) for name in self._items if name not in self.looked_up}
        vain = self.looked_up - set(self._items)
        meant = {name: difflib.get_close_matches(name, vain, 1, NEARLY) for name in left if left[name] is None}
        return UnmodelledItems(
            tuple(f"{show.format(name)} ({why})".removesuffix(" (-)") for name, why in left.items() if why),
            tuple(
                show.format(name) + "".join(f": did you mean {show.format(other)}?" for other in near)
                for name, near in meant.items()
            ),
        )


def not_modelled_notes(instance: BaseModel) -> Iterator[str]:
    """Yield the sentences of an instance's notes on imported items that are not modelled, with the part noted."""
    work = getattr(instance, "workload", None)
    parts = {"workload": work, "grid": getattr(instance, "grid", None)}
    parts |= {name: getattr(work, name, None) for name in ("model", "software")}
    for name, part in parts.items():
        for sentence in (getattr(part, "note", None) or "").split("; "):
            if NOT_MODELLED in sentence:
                yield sentence if name == "workload" else f"{name}: {sentence}"
    if parts["grid"] is not None and parts["grid"].prices.site_life_years != 20:  # the default
        yield "grid: prices.site_life_years is not counted: sites and lines are paid at once"
