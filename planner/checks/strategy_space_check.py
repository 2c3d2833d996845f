"""The declared space of columns as the checker enumerates it, and the most racks that money and power allow.

Written from the description of the space, not from the search's own enumeration.
"""

import itertools
import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from planner.checks.fabric import joined_racks
from planner.checks.layout import broken_shapes
from planner.checks.reliability import NoFailures, failures_of
from planner.instance.grid import Grid, PowerNode
from planner.instance.instance import Instance
from planner.physics import Ints
from planner.physics.network.fabric_cost import min_fabric
from planner.physics.site import cost, site_power
from planner.physics.site.grid import usable_interconnect_mw
from planner.physics.training import memory, step_prediction
from planner.physics.training.collectives import limits_expert_overlap
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import block_of, shape_values
from planner.physics.training.schedule import Schedule, may_overlap_experts
from planner.physics.training.step_prediction import SECONDS_PER_DAY
from planner.physics.training.transformer import front_layers
from planner.plan.certificate import JointProof

MAX_MICRO_BATCH = 16  # sequences
MAX_CONTEXT_RACKS = 16
ROUNDING = 1e-9  # of a number of layers that is whole but for rounding
MIN_GRID_TENSOR_PARALLEL = 16  # ranks from which 2-D tensor parallelism belongs to the space
PARTS = 8  # of a range that stays open
Repeats = Literal["no", "any", "some"]  # layers of a stage that may be recomputed whole; some: one at least
SLACK = 1e-9  # relative, so that rounding never takes a module away
CENT = 0.01
MANY = 10**9  # racks: more than any site has


