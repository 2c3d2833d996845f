"""The least cost by a deadline of a toy, by its full enumeration."""

from joint_brute_force import Toy

from planner.instance.instance import Instance, instance_sha256

_ENUMERATED: dict[str, Toy] = {}  # of this process, by the hash of the instance


def cost_toy(i: Instance) -> Toy:
    """Return the full enumeration of an instance, made once a process."""
    key = instance_sha256(i)
    if key not in _ENUMERATED:
        _ENUMERATED[key] = Toy(i)
    return _ENUMERATED[key]
