"""Which rows hold a layout at all, and how small the smallest is."""

import math

import numpy as np

from planner.models.layout_question import Problem, bases
from planner.models.layout_space import Ints, Row, RowTable, replica_caps
from planner.models.layout_stages import Stages
from planner.physics import step


def possible_rows(problem: Problem, table: RowTable) -> Ints:
    """Return the rows that hold a layout at all, in their order: tried at the most replicas and the fewest micro-batches in flight."""
    found, known = [], {}
    for i in range(len(table)):
        key = (int(table.base[i]), int(table.zero[i]), int(table.pipeline[i]), int(table.virtual_stages[i]), bool(table.filled[i]))
        if key not in known:
            known[key] = _holds(problem, table.row(i))
        if known[key]:
            found.append(i)
    return np.array(found, dtype=np.int64)


def _holds(problem: Problem, row: Row) -> bool:
    """Tell whether a row holds the layers at the most replicas, whatever time it takes."""
    layers, p, v = problem.machine.model.layers, row.pipeline, row.virtual_stages
    batches = p if row.filled else 1
    caps = replica_caps(problem, row.base, p)
    most = min(int(caps.sum()), problem.most_sequences // (batches * row.base.shape.micro_batch))
    used = caps[caps > 0]
    if not len(used) or most < 1 or layers < p * v:
        return False
    least = max(1, min(int(used.min()), most // len(used)))
    stages = Stages(problem=problem, row=row, replicas=least, batches=batches, layer=1.0, most_layers=layers - (p - 1) * v)
    return stages.holds(math.inf)


def least_memory_bytes(problem: Problem) -> float:
    """Return the memory of the smallest layout: one micro-batch in flight, everything recomputed that may be, the most shards, even stages."""
    m, least = problem.machine, math.inf
    for base in bases(problem):
        if base.shape.micro_batch > min(problem.choices("microbatch_sequences", (1,))):
            continue
        kept = {"none": 0, "any": 1, "all": 1}[base.recomputes]
        for p in problem.options("pipeline_parallel", range(1, m.model.layers + 1)):
            caps = [int(c) for c in replica_caps(problem, base, p)]
            replicas = min((c for c in caps if c), default=0)
            for zero in problem.options("zero_stage", range(4)) if replicas else ():
                layers = math.ceil(m.model.layers / p)
                parts = step.stage_memory(
                    m,
                    base.shape,
                    pipeline=p,
                    virtual_stages=1,
                    micro_batches=1,
                    zero_stage=zero,
                    replicas=min(replicas, problem.most_sequences),
                    stage=np.array([0, p - 1]),
                    layers=np.array(layers),
                    recomputed=np.array([0, layers][kept]),
                    order=base.order,
                )
                least = min(least, float(np.max(sum(parts.values()))))
    return least
