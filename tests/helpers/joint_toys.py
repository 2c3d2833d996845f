"""Tiny instances that can be enumerated: clusters, one site, and grids of two to four nodes."""

import itertools
import random
from typing import Any

from planner.instance.instance import Instance

PHI = 1.1
WAN = {"max_wavelengths_per_pair": 2, "max_fibre_pairs": 2, "headroom_factor": 1.0}
SITE_PRICES = {"building_usd_per_it_mw": 100, "interconnection_usd_per_mw": 20}
GPU = {
    "name": "tiny", "hbm_bytes_per_second": 1e12, "peak_flop_per_second": {"bf16": 1e14},
    "gemm_efficiency": {"max_share": {"bf16": 0.8}, "operand_traffic": 0.1}, "kernel_seconds": 1e-6,
    "scale_up_bytes_per_second": 2e11, "scale_up_latency_seconds": 4e-6, "nic_latency_seconds": 8e-6,
}  # fmt: skip
PRECISION = {
    "compute": "bf16", "parameter_bytes": 6, "working_parameter_bytes": 2, "gradient_bytes": 4, "optimizer_bytes": 8,
    "activation_bytes": 2, "collective_bytes": 2,
}  # fmt: skip
SOFTWARE = {
    "name": "flash", "launch_seconds": 1e-6, "microbatch_seconds": 1e-4, "step_seconds": 1e-3, "tensor_overlap": 0.5,
    "sharding_exposed": 0.1,
}  # fmt: skip


def switches(r: random.Random) -> dict[str, Any]:
    overlaps = ("context", "experts", "gradients", "parameters", "sends", "tensor")
    return {
        "overlaps": sorted(r.sample(overlaps, r.randint(0, len(overlaps)))),
        "dispatcher": r.choice(["all_to_all", "deep_ep", "hybrid_ep"]),
        "cuda_graphs": r.choice(["none", "part", "whole"]), "fused_experts": r.random() < 0.5,
        "fused_loss": r.random() < 0.5, "activation_offload": r.choice([0.0, 0.5]), "expert_overlap": 0.6,
        "overlap_launch_seconds": 2e-6,
    }  # fmt: skip


def toy(seed: int, *, sites: int = 0, forced: bool = False, **changes: Any) -> Instance:
    """Return a random instance that can be enumerated: one cluster, or a small grid with so many nodes."""
    # `forced`: TP fills racks, and there are several replicas of several stages, so that the network, the split and
    # the fibre matter.
    r = random.Random(seed)
    layers, gpus, rack_usd = r.randint(2, 3), r.randint(2, 3), 1000.0
    racks = r.randint(3, 6)
    ports = (r.randint(3, 5), 8)
    boxes = [_switch(f"s{k}", k, r.choice([50, 200, 400]), 100) for k in ports]
    network = _network(boxes, r.choice([5, 20]))
    given: dict[str, Any] = {
        "name": f"toy {seed}",
        "limits": {
            "max_batch_tokens": r.randint(4, 8) * 1024, "memory_reserve_fraction": 0.0,
            "budget_usd": racks * rack_usd * r.uniform(1.05, 1.6),
        },
        "workload": {
            "model": {"name": "m", "layers": layers, "hidden": 1536, "heads": 6, "vocabulary": 4000}, "tokens": 1e9,
            "sequence_length": 1024, "precision": PRECISION, "software": SOFTWARE,
        },
        "hardware": {
            "accelerator": GPU | {
                "hbm_bytes": r.choice([0.22e9, 0.35e9, 0.9e9]), "nic_bytes_per_second": r.choice([5e9, 2e10, 8e10]),
            },
            "rack": {"name": "r", "gpus": gpus, "it_kw": 1000, "price_usd": rack_usd}, "racks": racks,
        },
        "network": network, "pins": {"layout.zero_stage": r.randint(0, 3)},
    }  # fmt: skip
    if forced:
        given["pins"] |= _parallel(gpus, replicas=r.randint(2, 3), stages=r.randint(1, 2))
        given["hardware"]["racks"] = 6
        given["limits"]["budget_usd"] = 6 * rack_usd * r.uniform(1.15, 1.5)
    if sites:
        given["hardware"] |= {"facility_overhead_factor": 1.2}
        given["hardware"]["overhead_includes_fabric"] = r.random() < 0.5
        given["hardware"].pop("racks")
        given["grid"] = _grid(r, sites)
        given["wan"] = WAN | {
            "fibre_usd_per_route_km": r.choice([0.1, 1.0]), "wavelength_usd": 20,
            "wavelength_gbps": r.choice([0.5, 5.0]),
        }  # fmt: skip
    _set_port_rates(given, 1.0)
    return Instance.model_validate(given | changes)


