"""Pools of different GPUs from the file to the checked plan: better than any pool alone, and bad input refused."""

import copy
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from worked_plan import edited_at, named

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
    """Return the question of one of the pools alone."""
    data = copy.deepcopy(data)
    pool = next(p for p in data["hardware"]["pools"] if p["name"] == name)
    return {**data, "hardware": {k: pool[k] for k in ("accelerator", "rack", "racks")}}


@pytest.fixture(scope="module")
def plan():
    return planner.solve(small())


def test_two_pools_train_faster_than_either_alone(plan):
    """The shares of both pools are better than each pool alone, exchange included, and never under the bound."""
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


def test_same_question_has_the_same_plan(plan):
    """Solving again gives the same shares and layouts."""
    again = planner.solve(small())
    assert again.pools.model_copy(update={"certificate": plan.pools.certificate}) == plan.pools


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


CHANGES = {
    "shares": lambda p: {"sequences": {**p.sequences, "a100": p.sequences["a100"] + 1}},
    "batch": lambda p: {"tokens_per_step": p.tokens_per_step + 8192},
    "figures[step_seconds]": lambda p: {"step_seconds": p.step_seconds * 1.001},
    "figures[days_to_train]": lambda p: {"days_to_train": p.days_to_train * 0.999},
    "figures[days_to_train_interval]": lambda p: {
        "days_to_train_interval": (p.days_to_train_interval[0], p.days_to_train_interval[1] * 1.001)
    },
    "figures[exchange_seconds.h100]": lambda p: {
        "exchange_seconds": {**p.exchange_seconds, "h100": p.exchange_seconds["h100"] + 1e-3}
    },
}


@pytest.mark.parametrize("rule", CHANGES)
def test_checker_recomputes_every_figure(plan, rule):
    """A figure that is not what physics gives breaks its rule."""
    changed = plan.model_copy(update={"pools": plan.pools.model_copy(update=CHANGES[rule](plan.pools))})
    assert any(v.rule.startswith(rule) for v in check(changed))


def test_checker_recomputes_each_pools_layout(plan):
    """A pool's step time and memory are those of its own GPU: the other pool's layout figures do not pass."""
    y = plan.pools.layouts["a100"]
    wrong = y.model_copy(
        update={
            "metrics": y.metrics.model_copy(
                update={"step_seconds": y.metrics.step_seconds * 0.99, "memory_bytes_per_gpu": 1.0}
            )
        }
    )
    pools = plan.pools.model_copy(update={"layouts": {**plan.pools.layouts, "a100": wrong}})
    rules = {v.rule for v in check(plan.model_copy(update={"pools": pools}))}
    assert {"pools[a100].metrics[step_seconds]", "pools[a100].metrics[memory_bytes_per_gpu]"} <= rules
    assert not any(r.startswith("pools[h100]") for r in rules)


def test_checker_keeps_the_batch_and_the_sections(plan):
    """Shares over the critical batch break the rule, and so does a plan of pools without their section."""
    less = plan.instance.limits.model_copy(update={"max_batch_tokens": plan.pools.tokens_per_step - 8192})
    over = plan.model_copy(update={"instance": plan.instance.model_copy(update={"limits": less})})
    assert any(v.rule == "batch" and "critical batch" in v.message for v in check(over))
    assert any(
        v.rule == "complete" and v.message.startswith("pools") for v in check(plan.model_copy(update={"pools": None}))
    )


def test_bill_counts_the_racks_of_all_pools(plan):
    """The racks of each pool at its own price."""
    a, h = (p.rack.price_usd for p in plan.instance.hardware.pools)
    assert plan.cost.total_usd == 2 * a + 2 * h


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        ({"budget_usd": 1.0}, "limits.budget_usd"),
        ({"facility_power_mw": 1e-6}, "limits.facility_power_mw"),
        ({"deadline_days": 1e-3}, "limits.deadline_days"),
    ],
)
def test_limits_on_the_whole_are_kept(limits, rule):
    """Racks too dear, too much power and no time end in a conflict that names the limit."""
    data = small()
    data["limits"].update(limits)
    found = planner.solve(data)
    assert found.status == "infeasible"
    assert rule in found.conflict.rules
    assert not check(found)


REFUSED = [
    (
        lambda d: d.update(
            network={"switches": ["25.6T-64x400G"], "optics": {"name": "o", "price_usd": 1, "power_watts": 1}}
        ),
        "network: does not go",
    ),
    (lambda d: d.update(wan={}), "wan: does not go"),
    (lambda d: d["hardware"].update(racks=4), "hardware.racks: does not go"),
    (lambda d: d["hardware"].update(accelerator="B200"), "hardware.accelerator: each pool has its own"),
    (lambda d: d["hardware"].update(racks_per_module=4), "hardware.racks_per_module: does not go"),
    (lambda d: d["hardware"]["pools"].pop(), "hardware.pools: must have at least 2"),
    (lambda d: d["hardware"]["pools"][1].update(name="a100"), "is already that of hardware.pools[0]"),
    (lambda d: d["hardware"]["pools"][1].update(accelerator="H10"), "did you mean"),
    (lambda d: d["hardware"]["pools"][1].update(rack_s=1), "did you mean"),
    (lambda d: d["workload"]["precision"].update(compute="fp8"), "hardware.pools[0].accelerator: "),
    (lambda d: d.update(pins={"layout.tensor_parallel": 8}), "pins.layout.tensor_parallel: "),
    (lambda d: d.update(objective={"minimize": "cost_usd"}), "objective.minimize: pools"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_what_does_not_go_with_pools_is_refused(change, words):
    """Every part that the pools would leave out of account is named, with what to do."""
    data = small()
    change(data)
    with pytest.raises(InputError) as error:
        load_instance(data)
    assert words in str(error.value)


def test_link_without_pools_is_refused():
    """A link joins pools, so it needs some."""
    data = alone(small(), "h100")
    data["hardware"]["pool_link"] = {"gbps": 100}
    with pytest.raises(InputError, match="pool_link: joins pools"):
        load_instance(data)


@pytest.mark.parametrize("command", ["evaluate", "explain"])
def test_commands_on_one_layout_refuse_pools(command):
    """What asks about one layout says that pools have several: bad input, and no traceback."""
    found = CliRunner().invoke(app, [command, str(INSTANCE)])
    assert isinstance(found.exception, InputError)
    assert "hardware.pools" in str(found.exception)


def test_show_prints_each_pools_share(plan, tmp_path):
    """The summary names every pool with its sequences, its layout and its wait."""
    path = tmp_path / "plan.json"
    path.write_text(plan.model_dump_json(), encoding="utf-8")
    found = CliRunner().invoke(app, ["show", str(path)])
    assert found.exit_code == 0
    for name, n in plan.pools.sequences.items():
        assert f"{name}: {n:,} sequences" in found.output
    assert found.output.count("MFU") == 2
