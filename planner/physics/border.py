"""The border of a site's fabric: what the wide area brings there, and the ports that take it.

Wavelengths end at border switches, the boxes that the fabric is made of. A port sends and takes at once, so both directions
are one port. Every network of the fabric has a border of its own, which takes an equal part of the rate: GPUs of one index
or lane reach no other. A border switch has as many ports up, to the top tier, as to the wide area, so it slows nothing.
"""

import math
from collections.abc import Iterable

from planner.instance import Wan
from planner.physics.wan import wavelengths
from planner.plan import Link, WanPlan


def wan_gbps(wan: Wan, links: Iterable[Link], design: WanPlan | None, site: str) -> float:
    """Return the rate, each way, of the wavelengths that end at a site: those of the design where there is one, else of its links.

    Of a design what the site sends or takes itself, each route at the larger of its rate and that of its backup, in whole
    wavelengths; what only passes by is no matter of the site's.
    """
    if design is None:
        return math.fsum(k.capacity_gbps for k in links if site in (k.a, k.b))
    rates = (max(r.gbps, r.backup_gbps or 0.0) for d in design.demands if site in (d.a, d.b) for r in d.routes)
    return wavelengths(wan, math.fsum(rates)) * wan.wavelength_gbps


def wan_ports(gbps: float, networks: int, port_gbps: float) -> int:
    """Count the ports towards the wide area of one of so many networks: ceil(its part of the rate / rate of a port)."""
    return math.ceil(gbps / networks / port_gbps * (1 - 1e-12))
