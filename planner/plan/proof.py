"""What the proof of the joint optimum rests on beside physics: the columns that only the sites refused."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen


class ExcludedColumn(Frozen):
    """A way to cut the model that would be faster than the bound on a free network: the sites refused each such choice.

    It stands for replicas from `min_data_parallel` to `max_data_parallel` and any number of micro-batches.
    """

    tensor_parallel: int = Field(description="As in the layout.")
    tensor_parallel_inner: int = Field(1, description="As in the layout.")
    context_parallel: int = Field(1, description="As in the layout.")
    expert_parallel: int = Field(1, description="As in the layout.")
    pipeline_parallel: int = Field(description="As in the layout.")
    virtual_stages: int = Field(1, description="As in the layout.")
    microbatch_sequences: int = Field(1, description="As in the layout.")
    sequence_parallel: bool = Field(False, description="As in the layout.")
    recompute: Literal["none", "selective"] = Field(
        "none",
        description="What a layer keeps that is not recomputed whole; others are, as memory asks.",
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="As in the layout.")
    schedule: Literal["1f1b", "zb-h1"] = Field("1f1b", description="As in the layout.")
    stages_per_rack: int = Field(1, description="As in the layout.")
    min_data_parallel: int = Field(description="Fewest replicas that it stands for.")
    max_data_parallel: int = Field(description="Most replicas that it stands for.")
    lower_bound_days: float = Field(description="Least days with these replicas on a network without contention.")
    reason: Literal["refused"] = Field("refused", description="Sites and budget refuse every faster choice.")


class JointProof(Frozen):
    """The proof of the joint optimum, as far as it is not in its value and bound."""

    fabric_free_bound_days: float | None = Field(
        None, description="No plan is faster over any fabric: the least days of all columns on a free network."
    )
    counts: dict[str, int] = Field(default_factory=dict, description="How often each step of the search was taken.")
    max_racks_by_wired_gpus: dict[int, int] = Field(
        default_factory=dict,
        description="Most racks that the sites allow with so many GPUs of each cabled, by the sites' MILP; an entry "
        "holds for as many GPUs or more, up to the next. Absent: what budget, power and sites allow one by one.",
    )
    min_fabric_usd_per_wired_gpu: float | None = Field(
        None, description="Least price of a GPU's link and leaf port, which those racks leave room for."
    )
    columns: tuple[ExcludedColumn, ...] = Field(
        (), description="Every column whose least days on a free network are below the bound."
    )