def _parallel(gpus: int, *, stages: int, replicas: int) -> dict[str, int]:
    return {"layout.tensor_parallel": gpus, "layout.pipeline_parallel": stages, "layout.data_parallel": replicas}


def _set_port_rates(given: dict[str, Any], nics: float) -> None:
    for switch in given["network"]["switches"]:
        switch["port_gbps"] = nics * given["hardware"]["accelerator"]["nic_bytes_per_second"] * 8 / 1e9


def _switch(name: str, ports: int, usd: float, watts: float) -> dict[str, Any]:
    """Return a switch by its price for eight ports and its power for one."""
    figures = {"price_usd": usd * ports / 8, "power_watts": watts * ports}
    return {"name": name, "ports": ports, "port_gbps": 800} | figures


def _network(switches: list[dict[str, Any]], optics_usd: float) -> dict[str, Any]:
    return {
        "switches": switches, "optics": {"name": "o", "price_usd": optics_usd, "power_watts": 10},
        "cables": {"endpoint_usd": 3, "switch_usd": 4}, "transport": {"slowdown": PHI}, "max_tiers": 3,
    }  # fmt: skip


def _area(name: str, headroom_mw: float, usd: float) -> dict[str, Any]:
    return {"id": name, "interconnection": name, "headroom_mw": headroom_mw, "energy_usd_per_mwh": usd}


def _place(name: str, at: tuple[float, float], **figures: Any) -> dict[str, Any]:
    return {"id": name, "balancing_authority": name[0], "latitude": at[0], "longitude": at[1]} | figures


def _grid(r: random.Random, sites: int) -> dict[str, Any]:
    places = dict(itertools.islice({"E": (40.0, -76.0), "W": (33.0, -80.0), "T": (36.0, -90.0)}.items(), sites))
    return {
        "balancing_authorities": [_area(n, r.choice([1.3, 2.5, 3.7]), 40) for n in places],
        "nodes": [_place(f"{n}1", at, generation_mw=100) for n, at in places.items()],
        "rules": {"grid_model": "none", "generation": False, "max_sites": min(sites, 2)},
        "prices": SITE_PRICES | {"site_usd": r.choice([50, 300])},
    }


def deeper(seed: int) -> Instance:
    """Return a toy with more layers, tight memory, and for some seeds ZB-H1, experts or selective recompute."""
    r, i = random.Random(seed), toy(seed)
    changes: dict[str, Any] = {"layers": r.randint(5, 7)}
    if seed % 4 == 1:
        changes["experts"] = {"count": 4, "per_token": 2, "ffn": 512}
    given = i.model_dump(mode="json", exclude_none=True)
    given["workload"]["model"] |= changes
    given["workload"]["software"] |= {"schedules": ["1f1b", "zb-h1"], **switches(r)}
    if seed % 4 == 2:
        given["workload"]["software"] |= {"selective_gemm_share": 0.2}
    given["hardware"]["accelerator"]["hbm_bytes"] = r.choice([0.4e9, 0.6e9, 1.2e9])
    given["hardware"]["racks"] = 12
    given["limits"] |= {"budget_usd": 1e9, "max_batch_tokens": 12 * 1024}
    given["pins"] = {}
    return Instance.model_validate(given)


def name_of(seed: int, how: dict[str, Any]) -> str:
    """Return the name of a test's case of a toy."""
    return "-".join([f"{seed}", *how])


def with_pins(i: Instance, **pins: Any) -> Instance:
    return i.replaced(pins={**i.pins, **pins})


KINDS = ("cluster", "site", "grid", "experts", "context")
PLACES = {"E1": (40.0, -76.0), "E2": (39.0, -79.0), "W1": (33.0, -112.0), "T1": (32.0, -97.0)}
RACK_USD, RACK_MW, OVERHEAD = 1000.0, 1.0, 1.2


