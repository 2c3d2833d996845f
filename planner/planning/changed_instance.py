"""Instances changed for another question: fewest days, each decision otherwise, more of each limit."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from planner.instance.instance import Instance
from planner.instance.network import NETWORK_LIMITS
from planner.physics.training.step_prediction import machine_of
from planner.plan.plan import Plan
from planner.plan.plan_sections import DEGREES

Change = Callable[[Instance], Instance]
CHOICES = (*DEGREES[:4], "virtual_stages", "microbatch_sequences", "zero_stage", "sequence_parallel", "schedule")
SMALL_CHANGE = 0.01  # of a limit, for which its worth is computed by solving again


def in_fewest_days(instance: Instance) -> Instance:
    """Return an instance changed to minimize the days to train, without its deadline."""
    return instance.replaced(objective__minimize="days_to_train", limits__deadline_days=None)


def in_days_of_training(instance: Instance) -> Instance:
    """Return an instance changed from the goal of the whole frontier to the fewest days; any other as it is."""
    whole = instance.objective.minimize == "frontier"
    return instance.replaced(objective__minimize="days_to_train") if whole else instance


def change_to(**values: Any) -> Change:
    """Return a change of an instance as a function, by the paths that `replaced` takes."""
    return lambda instance: instance.replaced(**values)


@dataclass(frozen=True)
class Variant:
    """An instance changed as a variant of a plan's question: a decision otherwise, no rule, or `more` of a limit."""

    choice: str  # or the limit
    plan_value: str = ""
    value: str = ""
    change: Change = lambda instance: instance
    without: dict[str, Any] = field(default_factory=dict)
    loosens: bool | None = False  # whether every plan stays one; None: neither that, nor was each of its plans one
    more: float = 0.0
    unit: str = ""
    each: float = 1.0


def variants_of(plan: Plan, closed: list[str]) -> Iterator[Variant]:
    """Yield changes of a plan's instance: each decision otherwise, each rule left out; `closed`: unused sites."""
    instance, layout, network = plan.instance, plan.layout, plan.instance.network
    opened = [site.id for site in plan.sites.sites] if plan.sites else []
    for name in [*opened, *closed]:
        path = f"sites.racks.{name}"
        if path not in instance.pins and name in opened:
            yield Variant("site", name, "closed", change_to(pins={**instance.pins, path: 0}))
        elif path not in instance.pins:
            yield Variant("site", name, "opened", without={path: 0})
    for name in sorted({name for f in plan.fabric.sites.values() for name in f.models} if plan.fabric else ()):
        rest = tuple(s for s in network.switches if s.name != name) if network else ()
        if network is not None and rest:
            yield Variant("switch", name, "any other", change_to(network__switches=rest))
    stripes = list(plan.placement.stripes.values())[:1] if plan.placement and layout and layout.rack_stages > 1 else []
    decided = [("placement.stripes", value) for value in stripes]
    decided += [(f"layout.{name}", getattr(layout, name)) for name in CHOICES]
    for path, value in decided:
        if path not in instance.pins:
            yield Variant(path.partition(".")[2], str(value), "any other", without={path: value})
    if layout is not None and "layout.recompute" not in instance.pins and layout.recompute != "none":
        none = change_to(pins={**instance.pins, "layout.recompute": "none"})
        yield Variant("recompute", layout.recompute, "none", none)
    for key, free in NETWORK_LIMITS.items() if network else ():
        asked = getattr(network, key)
        if asked != free:
            freed = change_to(**{f"network__{key}": free})
            yield Variant(f"network.{key}", f"{asked}", f"{free or 'none'}", freed, loosens=True)
    if instance.wan is not None and instance.wan.protection == "one_cut":
        yield Variant("wan.protection", "one_cut", "none", change_to(wan__protection="none"), loosens=None)
    rules = None if instance.grid is None else instance.grid.rules
    for key in ("max_sites", "max_rtt_ms", "ready_within_months", "interconnect", "fault_split", "share_balance"):
        asked = getattr(rules, key, None)
        if asked is not None and getattr(asked, "enabled", True):
            figure = isinstance(asked, (int, float))
            freed = change_to(**{f"grid__rules__{key}": None if figure else asked.replaced(enabled=False)})
            yield Variant(f"grid.rules.{key}", f"{asked:g}" if figure else "on", "none", freed, loosens=True)
    if instance.workload.rules.framework:
        named, freed = f"{instance.workload.rules.framework}'s", change_to(workload__framework_rules=False)
        yield Variant("workload.framework_rules", named, "False", freed, loosens=None)


