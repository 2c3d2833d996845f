"""A bound on the days to train over all four decisions at once: a layout question that relaxes what joins them."""

import math

from planner.handoff import LayoutRequest
from planner.instance import Accelerator, Instance
from planner.models import layout
from planner.models.layout_memory import Memory
from planner.physics.step import Cut

SITES = 4  # up to which each number of sites is taken by itself


def days(instance: Instance, racks: int, slowdown: float, *, time_limit: float | None, memory: Memory) -> tuple[float | None, Cut | None]:
    """Bound the days to train on some racks at most, and return the fastest layout over several sites; None where no layout fits.

    One site, or racks split as evenly as can be over two, three or four.

    Nothing takes time between sites, and in them the network is as fast as its NICs with the transport's own slowdown. A split
    of replicas that is less even has larger rings and fewer shards, so none is faster. Where more sites are allowed, the NICs
    take no time either, which no ring can better.
    """
    pins = {k: v for k, v in instance.pins.items() if k != "layout.data_parallel_by_site"}
    instance, sites = instance.model_copy(update={"pins": pins}), _most_sites(instance)
    asked = [(instance, evenly(racks, count, slowdown)) for count in range(1, sites + 1)]
    if sites > SITES:
        asked = [(_swift(instance), evenly(racks, 1, 1.0))]
    least, several = math.inf, None
    for asking, request in reversed(asked):  # the most sites, whose rings are smallest, are likely the fastest
        found, cut = layout.least(asking, request, under=least, time_limit=time_limit, memory=memory)
        least = least if found is None else min(least, found)
        several = cut if cut is not None and len(request.racks_by_site) > 1 else several
    return None if least == math.inf else least, several


def evenly(racks: int, sites: int, slowdown: float) -> LayoutRequest:
    """Ask for a layout on some racks, split over sites as suits it."""
    by_site = {f"{k + 1} of {sites}": racks for k in range(sites)}
    return LayoutRequest(racks_by_site=by_site, racks_in_all=racks, hop_slowdown=slowdown, allreduce_slowdown=slowdown)


def _most_sites(instance: Instance) -> int:
    """Return how many sites a plan may have."""
    if instance.grid is None:
        return 1
    asked = [n for n in (instance.grid.rules.max_sites, instance.pins.get("sites.max_sites")) if n is not None]
    return min([len(instance.grid.nodes), *asked])


def _swift(instance: Instance) -> Instance:
    """Return the instance with NICs that take no time."""
    gpu = instance.hardware.accelerator
    if not isinstance(gpu, Accelerator):
        raise TypeError("the instance still holds catalogue names")
    swift = gpu.model_copy(update={"nic_bytes_per_second": gpu.nic_bytes_per_second * 1e9, "nic_latency_seconds": 0.0})
    return instance.model_copy(update={"hardware": instance.hardware.model_copy(update={"accelerator": swift, "nic_bytes_per_second": None})})