def kind_of(seed: int) -> str:
    return KINDS[seed % len(KINDS)]


def case(seed: int) -> Instance:
    """Return a random instance on which network, split or fibre often bind."""
    # One cluster, one site of a grid, several nodes of one, a mixture of experts, or sequences so long that CP leaves
    # the rack. Budgets are a few racks and little more, NICs slow, switches of 3 to 8 ports.
    r, kind = random.Random(seed), kind_of(seed)
    gpus, racks, forced = r.randint(2, 3), r.randint(3, 6), r.random() < 0.75
    small = [0.35e9, 0.6e9, 0.9e9] if kind not in ("grid", "experts") else [0.6e9, 0.9e9, 1.4e9]
    given: dict[str, Any] = {
        "name": f"case {seed}, {kind}",
        "workload": {"tokens": 1e9, "precision": PRECISION, "software": SOFTWARE, **_model(r, kind)},
    }
    hbm = r.choice(small)
    nic = r.choice([1e9, 2e9, 5e9, 2e10] if kind != "context" else [1e10, 4e10, 8e10])
    given["hardware"] = {
        "accelerator": GPU | {"hbm_bytes": hbm, "nic_bytes_per_second": nic},
        "rack": {"name": "r", "gpus": gpus, "it_kw": 1e3 * RACK_MW, "price_usd": RACK_USD},
        "racks": racks,
    }
    ports = (("a", r.randint(3, 4)), ("b", r.choice([5, 5, 6, 8])))
    boxes = [_switch(f"{n}{k}", k, r.choice([50, 150, 300]), r.choice([100, 4000])) for n, k in ports]
    given["network"] = _network(boxes, r.choice([5, 20, 60]))
    given["pins"] = {"layout.zero_stage": r.randint(0, 3)} if r.random() < 0.8 else {}
    for _ in range(2):  # the second draw counts
        sequences = r.randint(1, 2) if kind == "context" else r.randint(3, 6)
        given["limits"] = {
            "max_batch_tokens": sequences * given["workload"]["sequence_length"], "memory_reserve_fraction": 0.0,
            "budget_usd": racks * RACK_USD * r.uniform(1.05, 1.5),
        }  # fmt: skip
    if kind == "experts":
        given["pins"]["layout.sequence_parallel"] = False
    if forced and (kind in ("cluster", "site") or (kind == "grid" and r.random() < 0.4)):
        # Whole racks for TP and several replicas of several stages: exchanges leave leaf domains.
        replicas = r.randint(2, 3)
        given["pins"] |= _parallel(gpus, stages=2, replicas=replicas)
        given["hardware"]["accelerator"]["hbm_bytes"] = 2e9
        given["hardware"]["racks"] = 2 * replicas
        given["limits"]["budget_usd"] = 2 * replicas * RACK_USD * r.uniform(1.2, 2.2)
    if forced and (kind in ("cluster", "site") or (kind == "grid" and r.random() < 0.4)):
        _force(r, given)
    nodes = {"cluster": 0, "site": 1, "grid": r.randint(2, 4), "context": r.choice([0, 2])}.get(kind, r.choice([0, 2]))
    if nodes:
        given["hardware"]["facility_overhead_factor"] = OVERHEAD
        given["hardware"]["overhead_includes_fabric"] = r.random() < 0.5
        given["grid"], given["wan"] = _nodes(r, nodes, given["hardware"]["racks"]), _fibre(r)
        given["limits"]["budget_usd"] += given["hardware"].pop("racks") * (250 if nodes > 1 else 160)
    _set_port_rates(given, 1.5 if seed % 3 == 2 else 1.0)
    return Instance.model_validate(given)


