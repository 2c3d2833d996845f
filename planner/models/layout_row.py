"""One row of the layout space as a CP-SAT model: replicas by site, micro-batches and the layers of every stage."""

import math
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from planner.handoff import Options
from planner.models.layout_best import Best, candidates, pace_of, step_terms
from planner.models.layout_memory import layer_caps
from planner.models.layout_space import Ints, Problem, Row, replica_caps
from planner.physics.step import Cut
from planner.solvers import cpsat
from planner.solvers.outcome import Outcome, Stop

LARGEST = 4e16  # of the model's products, with room below 2^63 for the bounds of their factors
FINER = 1024  # the objective, a time per sequence, counts in 1/1024 of the unit of time


@dataclass(frozen=True, slots=True, kw_only=True)
class RowModel:
    """The CP-SAT model of a row at one ZeRO stage, with its variables."""

    problem: Problem
    row: Row
    zero: int
    units_per_second: int
    model: cp_model.CpModel
    replicas: list[cp_model.IntVar]
    total: cp_model.IntVar
    shards: cp_model.IntVar
    racks: cp_model.IntVar
    batches: cp_model.IntVar
    layers: list[cp_model.IntVar]
    most: cp_model.IntVar
    objective: cp_model.IntVar


def lowest(variable: cp_model.IntVar) -> int:
    """Return the lower end of a variable's domain."""
    return int(variable.proto.domain[0])


def highest(variable: cp_model.IntVar) -> int:
    """Return the upper end of a variable's domain (the native container answers a negative index with 0)."""
    return int(list(variable.proto.domain)[-1])


def solve_row(problem: Problem, row: Row, zero: int, cutoff: float, options: Options) -> Outcome[Best]:
    """Prove the best layout of a row at one ZeRO stage among those no slower than the cutoff (seconds per sequence)."""
    f = _variables(problem, row, zero, cutoff)
    if f is None:
        return Outcome(stop=Stop.PROVED, infeasible=True, detail="excluded by the bound without tails", solver=cpsat.SOLVER)
    for rule in (place_every_layer, respect_batch, keep_pipeline_filled, group_replicas, fit_memory, time_the_step):
        rule(f)
    f.model.minimize(f.objective)
    out = cpsat.run(f.model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
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
        seconds=out.seconds,
    )


def place_every_layer(f: RowModel) -> None:
    """Give every layer to one stage; `most` is the largest stage."""
    f.model.add(sum(f.layers) == f.problem.machine.model.layers).with_name("place_every_layer")
    f.model.add_max_equality(f.most, f.layers)


def respect_batch(f: RowModel) -> None:
    """Use no more sequences per step than the critical batch."""
    product = f.model.new_int_var(1, f.problem.most_sequences, "replicas*batches")
    f.model.add_multiplication_equality(product, [f.total, f.batches])
    f.model.add(product * f.row.base.shape.micro_batch <= f.problem.most_sequences).with_name("respect_batch")


def keep_pipeline_filled(f: RowModel) -> None:
    """Hold the row's side of m >= p, and whole rounds of p micro-batches where stages are interleaved."""
    p = f.row.pipeline
    f.model.add(f.batches >= p if f.row.filled else f.batches <= p - 1).with_name("keep_pipeline_filled")
    if f.row.virtual_stages > 1:
        f.model.add_modulo_equality(0, f.batches, p)


def group_replicas(f: RowModel) -> None:
    """Count replicas, the shards of ZeRO (the smallest site's replicas) and the racks of the largest group."""
    f.model.add(f.total == sum(f.replicas))
    f.model.add_min_equality(f.shards, f.replicas)
    r = f.row.base.replicas_per_rack
    largest = f.model.new_int_var(1, highest(f.total), "largest")
    f.model.add_max_equality(largest, f.replicas)
    f.model.add_division_equality(f.racks, largest + (r - 1), r)


def fit_memory(f: RowModel) -> None:
    """Keep every stage within memory: its layers need at least so many shards, and no more micro-batches in flight than so many."""
    if not f.row.filled:
        _fit_memory_by_batches(f)
        return
    p = f.row.pipeline
    _fit_memory_at(f, p, None)
    if f.row.virtual_stages > 1 and highest(f.batches) > p:
        # Past the first round of p micro-batches the interleaved stages hold a few chunks more.
        longer = f.model.new_bool_var("more_than_one_round")
        f.model.add(f.batches >= p + 1).only_enforce_if(longer)
        f.model.add(f.batches <= p).only_enforce_if(~longer)
        _fit_memory_at(f, 2 * p, longer)


