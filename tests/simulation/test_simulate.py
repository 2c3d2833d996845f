"""`simulate` as a library and as a command: patterns, plans, fabrics, and messages for bad input."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run_here
from each_case import each
from worked_plan import edited_at, small

import planner
from planner.api.plan_calls import check
from planner.errors import InputError
from planner.plan.plan import Plan
from planner.simulation import simulate
from planner.simulation.simulate import Simulation, overlap_of, summary
from planner.simulation.simulated_routes import permutation
from planner.simulation.simulated_slowdown import factor, transport_slowdown_of

ROOT = Path(__file__).parents[2]
K8: dict[str, Any] = {"hosts": 128, "ports_per_switch": 8}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Return a small plan with two sites, leaves, spines and cores."""
    return small()


def test_patterns_send_and_receive_once() -> None:
    """Every host of a permutation sends to one other and receives once; stages send rank to rank."""
    slots = np.arange(10) * 3
    p = permutation(slots, 5.0, 1)
    assert sorted(p.source) == sorted(p.target) == slots.tolist()
    assert (p.source != p.target).all()
    groups = [slots[:4], slots[4:8], slots[8:]]
    s = simulate.p2p(groups, 5.0, wrap=True)
    sends = [(a, a + 12) for a in range(0, 18, 3)] + [(24, 0), (27, 3)]
    assert list(zip(s.source.tolist(), s.target.tolist(), strict=True)) == sends
    ring = simulate.allreduce(groups, 8.0)
    assert list(zip(ring.source.tolist(), ring.target.tolist(), ring.size.tolist(), strict=True))[:5] == [
        (0, 3, 2.0), (3, 6, 2.0), (6, 9, 2.0), (9, 0, 2.0), (12, 15, 2.0)
    ]  # fmt: skip
    assert (len(ring), simulate.allreduce_steps(groups)) == (10, 6)
    every = simulate.alltoall(groups, 6.0)
    assert sorted(zip(every.source.tolist(), every.target.tolist(), strict=True)) == sorted(
        (a, b) for g in groups for a in g.tolist() for b in g.tolist() if a != b
    )
    assert np.bincount(every.source, every.size)[slots] == pytest.approx(6.0)


def test_a_fabric_over_some_seeds() -> None:
    s = planner.simulate(K8, seeds=4)
    assert s == planner.simulate(K8, seeds=4)
    assert len({r.fct_seconds for r in s.runs}) > 1
    assert s.mean_slowdown == pytest.approx(np.mean([r.slowdown for r in s.runs]))
    assert s.fct_seconds.max == max(r.tail_seconds for r in s.runs)
    assert s.runs[0].line_rates == pytest.approx(s.runs[0].tail_seconds / (300e6 / 100e9))
    assert (s.hosts, s.flows, s.slowdown.max) == (128, 128, max(r.slowdown for r in s.runs))


def test_a_planned_site_exchanges_as_placed(plan: Plan) -> None:
    """Sprayed, the pipeline exchange of a site takes the time of the plan's formula but for the transport's."""
    # Long flows are behind it by what packets dealt out by lot are. The formula takes ports to be as fast as NICs.
    rate = plan.instance.hardware.accelerator.nic_bytes_per_second
    boxes = [s.replaced(port_gbps=rate * 8 / 1e9).model_dump() for s in plan.instance.network.switches]
    plan = edited_at(plan, "instance.network.switches", boxes)
    for site, held in plan.fabric.sites.items():
        s = planner.simulate(plan, pattern="p2p", transport="spray", site=site)
        formula = held.pipeline_send_slowdown / plan.instance.network.transport.slowdown
        assert s.assumed_line_rates == held.pipeline_send_slowdown
        long = planner.simulate(plan, pattern="p2p", transport="spray", site=site, bytes_per_host=300e6)
        assert formula <= long.mean_line_rates <= 1.05 * formula
        assert s.flow_bytes == pytest.approx(plan.layout.metrics.pipeline_send_nic_seconds * rate)
    rings, racks = planner.simulate(plan, pattern="allreduce", site="e1"), plan.layout.racks_per_stage_by_site["e1"]
    rails, rest = divmod(rings.flows, racks * plan.layout.rack_stages)
    assert (rings.steps, rest, rails % plan.fabric.sites["e1"].rails_per_pod) == (2 * (racks - 1), 0, 0)


