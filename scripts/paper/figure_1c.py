"""Draw figure 1c of Agache et al. 2024 (arXiv 2407.12819): a permutation beside an incast that pauses links (PFC).

2,048 hosts at 800 Gbps under three tiers of 32-port switches; 128 of them send 30 MB each along a permutation, while a
growing number of others send 30 MB each to one host outside it. Both run over hashed paths; the flows of the incast
share no host with the permutation. Times are shown beside those of the same flows with nothing paused.
The limits of the model stand in `planner.simulation.flow_times`.

Run it as `.venv/bin/python scripts/paper/figure_1c.py [SEEDS] [PICTURE.png]`.
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from incast_flows import incast
from plotting import row, write_picture

from planner.physics import Floats
from planner.simulation.flow_times import Pauses, spread
from planner.simulation.simulated_routes import Fabric, ecmp, tree_of_fabric

BYTES, RATE = 30e6, 100e9
SENDERS = (0, 8, 16, 32, 64)


def victims(senders: int, seed: int) -> tuple[Floats, Floats, int]:
    """Return the permutation's times over the line rate's, paused and not, and the most links paused at a time."""
    tree = tree_of_fabric(Fabric(hosts=2048, ports_per_switch=32, tiers=3))
    flows, waited = incast(tree, nodes=128, senders=senders, size=BYTES, sent=BYTES, seed=seed)
    routes = ecmp(tree, flows, seed)
    paused, most = spread(routes, RATE, waited)
    free, _ = spread(routes, RATE, waited, Pauses(xoff_bytes=math.inf, xon_bytes=math.inf))
    return paused[waited] * RATE / BYTES, free[waited] * RATE / BYTES, most


def main() -> None:
    """Print a row a size of the incast and draw the tails."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    widths = (8, 10, 12, 12, 12, 12, 16)
    print(row(("senders", "free tail", "paused mean", "paused p99", "tail mean", "tail max", "links paused"), widths))
    tails: dict[int, list[float]] = {}
    for n in SENDERS:
        runs = [victims(n, seed) for seed in range(seeds)]
        every = np.concatenate([paused for paused, _, _ in runs])
        tails[n] = [float(paused.max()) for paused, _, _ in runs]
        free = float(np.mean([f.max() for _, f, _ in runs]))
        links = max(most for _, _, most in runs)
        print(
            row(
                (
                    n,
                    free,
                    float(every.mean()),
                    float(np.percentile(every, 99)),
                    float(np.mean(tails[n])),
                    max(tails[n]),
                    links,
                ),
                widths,
            )
        )

    def draw(axes: Any) -> None:
        axes.plot(SENDERS, [np.mean(tails[n]) for n in SENDERS], marker="o", label="tail, mean of the seeds")
        axes.fill_between(
            SENDERS,
            [min(tails[n]) for n in SENDERS],
            [max(tails[n]) for n in SENDERS],
            alpha=0.2,
            label="smallest to largest",
        )
        axes.set(
            xlabel="senders of the incast",
            ylabel="completion over line rate",
            title="A permutation of 128 of 2,048 hosts beside an incast",
        )
        axes.legend()

    write_picture(Path(sys.argv[2]) if len(sys.argv) > 2 else None, (6, 4), draw)


if __name__ == "__main__":
    main()
