"""The cheapest fabric of a cluster with its proof, with the cheapest of each other kind and why those lost.

Every design of a kind is in the tables that the joint optimum reads, here without the traffic of a layout: what they
must carry is what the rules on oversubscription and losses say. The tables are complete, so the cheapest row is proven.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from planner.instance.instance import FabricInstance
from planner.instance.network import MAX_TIERS, FabricFamily, Network
from planner.models import Options
from planner.models.fabric.fabric_section import site_fabric
from planner.models.fabric.fabric_templates import Lengths, Template, Templates
from planner.models.fabric.site_mode import switch_modes
from planner.models.fabric.site_traffic import SiteTraffic
from planner.models.fabric.template_table import KEY, DesignTable
from planner.models.joint.search.goal import Stopped
from planner.physics import ticking
from planner.physics.network.fabric_cost import by_reach
from planner.physics.network.fabric_designs import FAMILIES, half_rate_tbps
from planner.physics.network.locality import Locality
from planner.physics.plan_physics import CLUSTER
from planner.plan.certificate import ON_TRUST, Conflict, ObjectiveValue, Status
from planner.plan.plan import Cost, Plan
from planner.plan.plan_sections import FabricAlternative, FabricPlan, SiteFabric
from planner.planning.joint_plan import solved_with
from planner.simulation import flow_times, simulated_slowdown
from planner.simulation.flow_times import TransportName, flow_seconds
from planner.simulation.simulate import MAX_PLANES, part_of_design
from planner.simulation.simulated_routes import permutation
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.search_deadline import Deadline, OutOfTimeError
from planner.units import money, ratio, to_one

KINDS: dict[FabricFamily, tuple[str, range]] = {  # in words, and the tiers that a family can have
    "rail": ("rail-optimised", range(1, 5)),
    "rack": ("leaf by host", range(1, 5)),
    "rail-only": ("rail-only", range(1, 5)),
    "dragonfly+": ("dragonfly+", range(2, 3)),
    "dragonfly": ("dragonfly", range(1, 2)),
}
SIMULATED_HOSTS = 2_048  # of a fabric; more are cut to their first pods
MOST_SIMULATED = 100_000  # hosts of two pods under an oversubscribed tier, times their slowdown: ten CPU seconds
SEEDS = 2  # permutations of the chosen fabric; of each other kind one
RATIOS = 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, None  # of rate down to rate up that are set side by side; None: any
SIDE_BY_SIDE = 3  # tiers of kinds that are priced though another is cheaper
FAR = 1.5  # times the cheapest so far, above which a kind is not priced
WHOLE_SHARE = 0.995  # of the chosen kind's rate between halves: above, both carry as much to the percent
DEAR = -1  # in the key of the row that has that price
Tails = tuple[float | None, float | None]  # under ECMP and sprayed
NO_TAILS: Tails = None, None
# Of a simulated flow; hashed flows of 8 MB have the tails of longer ones within 2 %.
FLOW_BYTES: dict[TransportName, float] = {"ecmp": 8e6, "spray": 24e6}
MINIMIZES = "price of the fabric, in dollars"
SPACE = (
    "every tree of up to four tiers with equal bundles, dragonfly and dragonfly+ of the families, switches and tiers "
    "allowed, every host cabled; several rails at a leaf, all of them where it takes all hosts; spines, and cores with "
    "super-spines, of other models with a leaf's ports; cores that spine positions share, in four tiers equally many "
    "each, and super-spines that positions above cores share"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricKind:
    """A kind of fabric in the search for a cluster's cheapest: a family, tiers, and its cheapest design, if any."""

    family: FabricFamily
    tiers: int
    template: Template | None = None
    searched: bool = True
    dear: bool = False  # no design, or none below the price up to which one was looked for

    @property
    def name(self) -> str:
        """The name of a kind of fabric in the search for the cheapest: its family and number of tiers."""
        words, tiers = KINDS[self.family]
        return words if len(tiers) == 1 else f"{words}, {self.tiers} tier{'s' * (self.tiers > 1)}"

    @property
    def grouped(self) -> bool:
        """Whether a kind of fabric in the search for the cheapest has leaves in groups, as dragonflies, not tiers."""
        return FAMILIES[self.family].design.grouped


