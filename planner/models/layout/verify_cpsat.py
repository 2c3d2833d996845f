"""One column as a CP-SAT model, by which the search's solution is verified.

The model reads the same physics as the search, as tables, but decides replicas by site, micro-batches and the layers of
every stage, kept and recomputed, by itself.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from planner.models.layout.candidates import Candidates, StepTimes, candidates
from planner.models.layout.columns import Column, Floats, Ints, max_replicas_by_site
from planner.models.layout.data import Problem
from planner.models.layout.layer_split import Stages
from planner.models.layout.pricing import Solution
from planner.models.requests import Options
from planner.physics.training import schedule
from planner.solvers import cpsat
from planner.solvers.outcome import Outcome, Stop

MAX_PRODUCT = 4e16  # of the model's variables, with room below 2^63 for the bounds of their factors
OBJECTIVE_SCALE = 1024  # parts of the unit of time in the objective, a time per sequence and so far below a step's
MAX_TABLE_ENTRIES = 20_000  # of a column's memory tables, beyond which building them takes longer than the search


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnModel:
    """The CP-SAT model of a column, with its variables."""

    problem: Problem
    column: Column
    units_per_second: int
    model: cp_model.CpModel
    replicas: list[cp_model.IntVar]  # by site
    total: cp_model.IntVar  # replicas of all sites
    shards: cp_model.IntVar
    racks: cp_model.IntVar  # of the largest group
    micro_batches: cp_model.IntVar
    layers: list[cp_model.IntVar]  # by stage
    recomputed: list[cp_model.IntVar]
    largest: cp_model.IntVar  # layers of a stage
    stage_seconds: cp_model.IntVar  # of the largest stage
    slowest_seconds: cp_model.IntVar  # of the slowest stage, with the head where it is the last
    objective: cp_model.IntVar


def lowest(variable: cp_model.IntVar) -> int:
    """Return the lower end of a variable's domain."""
    return int(variable.proto.domain[0])


def highest(variable: cp_model.IntVar) -> int:
    """Return the upper end of a variable's domain (the native container answers a negative index with 0)."""
    return int(list(variable.proto.domain)[-1])


def _range_of(variable: cp_model.IntVar) -> Ints:
    """List the numbers from the lower to the upper end of a variable's domain."""
    return np.arange(lowest(variable), highest(variable) + 1)


def solve_column(
    problem: Problem, column: Column, cutoff: float, options: Options, *, effort: float | None = None
) -> Outcome[Solution]:
    """Prove the fastest layout of a column among those no slower than the cutoff (seconds per sequence)."""
    c = candidates(problem, column, cutoff)
    if c is None:
        reason = "excluded by the bound without tails"
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=reason, solver=cpsat.SOLVER)
    f = _variables(problem, column, cutoff, c)
    if column.layer_strategy.schedule == "zb-h1" or f is None or _table_entries(f) > MAX_TABLE_ENTRIES:
        return Outcome(stop=Stop.LIMIT, detail="not verified by CP-SAT", solver=cpsat.SOLVER)
    rules = (
        place_every_layer,
        limit_recomputed_layers,
        limit_batch,
        count_replicas,
        fit_memory,
        bound_stage_times,
        time_the_step,
    )
    for rule in rules:
        rule(f)
    f.model.minimize(f.objective)
    out = cpsat.run(f.model, time_limit=options.time_limit, seed=options.seed, threads=options.threads, effort=effort)
    scale = 1 / (f.units_per_second * OBJECTIVE_SCALE)
    scaled = replace(
        out,
        objective=None if out.objective is None else out.objective * scale,
        bound=None if out.bound is None else out.bound * scale,
    )
    return scaled.with_solution(_read(f, out.solution, scale) if out.solution else None)


def place_every_layer(f: ColumnModel) -> None:
    """Require that every layer is on one stage; `largest` is the size of the largest stage."""
    f.model.add(sum(f.layers) == f.problem.machine.model.layers).with_name("place_every_layer")
    f.model.add_max_equality(f.largest, f.layers)


def limit_recomputed_layers(f: ColumnModel) -> None:
    """Limit the recomputed layers of a stage to those it has; all of them where that is pinned."""
    for n, r in zip(f.layers, f.recomputed, strict=True):
        f.model.add(r == n if f.column.layer_strategy.recomputes == "all" else r <= n)


def limit_batch(f: ColumnModel) -> None:
    """Limit the sequences of a step to the critical batch."""
    product = f.model.new_int_var(1, f.problem.max_sequences, "replicas*micro_batches")
    f.model.add_multiplication_equality(product, [f.total, f.micro_batches])
    sequences = product * f.column.layer_strategy.shape.micro_batch
    f.model.add(sequences <= f.problem.max_sequences).with_name("limit_batch")


