"""Files that cannot be used: each reader names file, place and remedy, reads a pipe once, and ends."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from import_cases import CASE
from typer.testing import CliRunner
from worked_plan import small

from planner.cli.console import read_pins
from planner.cli.main import app
from planner.cluster import read_job
from planner.errors import InputError
from planner.files import MAX_BYTES, MAX_DEPTH, MAX_DIGITS, read_json, read_text
from planner.formats.slurm import read_states
from planner.formats.topology_files import read_topology
from planner.formats.topology_rows import MAX_NAMES_OF_FILE
from planner.imports.grid_tables import GridOptions
from planner.imports.read_grid import import_grid
from planner.plan.plan_files import read_plan
from planner.planning.load import load_instance
from planner.report.plots.sweep_rows import read_rows as drawn_rows
from planner.report.tables import columns_of_file
from planner.simulation.simulate import SimulationOptions as Simulated
from planner.simulation.simulate import simulation_request
from planner.sweeps.axes import axis_of, read_changes, read_pairs
from planner.sweeps.row_store import read_rows

PLAN = small()
ROOT = Path(__file__).parents[2]
CONF = "SwitchName=leaf1 Nodes=n[1-4]\nSwitchName=leaf2 Nodes=n[5-8]\nSwitchName=top Switches=leaf[1-2]\n"
JOB = '{"name": "a", "mesh": {"pipeline": 2, "data": 2}}'
GRAPH = '{"instances": [{"id": "a", "network_layers": ["s1"]}, {"id": "b", "network_layers": ["s1"]}]}'


def simulated(path: Path) -> Any:
    """Read a fabric as `planner simulate` does."""
    options = Simulated(pattern="permutation", transport="ecmp", site=None, failed=0, hosts=None, size=None, group=None)
    return simulation_request(path, options)


def flows(path: Path) -> Any:
    """Read flows of a CSV file as `planner simulate --pattern` does."""
    import numpy as np

    from planner.simulation.traffic import from_file

    return from_file(path, np.arange(4))


# Of each reader, the ending that its file is recognised by.
JSON_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "instance": (".json", load_instance), "plan": (".json", read_plan), "job": (".json", read_job),
    "topology": (".json", read_topology), "states": (".json", read_states), "fabric": (".json", simulated),
    "compare": (".json", lambda p: columns_of_file(p, None, several=False)), "pairs": (".jsonl", read_pairs),
    "rows": (".jsonl", read_rows), "drawn": (".jsonl", drawn_rows),
}  # fmt: skip
TABLE_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "case": (".m", lambda p: import_grid([p], "auto", GridOptions())),
    "table": (".csv", lambda p: import_grid([p], "auto", GridOptions())), "pairs-csv": (".csv", read_pairs),
    "drawn-csv": (".csv", drawn_rows), "compare-csv": (".csv", lambda p: columns_of_file(p, None, several=False)),
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
    with pytest.raises(InputError, match=r"--pin hardware\.racks"):
        read_pins([f"hardware.racks={value}"])
    with pytest.raises(InputError, match=r"--set hardware\.racks"):
        read_changes([f"hardware.racks={value}"])
    with pytest.raises(InputError, match=r"hardware\.racks"):
        axis_of("hardware.racks", value)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(JOB, encoding="utf-8-sig")
    assert read_job(path).nodes == 4


def test_the_limits_leave_room(tmp_path: Path) -> None:
    """What stands just within depth and digits is read."""
    path = tmp_path / "file.json"
    path.write_text('{"a": ' * (MAX_DEPTH - 1) + "9" * MAX_DIGITS + "}" * (MAX_DEPTH - 1))
    assert read_json(path)["a"]


def test_a_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that never ends is read up to the limit and no further."""
    assert MAX_BYTES >= 1 << 28
    monkeypatch.setattr("planner.files.MAX_BYTES", 1 << 20)
    with pytest.raises(InputError, match=r"/dev/zero: is larger than 1 MiB; "):
        read_text(Path("/dev/zero"))


