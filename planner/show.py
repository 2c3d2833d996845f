"""The story of a plan in one screen."""

from collections.abc import Iterator

from planner.plan import Certificate, FabricPlan, LayoutPlan, PlacementPlan, Plan, SitesPlan


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
        unit = "days to train" if o.name == "days_to_train" else "USD"
        away = f" ({100 * (o.joint_gap or 0):.1f} % away)"
        joint = "" if o.joint_bound is None else f"; over all decisions at once no plan is under {o.joint_bound:,.1f}{away}"
        yield f"  {o.value:,.1f} {unit}, decision by decision proven to {100 * (o.gap or 0):.2g} %{joint}"
    if plan.sites:
        yield from _sites(plan.sites)
    if plan.layout:
        yield from _layout(plan.layout)
    if plan.fabric:
        yield from _fabric(plan.fabric)
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


def _sites(s: SitesPlan) -> Iterator[str]:
    for n, site in enumerate(s.sites):
        word = "SITES     " if n == 0 else "          "
        yield f"{word} {site.id} ({site.balancing_authority}, {site.interconnection}): {site.racks:,} racks, {site.facility_mw:,.0f} MW"
    for k in s.links:
        lit = f"{k.required_gbps / 1e3:,.1f} Tbps needed, {k.wavelengths} wavelengths in {k.fibre_pairs} fibre pair(s)"
        yield f"           {k.a} - {k.b}: {k.route_km:,.0f} km, {k.rtt_ms:.1f} ms; {lit}"
    for built in s.new_lines:
        yield f"           builds {built.circuits} circuit(s) in {built.line}"
    yield proof(s.certificate)


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


def _stages(layers: tuple[int, ...]) -> str:
    least, most = min(layers), max(layers)
    return f"{least} a stage" if least == most else f"{least} to {most} a stage"


def _fabric(x: FabricPlan) -> Iterator[str]:
    for n, (site, f) in enumerate(sorted(x.sites.items())):
        word = "FABRIC    " if n == 0 else "          "
        tiers = ", ".join(f"{t.switches:,} {t.name} {t.down_ports}/{t.up_ports}" for t in f.tiers)
        yield f"{word} {site}: {f.planes} plane(s) of {f.switch}: {tiers}; {f.switches:,} boxes, {f.switch_links:,} links, {money(f.cost_usd)}"
        crossing = f"{100 * f.share_leaving_leaf:.0f} % leaves the leaf, {100 * f.share_leaving_pod:.0f} % the pod"
        yield f"           exchange {f.p2p_seconds * 1e3:.2f} ms ({f.hop_slowdown:.2f}x ideal; {crossing}); leaf domain {f.leaf_domain_racks} racks"
    yield proof(x.certificate)


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


def money(usd: float) -> str:
    """Write dollars in the largest unit that suits."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(usd) >= size:
            return f"${usd / size:,.2f}{unit}"
    return f"${usd:,.0f}"