def count_replicas(f: ColumnModel) -> None:
    """Count all replicas, those of the smallest site (over which ZeRO shards) and the racks of the largest group."""
    f.model.add(f.total == sum(f.replicas))
    f.model.add_min_equality(f.shards, f.replicas)
    r = f.column.replicas_per_rack
    largest = f.model.new_int_var(1, highest(f.total), "largest_group")
    f.model.add_max_equality(largest, f.replicas)
    f.model.add_division_equality(f.racks, largest + (r - 1), r)


def fit_memory(f: ColumnModel) -> None:
    """Require enough shards for every stage's layers, kept and recomputed, to fit memory with its chunks in flight."""
    stages: dict[int, Stages] = {}
    for i in range(f.column.pipeline):
        in_flight = _in_flight(f, i)
        kinds = np.unique(in_flight)
        table = np.stack([_shards_needed(f, i, int(n), stages) for n in kinds])
        width = highest(f.recomputed[i]) + 1
        index = f.model.new_int_var(0, table.size - 1, f"memory_index[{i}]")
        entry = f.layers[i] * width + f.recomputed[i]
        if len(kinds) > 1:
            kind = f.model.new_int_var(0, len(kinds) - 1, f"in_flight[{i}]")
            kind_of = [int(k) for k in np.searchsorted(kinds, in_flight)]
            f.model.add_element(f.micro_batches - lowest(f.micro_batches), kind_of, kind)
            entry = kind * table.shape[1] + entry
        f.model.add(index == entry)
        need = f.model.new_int_var(0, highest(f.shards) + 1, f"shards_needed[{i}]")
        f.model.add_element(index, [int(x) for x in table.ravel()], need)
        f.model.add(f.shards >= need).with_name(f"fit_memory[{i}]")


def _in_flight(f: ColumnModel, stage: int) -> Ints:
    """Return the chunks in flight on a stage for every number of micro-batches from the fewest to the most."""
    m, order = _range_of(f.micro_batches), f.column.layer_strategy.schedule
    chunks = schedule.chunks_in_flight(order, stage, f.column.pipeline, f.column.virtual_stages, m)
    return np.broadcast_to(np.asarray(chunks), m.shape).astype(np.int64)


def _table_entries(f: ColumnModel) -> int:
    """Count the entries of the memory tables."""
    kinds = sum(len(np.unique(_in_flight(f, i))) for i in range(f.column.pipeline))
    return kinds * (highest(f.largest) + 1) * (highest(f.recomputed[0]) + 1)


def _shards_needed(f: ColumnModel, stage: int, in_flight: int, stages: dict[int, Stages]) -> Ints:
    """Return the fewest shards with which a stage fits, for every pair of layers and recomputed layers.

    One more than there can be where it fits with none. `stages`: by shards, as far as they have been computed.
    """
    n, r = np.arange(highest(f.largest) + 1), np.arange(highest(f.recomputed[0]) + 1)
    layers, recomputed = np.repeat(n, len(r)), np.tile(r, len(n))
    most = highest(f.shards)
    low, high = np.full(len(layers), lowest(f.shards)), np.full(len(layers), most + 1)

    def fits(shards: Ints) -> Any:
        enough = np.zeros(len(layers), dtype=bool)
        for k in np.unique(shards).tolist():
            which = shards == k
            if k not in stages:
                stages[k] = _stages(f, k)
            capacity = stages[k].capacity_bytes[stage]
            in_memory = stages[k].max_in_flight(layers[which], recomputed[which], capacity)
            enough[which] = (in_memory >= in_flight) & (capacity >= 0)
        return enough & (recomputed <= layers) & (layers >= 1)

    while np.any(low < high):
        middle = (low + high) // 2
        ok = fits(np.minimum(middle, most)) & (middle <= most)
        low, high = np.where(ok | (low >= high), low, middle + 1), np.where(ok & (low < high), middle, high)
    return np.asarray(low)


def _stages(f: ColumnModel, shards: int) -> Stages:
    """Return the stages of the column with so many shards; only their memory is read, which needs no micro-batches."""
    return Stages(
        problem=f.problem,
        column=f.column,
        shards=shards,
        micro_batches=1,
        layer_seconds=f.column.layer_strategy.layer_seconds,
        max_layers=highest(f.largest),
    )


