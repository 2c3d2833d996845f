"""Tables of a user's own steps: what columns mean, where a mistake stands, and how far constants move by them."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import invoke, refusal
from each_case import each
from tiers import slow
from training_toys import precision_of

import planner
from planner.calibration.constants import CODE, GPU, PARTS, TUNABLES, FittedConstant, MeasuredConstants
from planner.calibration.fit import COLUMNS, Numbers, Prior, Shifts, log_errors, read_runs, shifts
from planner.cli.file_commands import MEASURED_HELP, calibrate
from planner.errors import InputError
from planner.instance.catalogue_entries import catalogue
from planner.instance.hardware import Accelerator
from planner.sweeps.sweep_run import SweepOptions, tasks_for

# Logs of steps as a cluster of known constants would write them: the predictor's own times.
ACCELERATOR, SOFTWARE = "H100", "megatron-core-2025"
HEADER = ("model", "layers", "gpus", "TP", "PP", "seq", "micro_batch", "micro_batches", "precision", "step_s")
SHAPES = (
    ("llama-3.1-8b", 8, 8, 1, 1, 4096, 1, 4), ("llama-3.1-8b", 8, 8, 1, 1, 4096, 1, 32),
    ("llama-3.1-8b", 8, 8, 8, 1, 4096, 1, 4), ("llama-3.1-8b", 8, 8, 8, 1, 4096, 1, 32),
    ("llama-3.1-8b", 8, 8, 1, 1, 32768, 1, 4), ("llama-3.1-8b", 1, 8, 1, 1, 512, 1, 4),
    ("llama-3.1-8b", 1, 8, 1, 1, 512, 1, 64), ("llama-3.1-8b", 8, 8, 2, 2, 4096, 1, 8),
    ("llama-3.1-8b", 8, 8, 2, 2, 4096, 1, 64), ("llama-3.1-70b", 4, 8, 4, 1, 8192, 1, 4),
    ("llama-3.1-70b", 4, 8, 4, 1, 8192, 1, 16), ("llama-3.1-70b", 4, 8, 8, 1, 8192, 2, 8),
)  # fmt: skip
"""Twelve lines of one node: models cut to a few layers, varied micro-batches, degrees and sequences."""
STEP = CODE + "step_seconds"
TRUE = {GPU + "gemm_efficiency.max_share.bf16": 0.55, STEP: 0.035, CODE + "microbatch_seconds": 0.004}


def constants_at(paths: Mapping[str, float]) -> tuple[list[FittedConstant], list[float]]:
    """Return constants of the cluster by their paths in an instance, and their values."""
    own = {GPU: ("accelerators", (ACCELERATOR,)), CODE: ("software", (SOFTWARE,))}
    constants = [FittedConstant(*own[x], path[len(x) :], 0.0, 1e9) for path in paths for x in own if path.startswith(x)]
    return constants, list(paths.values())


def write_rows(path: Path, rows: Sequence[Sequence[object]], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_log(path: Path, paths: Mapping[str, float], shapes: Sequence[Sequence[object]], factor: float = 1.0) -> Path:
    """Write the log of a cluster whose constants are the catalogue's but for those given, its steps a factor longer."""
    write_rows(path, [(*s, "bf16", 1.0) for s in shapes])
    ratios = np.exp(log_errors(read_runs(path, ACCELERATOR, SOFTWARE), *constants_at(paths)))
    return write_rows(path, [(*s, "bf16", factor * t) for s, t in zip(shapes, ratios.tolist(), strict=True)])


def fitted(
    path: Path, paths: Mapping[str, float], shapes: Sequence[Sequence[object]], factor: float = 1.0
) -> MeasuredConstants:
    """Return the constants fitted to such a log."""
    return planner.calibrate(write_log(path, paths, shapes, factor), accelerator=ACCELERATOR, software=SOFTWARE)


