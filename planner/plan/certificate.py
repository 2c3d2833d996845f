"""Certificates of a plan: bounds, conflicts and violations; over which space, how, and the columns excluded."""

from collections.abc import Collection
from typing import Literal

from pydantic import Field

from planner.instance.base_types import Frozen
from planner.instance.framework_rules import FrameworkRules

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
LimitedBy = Literal["grid", "budget", "owned_racks", "fabric", "layout", "tolerance"]
ALMOST_AS_FAST = 0.005  # share of the days, within which the cheapest plan is named in addition to the fastest
SIMPLER_WITHIN = 0.02  # of the fewest days, within which a simpler plan is named: no prediction is that exact
EndName = Literal["goal", "capital", "leaf_local", "simplest"]
Decision = Literal["sites", "wan", "layout", "fabric", "placement", "budget"]


class Certificate(Frozen):
    """The certificate that a plan states of one decision: what was proven, and by which solver."""

    status: Status = Field(description="What was proven.")
    objective: float | None = Field(description="Value of the decision.")
    bound: float | None = Field(description="No decision in the declared space is better than this.")
    gap: float | None = Field(description="|objective - bound| / max(|objective|, 1e-12).")
    solver: str = Field(description="Backends and versions.")
    formulation: str = Field(description="What was decided, over which space, and how the proof was made.")
    variables: int = Field(description="Of the solvers' models.")
    constraints: int = Field(description="Of the solvers' models.")
    seconds: float = Field(description="Of the search.")
    seed: int = Field(description="Of the solvers.")
    minimizes: str = Field(description="What the objective measures, with its unit.")
    given: str = Field("", description="What earlier decisions fixed: the proof holds for these.")
    space: dict[str, int | float | str | list[int] | list[str]] = Field(
        default_factory=dict, description="The declared space and how much of it each argument excluded."
    )
    checked: str = Field(
        "",
        description="What confirms the bound: `recomputed` by planner check, in whole or but for what the sites "
        "answered; `confirmed by CP-SAT`, or by a dual bound in exact arithmetic; `on trust`: the solver's word alone.",
    )
    binding: tuple[str, ...] = Field((), description="Rules that hold with equality, or stop the next better decision.")


class CheaperPlan(Frozen):
    """A cheaper plan that a plan's objective names: almost as fast for less money."""

    days_to_train: float = Field(description="Its days.")
    capital_usd: float = Field(description="Its capital as the budget counts it.")
    racks: int = Field(description="Racks that it buys.")


class SimplerPlan(Frozen):
    """A simpler plan that a plan's objective names: within 2 % of the fewest days, at no more money."""

    days_to_train: float = Field(description="Its days.")
    loss: float = Field(description="Its days over the fewest, less one: 0.009 is 0.9 % slower.")
    capital_usd: float = Field(description="Its capital as the budget counts it.")
    layout: str = Field(description="Its degrees of parallelism above 1, and its virtual stages.")
    layers_per_stage: tuple[int, ...] = Field(description="Layers of each of its pipeline's stages.")
    recomputed_layers: int = Field(description="Layers that its stages recompute, in all.")
    proven: bool = Field(description="Whether no layout is simpler, of each shape the cheapest looked at.")


class FreedLayout(Frozen):
    """A layout that a plan's objective names: its degrees and batch, but its layers bound by no framework's rules."""

    framework: str = Field(description="Whose rules bind the plan's own.")
    faster: float = Field(description="The plan's step over its step, less one: 0.005 is 0.5 % faster.")
    layers_per_stage: tuple[int, ...] = Field(description="Layers of each stage.")
    recompute: str = Field(description="What runs forward twice, as the layout says it.")
    recomputed_layers_per_stage: tuple[int, ...] = Field(description="Of these, layers that run forward twice.")


