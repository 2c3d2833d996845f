"""The cable list: a line a cable, port to port, with its length, medium, lane and label."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.exports.from_plan import BuiltFabric
from planner.files import escaped
from planner.physics.network.cabling import Cables, switch_counts
from planner.physics.network.links import NO_MEDIUM, MediaTable, Metres

NONE_REACHES = "none reaches"
HEADER = "from,from_port,to,to_port,length_m,medium,lane,label\n"


@dataclass(frozen=True, slots=True)
class LabelledCable:
    """A cable by name: both ends with their ports, its length and medium, the lane of the NICs that it serves."""

    low: str
    low_port: str
    high: str
    high_port: str
    metres: float
    medium: str
    lane: int

    @property
    def label(self) -> str:
        """What is printed at either end of the cable."""
        return f"{self.low}:{self.low_port}--{self.high}:{self.high_port}"


def cable_list(x: BuiltFabric) -> Iterator[str]:
    """Write the list as CSV, a block of cables at a time, with the parts that the fabric is priced with."""
    yield HEADER
    cells = {name: _cell(name) for name in [*(m.name for m in x.media), NONE_REACHES, x.network.optics.name]}
    for _, block in labelled(x):
        yield "".join(
            f"{c.low},{c.low_port},{c.high},{c.high_port},{c.metres:.1f},{cells[c.medium]},{c.lane},{c.label}\n"
            for c in block
        )


def labelled(x: BuiltFabric) -> Iterator[tuple[str, Iterator[LabelledCable]]]:
    """Yield every cable by name, block by block, with the tier that the block goes up from.

    Without a floor and media in the instance a medium is the transceiver of its links, and lengths are those of a floor
    of the usual pitches: no price rests on them.
    """
    table = MediaTable.of(x.media, x.network.power_usd_per_watt)
    media = [*(m.name for m in x.media), NONE_REACHES if x.media else x.network.optics.name]
    counts = switch_counts(x.design)
    for c, metres in x.measured():
        chosen = table.choose(metres)
        network = c.high // (counts[c.high_tier] // x.design.networks)
        by_name = [media[i] for i in np.where(chosen == NO_MEDIUM, len(x.media), chosen)]
        yield c.low_tier, _named(x, c, metres, by_name, (network % x.design.lanes).tolist())


def _named(x: BuiltFabric, c: Cables, metres: Metres, media: list[str], lanes: list[int]) -> Iterator[LabelledCable]:
    """Name a block of cables; where a leaf's port is split, a GPU's end is named port/part."""
    low = c.low.tolist()
    low_names = map(x.gpu_name, low) if c.low_tier == "gpu" else (x.names[c.low_tier][i] for i in low)
    high_names = x.names[c.high_tier]
    split = x.design.split if c.low_tier == "gpu" else 1
    high_port = [str(p) if split == 1 else f"{p // split}/{p % split}" for p in c.high_port.tolist()]
    ends = zip(low_names, c.low_port.tolist(), c.high.tolist(), high_port, metres.tolist(), media, lanes, strict=True)
    for name, port, high, at, length, medium, lane in ends:
        yield LabelledCable(name, str(port), high_names[high], at, length, medium, lane)


def _cell(name: str) -> str:
    """Return a name as a cell: quoted where it has a comma, and never a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([escaped(name)])
    return text.getvalue()