def by_ratio(instance: FabricInstance, time_limit: float | None = None) -> Iterator[dict[str, Any]]:
    """Yield figures of the cheapest fabric at each oversubscription of `RATIOS` that saves money over those before.

    The rates are of GPUs under a full leaf, pod and zone, and of the links out of it; all other rules stay.
    """
    least = math.inf
    for ratio_asked in RATIOS:
        asked = instance.replaced(network__max_oversubscription=ratio_asked)
        plan = design_fabric(asked, Options(time_limit=time_limit), seeds=0)
        if plan.fabric is None or plan.cost is None or plan.cost.total_usd >= least:
            continue
        least, (chosen, *_) = plan.cost.total_usd, plan.fabric.alternatives
        (site, own), carried = *plan.fabric.sites.items(), (chosen.bisection_tbps or 0.0)
        yield {
            "site": site,
            "oversubscription": ratio_asked,
            "cost_usd": own.cost_usd,
            "power_mw": own.power_mw,
            "bisection_tbps": carried,
            "carried_share": carried / half_rate_tbps(instance.hardware, own.wired_gpus_per_rack),
            "switches": own.switches,
            "switch_links": own.switch_links,
            "tiers": len(own.tiers),
            "leaf_domain_racks": own.leaf_domain_racks,
            "family": own.family,
            "switch": own.boxes,
            "status": plan.status,
        }


def design_fabric(instance: FabricInstance, options: Options, *, seeds: int = SEEDS) -> Plan:
    """Return a plan of the cheapest fabric of a cluster that keeps the rules, without a layout, and the other kinds.

    `seeds`: random permutations of which the tail of the chosen fabric is the mean; without any no tails are simulated.
    """
    deadline = Deadline(options.time_limit)
    if instance.network is None:
        raise TypeError("fabric: the question has no network")
    search = FabricSearch(instance, instance.network, deadline)
    kinds = list(search.searched())
    allowed = [(kind, kind.template) for kind in kinds if kind.template is not None and search.allowed(kind)]
    complete = all(kind.searched for kind in kinds if kind.family in search.network.families)
    ended: Stopped = "proved" if complete else deadline.cause  # of the search, before any tails
    section, why, cost, usd, budget = None, None, None, None, instance.limits.budget_usd
    best, template = min(allowed, key=lambda pair: (pair[1].usd, pair[0].tiers), default=(None, None))
    if best is None or template is None:
        why = search.nothing_fits(proven=complete)
    elif budget is not None and template.usd > budget and complete:
        over = template.usd - budget
        reason = f"the cheapest fabric that keeps the rules costs ${template.usd:,.0f}, ${over:,.0f} over the budget"
        rules = "limits.budget_usd", *search.in_conflict(budget)
        why = Conflict(decision="budget", rules=rules, reason=reason)
    else:
        section, usd = search.written(kinds, best, template, seeds, proven=complete), template.usd
        cost = Cost(capex_usd={"fabric": usd}, opex_usd_per_year={}, operation_years=0.0, total_usd=usd)
    bound, gap = (usd, 0.0) if complete and section else (None, None)
    status: Status = "optimal" if complete else "feasible"
    if section is None:
        status = "infeasible" if complete else "unknown"
    return Plan(
        **solved_with(instance, options),
        status=status,
        objective=ObjectiveValue(name="fabric_usd", value=usd, bound=bound, gap=gap, space=SPACE if section else ""),
        fabric=section,
        cost=cost,
        conflict=why,
        stopped=ended,
    )


