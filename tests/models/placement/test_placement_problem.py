"""The leaves of a topology as switches join them, and closed forms of every level by hand, each at a value reached."""

import random
from itertools import combinations, product

import pytest
from each_case import each

from planner.cluster.topology import Topology, TopologyBlock, TopologySwitch
from planner.errors import InputError
from planner.models.placement import placement_problem as problems
from planner.models.placement.placement_problem import Kind, Leaf, PlacementProblem, leaves_of


def tree(*switches: tuple[str, str | None, str], blocks: tuple[TopologyBlock, ...] = ()) -> Topology:
    each = (TopologySwitch(name=n, parent=p, nodes=tuple(x.split())) for n, p, x in switches)
    return Topology(switches=tuple(each), blocks=blocks)


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


def test_blocks_are_parts_of_a_leaf_or_leaves_themselves() -> None:
    """Blocks of two nodes, two of them to eight nodes' aggregate and four to sixteen's: tiers of pairs and of fours."""
    # An aggregate as large as all blocks is no tier.
    parts = TopologyBlock(name="p", nodes=("1", "3")), TopologyBlock(name="q", nodes=("4",))
    (leaf,) = leaves_of(tree(("x", None, "1 2 3 4 5"), blocks=parts))
    assert leaf.blocks == (("1", "3"), ("2", "5"), ("4",))
    blocks = tuple(TopologyBlock(name=f"b{i}", nodes=(f"{i}a", f"{i}b")) for i in range(6))
    found = leaves_of(Topology(kind="block", blocks=blocks, block_sizes=(2, 4, 8, 12)))
    assert [leaf.name for leaf in found] == [b.name for b in blocks]
    for i, j in combinations(range(6), 2):
        same = [a == b for a, b in zip(found[i].path, found[j].path, strict=True)]
        assert same == [i // 2 == j // 2, i // 4 == j // 4]
    assert not {leaf.path[0] for leaf in found} & {leaf.path[1] for leaf in found}
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


def problem(
    free: list[tuple[int, int]], *kinds: tuple[int, ...], line: int | None = None, size: int = 9
) -> PlacementProblem:
    """Return leaves by (pod, free units) and kinds by (units, groups, weight); one line unless said otherwise."""
    groups = tuple(Kind(*k) for k in kinds)
    leaves = tuple(Leaf((pod,), n, size) for pod, n in free)
    return PlacementProblem(leaves=leaves, kinds=groups, line=line or sum(k.count for k in groups))


@each(("free", "kinds", "least"), [
    # Leaves of 5 and 4: of three groups of 3 two fit whole; of two of 4 and one of 3, those of 4 both, of all not.
    ([5, 4], [Kind(3, 3)], 1), ([5, 4], [Kind(4, 2), Kind(3, 1)], 1), ([5, 4], [Kind(5, 2), Kind(2, 3)], 1),
    ([5, 4], [Kind(2, 4)], 0),  # floor(5/2) + floor(4/2) = 4 places
    ([], [], 0),
    # One of three groups of 3 or more splits: the lighter kind, of weight 2; where two must, 2 and 2, or 2 and 7.
    ([5, 4], [Kind(3, 2, 7), Kind(4, 1, 2)], 2), ([3, 2], [Kind(3, 2, 7), Kind(4, 1, 2)], 2 + 7),
    ([3, 2], [Kind(3, 1, 7), Kind(4, 2, 2)], 2 + 2), ([9], [Kind(3, 3, 7)], 0),
])  # fmt: skip
def test_the_lightest_of_the_groups_that_fit_no_leaf_whole(free: list[int], kinds: list[Kind], least: int) -> None:
    assert problems.min_split_weight(free, kinds) == least


@each(("free", "kinds", "split", "extra"), [
    # A group of 9 on leaves of 4 takes three pieces.
    ([4] * 4, [(9, 1)], 1, 2), ([4] * 4, [(9, 1), (3, 2)], 2, 2 + 1),
    ([4] * 8, [(9, 2)], 1, 2 + 2),  # both split, whatever is known of them
    # Four leaves of 4 hold four groups of 3 whole and leave holes of 1: a fifth takes three of them, two pieces more.
    ([4] * 4, [(3, 5)], 1, 2), ([5] * 4, [(3, 6)], 2, 2), ([4] * 4, [(3, 4)], 0, 0), ([], [(3, 1)], 1, 0),
    # Two of three units that split: alone they need two holes or three, together as many as hold six units.
    ([5, 1, 1, 1, 1], [(3, 3)], 2, 5 - 2),
    ([3, 6], [(3, 5)], 2, 2),  # no hole, a piece more each
])  # fmt: skip
def test_extra_pieces(free: list[int], kinds: list[tuple[int, int]], split: int, extra: int) -> None:
    """Groups larger than leaves take several; equal ones that split go into the holes that whole ones leave."""
    assert problems.min_extra_pieces(problem([(0, units) for units in free], *kinds), split) == extra


THREE_PODS = [(0, 3), (0, 3), (1, 3), (1, 3), (2, 3)]


@each(("free", "kinds", "line", "across", "whole", "least"), [
    # Groups of several kinds that need 6 units of pods with 4 each meet one boundary; of pods with 6, none.
    ([(0, 4), (1, 4)], [(2, 2), (1, 2)], 4, 0, False, 1), ([(0, 6), (1, 4)], [(2, 2), (1, 2)], 4, 0, False, 0),
    ([(0, 4), (1, 4), (2, 4)], [(2, 3), (1, 3)], 6, 0, False, 2),
    # Where the last pod in use is smaller than a group, that may go across several pods and save some: only groups
    # known to go across are counted.
    ([(0, 4), (1, 2)], [(3, 1), (1, 2)], 3, 0, False, 0), ([(0, 4), (1, 2)], [(3, 1), (1, 2)], 3, 2, False, 1),
    # One line of five single units over pods of 3: two pods, one boundary; over pods of 5 none.
    ([(0, 3), (1, 3)], [(1, 5)], 5, 0, False, 1), ([(0, 5), (1, 3)], [(1, 5)], 5, 0, False, 0),
    # Three lines of two on pods of 3 and 3: each pod takes one line whole, the third is on both; of 4 and 2 all fit.
    ([(0, 3), (1, 3)], [(1, 6)], 2, 0, False, 1), ([(0, 4), (1, 2)], [(1, 6)], 2, 0, False, 0),
    # Groups of 2 on two leaves of 3 in one pod: three by units, two if whole; four of them over two such pods.
    ([*THREE_PODS[:4], (2, 9)], [(2, 4)], 4, 0, False, 0), (THREE_PODS, [(2, 4)], 4, 0, False, 1),
    (THREE_PODS, [(2, 5)], 5, 0, True, 2),
    # They must split where six do not fit whole: every pod that takes one whole is in use.
    (THREE_PODS, [(2, 6)], 6, 1, False, 3),
])  # fmt: skip
def test_boundaries(free, kinds, line, across, whole, least) -> None:
    """Neighbours along lines that are not in one pod, at the least."""
    assert problems.min_boundaries(problem(free, *kinds, line=line), across, whole=whole) == least


def test_groups_across_pods_and_the_switches_above() -> None:
    """Four pods of four units, two to a switch: of groups of five, nine and three as many cross as no block holds."""
    # Three groups of five fit no pod, and one fits each switch of eight units; one of nine fits no switch. Of six
    # groups of three a pod holds one and a switch two, so that two cross both.
    leaves = tuple(Leaf((pod, pod // 2), n, 9) for pod in range(4) for n in (1, 3))
    crossing = {
        (size, count): problems.bounds(PlacementProblem(leaves=leaves, kinds=(Kind(size, count),), line=count))[2:4]
        for size, count in ((5, 3), (9, 1), (3, 6), (4, 4))
    }
    assert crossing == {(5, 3): (3, 1), (9, 1): (1, 1), (3, 6): (2, 2), (4, 4): (0, 0)}


@pytest.mark.parametrize("seed", range(28))
def test_leaves_left_part_free(seed: int) -> None:
    r = random.Random(seed)
    leaves = [(0, r.randint(0, 5)) for _ in range(r.randint(1, 5))]
    q = problem(leaves, (r.randint(1, 3), r.randint(1, 3)), (r.randint(1, 3), 1), size=5)
    part = sorted(n for _, n in leaves if 0 < n < 5)
    units = [k.size for k in q.kinds]
    filling = {a * units[0] + b * units[1] for a, b in product(range(6), repeat=2)}
    for whole in (False, True):
        can = [n for n in part if not whole or n in filling]
        filled = max(k for k in range(len(can) + 1) if sum(can[:k]) <= q.need)
        assert problems.min_part_free(q, whole=whole) == len(part) - filled
