"""Tables of a user's own steps: what columns mean, and where a mistake stands."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from measured_steps import write_rows
from typer.testing import CliRunner

from planner.calibration.measured_steps import COLUMNS, MeasuredRun, dtype_of, read_runs
from planner.cli import main
from planner.cli.file_commands import MEASURED_HELP
from planner.errors import InputError

HEADER = ("model", "gpus", "TP", "PP", "seq", "micro_batches", "step_ms")
FINE = ("llama-3.1-8b", 16, 4, 2, 4096, 8, 500)


def one(path: Path, header: Sequence[str], row: Sequence[object], **options: str) -> MeasuredRun:
    """Return the one run of a table of H100s."""
    (run,) = read_runs(write_rows(path / "log.csv", [row], header), **({"gpu": "H100"} | options))
    return run


def test_defaults(tmp_path: Path) -> None:
    """What is left out has its default; replicas follow from the GPUs, milliseconds become seconds."""
    run = one(tmp_path, HEADER, FINE)
    s, m = run.strategy, run.machine
    assert (run.line, run.seconds, m.sequence) == (2, 0.5, 4096)
    assert (s.tensor_parallel, s.pipeline_parallel, s.data_parallel, s.context_parallel) == (4, 2, 2, 1)
    assert (s.micro_batch, s.micro_batches, s.zero_stage, s.recompute, s.virtual_stages) == (1, 8, 1, "none", 1)
    assert (m.precision.compute, m.software.name, m.gpu.name, m.rack.gpus) == ("bf16", "megatron-core", "H100", 8)
    assert s.layers_per_stage == (16, 16)


def test_names_of_megatron(tmp_path: Path) -> None:
    """Names of Megatron's options, with dashes and capitals, are columns too; a global batch gives micro-batches."""
    header = (
        *("num-layers", "hidden-size", "num-attention-heads", "num-query-groups", "ffn-hidden-size", "vocab size"),
        *("Swiglu", "World-Size", "tensor-model-parallel-size", "pipeline-model-parallel-size", "seq-length"),
        *("micro-batch-size", "Global-Batch-Size", "step_s", "ZERO", "recompute-granularity", "sp", "comment"),
    )
    row = (12, 1024, 16, 8, 3072, 32000, "yes", 8, 2, 2, 2048, 2, 32, 0.25, 0, "Full", "no", "a note")
    run = one(tmp_path, header, row)
    s, model = run.strategy, run.machine.model
    assert (model.layers, model.hidden, model.heads, model.kv, model.ffn_width) == (12, 1024, 16, 8, 3072)
    assert (model.vocabulary, model.gated_ffn, model.tied_embeddings) == (32000, True, True)
    assert (s.micro_batch, s.micro_batches, s.data_parallel, s.recompute, s.zero_stage) == (2, 8, 2, "full", 0)
    assert (run.seconds, s.sequence_parallel) == (0.25, False)


def test_a_cut_model_and_an_own_network(tmp_path: Path) -> None:
    """A model of the catalogue may be cut to fewer layers; the NIC's rate is in Gb/s; GB200 come in racks of 72."""
    header = (*HEADER, "layers", "nic_gbps", "accelerator", "precision")
    run = read_runs(write_rows(tmp_path / "log.csv", [(*FINE, 4, 200, "gb200", "MXFP8")], header))[0]
    assert (run.machine.model.layers, run.machine.gpu.nic_bytes_per_second) == (4, 25e9)
    assert (run.machine.gpu.name, run.machine.rack.gpus, run.machine.precision.compute) == ("GB200", 72, "fp8")
    assert run.machine.precision.working_parameter_bytes == 1


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("BF16", "bf16"), ("bfloat16", "bf16"), ("float16", "fp16"), ("NVFP4", "fp4"), ("FP8-CS", "fp8"), ("int4", None)],
)
def test_names_of_precisions(text: str, dtype: str | None) -> None:
    assert dtype_of(text) == dtype