class ChoiceEnd(Frozen):
    """An end of the choice between plans that tie, in a plan's objective: what it left, as ends decide in order."""

    name: EndName = Field(
        description="The fastest plan; within the tolerance of its days the cheapest; within the tolerance of that "
        "capital the one with the largest share of all-reduce groups whole in one leaf domain, at the site where it is "
        "least, on trees of up to three tiers; of these the simplest: designs of fabric, kinds of parallelism, "
        "uneven stages, virtual stages, pipeline stages, recomputed layers, the earlier the more important."
    )
    value: float = Field(
        description="Days; capital in dollars; the share, of the plan that all ends leave; kinds of parallelism."
    )
    days_to_train: float = Field(description="Of the plan that it leaves.")
    capital_usd: float = Field(description="The same plan's capital as the budget counts it.")
    proven: bool = Field(description="Whether no plan that ties is better in it, of each shape the cheapest looked at.")


class ObjectiveValue(Frozen):
    """The objective that a plan states: its value, and the bound that is proven of it."""

    name: str = Field(description="What is minimized, as the instance names it.")
    value: float | None = Field(description="Of the plan; null: there is none.")
    bound: float | None = Field(description="No plan of the declared space is better.")
    gap: float | None = Field(description="|value - bound| / |value|; null without a bound.")
    joint_bound: float | None = Field(None, description="The same bound, for older readers.")
    joint_gap: float | None = Field(None, description="The same gap, for older readers.")
    fabric_free_bound: float | None = Field(None, description="No plan is better with any fabric whatever.")
    space: str = Field("", description="The declared space.")
    outside: str = Field("", description="What is not in it.")
    limited_by: LimitedBy | None = Field(
        None,
        description="What one more block of racks meets: power and sites, the budget, the racks owned, or the most "
        "that a pinned leaf, or one or two tiers, can join (`fabric`); `layout` where all allow it and no plan is "
        "faster with it; `tolerance` where faster plans have more racks, and within the tolerance of their days this "
        "one is cheaper. Null: not determined.",
    )
    cheaper: CheaperPlan | None = Field(
        None,
        description="With a tolerance of 0 the cheapest plan within 0.5 % of the days, where cheaper; not looked for "
        "with WAN gateways.",
    )
    ends: tuple[ChoiceEnd, ...] = Field(
        (), description="How plans within the tolerance were chosen between; empty where that was not asked."
    )
    simplest: SimplerPlan | None = Field(
        None, description="A plan of a simpler layout than this one; null: none was found, or it was not asked for."
    )
    freed: FreedLayout | None = Field(
        None, description="What rules of the framework cost the plan's own degrees; null: nothing."
    )


def decision_of(rules: Collection[str]) -> Decision:
    """Return the decision that a plan's conflict names, of these rules, where they are not of the sites alone."""
    if "limits.deadline_days" in rules:  # no layout is in time, whatever else keeps it from being so
        return "layout"
    marks: dict[Decision, set[str]] = {"budget": {"limits.budget_usd"}, "sites": {"limits.facility_power_mw", "sites"}}
    marks |= {"fabric": {"network", "fabric"}, "placement": {"placement"}, "wan": {"wan"}}
    named = {*rules, *(rule.removeprefix("pins.").partition(".")[0] for rule in rules)}
    return next((decision for decision, own in marks.items() if own & named), "layout")


class Conflict(Frozen):
    """The conflict that a plan without decisions states: a smallest set of rules unmet together; none: unknown."""

    decision: Decision = Field(description="The decision that has no answer.")
    rules: tuple[str, ...] = Field(description="Drop any one and the rest can be met.")
    reason: str = Field(description="The same in a sentence.")
    checked: str = Field(
        "",
        description="Of rules of the sites: `confirmed by CP-SAT`, or by a dual bound in exact arithmetic, or "
        "`on trust` where neither says so; of others empty, as `planner check` counts columns and limits itself.",
    )

    @property
    def in_words(self) -> str:
        """The rules of a plan's conflict in a sentence."""
        if len(self.rules) == 1:
            return f"Rule in conflict ({self.decision}): {self.rules[0]}"
        rules = ", ".join(self.rules)
        each = "" if "is not known" in self.reason else "; without any one of them the rest can be met"
        return f"Rules in conflict ({self.decision}): {rules}{each}"


