"""Cables as built against a design: what is missing, extra, moved, doubled or swapped, counted by other means."""

import csv
import io
import random
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from commands import invoke
from each_case import each
from worked_plan import small

from planner.errors import InputError
from planner.exports.fabric_parts import BuiltFabric, built_fabric, cable_list, differences, netbox_files

E1 = built_fabric(small(), "e1")
ODD = replace(E1, site='=1+2, "x"')
SPLIT = replace(E1, design=replace(E1.design, split=2, lanes=2))
Ends = list[str]  # from, from_port, to, to_port


def ends(x: BuiltFabric) -> list[Ends]:
    """Return the cables of a fabric, their ends alone."""
    return [row[:4] for row in list(csv.reader(io.StringIO("".join(cable_list(x)))))[1:]]


def written(path: Path, rows: list[Ends], header: str = "from,from_port,to,to_port") -> Path:
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    return path


def pair(row: Ends) -> frozenset[str]:
    """Return the two ends of a cable."""
    return frozenset((":".join(row[:2]), ":".join(row[2:])))


@each("x", [E1, SPLIT, ODD])
def test_our_own_lists_are_as_designed(tmp_path: Path, x: BuiltFabric) -> None:
    """The cable list and NetBox's import are equal to the design, whichever end comes first."""
    (tmp_path / "own.csv").write_text("".join(cable_list(x)))
    (tmp_path / "netbox.csv").write_text("".join(netbox_files(x)["cables.csv"]()))
    turned = written(tmp_path / "turned.csv", [row[2:] + row[:2] for row in ends(x)])
    for path in (tmp_path / "own.csv", tmp_path / "netbox.csv", turned):
        assert differences(path, x)[1] == []


def test_netbox_export_is_read(tmp_path: Path) -> None:
    """NetBox's table of cables has headings in words; ports may bear a label, and other equipment is none of it."""
    made = list(csv.DictReader(io.StringIO("".join(netbox_files(E1)["cables.csv"]()))))
    columns = ("label", "side_a_name", "side_b_name", "side_a_device", "side_b_device")
    rows = [[r[c] for c in columns] for r in made]
    rows[3][1] += " (rail 3)"
    rows.append(["m1", "mgmt0", "1", "e1-leaf-0-0", "mgmt-switch"])
    for mark in ",;":
        text = "\n".join(
            mark.join(r) for r in [["Label", "Termination A", "Termination B", "Device A", "Device B"], *rows]
        )
        (tmp_path / "x.csv").write_text(text)
        assert differences(tmp_path / "x.csv", E1)[1] == []


@pytest.mark.parametrize("seed", range(12))
def test_differences_are_those_of_the_sets(tmp_path: Path, seed: int) -> None:
    """Cables swapped, moved, taken out and added at random: the same differences as of sets of named pairs."""
    rng, x = random.Random(seed), (E1, SPLIT)[seed % 2]
    planned = ends(x)
    built = [list(row) for row in planned]
    for _ in range(rng.randrange(4)):
        a, b = rng.sample(built, 2)
        a[2:], b[2:] = b[2:], a[2:]
    for _ in range(rng.randrange(3)):
        built.remove(rng.choice(built))
    for n in range(rng.randrange(3)):
        rng.choice(built)[2:] = ["elsewhere", str(n)]
    for n in range(rng.randrange(3)):
        rng.choice(built)[3] = str(x.design.ports + n)
    again = [rng.choice(planned)[:2] + rng.choice(planned)[2:] for _ in range(rng.randrange(3))]
    built += again
    if rng.random() < 0.5:
        built.append(["leaf-0-0", str(x.design.ports - 1), "leaf-0-1", str(x.design.ports - 1)])
    rng.shuffle(built)
    found = differences(written(tmp_path / "x.csv", built), x)[1]
    listed: dict[str, list[frozenset[str]]] = {kind: [] for kind in ("missing", "extra", "moved", "doubled", "swapped")}
    meant = set()
    for line in found:
        kind, text = line.split(maxsplit=1)
        for cable in text.partition(" (")[0].split(" and "):
            listed[kind].append(frozenset(cable.split(" -- ")))
        if kind in ("moved", "doubled"):
            cables = [frozenset(cable.split(" -- ")) for cable in text.split("; planned ")[1:]]
            assert kind == "doubled" or len(cables) == 1
            meant |= set(cables)
    old, new = Counter(map(pair, planned)), Counter(map(pair, built))
    is_new = Counter(chain.from_iterable(listed[kind] for kind in listed if kind != "missing"))
    assert is_new == new - old
    assert set(listed["missing"]) | meant <= (old - new).keys()
    assert len(listed["missing"]) + len(listed["swapped"]) + len(meant) == (old - new).total()
    ports = Counter(end for row in built for end in pair(row) if not end.startswith("elsewhere"))
    assert bool(listed["doubled"]) == (max(ports.values()) > 1)


