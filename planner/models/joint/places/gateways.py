"""WAN gateways of a plan: the fabrics that have their ports, once it is known which wavelengths end at a site.

The search asks the sites for fabrics without gateways, which cost no more and slow nothing more. What a gateway adds is
found for the sites that were chosen; where the money does not pay it the candidate is given up without a proof that
other sites would not pay, and its time stays a lower bound.
"""

import math
from dataclasses import replace

import numpy as np

from planner.errors import InputError
from planner.models.fabric.chooser import Template
from planner.models.fabric.traffic import SiteTraffic
from planner.models.joint.places.capital_bounds import SlowdownLevel
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.places.site_question import PlacedParts
from planner.physics.network import transport

MUCH_DEARER = 1.1  # than without a gateway


def has_gateways(q: ShapeProblem, placed: PlacedParts | None) -> bool:
    """Return whether gateways are designed and some fibre may end at a site."""
    network = q.world.problem.instance.network
    if network is None or not network.wan_gateway or placed is None:
        return False
    if q.world.sites is not None and q.world.sites.counts_power:
        raise InputError(
            "network.wan_gateway: its power cannot be load of its site; set hardware.overhead_includes_fabric to true"
        )
    return q.several or placed.wan is not None


def gateway_of(q: ShapeProblem, waves: int, placed: PlacedParts, site: str) -> SiteTraffic:
    """Return the traffic of a site with its gateway; gradients have at least the rate that the step counts on."""
    wan, others = q.world.problem.wan, len(placed.parts) - 1
    if placed.wan is None:
        rate = others * waves * wan.wavelength_gbps
        return replace(q.traffic, wan_gbps=rate, exchange_gbps=rate / wan.headroom_factor)
    sync = (d.requested_gbps for d in placed.wan.demands if d.priority == 0 and site in (d.a, d.b))
    wan_gbps = transport.wan_gbps(wan, (), placed.wan, site)
    return replace(q.traffic, wan_gbps=wan_gbps, exchange_gbps=math.fsum(sync) / wan.headroom_factor)


def with_gateways(
    q: ShapeProblem, waves: int, level: SlowdownLevel, placed: PlacedParts, without_gateways: dict[str, Template]
) -> tuple[PlacedParts, dict[str, Template]] | None:
    """Return the cheapest templates with gateways that keep the slowdowns, in the capital too; None where one lacks."""
    # `without_gateways`: the cheapest templates without gateways; templates that are much dearer are not tried.
    templates, found = q.world.templates, dict[str, Template]()
    sizes = sorted(set(q.shape.blocks), reverse=True)
    for site, (k, _) in placed.parts.items():
        traffic = gateway_of(q, waves, placed, site)
        if templates is None:
            return None
        limits = (level.send, level.allreduce)
        x = templates.options(traffic, sizes[k], without_gateways[site].usd * MUCH_DEARER, max_slowdowns=limits)
        fits = np.flatnonzero((x.send <= level.send) & (x.allreduce <= level.allreduce))
        if not len(fits):
            return None
        found[site] = templates.template(traffic, sizes[k], x, int(fits[np.argmin(x.usd[fits])]))
    more = sum(t.usd for t in found.values()) - sum(t.usd for t in without_gateways.values())
    return replace(placed, capital_usd=placed.capital_usd + more), found
