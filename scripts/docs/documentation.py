"""Run the commands of the documentation, page by page, and write their real output into it.

A page's fenced blocks run in order in a fresh folder with links to the repository's `instances` and `scripts`:

- ```console: `$ command` lines, each with the output below it, run by bash in the repository's environment;
- ```python: run by Python; a ```text block right below it is its output;
- a block below `<!-- file NAME -->`: written to that file.

Other words of the comment above a block, by commas: `slow` (its commands are only parsed here), `exit N` (the status
that its last command ends with; 0 otherwise), `stable` (the tests compare the output, but for times).
"""

import argparse
import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.files import write_atomically

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ("placement-calls.md",)  # followed by a test of its own
PAGES = ("README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md") if p.name not in ELSEWHERE))
BLOCK = re.compile(
    r"(?:<!-- (?P<words>[^\n]*?) -->\n+)?```(?P<language>console|python|json|csv|text|conf)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OUTPUT = re.compile(r"\n\s*```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMES = re.compile(r"\b\d[\d,.]*(?= (?:s|ms|points/min)\b)")
WORD = re.compile(r"slow|stable|exit \d+|file \S+")
READ = re.compile(r"[\w./-]+\.(?:json|jsonl|csv|py|m|conf|yaml|html|svg|txt)")
WRITES = ("tee", "-o", "--output", ">", "--into", "--plans", "--geojson", "--plot")
OPENED = re.compile(r"open\('([^']+)', 'w'\)")
SECONDS, SLOW_SECONDS = 600, 3600  # that a command may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    body: str
    words: tuple[str, ...]
    span: tuple[int, int]  # of the body in the page
    output: re.Match[str] | None = None  # of a program, as the page shows it

    @property
    def where(self) -> str:
        """Name it for a reader."""
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that it is the content of."""
        return next((w.removeprefix("file ") for w in self.words if w.startswith("file ")), None)

    @property
    def status(self) -> int:
        """What its last command ends with."""
        return next((int(w.removeprefix("exit ")) for w in self.words if w.startswith("exit ")), 0)

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Its commands, each with its output; one goes on after a backslash, and until its double quotes are closed."""
        found: list[tuple[str, list[str]]] = []
        lines = iter(self.body.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\") or command.count('"') % 2:
                    command = command + "\n" + next(lines)
                found.append((command, []))
            elif found:
                found[-1][1].append(line)
        return found


def blocks(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of a page that are commands, programs or files."""
    for match in BLOCK.finditer(text):
        words = tuple(w.strip() for w in (match["words"] or "").split(","))
        known = words if all(WORD.fullmatch(w) for w in words) else ()
        line = text.count("\n", 0, match.start("body"))
        below, language = OUTPUT.match(text, match.end()), match["language"]
        own: dict[str, Any] = {"line": line, "words": known, "span": match.span("body"), "output": below}
        block = Block(page=page, language=language, body=match["body"], **own)
        if block.file or block.language in ("console", "python"):
            yield block


@dataclass(frozen=True, slots=True)
class Ran:
    """A command or program as it went."""

    command: str
    shown: list[str]
    printed: list[str]
    status: int
    errors: str


Here = Callable[[str, str, Path], subprocess.CompletedProcess[str] | None]  # language, command, folder


def run(block: Block, folder: Path, python: str = sys.executable, here: Here | None = None) -> list[Ran]:
    """Follow a block in a folder, in the environment of a Python: this one's, or one that knows no checkout.

    `here` runs what it can in its own way and returns None for the rest.
    """
    environment = {**os.environ, "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)
    if block.file:
        (folder / block.file).write_text(block.body)
        return []
    output = block.output[1].splitlines() if block.output else []
    asked = [(block.body, output)] if block.language == "python" else block.commands
    found, seconds = [], SLOW_SECONDS if "slow" in block.words else SECONDS
    for command, shown in asked:
        program = [python, "-c", command] if block.language == "python" else ["bash", "-o", "pipefail", "-c", command]
        out = here(block.language, command, folder) if here is not None else None
        if out is None:
            out = subprocess.run(
                program, capture_output=True, text=True, cwd=folder, env=environment, timeout=seconds, check=False
            )
        found.append(
            Ran(
                command,
                shown,
                [line.rstrip() for line in out.stdout.rstrip().splitlines()],
                out.returncode,
                out.stderr.strip(),
            )
        )
    return found


def prepare(folder: Path) -> None:
    """Give a folder what the documentation's commands expect of the repository's top."""
    for name in ("instances", "scripts"):
        (folder / name).symlink_to(ROOT / name)


def timeless(lines: list[str]) -> list[str]:
    """Return lines without their times."""
    return [TIMES.sub("#", line.rstrip()) for line in lines]


def written(command: str) -> set[str]:
    """Return the files that a command says it writes."""
    return {b for a, b in itertools.pairwise(_words(command)) if a in WRITES} | set(OPENED.findall(command))


def faults(command: str, there: set[str]) -> Iterator[str]:
    """Name what is wrong in a command: unknown commands and options, files neither in the repository nor `there`."""
    import typer

    from planner.cli.main import app

    words = _words(command)
    for word in words:
        if READ.fullmatch(word) and word not in there | written(command) and not (ROOT / word).exists():
            yield f"{word}: there is no such file"
    for part in _split(words, ("|", "&&", ";", ">")):
        if part and part[0] == "planner":
            yield from _unknown(typer.main.get_command(app), part[1:], "planner")


def _words(command: str) -> list[str]:
    """Split a command as a shell does, its operators apart."""
    words = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return list(words)


def _split(words: list[str], at: tuple[str, ...]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word in at:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _unknown(command: Any, words: list[str], name: str) -> Iterator[str]:
    """Follow the words of one command through its groups, and name commands and options that there are not."""
    inner = getattr(command, "commands", None)
    if inner is not None:
        if not words or words[0] not in inner:
            yield f"{name}: has no command {words[0] if words else ''!r}"
        else:
            yield from _unknown(inner[words[0]], words[1:], f"{name} {words[0]}")
        return
    options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
    for word in words:
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit() and word.partition("=")[0] not in options:
            yield f"{name}: has no option {word}"


def renewed(page: str, *, slow: bool) -> str:
    """Return a page with the output of its commands as it is now."""
    text = (ROOT / page).read_text()
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        fresh: list[tuple[tuple[int, int], str]] = []
        for block in blocks(page, text):
            if "slow" in block.words and not slow:
                continue
            ran = run(block, Path(name))
            for r, status in zip(ran, [0] * (len(ran) - 1) + [block.status], strict=False):
                if r.status != status:
                    print(
                        f"{block.where}: {r.command!r} ended with {r.status}, not {status}\n{r.errors}", file=sys.stderr
                    )
            if block.output and ran and block.language == "python":
                fresh.append((block.output.span(1), "".join(f"{line}\n" for r in ran for line in r.printed)))
            if block.language == "console" and not block.file:
                fresh.append(
                    (block.span, "".join(f"$ {r.command}\n" + "".join(f"{line}\n" for line in r.printed) for r in ran))
                )
    for (start, end), body in reversed(fresh):
        text = text[:start] + body + text[end:]
    return text


def main() -> None:
    """Renew the pages asked for, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", help=f"of {', '.join(PAGES)}; all unless given")
    parser.add_argument("--slow", action="store_true", help="run the slow ones too")
    asked = parser.parse_args()
    for page in asked.pages or PAGES:
        text = renewed(page, slow=asked.slow)
        changed = text != (ROOT / page).read_text()
        write_atomically(ROOT / page, text)
        print(f"{page}: {'renewed' if changed else 'as it was'}")


if __name__ == "__main__":
    main()
