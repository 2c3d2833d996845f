"""The summary of a plan on one screen."""

from collections.abc import Iterable, Iterator

from planner.instance.grid import Grid
from planner.instance.model_family import ModelChoice
from planner.plan.certificate import Certificate, Conflict, disagreement
from planner.plan.fabric import FabricPlan, SiteFabric, TransportFactor
from planner.plan.layout import LayoutPlan, PoolsPlan
from planner.plan.placement import PlacementPlan
from planner.plan.plan import Plan
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanDemand, WanPlan
from planner.report.fit import INDENT, fitted
from planner.report.run_lines import run_lines
from planner.report.summary_calendar import BAR, calendar
from planner.report.warnings import warnings
from planner.units import money, percent, words

BESIDE_BAR = 60  # columns of a line with a bar that are not the bar's
OBJECTIVE_UNITS = {
    "days_to_train": "days to train",
    "cost_usd": "to buy",
    "total_cost_of_ownership_usd": "to buy and to run until the model is trained",
    "loss": "nats a token",
}
END = {
    "grid": "power and sites end the campus: they feed no further block of racks",
    "budget": "the budget ends the campus: what is left buys no further block of racks",
    "owned_racks": "the racks end the cluster: those left hold no further block",
    "layout": "a further block of racks could be had, and would not train faster",
}
PROVEN = 1e-9  # relative: a gap of rounding alone
SMALL = 5e-4  # share of a total below which a part prints as 0.0 % and is left out


def summary(plan: Plan, width: int | None = None) -> str:
    """Write for each decision what was chosen, what binds it, and the proof; lines no wider than a width, if given."""
    lines = [
        *disagreement(plan.violations),
        *_headline(plan),
        *(_decisions(plan, width) if plan.conflict is None else ()),
    ]
    return fitted("\n".join(lines), width)