class Violation(Frozen):
    """A violation stated in a plan: a rule that the checker says it breaks, with both of its sides in numbers."""

    rule: str = Field(description="Its name; `checker`: the check itself failed.")
    message: str = Field(description="Both sides in words.")
    stated: float | int | str | None = Field(
        None, description="What the plan states, or the limit that it breaks; null where the message alone says it."
    )
    recomputed: float | int | str | None = Field(None, description="What the checker finds in its place.")


class LayoutChoices(Frozen):
    """The choices that a plan's joint proof states of a column: those of a layout that divide model and sequences."""

    tensor_parallel: int = Field(description="As in the layout.")
    tensor_parallel_inner: int = Field(1, description="As in the layout.")
    context_parallel: int = Field(1, description="As in the layout.")
    expert_parallel: int = Field(1, description="As in the layout.")
    pipeline_parallel: int = Field(description="As in the layout.")
    virtual_stages: int = Field(1, description="As in the layout.")
    microbatch_sequences: int = Field(1, description="As in the layout.")
    sequence_parallel: bool = Field(False, description="As in the layout.")
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="As in the layout.")
    schedule: Literal["1f1b", "zb-h1"] = Field("1f1b", description="As in the layout.")

    @property
    def degrees(self) -> tuple[int, int, int]:
        """Degrees of tensor, context and expert parallelism that a joint proof states of a column."""
        return self.tensor_parallel, self.context_parallel, self.expert_parallel


class ExcludedColumn(LayoutChoices):
    """A column that a plan's joint proof lists: faster than the bound on a free network, all refused by sites.

    It covers replicas from `min_data_parallel` to `max_data_parallel` and any number of micro-batches.
    """

    recompute: Literal["none", "selective"] = Field(
        "none", description="What a layer keeps that is not recomputed whole; others are, as memory asks."
    )
    experts_overlap: bool = Field(
        True,
        description="False: the experts' exchange overlaps nothing, as layers are recomputed or the pipeline has no "
        "interleaved stages.",
    )
    stages_per_rack: int = Field(1, description="As in the layout.")
    min_data_parallel: int = Field(description="Fewest replicas that it covers.")
    max_data_parallel: int = Field(description="Most replicas that it covers.")
    lower_bound_days: float = Field(description="Least days with these replicas on a network without contention.")
    reason: Literal["refused"] = Field("refused", description="Sites and budget refuse every faster choice.")


class JointProof(Frozen):
    """The proof of the joint optimum that a plan states, as far as it is not in its value and bound."""

    fabric_free_bound_days: float | None = Field(
        None, description="No plan is faster over any fabric: the least days of all columns on a free network."
    )
    counts: dict[str, int] = Field(default_factory=dict, description="How often each step of the search was taken.")
    max_racks_by_wired_gpus: dict[int, int] = Field(
        default_factory=dict,
        description="Most racks that the sites allow with so many GPUs of each cabled, by the sites' MILP; an entry "
        "holds for as many GPUs or more, up to the next. Absent: what budget, power and sites allow one by one.",
    )
    joined_racks_by_wired_gpus: dict[int, int] = Field(
        default_factory=dict,
        description="Most racks that one fabric joins, by the GPUs of each that are cabled, where its leaf is "
        "pinned or it has at most two tiers: columns with more are refused.",
    )
    min_fabric_usd_per_wired_gpu: float | None = Field(
        None, description="Least price of a GPU's link and leaf port, which those racks leave room for."
    )
    columns: tuple[ExcludedColumn, ...] = Field(
        (), description="Every column whose least days on a free network are below the bound."
    )
    alternatives: tuple["AlternativeProof", ...] = Field(
        (),
        description="The proofs that no plan on another GPU and rack of the instance ends sooner, in their order; for "
        "the goal finish_date also none that waits for less or for more.",
    )


