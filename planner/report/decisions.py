"""Statements of a plan on its decisions: their type, figures in a reader's words, and what each section says."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from planner import units
from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.instance.software import CORE_ATTENTION
from planner.physics.network.fabric_cost import by_reach
from planner.physics.network.fabric_designs import half_rate_tbps, lane_gbps, port_splits
from planner.physics.plan_physics import CLUSTER
from planner.physics.recovery import job_of
from planner.physics.training import step_prediction
from planner.plan import plan_sections
from planner.plan.certificate import Certificate
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan, SiteFabric
from planner.units import amount, counted, duration, memory, money, power, ratio, short, short_percent, to_one

Kind = Literal["fault", "verdict", "figure", "choice", "rejected", "limit", "warning", "proof"]
Topic = Literal[
    "verdict", "model", "sites", "wan", "layout", "pools", "fabric", "transport", "placement", "days", "money"
]
# Limits, warnings and proofs of all topics have a section each.
BY_KIND: dict[Kind, str] = {"limit": "limits", "warning": "warnings", "proof": "proof"}
SECTIONS = (*get_args(Topic), *BY_KIND.values())
CHECKED = {"recomputed": "the checker derives all of it again", "on trust": "on trust to the solver"}
STEP_PARTS = {  # parts of a step in words by the row that they belong to, in the order of the rows
    "compute": {
        "gemm": "matrix products", "attention": "attention", "elementwise": "elementwise work",
        "quantise": "quantisation", "recompute": "recomputation", "head": "embedding and loss",
        "optimizer": "optimiser",
    },
    "tensor exchange": {"tensor_parallel": "tensor-parallel exchange"},
    "context exchange": {"context_parallel": "context-parallel exchange"},
    "expert exchange": {"expert_parallel": "expert exchange"},
    "data exchange": {"data_parallel": "data-parallel exchange"},
    "exchange between sites": {"between_sites": "exchange between sites"},
    "sharding exchange": {"sharding": "ZeRO exchange"},
    "pipeline sends": {"pipeline_send": "pipeline sends", "ring_wait": "pipeline sends behind rings"},
    "pipeline bubble": {"pipeline_bubble": "pipeline bubble", "chunk_wait": "waits of uneven chunks"},
    "host": {"launch": "kernel launches", "cpu_overhead": "framework overhead", "offload": "offload"},
}  # fmt: skip
PART_NAMES = {part: name for row in STEP_PARTS.values() for part, name in row.items()}
PART_NAMES |= {"state": "model states", "working": "working buffers"}  # of a GPU's memory


class Statement(NamedTuple):
    """A statement that a plan makes; `instead`: of which it is preferred to; `short`: fuller ones follow."""

    kind: Kind
    topic: Topic
    text: str
    first: bool = False
    instead: bool = False
    short: bool = False

    @property
    def section(self) -> str:
        """The section of a summary that a statement on a plan's decisions belongs to."""
        return BY_KIND.get(self.kind, self.topic)


def status_of(plan: Plan) -> str:
    """Write, for statements, a plan's status, and why the search ended where that is no proof."""
    return plan.status + ("" if plan.stopped == "proved" else f" ({plan.stopped})")


def days(value: float) -> str:
    """Write days in a statement: whole ones from a thousand on, in tenths below, short times in three digits."""
    return f"{value:,.0f}" if value >= 999.95 else f"{value:.1f}" if value >= 9.95 else f"{value:.3g}"


def rate(gbps: float) -> str:
    """Write, in a statement, a rate of fibre in Tbps, in tenths; less than 0.1 Tbps in Gbps, in three digits."""
    return f"{gbps / 1e3:,.1f} Tbps" if gbps >= 100 or gbps == 0 else f"{gbps:.3g} Gbps"


def proof_of(topic: Topic, certificate: Certificate) -> Statement:
    """State the certificate of a decision: status, gap, seconds and solver, and who checked it."""
    proven = "no bound" if certificate.gap is None else f"gap {units.gap(certificate.gap)}"
    checked = f"; {CHECKED.get(certificate.checked, certificate.checked)}" if certificate.checked else ""
    binds = f"; binding: {', '.join(certificate.binding)}" if certificate.binding else ""
    by = f"{certificate.seconds:,.1f} s by {certificate.solver}"
    return Statement("proof", topic, f"{topic}: {certificate.status}, {proven}, {by}{checked}{binds}")


