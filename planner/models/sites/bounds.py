"""Bounds that single rules imply on modules and open sites: they keep the relaxation of the split tight."""

import math
from collections.abc import Iterable

from planner.models.sites.data import SplitData
from planner.models.sites.rules.rule import Rule


def _floor(x: float) -> int:
    return math.floor(x + 1e-9)


def max_modules(data: SplitData, rules: Iterable[Rule], known: int | None = None) -> int:
    """Bound the modules of the whole campus by each rule alone, and by what is `known` of them beside the rules."""
    rules = list(rules)
    racks = [rule.racks(data) for rule in rules]
    limits = [float(n // data.module_racks) for n in racks if n is not None]
    limits += [x for rule in rules if (x := rule.max_modules(data)) is not None]
    limits += [] if known is None else [float(known)]
    if limits:
        return max(_floor(min(limits)), 0)
    # Only the partial splits of a conflict come here; a hundred times every minimum size and pin is no limit to them.
    minimum = data.grid.rules.min_site_modules * len(data.candidates) + sum(data.pins.racks_by_site.values()) + 1
    return 100 * minimum + (data.racks or 0)


def max_site_modules(data: SplitData, site: str, modules: int, rules: Iterable[Rule]) -> int:
    """Bound a site's modules by each rule alone, to tie them to its opening; `modules` bounds the campus."""
    limits = [x for rule in rules if (x := rule.max_site_modules(data, site, modules)) is not None]
    return max(_floor(min([float(modules), *limits])), 0)


def min_site_modules(data: SplitData, rules: Iterable[Rule], sites: int) -> int:
    """Bound an open site's modules from below where the racks in all are known; `sites` bounds the open sites."""
    rules = list(rules)
    racks = [n for rule in rules if (n := rule.racks(data)) is not None]
    # Where demand and a pin both fix the racks, demand stands last.
    return max((rule.min_site_modules(data, racks[-1], sites) for rule in rules), default=1) if racks else 1


def max_sites(data: SplitData, rules: Iterable[Rule]) -> int:
    """Bound the open sites by each rule alone."""
    limits = [n for rule in rules if (n := rule.max_sites(data)) is not None]
    return min([len(data.candidates), *limits])


def min_sites(data: SplitData, rules: Iterable[Rule]) -> int:
    """Bound the open sites from below by each rule alone."""
    return max((rule.min_sites(data) for rule in rules), default=1)
