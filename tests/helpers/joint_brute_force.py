"""Every plan of a toy by plain loops.

Columns, replicas, micro-batches, splits of layers, blocks by site, orders of racks, fabrics and fibre. Imports nothing
of planner.models and planner.solvers: times come from the physics, crossings are counted rack by rack on the order that
is built, and money is added up here.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from joint_brute_fabrics import fabrics
from joint_brute_sites import SiteCosts
from joint_toys import toy, with_pins
from numpy.typing import NDArray

from planner.instance.instance import Instance, instance_sha256
from planner.physics.site import cost, site_power
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.memory import memory_limit_bytes
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import RackBlock, block_of, padded
from planner.physics.training.schedule import Schedule
from planner.physics.training.step_prediction import LayoutFibre, days_of, machine_of

MOST_CONTEXT_RACKS, SIZES = 16, range(1, 17)
SAME = 1e-12  # relative: times that differ by less are equal
CENT = 0.005
Ints = NDArray[np.int64]
_ENUMERATED: dict[str, "Toy"] = {}  # of this process, by the hash of the instance


@dataclass(frozen=True, slots=True)
class Column:
    """All that is chosen of a layout but its split of layers."""

    shape: LayerShape
    p: int
    v: int
    block: RackBlock
    d: int
    zero: int
    m: int
    order: Schedule = "1f1b"

    @property
    def sequences(self) -> int:
        """Sequences of a step."""
        return self.d * self.m * self.shape.micro_batch


@dataclass(frozen=True, slots=True)
class Plan:
    """The best plan of a toy: seconds a sequence and capital, its column and what stands where."""

    seconds: float
    usd: float
    column: Column
    blocks: tuple[int, ...]
    waves: int
    send: float
    allreduce: float


@dataclass(frozen=True, slots=True)
class Level:
    """Slowdowns of the fabrics of all sites, with what such fabrics cost and draw, site by site."""

    send: float
    allreduce: float
    choices: tuple[tuple[float, tuple[float, ...]], ...]  # USD in all, and MW of each


def layer_splits(layers: int, p: int, v: int) -> list[tuple[int, ...]]:
    """List every way to give layers to stages, one a chunk at least."""
    return [x for x in itertools.product(range(v, layers + 1), repeat=p) if sum(x) == layers]


class Times:
    """Seconds a sequence of every split of a column, from the physics; they know no money."""

    def __init__(self, i: Instance) -> None:
        self.m = machine_of(i)
        self.limit = memory_limit_bytes(i)
        self.phi = i.network.transport.slowdown if i.network is not None else 1.0
        self.recomputes_some = i.pins.get("layout.recompute") == "full"
        self.pipeline = lru_cache(maxsize=None)(self._pipeline)
        self.splits = lru_cache(maxsize=None)(self._splits)
        self.seconds = lru_cache(maxsize=None)(self._seconds)

    def _pipeline(self, shape: LayerShape, zero: int, inside: bool, order: Schedule) -> Any:
        found = replace(step_prediction.pipeline_of(self.m, shape, self.phi), zero_stage=zero, order=order)
        return step_prediction.inside_rack(found) if inside else found

    def _splits(
        self, shape: LayerShape, p: int, v: int, m: int, zero: int, shards: int, order: Schedule
    ) -> tuple[Ints, Ints]:
        """List every split of layers and of recomputed layers that memory holds; a row each, a column a stage."""
        machine = padded(self.m, shape)
        every = [
            (layers, recompute)
            for layers in layer_splits(machine.model.layers, p, v)
            for recompute in itertools.product(*(range(n + 1) for n in layers))
        ]
        dense = 0 if machine.model.experts is None else machine.model.experts.dense_layers
        every = [x for x in every if math.ceil(x[0][0] / v) >= dense and (any(x[1]) or not self.recomputes_some)]
        layers, recompute = (np.array([x[k] for x in every], dtype=np.int64).reshape(-1, p) for k in (0, 1))
        stage = np.arange(p)[None, :]
        parts = memory.memory_by_part(
            machine, shape, schedule.PipelineCounts(p, v, m), stage=stage, layers=layers, recomputed=recompute,
            front=np.where(stage == 0, dense, 0), zero_stage=zero, replicas=shards, order=order,
        )  # fmt: skip
        total = sum(np.broadcast_to(np.asarray(x, dtype=float), layers.shape) for x in parts.values())
        fits = np.all(np.asarray(total) <= self.limit * (1 + SAME), axis=1)
        return layers[fits], recompute[fits]

    def _seconds(
        self, c: Column, racks: int, shards: int, send: float, allreduce: float, fibre: LayoutFibre | None
    ) -> float:
        """Time the steps of all splits, stage by stage, and return the seconds a sequence of the fastest."""
        layers, recompute = self.splits(c.shape, c.p, c.v, c.m, c.zero, shards, c.order)
        if not len(layers):
            return math.inf
        x = self.pipeline(c.shape, c.zero, c.block.rack_stages == 1, c.order)
        group = ReplicaGroup(c.block.replicas_per_rack, racks=racks, shards=shards, slowdown=allreduce)
        sharded, counts = step_prediction.sharded_times(x, group), schedule.PipelineCounts(c.p, c.v, c.m)
        exchange = float(x.send(send, c.p))
        heads = np.where(np.arange(c.p) == c.p - 1, x.head, 0.0)[None, :]
        front, usual = x.front, x.times
        slower = front.forward_seconds + front.backward_seconds - usual.forward_seconds - usual.backward_seconds
        dense = 0 if self.m.model.experts is None else self.m.model.experts.dense_layers
        heads = heads + np.where(np.arange(c.p) == 0, dense * slower + x.embedding, 0.0)[None, :]
        n = float(schedule.effective_micro_batches(c.m, c.p, c.v))
        stages = step_prediction.stage_seconds(sharded, c.v, layers, recompute, exchange) + heads
        stages = n * (stages + x.machine.software.microbatch_seconds)
        if c.v > 1:
            pairs = {(int(a), int(r)) for a, r in zip(layers.flat, recompute.flat, strict=True)}
            for i in range(c.p):
                waits = {(a, r): step_prediction.excess_seconds(sharded, counts, a, r, stage=i) for a, r in pairs}
                own = np.vectorize(lambda a, r, w=waits: w[int(a), int(r)])(layers, recompute)
                stages = stages + own * (np.arange(c.p) == i)[None, :]
        chunk = np.max(step_prediction.chunk_seconds(sharded, c.v, layers, recompute), axis=1)
        once = step_prediction.once_parts(sharded, fibre, counts, layers.max(axis=1), chunk, exchange)
        return float(np.min(stages.max(axis=1) + sum(once.values()))) / c.sequences


class Toy:
    """Full enumeration of one instance."""

    def __init__(self, i: Instance, *, times: Times | None = None) -> None:
        self.i, self.lanes = i, 0  # lanes of NICs: any
        self.times = times or Times(i)
        self.m, self.phi = self.times.m, self.times.phi
        self.pins = {k.removeprefix("layout."): v for k, v in i.pins.items()}
        self.most = math.floor((i.limits.max_batch_tokens or 0) / self.m.sequence)
        self.budget = i.limits.budget_usd or math.inf
        self.sites = SiteCosts(i=i) if i.grid is not None else None
        self.fabrics = lru_cache(maxsize=None)(self._fabrics)
        self.levels = lru_cache(maxsize=None)(self._levels)
        self.splits_of = lru_cache(maxsize=None)(self._splits_of)

    def fine(self, **chosen: Any) -> bool:
        """Return whether the pins allow some choices."""
        return all(self.pins.get(k, x) == x for k, x in chosen.items())

    def runs(self, **degrees: int) -> bool:
        """Return whether the framework has every way of dividing a step that has a degree above one."""
        return all(degree == 1 or way in self.m.software.parallelism for way, degree in degrees.items())

    def zero_stages(self, p: int) -> tuple[int, ...]:
        """Return the ZeRO stages that the framework has for a pipeline of p stages."""
        own, under = self.m.software.zero_stages, self.m.software.pipelined_zero_stages
        return own if under is None or p == 1 else tuple(z for z in own if z in under)

    def shapes(self) -> Iterator[LayerShape]:
        """Yield every way to cut a layer."""
        g, model = self.m.rack.gpus, self.m.model
        shared, experts = math.gcd(model.heads, model.kv), model.experts.count if model.experts else 1
        for t in (t for t in range(1, g + 1) if shared % t == 0):
            unit = g // t
            contexts = [*range(1, unit + 1), *(unit * c for c in range(2, MOST_CONTEXT_RACKS + 1))]
            for k, e, b, sp in itertools.product(contexts, range(1, experts + 1), SIZES, (False, True)):
                if (k > 1 and b > 1) or (sp and t == 1) or b > self.most or experts % e:
                    continue
                cut: Any = {"tensor_parallel": t, "context_parallel": k, "expert_parallel": e, "sequence_parallel": sp}
                runs = self.runs(tensor=t, context=k, expert=e, sequence=1 + sp)
                if runs and self.fine(**cut, microbatch_sequences=b):
                    yield LayerShape(**cut, micro_batch=b, recompute="none")

    def pipelines(self) -> Iterator[tuple[LayerShape, int, int, RackBlock]]:
        """Yield every shape with its pipelines, interleaved or not, one stage to a rack or as many as fit."""
        g, layers = self.m.rack.gpus, self.m.model.layers
        for s, p in itertools.product(self.shapes(), range(1, layers + 1)):
            for v, q in itertools.product(range(1, (layers // p if p > 1 else 1) + 1), {1, min(p, g // s.gpus or 1)}):
                if self.fine(pipeline_parallel=p, virtual_stages=v) and self.runs(pipeline=p, interleaved=v):
                    block = block_of(
                        g, s.degrees, pipeline_parallel=p, stages_per_rack=q,
                        replicas_per_rack=self.pins.get("replicas_per_rack"),
                    )  # fmt: skip
                    if block is not None:
                        yield s, p, v, block

    def columns(self) -> Iterator[Column]:
        """Yield every column whose racks alone can be had."""
        h, price = self.i.hardware, self.i.hardware.rack.price_usd
        for s, p, v, block in self.pipelines():
            for d in range(1, self.most // s.micro_batch + 1):
                racks = block.blocks(d) * block.racks
                if racks * price > self.budget or (self.sites is None and racks > (h.racks or 0)):
                    break
                for zero, m, order in itertools.product(
                    self.zero_stages(p),
                    range(p if v > 1 else 1, self.most // s.micro_batch // d + 1),
                    self.m.software.schedules if v == 1 else ("1f1b",),
                ):
                    if self.fine(zero_stage=zero, microbatches_per_step=m, data_parallel=d, schedule=order):
                        yield Column(s, p, v, block, d, zero, m, order)

    def _splits_of(self, blocks: int) -> dict[tuple[int, ...], dict[float, list[tuple[int, ...]]]]:
        """Group the ways to put blocks on sites by the blocks of a site, the most first, and by their round trip."""
        if self.sites is None:
            return {(blocks,): {0.0: [(blocks,)]}}
        found: dict[tuple[int, ...], dict[float, list[tuple[int, ...]]]] = defaultdict(lambda: defaultdict(list))
        for counts in self.sites.splits(blocks):
            found[tuple(sorted((n for n in counts if n), reverse=True))][self.sites.rtt_ms(counts)].append(counts)
        return found

    def _replicas(self, c: Column, sizes: tuple[int, ...]) -> int:
        """Count the replicas of the site with the fewest: what blocks lack is missing at the largest site."""
        replicas = [n * c.block.replicas for n in sizes]
        return min(replicas[0] - (sum(replicas) - c.d), *replicas[1:], replicas[0])

    def work(self) -> Iterator[tuple[float, Column, tuple[int, ...], int]]:
        """Yield every column in every shape, with its seconds where the network slows nothing and fibre takes none."""
        for c in self.columns():
            for sizes in self.splits_of(c.block.blocks(c.d)):
                shards = self._replicas(c, sizes)
                if shards * c.shape.gpus >= c.shape.expert_parallel:  # an expert group stays at a site
                    racks = sizes[0] * c.block.stage_racks
                    yield self.times.seconds(c, racks, shards, self.phi, self.phi, None), c, sizes, shards

    def best(self) -> Plan | None:
        """Return the fastest plan, of equal ones the cheapest; None where there is none."""
        # What is slower than a plan found even where nothing slows it is left out: slowdowns and fibre make nothing
        # faster.
        found: Plan | None = None
        for free, c, sizes, shards in sorted(self.work(), key=lambda x: x[0]):
            if math.isinf(free) or (found is not None and free > found.seconds * (1 + SAME)):
                break
            limit = math.inf if found is None else found.seconds * (1 + SAME)
            for plan in self.plans(c, sizes, shards, limit):
                faster = found is None or plan.seconds < found.seconds * (1 - SAME)
                if faster or (plan.seconds <= found.seconds * (1 + SAME) and plan.usd < found.usd):
                    found = plan
        return found

    def plans(self, c: Column, sizes: tuple[int, ...], shards: int, limit: float = math.inf) -> Iterator[Plan]:
        """Yield the plans of a column in a shape that the budget pays and that take at most so many seconds."""
        racks = sizes[0] * c.block.stage_racks
        for rtt, splits in self.splits_of(c.block.blocks(c.d))[sizes].items():
            for waves, level in itertools.product(self._waves(sizes), self.levels(c.block, sizes, c.v > 1)):
                fibre = self._fibre(sizes, waves, rtt)
                steps = self.times.seconds(c, racks, shards, level.send, level.allreduce, fibre)
                seconds = self.on_clock(c, sizes, steps) if steps <= limit else math.inf
                if math.isfinite(seconds) and seconds <= limit:
                    usd, blocks = min((self.usd(c, x, waves, level, seconds), x) for x in splits)
                    if math.isfinite(usd) and usd <= self.budget + CENT:
                        yield Plan(seconds, usd, c, blocks, waves, level.send, level.allreduce)

    def usd(self, c: Column, split: tuple[int, ...], waves: int, level: Level, _seconds: float) -> float:
        """Return what a split on fabrics of a level costs: its capital, however long it takes."""
        return self._least(c, split, waves, level)

    @cached_property
    def every(self) -> list[Plan]:
        """All plans, however long they take; of each fibre, round trip and slowdowns the cheapest."""
        return [plan for _, c, sizes, shards in self.work() for plan in self.plans(c, sizes, shards)]

    @cached_property
    def front(self) -> list[Plan]:
        """The plans that none of the others beats in time and capital, the fastest first."""
        kept: list[Plan] = []
        for x in sorted(self.every, key=lambda x: (x.seconds, x.usd)):
            if not kept or x.usd < kept[-1].usd * (1 - SAME):
                kept.append(x)
        return kept

    def cheapest(self, seconds: float = math.inf) -> Plan | None:
        """Return the cheapest plan that takes at most so many seconds a sequence, of equal ones the fastest."""
        in_time = [x for x in self.front if x.seconds <= seconds * (1 + 1e-9)]
        return min(in_time, key=lambda x: (round(x.usd, 2), x.seconds), default=None)

    def on_clock(self, _c: Column, _sizes: tuple[int, ...], seconds: float) -> float:
        """Return the seconds that pass for so many of steps: nothing fails here."""
        return seconds

    def spare_racks(self, _block: RackBlock, _blocks: int) -> int:
        """Return the racks that stand by at a site of so many blocks."""
        return 0

    def rails(self, block: RackBlock) -> int:
        """Return the GPUs of a rack that are cabled."""
        return block.rails

    def _waves(self, sizes: tuple[int, ...]) -> range:
        w = self.i.wan
        return range(1) if len(sizes) < 2 or w is None else range(1, w.max_wavelengths_per_pair * w.max_fibre_pairs + 1)

    def _fibre(self, sizes: tuple[int, ...], waves: int, rtt: float) -> LayoutFibre | None:
        w = self.i.wan
        if len(sizes) < 2 or w is None:
            return None
        gbps = waves * w.wavelength_gbps / w.headroom_factor
        return LayoutFibre(sites=len(sizes), gbps=gbps, rtt_ms=rtt, round_trips=w.round_trips)

    def _fabrics(self, block: RackBlock, blocks: int, wrap: bool) -> list[Any]:
        spare, rails = self.spare_racks(block, blocks), self.rails(block)
        found = fabrics(self.i, block, blocks, wrap=wrap, spare=spare, rails=rails, lanes=self.lanes)
        limit, h = self.i.limits.facility_power_mw, self.i.hardware
        if self.sites is None and limit is not None:
            racks = h.racks or 0
            found = [f for f in found if site_power.facility_mw(h, racks, f.mw) <= limit * (1 + 1e-9)]
        return found

    def _levels(self, block: RackBlock, sizes: tuple[int, ...], wrap: bool) -> list[Level]:
        """List the slowdowns of every choice of fabrics, one for each site, the cheapest choices of each first."""
        if self.i.network is None:
            return [Level(self.phi, self.phi, ((0.0, (0.0,) * len(sizes)),))]
        counts = self.sites is not None and not self.i.hardware.overhead_includes_fabric
        found: dict[tuple[float, float], dict[tuple[float, ...], float]] = defaultdict(dict)
        for chosen in itertools.product(*(self.fabrics(block, n, wrap) for n in sizes)):
            mw = tuple(f.mw * self.i.hardware.facility_overhead_factor if counts else 0.0 for f in chosen)
            known = found[max(f.send for f in chosen), max(f.allreduce for f in chosen)]
            known[mw] = min(known.get(mw, math.inf), sum(f.usd for f in chosen))
        return [
            Level(send, allreduce, tuple(sorted((usd, mw) for mw, usd in known.items())))
            for (send, allreduce), known in found.items()
        ]

    def _least(self, c: Column, split: tuple[int, ...], waves: int, level: Level) -> float:
        """Return the least capital of a split on fabrics of a level."""
        if self.sites is None:
            h, (usd, _) = self.i.hardware, level.choices[0]
            if sum(n * c.block.racks + self.spare_racks(c.block, n) for n in split) > (h.racks or 0):
                return math.inf
            return (h.racks or 0) * h.rack.price_usd + usd
        own = (n * c.block.racks + (self.spare_racks(c.block, n) if n else 0) for n in split)
        racks, best = tuple(own), math.inf
        places = sorted((k for k, n in enumerate(split) if n), key=lambda k: -split[k])
        bare = self.sites.least(racks, waves, (0.0,) * len(split))
        for usd, mw in level.choices:
            if bare + usd >= min(best, self.budget + CENT):
                break
            extra = [0.0] * len(split)
            for k, x in zip(places, mw, strict=True):
                extra[k] = x
            best = min(best, usd + self.sites.least(racks, waves, tuple(extra)))
        return best


def cost_toy(i: Instance) -> Toy:
    """Return the full enumeration of an instance, made once a process."""
    key = instance_sha256(i)
    if key not in _ENUMERATED:
        _ENUMERATED[key] = Toy(i)
    return _ENUMERATED[key]


def run_toy(i: Instance, *, deadline_days: float | None = None, **operation: Any) -> Instance:
    """Return a toy without a budget that says what operation costs; energy has another price in every area."""
    limits = i.limits.replaced(budget_usd=None, deadline_days=deadline_days)
    rack_life, usd_per_mwh = operation.pop("rack_life_years", None), operation.pop("usd_per_mwh", 0.0)
    rack = i.hardware.rack.replaced(life_years=rack_life)
    i = Instance.model_validate(i.model_dump(mode="json", exclude_none=True) | {"operation": operation})
    grid = i.grid
    if grid is not None:
        areas = [a.replaced(energy_usd_per_mwh=usd_per_mwh * (1 + k)) for k, a in enumerate(grid.balancing_authorities)]
        grid = grid.replaced(balancing_authorities=tuple(areas))
    return i.replaced(limits=limits, hardware__rack=rack, grid=grid)


class RunToy(Toy):
    """Full enumeration of one instance by what its plans cost until they end."""

    def years(self, seconds: float) -> float:
        """Return the years of a run at so many seconds a sequence."""
        return cost.years_of(days_of(self.i, seconds))

    def usd(self, c: Column, split: tuple[int, ...], waves: int, level: Level, seconds: float) -> float:
        """Add up what a split on fabrics of a level costs over its run, at its cheapest."""
        years, ways = self.years(seconds), (replace(level, choices=(x,)) for x in level.choices)
        return min(self._least(c, split, waves, one) + self._running(c, split, one, years) for one in ways)

    def _running(self, c: Column, split: tuple[int, ...], one: Level, years: float) -> float:
        """Add up upkeep, replacements, staff and energy of a split on certain fabrics."""
        o, h = self.i.operation, self.i.hardware
        assert o is not None
        rack, ((fabric_usd, fabric_mw),) = h.rack, one.choices
        places = sorted((k for k, n in enumerate(split) if n), key=lambda k: -split[k])
        fabric_at = dict(zip(places, fabric_mw, strict=True))
        bought, energy = 0, 0.0
        for k, n in enumerate(split):
            own = -(-n * c.block.racks // h.racks_per_module) * h.racks_per_module if self.sites else h.racks or 0
            bought += own
            if self.sites is not None and own:
                usd_per_mwh = self.sites.areas[self.sites.nodes[k].balancing_authority].energy_usd_per_mwh
                energy += cost.energy_usd_per_year(site_power.facility_mw(h, own) + fabric_at[k], usd_per_mwh)
        upkeep = o.maintenance_share_per_year or 0.0
        lives = [(bought * rack.price_usd, rack.life_years), (fabric_usd, o.fabric_life_years)]
        again = sum(usd * (upkeep * years + _ends(years, life)) for usd, life in lives)
        return again + years * (energy + (o.staff_usd_per_year or 0.0))


def _ends(years: float, life: float | None) -> int:
    """Count the lives that end before a run does."""
    ends = 0
    while life is not None and (ends + 1) * life < years * (1 - 1e-12):
        ends += 1
    return ends


__all__ = ["Plan", "Times", "Toy", "toy", "with_pins"]
