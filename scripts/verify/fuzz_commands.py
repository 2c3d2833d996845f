"""What the fuzzer changes beside files: options, paths and the environment of commands, and keys of small solves."""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

import drawn_keys
from fuzz_cases import SUBJECTS, Subject, mutated

SOLVE_SECONDS = 2.0  # that a solve may take
KINDS = {"files": 60, "options": 18, "paths": 14, "environment": 4, "solve": 4}  # and how often each is drawn
NUMBERS = (
    *("nan", "inf", "-inf", "1e308", "-1e308", "1e-300", "0", "-1", "1", "2", "0.5", "1e9", "1e18", "²", "١", "0x10"),
    *("9" * 400, "1_000", " 1", "", "x", "1e400", "-0", "1,5", "2147483648", "18446744073709551616"),
)
WORDS = (
    *(
        "",
        " ",
        "x",
        "x" * 300,
        "é",
        "\udce9",
        "-",
        "--",
        "=",
        "a=",
        "=1",
        "a=b=c",
        "layout.tensor_parallel=²",
        "tp=nan",
    ),
    *("[", "n[1-4]", "n[1-999999999]", "{}", "null", "1/0", "1/²", "0/1", "a=1:2:0", "a=1:1e18:1", "a=log:1:2:1e9"),
    *("limits.budget_usd=x1e308", "limits.budget_usd=xnan", "limits.budget_usd=+1e400", "hardware.racks=-100%", "%s%n"),
    *(
        "hardware.racks=1,2",
        "workload.tokens=log:1e9:1e10:3",
        "nan,nan",
        "91,0",
        "40,-75",
        "pipeline=2,data=3",
        "\u2028",
    ),
)
PATHS = (
    *("", ".", "..", "/", "/dev/null", "/dev/full", "/proc/self/mem", "none/x.json", "folder", "folder/", "loop", "~"),
    *(
        "a" * 300,
        "a" * 300 + ".json",
        "é.json",
        "\udce9.json",
        "x.json#²",
        "rows.jsonl#²",
        "job.json#1",
        "-",
        "#",
        "a\nb",
    ),
    *(
        "link.json",
        "empty.json",
        "empty.csv",
        "empty.yaml",
        "none.jsonl",
        "case4.m/x",
        "\u202e.json",
        "con.",
        "x.parquet",
    ),
)
VARIABLES = {
    "COLUMNS": ("0", "-1", "²", "1", "9" * 400, "x", "", "1000000"),
    "LINES": ("²", "0", "-5"),
    "LC_ALL": ("C", "POSIX", "en_US.ISO-8859-1", "none"),
    "PYTHONIOENCODING": ("ascii", "utf-16", "latin-1"),
    "PYTHONUTF8": ("0",),
    "PYTHONCOERCECLOCALE": ("0",),
    "TMPDIR": ("/none", "", "a" * 300),
    "HOME": ("", "/none"),
    "TERM": ("", "dumb", "none"),
    "TZ": ("none", "²"),
    "OMP_NUM_THREADS": ("-1", "x", "999999"),
    "MPLBACKEND": ("none",),
    "NO_COLOR": ("1",),
    "FORCE_COLOR": ("²",),
}
# Options of the commands that the fuzzer runs: those that take a number, and those that take anything else.
OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "evaluate": ((), ("--pin", "--set", "--from-flags", "--constants", "-o")),
    "grid import": (
        ("--radius-km", "--headroom-share", "--energy-usd-per-mwh", "--spare-share", "--sites"),
        ("--at", "--positions", "--authorities", "--name", "--only", "--format", "--source", "--geojson", "-o"),
    ),
    "simulate": (
        ("--seeds", "--failed-links", "--hosts", "--bytes", "--group"),
        ("--pattern", "--transport", "--site"),
    ),
    "place": (
        ("--time-limit", "--seed", "--threads", "--nodes", "--gpus-per-node"),
        ("--mesh", "--busy", "--state", "--order", "--only", "--objective", "--topology-name", "--label", "-o"),
    ),
    "topology": ((), ("--format", "--topology-name", "--label", "-o")),
    "plot": ((), ("-x", "-y", "-o", "--group")),
    "fabric export": ((), ("--site", "--detail", "--format", "-o")),
    "fabric check": (("--show",), ("--site",)),
    "compare": ((), ("--diff", "--json")),
    "report": ((), ("-o",)),
    "solve": (
        ("--time-limit", "--gap", "--seed", "--threads"),
        ("--pin", "--set", "--solver", "--models", "--constants", "--log", "-o"),
    ),
    "explain": (("--time-limit", "--near", "--within"), ("--pin", "--set", "--log")),
    "limits": (
        ("--days", "--from", "--to", "--points", "--tolerance", "--time-limit", "--workers"),
        ("--set", "--plot"),
    ),
    "sweep": (("--time-limit", "--gap", "--seed", "--workers"), ("--vary", "--set", "--pairs", "--shard", "--plans")),
    "defragment": (("--leaves", "--time-limit"), ("--running", "--busy")),
    "preempt": (("--nodes", "--max-split", "--time-limit"), ("--mesh", "--running", "--busy")),
    "queue": (("--time-limit",), ("--job", "--busy")),
    "init": (("--sites", "--budget", "--racks", "--tokens"), ("--model", "--accelerator", "--name", "-o")),
}
# Commands that only a wrong option keeps from long work: what is wrong must be told at once.
WRONG_ONLY = {
    "solve": ("solve", "one-rack"),
    "explain": ("explain", "one-rack"),
    "limits": ("limits", "limits-h100"),
    "sweep": ("sweep", "one-rack", "-o", "rows.jsonl", "--vary", "hardware.racks=1,2"),
}
SURELY_WRONG = ("nan", "inf", "-inf", "1e308", "-1", "²", "x", "", "9" * 400)
LIGHT = {
    "defragment": ("defragment", "--topology", "topology.conf"),
    "preempt": ("preempt", "--topology", "topology.conf", "--nodes", "2"),
    "queue": ("queue", "--topology", "topology.conf", "--job", "job.json"),
    "init": ("init",),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A subject, what its file holds, the words of its command, and what of the environment is changed."""

    subject: Subject
    data: bytes
    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None  # its own limit of time
    apart: bool = False  # in a process of its own


def command_of(words: Sequence[str]) -> str:
    """Return the name of the command that words call."""
    return " ".join(words[:2]) if words[0] in ("grid", "fabric") else words[0]


def case(kind: str, subject: Subject, seed: int, number: int, r: random.Random) -> Case:
    """Return a case of a kind; only those of files use the subject that was drawn for it."""
    words = tuple(subject.file if w == "@" else w for w in subject.command)
    if kind == "options":
        return _with_options(subject, words, r)
    if kind == "paths":
        return _with_path(subject, words, r)
    if kind == "environment":
        some = r.sample(sorted(VARIABLES), r.randint(1, 2))
        changed = {name: r.choice(VARIABLES[name]) for name in some}
        return Case(subject, subject.text.encode(), words, changed, apart=r.random() < 0.1)
    if kind == "solve":
        data, keys = drawn_keys.instance(100_000 * seed + number)
        drawn = Subject("solve", "drawn.json", json.dumps(data), ("solve", "@", "--set", *keys))
        content = mutated(drawn, r) if r.random() < 0.4 else drawn.text.encode()
        solve = ("solve", "drawn.json", "-q", "--time-limit", str(SOLVE_SECONDS))
        return Case(drawn, content, solve, seconds=SOLVE_SECONDS + 2)
    return Case(subject, mutated(subject, r), words)


def _with_options(subject: Subject, words: tuple[str, ...], r: random.Random) -> Case:
    """Add one or two options with hostile values to a light command, or a wrong number to a long one."""
    chosen = r.random()
    if chosen < 0.25:
        name = r.choice(sorted(WRONG_ONLY))
        option, value = r.choice(OPTIONS[name][0]), r.choice(SURELY_WRONG)
        return Case(Subject("options", subject.file, "", WRONG_ONLY[name]), b"", (*WRONG_ONLY[name], option, value))
    if chosen < 0.5:
        name = r.choice(sorted(LIGHT))
        subject, words = Subject("options", subject.file, "", LIGHT[name]), LIGHT[name]
    numeric, others = OPTIONS.get(command_of(words), ((), ()))
    for _ in range(r.choice((1, 1, 2))):
        option = r.choice((*numeric, *numeric, *others) or ("--none",))
        words = (*words, option, r.choice(NUMBERS if option in numeric else (*WORDS, *PATHS)))
    return Case(Subject("options", subject.file, subject.text, words), subject.text.encode(), words)


def _with_path(subject: Subject, words: tuple[str, ...], r: random.Random) -> Case:
    """Put a hostile path in place of a file of a command, or of what it writes."""
    places = [i for i, w in enumerate(words) if "." in w and w != "0.2" and "=" not in w]
    i = r.choice(places)
    words = (*words[:i], r.choice(PATHS), *words[i + 1 :])
    return Case(Subject("paths", subject.file, subject.text, words), subject.text.encode(), words)


def prepare(folder: Path) -> None:
    """Make the places that hostile paths lead to."""
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "link.json").symlink_to("none.json")
    for name in ("empty.json", "empty.csv", "empty.yaml"):
        (folder / name).touch()


def kind_of(r: random.Random) -> str:
    """Draw a kind."""
    return r.choices(list(KINDS), list(KINDS.values()))[0]


ALL_GROUPS = (*dict.fromkeys(s.group for s in SUBJECTS), "options", "paths", "solve")
