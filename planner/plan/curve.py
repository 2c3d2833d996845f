"""The curve of money against days: plans that no other beats in both, and how far that is proven."""

from pydantic import Field

from planner.instance.base import Frozen


class CurvePoint(Frozen):
    """A plan on the curve, in short."""

    days_to_train: float = Field(description="Days to train, failures included where they count.")
    capital_usd: float = Field(description="All that is bought, in dollars.")
    bound_days: float | None = Field(
        description="No plan of at most this capital trains in fewer days; null where that is not proven."
    )
    layout: str = Field(description="The layout in short.")
    racks: int = Field(description="Racks bought.")
    racks_by_site: dict[str, int] = Field(description="Racks bought at each site.")
    mfu: float = Field(description="Model FLOP utilisation of all GPUs at work.")
    idle_gpus: int = Field(description="GPUs that are bought and do not work.")
    changes: tuple[str, ...] = Field(
        (), description="What else is decided otherwise than at the point before: sites, lines, memory, fabric."
    )
    asked: bool = Field(False, description="Whether this is the plan that the curve is drawn around.")
    knee: bool = Field(
        False, description="Whether the curve bends here: up to it money saves more days than behind it."
    )


class Curve(Frozen):
    """The curve of an instance in a box of money and days."""

    points: tuple[CurvePoint, ...] = Field(description="Capital ascending, days descending; none beats another.")
    epsilon: float | None = Field(
        description="For every plan of the box some point is at most this share worse in days and in capital, proven; "
        "null where nothing is."
    )
    most_usd: float | None = Field(description="Most capital of the box; null: no limit.")
    least_usd: float | None = Field(
        None, description="Plans of less capital are outside the box; null: they are in it."
    )
    none_below_usd: float | None = Field(
        None, description="No plan of at most this capital keeps all rules; null where that is not proven of any."
    )
    slowest_days: float | None = Field(description="Plans as slow or slower are outside the box; null: not fixed yet.")
    stopped: str = Field(description="Why the search ended: proved (at the epsilon asked for), limit or interrupted.")


__all__ = ["Curve", "CurvePoint"]
