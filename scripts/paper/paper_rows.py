"""Every number of Agache et al. 2024 (arXiv 2407.12819) beside what the planner's physics gives for it.

Only the figures that the paper prints are literals. Where the paper's own arithmetic slips, `recomputed` follows the
paper and `right` does not, so that both the slip and its size can be seen.
"""

import json
import math
from collections.abc import Callable, Iterator
from importlib.resources import files

from paper_fabric_rows import topology
from paper_inputs import (
    CASES,
    DAY,
    GB,
    GPUS_PER_RACK,
    HEADS_STATED,
    MONTHS_6,
    MONTHS_24,
    MS,
    NIC,
    NO_PAPER,
    NVLINK,
    NVLINK_ONE_WAY,
    PALO_VERDE,
    PEACH_BOTTOM,
    PRECISION,
    RACK_FLOP_PER_SECOND,
    RACK_HBM,
    RACKS,
    SEQUENCE,
    TB,
    WINDOW,
    Case,
    Row,
    chinchilla_forward_flop,
    gpu,
    level,
    pair,
    plant,
)

from planner.instance.network import Wan
from planner.instance.scaling_law import LossLaw
from planner.physics.site import site_power, wan, wan_exchange
from planner.physics.training import (
    collectives,
    memory,
    scaling_laws,
    schedule,
    step_prediction,
    transformer,
)


def infrastructure() -> Iterator[Row]:
    """Racks, compute, memory, power, cooling (section 2)."""
    it = site_power.it_mw(plant(), RACKS)
    spare = {"PJM": 9915.0, "SRP": 2634.0, "NEVP": 2209.0, "BPAT": 2143.0}
    why = "every other figure is of 23,200 racks"
    yield Row("racks: 70 % of $100B at $3M", "", 23e3, 0.70 * 100e9 / 3e6, 2, why=why)
    yield Row("GPUs", "", 1.67e6, RACKS * GPUS_PER_RACK)
    yield Row("FP4 compute", "PFLOP/s", 33_408_000, RACKS * RACK_FLOP_PER_SECOND / 1e15, why="counts 2:4 sparsity")
    why = "what training uses: every compute time doubles"
    yield Row("FP4 compute, dense", "PFLOP/s", None, RACKS * RACK_FLOP_PER_SECOND / 2e15, why=why)
    yield Row("HBM", "PB", 313, RACKS * RACK_HBM / 1e15)
    yield Row("HBM per GPU", "GB", None, gpu().hbm_bytes / GB)
    yield Row("IT power", "GW", 2.9, it / 1e3, why="at 125 kW a rack")
    kw = 2.9e6 / RACKS
    why = '"close to 1 MW" a rack would be 23.2 GW; 2.9 GW over the racks is an eighth of it'
    yield Row("rack power", "kW", 1000, kw, right=kw, why=why)
    yield Row("facility power, IT x 1.4", "GW", 4, site_power.facility_mw(plant(1.4), RACKS) / 1e3, 1)
    yield Row("facility power, IT / 0.6", "GW", 5, site_power.facility_mw(plant(1 / 0.6), RACKS) / 1e3, 1)
    area = site_power.cooling_m2(plant(5000 / it), RACKS) or 0.0
    yield Row("cooling area of 5 GW", "m2", 2.41e9, area, right=area, why="millions, not billions")
    yield Row("NVLink per GPU", "Tbps", 14.4, NVLINK * 8 / 1e12, why="both directions together; 7.2 Tbps each way")
    yield Row("grids of Table 1 that spare 2.5 GW", "", 2, sum(mw >= 2500 for mw in spare.values()), why="PJM and SRP")
    yield Row("GPUs in each of two sites", "", 800e3, RACKS * GPUS_PER_RACK / 2, 1)


def laws() -> dict[str, dict[str, list[float]]]:
    """Read the published points of the scaling laws from the catalogue."""
    text = (files("planner") / "catalogue" / "scaling_laws.json").read_text(encoding="utf-8")
    data: dict[str, dict[str, list[float]]] = json.loads(text)
    return data


