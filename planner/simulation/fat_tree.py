"""A network to simulate that is no plan: a fat tree by its hosts, ports, tiers and oversubscription."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from planner.errors import InputError
from planner.instance.base import Count, Positive, Sourced, out_of_range
from planner.instance.read import validated
from planner.simulation.tree import Tree

MAX_HOSTS = 1 << 20  # of a fabric: more flows than these do not fit the memory


class Fabric(Sourced):
    """A fat tree of equal switches; without down_ports it is k-ary: half of the ports face down below the top."""

    name: str = "fabric"
    hosts: Annotated[int, Field(ge=2, le=MAX_HOSTS)] = Field(description="Hosts, each with one port on a leaf.")
    ports_per_switch: Annotated[int, Field(ge=2, le=4096)]
    tiers: Annotated[int, Field(ge=1, le=4)] = 3
    oversubscription: tuple[Annotated[float, Field(ge=1)], ...] = Field(
        (), description="Ports down over ports up of each tier below the top, leaves first; 1 where absent."
    )
    down_ports: tuple[Count, ...] = Field(
        (), description="Ports down of each tier below the top, leaves first; half of the ports where absent."
    )
    host_gbps: Positive = Field(800.0, description="Rate of one host, and of every cable, all planes together.")
    plane_shares: tuple[Positive, ...] = Field(
        (1.0,), min_length=1, description="Share of a cable's rate that each plane has; unequal ones differ."
    )
    failed_cables: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (),
        description="Cables between switches that are out, by number: leaf by leaf, spine by spine, plane by plane.",
    )

    @model_validator(mode="after")
    def _wirable(self) -> Self:
        """Refuse a fabric for which no ports can be found."""
        for key in ("oversubscription", "down_ports"):
            if len(getattr(self, key)) > self.tiers - 1:
                given = f"one for each tier below the top (has {len(getattr(self, key))})"
                raise ValueError(f"{key} must have at most {self.tiers - 1} entries, {given}")
        if abs(sum(self.plane_shares)) > 1 + 1e-9:
            raise ValueError(f"plane_shares must add up to 1 at most (add up to {sum(self.plane_shares):g})")
        for t, (down, ratio) in enumerate(zip(self.downs, self.ratios, strict=True)):
            up = down / ratio
            if round(up) < 1 or abs(up - round(up)) > 1e-9:
                hint = f"give another or down_ports[{t}]"
                raise ValueError(
                    f"oversubscription[{t}] leaves {up:g} ports up of {down} down, not a whole number; {hint}"
                )
            if down + round(up) > self.ports_per_switch:
                ports = f"{down} ports down + {round(up)} up > {self.ports_per_switch} ports"
                raise ValueError(f"tier {t} takes {ports}; lower down_ports[{t}]")
        reach = math.prod(self.downs) * self.ports_per_switch
        if self.hosts > reach:
            tiers = f"{self.tiers} tiers of {self.ports_per_switch} ports"
            raise ValueError(f"hosts must be at most {reach}, which {tiers} reach (is {self.hosts})")
        return self

    @property
    def downs(self) -> tuple[int, ...]:
        """Ports down of each tier below the top."""
        half = (self.ports_per_switch // 2,)
        return self.down_ports + half * (self.tiers - 1 - len(self.down_ports))

    @property
    def ratios(self) -> tuple[float, ...]:
        """Oversubscription of each tier below the top."""
        return self.oversubscription + (1.0,) * (self.tiers - 1 - len(self.oversubscription))


def load_fabric(data: Any, where: str = "fabric") -> Fabric:
    """Check a fabric.

    Raises
    ------
    InputError
        Names the file, the JSON path, the value and what was expected.
    """
    if not isinstance(data, Mapping):
        example = '{"hosts": 1024, "ports_per_switch": 16}'
        raise InputError(f"{where}: must be a plan or a fabric (is {type(data).__name__}); give one such as {example}")
    return validated(Fabric, dict(data), where, problems=out_of_range)


def tree_of_fabric(f: Fabric) -> Tree:
    """Return the wiring of a fabric: single cables, subtrees filled one after the other."""
    ups = tuple(round(d / o) for d, o in zip(f.downs, f.ratios, strict=True))
    rate = f.host_gbps * 1e9 / 8
    return Tree(
        down=(*f.downs, -(-f.hosts // math.prod(f.downs))),
        up=(1, *ups),
        bundle=(1,) * f.tiers,
        rates=(rate,) * f.tiers,
        planes=f.plane_shares,
        slots=np.arange(f.hosts),
    )
