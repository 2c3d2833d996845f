"""When simulated flows end under each transport: the bytes that wait at switches, step by step, and pauses."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from planner.errors import InputError
from planner.physics import Floats, Ints, tick
from planner.simulation import simulated_routes
from planner.simulation.simulated_routes import Alive, Flows, Routes, Tree

DONE = 1e-6  # share of a flow that may be missing at its end: a fluid leaves a queue as an exponential
ROUNDING = 1e-9  # of sums of rates
# Batches of bytes before a link, which leave in the order in which they came: first in, first out; a batch leaves in
# proportion. By 16 and 64 the medians of scripts/verify/packets.py are within 4 %. Above so many pairs of flow and link
# all bytes of a link are one batch.
BATCHES, MANY_ENTRIES = 8, 1 << 19
OF_LINKS = "room", "xoff", "xon", "paused", "due", "oldest", "batches", "newest", "queue"
PROGRESS_STEPS = 16  # between two reports
FLOWLETS = 8  # of a flow in each plane, one after the other: few enough to stay quick
# Flowlets are this much shorter or longer at most: a fluid would keep flows in step that packets put out of step, and
# all flows of a leaf would choose at once. By 0.1 and 0.3 tails are the same within 6 % (128 hosts; 1:1 to 4:1).
UNEVEN = 0.1
TransportName = Literal["ecmp", "spray", "adaptive"]
STEP_BYTES = 50e3  # that a host sends in a step: half a microsecond at 800 Gbps, of a cable and of a switch
# Longest flows that are followed step by step. By packets (128 hosts, 1:1 to 4:1), flows of 300 MB have the tails of
# 24 MB, times 12.5, within 1 % under ECMP and spraying and 7 % under adaptive routing; hashed flows of 8 MB within 2 %.
FLOW_BYTES, COARSE_FLOW_BYTES = 24e6, 8e6
FINE_PARTS = 2048  # more parts of flows than these are followed as flows of 8 MB
# At 8:1 the tails of hashed flows are within 0.3 % of those of 10,000 steps.
MOST_STEPS, LEAST_STEPS = 2_000, 120  # of the ideal time, and of what the busiest host sends
PACKET_BYTES = 4096.0  # the largest MTU of RoCE (InfiniBand Architecture Specification, volume 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Pauses of simulated flows: thresholds of an ingress link at the rate of a host, and the step of time.

    A link of several cables, or of a faster one, has its multiple. A pause acts two steps after its threshold: one for
    the cable, whose bytes are on their way, and one for the pause itself.
    """

    xoff_bytes: float = 256e3  # a share of a 64 MB buffer over 64 ports, less headroom (unsourced estimate)
    xon_bytes: float = 200e3
    step_seconds: float = 0.5e-6
    max_steps: int = 400_000


