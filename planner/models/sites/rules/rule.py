"""One rule of the site split as an object: its rows, and all that bounds, conflicts and reports must know of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from planner.models.sites.data import Pair, SplitData

NO_ROOM = 2e-6  # slack of a row that counts no modules: above what rounding leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: a family of rows on a Pyomo block, the sentence that a conflict prints, and the bounds that it implies.

    Attributes
    ----------
    rows
        Add the rows to a model, in MW, M$, modules, sites and 1000 m², as the component named as the rule.
    sentence
        Say in the instance's figures what the rule asks for.
    order
        Place in which a conflict tries to leave the rule out: the one that says least to the user goes first.
    scope
        What the rule limits: `site` a single site, `grid` the power of any site, `split` how the sites relate to each
        other or to what is asked for. Rules of the split do not limit what one node could carry alone.
    components
        Components that hold further rows of the rule.
    yearly
        The rows are stated again for each scenario.
    index_names
        Leading entries of a row's index that name it to the user (None: all); the rest tell apart the parts of one
        limit.
    index
        What the first entry of a row's index names; rows of a place without an open site bind nothing.
    unit, scale
        Unit of the limit in reports, and how many of these one unit of the rows is; None: the rows cannot be exceeded.
    movable
        An explanation may ask by how much the limit must move.
    slack
        What one more module takes of a row's slack, for the first entry of the row's index; None: not judged by slack.
    racks
        Racks in all that the rule fixes.
    max_modules, max_site_modules, min_site_modules
        Bounds on the modules of the campus, of a site (given those of the campus), and of an open site (given the racks
        in all and the most open sites), each from this rule alone; None: none.
    max_sites, min_sites
        Bounds on the open sites.
    excludes
        Whether the rule lets no two sites of a pair be open together, given the most open sites.
    """

    rows: Callable[[Any, SplitData], None]
    sentence: Callable[[SplitData], str]
    order: int
    scope: Literal["site", "grid", "split"]
    components: tuple[str, ...] = ()
    yearly: bool = False
    index_names: int | None = None
    index: Literal["site", "authority"] | None = None
    unit: str | None = None
    scale: float = 1.0
    movable: bool = False
    slack: Callable[[SplitData, Any], float] | None = None
    racks: Callable[[SplitData], int | None] = lambda _: None
    max_modules: Callable[[SplitData], float | None] = lambda _: None
    max_site_modules: Callable[[SplitData, str, int], float | None] = lambda *_: None
    min_site_modules: Callable[[SplitData, int, int], int] = lambda *_: 1
    max_sites: Callable[[SplitData], int | None] = lambda _: None
    min_sites: Callable[[SplitData], int] = lambda _: 1
    excludes: Callable[[SplitData, Pair, int], bool] = lambda *_: False

    @property
    def name(self) -> str:
        """Name of the rule: that of the function that states its rows."""
        return self.rows.__name__

    def label(self, index: Any) -> str:
        """Return a row's name as reports print it: `headroom[SRP]`, `rtt[a,b]`, `budget`."""
        if index is None:
            return self.name
        entries = index if isinstance(index, tuple) else (index,)
        return f"{self.name}[{','.join(str(x) for x in entries[: self.index_names])}]"


def soft_excess(data: SplitData, rule: str, rows: int = 1) -> float:
    """Return how far a soft rule's rows may exceed their limits together, in the rule's unit; 0 for a hard rule."""
    soft = data.grid.rules.soft.get(rule)
    return 0.0 if soft is None else rows * soft.max_excess


def load_mw(m: Any, data: SplitData, sites: Any) -> Any:
    """Return the draw of some sites at the grid: their modules, and where a block has it, the load `extra_mw`."""
    extra = m.component("extra_mw")
    return data.module_mw * sum(m.modules[s] for s in sites) + (0 if extra is None else sum(extra[s] for s in sites))


def no_room(_: SplitData, __: Any) -> float:
    """Return the slack that stops the next module where a row counts something else than modules."""
    return NO_ROOM


def megawatts(x: float) -> str:
    """Return a power as sentences print it."""
    return f"{x:,.6g} MW"
