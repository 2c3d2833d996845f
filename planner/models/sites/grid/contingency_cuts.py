"""Cuts for what a point breaks of N-1: flows after an outage, reserves, and parts that must feed themselves."""

from collections.abc import Iterator

import numpy as np

from planner.models.sites.grid.contingencies import Outages, largest_at, outages
from planner.models.sites.grid.dc_network import ParallelStrategy, State, System
from planner.physics.site.dc_power_flow import Floats, Whole

MOST = 150  # overloads made cuts in one round


def broken(
    system: System, x: Floats, found: dict[tuple[int, ...], Outages], tolerance: float
) -> list[ParallelStrategy]:
    """Return cuts for what a point breaks in the state that its circuits make; they hold in that state alone.

    `found` keeps the outages of each state. The point's binaries must be whole where there is something to build.
    """
    built = system.built(x)
    if built not in found:
        found[built] = outages(system, system.state(built))
    of = found[built]
    system.effort.contingencies = max(system.effort.contingencies, len(of.lines) + len(of.units))
    at_sites = _sites_by_line(system, of.state) if system.grid.rules.n1 == "node" else None
    cuts = _overloads(of, x, at_sites, tolerance) + list(_dark(of, x, at_sites, tolerance))
    return cuts + (list(_reserves(of, x, tolerance)) if of.units else [])


def _sites_by_line(system: System, state: State) -> dict[int, list[int]]:
    """Return the numbers of the candidates that lose a circuit of each line under the rule `node`."""
    found: dict[int, list[int]] = {}
    for i, s in enumerate(system.candidates):
        for k in largest_at(system, state, s):
            found.setdefault(k, []).append(i)
    return found


def _conditions(
    of: Outages, line: int, x: Floats, at_sites: dict[int, list[int]] | None
) -> list[tuple[tuple[int, bool], ...]]:
    """Say when the outage of a line counts: always, or while one of the sites at it is open; nothing while none is."""
    if at_sites is None:
        return [of.state.given]
    opened = [of.system.open_at + i for i in at_sites[line]]
    return [(*of.state.given, (column, True)) for column in opened if x[column] > 0.5]


def _overloads(
    of: Outages, x: Floats, at_sites: dict[int, list[int]] | None, tolerance: float
) -> list[ParallelStrategy]:
    net, state = of.state.network, of.state
    flow, limit = net.flows(of.system.injection(x)), state.rating_mw * net.circuits
    worst: list[tuple[float, int, int, bool, float]] = []
    for block in of.blocks():
        strength = (x if block.unit else flow)[block.driver]
        over = np.abs(flow[:, None] + block.shift * strength)
        cap = np.broadcast_to(limit[:, None], over.shape)
        if not block.unit:
            cap = cap.copy()
            cap[block.driver, np.arange(len(block.driver))] -= state.rating_mw[block.driver]
        # A corridor whose only circuit is out carries nothing, within a rating of nothing.
        excess = (over - cap) / limit[:, None]
        line = excess.argmax(axis=0)
        for j in np.flatnonzero(excess[line, np.arange(excess.shape[1])] > tolerance):
            i, k = int(line[j]), int(block.driver[j])
            if block.unit or _conditions(of, k, x, at_sites):
                worst.append((float(excess[i, j]), i, k, block.unit, float(block.shift[i, j])))
    worst.sort(key=lambda v: (-v[0], v[1:4]))
    return _as_cuts(of, x, flow, _spread(worst), at_sites)


def _spread(worst: list[tuple[float, int, int, bool, float]]) -> list[tuple[float, int, int, bool, float]]:
    """Keep the worst, and at most three for one monitored line: more of one line say nearly the same."""
    kept, count = [], dict[int, int]()
    for v in worst:
        count[v[1]] = count.get(v[1], 0) + 1
        if count[v[1]] <= 3:
            kept.append(v)
    return kept[:MOST]


