"""Ranges in which the figures of an instance are plausible: outside of them a reader is warned, and it is solved.

Each row has the ends of keys' paths, `*` for a name that the user gives; the lowest and the highest value; and the
usual one. Where a key may be 0, 0 means none and is plausible. Shares have their range in their types.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from pydantic import BaseModel

from planner.instance.hardware import Hardware, HardwareAlternative, Pool
from planner.instance.instance import Instance
from planner.instance.workload import catalogue, racks_with


class PlausibleRange(NamedTuple):
    """From the lowest to the highest plausible value, and the reason."""

    low: float
    high: float
    reason: str

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}: {self.reason}"


YEAR_SECONDS = 31_557_600.0
BATCH = "published runs take 0.5 to 60 million tokens a step, and plans of this kind up to a billion"
TOKENS = "published models are trained on a billion to some tens of trillions of tokens"
HOURS = "published rates of clusters are an event in 10,000 hours to one in a billion"
STOP = "a job restarts within seconds to hours"
SIZE = "no published or planned model is of this size"
RATE = "far from every accelerator of the catalogue"
STACK = "far from every framework of the catalogue"
LAW = "scaling laws are fitted on models of a million to some trillions of parameters"
MONEY = "far from every campus that is built or planned"
LIFE = "equipment, sites and fibre are written off in 1 to 50 years"
PORTS = "switches that are sold have 8 to 1,024 ports of 10 to 3,200 Gb/s"
POWER = "far from every power system, and from a single rack"
FLOOR = "far from every hall of a datacenter"

# Sources: rows of planner/catalogue and instances/, which name theirs, and a factor of ten or more beyond on either
# side; published models, campuses and power systems; where neither exists, the judgement of this project.
ROWS: tuple[tuple[str, float, float, str], ...] = (
    # What is asked.
    ("limits.budget_usd", 1e4, 1e13, "a node costs 0.2 million dollars, the largest campus planned 500 billion"),
    ("operation_years", 0.01, 50, LIFE),
    ("limits.facility_power_mw", 0.001, 1e5, "a node draws 10 kW, the largest campus planned 10 GW"),
    ("limits.deadline_days", 0.01, 36_525, "runs take hours to years"),
    ("limits.max_batch_tokens", 1e4, 3e9, BATCH),
    # The model and its training.
    ("model.layers model.window_layers", 1, 2_000, SIZE),
    ("model.hidden", 64, 1e6, SIZE),
    ("model.heads kv_heads", 1, 10_000, SIZE),
    ("head_size latent_attention.head_nope latent_attention.head_rope latent_attention.head_value", 8, 4_096, SIZE),
    ("latent_attention.q_rank latent_attention.kv_rank", 16, 1e6, SIZE),
    ("model.window", 16, 1e7, "windows hold a hundred to some hundred thousand tokens"),
    ("model.ffn experts.ffn experts.shared_ffn", 64, 4e6, SIZE),
    ("experts.count", 2, 10_000, "published mixtures have 8 to some hundred experts"),
    ("experts.per_token", 1, 256, "a token goes through 1 to 22 experts of published mixtures"),
    ("experts.dense_layers", 1, 100, "published mixtures have up to three dense layers"),
    ("experts.groups experts.groups_per_token", 1, 256, "published mixtures have up to eight groups"),
    ("vocabulary", 100, 4e6, "vocabularies have 30 to 260 thousand entries"),
    ("workload.tokens", 1e6, 1e17, TOKENS),
    ("workload.expert_imbalance", 1, 8, "natural routing gives the busiest rank 1.2 to 3 times the mean"),
    ("workload.sequence_length", 64, 1.1e7, "sequences have 2 thousand to some million tokens"),
    ("parameter_bytes", 0.25, 16, "a parameter has 4 to 64 bits a copy"),
    ("working_parameter_bytes", 0.25, 8, "a parameter has 4 to 64 bits"),
    ("gradient_bytes", 0.25, 8, "a gradient has 4 to 64 bits"),
    ("optimizer_bytes", 0.25, 32, "two moments have 2 to 16 bytes"),
    ("activation_bytes collective_bytes", 0.25, 8, "an activation has 4 to 64 bits"),
    # The framework.
    ("software.fused_softmax_multiple", 1, 1_024, STACK),
    ("software.elementwise_traffic", 0.05, 30, STACK),
    ("software.quantise_traffic", 0.01, 30, STACK),
    ("software.loss_bytes_per_logit", 0.5, 800, STACK),
    ("software.launch_seconds", 1e-8, 0.01, STACK),
    ("software.collective_seconds software.pipeline_start_seconds", 1e-8, 0.1, STACK),
    ("software.all_to_all_seconds software.deep_ep_seconds software.hybrid_ep_seconds", 1e-8, 0.1, STACK),
    ("software.microbatch_seconds", 1e-7, 1, STACK),
    ("software.step_seconds", 1e-5, 30, STACK),
    ("software.expert_seconds software.expert_cast_seconds software.overlap_launch_seconds", 1e-9, 0.01, STACK),
    ("software.logit_memory_bytes", 0.25, 200, STACK),
    ("software.weight_gradient_copy_bytes", 0.25, 32, STACK),
    ("software.buffer_bytes_per_parameter", 0.01, 32, STACK),
    ("software.sharded_buffer_bytes_per_parameter", 0.01, 64, STACK),
    # The choice of a model.
    ("law.parameters", 1e5, 1e16, LAW),
    ("law.flop", 1e13, 1e32, LAW),
    ("law.tokens", 1e6, 1e17, LAW),
    ("law.e loss.e", 0.01, 10, LAW),
    ("law.a law.b loss.a loss.b", 1, 1e6, LAW),
    ("law.alpha law.beta loss.alpha loss.beta critical_batch.exponent", 0.01, 2, LAW),
    ("critical_batch.coefficient", 1e-9, 1e9, LAW),
    ("depth.aspect family.min_aspect family.max_aspect", 1, 1e5, SIZE),
    ("depth.intercept", -100, 100, SIZE),
    ("depth.slope", 1e-3, 10, SIZE),
    ("family.heads_multiple_of", 1, 10_000, SIZE),
    ("family.layers_multiple_of", 1, 2_000, SIZE),
    ("family.ffn_ratio", 0.1, 100, "an FFN is 2.5 to 5.5 times as wide as the hidden state"),
    ("family.experts", 2, 10_000, "published mixtures have 8 to some hundred experts"),
    ("family.experts_per_token", 1, 256, "a token goes through 1 to 22 experts of published mixtures"),
    ("choose.assumed_flop_per_second", 1e12, 1e18, "a GPU has 1e14 to 2e16 FLOP a second"),
    # The accelerator, its rack and the pools.
    ("accelerator.hbm_bytes accelerator.host_bytes_per_second", 1e9, 1e13, RATE),
    ("accelerator.hbm_bytes_per_second", 1e10, 2e14, RATE),
    ("accelerator.peak_flop_per_second.*", 1e12, 1e18, RATE),
    ("gemm_efficiency.tail_elements", 1, 1e8, RATE),
    ("accelerator.softmax_width", 0.1, 5_000, RATE),
    ("accelerator.kernel_seconds accelerator.scale_up_latency_seconds", 1e-8, 1e-3, RATE),
    ("accelerator.memory_reserve_bytes", 1e6, 1e11, RATE),
    ("accelerator.scale_up_bytes_per_second", 1e9, 1e14, RATE),
    ("nic_bytes_per_second", 1e8, 1e13, "a NIC has 10 to 1,600 Gb/s"),
    ("nic_latency_seconds", 1e-7, 0.1, RATE),
    ("rack.gpus", 1, 20_000, "a node has 4 to 16 GPUs, a pod of TPUs up to 9,216"),
    ("rack.it_kw", 0.1, 1e4, "a node draws 5 to 15 kW, a rack up to 600"),
    ("rack.price_usd alternatives.price_usd", 1e3, 1e9, "a node costs 0.1 to 0.5 million dollars, a rack 3 to 4"),
    ("rack.life_years", 0.5, 50, LIFE),
    ("racks", 1, 1e6, "the largest campus planned has some ten thousand racks"),
    ("racks_per_module", 1, 1e4, "modules have 1 to some hundred racks"),
    ("facility_overhead_factor", 1, 3, "a PUE is 1.05 to 2"),
    ("cooling_kw_per_m2", 0.05, 50, "dry coolers shed about 2 kW a square metre"),
    ("pool_link.gbps", 0.1, 1e7, "links between halls and sites carry 1 Gb/s to 1 Pb/s"),
    ("rtt_ms", 1e-4, 1e3, "light takes 200 ms around half the earth and back"),
    # The grid and its prices.
    ("headroom_mw headroom_mw.*", 0.01, 2e5, POWER),
    ("generation_mw generation_mw.* load_mw", 0.001, 2e5, POWER),
    ("interconnect_mw", 0.001, 1e5, POWER),
    ("largest_unit_mw", 0.001, 1e4, "the largest units have 1,750 MW"),
    ("area_m2", 10, 1e10, "a campus has a hectare to some square kilometres"),
    ("energy_usd_per_mwh energy_usd_per_mwh.*", 1, 1_000, "power costs 10 to 300 dollars a MWh"),
    ("carbon_kg_per_mwh", 1, 1_500, "a MWh emits 5 to 1,000 kg of CO2"),
    ("ready_months lead_months ready_within_months", 0.1, 300, "connections take months to some ten years"),
    ("upgrade.step_mw", 0.01, 1e4, POWER),
    ("upgrade.max_steps", 1, 1_000, POWER),
    ("upgrade.capex_usd site_usd", 1e3, 1e11, MONEY),
    ("circuits max_circuits", 1, 100, "corridors have 1 to 8 circuits"),
    ("rating_mw", 0.01, 1e5, "a circuit carries 10 to 6,000 MW"),
    ("reactance_pu", -10, 100, "circuits have 0.0001 to 3 on 100 MVA"),
    ("new_lines.capex_usd", 1e4, 1e11, MONEY),
    ("min_interconnections", 1, 10, "North America has three interconnections"),
    ("max_sites", 1, 10_000, MONEY),
    ("min_site_modules", 1, 1e6, MONEY),
    ("max_rtt_ms", 0.01, 1e3, "light takes 200 ms around half the earth and back"),
    ("share_balance.max_ratio", 1, 1_000, "sites of one run are of like size"),
    ("soft.*.usd_per_year", 1e-2, 1e10, MONEY),
    ("soft.*.max_excess", 1e-3, 1e10, POWER),
    ("curtailment_usd_per_mwh", 0.1, 1e5, "lost load is worth up to some ten thousand dollars a MWh"),
    ("building_usd_per_it_mw", 1e5, 1e8, "datacenters cost 7 to 15 million dollars a MW"),
    ("interconnection_usd_per_mw", 1e3, 1e7, "connections cost 0.05 to 1 million dollars a MW"),
    ("discount_rate", 0.001, 0.5, "capital costs 3 to 15 % a year"),
    ("site_life_years", 0.5, 100, LIFE),
    ("it_life_years", 0.5, 50, LIFE),
    # Fibre between sites.
    ("route_factor", 1, 5, "routes are 1.1 to 2 times the great circle"),
    ("rtt_ms_per_100_route_km", 0.6, 3, "light takes 0.98 ms there and back on 100 km of fibre"),
    ("round_trips", 0.1, 1_000, "an exchange waits for one to some tens of round trips"),
    ("wan.headroom_factor", 1, 100, "links are lit for 1 to 4 times what they carry"),
    ("wavelength_gbps", 1, 1e5, "a wavelength carries 10 to 1,600 Gb/s"),
    ("max_wavelengths_per_pair", 1, 2_000, "a pair has 40 to 200 wavelengths"),
    ("max_fibre_pairs", 1, 1e4, "a cable has up to some thousand pairs"),
    ("fibre_usd_per_route_km", 10, 1e7, "a pair costs some thousand dollars a km over 20 years"),
    ("wavelength_usd", 100, 1e8, "two transponders cost ten to some hundred thousand dollars"),
    ("fibre_life_years", 0.5, 100, LIFE),
    ("route_km", 0.01, 4.1e4, "the earth is 40,000 km around"),
    ("usd_per_pair", 10, 1e11, "a pair costs some thousand dollars a km over 20 years"),
    ("traffic.bytes", 1, 1e20, "a checkpoint has a GB to some hundred TB"),
    ("period_seconds", 1, 10 * YEAR_SECONDS, "data and checkpoints are sent every second to every year"),
    ("deadline_seconds", 1e-3, 10 * YEAR_SECONDS, "data and checkpoints arrive in seconds to months"),
    ("traffic.priority", 1, 100, "there are few classes of traffic"),
    ("wan.routes", 1, 1_000, "a pair of sites has some routes worth a look"),
    # The fabric.
    ("switches.ports", 2, 2_048, PORTS),
    ("switches.port_gbps", 1, 1e5, PORTS),
    ("switches.planes", 1, 64, "a box has 1 to 8 chips"),
    ("switches.price_usd", 100, 1e8, PORTS),
    ("switches.power_watts", 10, 1e6, PORTS),
    ("link_factor breakout_link_factor", 0.001, 1_000, PORTS),
    ("optics.price_usd", 1, 1e6, "a transceiver costs 50 to 5,000 dollars"),
    ("optics.power_watts", 0.1, 500, "a transceiver draws 1 to 40 W"),
    ("endpoint_usd switch_usd", 0.1, 1e6, "a cable costs 10 to 2,000 dollars"),
    ("rack_pitch_m", 0.1, 50, FLOOR),
    ("row_pitch_m", 0.1, 100, FLOOR),
    ("racks_per_row", 1, 10_000, FLOOR),
    ("rise_m", 0.01, 100, FLOOR),
    ("spread_m", 0.01, 1e4, FLOOR),
    ("media.reach_m", 0.1, 1e6, "cables reach 1 m to 100 km"),
    ("media.price_usd", 0.1, 1e6, "a cable costs 10 to 5,000 dollars"),
    ("media.usd_per_m", 1e-3, 1e4, "a metre costs 0.5 to 10 dollars"),
    ("media.power_watts", 0.001, 1_000, "a link draws 0.1 to 60 W"),
    ("transport.slowdown", 1, 20, "measured transports reach 50 to 99 % of their links"),
    ("simulate.oversubscription max_oversubscription", 1, 1_000, "fabrics are 1:1 to 20:1"),
    ("power_usd_per_watt", 0.01, 1_000, "a watt costs 0.5 to 3 dollars a year"),
    # Failures and the whole run.
    ("gpu_hours_per_event", 100, 1e10, HOURS),
    ("link_hours_per_event transceiver_hours_per_event", 100, 1e12, HOURS),
    ("repair_hours", 0.01, 5_000, "repairs take minutes to months"),
    ("measured_gpus", 1, 1e7, "clusters have 8 to some hundred thousand GPUs"),
    ("scale_exponent", 0.01, 2, "rates of a GPU grow little with their number"),
    ("detection_seconds restart_seconds warm_restart_seconds elastic_stall_seconds rejoin_seconds", 0.1, 1e5, STOP),
    ("power_ramp_seconds", 0.1, 1e5, STOP),
    ("restart_seconds_per_gpu warm_restart_seconds_per_gpu", 1e-7, 1, STOP),
    ("storage_bytes_per_second_per_gpu", 1e4, 1e12, "storage takes some MB to some GB a second of a GPU"),
    ("memory_bytes_per_second_per_gpu", 1e6, 1e13, "memory takes 1 to some hundred GB a second of a GPU"),
    ("maintenance_share_per_year", 0.001, 1, "upkeep is 1 to 15 % of the price a year"),
    ("fabric_life_years", 0.5, 50, LIFE),
    ("staff_usd_per_year", 1e3, 1e11, "staff costs a hundred thousand dollars a year each"),
)
RANGES = {key: PlausibleRange(low, high, why) for keys, low, high, why in ROWS for key in keys.split()}


def implausible(instance: Instance) -> Iterator[str]:
    """Yield a line for each key of an instance that is implausible, and for each rack that is built for another GPU."""
    yield from implausible_figures(instance)
    yield from racks_of_others(instance.hardware)


def implausible_figures(instance: Instance) -> Iterator[str]:
    """Yield a line for each key of an instance with figures outside its plausible range: the first, and how many."""
    outside: dict[str, list[tuple[str, float]]] = {}
    for path, key, value in figures(instance):
        usual = range_of(key)
        if usual is not None and value and not usual.low <= value <= usual.high:
            outside.setdefault(key, []).append((path, value))
    for key, ((path, value), *others) in outside.items():
        more = f" (and {len(others)} more)" if others else ""
        yield f"{path} is {value:.6g}{more}, not {range_of(key)}"


def racks_of_others(hardware: Hardware) -> Iterator[str]:
    """Yield a line for each accelerator of the catalogue in a rack of the catalogue that is built for others."""
    kinds: list[tuple[str, Hardware | HardwareAlternative | Pool]] = [("hardware", hardware)]
    for name in ("alternatives", "pools"):
        kinds += [(f"hardware.{name}[{i}]", own) for i, own in enumerate(getattr(hardware, name))]
    for path, own in kinds:
        if isinstance(own.accelerator, str) or isinstance(own.rack, str):
            continue
        chip, rack = own.accelerator.name, own.rack.name
        built_for = catalogue("rack_accelerators").get(rack, {}).get("accelerators", [chip])
        if chip in built_for or chip not in catalogue("accelerators"):
            continue
        right = " or ".join(racks_with(chip)) or "one of your own with its gpus, it_kw and price_usd"
        yield (
            f"{path}.rack is {rack}, a rack of {' or '.join(built_for)}, and {path}.accelerator is {chip}: "
            f"price and power are those of {rack}; set {path}.rack to {right}"
        )


def warn(*instances: Instance) -> None:
    """Log each line about instances once."""
    for line in dict.fromkeys(line for instance in instances for line in implausible(instance)):
        logging.getLogger("planner").warning("implausible: %s", line)


@cache
def range_of(key: str) -> PlausibleRange | None:
    """Return the plausible range of a key, by the longest end of its path that has one."""
    parts = key.split(".")
    return next((RANGES[end] for i in range(len(parts)) if (end := ".".join(parts[i:])) in RANGES), None)


def figures(value: object, path: str = "", key: str = "") -> Iterator[tuple[str, str, float]]:
    """Yield the numbers of an instance, pins left out: the path of each, its key without positions, and its value."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            if name not in ("pins", "schema_version"):
                at = (f"{path}.{name}", f"{key}.{name}") if path else (name, name)
                yield from figures(getattr(value, name), *at)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from figures(inner, f"{path}.{name}", f"{key}.*")
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            yield from figures(inner, f"{path}[{i}]", key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, key, value