class Space:
    """The checker's own enumeration of the declared space of parallel strategies, for an instance under its pins."""

    def __init__(self, *, instance: Instance, transport_slowdown: float) -> None:
        self.instance, self.transport_slowdown = instance, transport_slowdown
        self.machine, self.rules = step_prediction.machine_of(instance), instance.workload.rules
        self.gpus, self.layers = self.machine.rack.gpus, self.machine.model.layers
        self.sequences = math.floor((instance.limits.max_batch_tokens or 0.0) / self.machine.sequence)  # of a step
        self.memory_limit = memory.memory_limit_bytes(instance)
        self.site_racks = MANY  # no bound without a grid
        if instance.grid is not None:
            modules = max((room for _, room in _rooms(instance, instance.grid)[0]), default=0.0)
            self.site_racks = math.floor(min(modules * (1 + SLACK), MANY)) * instance.hardware.racks_per_module
        self.failures = failures_of(instance) or NoFailures()
        self.zero_stages, work = self.pinned("zero_stage", sorted(self.machine.software.zero_stages)), instance.workload
        # Days to train for a second a sequence.
        self.days_a_second = work.tokens / work.sequence_length / work.availability / SECONDS_PER_DAY
        self.pipelines = cache(self._pipelines)  # which cuts that split a replica alike share

    def pinned(self, name: str, values: Iterable[Any]) -> list[Any]:
        """Return the values of a layout choice that its pin leaves in the checker's declared space."""
        pin = self.instance.pins.get(f"layout.{name}")
        return [value for value in values if pin is None or value == pin]

    def runs(self, zero_stage: int, stages: Ints) -> NDArray[np.bool_]:
        """Return for the checker, by number of pipeline stages, whether the framework supports a ZeRO stage with it."""
        under = self.machine.software.pipelined_zero_stages
        return np.asarray(stages == 1, dtype=np.bool_) | (under is None or zero_stage in under)

    def counts(self, shape: LayerShape, pipelines: "CutPipelines", replicas: int, micro_batches: Ints) -> Ints:
        """Return the numbers of micro-batches that framework rules allow the checker's pipeline with these replicas."""
        if self.rules.whole_expert_groups and replicas * shape.gpus % shape.expert_parallel:
            return micro_batches[:0]
        in_rounds = self.rules.whole_rounds and int(pipelines.v) > 1
        return micro_batches[micro_batches % int(pipelines.p) == 0] if in_rounds else micro_batches

    def cuts(self) -> Iterator["Cut"]:
        """Yield every way to cut a layer in the checker's declared space, with each pipeline schedule."""
        machine, fronts = self.machine, dict[LayerShape, LayerTimes]()
        schedules, of = self.pinned("schedule", machine.software.schedules), (machine.model, machine.sequence)
        taken = (shape for shape in self._shapes() if not any(broken_shapes(self.rules, shape, *of)))
        for shape, (keeps, repeats) in itertools.product(taken, self._recomputations()):
            whole = replace(shape, recompute=keeps)
            exposed = replace(whole, experts_overlap=False)
            ways: list[tuple[LayerShape, Repeats, bool | None]] = [(whole, repeats, None)]
            # Under pipelines of one stage or with interleaving the exchange overlaps unless layers run again.
            if limits_expert_overlap(machine, whole):
                ways = [(whole, "no", True)] if repeats != "some" else []
                ways += [(exposed, "some", True)] if repeats != "no" else []
                ways += [(exposed, repeats, False)]
            for one, kept, overlaps in ways:
                times = step_prediction.pipeline_of(machine, one, self.transport_slowdown, fronts)
                for schedule in schedules:
                    own = replace(times, order=schedule)
                    yield Cut(space=self, shape=one, schedule=schedule, repeats=kept, times=own, overlapping=overlaps)

    def _shapes(self) -> Iterator[LayerShape]:
        model, has = self.machine.model, set(self.machine.software.parallelism)
        heads = math.gcd(model.heads, model.kv) if "tensor" in has else 1
        experts = model.experts.count if model.experts and "expert" in has else 1
        split = self.pinned("expert_parallel", _divisors(experts, experts))
        for tensor in self.pinned("tensor_parallel", _divisors(heads, self.gpus)):
            fit = self.gpus // tensor
            contexts = [*range(1, fit + 1), *range(2 * fit, MAX_CONTEXT_RACKS * fit + 1, fit)]
            inners = self.pinned("tensor_parallel_inner", inner_degrees(tensor) if "tensor-2d" in has else [1])
            sequence = self.pinned("sequence_parallel", [False, True] if tensor > 1 and "sequence" in has else [False])
            for context in self.pinned("context_parallel", contexts if "context" in has else [1]):
                most = min(MAX_MICRO_BATCH if context == 1 else 1, self.sequences)
                batches = self.pinned("microbatch_sequences", range(1, most + 1))
                for batch, expert, inner, scattered in itertools.product(batches, split, inners, sequence):
                    yield LayerShape(
                        tensor_parallel=tensor, tensor_inner=inner, context_parallel=context, expert_parallel=expert,
                        sequence_parallel=scattered, micro_batch=batch, recompute="none",
                    )  # fmt: skip

    def _pipelines(self, degrees: tuple[int, int, int], schedule: Schedule) -> "CutPipelines":
        """Return the pipelines that the framework has of a checked cut by TP, CP and EP; packed ones fill each rack."""
        layers, gpus, network, pins = self.layers, self.gpus, self.instance.network, self.instance.pins
        fit, framework = gpus // math.prod(degrees[:2]), self.machine.software.parallelism
        stages = np.arange(1, (layers if "pipeline" in framework else 1) + 1)
        if self.rules.even_stages and "layout.layers_per_stage" not in pins:
            stages = stages[layers % stages == 0]
        chunks = schedule == "1f1b" and "interleaved" in framework
        most = np.where(stages > 1, layers // stages, 1) if chunks else np.ones_like(stages)
        p = np.repeat(stages, most)
        v = np.arange(len(p)) - np.repeat(np.cumsum(most) - most, most) + 1
        packed = p > 1 if fit > 1 else np.zeros_like(p, dtype=bool)
        q = np.append(np.ones_like(p), np.minimum(p[packed], fit))
        p, v = np.append(p, p[packed]), np.append(v, v[packed])
        kinds, at = np.unique(q, return_inverse=True)
        rows = []  # of the block of one rack stage; those of longer pipelines have as many more racks
        for kind in kinds.tolist():
            own = {"stages_per_rack": kind, "replicas_per_rack": pins.get("layout.replicas_per_rack")}
            block = block_of(gpus, degrees, pipeline_parallel=1, **own)
            names = ("racks", "replicas", "replicas_per_rack", "stage_racks", "rails")
            rows.append([getattr(block, name, 0) for name in names])
        racks, replicas, per_rack, stage_racks, wired = np.array(rows, dtype=np.int64).reshape(-1, 5)[at].T
        if network is not None and network.spares.asked:  # idle GPUs are cabled too: they are the spares
            wired = np.where(wired > 0, gpus, wired)
        rack_stages, stripes = -(-p // q), 1 if network is None else pins.get("placement.stripes", 1)
        every = rack_stages * racks, replicas, per_rack, stage_racks, wired
        found = CutPipelines(p, v, q, *every, *[np.ones_like(p)] * 4)
        fine = (replicas > 0) & (rack_stages >= stripes)  # a stripe has a rack stage at least
        columns = {"pipeline_parallel": p, "virtual_stages": v, "stages_per_rack": q, "replicas_per_rack": per_rack}
        for name, column in columns.items():
            fine &= column == pins.get(f"layout.{name}", column)
        return found.part(np.flatnonzero(fine))

    def _recomputations(self) -> list[tuple[Any, Repeats]]:
        """Return pairs of the checker's space (activations a layer keeps, whether whole layers may be recomputed).

        Under full recompute the layers that are not recomputed whole keep the activations of selective recompute; all
        of them where that repeats more than core attention, or where flash attention leaves it nothing to repeat.
        """
        pin, software = self.instance.pins.get("layout.recompute"), self.machine.software
        if pin in ("none", "selective"):
            return [(pin, "no")] if pin == "none" or self.rules.selective else []
        model, experts = self.machine.model, self.machine.model.experts
        # By module that the stack may repeat, whether some layer of the model has it.
        has = dict.fromkeys(("moe", "moe_act"), experts is not None) | {
            "mla_up_proj": model.latent_attention is not None
        }
        has |= {"layernorm": any(has.values()), "mlp": experts is None or experts.dense_layers > 0}
        has["shared_experts"] = experts is not None and experts.shared_ffn > 0
        if any(has[name] for name in set(software.recompute_modules) - {"core_attn"}):
            ways: list[tuple[Any, Repeats]] = [("none", "some" if pin == "full" else "any"), ("selective", "no")]
            return ways if self.rules.selective and pin != "full" else ways[:1]
        if software.flash_attention and software.selective_gemm_share == 0:
            return [("none", "some" if pin == "full" else "any")]
        others: Repeats = "any" if self.rules.selective else "some"
        return [("selective", "some")] if pin == "full" else [("none", "no"), ("selective", others)]


def _divisors(number: int, most: int) -> list[int]:
    return [degree for degree in range(1, most + 1) if number % degree == 0]


def inner_degrees(degree: int) -> list[int]:
    """Return the checker's inner degrees of TP: 1, and for many ranks the one of the most nearly square grid."""
    if degree < MIN_GRID_TENSOR_PARALLEL:
        return [1]
    sides = _divisors(degree, degree - 1)[1:]
    square = sorted(sides, key=lambda side: (max(Fraction(side * side, degree), Fraction(degree, side * side)), side))
    return [1, *square[:1]]


@dataclass(frozen=True, slots=True)
class CutPipelines:
    """The checker's pipelines of a cut as arrays: their blocks of racks, and ranges of replicas and micro-batches."""

    p: Ints  # stages
    v: Ints  # virtual stages
    stages_per_rack: Ints
    block_racks: Ints
    block_replicas: Ints
    replicas_per_rack: Ints
    stage_racks: Ints
    wired: Ints
    min_replicas: Ints
    max_replicas: Ints
    min_micro_batches: Ints
    max_micro_batches: Ints

    def part(self, which: Any) -> "CutPipelines":
        """Return some of the pipelines of a checked cut, by index, slice or mask."""
        return CutPipelines(*(getattr(self, name)[which] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.min_replicas)

    def over(self, min_replicas: Any, max_replicas: Any, least: Any, most: Any) -> "CutPipelines":
        """Return a checked cut's pipelines with other ranges of replicas, and of micro-batches `least` to `most`."""
        own = {"min_replicas": min_replicas, "max_replicas": max_replicas}
        return replace(self, **own, min_micro_batches=least, max_micro_batches=most)

    def within(self, total: int) -> "CutPipelines":
        """Return the checker's ranges clipped to a step of `total` micro-batches over all replicas, none left empty."""
        many = np.minimum(self.max_replicas, total // self.min_micro_batches)
        most = np.minimum(self.max_micro_batches, total // self.min_replicas)
        found = replace(self, max_replicas=many, max_micro_batches=most)
        fine = (found.min_replicas <= found.max_replicas) & (found.min_micro_batches <= found.max_micro_batches)
        return found.part(np.flatnonzero(fine))

    def columns(self) -> Iterator[tuple["CutPipelines", int, Ints]]:
        """Yield the columns of a checked cut: a pipeline alone, its replicas, and its micro-batches, ascending."""
        keys = np.stack([self.p, self.v, self.stages_per_rack, self.min_replicas, self.min_micro_batches])
        order = np.lexsort(keys[::-1])
        starts = np.flatnonzero(np.append(True, np.any(np.diff(keys[:4, order], axis=1) != 0, axis=0)))
        for some in np.split(order, starts[1:]):
            yield self.part(some[0]), int(self.min_replicas[some[0]]), self.min_micro_batches[some]

    def split(self) -> "CutPipelines":
        """Split each range of a checked cut by its replicas, or by micro-batches where it has one replica count."""
        one = self.min_replicas == self.max_replicas
        low = np.where(one, self.min_micro_batches, self.min_replicas)
        size = np.where(one, self.max_micro_batches, self.max_replicas) - low + 1
        parts = np.minimum(size, PARTS)
        row = np.repeat(np.arange(len(self)), parts)
        k = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
        first, last = low[row] + size[row] * k // parts[row], low[row] + size[row] * (k + 1) // parts[row] - 1
        part, one = self.part(row), one[row]
        replicas = np.where(one, part.min_replicas, first), np.where(one, part.max_replicas, last)
        micro_batches = np.where(one, first, part.min_micro_batches), np.where(one, last, part.max_micro_batches)
        return part.over(*replicas, *micro_batches)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """The checker's timed way to cut a layer; `overlapping`: of pipelines that overlap experts or not; None: all."""

    space: Space
    shape: LayerShape
    schedule: Schedule
    repeats: Repeats
    times: step_prediction.Pipeline
    overlapping: bool | None = None

    @property
    def pipelines(self) -> CutPipelines:
        """The pipelines of a checked cut, enumerated when they are asked for: a check may have to stop before."""
        every, way = self.space.pipelines(self.shape.degrees, self.schedule), self.overlapping
        return every if way is None else every.part(may_overlap_experts(every.p, every.v) == way)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What tells a checked cut from others: its shape's values and its schedule."""
        return (*shape_values(self.shape).values(), self.schedule)

    @property
    def total_micro_batches(self) -> int:
        """The micro-batches that a step of a checked cut holds over all replicas."""
        return self.space.sequences // self.shape.micro_batch

    @cached_property
    def least_layers(self) -> int:
        """The checker's usual layers that take no longer than all of a cut's model, faster front ones included."""
        usual, front = self.times.times, self.times.front
        each = usual.forward_seconds + usual.backward_seconds
        lighter = max(0.0, each - front.forward_seconds - front.backward_seconds)
        return self.space.layers - math.ceil(front_layers(self.times.machine.model) * lighter / each - ROUNDING)

    @cached_property
    def layer_bytes(self) -> memory.LayerBytes:
        """The activation bytes of a layer of a checked cut on one GPU."""
        return memory.layer_bytes(self.times.machine, self.shape)


def max_racks(instance: Instance, wired_gpus: int) -> int:
    """Bound, for the check, the racks of any plan in which `wired_gpus` GPUs of each rack are cabled.

    They are within the budget (whole modules, buildings, connections, the cheapest link and leaf port of each cabled
    GPU, counted years of the cheapest energy), power and sites; a cluster's are those at hand with that link and port.
    """
    hardware, grid, power = instance.hardware, instance.grid, instance.limits.facility_power_mw
    if grid is None:
        racks, budget, least = hardware.racks or 0, instance.limits.budget_usd, min_fabric(instance.network)

        def over(cabled: int) -> bool:
            """Return whether all racks, some of them cabled, cost or draw more than the limits of the checked plan."""
            usd = racks * hardware.rack.price_usd + cabled * wired_gpus * least.usd
            mw = site_power.facility_mw(hardware, racks, cabled * wired_gpus * least.mw)
            return (budget is not None and usd > budget + CENT) or (power is not None and mw > power * (1 + SLACK))

        return max(0, bisect(range(racks + 1), False, key=over) - 1)
    each, most = hardware.racks_per_module, [_by_budget(instance, grid, 0), _by_sites(instance, grid)]
    if power is not None and "facility_power" not in grid.rules.soft:
        most.append(power / site_power.facility_mw(hardware, each))
    racks = each * math.floor(max(0.0, min(*most, MANY)) * (1 + SLACK))
    # Of a module that the budget pays not all racks need be cabled, nor all that are pinned.
    paid = math.floor(max(0.0, min(each * _by_budget(instance, grid, wired_gpus), MANY)) * (1 + SLACK))
    wanted = instance.pins.get("sites.racks", racks)
    return min(wanted, paid) if wanted <= racks else 0


def max_sites(instance: Instance) -> int:
    """Bound, for the check, the sites that may hold racks."""
    if instance.grid is None:
        return 1
    most, soft = instance.grid.rules.max_sites, instance.grid.rules.soft.get("site_count")
    limits = [len(_candidates(instance.grid)), instance.pins.get("sites.max_sites")]
    limits += [] if most is None else [most + (soft.max_excess + 1e-9 if soft else 0)]
    return max(1, min(int(limit) for limit in limits if limit is not None))


def _by_budget(instance: Instance, grid: Grid, wired_gpus: int) -> float:
    limits, hardware, racks = instance.limits, instance.hardware, instance.hardware.racks_per_module
    if limits.budget_usd is None:
        return math.inf
    load, fixed = site_power.facility_mw(hardware, racks), cost.site_capex_usd(grid, it_mw=0.0, facility_mw=0.0)
    module = cost.site_capex_usd(grid, it_mw=site_power.it_mw(hardware, racks), facility_mw=load) - fixed
    module += racks * (hardware.rack.price_usd + wired_gpus * min_fabric(instance.network).usd)
    areas = {area.id: area.energy_usd_per_mwh for area in grid.balancing_authorities}
    energy = min((areas[node.balancing_authority] for node in _candidates(grid)), default=0.0)
    module += limits.budgeted_years * cost.energy_usd_per_year(load, energy)
    split = grid.rules.fault_split
    sites = split.min_interconnections if split.enabled else 1
    return math.inf if module <= 0 else (limits.budget_usd + CENT - sites * fixed) / module


def _by_sites(instance: Instance, grid: Grid) -> float:
    """Bound, for the check, the modules of the largest sites together: as many as may open, each within its limits.

    Where no interconnection may hold more than a share, T <= sum of min(room, share·T), into which a bound is put.
    """
    largest, split, (rooms, within) = max_sites(instance), grid.rules.fault_split, _rooms(instance, grid)
    interconnection = {area.id: area.interconnection for area in grid.balancing_authorities}
    by_area, by_interconnection = defaultdict[str, float](float), defaultdict[str, list[float]](list)
    for node, room in rooms:
        by_area[node.balancing_authority] += room
        by_interconnection[interconnection[node.balancing_authority]].append(room)
    every = sorted((room for _, room in rooms), reverse=True)
    limit = min(sum(every[:largest]), sum(min(modules, within[area]) for area, modules in by_area.items()))
    if not split.enabled or not math.isfinite(limit):
        return limit
    most = [sum(sorted(own, reverse=True)[:largest]) for own in by_interconnection.values()]
    for _ in range(100):
        lower = min(limit, sum(min(room, split.max_share * limit) for room in most))
        if lower >= limit * (1 - SLACK):
            break
        limit = lower
    return limit


def _candidates(grid: Grid) -> list[PowerNode]:
    months = grid.rules.ready_within_months
    return [node for node in grid.nodes if node.site and (months is None or node.ready_months <= months)]


def _rooms(instance: Instance, grid: Grid) -> tuple[list[tuple[PowerNode, float]], dict[str, float]]:
    """Pair candidate sites with the modules that each may hold by itself; return those of each area's headroom too."""
    hardware, soft, rule = instance.hardware, grid.rules.soft, grid.rules.interconnect
    each, rooms = hardware.racks_per_module, list[tuple[PowerNode, float]]()
    load, land = site_power.facility_mw(hardware, each), site_power.cooling_m2(hardware, each)
    headroom = grid.rules.headroom and "headroom" not in soft
    within = {area.id: area.headroom_mw / load if headroom else math.inf for area in grid.balancing_authorities}
    wired = rule.enabled and rule.share > 0 and rule.reading != "import_share" and "interconnect" not in soft
    built = {line.id: line.max_circuits for line in grid.new_lines}
    for node in _candidates(grid):
        limits, pin = [within[node.balancing_authority]], instance.pins.get(f"sites.racks.{node.id}")
        if land is not None and node.area_m2 is not None and "area" not in soft:
            limits.append(node.area_m2 / land)
        if wired:
            usable = usable_interconnect_mw(grid, node, built, node.upgrade.max_steps if node.upgrade else 0)
            limits += [] if usable is None else [usable / rule.share / load]
        if pin is not None:
            limits.append(pin / each)
        rooms.append((node, max(0.0, min(limits))))
    return rooms, within


def most_racks(instance: Instance, proof: JointProof) -> Callable[[int], int]:
    """Return the checker's most racks by GPUs cabled: its arithmetic, or what a plan states if less, on trust."""
    stated, each = proof.max_racks_by_wired_gpus, instance.hardware.racks_per_module if instance.grid else 1

    @cache
    def most(wired_gpus: int) -> int:
        # A fabric joins what the proof says, or more if the checker's own designs do; sites have whole modules.
        site = max(joined_racks(instance, wired_gpus), proof.joined_racks_by_wired_gpus.get(wired_gpus, math.inf))
        joined = max_sites(instance) * (-(-site // each) * each if math.isfinite(site) else site)
        own, fewer = int(min(max_racks(instance, wired_gpus), joined)), [gpus for gpus in stated if gpus <= wired_gpus]
        return min(own, stated[max(fewer)]) if fewer else own

    return most