def layout(plan: Plan, layout: LayoutPlan) -> Iterator[Statement]:
    """State, of a plan's decisions, the layout: degrees, schedule and memory, and the parts of its step."""
    metrics = layout.metrics
    yield Statement("choice", "layout", _degrees(plan, layout), True)
    each = counted(layout.microbatch_sequences, "sequence")
    batch = f"{counted(layout.microbatches_per_step, 'micro-batch')} of {each}"
    text = f"{batch}, {short(metrics.tokens_per_step)} tokens a step"
    yield Statement("choice", "layout", f"{text}; ZeRO-{layout.zero_stage}; {recomputes(plan, layout)}", True)
    sequence = "; sequence parallel" if layout.sequence_parallel else ""
    stages = "a stage" if layout.pipeline_parallel > 1 else "in one stage"
    at_work = f"{layout.gpus_used:,} GPUs train, {layout.gpus_idle:,} do not"
    low, high = min(layout.layers_per_stage), max(layout.layers_per_stage)
    layers = f"{low}" if low == high else f"{low} to {high}"
    yield Statement("choice", "layout", f"{layers} layers {stages}{sequence}; {at_work}")
    # What a software stack sets that no measured run of this kind had.
    unmeasured = "software" in step_prediction.extrapolations(plan.instance, layout)
    notes = dict.fromkeys(("cpu_overhead", "launch") if unmeasured else (), " (extrapolated)")
    # Parts by falling share, but for those of up to a 2,000th; on a first screen four, and the rest in one.
    step, parts = metrics.step_seconds, metrics.breakdown_seconds.items()
    large = sorted(((seconds, name) for name, seconds in parts if seconds > 5e-4 * step), reverse=True)
    named = [f"{short_percent(seconds / step)} {name_of_part(name)}{notes.get(name, '')}" for seconds, name in large]
    rest = f"{short_percent(sum(seconds for seconds, _ in large[4:]) / step)} in {len(large[4:])} other parts"
    first = named if len(named) <= 5 else [*named[:4], rest]
    yield Statement("figure", "layout", f"Step {step:.3g} s: {', '.join(first)}", True, short=True)
    fast, slow = (step * days / metrics.days_to_train for days in metrics.days_to_train_interval)
    yield Statement("figure", "layout", f"Step {step:.3g} s (likely {fast:.3g} to {slow:.3g}): {', '.join(named)}")
    in_use = f"{memory(metrics.memory_bytes_per_gpu)} of {memory(metrics.memory_limit_bytes)} on the fullest GPU"
    yield Statement("figure", "layout", f"MFU {short_percent(metrics.mfu)}; {in_use}", True)


def _degrees(plan: Plan, layout: LayoutPlan) -> str:
    """Write a layout statement's degrees and schedule; for a model with experts also CP and EP of 1, choices there."""
    experts = plan.instance.workload.model.experts is not None
    inner = f" ({layout.tensor_parallel_inner} inner)" if layout.tensor_parallel_inner > 1 else ""
    tensor, cp, ep = layout.degrees
    context = f" x CP {cp}" if experts or cp > 1 else ""
    expert = f", EP {ep}" if experts or ep > 1 else ""
    schedule = "1F1B" if layout.virtual_stages == 1 else f"interleaved 1F1B ({layout.virtual_stages} chunks a stage)"
    schedule = "zero-bubble ZB-H1" if layout.schedule == "zb-h1" else schedule
    schedule = "no pipeline" if layout.pipeline_parallel == 1 else schedule
    replicas = f"PP {layout.pipeline_parallel} x DP {layout.data_parallel:,}"
    return f"TP {tensor}{inner}{context} x {replicas}{expert}, {schedule}"


def recomputes(plan: Plan, layout: LayoutPlan) -> str:
    """State in a report which layers of a layout, or which parts of them, run again in the backward pass."""
    layers = sum(layout.layers_per_stage)
    if layout.recompute == "none":
        return "recomputes nothing"
    if layout.recompute == "selective":
        modules = plan.instance.workload.software.recompute_modules
        parts = "attention scores" if modules == CORE_ATTENTION else ", ".join(modules)
        return f"recomputes {parts} (selective)"
    count = sum(layout.recomputed_layers_per_stage) if layout.recomputed_layers_per_stage else layers
    return f"recomputes all {layers} layers" if count == layers else f"recomputes {count} of {layers} layers"


def pools(plan: Plan, shared: plan_sections.PoolsPlan) -> Iterator[Statement]:
    """State the shares of the batch that pools of different GPUs take, and the layout of each."""
    total, exchange = sum(shared.sequences.values()), max(shared.exchange_seconds.values())
    batch = f"{total:,} sequences ({short(shared.tokens_per_step)} tokens) a step of {shared.step_seconds:.3g} s"
    exposed = f"exchange between pools {exchange:.3g} s exposed" if exchange else "exchange between pools not counted"
    yield Statement("choice", "pools", f"{batch}; {exposed}", True)
    for name, count in shared.sequences.items():
        share = f"{name}: {count:,} sequences ({short_percent(count / total)})"
        own = shared.layouts.get(name)
        if own is None:
            yield Statement("choice", "pools", f"{share}; does not train", True)
            continue
        waits = shared.step_seconds - exchange - own.metrics.step_seconds
        step_of = f"step {own.metrics.step_seconds:.3g} s at MFU {short_percent(own.metrics.mfu)}, waits {waits:.3g} s"
        yield Statement("choice", "pools", f"{share}; {step_of}; {_degrees(plan, own)}; {recomputes(plan, own)}", True)
        for statement in layout(plan, own):
            yield Statement(statement.kind, "pools", f"{name}: {statement.text}")


