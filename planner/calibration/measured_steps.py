"""Measured steps of a user's table, one run a line, with the place of each mistake, as runs that can be predicted."""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never, cast, get_args

from pydantic import ValidationError

from planner.errors import InputError, hint
from planner.files import read_text
from planner.instance.base_types import Dtype
from planner.instance.hardware import Accelerator, Rack
from planner.instance.workload import Model, Precision, Software, catalogue
from planner.physics.training.operations import Machine, Recompute
from planner.physics.training.parallel_strategy import ParallelStrategy, even_layers, packing

NODE = Rack(name="node", gpus=8, it_kw=10.0, price_usd=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A measured step of a user's table: its line, its machine, its layout, and its seconds."""

    line: int
    machine: Machine
    strategy: ParallelStrategy
    seconds: float


def precision(
    dtype: str, *, gradient_bytes: float, master_bytes: float = 4.0, optimizer_bytes: float = 8.0
) -> Precision:
    """Return a measured run's mixed precision: working weights as wide as the type, FP32 master weights and moments."""
    working = {"fp4": 1.0, "fp8": 1.0}.get(dtype, 2.0)
    return Precision.model_validate(
        {
            "compute": dtype,
            "parameter_bytes": working + master_bytes,
            "working_parameter_bytes": working,
            "gradient_bytes": gradient_bytes,
            "optimizer_bytes": optimizer_bytes,
            "activation_bytes": 2.0,
            "collective_bytes": 2.0,
        }
    )


def dtype_of(text: str) -> Dtype | None:
    """Return the data type of products that a measured run's name of a precision means; None where it names none."""
    plain = text.lower().replace("bfloat", "bf").replace("float", "fp")
    return next((dtype for dtype in cast("tuple[Dtype, ...]", get_args(Dtype)) if dtype in plain), None)


COLUMNS: dict[str, tuple[str, ...]] = {
    "model": ("model_name", "architecture"),
    "layers": ("num_layers", "n_layers", "l"),
    "hidden": ("hidden_size", "d_model", "h"),
    "heads": ("num_attention_heads", "attention_heads", "n_heads", "num_heads"),
    "kv_heads": ("num_query_groups", "num_key_value_heads", "n_kv_heads"),
    "ffn": ("ffn_hidden_size", "intermediate_size", "ffn_size"),
    "vocab": ("vocab_size", "vocabulary", "padded_vocab_size"),
    "gated": ("swiglu", "gated_ffn"),
    "tied": ("tied_embeddings",),
    "gpus": ("world_size", "num_gpus", "n_gpus"),
    "tp": ("tensor_parallel", "tensor_model_parallel_size", "tp_size", "tensor_parallelism"),
    "pp": ("pipeline_parallel", "pipeline_model_parallel_size", "pp_size", "pipeline_parallelism"),
    "dp": ("data_parallel", "data_parallel_size", "dp_size", "data_parallelism"),
    "cp": ("context_parallel", "context_parallel_size", "cp_size"),
    "ep": ("expert_parallel", "expert_model_parallel_size", "ep_size"),
    "vp": ("virtual_stages", "virtual_pipeline_model_parallel_size", "vpp", "interleave_vp"),
    "seq": ("sequence", "sequence_length", "seq_length", "seq_len", "s"),
    "micro_batch": ("micro_batch_size", "mbs", "microbatch_sequences", "microbatch_size"),
    "micro_batches": ("microbatches", "num_micro_batches", "num_microbatches", "microbatches_per_step", "mbc"),
    "global_batch": ("global_batch_size", "gbs", "batch_size", "batch"),
    "precision": ("dtype", "compute"),
    "recompute": ("recompute_granularity", "activation_checkpointing"),
    "zero": ("zero_stage",),
    "sequence_parallel": ("sp", "seq_parallel"),
    "accelerator": ("gpu", "gpu_type", "device"),
    "software": ("framework", "stack"),
    "nic_gbps": ("nic", "network_gbps"),
    "step_ms": ("iteration_time_ms", "step_time_ms", "elapsed_time_per_iteration_ms", "ms"),
    "step_s": ("step_seconds", "iteration_time_s", "step_time_s", "seconds"),
}
"""Columns of the table, and what else they may be called; letter case, blanks and dashes do not count."""
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "none")
REMEDY = "give a CSV table with a column for each of these: `planner calibrate --help`"
SHAPE = ("layers", "hidden", "heads")
CATALOGUE_OF = {"accelerator": "accelerators", "software": "software", "model": "models"}  # by column
MAX_COUNT, MAX_LAYERS = 10**7, 10**4  # of any count; every stage has a layer, so the second bounds stages too
RECOMPUTE: dict[str, Recompute] = {"none": "none", "selective": "selective", "full": "full"}


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of a table of measured steps: the file, its number from 1 with the header, and the texts by column."""

    path: Path
    number: int
    texts: dict[str, str]

    def refuse(self, column: str, problem: str, remedy: str) -> Never:
        """Raise an InputError about a column of a measured step's line."""
        value = f" (is {self.texts[column][:60]!r})" if self.texts.get(column) else ""
        raise InputError(f"{self.path}: line {self.number}: column {column}: {problem}{value}; {remedy}")

    def text(self, column: str, absent: str | None = None) -> str:
        """Return a measured line's text in a column, or `absent` if empty. InputError: empty, and `absent` is None."""
        value = self.texts.get(column) or absent
        return value if value is not None else self.refuse(column, "is missing", "add it")

    def number_of(self, column: str) -> float:
        """Return a measured line's number in a column, greater than 0."""
        try:
            value = float(self.text(column))
        except ValueError:
            self.refuse(column, "must be a number", "correct it")
        if not 0 < value < math.inf:
            self.refuse(column, "must be a finite number greater than 0", "correct it")
        return value

    def count(self, column: str, absent: int | None = None, least: int = 1, most: int = MAX_COUNT) -> int:
        """Return a measured line's whole number in a column, `absent` if none. InputError outside `least` to `most`."""
        text = self.text(column, None if absent is None else str(absent))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value.is_integer() and least <= value <= most):
            self.refuse(column, f"must be a whole number from {least} to {most:,}", "correct it")
        return int(value)

    def yes(self, column: str, absent: bool) -> bool:
        """Return whether a measured line says yes in a column, `absent` if empty. InputError: neither yes nor no."""
        text = self.text(column, "yes" if absent else "no").lower()
        if text not in (*YES, *NO):
            self.refuse(column, "must be yes or no", "correct it")
        return text in YES

    def entry(self, column: str, absent: str | None = None) -> str:
        """Return the catalogue name that a measured line has in a column."""
        name, kind = self.text(column, absent), CATALOGUE_OF[column]
        known = _entry_named(kind, name)
        if known is None:
            self.refuse(column, f"is no entry of the catalogue's {kind}", hint(name, sorted(catalogue(kind))))
        return known


