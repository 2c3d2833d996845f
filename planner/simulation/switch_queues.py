"""Bytes that wait at switches, link by link and step by step: the one model of when flows end, under every transport.

A fluid in steps of time. A host serves its flows in turn. Every other link serves the bytes that wait before it in
proportion to what each flow has there (a queue first in, first out, well mixed). Bytes wait at the switch behind the
link that brought them; once more than `xoff_bytes` of one link's bytes wait there, priority flow control (IEEE
802.1Qbb) pauses that link as a whole, whatever its bytes are bound for, until they are back to `xon_bytes`. So the
queue of a receiver that many send to fills, its leaf pauses the links that feed it, the spines behind those fill, and
the tree of paused links grows hop by hop towards the senders for as long as more comes in than drains; flows that
merely cross it wait.

What differs between transports is the path (`planner.simulation.flow_times`).

Limits: senders keep the line rate (what DCQCN or HPCC do after a round trip is left out, so pauses are the most that
can be); one priority; fixed thresholds per ingress link and no shared buffer; a fluid has no packets; nothing is lost.
Measured against `scripts/verify/packets.py`: 32 to 1,024 hosts, two and three tiers, 1:1 to 4:1, flows of 2 to 300 MB.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.physics.ticks import tick
from planner.simulation.rng import Floats, Ints
from planner.simulation.routing import Routes

DONE = 1e-6  # share of a flow that may be missing at its end: a fluid leaves a queue as an exponential


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Thresholds of an ingress link at the rate of a host, and the step of time.

    A link of several cables, or of a faster one, has its multiple. A pause acts two steps after its threshold: one for
    the cable, whose bytes are on their way, and one for the pause itself.
    """

    xoff_bytes: float = 256e3  # a share of a 64 MB buffer over 64 ports, less headroom (unsourced estimate)
    xon_bytes: float = 200e3
    step_seconds: float = 0.5e-6
    max_steps: int = 400_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """What pauses did.

    Attributes
    ----------
    end
        When each part of a flow ended; infinite for those that were not waited for.
    paused
        Part of the time that each link was paused.
    most_paused
        Most links that were paused at one time.
    """

    end: Floats
    paused: Floats
    most_paused: int


# Writes into the links (third) of entries, of the parts that they belong to (second), those of the parts that start
# (first), from the bytes that wait before every link (fourth).
StartParts = Callable[[Ints, Ints, Ints, Floats], None]


