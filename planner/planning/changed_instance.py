"""Change values of an instance for another question on it; `planner.changed` does so by the paths of a user."""

from collections.abc import Callable
from typing import Any

from planner.instance.instance import FabricInstance, Instance, instance_sha256
from planner.models import Options
from planner.version import __version__

Change = Callable[[Instance], Instance]


def in_fewest_days(instance: Instance) -> Instance:
    """Return an instance changed to minimize the days to train, without its deadline."""
    return instance.replaced(objective__minimize="days_to_train", limits__deadline_days=None)


def change_to(**values: Any) -> Change:
    """Return a function that changes an instance's values, by the paths that `replaced` takes."""
    return lambda instance: instance.replaced(**values)


def as_asked(instance: Instance | FabricInstance) -> dict[str, Any]:
    """Return the fields of a plan that state its question: the instance as changed, and its hash."""
    return {"instance": instance, "instance_sha256": instance_sha256(instance)}


def solved_with(instance: Instance | FabricInstance, options: Options) -> dict[str, Any]:
    """Return the fields that every plan states: its instance and hash, planner version, seed, threads, time limit."""
    how = {"seed": options.seed, "threads": options.threads or 1, "time_limit_seconds": options.time_limit}
    return as_asked(instance) | how | {"planner_version": __version__}
