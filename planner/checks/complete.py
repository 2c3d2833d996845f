"""Rules of the plan as a whole: an instance that can be read, and a section for every decision asked for."""

from collections import Counter
from collections.abc import Iterator

from planner.checks.rule import Rule, broken
from planner.instance.grid import Line, NewLine
from planner.instance.hardware import Accelerator, Rack
from planner.instance.pins import check_pins
from planner.instance.references import pool_problems, wan_problems
from planner.instance.workload import Model
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step
from planner.plan.certificate import Violation


def names_resolved(c: PlanPhysics) -> Iterator[Violation]:
    """Hold every part of the instance in full, no catalogue names."""
    h, w, network = c.instance.hardware, c.instance.workload, c.instance.network
    parts: list[tuple[str, object, type]] = [
        ("hardware.accelerator", h.accelerator, Accelerator),
        ("hardware.rack", h.rack, Rack),
        *((f"hardware.pools[{i}].accelerator", p.accelerator, Accelerator) for i, p in enumerate(h.pools)),
        *((f"hardware.pools[{i}].rack", p.rack, Rack) for i, p in enumerate(h.pools)),
        ("workload.model", w.model, Model),
        *((f"network.switches[{i}]", s, object) for i, s in enumerate(network.switches if network else ())),
        *((f"network.media[{i}]", m, object) for i, m in enumerate(network.media if network else ())),
    ]
    for path, held, kind in parts:
        if isinstance(held, str) or not isinstance(held, kind):
            yield broken("names_resolved", f"instance.{path} is the name {held!r}; a plan holds it in full")


def known_references(c: PlanPhysics) -> Iterator[Violation]:
    """Let every id of the grid stand once and every reference lead somewhere, and every pin name a decision."""
    yield from (broken("known_references", f"instance.{p}") for p in check_pins(c.instance))
    g = c.grid
    yield from (broken("known_references", f"instance.{p}") for p in pool_problems(c.instance))
    yield from (broken("known_references", f"instance.{p}") for p in wan_problems(g, c.wan))
    lines: list[Line | NewLine] = [*g.lines, *g.new_lines]
    ids = {
        "authority": [b.id for b in g.balancing_authorities],
        "node": [n.id for n in g.nodes],
        "line": [x.id for x in lines],
    }
    for what, held in ids.items():
        yield from (
            broken("known_references", f"{what} {k!r} stands {n} times > 1") for k, n in Counter(held).items() if n > 1
        )
    for n in g.nodes:
        if n.balancing_authority not in ids["authority"]:
            yield broken(
                "known_references",
                f"node {n.id!r} is in {n.balancing_authority!r}, none of the {len(ids['authority'])} authorities",
            )
    for x in lines:
        if not {x.a, x.b} <= set(ids["node"]):
            yield broken(
                "known_references",
                f"line {x.id!r} from {x.a!r} to {x.b!r} ends at none of the {len(ids['node'])} nodes",
            )


def peak_known(c: PlanPhysics) -> Iterator[Violation]:
    """Have a peak rate for the type of the products."""
    m = step.machine_of(c.instance)
    if m.precision.compute not in m.gpu.peak_flop_per_second:
        yield broken(
            "peak_known",
            f"{m.gpu.name} has no peak for {m.precision.compute}, only for {', '.join(sorted(m.gpu.peak_flop_per_second))}",
        )


def complete(c: PlanPhysics) -> Iterator[Violation]:
    """Hold a section for every decision that the instance asks for, and none besides."""
    p, i = c.plan, c.instance
    pooled = bool(i.hardware.pools)
    asked = {
        "sites": i.grid is not None,
        "layout": not pooled,
        "pools": pooled,
        "fabric": i.network is not None,
        "cost": True,
    }
    asked["placement"] = i.network is not None
    for section, wanted in asked.items():
        held = getattr(p, section) is not None
        if held != wanted:
            yield broken("complete", f"{section}: {int(held)} sections held, {int(wanted)} asked for by the instance")


INSTANCE_RULES: tuple[Rule, ...] = (names_resolved, known_references)
PLAN_RULES: tuple[Rule, ...] = (peak_known, complete)
