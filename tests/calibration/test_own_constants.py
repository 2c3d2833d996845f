"""Constants of a user's cluster: a log of known constants gives these back, and what it does not show stays."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_steps import ACCELERATOR, SHAPES, SOFTWARE, write_log
from tiers import slow
from typer.testing import CliRunner

import planner
from planner.calibration.constants import CODE, GPU, MeasuredConstants, value_at
from planner.calibration.fit import TUNABLES
from planner.cli import main
from planner.errors import InputError
from planner.instance.hardware import Accelerator
from planner.instance.workload import Software, catalogue
from planner.sweeps.sweep_run import SweepOptions, tasks_for

STEP = CODE + "step_seconds"
TRUE = {
    GPU + "gemm_efficiency.max_share.bf16": 0.55,
    STEP: 0.035,
    CODE + "microbatch_seconds": 0.004,
}


@pytest.fixture(scope="module", params=slow(6, 12), ids="{} lines".format)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MeasuredConstants:
    """Return what lines of a cluster of known constants determine."""
    log = write_log(tmp_path_factory.mktemp("log") / "log.csv", TRUE, SHAPES[:: len(SHAPES) // request.param])
    return planner.calibrate(log, accelerator=ACCELERATOR, software=SOFTWARE)


@pytest.mark.parametrize("path", TRUE)
def test_known_constants_come_back(found: MeasuredConstants, path: str) -> None:
    x = found.values[path]
    assert x.interval[0] <= TRUE[path] <= x.interval[1]
    off, low, high = abs(np.log(x.value / TRUE[path])), *np.log(x.interval)
    assert off < (high - low) / 10
    assert found.number_of_lines < 12 or off < 0.1
    assert abs(np.log(x.value / TRUE[path])) < abs(np.log(x.catalogue / TRUE[path])) / 3


def test_lines_are_predicted(found: MeasuredConstants) -> None:
    """Every line is predicted within a per cent or two, where the catalogue is far off."""
    assert found.number_of_lines == len(found.lines) in (6, 12)
    assert [x.line for x in found.lines] == list(range(2, len(found.lines) + 2))
    assert max(abs(x.error) for x in found.lines) < 0.02
    assert max(abs(x.catalogue_seconds / x.measured_seconds - 1) for x in found.lines) > 0.1
    for x in found.lines:
        assert x.error == pytest.approx(x.predicted_seconds / x.measured_seconds - 1)


@pytest.mark.parametrize("name", ["nic_efficiency", "nic_latency_seconds"])
def test_what_no_line_shows_stays(found: MeasuredConstants, name: str) -> None:
    kept = found.kept[GPU + name]
    assert kept.value == catalogue("accelerators")[ACCELERATOR][name]
    assert kept.reason == "no line depends on it"
    assert GPU + name not in found.values


def test_every_tunable_is_determined_or_kept(found: MeasuredConstants) -> None:
    """No constant is left out, none stands twice, and what is kept has the catalogue's value and a reason."""
    names = {(GPU if t.kind == "accelerators" else CODE) + t.path for t in TUNABLES}
    assert names <= set(found.values) | set(found.kept)
    assert set(found.values).isdisjoint(found.kept)
    entries = {
        GPU: Accelerator.model_validate(catalogue("accelerators")[ACCELERATOR]),
        CODE: Software.model_validate(catalogue("software")[SOFTWARE]),
    }
    for path, kept in found.kept.items():
        part = GPU if path.startswith(GPU) else CODE
        assert kept.value == value_at(entries[part], path.removeprefix(part))
        assert kept.reason


def test_alike_lines_determine_less(tmp_path: Path) -> None:
    """Lines of one layout and one number of micro-batches do not tell what a step costs once."""
    log = write_log(tmp_path / "alike.csv", TRUE, [SHAPES[0]] * 3)
    alike = planner.calibrate(log, accelerator=ACCELERATOR, software=SOFTWARE)
    assert alike.values[STEP].shared_with
    assert alike.values[CODE + "microbatch_seconds"].shared_with


def test_one_line_is_too_few(tmp_path: Path) -> None:
    log = write_log(tmp_path / "one.csv", {}, SHAPES[:1])
    with pytest.raises(InputError, match="has 1 measured line; give at least 2"):
        planner.calibrate(log, accelerator=ACCELERATOR, software=SOFTWARE)


def question(**workload: Any) -> dict[str, Any]:
    """Return an instance of eight H100 that train a model on the log's stack."""
    wide = dict.fromkeys(("parameter_bytes", "working_parameter_bytes", "activation_bytes", "collective_bytes"), 2)
    own = {"model": "llama-3.1-8b", "tokens": 1e9, "sequence_length": 4096, "software": SOFTWARE}
    own |= {"precision": {"compute": "bf16", "gradient_bytes": 4, "optimizer_bytes": 12, **wide}}
    return {
        "name": "own",
        "limits": {"max_batch_tokens": 32 * 4096},
        "workload": own | workload,
        "hardware": {"accelerator": ACCELERATOR, "rack": "DGX-H100", "racks": 1},
    }


LAYOUT = {"tensor_parallel": 8, "pipeline_parallel": 1, "data_parallel": 1}
LAYOUT |= {"microbatches_per_step": 32, "zero_stage": 1}


