"""Instances on which deciding sites, layout, fabric and fibre one after another loses: a seam between two decisions."""

from typing import Any

from joint_toys import GPU, PRECISION, SOFTWARE

from planner.instance.instance import Instance

RACK_USD = 100e3
PLACES = {"E1": (40.0, -76.0), "E2": (40.0, -78.0), "W1": (33.0, -112.0), "T1": (32.0, -97.0)}


def _base(**changes: Any) -> dict[str, Any]:
    """Return a cluster of racks of 4 GPUs behind switches of 16 to 24 ports."""
    return {
        "name": "seam",
        "limits": {"max_batch_tokens": 96 * 2048, "memory_reserve_fraction": 0.0},
        "workload": {
            "model": {"name": "m", "layers": 8, "hidden": 2048, "heads": 16, "vocabulary": 8000},
            "tokens": 1e11,
            "sequence_length": 2048,
            "precision": PRECISION,
            "software": SOFTWARE,
        },
        "hardware": {
            "accelerator": GPU | {"hbm_bytes": 4e9, "nic_bytes_per_second": 2e10},
            "rack": {"name": "r", "gpus": 4, "it_kw": 1000, "price_usd": RACK_USD},
            "facility_overhead_factor": 1.2,
            "overhead_includes_fabric": True,
        },
        "network": _network(1.0),
    } | changes


def _network(factor: float) -> dict[str, Any]:
    return {
        "switches": [
            {"name": f"s{k}", "ports": k, "port_gbps": 400, "price_usd": 600 * k * factor, "power_watts": 40 * k}
            for k in (16, 24)
        ],
        "optics": {"name": "o", "price_usd": 400 * factor, "power_watts": 10},
        "cables": {"endpoint_usd": 40, "switch_usd": 60},
        "transport": {"slowdown": 1.05},
        "max_tiers": 3,
    }


def _grid(nodes: dict[str, dict[str, Any]], headroom: dict[str, float], **parts: Any) -> dict[str, Any]:
    usd = parts.pop("usd_per_mwh", {})
    return {
        "balancing_authorities": [
            {"id": a, "interconnection": a, "headroom_mw": mw, "energy_usd_per_mwh": usd.get(a, 40)}
            for a, mw in headroom.items()
        ],
        "nodes": [
            {
                "id": n,
                "balancing_authority": n[0],
                "latitude": PLACES[n][0],
                "longitude": PLACES[n][1],
                "generation_mw": 100,
            }
            | own
            for n, own in nodes.items()
        ],
        "prices": {"building_usd_per_it_mw": 20e3, "interconnection_usd_per_mw": 2e3, "site_usd": 50e3},
    } | parts


def _wan(**changes: Any) -> dict[str, Any]:
    return {
        "fibre_usd_per_route_km": 20,
        "wavelength_usd": 2e3,
        "wavelength_gbps": 100,
        "max_wavelengths_per_pair": 8,
        "max_fibre_pairs": 4,
        "headroom_factor": 1.0,
    } | changes


def _limits(budget: float, **changes: Any) -> dict[str, Any]:
    return {"max_batch_tokens": 96 * 2048, "memory_reserve_fraction": 0.0, "budget_usd": budget} | changes


def line_to_build() -> Instance:
    """Offer cheap energy behind a line to build, whose capital would buy racks elsewhere."""
    grid = _grid(
        {"E1": {"generation_mw": 40}, "E2": {"generation_mw": 2}, "W1": {}},
        {"E": 60, "W": 60},
        usd_per_mwh={"E": 10, "W": 60},
        rules={"grid_model": "transport", "max_sites": 1},
        new_lines=[{"id": "new", "a": "E1", "b": "E2", "rating_mw": 40, "capex_usd": 300e3}],
    )
    for n in grid["nodes"]:
        n["site"] = n["id"] != "E1"
    return Instance.model_validate(_base(grid=grid, wan=_wan(), limits=_limits(2.6e6)))


def thin_fibre() -> Instance:
    """Offer a second site that could hold as many racks again, behind fibre too thin for their gradients."""
    grid = _grid(
        {"E1": {}, "W1": {}}, {"E": 10, "W": 12}, rules={"grid_model": "none", "generation": False, "max_sites": 2}
    )
    wan = _wan(wavelength_gbps=100, max_wavelengths_per_pair=2, max_fibre_pairs=2)
    return Instance.model_validate(_base(grid=grid, wan=wan, limits=_limits(3e6)))


def dear_fabric(factor: float) -> Instance:
    """Make fabrics dearer by a factor, under a tight budget."""
    grid = _grid({"E1": {}}, {"E": 100}, rules={"grid_model": "none", "generation": False, "max_sites": 1})
    given = _base(grid=grid, wan=_wan(), limits=_limits(4e6), network=_network(factor))
    given["hardware"]["accelerator"] |= {"hbm_bytes": 1.3e9, "nic_bytes_per_second": 5e9}
    return Instance.model_validate(given)


def pair_of_sites() -> Instance:
    """Offer a near pair whose energy is dear, and a far one whose energy is cheap but whose fibre is long."""
    grid = _grid(
        {"E1": {}, "T1": {}, "W1": {}},
        {"E": 12, "T": 12, "W": 12},
        usd_per_mwh={"E": 30, "T": 45, "W": 25},
        rules={
            "grid_model": "none",
            "generation": False,
            "max_sites": 2,
            "fault_split": {"enabled": True, "max_share": 0.6},
        },
    )
    wan = _wan(fibre_usd_per_route_km=60)
    return Instance.model_validate(_base(grid=grid, wan=wan, limits=_limits(3e6)))


def small_boxes(ports: int) -> Instance:
    """Let a cluster have switches of one size of 16 to 24 ports only, more racks than one of them takes."""
    network = _network(4.0)
    network["switches"] = [
        {"name": f"s{ports}", "ports": ports, "port_gbps": 400, "price_usd": 2400 * ports, "power_watts": 40 * ports}
    ]
    given = _base(network=network, limits=_limits(32 * RACK_USD * 1.35))
    given["hardware"] |= {"racks": 32}
    return Instance.model_validate(given)


SEAMS: dict[str, Instance] = {
    "line to build": line_to_build(),
    "thin fibre": thin_fibre(),
    **{f"fabric x{f}": dear_fabric(f) for f in (1, 2, 4, 6)},
    "pair of sites": pair_of_sites(),
    **{f"{k} ports": small_boxes(k) for k in (16, 20, 24)},
}
