"""Consistency of an instance: complaints about parts that are missing, misnamed or do not go together."""

import re
from collections.abc import Collection, Iterable, Iterator

from planner.errors import InputError, hint, shown
from planner.instance.base_types import MAX_COUNT
from planner.instance.grid import SOFT_UNITS, Grid, Line, NewLine
from planner.instance.hardware import Accelerator, hardware_kind
from planner.instance.instance import Instance
from planner.instance.network import Medium, Network, Optics, Wan

RATE = re.compile(r"(\d+)G-")  # at the head of the name of a transceiver or cable without gbps: 400G-DR4
WEIGHT_TOLERANCE = 1e-9  # of a sum of probabilities written in decimals
MOST_PLACES = 2_000  # nodes that may hold a site
SYNC = "sync"  # the name of the gradient exchange among the demands of the wide area
ONE_SWITCH = ("switch", "planes", "ports_per_switch")  # pins that choose the switch, and with it the links of a GPU
NO_CHOICE = (  # of a model, where the goal is the least loss
    'is missing, and objective.minimize is "loss"; give the law and the family by which the model is chosen, or set '
    'that to another goal, such as "days_to_train", with workload.model and workload.tokens'
)
ACCESS = " access"  # ends the names of the ways from sites to their fibre nodes


def network_problems(network: Network | None) -> Iterator[str]:
    """Yield inconsistencies of an instance's network: missing parts, switches of one name, other port rates."""
    if network is None:
        return
    if network.media and network.floor is None:
        yield "network.floor: is missing; media are priced by length, which needs the floor; give {} for the usual one"
    names = [switch.name for switch in network.switches]
    for key, given in (("switches", names), ("families", list[str](network.families))):
        for name in sorted({name for name in given if given.count(name) > 1}):
            yield f"network.{key}: {name!r} is given {given.count(name)} times; keep one, or give others other names"
    links: list[tuple[Optics | Medium, float | None]] = []
    for part in network.media or (network.optics,):
        named = RATE.match(part.name)  # in files without a rate the name says it
        links.append((part, part.gbps or (float(named[1]) if named else None)))
    for switch in (switch for switch in network.switches if switch.link_factor == 1):
        for link, gbps in [(part, gbps) for part, gbps in links if gbps not in (None, switch.port_gbps)][:1]:
            ports = f"{switch.name!r} has ports of {switch.port_gbps:g} Gb/s, but links cost as {link.name}"
            own = f" of {gbps:g} Gb/s" if link.gbps else ", whose gbps is absent and whose name says another rate"
            yield f"network.switches: {ports}{own}; give parts of that rate, or its link_factor over them"


def reference_problems(instance: Instance, *, searched: bool) -> Iterator[str]:
    """Yield inconsistencies of an instance: unknown names, and missing parts, of a search too if it is `searched`."""
    yield from _without_type("workload.precision.compute", instance.hardware.accelerator, instance)
    yield from pool_problems(instance)
    yield from _alternative_problems(instance)
    batch, choose = instance.limits.max_batch_tokens, instance.workload.choose
    sequence = instance.workload.sequence_length
    if batch is None and searched and (choose is None or choose.critical_batch is None):
        yield "limits.max_batch_tokens: is missing; give the critical batch in tokens (published laws span 1e7 to 1e9)"
    elif batch is not None and batch > MAX_COUNT * sequence:
        many = f"must be at most {MAX_COUNT:,} sequences of {sequence} tokens (is {batch:g})"
        yield f"limits.max_batch_tokens: {many}; give the critical batch (published laws span 1e7 to 1e9)"
    elif batch is not None and batch < sequence:
        few = f"must be at least one sequence of {sequence} tokens (is {batch:g})"
        yield f"limits.max_batch_tokens: {few}; raise it or shorten workload.sequence_length"
    yield from network_problems(instance.network)
    hardware, racks = instance.hardware, instance.hardware.racks
    if instance.grid is not None:
        if racks is not None:
            yield f"hardware.racks: the grid decides the racks (is {racks}); remove it, or pin sites.racks"
        for key in ("energy_usd_per_mwh", "carbon_kg_per_mwh"):
            value = getattr(instance.operation, key, None)
            if value is not None:
                where = f"grid.balancing_authorities[*].{key}"
                yield f"operation.{key}: holds where there is no grid (is {value:g}); give {where}, and remove it"
        if searched and instance.network and instance.network.wan_gateway and not hardware.overhead_includes_fabric:
            remedy = "set hardware.overhead_includes_fabric to true"
            yield f"network.wan_gateway: its power cannot be load of its site; {remedy}"
        yield from grid_problems(instance.grid)
        yield from wan_problems(instance.grid, instance.wan or Wan())
        places = sum(node.site for node in instance.grid.nodes)
        if searched and not places:
            yield 'grid.nodes: no node may hold a site; set "site": true on one at least'
        if searched and places > MOST_PLACES:
            most = f"every two places of a site are compared, so at most {MOST_PLACES:,} may hold one (are {places:,})"
            yield f'grid.nodes: {most}; set "site": false on the others, as `planner grid import --sites N` does'
    elif racks is None and not hardware.pools and searched:
        yield "hardware.racks: is missing; give the racks of the one cluster, or a grid to choose them"
    if searched:
        yield from _goal_problems(instance)
    yield from _link_problems(instance)