def read_runs(path: Path, gpu: str | None = None, software: str | None = None) -> list[MeasuredRun]:
    """Read a user's table of measured steps; accelerator and stack are those given, else the table's own columns."""
    given = {column: name for column, name in (("accelerator", gpu), ("software", software)) if name is not None}
    for column, name in given.items():
        kind = CATALOGUE_OF[column]
        if _entry_named(kind, name) is None:
            remedy = hint(name, sorted(catalogue(kind)))
            raise InputError(f"--{column}: {name!r} is no entry of the catalogue's {kind}; {remedy}")
    lines = list(_lines(path))
    if not lines:
        raise InputError(f"{path}: has no measured line; {REMEDY}")
    runs = []
    for line in lines:
        line.texts.update(given)
        machine = _machine(line)
        seconds = line.number_of("step_s") if line.texts.get("step_s") else line.number_of("step_ms") / 1e3
        runs.append(MeasuredRun(line=line.number, machine=machine, strategy=_strategy(line, machine), seconds=seconds))
    for column in ("accelerator", "software"):
        names = [(r.machine.gpu if column == "accelerator" else r.machine.software).name for r in runs]
        for line, name in zip(lines, names, strict=True):
            if name != names[0]:
                line.refuse(column, f"constants belong to one {column}, here {names[0]}", "calibrate each alone")
    return runs


def _entry_named(kind: str, name: str) -> str | None:
    """Return the catalogue's entry that a measured line names, case and punctuation aside; None where there is none."""
    *known, wanted = (re.sub(r"[\W_]", "", one.lower()) for one in (*catalogue(kind), name))
    return dict(zip(known, catalogue(kind), strict=True)).get(wanted)


