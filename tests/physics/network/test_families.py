"""The registry of fabric families: complete, and each family's designs found by their type."""

from typing import get_args

from each_case import each

from planner.instance.network import FabricFamily
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.fabric_designs import FAMILIES


def test_every_family_is_registered() -> None:
    """An instance may name just the families of the registry, and every type of design serves one of them."""
    assert set(FAMILIES) == set(get_args(FabricFamily))
    assert {f.design for f in FAMILIES.values()} == {Design, Dragonfly, DragonflyPlus}


@each("gpus", [1, 4, 72])
@each("family", FAMILIES)
def test_every_gpu_of_a_rack_has_a_port(family: FabricFamily, gpus: int) -> None:
    ports = FAMILIES[family].rack_ports(gpus)
    assert ports.rails * ports.rail_gpus * ports.apart == gpus
