"""Hold the flow simulation against static counts and packet-level figures, and time it.

Run it as `.venv/bin/python scripts/bench/bench_transport.py [SEEDS]`; compare wall times of one run only.
"""

import resource
import sys
import time
from collections.abc import Sequence

import numpy as np

from planner.simulation.flow_times import TransportName, flow_seconds, ideal_seconds
from planner.simulation.simulated_routes import Fabric, Tree, ecmp, permutation, tree_of_fabric

# Most flows on one link, mean of 40 seeds, random permutation on a k-ary tree of three tiers (counted by hand).
COUNTED = {(8, 1): 4.3, (8, 2): 5.8, (8, 4): 7.9, (16, 1): 5.8, (16, 2): 7.7, (16, 4): 10.8, (32, 1): 6.0, (64, 1): 8.0}
# Tail over line-rate time of a packet-level simulator: 128 hosts, 24 MB flows, RoCE with ECMP and PFC, mean of 5 seeds.
PACKETS = {(8, 1): 5.0, (8, 2): 6.7, (8, 4): 8.8}
TIMED: tuple[tuple[int, TransportName], ...] = tuple(
    (k, t) for k in (16, 32, 64) for t in ("ecmp", "spray", "adaptive")
)


def row(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Align a row of a table to the right."""
    return " ".join(
        f"{c:>{w}.2f}" if isinstance(c, float) else f"{c!s:>{w}}" for c, w in zip(cells, widths, strict=True)
    )


def k_ary(ports: int, ratio: int = 1) -> Tree:
    """Return the full tree of three tiers."""
    return tree_of_fabric(Fabric(hosts=ports**3 // 4, ports_per_switch=ports, oversubscription=(ratio,)))


def compare(seeds: int) -> None:
    """Print the tails under ECMP beside what others counted and simulated."""
    widths = (8, 6, 6, 12, 8, 9, 12, 13, 9, 12)
    print(
        row(
            (
                "hosts",
                "ratio",
                "seeds",
                "mean",
                "counted",
                "off by",
                "(min-max)",
                "with pauses",
                "packets",
                "packets/mean",
            ),
            widths,
        )
    )
    for (ports, ratio), counted in COUNTED.items():
        tree, tails, paused = k_ary(ports, ratio), [], []
        few = seeds if ports <= 16 else min(seeds, 5)
        line = 24e6 / tree.host_rate
        for seed in range(few):
            flows = permutation(tree.slots, 24e6, seed)
            tails.append(ecmp(tree, flows, seed).fullest_seconds() / line)
            if ports == 8 and seed < 10:
                paused.append(flow_seconds(tree, flows, "ecmp", seed).max() / line)
        mean, packets = float(np.mean(tails)), PACKETS.get((ports, ratio))
        span, off = f"{min(tails):.0f}-{max(tails):.0f}", f"{100 * (mean / counted - 1):+.1f} %"
        late = float(np.mean(paused)) if paused else "-"
        print(
            row(
                (
                    tree.hosts,
                    f"{ratio}:1",
                    few,
                    mean,
                    counted,
                    off,
                    span,
                    late,
                    packets or "-",
                    packets / mean if packets else "-",
                ),
                widths,
            )
        )


def clock() -> None:
    """Time a seed of each transport."""
    widths = (8, 10, 9, 12, 9)
    print(row(("hosts", "transport", "seconds", "tail/ideal", "peak MB"), widths))
    for ports, transport in TIMED:
        tree = k_ary(ports)
        flows = permutation(tree.slots, 24e6, 0)
        started = time.perf_counter()
        tail = flow_seconds(tree, flows, transport, 0).max()
        took, ideal = time.perf_counter() - started, ideal_seconds(tree, flows)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(row((tree.hosts, transport, took, float(tail / ideal), f"{peak:.0f}"), widths))


def main() -> None:
    """Compare, then time."""
    compare(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
    clock()


if __name__ == "__main__":
    main()
