"""Constants of the catalogue that a fit may change: where each stands, and what a machine is with them changed."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner.instance.catalogue import catalogue
from planner.instance.hardware import Accelerator
from planner.instance.workload import Software
from planner.physics.training.operations import Machine

Kind = Literal["accelerators", "software"]
TYPES: dict[Kind, type[Accelerator] | type[Software]] = {"accelerators": Accelerator, "software": Software}
MAX_SHARE = "gemm_efficiency.max_share."
SIXTEEN_BITS = ("bf16", "fp16")  # one share of peak for both


@dataclass(frozen=True, slots=True)
class Constant:
    """One fitted figure: where it stands, which entries share it, and between what it must lie to make sense."""

    kind: Kind
    entries: tuple[str, ...]
    path: str
    low: float
    high: float

    @property
    def name(self) -> str:
        """Return which constant of which entries it is."""
        return f"{'/'.join(self.entries) if len(self.entries) < 4 else f'all {self.kind}'}: {self.path}"

    def read(self) -> float:
        """Return the catalogue's present value."""
        return value_at(TYPES[self.kind].model_validate(catalogue(self.kind)[self.entries[0]]), self.path)

    def touches(self, m: Machine) -> bool:
        """Return whether the constant can change what is predicted for a machine; a share of peak only for its type."""
        name = m.gpu.name if self.kind == "accelerators" else m.software.name
        if name in self.entries and self.path.startswith(MAX_SHARE):
            dtype = self.path.removeprefix(MAX_SHARE)
            return dtype in SIXTEEN_BITS or m.precision.compute == dtype
        return name in self.entries


def value_at(entry: Accelerator | Software, path: str) -> float:
    """Return the figure at a dotted path of an accelerator or a software stack, its default where it is not given."""
    at: Any = entry
    for key in path.split("."):
        at = at[key] if isinstance(at, dict) else getattr(at, key)
    return float(at)


def put(entry: dict[str, Any], path: str, value: float) -> None:
    """Put a figure into a catalogue entry; FP16 has the share of BF16."""
    *parents, key = path.split(".")
    for parent in parents:
        entry = entry[parent]
    entry[key] = value
    if key == "bf16":
        entry["fp16"] = value


@dataclass(frozen=True, slots=True)
class Entries:
    """Accelerators and software stacks by name."""

    accelerators: dict[str, Accelerator]
    software: dict[str, Software]

    def machine(self, m: Machine) -> Machine:
        """Return a machine with these entries in place of its own; it keeps its NIC, which is the cluster's."""
        gpu = self.accelerators[m.gpu.name].model_copy(update={"nic_bytes_per_second": m.gpu.nic_bytes_per_second})
        return Machine(
            gpu=gpu,
            rack=m.rack,
            software=self.software[m.software.name],
            model=m.model,
            precision=m.precision,
            sequence=m.sequence,
            expert_imbalance=m.expert_imbalance,
        )


def entries_with(
    constants: Sequence[Constant], values: Sequence[float], gpus: Collection[str], software: Collection[str]
) -> Entries:
    """Return the catalogue's entries of these names with the constants at these values."""
    return Entries(
        accelerators={k: Accelerator.model_validate(v) for k, v in _changed("accelerators", constants, values, gpus)},
        software={k: Software.model_validate(v) for k, v in _changed("software", constants, values, software)},
    )


def _changed(
    kind: Kind, constants: Sequence[Constant], values: Sequence[float], names: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield entries of a catalogue with their constants at these values."""
    for name in sorted(names):
        entry = json.loads(json.dumps(catalogue(kind)[name]))
        for constant, value in zip(constants, values, strict=True):
            if constant.kind == kind and name in constant.entries:
                put(entry, constant.path, float(value))
        yield name, entry


def on_a_bound(constants: Sequence[Constant], values: Sequence[float], tolerance: float = 0.01) -> list[str]:
    """Return a line for each constant that lies on a bound of its fit, within a tolerance of its logarithm.

    Such a constant stands in for a term that the model lacks.
    """
    lines = []
    for constant, value in zip(constants, values, strict=True):
        for bound in (constant.low, constant.high):
            if bound * (1 - tolerance) <= value <= bound * (1 + tolerance):
                lines.append(f"{constant.name} is {value:.4g}, on the bound {bound:g} of its fit")
    return lines
