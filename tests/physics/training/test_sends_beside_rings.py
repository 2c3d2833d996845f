"""Sends that meet rings, against an event-driven step whose NICs share their rate between a send and a ring."""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_schedule import Pass, interleaved
from test_step_parts import CONDITIONS, strategies, toy
from training_toys import layout

from planner.physics.network.transport import wait_for_others
from planner.physics.training import schedule, step_prediction
from planner.physics.training.layer_time import ReplicaGroup, exposed_tail_seconds
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step_prediction import Conditions

TINY = 1e-9


@dataclass
class Device:
    """A stage's passes in order, the end of the one that runs, and what its NIC has yet to send."""

    order: list[Pass]
    at: int = 0
    ends: float = math.inf
    sends: deque[list[Any]] = field(default_factory=deque)
    rings: deque[list[Any]] = field(default_factory=deque)


@dataclass
class SharedStep:
    """A step of 1F1B in which a ring of each layer follows its last backward pass, and shares the NIC with sends."""

    p: int
    v: int
    m: int
    passes: dict[str, float]
    layers: int
    send: float
    ring: float
    shared: bool
    now: float = 0.0
    last: float = 0.0  # end of the last pass
    done: set[tuple[str, int, int]] = field(default_factory=set)  # passes, and what has arrived, at places
    later: list[tuple[float, int]] = field(default_factory=list)  # layers whose gradients will be complete

    def run(self) -> tuple[float, float]:
        """Return when the last pass ends, and the last ring."""
        self.devices = [Device(interleaved(self.p, self.v, self.m, i)) for i in range(self.p)]
        while True:
            for i, x in enumerate(self.devices):
                self._begin(i, x)
            share = {id(x): 0.5 if self.shared and x.sends and x.rings else 1.0 for x in self.devices}
            queues = [(q[0], share[id(x)]) for x in self.devices for q in (x.sends, x.rings) if q]
            events = [x.ends for x in self.devices] + [t for t, _ in self.later[:1]]
            following = min(events + [self.now + q[0] / rate for q, rate in queues])
            if following == math.inf:
                return self.last, self.now
            for q, rate in queues:
                q[0] -= (following - self.now) * rate
            self.now = following
            for i, x in enumerate(self.devices):
                self._end(i, x)
            while self.later and self.later[0][0] < self.now + TINY:
                self.devices[heapq.heappop(self.later)[1]].rings.append([self.ring])

    def _begin(self, i: int, x: Device) -> None:
        """Begin the next pass of a device if its inputs are there."""
        if x.ends < math.inf or x.at == len(x.order):
            return
        kind, chunk, k = x.order[x.at]
        at, ahead = chunk * self.p + i, kind == "F"
        mine = ahead or ("F", at, k) in self.done
        if mine and (at == (0 if ahead else self.p * self.v - 1) or (f"to {kind}", at, k) in self.done):
            x.ends = self.now + self.passes[kind]
            for n in range(1, self.layers if (kind, k) == ("B", self.m - 1) else 1):
                heapq.heappush(self.later, (self.now + self.passes["B"] * n / self.layers, i))

    def _end(self, i: int, x: Device) -> None:
        """End what a device and its NIC have done by now."""
        if x.sends and x.sends[0][0] < TINY:
            self.done.add(x.sends.popleft()[1])
        if x.rings and x.rings[0][0] < TINY:
            x.rings.popleft()
        if x.ends < self.now + TINY:
            kind, chunk, k = x.order[x.at]
            at = chunk * self.p + i
            self.done.add((kind, at, k))
            x.at, x.ends, self.last = x.at + 1, math.inf, self.now
            target = at + 1 if kind == "F" else at - 1
            if 0 <= target < self.p * self.v:
                x.sends.append([self.send, (f"to {kind}", target, k)])
            if (kind, k) == ("B", self.m - 1):
                x.rings.append([self.ring])


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 5), st.integers(1, 3), st.integers(1, 2), st.integers(2, 20), st.integers(2, 20),
    st.integers(1, 3), st.floats(0.05, 0.5), st.floats(0.05, 40),
)  # fmt: skip
def test_the_last_micro_batch_waits_for_a_ring_at_every_send(p, v, rounds, f, b, layers, share, ring) -> None:
    """A step on shared NICs is later by the wait of each send that the schedule counts, and its rings by no more."""
    # So the exchange that ends last takes its own time, and no other pass or micro-batch waits.
    m, send = rounds * p, share * min(f, b)
    (alone, rings_alone), (shared, rings_shared) = (
        SharedStep(p, v, m, {"F": f, "B": b}, layers, send, ring, shared=x).run() for x in (False, True)
    )
    strategy = layout((layers * v,) * p, virtual_stages=v, micro_batches=m)
    free = Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0)
    x = step_prediction.pipeline_of_strategy(toy(overlaps=("gradients", "sends")), free, strategy)
    met = step_prediction.sends_beside_rings(x, p, v, m, racks=2)
    in_flight = exposed_tail_seconds(ring * layers, b / layers, layers)
    assert shared - alone == pytest.approx(float(met * wait_for_others(send, 1.0, in_flight)), abs=1e-6)
    assert rings_shared - shared <= rings_alone - alone + 1e-6


