"""The cache of the joint search: what the searches of one instance share, and the question by which it is kept."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.instance.hardware import hardware_kind
from planner.instance.instance import Instance, Limits, Objective
from planner.models.fabric.fabric_templates import Templates
from planner.models.joint.shapes.site_prices import SiteBounds
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Floats, Strategy
from planner.physics.training.operations import LayerShape

if TYPE_CHECKING:
    from planner.models.joint.shapes.site_choice import Sites


@dataclass(kw_only=True)
class JointCache:
    """The cache of the joint search: strategies, bounds, times on a free network, fabric tables, site answers, plans.

    It serves instances that differ in budget, racks of a cluster, deadline, tokens, objective and name alone; for any
    other it starts anew, but for what that question has in common with the one before.
    """

    question: Any = None  # an instance, what no plan may have, then seed and threads
    without: dict[str, Any] = field(default_factory=dict)  # values that no plan may have, by the paths of their pins
    listed: list[Strategy] | None = None
    degrees: list[tuple[LayerShape, str]] | None = None  # by which layers may be cut
    cut: dict[tuple[LayerShape, str], list[Strategy]] = field(default_factory=dict)  # strategies by their degrees
    timed: dict[LayerShape, Strategy] = field(default_factory=dict)  # one of each shape, of any question
    terms: dict[Strategy, tuple[Floats, Floats]] = field(default_factory=dict)
    tables: dict[Strategy, Any] = field(default_factory=dict)  # of the pipelines of each
    bounds: dict[Strategy, tuple[tuple[float, float], float]] = field(default_factory=dict)  # behind what is paid
    free: dict[Column, float] = field(default_factory=dict)  # seconds a sequence on a free network
    slower: dict[Column, float] = field(default_factory=dict)  # lower bounds on those that are over a cutoff
    templates: Templates | None = None
    sites: "Sites | None" = None
    site_bounds: SiteBounds | None = None
    plans: dict[float, Any] = field(default_factory=dict)  # by size
    search: Any = None  # the last search by days, where another goal may go on with it
    # The plans of searches by cost, by the racks of a cluster, which all are in their cost.
    cheapest: dict[int | None, list[Any]] = field(default_factory=dict)
    by_hardware: dict[Any, "JointCache"] = field(default_factory=dict)  # of its alternatives
    inspected: list[Any] = field(default_factory=list)  # proofs that were enumerated again and hold
    answers: list[Any] = field(default_factory=list)  # proven, each behind its question

    def serves(self, instance: Instance) -> bool:
        """Return whether the search cache is an instance's, whatever its budget, racks, deadline, tokens and goal."""
        return self.question is not None and bool(self.question[0] == _question(instance))

    def of(self, instance: Instance) -> "JointCache":
        """Return the search cache of an instance whose hardware may differ: this one, or its own hardware's."""
        if self.question is None or self.serves(instance):
            return self
        return self.by_hardware.setdefault(hardware_kind(instance.hardware), JointCache())

    def serve(self, instance: Instance, without: dict[str, Any], *how: Any) -> None:
        """Make the search cache that of an instance: start anew where more than its size differs."""
        question = _question(instance), without, how
        if question != self.question:
            fresh, kept = JointCache(question=question), {"by_hardware", "timed", "answers"}
            if self.question is not None:
                own, other = _needs(self.question), _needs(question)
                strategies, sites, fabrics = (a == b for a, b in zip(own, other, strict=True))
                for same, names in (
                    (strategies, ("degrees", "cut", "terms")),
                    (strategies and sites, ("tables", "bounds", "free", "slower")),
                    (sites, ("sites", "site_bounds")),
                    (fabrics, ("templates",)),
                ):
                    kept.update(names if same else ())
            for name in self.__dataclass_fields__.keys() - kept:
                setattr(self, name, getattr(fresh, name))
            self.without = without
        if self.sites is not None and self.sites.instance.limits.budget_usd != instance.limits.budget_usd:
            self.sites.pay(instance)


def most_paid(instance: Instance) -> tuple[float, float]:
    """Return USD for more than a cluster's racks, and racks, for which the search cache holds tables; 0 if unpaid."""
    money, racks = instance.limits.budget_usd or math.inf, instance.hardware.racks
    if instance.grid is not None or racks is None:
        return money, math.inf
    left = money - racks * instance.hardware.rack.price_usd
    return (left, racks) if left >= 0 else (0.0, 0.0)


def _needs(question: Any) -> tuple[Any, Any, Any]:
    """Return what a question's cached strategies, site answers and fabric tables each depend on."""
    # Strategies and tables of pipelines depend on neither money nor values that no plan may have, which the search
    # leaves out; sites and fabrics on neither model, batch, memory nor layouts.
    instance, without, how = question
    limits = instance.limits
    own = Limits(max_batch_tokens=limits.max_batch_tokens, memory_reserve_fraction=limits.memory_reserve_fraction)
    alone = instance.replaced(grid=None, limits=own, pins=_but(("sites.", "wan."), instance.pins))
    others = limits.replaced(max_batch_tokens=None, memory_reserve_fraction=0.0)
    alike = {"limits": others, "hardware__accelerator__hbm_bytes": 1.0, "pins": _but(("layout.",), instance.pins)}
    campus = instance.replaced(**alike).model_copy(update={"workload": None})
    return (
        (alone, instance.grid is None),
        (campus, _but(("layout.", "placement.stripes"), without), how),
        (campus, _but(("layout.", "sites"), without)),
    )


def _but(prefixes: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in values.items() if not path.startswith(prefixes)}


def _question(instance: Instance) -> Instance:
    """Return the search cache's key: an instance without budget, deadline, tokens, objective, name, cluster racks."""
    # The racks of a cluster are its size, but under a limit on power, where they take it from the fabric.
    limits = instance.limits.replaced(budget_usd=None, deadline_days=None)
    work = instance.workload.replaced(tokens=1.0)  # days are counted from seconds a sequence
    changed = {"limits": limits, "workload": work, "objective": Objective(), "name": ""}
    if instance.grid is None and limits.facility_power_mw is None and instance.hardware.racks is not None:
        changed["hardware"] = instance.hardware.replaced(racks=1)
    return instance.replaced(**changed)
