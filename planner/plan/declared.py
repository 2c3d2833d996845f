"""What a proof is of, in words: how it was made, over which space, and what is not in that. The checks expect these."""

MAX_MICRO_BATCH = 16  # sequences
MAX_CONTEXT_RACKS = 16
RECOMPUTED, RECOMPUTED_BUT, CONFIRMED, BOUNDED, ON_TRUST = (
    "recomputed",
    "recomputed, but for the columns that its sites refused and its most racks",
    "confirmed by CP-SAT",
    "confirmed by a dual bound",
    "on trust",
)
RESTATED = "confirmed by a formulation of its own"  # of rules in conflict
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
LEAST_YEARLY = "yearly cost of fibre and wavelengths, USD"
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

TEMPLATE_SPACE = (
    "one fabric a site in one family: rail, rack, rail-only, dragonfly, dragonfly+; of one switch, spines and cores of "
    "any with the leaf's rate, planes and price of links, super-spines of the cores' model; "
    "NICs over the fewest lanes that carry them, leaf ports split by breakout, spare ports; "
    "leaf domains of any whole units of racks; a single switch, two tiers, three tiers with pods of all or of some "
    "leaf domains, every number of uplinks and bundle of leaves and of spines, core boxes that the positions of all "
    "spines share in turn; "
    "four tiers at the slowdowns of their leaves with any number of uplinks, "
    "sends and allreduces each times 1, 1.5, 2, 4 or any, each core of a zone with equally many spine positions, "
    "super-spine boxes that the positions above all cores share in turn; "
    "dragonflies with every bundle and number of links between groups; "
    "WAN gateways; links at one price or by length; every number of stripes"
)
TEMPLATE_OUTSIDE = (
    "several families in one fabric, several switches in a tier, boxes that rails, lanes or zones share; "
    "leaf domains that part a CP group; unequal bundles; "
    "pods, zones and groups of more rails than their count needs (groups under valiant have any), zones and groups on "
    "shortest paths of more pods or domains than their count needs; two-tier pods that nothing joins; "
    "four tiers at other slowdowns, or dearer for less power; one zone alone but for a pin or a WAN gateway"
)

SPACE = (
    "TP inside a rack; CP of any degree inside a rack, and whole racks of TP groups over up to "
    f"{MAX_CONTEXT_RACKS} racks (micro-batches of one sequence); experts shared evenly; "
    "every pipeline, interleaved in chunks as equal as can be; "
    f"micro-batches of 1 to {MAX_MICRO_BATCH} sequences; ZeRO 0 to 3; of all of these what the framework has; "
    "stages packed in racks; every count of replicas and micro-batches; any layers and recomputed layers by stage, "
    "dense layers before those with experts all in the first chunk of the first stage; "
    "whole blocks of racks at any sites; every number of stripes; "
    f"{TEMPLATE_SPACE}; "
    "one width of fibre between every two sites, its routes and protection designed where the instance asks for it; "
    "where the instance counts failures every way to go on behind a stop that it allows, checkpoints in storage or "
    "memory at the interval of a closed form, at each site the fewest spare racks for each share of time that it "
    "lists, and idle GPUs of racks cabled as spares or not; where it counts them by link, NICs over as many lanes at "
    "all sites"
)
OUTSIDE = (
    "failures that the instance does not count, what they slow without a stop, and other numbers of spare racks; "
    "NIC sharing beyond CP and pipeline sends; TP over racks; blocks that share racks; "
    f"several columns at once; {TEMPLATE_OUTSIDE}"
)


def given_to_sites(tensor: int, context: int, pipeline: int, replicas: int, wavelengths: int) -> str:
    """Return what the sites of a plan were asked for, in words."""
    return (
        f"the column (TP {tensor}, CP {context}, PP {pipeline}, {replicas} replicas), "
        f"the blocks of each part with their templates, and {wavelengths} wavelengths between sites"
    )


def given_to_pool(racks: int | None, slowdown: float) -> str:
    """Return for which racks and which network the proof of a pool holds, in words."""
    return f"{racks} racks; pipeline sends and all-reduces {slowdown:.3f}x the NIC's ideal"


def joint_mark(minimizes: str, *, grid: bool, columns: int) -> str:
    """Return what stands behind a joint bound: the check lists columns again, and takes the MILP's word for the rest.

    `grid`: the most racks are an answer of the sites; `columns`: those that `proof` lists as refused.
    """
    if minimizes in ("cost_usd", "total_cost_of_ownership_usd"):
        return ON_TRUST
    return RECOMPUTED_BUT if grid or columns else RECOMPUTED
