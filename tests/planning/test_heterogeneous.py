"""Pools of different GPUs from the file to the checked plan: better than any pool alone, and bad input refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from worked_plan import edited_at, named, with_entries

import planner
from planner.checks.check_plan import check
from planner.cli.main import app
from planner.errors import InputError
from planner.physics.training import step
from planner.physics.training.layer_time import wan_tail_seconds
from planner.planning.load import load_instance
from planner.report.summary import summary

pytestmark = pytest.mark.slow

INSTANCE = Path(__file__).parents[2] / "instances" / "two-pools.json"


def small(**hardware):
    """Return the two pools as a small question: two nodes of each, a model of 8B and 32 sequences a step."""
    data = json.loads(INSTANCE.read_text(encoding="utf-8"))
    data["limits"] = {"max_batch_tokens": 32 * 8192}
    data["workload"]["model"] = "llama-3.1-8b"
    for p in data["hardware"]["pools"]:
        p["racks"] = 2
    data["hardware"].update(hardware)
    return data


def alone(data, name):
    pool = next(p for p in data["hardware"]["pools"] if p["name"] == name)
    return {**data, "hardware": {k: pool[k] for k in ("accelerator", "rack", "racks")}}


@pytest.fixture(scope="module")
def plan():
    return planner.solve(small())


def test_two_pools_train_faster_than_either_alone(plan):
    days = [planner.solve(alone(small(), name)).objective.value for name in ("a100", "h100")]
    assert plan.objective.value < min(days)
    assert 1 / plan.objective.bound <= sum(1 / d for d in days) * (1 + 1e-9)
    assert plan.pools.sequences["h100"] > plan.pools.sequences["a100"] > 0
    assert not check(plan)


def test_shipped_pools_are_planned_within_a_limit_of_time():
    """The shipped instance has a checked plan soon, better than the bound of the faster pool alone.

    The racks of each pool are replaced at the end of their own life.
    """
    found = planner.solve(INSTANCE, time_limit=6)
    faster = planner.solve(alone(json.loads(INSTANCE.read_text(encoding="utf-8")), "h100"))
    assert found.objective.value < faster.objective.bound
    assert not check(found)
    assert set(found.run.replacements) == {"a100", "h100"}
    assert named(edited_at(found, "run.replacements.a100", 3)) == {"run_replaced[a100]"}


def test_without_a_link_no_exchange_is_counted():
    """Pools joined by nothing wait for none, and train no slower than over a link; the summary says so."""
    data = small()
    del data["hardware"]["pool_link"]
    found = planner.solve(data)
    assert set(found.pools.exchange_seconds.values()) == {0.0}
    assert found.pools.step_seconds == max(x.metrics.step_seconds for x in found.pools.layouts.values())
    assert "exchange between pools not counted" in summary(found)


def test_exchange_follows_the_tail_between_sites(plan):
    """A ring of two moves all of a stage's gradients; of three, 4/3 of them; one pool alone exchanges none."""
    link = plan.instance.hardware.pool_link
    m, layers = plan.pools.layouts["h100"].metrics, max(plan.pools.layouts["h100"].layers_per_stage)
    backward = m.wan_window_seconds / layers
    for training, ring in ((2, 1.0), (3, 4 / 3)):
        wanted = wan_tail_seconds(ring * m.gradient_bytes_per_stage, 800, 1, 1, layers, backward)
        assert step.exchange_seconds(link, m, layers, training) == pytest.approx(wanted)
    assert step.exchange_seconds(link, m, layers, 1) == 0.0


def test_bill_counts_the_racks_of_all_pools(plan):
    a, h = (p.rack.price_usd for p in plan.instance.hardware.pools)
    assert plan.cost.total_usd == 2 * a + 2 * h


@pytest.mark.parametrize(
    ("limit", "value"), [("budget_usd", 1.0), ("facility_power_mw", 1e-6), ("deadline_days", 1e-3)]
)
def test_limits_on_the_whole_are_kept(limit, value):
    """Racks too dear, too much power and no time end in a conflict that names the limit."""
    data = small()
    data["limits"][limit] = value
    found = planner.solve(data)
    assert found.status == "infeasible" and f"limits.{limit}" in found.conflict.rules and not check(found)


NETWORK = {"switches": ["25.6T-64x400G"], "optics": {"name": "o", "price_usd": 1, "power_watts": 1}}
REFUSED = [
    ("network", NETWORK, "network: does not go"),
    ("wan", {}, "wan: does not go"),
    ("hardware.racks", 4, "hardware.racks: does not go"),
    ("hardware.accelerator", "B200", "hardware.accelerator: each pool has its own"),
    ("hardware.racks_per_module", 4, "hardware.racks_per_module: does not go"),
    ("hardware.pools", lambda pools: pools[:1], "hardware.pools: must have at least 2"),
    ("hardware.pools.1.name", "a100", "is already that of hardware.pools[0]"),
    ("hardware.pools.1.accelerator", "H10", "did you mean"),
    ("hardware.pools.1.rack_s", 1, "did you mean"),
    ("workload.precision.compute", "fp8", "hardware.pools[0].accelerator: "),
    ("pins", {"layout.tensor_parallel": 8}, "pins.layout.tensor_parallel: "),
    ("objective", {"minimize": "cost_usd"}, "objective.minimize: pools"),
]


@pytest.mark.parametrize(("path", "value", "words"), REFUSED)
def test_what_does_not_go_with_pools_is_refused(path, value, words):
    with pytest.raises(InputError) as error:
        load_instance(with_entries(small(), {path: value}))
    assert words in str(error.value)


def test_link_without_pools_is_refused():
    data = alone(small(), "h100")
    data["hardware"]["pool_link"] = {"gbps": 100}
    with pytest.raises(InputError, match="pool_link: joins pools"):
        load_instance(data)


@pytest.mark.parametrize("command", ["evaluate", "explain"])
def test_commands_on_one_layout_refuse_pools(command):
    found = CliRunner().invoke(app, [command, str(INSTANCE)])
    assert isinstance(found.exception, InputError)
    assert "hardware.pools" in str(found.exception)


def test_show_prints_each_pools_share(plan, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(plan.model_dump_json(), encoding="utf-8")
    found = CliRunner().invoke(app, ["show", str(path)])
    assert found.exit_code == 0
    for name, n in plan.pools.sequences.items():
        assert f"{name}: {n:,} sequences" in found.output
    assert found.output.count("MFU") == 2
