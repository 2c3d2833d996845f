"""One row of the layout space as a CP-SAT model: replicas by site, micro-batches, and the layers of every stage, kept and recomputed."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from planner.models.layout.columns import Ints, Row, effective, replica_caps
from planner.models.layout.columns_dp_microbatch import Candidates, candidates
from planner.models.layout.data import Problem
from planner.models.layout.layer_split import Stages
from planner.models.layout.pricing import Best, Times, pace_of
from planner.models.requests import Options
from planner.physics.training import schedule
from planner.solvers import cpsat
from planner.solvers.outcome import Outcome, Stop

LARGEST = 4e16  # of the model's products, with room below 2^63 for the bounds of their factors
FINER = 1024  # the objective, a time per sequence, counts in 1/1024 of the unit of time
CELLS = 20_000  # entries of the memory tables of a row, beyond which it is left to the numpy tables


@dataclass(frozen=True, slots=True, kw_only=True)
class RowModel:
    """The CP-SAT model of a row, with its variables."""

    problem: Problem
    row: Row
    units_per_second: int
    model: cp_model.CpModel
    replicas: list[cp_model.IntVar]
    total: cp_model.IntVar
    least: cp_model.IntVar
    racks: cp_model.IntVar
    batches: cp_model.IntVar
    layers: list[cp_model.IntVar]
    again: list[cp_model.IntVar]
    most: cp_model.IntVar
    stage: cp_model.IntVar
    pace: cp_model.IntVar
    objective: cp_model.IntVar


def lowest(variable: cp_model.IntVar) -> int:
    """Return the lower end of a variable's domain."""
    return int(variable.proto.domain[0])


def highest(variable: cp_model.IntVar) -> int:
    """Return the upper end of a variable's domain (the native container answers a negative index with 0)."""
    return int(list(variable.proto.domain)[-1])


def values(variable: cp_model.IntVar) -> list[int]:
    """List a variable's domain."""
    ends = list(variable.proto.domain)
    return [x for low, high in zip(ends[::2], ends[1::2], strict=True) for x in range(low, high + 1)]


def solve_row(
    problem: Problem, row: Row, cutoff: float, options: Options, *, effort: float | None = None
) -> Outcome[Best]:
    """Prove the best layout of a row among those no slower than the cutoff (seconds per sequence), with no more effort than told."""
    found = candidates(problem, row, cutoff)
    if found is None:
        return Outcome(
            stop=Stop.PROVED, infeasible=True, detail="excluded by the bound without tails", solver=cpsat.SOLVER
        )
    f = _variables(problem, row, cutoff, found)
    if row.base.order == "zb-h1" or f is None or _cells(f) > CELLS:
        return Outcome(stop=Stop.LIMIT, detail="left to the tables", solver=cpsat.SOLVER)
    for rule in (
        place_every_layer,
        recompute_within_layers,
        respect_batch,
        group_replicas,
        fit_memory,
        keep_pace,
        time_the_step,
    ):
        rule(f)
    f.model.minimize(f.objective)
    out = cpsat.run(f.model, time_limit=options.time_limit, seed=options.seed, threads=options.threads, effort=effort)
    scale = 1 / (f.units_per_second * FINER)
    return Outcome(
        stop=out.stop,
        solution=_read(f, out.solution, scale) if out.solution else None,
        objective=None if out.objective is None else out.objective * scale,
        bound=None if out.bound is None else out.bound * scale,
        infeasible=out.infeasible,
        detail=out.detail,
        solver=out.solver,
        variables=out.variables,
        constraints=out.constraints,
        effort=out.effort,
        seconds=out.seconds,
    )


def place_every_layer(f: RowModel) -> None:
    """Give every layer to one stage; `most` is the largest stage."""
    f.model.add(sum(f.layers) == f.problem.machine.model.layers).with_name("place_every_layer")
    f.model.add_max_equality(f.most, f.layers)


def recompute_within_layers(f: RowModel) -> None:
    """Recompute no more layers of a stage than it has; all of them where that is pinned."""
    for n, r in zip(f.layers, f.again, strict=True):
        f.model.add(r == n if f.row.base.recomputes == "all" else r <= n)


def respect_batch(f: RowModel) -> None:
    """Use no more sequences per step than the critical batch."""
    product = f.model.new_int_var(1, f.problem.most_sequences, "replicas*batches")
    f.model.add_multiplication_equality(product, [f.total, f.batches])
    f.model.add(product * f.row.base.shape.micro_batch <= f.problem.most_sequences).with_name("respect_batch")


