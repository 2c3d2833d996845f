"""The story of a plan in one screen."""

from collections.abc import Iterator

from planner.instance.model_family import ModelChoice
from planner.plan.certificate import Certificate
from planner.plan.fabric import FabricPlan, TransportFactor
from planner.plan.layout import LayoutPlan, PoolsPlan
from planner.plan.placement import PlacementPlan
from planner.plan.plan import Plan
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanDemand, WanPlan
from planner.units import money


def summary(plan: Plan) -> str:
    """Tell for each decision what was chosen, what binds it, and the proof."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    o, i = plan.objective, plan.instance
    yield f"{i.name}: {plan.status}" + ("" if plan.stopped == "proved" else f" ({plan.stopped})")
    if plan.conflict is not None:
        yield f"  no plan: {plan.conflict.reason}"
        yield f"  rules in conflict ({plan.conflict.decision}): {', '.join(plan.conflict.rules) or 'not determined'}"
        return
    if o.value is not None:
        unit = {"days_to_train": "days to train", "cost_usd": "USD", "loss": "nats a token"}[o.name]
        away = f" ({100 * (o.joint_gap or 0):.1f} % away)"
        joint = (
            "" if o.joint_bound is None else f"; over all decisions at once no plan is under {o.joint_bound:,.1f}{away}"
        )
        value = f"{o.value:,.4f}" if o.name == "loss" else f"{o.value:,.1f}"
        yield f"  {value} {unit}, decision by decision proven to {100 * (o.gap or 0):.2g} %{joint}"
    if plan.model_choice:
        yield from _choice(plan.model_choice, plan)
    if plan.sites:
        # Where the wide area is designed, its routes say more than the links that the split reckoned with.
        yield from _sites(plan.sites.model_copy(update={"links": ()}) if plan.wan else plan.sites)
    if plan.wan:
        yield from _wan(plan.wan)
    if plan.layout:
        yield from _layout(plan.layout)
    if plan.pools:
        yield from _pools(plan.pools)
    if plan.fabric:
        yield from _fabric(plan.fabric)
    if plan.transport:
        yield from _transport(plan.transport)
    if plan.placement:
        yield from _placement(plan.placement)
    if plan.cost:
        parts = ", ".join(f"{k.replace('_', ' ')} {money(v)}" for k, v in plan.cost.capex_usd.items() if v)
        budget = i.limits.budget_usd
        left = f"; {money(budget - plan.cost.total_usd)} of {money(budget)} left" if budget else ""
        yield f"COST       {money(plan.cost.total_usd)} = {parts}{left}"
        running = ", ".join(f"{k} {money(v)}" for k, v in plan.cost.opex_usd_per_year.items())
        if running:
            yield f"           a year: {running}"


def _choice(x: ModelChoice, plan: Plan) -> Iterator[str]:
    model = plan.instance.workload.model
    shape = "" if isinstance(model, str) else f"{model.layers} layers of {model.hidden:,}, {model.heads} heads; "
    yield f"MODEL      {x.parameters / 1e12:,.2f}T parameters on {x.tokens / 1e12:,.1f}T tokens: {shape}{x.flop:.4g} FLOP by the deadline"
    if x.assumed:
        z = x.assumed
        yield f"           as assumed {z.parameters / 1e12:,.1f}T on {z.tokens / 1e12:,.0f}T tokens, {z.flop:.4g} FLOP"
    y = x.ideal
    yield f"           at full use {y.parameters / 1e12:,.1f}T on {y.tokens / 1e12:,.0f}T, {y.flop:.4g} FLOP, loss {y.loss:.4f}; of it:"
    parts = sorted(((v, k) for k, v in x.compute_shares.items() if abs(v) >= 5e-4), reverse=True)
    yield "           " + ", ".join(f"{k.replace('_', ' ')} {100 * v:.1f} %" for v, k in parts)
    yield f"           {x.flop_bound:.4g} FLOP is proven to be too many; batch of {x.batch_tokens / 1e6:,.1f}M tokens"


def _sites(s: SitesPlan) -> Iterator[str]:
    for n, site in enumerate(s.sites):
        word = "SITES     " if n == 0 else "          "
        yield f"{word} {site.id} ({site.balancing_authority}, {site.interconnection}): {site.racks:,} racks, {site.facility_mw:,.0f} MW"
    for k in s.links:
        lit = f"{k.required_gbps / 1e3:,.1f} Tbps needed, {k.wavelengths} wavelengths in {k.fibre_pairs} fibre pair(s)"
        yield f"           {k.a} - {k.b}: {k.route_km:,.0f} km, {k.rtt_ms:.1f} ms; {lit}"
    for built in s.new_lines:
        yield f"           builds {built.circuits} circuit(s) in {built.line}"
    for bought in s.upgrades:
        yield f"           buys {bought.steps} step(s) of interconnect at {bought.node}"
    for x in s.excess:
        yield f"           exceeds {x.rule} by {x.amount:,.6g} {x.unit}, weighed at {money(x.usd_per_year)} a year"
    for name, run in s.scenarios.items():
        yield f"           in {name}: {sum(run.running_mw.values()):,.0f} MW run, energy {money(run.energy_usd_per_year)} a year"
    yield proof(s.certificate)


def _wan(x: WanPlan) -> Iterator[str]:
    sync, rest = [d for d in x.demands if d.priority == 0], [d for d in x.demands if d.priority]
    word = "WAN       "
    for d in sync:
        r = d.routes[0]
        backup = (
            ""
            if r.backup_rtt_ms is None
            else f"; while cut {r.backup_rtt_ms:.1f} ms and {(r.backup_gbps or 0) / 1e3:,.1f} Tbps"
        )
        yield f"{word} {d.a} - {d.b}: {len(r.edges)} span(s), {r.route_km:,.0f} km, {r.rtt_ms:.1f} ms, {r.gbps / 1e3:,.1f} Tbps{backup}"
        word = "          "
    waves, pairs = sum(e.wavelengths for e in x.edges), sum(e.fibre_pairs for e in x.edges)
    survives = "any one span cut" if x.protection == "one_cut" else "no cut"
    form = f"exchange by {x.exchange}; " if x.exchange else ""
    yield f"{word} {form}{waves:,} wavelengths in {pairs:,} fibre pair(s) on {len(x.edges)} spans, {money(x.capex_usd)}; survives {survives}"
    for name in dict.fromkeys(d.name for d in rest):
        yield f"           {_carried([d for d in rest if d.name == name])}"
    yield proof(x.certificate)


def _carried(demands: list[WanDemand]) -> str:
    asked, missing = sum(d.requested_gbps for d in demands), sum(d.missing_gbps for d in demands)
    short = sorted({e for d in demands for e in d.saturated_edges})
    why = (
        f"; {missing:,.1f} missing" + (f", full: {', '.join(short)}" if short else ", no route")
        if missing > 1e-6 * asked
        else ""
    )
    return (
        f"{demands[0].name} (priority {demands[0].priority}): {asked - missing:,.1f} of {asked:,.1f} Gbps carried{why}"
    )


def _layout(x: LayoutPlan) -> Iterator[str]:
    m, stages = x.metrics, _stages(x.layers_per_stage)
    yield (
        f"LAYOUT     TP {x.tensor_parallel} x PP {x.pipeline_parallel} (v {x.virtual_stages}) x DP {x.data_parallel:,}; "
        f"{x.microbatches_per_step} micro-batches of {x.microbatch_sequences}; ZeRO-{x.zero_stage}, recompute {x.recompute}"
        f"{', sequence parallel' if x.sequence_parallel else ''}"
    )
    yield f"           layers {stages}; {x.gpus_used:,} GPUs used, {x.gpus_idle:,} idle; {m.tokens_per_step / 1e6:,.1f}M tokens a step"
    parts = sorted(((v, k) for k, v in m.breakdown_seconds.items() if v > 5e-4 * m.step_seconds), reverse=True)
    shares = ", ".join(f"{k.replace('_', ' ')} {100 * v / m.step_seconds:.1f} %" for v, k in parts)
    yield f"           step {m.step_seconds:.3f} s: {shares}"
    yield f"           MFU {100 * m.mfu:.1f} %; memory {m.memory_bytes_per_gpu / 1e9:.1f} of {m.memory_limit_bytes / 1e9:.1f} GB on the worst GPU"
    yield proof(x.certificate)


def _pools(x: PoolsPlan) -> Iterator[str]:
    total = sum(x.sequences.values())
    waits = max(x.exchange_seconds.values())
    shared = f"{total:,} sequences ({x.tokens_per_step / 1e6:,.1f}M tokens) a step of {x.step_seconds:.3f} s"
    yield f"POOLS      {shared}" + (
        f", exchange {waits:.3f} s exposed" if waits else ", exchange between pools not counted"
    )
    for name, n in x.sequences.items():
        y = x.layouts.get(name)
        idle = (
            ""
            if y is None
            else f"; step {y.metrics.step_seconds:.3f} s, waits {x.step_seconds - waits - y.metrics.step_seconds:.3f} s"
        )
        yield f"           {name}: {n:,} sequences ({100 * n / total:.1f} %){idle or ', does not train'}"
        yield from (
            []
            if y is None
            else [f"  {line}" if line.startswith(" ") else f"           {line[11:]}" for line in list(_layout(y))[:-1]]
        )
    yield proof(x.certificate)


def _stages(layers: tuple[int, ...]) -> str:
    least, most = min(layers), max(layers)
    return f"{least} a stage" if least == most else f"{least} to {most} a stage"


def _fabric(x: FabricPlan) -> Iterator[str]:
    for n, (site, f) in enumerate(sorted(x.sites.items())):
        word = "FABRIC    " if n == 0 else "          "
        tiers = ", ".join(f"{t.switches:,} {t.name} {t.down_ports}/{t.up_ports}" for t in f.tiers)
        family = "" if f.family == "rail" else f", {f.family}"
        built = f"{f.planes} plane(s) of {f.switch}{family}"
        yield f"{word} {site}: {built}: {tiers}; {f.switches:,} boxes, {f.switch_links:,} links, {money(f.cost_usd)}"
        crossing = f"{100 * f.share_leaving_leaf:.0f} % leaves the leaf, {100 * f.share_leaving_pod:.0f} % the pod"
        crossing += f", {100 * f.share_leaving_zone:.0f} % the zone" if f.zones else ""
        yield f"           exchange {f.p2p_seconds * 1e3:.2f} ms ({f.pipeline_send_slowdown:.2f}x ideal; {crossing}); leaf domain {f.leaf_domain_racks} racks"
        if f.wan_gateway is not None:
            took = f"{f.wan_gateway.wan_ports:,} port(s) to the wide area, {f.wan_gateway.uplinks:,} up"
            yield f"           WAN gateway of {f.wan_gateway.wan_gbps:,.0f} Gbps: {f.wan_gateway.switches:,} box(es), {took}; {money(f.wan_gateway.cost_usd)} of it"
    yield proof(x.certificate)


def _transport(x: TransportFactor) -> Iterator[str]:
    runs = f"p{x.percentile:g} of {x.seeds} seeds, {x.pattern} of {x.hosts:,} hosts under {x.tiers} tiers of {x.switch}"
    yield f"TRANSPORT  {x.transport}: {x.slowdown:.3f}x the fluid ideal ({runs}), in the place of {x.configured_slowdown:g}"


def _placement(x: PlacementPlan) -> Iterator[str]:
    local = f"{x.groups_leaf_local:,} of {x.groups:,} all-reduce groups under one leaf domain"
    split = f"{x.groups_split:,} split (at least {x.lower_bound_split:,})"
    yield f"PLACEMENT  {local}; {split}, {x.extra_pieces:,} extra pieces, {x.groups_cross_pod:,} across pods"
    yield proof(x.certificate)


def proof(c: Certificate) -> str:
    """Say in a line what binds and what is proven."""
    binds = f"binds: {', '.join(c.binding)}; " if c.binding else ""
    gap = "no bound" if c.gap is None else f"gap {100 * c.gap:.2g} %"
    return f"           {binds}{c.status}, {gap}, {c.solver} in {c.seconds:.1f} s"