@dataclass(frozen=True, slots=True)
class FabricSearch:
    """The search for a cluster's cheapest fabric of each kind: for which hosts, of which parts, and until when."""

    instance: FabricInstance
    network: Network
    deadline: Deadline
    lengths: Lengths = field(default_factory=Lengths)
    simulated: dict[Any, Tails] = field(default_factory=dict)  # by the shape of the tree

    @property
    def gpus(self) -> int:
        """The GPUs of a host that a cluster's cheapest fabric joins."""
        return self.instance.hardware.rack.gpus

    def kinds(self) -> Iterator[FabricKind]:
        """Yield the kinds of fabric in the search for the cheapest, families asked for first; one switch only once."""
        families = sorted(KINDS, key=lambda family: family not in self.network.families)
        repeated = next(family for family in reversed(families) if family in ("rail", "rack"))  # of one switch alike
        for family in families:
            for tiers in KINDS[family][1]:
                if tiers <= self.network.max_tiers and (tiers > 1 or family != repeated):
                    yield FabricKind(family=family, tiers=tiers)

    def searched(self) -> Iterator[FabricKind]:
        """Yield kinds of fabric, each with its cheapest design; of other families up to one that keeps the loss."""
        # A kind that is not the first found need not be priced where it costs `FAR` times as much as another.
        best, families = math.inf, set[FabricFamily]()
        for kind in self.kinds():
            if kind.family in families and kind.family not in self.network.families:
                continue
            found = self.cheapest(kind, best if kind.tiers > SIDE_BY_SIDE else best * FAR)
            if found.template is not None:
                if not self.on_one_switch(kind):
                    families.add(kind.family)
                if self.allowed(found):
                    best = min(best, found.template.usd)
            yield found

    def cheapest(self, kind: FabricKind, most_usd: float) -> FabricKind:
        """Return a kind of fabric with its cheapest design below a price; not searched once time is over."""
        # Groups have no tiers, so that one ratio counts, and what a loss cuts is not counted.
        ratios, free, hosts = self.network.max_oversubscription, dict[str, Any](), self.instance.hardware.racks or 0
        if kind.grouped:
            free = {"survives": None, "max_oversubscription": max(ratios) if isinstance(ratios, tuple) else ratios}
        own = self.network.replaced(families=(kind.family,), **free)
        # Spines over one leaf join nothing, nor do cores over one pod or super-spines over one zone.
        several = {"fabric.min_leaves": 2, "fabric.min_pods": 2, "fabric.min_zones": 2}
        pins = {**self.instance.pins, f"fabric.{CLUSTER}.tiers": kind.tiers, **several}
        if self.pinned("tiers") not in (None, kind.tiers):
            return kind
        asked = self.instance.replaced(network=own, pins=pins)
        phi = simulated_slowdown.transport_slowdown_of(self.network)
        until: dict[str, Any] = {"deadline": self.deadline, "lengths": self.lengths}
        tables = Templates(instance=asked, transport_slowdown=phi, power_counts=False, **until)
        # Without a layout nothing leaves a leaf, pod or zone that no rule provides for, in any order of hosts.
        traffic = SiteTraffic(stages=1, unit_racks=1, wrap=False, rails=self.gpus, nothing=True)
        if not tables.modes(self.gpus):
            return kind
        if math.isfinite(most_usd):
            send, allreduce, usd, mw = (np.array([value]) for value in (phi, phi, most_usd, math.inf))
            tables.rivals = DesignTable(send, allreduce, usd, mw, np.full((1, len(KEY)), DEAR))
        try:
            found = tables.options(traffic, hosts, site=CLUSTER)
        except OutOfTimeError:
            found, kind = tables.latest, replace(kind, searched=False)
        found = found.part(found.key[:, 0] != DEAR)
        if not len(found):
            return replace(kind, dear=math.isfinite(most_usd))
        cheapest = np.lexsort((found.mw, found.usd))[0]
        return replace(kind, template=tables.template(traffic, hosts, found, int(cheapest)))

    def pinned(self, name: str) -> Any:
        """Return a decision that pins fix in the search for the cheapest fabric; None where it is free."""
        return self.instance.pins.get(f"fabric.{CLUSTER}.{name}", self.instance.pins.get(f"fabric.{name}"))

    def allowed(self, kind: FabricKind) -> bool:
        """Return whether the cheapest fabric may be of a kind: family asked for; several switches if one may fail."""
        return kind.family in self.network.families and not self.on_one_switch(kind)

    def on_one_switch(self, kind: FabricKind) -> list[str]:
        """List why the cheapest fabric may not be of one tier where it is to survive a loss."""
        hangs = f"breaks survives: {'a rail' if kind.family == 'rail-only' else 'all'} hangs on one switch"
        return [hangs] if kind.tiers == 1 and self.network.survives and not kind.grouped else []

    def section(self, template: Template) -> SiteFabric:
        """Return the plan's section of the cheapest fabric, with slowdowns where all traffic leaves leaf, pod, zone."""
        design = template.design
        pods, zones = design.pods > 1, design.zones > 1
        shares = float(design.domains > 1 or design.leaves > design.networks), float(pods), float(zones)
        worst = Locality(share_leaving=shares, allreduces_leaving=(int(design.domains > 1), int(pods), int(zones)))
        return site_fabric(self.network, template, worst, nic_seconds=0.0, wired_gpus_per_rack=self.gpus)

    def written(
        self, kinds: list[FabricKind], best: FabricKind, template: Template, seeds: int, *, proven: bool
    ) -> FabricPlan:
        """Write the plan's section of the cheapest fabric, its proof, and the figures of the other kinds."""
        others = [kind for kind in kinds if kind is not best]
        ranked = [best, *sorted(others, key=lambda kind: kind.template.usd if kind.template else math.inf)]
        tails = dict[str, Tails]()
        with contextlib.suppress(KeyboardInterrupt):  # the fabrics are known, and their proof
            for kind in ranked:
                if kind.template is not None and seeds:
                    tails[kind.name] = self.tails(kind.template, seeds if kind is best else 1)
        found = Outcome(
            stop=Stop.PROVED if proven else Stop.LIMIT,
            solution=template.usd,
            objective=template.usd,
            bound=template.usd if proven else None,
            solver="enumeration",
            seconds=self.deadline.elapsed,
        )
        alternatives, whole_tbps = [], half_rate_tbps(self.instance.hardware, self.gpus)
        for kind in ranked:
            own, (ecmp, sprayed) = kind.template, tails.get(kind.name, NO_TAILS)
            figures = FabricAlternative(
                name=kind.name,
                lost=self.lost(kind, best),
                fabric=None if own is None else self.section(own),
                bisection_tbps=None if own is None else whole_tbps * own.design.bisection_share,
                ecmp_tail=ecmp,
                spray_tail=sprayed,
            )
            alternatives.append(figures)
        return FabricPlan(
            sites={CLUSTER: self.section(template)},
            certificate=found.certificate(
                formulation=f"the cheapest of {SPACE}", minimizes=MINIMIZES, seed=0, checked=ON_TRUST
            ),
            alternatives=tuple(alternatives),
        )

    def lost(self, kind: FabricKind, best: FabricKind) -> str:
        """Write why a kind of fabric lost to the cheapest; empty for the cheapest itself."""
        if kind is best:
            return ""
        template, chosen = kind.template, best.template
        if not kind.searched and template is None:
            return "not searched: the time limit came"
        if template is None or chosen is None:
            return self.why_none(kind)
        more = template.usd - chosen.usd
        price = f"{money(more)} more" if more > 0 else f"{money(-more)} less" if more < 0 else "the same price"
        reasons = ["not searched to the end: the time limit came"] * (not kind.searched)
        if (share := template.design.bisection_share) < WHOLE_SHARE * chosen.design.bisection_share:
            reasons.append(f"carries {ratio(100 * share)} % of the hosts' rate between halves")
        reasons += self.on_one_switch(kind)
        if kind.family == "rail-only":
            reasons.append("GPUs of different index are not joined")
        if kind.grouped and self.network.survives:
            reasons.append("what a loss cuts is not counted")
        options = [] if kind.family in self.network.families else [f"--family {kind.family}"]
        options += ["--survives none"] * bool(self.network.survives and (kind.grouped or kind.tiers == 1))
        if kind.grouped and isinstance(self.network.max_oversubscription, tuple):
            options.append(f"--oversubscription {to_one(max(self.network.max_oversubscription))}")
        return "; ".join([price, *reasons, *([f"{' '.join(options)} would allow it"] if options else [])])

    def why_none(self, kind: FabricKind) -> str:
        """Write why the search for the cheapest fabric has no design of a kind: too few ports, or no such wiring."""
        if (pinned := self.pinned("tiers")) not in (None, kind.tiers):
            return f"pins: tiers is {pinned}"
        most = max((switch.ports for switch in self.network.switches), default=0)
        joined = (self.instance.hardware.racks or 0) * (1 if kind.family == "rail-only" else self.gpus)
        # Bounds on the GPUs of a leaf with tiers above it, and on those that trees of the kind's tiers join. Where one
        # ratio is of all tiers together, what a leaf leaves of it counts for the tiers above, most where they share it
        # alike.
        ratios, between, found = [self.network.ratio_of(tier) for tier in range(kind.tiers)], kind.tiers - 2, [(0, 0)]
        for mode in switch_modes(self.network, 1, self.instance.hardware.gpu_nic_bytes_per_second):
            if kind.tiers == 1:
                found.append((0, mode.switch.ports * mode.split))
            for gpus in range(1, (mode.switch.ports - 1) * mode.split * (kind.tiers > 1) + 1):
                left = ratios[0] * mode.link_nics * (mode.switch.ports - -(-gpus // mode.split)) / gpus
                if left < 1 - 1e-9:
                    break
                alike = not isinstance(self.network.max_oversubscription, tuple)
                each = [left ** (1 / between)] * between if alike and between else ratios[1 : kind.tiers - 1]
                down = [most - 1 if ratio == math.inf else most * ratio / (1 + ratio) for ratio in each]
                found.append((gpus, int(most * gpus * math.prod(down) * (1 + 1e-9))))
        (leaf, reach), ratio = map(max, zip(*found, strict=True)), ratios[0]
        of_rack = FAMILIES[kind.family].rack_ports(self.gpus).rail_gpus
        if not kind.grouped and kind.tiers > 1 and of_rack > leaf:
            at = "" if ratio == math.inf else f" at {to_one(ratio)}"
            return f"a leaf of {most} ports takes at most {leaf:,} GPUs{at}, a host has {of_rack:,} at each"
        if not kind.grouped and joined > reach:
            tiers = f"{kind.tiers} tier{'s' * (kind.tiers > 1)} of {most} ports"
            has = "a rail has" if kind.family == "rail-only" else "there are"
            return f"{tiers} join{'s' * (kind.tiers == 1)} at most {reach:,} GPUs, {has} {joined:,}"
        if kind.dear:
            price = "no cheaper" if kind.tiers > SIDE_BY_SIDE else f"more than {100 * (FAR - 1):.0f} % dearer"
            return f"{price}, if any keeps the rules"
        one = ["one leaf takes all, so that spines join nothing"] * (joined <= of_rack and not kind.grouped)
        if why := self.on_one_switch(kind) or one:
            return why[0]
        rules = " and pins" * bool(self.instance.pins) + ", or no cable reaches" * by_reach(self.network)
        return f"no wiring with equal bundles keeps the rules{rules}"

    def tails(self, template: Template, seeds: int) -> Tails:
        """Return the cheapest fabric's mean tail of a permutation over line rate, ECMP and sprayed, if time allows."""
        # They are those of a part of the hosts, times what all hosts load the fullest link more than the part does: of
        # hashed flows as lots fall, of sprayed ones evenly. Trees of one shape have them alike, whichever hosts are at
        # which of its ports.
        design, planes = template.design, template.models[0].planes
        every = design.racks * design.gpus_per_rack
        if design.grouped or planes > MAX_PLANES:
            return NO_TAILS
        joined = template.family != "rail-only" and (design.tiers != 2 or design.pods == 1)
        rails = design.rails if joined else design.rails_per_zone or design.rails_per_pod or design.rails
        meeting, networks = design.racks * rails * design.rail_gpus, design.networks * -(-design.rails // rails)
        # Where an oversubscribed tier joins blocks the part has two of them: it slows flows that share its links.
        slow = [2 * size for size, share in design.exit_shares if share < (1 - size / every) * WHOLE_SHARE]
        hosts = min(every, max([SIMULATED_HOSTS, *slow])) if joined else None
        # What can leave its blocks bounds the slowdown of a random permutation of all endpoints.
        leaving = (max(0.0, 1 - size / every) / share for size, share in design.exit_shares if share)
        whole = max([1.0, *leaving]) if joined else 1.0
        if meeting < 2 or (hosts or 0) * whole > MOST_SIMULATED:  # GPUs of one host may be alone in their networks
            return NO_TAILS
        tree = part_of_design(design, planes, hosts, most=SIMULATED_HOSTS).tree
        hashed = flow_times.mean_fullest(tree, meeting, networks) / flow_times.mean_fullest(tree, tree.hosts)
        shape = tree.down, tree.up, tree.bundle, tree.rates, tree.planes, np.sort(tree.slots).tobytes(), whole, hashed
        if shape in self.simulated:
            return self.simulated[shape]
        found: dict[TransportName, list[float]] = {name: [] for name in FLOW_BYTES}
        try:
            with ticking(self.deadline.check):
                for seed in range(max(1, seeds * SIMULATED_HOSTS // max(hosts or 0, SIMULATED_HOSTS))):
                    for transport, size in FLOW_BYTES.items():
                        flows, line = permutation(tree.slots, size, seed), size / tree.host_rate
                        more = hashed
                        if transport != "ecmp":
                            more = max(1.0, whole * line / flow_times.ideal_seconds(tree, flows))
                        found[transport].append(float(flow_seconds(tree, flows, transport, seed).max()) / line * more)
        except OutOfTimeError:
            return NO_TAILS
        self.simulated[shape] = float(np.mean(found["ecmp"])), float(np.mean(found["spray"]))
        return self.simulated[shape]

    def in_conflict(self, most_usd: float) -> tuple[str, ...]:
        """Return the rules and pins that leave no cheapest fabric below a price; all of them where time ends first."""
        free: dict[str, Any] = {"network.families": tuple(KINDS), "network.max_tiers": MAX_TIERS}
        for name, none in (("max_oversubscription", None), ("min_core_share", 0.0), ("survives", None)):
            free |= {f"network.{name}": none} if getattr(self.network, name) else {}
        rules = [*free, *(f"pins.{path}" for path in self.instance.pins)]
        dropped: list[str] = []
        for rule in rules:  # each by itself, so that every search is of use
            without = [*dropped, rule]
            values = {name.removeprefix("network."): none for name, none in free.items() if name in without}
            pins = {path: value for path, value in self.instance.pins.items() if f"pins.{path}" not in without}
            network = self.network.replaced(**values)
            looser = FabricSearch(self.instance.replaced(network=network, pins=pins), network, self.deadline)
            kinds = (kind for kind in looser.kinds() if kind.family in network.families)
            fits = (looser.cheapest(kind, most_usd * (1 + 1e-9)) for kind in kinds)
            fit = any(kind.template and kind.template.usd <= most_usd and looser.allowed(kind) for kind in fits)
            if self.deadline.passed:  # which says nothing of a rule without which no fabric was found
                return tuple(rules)
            if not fit:
                dropped.append(rule)
        return tuple(rule for rule in rules if rule not in dropped)

    def nothing_fits(self, *, proven: bool) -> Conflict:
        """Return the conflict of a cluster without any fabric, and so no cheapest; no rules where time ended first."""
        if not proven:
            return Conflict(decision="fabric", rules=(), reason="the time limit came before a fabric was found")
        nic, planes = self.instance.hardware.gpu_nic_bytes_per_second * 8 / 1e9, self.pinned("planes")
        modes = Templates(instance=self.instance, transport_slowdown=1.0, power_counts=False).modes(self.gpus)
        if not modes:
            lanes = self.network.max_lanes
            reason = f"no switch has ports for a NIC of {nic:g} Gb/s within network.max_lanes = {lanes}"
            return Conflict(decision="fabric", rules=("network.switches",), reason=reason)
        kinds = [kind for kind in self.kinds() if kind.family in self.network.families]
        each, most = (KINDS[family] for family in self.network.families), self.network.max_tiers
        tall = [f"{name}: has {n[0]} tiers > network.max_tiers = {most}" for name, n in each if n[0] > most]
        reason = "; ".join([*tall, *(f"{kind.name}: {self.why_none(kind)}" for kind in kinds)])
        if planes and planes not in (known := {mode.planes for mode in modes}):
            of_nic = f"{planes} planes for a NIC of {nic:g} Gb/s"
            reason = f"no switch has {of_nic} ({', '.join(map(str, sorted(known)))} offered); give one that has"
        return Conflict(decision="fabric", rules=self.in_conflict(math.inf), reason=reason)
