"""The bill of materials of a site's fabric: every part as it is priced, its lines summing to the price to the cent."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.errors import InternalError
from planner.exports.from_plan import BuiltFabric
from planner.files import escaped
from planner.physics.network import price

HEADER = ("part", "where", "count", "metres", "usd")
CENT = 0.01
ROUNDING = 1e-9  # relative: of sums in another order


@dataclass(frozen=True, slots=True)
class Line:
    """Some pieces of one part, with the metres of cables that are priced by their length."""

    part: str
    where: str
    count: int | None
    usd: float
    metres: float | None = None


def bill_of_materials(x: BuiltFabric) -> Iterator[str]:
    """Write the bill as CSV; amounts are rounded so that they sum to the rounded total.

    Raises
    ------
    InternalError
        If the lines do not sum to the price of the fabric.
    """
    lines = [line for line in _lines(x) if line.count != 0]
    total, stated = sum(line.usd for line in lines), x.fabric.cost_usd
    if abs(total - stated) > max(CENT / 2, ROUNDING * stated):
        raise InternalError(f"bill of {x.site}: lines of {total:,.2f} USD, the fabric costs {stated:,.2f} USD")
    yield _row(HEADER)
    before, cents = 0.0, 0
    for line in lines:
        before += line.usd
        upto = round(before * 100)
        metres = "" if line.metres is None else f"{line.metres:.1f}"
        count = "" if line.count is None else line.count
        yield _row((line.part, line.where, count, metres, _usd(upto - cents)))
        cents = upto
    yield _row(("total", x.site, "", "", _usd(cents)))


def _lines(x: BuiltFabric) -> Iterator[Line]:
    n, d, switch, boxes = x.network, x.design, x.switch, Counter[str]()
    usd = {s.name: s.price_usd for s in x.models.values()}
    for tier, count in d.tier_switches.items():
        boxes[x.models[tier].name] += count
    yield from (Line(name, "fabric", count, count * usd[name]) for name, count in boxes.items())
    yield Line(switch.name, "WAN gateway", d.wan_gateways, d.wan_gateways * switch.price_usd)
    links = _by_length(x) if price.by_reach(n) else _by_kind(x)
    yield from links
    if n.power_usd_per_watt:
        power = x.fabric.power_mw * 1e6 * n.power_usd_per_watt
        yield Line("power over the years", f"{x.fabric.power_mw:.6g} MW", None, power)


def _by_kind(x: BuiltFabric) -> Iterator[Line]:
    """Count transceivers and cables where each kind of link has one price."""
    n, d, c = x.network, x.design, x.network.cables
    up = d.switch_links + (d.wan_gateway_links if d.wan_ports else 0)
    ends = price.endpoint_factor(x.switch, d.split)
    for where, links, factor, cable_usd, modules in (
        ("gpu to leaf", d.endpoint_links, ends, c.endpoint_usd, c.endpoint_transceivers),
        ("switch to switch", up, x.switch.link_factor, c.switch_usd, c.switch_transceivers),
    ):
        yield Line(n.optics.name, where, links * modules, factor * links * modules * n.optics.price_usd)
        yield Line("cable", where, links, factor * links * cable_usd)


def _by_length(x: BuiltFabric) -> Iterator[Line]:
    """Sum cables by medium and tiers, each cable as long as the floor makes it."""
    table, counts = price.media_table(x.network), Counter[tuple[int, str]]()
    metres, usd = defaultdict[tuple[int, str], float](float), defaultdict[tuple[int, str], float](float)
    for c, length in x.measured():
        where, chosen = f"{c.low_tier} to {c.high_tier}", table.choose(length)
        factor = price.endpoint_factor(x.switch, x.design.split) if c.low_tier == "gpu" else x.switch.link_factor
        each, _ = table.usd_watts(length)
        for medium in np.unique(chosen).tolist():
            of = chosen == medium
            counts[medium, where] += int(of.sum())
            metres[medium, where] += float(length[of].sum())
            usd[medium, where] += factor * float(each[of].sum())
    for key, count in sorted(counts.items(), key=lambda item: (item[0][1], item[0][0])):
        yield Line(x.media[key[0]].name, key[1], count, usd[key], metres[key])


def _row(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([escaped(v) if isinstance(v, str) else v for v in values])
    return text.getvalue()


def _usd(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