OTHER = "other parts of a step"
STEPS, CALENDAR, AWAY = "days of steps", "days on a calendar", "not at work"
CAUSES = 4  # of stops that are named
GOES_ON = {
    "restart": "the whole job restarts from its last checkpoint",
    "warm-spares": "the whole job restarts on spares that stand by",
    "elastic": "the job goes on without the lost replica",
}
NOT_STATED = "The plan does not say what stops cost, though its instance counts them."
NOTHING_FAILS = "Failures not modelled. Set reliability: llama3-2024 to include them."


class DaysPart(NamedTuple):
    """A row of a plan's days by part: days of a part, or a sum so far."""

    name: str
    days: float
    is_sum: bool = False


def name_of_part(key: str) -> str:
    """Write in words, for statements, a part of a plan's step or of a GPU's memory."""
    return PART_NAMES.get(key, units.words(key))


def days_by_part(plan: Plan) -> list[DaysPart]:
    """Return the nonzero days that a statement on the layout parts: steps by part with their sum, lost, and in all."""
    if plan.layout is None:
        return []
    metrics = plan.layout.metrics
    days_per_second = metrics.step_days_to_train / metrics.step_seconds
    known = {key for keys in STEP_PARTS.values() for key in keys}
    rows = {name: sum(metrics.breakdown_seconds.get(key, 0.0) for key in keys) for name, keys in STEP_PARTS.items()}
    rows[OTHER] = sum(seconds for key, seconds in metrics.breakdown_seconds.items() if key not in known)
    parts = [DaysPart(name, seconds * days_per_second) for name, seconds in rows.items() if seconds]
    parts.append(DaysPart(STEPS, metrics.step_days_to_train, True))
    lost = {AWAY: metrics.days_to_train - metrics.step_days_to_train} if metrics.useful_share < 1 else {}
    lost = plan.reliability.lost_days if plan.reliability is not None else lost
    parts += [DaysPart(name, days) for name, days in lost.items() if days]
    return [*parts, DaysPart(CALENDAR, metrics.days_to_train, True)] if lost else parts


def shown_days(total: float, days: float) -> str:
    """Write days of a plan's part with 1 to 3 decimals, more for a smaller total, so that small parts are visible."""
    return f"{days:,.{1 if total >= 1000 else 2 if total >= 10 else 3}f}"


def calendar(plan: Plan) -> Iterator[Statement]:
    """State a plan's days to train with their range, and the days lost to stops."""
    section = plan.layout.metrics if plan.layout else plan.pools
    if section is None:
        return
    low, high = section.days_to_train_interval
    likely = f"likely {days(low)} to {days(high)}: 4 of 5 like measured runs lie in it"
    yield Statement("figure", "days", f"{days(section.days_to_train)} days, {likely}")
    share, reliability = plan.instance.workload.availability, plan.instance.reliability
    whole = section.days_to_train
    steps = plan.layout.metrics.step_days_to_train if plan.reliability and plan.layout else whole * share
    both = f"{shown_days(whole, steps)} days of steps are {shown_days(whole, whole)} on a calendar"
    both += f": {short_percent(steps / whole)} of the time trains"
    if plan.reliability is not None and plan.layout is not None:
        yield Statement("figure", "days", f"{both}.", True)
        yield from _with_stops(plan, plan.reliability, plan.layout)
    elif share < 1:
        own = " and not reliability" if reliability is not None else ""
        yield Statement("figure", "days", f"{both}, as workload.availability{own} says.", True)
    else:
        yield Statement("warning", "days", NOT_STATED if job_of(plan.instance) else NOTHING_FAILS, True)


