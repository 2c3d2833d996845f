"""Files that the fuzzer found to end in a traceback: each is refused by file, place and value now."""

import json
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from import_cases import CASE
from typer.testing import CliRunner
from worked_plan import small

from planner.cli.main import app
from planner.errors import InputError

ROOT = Path(__file__).parents[2]
CONF = "SwitchName=leaf1 Nodes=n[1-8]\n"
PINS = [f"--pin=layout.{k}={v}" for k, v in {"tensor_parallel": 2, "pipeline_parallel": 6, "data_parallel": 6}.items()]
MORE = [f"--pin=layout.{k}={v}" for k, v in {"zero_stage": 1, "microbatch_sequences": 1, "recompute": "full"}.items()]
EVALUATE = ["evaluate", "x.json", *PINS, *MORE, "--pin=layout.microbatches_per_step=12"]
PLACE = ["place", "--topology", "topology.conf", "--job"]


def instance(name: str, **parts: Any) -> dict[str, Any]:
    """Return a shipped instance with figures of its parts changed: `hardware__racks` is hardware.racks."""
    data: dict[str, Any] = json.loads((ROOT / "instances" / f"{name}.json").read_text())
    return changed(data, parts)


def changed(data: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Change figures by path, its parts joined by two underscores."""
    for path, value in parts.items():
        *keys, last = path.split("__")
        holder = data
        for key in keys:
            holder = holder[int(key) if key.isdigit() else key]
        holder[last] = value
    return data


def plan(**parts: Any) -> dict[str, Any]:
    """Return the worked plan with figures changed."""
    return changed(json.loads(small().model_dump_json()), parts)


def running(**figures: Any) -> dict[str, Any]:
    """Return the placement of a job as it runs."""
    done = CliRunner().invoke(app, [*PLACE, "job.json", "--format", "json"])
    return {**json.loads(done.stdout), **figures}


FILES: dict[str, tuple[Any, list[str], str]] = {
    "rules that are no object": (lambda: instance("two-sites-405b", grid__rules=[]),
     ["grid", "import", "case4.m", "--at", "40,-75", "--into", "x.json"], "grid.rules"),
    "a count that nothing has": (lambda: instance("one-rack", hardware__racks=10**20), EVALUATE,
     "hardware.racks: must be from 1 to"),
    "a family beyond 64 bits": (
        lambda: instance("limits-h100", workload__choose__family={"head_size": 10**20, "vocabulary": 10**5}),
        EVALUATE,
        "workload.choose",
    ),
    "racks that cannot be simulated": (lambda: plan(placement__sites__e1__assignment__0__racks="as stated"),
     ["simulate", "x.json", "--pattern", "allreduce"], "'as stated' is not a list of racks"),
    "pins that are a number": (lambda: instance("one-rack", pins=7), EVALUATE, "x.json: pins"),
    "a stage that the layout has not": (lambda: plan(placement__sites__e1__assignment__0__stage=10**20),
     ["simulate", "x.json", "--pattern", "allreduce"], "the layout has"),
    "planes of a plan that nothing has": (lambda: plan(instance__network__switches__0__planes=10**20),
     ["simulate", "x.json", "--pattern", "allreduce"],
     "x.json: instance.network.switches[0].planes: must be from 1 to"),
    "planes that are not simulated": (lambda: plan(instance__network__switches__0__planes=1000),
     ["simulate", "x.json", "--pattern", "permutation"], "box has 1,000 planes; at most 64 are simulated"),
    "stages that stand nowhere": (lambda: plan(layout__pipeline_parallel=10**6, layout__layers_per_stage=[1] * 1000),
     ["simulate", "x.json", "--pattern", "allreduce"], "stages"),
    "a bill of another fabric": (lambda: plan(fabric__sites__e1__cost_usd=1.0),
     ["fabric", "export", "x.json", "--site", "e1", "--format", "bom", "-o", "out.csv"], "x.json: the plan breaks"),
    "a tier without switches": (lambda: plan(fabric__sites__e1__tiers__0__switches=0),
     ["fabric", "export", "x.json", "--site", "e1", "--format", "svg", "-o", "out.svg"], "x.json: the plan breaks"),
    "more racks than any cluster": (lambda: plan(sites__sites__0__racks=10**12),
     ["topology", "x.json", "--format", "conf"], "racks, more than 4,000,000"),
    "hosts of no time": (lambda: {"hosts": 32, "ports_per_switch": 8, "tiers": 3, "host_gbps": 1e307},
     ["simulate", "x.json"], "host_gbps: must be from"),
    "states that are none": (lambda: {"nodes": [{"name": "n1", "state": None}]},
     [*PLACE, "job.json", "--state", "x.json"], "nodes[0]: names no node or no state"),
    "nodes that are a number": (lambda: {"sinfo": [{"nodes": {"nodes": 7}, "node": {"state": ["IDLE"]}}]},
     [*PLACE, "job.json", "--state", "x.json"], "sinfo[0]: names no node or no state"),
    "a node twice": (lambda: running(nodes=["n1", "n1"]),
     [*PLACE, "job.json", "--running", "x.json", "--replace", "n1"], "x.json: nodes: 'n1' is listed twice"),
    "a rack of very many GPUs": (lambda: plan(instance__hardware__rack__gpus=5_000), [*PLACE, "x.json"],
     "gpus_per_node"),
}  # fmt: skip


@each("name", FILES)
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "topology.conf": CONF,
        "case4.m": CASE,
        "job.json": '{"name": "a", "mesh": {"data": 2}}',
    }.items():
        Path(file).write_text(text)
    data, command, words = FILES[name]
    Path("x.json").write_text(json.dumps(data()))
    before = sorted(p.name for p in tmp_path.iterdir())
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, InputError), (done.exception, done.output)
    assert words in str(done.exception)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_table_with_missing_cells_is_refused(tmp_path: Path) -> None:
    """A row of a sweep's table that ends early, or goes on, is named by its line."""
    path = tmp_path / "table.csv"
    for row in ("1,b", "1,b,2,optimal,3,4,5", "²,b,2,optimal,3"):
        path.write_text(f"index,key,hardware.racks,status,objective.value\n0,a,1,optimal,2.5\n{row}\n")
        done = CliRunner().invoke(app, ["compare", str(path)])
        assert isinstance(done.exception, InputError) and "line 3" in str(done.exception)


def test_the_defect_of_a_sound_plan_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text(small().model_dump_json())

    def fails(*_: object, **__: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr("planner.report.summary.summary", fails)
    assert isinstance(CliRunner().invoke(app, ["show", str(path)]).exception, ZeroDivisionError)
