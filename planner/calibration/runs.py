"""Measured steps as runs that can be predicted: the machine and the layout of each."""

from dataclasses import dataclass

from planner.instance.base import Dtype
from planner.instance.catalogue import catalogue
from planner.instance.hardware import Accelerator, Rack
from planner.instance.workload import Precision
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy

NODE = Rack(name="node", gpus=8, it_kw=10.0, price_usd=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A measured step: the line of the file that states it, what it ran on, its layout, and its seconds."""

    line: int
    machine: Machine
    strategy: ParallelStrategy
    seconds: float


def scale_up_domain(gpu: str) -> Rack:
    """Return the scale-up domain of a GPU of the catalogue: a rack where it comes in one alone, else a node of 8."""
    for name, rack in catalogue("racks").items():
        if name.startswith(f"{gpu}-NVL"):
            return Rack.model_validate(rack)
    return NODE


def accelerator(name: str, nic_bytes_per_second: float | None) -> Accelerator:
    """Return an accelerator of the catalogue, with another NIC where its rate is given."""
    gpu = Accelerator.model_validate(catalogue("accelerators")[name])
    return (
        gpu if nic_bytes_per_second is None else gpu.model_copy(update={"nic_bytes_per_second": nic_bytes_per_second})
    )


def precision(
    dtype: str, *, gradient_bytes: float, parameter_bytes: float = 2.0, optimizer_bytes: float = 12.0
) -> Precision:
    """Return mixed precision: working weights as wide as the type, master weights and two moments in FP32."""
    working = {"fp4": 1.0, "fp8": 1.0}.get(dtype, 2.0)
    return Precision.model_validate(
        {
            "compute": dtype,
            "parameter_bytes": parameter_bytes,
            "working_parameter_bytes": working,
            "gradient_bytes": gradient_bytes,
            "optimizer_bytes": optimizer_bytes,
            "activation_bytes": 2.0,
            "collective_bytes": 2.0,
        }
    )


def dtype_of(text: str) -> Dtype | None:
    """Return the type of the products that a log's name of a precision means; None where it names none."""
    known: dict[str, Dtype] = {"fp4": "fp4", "fp8": "fp8", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
    plain = text.lower().replace("bfloat", "bf").replace("float", "fp")
    return next((dtype for word, dtype in known.items() if word in plain), None)
