"""Flows, and the next hops that failed cables leave them."""

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from planner.errors import InputError
from planner.simulation import rng
from planner.simulation.rng import Floats, Ints
from planner.simulation.tree import Tree


@dataclass(frozen=True, kw_only=True, eq=False)
class Flows:
    """Who sends how much to whom; ends are slots of the tree."""

    source: Ints
    target: Ints
    size: Floats

    def __len__(self) -> int:
        return len(self.source)


def joined(parts: list[Flows]) -> Flows:
    """Return the flows of several lists as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    source, target, size = zip(*((p.source, p.target, p.size) for p in parts), strict=True)
    return Flows(source=np.concatenate(source), target=np.concatenate(target), size=np.concatenate(size))


class Alive:
    """Which cables are alive, and the next hops that they leave."""

    def __init__(self, tree: Tree, failed: Ints) -> None:
        """Take the failed cables out; `failed` numbers cables between switches, plane after plane."""
        self.tree = tree
        each = sum(tree.cables[1:])
        self.lanes = np.ones((len(tree.planes), sum(tree.cables)), bool)
        self.lanes[failed // max(each, 1), tree.cables[0] + failed % max(each, 1)] = False
        self.counts = [
            np.add.reduce(self.lanes[:, first : first + n].reshape(len(tree.planes), subtrees, -1, bundle), axis=3)
            for first, n, subtrees, bundle in zip(tree.offsets, tree.cables, tree.subtrees, tree.bundle, strict=False)
        ]

    def capacity(self) -> Floats:
        """Return bytes per second of every directed bundle."""
        one = [
            np.concatenate([n[p].ravel() * r for n, r in zip(self.counts, self.tree.rates, strict=True)])
            for p in range(len(self.tree.planes))
        ]
        return np.concatenate([share * x for share, x in zip(self.tree.planes, one, strict=True) for _ in (0, 1)])

    def hops(self, flows: Flows, f: Ints, tier: int, plane: int) -> list[Ints]:
        """Return, for every tier below the turn, how many live next hops lead to each position (flow by position)."""
        tree, last = self.tree, self.tree.widths[tier]
        valid, ups = np.ones((len(f), last), bool), []
        for t in range(tier):
            up = self.counts[t][plane, tree.subtree(flows.source[f], t)]
            down = self.counts[t][plane, tree.subtree(flows.target[f], t)]
            valid &= np.repeat((up > 0) & (down > 0), last // tree.widths[t + 1], axis=1)
            ups.append(up)
        if not valid.any(axis=1).all():
            refuse_cut_off(tree, flows, int(f[np.flatnonzero(~valid.any(axis=1))[0]]), plane)
        return [u * valid.reshape(len(f), tree.widths[t + 1], -1).any(axis=2) for t, u in enumerate(ups)]

    def hashed(self, flows: Flows, f: Ints, tier: int, seed: tuple[int, int]) -> list[Ints]:
        """Return the links of each flow over a live next hop at every hop, picked by a hash."""
        tree, links, rows = self.tree, [], np.arange(len(f))
        position = np.zeros(len(f), np.int64)
        for t, hops in enumerate(self.hops(flows, f, tier, seed[1])):
            here = hops.reshape(len(f), tree.widths[t], tree.up[t])[rows, position]
            reached = np.cumsum(here, axis=1)
            pick = rng.below(reached[:, -1], *seed, 2 * t, f)
            choice = (reached <= pick[:, None]).sum(axis=1)
            rank = pick - np.where(choice > 0, reached[rows, choice - 1], 0)
            position = position * tree.up[t] + choice
            back = rng.words(*seed, 2 * t + 1, f)
            for down, end in enumerate((flows.source[f], flows.target[f])):
                cable = tree.cable(t, tree.subtree(end, t), position)
                alive = np.cumsum(self.lanes[seed[1]][cable[:, None] + np.arange(tree.bundle[t])], axis=1)
                wanted = (back % alive[:, -1].astype(np.uint64)).astype(np.int64) if down else rank
                lane = (alive <= wanted[:, None]).sum(axis=1)
                links.append(tree.link(cable + lane, down=bool(down), plane=seed[1]))
        return links


def refuse_cut_off(tree: Tree, flows: Flows, flow: int, plane: int | None = None) -> NoReturn:
    """Refuse failed cables that leave a flow without a path, in a plane or (None) in any."""
    source, target = flows.source[flow] // tree.down[0], flows.target[flow] // tree.down[0]
    path = f"no path leads from leaf {source} to leaf {target}" + ("" if plane is None else f" in plane {plane}")
    raise InputError(f"simulate: with the failed links {path}; fail fewer links")
