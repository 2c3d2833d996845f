"""Write the references of docs/: the keys from the JSON Schemas, the commands from their help, the library's names.

Without options it writes docs/instance.md, plan.md, job.md, commands.md and library.md; with --check it fails where one
is stale.
"""

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer

import planner
from planner.cli.main import EXIT_CODES, app
from planner.cli.plan_commands import kept_types
from planner.files import write_atomically

DOCS = Path(__file__).resolve().parents[2] / "docs"
INTRODUCTIONS = {
    "instance": "What the user gives. Unknown keys are errors. A part that is missing is a decision not asked for: "
    "an instance without `grid` plans one cluster of `hardware.racks` racks, one without `network` has no fabric "
    "and no placement. A file is JSON, or YAML with comments; `planner init` writes a first one, `planner catalogue` "
    "lists what can be named ([formats.md](formats.md)). A plan's file is an instance too.",
    "plan": "What comes back: the instance as it was solved, a section for each decision with its certificate, the "
    "cost, and, where there is no plan, the rules in conflict. `planner check` verifies a plan from this file alone."
    "\n\nOn trust are, as nothing in the file recomputes them: sizes and seconds of the solvers; the bounds of "
    "certificates whose `checked` is `on trust` (pools, least cost to buy or to run, sites that nothing confirms, "
    "fibre that nothing confirms or that leaves traffic out); that the sites refused the columns that `proof` lists, "
    "and its most racks; the cheaper plan; the compute that provably misses the deadline; which rules of a conflict "
    "could be left out, and conflicts of fabric or fibre, and of sites where `checked` says so. "
    "`scripts/verify/changed_figures.py` changes every other figure and counts what passes.",
    "job": "What `planner place` places: either a mesh of ranks, or groups of several sizes. A plan's file is a job "
    "too. Below it, what `planner place --format json` and the library's `place` return; the file has beside it what "
    "schedulers take (hostlist, arguments).",
}
MADE = "<!-- Made by scripts/docs/make_reference.py from the JSON Schema: change the types, not this page. -->"
MADE_OF_CODE = "<!-- Made by scripts/docs/make_reference.py from the code: change that, not this page. -->"
STABLE = (
    "What `import planner` has is stable: names are added, none is renamed or removed without a line in the changelog. "
    "Modules below `planner` are not. Data are frozen pydantic models; [instance.md](instance.md), [plan.md](plan.md) "
    "and [job.md](job.md) have their keys, [calling.md](calling.md) has examples. Every call and method raises "
    "`PlannerError` where its input cannot be used; the message says where and what to do. A type that is built of "
    "values (`Instance(...)`, `Job.model_validate(...)`) raises pydantic's `ValidationError`, as any of its models."
    '\n\nAll data have `replaced`: `instance.replaced(limits__budget_usd=3e9, workload__model="llama3-70b")` returns '
    "other data with these values; None takes a value away. A topology may be given as a dict wherever one is due: "
    '`{"switches": [{"name": "leaf0", "parent": "spine", "nodes": ["n0", "n1"]}, {"name": "spine"}]}`, and with '
    '`"kind": "block"` and `"blocks": [{"name": "b0", "nodes": ["n0", "n1"]}]` one of blocks.'
)
PAGES = {"instance": ("instance",), "plan": ("plan",), "job": ("job", "placement")}
UNITS = (
    "Keys carry their unit: `_usd`, `_mw`, `_kw`, `_watts`, `_bytes`, `_seconds`, `_tokens`, `_flop`, `_m2`, `_km`, "
    "`_m`, `_gbps`, `_ms`, `_days`, `_months`, `_years`, `_fraction` and `_share` (0 to 1), `_factor`."
)
SOURCED = "May carry `source` (where the figures come from: one text, or a text by key) and `note`."


def reference(page: str) -> str:
    """Return a page: each root's table, then one for each type that it leads to."""
    roots = PAGES[page]
    same = " and ".join(f"`planner schema {what}`" for what in roots)
    parts = [
        f"# The {' and the '.join(roots)}",
        MADE,
        INTRODUCTIONS[page],
        f"{UNITS} The same as JSON Schema: {same}; also in `instances/schema/`.",
    ]
    seen: set[str] = set()
    for what in roots:
        schema = kept_types()[what].model_json_schema()
        kinds = {schema["title"]: schema, **schema.get("$defs", {})}
        fresh = [name for name in _reached(schema["title"], kinds) if name not in seen]
        seen.update(fresh)
        parts += [_section(name, kinds[name]) for name in fresh]
    return "\n\n".join(parts) + "\n"


def _reached(root: str, kinds: dict[str, Any]) -> Iterator[str]:
    """Yield the types in the order of first mention, each once; of a plan, the instance's own are left to its page."""
    waiting, seen = [root], {root}
    while waiting:
        name = waiting.pop(0)
        yield name
        for found in _mentioned(kinds[name]):
            if found not in seen and found != "Instance":
                seen.add(found)
                waiting.append(found)


