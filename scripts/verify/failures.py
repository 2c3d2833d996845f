"""Simulate jobs whose parts fail, event by event, beside the closed forms that plans are made with.

Run `.venv/bin/python scripts/verify/failures.py [PLAN ...] [--airesim PATH] [--page]`. Each plan given, random jobs of
16,384 and 98,304 GPUs, and the two cases of the public simulator AIReSim (github.com/karthikp-ubc/airesim, MIT) are
simulated; `--airesim` runs that simulator too, from a checkout of it. `--page` prints the tables of docs/failures.md.
Exits with 1 where the useful share of a job of up to 100,000 GPUs differs by more than 1 % of it.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import simpy

from planner.instance.catalogue_entries import catalogue
from planner.instance.reliability import FailingPart, Reliability
from planner.physics.recovery import CheckpointedJob, Way, ways
from planner.plan.plan import Plan

APART = 0.01  # of the useful share, more than which is too much
KNOWN_GPUS = 100_000  # up to which rates and restarts are reported
Steps = Generator[simpy.Event, Any, None]  # what SimPy runs
STOPS = 20_000  # simulated of each job
MOST = 10**9  # intervals at once
LLAMA_HOURS = 16_384 * 54 * 24 / 419  # GPU-hours to a stop


@dataclass
class Run:
    """One job in simulated time: whole restarts, or going on without replicas; checkpoints in one or two places."""

    env: simpy.Environment
    job: CheckpointedJob
    way: Way
    draw: random.Random
    done: float = 0.0  # seconds of steps
    stops: int = 0

    def process(self) -> Steps:
        """Train until so many stops have come."""
        yield from (self._elastic() if self.way.recovery == "elastic" else self._restarted())

    def _restarted(self) -> Steps:
        """Work for an interval, write, and after a stop restart from the last checkpoint that is left."""
        mean, way, share = 1 / float(self.job.stops_per_second), self.way, self.job.r.correlated_share
        older = way.target == "memory"
        stored, wrote = self.job.write_seconds("storage"), float(self.job.write_seconds(way.target))
        far = math.sqrt(2 * stored * mean / share) if older and share else math.inf
        left, kept, since = self.draw.expovariate(1 / mean), 0.0, 0.0  # to the stop; in storage; since that copy
        while self.stops < STOPS:
            work = float(way.interval_seconds)
            due = older and since + work >= far
            need = work + wrote + (stored if due else 0.0)
            if left >= need:
                whole = (
                    1
                    if due
                    else min(int(left / need), math.ceil((far - since) / work) - 1 if math.isfinite(far) else MOST)
                )
                whole = max(1, whole)
                yield self.env.timeout(whole * need)
                left, self.done, since = left - whole * need, self.done + whole * work, since + whole * work
                if due:
                    kept, since = self.done, 0.0
                continue
            yield self.env.timeout(left + float(self.job.restart_seconds(way.recovery)))
            self.stops += 1
            if older and self.draw.random() < share:
                self.done, since = kept, 0.0
            left = self.draw.expovariate(1 / mean)

    def _elastic(self) -> Steps:
        """Train with the replicas that are there; each stop takes one away until its racks are back."""
        job, r, way = self.job, self.job.r, self.way
        each = float(job.stops_per_second) / job.replicas
        away: list[float] = []  # times at which replicas are back
        interval, wrote = float(way.interval_seconds), float(job.write_seconds(way.target))
        copied = float(job.write_seconds("memory")) / float(job.step_seconds) if job.shares_state else 0.0
        slowed, since = 1 + copied + (wrote / interval if math.isfinite(interval) else 0.0), 0.0
        while self.stops < STOPS:
            away = [t for t in away if t > self.env.now]
            there = job.replicas - len(away)
            stop = self.draw.expovariate(each * there) if there else math.inf
            span = min(stop, min(away) - self.env.now) if away else stop
            yield self.env.timeout(span)
            gained = span * there / job.replicas / slowed
            self.done, since = self.done + gained, (since + gained) % interval
            if span < stop:
                continue
            self.stops += 1
            away.append(self.env.now + r.rejoin_seconds)
            lost = r.elastic_stall_seconds
            if self.draw.random() < r.correlated_share:
                lost += float(job.restart_seconds())
                self.done, since = self.done - since, 0.0
            yield self.env.timeout(lost)


def useful(job: CheckpointedJob, way: Way, seed: int = 0) -> float:
    """Return the simulated share of time that goes into steps which last."""
    env = simpy.Environment()
    run = Run(env, job, way, random.Random(seed))
    env.process(run.process())
    env.run()
    return run.done / env.now


def random_jobs(gpus: int, count: int, seed: int) -> Iterator[tuple[str, CheckpointedJob]]:
    """Yield jobs of the catalogue's rates with other replicas, states, steps and figures drawn around them."""
    known, draw = Reliability.model_validate(catalogue("reliability")["llama3-2024"]), random.Random(seed)
    for n in range(count):
        scale = {
            name: draw.uniform(0.5, 2.0) for name in ("restart_seconds", "elastic_stall_seconds", "rejoin_seconds")
        }
        r = known.replaced(**{k: getattr(known, k) * v for k, v in scale.items()})
        replicas = draw.choice([16, 32, 64, 128])
        yield (
            f"{gpus:,} GPUs, {replicas} replicas ({n + 1})",
            CheckpointedJob(
                r=r,
                gpus=float(gpus),
                replica_gpus=gpus / replicas,
                replicas=replicas,
                state_bytes=draw.uniform(0.4e12, 2e12) * 14,
                step_seconds=draw.uniform(2, 15),
                shares_state=draw.random() < 0.5,
            ),
        )