def _force(r: random.Random, given: dict[str, Any]) -> None:
    """Ask for several replicas of several stages that fill racks, and leave money for some fabrics but not for all."""
    # So exchanges leave leaf domains, and the money decides how many uplinks they have.
    stages, replicas, gpus = r.randint(2, 3), r.choice([3, 3, 2]), given["hardware"]["rack"]["gpus"]
    racks, net = stages * replicas, given["network"]
    given["workload"]["model"]["layers"] = 3
    if r.random() < 0.4:
        # Large activations and small gradients: sends weigh more than allreduces.
        given["workload"]["model"]["hidden"], given["workload"]["sequence_length"] = 192, 8192
        given["limits"]["max_batch_tokens"] = 3 * replicas * 8192
    given["pins"] |= _parallel(gpus, stages=stages, replicas=replicas)
    given["hardware"]["accelerator"]["hbm_bytes"] = 3e9
    given["hardware"]["racks"] = racks
    for k, s in zip((r.randint(3, 4), r.randint(4, 6)), net["switches"], strict=True):
        s |= {"price_usd": s["price_usd"] / s["ports"] * k, "ports": k, "name": f"{s['name'][0]}{k}"}
    port = min(s["price_usd"] / s["ports"] for s in net["switches"])
    optics = 2 * net["optics"]["price_usd"]
    fabric = 3 + optics + port * r.uniform(2.0, 4.0) + (4 + optics) * r.uniform(0.4, 1.2)
    given["limits"]["budget_usd"] = racks * (RACK_USD + gpus * fabric)


def _model(r: random.Random, kind: str) -> dict[str, Any]:
    model: dict[str, Any] = {"name": "m", "layers": r.randint(2, 3), "hidden": 1536, "heads": 6, "vocabulary": 4000}
    if kind == "experts":
        experts = {"count": r.choice([2, 3, 4, 6]), "per_token": r.randint(1, 2), "ffn": r.choice([2048, 4096])}
        model["experts"] = experts
        model["layers"] = 2
    if kind == "context":
        model |= {"hidden": 768, "heads": r.choice([2, 3, 6]), "layers": 2}
    return {"model": model, "sequence_length": 8192 if kind == "context" else 1024}


def _fibre(r: random.Random) -> dict[str, Any]:
    return WAN | {
        "fibre_usd_per_route_km": r.choice([0.02, 0.1]), "wavelength_usd": r.choice([20, 80]),
        "wavelength_gbps": r.choice([5.0, 20.0, 100.0]), "round_trips": r.choice([0.0, 0.2, 0.2, 1.0, 1.0]),
    }  # fmt: skip


def _nodes(r: random.Random, count: int, racks: int) -> dict[str, Any]:
    """Return a grid of so many nodes that can feed a few racks more than the money buys, but rarely at one node."""
    names = ["E1"] if count == 1 else ["E1", "W1", "E2", "T1"][:count]
    rack = RACK_MW * OVERHEAD
    split = count > 1 and r.random() < 0.7
    pairs = [p for p in itertools.combinations(names, 2) if p[0][0] == p[1][0]]
    areas = sorted({n[0] for n in names})
    most = max(2.0, racks / len(areas)) if count > 1 else 1.6 * racks
    return {
        "balancing_authorities": [
            _area(a, rack * r.uniform(0.9, 2.0) * most, r.choice([30, 50])) for a in areas
        ],
        "nodes": [
            _place(
                n, PLACES[n], generation_mw=rack * r.uniform(0.8, 2.2) * most,
                interconnect_mw=rack * r.uniform(0.8, 1.6) * most / 2, site=k == 0 or r.random() < 0.9,
            )
            for k, n in enumerate(names)
        ],
        "lines": [{"id": f"{a}-{b}", "a": a, "b": b, "rating_mw": rack * r.uniform(0.5, 2.5)} for a, b in pairs],
        "new_lines": [
            {"id": f"new-{a}-{b}", "a": a, "b": b, "max_circuits": 1, "rating_mw": rack * r.uniform(0.5, 2.5),
             "capex_usd": r.choice([20, 200])}
            for a, b in pairs
        ],
        "rules": {
            "grid_model": r.choice(["none", "transport", "transport"]),
            "interconnect": {"enabled": r.random() < 0.5}
            | ({"reading": r.choice(["explicit", "explicit", "capacity"])} if pairs else {}),
            "fault_split": {"enabled": split, "max_share": r.choice([0.6, 0.8])},
            "max_sites": min(count, r.choice([2, 2, 3])),
        },
        "prices": SITE_PRICES | {"site_usd": r.choice([20, 150])},
    }  # fmt: skip