def _fit_memory_at(f: RowModel, batches: int, when: cp_model.IntVar | None) -> None:
    """Hold the stages to what memory leaves with `batches` micro-batches a step; only where the literal holds, if there is one."""
    choices, most = _shard_choices(f), highest(f.most)
    caps = layer_caps(f.problem, f.row, f.zero, choices, np.full(len(choices), batches))
    for i, stage in enumerate(f.layers):
        if f.zero == 0:
            row = f.model.add(stage <= int(caps[0, i]))
        else:
            needed = _first_at_least(caps[:, i], range(most + 1))
            want = [int(choices[n]) if n < len(choices) else int(choices[-1]) + 1 for n in needed]
            need = f.model.new_int_var(0, int(choices[-1]) + 1, f"shards_needed[{i},{batches}]")
            f.model.add_element(stage, want, need)
            row = f.model.add(f.shards >= need)
        row.with_name(f"fit_memory[{i},{batches}]")
        if when is not None:
            row.only_enforce_if(when)


def _shard_choices(f: RowModel) -> Ints:
    """Numbers of shards that memory must be known for; without ZeRO any one will do."""
    return np.arange(lowest(f.shards), highest(f.shards) + 1) if f.zero else np.array([highest(f.shards)])


def _fit_memory_by_batches(f: RowModel) -> None:
    """Hold the stages to memory where it depends on the number of micro-batches: fewer than stages, all are in flight."""
    choices = _shard_choices(f)
    table = np.stack([layer_caps(f.problem, f.row, f.zero, choices, np.full(len(choices), n)) for n in range(1, highest(f.batches) + 1)])
    for i, stage in enumerate(f.layers):
        triples = _triples(f, table[:, :, i], sharded=f.zero > 0, most=highest(f.most))
        f.model.add_allowed_assignments([f.batches, f.shards, stage], triples)


def _first_at_least(caps: Ints, layers: range) -> list[int]:
    """Index of the first entry of a rising row of caps that reaches each number of layers."""
    return [int(np.searchsorted(caps, n)) for n in layers]


def _triples(f: RowModel, table: Ints, *, sharded: bool, most: int) -> list[tuple[int, int, int]]:
    """List what is allowed: (micro-batches, shards, layers of the stage)."""
    smallest = f.row.virtual_stages
    span = range(lowest(f.shards), highest(f.shards) + 1)
    return [
        (m + 1, n, layers)
        for m in range(table.shape[0])
        for n in span
        for layers in range(smallest, min(most, int(table[m, n - span[0] if sharded else 0])) + 1)
    ]


def time_the_step(f: RowModel) -> None:
    """Bound the objective by the step's time per sequence: micro-batches at the slowest stage's pace, plus fill and tails."""
    m, levels = f.model, range(lowest(f.most), highest(f.most) + 1)
    racks = np.arange(lowest(f.racks), highest(f.racks) + 1)
    pace = pace_of(f.problem, f.row, f.zero, racks[None, :])
    layer = np.broadcast_to(pace.layer, (1, len(racks)))[0]
    shards = _least_shards(f, racks)
    most = np.array(levels)[:, None]
    once, each = step_terms(f.problem, f.row, f.zero, pace=pace, racks=racks[None, :], shards=shards[None, :], most=most)
    shape = (len(levels), len(racks))
    slowest = _pick(f, "slowest", np.broadcast_to(most * layer[None, :] + each, shape), levels)
    fixed = _pick(f, "once", np.broadcast_to(once, shape), levels)
    head = _last_stage(f, layer, np.broadcast_to(each, shape).max())
    one = m.new_int_var(0, max(highest(slowest), highest(head)), "one_micro_batch")
    m.add(one >= slowest)
    m.add(one >= head)
    running = m.new_int_var(0, highest(one) * highest(f.batches), "running")
    m.add_multiplication_equality(running, [f.batches, one])
    sequences = m.new_int_var(1, f.problem.most_sequences, "sequences")
    m.add_multiplication_equality(sequences, [f.total, f.batches])
    product = m.new_int_var(0, highest(f.objective) * f.problem.most_sequences, "objective*sequences")
    m.add_multiplication_equality(product, [f.objective, sequences])
    m.add(product * f.row.base.shape.micro_batch >= FINER * (running + fixed)).with_name("time_the_step")


def _least_shards(f: RowModel, racks: Ints) -> Ints:
    """Shards that the optimiser's time is taken at, by the racks of the largest group: the most there can be, so that the time is a bound.

    The even split, which the caller compares with, has exactly these where the sites are equal.
    """
    return np.minimum(racks * f.row.base.replicas_per_rack, highest(f.shards))