def group_replicas(f: RowModel) -> None:
    """Count replicas, those of the smallest site (over which ZeRO shards) and the racks of the largest group."""
    f.model.add(f.total == sum(f.replicas))
    f.model.add_min_equality(f.least, f.replicas)
    r = f.row.replicas_per_rack
    largest = f.model.new_int_var(1, highest(f.total), "largest")
    f.model.add_max_equality(largest, f.replicas)
    f.model.add_division_equality(f.racks, largest + (r - 1), r)


def fit_memory(f: RowModel) -> None:
    """Keep every stage within memory: its layers, kept and recomputed, with its chunks in flight need at least so many shards."""
    held: dict[int, Stages] = {}
    for i in range(f.row.pipeline):
        in_flight = _in_flight(f, i)
        kinds = np.unique(in_flight)
        pairs = _pairs(f)
        table = np.stack([_replicas_needed(f, i, int(n), pairs, held) for n in kinds])
        width = highest(f.again[i]) + 1
        index = f.model.new_int_var(0, table.size - 1, f"memory_index[{i}]")
        cell = f.layers[i] * width + f.again[i]
        if len(kinds) == 1:
            f.model.add(index == cell)
        else:
            kind = f.model.new_int_var(0, len(kinds) - 1, f"in_flight[{i}]")
            f.model.add_element(
                f.batches - lowest(f.batches), [int(k) for k in np.searchsorted(kinds, in_flight)], kind
            )
            f.model.add(index == kind * table.shape[1] + cell)
        need = f.model.new_int_var(0, highest(f.least) + 1, f"replicas_needed[{i}]")
        f.model.add_element(index, [int(x) for x in table.ravel()], need)
        f.model.add(f.least >= need).with_name(f"fit_memory[{i}]")


def _in_flight(f: RowModel, stage: int) -> Ints:
    """Chunks in flight on a stage for every number of micro-batches from the least to the most."""
    m = np.arange(lowest(f.batches), highest(f.batches) + 1)
    found = schedule.chunks_in_flight(f.row.base.order, stage, f.row.pipeline, f.row.virtual_stages, m)
    return np.broadcast_to(np.asarray(found), m.shape).astype(np.int64)


def _pairs(f: RowModel) -> tuple[Ints, Ints]:
    """Every pair of layers and recomputed layers, in the order of the memory table."""
    n, r = np.arange(highest(f.most) + 1), np.arange(highest(f.again[0]) + 1)
    return np.repeat(n, len(r)), np.tile(r, len(n))


def _cells(f: RowModel) -> int:
    """Size of the memory tables."""
    kinds = sum(len(np.unique(_in_flight(f, i))) for i in range(f.row.pipeline))
    return kinds * (highest(f.most) + 1) * (highest(f.again[0]) + 1)


def _replicas_needed(
    f: RowModel, stage: int, in_flight: int, pairs: tuple[Ints, Ints], held: dict[int, Stages]
) -> Ints:
    """Fewest replicas to shard over with which a stage fits, for every pair; one more than there can be where none do.

    `held`: the stages by replicas, as far as they have been worked out.
    """
    layers, again = pairs
    low, high = np.full(len(layers), lowest(f.least)), np.full(len(layers), highest(f.least) + 1)

    def fits(replicas: Ints) -> Any:
        found = np.zeros(len(layers), dtype=bool)
        for n in np.unique(replicas):
            which = replicas == n
            if int(n) not in held:
                held[int(n)] = _stages(f, int(n))
            s = held[int(n)]
            room = s.room[stage]
            found[which] = (s.most_in_flight(layers[which], again[which], room) >= in_flight) & (room >= 0)
        return found & (again <= layers) & (layers >= 1)

    while np.any(low < high):
        middle = (low + high) // 2
        ok = fits(np.minimum(middle, highest(f.least))) & (middle <= highest(f.least))
        low, high = np.where(ok | (low >= high), low, middle + 1), np.where(ok & (low < high), middle, high)
    return np.asarray(low)


def _stages(f: RowModel, replicas: int) -> Stages:
    return Stages(
        problem=f.problem, row=f.row, replicas=replicas, batches=1, layer=f.row.base.layer, most_layers=highest(f.most)
    )


