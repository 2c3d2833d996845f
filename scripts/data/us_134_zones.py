"""Build instances/us-134-zones.json from zones, interfaces, plants and peaks of the whole US.

Run it as `.venv/bin/python scripts/data/us_134_zones.py ZONES INTERFACES PLANTS PEAKS`, four CSV files whose columns
`planner grid import` knows; prices are those of instances/us-134-zones-authorities.csv.
"""

import sys
from pathlib import Path

from planner.files import write_atomically
from planner.imports.command_options import GridOptions
from planner.imports.grid_drafts import instance_with, text
from planner.imports.read_grid import import_grid

INSTANCES = Path(__file__).parents[2] / "instances"
PRICES = INSTANCES / "us-134-zones-authorities.csv"
NAME = "us-134-zones"
# PJM's headroom in Table 1 of Agache et al. 2024 over its peak of 2023-24: 9,915 of 151,816 MW.
# That of SRP is 30 %, of NEVP 23 %, of BPAT 19 %.
HEADROOM_SHARE = 0.065
TITLE = (
    "The $100B, 5 GW datacenter and 100T model of Agache et al. 2024 (arXiv 2407.12819) over the 134 ReEDS zones of "
    "the contiguous US, free to stand in any; notices in us-134-zones-NOTICE.txt"
)
SOURCE = (
    "Zones, interconnections and groups: ReEDS 2.0 (Copyright 2023 Alliance for Sustainable Energy, BSD-3-Clause) by "
    "way of PyPSA-USA (MIT). Interface limits: NARIS 2024, and existing B2B and LCC ties, the same way. Plants: WRI "
    "Global Power Plant Database v1.3 (CC BY 4.0) and EIA-860 2019. Peak demand: EIA-930 of 2023-24 as cleaned by "
    "Ruggles et al. (CC BY 4.0, doi 10.5281/zenodo.3517196). Headroom share: PJM's in Table 1 of Agache et al. 2024 "
    "over its peak, 9,915 of 151,816 MW, taken for all. Prices from memory [m]"
)
NOTE = (
    "made by scripts/data/us_134_zones.py, which does as `planner grid import ZONES INTERFACES PLANTS PEAKS "
    f"--authorities instances/{PRICES.name} --headroom-share {HEADROOM_SHARE} --into instances/5gw.json --name {NAME}`"
)


def main() -> None:
    """Write the instance."""
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    options = GridOptions(authorities=PRICES, headroom_share=HEADROOM_SHARE, source=SOURCE)
    imported = import_grid([Path(f) for f in sys.argv[1:]], "reeds", options)
    data = instance_with(INSTANCES / "5gw.json", imported.grid, NAME) | {"source": TITLE}
    data["grid"]["note"] = f"{NOTE}; {data['grid']['note']}"
    write_atomically(INSTANCES / f"{NAME}.json", text(data))
    print(*imported.missing or ["nothing is missing"], sep="\n")


if __name__ == "__main__":
    main()
