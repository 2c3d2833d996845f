"""Every plan of a toy by plain loops.

Columns, replicas, micro-batches, splits, blocks by site, stripes, fabrics and fibre. Imports nothing of
planner.models: times come from the physics, crossings are counted rack by rack on the order that is built, and money
is added up here.
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.physics.site import cost, power, wan
from planner.physics.training import schedule, stage_memory, step
from planner.physics.training.blocks import block_step
from planner.physics.training.blocks.rack_blocks import Block, block_of, padded
from planner.physics.training.operations import Shape

MOST_CONTEXT_RACKS, SIZES = 16, range(1, 17)
PHI = 1.1


@dataclass(frozen=True)
class Fabric:
    """A fabric of a site: its price, its power, and how it slows sends and allreduces."""

    usd: float
    mw: float
    send: float
    allreduce: float


def built_order(stages: int, blocks: int, unit: int, stripes: int) -> list[list[int]]:
    """Lay the racks of a site down one after another: stripe by stripe, block by block, stage by stage.

    Return the racks of each stage.
    """
    sizes = [stages // stripes + (k < stages % stripes) for k in range(stripes)]
    ranks: list[list[int]] = [[] for _ in range(stages)]
    rack, first = 0, 0
    for size in sizes:
        for _ in range(blocks):
            for stage in range(first, first + size):
                ranks[stage] += range(rack, rack + unit)
                rack += unit
        first += size
    return ranks


def crossings(ranks: list[list[int]], d: int, *, wrap: bool) -> tuple[int, int]:
    """Count the most flows that leave or enter a leaf domain of d racks, and the most allreduces that leave one."""
    pairs = list(itertools.pairwise(ranks)) + ([(ranks[-1], ranks[0])] if wrap and len(ranks) > 1 else [])
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for a, b in pairs:
        for x, y in zip(a, b, strict=True):
            if x // d != y // d:
                out[x // d] += 1
                into[y // d] += 1
    allreduces: Counter[int] = Counter()
    for racks in ranks:
        domains = {x // d for x in racks}
        if len(domains) > 1:
            allreduces.update(domains)
    return max([0, *out.values(), *into.values()]), max([0, *allreduces.values()])


def fabrics(i: Instance, block: Block, blocks: int, *, wrap: bool) -> list[Fabric]:
    """List every tree of up to three tiers, all leaf domains in a pod, with every order of racks.

    Those beaten in all are dropped.
    """
    n, found = i.network, set()
    assert n is not None
    racks, w = block.racks * blocks, block.rails
    end = n.cables.endpoint_usd + n.cables.endpoint_transceivers * n.optics.price_usd
    link = n.cables.switch_usd + n.cables.switch_transceivers * n.optics.price_usd
    end_w, link_w = (
        n.cables.endpoint_transceivers * n.optics.power_watts,
        n.cables.switch_transceivers * n.optics.power_watts,
    )
    orders = [built_order(block.rack_stages, blocks, block.stage_racks, s) for s in range(1, block.rack_stages + 1)]
    for s in n.switches:
        assert not isinstance(s, str)

        def add(switches: int, links: int, flow: float, allreduce: float, s: Any = s) -> None:
            usd = racks * w * end + switches * s.price_usd + links * link
            mw = (racks * w * end_w + switches * s.power_watts + links * link_w) / 1e6
            found.add(Fabric(usd, mw, PHI * max(1.0, flow), PHI * max(1.0, allreduce)))

        if racks * w <= s.ports:
            add(1, 0, 0, 0)
        for d in range(block.stage_racks, min(racks, s.ports) + 1, block.stage_racks):
            domains = -(-racks // d)
            counted = [crossings(order, d, wrap=wrap) for order in orders]
            for u, x in itertools.product(range(1, s.ports - d + 1), range(1, w + 1)):
                pods = -(-w // x)
                for b in (b for b in range(1, u + 1) if u % b == 0):
                    if b * x * domains + (pods > 1) <= s.ports and pods <= s.ports:
                        leaves, spines = w * domains, pods * (u // b)
                        cores = u // b if pods > 1 else 0
                        for flow, allreduce in counted:
                            add(
                                leaves + spines + cores,
                                leaves * u + (spines if pods > 1 else 0),
                                flow / u,
                                allreduce / u,
                            )
    kept: list[Fabric] = []
    for f in sorted(found, key=lambda f: (f.usd, f.mw, f.send, f.allreduce)):
        if not any(k.mw <= f.mw and k.send <= f.send and k.allreduce <= f.allreduce for k in kept):
            kept.append(f)
    return kept


@dataclass(frozen=True)
class Placement:
    """Blocks by site with the price of everything but fabrics, the load that is free at each site.

    And what a MW of fabric costs there.
    """

    blocks: tuple[int, ...]
    usd: float
    free_mw: tuple[tuple[frozenset[int], float], ...]
    usd_per_mw: float
    gbps: float
    rtt_ms: float


def placements(i: Instance, racks_of_block: int, blocks: int) -> Iterator[Placement]:
    """Yield every way to put blocks on sites, and every width of fibre between them."""
    h, budget = i.hardware, i.limits.budget_usd or math.inf
    price = power.rack_of(h).price_usd
    if i.grid is None:
        owned = h.racks or 0
        if racks_of_block * blocks <= owned:
            yield Placement((blocks,), owned * price, (), 0.0, 0.0, 0.0)
        return
    g, w = i.grid, i.wan
    assert w is not None
    p, nodes = g.prices, g.nodes
    areas = {b.id: b for b in g.balancing_authorities}
    for counts in itertools.product(range(blocks + 1), repeat=len(nodes)):
        where = [k for k, n in enumerate(counts) if n]
        if sum(counts) != blocks or len(where) > (g.rules.max_sites or len(nodes)):
            continue
        mw = [power.facility_mw(h, racks_of_block * n) for n in counts]
        usd = sum(racks_of_block * n * price for n in counts)
        usd += sum(
            cost.site_capex_usd(g, it_mw=power.it_mw(h, racks_of_block * counts[k]), facility_mw=mw[k]) for k in where
        )
        free = []
        for b in areas.values():
            members = frozenset(k for k, n in enumerate(nodes) if n.balancing_authority == b.id)
            free.append((members, b.headroom_mw - sum(mw[k] for k in members)))
        if any(x < -1e-9 for _, x in free):
            continue
        per_mw = p.building_usd_per_it_mw / h.facility_overhead_factor + p.interconnection_usd_per_mw
        km = [
            wan.great_circle_km(nodes[a].latitude, nodes[a].longitude, nodes[c].latitude, nodes[c].longitude)
            * w.route_factor
            for a, c in itertools.combinations(where, 2)
        ]
        rtt = max((wan.rtt_ms(w, x) for x in km), default=0.0)
        if g.rules.max_rtt_ms is not None and rtt > g.rules.max_rtt_ms:
            continue
        for waves in range(1, w.max_wavelengths_per_pair * w.max_fibre_pairs + 1) if km else (0,):
            fibre = sum(cost.wan_fibre_usd(w, x, waves) + cost.wan_wavelength_usd(w, waves) for x in km)
            if usd + fibre <= budget:
                yield Placement(
                    counts, usd + fibre, tuple(free), per_mw, waves * w.wavelength_gbps / w.headroom_factor, rtt
                )


def layer_splits(layers: int, p: int, v: int) -> list[tuple[int, ...]]:
    """List every way to give layers to stages, one a chunk at least."""
    return [x for x in itertools.product(range(v, layers + 1), repeat=p) if sum(x) == layers]


@dataclass(frozen=True)
class Plan:
    """The best plan of a toy: seconds a sequence and capital."""

    seconds: float
    usd: float


class Toy:
    """Full enumeration of one instance."""

    def __init__(self, i: Instance) -> None:
        self.i, self.m = i, step.machine_of(i)
        self.pins = {k.removeprefix("layout."): v for k, v in i.pins.items()}
        self.limit = step.memory_limit_bytes(i)
        self.most = math.floor((i.limits.max_batch_tokens or 0) / self.m.sequence)
        self.fabric_of: dict[Any, list[Fabric]] = {}
        self.pipeline = lru_cache(maxsize=None)(self._pipeline)

    def fine(self, **chosen: Any) -> bool:
        """Return whether the pins allow some choices."""
        return all(self.pins.get(k, x) == x for k, x in chosen.items())

    def shapes(self) -> Iterator[tuple[Shape, int, int, int]]:
        """Yield shapes with pipeline, virtual stages and stages in a rack."""
        g, layers = self.m.rack.gpus, self.m.model.layers
        shared = math.gcd(self.m.model.heads, self.m.model.kv)
        for t in (t for t in range(1, g + 1) if shared % t == 0 and self.fine(tensor_parallel=t)):
            unit = g // t
            contexts = [*range(1, unit + 1), *(unit * c for c in range(2, MOST_CONTEXT_RACKS + 1))]
            for k, b, sp in itertools.product(contexts, SIZES, (False, True)):
                if (k > 1 and b > 1) or (sp and t == 1) or b > self.most:
                    continue
                if not self.fine(context_parallel=k, microbatch_sequences=b, sequence_parallel=sp):
                    continue
                shape = Shape(
                    tensor_parallel=t, micro_batch=b, recompute="none", sequence_parallel=sp, context_parallel=k
                )
                for p in (p for p in range(1, layers + 1) if self.fine(pipeline_parallel=p)):
                    for v in range(1, (layers // p if p > 1 else 1) + 1):
                        for q in sorted({1, min(p, max(1, g // (t * k)))}):
                            if self.fine(virtual_stages=v):
                                yield shape, p, v, q

    def _pipeline(self, shape: Shape, zero: int, inside: bool) -> Any:
        return block_step.pipeline_of(
            self.m, shape, zero_stage=zero, order="1f1b", inside=inside, transport_slowdown=PHI
        )

    def best(self) -> Plan | None:
        """Return the fastest plan, of equal ones the cheapest; None where there is none."""
        found: Plan | None = None
        for shape, p, v, q in self.shapes():
            block = block_of(
                self.m.rack.gpus,
                tensor_parallel=shape.tensor_parallel,
                context_parallel=shape.context_parallel,
                expert_parallel=1,
                pipeline_parallel=p,
                stages_per_rack=q,
            )
            if block is None:
                continue
            for d in range(1, self.most // shape.micro_batch + 1):
                for where in placements(self.i, block.racks, block.blocks(d)):
                    for zero in (z for z in range(4) if self.fine(zero_stage=z)):
                        for m in range(p if v > 1 else 1, self.most // shape.micro_batch // d + 1):
                            if self.fine(microbatches_per_step=m, data_parallel=d):
                                found = self._better(found, shape, p, v, block, d, where, zero, m)
        return found

    def _better(
        self, best: Plan | None, shape: Shape, p: int, v: int, block: Block, d: int, where: Placement, zero: int, m: int
    ) -> Plan | None:
        replicas = [n * block.replicas for n in where.blocks]
        short = max(range(len(replicas)), key=lambda k: replicas[k])
        replicas[short] -= sum(replicas) - d
        least, racks = min(x for x in replicas if x), max(where.blocks) * block.stage_racks
        splits = list(self.splits(shape, p, v, m, zero, least))
        if not splits:
            return best
        for fabric_usd, send, allreduce in self.networks(block, where, wrap=v > 1):
            usd = where.usd + fabric_usd
            if usd > (self.i.limits.budget_usd or math.inf) + 1e-6:
                continue
            seconds = min(
                self.seconds(shape, p, v, m, zero, block, racks, least, send, allreduce, where, s) for s in splits
            ) / (d * m * shape.micro_batch)
            if (
                best is None
                or seconds < best.seconds * (1 - 1e-12)
                or (seconds <= best.seconds * (1 + 1e-12) and usd < best.usd)
            ):
                best = Plan(seconds, usd)
        return best

    def networks(self, block: Block, where: Placement, *, wrap: bool) -> Iterator[tuple[float, float, float]]:
        """Yield price and slowdowns of every choice of a fabric at each site that the grid can feed."""
        if self.i.network is None:
            yield 0.0, PHI, PHI
            return
        h, used = self.i.hardware, [k for k, n in enumerate(where.blocks) if n]
        lists = []
        for k in used:
            key = block, where.blocks[k], wrap
            if key not in self.fabric_of:
                self.fabric_of[key] = fabrics(self.i, block, where.blocks[k], wrap=wrap)
            lists.append(self.fabric_of[key])
        counts = self.i.grid is not None and not includes_fabric(self.i)
        for chosen in itertools.product(*lists):
            mw = {k: f.mw * h.facility_overhead_factor for k, f in zip(used, chosen, strict=True)} if counts else {}
            if any(sum(mw.get(k, 0.0) for k in sites) > free + 1e-9 for sites, free in where.free_mw):
                continue
            usd = sum(f.usd for f in chosen) + where.usd_per_mw * sum(mw.values())
            yield usd, max(f.send for f in chosen), max(f.allreduce for f in chosen)

    def splits(
        self, shape: Shape, p: int, v: int, m: int, zero: int, shards: int
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield every split of layers and of recomputed layers that memory holds."""
        machine = padded(self.m, shape)
        for layers in layer_splits(machine.model.layers, p, v):
            for recompute in itertools.product(*(range(n + 1) for n in layers)):
                parts = stage_memory.memory_by_part(
                    machine,
                    shape,
                    pipeline=p,
                    virtual_stages=v,
                    micro_batches=m,
                    zero_stage=zero,
                    replicas=shards,
                    stage=np.arange(p),
                    layers=np.array(layers),
                    recomputed=np.array(recompute),
                )
                if np.all(
                    sum(np.broadcast_to(np.asarray(x, dtype=float), (p,)) for x in parts.values())
                    <= self.limit * (1 + 1e-12)
                ):
                    yield layers, recompute

    def seconds(
        self,
        shape: Shape,
        p: int,
        v: int,
        m: int,
        zero: int,
        block: Block,
        racks: int,
        shards: int,
        send: float,
        allreduce: float,
        where: Placement,
        split: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> float:
        """Time a step by the physics, stage by stage."""
        x = self.pipeline(shape, zero, block.rack_stages == 1)
        sharded = block_step.sharded_times(
            x, replicas_per_rack=block.replicas_per_rack, racks=racks, slowdown=allreduce
        )
        send = float(x.send(send, p))
        layers, recompute = split
        n = float(schedule.effective_micro_batches(m, p, v))
        stages = []
        for k, (a, r) in enumerate(zip(layers, recompute, strict=True)):
            own = (
                float(block_step.stage_seconds(x, sharded, v, a, r, send))
                + (x.head if k == p - 1 else 0.0)
                + x.machine.software.microbatch_seconds
            )
            stages.append(n * own + block_step.excess_seconds(x, sharded, p, v, m, a, r))
        sites = sum(c > 0 for c in where.blocks)
        fibre = None
        if sites > 1 and self.i.wan is not None:
            fibre = block_step.Fibre(
                sites=sites, gbps=where.gbps, rtt_ms=where.rtt_ms, round_trips=self.i.wan.round_trips
            )
        parts = block_step.once_parts(
            x,
            sharded,
            fibre,
            pipeline=p,
            virtual_stages=v,
            micro_batches=m,
            chunk=max(
                float(block_step.chunk_seconds(x, sharded, v, a, r)) for a, r in zip(layers, recompute, strict=True)
            ),
            max_layers=max(layers),
            replicas_per_rack=block.replicas_per_rack,
            racks=racks,
            shards=shards,
            send=send,
            slowdown=allreduce,
        )
        return max(stages) + float(sum(parts.values()))


GPU = {
    "name": "tiny",
    "hbm_bytes_per_second": 1e12,
    "peak_flop_per_second": {"bf16": 1e14},
    "gemm_efficiency": {"max_share": {"bf16": 0.8}, "operand_traffic": 0.1},
    "kernel_seconds": 1e-6,
    "scale_up_bytes_per_second": 2e11,
    "scale_up_latency_seconds": 4e-6,
    "nic_latency_seconds": 8e-6,
}
PRECISION = {
    "compute": "bf16",
    "parameter_bytes": 6,
    "working_parameter_bytes": 2,
    "gradient_bytes": 4,
    "optimizer_bytes": 8,
    "activation_bytes": 2,
    "collective_bytes": 2,
}
SOFTWARE = {
    "name": "flash",
    "launch_seconds": 1e-6,
    "microbatch_seconds": 1e-4,
    "step_seconds": 1e-3,
    "tensor_overlap": 0.5,
    "data_exposed": 0.2,
    "sharding_exposed": 0.1,
}


def includes_fabric(i: Instance) -> bool:
    """Return whether the overhead factor of a toy includes the power of its fabric."""
    return i.hardware.overhead_includes_fabric


def toy(seed: int, *, sites: int = 0, forced: bool = False, **changes: Any) -> Instance:
    """Return a random instance that can be enumerated: one cluster, or a small grid with so many nodes.

    `forced`: TP fills racks, and there are several replicas of several stages, so that the network, the split and the
    fibre matter.
    """
    r = random.Random(seed)
    layers, gpus, rack_usd = r.randint(2, 3), r.randint(2, 3), 1000.0
    racks = r.randint(3, 6)
    network = {
        "switches": [
            {
                "name": f"s{k}",
                "ports": k,
                "port_gbps": 800,
                "price_usd": r.choice([50, 200, 400]) * k / 8,
                "power_watts": 100 * k,
            }
            for k in (r.randint(3, 5), 8)
        ],
        "optics": {"name": "o", "price_usd": r.choice([5, 20]), "power_watts": 10},
        "cables": {"endpoint_usd": 3, "switch_usd": 4},
        "transport": {"slowdown": PHI},
        "max_tiers": 3,
    }
    given: dict[str, Any] = {
        "name": f"toy {seed}",
        "limits": {
            "max_batch_tokens": r.randint(4, 8) * 1024,
            "memory_reserve_fraction": 0.0,
            "budget_usd": racks * rack_usd * r.uniform(1.05, 1.6),
        },
        "workload": {
            "model": {"name": "m", "layers": layers, "hidden": 1536, "heads": 6, "vocabulary": 4000},
            "tokens": 1e9,
            "sequence_length": 1024,
            "precision": PRECISION,
            "software": SOFTWARE,
        },
        "hardware": {
            "accelerator": GPU
            | {"hbm_bytes": r.choice([0.22e9, 0.35e9, 0.9e9]), "nic_bytes_per_second": r.choice([5e9, 2e10, 8e10])},
            "rack": {"name": "r", "gpus": gpus, "it_kw": 1000, "price_usd": rack_usd},
            "racks": racks,
        },
        "network": network,
        "pins": {"layout.zero_stage": r.randint(0, 3)},
    }
    if forced:
        given["pins"] |= {
            "layout.tensor_parallel": gpus,
            "layout.data_parallel": r.randint(2, 3),
            "layout.pipeline_parallel": r.randint(1, 2),
        }
        given["hardware"]["racks"] = 6
        given["limits"]["budget_usd"] = 6 * rack_usd * r.uniform(1.15, 1.5)
    if sites:
        given["hardware"] |= {"facility_overhead_factor": 1.2, "overhead_includes_fabric": r.random() < 0.5}
        given["hardware"].pop("racks")
        given["grid"] = _grid(r, sites)
        given["wan"] = {
            "fibre_usd_per_route_km": r.choice([0.1, 1.0]),
            "wavelength_usd": 20,
            "wavelength_gbps": r.choice([0.5, 5.0]),
            "max_wavelengths_per_pair": 2,
            "max_fibre_pairs": 2,
            "headroom_factor": 1.0,
        }
    return Instance.model_validate(given | changes)


def _grid(r: random.Random, sites: int) -> dict[str, Any]:
    names = "EWT"[:sites]
    places = {"E": (40.0, -76.0), "W": (33.0, -80.0), "T": (36.0, -90.0)}
    return {
        "balancing_authorities": [
            {"id": n, "interconnection": n, "headroom_mw": r.choice([1.3, 2.5, 3.7]), "energy_usd_per_mwh": 40}
            for n in names
        ],
        "nodes": [
            {
                "id": f"{n}1",
                "balancing_authority": n,
                "latitude": places[n][0],
                "longitude": places[n][1],
                "generation_mw": 100,
            }
            for n in names
        ],
        "rules": {"grid_model": "none", "generation": False, "max_sites": min(sites, 2)},
        "prices": {"building_usd_per_it_mw": 100, "interconnection_usd_per_mw": 20, "site_usd": r.choice([50, 300])},
    }


def with_pins(i: Instance, **pins: Any) -> Instance:
    """Return an instance with more pins."""
    return i.model_copy(update={"pins": {**i.pins, **pins}})


def with_budget(i: Instance, usd: float) -> Instance:
    """Return an instance with another budget."""
    return i.model_copy(update={"limits": i.limits.model_copy(update={"budget_usd": usd})})


__all__ = ["Plan", "Toy", "toy", "with_budget", "with_pins"]
