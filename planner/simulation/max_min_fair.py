"""Max-min fair rates, and completion times as flows end: the fluid limit of a transport that shares fairly.

With equal flows that start together the last one ends exactly when the most loaded link has carried its load: each rate
is at least the least capacity / load among its links, loads only fall, and that link cannot be faster.
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.simulation.rng import Floats, Ints
from planner.simulation.routing import Routes

TIE = 1e-9  # relative: shares this close are one level


@dataclass(slots=True)
class Filling:
    """Entries of the parts that still have no rate."""

    owner: Ints
    link: Ints
    weight: Floats


def max_min_rates(routes: Routes, active: Ints | None = None) -> Floats:
    """Return the max-min fair rate of every part in bytes per second; 0 of those that are not `active`.

    A link whose fair share is the least among all links that its parts use settles its parts at that share; all such
    links settle in one round (bottleneck precedence: Ros-Giralt and Tsai 2001; the outcome is progressive filling's,
    Bertsekas and Gallager, Data Networks, section 6.5.2).
    """
    rate, filling, links = np.zeros(routes.parts), _filling(routes, active), len(routes.capacity)
    left = routes.capacity.astype(float)
    while len(filling.owner):
        load = np.bincount(filling.link, filling.weight, links)
        share = np.divide(left, load, out=np.full(links, np.inf), where=load > 0)
        first = np.flatnonzero(np.diff(filling.owner, prepend=-1))
        lowest_share = np.minimum.reduceat(share[filling.link], first)
        per_entry = np.repeat(lowest_share, np.diff(first, append=len(filling.owner)))
        lowest = np.full(links, np.inf)
        np.minimum.at(lowest, filling.link, per_entry)
        binding = lowest >= share * (1 - TIE)
        settled = np.logical_or.reduceat(binding[filling.link], first)
        rate[filling.owner[first[settled]]] = lowest_share[settled]
        done = np.repeat(settled, np.diff(first, append=len(filling.owner)))
        left = np.maximum(left - np.bincount(filling.link[done], (filling.weight * per_entry)[done], links), 0.0)
        filling = Filling(filling.owner[~done], filling.link[~done], filling.weight[~done])
    return rate


def _filling(routes: Routes, active: Ints | None) -> Filling:
    owner = routes.owner()
    if active is None:
        return Filling(owner, routes.link, routes.weight)
    wanted = np.zeros(routes.parts, bool)
    wanted[active] = True
    kept = wanted[owner]
    return Filling(owner[kept], routes.link[kept], routes.weight[kept])


def binding(routes: Routes) -> Routes:
    """Return the routes without links that cannot fill up, though all parts run at their narrowest link's rate."""
    owner = routes.owner()
    alone = routes.capacity[routes.link] / routes.weight
    fastest = np.zeros(routes.parts)
    routed = np.flatnonzero(np.diff(routes.start))
    fastest[routed] = np.minimum.reduceat(alone, routes.start[routed]) if len(routed) else 0.0
    full = routes.load(fastest) > routes.capacity * (1 + TIE)
    keep = full[routes.link] | (alone <= fastest[owner] * (1 + TIE))
    start = np.concatenate([[0], np.cumsum(np.bincount(owner[keep], minlength=routes.parts))])
    return replace(routes, start=start, link=routes.link[keep], weight=routes.weight[keep])


def completion_seconds(routes: Routes, *, resolution: float = 0.0) -> Floats:
    """Return when every part ends, all starting at 0 and the rates set anew whenever parts end.

    `resolution`: parts that end within this share of the time passed end in one event, each at its own time, and what
    they free is shared out at the last of them, so late by that share at most. The last end among equal flows stays
    exact: rates still are no less than capacity over the load of the start.
    """
    routes = binding(routes)
    end, left, now = np.zeros(routes.parts), routes.size.astype(float), 0.0
    active = np.flatnonzero(left > 0)
    while len(active):
        rate = max_min_rates(routes, active)[active]
        ends = now + left[active] / rate
        done = ends <= ends.min() * (1 + max(TIE, resolution))
        end[active[done]] = ends[done]
        then = ends[done].max()
        left[active] -= rate * (then - now)
        now, active = then, active[~done]
    return end


def static_tail_seconds(routes: Routes) -> float:
    """Return when the last of equal flows ends: the largest load over capacity of any link."""
    load = routes.load(routes.size)
    return float((load / np.maximum(routes.capacity, 1e-300)).max()) if routes.parts else 0.0
