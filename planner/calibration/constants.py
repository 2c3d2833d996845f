"""Constants of the step-time model: the catalogue path of each, and a user's own with the code that uses them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from planner.errors import InputError
from planner.files import read_json
from planner.instance.base_types import Count, Frozen, NonNegative, Positive
from planner.instance.catalogue_entries import catalogue
from planner.instance.hardware import Accelerator
from planner.instance.software import Software
from planner.instance.validation import validated
from planner.physics.training.operations import Machine
from planner.physics.training.step_errors import SIXTEEN_BITS

Kind = Literal["accelerators", "software"]
TYPES: dict[Kind, type[Accelerator] | type[Software]] = {"accelerators": Accelerator, "software": Software}
MAX_SHARE = "gemm_efficiency.max_share."
KIND = "measured constants"
REMEDY = "give the file that `planner calibrate` wrote"


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """A fitted constant: its path in the catalogue, the entries that share it, and its plausible range."""

    kind: Kind
    entries: tuple[str, ...]
    path: str
    low: float
    high: float
    spread: float = 0.0  # that lines must narrow: standard deviation of its logarithm where they alone speak of it

    def read(self) -> float:
        """Return the catalogue's present value of a fitted constant, its default where the entry does not give it."""
        at: Any = TYPES[self.kind].model_validate(catalogue(self.kind)[self.entries[0]])
        for key in self.path.split("."):
            at = at[key] if isinstance(at, dict) else getattr(at, key)
        return float(at)

    def touches(self, m: Machine) -> bool:
        """Return whether a fitted constant can change a machine's predictions; a share of peak only its type's."""
        name = m.gpu.name if self.kind == "accelerators" else m.software.name
        if name in self.entries and self.path.startswith(MAX_SHARE):
            dtype = self.path.removeprefix(MAX_SHARE)
            return dtype in SIXTEEN_BITS or m.precision.compute == dtype
        return name in self.entries


def put(entry: dict[str, Any], path: str, value: float) -> None:
    """Put a fitted constant into a catalogue entry; FP16 has the share of BF16."""
    *parents, key = path.split(".")
    for parent in parents:
        entry = entry[parent]
    entry[key] = value
    if key == "bf16":
        entry["fp16"] = value


GPU, CODE = "hardware.accelerator.", "workload.software."
PARTS: dict[Kind, str] = {"accelerators": GPU, "software": CODE}  # of an instance, in which a kind's constants are
SHARES, WORK, SECONDS = 0.25, 0.5, 1.5  # standard deviations of a logarithm where lines alone speak of it

