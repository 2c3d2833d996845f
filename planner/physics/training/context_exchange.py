"""The exchange of keys and values between context-parallel ranks: inside a rack, then over racks."""

from planner.physics.training.collectives import Level, all_gather
from planner.physics.training.operations import LayerShape, Machine
from planner.physics.training.process_groups import group_levels, kv_elements


def context_levels(m: Machine, s: LayerShape, slowdown: float) -> tuple[Level, ...]:
    """Return the levels of a CP group.

    The ranks of a rack, then the racks at the NIC's rate over the network's slowdown.
    """
    return group_levels(m, stride=s.tensor_parallel, ranks=s.context_parallel, slowdown=slowdown)


def keys_and_values_bytes(m: Machine, s: LayerShape) -> float:
    """Count the bytes of keys and values that one TP rank gathers of a layer and micro-batch, all ranks' together."""
    return s.micro_batch * m.sequence * kv_elements(m.model) / s.tensor_parallel * m.precision.collective_bytes


def context_exchange_seconds(m: Machine, s: LayerShape, attention: float, slowdown: float) -> float:
    """Compute the exposed seconds of passing keys and values round the CP ranks in one pass.

    Exposed is the time beyond attention where the framework overlaps the two, else all of it. The exchange is a
    hierarchical all-gather (Thakur 2005): inside the rack, then over c racks, where each GPU carries its share over its
    own NIC: (c-1)/c · K·c/κ bytes of K, at the NIC's rate over the slowdown. The backward pass pays it twice.
    """
    if s.context_parallel == 1:
        return 0.0
    time = (
        float(all_gather(keys_and_values_bytes(m, s), context_levels(m, s, slowdown))) + m.software.collective_seconds
    )
    return max(0.0, time - attention) if m.software.hides("context") else time


def context_nic_seconds(m: Machine, s: LayerShape, slowdown: float = 1.0) -> float:
    """Compute the seconds that the exchange of one layer and pass takes of the NIC: none inside a rack.

    A NIC does one thing at a time: what CP takes is lost to the window that hides pipeline exchanges.
    """
    if s.context_parallel == 1:
        return 0.0
    near, far = context_levels(m, s, slowdown)
    if far.ranks <= 1:
        return 0.0
    return float(all_gather(keys_and_values_bytes(m, s) / near.ranks, (far,)))
