"""Four tiers from the command line: a site whose switches need them, one that does not, and bad input."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from worked_plan import INSTANCE

import planner
from planner.cli.main import app
from planner.models.joint.solution import JointStatus
from planner.models.joint.solve import solve_joint
from planner.models.requests import Options
from planner.planning.load import load_instance

RUN = CliRunner()
ALL_RACKS = {"layout.tensor_parallel": 4, "layout.pipeline_parallel": 8, "layout.data_parallel": 3}
ONE_LAYOUT = ALL_RACKS | {"layout.virtual_stages": 1, "layout.zero_stage": 1, "layout.recompute": "none"}


def cluster(path: Path, ports: int, racks: int = 24, pins: dict[str, Any] | None = None, **network: Any) -> Path:
    """Write an instance of one cluster of racks of four GPUs, on boxes of so many ports."""
    box = {**INSTANCE["network"]["switches"][0], "ports": ports, "planes": 1}
    data = {k: v for k, v in INSTANCE.items() if k not in ("grid", "wan")}
    data |= {"hardware": {**INSTANCE["hardware"], "racks": racks}, "limits": {"max_batch_tokens": 6000}}
    data |= {"network": {**INSTANCE["network"], "switches": [box], **network}, "pins": pins or {}}
    path.write_text(json.dumps(data))
    return path


def solved(folder: Path, *args: Any, **changes: Any) -> dict[str, Any]:
    """Solve, check and return the plan."""
    asked, out = cluster(folder / "asked.json", *args, **changes), folder / "plan.json"
    done = RUN.invoke(app, ["solve", str(asked), "-q", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert RUN.invoke(app, ["check", str(out)]).output == ""
    return json.loads(out.read_text())


@pytest.mark.slow
def test_small_boxes_need_four_tiers(tmp_path: Path) -> None:
    """Boxes of five ports cannot join 96 GPUs in three tiers; four do, proven, checked, exported and simulated."""
    three = load_instance(cluster(tmp_path / "three.json", 5, pins=ONE_LAYOUT, max_tiers=3))
    assert solve_joint(three, Options(), lambda _: None).status is JointStatus.INFEASIBLE
    fabric = solved(tmp_path, 5, pins=ALL_RACKS, max_tiers=4)["fabric"]
    f = fabric["sites"]["cluster"]
    assert [t["name"] for t in f["tiers"]] == ["leaf", "spine", "core", "super-spine"] and f["zones"] > 1
    assert fabric["certificate"]["status"] == "optimal"
    path = tmp_path / "plan.json"
    for form in ("csv", "graphml", "slurm-conf", "slurm-yaml", "svg"):
        done = RUN.invoke(app, ["fabric", "export", str(path), "--format", form, "-o", str(tmp_path / form)])
        assert done.exit_code == 0, done.output
    assert len((tmp_path / "csv").read_text().splitlines()) == 1 + f["switch_links"] + f["endpoint_links"]
    for transport in ("spray", "ecmp", "adaptive"):
        done = RUN.invoke(app, ["simulate", str(path), "--transport", transport, "--hosts", "96", "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.output)
        assert found["hosts"] == 96
        assert transport != "spray" or 1 <= found["mean_slowdown"] <= 1.2  # few packets a path are not quite even


@pytest.mark.slow
def test_a_pin_asks_for_four_tiers(tmp_path: Path) -> None:
    """Boxes of sixteen ports do with fewer tiers; there a pin on the core's uplinks is kept, at a cost."""
    free = solved(tmp_path, 16, max_tiers=4)["fabric"]["sites"]["cluster"]
    pinned = solved(tmp_path, 16, pins={"fabric.core_up_ports": 1})["fabric"]["sites"]["cluster"]
    assert len(free["tiers"]) < 4 and free["zones"] == 0
    assert len(pinned["tiers"]) == 4 and pinned["cost_usd"] > free["cost_usd"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tiers": 5}, "network.max_tiers"),
        ({"max_tiers": 0}, "network.max_tiers"),
        ({"pins": {"fabric.core_up": 2}}, "did you mean 'fabric.core_up_ports'"),
        ({"pins": {"fabric.core_down_ports": "many"}}, "pins.fabric.core_down_ports"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = cluster(tmp_path / "asked.json", 8, **changes)
    done = RUN.invoke(app, ["solve", str(path), "-q"])
    assert message in f"{done.output}{done.exception}"
    assert done.exit_code != 0


@pytest.mark.slow
def test_a_plan_comes_before_deep_tables() -> None:
    """Two sites with over a thousand racks each, four tiers allowed, have a plan in seconds of CPU."""
    asked = planner.changed("two-sites-405b", {"network.max_tiers": 4})
    end, began = planner.Interrupter(), time.process_time()
    plan = planner.solve(asked, interrupt=end, on_progress=lambda e: end.interrupt() if e.incumbent else None)
    assert (plan.status, plan.stopped) == ("feasible", "interrupted")
    assert time.process_time() - began < 15
