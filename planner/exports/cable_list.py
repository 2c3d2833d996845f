"""The cable list: a line a cable, port to port, with its length and medium."""

import csv
import io
from collections.abc import Iterator

import numpy as np

from planner.exports.from_plan import BuiltFabric
from planner.files import escaped
from planner.physics.network.cabling import Cables
from planner.physics.network.links import NO_MEDIUM, MediaTable, Metres

HEADER = "from,from_port,to,to_port,length_m,medium\n"


def cable_list(x: BuiltFabric) -> Iterator[str]:
    """Write the list as CSV, a block of cables at a time, with the parts that the fabric is priced with.

    Without a floor and media in the instance a medium is the transceiver of its links, and lengths are those of a floor
    of the usual pitches: no price rests on them.
    """
    yield HEADER
    table = MediaTable.of(x.media, x.network.power_usd_per_watt)
    media = [*(_cell(m.name) for m in x.media), "none reaches" if x.media else _cell(x.network.optics.name)]
    for c, metres in x.measured():
        chosen = table.choose(metres)
        yield "".join(_lines(x, c, metres, [media[i] for i in np.where(chosen == NO_MEDIUM, len(x.media), chosen)]))


def _cell(name: str) -> str:
    """Return a name as a cell: quoted where it has a comma, and never a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([escaped(name)])
    return text.getvalue()


def _lines(x: BuiltFabric, c: Cables, metres: Metres, media: list[str]) -> Iterator[str]:
    """Write a block of cables; where a leaf's port is split, a GPU's end is named port/part."""
    low = c.low.tolist()
    low_names = map(x.gpu_name, low) if c.low_tier == "gpu" else (x.names[c.low_tier][i] for i in low)
    high_names = x.names[c.high_tier]
    split = x.design.split if c.low_tier == "gpu" else 1
    high_port = c.high_port.tolist() if split == 1 else [f"{p // split}/{p % split}" for p in c.high_port.tolist()]
    ends = zip(low_names, c.low_port.tolist(), c.high.tolist(), high_port, metres.tolist(), media, strict=True)
    for name, port, high, at, length, medium in ends:
        yield f"{name},{port},{high_names[high]},{at},{length:.1f},{medium}\n"