def test_sends_and_rings_at_once_share_uplinks(plan: Plan) -> None:
    """Two rings and two sends over one uplink wait for each other as packets do; alone they take their own time."""
    # The schedule says whether they meet: not where the plan has one stage, and between stages alone where software
    # leaves the exchange exposed.
    fabric = {"hosts": 4, "ports_per_switch": 8, "tiers": 2, "down_ports": [2], "oversubscription": [2], "host_gbps": 8}
    s = planner.simulate(fabric, pattern="p2p+allreduce", transport="spray", group=2, bytes_per_host=24e6)
    sends, rings = s.together
    assert (s.pattern, s.flows, s.steps, s.overlap, s.assumed_line_rates) == ("p2p+allreduce", 6, 1, None, None)
    assert (sends.alone_line_rates, rings.alone_line_rates) == pytest.approx((2, 1), rel=0.05)
    # By packets (scripts/verify/packets.py) 2.50 and 2.47: a host's port gives both a half, an uplink its sends a half.
    assert (sends.mean_line_rates, rings.mean_line_rates) == pytest.approx((2.5, 2.47), rel=0.05)
    planned = planner.simulate(plan, pattern="p2p+allreduce", site="e1", transport="spray")
    site = plan.fabric.sites["e1"]
    assert [t.assumed_line_rates for t in planned.together] == [site.pipeline_send_slowdown, site.allreduce_slowdown]
    assert planned.overlap.startswith("yes")
    assert "OVERLAP    yes" in summary(planned) and "p2p: mean" in summary(planned)
    exposed = edited_at(plan, "instance.workload.software.overlaps", ["sends"])
    assert overlap_of(exposed, "e1").startswith("only between stages")


def test_fewer_hosts_are_a_sample_and_said_so(plan: Plan) -> None:
    """A number of hosts below a block of indices keeps the first racks, and the text says which; more are refused."""
    whole, usual, part = (planner.simulate(plan, site="e1", hosts=hosts) for hosts in (32, None, 9))
    assert part.hosts < usual.hosts < whole.hosts == 32
    assert "a sample" in part.simulated and "(for 9 hosts: pods and racks are whole)" in part.simulated
    assert "a sample" not in whole.simulated + usual.simulated
    with pytest.raises(InputError, match=r"^--hosts 33: e1 has 32, a GPU each; give fewer, or leave --hosts out$"):
        planner.simulate(plan, site="e1", hosts=33)


def test_flows_from_a_file(tmp_path: Path) -> None:
    """Two flows into one host share its link: 2 bytes and 1 byte at 1 GB/s end after 2 s and 3 s of a billionth."""
    path = tmp_path / "flows.csv"
    path.write_text("src,dst,bytes\n0,2,2\n1,2,1\n")
    s = planner.simulate(K8 | {"host_gbps": 8}, pattern=str(path))
    assert s.flows == 2 and s.fct_seconds.max == pytest.approx(3e-9, rel=0.01)
    assert s.runs[0].ideal_seconds == pytest.approx(3e-9)


@each(("text", "message"), [
    ("a,b,c\n0,1,2\n", "line 1: must be the header src,dst,bytes (is a,b,c); add it"),
    ("\n", "line 1: must be the header src,dst,bytes (is empty); add it"),
    ("src,dst,bytes\n", "has no flows"),
    ("src,dst,bytes\n0,1\n", "line 2: has 2 cells where the header has 3; add or remove commas"),
    ('src,dst,bytes\n0,1,5\n0,1,"5\n0,2,5\n', "line 3: unexpected end of data; correct the quotes there"),
    ('src,dst,bytes\n0,1,"5"\n\n0,1,"5"5\n', "line 4: ',' expected after '\"'; correct the quotes there"),
    ('src,dst,bytes\n"0\n",1,5\n0,128,5\n', "line 4: dst: must be a host from 0 to 127 (is '128')"),
    ("src,dst,bytes\nx,1,5\n", "line 2: src: must be a host"),
    ("src,dst,bytes\n0,1,1e308\n", "line 2: bytes: must be a number from 1e-06 to 1e+18 (is '1e308')"),
    ("src,dst,bytes\n0,1,nan\n", "line 2: bytes: must be a number from 1e-06 to 1e+18 (is 'nan')"),
    ("src,dst,bytes\n4,4,1\n", "line 2: dst: must be another host than src"),
])  # fmt: skip
def test_bad_files_are_named_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "flows.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        planner.simulate(K8, pattern=str(path))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