def _with_stops(plan: Plan, reliability: plan_sections.ReliabilityPlan, layout: LayoutPlan) -> Iterator[Statement]:
    recovery = reliability.recovery
    every = f"A stop every {duration(reliability.stop_seconds)} of work; {GOES_ON[recovery]} ({recovery})"
    inputs = plan.instance.reliability
    rates = f" (rates of {inputs.name})" if inputs is not None and inputs.name else ""
    yield Statement("figure", "days", f"{every}.", True)
    total = sum(reliability.stops_per_day_by_part.values())
    by_share = sorted(reliability.stops_per_day_by_part.items(), key=lambda item: (-item[1], item[0]))
    causes = [f"{name} {short_percent(stops / total)}" for name, stops in by_share[:CAUSES]]
    if rest := [stops for _, stops in by_share[CAUSES:]]:
        causes.append(f"{counted(len(rest), 'other')} {short_percent(sum(rest) / total)}")
    stop = f"A stop costs {duration(reliability.restart_seconds)} and the lost work"
    yield Statement("figure", "days", f"{stop}. By cause{rates}: {', '.join(causes)}.")
    copied = recovery == "elastic" and layout.zero_stage > 0
    copies = "; each step ends with a copy of the sharded state to memory of neighbours" if copied else ""
    size = units.storage(reliability.checkpoint_bytes)
    target = "storage" if reliability.checkpoint_target == "storage" else "memory of neighbours"
    text = f"No checkpoint is written behind the first ({size})"
    if (between := reliability.checkpoint_interval_seconds) is not None:
        often = f"every {duration(between)}, written in {duration(reliability.checkpoint_write_seconds)}"
        text = f"A checkpoint of {size} to {target} {often}"
    yield Statement("choice", "days", f"{text}{copies}.")
    sites = [f"{count:,} at {site}" for site, count in sorted(reliability.spare_racks_by_site.items()) if count]
    racks = f"Spare racks: {', '.join(sites)}" if sites else "No spare racks"
    spare = reliability.spare_gpus_per_rack
    gpus = f"{counted(spare, 'spare GPU')} in a rack" if spare else "no spare GPUs"
    enough = f"enough racks are fit {short_percent(reliability.enough_racks_share)} of the time"
    if recovery == "elastic":
        short_of_racks = f"{reliability.replicas_short:,.3g} are short of racks on average"
        enough = f"of {counted(layout.data_parallel, 'replica')} {short_of_racks}"
    yield Statement("choice", "days", f"{racks}; {gpus}; {enough}.")
    if reliability.extrapolated and inputs is not None:
        power = 1 + inputs.scale_exponent
        grow = f"as GPUs to the power of {power:g}" if power > 1 else "in proportion to GPUs"
        text = f"Failure rates of {inputs.measured_gpus:,.0f} GPUs for {layout.gpus_used:,}: growth {grow} is assumed."
        yield Statement("warning", "days", text, True)


NAMED_SITES, NAMED_LINKS = 4, 2  # on the first screen
SURVIVES = {"off": "nothing out", "margin": "nothing out", "node": "a site's largest circuit out"}


def _drawn(mw: float) -> str:
    """Write, in a statement, the power of sites: whole MW, of small ones as exactly as of any machine."""
    return power(mw) if mw < 10 else f"{mw:,.0f} MW"


def sites(plan: Plan, split: plan_sections.SitesPlan) -> Iterator[Statement]:
    """State each open site with its load, the links between sites, and the lines and interconnects built."""
    grid = plan.instance.grid
    shown = len(split.sites) if len(split.sites) <= NAMED_SITES else NAMED_SITES - 1
    for index, site in enumerate(split.sites):
        authority = f"{site.balancing_authority}, {site.interconnection}"
        text = f"{site.id} ({authority}): {counted(site.racks, 'rack')}, {_drawn(site.facility_mw)}"
        yield Statement("choice", "sites", text, index < shown)
    if rest := split.sites[shown:]:
        racks, mw = sum(site.racks for site in rest), sum(site.facility_mw for site in rest)
        text = f"{len(rest)} more sites ({', '.join(site.id for site in rest)}): {racks:,} racks, {_drawn(mw)}"
        yield Statement("choice", "sites", text, True)
    open_sites = {site.id for site in split.sites}
    if grid and (unused := [node.id for node in grid.nodes if node.site and node.id not in open_sites]):
        few = len(unused) <= NAMED_LINKS
        text = f"Not used: {', '.join(unused)}" if few else f"Not used: {len(unused)} other candidates"
        yield Statement("choice", "sites", text, few)
    for index, link in enumerate(() if plan.wan else split.links):  # a designed wide area says more than this estimate
        far = f"{link.a} to {link.b}: {link.route_km:,.0f} km, {link.rtt_ms:.1f} ms"
        text = f"{far}; {rate(link.required_gbps)}, {counted(link.fibre_pairs, 'fibre pair')}"
        yield Statement("figure", "sites", text, index < NAMED_LINKS)
        lit = f"{link.a} to {link.b}: {counted(link.wavelengths, 'wavelength')}, {money(link.usd_per_year)} a year"
        yield Statement("figure", "sites", lit)
    for built in split.new_lines:
        yield Statement("choice", "sites", f"Builds {counted(built.circuits, 'circuit')} in {built.line}.", True)
    for bought in split.upgrades:
        text = f"Buys {counted(bought.steps, 'step')} of interconnect at {bought.node}."
        yield Statement("choice", "sites", text, True)
    for excess in split.excess:
        weighs = f"{money(excess.usd_per_year)} a year in the choice, not billed"
        text = f"Soft rule {excess.rule} is exceeded by {excess.amount:,.6g} {excess.unit}; that weighs {weighs}."
        yield Statement("warning", "sites", text, True)
    for name, run in split.scenarios.items():
        runs, whole = sum(run.running_mw.values()), sum(site.facility_mw for site in split.sites)
        curtailed = runs < whole * (1 - 1e-6)
        of, lost = (f" of {_drawn(whole)}", "; days to train are those of full power") if curtailed else ("", "")
        spent = f"energy{' and work left undone' * curtailed} {money(run.energy_usd_per_year)} a year"
        yield Statement("figure", "sites", f"In {name}: {_drawn(runs)}{of} run, {spent}{lost}.", curtailed)
    if grid is not None and grid.rules.grid_model == "dc":
        load = sum(node.load_mw for node in grid.nodes)
        other = f"with {load:,.0f} MW of other load" if load else "of the sites alone: no node states a load_mw"
        survives = SURVIVES.get(grid.rules.n1, "any one circuit or unit out")
        yield Statement("proof", "sites", f"sites: power flow by reactances, {other}; {survives}")