# Figures that measured steps may determine, of any entries.
TUNABLES: tuple[FittedConstant, ...] = (
    FittedConstant("accelerators", (), "attention_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("accelerators", (), "softmax_width", 1.0, 1000.0, WORK),
    FittedConstant("accelerators", (), "gemm_efficiency.operand_traffic", 0.01, 1.0, WORK),
    FittedConstant("accelerators", (), "hbm_efficiency", 0.3, 1.0, SHARES),
    FittedConstant("accelerators", (), "kernel_seconds", 1e-7, 1e-4, WORK),
    FittedConstant("accelerators", (), "gemm_efficiency.tail_elements", 1.0, 1e7, WORK),
    FittedConstant("accelerators", (), "gemm_efficiency.unaligned_share", 0.1, 1.0, SHARES),
    FittedConstant("accelerators", (), "scale_up_efficiency", 0.2, 1.0, SHARES),
    FittedConstant("accelerators", (), "scale_up_latency_seconds", 1e-7, 2e-4, WORK),
    FittedConstant("accelerators", (), "nic_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("accelerators", (), "nic_latency_seconds", 1e-7, 2e-4, WORK),
    FittedConstant("software", (), "score_efficiency", 0.03, 1.0, WORK),
    FittedConstant("software", (), "elementwise_traffic", 0.2, 8.0, WORK),
    FittedConstant("software", (), "quantise_traffic", 0.1, 8.0, WORK),
    FittedConstant("software", (), "loss_bytes_per_logit", 2.0, 160.0, WORK),
    FittedConstant("software", (), "launch_seconds", 1e-7, 1e-2, SHARES),
    FittedConstant("software", (), "collective_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "microbatch_seconds", 1e-6, 0.2, SECONDS),
    FittedConstant("software", (), "pipeline_start_seconds", 1e-7, 5e-2, SECONDS),
    FittedConstant("software", (), "step_seconds", 1e-5, 10.0, SECONDS),
    FittedConstant("software", (), "tensor_overlap", 0.02, 1.0, WORK),
    FittedConstant("software", (), "expert_overlap", 0.02, 1.0, WORK),
    FittedConstant("software", (), "all_to_all_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "deep_ep_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "hybrid_ep_seconds", 1e-7, 1e-2, SECONDS),
    FittedConstant("software", (), "expert_seconds", 1e-8, 1e-3, SECONDS),
    FittedConstant("software", (), "expert_cast_seconds", 1e-8, 1e-3, SECONDS),
    FittedConstant("software", (), "overlap_launch_seconds", 1e-7, 1e-2, SHARES),
    FittedConstant("software", (), "expert_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("software", (), "data_efficiency", 0.1, 1.0, SHARES),
    FittedConstant("software", (), "sharding_exposed", 0.01, 1.0, WORK),
)
TUNABLE_PATHS = frozenset(PARTS[t.kind] + t.path for t in TUNABLES)


def is_tunable(path: str) -> bool:
    """Return whether a fit to measured steps may set the figure at an instance's path; not rates of datasheets."""
    return path in TUNABLE_PATHS or path.startswith(GPU + MAX_SHARE)


class MeasuredConstant(Frozen):
    """A fitted constant that measured lines move: alone, or with others that they do not tell it from."""

    value: NonNegative
    interval: tuple[NonNegative, NonNegative] = Field(description="In which it lies with 90 %.")
    catalogue: NonNegative = Field(description="The catalogue's value.")
    shared_with: str = Field("", description="Why the lines do not determine it alone; empty where they do.")


class KeptConstant(Frozen):
    """A constant that no measured line depends on: its fit stays at the catalogue's value."""

    value: NonNegative
    reason: str


class MeasuredLine(Frozen):
    """A line of the table of measured steps, with the step that the fitted constants predict."""

    line: Count
    measured_seconds: Positive
    predicted_seconds: Positive
    catalogue_seconds: Positive = Field(description="Predicted with the catalogue's constants.")
    error: float = Field(description="Predicted over measured, less 1.")
    left_out_error: float | None = Field(None, description="The same, of constants fitted without the line.")


class CommonFactor(Frozen):
    """The average factor by which measured lines are slower than the catalogue predicts them."""

    value: Positive
    interval: tuple[Positive, Positive] = Field(description="In which it lies with 90 %.")


class MeasuredConstants(Frozen):
    """Constants of one accelerator and one software stack, fitted to measured lines."""

    kind: Literal["measured constants"] = "measured constants"
    accelerator: str = Field(description="Name of the catalogue's accelerator.")
    software: str = Field(description="Name of the catalogue's software stack.")
    measured: str = Field(description="The table that they were fitted to.")
    number_of_lines: Count
    noise: Positive = Field(description="Standard deviation of a line's relative error.")
    common: CommonFactor | None = Field(
        None, description="Of the lines' steps; it moves what lines depend on, and nothing that is kept."
    )
    values: dict[str, MeasuredConstant] = Field(description="By path in an instance; what the lines move.")
    kept: dict[str, KeptConstant] = Field({}, description="By path; what no line depends on.")
    lines: tuple[MeasuredLine, ...] = ()


Given = MeasuredConstants | Mapping[str, Any] | str | Path


def read_constants(given: Given) -> MeasuredConstants:
    """Read fitted constants of a file or its content. InputError: they are none, or of no accelerator or software."""
    if isinstance(given, MeasuredConstants):
        return given
    where = str(given) if isinstance(given, (str, Path)) else "constants"
    data = read_json(Path(given), REMEDY) if isinstance(given, (str, Path)) else given
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: must be a JSON object (is {type(data).__name__}); {REMEDY}")
    if data.get("kind") != KIND:
        raise InputError(f"{where}: kind: must be {KIND!r} (is {data.get('kind')!r}); {REMEDY}")
    constants = validated(MeasuredConstants, data, where)
    for path in constants.values:
        if not path.startswith((GPU, CODE)):
            raise InputError(f"{where}: values.{path}: must begin with {GPU} or {CODE}; {REMEDY}")
    return constants


def put_constants(data: dict[str, Any], constants: MeasuredConstants) -> bool:
    """Put fitted constants with their source into an instance's data; return if any. InputError: no such figure."""
    hardware, workload = (data.get(key) for key in ("hardware", "workload"))
    entries, pools = [], hardware.get("pools") if isinstance(hardware, dict) else None
    for holder in (hardware, *(pools if isinstance(pools, list) else ())):
        entries += [(GPU, holder.get("accelerator"), constants.accelerator)] if isinstance(holder, dict) else []
    entries += [(CODE, workload.get("software"), constants.software)] if isinstance(workload, dict) else []
    own = [(part, entry) for part, entry, name in entries if isinstance(entry, dict) and entry.get("name") == name]
    for part, entry in own:
        for full, x in constants.values.items():
            path = full.removeprefix(part)
            if path == full:
                continue
            try:
                put(entry, path, x.value)
            except (KeyError, TypeError):
                raise InputError(f"constants: {path}: is no figure of {entry['name']}; {REMEDY}") from None
            lies = f"{x.interval[0]:.4g} to {x.interval[1]:.4g} at 90 % (catalogue: {x.catalogue:.4g})"
            text = f"`planner calibrate` on {constants.measured}, {constants.number_of_lines} lines: {lies}"
            key = path.split(".", 1)[0]
            if isinstance(entry[key], dict):
                entry[key]["source"] = text
            elif isinstance(entry.get("source"), dict):
                entry["source"][key] = text
            else:
                entry["note"] = "; ".join(filter(None, [entry.get("note"), f"{path}: {text}"]))
    return bool(own)
