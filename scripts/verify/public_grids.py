"""Read MATPOWER cases of a folder and follow the power in them: how many import, feed themselves, and keep properties.

Run it as `.venv/bin/python scripts/verify/public_grids.py [FOLDER] [--random N] [--most-nodes N]`, where FOLDER holds
cases (`*.m`), such as the `data` directory of the package `matpower`. Of each case that imports, with its load, the
plants are run in proportion to what they can feed, and flows must balance at every node to a millionth of the load.
With zero racks the split must hold where the import says that the grid feeds itself, and nowhere else; and what nothing
uses must change no optimum (`grid_properties.py`), of cases of so many nodes at most and of N random grids. Cases that
an unimported form of the format, or an outright error of the file, rules out are counted apart with the reason.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import grid_properties
import numpy as np

from planner.errors import InputError
from planner.imports.command_options import GridOptions
from planner.imports.grid_drafts import shortage
from planner.imports.read_grid import import_grid
from planner.instance.grid import Grid
from planner.physics.site.grid import PowerNetwork

SITES = 8  # candidates of a case: the nodes with most generation
NEAR = 1e-6  # of the load: a larger difference at a node is no rounding


def network_of(g: Grid) -> PowerNetwork:
    """Return the network of a grid whose lines all have a reactance."""
    missing = sum(x.reactance_pu is None for x in g.lines)
    if missing:
        raise InputError(f"{missing} lines without a reactance")
    at = {n.id: i for i, n in enumerate(g.nodes)}
    lines = [x for x in g.lines if x.a != x.b]
    return PowerNetwork(
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


def judged(g: Grid, most_nodes: int) -> tuple[str, list[str]]:
    """Return whether a grid feeds itself, and what it breaks of the properties; of large ones only what is short."""
    short = list(shortage(g))
    kind = "short: " + "; ".join(short) if short else "feeds itself"
    if len(g.nodes) > most_nodes:
        return kind, []
    if short:
        return kind, ["zero racks: feasible"] if grid_properties.zero_racks(grid_properties.instance_of(g)) else []
    return kind, grid_properties.faults(g, len(g.nodes))


def read(path: Path, counts: Counter[str], most_nodes: int) -> str:
    """Count a case, and return what is found of it."""
    options = GridOptions(
        at="40.0,-75.0", headroom_share=0.1, energy_usd_per_mwh=40.0, interconnection="eastern", sites=SITES
    )
    try:
        g = import_grid([path], "matpower", options).grid
    except InputError as error:
        counts["not imported"] += 1
        return f"not imported: {str(error).splitlines()[0].removeprefix(str(path))}"
    counts["imported"] += 1
    load = sum(n.load_mw for n in g.nodes)
    negative = sum((x.reactance_pu or 0.0) < 0 for x in g.lines)
    counts["with negative reactances"] += negative > 0
    text = f"{len(g.nodes):,} nodes, {load:,.0f} MW, {negative} lines of negative reactance"
    try:
        off = imbalance(g)
        counts["solved" if off < NEAR else "out of balance"] += 1
        text += f", imbalance {off:.1e}"
    except InputError as error:
        counts["no flow"] += 1
        text += f", {error}"
    kind, broken = judged(g, most_nodes)
    counts[kind.partition(":")[0]] += 1
    counts["properties judged"] += len(g.nodes) <= most_nodes
    counts["properties broken"] += bool(broken)
    return "; ".join([text, kind, *broken])


def main() -> None:
    """Print a line a case, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--most-nodes", type=int, default=100_000, metavar="N")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in sorted(asked.folder.glob("*.m")) if asked.folder else ():
        print(f"{path.name:26} {read(path, counts, asked.most_nodes)}"[:300], flush=True)
    for seed in range(asked.random):
        broken = grid_properties.faults(grid_properties.random_grid(seed).grid, seed)
        counts["random grids"] += 1
        counts["random grids broken"] += bool(broken)
        print(*[f"random {seed}: {x}" for x in broken], sep="\n", end="\n" if broken else "", flush=True)
    print(", ".join(f"{n} {kind}" for kind, n in counts.items()))
    sys.exit(counts["out of balance"] + counts["properties broken"] + counts["random grids broken"] > 0)


if __name__ == "__main__":
    main()
