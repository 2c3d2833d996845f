"""A plan worked out by hand on two sites, every figure from physics and none from a solver: it breaks no rule."""

import json
from typing import Any

from fabric_cases import flat_price

from planner.checks.check_plan import check
from planner.cluster.hostlists import parse
from planner.instance.instance import Instance, instance_sha256
from planner.physics.network import uplink_slowdowns
from planner.physics.network.clos_fabric import Design
from planner.physics.network.locality import Locality, locality
from planner.physics.site import cost, site_power, wan, wan_exchange
from planner.physics.site.cost import bill
from planner.physics.site.grid import usable_interconnect_mw
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy, layout_values
from planner.physics.training.step_prediction import Conditions
from planner.plan import certificate
from planner.plan.certificate import UNITS, Certificate
from planner.plan.plan import Plan
from planner.plan.plan_sections import FabricPlan, LayoutMetrics, Link, SharedLink, Site, SiteFabric, SitesPlan

RACKS = {"e1": 8, "w1": 6}
# A layout fixed in part, so that the planner finds the plan of the instance in a moment.
LAYOUT = {"layout.tensor_parallel": 2, "layout.context_parallel": 1, "layout.pipeline_parallel": 2}
LAYOUT |= {"layout.zero_stage": 1}
BUILT = {"e1-e2-new": 1}
STRATEGY = ParallelStrategy(
    tensor_parallel=2, pipeline_parallel=2, data_parallel_by_site=(6, 4), virtual_stages=2, micro_batch=1,
    micro_batches=4, recompute="selective", sequence_parallel=True, zero_stage=1, layers_per_stage=(4, 4),
    replicas_per_rack=2,
)  # fmt: skip
WIRING = {"ports": 16, "rails": 4, "leaf_down": 4, "leaf_up": 2, "leaf_bundle": 1}
WIRING |= {"rails_per_pod": 2, "domains_per_pod": 2, "spine_up": 2, "spine_bundle": 1}
# Stage, leaf domain and racks of each piece, by site.
ASSIGNMENT = {"e1": [(0, 0, "r[0-2]"), (1, 1, "r[4-6]")], "w1": [(0, 0, "r[0-1]"), (1, 0, "r[2-3]")]}
PRECISION = {"compute": "bf16", "parameter_bytes": 6, "gradient_bytes": 4, "optimizer_bytes": 8}
PRECISION |= dict.fromkeys(("working_parameter_bytes", "activation_bytes", "collective_bytes"), 2)
GPU = {"name": "slow", "hbm_bytes": 4e6, "hbm_bytes_per_second": 1e9, "peak_flop_per_second": {"bf16": 1e7}}
GPU |= {"gemm_efficiency": {"max_share": {"bf16": 0.5}}, "nic_bytes_per_second": 1e6, "nic_latency_seconds": 1e-5}
GPU |= {"scale_up_bytes_per_second": 1e8, "scale_up_latency_seconds": 1e-6}


def _node(name: str, area: str, latitude: int, longitude: int, **figures: Any) -> dict[str, Any]:
    return {"id": name, "balancing_authority": area, "latitude": latitude, "longitude": longitude, **figures}


GRID = {
    "balancing_authorities": [
        {"id": "EAST", "interconnection": "eastern", "headroom_mw": 1.5, "energy_usd_per_mwh": 40},
        {"id": "WEST", "interconnection": "western", "headroom_mw": 1.2, "energy_usd_per_mwh": 50},
    ],
    "nodes": [
        _node("e1", "EAST", 40, -76, generation_mw=1.3, area_m2=1000),
        _node("e2", "EAST", 41, -77, generation_mw=0.5, site=False),
        _node("w1", "WEST", 33, -113, generation_mw=1.2),
        _node("w2", "WEST", 34, -112, generation_mw=0.5),
    ],
    "lines": [
        {"id": "e1-e2", "a": "e1", "b": "e2", "circuits": 2, "rating_mw": 0.5},
        {"id": "w1-w2", "a": "w1", "b": "w2", "circuits": 2, "rating_mw": 0.6},
    ],
    "new_lines": [{"id": "e1-e2-new", "a": "e2", "b": "e1", "max_circuits": 2, "rating_mw": 0.5, "capex_usd": 1e5}],
    "rules": {"interconnect": {"enabled": True, "share": 0.5, "reading": "capacity_n1"},
     "fault_split": {"enabled": True, "max_share": 0.6}, "max_sites": 2, "min_site_modules": 2, "max_rtt_ms": 60},
    "prices": {"building_usd_per_it_mw": 1e6, "interconnection_usd_per_mw": 5e5, "site_usd": 1e6},
}  # fmt: skip
INSTANCE: dict[str, Any] = {
    "name": "worked",
    "limits": {"budget_usd": 34e6, "facility_power_mw": 2.5, "max_batch_tokens": 6000},
    "workload": {"model": {"name": "tiny", "layers": 8, "hidden": 64, "heads": 4, "vocabulary": 1000}, "tokens": 1e6,
     "sequence_length": 128, "precision": PRECISION, "software": {"name": "ideal"}},
    "hardware": {"accelerator": GPU, "rack": {"name": "rack", "gpus": 4, "it_kw": 100, "price_usd": 2e6},
     "racks_per_module": 2, "facility_overhead_factor": 1.5, "overhead_includes_fabric": True, "cooling_kw_per_m2": 2},
    "grid": GRID,
    "wan": {"wavelength_gbps": 0.001, "wavelength_usd": 1e3, "fibre_usd_per_route_km": 10},
    "network": {
        "switches": [
            {"name": "box", "ports": 16, "port_gbps": 0.008, "planes": 2, "price_usd": 1e4, "power_watts": 100}
        ],
        "optics": {"name": "module", "price_usd": 100, "power_watts": 5},
    },
}  # fmt: skip