def bound_stage_times(f: ColumnModel) -> None:
    """Bound the largest stage's time by every stage's, and the slowest stage's by the last one's with its head."""
    units, strategy, racks = f.units_per_second, f.column.layer_strategy, _range_of(f.racks)
    layer = StepTimes(problem=f.problem, column=f.column).layer(racks).layer_seconds
    rounded = np.ceil(np.broadcast_to(np.asarray(layer, dtype=np.float64), racks.shape) * units).astype(np.int64)
    recompute = math.ceil(strategy.times.recompute_seconds * units)
    layer_units: Any = int(rounded[0])
    if rounded.min() < rounded.max():
        layer_units = f.model.new_int_var(int(rounded.min()), int(rounded.max()), "layer_seconds")
        f.model.add_element(f.racks - int(racks[0]), [int(x) for x in rounded], layer_units)
    for i, (n, r) in enumerate(zip(f.layers, f.recomputed, strict=True)):
        seconds: Any = n * layer_units if isinstance(layer_units, int) else None
        if seconds is None:
            seconds = f.model.new_int_var(0, highest(n) * highest(layer_units), f"stage_seconds[{i}]")
            f.model.add_multiplication_equality(seconds, [n, layer_units])
        f.model.add(f.stage_seconds >= seconds + recompute * r).with_name(f"bound_stage_times[{i}]")
        if i == f.column.pipeline - 1:
            last = seconds + recompute * r + math.ceil(strategy.head_seconds * units)
            f.model.add(f.slowest_seconds >= last).with_name("bound_stage_times[head]")
    if f.column.pipeline > 1:
        f.model.add(f.slowest_seconds >= f.stage_seconds)


def time_the_step(f: ColumnModel) -> None:
    """Bound the objective by the step's time per sequence.

    Effective micro-batches at the slowest stage's time, plus pipeline bubble and tails.
    """
    m, p, v = f.model, f.column.pipeline, f.column.virtual_stages
    racks, sizes = _range_of(f.racks), _range_of(f.largest)
    times = StepTimes(problem=f.problem, column=f.column)
    layer_times = times.layer(racks[None, :])
    # The bubble is linear in the largest stage: what it is without one, here, and (p-1)/v of it below.
    once, each = times.terms(
        layer_times, racks[None, :], _max_shards(f, racks)[None, :], highest(f.micro_batches), 0.0, sizes[:, None]
    )
    fixed, per_micro_batch = _tabulate(f, "once", once), _tabulate(f, "each", each)
    counts = _effective(f)
    one = m.new_int_var(0, highest(f.slowest_seconds) + highest(per_micro_batch), "one_micro_batch")
    m.add(one == f.slowest_seconds + per_micro_batch)
    running = m.new_int_var(0, highest(one) * highest(counts), "running")
    m.add_multiplication_equality(running, [counts, one])
    sequences = m.new_int_var(1, f.problem.max_sequences, "sequences")
    m.add_multiplication_equality(sequences, [f.total, f.micro_batches])
    product = m.new_int_var(0, highest(f.objective) * f.problem.max_sequences, "objective*sequences")
    m.add_multiplication_equality(product, [f.objective, sequences])
    step_units = running + (p - 1) * f.stage_seconds + v * fixed
    batch = f.column.layer_strategy.shape.micro_batch
    m.add(v * batch * product >= OBJECTIVE_SCALE * step_units).with_name("time_the_step")


def _effective(f: ColumnModel) -> cp_model.IntVar:
    """Return v times the effective micro-batches, a whole number."""
    v = f.column.virtual_stages
    if v == 1:
        return f.micro_batches
    table = np.rint(v * f.column.effective_micro_batches(_range_of(f.micro_batches))).astype(np.int64)
    counts = f.model.new_int_var(int(table.min()), int(table.max()), "effective_micro_batches")
    f.model.add_element(f.micro_batches - lowest(f.micro_batches), [int(x) for x in table], counts)
    return counts


def _max_shards(f: ColumnModel, racks: Ints) -> Ints:
    """Return the shards at which the optimiser is timed, by the racks of the largest group: the most, for a bound.

    The even split, which the search prices, has exactly these where the sites are equal.
    """
    return np.minimum(racks * f.column.replicas_per_rack, highest(f.shards))


def _tabulate(f: ColumnModel, name: str, seconds: Floats) -> cp_model.IntVar:
    """Read seconds over (largest stage, racks) at the chosen pair, in whole units."""
    shape = highest(f.largest) - lowest(f.largest) + 1, highest(f.racks) - lowest(f.racks) + 1
    seconds = np.broadcast_to(np.asarray(seconds, dtype=np.float64), shape)
    units = np.ceil(seconds * f.units_per_second).astype(np.int64).ravel()
    index = f.model.new_int_var(0, len(units) - 1, f"{name}_index")
    f.model.add(index == (f.largest - lowest(f.largest)) * shape[1] + f.racks - lowest(f.racks))
    value = f.model.new_int_var(int(units.min()), int(units.max()), name)
    f.model.add_element(index, [int(x) for x in units], value)
    return value