def _goal_problems(instance: Instance) -> Iterator[str]:
    """Yield complaints about what the goal of an instance needs: a deadline, or how a model is chosen, and it alone."""
    goal, deadline, chosen = instance.objective.minimize, instance.limits.deadline_days, instance.workload.choose
    if goal == "loss" and chosen is None:
        yield f"workload.choose: {NO_CHOICE}"
    if goal != "loss" and chosen is not None:
        remedy = 'set that to "loss", or remove workload.choose and give workload.model and workload.tokens'
        yield f'workload.choose: chooses a model where objective.minimize is "loss" alone (is "{goal}"); {remedy}'
    if goal == "loss" and deadline is None:
        yield "limits.deadline_days: is missing; the best model without a deadline has no end; give one"
    if instance.objective.in_dollars and deadline is None:
        yield "limits.deadline_days: is missing; the cheapest plan that may take for ever is no plan; give a deadline"


def _link_problems(instance: Instance) -> Iterator[str]:
    reliability, network = instance.reliability, instance.network
    if reliability is None or not reliability.counts_links:
        return
    named = next(name for name, part in sorted(reliability.parts.items()) if part.gpu_hours_per_event is None)
    transceivers = any(part.transceiver_hours_per_event is not None for part in reliability.parts.values())
    if network is None:
        yield f"reliability.parts.{named}: counts links, and there is no network; give gpu_hours_per_event"
    elif network.media and network.floor is not None and transceivers:
        kept = "transceiver_hours_per_event"
        yield f"network.media: have no number of transceivers, which {kept} counts; give link_hours_per_event"
    rates = {box.port_gbps for box in (network.switches if network is not None else ())}
    for path in sorted(instance.pins):
        kind, _, name = path.partition(".")
        if kind == "fabric" and name.partition(".")[2] in ONE_SWITCH and len(rates) > 1:
            other = f"fabric.{name.partition('.')[2]}"
            yield f"pins.{path}: links to GPUs fail, and are as many at all sites; pin {other} for all of them"


def pool_problems(instance: Instance) -> Iterator[str]:
    """Yield inconsistencies of an instance with pools of different GPUs: parts that cannot be planned with them."""
    hardware = instance.hardware
    if not hardware.pools:
        if hardware.pool_link is not None:
            yield "hardware.pool_link: joins pools, and hardware.pools has none; give pools, or remove it"
        return
    if len(hardware.pools) < 2:
        yield "hardware.pools: must have at least 2 pools (has 1); give another, or accelerator, rack and racks instead"
    yield from _doubles((f"hardware.pools[{i}]", "name", pool.name) for i, pool in enumerate(hardware.pools))
    for i, pool in enumerate(hardware.pools):
        yield from _without_type(f"hardware.pools[{i}].accelerator", pool.accelerator, instance)
    if instance.reliability is not None:
        yield "reliability: failures are not counted over pools; give workload.availability, and remove it"
    for part in ("grid", "wan", "network"):
        if getattr(instance, part) is not None:
            yield f"{part}: does not go with hardware.pools, which have no sites and no fabric; remove it, or the pools"
    for key in ("accelerator", "rack"):
        if getattr(hardware, key) != getattr(hardware.pools[0], key):
            yield f"hardware.{key}: each pool has its own (is another than the first pool's); remove it"
    values = {key: getattr(hardware, key) for key in ("racks", "nic_bytes_per_second", "cooling_kw_per_m2")}
    values["racks_per_module"] = None if hardware.racks_per_module == 1 else hardware.racks_per_module
    for key, value in values.items():
        if value is not None:
            yield f"hardware.{key}: does not go with hardware.pools (is {value:g}); give it to a pool, or remove it"
    if instance.objective.minimize != "days_to_train":
        asked = instance.objective.minimize
        yield f'objective.minimize: pools are planned for "days_to_train" alone (is "{asked}"); ask for that'
    for path, pin in sorted(instance.pins.items()):
        yield f"pins.{path}: the layouts of pools cannot be pinned (is {shown(pin)}); remove it"