class AlternativeProof(Frozen):
    """The joint proof that a plan states for an alternative hardware, or for another month in which training starts."""

    accelerator: str = Field(description="Its GPU.")
    rack: str = Field(description="Its rack.")
    ready_within_months: float | None = Field(
        None, description="Of the goal finish_date: nothing that becomes ready later is in the question; else null."
    )
    least_days: float | None = Field(description="The fewest days of a plan on it that are proven; null: it has none.")
    bound_days: float = Field(
        description="Days below which no plan on it is: none ends before the bound, or none meets the deadline."
    )
    proof: JointProof = Field(description="What sites and budget refused of it.")


JointProof.model_rebuild()


MAX_MICRO_BATCH = 16  # sequences
MAX_CONTEXT_RACKS = 16
RECOMPUTED = "recomputed"
RECOMPUTED_BUT = "recomputed, but for the columns that its sites refused and its most racks"
CONFIRMED, BOUNDED, ON_TRUST = "confirmed by CP-SAT", "confirmed by a dual bound", "on trust"
RESTATED = "confirmed by a formulation of its own"  # of rules in conflict, in plans of earlier versions
BRANCHING = "branch and bound over columns"
GRID_BRANCHING = f"{BRANCHING}; HiGHS"
FORMULATION = (
    "Joint: columns (how the model is cut) in the order of lower bounds on their time; of each the replicas, "
    "micro-batches, layers by stage, blocks by site, orders of racks, fabrics and fibre whose time is below the "
    "incumbent, fastest first, until one MILP over sites and grid finds them within the budget"
)
LISTED = "a list of all splits for the layers of every stage"  # confirms that no split of a proven layout is faster
UNITS = {
    "days_to_train": "days to train",
    "cost_usd": "capital of the whole plan, in dollars",
    "total_cost_of_ownership_usd": "capital and the run's operation, in dollars",
    "finish_date": "days from the decision to the end of training",
}

SITES_MINIMIZES = "capital of the whole plan with the counted years of energy, USD"
SITES_RUN_MINIMIZES = "total cost of ownership over the run, USD"
SITES_FORMULATION = (
    "MILP: a site for the blocks of each part, one fabric of those given, whole modules, generation, flows, new "
    "circuits and the fibre between sites that hold blocks; every rule of the grid; least capital"
)
WAN_FORMULATION = (
    "MILP over routes: whole wavelengths and fibre pairs by edge, each link of the exchange on one route, traffic "
    "split over routes; under protection a diverse route stands in for each, and spare wavelengths are shared between "
    "cuts; most traffic by priority first, then least cost"
)
UNPRICED = "wavelengths times route-km, as nothing is priced"
POOLS_BRANCHING = "branch and bound over shares; branch and bound over columns"
POOLS_FORMULATION = (
    "Sequences of a step by pool, each pool's layout its own. The fewest seconds per sequence of all shares up to a "
    "size bound every box of shares from below; boxes are halved in order of their bounds, shares of a batch of "
    "{small} sequences at most down to exact counts. {searches} searches of layouts over {boxes:,} boxes; the layouts "
    "found, and these with other numbers of micro-batches, are joined to the best shares."
)
POOLS_MINIMIZES = "days to train, over the shares of the batch and every pool's layout"
POOL_FORMULATION = "The pool's part of the shares, whose certificate holds the proof."
POOL_MINIMIZES = "days to train by this pool alone, at its share of the batch"
SMALL_BATCH = 12  # sequences up to which shares are counted one by one