def keep_pace(f: RowModel) -> None:
    """Hold every stage within the largest stage's time, and the last with its head within the pace."""
    units, base = f.units_per_second, f.row.base
    racks = np.arange(lowest(f.racks), highest(f.racks) + 1)
    seconds = np.broadcast_to(np.asarray(pace_of(f.problem, f.row, racks).layer_seconds, dtype=np.float64), racks.shape)
    whole = np.ceil(seconds * units).astype(np.int64)
    again = math.ceil(base.times.recompute_seconds * units)
    one: Any = int(whole[0])
    if whole.min() < whole.max():
        one = f.model.new_int_var(int(whole.min()), int(whole.max()), "layer_seconds")
        f.model.add_element(f.racks - int(racks[0]), [int(x) for x in whole], one)
    for i, (n, r) in enumerate(zip(f.layers, f.again, strict=True)):
        own: Any = (
            n * one
            if isinstance(one, int)
            else f.model.new_int_var(0, highest(n) * highest(one), f"stage_seconds[{i}]")
        )
        if not isinstance(one, int):
            f.model.add_multiplication_equality(own, [n, one])
        f.model.add(f.stage >= own + again * r).with_name(f"keep_pace[{i}]")
        if i == f.row.pipeline - 1:
            f.model.add(f.pace >= own + again * r + math.ceil(base.head * units)).with_name("keep_pace[head]")
    if f.row.pipeline > 1:
        f.model.add(f.pace >= f.stage)


def time_the_step(f: RowModel) -> None:
    """Bound the objective by the step's time per sequence: effective micro-batches at the slowest stage's pace, plus fill and tails."""
    m, p, v = f.model, f.row.pipeline, f.row.virtual_stages
    racks, levels = np.arange(lowest(f.racks), highest(f.racks) + 1), range(lowest(f.most), highest(f.most) + 1)
    times = Times(problem=f.problem, row=f.row)
    pace = pace_of(f.problem, f.row, racks[None, :])
    # Fill is linear in the largest stage: what it is without one, here, and (p-1)/v of it below.
    once, each = times.terms(
        pace, racks[None, :], _most_replicas(f, racks)[None, :], highest(f.batches), 0.0, np.array(levels)[:, None]
    )
    shape = (len(levels), len(racks))
    fixed = _pick(f, "once", np.broadcast_to(np.asarray(once, dtype=np.float64), shape), levels)
    besides = _pick(f, "each", np.broadcast_to(np.asarray(each, dtype=np.float64), shape), levels)
    counts = _effective(f)
    one = m.new_int_var(0, highest(f.pace) + highest(besides), "one_micro_batch")
    m.add(one == f.pace + besides)
    running = m.new_int_var(0, highest(one) * highest(counts), "running")
    m.add_multiplication_equality(running, [counts, one])
    sequences = m.new_int_var(1, f.problem.most_sequences, "sequences")
    m.add_multiplication_equality(sequences, [f.total, f.batches])
    product = m.new_int_var(0, highest(f.objective) * f.problem.most_sequences, "objective*sequences")
    m.add_multiplication_equality(product, [f.objective, sequences])
    whole = running + (p - 1) * f.stage + v * fixed
    m.add(v * f.row.base.shape.micro_batch * product >= FINER * whole).with_name("time_the_step")


def _effective(f: RowModel) -> cp_model.IntVar:
    """Return v times the effective micro-batches, a whole number."""
    v = f.row.virtual_stages
    if v == 1:
        return f.batches
    m = np.arange(lowest(f.batches), highest(f.batches) + 1)
    table = np.rint(v * effective(f.row, m)).astype(np.int64)
    found = f.model.new_int_var(int(table.min()), int(table.max()), "effective_batches")
    f.model.add_element(f.batches - lowest(f.batches), [int(x) for x in table], found)
    return found


def _most_replicas(f: RowModel, racks: Ints) -> Ints:
    """Replicas that the optimiser's time is taken at, by the racks of the largest group: the most there can be, so that the time is a bound.

    The even split, which the caller compares with, has exactly these where the sites are equal.
    """
    return np.minimum(racks * f.row.replicas_per_rack, highest(f.least))


