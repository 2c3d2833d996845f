"""The instances: valid, sourced, and as described."""

import csv
import json
from pathlib import Path

import pytest
from best_splits import split
from each_case import each
from sweeping import PINS
from tiers import more

import planner
from planner.planning.load import load_instance
from planner.solvers.outcome import Stop

INSTANCES = Path(__file__).parents[2] / "instances"
NAMES = sorted(p.stem for p in INSTANCES.glob("*.json"))
CHOICES = ("objective", "pins", "schema_version")  # what is asked, and not a figure of the world


def read(name):
    return json.loads((INSTANCES / f"{name}.json").read_text(encoding="utf-8"))


def resolved(name):
    """Return the instance with its catalogue names replaced by the entries."""
    return load_instance(INSTANCES / f"{name}.json", searched=False)


def unsourced(value, path, inherited):
    """Yield the path of each number that no source covers."""
    # A source text covers the figures of its object and of those below it; a source by key covers its keys. The
    # instance's own source is a title and covers nothing.
    if isinstance(value, dict):
        source = value.get("source") if path else None
        for key, item in value.items():
            if key == "source" or (not path and key in CHOICES):
                continue
            covered = bool(source.get(key)) if isinstance(source, dict) else bool(source)
            yield from unsourced(item, (*path, key), inherited or covered)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from unsourced(item, (*path, i), inherited)
    elif isinstance(value, int | float) and not inherited:
        yield ".".join(map(str, path))


def test_the_described_instances_are_there():
    described = {"5gw", "5gw-50t", "agache2024-100t", "agache2024-50t", "cluster-1k", "one-rack", "us-134-zones"}
    assert described <= set(NAMES) and all(read(name)["name"] == name for name in NAMES)


@each("name", NAMES)
def test_instance_is_valid(name):
    assert resolved(name).name == name


@each("name", NAMES)
def test_figures_have_sources(name):
    assert list(unsourced(read(name), (), False)) == []


@each("name", NAMES)
def test_sources_name_keys_that_are_there(name):
    def walk(value):
        if isinstance(value, dict):
            assert not isinstance(value.get("source"), dict) or set(value["source"]) <= set(value)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(item)

    walk(read(name))


@each("name", [n for n in NAMES if "grid" in read(n)])
def test_lines_stay_in_their_interconnection(name):
    """No AC line joins two interconnections; what does is marked as a tie that can be controlled."""
    grid = resolved(name).grid
    area = {b.id: b.interconnection for b in grid.balancing_authorities}
    side = {n.id: area[n.balancing_authority] for n in grid.nodes}
    across = [line for line in (*grid.lines, *grid.new_lines) if side[line.a] != side[line.b]]
    assert all("tie, controllable" in (line.note or "") for line in across)


def test_5gw_has_the_four_authorities_and_their_nodes():
    """The headroom is that of Table 1 of Agache et al. 2024, over at least 12 nodes, both rules on."""
    grid = resolved("5gw").grid
    headroom = {"PJM": 9915, "SRP": 2634, "NEVP": 2209, "BPAT": 2143}
    assert {b.id: b.headroom_mw for b in grid.balancing_authorities} == headroom and len(grid.nodes) >= 12
    assert grid.rules.interconnect.enabled and grid.rules.fault_split.enabled


def test_5gw_has_no_node_for_all_of_it_and_palo_verde_for_half():
    """No node carries 5 GW: interconnect binds in the east, headroom in the west; two nodes carry half each."""
    grid = resolved("5gw").grid
    authority = {b.id: b for b in grid.balancing_authorities}
    by_lines = {n.id: n.interconnect_mw / grid.rules.interconnect.share for n in grid.nodes}
    by_headroom = {n.id: authority[n.balancing_authority].headroom_mw for n in grid.nodes}
    most = {i: min(by_lines[i], by_headroom[i]) for i in by_lines}
    eastern = {n.id for n in grid.nodes if authority[n.balancing_authority].interconnection == "eastern"}
    assert max(most.values()) < 5000
    assert max(by_lines[i] for i in eastern) < 5000 < min(by_headroom[i] for i in eastern)
    assert max(by_headroom[i] for i in by_headroom.keys() - eastern) < 5000
    assert most["palo-verde"] == 2634
    assert max(most[i] for i in eastern) >= 2500


def test_us_134_zones_covers_the_country():
    """134 zones of three interconnections, all of them candidates, prices as in the table beside, notices there."""
    grid = resolved("us-134-zones").grid
    area = {b.id: b.interconnection for b in grid.balancing_authorities}
    assert len(grid.nodes) == 134
    assert sum(n.site for n in grid.nodes) == 134
    assert {area[n.balancing_authority] for n in grid.nodes if n.site} == {"eastern", "western", "ercot"}
    with (INSTANCES / "us-134-zones-authorities.csv").open(encoding="utf-8") as file:
        prices = {row["authority"]: float(row["energy_usd_per_mwh"]) for row in csv.DictReader(file)}
    assert {b.id: b.energy_usd_per_mwh for b in grid.balancing_authorities} == prices
    assert (INSTANCES / "us-134-zones-NOTICE.txt").exists()


@pytest.mark.slow
def test_us_134_zones_has_a_site_split():
    """The sites alone are decided, proven: the most racks that the budget buys, in two interconnections."""
    outcome = split(load_instance(INSTANCES / "us-134-zones.json"))
    found = outcome.solution
    assert outcome.stop is Stop.PROVED and found.certificate.status == "optimal"
    assert len(found.sites) == len({s.interconnection for s in found.sites}) == 2


@each(("free", "pinned"), [("5gw", "agache2024-100t"), ("5gw-50t", "agache2024-50t")])
def test_pinned_instances_share_the_grid(free, pinned):
    """The instances of the paper's choices stand on the grid of the free ones, and pin 23,200 racks."""
    a, b = resolved(free), resolved(pinned)
    for part in ("balancing_authorities", "nodes", "lines", "rules"):
        assert getattr(a.grid, part) == getattr(b.grid, part)
    assert a.hardware == b.hardware and not a.pins and b.pins["sites.racks"] == 23_200


def test_small_instances_ask_for_less():
    """One rack asks for a layout only; the cluster of 1,024 GPUs for a fabric too."""
    rack, cluster = resolved("one-rack"), resolved("cluster-1k")
    assert (rack.grid, rack.wan, rack.network, rack.hardware.racks) == (None, None, None, 1)
    assert (cluster.grid, cluster.wan) == (None, None) and cluster.network is not None
    assert cluster.hardware.racks * cluster.hardware.rack.gpus == 1024


PUBLISHED = more(("agache2024-100t", {"layout.data_parallel": 710}))  # a search over its replicas is that of 5gw


@pytest.mark.parametrize(("name", "pins"), [("one-rack", PINS), *PUBLISHED])
def test_its_plan_breaks_nothing(name, pins):
    plan = planner.solve(INSTANCES / f"{name}.json", pins=pins)
    assert plan.status == "optimal" and planner.check(plan) == []
