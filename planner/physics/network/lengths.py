"""Lengths of cables on the floor of a site, between the middles of the racks that their switches serve."""

from collections.abc import Iterator

import numpy as np

from planner.physics.network.links import Ints, Metres, Places

PAIRS = 1 << 18  # cables between groups measured at a time: 2 MB an array, however many groups there are
CableRun = tuple[Metres, Ints | int]  # lengths, and how many cables there are of each


def endpoint_metres(places: Places, domain: int) -> Metres:
    """Return the length of a cable from each rack to its leaves, in the middle of the domain."""
    rack = np.arange(places.racks, dtype=np.int64)
    first = rack // domain * domain
    return places.metres(places.middle(rack, rack + 1), places.middle(first, first + domain), spread=False)


def leaf_metres(places: Places, leaf: Ints, domain: int, pod: Ints | int) -> Metres:
    """Return the length of a cable from the leaves of domains that begin at racks `leaf` to their spines, amid the pod.

    It is also that from the spines of pods to their cores in four tiers, amid the zone's racks.
    """
    first = leaf // pod * pod
    return places.metres(places.middle(leaf, leaf + domain), places.middle(first, first + pod), spread=True)


def spine_metres(places: Places, first: Ints, pod: Ints | int) -> Metres:
    """Return the length of a cable from the spines of pods that begin at racks `first` to the cores, amid the site.

    It is that from the cores of zones to the super-spines in four tiers.
    """
    site = np.zeros(1, dtype=np.int64)
    return places.metres(places.middle(first, first + pod), places.middle(site, site + places.racks), spread=True)


def beside_metres(places: Places) -> Metres:
    """Return the length of a cable between two switches of one middle."""
    middle = np.zeros((1, 2))
    return places.metres(middle, middle, spread=True)


def group_metres(places: Places, pod: int) -> Iterator[Metres]:
    """Yield the lengths of cables, one between each two places of groups of so many racks, some places at a time."""
    first = np.arange(0, places.racks, pod, dtype=np.int64)
    middle = places.middle(first, first + pod)
    step = max(1, PAIRS // len(first))
    for at in range(0, len(first), step):
        low, high = np.nonzero(np.arange(at, min(at + step, len(first)))[:, None] < np.arange(len(first)))
        if len(low):
            yield places.metres(middle[at + low], middle[high], spread=True)


def group_wan_metres(places: Places, pod: int) -> Metres:
    """Return the length of a cable from the middle of the site to each place of groups of so many racks."""
    return spine_metres(places, np.arange(0, places.racks, pod, dtype=np.int64), pod)


def group_wan_links(ports: int, groups: int, across: int) -> Ints:
    """Return how many of a WAN gateway's links go to each place of groups: `across` groups at a place, in turn."""
    return np.bincount(np.arange(ports) % groups // across, minlength=-(-groups // across))