def section(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Write lines with the name of their section before the first."""
    for n, line in enumerate(lines):
        yield f"{name if n == 0 else '':{INDENT}}{line}"


def _headline(plan: Plan) -> Iterator[str]:
    o = plan.objective
    yield f"{plan.instance.name}: {plan.status}" + ("" if plan.stopped == "proved" else f" ({plan.stopped})")
    if plan.conflict is not None:
        yield f"  no plan: {plan.conflict.reason}"
        yield from _refused(plan.conflict, limited=plan.stopped == "limit" and plan.time_limit_seconds is not None)
        if plan.status == "infeasible" and plan.conflict.decision != "sites" and o.outside:
            yield f"  given the declared space; not in it: {o.outside}"
    elif o.value is not None:
        yield f"  {_figure(o.name, o.value)} {OBJECTIVE_UNITS[o.name]}; {_proven(plan)}"
        yield from _around(plan)


def _refused(conflict: Conflict, *, limited: bool) -> Iterator[str]:
    """Name the rules that leave no plan; where a time limit came first, none is known to."""
    if conflict.rules:
        twice = f"; {conflict.checked}" if conflict.checked else ""
        yield f"  rules in conflict ({conflict.decision}): {', '.join(conflict.rules)}{twice}"
    elif limited:
        yield "  no rules are known to conflict: give more time"


def _figure(name: str, value: float) -> str:
    return f"{value:,.4f}" if name == "loss" else money(value) if name.endswith("_usd") else f"{value:,.1f}"


def _proven(plan: Plan) -> str:
    """Write what no plan of the declared space is below."""
    o = plan.objective
    if o.bound is None:
        return "no bound is proven"
    if not o.gap or o.gap < PROVEN:
        return "no plan of the declared space is better"
    return f"no plan of the declared space is under {_figure(o.name, o.bound)} (gap {percent(o.gap)})"


def _around(plan: Plan) -> Iterator[str]:
    """Write the bound over all fabrics, and the plan that is almost as fast for less."""
    o = plan.objective
    if o.value is not None and o.fabric_free_bound is not None and o.name == "days_to_train":
        away = percent((o.value - o.fabric_free_bound) / o.value)
        yield f"  with any fabric whatever: no plan is under {o.fabric_free_bound:,.1f} ({away} away)"
    if o.cheaper is not None and plan.cost is not None:
        x = o.cheaper
        yield (
            f"  {_figure(o.name, o.value or 0.0)} days for {money(plan.cost.total_usd)}; "
            f"{x.days_to_train:,.1f} for {money(x.capital_usd)} "
            f"({money(plan.cost.total_usd - x.capital_usd)} less, {x.racks:,} racks)"
        )


def _decisions(plan: Plan, width: int | None) -> Iterator[str]:
    if plan.model_choice:
        yield from section("MODEL", _choice(plan.model_choice, plan))
    if plan.sites:
        # Where the wide area is designed, its routes say more than the links that the split assumed.
        shown = plan.sites.model_copy(update={"links": ()}) if plan.wan else plan.sites
        yield from section("SITES", [*_sites(shown, plan.instance.grid), proof(plan.sites.certificate)])
    if plan.wan:
        yield from section("WAN", _wan(plan.wan))
    if plan.layout:
        yield from section("LAYOUT", [*_layout(plan.layout, experts=_experts(plan)), proof(plan.layout.certificate)])
    if plan.pools:
        yield from section("POOLS", _pools(plan.pools, experts=_experts(plan)))
    if plan.fabric:
        yield from section("FABRIC", _fabric(plan.fabric))
    if plan.transport:
        yield from section("TRANSPORT", _transport(plan.transport))
    if plan.placement:
        yield from section("PLACEMENT", _placement(plan.placement))
    bar = BAR if width is None else max(8, min(BAR, width - BESIDE_BAR))
    yield from section("CALENDAR", calendar(plan, bar))
    if plan.cost:
        yield from section("COST", _cost(plan))
    if plan.run:
        yield from section("RUN", run_lines(plan.instance, plan.run))
    yield from section("WARNINGS", warnings(plan))


def _cost(plan: Plan) -> Iterator[str]:
    if plan.cost is None:
        return
    parts = ", ".join(f"{words(k)} {money(v)}" for k, v in plan.cost.capex_usd.items() if v)
    budget = plan.instance.limits.budget_usd
    left = f"; {money(budget - plan.cost.total_usd)} of {money(budget)} left" if budget else ""
    yield f"{money(plan.cost.total_usd)} = {parts}{left}"
    if plan.objective.limited_by is not None:
        yield END[plan.objective.limited_by]
    running = ", ".join(f"{k} {money(v)}" for k, v in plan.cost.opex_usd_per_year.items())
    if running:
        yield f"a year: {running}"


def _choice(x: ModelChoice, plan: Plan) -> Iterator[str]:
    model = plan.instance.workload.model
    shape = "" if isinstance(model, str) else f"{model.layers} layers of {model.hidden:,}, {model.heads} heads; "
    size = f"{x.parameters / 1e12:,.2f}T parameters on {x.tokens / 1e12:,.1f}T tokens"
    yield f"{size}: {shape}{x.flop:.4g} FLOP by the deadline"
    if x.assumed:
        z = x.assumed
        yield f"as assumed {z.parameters / 1e12:,.1f}T on {z.tokens / 1e12:,.0f}T tokens, {z.flop:.4g} FLOP"
    y = x.ideal
    size = f"{y.parameters / 1e12:,.1f}T on {y.tokens / 1e12:,.0f}T"
    yield f"at full use {size}, {y.flop:.4g} FLOP, loss {y.loss:.4f}; of it:"
    parts = sorted(((v, k) for k, v in x.compute_shares.items() if abs(v) >= SMALL), reverse=True)
    yield ", ".join(f"{words(k)} {percent(v)}" for v, k in parts)
    yield f"{x.flop_bound:.4g} FLOP is proven to be too many; batch of {x.batch_tokens / 1e6:,.1f}M tokens"


SURVIVES = {"off": "nothing out", "margin": "nothing out", "node": "a site's largest circuit out"}


def _power_flow(grid: Grid) -> str:
    """Say of which network the flows are proven: with what load beside the sites, and what out."""
    load = sum(n.load_mw for n in grid.nodes)
    beside = f"beside {load:,.0f} MW of other load" if load else "of the sites alone: no node states a load_mw"
    return f"power flow by reactances, {beside}; {SURVIVES.get(grid.rules.n1, 'any one circuit or unit out')}"


def _sites(s: SitesPlan, grid: Grid | None) -> Iterator[str]:
    for site in s.sites:
        place = f"{site.id} ({site.balancing_authority}, {site.interconnection})"
        yield f"{place}: {site.racks:,} racks, {site.facility_mw:,.0f} MW"
    for k in s.links:
        lit = f"{k.required_gbps / 1e3:,.1f} Tbps needed, {k.wavelengths} wavelengths in {k.fibre_pairs} fibre pair(s)"
        yield f"{k.a} - {k.b}: {k.route_km:,.0f} km, {k.rtt_ms:.1f} ms; {lit}"
    for built in s.new_lines:
        yield f"builds {built.circuits} circuit(s) in {built.line}"
    for bought in s.upgrades:
        yield f"buys {bought.steps} step(s) of interconnect at {bought.node}"
    for x in s.excess:
        yield f"exceeds {x.rule} by {x.amount:,.6g} {x.unit}, weighed at {money(x.usd_per_year)} a year"
    for name, run in s.scenarios.items():
        power = sum(run.running_mw.values())
        yield f"in {name}: {power:,.0f} MW run, energy {money(run.energy_usd_per_year)} a year"
    if grid is not None and grid.rules.grid_model == "dc":
        yield _power_flow(grid)


def _wan(x: WanPlan) -> Iterator[str]:
    for d in x.demands:
        if d.priority == 0:
            yield _route(d)
    waves, pairs = sum(e.wavelengths for e in x.edges), sum(e.fibre_pairs for e in x.edges)
    survives = "any one span cut" if x.protection == "one_cut" else "no cut"
    if shared := x.shared_nodes:
        at = ", ".join(f"{link} at {', '.join(nodes)}" for link, nodes in sorted(shared.items()))
        survives += f", but not the loss of a node that a route and its backup share: {at}"
    form = f"exchange by {x.exchange}; " if x.exchange else ""
    lit = f"{waves:,} wavelengths in {pairs:,} fibre pair(s) on {len(x.edges)} spans"
    yield f"{form}{lit}, {money(x.capex_usd)}; survives {survives}"
    others = [d for d in x.demands if d.priority]
    for name in dict.fromkeys(d.name for d in others):
        yield _carried([d for d in others if d.name == name])
    yield proof(x.certificate)


def _route(d: WanDemand) -> str:
    r, backup = d.routes[0], ""
    if r.backup_rtt_ms is not None:
        backup = f"; while cut {r.backup_rtt_ms:.1f} ms and {(r.backup_gbps or 0) / 1e3:,.1f} Tbps"
    path = f"{len(r.edges)} span(s), {r.route_km:,.0f} km, {r.rtt_ms:.1f} ms, {r.gbps / 1e3:,.1f} Tbps"
    return f"{d.a} - {d.b}: {path}{backup}"


def _carried(demands: list[WanDemand]) -> str:
    asked, missing = sum(d.requested_gbps for d in demands), sum(d.missing_gbps for d in demands)
    why = ""
    if missing > 1e-6 * asked:
        full = ", ".join(sorted({e for d in demands for e in d.saturated_edges}))
        why = f"; {missing:,.1f} missing, {f'full: {full}' if full else 'no route'}"
    name = f"{demands[0].name} (priority {demands[0].priority})"
    return f"{name}: {asked - missing:,.1f} of {asked:,.1f} Gbps carried{why}"


def _experts(plan: Plan) -> bool:
    """Say whether the model has experts: its degrees of context and experts are then choices worth a word even at 1."""
    model = plan.instance.workload.model
    return not isinstance(model, str) and model.experts is not None


def _layout(x: LayoutPlan, *, experts: bool) -> Iterator[str]:
    m = x.metrics
    inner = f" ({x.tensor_parallel_inner} inner)" if x.tensor_parallel_inner > 1 else ""
    context = f" x CP {x.context_parallel}" if experts or x.context_parallel > 1 else ""
    expert = f", EP {x.expert_parallel}" if experts or x.expert_parallel > 1 else ""
    pipeline = f" x PP {x.pipeline_parallel} (v {x.virtual_stages}, {x.schedule})"
    degrees = f"TP {x.tensor_parallel}{inner}{context}{pipeline} x DP {x.data_parallel:,}{expert}"
    batch = f"{x.microbatches_per_step} micro-batches of {x.microbatch_sequences}"
    sequence = ", sequence parallel" if x.sequence_parallel else ""
    yield f"{degrees}; {batch}; ZeRO-{x.zero_stage}, recompute {x.recompute}{sequence}"
    gpus = f"{x.gpus_used:,} GPUs used, {x.gpus_idle:,} idle"
    yield f"layers {_stages(x.layers_per_stage)}; {gpus}; {m.tokens_per_step / 1e6:,.1f}M tokens a step"
    parts = sorted(((v, k) for k, v in m.breakdown_seconds.items() if v > SMALL * m.step_seconds), reverse=True)
    shares = ", ".join(f"{words(k)} {percent(v / m.step_seconds)}" for v, k in parts)
    yield f"step {m.step_seconds:.3f} s: {shares}"
    memory = f"{m.memory_bytes_per_gpu / 1e9:.1f} of {m.memory_limit_bytes / 1e9:.1f} GB"
    low, high = m.days_to_train_interval
    yield f"MFU {percent(m.mfu)}; memory {memory} on the worst GPU; 4 of 5 like runs: {low:,.1f} to {high:,.1f} days"


def _pools(x: PoolsPlan, *, experts: bool) -> Iterator[str]:
    total, exchange = sum(x.sequences.values()), max(x.exchange_seconds.values())
    batch = f"{total:,} sequences ({x.tokens_per_step / 1e6:,.1f}M tokens) a step of {x.step_seconds:.3f} s"
    yield f"{batch}, " + (f"exchange {exchange:.3f} s exposed" if exchange else "exchange between pools not counted")
    for name, n in x.sequences.items():
        layout, state = x.layouts.get(name), ", does not train"
        if layout is not None:
            step = layout.metrics.step_seconds
            state = f"; step {step:.3f} s, waits {x.step_seconds - exchange - step:.3f} s"
        yield f"{name}: {n:,} sequences ({percent(n / total)}){state}"
        if layout is not None:
            first, *others = _layout(layout, experts=experts)
            yield from (first, *(f"  {line}" for line in others))
    yield proof(x.certificate)


def _stages(layers: tuple[int, ...]) -> str:
    low, high = min(layers), max(layers)
    return f"{low} a stage" if low == high else f"{low} to {high} a stage"


def _fabric(x: FabricPlan) -> Iterator[str]:
    for site, f in sorted(x.sites.items()):
        yield from _site_fabric(site, f)


def _site_fabric(site: str, f: SiteFabric) -> Iterator[str]:
    tiers = ", ".join(f"{t.switches:,} {t.name} {t.down_ports}/{t.up_ports}" for t in f.tiers)
    family = "" if f.family == "rail" else f", {f.family}"
    total = f"{f.switches:,} switches, {f.switch_links:,} links, {money(f.cost_usd)}"
    yield f"{site}: {f.planes} plane(s) of {f.switch}{family}: {tiers}; {total}"
    crossing = f"{100 * f.share_leaving_leaf:.0f} % leaves the leaf, {100 * f.share_leaving_pod:.0f} % the pod"
    crossing += f", {100 * f.share_leaving_zone:.0f} % the zone" if f.zones else ""
    slowdown = f"{f.pipeline_send_slowdown:.2f}x ideal, all-reduces {f.allreduce_slowdown:.2f}x; {crossing}"
    wired = f"; {f.wired_gpus_per_rack} GPUs a rack cabled" if f.wired_gpus_per_rack else ""
    yield f"exchange {f.p2p_seconds * 1e3:.2f} ms ({slowdown}); leaf domain {f.leaf_domain_racks} racks{wired}"
    if f.wan_gateway is not None:
        g = f.wan_gateway
        ports = f"{g.wan_ports:,} port(s) to the wide area, {g.uplinks:,} up"
        yield f"WAN gateway of {g.wan_gbps:,.0f} Gbps: {g.switches:,} switch(es), {ports}; {money(g.cost_usd)} of it"


def _transport(x: TransportFactor) -> Iterator[str]:
    runs = f"p{x.percentile:g} of {x.seeds} seeds, {x.pattern} of {x.hosts:,} hosts under {x.tiers} tiers of {x.switch}"
    yield f"{x.transport}: {x.slowdown:.3f}x the fluid ideal ({runs}), in place of {x.configured_slowdown:g}"


def _placement(x: PlacementPlan) -> Iterator[str]:
    for site, stripes in sorted(x.stripes.items()):
        blocks = f"{x.blocks_by_site.get(site, 0):,} blocks of {x.block_racks:,} racks"
        yield f"{site}: {blocks} in {stripes} stripe{'s' if stripes > 1 else ''}"
    local = f"{x.groups_leaf_local:,} of {x.groups:,} all-reduce groups under one leaf domain"
    split = f"{x.groups_split:,} split (at least {x.lower_bound_split:,})"
    yield f"{local}; {split}, {x.extra_pieces:,} extra pieces, {x.groups_cross_pod:,} across pods"


def proof(c: Certificate) -> str:
    """Write on one line what binds, what is proven, and what stands behind it."""
    binds = f"binds: {', '.join(c.binding)}; " if c.binding else ""
    gap = "no bound" if c.gap is None else f"gap {100 * c.gap:.2g} %"
    checked = f"; {c.checked}" if c.checked else ""
    return f"{binds}{c.status}, {gap}, {c.solver} in {c.seconds:.1f} s{checked}"
