"""Figures of a plan that `planner check` takes on trust, each with the reason: nothing in the plan recomputes them."""

OPTIONS = "an option of the run, or what made the plan: nothing follows from it"
COUNTED = "how large the solver's model was, or how long it took: nothing follows from it"
SITES_MILP = "found by the MILP over sites and grid, which the check has no solver to repeat"
LEFT_OUT = "left out, the plan says less, and nothing that is false"
WORDS = "words: how it was proven"
OTHER_PLAN = "of a plan that is not in the file"

# By the end of a figure's path, `*` for names and `[]` for places in lists.
ON_TRUST: dict[str, str] = {
    "planner_version": OPTIONS,
    "seed": OPTIONS + "; certificates must have the same",
    "threads": OPTIONS,
    "time_limit_seconds": OPTIONS,
    "verified": "what the checker said when the plan was made; the check says it anew",
    "certificate.seconds": COUNTED + "; layout, fabric and placement must have the same",
    "certificate.variables": COUNTED,
    "certificate.constraints": COUNTED,
    "certificate.checked": LEFT_OUT,
    "certificate.space": COUNTED,
    "certificate.space.*": COUNTED,
    "proof.max_racks_by_wired_gpus": SITES_MILP + "; between the plan's racks and those of arithmetic",
    "proof.max_racks_by_wired_gpus.*": SITES_MILP + "; between the plan's racks and those of arithmetic",
    "proof.fabric_free_bound_days": "of a chosen model, where the objective has none: a lower one says less",
    "wan.certificate.given": "words: the bytes and the window that the design was asked for; the plan's are checked",
    "wan.demands[].missing_gbps": "a thousandth of 1 Gbps is rounding beside the thousands that are requested",
    "proof.columns[].min_data_parallel": SITES_MILP + ": it refused these replicas too",
    "proof.columns[].max_data_parallel": SITES_MILP + ": it refused these replicas too",
    "proof.columns[].lower_bound_days": "least days over several counts of replicas; a column below it is found",
    "objective.limited_by": LEFT_OUT,
    "objective.ends": LEFT_OUT,
    "objective.ends[].days_to_train": OTHER_PLAN + "; within the tolerance of the fastest, the last the plan's",
    "objective.ends[].capital_usd": OTHER_PLAN + "; within the tolerance of the cheapest, the last the plan's",
    "objective.ends[].proven": "what a search proved of plans that tie",
    "objective.cheaper.capital_usd": OTHER_PLAN + "; it costs less than the plan",
    "objective.cheaper.days_to_train": OTHER_PLAN + "; within 0.5 % of the days, and not below the bound",
    "objective.cheaper.racks": OTHER_PLAN,
    "fabric.sites.*.wired_gpus_per_rack": "0 says the same where all GPUs are cabled",
    "fabric.sites.*.cabled_racks": "0 says the same where all racks are cabled",
    "fabric.sites.*.tiers[].switch": "left out or empty it is the leaf's, and so says the same where it is",
    "sites.flows[].mw": "another flow that keeps balance and ratings is as good",
    "layout.assumptions.pipeline_send_slowdown": "may be more than the fabric's where it is hidden, never less",
    "layout.assumptions.allreduce_slowdown": "may be more than the fabric's where it is hidden, never less",
    "model_choice.days_by_flop": OTHER_PLAN,
    "model_choice.days_by_flop.*": OTHER_PLAN,
    "model_choice.flop_bound": "the layout's bound for another model; no more than all GPUs at their peak",
    "conflict.checked": LEFT_OUT,
    "conflict.reason": "words; the rules that they are about are checked",
    "conflict.rules": "no columns keep the rules; which of them could be left out takes a search",
    "conflict.rules[]": "no columns keep the rules; which of them could be left out takes a search",
}

# The same of the placement of a job on a cluster.
PLACED_ON_TRUST: dict[str, str] = {
    "figures": LEFT_OUT,
    "figures[].name": "a level that no closed form and no count is known for by its name",
    "figures[].analytic_bound": "a lower bound that is lower says less; the bound and the value are checked",
    "reason": "words",
    "certificate.solver": WORDS,
    "certificate.formulation": WORDS,
    "certificate.minimizes": WORDS + "; levels that it does not name are not held to their bounds",
    "certificate.given": WORDS,
    **{name: why for name, why in ON_TRUST.items() if name.startswith("certificate.") or name == "seed"},
}
