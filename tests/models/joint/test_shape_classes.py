"""Floors of classes of shapes, at random toys of two to four sites: no plan of any of their shapes is below."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from each_case import each
from joint_brute_force import toy
from tiers import more

from planner.checks.strategy_space_check import _rooms
from planner.instance.instance import Instance
from planner.models.joint.joint_question import Solving, World
from planner.models.joint.joint_solution import JointPlan
from planner.models.joint.search.capital_floor import floor_of
from planner.models.joint.shapes import site_choice as joint_sites
from planner.models.joint.shapes.blocks_by_site import largest_parts, shapes
from planner.models.joint.shapes.cheapest_plan import CheapestSearch
from planner.models.joint.shapes.fastest_plan import SlowdownLevel, fastest
from planner.models.joint.shapes.shape_class import ShapeClass
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.shapes.site_choice import Sites
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_tables import column_at, free_seconds, pipelines_of
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[3] / "instances"
TOWNS = {"a": (32.4, -99.7, 0.5), "b": (32.7, -99.2, 0.4), "c": (33.5, -98.9, 0.6), "d": (32.1, -97.7, 0.45)}


def small_sites(budget_usd: float, sites: int) -> Instance:
    """Return nodes of 8 GPUs at some of four towns, none of which holds more than some 30 of them."""
    i = load_instance(INSTANCES / "two-sites-405b.json").model_dump(mode="json", exclude_none=True)
    i["limits"] = {"budget_usd": budget_usd, "max_batch_tokens": 1e6}
    i["workload"] |= {"model": "llama-2-7b", "sequence_length": 4096}
    i["grid"]["nodes"] = [
        {
            "id": name, "balancing_authority": area, "latitude": x, "longitude": y, "generation_mw": mw,
            "interconnect_mw": mw,
        }
        for (name, (x, y, mw)), area in zip(TOWNS.items(), ("ERCOT", "ERCOT", "AEP", "AEP"), strict=True)
    ]  # fmt: skip
    i["grid"]["rules"]["max_sites"] = sites
    i["grid"]["prices"] |= {"site_usd": 1e5}
    i["network"]["max_tiers"] = 2
    return load_instance(i)


def columns(world: World, sites: int) -> Iterator[Column]:
    """Yield columns of a world whose blocks fill some sites: with all replicas of a pipeline, and with one fewer."""
    for s in world.strategies():
        _, rows = pipelines_of(world, s)
        for j, fewer in itertools.product(range(len(rows)), (0, 1)):
            column, block = column_at(s, 0, rows, j), s.block(int(rows.p[j]))
            if block is not None and column.d > fewer and sites <= block.blocks(column.d - fewer) <= 14:
                yield replace(column, d=column.d - fewer)


def shares_of(total: int, sites: int) -> list[tuple[int, ...]]:
    """List the ways to share blocks out, by walking all tuples."""
    every = itertools.product(range(1, total + 1), repeat=sites)
    return sorted({tuple(sorted(x, reverse=True)) for x in every if sum(x) == total})


def bounds_of_shape_hold(q: ShapeProblem, plan: JointPlan) -> None:
    """Require of a plan the wavelengths that the best split needs, and capital above each floor of shapes like it."""
    search = CheapestSearch(shape_problem=q, cutoff=plan.seconds * (1 + 1e-6), floor_usd=floor_of(q.world))
    floors = list(itertools.takewhile(lambda step: isinstance(step, float), search.steps()))
    assert floors and max(floors) <= plan.capital_usd * (1 + 1e-9)
    assert q.world.sites is not None and q.world.sites.fabric_usd_per_mw > 0
    # Shapes of many racks have a floor before the fabrics that may be built are known.
    least = search._base(int(search._wavelengths[0]), search._rtts[-1], built=False)
    assert least + q.racks * q.traffic.rails * search.floor_usd.rail_usd <= plan.capital_usd * (1 + 1e-9)
    level = SlowdownLevel(plan.conditions.send, plan.conditions.allreduce, 0.0)
    waves, shared = search.waves_by_best_split(level, 1), search._extent_prices
    assert waves is not None and shared is not None and waves <= plan.wavelengths
    sites_usd = plan.capital_usd - sum(t.usd for t in plan.templates.values())
    for asked in (1, plan.wavelengths, 2 * plan.wavelengths):
        shared.ask(asked, q.rtts_ms[-1])
        assert shared.lower(plan.wavelengths, q.rtts_ms[-1]) <= sites_usd * (1 + 1e-9)


@pytest.mark.parametrize(("budget_musd", "sites"), [(36, 3), *more((40, 2), (30, 2), (48, 3), (40, 4), (60, 4))])
def test_no_plan_is_below_the_floors_of_its_class(budget_musd: int, sites: int) -> None:
    """Floors of seconds, with and without the fabrics that may be built, and of capital; some shapes are not paid."""
    world, seen, unpaid = Solving().world(small_sites(budget_musd * 1e6, sites)), 0, 0
    for column in itertools.islice(columns(world, sites), 0, 4000, 1333):
        for shape in itertools.islice(shapes(column, sites), 0, None, 4):
            plan = fastest(ShapeProblem(world=world, column=column, shape=shape), math.inf)
            if plan is not None:
                bounds_of_shape_hold(ShapeProblem(world=world, column=column, shape=shape), plan)
            for largest in (largest_parts(column, sites), range(shape.blocks[0], shape.blocks[0] + 1)):
                some = ShapeClass.of(world, column, sites, largest)
                cutoff = 1e9 if plan is None else plan.seconds * (1 + 1e-6)
                bounds = [some.lower_bounds(cutoff, fabrics=x, capital=True) for x in (False, True)]
                unpaid += math.isinf(bounds[1][0])
                if plan is None:
                    continue
                seen += 1
                assert max(x[0] for x in bounds) <= plan.seconds * (1 + 1e-9)
                assert max(x[1] for x in bounds) <= plan.capital_usd * (1 + 1e-9)
                free = free_seconds(world, column, 1e9)
                assert some.seconds_over_fibre(free) <= plan.seconds * (1 + 1e-9)
    assert seen and unpaid, (seen, unpaid)


def test_larger_stages_hide_more_of_the_exchange() -> None:
    """Of pinned layers the largest stage hides more of the embedding's gradients than one as even as can be."""
    pins = {"layout.layers_per_stage": [16, *[22] * 5], "layout.virtual_stages": 1, "layout.zero_stage": 1}
    data = load_instance(INSTANCES / "two-sites-405b.json").model_dump(mode="json", exclude_none=True)
    world, seen, hidden = Solving().world(load_instance(data | {"pins": pins})), 0, 0
    for s in world.strategies()[::40]:
        _, rows = pipelines_of(world, s)
        for j in range(0, len(rows), max(1, len(rows) // 3)):
            q = ShapeProblem(
                world=world, column=column_at(s, 1, rows, j), shape=next(shapes(column_at(s, 1, rows, j), 2))
            )
            waves = np.array([1, 30, 400])
            found = [q.split(q.conditions(1.05, 1.05, q.fibre(int(n), q.rtts_ms[0])), math.inf) for n in waves]
            if None in found:
                continue
            seen += 1
            times = np.array([x.seconds for x in found if x is not None])
            assert np.all(q.min_by_waves(1.05, 1.05, 1e9, waves) <= times * (1 + 1e-12))
            hidden += bool(
                np.any(q.exchange_seconds(22, q.fibre(waves, 1.0)) < q.exchange_seconds(21, q.fibre(waves, 1.0)))
            )
    assert seen and hidden, (seen, hidden)


def test_blocks_of_other_sizes_are_housed_as_they_are() -> None:
    """Of as many racks in all those in small blocks are housed, and those in blocks that no site holds are not."""
    world, found = Solving().world(small_sites(60e6, 2)), dict[int, set[bool]]()
    for column in sorted(columns(world, 2), key=lambda x: -x.replica_gpus)[::91]:
        some = ShapeClass.of(world, column, 2, largest_parts(column, 2))
        housed = math.isfinite(some.seconds_over_fibre(0.0))
        assert housed == some.may_be_housed
        found.setdefault(some.racks, set()).add(housed)
    assert {True, False} in found.values()


@each(("total", "sites"), [(2, 2), (7, 3), (9, 4), (12, 3)])
def test_ranges_of_largest_parts_hold_every_way_to_share_once(total: int, sites: int) -> None:
    """Halves of a range hold its shapes, and the least sum over any of them is that of a walk over all."""
    world = Solving().world(toy(7, sites=2, forced=True))
    column = next(columns(world, 1))
    block = column.strategy.block(column.p)
    column = replace(column, d=total * block.replicas)
    every = largest_parts(column, sites)
    halves = every[: len(every) // 2], every[len(every) // 2 :]
    found = [x.blocks for half in halves for x in shapes(column, sites, half)]
    assert sorted(found) == shares_of(total, sites)
    prices = {g: [(7 * g) % 5 + g, float("inf") if g == 3 else (3 * g) % 7] for g in range(1, total + 1)}
    for largest in (every, *(half for half in halves if half)):
        some = ShapeClass.of(world, column, sites, largest)
        least = [
            min((sum(prices[g][k] for g in x) for x in shares_of(total, sites) if x[0] in largest), default=math.inf)
            for k in (0, 1)
        ]
        assert some.least_sum({g: np.array(prices[g], dtype=float) for g in some.sizes}).tolist() == least
        assert some.shape.blocks == next(shapes(column, sites, largest)).blocks


def test_the_shortest_routes_of_some_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the best group within each round trip; of too many groups no more than that."""
    i = load_instance(INSTANCES / "us-134-zones.json")
    sites = Sites(instance=i)
    names = sorted(sites.data.candidates)[:7]
    kept = {p: km for p, km in sites.data.pairs.items() if set(p) <= set(names)}
    sites.data = replace(sites.data, candidates={x: sites.data.candidates[x] for x in names}, pairs=kept)
    trips, split, room = sites.rtts_ms, i.grid.rules.fault_split, {x.id: most for x, most in _rooms(i, i.grid)[0]}
    assert split.enabled and split.min_interconnections == 2
    middle = sorted(room[x] for x in names)[3]

    def barred(a: str, b: str) -> bool:
        return sites.data.interconnection(a) == sites.data.interconnection(b)

    few = trips[:: max(1, len(trips) // 6)]
    for count, rtt, large in itertools.product((2, 3, 4), few, (False, True)):
        racks = (int(middle) * i.hardware.racks_per_module, *[1] * (count - 1)) if large else ()
        least = math.inf
        for group in itertools.combinations(names, count):
            pairs = [p for p in kept if set(p) <= set(group)]
            fits = not large or max(room[x] for x in group) >= int(middle)
            fits &= not large or count > 2 or not any(barred(*p) for p in pairs)
            if fits and all(p not in sites.data.disconnected and sites.data.rtt_ms(p) <= rtt for p in pairs):
                least = min(least, sum(kept[p] for p in pairs))
        assert sites.min_routes_km(count, rtt, racks) == pytest.approx(least)
        with monkeypatch.context() as patch:
            patch.setattr(joint_sites, "MOST_GROUPS", 0)
            loose = replace(sites, groups={}, routes={}, instance=i)
            loose.data = sites.data
            assert 0 < loose.min_routes_km(count, rtt, racks) <= least * (1 + 1e-12)