def _mentioned(node: Any) -> Iterator[str]:
    """Yield the names of the types that a piece of schema refers to."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield _name(node)
        for key, value in node.items():
            if key != "$defs":
                yield from _mentioned(value)
    elif isinstance(node, list):
        for value in node:
            yield from _mentioned(value)


def _name(node: dict[str, Any]) -> str:
    return str(node["$ref"]).rpartition("/")[2]


def _section(name: str, kind: dict[str, Any]) -> str:
    """Return a type's heading, its sentence and the table of its keys."""
    required = {*kind.get("required", ()), *kind.get("then", {}).get("required", ())}
    own = dict(kind.get("properties", {}))
    sourced = own.pop("source", None) is not None and own.pop("note", None) is not None
    rows = ["| key | type | default | what it is |", "|---|---|---|---|"]
    for key, value in own.items():
        default = "required" if key in required else _default(value)
        rows.append(f"| `{key}` | {_type(value)} | {default} | {_cell(value.get('description', ''))} |")
    words = f"{_cell(kind.get('description', ''))} {SOURCED if sourced else ''}".strip()
    return "\n\n".join([f"## {name}", words, "\n".join(rows)])


def _default(value: dict[str, Any]) -> str:
    """Return a default as it is written in JSON; a part's own defaults are in its table."""
    if "default" not in value:
        return "empty"
    default = value["default"]
    if isinstance(default, dict) and default:
        return "its defaults"
    return f"`{json.dumps(default)}`"


def _type(value: dict[str, Any]) -> str:
    """Say what a key takes: a type's name is a link to its table."""
    if "$ref" in value:
        name = _name(value)
        return f"[{name}](instance.md)" if name == "Instance" else f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_type(v) for v in value["anyOf"])
    if "enum" in value or "const" in value:
        return " or ".join(f"`{json.dumps(v)}`" for v in value.get("enum", [value.get("const")]))
    kind = value.get("type")
    if kind == "array":
        items = value.get("items") or (value.get("prefixItems") or [{}])[0]
        return f"list of {_type(items)}"
    if kind == "object":
        inner = value.get("additionalProperties")
        return f"object of {_type(inner)}" if isinstance(inner, dict) and inner else "object"
    return f"{kind or 'any'}{_range(value)}"


def _range(value: dict[str, Any]) -> str:
    """Say the limits of a number."""
    words = {"exclusiveMinimum": "> {}", "minimum": "≥ {}", "exclusiveMaximum": "< {}", "maximum": "≤ {}"}
    found = [text.format(f"{value[key]:g}") for key, text in words.items() if key in value]
    return f" {', '.join(found)}" if found else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def commands_page() -> str:
    """Return the page of the command line: every command with its arguments and options, as its help has them."""
    group = typer.main.get_command(app)
    parts = ["# Commands", MADE_OF_CODE, f"`planner COMMAND --help` says the same. {EXIT_CODES}"]
    parts += [_command(name, command) for name, command in _commands(group, ())]
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group and of the groups in it, each with its whole name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*above, name))
        else:
            yield " ".join((*above, name)), command


def _command(name: str, command: Any) -> str:
    """Return a command's heading, its sentence and the table of what it takes."""
    rows = ["| argument or option | default | what it is |", "|---|---|---|"]
    for p in command.params:
        if p.name == "help":
            continue
        shown = f"`{(p.name or '').upper()}`" if p.param_type_name == "argument" else f"`{', '.join(p.opts)}`"
        plain = p.default in (None, False, "", ()) or callable(p.default)
        default = "required" if p.required else "" if plain else f"`{p.default}`"
        rows.append(f"| {shown} | {default} | {_cell(getattr(p, 'help', '') or '')} |")
    return "\n\n".join([f"## planner {name}", _cell(command.help or ""), "\n".join(rows)])


def library_page() -> str:
    """Return the page of the public names of the package: sentences of types, calls and methods with docstrings."""
    calls, methods, kinds = list[str](), list[str](), list[str]()
    for name in planner.__all__:
        value = getattr(planner, name)
        text = inspect.cleandoc(value.__doc__ or "")
        if inspect.isfunction(value):
            calls.append(_call(f"planner.{name}", value))
        elif inspect.isclass(value):
            kinds.append(f"| `planner.{name}` | {_cell(text.partition(chr(10))[0])} |")
            own = [(n, x) for n, x in vars(value).items() if not n.startswith("_") and inspect.isfunction(x)]
            methods += [_call(f"planner.{name}.{n}", x) for n, x in own]
    table = "\n".join(["| type | what it is |", "|---|---|", *kinds])
    return "\n\n".join(["# The library", MADE_OF_CODE, STABLE, table, *calls, *methods]) + "\n"


def _call(name: str, value: Any) -> str:
    """Return the heading of a call or method, its signature and its docstring."""
    text = inspect.cleandoc(value.__doc__ or "")
    return f"## {name}\n\n```text\n{name}({_signature(value)})\n```\n\n```text\n{text}\n```"


def _signature(call: Callable[..., Any]) -> str:
    """Write the parameters of a call with their defaults; those by keyword alone follow a star."""
    parts: list[str] = []
    for p in inspect.signature(call).parameters.values():
        if p.name == "self":
            continue
        if p.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default!r}")
    return ", ".join(parts)


TEXTS: dict[str, Callable[[], str]] = {
    **{page: partial(reference, page) for page in PAGES},
    "commands": commands_page,
    "library": library_page,
}


def main() -> int:
    """Write the pages, or say which are not current."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is not current")
    checking = parser.parse_args().check
    texts = {page: text() for page, text in TEXTS.items()}
    files = {page: DOCS / f"{page}.md" for page in TEXTS}
    stale = [page for page, file in files.items() if not file.is_file() or file.read_text() != texts[page]]
    for page in stale:
        if checking:
            print(f"docs/{page}.md is not current; run python scripts/docs/make_reference.py")
        else:
            write_atomically(files[page], texts[page])
            print(f"wrote docs/{page}.md")
    return 1 if checking and stale else 0


if __name__ == "__main__":
    sys.exit(main())