def _as_cuts(
    of: Outages,
    x: Floats,
    flow: Floats,
    worst: list[tuple[float, int, int, bool, float]],
    at_sites: dict[int, list[int]] | None,
) -> list[ParallelStrategy]:
    net, state, system = of.state.network, of.state, of.system
    used = sorted({v[1] for v in worst} | {v[2] for v in worst if not v[3]})
    rows = dict(zip(used, net.transfer(used), strict=True))
    names = list(system.nodes)
    cuts = []
    for _, i, k, unit, shift in worst:
        after = flow[i] + shift * (x if unit else flow)[k]
        way = 1.0 if after > 0 else -1.0
        row = system.row(rows[i] if unit else rows[i] + shift * rows[k], new=False)
        if unit:
            row[k] += shift
        upper = float(state.rating_mw[i] * (net.circuits[i] - (0 if unit or i != k else 1)))
        name = f"{state.lines[i]},{'unit ' + names[k] if unit else state.lines[k]}"
        # Flows are within the power moved, which is at most the load fed in and the load drawn where parts are not balanced.
        for given in [state.given] if unit else _conditions(of, k, x, at_sites):
            cuts.append(
                system.cut(
                    "security",
                    f"{name},{'+' if way > 0 else '-'}",
                    way * row,
                    upper,
                    given=given,
                    reach=2 * (1 + abs(shift)),
                )
            )
    return cuts


def _dark(
    of: Outages, x: Floats, at_sites: dict[int, list[int]] | None, tolerance: float
) -> Iterator[ParallelStrategy]:
    """Let each part that a bridge leaves feed itself: no load without plants, and no plant beyond what it can spare."""
    system, net, spare = of.system, of.state.network, of.system.spare_mw
    p = system.injection(x)
    for line in (k for k in of.lines if k in net.bridges):
        side, rest = of.parts(line)
        inflow = -p[side].sum()
        if abs(inflow) <= tolerance:
            continue
        needy, short = (side, inflow) if inflow > 0 else (rest, -inflow)
        conditions = _conditions(of, line, x, at_sites)
        if conditions:
            yield from _feed_itself(
                of, x, line, side, needy, short / max(float(spare[needy].sum()), 1e-9), conditions, tolerance
            )


def _feed_itself(
    of: Outages,
    x: Floats,
    line: int,
    side: Whole,
    needy: Whole,
    rise: float,
    conditions: list[tuple[tuple[int, bool], ...]],
    tolerance: float,
) -> Iterator[ParallelStrategy]:
    system, spare = of.system, of.system.spare_mw
    plants_mw = float(spare[needy].sum())
    share = np.zeros(of.state.network.nodes)
    # The side's shortage, in the terms of the side alone: what it lacks, the rest has too much.
    share[side] = -1.0 if needy is side else 1.0
    shortage = system.row(share, new=False)
    name = of.state.lines[line]
    for given in conditions:
        if plants_mw <= 0:
            yield system.cut("security", f"dark,{name}", shortage, 0.0, given=given, reach=2.0)
            continue
        for n in needy[x[needy] > spare[needy] * (1 - rise) * (1 + tolerance) + tolerance]:
            row = shortage * (spare[n] / plants_mw)
            row[n] += 1.0
            yield system.cut(
                "security", f"fed by {list(system.nodes)[n]},{name}", row, float(spare[n]), given=given, reach=3.0
            )


def _reserves(of: Outages, x: Floats, tolerance: float) -> Iterator[ParallelStrategy]:
    """Keep the same share of every plant of an island free, that of its worst loss of a unit."""
    system, island = of.system, of.state.network.island
    fed, spare, lost = x[: system.modules_at], system.spare_mw, system.lost
    names = list(system.nodes)
    alone = np.flatnonzero((lost * spare > 0) & (of.others_mw <= 0) & (fed > tolerance))
    for n in alone:
        yield _pair(of, names, int(n), None)
    share = np.where(of.others_mw > 0, lost * fed / np.where(of.others_mw > 0, of.others_mw, 1.0), 0.0)
    for i in np.unique(island):
        here = np.flatnonzero((island == i) & (spare > 0))
        if len(here):
            worst = int(here[share[here].argmax()])
            for m in here[fed[here] > spare[here] * (1 - share[worst]) * (1 + tolerance) + tolerance]:
                yield _pair(of, names, int(m), worst)


def _pair(of: Outages, names: list[str], kept: int, lost: int | None) -> ParallelStrategy:
    """Keep one plant's reserve for the loss of another's unit; a plant alone in its island has none to lose to."""
    system = of.system
    row = np.zeros(system.width)
    row[kept] = 1.0
    if lost is not None:
        row[lost] += float(system.spare_mw[kept] * system.lost[lost] / of.others_mw[lost])
    upper = float(system.spare_mw[kept]) if lost is not None else 0.0
    name = f"reserve of {names[kept]},unit {names[kept if lost is None else lost]}"
    reach = 1.0 if lost is None else 1.0 + float(row[lost])
    return system.cut("security", name, row, upper, given=of.state.given, reach=reach)