def compute_optimal_sizes() -> Iterator[Row]:
    """Compute-optimal sizes (section 3.1)."""
    rate, points = RACKS * RACK_FLOP_PER_SECOND, laws()
    budgets = {"6 months": rate * MONTHS_6, "24 months": rate * MONTHS_24}
    two = points["chinchilla-2"]
    data, size = (
        {k: scaling_laws.fitted_power_law(two["flop"], two[what], c) / 1e12 for k, c in budgets.items()}
        for what in ("tokens", "parameters")
    )
    yield Row("budget, 6 months", "1e27 FLOP", 519, budgets["6 months"] / 1e27, why="180 days at the whole sparse peak")
    yield Row("parameters, 6 months", "T", 52.5, size["6 months"], why="approach 2 of Hoffmann 2022")
    yield Row("tokens, 6 months", "T", 1650, data["6 months"])
    yield Row("parameters, 24 months", "T", 103.5, size["24 months"])
    d24 = data["24 months"]
    why = "6·103.5T·3226T is 2.00e30 FLOP, the budget 2.08e30: a digit slip"
    yield Row("tokens, 24 months", "T", 3226, d24, right=d24, why=why)
    value = budgets["24 months"] / transformer.training_flop(103.5e12, 1.0) / 1e12
    yield Row("tokens as budget / 6N, 24 months", "T", None, value)
    yield Row("bytes per token behind 15 PB", "B", None, 15e15 / 3226e12, why="plausible; the paper gives no figure")
    for key, law in (("1", points["chinchilla-1"]), ("3", points["chinchilla-3"])):
        for months, c in budgets.items():
            n = scaling_laws.fitted_power_law(law["flop"], law["parameters"], c) / 1e12
            why = "the size hangs on the choice of approach"
            yield Row(f"parameters, {months}, by approach {key}", "T", None, n, why=why)
    loss = LossLaw.model_validate(points["parametric-2022"])
    for months, c in budgets.items():
        value = scaling_laws.best_parameters(loss, c) / 1e12
        yield Row(f"parameters, {months}, by the parametric loss", "T", None, value)


