"""What users ask of a first instance, a grid and a fabric alone: records whose fields are options of a command."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from planner.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Command options of `planner init`: the user's figures for a first instance; None: taken from an example."""

    sites: Annotated[int, "Number of candidate sites; 0: one cluster without a grid."] = 0
    budget: Annotated[float | None, "Dollars for all that is bought, such as 3e9."] = None
    model: Annotated[str | None, "Of the catalogue, or a Hugging Face config.json."] = None
    accelerator: Annotated[str, "Of the catalogue."] = "B200"
    racks: Annotated[int | None, "Racks (or nodes) of the one cluster."] = None
    tokens: Annotated[float | None, "Training tokens; 20 for each active weight unless given."] = None
    name: Annotated[str | None, "Name of the instance."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOptions:
    """Command options of `planner grid import` that complete or override a grid's files. InputError: `at` no place."""

    radius_km: Annotated[float, "Plants this near a larger one join its node (plant lists)."] = 25.0
    positions: Annotated[Path | None, "Table bus, lat, lon for a MATPOWER case."] = None
    at: Annotated[str | None, "LAT,LON of the buses that --positions does not name."] = None
    authorities: Annotated[
        Path | None, "Table authority, headroom_mw, energy_usd_per_mwh, interconnection, source; cells may be empty."
    ] = None
    headroom_share: Annotated[float | None, "Headroom over peak demand, or where no file has it over capacity."] = None
    energy_usd_per_mwh: Annotated[float | None, "Price where --authorities gives none."] = None
    interconnection: Annotated[str | None, "Synchronous area where neither files nor --authorities name it."] = None
    spare_share: Annotated[float, "Share of installed capacity that can feed sites."] = 1.0
    sites: Annotated[int | None, "Let sites stand only on the N nodes with most generation."] = None
    only: Annotated[list[str] | None, "Keep this balancing authority alone; may be repeated."] = None
    source: Annotated[str | None, "Where the files come from; written as the grid's source."] = None

    def __post_init__(self) -> None:
        if self.at is not None and self.place is None:
            raise InputError(f"--at {self.at}: must be LAT,LON in degrees, such as 39.76,-76.27")

    @property
    def place(self) -> tuple[float, float] | None:
        """Latitude and longitude of the option --at of `planner grid import`, in degrees."""
        latitude, _, longitude = (self.at or "").partition(",")
        with suppress(ValueError):
            place = float(latitude), float(longitude)
            if -90 <= place[0] <= 90 and -180 <= place[1] <= 180:
                return place
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricWish:
    """The wanted fabric, imported from options of `planner fabric design`; None: as usual, or, if all, a file's."""

    hosts: Annotated[int | None, "Hosts, or racks, that the fabric joins; all are cabled."] = None
    gpus_per_host: Annotated[int | None, "GPUs of a host, each with its NIC."] = None
    nic_gbps: Annotated[float | None, "Rate of one NIC, in Gb/s."] = None
    switch: Annotated[list[str] | None, "One of `planner catalogue switches`, or PORTSxGBPS:DOLLARS:WATTS."] = None
    family: Annotated[list[str] | None, "rail (unless given), rack, rail-only, dragonfly or dragonfly+."] = None
    oversubscription: Annotated[str | None, "Most rate down to up: 4:1, by tier 1:1,7:1, or any; else 1:1."] = None
    survives: Annotated[str | None, "Loss that cuts no two leaves: one_spine (usual), one_leaf_uplink, none."] = None
    planes: Annotated[int | None, "Planes of the fabric."] = None
    max_lanes: Annotated[int | None, "Most networks of a NIC's lanes: 1 unless given."] = None
    rails_per_leaf: Annotated[int | None, "Most GPUs of a host at a leaf of the family rail: any unless given."] = None
    max_tiers: Annotated[int | None, "Most tiers of switches: 4 unless given."] = None
    floor: Annotated[str | None, "PITCHxROW in metres, xN for N hosts a rack: cables are priced by length."] = None
    transceiver_usd: Annotated[float | None, "Price of one transceiver."] = None
    transceiver_watts: Annotated[float | None, "Power of one transceiver."] = None
    budget: Annotated[float | None, "Most that the fabric may cost, in dollars."] = None
