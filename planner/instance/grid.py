"""The power system around the candidate sites, its rules and its prices."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from planner.instance.base_types import Count, Fraction, Frozen, NonNegative, Positive, Share, Sourced


class BalancingAuthority(Sourced):
    """A balancing authority of the grid that a user gives: an operator's area and the power that it can spare."""

    id: str = Field(description="By which nodes and scenarios name it.")
    interconnection: str = Field(description="Synchronous area: eastern, western, ercot.")
    headroom_mw: NonNegative = Field(description="Most that can be drawn beyond today's peak demand.")
    energy_usd_per_mwh: NonNegative = Field(description="Price of energy, in dollars per MWh.")
    carbon_kg_per_mwh: NonNegative | None = Field(
        None, description="CO2 emitted for a MWh drawn here; absent: not known."
    )


class InterconnectUpgrade(Sourced):
    """An upgrade of a power node's interconnect to the grid, bought step by step."""

    step_mw: Positive = Field(description="Usable interconnect that one step adds, under every reading of the rule.")
    max_steps: Count = Field(1, description="Most steps that can be bought.")
    capex_usd: NonNegative = Field(description="Price of one step.")
    lead_months: NonNegative = Field(0.0, description="From the decision to service.")


class PowerNode(Sourced):
    """A node of the grid that a user gives: power plants within a radius seen as one, where a site may stand."""

    id: str = Field(description="By which lines, pins and plans name it.")
    balancing_authority: str = Field(description="Its area, by id.")
    latitude: Annotated[float, Field(ge=-90, le=90)] = Field(description="In degrees north.")
    longitude: Annotated[float, Field(ge=-180, le=180)] = Field(description="In degrees east.")
    generation_mw: NonNegative = Field(
        description="Most that the node's plants can feed in for the sites, and for every node's load_mw."
    )
    load_mw: Annotated[float, Field(allow_inf_nan=False)] = Field(
        0.0, description="Load other than the sites', counted in every flow; negative: must-run feed."
    )
    interconnect_mw: NonNegative | None = Field(None, description="Usable, largest circuit out; explicit reading.")
    largest_unit_mw: NonNegative | None = Field(None, description="Lost under full N-1; absent: all are one unit.")
    area_m2: Positive | None = Field(None, description="Land for cooling; absent: not limited.")
    site: bool = Field(True, description="A site may stand here.")
    ready_months: NonNegative = Field(0.0, description="From the decision to the day when a site here can run.")
    upgrade: InterconnectUpgrade | None = Field(None, description="Interconnect that can be bought; absent: none.")


def _not_zero(value: float) -> float:
    if value == 0:
        raise ValueError("must not be 0; merge the nodes that it joins, or give the circuit a small reactance")
    return value


class Line(Sourced):
    """A line of the grid that a user gives: equal circuits in a corridor between two nodes."""

    id: str = Field(description="By which reports name it.")
    a: str = Field(description="Node at one end.")
    b: str = Field(description="Node at the other end.")
    circuits: Count = Field(1, description="Circuits side by side.")
    rating_mw: Positive = Field(description="Usable MW of one circuit.")
    reactance_pu: Annotated[float, AfterValidator(_not_zero)] | None = Field(
        None,
        description="Of one circuit, on 100 MVA; the dc grid model needs it. Negative where a series capacitor "
        "outweighs the line.",
    )


class NewLine(Sourced):
    """A new line that an instance's grid may be given: a corridor in which circuits can be built."""

    id: str = Field(description="By which plans name it.")
    a: str = Field(description="Node at one end.")
    b: str = Field(description="Node at the other end.")
    max_circuits: Count = Field(1, description="Most circuits that can be built.")
    rating_mw: Positive = Field(description="MW of one circuit.")
    reactance_pu: Positive | None = Field(None, description="Of one circuit, on 100 MVA; the dc grid model needs it.")
    capex_usd: NonNegative = Field(description="Price of one circuit, ends included.")
    lead_months: NonNegative = Field(0.0, description="From the decision to service.")


class SwitchedRule(Frozen):
    """A rule of an instance's grid on the split over sites, which binds only where the user enables it."""

    enabled: bool = Field(False, description="The rule binds. Before schema version 3 called `on`, which is read too.")

    @model_validator(mode="before")
    @classmethod
    def _called_on(cls, data: Any) -> Any:
        """Read `on` (true in YAML 1.1), the name in version 2, as `enabled` of a grid rule; refuse both."""
        if not isinstance(data, Mapping) or "on" not in data:
            return data
        if "enabled" in data:
            raise ValueError("has both enabled and on, its old name; keep enabled")
        return {"enabled" if key == "on" else key: value for key, value in data.items()}


class InterconnectRule(SwitchedRule):
    """Keys of a rule of an instance's grid: a share of a site's load stays on lines with the largest circuit out."""

    share: Fraction = Field(0.5, description="Share of the site's load that the remaining circuits must carry.")
    reading: Literal["explicit", "capacity", "capacity_n1", "import_share"] = Field(
        "explicit",
        description="explicit: the node's interconnect_mw; capacity: its circuits' ratings; capacity_n1: all but one; "
        "import_share: as capacity_n1, for the share of what the site draws beyond its own node's plants.",
    )


class FaultSplitRule(SwitchedRule):
    """Keys of a rule of an instance's grid: the campus survives the loss of an interconnection (east–west rule)."""

    min_interconnections: Count = Field(2, description="Fewest synchronous areas that sites stand in.")
    max_share: Annotated[float, Field(gt=0, le=1)] = Field(0.55, description="Of the racks in one interconnection.")


