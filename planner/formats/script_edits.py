"""Change flags, overrides and variables of a shell or Slurm script in place; every other character is kept."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError
from planner.formats.located_values import RecipeText
from planner.formats.shell_script import Item, LocatedText, Script

_REST = re.compile(r"[ \t]*(\\?)[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)  # behind an item that ends its line
_BEFORE = re.compile(r"[ \t]*\\[ \t]*\r?\n[ \t]*$")  # a continued line before an item


@dataclass(slots=True)
class ScriptText(RecipeText):
    """A script's text with the edits that were asked of it."""

    script: Script = field(kw_only=True)

    def _items(self, key: str) -> list[Item]:
        return [item for item in self.script.items if item.key == key and item.is_flag == bool(self.dashes)]

    def place(self, key: str) -> int | None:
        """Return the offset of the last flag or override of a name."""
        return next((item.word.start for item in reversed(self._items(key))), None)

    def change(self, key: str, value: Any, likes: tuple[str, ...]) -> None:
        """Set a flag or override; add it where it is missing; remove it where the value is None.

        A new one is added next to the first of the flags `likes` that is there. InputError where the present one is in
        a branch, has different values in several places, or is computed by the shell.
        """
        items, shown = self._items(key), f"{self.dashes}{key}"
        for item in items:
            if item.word.branch:
                problem = "is in a branch (if, case, &&), which is not followed"
                raise self.refused(item.word.start, shown, problem, self._by_hand(value))
        if isinstance(value, list) and not isinstance(value[0], str):
            problem = "is needed, and no flag takes a list of lists; give the .toml that the script starts by --like"
            raise InputError(f"{self.where}: {shown}: {problem}, or plan with --pin pp=1")
        if isinstance(value, tuple) or (value is None and self.dashes):  # several words have no one place
            for item in items:
                self._take_out(item, f"{shown}: taken out")
            items = []
        if not items and value is not None:
            self._add(key, value, likes)
        elif items and not (value is True and items[-1].value is None):
            values = [item.value for item in items]
            spans = {None if value is None else value.span for value in values}
            if len(spans) > 1 or values[-1] is None:
                several = f"is given at {self.script.lines(item.word.start for item in items)}, perhaps to several runs"
                problem = several if len(items) > 1 else "has no value"
                raise self.refused(items[-1].word.start, shown, problem, self._by_hand(value))
            self.set_value(values[-1], self._written(value, values[-1]), shown, items[-1])

    def set_value(self, located: LocatedText, new: str, shown: str, item: Item | None = None) -> None:
        """Replace a value in the script by a new text, in the assignment of its variable if it has one.

        InputError where the value is computed, or its variable is assigned in a branch or several times.
        """
        if located == new:
            return
        at = item.word.start if item else max(0, *located.offsets[:1])
        if located.span is None:
            raise self.refused(at, shown, f"is computed by the shell (is {str(located)!r})", self._by_hand(new))
        start, end = located.span
        for name, words in self.script.assigned.items():
            holding = next((word for word in words if word.start <= start < word.end), None)
            if holding and (unsure := self.script.unsure(name, holding)):
                problem = f"its variable {name} is {unsure}, and which value holds is not known"
                raise self.refused(at, shown, problem, self._by_hand(new))
        if self.text[start - 1 : start] not in ("'", '"'):
            try:
                new = self._shell_text(new, item.word.quote if item else "")
            except ValueError as error:
                raise self.refused(start, shown, str(error)) from None
        self.edit(start, end, new, f"{shown}: {located} becomes {new}")

    def _by_hand(self, value: Any) -> str:
        return "take it out yourself" if value is None else f"write {self._written(value)} there yourself"

    def _written(self, value: Any, old: str = "") -> str:
        if isinstance(value, (list, tuple)):
            return " ".join(value) if isinstance(value, tuple) else f"[{','.join(value)}]"
        plain = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
        return plain.capitalize() if old in ("True", "False", "None") and plain in ("true", "false") else plain

    def _is_alone(self, item: Item) -> re.Match[str] | None:
        """Return what follows an item that has its line for itself."""
        rest = _REST.match(self.text, item.end)
        return rest if not self.text[self.line_start(item.word.start) : item.word.start].strip() else None

    def _take_out(self, item: Item, what: str) -> None:
        start, end, rest = item.word.start, item.end, self._is_alone(item)
        if rest:  # the last line of a command stays empty, as the one before it goes on to it
            last = not rest[1] and _BEFORE.search(self.text, 0, start)
            start, end = self.line_start(start), rest.end() if last else min(rest.end() + 1, len(self.text))
        elif self.text[start - 1 : start].isspace() and self.text[start - 1] != "\n":
            start -= 1
        self.edit(start, end, "", what)

    def _shell_text(self, new: str, quote: str) -> str:
        """Return a value as the shell needs it within a quote, or outside of any. ValueError: it cannot say it."""
        if not set(new) & set("()|*[] "):
            return new
        inside = bool(self.dashes and quote)  # $ARGS takes flags as they are, sh -c reads them once more
        if (quote == "'" and not self.dashes) or (inside and re.search(r"\bsh\b.* -\w*c\b|\beval\b", self.text)):
            raise ValueError(f"{new} needs quotes within quotes")
        return new if inside else f"'{new}'"

    def _add(self, key: str, value: Any, likes: tuple[str, ...]) -> None:
        like = next((item for key in likes for item in reversed(self._items(key)) if not item.word.branch), None)
        if like is None:
            raise self.refused(0, f"{self.dashes}{key}", f"is needed with {self._written(value)} and has no like in it")
        try:
            written = self._written(value)
            written = written if isinstance(value, tuple) else self._shell_text(written, like.word.quote)
        except ValueError as error:
            raise self.refused(like.word.start, f"{self.dashes}{key}", str(error)) from None
        equals = "=" if not self.dashes or "=" in self.text[like.word.start : like.end] else " "
        new = f"{self.dashes}{key}" + (
            "" if value is True and self.dashes == "--" and "." not in key else equals + written
        )
        start, rest = self.line_start(like.word.start), self._is_alone(like)
        what = f"{self.dashes}{key}: added beside {self.dashes}{like.key} as {new}"
        if not rest:
            self.edit(like.end, like.end, f" {new}", what)
            return
        continued = " \\" if rest[1] or _BEFORE.search(self.text, 0, like.word.start) else ""
        self.edit(start, start, f"{self.text[start : like.word.start]}{new}{continued}{self.newline}", what)
