"""What binds in a toy, by enumeration: the network, the fibre, the split of the sites."""

from dataclasses import dataclass

from joint_brute_force import Plan, Times, Toy
from joint_toys import free_fibre, merged

from planner.instance.instance import Instance

FASTER = 1e-9  # relative


@dataclass(frozen=True, slots=True)
class Binding:
    """The optimum of a toy and what binds: that of which it would be faster."""

    best: Plan | None
    network: bool = False
    fibre: bool = False
    split: bool = False

    @property
    def any(self) -> bool:
        """Whether one of them binds."""
        return self.network or self.fibre or self.split


def binding(i: Instance) -> Binding:
    """Enumerate a toy and what it would be otherwise."""
    # The network binds where the cheapest fabrics, slowing nothing, allow a faster plan; fibre where a faster one is
    # had with free fibre of any rate and length; the split where, that fibre given, all nodes being one allows a
    # faster one.
    times = Times(i)
    best = Toy(i, times=times).best()
    if best is None:
        return Binding(best=None)
    network = _seconds(Toy(i, times=times, free_network=True)) if i.network is not None else best.seconds
    if i.grid is None or len(i.grid.nodes) < 2:
        return Binding(best=best, network=network < best.seconds * (1 - FASTER))
    joined = _seconds(Toy(free_fibre(i), times=times))
    one = _seconds(Toy(merged(i), times=times))
    return Binding(
        best=best,
        network=network < best.seconds * (1 - FASTER),
        fibre=joined < best.seconds * (1 - FASTER),
        split=one < min(joined, best.seconds) * (1 - FASTER),
    )


def _seconds(toy: Toy) -> float:
    found = toy.best()
    assert found is not None  # it has every plan of the toy
    return found.seconds