def nearest_divisor(number: int, near: int) -> int:
    """Return the divisor nearest a number."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - near))


def architecture() -> Iterator[Row]:
    """Sizes of the two models (section 3.2)."""
    yield from pair("parameters", "T", (99.2, 52.5), lambda c: c.parameters / 1e12)
    heads = [nearest_divisor(c.hidden, HEADS_STATED) for c in CASES]
    for c, a in zip(CASES, heads, strict=True):
        why = f"{c.hidden} / {HEADS_STATED} = {c.hidden / HEADS_STATED:.1f} is no whole head size"
        yield Row(f"heads, {c.name}", "", HEADS_STATED, a, right=a, why=why)
    m = CASES[0].model()
    square = m.layers * (4 * m.hidden + 3 * m.heads)
    linear = chinchilla_forward_flop(m, 1) - square
    length = (math.sqrt(linear**2 + 4 * square * 6.52e18) - linear) / (2 * square)
    why = "32,000 and not 32,768"
    yield Row('sequence ("32k") that gives the 6.52e18 FLOP of Table 4', "", 32_000, length, why=why)


def memory_rows() -> Iterator[Row]:
    """Memory and what fits (section 4, tables 2 and 3)."""
    yield from pair("weights", "TB", (148.7, 79.1), lambda c: c.parameters * PRECISION.parameter_bytes / TB)
    yield from pair("gradients", "TB", (49.5, 26.3), lambda c: c.parameters * PRECISION.gradient_bytes / TB)
    yield from pair("optimiser", "TB", (198.3, 105.5), lambda c: c.parameters * PRECISION.optimizer_bytes / TB)
    why = "Korthikanti 2022, eq. 1, at one byte an element and half a byte a mask; 288 heads; the paper cites Hoffmann"
    yield from pair("activations", "TB", (188, 203.9), lambda c: c.activations() / TB, why=why)
    yield from pair(
        "activations with the text's 280 heads", "TB", NO_PAPER, lambda c: c.activations(heads=HEADS_STATED) / TB
    )
    yield from pair(
        "activations without the a·s² term",
        "TB",
        NO_PAPER,
        lambda c: c.activations(recompute="selective") / TB,
        why="a flash kernel",
    )
    yield from pair("memory", "TB", (585, 415), lambda c: (c.state + c.activations()) / TB)
    why = "adds the state of the whole TP group to the activations of one of its GPUs; the group holds all of them"
    yield from pair(
        "memory per layer",
        "TB",
        (1.86, 1.00),
        lambda c: c.layer_bytes() / TB,
        right=lambda c: c.full_layer_bytes / TB,
        why=why,
    )
    why = "follows the memory per layer"
    yield from pair(
        "layers per rack", "", (7, 13), lambda c: c.layers_per_rack, right=lambda c: c.full_layers_per_rack, why=why
    )
    yield from pair(
        "replicas", "", (721, 1196), lambda c: c.replicas, right=lambda c: c.peers * c.full_layers_per_rack, why=why
    )
    why = "of the paper's layers per rack"
    yield from pair("GPUs per layer", "", (10, 5), lambda c: GPUS_PER_RACK // c.layers_per_rack, why=why)
    yield from pair(
        "GPUs per layer, all activations counted", "", NO_PAPER, lambda c: GPUS_PER_RACK // c.full_layers_per_rack
    )
    bigger, smaller = CASES
    need = bigger.layer_bytes() / bigger.tensor_parallel / GB
    yield Row("memory of a GPU on the paper's sum, 100T", "GB", None, need, why="within 187.5 GB")
    need, right = smaller.layer_bytes() / smaller.tensor_parallel / GB, smaller.layer_bytes(6) / 6 / GB
    why = "exceeds 187.5 GB; 12 layers of TP 6 in a rack fit"
    yield Row("memory of a GPU on the paper's sum, 50T", "GB", None, need, right=right, why=why)
    yield Row("replicas at 12 layers per rack, 50T", "", None, 12 * smaller.peers)
    why = "the paper's layers per rack need it: 187.5 GB at most"

    def selective(c: Case) -> float:
        return (c.state + c.activations(recompute="selective")) / c.layers / c.tensor_parallel / GB

    yield from pair("memory of a GPU, all activations, selective recompute", "GB", NO_PAPER, selective, why=why)
    yield from pair("racks in use", "", NO_PAPER, lambda c: c.peers * c.layers)
    yield from pair(
        "GPUs that compute",
        "%",
        NO_PAPER,
        lambda c: 100 * c.replicas * c.layers * c.tensor_parallel / (RACKS * GPUS_PER_RACK),
    )
    yield from in_flight()


def in_flight() -> Iterator[Row]:
    """Activations of the first stage with every micro-batch that 1F1B keeps in flight, which the paper leaves out."""

    def stage(c: Case, one: float) -> float:
        return float(schedule.chunks_in_flight("1f1b", 0, c.layers, 1, 10 * c.layers)) * one / c.layers

    def stored(c: Case, element: float) -> float:
        return stage(
            c, c.activations(tensor_parallel=c.tensor_parallel, recompute="full", sharded=True, element=element)
        )

    def state(c: Case, zero: int) -> float:
        per_gpu = c.parameters / c.layers / c.tensor_parallel
        return float(memory.state_bytes(per_gpu, PRECISION, zero_stage=zero, shards=c.replicas))

    why = "the paper keeps one micro-batch, the first of L stages holds L of them; a GPU has 187.5 GB"
    yield from pair(
        "activations on a GPU of stage 1",
        "GB",
        NO_PAPER,
        lambda c: c.activations() / c.layers / c.tensor_parallel / GB,
        right=lambda c: stage(c, c.activations(tensor_parallel=c.tensor_parallel, sharded=True)) / GB,
        why=why,
    )
    bigger = CASES[0]
    why = f"beside {state(bigger, 0) / GB:.0f} GB of state"
    yield Row("the same, full recompute, FP8 layer inputs, 100T", "GB", None, stored(bigger, 1.0) / GB, why=why)
    yield Row("the same, FP4 layer inputs, 100T", "GB", None, stored(bigger, 0.5) / GB)
    why = "fits in 187.5 GB"
    value = (stored(bigger, 0.5) + state(bigger, 1)) / GB
    yield Row("the same with the state under ZeRO-1, 100T", "GB", None, value, why=why)


def compute() -> Iterator[Row]:
    """FLOP and time of a layer (section 4, table 4)."""
    yield from pair(
        "FLOP per model, forward",
        "1e18",
        (6.52, 3.5),
        lambda c: chinchilla_forward_flop(c.model(), SEQUENCE) / 1e18,
    )
    yield from pair("FLOP per layer, forward", "1e15", (29, 13.9), lambda c: c.layer_flop / 1e15)
    why = "at the whole sparse peak"
    yield from pair("time per layer, forward", "ms", (145.5, 139.2), lambda c: c.forward_seconds() / MS, why=why)
    yield from pair("time per layer, forward, dense", "ms", NO_PAPER, lambda c: c.forward_seconds(dense=True) / MS)
    yield Row("time per layer, backward, 100T", "ms", 290, 2 * CASES[0].forward_seconds() / MS)

    def days(c: Case, tokens: float) -> float:
        return step_prediction.days_to_train(tokens, c.replicas * SEQUENCE, 3 * c.forward_seconds(), 1.0)

    bigger, smaller = CASES
    why = "on the paper's 3226T tokens"
    yield Row("days to train, no bubble, 100T", "d", MONTHS_24 / DAY, days(bigger, bigger.tokens), why=why)
    d = days(smaller, smaller.tokens)
    idle = 1 - smaller.layers_per_rack * smaller.tensor_parallel / GPUS_PER_RACK
    why = f"{100 * idle:.1f} % of the GPUs idle, and attention is outside 6·N·D"
    yield Row("days to train, no bubble, 50T", "d", MONTHS_6 / DAY, d, right=d, why=why)


def communication() -> Iterator[Row]:
    """Exchanges of the layout (sections 4.1-4.3)."""
    yield from tensor_and_pipeline()
    yield from data_parallel()
    yield from wide_area()


def allreduce_ms(size: float, ranks: int, rate: float) -> float:
    """Compute the milliseconds of an ideal all-reduce."""
    return float(collectives.all_reduce(size, level(ranks, rate))) / MS


def allgather_ms(size: float, ranks: int, rate: float) -> float:
    """Compute the milliseconds of an ideal all-gather."""
    return float(collectives.all_gather(size, level(ranks, rate))) / MS


def tensor_and_pipeline() -> Iterator[Row]:
    """Tensor and pipeline exchanges (section 4.1)."""
    t = NVLINK_ONE_WAY
    yield from pair(
        "TP volume",
        "GB",
        (0.61, 0.8),
        lambda c: 2 * c.tensor_bytes / c.tensor_parallel / GB,
        digits=1,
        why="two tensors, cut by TP",
    )
    why = "eq. 1 moves 1/TP of the tensor; a ring all-reduce moves 2(t-1)/t of all of it, here at 0.9 TB/s each way"

    def equation_1(c: Case) -> float:
        return allreduce_ms(c.volume_gb * GB, c.tensor_parallel, NVLINK)

    def right(c: Case) -> float:
        return allreduce_ms(c.tensor_bytes, c.tensor_parallel, t)

    yield from pair("TP all-reduce", "ms", (0.61, 0.71), equation_1, right=right, why=why)
    why = "eq. 1 already sums MLP and attention; the right value is two all-reduces of the whole tensor"
    yield from pair(
        "TP per forward", "ms", (1.22, 1.42), lambda c: 2 * equation_1(c), right=lambda c: 2 * right(c), why=why
    )
    yield from pair("PP exchange", "ms", (3, 4), lambda c: c.pipeline_send_seconds() / MS, digits=1)
    why = "every rank receives t-1 shards, not (t-1)/t of one; the printed 5/6 is of no TP 10; at 0.9 TB/s each way"

    def own(c: Case) -> float:
        return allgather_ms(c.tensor_bytes / c.tensor_parallel, c.tensor_parallel, NVLINK)

    def entire(c: Case) -> float:
        return allgather_ms(c.tensor_bytes, c.tensor_parallel, t)

    yield from pair("PP all-gather", "ms", (0.3, 0.2), own, digits=1, right=entire, why=why)
    printed = {"100T": 1.22 + 3.3, "50T": 1.42 + 4.2}
    why = "follows the TP and all-gather slips"
    yield from pair(
        "exposed per step",
        "ms",
        (5, 5),
        lambda c: printed[c.name],
        digits=1,
        right=lambda c: 2 * right(c) + c.pipeline_send_seconds() / MS + entire(c),
        why=why,
    )


def data_parallel() -> Iterator[Row]:
    """Gradient exchange inside a site (section 4.1)."""
    why = "of the nominal sizes"
    yield from pair("gradients per layer", "GB", (223, 104), lambda c: c.layer_gradients / GB, why=why)

    def inside(c: Case, rate: float) -> float:
        return allreduce_ms(c.layer_gradients / c.tensor_parallel, c.layers_per_rack, rate)

    def outside(c: Case, nics: int) -> float:
        return allreduce_ms(c.layer_gradients, c.peers, nics * NIC)

    yield from pair("DP all-reduce in the rack", "ms", (21, 21), lambda c: inside(c, NVLINK), digits=2)
    yield from pair(
        "DP all-reduce in the rack at 0.9 TB/s each way", "ms", NO_PAPER, lambda c: inside(c, NVLINK_ONE_WAY)
    )
    why = "half of the all-reduce"
    yield from pair("DP all-gather in the rack", "ms", (10, 10), lambda c: inside(c, NVLINK) / 2, digits=2, why=why)
    yield from pair("DP peers between racks", "", (103, 92), lambda c: c.peers)
    yield from pair(
        "DP all-reduce between racks",
        "ms",
        (60, 28),
        lambda c: outside(c, GPUS_PER_RACK),
        digits=2,
        why="counts 72 NICs",
    )
    yield from pair(
        "DP all-reduce over the NICs that hold gradients",
        "ms",
        NO_PAPER,
        lambda c: outside(c, c.layers_per_rack * c.tensor_parallel),
    )


def wide_area() -> Iterator[Row]:
    """Exchange between two sites (sections 4.2 and 5)."""
    why = "the racks of a site hold whole stages: 11,600 // 224 = 51 racks a stage"
    bigger, smaller = CASES
    halves = [RACKS // 2 // c.layers * c.layers_per_rack for c in CASES]
    yield Row("replicas per site, 100T", "", 360, bigger.replicas // 2, right=halves[0], why=why)
    yield Row("replicas per site, 50T", "", 598, halves[1])
    share = bigger.layer_gradients / bigger.replicas
    yield Row("WAN message per node, 100T", "MB", 300, share / 1e6, 1, why="gradients of a layer over its replicas")
    by_rack = PRECISION.gradient_bytes * bigger.parameters / (RACKS // 2)
    why = "all gradients over the racks of a site"
    yield Row("WAN message per rack by the text's own rule, 100T", "MB", None, by_rack / 1e6, why=why)
    link = Wan(rtt_ms_per_100_route_km=0.98)
    yield Row("WAN rate per flow, 100T", "Gbps", 25, wan_exchange.need_gbps(share, WINDOW, 0.0))

    def need(c: Case) -> float:
        return wan_exchange.need_gbps(wan_exchange.exchange_bytes(c.layer_gradients, 2), WINDOW, 0.0) / 1e3

    why = "14 Tbps in 100 ms is 175 GB, a layer's gradients are 223 GB"
    yield Row("WAN all-reduce, 100T", "Tbps", 14, need(bigger), right=need(bigger), why=why)
    yield Row("WAN all-reduce, 50T", "Tbps", None, need(smaller))
    route = link.route_factor * wan.great_circle_km(*PEACH_BOTTOM, *PALO_VERDE)
    why = f"a route of {route:,.0f} km, 1.2 x the great circle"
    yield Row("WAN round trip, Peach Bottom to Palo Verde", "ms", 40, wan.rtt_ms(link, route), why=why)


def unchecked() -> Iterator[Row]:
    """Batch size, which the paper leaves out."""
    c = CASES[0]
    one = c.replicas * SEQUENCE

    def bubble(micro_batches: float) -> float:
        counts = schedule.PipelineCounts(c.layers, 1, micro_batches)
        return float(schedule.bubble_seconds("1f1b", counts, (0.5, 0.25, 0.25), 0.0)) / micro_batches

    yield Row("tokens of one micro-batch on every replica, 100T", "M", None, one / 1e6)
    yield Row("tokens that fill the pipeline once, 100T", "G", None, c.layers * one / 1e9)
    need = math.ceil(bubble(1.0) / 0.05)
    yield Row("micro-batches for a bubble of 5 %, 100T", "", None, need)
    why = "published critical batches at this scale are 1e7 to 1e9 tokens"
    yield Row("tokens of such a step, 100T", "G", None, need * one / 1e9, why=why)
    for tokens in (32e6, 840e6):
        why = "one layer a stage leaves nothing to interleave"
        value = 100 / (1 + bubble(tokens / one))
        yield Row(f"utilisation at steps of {tokens / 1e6:.0f}M tokens, 100T", "%", None, value, why=why)


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "infrastructure": infrastructure,
    "scaling": compute_optimal_sizes,
    "architecture": architecture,
    "memory": memory_rows,
    "compute": compute,
    "communication": communication,
    "topology": topology,
    "unchecked": unchecked,
}
