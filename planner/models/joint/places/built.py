"""A plan as it is built: on its own templates and at its own sites, timed anew."""

from planner.models.fabric.chooser import Template
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.places.site_question import PlacedParts
from planner.models.joint.split import Column, LayerSplit
from planner.models.joint.world import CLUSTER, JointPlan
from planner.physics.training.memory import stage_gradient_bytes


def where(placed: PlacedParts | None) -> dict[str, tuple[int, int]]:
    """Return the part and the fabric of each site."""
    return {CLUSTER: (0, 0)} if placed is None else placed.parts


def built(
    q: ShapeProblem, wavelengths: int, placed: PlacedParts | None, templates: dict[str, Template], cutoff: float
) -> JointPlan:
    """Time the plan as it is built: its own templates and its own pair of sites, no slower than a cutoff on a clock."""
    sizes = sorted(set(q.shape.blocks), reverse=True)
    blocks = {s: sizes[k] for s, (k, _) in where(placed).items()}
    phi = q.world.problem.transport_slowdown
    send, allreduce = (max([phi, *(getattr(t, name) for t in templates.values())]) for name in ("send", "allreduce"))
    conditions = q.conditions(send, allreduce, q.fibre(wavelengths, 0.0 if placed is None else placed.rtt_ms))
    split = q.split(conditions, cutoff / q.min_stretch)
    if split is None:
        raise RuntimeError("joint: a column that was timed cannot be split")
    capital = q.world.owned_usd + sum(t.usd for t in templates.values())
    return JointPlan(
        seconds=float(q.on_clock(split.seconds)),
        capital_usd=capital if placed is None else placed.capital_usd,
        column=q.column,
        split=split,
        conditions=conditions,
        shape=q.shape,
        templates=templates,
        blocks_by_site=blocks,
        replicas_by_site=_replicas(q, blocks),
        placed=placed,
        wavelengths=wavelengths,
        upkeep=q.upkeep(split.seconds, blocks),
    )


def _replicas(q: ShapeProblem, blocks: dict[str, int]) -> dict[str, int]:
    """Share the replicas out: every block whole but the last of one site of most blocks."""
    missing = sum(blocks.values()) * q.block.replicas - q.column.d
    short = min(s for s, g in blocks.items() if g == max(blocks.values()))
    return {s: g * q.block.replicas - (missing if s == short else 0) for s, g in sorted(blocks.items())}


def exchanged_bytes(column: Column, split: LayerSplit) -> float:
    """Return the gradients of the largest stage of a split, which sites exchange stage by stage."""
    return max(_bytes(column, n, stage) for stage, n in enumerate(split.layers))


def most_bytes(column: Column, layers: int) -> float:
    """Compute the most bytes of gradients of a stage of `layers` layers, at either end of the pipeline or amid it."""
    return max(_bytes(column, layers, stage) for stage in {0, column.p // 2, column.p - 1})


def _bytes(column: Column, layers: int, stage: int) -> float:
    s = column.strategy
    return float(stage_gradient_bytes(s.machine, s.shape, layers, stage=stage, pipeline=column.p))
