"""The wide area between two sites: distance, round trip, rate of the exchange, wavelengths and fibre pairs."""

import math

from planner.instance.wan import Wan

EARTH_RADIUS_KM = 6371.0088  # IUGG mean radius R1


def great_circle_km(latitude_a: float, longitude_a: float, latitude_b: float, longitude_b: float) -> float:
    """Compute the distance on the sphere by the haversine formula; angles in degrees."""
    a, b = math.radians(latitude_a), math.radians(latitude_b)
    half = (
        math.sin((b - a) / 2) ** 2
        + math.cos(a) * math.cos(b) * math.sin(math.radians(longitude_b - longitude_a) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(half))


def rtt_ms(wan: Wan, route_km: float) -> float:
    """Compute the round trip over a fibre route: 0.98 ms per 100 km at a group index of 1.47."""
    return route_km * wan.rtt_ms_per_100_route_km / 100


def exchange_bytes(gradient_bytes: float, sites: int) -> float:
    """Compute the bytes of each link, each way, in a ring all-reduce of a gradient over sites: 2·(n-1)/n of it."""
    return 2 * (sites - 1) / sites * gradient_bytes


def exchange_need_gbps(wan: Wan, link_bytes: float, window_seconds: float, link_rtt_ms: float) -> float:
    """Compute the rate in Gbps that moves `link_bytes` one way within the window that hides it: 8·S/(T - k·RTT).

    The rate is infinite where the round trips alone fill the window.
    """
    return need_gbps(link_bytes, window_seconds, wan.round_trips * link_rtt_ms / 1e3)


def need_gbps(size_bytes: float, window_seconds: float, wait_seconds: float) -> float:
    """Compute the rate in Gbps that moves bytes within a window less a wait; infinite where the wait fills it."""
    left = window_seconds - wait_seconds
    return 8 * size_bytes / left / 1e9 if left > 0 else math.inf


def wavelengths(wan: Wan, need_gbps: float) -> int:
    """Count the wavelengths that carry a need."""
    return math.ceil(need_gbps / wan.wavelength_gbps - 1e-9)


def fibre_pairs(wan: Wan, count: int) -> int:
    """Count the fibre pairs that carry `count` wavelengths."""
    return math.ceil(count / wan.max_wavelengths_per_pair)