class Queues:
    """Queues of simulated flows: entries of routes in order of travel, and the bytes that wait at each."""

    def __init__(self, routes: Routes, rate: float, pauses: Pauses, view: "LocalView | None") -> None:
        """Queue the bytes of the parts that nothing goes before; `rate`: of a host's link in bytes per second."""
        self.routes, self.view, self.alike, capacity = routes, view, routes.alike, routes.capacity
        self.link, self.owner = routes.link.copy(), routes.owner()
        self.hop, self.share, self.host_step = routes.hop, routes.weight, rate * pauses.step_seconds
        self.late = np.zeros(routes.parts, np.int64)  # steps from the last entry of a part that is kept to its end
        if view is None:
            if self.alike is None and (self.share == 1).all() and pauses.xoff_bytes >= self.host_step:
                self._drop_idle_ends()
            used, self.link = np.unique(self.link, return_inverse=True)
            capacity = capacity[used]
        self.ahead = (self.hop > 0) & (self.hop < (view.tree.tiers if view else 0))  # on a way up not yet chosen
        self.room, many = capacity * pauses.step_seconds, np.maximum(1.0, capacity / rate)
        self.xoff, self.xon = pauses.xoff_bytes * many, pauses.xon_bytes * many
        self.waiting: Floats = np.zeros(len(self.link))
        batches = BATCHES if len(self.link) < MANY_ENTRIES else 0
        self.batch: Floats = np.zeros((len(self.link), batches))  # of the bytes that wait, by the link's batches
        self.oldest, self.batches = np.zeros((2, len(capacity)), np.int64)  # of each link, and those behind it
        self.newest, self.queue = np.zeros((2, len(capacity)))  # bytes of the newest batch, and of all
        self.missing, self.ending = routes.size.astype(float), DONE * routes.size
        self.paused, self.due = np.zeros(len(capacity), bool), np.zeros(len(capacity), bool)
        self.started = np.zeros(routes.parts, bool)
        self._arrange(np.ones(len(self.link), bool))
        self._start(np.flatnonzero(routes.after < 0), np.zeros(len(capacity)))

    def _drop_idle_ends(self) -> None:
        """Drop the last links of flows' parts where nothing can wait and that pause no link: each is a step more."""
        # Such a link has one part alone, is no slower than the one before it, and is like all links behind that one.
        link, start = self.link, self.routes.start
        capacity, many = self.routes.capacity[link], np.bincount(link)
        idle = (np.diff(self.owner, prepend=-1) == 0) & (many[link] == 1)
        idle[1:] &= capacity[1:] >= capacity[:-1]
        end, own = start[1:] - 1, np.flatnonzero(np.diff(start) > 1)
        while len(own := own[idle[end[own]]]):
            before = link[end[own] - 1]
            own = own[np.bincount(before, minlength=len(many))[before] == many[before]]
            end[own] -= 1
        kept = np.arange(len(link)) <= end[self.owner]
        self.late = start[1:] - 1 - end
        self.link, self.owner = link[kept], self.owner[kept]
        self.hop, self.share = self.hop[kept], self.share[kept]

    def _arrange(self, kept: np.ndarray) -> None:
        """Keep some entries of the queues, and number the groups of a part's entries at one hop and around each."""
        self.link, self.owner, self.hop = self.link[kept], self.owner[kept], self.hop[kept]
        self.share, self.waiting, self.batch = self.share[kept], self.waiting[kept], self.batch[kept]
        self.ahead, self.alike = self.ahead[kept], None if self.alike is None else self.alike[kept]
        own = np.diff(self.owner, prepend=-1) != 0
        opens = own | (np.diff(self.hop, prepend=-1) != 0)
        self.group, self.groups = np.cumsum(opens) - 1, int(opens.sum())
        first = own[opens]
        last, at = np.append(first[1:], True), np.arange(self.groups)
        self.first, self.last = first[self.group], np.flatnonzero(last[self.group])
        self.ending_parts = self.owner[self.last]
        self.before = np.where(first, self.groups, at - 1)[self.group]
        self.behind = np.where(last, self.groups, at + 1)[self.group]
        self.single, self.whole = self.groups == len(self.link), bool((self.share == 1).all())
        self.most = np.where(self.first, self.host_step, np.inf)  # offered at once: a host serves its flows in turn
        self.sums: Floats = np.zeros(self.groups + 1)

    def _start(self, parts: Ints, queue: Floats) -> None:
        if len(parts):
            self.started[parts] = True
            new = self.first & np.isin(self.owner, parts)
            if self.view is not None:
                self.view.choose_links(np.flatnonzero(new), self.owner, self.link, queue)
            self.waiting[new] = (self.routes.size[self.owner] * self.share)[new]
            self.batch[new, :1] = self.waiting[new, None]

    def _moved(self, amount: Floats, on: int) -> Floats:
        """Return every entry's share of the sum of the group before it (1) or behind it (-1) on its flow's route."""
        self.sums[:-1] = amount if self.single else np.bincount(self.group, amount, self.groups)
        of_groups: Floats = self.sums[self.before if on == 1 else self.behind]
        return of_groups if self.whole else self.share * of_groups

    def step(self) -> None:
        """Serve the queue of every link for one step of time, then pause links and start parts that are due."""
        parts, fifo = self.routes.parts, self.batch.size > 0
        oldest = self._places(self.oldest) if fifo else slice(None)
        waiting = (self.batch.reshape(-1) if fifo else self.waiting)[oldest]
        offered, room = np.minimum(waiting, self.most), self.room * ~self.paused
        queue = self._sum(offered)
        before, sent = np.maximum(queue, self.queue), np.minimum(queue, room)
        served = offered * (sent / np.maximum(queue, 1e-300)).take(self.link)
        if fifo:
            self.batch.reshape(-1)[oldest] = waiting - served
            served += self._serve_next(room - queue)
        if self.view is not None and len(new := np.flatnonzero(self.ahead[1:] & (served[:-1] > 0)) + 1):
            self.view.choose_links(new, self.owner, self.link, before)
            self.ahead[new] = False
        came = self._moved(served, 1)
        self.waiting += came - served
        if fifo:
            # What came lines up behind what waits: in a link's newest batch, or in a new one if that is large.
            count, many = self.batch.shape[1], self._sum(came)
            self.queue = self._sum(np.where(self.first, 0, self.waiting))
            self.batch.reshape(-1)[self._places((self.oldest + self.batches) % count)] += came
            self.newest = np.minimum(self.newest + many, self.queue)
            large = self.newest * (1 + ROUNDING) >= np.maximum(self.room, self.queue / (count - 1))
            full = large & (self.batches < count - 1)
            self.batches, self.newest = self.batches + full, np.where(full, 0.0, self.newest)
        self.missing -= np.bincount(self.ending_parts, served[self.last], parts)
        brought = self._sum(self._moved(self.waiting, -1)) * (1 - ROUNDING)  # what is at a threshold is not above it
        self.paused, self.due = self.due, (brought > self.xoff) | (self.due & (brought > self.xon))
        if not self.started.all():
            at_host = np.bincount(self.owner[self.first], self.waiting[self.first], parts)
            left = self.started & (at_host <= self.host_step)
            self._start(np.flatnonzero(~self.started & left[self.routes.after]), before)

    def _sum(self, amount: Floats) -> Floats:
        alike = amount if self.alike is None else amount * self.alike
        return np.bincount(self.link, alike, len(self.room)).astype(np.float64)

    def _places(self, batch: Ints) -> Ints:
        return batch.take(self.link) + np.arange(0, self.batch.size, self.batch.shape[1])

    def _serve_next(self, left: Floats) -> Floats:
        """Return the bytes that links whose oldest batch has left send of the next one in the rest of their step."""
        gone, served = (left >= -ROUNDING * self.room) & (self.batches > 0), np.zeros(len(self.link))
        self.oldest, self.batches = (self.oldest + gone) % self.batch.shape[1], self.batches - gone
        some = np.flatnonzero((gone & (left > 0)).take(self.link))
        if len(some):
            batch, link, at = self.batch.reshape(-1), self.link[some], self._places(self.oldest)[some]
            alike = batch[at] if self.alike is None else batch[at] * self.alike[some]
            queue, left = np.bincount(link, alike, len(left)), np.maximum(left, 0.0)
            served[some] = batch[at] * (left / np.maximum(np.maximum(queue, left), 1e-300)).take(link)
            batch[at] -= served[some]
        return served

    def steps_without_a_queue(self) -> Floats | None:
        """Return the last step of each part of flows where no link queues any bytes: then none need be simulated."""
        routes = self.routes
        several = (routes.after >= 0).any() or (routes.size <= 0).any() or (routes.weight != 1).any()
        if self.view is not None or several:
            return None
        hops, sent = np.diff(routes.start), np.minimum(routes.size, self.host_step)
        most = np.minimum(self.room * (1 + ROUNDING), self.xoff)
        if not self.single or (self._sum(sent[self.owner]) > most).any():
            return None
        return np.where(hops > 0, np.ceil((1 - DONE) * routes.size / self.host_step) + hops - 1, 0.0)

    def forget(self, ended: np.ndarray) -> None:
        """Drop entries of flows' parts that have ended, once they are a fifth of all, and the links with none left."""
        kept = ~ended[self.owner]
        if 5 * np.count_nonzero(kept) < 4 * len(kept):
            self._arrange(kept)
            if self.view is None:
                left, self.link = np.unique(self.link, return_inverse=True)
                for name in OF_LINKS:
                    setattr(self, name, getattr(self, name)[left])


