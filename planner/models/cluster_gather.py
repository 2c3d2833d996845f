"""Gather the holes of a chain in one pod: leaves of equal room are alike, so what two of them hold may be exchanged at no cost."""

from collections import Counter
from collections.abc import Sequence

from planner.models.cluster_question import Packing, Piece, Question

MOST_TRIES = 300  # of ways to give a chain its holes in one pod; a chain of many holes has too many to try all


class Exchange:
    """Leaves that may still exchange what they hold, by room and by the hole that is left."""

    def __init__(self, q: Question, packing: Packing, holes: dict[int, list[int]]) -> None:
        self.q, self.packing = q, packing
        self.hole = {i: c for c, leaves in holes.items() for i in leaves}
        self.by_hole: dict[Piece, set[int]] = {}  # (room, hole) -> leaves
        self.by_pod: dict[int, dict[int, set[int]]] = {}  # pod -> room -> leaves
        for i, c in self.hole.items():
            self.by_hole.setdefault((q.leaves[i].free, c), set()).add(i)
            self.by_pod.setdefault(q.pod_of[i], {}).setdefault(q.leaves[i].free, set()).add(i)

    def gather(self, wanted: Counter[int]) -> list[Piece] | None:
        """Give a chain its holes within one pod, that with the fewest leaves to spare; None where no pod can have them all."""
        holes = sorted(wanted.elements(), reverse=True)
        for pod in sorted(self.by_pod, key=lambda p: (sum(map(len, self.by_pod[p].values())), p)):
            rooms = self._rooms(pod, holes)
            if rooms is not None:
                return [(self._take(pod, room, c), c) for room, c in zip(rooms, holes, strict=True)]
        return None

    def _rooms(self, pod: int, holes: Sequence[int]) -> list[int] | None:
        """Return a room for each hole such that the pod has such leaves and some leaf of that room has that hole."""
        left = Counter({room: len(leaves) for room, leaves in self.by_pod[pod].items()})
        used: Counter[Piece] = Counter()
        found: list[int] = []
        tries = 0

        def search(at: int) -> bool:
            nonlocal tries
            tries += 1
            if at == len(holes) or tries > MOST_TRIES:
                return at == len(holes)
            c = holes[at]
            for room in sorted(left):
                if left[room] and len(self.by_hole.get((room, c), ())) > used[room, c]:
                    left[room] -= 1
                    used[room, c] += 1
                    found.append(room)
                    if search(at + 1):
                        return True
                    found.pop()
                    left[room] += 1
                    used[room, c] -= 1
            return False

        return found if search(0) else None

    def _take(self, pod: int, room: int, c: int) -> int:
        """Return a leaf of the pod that has the hole, after an exchange where it had another, and let it exchange no more."""
        here, there = self.by_pod[pod][room], self.by_hole[room, c]
        i = min(here & there, default=min(here))
        if self.hole[i] != c:
            self._swap(i, min(there))
        here.remove(i)
        self.by_hole[room, c].remove(i)
        return i

    def _swap(self, i: int, j: int) -> None:
        """Exchange all that two leaves hold."""
        room = self.q.leaves[i].free
        for k in range(len(self.q.kinds)):
            a, b = self.packing.whole[i, k], self.packing.whole[j, k]
            self.packing.whole[i, k], self.packing.whole[j, k] = b, a
        for x, c in ((i, self.hole[j]), (j, self.hole[i])):
            self.by_hole[room, self.hole[x]].discard(x)
            self.by_hole.setdefault((room, c), set()).add(x)
        self.hole[i], self.hole[j] = self.hole[j], self.hole[i]

    def rest(self) -> dict[int, dict[int, list[int]]]:
        """Return the leaves that no chain has, by pod and hole."""
        found: dict[int, dict[int, list[int]]] = {}
        for pod, rooms in self.by_pod.items():
            for i in sorted(i for leaves in rooms.values() for i in leaves):
                found.setdefault(pod, {}).setdefault(self.hole[i], []).append(i)
        return found
