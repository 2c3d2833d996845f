"""Keys of schema version 1 that have another name in version 2, and where data hold them."""

from collections.abc import Iterable, Iterator
from typing import Any

BREAKDOWN_PARTS = {
    "matrix": "gemm",
    "vector": "elementwise",
    "pipeline_fill": "pipeline_bubble",
    "pipeline_exchange": "pipeline_send",
    "host": "cpu_overhead",
}  # parts of a step

# (a key above it, or "" for anywhere; the key of version 1): the key of version 2.
RENAMED_KEYS = {
    ("", "hop_slowdown"): "pipeline_send_slowdown",
    ("", "hop_seconds"): "pipeline_send_seconds",
    ("", "hop_nic_seconds"): "pipeline_send_nic_seconds",
    ("", "hop_window_seconds"): "pipeline_send_window_seconds",
    ("", "vector_traffic"): "elementwise_traffic",
    ("", "selective_matrix_share"): "selective_gemm_share",
    ("", "matrix_efficiency"): "gemm_efficiency",
    ("matrix_efficiency", "most"): "max_share",
    ("gemm_efficiency", "most"): "max_share",
    ("soft", "most"): "max_excess",
    ("", "least_aspect"): "min_aspect",
    ("", "most_aspect"): "max_aspect",
    ("", "border"): "wan_gateway",
    ("", "choice"): "model_choice",
    ("choice", "lost"): "compute_shares",
    ("demands", "asked_gbps"): "requested_gbps",
    ("demands", "short_of"): "saturated_edges",
    ("", "given_slowdown"): "configured_slowdown",
    ("space", "most_sites"): "max_sites",
    ("space", "most_modules"): "max_modules",
    ("space", "most_racks"): "max_racks",
    ("space", "most_racks_bound"): "max_racks_bound",
    ("space", "pairs_that_cannot_be_lit"): "pairs_over_wan_capacity",
    **{(above, old): new for above in ("breakdown_seconds", "lost") for old, new in BREAKDOWN_PARTS.items()},
}

# (a key above it, the key, the value of version 1): the value of version 2.
RENAMED_VALUES = {("tiers", "name", "super-core"): "super-spine"}

Location = tuple[int | str, ...]


def renamed(location: Location) -> str | None:
    """Return the name that version 2 has for the key at a location; None where the key is no key of version 1."""
    *above, key = location
    return next((new for (holder, old), new in RENAMED_KEYS.items() if old == key and holder in ("", *above)), None)


def renames_in(location: Location, value: Any) -> Iterator[tuple[Location, str]]:
    """Return the location of each key (or value) of version 1 at a location and below it, with its new name."""
    new = renamed(location) if location else None
    if new is not None:
        yield location, new
    if isinstance(value, str):
        for (above, key, old), new_value in RENAMED_VALUES.items():
            if (location[-1], value) == (key, old) and above in location:
                yield location, new_value
    entries: Iterable[tuple[int | str, Any]] = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for at, inner in entries:
        yield from renames_in((*location, at), inner)