def _lines(path: Path) -> Iterator[TableLine]:
    reader = csv.reader(io.StringIO(read_text(path, REMEDY), newline=""), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: is no CSV ({error}); fix it there") from None
    if not rows:
        return
    (first, cells), names = rows[0], {alias: column for column, own in COLUMNS.items() for alias in (column, *own)}
    columns = [names.get(re.sub(r"[^a-z0-9]+", "_", cell.lower()).strip("_"), "") for cell in cells]
    for cell, column in zip(cells, columns, strict=True):
        if column and columns.count(column) > 1:
            raise InputError(f"{path}: line {first}: column {cell!r}: {column} is given twice; keep one")
    if "step_ms" not in columns and "step_s" not in columns:
        raise InputError(f"{path}: line {first}: column step_ms or step_s: is missing; {REMEDY}")
    for number, row in rows[1:]:
        if len(row) > len(columns):
            problem = f"has {len(row)} cells where the header has {len(columns)}"
            raise InputError(f"{path}: line {number}: {problem}; correct it")
        yield TableLine(path, number, {c: cell.strip() for c, cell in zip(columns, row, strict=False) if c})


def _machine(line: TableLine) -> Machine:
    if not line.texts.get("accelerator"):
        line.refuse("accelerator", "is missing", "add it, or --accelerator")
    name, stack = line.entry("accelerator"), line.entry("software", "megatron-bridge")
    found, dtype = Accelerator.model_validate(catalogue("accelerators")[name]), dtype_of(line.text("precision", "bf16"))
    if line.texts.get("nic_gbps"):
        found = found.replaced(nic_bytes_per_second=line.number_of("nic_gbps") * 1e9 / 8)
    if dtype not in found.peak_flop_per_second:
        has = ", ".join(sorted(found.peak_flop_per_second))
        line.refuse("precision", f"must be a type that {name} has", f"choose one of {has}")
    own = next((rack for key, rack in catalogue("racks").items() if key.startswith(f"{name}-NVL")), None)
    return Machine(
        gpu=found,
        rack=NODE if own is None else Rack.model_validate(own),  # the GPU comes in racks alone, or in nodes of 8
        software=Software.model_validate(catalogue("software")[stack]),
        model=_model(line),
        precision=precision(dtype, gradient_bytes=4.0),
        sequence=line.count("seq"),
    )


def _model(line: TableLine) -> Model:
    data: dict[str, Any]
    if line.texts.get("model", "").lower() in {k.lower() for k in catalogue("models")} or not line.texts.get("hidden"):
        data = dict(catalogue("models")[line.entry("model")])
        if line.texts.get("layers"):
            data["layers"] = line.count("layers", most=MAX_LAYERS)
    else:
        data = {
            "name": line.text("model", "own model"),
            **{key: line.count(key, most=MAX_LAYERS if key == "layers" else MAX_COUNT) for key in SHAPE},
            "vocabulary": line.count("vocab"),
            "gated_ffn": line.yes("gated", absent=False),
            "tied_embeddings": line.yes("tied", absent=True),
        } | {key: line.count(key) for key in ("kv_heads", "ffn") if line.texts.get(key)}
    try:
        return Model.model_validate(data)
    except ValidationError as error:
        line.refuse("model", error.errors(include_url=False)[0]["msg"].removeprefix("Value error, "), "correct it")


def _strategy(line: TableLine, m: Machine) -> ParallelStrategy:
    t, p, c, v, b = (line.count(name, absent=1) for name in ("tp", "pp", "cp", "vp", "micro_batch"))
    if line.texts.get("gpus"):
        gpus = line.count("gpus")
        d = line.count("dp", absent=max(1, gpus // (t * c * p)))
        if d * t * c * p != gpus:
            also = f", and DP {d}" if line.texts.get("dp") else ""
            remedy = f"correct it, or the degrees: TP x CP x PP is {t * c * p}{also}"
            line.refuse("gpus", "must be TP x CP x PP x DP", remedy)
    else:
        d = line.count("dp", absent=1)
    e = line.count("ep", absent=1)
    if m.model.heads % t:
        line.refuse("tp", f"must divide the {m.model.heads} heads", "correct it")
    if p * v > m.model.layers + 2:  # the embedding and the head may count as a layer each
        line.refuse("pp", f"{p * v} chunks of stages have fewer layers than one each of {m.model.layers}", "correct it")
    experts = m.model.experts.count if m.model.experts else 1
    if experts % e:
        line.refuse("ep", f"must divide the {experts} experts", "correct it")
    stages, replicas = packing(m.rack.gpus, t, c, p, d, t * c * p * d)
    recompute = line.text("recompute", "none").lower()
    if recompute not in RECOMPUTE:
        line.refuse("recompute", f"must be one of {', '.join(RECOMPUTE)}", "correct it")
    stages_of_zero = m.software.zero_stages
    zero = line.count("zero", absent=1 if 1 in stages_of_zero else min(stages_of_zero), least=0)
    if zero > 3:
        line.refuse("zero", "must be 0, 1, 2 or 3", "correct it")
    if line.texts.get("micro_batches"):
        micro_batches = line.count("micro_batches")
    else:
        if not line.texts.get("global_batch"):
            line.refuse("micro_batches", "is missing", "add it, or global_batch")
        micro_batches, rest = divmod(line.count("global_batch"), d * b)
        if rest:
            remedy = f"give a multiple of {d * b}, or correct these"
            line.refuse("global_batch", "must divide by DP x micro_batch", remedy)
    return ParallelStrategy(
        tensor_parallel=t,
        pipeline_parallel=p,
        data_parallel_by_site=(d,),
        virtual_stages=v if p > 1 else 1,
        micro_batch=b,
        micro_batches=micro_batches,
        recompute=RECOMPUTE[recompute],
        sequence_parallel=t > 1 and line.yes("sequence_parallel", absent="sequence" in m.software.parallelism),
        zero_stage=zero,
        layers_per_stage=even_layers(m.model.layers, p),
        context_parallel=c,
        expert_parallel=e,
        replicas_per_rack=replicas,
        stages_per_rack=stages,
    )