def _pick(f: RowModel, name: str, seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]], levels: range) -> cp_model.IntVar:
    """Read a table of seconds over (largest stage, racks) at the chosen pair, in whole units."""
    whole = np.ceil(seconds * f.units_per_second).astype(np.int64).ravel()
    width = seconds.shape[1]
    index = f.model.new_int_var(0, len(whole) - 1, f"{name}_index")
    f.model.add(index == (f.most - levels[0]) * width + f.racks - lowest(f.racks))
    value = f.model.new_int_var(int(whole.min()), int(whole.max()), name)
    f.model.add_element(index, [int(x) for x in whole], value)
    return value


def _last_stage(f: RowModel, layer: np.ndarray[tuple[int], np.dtype[np.float64]], each: float) -> cp_model.IntVar:
    """Time of the last stage and micro-batch, its head included."""
    low, high = f.row.virtual_stages, highest(f.most)
    table = np.arange(low, high + 1)[:, None] * layer[None, :] + f.row.base.head + each
    whole = np.ceil(table * f.units_per_second).astype(np.int64).ravel()
    index = f.model.new_int_var(0, len(whole) - 1, "head_index")
    f.model.add(index == (f.layers[-1] - low) * len(layer) + f.racks - lowest(f.racks))
    value = f.model.new_int_var(int(whole.min()), int(whole.max()), "last_stage")
    f.model.add_element(index, [int(x) for x in whole], value)
    return value


def _variables(problem: Problem, row: Row, zero: int, cutoff: float) -> RowModel | None:
    """Make the variables over what could beat the cutoff; None where nothing could.

    Counts whose time without tails is over the cutoff are left out, and so are the splits over sites that are less even
    than need be: they have larger groups and fewer shards, so they are neither faster nor smaller.
    """
    found = candidates(problem, row, cutoff)
    if found is None:
        return None
    m, b, p, v = cp_model.CpModel(), row.base.shape.micro_batch, row.pipeline, row.virtual_stages
    caps = [int(c) for c in replica_caps(problem, row.base.replicas_per_rack, p)]
    high, layers = int(found.replicas.max()), problem.machine.model.layers
    least = math.ceil(layers / p)
    most = min(layers - (p - 1) * v, max(least, math.floor(cutoff * high * b / row.base.layer * (1 + 1e-9))))
    fixed, shares = problem.pins.get("layout.layers_per_stage"), problem.pins.get("layout.data_parallel_by_site")
    used = [(s, c) for s, c in zip(problem.sites, caps, strict=True) if c]
    spans = [(shares.get(s, 0), shares.get(s, 0)) if shares is not None else (1, min(c, high)) for s, c in used]
    replicas = [m.new_int_var(low, top, f"replicas[{s}]") for (s, _), (low, top) in zip(used, spans, strict=True)]
    ends = [(v, most)] * p if fixed is None else [(n, n) for n in fixed]
    # Times are whole units, rounded up: as fine as the products of the model leave room for.
    units = 10 ** math.floor(math.log10(LARGEST / (cutoff * problem.most_sequences * FINER)))
    batches = cp_model.Domain.from_values(sorted({int(x) for x in found.batches}))
    return RowModel(
        problem=problem,
        row=row,
        zero=zero,
        units_per_second=units,
        model=m,
        replicas=replicas,
        total=m.new_int_var_from_domain(cp_model.Domain.from_values([int(d) for d in np.unique(found.replicas)]), "total"),
        shards=m.new_int_var(int(found.shards.min()), int(found.shards.max()), "shards"),
        racks=m.new_int_var(int(found.racks.min()), int(found.racks.max()), "racks"),
        batches=m.new_int_var_from_domain(batches, "batches"),
        layers=[m.new_int_var(low, top, f"layers[{i}]") for i, (low, top) in enumerate(ends)],
        most=m.new_int_var(least if fixed is None else max(fixed), most if fixed is None else max(fixed), "most"),
        objective=m.new_int_var(0, math.ceil(cutoff * units * FINER), "objective"),
    )


def _read(f: RowModel, values: cpsat.Values, scale: float) -> Best:
    row, found = f.row, iter(f.replicas)
    caps = replica_caps(f.problem, row.base.replicas_per_rack, row.pipeline)
    s = row.base.shape
    cut = Cut(
        tensor_parallel=s.tensor_parallel,
        pipeline_parallel=row.pipeline,
        data_parallel_by_site=tuple(values.of(next(found)) if c else 0 for c in caps),
        virtual_stages=row.virtual_stages,
        micro_batch=s.micro_batch,
        micro_batches=values.of(f.batches),
        recompute=s.recompute,
        sequence_parallel=s.sequence_parallel,
        zero_stage=f.zero,
        layers_per_stage=tuple(values.of(x) for x in f.layers),
        replicas_per_rack=row.base.replicas_per_rack,
    )
    return Best(seconds=values.of(f.objective) * scale, cut=cut)