@each(("fabric", "options", "message"), [
    (K8 | {"oversubscription": [3]}, {}, "oversubscription[0] leaves 1.33333 ports up of 4 down"),
    (K8 | {"down_ports": [5]}, {}, "5 ports down + 5 up > 8 ports"),
    (K8 | {"oversubscription": [1, 1, 1]}, {}, "at most 2 entries"),
    (K8 | {"plane_shares": [0.9, 0.9]}, {}, "plane_shares must add up to 1 at most"),
    ({"hosts": 64, "port_per_switch": 8}, {}, "did you mean 'ports_per_switch'"),
    (K8, {"transport": "rocky"}, "--transport rocky: must be one of ecmp, spray, adaptive"),
    (K8, {"pattern": "rocky"}, "--pattern rocky: must be one of permutation, p2p, allreduce, alltoall"),
    (K8, {"pattern": "no.csv"}, "no such file"),
    (K8, {"seeds": 0}, "seeds: must be a whole number from 1 to 10,000 (is 0)"),
    (K8, {"hosts": 1}, "hosts: must be a whole number from 2 to 1,048,576 (is 1)"),
    (K8, {"hosts": 129}, "hosts must be at most 128"), (K8, {"site": "e1"}, "a fabric has no sites"),
    (K8, {"bytes_per_host": 0.0}, "bytes_per_host: must be a number from 0.001"),
    (K8, {"failed_links": 10**6}, "--failed-links 1000000: must be from 0 to 256"),
    (K8, {"group": 1, "pattern": "allreduce"}, "no host sends to another"),
])  # fmt: skip
def test_bad_fabrics_and_options_are_named(fabric: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        planner.simulate(fabric, **options)


def test_a_plan_that_cannot_be_simulated_is_named(plan: Plan) -> None:
    with pytest.raises(InputError, match="no fabric that can be wired"):
        planner.simulate(plan.replaced(fabric=None))
    with pytest.raises(InputError, match="plan: plan_version: unknown key"):
        planner.simulate(plan.model_dump() | {"plan_version": 1})
    with pytest.raises(InputError, match="choose one of e1, w1"):
        planner.simulate(plan, site="mars")
    for pattern in ("p2p", "allreduce"):
        with pytest.raises(InputError, match="layout: stages_per_rack 0 is not from 1"):
            planner.simulate(edited_at(plan, "layout.stages_per_rack", 0), pattern=pattern)


def test_the_size_of_groups_is_stated_with_its_source(plan: Plan) -> None:
    """A size that nobody gave is named as the default; the groups of a plan are those of its placement."""
    stated = [
        planner.simulate(K8 | {"hosts": hosts}, pattern=pattern, group=group).simulated.partition("; ")[2]
        for hosts, pattern, group in ((128, "alltoall", None), (90, "allreduce", None), (128, "allreduce", 4))
    ]
    assert stated == [
        "alltoall in groups of 16 hosts (the default; --group takes another size)",
        "allreduce in groups of up to 16 hosts (the default; --group takes another size)",
        "allreduce in groups of 4 hosts (--group)",
    ]
    assert "groups" not in planner.simulate(K8).simulated
    of_plan = planner.simulate(plan, site="e1", pattern="p2p+allreduce").simulated
    assert re.search(r"; p2p in groups of \d+ hosts \(the plan's placement\); allreduce in groups of \d+", of_plan)


def test_the_command_prints_text_or_json_and_no_traceback(tmp_path: Path, plan: Plan) -> None:
    fabric, planned = tmp_path / "fabric.json", tmp_path / "plan.json"
    fabric.write_text(json.dumps(K8))
    planned.write_text(plan.model_dump_json())
    out = run_here("simulate", fabric, "--seeds", "2", "--json")
    assert (out.returncode, out.stderr) == (0, "")
    assert Simulation.model_validate_json(out.stdout) == planner.simulate(fabric, seeds=2)
    assert "the plan assumes" in run_here("simulate", planned, "--pattern", "p2p", "--transport", "spray").stdout
    schema = ROOT / "instances" / "schema" / "plan.schema.json"
    for wrong in ([fabric, "--transport", "x"], [tmp_path / "none.json"], [ROOT / "pyproject.toml"], [schema]):
        out = run_here("simulate", *wrong)
        assert out.returncode == 2 and out.stderr and "Traceback" not in out.stderr


def asking(**runs: Any) -> Any:
    """Return the worked plan's network whose slowdown comes from runs."""
    network = small().instance.network
    transport = type(network.transport).model_validate({"simulate": runs, "slowdown": 1.5})
    return network.replaced(transport=transport)


def test_the_slowdown_of_plans_comes_from_runs_where_asked() -> None:
    """Asked for, the factor is the percentile of tails over the ideal on the same tree; else the constant stands."""
    network = small().instance.network
    known = factor(network), transport_slowdown_of(network), transport_slowdown_of(None)
    assert known == (None, network.transport.slowdown, 1.0)
    hashed = asking(transport="ecmp", seeds=5, percentile=100, hosts=128)
    found, box = factor(hashed), network.switches[0]
    same = {"hosts": found.hosts, "ports_per_switch": box.ports, "tiers": found.tiers}
    same |= {"down_ports": [box.ports // 2] * (found.tiers - 1), "plane_shares": [1 / box.planes] * box.planes}
    slowest = max(r.slowdown for r in planner.simulate(same, seeds=5).runs)
    assert found.slowdown == transport_slowdown_of(hashed) == pytest.approx(slowest, rel=1e-9)
    assert (found.configured_slowdown, found.switch) == (1.5, box.name)
    assert 1.0 < transport_slowdown_of(asking(transport="spray", hosts=128)) < 1.1
    assert factor(asking(transport="spray", seeds=1, hosts=32, oversubscription=4.0)).oversubscription == 4.0


def test_the_checker_replays_the_factor() -> None:
    """A plan that holds a factor that nobody asked for, another than its runs find, or none where asked, is refused."""
    plain, runs = small(), {"transport": "ecmp", "seeds": 3, "hosts": 64}
    asked = edited_at(plain, "instance.network.transport", {"simulate": runs})
    true = factor(asked.instance.network)

    def broken(p: Plan, **changed: Any) -> list[str]:
        stated = p if not changed else p.replaced(transport=true.replaced(**changed))
        return [v.message for v in check(stated) if v.rule == "transport_factor"]

    assert broken(plain) == broken(asked, seeds=3) == []
    assert broken(plain, seeds=3) == ["1 factors stated, 0 asked for by the instance"]
    assert broken(asked) == ["0 factors stated, 1 asked for by the instance"]
    assert "recomputed" in broken(asked, slowdown=true.slowdown * 0.99)[0]
    assert "seeds: 4 stated, 3 recomputed" in broken(asked, seeds=4)


@each("rate", [1e-308, 1e-9, 1e308])
def test_extreme_rates_are_named(rate: float) -> None:
    """A rate at which times leave the range of floats is refused by its path, and the ends of its range run."""
    with pytest.raises(InputError, match=r"fabric: host_gbps: must be from 1e-06 to 1e\+18 \(is "):
        planner.simulate(K8 | {"host_gbps": rate})
    for fine, size in ((1e-6, 1e18), (1e18, 1e-3)):
        found = planner.simulate(K8 | {"host_gbps": fine}, bytes_per_host=size)
        assert 1 <= found.mean_slowdown < 10
