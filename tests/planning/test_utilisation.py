"""The study of limits: utilisation is a share, falls with compute, rises with what is given, and its bounds hold."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from planner import limits
from planner.cli import main
from planner.cli.sweep_commands import fall, wall
from planner.models.joint.free_network import days_of, fastest_on, fewest_racks
from planner.planning.model_size import LimitPoint
from planner.sweeps.axes import changed, read_changes

pytestmark = pytest.mark.slow

INSTANCE = Path(__file__).parents[2] / "instances" / "limits-h100.json"
FIXED = ['workload.choose.critical_batch={"of":"fixed","coefficient":2e6}', "workload.choose.family.tolerance=0.1"]


@cache
def at(flop: float, *changes: str, days: float = 90.0) -> LimitPoint:
    asked = changed(INSTANCE, read_changes(FIXED) | read_changes(changes), searched=False)
    (found,) = limits(asked, [flop], days=days, tolerance=0.02)
    return found


def test_utilisation_is_a_share_within_its_bound() -> None:
    p = at(1e23)
    assert (
        p.status == "optimal" and p.utilisation is not None and p.utilisation_bound is not None and p.gpus is not None
    )
    assert 0 < p.utilisation <= p.utilisation_bound <= 1
    assert p.gpus - p.gpus_too_few <= max(8, 0.02 * p.gpus + 8)
    assert sum(p.shares.values()) == pytest.approx(1.0)


def test_the_fewest_racks_are_those_of_trying_every_number() -> None:
    instance = changed(INSTANCE, read_changes([*FIXED, "limits.max_batch_tokens=2e6"]), searched=False)
    tokens = instance.workload.tokens
    instance = instance.model_copy(update={"workload": instance.workload.model_copy(update={"tokens": tokens / 100})})
    found = fewest_racks(instance, 90.0)

    def days(racks: int) -> float:
        return days_of(instance, fastest_on(instance, racks).seconds)

    assert found.status == "optimal" and found.racks is not None
    assert days(found.racks) <= 90.0
    assert all(days(r) > 90.0 for r in range(1, found.racks))


def test_utilisation_falls_with_compute_at_a_fixed_batch() -> None:
    """With the batch fixed, more compute leaves less of the GPUs' time used, once products are large enough."""
    use = [at(c).utilisation or 0.0 for c in (3e24, 1e25, 3e25)]
    assert use[0] > use[1] > use[2]


@pytest.mark.parametrize(
    "change",
    [
        "hardware.accelerator.nic_bytes_per_second=x4",
        "hardware.accelerator.hbm_bytes=x4",
        'workload.choose.critical_batch={"of":"fixed","coefficient":8e6}',
    ],
)
def test_more_never_hurts(change: str) -> None:
    """More bandwidth, memory or batch needs no more GPUs, but for the width of the bracket."""
    before, after = at(1e23), at(1e23, change)
    assert before.utilisation is not None and after.utilisation_bound is not None
    assert after.utilisation_bound >= before.utilisation


def test_where_no_layout_is_in_time_it_is_proven() -> None:
    """A batch of one sequence ends in a wall: no number of GPUs trains 1e27 FLOP in 90 days."""
    p = at(1e27, 'workload.choose.critical_batch={"of":"fixed","coefficient":4096}')
    assert p.status == "infeasible" and p.gpus is None and "whatever the GPUs" in p.reason


def made(*use: float | None) -> list[LimitPoint]:
    """Make points a power of ten apart."""
    rest = dict.fromkeys(("parameters", "tokens", "layers", "hidden", "batch_tokens", "loss"), 1)
    own = ((10.0 ** (24 + i), "infeasible" if u is None else "optimal", u) for i, u in enumerate(use))
    return [LimitPoint.model_validate({"flop": c, "status": s, "utilisation": u} | rest) for c, s, u in own]


def test_fall_and_wall_are_read_off_the_points() -> None:
    """The fall is where the line crosses 80 % of the best, the wall between the last point in time and the next."""
    assert fall(made(0.5, 0.5, 0.3, 0.1)) == pytest.approx(10**25.5)
    assert fall(made(0.5, 0.45)) is None
    assert wall(made(0.5, 0.1, None, None)) == (1e25, 1e26)
    assert wall(made(0.5, 0.1)) is None


def test_the_command_writes_its_points(tmp_path: Path) -> None:
    """Points go to a file, one JSON object a line, and a table shows the fall."""
    out = tmp_path / "points.jsonl"
    fixed = [x for change in FIXED for x in ("--set", change)]
    span = "--from", "1e22", "--to", "1e23", "--points", "2", "--workers", "1"
    done = CliRunner().invoke(main.app, ["limits", str(INSTANCE), *span, "-o", str(out), *fixed])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [r["status"] for r in rows] == ["optimal", "optimal"]
    assert "best use" in done.output
