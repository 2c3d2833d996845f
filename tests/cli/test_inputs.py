"""Files, numbers and options that cannot be used are refused by place and remedy; a slice of the fuzzer over them."""

import inspect
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fuzz
import fuzz_commands
import pytest
from commands import invoke, refusal
from each_case import each
from fuzz_cases import SUBJECTS
from import_cases import CASE
from tiers import slow
from typer.main import get_command
from worked_plan import small, with_entries

import planner
from planner.argument_ranges import KINDS, RANGES
from planner.cli.console import read_pins
from planner.cli.main import app
from planner.cluster.hostlists import MAX_NAMES
from planner.cluster.job import read_job
from planner.errors import InputError
from planner.files import MAX_BYTES, MAX_DEPTH, MAX_DIGITS, read_json, read_text
from planner.formats.cluster_files import read_states, read_topology
from planner.imports.command_options import GridOptions
from planner.imports.read_grid import import_grid
from planner.plan.plan_files import read_plan
from planner.planning.load import load_instance
from planner.report.comparison import side_of, sides_of_rows
from planner.scheduling.cluster_changes import defragment, place_queue, preempt, replace, resize
from planner.simulation.simulate import flows_from_file, simulation_request
from planner.sweeps.axes import points_of, read_changes, read_pairs
from planner.sweeps.row_store import read_flat_rows, read_rows

PLAN = small()
ROOT = Path(__file__).parents[2]
CONF = "SwitchName=leaf1 Nodes=n[1-4]\nSwitchName=leaf2 Nodes=n[5-8]\nSwitchName=top Switches=leaf[1-2]\n"
JOB = '{"name": "a", "mesh": {"pipeline": 2, "data": 2}}'
GRAPH = '{"instances": [{"id": "a", "network_layers": ["s1"]}, {"id": "b", "network_layers": ["s1"]}]}'


def simulated(path: Path) -> Any:
    """Read a fabric as `planner simulate` does."""
    return simulation_request(path, "permutation", "ecmp", site=None, failed=0, hosts=None, size=None, group=None)


def flows(path: Path) -> Any:
    """Read flows of a CSV file as `planner simulate --pattern` does."""
    import numpy as np

    return flows_from_file(path, np.arange(4))


# Of each reader, the ending that its file is recognised by.
JSON_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "instance": (".json", load_instance), "plan": (".json", read_plan), "job": (".json", read_job),
    "topology": (".json", read_topology), "states": (".json", read_states), "fabric": (".json", simulated),
    "compare": (".json", lambda p: side_of("a", read_plan(p))), "pairs": (".jsonl", read_pairs),
    "rows": (".jsonl", read_rows), "drawn": (".jsonl", read_flat_rows),
}  # fmt: skip
TABLE_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "case": (".m", lambda p: import_grid([p], "auto", GridOptions())),
    "table": (".csv", lambda p: import_grid([p], "auto", GridOptions())), "pairs-csv": (".csv", read_pairs),
    "drawn-csv": (".csv", read_flat_rows), "compare-csv": (".csv", lambda p: sides_of_rows(p, None, several=False)),
    "flows": (".csv", flows), "conf": (".conf", read_topology), "yaml": (".yaml", read_topology),
    "sinfo": (".txt", read_states),
}  # fmt: skip
READERS = JSON_READERS | TABLE_READERS
BYTES = {
    "utf-16": '{"a": 1}\n'.encode("utf-16"), "utf-16 without a mark": "a,b\n1,2\n".encode("utf-16-le"),
    "binary": bytes(range(256)) * 4, "zeros": bytes(64), "no utf-8": b'{"a": "\xff"}\n',
}  # fmt: skip
DEEP = MAX_DEPTH + 1
JSON = {
    "deep lists": "[" * 100_000 + "]" * 100_000, "deep objects": '{"a": ' * 5_000 + "1" + "}" * 5_000,
    "just too deep": '{"a": ' * DEEP + "1" + "}" * DEEP, "5,000 digits": '{"name": ' + "9" * 5_000 + "}",
    "too many digits": '{"name": ' + "9" * (MAX_DIGITS + 1) + "}", "beyond a float": '{"name": 1e999}',
    "NaN": '{"name": NaN}', "infinity": '{"name": -Infinity}', "key twice": '{"name": 1, "name": 2}',
    "half a surrogate": '{"name": "\\ud800"}', "cut off": '{"name": "a', "a number": "3", "null": "null",
    "a list": "[[]]",
}  # fmt: skip