def instance_with(**changes: Any) -> Instance:
    """Return the instance with changed figures, by dotted path with __ for dots, such as limits__deadline_days=3."""
    return Instance.model_validate(with_entries(INSTANCE, changes))


def edited(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with changed entries and nothing recomputed, by the same paths."""
    return Plan.model_validate(with_entries(plan.model_dump(mode="json"), changes))


def edited_at(plan: Plan, path: str, change: Any) -> Plan:
    """Return the plan with the entry at a dotted path replaced, or put through `change`."""
    return Plan.model_validate(with_entries(plan.model_dump(mode="json"), {path: change}))


def leaves(data: Any, path: str = "", *, without: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    """List the entries of JSON that hold no others, by dotted path, but for those of keys that are left out."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if entries is None:
        return [(path, data)]
    below = ((f"{path}.{k}".lstrip("."), x) for k, x in entries if k not in without)
    return [entry for at, x in below for entry in leaves(x, at, without=without)]


def rules(plan: Plan) -> set[str]:
    """Return the names of the rules that a plan breaks, without what they are about."""
    return {rule.split("[")[0] for rule in named(plan)}


def named(plan: Plan) -> set[str]:
    """Return the names of the rules that a plan breaks, in full, but for the columns that its bound rests on."""
    # To enumerate these takes 50 times as long as all other rules; tests/checks/joint does.
    return {v.rule for v in check(plan, stop=lambda: True)}


def worked(
    instance: Instance,
    *,
    strategy: ParallelStrategy = STRATEGY,
    assignment: dict[str, Any] | None = None,
    **wiring: int,
) -> Plan:
    """Work out the whole plan for choices given in full, whether they keep the rules or not."""
    racks, assignment = RACKS, assignment or ASSIGNMENT
    rates = {"nic_gbps": instance.hardware.gpu_nic_bytes_per_second * 8e-9 / wiring.get("lanes", 1)}
    rates |= {"link_gbps": instance.network.switches[0].port_gbps}
    designs = {s: Design(racks=n, **{**WIRING, **wiring}, **rates) for s, n in racks.items()}
    stages = {s: _stages(a, strategy.pipeline_parallel) for s, a in assignment.items()}
    wrap = strategy.virtual_stages > 1
    where = {s: locality(stages[s], designs[s].block_racks, wrap=wrap) for s in racks}
    send, allreduce = (max(s) for s in zip(*(_slowdowns(instance, designs[s], where[s]) for s in racks), strict=True))
    own = {"transport_slowdown": instance.network.transport.slowdown}
    conditions = Conditions(pipeline_send_slowdown=send, allreduce_slowdown=allreduce, **own)
    quick = step_prediction.metrics(instance, conditions, strategy)
    link = _link(instance, quick)
    waves, a = link.wavelengths, {"pipeline_send_slowdown": send, "allreduce_slowdown": allreduce}
    a |= {"wan_gbps": waves * 0.001 / instance.wan.headroom_factor, "wan_rtt_ms": link.rtt_ms}
    metrics = step_prediction.metrics(instance, Conditions(**a, **own), strategy)
    fabrics = {s: _fabric(instance, designs[s], where[s], metrics) for s in racks}
    sites, days = _sites(instance, racks, link), metrics.days_to_train
    money = bill(instance, sum(racks.values()), sites, fabrics)
    value = days if instance.objective.minimize == "days_to_train" else money.total_usd
    joint = _proof(value, what=UNITS[instance.objective.minimize])
    degrees = (strategy.tensor_parallel, 1, strategy.pipeline_parallel, strategy.data_parallel, waves)
    words = {"how": certificate.SITES_FORMULATION, "what": certificate.SITES_MINIMIZES}
    own = _proof(money.total_usd, **words, by="HiGHS 1.13.1 through Pyomo 6.10.1")
    sites = sites.replaced(certificate=own.replaced(given=certificate.given_to_sites(*degrees)))
    fabric = FabricPlan(sites=fabrics, certificate=joint)
    layout = _layout(instance, strategy, racks, a, metrics) | {"certificate": joint}
    placement = _placement(assignment, where, strategy.pipeline_parallel * len(racks)) | {"certificate": joint}
    words = {"space": certificate.SPACE, "outside": certificate.OUTSIDE}
    objective = {"name": instance.objective.minimize, "value": value, "bound": None, "gap": None, **words}
    question = {"planner_version": "0", "instance": instance, "instance_sha256": instance_sha256(instance)}
    sections = {"sites": sites, "layout": layout, "fabric": fabric, "placement": placement, "cost": money}
    ended = {"status": "feasible", "stopped": "limit", "objective": objective}
    return Plan.model_validate(question | ended | sections)


def _slowdowns(instance: Instance, d: Design, where: Locality) -> tuple[float, float]:
    """Return the slowdowns of pipeline sends and all-reduces."""
    loads = uplink_slowdowns.uplink_loads(d, where.share_leaving, where.allreduces_leaving)
    return uplink_slowdowns.slowdowns(instance.network.transport.slowdown, loads)


def small(**changes: Any) -> Plan:
    """Return the worked plan of the instance with changed figures."""
    return worked(instance_with(**changes))


def with_entries(data: Any, changes: dict[str, Any]) -> Any:
    """Copy JSON data and set entries by path, dotted or with __ for dots; a function is applied to what is there."""
    data = json.loads(json.dumps(data))
    for path, value in changes.items():
        *parts, last = path.replace("__", ".").split(".")
        holder = data
        for part in parts:
            holder = holder[int(part)] if isinstance(holder, list) else holder.setdefault(part, {})
        key = int(last) if isinstance(holder, list) else last
        holder[key] = value(holder[key]) if callable(value) else value
    return data


def _stages(pieces: Any, count: int) -> list[list[int]]:
    ranks: list[list[int]] = [[] for _ in range(count)]
    for stage, _, racks in pieces:
        ranks[stage] += parse(racks)
    return ranks


def _proof(
    objective: float, *, how: str = certificate.FORMULATION, what: str = UNITS["days_to_train"], by: str = ""
) -> Certificate:
    """Return a certificate that claims no bound: a plan by hand proves nothing; its words are those of a proof."""
    none = {"bound": None, "gap": None, "variables": 0, "constraints": 0, "seconds": 0, "seed": 0}
    words = {"solver": by or certificate.GRID_BRANCHING, "formulation": how, "minimizes": what}
    return Certificate(status="feasible", objective=objective, **none, **words)


def _link(instance: Instance, m: LayoutMetrics) -> Link:
    w, nodes = instance.wan, {n.id: n for n in instance.grid.nodes}
    ends = (x for name in ("e1", "w1") for x in (nodes[name].latitude, nodes[name].longitude))
    km = wan.great_circle_km(*ends) * w.route_factor
    rtt, size = wan.rtt_ms(w, km), wan_exchange.exchange_bytes(m.gradient_bytes_per_stage, 2)
    need = wan_exchange.need_gbps(size, m.wan_window_seconds, w.round_trips * rtt / 1e3) * w.headroom_factor
    waves = wan.wavelengths(w, need)
    return Link(
        a="e1", b="w1", route_km=km, rtt_ms=rtt, required_gbps=waves * w.wavelength_gbps, wavelengths=waves,
        capacity_gbps=waves * w.wavelength_gbps, fibre_pairs=wan.fibre_pairs(w, waves),
        usd_per_year=cost.link_usd_per_year(instance.grid, w, (km * w.fibre_usd_per_route_km, w.wavelength_usd), waves),
    )  # fmt: skip


def _sites(instance: Instance, racks: dict[str, int], link: Link) -> SitesPlan:
    h, grid = instance.hardware, instance.grid
    areas, nodes = {b.id: b for b in grid.balancing_authorities}, {n.id: n for n in grid.nodes}
    held = []
    for s, n in racks.items():
        x = nodes[s]
        area = areas[x.balancing_authority]
        held.append(
            Site(
                id=s, balancing_authority=area.id, interconnection=area.interconnection,
                modules=n // h.racks_per_module, racks=n, gpus=n * h.rack.gpus, it_mw=site_power.it_mw(h, n),
                facility_mw=site_power.facility_mw(h, n), cooling_m2=site_power.cooling_m2(h, n), latitude=x.latitude,
                longitude=x.longitude,
                interconnect_mw=usable_interconnect_mw(grid, x, BUILT) if grid.rules.interconnect.enabled else None,
            )
        )  # fmt: skip
    # Plants at e2 send 0.1 MW over the standing circuits, against their direction, and 0.2 MW over the built one.
    fed = {"e1": held[0].facility_mw - 0.3, "e2": 0.3, "w1": held[1].facility_mw}
    flows = [{"line": "e1-e2", "mw": -0.1}, {"line": "e1-e2-new", "mw": 0.2}]
    built = [{"line": k, "circuits": n} for k, n in BUILT.items()]
    own = {"sites": held, "links": [link], "new_lines": built, "generation_mw": fed, "flows": flows}
    return SitesPlan.model_validate(own | {"certificate": _proof(0.0)})


def _layout(
    instance: Instance, strategy: ParallelStrategy, racks: dict[str, int], a: dict[str, float], metrics: LayoutMetrics
) -> dict[str, Any]:
    by_site = dict(zip(sorted(racks), strategy.data_parallel_by_site, strict=True))
    used = strategy.data_parallel * strategy.pipeline_parallel * strategy.tensor_parallel
    total = sum(racks.values()) * instance.hardware.rack.gpus
    return {
        **layout_values(strategy), "recomputed_layers_per_stage": strategy.recomputed_layers_per_stage,
        "data_parallel_by_site": by_site,
        "racks_per_stage_by_site": {s: -(-d // strategy.replicas_per_rack) for s, d in by_site.items()},
        "gpus_used": used, "gpus_idle": total - used, "assumptions": a, "metrics": metrics,
    }  # fmt: skip


def _fabric(instance: Instance, d: Design, where: Any, m: LayoutMetrics) -> SiteFabric:
    network, box = instance.network, instance.network.switches[0]
    send, allreduce = _slowdowns(instance, d, where)
    found = [
        ("leaf", d.leaves, d.leaf_down, d.leaf_up, d.leaf_bundle, d.oversubscription["leaf"]),
        ("spine", d.spines, d.spine_down, d.spine_up, d.spine_bundle, d.oversubscription["spine"]),
        ("core", d.cores, d.core_down, d.core_up, d.core_bundle, d.oversubscription["core"]),
        ("super-spine", d.super_spines, d.zones * d.core_bundle, 0, 0, 1.0),
    ]
    keys = "name", "switches", "down_ports", "up_ports", "bundle", "oversubscription"
    tiers = [dict(zip(keys, values, strict=True)) for values in found[: d.tiers]]
    return SiteFabric.model_validate(
        {
            "switch": box.name, "planes": box.planes, "ports_per_switch": box.ports, "tiers": tiers,
            "chips": d.switches * box.planes, "split": d.split, "switches": d.switches,
            "switch_links": d.switch_links, "endpoint_links": d.endpoint_links,
            **dict(zip(("cost_usd", "power_mw"), flat_price(network, box, d), strict=True)),
            "leaf_domain_racks": d.leaf_down, "leaf_domains": d.domains, "rails_per_pod": d.rails_per_pod,
            "leaf_domains_per_pod": d.domains_per_pod, "pods": d.pods, "rails_per_zone": d.rails_per_zone,
            "leaf_domains_per_zone": d.domains_per_zone, "zones": d.zones, "share_leaving_leaf": where.share_leaving[0],
            "share_leaving_pod": where.share_leaving[1], "share_leaving_zone": where.share_leaving[2],
            "p2p_seconds": m.pipeline_send_nic_seconds * send, "pipeline_send_slowdown": send,
            "allreduce_slowdown": allreduce,
            "shared_links": _shared_links(network.transport.slowdown, d, where) if m.sends_beside_rings else (),
        }
    )  # fmt: skip


def _shared_links(phi: float, d: Design, where: Locality) -> list[dict[str, Any]]:
    """Return the slowdowns of the links that sends and rings share."""
    found = uplink_slowdowns.shared_links(
        phi, uplink_slowdowns.uplink_loads(d, where.share_leaving, where.allreduces_leaving)
    )
    return [dict(zip(SharedLink.model_fields, (name, *x), strict=True)) for name, x in found.items()]


def _placement(assignment: dict[str, Any], where: dict[str, Locality], groups: int) -> dict[str, Any]:
    names, keys = ("groups_split", "extra_pieces", "groups_cross_pod"), ("stage", "leaf_domain", "racks")
    found: dict[str, Any] = {name: sum(getattr(x, name) for x in where.values()) for name in names}
    pieces = {s: [dict(zip(keys, piece, strict=True)) for piece in own] for s, own in assignment.items()}
    found |= {"groups": groups, "groups_leaf_local": groups - found["groups_split"], "lower_bound_split": 0}
    return found | {"sites": {s: {"assignment": own} for s, own in pieces.items()}}
