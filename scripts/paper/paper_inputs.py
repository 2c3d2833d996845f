"""Inputs of Agache et al. 2024 (arXiv 2407.12819), its two models with their layouts, and the row of a result."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from planner.instance.hardware import Accelerator, GemmEfficiency, Hardware, Rack
from planner.instance.software import Software
from planner.instance.workload import Model, Precision
from planner.physics.training import collectives, memory, operations, transformer

TB, GB, MS, DAY = 1e12, 1e9, 1e-3, 86_400.0
MATCH, CLOSE = 0.01, 0.03
NO_PAPER = (None, None)

# The paper's inputs.
RACKS, GPUS_PER_RACK, RACK_FLOP_PER_SECOND, RACK_HBM = 23_200, 72, 1440e15, 13.5e12
SPARSE_PEAK = RACK_FLOP_PER_SECOND / GPUS_PER_RACK
NIC, NVLINK = 100e9, 1.8e12
NVLINK_ONE_WAY = NVLINK / 2  # 1.8 TB/s is sold as both directions together
SEQUENCE, VOCABULARY = 32_000, 256_000
HEADS_STATED, HEADS_COUNTED = 280, 288  # in the text; behind its activation table
MONTHS_6, MONTHS_24 = 180 * DAY, 720 * DAY
GPUS_PER_SITE = 800_000
WINDOW = 0.1  # seconds for the exchange between the sites
PEACH_BOTTOM, PALO_VERDE = (39.7589, -76.2687), (33.3881, -112.8617)
PRECISION = Precision(
    compute="fp4",
    parameter_bytes=1.5,
    working_parameter_bytes=0.5,
    gradient_bytes=0.5,
    optimizer_bytes=2.0,
    activation_bytes=1.0,
    collective_bytes=0.5,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One number: as printed, as recomputed by the paper's own inputs and rules, and the right one where those slip."""

    quantity: str
    unit: str
    paper: float | None
    recomputed: float
    digits: int | None = None
    right: float | None = None
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Recomputed over printed."""
        return None if self.paper is None else self.recomputed / self.paper

    @property
    def as_printed(self) -> bool:
        """Whether the recomputed value, rounded or cut to the paper's digits, is what it prints."""
        if self.paper is None or self.digits is None:
            return False
        step = 10.0 ** (math.floor(math.log10(abs(self.paper))) - self.digits + 1)
        return any(
            math.isclose(count * step, self.paper)
            for count in (round(self.recomputed / step), math.floor(self.recomputed / step))
        )

    @property
    def verdict(self) -> str:
        """Match (1 %), within x %, inconsistent, or not printed (the paper leaves it out)."""
        if self.right is not None:
            return "inconsistent"
        if self.ratio is None:
            return "not printed"
        off = abs(self.ratio - 1)
        if off <= MATCH:
            return "match"
        if off <= CLOSE or self.as_printed:
            return f"within {100 * off:.1f} %" + (
                f", to {self.digits} digit{'s' * (self.digits > 1)}" if self.as_printed and self.digits else ""
            )
        return "inconsistent"


def chinchilla_layer_forward_flop(model: Model, sequence: int) -> float:
    """Compute the forward FLOP of one layer and sequence, 24·s·h² + 4·s²·h + 3·a·s² (Hoffmann 2022, app. F)."""
    products = 2 * transformer.layer_parameters(model, active=True) * sequence
    scores = 2 * transformer.attention_score_flop(model, sequence, 1)  # the masked half is not skipped
    return float(products + scores + 3 * model.heads * sequence**2)