def spread(
    routes: Routes,
    rate: float,
    waited: Ints,
    pauses: Pauses | None = None,
    view: "LocalView | None" = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> tuple[Floats, int]:
    """Simulate flows with pauses until the `waited` parts end, while others keep sending.

    Return the seconds when each part of a flow ended, infinite for those that were not waited for, and the most links
    that were paused at one time. `rate`: bytes per second of a host's link in a plane. `progress`: takes the share of
    the bytes that have arrived. A flow from a host to itself ends at once. InputError: the flows have not ended after
    the last step.
    """
    pauses = pauses or Pauses()
    tick()
    queues = Queues(routes, rate, pauses, view)
    alone = queues.steps_without_a_queue()
    if alone is not None and len(waited) and alone[waited].max() <= pauses.max_steps:
        return np.where(alone <= alone[waited].max(), alone * pauses.step_seconds, np.inf), 0
    end, most = np.where(np.diff(routes.start) > 0, np.inf, 0.0), 0
    queues.missing[end == 0] = np.inf
    step, due, sent = 0, np.isinf(end[waited]).any(), max(1e-300, float(routes.size.sum()))
    while due and step < pauses.max_steps:
        tick()
        queues.step()
        step += 1
        if progress is not None and step % PROGRESS_STEPS == 0:
            progress(1 - float(queues.missing[np.isinf(end)].sum()) / sent)
        ended = queues.missing <= queues.ending
        most = max(most, int(np.count_nonzero(queues.due)))
        if ended.any():
            end[ended], queues.missing[ended] = (step + queues.late[ended]) * pauses.step_seconds, np.inf
            queues.forget(np.isfinite(end))
            due = np.isinf(end[waited]).any()
    if due:
        late = f"{int(np.isinf(end[waited]).sum())} flows have not ended"
        raise InputError(f"pauses: {late} after {pauses.max_steps * pauses.step_seconds:g} s; give more steps")
    return end, most


class LocalView:
    """Flowlets of adaptive routing, each sent up when it starts by the least loaded outputs of the switches it passes.

    A switch sees what waits before its own outputs, and not what lies behind them: on the way down a flowlet meets
    whatever others chose. No choice is reconsidered. A host has as many flowlets under way as planes, and gives each
    the plane before whose port the least waits. Parallel cables share evenly.
    """

    def __init__(self, tree: Tree, flows: Flows, alive: Alive, seed: int, packet_bytes: float) -> None:
        """Divide flows into flowlets whose links are chosen later; loads of outputs count in whole packets."""
        self.tree, self.flows, self.alive, self.planes = tree, flows, alive, np.arange(len(tree.planes))
        self.merged = replace(tree, bundle=(1,) * tree.tiers)  # parallel cables between two switches as one
        self.seed, self.packet = seed, packet_bytes
        self.capacity, planes, count = alive.capacity(), len(tree.planes), len(flows)
        self.meeting = tree.meeting_tier(flows.source, flows.target)
        self.ends = [(flows.source // span, flows.target // span) for span in tree.spans[: tree.tiers]]
        flow = np.tile(np.arange(count), planes * FLOWLETS)
        passing = [np.flatnonzero(self.meeting[flow] > tier) for tier in range(tree.tiers)]
        ends = [
            (part, simulated_routes.hop_of(tree, tier, down)) for tier, part in enumerate(passing) for down in (0, 1)
        ]
        entries = ((part, np.zeros((len(part), 1), np.int64), hop, 1.0) for part, hop in ends)
        shares = 1 + UNEVEN * (simulated_routes.words(seed, 8, np.arange(len(flow))) / 2.0**63 - 1).reshape(-1, count)
        size, before = (flows.size * shares / shares.sum(axis=0)).ravel(), np.arange(len(flow)) - planes * count
        self.plane, self.position = np.zeros((2, len(flow)), np.int64)
        self.all_open = [np.ones((planes, width), bool) for width in tree.widths] if alive.all_reach else None
        self.routes: Routes = simulated_routes.sorted_routes(entries, flow, size, self.capacity, np.maximum(before, -1))

    def choose_links(self, entries: Ints, owner: Ints, link: Ints, queue: Floats) -> None:
        """Choose the links of flowlets whose first bytes come, one by one in a random order, by what waits now."""
        # At its host a flowlet gets a plane, at each switch an output up; from where it turns round one way leads down.
        waiting, parts = np.rint(queue / self.packet), owner[entries]
        salts = simulated_routes.words(self.seed, 7, parts)
        order = np.argsort(salts, kind="stable")
        each = (x[order].tolist() for x in (parts, entries, entries - np.searchsorted(owner, parts), salts))
        for part, at, t, salt in zip(*each, strict=True):
            flow = int(self.routes.flow[part])
            tier = int(self.meeting[flow])
            source, target = int(self.flows.source[flow]), int(self.flows.target[flow])
            reaching = self.all_open or self.alive.reaching(source, target, tier, self.planes)
            if t == 0:
                ports = self._links(0, int(self.ends[0][0][flow]), self.planes, 0)
                best = self._least(ports, waiting, reaching[0][:, 0], salt)
                if best is None:
                    simulated_routes.refuse_cut_off(self.tree, self.flows, flow)
                self.plane[part] = best
            plane = int(self.plane[part])
            options = int(self.position[part]) * self.tree.up[t] + np.arange(self.tree.up[t])
            outputs = self._links(t, int(self.ends[t][0][flow]), plane, options)
            best = self._least(outputs, waiting, reaching[t + 1][plane, options], salt // (t + 2)) or 0
            self.position[part], link[at] = options[best], outputs[best]
            waiting[outputs[best]] += 1
            if t == tier - 1:
                for down in range(tier):
                    here = options[best] // (self.tree.widths[tier] // self.tree.widths[down + 1])
                    link[at + tier - down] = self._links(down, int(self.ends[down][1][flow]), plane, here, down=True)

    def _links(self, tier: int, subtree: int, plane: Ints | int, position: Ints | int, *, down: bool = False) -> Ints:
        return np.asarray(self.merged.link(self.merged.cable(tier, subtree, position), down=down, plane=plane))

    def _least(self, outputs: Ints, waiting: Floats, allowed: np.ndarray, salt: int) -> int | None:
        """Return the least loaded output allowed to a flowlet, the first of equal ones from a place by `salt`."""
        order = (np.arange(len(outputs)) + salt % len(outputs)) % len(outputs)
        order = order[allowed[order]]
        loads = (waiting[outputs[order]] + 1) / np.maximum(self.capacity[outputs[order]], 1e-300)
        return int(order[loads.argmin()]) if len(order) else None


def ideal_seconds(tree: Tree, flows: Flows) -> float:
    """Return the seconds of simulated flows that no transport beats: nothing failed, links and planes loaded evenly."""
    return simulated_routes.spray(replace(tree, planes=(sum(tree.planes),)), flows).fullest_seconds()


def flow_seconds(
    tree: Tree,
    flows: Flows,
    transport: TransportName,
    seed: int,
    failed: int | Sequence[int] = 0,
    *,
    packet_bytes: float = PACKET_BYTES,
    progress: Callable[[float], None] | None = None,
) -> Floats:
    """Compute the seconds until each simulated flow ends, around failed cables; above `FLOW_BYTES` in proportion."""
    out = simulated_routes.failed_cables(tree, failed, seed)
    alive = Alive(tree, out) if len(out) else None
    lanes = len(tree.planes) * len(flows)
    sent = float(np.bincount(flows.source, flows.size).max())
    longest = FLOW_BYTES if lanes <= FINE_PARTS else COARSE_FLOW_BYTES
    even = simulated_routes.spray(replace(tree, planes=(sum(tree.planes),)), flows)
    scale = max(1.0, sent / longest, even.fullest_seconds() * tree.host_rate / (STEP_BYTES * MOST_STEPS))
    usual, step = Pauses(), min(STEP_BYTES * scale, sent / LEAST_STEPS) / tree.host_rate
    pauses = replace(usual, xoff_bytes=usual.xoff_bytes * scale, xon_bytes=usual.xon_bytes * scale, step_seconds=step)
    view, late = None, 0.0
    if transport == "adaptive":
        view = LocalView(tree, flows, alive or Alive(tree), seed, packet_bytes * scale)
        routes = view.routes
    elif transport == "ecmp":
        routes = simulated_routes.ecmp(tree, flows, seed, alive)
    else:
        late = lot_seconds(tree, even, packet_bytes)
        routes = even if alive is None and len(tree.planes) == 1 else simulated_routes.spray(tree, flows, alive)
    followed, kind = (transport == "spray" and routes.classes()) or (routes, slice(None))
    rate, parts = tree.rates[0] * max(tree.planes), np.arange(followed.parts)
    ends, _ = spread(followed, rate, parts, pauses, view, progress=progress)
    end = np.zeros(len(flows))
    np.maximum.at(end, routes.flow, ends[kind])
    return end + late * np.sqrt(end / max(float(end.max()), 1e-300))  # deviations of a sum grow as its root


def lot_seconds(tree: Tree, even: Routes, packet_bytes: float) -> float:
    """Return the seconds by which sprayed flows end late: the fullest cable's time over the mean of its equals, by lot.

    Balls into bins: of M packets that any of n cables may take, one cable gets a binomial number of mean N = M/n and
    variance N (1 - 1/n); the most of C such cables is sqrt(2 ln C) deviations above the mean (Raab and Steger 1998,
    "Balls into bins", theorem 1, for N well above ln C). A packet more is a packet's time at the rate of the cable, and
    the longest flow is one packet at least.
    """
    planes = len(tree.planes)
    load, late, packet_bytes = even.load(even.size), 0.0, min(packet_bytes, float(even.size.max()))
    tiers = np.tile(np.repeat(np.arange(tree.tiers), tree.subtrees[:-1]), 2)  # of the links of classes, up and down
    for tier in range(tree.tiers):
        equal, used = tree.widths[tier + 1] * tree.bundle[tier] * planes, load[(tiers == tier) & (load > 0)]
        if equal > 1 and len(used):
            mean = used.max() / equal / packet_bytes
            behind = np.sqrt(2 * np.log(len(used) * equal) * mean * (1 - 1 / equal))
            late = max(late, float(behind) * packet_bytes * planes / (tree.rates[tier] * sum(tree.planes)))
    return late


def mean_fullest(tree: Tree, hosts: int, networks: int = 1) -> float:
    """Return how many flow times at line rate the fullest link of random permutations takes under ECMP, on average.

    Balls into bins: of the n hosts below a switch each sends a flow out with equal chance, over any cable above alike,
    so a cable has a binomial number of flows. Cables count as independent of each other; `networks`: that are alike.
    """
    tables = list[tuple[float, Floats]]()  # by tier: load of a flow, and log chance that no cable has more than k
    for tier in range(1, tree.tiers):
        if (n := min(tree.spans[tier], hosts)) == hosts:
            break
        cables = tree.widths[tier + 1] * tree.bundle[tier]
        chance = min((hosts - n) / (hosts - 1) / cables, 1 - 1e-12)
        k = np.arange(min(n, int(n * chance + 50 * math.sqrt(n * chance)) + 50))
        odds = np.cumsum(np.log((n - k) / (k + 1) * chance / (1 - chance)))
        at_most = np.cumsum(np.exp(n * math.log1p(-chance) + np.append(0.0, odds)))
        links = 2 * -(-hosts // n) * cables * len(tree.planes) * networks
        tables.append((tree.rates[0] / tree.rates[tier], links * np.log(np.clip(at_most, 1e-300, 1.0))))
    loads = np.unique(np.concatenate([[1.0], *(np.maximum(1.0, flow * np.arange(len(x))) for flow, x in tables)]))
    none_above = np.zeros(len(loads))
    for flow, x in tables:
        none_above += x[np.minimum((loads / flow * (1 + ROUNDING)).astype(np.int64), len(x) - 1)]
    return 1 + float(((1 - np.exp(none_above[:-1])) * np.diff(loads)).sum())