def test_predictions_use_them(found: MeasuredConstants, tmp_path: Path) -> None:
    """An evaluation with the constants rests on them, from the object, a dict or a file alike, and says so."""
    file = tmp_path / "constants.json"
    file.write_text(found.model_dump_json())
    plain = planner.evaluate(question(), LAYOUT)
    own = [planner.evaluate(question(), LAYOUT, constants=c) for c in (found, json.loads(file.read_text()), file)]
    assert own[0] == own[1] == own[2]
    assert own[0].step_seconds != pytest.approx(plain.step_seconds, rel=0.01)
    step = next(c for c in own[0].rests_on["cpu_overhead"] if c.path == STEP)
    assert step.value == found.values[STEP].value
    assert step.source.startswith(f"`planner calibrate` on log.csv, {len(found.lines)} lines: ")
    assert planner.evaluate(question(), LAYOUT) == plain  # the catalogue itself is as it was


def test_plans_carry_them(found: MeasuredConstants) -> None:
    """A plan made with the constants has them in its instance, so that the checker recomputes it without any file."""
    plan = planner.solve(question(), constants=found, pins={f"layout.{k}": v for k, v in LAYOUT.items()})
    software = plan.instance.workload.software
    assert isinstance(software, Software)
    assert software.step_seconds == found.values[STEP].value
    again = planner.Plan.model_validate_json(plan.model_dump_json())
    assert planner.check(again) == []


def test_sweeps_use_them(found: MeasuredConstants) -> None:
    """Points of a sweep have the constants, also where the point names the accelerator; another keeps its own."""
    share = "gemm_efficiency.max_share.bf16"
    axis = [{"hardware.accelerator": name} for name in (ACCELERATOR, "A100-80GB")]
    points = [*axis, {"hardware.accelerator.gemm_efficiency.operand_traffic": 0.5}, {"hardware.racks": 2}]
    tasks = tasks_for(question(), points, SweepOptions(constants=found))
    gpus = [Accelerator.model_validate(t.data["hardware"]["accelerator"]) for t in tasks]
    other = catalogue("accelerators")["A100-80GB"]["gemm_efficiency"]["max_share"]["bf16"]
    own = found.values[GPU + share].value
    assert [value_at(gpu, share) for gpu in gpus] == [own, other, own, own]
    assert gpus[2].gemm_efficiency.operand_traffic == 0.5
    assert {t.data["workload"]["software"]["step_seconds"] for t in tasks} == {found.values[STEP].value}


def test_constants_of_another_machine_are_refused(found: MeasuredConstants) -> None:
    asked = question(software="torchtitan")
    asked["hardware"]["accelerator"] = "A100-80GB"
    with pytest.raises(InputError, match="of no use"):
        planner.evaluate(asked, LAYOUT, constants=found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": {"workload.tokens": None}}, "values.workload.tokens: must begin with"),
        ({"values": {CODE + "nothing": None}}, "nothing"),
        ({"accelerator": None}, "accelerator"),
        ({"extra": 1}, "extra: unknown key"),
        ({"kind": "plan"}, "kind: must be 'measured constants' .is 'plan'.; give the file that"),
    ],
)
def test_wrong_constants_are_refused(found: MeasuredConstants, change: dict[str, Any], message: str) -> None:
    """A file of constants that was changed by hand is refused where it is wrong."""
    data = found.model_dump(mode="json")
    if isinstance(change.get("values"), dict):
        change = {"values": dict.fromkeys(change["values"], data["values"][STEP])}
    with pytest.raises(InputError, match=message):
        planner.evaluate(question(), LAYOUT, constants=data | change)


COMMANDS = "solve", "evaluate", "explain", "limits", "sweep --vary hardware.racks=1,2 -o rows.csv", "fabric pareto"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_predicts_takes_them(tmp_path: Path, command: str) -> None:
    asked, wrong = tmp_path / "asked.json", tmp_path / "constants.json"
    asked.write_text(json.dumps(question()))
    wrong.write_text("[1]")
    words = [str(tmp_path / w) if w.endswith(".csv") else w for w in command.split()]
    result = CliRunner().invoke(main.app, [*words, str(asked), "--constants", str(wrong)])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{wrong}: must be a JSON object (is list); give the file")


def test_a_plan_has_its_own(found: MeasuredConstants, tmp_path: Path) -> None:
    plan, file = tmp_path / "plan.json", tmp_path / "constants.json"
    plan.write_text(json.dumps({"planner_version": "0", "instance": {}}))
    file.write_text(found.model_dump_json())
    result = CliRunner().invoke(main.app, ["fabric", "pareto", str(plan), "--constants", str(file)])
    assert "is a plan, which has its own" in str(result.exception)


def test_no_share_is_fitted_beyond_the_whole() -> None:
    """An efficiency is a share of a rate, and a fit takes it no higher than all of that rate; bounds are in order."""
    shares = [t for t in TUNABLES if t.path.endswith(("_efficiency", "_share"))]
    assert len(shares) >= 6 and {t.high for t in shares} == {1.0}
    assert all(0 < t.low < t.high and t.spread > 0 for t in TUNABLES)