@pytest.fixture(scope="module", params=slow(6, 12), ids="{} lines".format)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MeasuredConstants:
    """Return what lines of a cluster of known constants determine."""
    return fitted(tmp_path_factory.mktemp("log") / "log.csv", TRUE, SHAPES[:: len(SHAPES) // request.param])


def test_known_constants_come_back(found: MeasuredConstants) -> None:
    """Without noise the true values lie in the interval, of twelve lines within a standard deviation and 10 %.

    What is known beforehand draws a little, of few lines more. Every line is predicted within a per cent or two, where
    the catalogue is far off.
    """
    for path, true in TRUE.items():
        x = found.values[path]
        assert x.interval[0] <= true <= x.interval[1]
        off, low, high = abs(np.log(x.value / true)), *np.log(x.interval)
        # The interval of 90 % has 3.29 standard deviations.
        assert found.number_of_lines < 12 or off < min(0.1, (high - low) / 3.29)
        # What few lines do not tell from another constant comes back in part.
        assert off < abs(np.log(x.catalogue / true)) / (3 if found.number_of_lines == 12 else 2)
    assert [x.line for x in found.lines] == list(range(2, found.number_of_lines + 2))
    assert max(abs(x.error) for x in found.lines) < 0.02
    assert max(abs(x.catalogue_seconds / x.measured_seconds - 1) for x in found.lines) > 0.1
    wanted = [x.predicted_seconds / x.measured_seconds - 1 for x in found.lines]
    assert [x.error for x in found.lines] == pytest.approx(wanted)


def test_every_tunable_is_determined_or_kept(found: MeasuredConstants) -> None:
    """No constant is left out, none stands twice, and what is kept has the catalogue's value and a reason."""
    # An efficiency is a share of a rate, and a fit takes it no higher than all of that rate; bounds are in order.
    assert {PARTS[t.kind] + t.path for t in TUNABLES} <= set(found.values) | set(found.kept)
    assert set(found.values).isdisjoint(found.kept)
    for path, kept in found.kept.items():
        ((constant,), _) = constants_at({path: kept.value})
        assert (kept.value, bool(kept.reason)) == (constant.read(), True)
    assert {found.kept[GPU + x].reason for x in ("nic_efficiency", "nic_latency_seconds")} == {"no line depends on it"}
    shares = [t for t in TUNABLES if t.path.endswith(("_efficiency", "_share"))]
    assert len(shares) >= 6 and {t.high for t in shares} == {1.0}
    assert all(0 < t.low < t.high and t.spread > 0 for t in TUNABLES)


def test_lines_of_the_catalogue_move_nothing(tmp_path: Path) -> None:
    """A cluster that is as the catalogue says keeps its constants, and the common factor is one."""
    same = fitted(tmp_path / "same.csv", {}, SHAPES[::2])
    assert same.common is not None and same.common.value == pytest.approx(1.0, abs=1e-4)
    assert same.common.interval[0] <= 1 <= same.common.interval[1] < 1.01
    for x in same.values.values():
        assert x.value == pytest.approx(x.catalogue, rel=2e-3)


@pytest.mark.parametrize("factor", slow(1.2, 0.85))
def test_lines_off_by_one_factor_move_it(tmp_path: Path, factor: float) -> None:
    """Steps that all take a factor as long: its interval holds it, and so do lines that were not fitted."""
    found = fitted(tmp_path / "slow.csv", {}, SHAPES[::2], factor)
    assert found.common is not None
    assert found.common.interval[0] <= factor <= found.common.interval[1]
    assert found.common.value == pytest.approx(factor, rel=0.005)
    rest = read_runs(write_log(tmp_path / "rest.csv", {}, SHAPES[1::2], factor), ACCELERATOR, SOFTWARE)
    moved = constants_at({k: x.value for k, x in found.values.items()})
    assert np.exp(log_errors(rest, *moved)) == pytest.approx(1.0, rel=0.02)


def test_what_is_not_determined_is_said(tmp_path, monkeypatch, capsys) -> None:
    """Where no constant is determined alone, the command says so, and by which factor it moves them together."""
    # Lines of one layout and one number of micro-batches do not tell what a step costs once.
    log = tmp_path / "alike.csv"
    alike = fitted(log, {}, [SHAPES[0]] * 3, 1.3)
    assert alike.values[STEP].shared_with and alike.values[CODE + "microbatch_seconds"].shared_with
    together = {k: x.replaced(shared_with=x.shared_with or "others") for k, x in alike.values.items()}
    monkeypatch.setattr(planner, "calibrate", lambda *_, **__: alike.replaced(values=together))
    calibrate(log)
    text = capsys.readouterr().out
    assert sum(not x.shared_with for x in alike.values.values()) <= 1  # one direction is known of them all
    assert "none alone, only all together: give more lines, with other layouts" in text
    assert alike.common is not None and f"COMMON FACTOR {alike.common.value:.4g} (with 90 %: " in text
    assert alike.common.interval[0] <= 1.3 <= alike.common.interval[1]


def question(**workload: Any) -> dict[str, Any]:
    """Return an instance of eight H100 that train a model on the log's stack."""
    own = {"model": "llama-3.1-8b", "tokens": 1e9, "sequence_length": 4096, "software": SOFTWARE}
    own |= {"precision": precision_of("bf16").model_dump(), **workload}
    hardware = {"accelerator": ACCELERATOR, "rack": "DGX-H100", "racks": 1}
    return {"name": "own", "limits": {"max_batch_tokens": 32 * 4096}, "workload": own, "hardware": hardware}


LAYOUT = {"tensor_parallel": 8, "pipeline_parallel": 1, "data_parallel": 1}
LAYOUT |= {"microbatches_per_step": 32, "zero_stage": 1}


def test_predictions_use_them(found: MeasuredConstants, tmp_path: Path) -> None:
    """An evaluation with the constants rests on them, from the object, a dict or a file alike, and says so."""
    # A plan made with them has them in its instance, so that the checker recomputes it without any file.
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
    plan = planner.solve(question(), constants=found, pins={f"layout.{k}": v for k, v in LAYOUT.items()})
    assert plan.instance.workload.software.step_seconds == found.values[STEP].value
    assert planner.check(planner.Plan.model_validate_json(plan.model_dump_json())) == []


def test_sweeps_use_them(found: MeasuredConstants) -> None:
    """Points of a sweep have the constants, also where the point names the accelerator; another keeps its own."""
    share = "gemm_efficiency.max_share.bf16"
    axis = [{"hardware.accelerator": name} for name in (ACCELERATOR, "A100-80GB")]
    points = [*axis, {"hardware.accelerator.gemm_efficiency.operand_traffic": 0.5}, {"hardware.racks": 2}]
    tasks = list(tasks_for(question(), points, SweepOptions(constants=found)))
    gpus = [Accelerator.model_validate(t.data["hardware"]["accelerator"]) for t in tasks]
    other = catalogue("accelerators")["A100-80GB"]["gemm_efficiency"]["max_share"]["bf16"]
    own = found.values[GPU + share].value
    assert [gpu.gemm_efficiency.max_share["bf16"] for gpu in gpus] == [own, other, own, own]
    assert gpus[2].gemm_efficiency.operand_traffic == 0.5
    assert {t.data["workload"]["software"]["step_seconds"] for t in tasks} == {found.values[STEP].value}


@pytest.mark.parametrize(("change", "message"), [
    ({"values": {"workload.tokens": None}}, "values.workload.tokens: must begin with"),
    ({"values": {CODE + "nothing": None}}, "nothing"),
    ({"accelerator": None}, "accelerator"),
    ({"extra": 1}, "extra: unknown key"),
    ({"kind": "plan"}, "kind: must be 'measured constants' .is 'plan'.; give the file that"),
])  # fmt: skip
def test_wrong_constants_are_refused(found: MeasuredConstants, change: dict[str, Any], message: str) -> None:
    data = found.model_dump(mode="json")
    if isinstance(change.get("values"), dict):
        change = {"values": dict.fromkeys(change["values"], data["values"][STEP])}
    with pytest.raises(InputError, match=message):
        planner.evaluate(question(), LAYOUT, constants=data | change)


COMMANDS = "solve", "evaluate", "explain", "limits", "sweep --vary hardware.racks=1,2 -o rows.csv", "fabric pareto"


@each("command", COMMANDS)
def test_every_command_that_predicts_takes_them(tmp_path: Path, command: str) -> None:
    instance, wrong = tmp_path / "instance.json", tmp_path / "constants.json"
    instance.write_text(json.dumps(question()))
    wrong.write_text("[1]")
    words = [str(tmp_path / w) if w.endswith(".csv") else w for w in command.split()]
    refused = refusal(invoke(*words, instance, "--constants", wrong))
    assert refused.startswith(f"{wrong}: must be a JSON object (is list); give the file")


def test_where_they_are_of_no_use(found: MeasuredConstants, tmp_path: Path) -> None:
    """Those of another GPU and stack, also where `--set` has replaced them, and of a plan, which has its own."""
    other, plan, file = question(software="torchtitan"), tmp_path / "plan.json", tmp_path / "constants.json"
    other["hardware"]["accelerator"] = "A100-80GB"
    with pytest.raises(InputError, match="of no use"):
        planner.evaluate(other, LAYOUT, constants=found)
    plan.write_text(json.dumps({"planner_version": "0", "instance": {"workload": {"model": "x"}}}))
    file.write_text(found.model_dump_json())
    result = invoke("fabric", "pareto", plan, "--constants", file)
    assert "is a plan, which has its own" in str(result.exception)
    runs = ["limits", "limits-h100", "--points", "2", "--from", "1e22", "--to", "1e23", "--constants", file]
    changes = ["--set", "hardware.accelerator=B200", "--set", "hardware.rack=DGX-B200"]
    assert "are of no use" in refusal(invoke(*runs, *changes))


HEADER = ("model", "gpus", "TP", "PP", "seq", "micro_batches", "step_ms")
FINE = ("llama-3.1-8b", 16, 4, 2, 4096, 8, 500)


def test_defaults(tmp_path: Path) -> None:
    """What is left out has its default; replicas follow from the GPUs, milliseconds become seconds."""
    (run,) = read_runs(write_rows(tmp_path / "log.csv", [FINE], HEADER), "H100")
    s, m = run.strategy, run.machine
    assert (run.line, run.seconds, m.sequence) == (2, 0.5, 4096)
    assert (s.tensor_parallel, s.pipeline_parallel, s.data_parallel, s.context_parallel) == (4, 2, 2, 1)
    assert (s.micro_batch, s.micro_batches, s.zero_stage, s.recompute, s.virtual_stages) == (1, 8, 1, "none", 1)
    assert (m.precision.compute, m.software.name, m.gpu.name, m.rack.gpus) == ("bf16", "megatron-bridge", "H100", 8)
    assert s.layers_per_stage == (16, 16)


def test_names_of_megatron(tmp_path: Path) -> None:
    """Names of Megatron's options, with dashes and capitals, are columns too; a global batch gives micro-batches."""
    header = (
        *("num-layers", "hidden-size", "num-attention-heads", "num-query-groups", "ffn-hidden-size", "vocab size"),
        *("Swiglu", "World-Size", "tensor-model-parallel-size", "pipeline-model-parallel-size", "seq-length"),
        *("micro-batch-size", "Global-Batch-Size", "step_s", "ZERO", "recompute-granularity", "sp", "comment"),
    )
    row = (12, 1024, 16, 8, 3072, 32000, "yes", 8, 2, 2, 2048, 2, 32, 0.25, 0, "Full", "no", "a note")
    (run,) = read_runs(write_rows(tmp_path / "log.csv", [row], header), "H100")
    s, model = run.strategy, run.machine.model
    assert (model.layers, model.hidden, model.heads, model.kv, model.ffn_width) == (12, 1024, 16, 8, 3072)
    assert (model.vocabulary, model.gated_ffn, model.tied_embeddings) == (32000, True, True)
    assert (s.micro_batch, s.micro_batches, s.data_parallel, s.recompute, s.zero_stage) == (2, 8, 2, "full", 0)
    assert (run.seconds, s.sequence_parallel) == (0.25, False)


def test_a_cut_model_and_an_own_network(tmp_path: Path) -> None:
    """A model of the catalogue may be cut to fewer layers; the NIC's rate is in Gb/s; GB200 come in racks of 72."""
    header = (*HEADER, "layers", "nic_gbps", "accelerator", "precision")
    (run,) = read_runs(write_rows(tmp_path / "log.csv", [(*FINE, 4, 200, "gb200", "MXFP8")], header))
    assert (run.machine.model.layers, run.machine.gpu.nic_bytes_per_second) == (4, 25e9)
    assert (run.machine.gpu.name, run.machine.rack.gpus, run.machine.precision.compute) == ("GB200", 72, "fp8")
    assert run.machine.precision.working_parameter_bytes == 1


NAMES = {"BF16": "bf16", "bfloat16": "bf16", "float16": "fp16", "NVFP4": "fp4", "FP8-CS": "fp8"}


def test_names_of_precisions(tmp_path: Path) -> None:
    rows, header = [(*FINE, "gb200", name) for name in NAMES], (*HEADER, "accelerator", "precision")
    runs = read_runs(write_rows(tmp_path / "log.csv", rows, header))
    assert [run.machine.precision.compute for run in runs] == list(NAMES.values())


WRONG = (
    ("TP", "0", "column tp: must be a whole number from 1 to 10,000,000 (is '0'); correct it"),
    ("gpus", "-8", "column gpus: must be a whole number from 1"), ("gpus", "12", "must be TP x CP x PP x DP (is '12')"),
    ("PP", "two", "column pp: must be a whole number from 1 to 10,000,000 (is 'two')"), ("PP", "1.5", "be a whole"),
    ("seq", "", "column seq: is missing; add it"), ("seq", "1e99", "column seq: must be a whole number"),
    ("micro_batches", "", "column micro_batches: is missing; add it, or global_batch"),
    ("model", "llama-3.1-9b", "entry of the catalogue's models (is 'llama-3.1-9b'); did you mean 'llama-3.1-8b'"),
    ("step_ms", "0", "column step_ms: must be a finite number greater than 0 (is '0')"),
    ("step_ms", "-3", "greater than 0"), ("step_ms", "nan", "column step_ms: must be a finite number"),
    ("step_ms", "inf", "must be a finite number"), ("step_ms", "fast", "must be a number (is 'fast')"),
    ("precision", "fp4", "must be a type that H100 has (is 'fp4'); choose one of bf16, fp16, fp32, fp8"),
    ("precision", "int4", "must be a type that H100 has (is 'int4')"),
    ("recompute", "some", "column recompute: must be one of none, selective, full (is 'some')"),
    ("layers", "1e6", "column layers: must be a whole number from 1 to 10,000"),
    ("zero", "4", "column zero: must be 0, 1, 2 or 3"), ("ep", "2", "column ep: must divide the 1 experts"),
    ("vp", "20", "column pp: 40 chunks of stages"), ("sp", "maybe", "must be yes or no (is 'maybe')"),
    ("software", "pytorch", "is no entry of the catalogue's software (is 'pytorch')"),
    ("nic_gbps", "0", "column nic_gbps: must be a finite number greater than 0"),
    ("dp", "3", "must be TP x CP x PP x DP (is '16'); correct it, or the degrees: TP x CP x PP is 8, and DP 3"),
)  # fmt: skip


@each(("column", "cell", "message"), WRONG)
def test_a_wrong_cell_is_named(tmp_path: Path, column: str, cell: str, message: str) -> None:
    fine = dict(zip(HEADER, FINE, strict=True))
    rows = [(fine | {column: text}).values() for text in (fine.get(column, ""), cell)]
    path = write_rows(tmp_path / "log.csv", rows, list(fine | {column: cell}))
    with pytest.raises(InputError) as caught:
        read_runs(path, "H100")
    text = str(caught.value)
    assert text.startswith(f"{path}: line 3: column ") and message in text
    assert "; " in text and "\n" not in text


HEAD, ROW = ",".join(HEADER), ",".join(map(str, FINE))


@each(("text", "message"), [
    (f"{HEAD},gpu\n{ROW},H100\n{ROW},B200\n", "line 3: column accelerator: constants belong to one accelerator"),
    (f"{HEAD},gpu,stack\n{ROW},H100,torchtitan\n{ROW},H100,nemo-2024\n", "software: constants belong to one software"),
    ("", "has no measured line"), ("model,gpus,step_ms\n", "has no measured line"),
    ("model,gpus\nx,8\n", "line 1: column step_ms or step_s: is missing"),
    ("tp,TP,step_s\n1,1,1\n", "line 1: column 'tp': tp is given twice; keep one"),
    ("tp,step_s\n1,1,1\n", "line 2: has 3 cells where the header has 2"),
    ('tp,step_s\n"1,1\n', "is no CSV"),
    ("tp,step_s\n\n1,\n", "line 3: column accelerator: is missing; add it, or --accelerator"),
])  # fmt: skip
def test_a_wrong_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_runs(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


@each(("arguments", "message"), [
    (["--accelerator", "H1000"], "--accelerator: 'H1000' is no entry of the catalogue's accelerators; did you"),
    (["--accelerator", "H100", "--software", "none"], "--software: 'none' is no entry"),
    (["--accelerator", "H100", "-o", "/nowhere/c.json"], "/nowhere/c.json: its folder does not exist"),
    ([], "line 2: column accelerator: is missing"),
])  # fmt: skip
def test_command_refuses(tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = refusal(invoke("calibrate", write_rows(tmp_path / "log.csv", [FINE, FINE], HEADER), *arguments))
    assert message in refused and "\n" not in refused


def test_command_writes_and_prints(tmp_path: Path) -> None:
    """One line is too few; the help names every column."""
    path, out = write_rows(tmp_path / "log.csv", [FINE], HEADER), tmp_path / "constants.json"
    assert "has 1 measured line; give at least 2" in refusal(invoke("calibrate", path, "--accelerator", "h100"))
    write_rows(path, [FINE, FINE], HEADER)
    result = invoke("calibrate", path, "--accelerator", "h100", "-o", out)
    assert result.exit_code == 0
    assert result.output.startswith("H100, megatron-bridge: 2 lines of log.csv")
    assert "DETERMINED" in result.output and "AS IN THE CATALOGUE" in result.output
    assert '"kind": "measured constants"' in out.read_text()
    assert set(COLUMNS) <= set(re.findall(r"\w+", MEASURED_HELP.lower()))


OPEN = 0.1
RATES = np.array([-1.0, -1.0, 1.0, 1.0])
"""Two rates and two times: a common factor lowers the one and raises the other."""
PRIOR = Prior(common=RATES, between=0.04, open_root=OPEN * np.eye(len(RATES)), plausible=np.full(len(RATES), 0.3))


def shares(lines: int, seed: int = 0) -> Numbers:
    """Return slopes of lines whose steps are sums of the four constants' parts, each of another mixture."""
    parts = np.random.default_rng(seed).dirichlet(np.ones(len(RATES)), lines)
    return np.asarray(parts * RATES)


def of_factor(factor: float, lines: int, noise: float = 0.0, seed: int = 0) -> Shifts:
    """Return the shifts by lines that take a factor as long as predicted, and each a little more or less."""
    random = np.random.default_rng([seed, lines])
    return shifts(-np.log(factor) + noise * random.standard_normal(lines), shares(lines, seed), PRIOR)


@each("noise", [0.02, 0.05])
def test_noise_moves_little(noise: float) -> None:
    """Errors in no order, round none, move no constant by as much as one line is off."""
    moves = [np.abs(of_factor(1.0, 10, noise, seed).mean) for seed in range(40)]
    assert np.mean(moves) < 0.6 * noise
    assert np.max(moves) < 3 * noise


@each("factor", [0.7, 0.9, 1.0, 1.05, 1.3, 1.8])
@each("lines", [4, 12])
def test_one_factor_moves_all_alike(factor: float, lines: int) -> None:
    """Lines that agree move nothing."""
    found = of_factor(factor, lines)
    assert found.mean == pytest.approx(np.log(factor) * RATES, abs=0.05 * abs(np.log(factor)) + 1e-12)
    assert found.left_out == pytest.approx(0.0, abs=0.6 / lines * abs(np.log(factor)) + 1e-12)
    assert found.noise < 0.02


@pytest.mark.parametrize(("lines", "noise"), [(4, 0.02), (8, 0.05), (12, 0.01), (12, 0.05)])
def test_the_interval_covers_the_factor(lines: int, noise: float) -> None:
    """The 90 % interval of the mean of the lines' logarithms covers the factor about so often, of any size."""
    inside = []
    for seed in range(60):
        factor = np.exp(np.random.default_rng(seed).normal(0.0, 0.2))
        found, along = of_factor(factor, lines, noise, seed), np.mean(shares(lines, seed), axis=0)
        reach = 1.645 * np.sqrt(along @ found.covariance @ along)
        inside.append(abs(along @ found.mean - np.log(factor)) <= reach)
    assert np.mean(inside) >= 0.85


@each("constant", range(len(RATES)))
def test_one_constant_moves_alone(constant: int) -> None:
    """Where lines are off as far as they depend on one constant, that one moves and the others hardly do."""
    # One stray line moves little.
    slopes = np.vstack([np.diag(RATES), shares(8)])
    found = shifts(-0.25 * slopes[:, constant], slopes, PRIOR)
    assert found.mean == pytest.approx(np.where(np.arange(len(RATES)) == constant, 0.25, 0.0), abs=0.03)
    stray = shifts(0.5 * (np.arange(12) == 3), shares(12), PRIOR)
    assert np.max(np.abs(stray.mean)) < 0.02


@pytest.mark.parametrize("seed", range(4))
def test_a_line_left_out_is_as_refitted(seed: int) -> None:
    """The error of a line without itself is that of shifts by the other lines, but for what is not linear."""
    slopes = shares(12, seed)
    random = np.random.default_rng(seed)
    errors = slopes @ (0.15 * random.standard_normal(4)) + 0.02 * random.standard_normal(12)
    found, again = shifts(errors, slopes, PRIOR), []
    for i in range(12):
        others = np.arange(12) != i
        again.append(errors[i] + slopes[i] @ shifts(errors[others], slopes[others], PRIOR).mean)
    assert np.mean(np.abs(found.left_out - again)) < 0.2 * np.mean(np.abs(again)) + 0.002
    assert np.corrcoef(found.left_out, again)[0, 1] > 0.9


def test_what_no_line_shows_stays_as_open_as_it_was() -> None:
    slopes = shares(12)
    slopes[:, 0] = 0.0
    found = shifts(0.02 * np.random.default_rng(0).standard_normal(12), slopes, PRIOR)
    assert abs(found.mean[0]) < 0.02
    assert found.covariance[0, 0] > 0.4 * OPEN**2