class ShareBalanceRule(SwitchedRule):
    """Keys of a rule of an instance's grid: open sites are of like size, so that none waits for another's share."""

    max_ratio: Annotated[float, Field(ge=1)] = Field(2.0, description="Racks of the largest site over the smallest's.")


SOFT_UNITS = dict.fromkeys(("headroom", "generation", "rating", "interconnect", "facility_power"), "MW")
SOFT_UNITS |= {"area": "m2", "site_count": "sites"}


class SoftRule(Frozen):
    """Keys of a rule of an instance's grid that may be broken at a price; amounts are in MW, m2 or sites."""

    usd_per_year: NonNegative = Field(
        description="Price of a unit of excess for a year: counted as capital, not billed."
    )
    max_excess: Positive = Field(description="Most excess of one row of the rule.")


class Scenario(Sourced):
    """A scenario that a user gives of the grid: a year that may come, with the figures that differ from its own."""

    name: str = Field(description="By which rows and reports name it.")
    weight: Fraction = Field(0.0, description="Its probability; the grid's own figures have the rest of 1.")
    headroom_mw: dict[str, NonNegative] = Field(default_factory=dict, description="By balancing authority.")
    generation_mw: dict[str, NonNegative] = Field(default_factory=dict, description="By node: what plants can spare.")
    energy_usd_per_mwh: dict[str, NonNegative] = Field(default_factory=dict, description="By balancing authority.")


class GridRules(Sourced):
    """Keys of an instance's grid that set which rules the split over sites must keep, and how strictly."""

    grid_model: Literal["none", "transport", "dc"] = Field(
        "transport", description="none: headroom and generation; transport: line ratings; dc: reactances too."
    )
    n1: Literal["off", "margin", "node", "full"] = Field(
        "off",
        description="What the grid survives. margin: ratings times n1_margin; node: each site's largest circuit out; "
        "full: any circuit, or the largest unit of any node, out.",
    )
    n1_margin: Share = Field(0.7, description="Share of the ratings that may be used under margin.")
    headroom: bool = Field(True, description="Each balancing authority's headroom binds.")
    generation: bool = Field(True, description="What each node's plants can spare binds.")
    interconnect: InterconnectRule = Field(InterconnectRule(), description="Of a site's connection.")
    fault_split: FaultSplitRule = Field(FaultSplitRule(), description="Of sites over synchronous areas.")
    max_sites: Count | None = Field(None, description="Most open sites; null: as many as there are places.")
    min_site_modules: Count = Field(1, description="Fewest modules that an open site holds.")
    max_rtt_ms: Positive | None = Field(None, description="Longest round trip between two open sites.")
    share_balance: ShareBalanceRule = Field(ShareBalanceRule(), description="Of the largest site against the smallest.")
    ready_within_months: NonNegative | None = Field(None, description="Leaves out what comes later.")
    soft: dict[str, SoftRule] = Field(default_factory=dict, description="Rules broken at a price; others are hard.")
    scenarios: Literal["off", "robust", "expected"] = Field(
        "off",
        description="robust: one split that runs at full load in every scenario; expected: sites may run less in a "
        "scenario, at the least weighted cost. Either way energy is billed at the grid's own prices.",
    )
    curtailment_usd_per_mwh: NonNegative = Field(0.0, description="For expected: price of work left undone.")


class SitePrices(Sourced):
    """Prices of a grid's sites that a user gives, in addition to racks and fabric: building, connection, lives."""

    building_usd_per_it_mw: NonNegative = Field(
        0.0, description="Building and its plant, in dollars per MW of IT load."
    )
    interconnection_usd_per_mw: NonNegative = Field(0.0, description="Large-load connection, per MW of facility load.")
    site_usd: NonNegative = Field(0.0, description="Fixed per open site.")
    discount_rate: NonNegative = Field(0.07, description="To annualise fibre and its equipment.")
    site_life_years: Positive = Field(20.0, description="Not counted: sites and lines are paid at once. For old files.")
    it_life_years: Positive = Field(5.0, description="Over which the equipment of fibre is annualised.")


class Grid(Sourced):
    """The grid of an instance: the power system around the candidate sites."""

    balancing_authorities: tuple[BalancingAuthority, ...] = Field(description="Areas whose headroom and prices bind.")
    nodes: tuple[PowerNode, ...] = Field(description="Places where power comes from and sites may stand.")
    lines: tuple[Line, ...] = Field((), description="Lines that there are.")
    new_lines: tuple[NewLine, ...] = Field((), description="Lines that can be built.")
    scenarios: tuple[Scenario, ...] = Field((), description="Years that may come, with their weights.")
    rules: GridRules = Field(GridRules(), description="What the grid must survive and sites must keep.")
    prices: SitePrices = Field(SitePrices(), description="What sites cost.")

    @property
    def lead_months(self) -> tuple[float, ...]:
        """Months from the decision at which some site, new line or upgrade of an instance's grid becomes ready."""
        months = {node.ready_months for node in self.nodes if node.site}
        months |= {node.upgrade.lead_months for node in self.nodes if node.upgrade}
        months |= {line.lead_months for line in self.new_lines}
        latest = self.rules.ready_within_months
        return tuple(sorted(month for month in months if latest is None or month <= latest))
