"""How small the smallest layout is."""

import math

import numpy as np

from planner.models.layout_question import Problem, bases
from planner.models.layout_space import replica_caps
from planner.physics import step


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