def wan(_: Plan, design: plan_sections.WanPlan) -> Iterator[Statement]:
    """State the fibre routes between sites, the lit fibre, the cuts that it survives, and other traffic."""
    gradients = [demand for demand in design.demands if demand.priority == 0]
    others = [demand for demand in design.demands if demand.priority]
    for demand in gradients:
        route, backup = demand.routes[0], ""
        if route.backup_rtt_ms is not None:
            backup = f"; while cut {route.backup_rtt_ms:.1f} ms and {rate(route.backup_gbps or 0)}"
        spans = counted(len(route.edges), "span")
        path = f"{spans}, {route.route_km:,.0f} km, {route.rtt_ms:.1f} ms, {rate(route.gbps)}"
        yield Statement("choice", "wan", f"{demand.a} to {demand.b}: {path}{backup}", True)
    waves, pairs = sum(edge.wavelengths for edge in design.edges), sum(edge.fibre_pairs for edge in design.edges)
    form = f"; exchange by {design.exchange}" if design.exchange else ""
    lit = f"{counted(waves, 'wavelength')} in {counted(pairs, 'fibre pair')} on {counted(len(design.edges), 'span')}"
    # Fibre nodes that a route and its backup, which share no span, both pass, by link: one loss takes both.
    ends, shared = {edge.id: (edge.a, edge.b) for edge in design.edges}, dict[str, set[str]]()
    for demand in design.demands:
        link_ends = {demand.a, demand.b}
        for route in demand.routes:
            passed = []  # the fibre nodes of each way, without those at which its sites are joined to the fibre
            for way in (route.edges, route.backup_edges or ()):
                passes = {name: ends.get(name, ()) for name in way}  # without ends: an edge that a check will miss
                joined = (end for site in link_ends for end in passes.get(f"{site} access", ()))
                passed.append({end for two in passes.values() for end in two} - {*joined} - link_ends)
            if both := passed[0] & passed[1]:
                shared.setdefault(f"{demand.a} - {demand.b}", set()).update(both)
    survives = "any one span cut" if design.protection == "one_cut" else "no cut"
    if shared:
        where = ", ".join(f"{link} at {', '.join(sorted(nodes))}" for link, nodes in sorted(shared.items()))
        survives += f", but not the loss of a node that a route and its backup share: {where}"
    yield Statement("choice", "wan", f"{lit}, {money(design.capex_usd)}{form}; survives {survives}", True)
    for name in dict.fromkeys(demand.name for demand in others):
        own = [demand for demand in others if demand.name == name]
        asked, missing = sum(demand.requested_gbps for demand in own), sum(demand.missing_gbps for demand in own)
        text = f"{name} (priority {own[0].priority}): {amount(asked - missing)} of {amount(asked)} Gbps carried"
        if missing <= 1e-6 * asked:
            yield Statement("figure", "wan", text)
        else:
            full = ", ".join(sorted({edge for demand in own for edge in demand.saturated_edges}))
            why = f"full: {full}" if full else "there is no route"
            yield Statement("warning", "wan", f"{text}; {why}", True)


TIER_NAMES = {"leaf": "leaves", "spine": "spines", "core": "cores", "super-spine": "super-spines"}
NAMED_FABRICS = 2  # whose fabrics are on the first screen


