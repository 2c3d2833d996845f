"""Max-min fair rates, and completion times as flows come to their end: the fluid limit of a transport that shares fairly.

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
    rate, held, links = np.zeros(routes.parts), _filling(routes, active), len(routes.capacity)
    left = routes.capacity.astype(float)
    while len(held.owner):
        load = np.bincount(held.link, held.weight, links)
        share = np.divide(left, load, out=np.full(links, np.inf), where=load > 0)
        first = np.flatnonzero(np.diff(held.owner, prepend=-1))
        least = np.minimum.reduceat(share[held.link], first)
        per_entry = np.repeat(least, np.diff(first, append=len(held.owner)))
        lowest = np.full(links, np.inf)
        np.minimum.at(lowest, held.link, per_entry)
        binding = lowest >= share * (1 - TIE)
        settled = np.logical_or.reduceat(binding[held.link], first)
        rate[held.owner[first[settled]]] = least[settled]
        done = np.repeat(settled, np.diff(first, append=len(held.owner)))
        left = np.maximum(left - np.bincount(held.link[done], (held.weight * per_entry)[done], links), 0.0)
        held = Filling(held.owner[~done], held.link[~done], held.weight[~done])
    return rate


def _filling(routes: Routes, active: Ints | None) -> Filling:
    owner = routes.owner()
    if active is None:
        return Filling(owner, routes.link, routes.weight)
    wanted = np.zeros(routes.parts, bool)
    wanted[active] = True
    held = wanted[owner]
    return Filling(owner[held], routes.link[held], routes.weight[held])


def binding(routes: Routes) -> Routes:
    """Leave out links that cannot fill up: all their parts at once, each as fast as its own narrowest link lets it, are no more than they carry."""
    owner = routes.owner()
    alone = routes.capacity[routes.link] / routes.weight
    most = np.zeros(routes.parts)
    held = np.flatnonzero(np.diff(routes.start))
    most[held] = np.minimum.reduceat(alone, routes.start[held]) if len(held) else 0.0
    full = routes.load(most) > routes.capacity * (1 + TIE)
    keep = full[routes.link] | (alone <= most[owner] * (1 + TIE))
    start = np.concatenate([[0], np.cumsum(np.bincount(owner[keep], minlength=routes.parts))])
    return replace(routes, start=start, link=routes.link[keep], weight=routes.weight[keep])


def completion_seconds(routes: Routes, *, resolution: float = 0.0) -> Floats:
    """Return when every part ends, all starting at 0 and the rates set anew whenever parts end.

    `resolution`: parts that end within this share of the time passed end in one event, each at its own time, and what they
    free is shared out at the last of them, so late by that share at most. The last end among equal flows stays exact:
    rates still are no less than capacity over the load of the start.
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
