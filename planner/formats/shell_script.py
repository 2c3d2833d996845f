"""Read and change the flags, overrides and variables of a shell or Slurm script in place; run nothing."""

import ast
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.formats.recipe_text import RecipeText
from planner.instance.catalogue_entries import catalogue
from planner.instance.software import RECOMPUTE_MODULES

# Modules that Megatron-Core may recompute (transformer_config.py): those with figures here, and others.
MEGATRON_MODULES = (*RECOMPUTE_MODULES, "gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc")

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*|[1-9])(?::?[-=]([^}]*))?\}|\$([A-Za-z_]\w*)")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?=([^}]*)\}")  # of : ${TP:=8}, which assigns it
_QUOTED = r"'[^']*'|\"(?:\\.|[^\"\\])*\""
_CLOSED = r"\([^()'\"]*\)"
for _ in range(3):  # parentheses in parentheses
    _CLOSED = rf"\((?:{_QUOTED}|[^()'\"]|{_CLOSED})*\)"
_COMPUTED = re.compile(rf"\${_CLOSED}|`[^`]*`")  # a sum, or a command, that the shell puts a text in place of
_ARITHMETIC = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_SBATCH = re.compile(
    r"^[ \t]*#SBATCH[ \t]+(?:--([a-z-]+)[= ][ \t]*|-([A-Za-z])[= \t]*)(\"[^\"\n]*\"|'[^'\n]*'|\S+)", re.M
)
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1.*?^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE)
OVERRIDE = re.compile(r"\+{0,2}([a-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
# Flags by which a command in quotes is known to start a training run.
_STARTS = re.compile(r"--(nnodes|nproc|parallelism\.|training\.|tensor|pipeline|micro.batch|global.batch)")
_SLURM = {key: names for key, names in catalogue("slurm_names")["variables"].items() if key != "note"}  # by option
# Options of Megatron Bridge's performance scripts, with the override or flag that each sets.
RECIPE_OPTIONS: dict[str, str] = catalogue("framework_keys")["nemo"]["options"]
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod},
    **dict.fromkeys((ast.Div, ast.FloorDiv), operator.floordiv),
}
_LONGEST = 1_000_000  # characters of a script, and of a value once its variables are written out
NOWHERE = -1
_CONTINUED = re.compile(r"\\\r?\n")
_PARTS = re.compile(rf"'[^']*'|\"[^\"]*\"|(?:{_COMPUTED.pattern}|[^\s\\])(?:{_COMPUTED.pattern}|\S)*|\\\S+")
_REST = re.compile(r"[ \t]*(\\?)[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)  # behind an item that ends its line
_BEFORE = re.compile(r"[ \t]*\\[ \t]*\r?\n[ \t]*$")  # a continued line before an item


class LocatedText(str):
    """A text of a shell script, and the offset in its file of each character; NOWHERE for one that is computed."""

    offsets: tuple[int, ...]

    def __new__(cls, text: str, offsets: tuple[int, ...]) -> "LocatedText":
        """Make a located text of a script; offsets has one for each character."""
        made = super().__new__(cls, text)
        made.offsets = offsets
        return made

    def part(self, start: int, end: int | None = None) -> "LocatedText":
        """Return the characters of a shell script's text from start to end, with their offsets."""
        return LocatedText(self[start:end], self.offsets[start:end])

    @property
    def span(self) -> tuple[int, int] | None:
        """First offset in the shell script and the one behind the last; None: text computed or of several places."""
        start = self.offsets[0] if self.offsets else NOWHERE
        if start == NOWHERE or self.offsets != tuple(range(start, start + len(self))):
            return None
        return start, start + len(self)


def _joined(pieces: list[LocatedText]) -> LocatedText:
    return LocatedText("".join(pieces), tuple(offset for piece in pieces for offset in piece.offsets))


class Word(NamedTuple):
    """A word of a shell script without its quotes, where it begins and ends with them, and what surrounds it."""

    text: LocatedText
    start: int
    end: int
    quote: str = ""  # that encloses it together with other words
    branch: bool = False  # of an if, case or test with &&, which is not followed
    printed: bool = False  # of an echo


class Item(NamedTuple):
    """A flag or an override as it is written in a shell script; `value` is None where it has none."""

    key: str
    value: LocatedText | None
    word: Word
    end: int  # behind the value as it is written
    is_flag: bool = True


@dataclass(slots=True)
class Script(RecipeText):
    """A shell or Slurm script as read, to be edited: variables by name, items in order, options of #SBATCH lines."""

    variables: dict[str, LocatedText] = field(default_factory=dict)
    assigned: dict[str, list[Word]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    sbatch: dict[str, LocatedText] = field(default_factory=dict)

    @property
    def flags(self) -> dict[str, LocatedText | None]:
        """Values of a shell script's flags without dashes, underscores as dashes save in dotted names; last holds."""
        return {item.key: item.value for item in self.items if item.is_flag}

    @property
    def overrides(self) -> dict[str, LocatedText]:
        """Values of a shell script's overrides `model.key=value` by dotted path; the last holds."""
        return {item.key: item.value for item in self.items if item.value is not None and not item.is_flag}

    def unsure(self, name: str, holding: Word | None = None) -> str:
        """Return where a shell script may give a variable, or one assignment's, another value; nothing if nowhere.

        To assign its own text with more added gives no other value; arithmetic on it does.
        """
        adds = re.compile(rf"\w+(\+=|=.*\$\{{?{name}\b(?!.*\)\)))", re.DOTALL)
        words = [word for word in self.assigned.get(name, ()) if not adds.match(self.text[word.start : word.end])]
        branch = any(word.branch for word in ([holding] if holding else words))
        if not branch and (len(words) < 2 or holding not in (None, *words)):
            return ""
        at = {word.start for word in (*words, holding) if word is not None}
        return f"assigned at {self.lines(at)}{', in a branch' * branch}"

    def lines(self, offsets: Iterable[int]) -> str:
        """Return the line numbers of offsets in a shell script, in words."""
        lines = sorted({self.line(offset) for offset in offsets})
        return f"line{'s' * (len(lines) > 1)} {' and '.join(map(str, lines))}"

    def line(self, offset: int) -> int:
        """Return the line number of an offset in a shell script, from 1."""
        return self.text.count("\n", 0, offset) + 1

    def why_unknown(self, value: str) -> str:
        """Return why the reader cannot tell what the shell puts in place of a script's value; nothing where it can."""
        if _COMPUTED.search(value):
            return "the shell computes it, and no command is run here"
        name = next((match[1] or match[3] for match in _VARIABLE.finditer(value)), None)
        if name is None:
            return "it is an argument of the script or function" if re.match(r"\$[1-9@*]", value) else ""
        loop = re.search(rf"^.*\b(?:for|select|read|getopts|mapfile|readarray)\b[^\n;]*\b{name}\b.*", self.text, re.M)
        if loop is None:
            return f"{name} is assigned nowhere in it"
        return f"{name} is set by line {self.line(loop.start())}: {loop[0].strip()[:80]}"

    def _named(self, key: str) -> list[Item]:
        return [item for item in self.items if item.key == key and item.is_flag == bool(self.dashes)]

    def place(self, key: str) -> int | None:
        """Return the offset in a shell script of the last flag or override of a name."""
        return next((item.word.start for item in reversed(self._named(key))), None)

    def change(self, key: str, value: Any, likes: tuple[str, ...]) -> None:
        """Set a flag or override of a shell script, add it next to the first of `likes`, or remove it where it is None.

        Raise InputError where the present one is in a branch, has several values, or is computed by the shell.
        """
        items, shown = self._named(key), f"{self.dashes}{key}"
        for item in items:
            if item.word.branch:
                problem = "is in a branch (if, case, &&), which is not followed"
                raise self.refused(item.word.start, shown, problem, self._by_hand(value))
        if isinstance(value, list) and not isinstance(value[0], str):
            problem = "is needed, and no flag takes a list of lists; give the .toml that the script starts by --like"
            raise InputError(f"{self.where}: {shown}: {problem}, or plan with --pin pp=1")
        if isinstance(value, tuple) or (value is None and self.dashes):  # several words have no one place
            for item in items:
                start, end, rest = item.word.start, item.end, self._is_alone(item)
                if rest:  # the last line of a command stays empty, as the one before it goes on to it
                    last = not rest[1] and _BEFORE.search(self.text, 0, start)
                    start, end = self.line_start(start), rest.end() if last else min(rest.end() + 1, len(self.text))
                elif self.text[start - 1 : start].isspace() and self.text[start - 1] != "\n":
                    start -= 1
                self.edit(start, end, "", f"{shown}: taken out")
            items = []
        if not items and value is not None:
            self._add(key, value, likes)
        elif items and not (value is True and items[-1].value is None):
            values = [item.value for item in items]
            spans = {None if value is None else value.span for value in values}
            if len(spans) > 1 or values[-1] is None:
                several = f"is given at {self.lines(item.word.start for item in items)}, perhaps to several runs"
                problem = several if len(items) > 1 else "has no value"
                raise self.refused(items[-1].word.start, shown, problem, self._by_hand(value))
            self.set_value(values[-1], self._written(value, values[-1]), shown, items[-1])

    def set_value(self, located: LocatedText, new: str, shown: str, item: Item | None = None) -> None:
        """Replace a shell script's value, or its variable's. InputError: computed, or assigned in a branch or twice."""
        if located == new:
            return
        at = item.word.start if item else max(0, *located.offsets[:1])
        if located.span is None:
            raise self.refused(at, shown, f"is computed by the shell (is {str(located)!r})", self._by_hand(new))
        start, end = located.span
        for name, words in self.assigned.items():
            holding = next((word for word in words if word.start <= start < word.end), None)
            if holding and (unsure := self.unsure(name, holding)):
                problem = f"its variable {name} is {unsure}, and which value holds is not known"
                raise self.refused(at, shown, problem, self._by_hand(new))
        if self.text[start - 1 : start] not in ("'", '"'):
            new = self._shell_text(new, item.word.quote if item else "", start, shown)
        self.edit(start, end, new, f"{shown}: {located} becomes {new}")

    def _by_hand(self, value: Any) -> str:
        return "take it out yourself" if value is None else f"write {self._written(value)} there yourself"

    def _written(self, value: Any, old: str = "") -> str:
        if isinstance(value, (list, tuple)):
            return " ".join(value) if isinstance(value, tuple) else f"[{','.join(value)}]"
        plain = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
        return plain.capitalize() if old in ("True", "False", "None") and plain in ("true", "false") else plain

    def _is_alone(self, item: Item) -> re.Match[str] | None:
        """Return what follows a flag or override that has a line of the script for itself."""
        rest = _REST.match(self.text, item.end)
        return rest if not self.text[self.line_start(item.word.start) : item.word.start].strip() else None

    def _shell_text(self, new: str, quote: str, at: int, shown: str) -> str:
        """Return a script's value as the shell needs it within a quote, or outside. InputError: it cannot say it."""
        if not set(new) & set("()|*[] "):
            return new
        inside = bool(self.dashes and quote)  # $ARGS takes flags as they are, sh -c reads them once more
        if (quote == "'" and not self.dashes) or (inside and re.search(r"\bsh\b.* -\w*c\b|\beval\b", self.text)):
            raise self.refused(at, shown, f"{new} needs quotes within quotes")
        return new if inside else f"'{new}'"

    def _add(self, key: str, value: Any, likes: tuple[str, ...]) -> None:
        like = next((item for key in likes for item in reversed(self._named(key)) if not item.word.branch), None)
        shown, written = f"{self.dashes}{key}", self._written(value)
        if like is None:
            raise self.refused(0, shown, f"is needed with {written} and has no like in it")
        if not isinstance(value, tuple):
            written = self._shell_text(written, like.word.quote, like.word.start, shown)
        equals = "=" if not self.dashes or "=" in self.text[like.word.start : like.end] else " "
        new = shown + ("" if value is True and self.dashes == "--" and "." not in key else equals + written)
        start, rest = self.line_start(like.word.start), self._is_alone(like)
        what = f"{shown}: added beside {self.dashes}{like.key} as {new}"
        if not rest:
            self.edit(like.end, like.end, f" {new}", what)
            return
        continued = " \\" if rest[1] or _BEFORE.search(self.text, 0, like.word.start) else ""
        self.edit(start, start, f"{self.text[start : like.word.start]}{new}{continued}{self.newline}", what)


def read_script(text: str, where: str) -> Script:
    """Read a shell script or a file of arguments. InputError: quotes do not close, or it is too long to be one."""
    if len(text) > _LONGEST:
        raise InputError(f"{where}: has more than {_LONGEST:,} characters; give the script or arguments themselves")
    script, words, before = Script(text, where), list[Word](), ""
    for match in _SBATCH.finditer(text):
        quoted = match[3][0] in "\"'"
        begin, end = match.start(3) + quoted, match.end(3) - quoted
        value = LocatedText(text[begin:end], tuple(range(begin, end)))
        short = {"N": "nodes", "n": "ntasks", "w": "nodelist", "m": "distribution"}
        name = match[1] or short.get(match[2], match[2])
        if name in ("gres", "gpus-per-node", "gpus-per-task"):  # gpu:h100:8
            name = "gpus-per-node" if name == "gres" and "gpu" in value else name
            value = value.part(value.rfind(":") + 1)
        script.sbatch[name] = value
        script.variables |= dict.fromkeys(_SLURM.get(name, ()), value)
    for word in _words(text, where):
        assigned = _ASSIGNED.fullmatch(word.text)
        content, end, default = word.text, word.end, _DEFAULT.fullmatch(word.text)
        if default:
            script.variables.setdefault(default[1], word.text.part(*default.span(2)))
        elif before == "for":  # each turn has another value, which is not known
            script.variables.pop(content, None)
        before = content
        ending = text[end - 1] == ";" and len(content) - len(content.rstrip(";"))
        content, end = content.part(0, len(content) - ending), end - ending
        if assigned and not assigned[3].startswith("("):
            name, value = assigned[1], _expanded(content.part(assigned.start(3)), script)
            first = [script.variables[name]] if assigned[2] and name in script.variables else []
            script.variables[name] = _joined([*first, value])
            script.assigned.setdefault(name, []).append(word)
            words += _split(value, word, text)  # ARGS="--a 1 --b 2"
            continue
        if assigned or content == "(":  # ARGS=(--a 1)
            content = content.part(assigned.start(3) if assigned else 0)
            content = content.part(len(content) - len(content.lstrip("(")))
        if text[end - 1] == ")" and "(" not in content:
            content, end = content.part(0, len(content.rstrip(")"))), end - (len(content) - len(content.rstrip(")")))
        content = _expanded(content, script)
        if not word.printed:
            words += _split(content, word, text) or [Word(content, end - len(content), end, "", word.branch)]
    script.items = list(_items(words, text))
    return script


def _split(value: LocatedText, word: Word, text: str) -> list[Word]:
    """Return the words of a script's quoted text that has flags or overrides, or none."""
    if not re.search(r"\s", value):
        return []
    parts = [value.part(match.start(), match.end()) for match in _PARTS.finditer(value)]
    starts = any(OVERRIDE.fullmatch(part) or _STARTS.match(part) for part in parts)
    if not parts or not (re.match("--[A-Za-z]", parts[0]) or starts):
        return []
    quote = "'" if text[value.offsets[0] - 1] == "'" else '"'
    return [Word(part, part.offsets[0], NOWHERE, quote, word.branch) for part in map(_unquoted, parts) if part]


def _unquoted(text: LocatedText) -> LocatedText:
    return text.part(1, -1) if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _items(words: list[Word], text: str) -> Iterator[Item]:
    options = RECIPE_OPTIONS if re.search(r"performance[/.]|\brun_script\.py|setup_experiment", text) else {}
    for i, word in enumerate(words):
        if override := OVERRIDE.fullmatch(word.text):
            value = _unquoted(word.text.part(override.start(2)))
            yield Item(override[1], value, word, _end(text, word, 1), is_flag=False)
        name, equals, _ = word.text.lstrip("-").partition("=")
        key = options.get(name, name if "." in name else name.replace("_", "-"))
        if not (word.text.startswith("--") and name) and not (word.text[:1] == "-" and name in options):
            continue
        is_flag, following = "." not in key or key == name, words[i + 1] if i + 1 < len(words) else None
        if equals:
            yield Item(key, _unquoted(word.text.part(word.text.find("=") + 1)), word, _end(text, word, 1), is_flag)
        elif following is None or following.text.startswith("--") or following.text.strip() in ("", ")", "\\"):
            yield Item(key, None, word, _end(text, word, 1), is_flag)
        else:
            modules = itertools.takewhile(lambda word: word.text.replace("-", "_") in MEGATRON_MODULES, words[i + 2 :])
            more = list(modules) if key == "recompute-modules" else []
            end = following.end if following.end != NOWHERE else _end(text, word, 2 + len(more))
            value = following.text.part(0, len(following.text.rstrip()))
            for other in more:
                value = _joined([value, LocatedText(" ", (NOWHERE,)), other.text])
            yield Item(key, value, word, more[-1].end if more and end == following.end else end, is_flag)


def _end(text: str, word: Word, count: int) -> int:
    """Return the offset in a script after `count` words of its text as written, of which `word` is the first."""
    if word.end != NOWHERE and count == 1:
        return word.end
    within = {'"': r"|'[^'\n]*'", "'": r'|"[^"\n]*"'}.get(word.quote, "")
    written = rf"(?:\$\{{[^}}]*\}}|{_COMPUTED.pattern}|[^\s\"'\\}}]|\\[^\s]{within})*+"
    found = re.compile(r"(?:\s|\\\r?\n)+".join([written] * count)).match(text, word.start)
    return found.end() if found else word.start + len(word.text)


def _words(text: str, where: str) -> Iterator[Word]:
    documents = [match.span() for match in _HEREDOC.finditer(text)]
    i, depth, command, printed, tested, guarded = 0, 0, True, False, False, False
    while i < len(text):
        if continued := _CONTINUED.match(text, i):
            i = continued.end()
        elif text[i] == "#":
            i = (text.find("\n", i) + 1 or len(text) + 1) - 1
        elif text[i].isspace():
            if text[i] == "\n":
                command, printed, tested, guarded = True, False, False, False
            i += 1
        else:
            start, (content, i) = i, _word(text, i, where)
            raw = text[start:i]
            if command and not any(first <= start < last for first, last in documents):
                depth += (raw in ("if", "case")) - (raw.rstrip(";") in ("fi", "esac") and depth > 0)
                printed, tested = raw in ("echo", "printf"), raw in ("[", "[[", "((", "test")
            guarded = guarded or (tested and raw in ("&&", "||"))  # what follows depends on the test
            command = raw.endswith(";") or raw in ("then", "do", "else", "&&", "||", "|", "{")
            yield Word(content, start, i, branch=depth > 0 or guarded, printed=printed)
            printed, guarded = printed and not command, guarded and not raw.endswith(";")


def _word(text: str, i: int, where: str) -> tuple[LocatedText, int]:
    """Return the word of a shell script that begins at an offset, without its quotes, and the offset behind it."""
    begun, offsets, quote = i, list[int](), ""
    while i < len(text) and (quote or not text[i].isspace()):
        computed = _COMPUTED.match(text, i) if quote != "'" and text[i] in "$`" else None
        if computed:
            offsets += range(i, computed.end())
            i = computed.end()
        elif text[i] == quote or (not quote and text[i] in "\"'"):
            begun, quote = i, "" if quote else text[i]
            i += 1
        elif text[i] == "\\" and quote != "'":
            continued = _CONTINUED.match(text, i)
            if continued and not quote:
                break
            kept = quote and not continued and text[i + 1 : i + 2] not in ('"', "\\", "`")
            offsets += [i] if kept else []
            offsets += range(i + 1, continued.end() if continued else min(i + 2, len(text)))
            i = continued.end() if continued else i + 2
        else:
            offsets.append(i)
            i += 1
    if quote:
        line = text.count("\n", 0, begun) + 1
        problem = f"cannot be read as a shell script or arguments (the quote of line {line} is not closed)"
        raise InputError(f"{where}: {problem}; close the quotes")
    return LocatedText("".join(text[offset] for offset in offsets), tuple(offsets)), min(i, len(text))


def _expanded(text: LocatedText, script: Script) -> LocatedText:
    """Replace variables assigned above in a script, and arithmetic, by their values; others stay."""
    variables = script.variables

    def value(match: re.Match[str]) -> LocatedText:
        own, group = variables.get(match[1] or match[3]), 0 if match[2] is None else 2
        return own if own is not None else text.part(*match.span(group))

    def computed(match: re.Match[str]) -> LocatedText:
        inner = _VARIABLE.sub(
            lambda found: variables.get(found[1] or found[3], found[2] if found[2] is not None else found[0]), match[1]
        )
        names = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: variables.get(word[0], word[0]), inner)
        try:
            if re.search(r"[^\d\s()+*/%-]", names):
                raise ValueError("no sum or product of whole numbers")
            result = str(_value(ast.parse(names.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return text.part(*match.span())  # stays as it is
        return LocatedText(result, (NOWHERE,) * len(result))

    text = _replaced(text, _ARITHMETIC, computed)
    for _ in range(5):  # variables in the defaults of variables
        before, text = text, _replaced(text, _VARIABLE, value)
        if len(text) > _LONGEST:
            raise InputError(f"{script.where}: a variable has more than {_LONGEST:,} characters; shorten it")
        if text == before:
            break
    return text


def _replaced(
    text: LocatedText, pattern: re.Pattern[str], value: Callable[[re.Match[str]], LocatedText]
) -> LocatedText:
    pieces, done = list[LocatedText](), 0
    for match in pattern.finditer(text):
        pieces += [text.part(done, match.start()), value(match)]
        done = match.end()
    pieces.append(text.part(done))
    return _joined(pieces)


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        if abs(result) <= 10**12:  # a number in a script is no larger
            return result
    raise ValueError(ast.dump(node)[:80])


def typed(text: str | None) -> Any:
    """Parse a shell script's word for a flag or override as True or False, None, a whole number, or else as text."""
    if text is None:  # a flag without a value is on
        return True
    plain = {"true": True, "false": False, "null": None}.get(text.lower(), None if text == "None" else text)
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else plain


class Started(NamedTuple):
    """GPUs that a shell or Slurm script starts, None: not stated; its statements of nodes and GPUs by name."""

    gpus: int | None
    nodes: Mapping[str, LocatedText]
    per_node: Mapping[str, LocatedText]
    total: Mapping[str, LocatedText]


def started(script: Script) -> Started:
    """Return nodes and GPUs that a shell or Slurm script states: torchrun, variables, srun, #SBATCH; one GPU a task."""
    known = {f"--{key}": value for key, value in script.flags.items() if value is not None} | script.variables
    known |= {f"#SBATCH --{key}": value for key, value in script.sbatch.items()}

    def of(*names: str) -> dict[str, LocatedText]:
        return {name: known[name] for name in names if re.fullmatch(r"(?=0*[1-9])[0-9]{1,9}", known.get(name, ""))}

    def first(stated: Mapping[str, LocatedText]) -> int:
        return next(map(int, stated.values()), 0)

    nodes = of("--nnodes", "NNODES", "NUM_NODES", "SLURM_NNODES", "--nodes", "#SBATCH --nodes")
    per_node = "GPUS_PER_NODE", "NPROC_PER_NODE", "GPU_PER_NODE", "NGPU"
    each = of("--nproc-per-node", *per_node, "--gpus-per-node", "#SBATCH --gpus-per-node")
    each |= {key: value for key, value in of("--gpus-per-task", "#SBATCH --gpus-per-task").items() if int(value) > 1}
    tasks, total = of("--ntasks-per-node", "#SBATCH --ntasks-per-node"), of("WORLD_SIZE", "--num-gpus")
    each |= {name: text for name, text in tasks.items() if first(each) in (0, int(text))}
    for name, text in of("#SBATCH --ntasks").items():
        if int(text) == first(nodes):
            nodes[name] = text
        elif int(text) == first(nodes) * first(each):
            total[name] = text
    whole = total.get("WORLD_SIZE") or total.get("--num-gpus")
    return Started(int(whole) if whole else first(nodes) * first(each) or None, nodes, each, total)