def limits_of(plan: Plan) -> Iterator[Variant]:
    """Yield changes of a plan's instance with each limit raised: by a hundredth, or by one more step or block."""
    instance, limits, layout, grid = plan.instance, plan.instance.limits, plan.layout, plan.instance.grid
    wan = plan.sites.links if plan.sites else ()

    def of_limits(limit: str, key: str, unit: str, least: float = 0.0, each: float = 1.0) -> Variant:
        now = getattr(limits, key)
        more = max(now * SMALL_CHANGE, least)
        return Variant(limit, change=change_to(**{f"limits__{key}": now + more}), more=more, unit=unit, each=each)

    if limits.budget_usd:
        yield of_limits("budget", "budget_usd", "USD", each=1e6)
    if limits.deadline_days and instance.objective.in_dollars:
        yield of_limits("deadline", "deadline_days", "days until the deadline")
    if limits.max_batch_tokens:
        step = layout.data_parallel * layout.microbatch_sequences * instance.workload.sequence_length if layout else 0
        yield of_limits("batch", "max_batch_tokens", "tokens of batch", float(step), 1e6)
    size = machine_of(instance).gpu.hbm_bytes + 1e9
    yield Variant("memory", change=change_to(hardware__accelerator__hbm_bytes=size), more=1.0, unit="GB of HBM")
    if instance.hardware.racks is not None and grid is None:
        yield Variant("racks", change=change_to(hardware__racks=instance.hardware.racks + 1), more=1.0, unit="rack")
    if limits.facility_power_mw:
        yield of_limits("facility power", "facility_power_mw", "MW of the facility")
    if grid is not None:
        rules, used = grid.rules, {site.id for site in plan.sites.sites} if plan.sites else set[str]()
        explicit = rules.interconnect.enabled and rules.interconnect.reading == "explicit"
        modelled = rules.grid_model != "none" or rules.interconnect.enabled
        bounded = any(node.area_m2 for node in grid.nodes if node.id in used)
        for limit, binds, unit, family, key, ids in (
            ("headroom", rules.headroom, "MW", "balancing_authorities", "headroom_mw", None),
            ("generation", rules.generation, "MW", "nodes", "generation_mw", None),
            ("interconnect", explicit, "MW", "nodes", "interconnect_mw", used),
            ("line ratings", bool(grid.lines) and modelled, "MW", "lines", "rating_mw", None),
            ("land", bounded and instance.hardware.cooling_kw_per_m2 is not None, "m²", "nodes", "area_m2", used),
        ):
            parts = [part for part in getattr(grid, family) if ids is None or part.id in ids]
            whole = sum((getattr(part, key) or 0.0) * getattr(part, "circuits", 1) for part in parts)
            if binds:
                more, of_limit = whole * SMALL_CHANGE, f"{unit} of {limit}"
                yield Variant(limit, change=_raised(family, key, ids), more=more, unit=of_limit)
    if wan and instance.wan is not None and "wan.wavelengths" not in instance.pins:
        pair = instance.wan.max_wavelengths_per_pair
        waves = wan[0].wavelengths + pair
        leased = max(instance.wan.max_fibre_pairs, -(-waves // pair))  # one more than all of them has its worth too
        lit = change_to(wan__max_fibre_pairs=leased, pins={**instance.pins, "wan.wavelengths": waves})
        yield Variant("fibre", change=lit, more=1.0, unit="fibre pair")


def _raised(family: str, key: str, ids: Collection[str] | None) -> Change:
    """Return the change that raises a grid figure by a hundredth, of all parts of a family or those with some ids."""

    def raised(part: Any) -> Any:
        value = getattr(part, key)
        scaled = value is not None and (ids is None or part.id in ids)
        return part.replaced(**{key: value * (1 + SMALL_CHANGE)}) if scaled else part

    return lambda instance: instance.replaced(**{f"grid__{family}": tuple(map(raised, getattr(instance.grid, family)))})