def test_the_names_of_a_file_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that each stand for few enough names are too many together."""
    assert MAX_NAMES_OF_FILE >= 1_000_000
    monkeypatch.setattr("planner.formats.topology_rows.MAX_NAMES_OF_FILE", 1_000)
    conf = "".join(f"SwitchName=leaf{i} Nodes=n{i}x[1-400]\n" for i in range(3))
    yaml = "- topology: a\n  tree:\n    switches:\n" + "".join(
        f"      - switch: leaf{i}\n        nodes: n{i}x[1-400]\n" for i in range(3)
    )
    sinfo = "".join(f"n{i}x[1-400] idle\n" for i in range(3))
    cases: list[tuple[str, str, Callable[[Path], Any]]] = [
        ("a.conf", conf, read_topology),
        ("a.yaml", yaml, read_topology),
        ("a.txt", sinfo, read_states),
    ]
    for name, text, reader in cases:
        path = tmp_path / name
        path.write_text(text)
        assert "1,000 names" in refused(reader, path)


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    """A separator of Unicode in a comment of a case does not begin a line of code."""
    path = tmp_path / "case4.m"
    path.write_text(CASE.replace("% base", "% base\u2028mpc.bus = 3;"), encoding="utf-8")
    assert import_grid([path], "auto", GridOptions(at=(40.0, -75.0))).grid.nodes
    path.write_bytes(CASE.replace("\n", "\r\n").encode())
    assert import_grid([path], "auto", GridOptions(at=(40.0, -75.0))).grid.nodes


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


PIPED = {
    "check": (PLAN.model_dump_json(), ["check", "-"]),
    "show": (PLAN.model_dump_json(), ["show", "-"]),
    "simulate": ('{"hosts": 16, "ports_per_switch": 4}', ["simulate", "-"]),
    "simulate a plan": (PLAN.model_dump_json(), ["simulate", "-", "--pattern", "p2p"]),
    "topology.conf": (CONF, ["topology", "-"]),
    "graph": (GRAPH, ["topology", "-"]),
    "a plan's topology": (PLAN.model_dump_json(), ["topology", "-"]),
    "job": (JOB, ["place", "--topology", "topology.conf", "--job", "-"]),
    "states": (
        '{"nodes": [{"name": "n1", "state": ["IDLE"]}, {"name": "n2", "state": ["DOWN"]}]}',
        ["place", "--topology", "topology.conf", "--job", "one.json", "--state", "-"],
    ),
}


@pytest.mark.parametrize("name", PIPED)
def test_a_pipe_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A command takes each of its files from a pipe, which cannot be opened twice."""
    monkeypatch.chdir(tmp_path)
    Path("topology.conf").write_text(CONF)
    Path("one.json").write_text('{"name": "b", "mesh": {"data": 1}}')
    text, command = PIPED[name]
    with piped(text) as pipe:
        done = CliRunner().invoke(app, [pipe if word == "-" else word for word in command])
    assert done.exit_code == 0, (done.exception, done.output)


def test_a_pareto_and_a_step_time_take_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of a file is seen in what was read of it, not by opening it a second time."""
    from planner.scheduling import session

    seen: list[Any] = []
    monkeypatch.setattr(session, "clock_of", lambda _, plan, __: seen.append(plan))
    monkeypatch.setattr(session, "fastest", lambda *_, **__: None)
    with piped(PLAN.model_dump_json()) as pipe:
        session.place_by_time(None, pipe)  # type: ignore[arg-type]
    monkeypatch.setattr("planner.planning.site_fabrics.frontier", lambda plan, **_: seen.append(plan) or ())
    with piped(PLAN.model_dump_json()) as pipe:
        assert CliRunner().invoke(app, ["fabric", "pareto", pipe]).exit_code == 3
    assert seen == [PLAN, PLAN]
