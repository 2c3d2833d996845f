"""Rules of the plan as a whole: an instance that can be read, and a section for every decision asked for."""

from collections import Counter
from collections.abc import Iterator

from planner.checks.rule import Rule, broken
from planner.instance.grid import Line, NewLine
from planner.instance.hardware import Accelerator, Rack
from planner.instance.pins import check_pins
from planner.instance.references import pool_problems, wan_problems
from planner.instance.workload import Model, Precision, Software
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step
from planner.plan.certificate import Violation


def names_resolved(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every part of the instance is given in full, not as a catalogue name."""
    h, w, network = c.instance.hardware, c.instance.workload, c.instance.network
    parts: list[tuple[str, object, type]] = [
        ("hardware.accelerator", h.accelerator, Accelerator),
        ("hardware.rack", h.rack, Rack),
        *((f"hardware.pools[{i}].accelerator", p.accelerator, Accelerator) for i, p in enumerate(h.pools)),
        *((f"hardware.pools[{i}].rack", p.rack, Rack) for i, p in enumerate(h.pools)),
        ("workload.model", w.model, Model),
        ("workload.software", w.software, Software),
        ("workload.precision", w.precision, Precision),
        ("reliability", c.instance.reliability, object),
        *((f"network.switches[{i}]", s, object) for i, s in enumerate(network.switches if network else ())),
        *((f"network.media[{i}]", m, object) for i, m in enumerate(network.media if network else ())),
    ]
    for path, part, kind in parts:
        if isinstance(part, str) or not isinstance(part, kind):
            yield broken("names_resolved", f"instance.{path} is the name {part!r}; a plan has it in full")


def known_references(c: PlanPhysics) -> Iterator[Violation]:
    """Check that every id of the grid is unique, every reference is known and every pin names a decision."""
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
    for what, names in ids.items():
        repeated = {k: n for k, n in Counter(names).items() if n > 1}
        yield from (broken("known_references", f"{what} {k!r} stands {n} times > 1") for k, n in repeated.items())
    for n in g.nodes:
        if n.balancing_authority not in ids["authority"]:
            none_of = f"none of the {len(ids['authority'])} authorities"
            yield broken("known_references", f"node {n.id!r} is in {n.balancing_authority!r}, {none_of}")
    for x in lines:
        if not {x.a, x.b} <= set(ids["node"]):
            ends = f"from {x.a!r} to {x.b!r} ends at none of the {len(ids['node'])} nodes"
            yield broken("known_references", f"line {x.id!r} {ends}")


def peak_known(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the accelerator has a peak rate for the compute precision."""
    m = step.machine_of(c.instance)
    if m.precision.compute not in m.gpu.peak_flop_per_second:
        known = ", ".join(sorted(m.gpu.peak_flop_per_second)) or "0 types"
        yield broken("peak_known", f"{m.gpu.name} has no peak for {m.precision.compute}, only for {known}")


def complete(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the plan has a section for every decision that the instance asks for, and no other."""
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
        present = getattr(p, section) is not None
        if present != wanted:
            yield broken("complete", f"{section}: {int(present)} sections, {int(wanted)} asked for by the instance")


INSTANCE_RULES: tuple[Rule, ...] = (names_resolved, known_references)
MACHINE_RULES: tuple[Rule, ...] = (peak_known,)
PLAN_RULES: tuple[Rule, ...] = (complete,)