def _alternative_problems(instance: Instance) -> Iterator[str]:
    hardware = instance.hardware
    if not hardware.alternatives:
        return
    kinds = [hardware_kind(hardware), *(hardware_kind(alternative) for alternative in hardware.alternatives)]
    for i, alternative in enumerate(hardware.alternatives):
        where = f"hardware.alternatives[{i}]"
        yield from _without_type(f"{where}.accelerator", alternative.accelerator, instance)
        if kinds[i + 1] in kinds[: i + 1]:
            yield f"{where}: {' in '.join(kinds[i + 1])} is given twice; give each GPU and rack once"
        if alternative.racks is not None and instance.grid is not None:
            yield f"{where}.racks: the grid decides the racks (is {alternative.racks}); remove it"
    if hardware.pools:
        yield "hardware.alternatives: pools have their own GPUs each; remove the alternatives, or the pools"
    if instance.objective.minimize == "loss":
        yield 'hardware.alternatives: the model of least loss is chosen on one GPU; ask for "loss" with each alone'
    if instance.objective.minimize == "frontier":
        yield 'hardware.alternatives: a whole curve is of one GPU and rack; ask for "frontier" with each alone'


def of_one_layout(instance: Instance) -> Instance:
    """Return an instance consistent with one layout, GPU and rack. InputError: it has pools, or alternatives."""
    if instance.hardware.pools:
        remedy = "ask about one, its accelerator, rack and racks in place of pools"
        raise InputError(f"hardware.pools: each pool has a layout of its own; {remedy}")
    if instance.hardware.alternatives:
        remedy = "take the alternatives out of the file, one at a time"
        raise InputError(f"hardware.alternatives: this asks about one GPU and rack; {remedy}")
    return instance


def grid_problems(grid: Grid) -> Iterator[str]:
    """Yield inconsistencies in the names, corridors, soft rules and scenarios of an instance's grid."""
    authorities = dict.fromkeys(sorted(area.id for area in grid.balancing_authorities))
    nodes = dict.fromkeys(sorted(node.id for node in grid.nodes))
    corridors: list[tuple[str, Line | NewLine]] = [(f"grid.lines[{i}]", line) for i, line in enumerate(grid.lines)]
    corridors += [(f"grid.new_lines[{i}]", line) for i, line in enumerate(grid.new_lines)]
    areas = enumerate(grid.balancing_authorities)
    yield from _doubles((f"grid.balancing_authorities[{i}]", "id", area.id) for i, area in areas)
    yield from _doubles((f"grid.nodes[{i}]", "id", node.id) for i, node in enumerate(grid.nodes))
    yield from _doubles((path, "id", line.id) for path, line in corridors)
    for i, node in enumerate(grid.nodes):
        yield from _unknown(f"grid.nodes[{i}].balancing_authority", node.balancing_authority, authorities)
    total = sum(scenario.weight for scenario in grid.scenarios)
    if total > 1 + WEIGHT_TOLERANCE:
        yield f"grid.scenarios: weights must sum to at most 1 (are {total:g}); lower them"
    named = ((f"grid.scenarios[{i}]", "name", one.name) for i, one in enumerate(grid.scenarios) if one.name)
    yield from _doubles(named)
    for i, scenario in enumerate(grid.scenarios):
        if not scenario.name:
            yield f"grid.scenarios[{i}].name: is empty; rows and reports name a scenario by it, so give one"
        for key, known in (("headroom_mw", authorities), ("energy_usd_per_mwh", authorities), ("generation_mw", nodes)):
            for name in sorted(getattr(scenario, key)):
                yield from _unknown(f"grid.scenarios[{i}].{key}", name, known)
    for name in sorted(set(grid.rules.soft) - set(SOFT_UNITS)):
        yield f"grid.rules.soft.{name}: no rule of that name can be soft; known: {', '.join(SOFT_UNITS)}"
    if "rating" in grid.rules.soft and grid.rules.grid_model == "dc":
        yield 'grid.rules.soft.rating: needs the grid model "transport" (is "dc"); remove it'
    for path, corridor in corridors:
        yield from _end_problems(path, corridor.a, corridor.b, nodes)
    # What the grid lacks for the power flow that its rules need.
    n1, model = grid.rules.n1, grid.rules.grid_model
    if n1 in ("node", "full") and model != "dc":
        yield f'grid.rules.n1: {n1!r} needs flows after an outage, grid_model {model!r} has none; set grid_model "dc"'
    if n1 == "margin" and model == "none":
        yield 'grid.rules.n1: "margin" lowers ratings, grid_model "none" has none; set grid_model "transport" or "dc"'
    for path, line in corridors if model == "dc" else ():
        if line.reactance_pu is None:
            remedy = 'grid_model "dc" needs it: give it on 100 MVA for one circuit, or choose "transport"'
            yield f"{path}.reactance_pu: missing for {line.id!r}; {remedy}"