def parts_of(c: Conditions, s: ParallelStrategy, **software: Any) -> dict[str, float]:
    return step_prediction.step_breakdown(toy(layers=sum(s.layers_per_stage), **software), c, s)


@settings(max_examples=30, deadline=None)
@given(strategies(), CONDITIONS, st.sampled_from([1.0, 1.5, 4.0]))
def test_what_meets_only_adds_to_what_is_alone(s: ParallelStrategy, c: Conditions, slower: float) -> None:
    """Lower bounds without the wait stay bounds: every other part is as before, and it never falls as rings slow."""
    m = toy(layers=sum(s.layers_per_stage))
    x = step_prediction.pipeline_of_strategy(m, c, s)
    group = ReplicaGroup(replicas_per_rack=s.replicas_per_rack, racks=s.group_racks(8), shards=s.min_replicas)
    sharded = step_prediction.sharded_times(x, replace(group, slowdown=c.allreduce_slowdown))
    counts = schedule.PipelineCounts(s.pipeline_parallel, s.virtual_stages, s.micro_batches)

    def once(slowdown: float, *, alone: bool = False) -> dict[str, Any]:
        own = replace(group, slowdown=slowdown)
        return step_prediction.once_parts(x, sharded, None, counts, own, max(s.layers_per_stage), 1.0, 0.5, alone=alone)

    bound, found = once(c.allreduce_slowdown, alone=True), once(c.allreduce_slowdown)
    wait = float(found.pop("ring_wait"))
    assert found == bound and 0 <= wait <= float(once(slower * c.allreduce_slowdown)["ring_wait"]) + 1e-12
    met = step_prediction.sends_beside_rings(x, s.pipeline_parallel, s.virtual_stages, s.micro_batches, group.racks)
    assert wait <= met * x.send_per_slowdown * c.allreduce_slowdown * (1 + 1e-9)
    assert parts_of(c, s).get("ring_wait", 0.0) == pytest.approx(wait)


@settings(max_examples=30, deadline=None)
@given(strategies(), CONDITIONS)
def test_nothing_meets_where_rings_follow_the_last_send(s: ParallelStrategy, c: Conditions) -> None:
    """Gradients all after the last backward pass, one stage, or one rack in a ring: the step has no such part."""
    assume(s.zero_stage < 2)
    assert "ring_wait" not in parts_of(c, s, overlaps=("parameters", "sends"))
    if s.pipeline_parallel == 1 or s.group_racks(8) == 1 or s.schedule == "zb-h1":
        assert "ring_wait" not in parts_of(c, s)