def refused(reader: Callable[[Path], Any], path: Path) -> str:
    """Return the message of a refused file, which names the file and what to do."""
    with pytest.raises(InputError) as error:
        result = reader(path)
        if isinstance(result, Iterator):
            list(result)
    message = str(error.value)
    assert path.name in message
    assert ";" in message, message
    return message


@each("name", READERS)
def test_what_is_no_text_is_refused(tmp_path: Path, name: str) -> None:
    """Another encoding, binary data and a folder are named by every reader."""
    ending, reader = READERS[name]
    for i, data in enumerate(BYTES.values()):
        path = tmp_path / f"{i}{ending}"
        path.write_bytes(data)
        refused(reader, path)
    folder = tmp_path / f"folder{ending}"
    folder.mkdir()
    assert "folder" in refused(reader, folder)
    refused(reader, tmp_path / f"missing{ending}")


@each("name", [n for n in READERS if n != "rows"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    """A file of nothing, and one of a line's end alone, hold no instance, plan, topology or table."""
    ending, reader = READERS[name]
    for i, text in enumerate(("", "\n", "\ufeff")):
        path = tmp_path / f"{i}{ending}"
        path.write_text(text, encoding="utf-8")
        refused(reader, path)


@each("name", JSON_READERS)
def test_json_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    """Depth, digits, numbers that are none, keys twice and half characters end in a message."""
    ending, reader = JSON_READERS[name]
    for fault, text in JSON.items():
        path = tmp_path / f"{fault}{ending}"
        path.write_text(text + "\n", encoding="utf-8")
        refused(reader, path)


@each("value", ["9" * 5_000, "[" * 100_000, "1e999", "NaN"])
def test_values_of_options_are_limited_too(value: str) -> None:
    """A value of --pin, --set and --vary is read like a file's: no traceback for depth or digits."""
    for option, read in (("--pin", read_pins), ("--set", read_changes)):
        with pytest.raises(InputError, match=rf"{option} hardware\.racks"):
            read([f"hardware.racks={value}"])
    with pytest.raises(InputError, match=r"hardware\.racks"):
        points_of({"hardware.racks": value})
    with pytest.raises(InputError, match=r"--pin tp: is given twice"):
        read_pins(["tp=4", "tp=8"])


def test_no_command_writes_over_what_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(JOB)
    for reading in (["place", "--topology", "x.conf", "--job"], ["export", "launch"], ["report"]):
        told = refusal(invoke(*reading, path, "-o", tmp_path / "." / "job.json"))
        assert "job.json: is read by this command" in told and path.read_text() == JOB
    for option in (["solve", path, "--log"], ["frontier", path, "--plot"]):
        assert f"and {option[-1]} would write over it" in refusal(invoke(*option, path))


def test_the_limits_leave_room(tmp_path: Path) -> None:
    """What stands just within depth and digits is read, and a byte order mark is no fault."""
    path = tmp_path / "file.json"
    path.write_text('{"a": ' * (MAX_DEPTH - 1) + "9" * MAX_DIGITS + "}" * (MAX_DEPTH - 1))
    assert read_json(path)["a"]
    path.write_text(JOB, encoding="utf-8-sig")
    assert read_job(path).nodes == 4


def test_a_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that never ends is read up to the limit and no further."""
    assert MAX_BYTES >= 1 << 28
    monkeypatch.setattr("planner.files.MAX_BYTES", 1 << 20)
    with pytest.raises(InputError, match=r"/dev/zero: is larger than 1 MiB; "):
        read_text(Path("/dev/zero"))


def test_the_names_of_a_file_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that each stand for few enough names are too many together."""
    assert MAX_NAMES >= 1_000_000
    monkeypatch.setattr("planner.formats.topologies.MAX_NAMES", 1_000)
    conf = "".join(f"SwitchName=leaf{i} Nodes=n{i}x[1-400]\n" for i in range(3))
    switches = "".join(f"      - switch: leaf{i}\n        nodes: n{i}x[1-400]\n" for i in range(3))
    yaml = f"- topology: a\n  tree:\n    switches:\n{switches}"
    sinfo = "".join(f"n{i}x[1-400] idle\n" for i in range(3))
    for name, text, reader in (
        ("a.conf", conf, read_topology), ("a.yaml", yaml, read_topology), ("a.txt", sinfo, read_states)
    ):  # fmt: skip
        path = tmp_path / name
        path.write_text(text)
        assert "1,000 names" in refused(reader, path)


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    """A separator of Unicode in a comment of a case does not begin a line of code."""
    path = tmp_path / "case4.m"
    for text in (CASE.replace("% base", "% base\u2028mpc.bus = 3;"), CASE.replace("\n", "\r\n")):
        path.write_bytes(text.encode())
        assert import_grid([path], "auto", GridOptions(at="40,-75")).grid.nodes


@contextmanager
def piped(text: str) -> Iterator[str]:
    """Put a text into a pipe and return a name of it, as a shell does for <(…): a second opening reads nothing."""
    source, target = os.pipe()
    try:
        with os.fdopen(target, "wb") as file:
            assert file.write(text.encode()) < 65_536  # what a pipe keeps without a reader
        yield f"/dev/fd/{source}"
    finally:
        os.close(source)


STATES = '{"nodes": [{"name": "n1", "state": ["IDLE"]}, {"name": "n2", "state": ["DOWN"]}]}'
SPEEDS = "SwitchName=a Nodes=n1 LinkSpeed=1\nSwitchName=b Nodes=n2 LinkSpeed=4\nSwitchName=c Switches=a,b\n"
SLURM_JOBS = '{"jobs": [{"job_id": 1, "job_state": "RUNNING", "nodes": "n1"}]}'
PREEMPT = ["preempt", "--topology", "topology.conf", "--running", "-", "--nodes", "1"]
PIPED = {
    "check": (PLAN.model_dump_json(), ["check", "-"]),
    "show": (PLAN.model_dump_json(), ["show", "-"]),
    "simulate": ('{"hosts": 16, "ports_per_switch": 4}', ["simulate", "-"]),
    "simulate a plan": (PLAN.model_dump_json(), ["simulate", "-", "--pattern", "p2p"]),
    "topology.conf": (CONF, ["topology", "-"]),
    "speeds of links": (SPEEDS, ["place", "--topology", "-", "--job", "one.json"]),
    "graph": (GRAPH, ["topology", "-"]),
    "a plan's topology": (PLAN.model_dump_json(), ["topology", "-"]),
    "job": (JOB, ["place", "--topology", "topology.conf", "--job", "-"]),
    "states": (STATES, ["place", "--topology", "topology.conf", "--job", "one.json", "--state", "-"]),
    "squeue": (SLURM_JOBS, PREEMPT),
    "scontrol": ("JobId=1 JobState=RUNNING NodeList=n1\n", PREEMPT),
}


@pytest.mark.parametrize("name", PIPED)
def test_a_pipe_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A command takes each of its files from a pipe, which cannot be opened twice."""
    monkeypatch.chdir(tmp_path)
    Path("topology.conf").write_text(CONF)
    Path("one.json").write_text('{"name": "b", "mesh": {"data": 1}}')
    text, command = PIPED[name]
    with piped(text) as pipe:
        done = invoke(*[pipe if word == "-" else word for word in command])
    assert done.exit_code == 0, (done.exception, done.output)
    # The note on a topology is of the text that was read of it, not of a second reading.
    speed = f"{pipe}: not modelled: LinkSpeed (is 1, 4)"
    assert (speed in done.stderr) == (name == "speeds of links")


def test_a_pareto_and_a_step_time_take_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of a file is seen in what was read of it, not by opening it a second time."""
    from planner.scheduling import placement_step_time

    seen: list[Any] = []
    monkeypatch.setattr(placement_step_time, "clock_of", lambda _, plan, __: seen.append(plan))
    monkeypatch.setattr(placement_step_time, "fastest", lambda *_, **__: None)
    with piped(PLAN.model_dump_json()) as pipe:
        placement_step_time.place_by_time(None, pipe)  # type: ignore[arg-type]
    monkeypatch.setattr("planner.planning.site_fabrics.frontier", lambda plan, **_: seen.append(plan) or ())
    with piped(PLAN.model_dump_json()) as pipe:
        assert invoke("fabric", "pareto", pipe).exit_code == 3
    assert seen == [PLAN, PLAN]


PINS = [f"--pin=layout.{k}={v}" for k, v in {"tensor_parallel": 2, "pipeline_parallel": 6, "data_parallel": 6}.items()]
MORE = [f"--pin=layout.{k}={v}" for k, v in {"zero_stage": 1, "microbatch_sequences": 1, "recompute": "full"}.items()]
EVALUATE = ["evaluate", "x.json", *PINS, *MORE, "--pin=layout.microbatches_per_step=12"]
PLACE = ["place", "--topology", "topology.conf", "--job"]


def instance(name: str, **parts: Any) -> dict[str, Any]:
    """Return a shipped instance with figures of its parts changed: `hardware__racks` is hardware.racks."""
    return with_entries(read_json(ROOT / "instances" / f"{name}.json"), dotted(parts))


def plan(**parts: Any) -> dict[str, Any]:
    """Return the worked plan with figures changed."""
    return with_entries(json.loads(small().model_dump_json()), dotted(parts))


def dotted(parts: dict[str, Any]) -> dict[str, Any]:
    return {path.replace("__", "."): value for path, value in parts.items()}


FILES: dict[str, tuple[Any, list[str], str]] = {
    "rules that are no object": (lambda: instance("two-sites-405b", grid__rules=[]),
     ["grid", "import", "case4.m", "--at", "40,-75", "--into", "x.json"], "grid.rules"),
    "a family beyond 64 bits": (lambda: instance("limits-h100", workload__choose__family={"head_size": 10**20}),
     EVALUATE, "workload.choose"),
    "racks that cannot be simulated": (lambda: plan(placement__sites__e1__assignment__0__racks="as stated"),
     ["simulate", "x.json", "--pattern", "allreduce"], "'as stated' is not a list of racks"),
    "a stage that the layout has not": (lambda: plan(placement__sites__e1__assignment__0__stage=10**20),
     ["simulate", "x.json", "--pattern", "allreduce"], "the layout has"),
    "planes that are not simulated": (lambda: plan(instance__network__switches__0__planes=1000),
     ["simulate", "x.json", "--pattern", "permutation"], "box has 1,000 planes; at most 64 are simulated"),
    "stages that stand nowhere": (lambda: plan(layout__pipeline_parallel=10**6, layout__layers_per_stage=[1] * 1000),
     ["simulate", "x.json", "--pattern", "allreduce"], "stages"),
    "a bill of another fabric": (lambda: plan(fabric__sites__e1__cost_usd=1.0),
     ["fabric", "export", "x.json", "--site", "e1", "--format", "bom", "-o", "out.csv"], "x.json: the plan breaks"),
    "stages without layers": (lambda: plan(layout__layers_per_stage=[]),
     ["compare", "x.json", "x.json"], "x.json: the plan breaks well_formed"),
    "a fabric that a plan has not": (lambda: plan(fabric=None),
     ["fabric", "export", "x.json", "--format", "bom", "-o", "out.csv"], "x.json: fabric: the plan has none"),
    "a fabric to simulate that a plan has not": (lambda: plan(fabric=None),
     ["simulate", "x.json"], "x.json: the plan has no fabric that can be wired"),
    "a pin that is null": (lambda: instance("one-rack"), ["evaluate", "x.json", "--pin", "mbs=null"],
     "x.json: pins.layout.microbatch_sequences: must be a whole number from 1 (is null); fix the pin"),
    "more racks than any cluster": (lambda: plan(sites__sites__0__racks=10**12),
     ["topology", "x.json", "--format", "conf"], "racks, more than 4,000,000"),
    "states that are none": (lambda: {"nodes": [{"name": "n1", "state": None}]},
     [*PLACE, "job.json", "--state", "x.json"], "nodes[0]: names no node or no state"),
    "nodes that are a number": (lambda: {"sinfo": [{"nodes": {"nodes": 7}, "node": {"state": ["IDLE"]}}]},
     [*PLACE, "job.json", "--state", "x.json"], "sinfo[0]: names no node or no state"),
}  # fmt: skip


@each("name", FILES)
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("topology.conf").write_text("SwitchName=leaf1 Nodes=n[1-8]\n")
    Path("case4.m").write_text(CASE)
    Path("job.json").write_text('{"name": "a", "mesh": {"data": 2}}')
    data, command, words = FILES[name]
    Path("x.json").write_text(json.dumps(data()))
    before = sorted(p.name for p in tmp_path.iterdir())
    assert words in refusal(invoke(*command))
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_table_with_missing_cells_is_refused(tmp_path: Path) -> None:
    """A row of a sweep's table that ends early, or goes on, is named by its line."""
    path = tmp_path / "table.csv"
    for row in ("1,b", "1,b,2,optimal,3,4,5", "²,b,2,optimal,3"):
        path.write_text(f"index,key,hardware.racks,status,objective.value\n0,a,1,optimal,2.5\n{row}\n")
        assert "line 3" in refusal(invoke("compare", path))


def test_the_defect_of_a_sound_plan_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> str:
        raise ZeroDivisionError

    (tmp_path / "plan.json").write_text(small().model_dump_json())
    monkeypatch.setattr("planner.report.summary.summary", fails)
    assert isinstance(invoke("show", tmp_path / "plan.json").exception, ZeroDivisionError)


LIBRARY: tuple[Callable[..., Any], ...] = (
    *(getattr(planner, n) for n in planner.__all__ if inspect.isfunction(getattr(planner, n))),
    *(planner.Cluster.place, planner.Session.solve),
    *(place_queue, preempt, defragment, replace, resize),
)
WRONG = (math.nan, math.inf, -math.inf, 1e308, -1, -(10**400), True, "5")


def numeric_arguments(calls: Iterable[Callable[..., Any]]) -> Iterator[tuple[Callable[..., Any], str]]:
    """Yield every argument that is annotated with a number, with its call."""
    for call in calls:
        for name, parameter in inspect.signature(call).parameters.items():
            if re.search(r"\b(int|float)\b", str(parameter.annotation).partition("typer.models")[0]):
                yield call, name


def commands() -> Iterator[Callable[..., Any]]:
    """Yield what every command of the command line calls."""
    left: list[Any] = [get_command(app)]
    while left:
        command = left.pop()
        left += getattr(command, "commands", {}).values()
        if not hasattr(command, "commands"):
            yield command.callback


def test_every_argument_of_the_library_has_a_range_or_a_kind() -> None:
    """No number reaches a call before its range was asked; what is no instance, plan, dict or path is named."""
    arguments = list(numeric_arguments(LIBRARY))
    assert len(arguments) > 30
    wrong = [(call, name, [value] if name == "flop" else value) for call, name in arguments for value in WRONG]
    wrong += [(c, name, object()) for c in LIBRARY for name in set(inspect.signature(c).parameters) & set(KINDS)]
    for call, name, value in wrong:
        with pytest.raises(InputError, match=f"^{name}: must be "):
            call(**{name: value})


def test_every_option_of_every_command_has_a_range() -> None:
    """No number of the command line reaches a command before its range was asked; the complaint names the option.

    `--shard 2/8` and the like are read as text: a range under the name of such an option would refuse them all.
    """
    options = list(numeric_arguments(commands()))
    assert len(options) > 40
    for command, name in options:
        for value in WRONG[:6]:
            with pytest.raises(InputError, match=r"^--[a-z-]+: must be a .*; "):
                command(**{name: value})
    for command in commands():
        for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
            ranged = name in RANGES or f"{command.__name__}.{name}" in RANGES
            assert not (ranged and "str" in str(parameter.annotation).partition(",")[0]), (command.__name__, name)


def test_ranges_have_two_sides() -> None:
    """A range holds what is between its ends, no list and no null; of several options all are named."""
    assert RANGES["gap"].holds(0) and RANGES["gap"].holds(0.5) and not RANGES["gap"].holds(1)
    assert RANGES["time_limit"].holds(1e-3) and not RANGES["time_limit"].holds(0)
    assert RANGES["place.time_limit"].holds(0)
    assert RANGES["threads"].holds(1024) and not RANGES["threads"].holds(1.0)
    for name, value in (("time_limit", []), ("time_limit", [3.0]), ("seed", []), ("seed", None)):
        with pytest.raises(InputError, match=rf"^{name}: must be a .* \(is {re.escape(repr(value))}\); "):
            planner.solve("one-rack", **{name: value})
    told = refusal(invoke("solve", "none.json", "--time-limit", "nan", "--gap", "2", "--threads", "-1"))
    assert [line.partition(":")[0] for line in told.splitlines()] == ["--time-limit", "--gap", "--threads"]


@pytest.mark.parametrize("cases", [range(30), *slow(range(30, 120))], ids=lambda x: f"to {x.stop}")
def test_no_changed_file_ends_in_a_traceback(cases: range) -> None:
    """Cases end with an answer or with a message that names the file; both happen, to every kind of file in the end."""
    found = list(fuzz.results(cases, seed=0))
    assert [(x.number, x.text) for x in found if x.outcome not in ("done", "refused")] == []
    counts = Counter(x.outcome for x in found)
    assert counts["done"] > len(cases) / 10 and counts["refused"] > len(cases) / 3
    assert len(cases) < 90 or {x.subject.group for x in found} == {s.group for s in SUBJECTS}


def fails(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def hangs(*_: object, **__: object) -> None:
    while True:
        pass


def litters(*_: object, **__: object) -> None:
    Path("left").touch()
    raise InputError("refused")


def is_late(*_: object, **__: object) -> str:
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    return ""


def is_large(*_: object, **__: object) -> str:
    raise MemoryError


def test_a_defect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that fails, never ends, is refused and leaves a file, or takes too long or too much is reported."""
    readers = {"traceback": fails, "hang": hangs, "litter": litters, "late": is_late, "memory": is_large}
    left = iter(readers.values())

    def case(*_: object) -> fuzz_commands.Case:
        monkeypatch.setattr("planner.imports.instance_file.first_instance", next(left))
        return fuzz_commands.Case(SUBJECTS[0], b"{}", ("init",), seconds=0.1)

    monkeypatch.setattr(fuzz, "case", case)
    found = list(fuzz.results(range(len(readers)), 0))
    assert [x.outcome for x in found] == list(readers)
    assert found[0].place.startswith("ZeroDivisionError at cli/file_commands.py")


@pytest.mark.parametrize(("kind", "cases"), [
    *(("options", range(25)), ("paths", range(25)), ("environment", range(4))),
    # scripts/verify/fuzz.py has more
    *slow(("options", range(25, 35)), ("paths", range(25, 35)), ("environment", range(4, 6)), ("solve", range(6))),
])  # fmt: skip
def test_no_command_ends_in_a_traceback(kind: str, cases: range) -> None:
    """Hostile options, paths, variables and keys are answered or refused, in time and memory."""
    found = list(fuzz.results(cases, seed=3, kind=kind))
    assert len(found) == len(cases)
    assert [(x.number, x.subject.command, x.text) for x in found if x.outcome not in ("done", "refused")] == []
