"""The section of a plan on the whole run: what it draws, what it costs until it ends, and what that is a token."""

from pydantic import Field

from planner.instance.base import Frozen


class SiteRun(Frozen):
    """What one site draws over the counted years."""

    facility_mw: float = Field(description="Drawn all the time, overhead included.")
    energy_mwh: float = Field(description="Over the counted years.")
    usd_per_mwh: float | None = Field(None, description="Price of energy; absent: not known.")
    energy_usd: float | None = Field(None, description="Energy at that price; absent: not known.")
    carbon_tonnes: float | None = Field(None, description="CO2 of the energy; absent: not known.")


class YearRun(Frozen):
    """One year of operation; the last may be a part of one."""

    years: float = Field(description="1, or the part of the last year that is counted.")
    energy_mwh: float = Field(description="Drawn by all sites.")
    usd: dict[str, float] = Field(description="Spent in it, by part, beside the capital.")


class RunPlan(Frozen):
    """The whole run in energy, money and carbon; dollars of today, not discounted."""

    days: float = Field(description="Days to train on a calendar.")
    years: float = Field(description="Of operation that are counted: limits.operation_years, else the run itself.")
    replacements: dict[str, int] = Field(description="Times that all racks (or a pool's) and the fabric are replaced.")
    usd: dict[str, float] = Field(description="Capital and each part of operation over the counted years.")
    total_cost_of_ownership_usd: float = Field(description="Sum of usd.")
    usd_per_million_tokens: float = Field(description="Total cost of ownership over the tokens of the training.")
    energy_mwh: float = Field(description="Drawn by all sites over the counted years.")
    energy_joules_per_token: float = Field(description="Drawn by all sites over the days to train, by token.")
    carbon_tonnes: float | None = Field(None, description="CO2 of the energy; absent: a site's is not known.")
    sites: dict[str, SiteRun] = Field(description="By site; `cluster` without a grid.")
    by_year: tuple[YearRun, ...] = Field(description="The counted years one by one, of a longer run the first 100.")
    not_counted: tuple[str, ...] = Field((), description="What would add to it and is not known, by key.")