def of_plan(path: Path) -> tuple[str, CheckpointedJob]:
    """Return the job of a plan."""
    plan = Plan.model_validate(json.loads(path.read_text(encoding="utf-8")))
    x, layout, r = plan.reliability, plan.layout, plan.instance.reliability
    if x is None or layout is None or not isinstance(r, Reliability):
        raise SystemExit(f"{path}: counts no failures; give a plan with a reliability section")
    return path.stem, CheckpointedJob(
        r=r,
        gpus=float(layout.gpus_used),
        replica_gpus=layout.gpus_used / layout.data_parallel,
        replicas=layout.data_parallel,
        state_bytes=x.checkpoint_bytes,
        step_seconds=layout.metrics.step_seconds,
        shares_state=layout.zero_stage > 0,
    )


def airesim_case(gpus: int) -> CheckpointedJob:
    """Return a case of AIReSim: Llama 3's rate, five minutes a stop, and no work lost beside them."""
    r = Reliability(
        parts={"any": FailingPart(gpu_hours_per_event=LLAMA_HOURS)}, restart_seconds=300.0, recoveries=("restart",)
    )
    return CheckpointedJob(r=r, gpus=float(gpus), replica_gpus=gpus / 16, replicas=16, state_bytes=0.0)


def theirs(path: Path, gpus: int) -> float:
    """Return the useful share that AIReSim gives a case: servers of eight GPUs, warm standbys enough."""
    sys.path.insert(0, str(path))
    from airesim.params import Params
    from airesim.simulator import Simulator

    servers, days = gpus // 8, 30 if gpus < 50_000 else 6
    spare = max(16, servers // 64)
    p = Params(
        random_failure_rate=8 / (LLAMA_HOURS * 60),
        systematic_failure_fraction=0.0,
        recovery_time=5.0,
        job_size=servers,
        job_length=days * 1440.0,
        warm_standbys=spare,
        working_pool_size=servers + spare + max(48, servers // 32),
    )
    found = [Simulator(p.with_overrides(seed=seed)).run().effective_training_ratio for seed in range(10)]
    return float(sum(found) / len(found))


def compare(name: str, job: CheckpointedJob, *, every: bool) -> Iterator[tuple[str, str, float, float]]:
    """Yield the ways of a job, or its best one, with closed form and simulation."""
    found = sorted(ways(job, spares=True), key=lambda w: float(w.stretch))
    for way in found if every else found[:1]:
        yield name, f"{way.recovery}, {way.target}", 1 / float(way.stretch), useful(job, way)


PUBLISHED = (
    ("Llama 3, 16,384 GPUs: useful time", "> 90 %", 16_384, 405e9 * 14, "restart"),
    ("ByteRobust, 9,600 GPUs: useful time", "97 %", 9_600, 70e9 * 14, "warm-spares"),
    ("Meta, 98,304 GPUs: elastic", "80 %", 98_304, 1e12 * 14, "elastic"),
    ("Meta, 98,304 GPUs: synchronous", "44 %", 98_304, 1e12 * 14, "restart"),
)
MEAN_HOURS = (
    ("RSC-1 rate, 16,384 GPUs: mean time to a stop", 1.8, 16_384, 24 * 8 * 1000 / 6.50),
    ("RSC-1 rate, 131,072 GPUs: mean time to a stop", 0.23, 131_072, 24 * 8 * 1000 / 6.50),
    ("Llama 3, stops of 1,000 node-days", 3.79, None, LLAMA_HOURS),
)


def published() -> Iterator[tuple[str, str, str]]:
    """Yield what was published of real runs beside what the closed forms give with the catalogue's figures."""
    entries = {k: Reliability.model_validate(v) for k, v in catalogue("reliability").items()}
    for name, said, gpus, state, recovery in PUBLISHED:
        r = entries["meta-98k-2025" if gpus > 50_000 else "llama3-2024"]
        job = CheckpointedJob(
            r=r.replaced(recoveries=(recovery,)),
            gpus=float(gpus),
            replica_gpus=gpus / 48,
            replicas=48,
            state_bytes=state,
            step_seconds=10.0,
        )
        best = min(float(w.stretch) for w in ways(job, spares=True))
        yield name, said, f"{100 / best:.0f} %"
    for name, value, count, hours in MEAN_HOURS:
        rate = Reliability(parts={"any": FailingPart(gpu_hours_per_event=hours)})
        if count is None:
            yield name, f"{value}", f"{24 * 8 * 1000 / hours:.2f}"
        else:
            job = CheckpointedJob(r=rate, gpus=count, replica_gpus=1, state_bytes=0.0)
            yield name, f"{value} h", f"{1 / (3600 * float(job.stops_per_second)):.2f} h"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Write a table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def main() -> int:
    """Print every comparison; return 1 where one is too far off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="*", type=Path)
    parser.add_argument("--airesim", type=Path, help="a checkout of AIReSim, to run beside")
    parser.add_argument("--page", action="store_true", help="print the tables of docs/failures.md")
    parser.add_argument("--jobs", type=int, default=4, help="random jobs of each size")
    asked, wrong = parser.parse_args(), 0
    rows: list[tuple[str, ...]] = []
    jobs = [of_plan(p) for p in asked.plans]
    jobs += [x for gpus in (16_384, 98_304) for x in random_jobs(gpus, asked.jobs, gpus)]
    for k, (name, job) in enumerate(jobs):
        for row in compare(name, job, every=k >= len(asked.plans)):
            apart = abs(row[3] / row[2] - 1)
            wrong += apart > APART and float(job.gpus) <= KNOWN_GPUS
            rows.append((row[0], row[1], f"{row[2]:.4f}", f"{row[3]:.4f}", f"{100 * apart:.2f} %"))
    cases: list[tuple[str, ...]] = []
    for gpus, said in ((16_384, 0.972), (100_000, 0.862)):
        job = airesim_case(gpus)
        way = next(ways(replace(job, step_seconds=1.0), spares=False))
        own, closed = useful(job, way), 1 / (1 + 300 * float(job.stops_per_second))
        wrong += abs(own / closed - 1) > APART
        run = f"{theirs(asked.airesim, gpus):.3f}" if asked.airesim else "not run"
        cases.append((f"{gpus:,} GPUs", f"{said}", run, f"{own:.3f}", f"{closed:.3f}"))
    print(table(("job", "way to go on", "closed form", "simulated", "apart"), rows), end="\n\n")
    print(table(("case of AIReSim", "published", "run here", "our simulation", "closed form"), cases), end="\n\n")
    if asked.page:
        print(table(("run", "published", "closed form"), list(published())), end="\n\n")
    print(f"{wrong} more than {100 * APART:g} % apart")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