def _variables(problem: Problem, column: Column, cutoff: float, c: Candidates) -> ColumnModel | None:
    """Make the variables over what could beat the cutoff; None where recomputed layers are pinned.

    Counts whose time without tails is over the cutoff are left out, and so are the splits over sites that are less even
    than need be: they have larger groups and fewer shards, so they are neither faster nor smaller.
    """
    if problem.pin("recomputed_layers_per_stage") is not None:
        return None
    m, strategy, p, v = cp_model.CpModel(), column.layer_strategy, column.pipeline, column.virtual_stages
    layers, batch = problem.machine.model.layers, int(c.micro_batches.max())
    even, most_replicas = math.ceil(layers / p), int(c.replicas.max())
    # A stage of S seconds takes n·S in the steady state and (p-1)/v·S in the pipeline bubble.
    longest = cutoff * most_replicas * strategy.shape.micro_batch * batch / (batch + (p - 1) / v) * (1 + 1e-9)
    largest = min(layers - (p - 1) * v, max(even, math.floor(longest / strategy.min_layer_seconds)))
    spare = (
        (longest - v * strategy.layer_seconds) / strategy.times.recompute_seconds
        if strategy.recomputes != "none"
        else 0
    )
    pinned, by_site = problem.pin("layers_per_stage"), problem.pin("data_parallel_by_site")
    sizes = [(v, largest)] * p
    if pinned is not None:
        even = largest = max(pinned)
        sizes = [(n, n) for n in pinned]
    caps = zip(problem.sites, max_replicas_by_site(problem, strategy, p).tolist(), strict=True)
    used = {s: (1, min(int(cap), most_replicas)) for s, cap in caps if cap}
    if by_site is not None:
        used = {s: (by_site.get(s, 0), by_site.get(s, 0)) for s in used}
    # Times are whole units, rounded up: as fine as the products of the model leave room for.
    units = 10 ** math.floor(math.log10(MAX_PRODUCT / (cutoff * problem.max_sequences * OBJECTIVE_SCALE * v)))
    step_units = math.ceil(cutoff * problem.max_sequences * units)

    def one_of(counts: Ints, name: str) -> cp_model.IntVar:
        return m.new_int_var_from_domain(cp_model.Domain.from_values(np.unique(counts).tolist()), name)

    return ColumnModel(
        problem=problem,
        column=column,
        units_per_second=units,
        model=m,
        replicas=[m.new_int_var(low, high, f"replicas[{s}]") for s, (low, high) in used.items()],
        total=one_of(c.replicas, "total"),
        shards=m.new_int_var(int(c.shards.min()), int(c.shards.max()), "shards"),
        racks=m.new_int_var(int(c.racks.min()), int(c.racks.max()), "racks"),
        micro_batches=one_of(c.micro_batches, "micro_batches"),
        layers=[m.new_int_var(low, high, f"layers[{i}]") for i, (low, high) in enumerate(sizes)],
        recomputed=[m.new_int_var(0, min(largest, max(0, math.floor(spare))), f"recomputed[{i}]") for i in range(p)],
        largest=m.new_int_var(even, largest, "largest"),
        stage_seconds=m.new_int_var(0, step_units, "stage_seconds"),
        slowest_seconds=m.new_int_var(0, step_units, "slowest_seconds"),
        objective=m.new_int_var(0, math.ceil(cutoff * units * OBJECTIVE_SCALE), "objective"),
    )


def _read(f: ColumnModel, values: cpsat.Values, scale: float) -> Solution:
    """Read the layout of a CP-SAT solution."""
    replicas = iter(f.replicas)
    caps = max_replicas_by_site(f.problem, f.column.layer_strategy, f.column.pipeline)
    by_site = np.array([[values.of(next(replicas)) if cap else 0] for cap in caps])
    one = np.array([1])
    c = Candidates(
        replicas=by_site.sum(axis=0),
        micro_batches=one * values.of(f.micro_batches),
        by_site=by_site,
        shards=one * values.of(f.shards),
        racks=one * values.of(f.racks),
        bound=0.0 * one,
    )
    layers, recomputed = tuple(values.of(x) for x in f.layers), tuple(values.of(x) for x in f.recomputed)
    strategy = StepTimes(problem=f.problem, column=f.column).strategy(c, layers, recomputed)
    return Solution(seconds=values.of(f.objective) * scale, strategy=strategy)
