"""Read the flags of a shell script or of a file of arguments: words, simple variables, whole-number arithmetic."""

import ast
import operator
import re
import shlex
from collections.abc import Callable, Mapping

from planner.errors import InputError

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)")
_ARITHMETIC = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MOST = 10**12  # of what arithmetic may come to
Flags = dict[str, str | None]  # the value behind a flag; None: none


def read_flags(text: str, where: str) -> tuple[Flags, dict[str, str]]:
    """Return the flags by name without their dashes, and the variables that are assigned; nothing is run.

    Raises
    ------
    InputError
        The quotes do not close.
    """
    variables: dict[str, str] = {}
    words: list[str] = []
    joined = re.sub(r"\\\n", " ", text)
    for line in _lines(joined, where):
        for word in line:
            assigned = _ASSIGNED.fullmatch(word)
            if assigned and not assigned[2].startswith("("):
                variables[assigned[1]] = _expanded(assigned[2].rstrip(";"), variables)
                if assigned[2].lstrip().startswith("--"):  # ARGS="--a 1 --b 2"
                    words += shlex.split(variables[assigned[1]])
                continue
            bare = word.partition("=(")[2] if assigned else word
            words.append(_expanded(bare.lstrip("(") if bare != word or bare == "(" else bare, variables))
    return _flags(words), variables


def _lines(text: str, where: str) -> list[list[str]]:
    """Return the words of each command of a script; comments are left out, quotes may span lines."""
    lexer = shlex.shlex(_ARITHMETIC.sub(lambda m: m[0].replace(" ", ""), text), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        return [list(lexer)]
    except ValueError as error:
        raise InputError(
            f"{where}: cannot be read as a shell script or arguments ({error}); close the quotes"
        ) from None


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Put the values of variables that are assigned above, and of arithmetic, in their place; others stay."""

    def value(m: re.Match[str]) -> str:
        return variables.get(m[1] or m[3], m[2] if m[2] is not None else m[0])

    def computed(m: re.Match[str]) -> str:
        names = re.sub(r"\b[A-Za-z_]\w*\b", lambda n: variables.get(n[0], n[0]), _VARIABLE.sub(value, m[1]))
        result = _integer(names)
        return m[0] if result is None else str(result)

    return _VARIABLE.sub(value, _ARITHMETIC.sub(computed, text))


def _integer(text: str) -> int | None:
    """Return the value of sums and products of whole numbers; None of anything else."""
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return value


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        if abs(result) <= _MOST:
            return result
    raise ValueError(ast.dump(node)[:80])


def _flags(words: list[str]) -> Flags:
    """Return each --name with the word behind it that is no flag itself; the last of two holds, as in argparse."""
    flags: Flags = {}
    for i, word in enumerate(words):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].rstrip(")").partition("=")
        following = words[i + 1].rstrip() if i + 1 < len(words) else "--"
        behind = None if following.startswith("--") or following in (")", "\\") else following
        flags[name.replace("_", "-")] = value if equals else behind
    return flags
