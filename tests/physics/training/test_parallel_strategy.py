"""The parallel strategy, its reader and its writer, and the plainest layout of some degrees."""

from dataclasses import fields, replace

from each_case import each
from worked_plan import STRATEGY, small

from planner.physics.training import parallel_strategy as ps
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import even_layers, min_stages_per_rack, packing
from planner.plan.plan_sections import LayoutPlan

LAYOUT = small().layout


def written(strategy: ps.ParallelStrategy) -> LayoutPlan:
    """Write a strategy at two sites of 8 racks in all, 4 GPUs a rack."""
    return ps.write_layout(
        strategy, data_parallel_by_site=dict(zip("ab", strategy.data_parallel_by_site, strict=True)), racks=20,
        gpus_per_rack=4, assumptions=LAYOUT.assumptions, metrics=LAYOUT.metrics, certificate=LAYOUT.certificate,
    )  # fmt: skip


@each("change", [
    {}, {"micro_batch": 4, "micro_batches": 7, "tensor_inner": 2, "zero_stage": 3},
    {"recompute": "full", "recomputed_layers_per_stage": (1, 0)},
    {"context_parallel": 2, "expert_parallel": 2, "stages_per_rack": 2, "schedule": "zb-h1"},
])  # fmt: skip
def test_a_written_layout_reads_back_as_the_same_strategy(change: dict[str, object]) -> None:
    """So do the lists of a plan's file; of full recompute the layers are written as numbers where all are meant."""
    strategy = replace(STRATEGY, **change)
    assert ps.strategy_of(written(strategy)) == strategy
    assert ps.strategy_of(written(strategy).model_dump(mode="json")) == strategy
    assert written(replace(STRATEGY, recompute="full")).recomputed_layers_per_stage == STRATEGY.layers_per_stage


def test_racks_and_gpus_of_a_written_layout() -> None:
    """TP 8 spreads a stage over 2 racks of 4; 3 and 2 replicas on 2 stages use 80 GPUs, those of all 20 racks."""
    layout = written(replace(STRATEGY, tensor_parallel=8, replicas_per_rack=1, data_parallel_by_site=(3, 2)))
    assert (layout.racks_per_replica, layout.racks_per_stage_by_site) == (2, {"a": 6, "b": 4})
    assert (layout.gpus_used, layout.gpus_idle) == (80, 0)


def test_a_strategy_of_a_shape_has_that_shape() -> None:
    shape = LayerShape(tensor_parallel=4, micro_batch=2, recompute="none", sequence_parallel=True, context_parallel=2)
    shared = {f.name for f in fields(LayerShape)}
    rest = {f.name: getattr(STRATEGY, f.name) for f in fields(STRATEGY) if f.name not in shared}
    assert ps.ParallelStrategy.of_shape(shape, **rest).shape == shape


def test_what_a_layout_leaves_out_divides_nothing() -> None:
    """A layout without degrees of its own is of one GPU a TP rank, in plain 1F1B, a stage to a rack."""
    names = {"context_parallel", "expert_parallel", "tensor_parallel_inner", "schedule", "stages_per_rack"}
    read = ps.strategy_of(LAYOUT.model_dump(mode="json", exclude=names | {"recomputed_layers_per_stage"}))
    assert (read.context_parallel, read.expert_parallel, read.tensor_inner, read.stages_per_rack) == (1, 1, 1, 1)
    assert (read.schedule, read.recomputed_layers_per_stage) == ("1f1b", ())


def test_replicas_of_a_site_fill_racks() -> None:
    """TP 2 with CP 6 in racks of 4 GPUs: three racks a replica, of which a rack has two CP ranks."""
    # Three replicas at the largest site are nine racks, all of the same weights; TP 8 over two racks halves the
    # group. Experts over 8 GPUs: two replicas of one rack each stand side by side, so that three replicas take four
    # racks.
    wide = replace(STRATEGY, tensor_parallel=2, context_parallel=6, replicas_per_rack=1, data_parallel_by_site=(3, 2))
    assert (wide.racks_per_replica(4), wide.unit_racks(4), wide.group_racks(4)) == (3, 3, 9)
    assert (wide.gpus, wide.min_replicas, wide.data_parallel) == (5 * wide.pipeline_parallel * 12, 2, 5)
    over = replace(wide, tensor_parallel=8, context_parallel=1)
    assert (over.site_group_racks(3, 4), over.group_racks(4)) == (6, 3)
    experts = replace(wide, tensor_parallel=4, context_parallel=1, expert_parallel=8)
    assert (experts.unit_racks(4), experts.site_group_racks(3, 4)) == (2, 4)
    assert replace(wide, data_parallel_by_site=(0, 3)).min_replicas == 3
    # TP 25 times CP 9 on 72 GPUs takes 5 racks: two groups a rack, and not the 4 racks of 225 GPUs.
    for t, c, context, replica in ((25, 9, 5, 5), (144, 3, 3, 6)):
        large = replace(wide, tensor_parallel=t, context_parallel=c)
        assert (ps.context_racks(72, t, c), large.racks_per_replica(72)) == (context, replica)
    # 721 replicas at 7 a rack are 103 racks, one more takes another.
    for replicas, per_rack, racks in ((7, 7, 1), (8, 7, 2), (721, 7, 103), (1, 9, 1)):
        single = replace(wide, tensor_parallel=1, context_parallel=1, replicas_per_rack=per_rack)
        assert single.site_group_racks(replicas, 72) == racks


@each(("layers", "stages", "each"), [
    (8, 4, (2, 2, 2, 2)), (9, 4, (3, 2, 2, 2)), (10, 4, (2, 3, 3, 2)), (11, 4, (3, 3, 3, 2)),
    (126, 16, (7, *(8,) * 14, 7)), (4, 2, (2, 2)), (7, 1, (7,)),
])  # fmt: skip
def test_layers_are_spread_evenly(layers: int, stages: int, each: tuple[int, ...]) -> None:
    """Layers over go to the first stages; where two are short, the first and the last stage have one less."""
    assert even_layers(layers, stages) == each


@each(("gpus", "expected"), [(32, (1, 8)), (25, (1, 8)), (24, (2, 4)), (9, (2, 4)), (8, (4, 2))])
def test_stages_share_a_rack_where_the_gpus_ask_for_it(gpus: int, expected: tuple[int, int]) -> None:
    """Four stages of one GPU and two replicas, on racks of 8: four, if not all full, three or two, and one."""
    assert packing(8, 1, 1, 4, 2, gpus) == expected


@each(("unit", "stages", "replicas", "racks", "q"), [
    (16, 2, 3, 12, 1), (16, 2, 3, 11, 1), (4, 4, 2, None, 1), (4, 4, 2, 4, 1), (4, 4, 2, 3, 1), (2, 4, 2, 2, 2),
    (2, 4, 2, 1, 1), (2, 4, 1, 1, 4),
])  # fmt: skip
def test_fewest_stages_that_fit_the_racks(unit: int, stages: int, replicas: int, racks: int | None, q: int) -> None:
    """Replicas of stages of so many GPUs on racks of 8; one stage a rack where no number fits."""
    # A stage over two racks shares none of them; two stages a rack of four GPUs each leave room for one replica, so
    # that four racks are needed again; all four of two GPUs fill a rack with one replica.
    assert min_stages_per_rack(8, unit, stages, replicas, racks) == q