def wan_problems(grid: Grid, wan: Wan) -> Iterator[str]:
    """Yield inconsistencies in the names and ends of fibre and traffic in an instance's wide area."""
    yield from _doubles((f"wan.fibre_nodes[{i}]", "id", node.id) for i, node in enumerate(wan.fibre_nodes))
    yield from _doubles((f"wan.fibre_edges[{i}]", "id", edge.name) for i, edge in enumerate(wan.fibre_edges))
    yield from _doubles((f"wan.traffic[{i}]", "name", traffic.name) for i, traffic in enumerate(wan.traffic))
    nodes = dict.fromkeys(sorted(node.id for node in wan.fibre_nodes))
    if wan.fibre_nodes and not wan.fibre_edges:
        yield f"wan.fibre_edges: is missing; nothing joins the {len(nodes)} fibre_nodes; give edges, or remove them"
    for i, edge in enumerate(wan.fibre_edges):
        yield from _end_problems(f"wan.fibre_edges[{i}]", edge.a, edge.b, nodes)
        if edge.name.endswith(ACCESS):
            problem = f'must not end in "{ACCESS}" (is {edge.name!r}), which names the ways of sites to their nodes'
            yield f"wan.fibre_edges[{i}].id: {problem}; rename it"
    places = dict.fromkeys(sorted({*nodes, *(node.id for node in grid.nodes)}))
    for i, traffic in enumerate(wan.traffic):
        if traffic.name == SYNC:
            yield f"wan.traffic[{i}].name: must not be {SYNC!r}, which names the exchange of gradients; rename it"
        if traffic.a is not None and traffic.b is not None:
            yield from _end_problems(f"wan.traffic[{i}]", traffic.a, traffic.b, places)


def _without_type(path: str, gpu: Accelerator, instance: Instance) -> Iterator[str]:
    """Yield complaints on a GPU without a peak rate in the matrix products' type, and on switches that want another."""
    compute = instance.workload.precision.compute
    if compute not in gpu.peak_flop_per_second:
        has = ", ".join(sorted(gpu.peak_flop_per_second))
        yield f"{path}: {gpu.name} has no {compute} (has {has}); choose one of these or add its peak"
    software = instance.workload.software
    discards = sorted({"layernorm", "moe_act"} & set(software.recompute_modules))
    delayed = compute == "fp8" and software.fp8_recipe == "delayed"
    if discards and delayed and instance.workload.rules.framework == "Megatron":
        scales = "under other scales than those of fp8_recipe delayed alone; choose another recipe, or take it out"
        yield f"workload.software.recompute_modules: Megatron has {discards[0]} {scales}"
    if software.fp8_attention:
        where, narrow = "workload.software.fp8_attention", compute in ("fp8", "fp4")
        if not narrow or not software.flash_attention:
            needs = "products in fp8 or fp4" if not narrow else "flash_attention"
            yield f"{where}: needs {needs} (workload.precision.compute is {compute}); set it to false, or change that"
        elif "fp8" not in gpu.peak_flop_per_second:
            yield f"{where}: {gpu.name} has no fp8; set it to false, or add the peak"


def _end_problems(path: str, start: str, end: str, known: Collection[str]) -> Iterator[str]:
    yield from _unknown(f"{path}.a", start, known)
    yield from _unknown(f"{path}.b", end, known)
    if start == end:
        yield f"{path}: both ends are {start!r}; give two places"


def _unknown(path: str, name: str, known: Collection[str]) -> Iterator[str]:
    if name not in known:
        yield f"{path}: {name!r} does not exist; {hint(name, known)}"


def _doubles(entries: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    first: dict[str, str] = {}
    for path, key, name in entries:
        if first.setdefault(name, path) != path:
            yield f"{path}.{key}: {name!r} is already that of {first[name]}; rename one"