def checked(folder: Path, rows: list[Ends], *options: str) -> tuple[int, str]:
    """Run the command on the worked plan, and return its status and what it prints."""
    plan = folder / "plan.json"
    plan.write_text(small().model_dump_json())
    table = written(folder / "built.csv", rows)
    ran = invoke("fabric", "check", plan, table, "--site", "e1", *options)
    return ran.exit_code, ran.output


def test_two_swapped_cables_are_told_as_one_slip(tmp_path: Path) -> None:
    """The command says what is swapped, with the lines of the file, and ends with status 1; else with 0."""
    rows = ends(E1)
    assert checked(tmp_path, rows) == (0, f"e1: all {len(rows)} cables are as designed\n")
    rows[0][2:], rows[1][2:] = rows[1][2:], rows[0][2:]
    swapped = "r0-gpu0:0 -- leaf-0-1:0 and r0-gpu1:0 -- leaf-0-0:0 (lines 2 and 3); planned r0-gpu0:0 -- leaf-0-0:0"
    told = f"e1: 2 cables differ: 2 swapped\nswapped  {swapped}\n"
    assert checked(tmp_path, rows) == (1, told)


def test_a_cable_at_another_port_of_its_switch_is_moved(tmp_path: Path) -> None:
    """One end and the other switch are as planned: one difference with both ports, and not a missing and an extra."""
    rows = ends(E1)
    free = str(E1.design.ports + 1)
    planned, rows[0][3] = ":".join(rows[0][2:]), free
    box = rows[0][2]
    told = f"moved    r0-gpu0:0 -- {box}:{free} (line 2); planned r0-gpu0:0 -- {planned}"
    del rows[5]
    status, said = checked(tmp_path, rows)
    assert status == 1
    assert said.splitlines()[0] == "e1: 2 cables differ: 1 missing, 1 moved" and said.splitlines()[2] == told


def test_two_cables_at_a_port_are_a_difference(tmp_path: Path) -> None:
    """The cable that is planned has the port; the other is listed with the line of both, and the check goes on."""
    rows = ends(E1)
    rows[8][3] = "0"
    rows[9][2:] = rows[2][2:]
    said = checked(tmp_path, [*rows[8:10], *rows[:8], *rows[10:]])
    told = [
        "e1: 3 cables differ: 1 missing, 2 doubled",
        "missing  r2-gpu1:0 -- leaf-0-1:2",
        "doubled  r2-gpu0:0 -- leaf-0-0:0 (line 2): port leaf-0-0:0 has a cable already, of line 4; "
        "planned r2-gpu0:0 -- leaf-0-0:2",
        "doubled  r2-gpu1:0 -- leaf-0-2:0 (line 3): port leaf-0-2:0 has a cable already, of line 6",
    ]
    assert said == (1, "\n".join(told) + "\n")
    twice = checked(tmp_path, [*ends(E1), ends(E1)[0]])[1]
    assert twice.splitlines()[0] == "e1: 1 cable differs: 1 doubled"
    looped = checked(tmp_path, [*ends(E1)[1:], ["r0-gpu0", "0", "r0-gpu0", "0"]])[1]
    assert looped.splitlines()[0] == "e1: 2 cables differ: 1 missing, 1 doubled"


def test_a_long_list_is_counted(tmp_path: Path) -> None:
    first, *_, last = lines = checked(tmp_path, ends(E1)[:1], "--show", "2")[1].splitlines()
    assert first == "e1: 55 cables differ: 55 missing"
    assert last == "and 53 more" and len(lines) == 4


HEADER = "from,from_port,to,to_port\n"


@each(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "line 1: has no columns from, from_port, to, to_port of a cable list"),
        ("", "line 1: has no columns"),
        (f"{HEADER}r0-gpu0,0,leaf-0-0\n", "line 2: has 3 cells where the header has 4; add or remove"),
        (f"{HEADER}a,0,b,0\n", "none of its 1 cable is at a port of the fabric of e1, such as r0-gpu0:0"),
        (f'{HEADER}"a"b,0,b,0\n', "line 2: "),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=r"x\.csv") as refused:
        differences(tmp_path / "x.csv", E1)
    assert message in str(refused.value)