def fabric(plan: Plan, section: plan_sections.FabricPlan) -> Iterator[Statement]:
    """State the switches of sites' fabrics by tier, like ones together, their cost, and the slowdown of sends."""
    by_site, alike = sorted(section.sites.items()), dict[str, list[str]]()
    for site, fabric in by_site:
        family = "" if fabric.family == "rail" else f" ({fabric.family})"
        tiers = ", ".join(tier_words(own, fabric, plan.instance) for own in fabric.tiers)
        alike.setdefault(f"{family}: {tiers}; {money(fabric.cost_usd)}", []).append(site)
    for index, (words, names) in enumerate(alike.items()):
        text = f"{', '.join(names)}{words}{' each' * (len(names) > 1)}"
        yield Statement("choice", "fabric", text, index < NAMED_FABRICS)
    if rest := [site for names in list(alike.values())[NAMED_FABRICS:] for site in names]:
        usd = money(sum(section.sites[site].cost_usd for site in rest))
        yield Statement("choice", "fabric", f"{counted(len(rest), 'more fabric')} ({', '.join(rest)}): {usd}", True)
    if any(fabric.p2p_seconds for _, fabric in by_site):
        yield Statement("figure", "fabric", _sends([fabric for _, fabric in by_site]), True)
    for site, fabric in by_site:
        planes = f"{counted(fabric.planes, 'plane')} of {fabric.boxes}"
        takes = f"{planes}; {fabric.switches:,} switches, {fabric.switch_links:,} links"
        wired = f"; {fabric.wired_gpus_per_rack} GPUs of a rack cabled" if fabric.wired_gpus_per_rack else ""
        racks = f"{counted(fabric.leaf_domain_racks, 'rack')} in a leaf domain{wired}"
        yield Statement("figure", "fabric", f"{site}: {takes}; {racks}")
        sends = f"{_sends([fabric]).lower()}; " if fabric.p2p_seconds else ""
        yield Statement("figure", "fabric", f"{site}: {sends}all-reduces {_over(fabric.allreduce_slowdown)}")
        if fabric.shared_links:
            worst = max(fabric.shared_links, key=lambda link: link.together_slowdown)
            links = {"nic": "NICs"}.get(worst.link, f"uplinks of a {worst.link}")
            take = f"the {links} take {_over(worst.together_slowdown)}"
            yield Statement("figure", "fabric", f"{site}: where the schedule lets sends and rings meet, {take}")
        if (gateway := fabric.wan_gateway) is not None:
            ports = f"{counted(gateway.wan_ports, 'port')} to the wide area, {gateway.uplinks:,} up"
            takes = f"{counted(gateway.switches, 'switch')}, {ports}, {money(gateway.cost_usd)}"
            yield Statement("choice", "fabric", f"{site}: WAN gateway of {gateway.wan_gbps:,.0f} Gbps: {takes}")


def _sends(fabrics: Sequence[SiteFabric]) -> str:
    slowest = max(fabrics, key=lambda fabric: fabric.p2p_seconds)
    send = f"Pipeline sends {slowest.p2p_seconds * 1e3:.3g} ms, {_over(slowest.pipeline_send_slowdown)}"
    fullest = max(fabrics, key=lambda fabric: (fabric.share_leaving_leaf, fabric.share_leaving_pod))
    if not fullest.share_leaving_leaf:
        return f"{send}; none cross leaves"
    others = [("groups" if fullest.group_links else "pods", fullest.share_leaving_pod)]
    others += [("zones", fullest.share_leaving_zone)] if fullest.zones else []
    more = [f"{short_percent(share) if share else 'none'} {name}" for name, share in others]
    return f"{send}; {', '.join([f'{short_percent(fullest.share_leaving_leaf)} cross leaves', *more])}"


def tier_words(tier: plan_sections.Tier, fabric: SiteFabric, asked: Instance) -> str:
    """Write a tier in a fabric statement: switches, models that differ, ports, down to up, of groups also at worst."""
    name = f"{tier.switches:,} {tier.name if tier.switches == 1 else TIER_NAMES[tier.name]}"
    name += f" of {tier.switch}" if fabric.boxes != fabric.switch else ""
    ports = f"{tier.down_ports} down, {tier.up_ports} up, " if tier.name == "leaf" else ""
    if fabric.family.startswith("dragonfly") and tier.up_ports and asked.network is not None:
        gbps = next(box.port_gbps for box in asked.network.switches if box.name == fabric.switch)
        nics = gbps / lane_gbps(asked.hardware.gpu_nic_bytes_per_second, fabric.lanes) if tier.name == "leaf" else 1.0
        of_all, worst = to_one(tier.down_ports / (tier.up_ports * nics), 3), to_one(tier.oversubscription, 3)
        return f"{name} ({ports}{of_all}{f' of all links, {worst} at worst' * (of_all != worst)})"
    return f"{name} ({ports}{to_one(tier.oversubscription, 3)})" if tier.up_ports else name


def _over(slowdown: float) -> str:
    if slowdown < 1.005:
        return "at line rate"
    slower = f"{100 * (slowdown - 1):.0f} % slower than line rate"
    return slower if slowdown < 2 else f"{slowdown:.2f} times its time at line rate"


