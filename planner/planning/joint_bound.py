"""A bound on the days to train over all four decisions at once: a layout question that relaxes what joins them."""

from planner.instance.hardware import Accelerator
from planner.instance.instance import Instance
from planner.models.layout import solve as layout
from planner.models.layout.solution_cache import SolutionCache
from planner.models.requests import LayoutRequest
from planner.physics.training.parallel_strategy import ParallelStrategy

SITES = 4  # up to which racks are split over sites


def bound(
    instance: Instance, racks: int, slowdown: float, *, time_limit: float | None, memory: SolutionCache
) -> tuple[float, ParallelStrategy | None] | None:
    """Bound the days to train on some racks at most, and return the layout that comes nearest; None where none fits.

    Racks are split as evenly as can be over as many sites as a plan may have. Nothing takes time between sites, in them the
    network is as fast as its NICs with the transport's own slowdown, ZeRO shards over all replicas, and sites may stand
    idle: a split of any other kind, or over fewer sites, has larger rings and no more shards, so none is faster. Where more
    sites are allowed the racks stand at one, and the NICs take no time either, which no ring can better.
    """
    pins = {k: v for k, v in instance.pins.items() if k != "layout.data_parallel_by_site"}
    instance, sites = instance.model_copy(update={"pins": pins}), _most_sites(instance)
    if sites > SITES:
        return layout.bound_days(_swift(instance), evenly(racks, 1, 1.0), time_limit=time_limit, cache=memory)
    return layout.bound_days(instance, evenly(racks, sites, slowdown), time_limit=time_limit, cache=memory)


def evenly(racks: int, sites: int, slowdown: float) -> LayoutRequest:
    """Ask for a layout on some racks, split over sites as suits it."""
    by_site = {f"{k + 1} of {sites}": racks for k in range(sites)}
    return LayoutRequest(
        racks_by_site=by_site, racks_in_all=racks, pipeline_send_slowdown=slowdown, allreduce_slowdown=slowdown
    )


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
    return instance.model_copy(
        update={"hardware": instance.hardware.model_copy(update={"accelerator": swift, "nic_bytes_per_second": None})}
    )
