"""A plan as a topology: racks named as in its placement, under the leaf domains and pods of its fabric."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cluster import Topology, parse
from planner.errors import InputError
from planner.formats.slurm import read_conf, write_conf
from planner.formats.topology_files import plan_topology, read_topology
from planner.instance.hardware import Hardware
from planner.instance.instance import Instance
from planner.plan.plan import Plan
from planner.plan.plan_sections import FabricPlan, Site, SiteFabric, SitesPlan


def _plan(fabrics: dict[str, tuple[int, int]], racks: dict[str, int] | int) -> Plan:
    """Return the parts of a plan that say where racks stand: (racks a leaf domain, leaf domains a pod) by site."""
    built = {
        s: SiteFabric.model_construct(leaf_domain_racks=size, leaf_domains_per_pod=pod)
        for s, (size, pod) in fabrics.items()
    }
    one = isinstance(racks, int)
    held = () if one else tuple(Site.model_construct(id=s, racks=n) for s, n in racks.items())
    return Plan.model_construct(
        fabric=FabricPlan.model_construct(sites=built),
        sites=None if one else SitesPlan.model_construct(sites=held),
        instance=Instance.model_construct(hardware=Hardware.model_construct(racks=racks if one else None)),
    )


def _leaves(topology: Topology) -> dict[str, tuple[str, ...]]:
    return {s.name: s.nodes for s in topology.switches if s.nodes}


def test_one_cluster() -> None:
    """Ten racks, four a leaf: the last leaf is part-full, and racks have the placement's names."""
    found = plan_topology(_plan({"cluster": (4, 8)}, 10), "plan.json")
    assert [len(nodes) for nodes in _leaves(found).values()] == [4, 4, 2]
    assert [n for nodes in _leaves(found).values() for n in nodes] == [f"r{i}" for i in parse("r[0-9]")]
    assert {s.parent for s in found.switches if s.nodes} == {"cluster"}


def test_pods_and_sites() -> None:
    """Pods stand between leaves and site where there are several; sites have names of their own, joined by the WAN."""
    found = plan_topology(_plan({"east": (2, 2), "west": (3, 9)}, {"east": 11, "west": 3}), "plan.json")
    parents = {s.name: s.parent for s in found.switches}
    assert {n: p for n, p in parents.items() if "pod" in n} == {f"east-pod{i}": "east" for i in range(3)}
    assert [parents[f"east-leaf{i}"] for i in range(6)] == [f"east-pod{i // 2}" for i in range(6)]
    assert (parents["west-leaf0"], parents["west"], parents["wan"]) == ("west", "wan", None)
    assert _leaves(found)["east-leaf5"] == ("east-r10",)
    assert read_conf(write_conf(found), "t") == found


def test_a_plan_without_a_fabric_is_refused() -> None:
    with pytest.raises(InputError, match=r"plan\.json: fabric: the plan has none"):
        plan_topology(Plan.model_construct(fabric=None), "plan.json")
    with pytest.raises(InputError, match=r"fabric\.sites\.west: no racks"):
        plan_topology(_plan({"west": (3, 1)}, {"east": 3}), "plan.json")


def test_a_plan_file_is_recognised_and_checked(tmp_path: Path) -> None:
    data: dict[str, Any] = {"planner_version": "0", "status": "optimal"}
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"plan\.json: instance: is missing"):
        read_topology(tmp_path / "plan.json")
