"""Draw figure 1b of Agache et al. 2024 (arXiv 2407.12819): completion times of an exchange, hashed and sprayed.

1,024 hosts at 800 Gbps under three tiers of 16-port switches; each sends 300 MB (3 ms at line rate) to one other at the
same moment. The paper has just under 3 ms as the optimum, 15 ms for RoCEv2 (ECMP), and within 5 % of the optimum for
NDP and Homa, which spray. Queues and pauses are those of `planner.simulation.flow_times`; start-up and
retransmissions are not in it.

Run it as `.venv/bin/python scripts/paper/figure_1b.py [SEEDS] [PICTURE.png]`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from plotting import row, write_picture

from planner.physics import Floats
from planner.simulation.flow_times import TransportName, flow_seconds
from planner.simulation.simulated_routes import Fabric, permutation, tree_of_fabric

BYTES = 300e6
PAPER_MS = {"ecmp": 15.0, "adaptive": None, "spray": 3.0 * 1.05}
TRANSPORTS: tuple[TransportName, ...] = ("ecmp", "adaptive", "spray")


def times(transport: TransportName, seeds: int) -> list[Floats]:
    """Return the completion times of every seed in milliseconds."""
    tree = tree_of_fabric(Fabric(hosts=1024, ports_per_switch=16, tiers=3))
    by_seed = []
    for seed in range(seeds):
        flows = permutation(tree.slots, BYTES, seed)
        by_seed.append(1e3 * flow_seconds(tree, flows, transport, seed))
    return by_seed


def main() -> None:
    """Print a row a transport and draw the distributions."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    completion = {t: times(t, seeds) for t in TRANSPORTS}
    widths = (10, 8, 8, 8, 10, 10, 10, 9)
    print(row(("ms", "p50", "p90", "p99", "tail min", "tail mean", "tail max", "paper"), widths))
    for name, by_seed in completion.items():
        p50, p90, p99 = (float(x) for x in np.percentile(np.concatenate(by_seed), [50, 90, 99]))
        tails = [float(x.max()) for x in by_seed]
        print(row((name, p50, p90, p99, min(tails), float(np.mean(tails)), max(tails), PAPER_MS[name] or "-"), widths))

    def draw(axes: Any) -> None:
        for name, by_seed in completion.items():
            every = np.sort(np.concatenate(by_seed))
            axes.step(every, np.arange(1, len(every) + 1) / len(every), where="post", label=name)
        axes.axvline(1e3 * BYTES / 100e9, color="grey", linestyle=":", label="line rate")
        axes.set(
            xlabel="flow completion time (ms)",
            ylabel="share of flows",
            xlim=(0, None),
            title=f"1,024 hosts, 3 tiers, 800 Gbps, {seeds} seeds",
        )
        axes.legend()

    write_picture(Path(sys.argv[2]) if len(sys.argv) > 2 else None, (6, 4), draw)


if __name__ == "__main__":
    main()