SPACE = (
    f"TP inside a rack; CP of any degree inside a rack, and whole racks of TP groups over up to {MAX_CONTEXT_RACKS} "
    "racks (micro-batches of one sequence); experts shared evenly; every pipeline, interleaved in chunks as equal as "
    f"can be; micro-batches of 1 to {MAX_MICRO_BATCH} sequences; ZeRO 0 to 3; of all of these what the framework has; "
    "one stage of a pipeline in a rack, or as many as fit with whole expert groups; every count of replicas and micro-"
    "batches; any layers and recomputed layers by stage, dense layers before those with experts all in the first chunk "
    "of the first stage; whole blocks of racks at any sites; every number of stripes; one fabric a site in one family: "
    "rail, rack, rail-only, dragonfly, dragonfly+; of "
    "one switch, spines and cores of any with the leaf's rate, planes and price of links, super-spines of the cores' "
    "model; NICs over the fewest lanes that carry them, leaf ports split by breakout, spare ports; leaf domains of any "
    "whole units of racks; a single switch, two tiers, three tiers with pods of all or of some leaf domains, every "
    "number of uplinks and bundle of leaves and of spines, core boxes that the positions of all spines share in turn; "
    "four tiers at the slowdowns of their leaves with any number of uplinks, sends and allreduces each times 1, 1.5, "
    "2, 4 or any, each core of a zone with equally many spine positions, super-spine boxes that the positions above "
    "all cores share in turn; dragonflies with every bundle and number of links between groups; WAN gateways; links at "
    "one price or by length; every number of stripes; one width of fibre between every two sites, its routes and "
    "protection designed where the instance asks for it; where the instance counts failures every way to go on behind "
    "a stop that it allows, checkpoints in storage or memory at the interval of a closed form, at each site the fewest "
    "spare racks for each share of time that it lists, and idle GPUs of racks cabled as spares or not; where it counts "
    "them by link, NICs over as many lanes at all sites"
)
OUTSIDE = (
    "failures that the instance does not count, what they slow without a stop, and other numbers of spare racks; NIC "
    "sharing beyond CP and pipeline sends; TP over racks; blocks that share racks; several columns at once; several "
    "families in one fabric, several switches in a tier, boxes that rails, lanes or zones share; leaf domains that "
    "part a CP group; unequal bundles; pods, zones and groups of more rails than their count needs (groups under "
    "valiant have any), zones and groups on shortest paths of more pods or domains than their count needs; two-tier "
    "pods that nothing joins; four tiers at other slowdowns, or dearer for less power; one zone alone but for a pin or "
    "a WAN gateway"
)


def declared_space(rules: FrameworkRules) -> str:
    """Return the declared space that a plan's certificate states its bound is over, narrowed by framework rules."""
    return f"{SPACE}; as {rules.framework} runs it: {rules.text}" if rules.framework else SPACE


def given_to_sites(tensor: int, context: int, pipeline: int, replicas: int, wavelengths: int) -> str:
    """Write what the certificate of a plan's sites says was given: the column, its blocks and its wavelengths."""
    return (
        f"the column (TP {tensor}, CP {context}, PP {pipeline}, {replicas} replicas), "
        f"the blocks of each part with their templates, and {wavelengths} wavelengths between sites"
    )


def given_to_pool(racks: int | None, slowdown: float) -> str:
    """Write what the certificate of a pool in a plan says was given: its racks and its network's slowdown."""
    return f"{racks} racks; pipeline sends and all-reduces {slowdown:.3f}x the NIC's ideal"


def joint_mark(minimizes: str, *, grid: bool, columns: int) -> str:
    """Return how a plan's certificates mark the joint bound: recomputed by the checker, in part, or on trust.

    The checker enumerates columns again, and trusts the MILP for the maximum racks, which the sites' model gives for an
    instance with a `grid`, and for the `columns` columns that `proof` lists as refused.
    """
    if minimizes in ("cost_usd", "total_cost_of_ownership_usd"):
        return ON_TRUST
    return RECOMPUTED_BUT if grid or columns else RECOMPUTED
