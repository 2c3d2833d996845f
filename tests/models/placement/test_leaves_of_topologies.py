"""The leaves of a topology: two leaves share a number where they share a switch, by walking up their parents."""

import random
from itertools import combinations

import pytest
from each_case import each

from planner.cluster import Topology, TopologyBlock, TopologySwitch
from planner.errors import InputError
from planner.models.placement.placement_problem import Kind, Leaf, LeafNodes, PlacementProblem, leaves_of


def tree(*switches: tuple[str, str | None, str], blocks: tuple[TopologyBlock, ...] = ()) -> Topology:
    return Topology(
        switches=tuple(TopologySwitch(name=n, parent=p, nodes=tuple(x.split())) for n, p, x in switches), blocks=blocks
    )


def above(switches: dict[str, str | None], name: str) -> list[str]:
    """Return the switches above one, the next first."""
    up = switches[name]
    return [] if up is None else [up, *above(switches, up)]


@pytest.mark.parametrize("seed", range(28))
def test_leaves_share_the_numbers_of_the_switches_that_they_share(seed: int) -> None:
    """Of random trees of one depth with one root or two, each tier's numbers are equal where the switches are."""
    # A root that all share counts for no tier; the tree of a leaf is that of its root.
    r = random.Random(seed)
    tiers, roots = r.randint(1, 3), r.randint(1, 2)
    parent: dict[str, str | None] = {f"root{i}": None for i in range(roots)}
    level = list(parent)
    for t in range(tiers):
        level = [parent.setdefault(f"{t}-{i}", r.choice(level)) and f"{t}-{i}" for i in range(r.randint(2, 4))]
    leaves = list(level)
    topology = tree(*((n, p, f"{n}a {n}b" if n in leaves else "") for n, p in parent.items()))
    found = {x.name: x for x in leaves_of(topology)}
    assert list(found) == leaves
    used = {above(parent, n)[-1] for n in leaves}
    depth = tiers - (len(used) == 1)
    assert {len(x.path) for x in found.values()} == {depth}
    for a, b in combinations(leaves, 2):
        up = list(zip(above(parent, a), above(parent, b), strict=True))
        for t in range(depth):
            assert (found[a].path[t] == found[b].path[t]) == (up[t][0] == up[t][1])
        assert (found[a].tree == found[b].tree) == (up[-1][0] == up[-1][1])
    assert all(x.nodes == (f"{n}a", f"{n}b") and x.blocks == (x.nodes,) for n, x in found.items())


def test_a_leaf_below_the_root_repeats_its_last_switch() -> None:
    """Two roots, one with a tier between: the leaf without it stands under its root at both tiers."""
    found = leaves_of(tree(("r", None, ""), ("s", None, ""), ("m", "r", ""), ("x", "m", "1"), ("y", "s", "2")))
    assert [x.name for x in found] == ["x", "y"]
    (x, y) = (leaf.path for leaf in found)
    assert len(x) == len(y) == 2 and x[0] != x[1] and y[0] == y[1] and not set(x) & set(y)
    assert [leaf.tree for leaf in found] == [0, 1]


def test_leaves_that_are_roots_stand_alone() -> None:
    (one,) = leaves_of(tree(("x", None, "1 2")))
    assert (one.path, one.tree) == ((), 0)
    found = leaves_of(tree(("x", None, "1"), ("y", None, "2")))
    assert [(leaf.path, leaf.tree) for leaf in found] == [((), 0), ((), 1)]
    deep = leaves_of(tree(("x", None, "1"), ("m", None, ""), ("y", "m", "2"), ("z", "m", "3")))
    assert len({leaf.path for leaf in deep}) == 2 and deep[1].path == deep[2].path != deep[0].path


def test_blocks_of_a_leaf() -> None:
    blocks = TopologyBlock(name="p", nodes=("1", "3")), TopologyBlock(name="q", nodes=("4",))
    (leaf,) = leaves_of(tree(("x", None, "1 2 3 4 5"), blocks=blocks))
    assert leaf.blocks == (("1", "3"), ("2", "5"), ("4",))


def test_blocks_alone_are_leaves() -> None:
    """Blocks of two nodes, two of them to eight nodes' aggregate and four to sixteen's: tiers of pairs and of fours."""
    # An aggregate as large as all blocks is no tier.
    blocks = tuple(TopologyBlock(name=f"b{i}", nodes=(f"{i}a", f"{i}b")) for i in range(6))
    found = leaves_of(Topology(kind="block", blocks=blocks, block_sizes=(2, 4, 8, 12)))
    assert [leaf.name for leaf in found] == [b.name for b in blocks]
    for i, j in combinations(range(6), 2):
        assert [a == b for a, b in zip(found[i].path, found[j].path, strict=True)] == [
            i // 2 == j // 2,
            i // 4 == j // 4,
        ]
    assert not {leaf.path[0] for leaf in found} & {leaf.path[1] for leaf in found}
    assert all(type(n) is int for leaf in found for n in leaf.path)
    bare = leaves_of(Topology(blocks=blocks))
    assert [(leaf.path, leaf.blocks) for leaf in bare] == [((), (b.nodes,)) for b in blocks]


@each(("topology", "said"), [
    (Topology(), "has no leaf with nodes"),
    (tree(("x", None, "1 2"), ("y", None, "2")), "node '2' is under 'x' and 'y'"),
    (tree(("x", None, "1 1")), "names a node twice"),
    (tree(("x", "m", "1")), "switch 'x' leads up to 'm', which is missing"),
    (tree(("x", "m", "1"), ("m", "k", ""), ("k", "m", "")), "leads up to 'm', which is above itself"),
])  # fmt: skip
def test_what_is_no_tree_is_refused(topology: Topology, said: str) -> None:
    with pytest.raises(InputError, match=said):
        leaves_of(topology)


def test_a_problem_without_switches_is_one_pod() -> None:
    flat = PlacementProblem(leaves=(Leaf((), 2, 2), Leaf((), 1, 2)), kinds=(Kind(1, 2),), line=1)
    assert (flat.tiers, flat.pods, [x.pod for x in flat.leaves]) == (0, {0: [0, 1]}, [0, 0])
    tall = PlacementProblem(
        leaves=(Leaf((5, 9), 2, 2), Leaf((4, 9), 1, 2), Leaf((5, 8), 1, 2)), kinds=(Kind(1, 2),), line=1
    )
    assert (tall.tiers, tall.pods, [x.pod for x in tall.leaves]) == (2, {5: [0, 2], 4: [1]}, [5, 4, 5])
    assert PlacementProblem(leaves=(), kinds=(), line=1).tiers == 0
    assert LeafNodes("x", (), (), ()).tree == 0