def transport(_: Plan, simulated: plan_sections.TransportFactor) -> Iterator[Statement]:
    """State the slowdown of the fabric's transport that was simulated, and the constant that it replaces."""
    tree = f"{simulated.pattern} of {simulated.hosts:,} hosts, {simulated.tiers} tiers of {simulated.switch}"
    runs = f"percentile {simulated.percentile:g} of {simulated.seeds} seeds, {tree}"
    text = f"{simulated.transport}: {simulated.slowdown:.3f} times the fluid ideal ({runs})"
    yield Statement("figure", "transport", f"{text}, in place of {simulated.configured_slowdown:g}")


def placement(_: Plan, placed: plan_sections.PlacementPlan) -> Iterator[Statement]:
    """State how many all-reduce groups a placement keeps in one leaf domain, the others' pieces, and rack order."""
    total, local, unavoidable = placed.groups, placed.groups_leaf_local, placed.lower_bound_split
    split, every = total - local, "The one all-reduce group" if total == 1 else f"All {total:,} all-reduce groups"
    verb, pieces = "s" if total == 1 else "", split + placed.extra_pieces
    fragments = f"({f'{unavoidable:,}' if unavoidable else 'none'} unavoidable): {pieces:,} fragments"
    if not split:
        text = f"{every} stay{verb} in one leaf domain{'' if total == 1 else ' each'}"
    elif not local:
        text = f"{every} span{verb} several leaf domains {fragments}"
    else:
        others = f"{split:,} span{'s' * (split == 1)} several {fragments}"
        text = f"{local:,} of {total:,} all-reduce groups stay in one leaf domain each; {others}"
    yield Statement("figure", "placement", text, True)
    if placed.groups_cross_pod:
        text = f"{placed.groups_cross_pod:,} of {placed.groups:,} all-reduce groups cross pods"
        yield Statement("figure", "placement", text)
    for site, stripes in sorted(placed.stripes.items()):
        blocks = f"{placed.blocks_by_site.get(site, 0):,} blocks of {counted(placed.block_racks, 'rack')}"
        order = "whole pipelines side by side" if stripes == 1 else f"in {stripes} stripes of stages"
        yield Statement("choice", "placement", f"{site}: {blocks}, {order}")


SURVIVED = {"one_spine": "any one switch above the leaves", "one_leaf_uplink": "any one link between leaf and spine"}


def fabric_alone(plan: Plan) -> Iterator[Statement]:
    """State the fabric of a question without a workload: verdict, its choice and price, other kinds, and cautions."""
    network, cost, section = plan.instance.network, plan.cost, plan.fabric
    if network is None or cost is None or section is None or CLUSTER not in section.sites:
        return
    fabric, hardware = section.sites[CLUSTER], plan.instance.hardware
    gpus, nic_gbps = fabric.wired_gpus_per_rack, hardware.gpu_nic_bytes_per_second * 8 / 1e9
    what = f"{counted(hardware.racks or 0, 'host')} of {counted(gpus, 'GPU')} ({nic_gbps:g} Gb/s each)"
    asked = ", ".join(network.families)
    sure = f"Proven cheapest of its kind ({asked})." if plan.status == "optimal" else "Not proven cheapest: time limit."
    each = money(cost.total_usd / max(1, gpus * (hardware.racks or 0)))
    text = f"Joins {what} for {money(cost.total_usd)} ({each} a GPU), {power(fabric.power_mw)}. {sure}"
    yield Statement("verdict", "verdict", text, True)
    yield from _chosen(section, network, plan.instance)
    for kind in section.alternatives[1:]:
        text = f"none; {kind.lost}"
        if (other := kind.fabric) is not None:
            counts = f"{money(other.cost_usd)}, {power(other.power_mw)}, {counted(other.switches, 'switch')}"
            tails = ""
            if kind.ecmp_tail is not None and kind.spray_tail is not None:
                tails = f", tails {ratio(kind.ecmp_tail)} ECMP and {ratio(kind.spray_tail)} sprayed"
            text = f"{counts}, {kind.bisection_tbps or 0.0:,.1f} Tb/s{tails}; {kind.lost}"
        yield Statement("rejected", "fabric", f"{kind.name}: {text}", other is not None)
    yield proof_of("fabric", section.certificate)
    yield Statement("proof", "fabric", f"Space: {plan.objective.space}.")
    (leaf,) = (switch for switch in network.switches if switch.name == fabric.switch)
    rate, used = leaf.port_gbps * fabric.lanes, nic_gbps * fabric.split
    splits = port_splits(leaf, nic_gbps / fabric.lanes)  # ports that split and are left whole are not short
    if used < rate * (1 - 1e-9) and fabric.split == max(splits):
        text = f"Leaf ports of {rate:g} Gb/s carry {used:g} Gb/s of NICs towards GPUs: the rest is bought and not used"
        remedy = "ports of the NIC's rate, or ports that split (51.2T-64x800G-breakout), would carry more there"
        yield Statement("warning", "fabric", f"{text}; {remedy}. Links between switches carry it whole.", True)
    if network.floor is None:
        text = "Links have one price whatever their length: give the floor to price them by reach."
        yield Statement("warning", "fabric", text, True)
    budget = plan.instance.limits.budget_usd
    if budget and budget > cost.total_usd:
        left = f"${budget - cost.total_usd:,.0f} of the budget of {money(budget)}"
        yield Statement("limit", "money", f"{left} ({short_percent(1 - cost.total_usd / budget)}) is not spent.", True)