WRONG = {
    "TP": [("0", "column tp: must be a whole number from 1 to 10,000,000 (is '0'); correct it")],
    "gpus": [("-8", "column gpus: must be a whole number from 1"), ("12", "must be TP x CP x PP x DP (is '12')")],
    "PP": [
        ("two", "column pp: must be a whole number from 1 to 10,000,000 (is 'two')"),
        ("1.5", "column pp: must be a whole"),
    ],
    "seq": [("", "column seq: is missing; add it"), ("1e99", "column seq: must be a whole number")],
    "micro_batches": [("", "column micro_batches: is missing; add it, or global_batch")],
    "model": [("llama-3.1-9b", "no entry of the catalogue's models (is 'llama-3.1-9b'); did you mean 'llama-3.1-8b'")],
    "step_ms": [
        ("0", "column step_ms: must be a finite number greater than 0 (is '0')"),
        ("-3", "greater than 0"),
        ("nan", "column step_ms: must be a finite number"),
        ("inf", "column step_ms: must be a finite number"),
        ("fast", "column step_ms: must be a number (is 'fast')"),
    ],
}
EXTRA = (
    ("precision", "fp4", "must be a type that H100 has (is 'fp4'); choose one of bf16, fp16, fp32, fp8"),
    ("recompute", "some", "column recompute: must be one of none, selective, full (is 'some')"),
    ("layers", "1e6", "column layers: must be a whole number from 1 to 10,000"),
    ("zero", "4", "column zero: must be 0, 1, 2 or 3"),
    ("ep", "2", "column ep: must divide the 1 experts"),
    ("vp", "20", "column pp: 40 chunks of stages"),
    ("sp", "maybe", "must be yes or no (is 'maybe')"),
    ("software", "pytorch", "is no entry of the catalogue's software (is 'pytorch')"),
    ("nic_gbps", "0", "column nic_gbps: must be a finite number greater than 0"),
    ("dp", "3", "must be TP x CP x PP x DP (is '16'); correct it, or the degrees: TP x CP x PP is 8, and DP 3"),
)
CELLS = [(HEADER, {c: v}, message) for c, each in WRONG.items() for v, message in each] + [
    ((*HEADER, column), {column: value}, message) for column, value, message in EXTRA
]


@pytest.mark.parametrize(("header", "cells", "message"), CELLS)
def test_a_wrong_cell_is_named(tmp_path: Path, header: tuple[str, ...], cells: dict[str, str], message: str) -> None:
    fine = dict(zip(HEADER, FINE, strict=True))
    rows = [[fine.get(c, "") for c in header], [(fine | cells).get(c, "") for c in header]]
    path = write_rows(tmp_path / "log.csv", rows, header)
    with pytest.raises(InputError) as caught:
        read_runs(path, "H100")
    text = str(caught.value)
    assert text.startswith(f"{path}: line 3: column ")
    assert message in text
    assert "; " in text and "\n" not in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no measured line"),
        ("model,gpus,step_ms\n", "has no measured line"),
        ("model,gpus\nx,8\n", "line 1: column step_ms or step_s: is missing"),
        ("tp,TP,step_s\n1,1,1\n", "line 1: column 'tp': tp is given twice; keep one"),
        ("tp,step_s\n1,1,1\n", "line 2: has 3 cells where the header has 2"),
        ('tp,step_s\n"1,1\n', "is no CSV"),
        ("tp,step_s\n\n1,\n", "line 3: column accelerator: is missing; add it, or --accelerator"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    """A table that cannot be read is refused with its reason."""
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_runs(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_one_machine_a_table(tmp_path: Path) -> None:
    """Lines of two accelerators, or two stacks, have no constants in common."""
    for column, names in (("accelerator", ("H100", "B200")), ("software", ("megatron-core", "torchtitan"))):
        path = write_rows(tmp_path / "log.csv", [(*FINE, n) for n in names], (*HEADER, column))
        with pytest.raises(InputError, match=f"line 3: column {column}: constants belong to one {column}"):
            read_runs(path, None if column == "accelerator" else "H100")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--accelerator", "H1000"],
            "--accelerator: 'H1000' is no entry of the catalogue's accelerators; did you",
        ),
        (["--accelerator", "H100", "--software", "none"], "--software: 'none' is no entry"),
        (["--accelerator", "H100", "-o", "/nowhere/c.json"], "/nowhere/c.json: its folder does not exist"),
        ([], "line 2: column accelerator: is missing"),
    ],
)
def test_command_refuses(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = write_rows(tmp_path / "log.csv", [FINE, FINE], HEADER)
    result = CliRunner().invoke(main.app, ["calibrate", str(path), *arguments])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_command_writes_and_prints(tmp_path: Path) -> None:
    """The command prints what it found as a table, and writes it for `--constants`."""
    path, out = write_rows(tmp_path / "log.csv", [FINE, FINE], HEADER), tmp_path / "constants.json"
    result = CliRunner().invoke(main.app, ["calibrate", str(path), "--accelerator", "h100", "-o", str(out)])
    assert result.exit_code == 0
    assert result.output.startswith("H100, megatron-core: 2 lines of log.csv")
    assert "DETERMINED" in result.output and "AS IN THE CATALOGUE" in result.output
    assert '"kind": "measured constants"' in out.read_text()


def test_help_names_every_column() -> None:
    words = {w.lower() for w in MEASURED_HELP.replace(",", " ").replace(";", " ").replace("(", " ").split()}
    assert set(COLUMNS) <= words