class Queues:
    """Entries of routes in order of travel, and the bytes that wait at each."""

    def __init__(self, routes: Routes, rate: float, p: Pauses, start_parts: StartParts | None) -> None:
        """Let the bytes of the parts that nothing goes before wait at their first links.

        `rate`: of a host's link, for which the thresholds are.
        """
        self.routes, self.p, self.start_parts = routes, p, start_parts
        self.used = np.arange(len(routes.capacity))
        self.link, self.owner = routes.link.copy(), routes.owner()
        if start_parts is None:
            self.used, self.link = np.unique(routes.link, return_inverse=True)
        capacity = routes.capacity[self.used]
        self.host_step = rate * p.step_seconds
        self.room, many = capacity * p.step_seconds, np.maximum(1.0, capacity / rate)
        self.xoff, self.xon = p.xoff_bytes * many, p.xon_bytes * many
        self.hop, self.share = routes.hop, routes.weight
        self.least = np.maximum(self.room, 1e-300)  # that no quotient leaves the range of floats
        self.waiting: Floats = np.zeros(len(self.link))
        self.missing = routes.size.astype(float)
        self.paused, self.due = np.zeros(len(capacity), bool), np.zeros(len(capacity), bool)
        self.started = np.zeros(routes.parts, bool)
        self._arrange(np.ones(len(self.link), bool))
        self._start(np.flatnonzero(routes.after < 0), np.zeros(len(capacity)))

    def _arrange(self, kept: np.ndarray) -> None:
        """Keep some entries, and number the groups of a part's entries at one hop: those before and after each."""
        self.link, self.owner, self.hop = self.link[kept], self.owner[kept], self.hop[kept]
        self.share, self.waiting = self.share[kept], self.waiting[kept]
        own = np.diff(self.owner, prepend=-1) != 0
        opens = own | (np.diff(self.hop, prepend=-1) != 0)
        self.group, self.groups = np.cumsum(opens) - 1, int(opens.sum())
        first = own[opens]
        last, at = np.append(first[1:], True), np.arange(self.groups)
        self.first, self.last = first[self.group], np.flatnonzero(last[self.group])
        self.before = np.where(first, self.groups, at - 1)[self.group]
        self.behind = np.where(last, self.groups, at + 1)[self.group]
        self.single, self.whole = self.groups == len(self.link), bool((self.share == 1).all())
        self.most = np.where(self.first, self.host_step, np.inf)  # offered at once: a host serves its flows in turn
        self.sums: Floats = np.zeros(self.groups + 1)

    def _start(self, parts: Ints, queue: Floats) -> None:
        """Let parts begin: all their bytes wait at their first links."""
        if len(parts):
            if self.start_parts is not None:
                self.start_parts(parts, self.owner, self.link, queue)
            self.started[parts] = True
            new = self.first & np.isin(self.owner, parts)
            self.waiting[new] = (self.routes.size[self.owner] * self.share)[new]

    def _shared(self, amount: Floats, groups: Ints) -> Floats:
        """Return of every entry its share of the sum of a group; of none, nothing."""
        self.sums[:-1] = amount if self.single else np.bincount(self.group, amount, self.groups)
        return self.sums[groups] if self.whole else self.share * self.sums[groups]

    def step(self) -> None:
        """Serve every link for one step of time, then pause and start what is due."""
        links, parts = len(self.room), self.routes.parts
        offered = np.minimum(self.waiting, self.most)
        queue = np.bincount(self.link, offered, links)
        rate = np.where(self.paused, 0.0, self.room / np.maximum(queue, self.least))
        served = offered * rate[self.link]
        self.waiting += self._shared(served, self.before) - served
        self.missing -= np.bincount(self.owner[self.last], served[self.last], parts)
        brought = np.bincount(self.link, self._shared(self.waiting, self.behind), links)
        self.paused, self.due = self.due, (brought > self.xoff) | (self.due & (brought > self.xon))
        if not self.started.all():
            at_host = np.bincount(self.owner[self.first], self.waiting[self.first], parts)
            left = self.started & (at_host <= self.host_step)
            self._start(np.flatnonzero(~self.started & left[self.routes.after]), queue.astype(float))

    def forget(self, ended: np.ndarray) -> None:
        """Drop the entries of parts that have ended, once they are a fifth of all."""
        kept = ~ended[self.owner]
        if 5 * np.count_nonzero(kept) < 4 * len(kept):
            self._arrange(kept)


def spread(
    routes: Routes, rate: float, waited: Ints, p: Pauses | None = None, start_parts: StartParts | None = None
) -> Spread:
    """Return what pauses do until the `waited` parts have ended; the others send for as long as that takes.

    A flow from a host to itself loads no link and ends at once.

    `rate`: bytes per second of a host's link in a plane.

    Raises
    ------
    InputError
        The flows have not ended after the last step.
    """
    p = p or Pauses()
    q = Queues(routes, rate, p, start_parts)
    end, most, steps = np.where(np.diff(routes.start) > 0, np.inf, 0.0), 0, np.zeros(len(q.room))
    step, due = 0, np.isinf(end[waited]).any()
    while due and step < p.max_steps:
        tick()
        q.step()
        step += 1
        ended = np.isinf(end) & (q.missing <= DONE * routes.size)
        steps += q.due
        most = max(most, int(np.count_nonzero(q.due)))
        if ended.any():
            end[ended] = step * p.step_seconds
            q.forget(np.isfinite(end))
            due = np.isinf(end[waited]).any()
    if due:
        late = f"{int(np.isinf(end[waited]).sum())} flows have not ended"
        raise InputError(f"pauses: {late} after {p.max_steps * p.step_seconds:g} s; give more steps")
    paused = np.zeros(len(routes.capacity))
    paused[q.used] = steps / max(step, 1)
    return Spread(end=end, paused=paused, most_paused=most)