def _pick(
    f: RowModel, name: str, seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]], levels: range
) -> cp_model.IntVar:
    """Read a table of seconds over (largest stage, racks) at the chosen pair, in whole units."""
    whole = np.ceil(seconds * f.units_per_second).astype(np.int64).ravel()
    width = seconds.shape[1]
    index = f.model.new_int_var(0, len(whole) - 1, f"{name}_index")
    f.model.add(index == (f.most - levels[0]) * width + f.racks - lowest(f.racks))
    value = f.model.new_int_var(int(whole.min()), int(whole.max()), name)
    f.model.add_element(index, [int(x) for x in whole], value)
    return value


def _variables(problem: Problem, row: Row, cutoff: float, found: Candidates) -> RowModel | None:
    """Make the variables over what could beat the cutoff; None where nothing could.

    Counts whose time without tails is over the cutoff are left out, and so are the splits over sites that are less even
    than need be: they have larger groups and fewer shards, so they are neither faster nor smaller.
    """
    m, base, b, p, v = cp_model.CpModel(), row.base, row.base.shape.micro_batch, row.pipeline, row.virtual_stages
    caps, high, layers = (
        [int(c) for c in replica_caps(problem, base, p)],
        int(found.replicas.max()),
        problem.machine.model.layers,
    )
    # A stage of S seconds takes n·S in the steady state and (p-1)/v·S to fill and drain.
    full = int(found.batches.max())
    even, longest = math.ceil(layers / p), cutoff * high * b * full / (full + (p - 1) / v) * (1 + 1e-9)
    most = min(layers - (p - 1) * v, max(even, math.floor(longest / base.least_layer)))
    spare = (longest - v * base.layer) / base.times.recompute_seconds if base.recomputes != "none" else 0
    fixed, shares = problem.pin("layers_per_stage"), problem.pin("data_parallel_by_site")
    if problem.pin("recomputed_layers_per_stage") is not None:
        return None
    used = [(s, c) for s, c in zip(problem.sites, caps, strict=True) if c]
    spans = [(shares.get(s, 0), shares.get(s, 0)) if shares is not None else (1, min(c, high)) for s, c in used]
    replicas = [m.new_int_var(low, top, f"replicas[{s}]") for (s, _), (low, top) in zip(used, spans, strict=True)]
    most = most if fixed is None else max(fixed)
    again = min(most, max(0, math.floor(spare)))
    ends = [(v, most)] * p if fixed is None else [(n, n) for n in fixed]
    # Times are whole units, rounded up: as fine as the products of the model leave room for.
    units = 10 ** math.floor(math.log10(LARGEST / (cutoff * problem.most_sequences * FINER * v)))
    top_seconds = math.ceil(cutoff * problem.most_sequences * units)
    return RowModel(
        problem=problem,
        row=row,
        units_per_second=units,
        model=m,
        replicas=replicas,
        total=m.new_int_var_from_domain(
            cp_model.Domain.from_values([int(d) for d in np.unique(found.replicas)]), "total"
        ),
        least=m.new_int_var(int(found.least.min()), int(found.least.max()), "least"),
        racks=m.new_int_var(int(found.racks.min()), int(found.racks.max()), "racks"),
        batches=m.new_int_var_from_domain(
            cp_model.Domain.from_values(sorted({int(x) for x in found.batches})), "batches"
        ),
        layers=[m.new_int_var(low, top, f"layers[{i}]") for i, (low, top) in enumerate(ends)],
        again=[m.new_int_var(0, again, f"again[{i}]") for i in range(p)],
        most=m.new_int_var(even if fixed is None else most, most, "most"),
        stage=m.new_int_var(0, top_seconds, "stage"),
        pace=m.new_int_var(0, top_seconds, "pace"),
        objective=m.new_int_var(0, math.ceil(cutoff * units * FINER), "objective"),
    )


def _read(f: RowModel, held: cpsat.Values, scale: float) -> Best:
    """Read the layout that CP-SAT found."""
    row, found = f.row, iter(f.replicas)
    caps = replica_caps(f.problem, row.base, row.pipeline)
    shares = np.array([[held.of(next(found)) if c else 0] for c in caps])
    one = np.array([1])
    c = Candidates(
        replicas=shares.sum(axis=0),
        batches=one * held.of(f.batches),
        by_site=shares,
        least=one * held.of(f.least),
        racks=one * held.of(f.racks),
        bound=0.0 * one,
    )
    layers, again = tuple(held.of(x) for x in f.layers), tuple(held.of(x) for x in f.again)
    cut = Times(problem=f.problem, row=row).cut(c, layers, again)
    return Best(seconds=held.of(f.objective) * scale, cut=cut)