def chinchilla_forward_flop(model: Model, sequence: int) -> float:
    """Compute the forward FLOP of the model and one sequence (Hoffmann 2022, app. F).

    Layers, and embedding and logits at 2·s·V·h each. The appendix knows layers of one kind only; with experts and a few
    dense layers all count as the prevailing kind.
    """
    return model.layers * chinchilla_layer_forward_flop(model, sequence) + 2 * float(
        2 * transformer.embedding_parameters(model) * sequence
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One of the paper's two models with the layout it picks."""

    name: str
    layers: int
    hidden: int
    tensor_parallel: int
    nominal_parameters: float
    tokens: float
    volume_gb: float

    def model(self, heads: int = 300) -> Model:
        """Return the model; 300 heads divide both hidden sizes, other counts take the nearest whole head size."""
        return Model(
            name=self.name,
            layers=self.layers,
            hidden=self.hidden,
            heads=heads,
            head_size=round(self.hidden / heads),
            vocabulary=VOCABULARY,
        )

    @property
    def parameters(self) -> int:
        """All weights."""
        return transformer.total_parameters(self.model())

    @property
    def state(self) -> float:
        """Bytes of weights, gradients and optimiser of the model."""
        return float(memory.state_bytes(self.parameters, PRECISION, zero_stage=0, shards=1))

    def activations(
        self,
        *,
        heads: int = HEADS_COUNTED,
        tensor_parallel: int = 1,
        recompute: operations.Recompute = "none",
        sharded: bool = False,
        element: float = 1.0,
    ) -> float:
        """Compute the bytes of activations of the model and one sequence as the paper does: masks take half a byte."""
        shape = operations.LayerShape(
            tensor_parallel=tensor_parallel, micro_batch=1, recompute=recompute, sequence_parallel=sharded
        )
        sizes = memory.ElementBytes(element, element, element, mask=0.5)
        one = memory.activation_bytes_per_layer(self.model(heads), SEQUENCE, shape, sizes)
        return self.layers * float(one)

    def layer_bytes(self, tensor_parallel: int | None = None) -> float:
        """Compute the bytes of a layer on the paper's sum: the TP group's state, and one GPU's activations."""
        return (self.state + self.activations() / (tensor_parallel or self.tensor_parallel)) / self.layers

    @property
    def full_layer_bytes(self) -> float:
        """Bytes of the GPUs of a layer together, the activations of all of them counted."""
        return (self.state + self.activations()) / self.layers

    @property
    def layers_per_rack(self) -> int:
        """Layers per rack on the paper's sum."""
        return int(RACK_HBM // self.layer_bytes())

    @property
    def full_layers_per_rack(self) -> int:
        """Layers per rack with all activations counted."""
        return int(RACK_HBM // self.full_layer_bytes)

    @property
    def peers(self) -> int:
        """Racks that hold one layer."""
        return RACKS // self.layers

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.peers * self.layers_per_rack

    @property
    def layer_flop(self) -> float:
        """FLOP of one layer and sequence, forward."""
        return chinchilla_layer_forward_flop(self.model(), SEQUENCE)

    def forward_seconds(self, *, dense: bool = False) -> float:
        """Compute the ideal seconds of one layer, forward."""
        return self.layer_flop / self.tensor_parallel / gpu(dense=dense).peak_flop_per_second[PRECISION.compute]

    @property
    def layer_gradients(self) -> float:
        """Gradients of one layer of the nominal size, in bytes."""
        return PRECISION.gradient_bytes * self.nominal_parameters / self.layers

    @property
    def tensor_bytes(self) -> float:
        """Bytes of the s·h tensor that TP and PP move."""
        return SEQUENCE * self.hidden * PRECISION.collective_bytes

    def pipeline_send_seconds(self) -> float:
        """Compute the ideal seconds of one pipeline send over the NICs."""
        software = Software(name="ideal")
        machine = operations.Machine(
            gpu=gpu(), rack=rack(), software=software, model=self.model(), precision=PRECISION, sequence=SEQUENCE
        )
        shape = operations.LayerShape(
            tensor_parallel=self.tensor_parallel, micro_batch=1, recompute="none", sequence_parallel=False
        )
        return collectives.pipeline_send_bytes(machine, shape) / machine.gpu.nic_bytes_per_second


CASES = (
    Case(
        name="100T",
        layers=224,
        hidden=192_000,
        tensor_parallel=10,
        nominal_parameters=100e12,
        tokens=3226e12,
        volume_gb=0.61,
    ),
    Case(
        name="50T",
        layers=252,
        hidden=132_000,
        tensor_parallel=5,
        nominal_parameters=52.5e12,
        tokens=1650e12,
        volume_gb=0.8,
    ),
)
Of = Callable[[Case], float]
Printed: TypeAlias = Sequence[float | None]


def pair(
    quantity: str,
    unit: str,
    printed: Printed,
    value: Of,
    *,
    right: Of | None = None,
    digits: int | None = None,
    why: str = "",
) -> Iterator[Row]:
    """Yield a row for each of the two models."""
    for case, paper in zip(CASES, printed, strict=True):
        yield Row(f"{quantity}, {case.name}", unit, paper, value(case), digits, right(case) if right else None, why)


def gpu(*, dense: bool = False) -> Accelerator:
    """Return the paper's GPU: ideal matrix products, no latency, both directions of NVLink counted as one."""
    return Accelerator(
        name="B200",
        hbm_bytes=RACK_HBM / GPUS_PER_RACK,
        hbm_bytes_per_second=8e12,
        peak_flop_per_second={"fp4": SPARSE_PEAK / (2 if dense else 1)},
        gemm_efficiency=GemmEfficiency(max_share={"fp4": 1.0}),
        scale_up_bytes_per_second=NVLINK,
        scale_up_latency_seconds=0.0,
        nic_bytes_per_second=NIC,
        nic_latency_seconds=0.0,
    )


def rack() -> Rack:
    """Return the rack at the power that the paper's total implies."""
    return Rack(name="NVL72", gpus=GPUS_PER_RACK, it_kw=125.0, price_usd=3e6)


def plant(overhead: float = 1.0) -> Hardware:
    """Return the racks with a facility overhead."""
    return Hardware(accelerator=gpu(), rack=rack(), facility_overhead_factor=overhead, cooling_kw_per_m2=2.076)


def level(ranks: int, rate: float, latency: float = 0.0) -> tuple[collectives.Level]:
    """Return the one level of the network that the paper's exchanges cross."""
    return (collectives.Level(ranks=ranks, bytes_per_second=rate, latency_seconds=latency),)