def _chosen(section: plan_sections.FabricPlan, network: Network, asked: Instance) -> Iterator[Statement]:
    """State a fabric's switches by tier, links, bisection capacity, the loss that it survives, price and offers."""
    fabric, chosen = section.sites[CLUSTER], section.alternatives[0]
    one = f" of {fabric.switch}" if fabric.boxes == fabric.switch else ""
    text = f"{chosen.name}: {', '.join(tier_words(tier, fabric, asked) for tier in fabric.tiers)}{one}"
    yield Statement("choice", "fabric", text, True)
    links = f"{counted(fabric.endpoint_links, 'link')} to GPUs, {fabric.switch_links:,} between switches"
    planes = f"; {counted(fabric.planes, 'plane')}" if fabric.planes > 1 else ""
    leaf = f"{counted(fabric.leaf_domain_racks, 'host')} in a leaf domain"
    leaf += f", with {fabric.rails_per_leaf} GPUs of each" * (fabric.rails_per_leaf > 1)
    yield Statement("choice", "fabric", f"{counted(fabric.switches, 'switch')}, {links}{planes}; {leaf}", True)
    bisection = chosen.bisection_tbps or 0.0
    carried = f"Carries {bisection:,.1f} Tb/s between two halves of the hosts"
    family = chosen.fabric.family if chosen.fabric is not None else ""
    if family == "rail-only":
        carried += " within each rail"
    half = half_rate_tbps(asked.hardware, fabric.wired_gpus_per_rack)
    if bisection < 0.995 * half:  # above it is all that they have
        carried += f", {short_percent(bisection / half)} of their rate"
    if chosen.ecmp_tail is not None and chosen.spray_tail is not None:
        tails = f"{ratio(chosen.ecmp_tail)} times its time at line rate under ECMP, {ratio(chosen.spray_tail)} sprayed"
        tails = tails if max(chosen.ecmp_tail, chosen.spray_tail) > 1 else "no longer than at line rate"
        carried += f"; the slowest flow of a random permutation takes {tails}"
    else:
        trees_alone = family.startswith("dragonfly")
        carried += "; tails are simulated of trees alone" if trees_alone else "; tails were not simulated"
    yield Statement("choice", "fabric", carried, True)
    if family.startswith("dragonfly") and network.asked_core_share:
        of = f"The {to_one(1 / network.asked_core_share)} asked for is of all links out of a full leaf and a full group"
        text = f"{of}; halves of the groups are joined by fewer than those of a tree so asked for."
        yield Statement("choice", "fabric", text, True)
    survives = network.survives
    loss = f"Survives the loss of {SURVIVED[survives]}; " if survives else "No loss is provided for; "
    cut = counted(fabric.tiers[0].down_ports, "GPU port")
    yield Statement("choice", "fabric", f"{loss}a leaf's loss cuts its {cut}.", True)
    usd = {switch.name: switch.price_usd for switch in network.switches}
    boxes = sum(tier.switches * usd[model] for tier, model in zip(fabric.tiers, fabric.models, strict=True))
    text = f"{money(fabric.cost_usd)} = switches {money(boxes)}, links {money(fabric.cost_usd - boxes)}"
    yield Statement("figure", "money", text, True)
    offered = [f"{switch.name} ({money(switch.price_usd)}, {switch.power_watts:g} W)" for switch in network.switches]
    optics = network.optics
    links = f"transceivers {optics.name} at {money(optics.price_usd)}, {optics.power_watts:g} W"
    if (floor := network.floor) is not None and by_reach(network):
        hosts = f", {counted(floor.hosts_per_rack, 'host')} a rack" if floor.hosts_per_rack > 1 else ""
        of_floor = f"on a floor of {floor.rack_pitch_m:g} by {floor.row_pitch_m:g} m{hosts}"
        links = f"{', '.join(medium.name for medium in network.media)} {of_floor}"
    yield Statement("figure", "money", f"Chosen from {', '.join(offered)}; {links}", True)
