"""Read MATPOWER cases of a folder and follow the power in them: how many import, and solve by their reactances.

Run it as `.venv/bin/python scripts/verify/public_grids.py FOLDER`, where FOLDER holds cases (`*.m`), such as MATPOWER's
`data` directory. Of each case that imports, with its load, the plants are run in proportion to what they can feed, and
flows must balance at every node to a millionth of the load. Cases that an unimported form of the format, or an
outright error of the file, rules out are counted apart with the reason.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from planner.errors import InputError
from planner.imports.draft import Options
from planner.imports.read import import_grid
from planner.instance.grid import Grid
from planner.physics.site.dc_power_flow import Network

NEAR = 1e-6  # of the load: a larger difference at a node is no rounding


def network_of(g: Grid) -> Network:
    """Return the network of a grid whose lines all have a reactance."""
    missing = sum(x.reactance_pu is None for x in g.lines)
    if missing:
        raise InputError(f"{missing} lines without a reactance")
    at = {n.id: i for i, n in enumerate(g.nodes)}
    lines = [x for x in g.lines if x.a != x.b]
    return Network(
        len(at),
        [at[x.a] for x in lines],
        [at[x.b] for x in lines],
        [x.circuits for x in lines],
        [x.reactance_pu or 0.0 for x in lines],
    )


def imbalance(g: Grid) -> float:
    """Return the largest difference at a node between what flows bring and what it takes, over the load."""
    net = network_of(g)
    load = np.array([n.load_mw for n in g.nodes])
    spare = np.array([n.generation_mw for n in g.nodes])
    injection = np.zeros(len(load))
    for i in np.unique(net.island):
        here = net.island == i
        if spare[here].sum() > 0:
            injection[here] = spare[here] * (load[here].sum() / spare[here].sum()) - load[here]
    flow = net.flows(injection)
    out = np.bincount(net.a, flow, len(load)) - np.bincount(net.b, flow, len(load))
    return float(np.abs(out - injection).max(initial=0.0) / max(1.0, float(load.sum())))


def main() -> None:
    """Print a line a case, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    counts: Counter[str] = Counter()
    for path in sorted(parser.parse_args().folder.glob("*.m")):
        try:
            options = Options(at=(40.0, -75.0), headroom_share=0.1, energy_usd_per_mwh=40.0, interconnection="eastern")
            g = import_grid([path], "matpower", options).grid
        except InputError as error:
            kind, text = "not imported", str(error).splitlines()[0].removeprefix(str(path))
        else:
            negative = sum((x.reactance_pu or 0.0) < 0 for x in g.lines)
            load = sum(n.load_mw for n in g.nodes)
            text = f"{len(g.nodes):,} nodes, {load:,.0f} MW, {negative} lines of negative reactance"
            try:
                off = imbalance(g)
                kind = "solved" if off < NEAR else "out of balance"
                text += f", imbalance {off:.1e}"
            except InputError as error:
                kind, text = "no flow", f"{text}: {error}"
            counts["with negative reactances"] += negative > 0
        counts[kind] += 1
        print(f"{path.name:32} {kind}: {text}"[:160])
    print(", ".join(f"{n} {kind}" for kind, n in counts.items()))
    sys.exit(counts["out of balance"] > 0)


if __name__ == "__main__":
    main()
