"""The library's `evaluate`: predicts one layout given in full, without any search, and says what the prediction rests on."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.evaluation import Evaluation
    from planner.instance import Instance


def evaluate(instance: "Instance | Mapping[str, Any] | str | Path", layout: Mapping[str, Any] | None = None) -> "Evaluation":
    """Predict step time, memory and their breakdown for a layout given in full.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance; its own pins count too.
    layout
        The layout's choices by name, as in the plan's `layout` section and in pins (`tensor_parallel`, ...).
        `tensor_parallel`, `pipeline_parallel` and `data_parallel` must be there; micro-batches come from
        `limits.max_batch_tokens` where they are not given, and the rest has the plainest value.

    Returns
    -------
    Evaluation
        The metrics, with the layout, the memory of every stage, the constants behind each part, and what stops it from running.

    Raises
    ------
    PlannerError
        The input cannot be used, or the layout is not whole; the message says where and what to do.
    """
    from planner.evaluation import evaluated
    from planner.load import load_instance
    from planner.pool_references import refuse_pools

    pins = {f"layout.{k}": v for k, v in (layout or {}).items()}
    return evaluated(refuse_pools(load_instance(instance, pins=pins, searched=False)))
