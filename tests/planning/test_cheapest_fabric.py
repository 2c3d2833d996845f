"""A fabric asked for alone, fabrics of a plan side by side, and those of four tiers from the command line."""

import json
import math
import random
import re
import time
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import invoke, refusal
from each_case import each
from stored_plans import stored
from tiers import slow
from worked_plan import INSTANCE, edited_at, small

import planner
from planner.cli.fabric_commands import KEYS
from planner.errors import InputError
from planner.imports.command_options import FabricWish
from planner.imports.fabric_question import fabric_data
from planner.instance.instance import FabricInstance
from planner.models.fabric.fabric_templates import Templates
from planner.models.joint.joint_question import Solving
from planner.models.joint.solve_joint import solve_joint
from planner.physics import tick
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.plan.plan import Plan
from planner.plan.plan_files import plan_of
from planner.planning import cheapest_fabric
from planner.planning.load import load_instance, question_of
from planner.planning.site_fabrics import frontier, request_of
from planner.report.summary import summary
from planner.solvers.search_deadline import OutOfTimeError
from planner.sweeps.row_store import read_flat_rows

# Switches of each tier and links between switches as published, of hosts of eight GPUs unless said. Switches have
# 64 ports of 400 Gb/s where no others are named.
XDR = {"switch": ("144x800:200000:3000",), "nic": 800}
TWO_PLANES = {"switch": ("128x400:60000:1000",), "nic": 800, "max_lanes": 2, "planes": 2}
DUAL_TOR = {"switch": ("51.2T-256x200G",), "max_lanes": 2, "planes": 2, "oversubscription": "1.0667:1"}
PORTS_40 = {"switch": ("40x200:20000:600",), "nic": 200, "gpus": 1, "family": ("rack",)}
PUBLISHED: list[tuple[int, dict[str, Any], dict[str, int], int]] = [
    (96, {}, {"leaf": 24, "spine": 16}, 768),  # DGX SuperPOD H100, 3 SU
    (512, {}, {"leaf": 128, "spine": 128, "core": 64}, 8192),
    (1024, {"family": ("rail-only",)}, {"leaf": 256, "spine": 128}, 8192),
    (288, XDR, {"leaf": 32, "spine": 18}, 2304),  # DGX SuperPOD B300 XDR, 4 SU
    (512, TWO_PLANES, {"leaf": 128, "spine": 64}, 8192),  # DGX SuperPOD B300 Spectrum-4, 8 SU
    (1920, DUAL_TOR, {"leaf": 240, "spine": 120}, 28800),  # a pod of Alibaba HPN 7.0: 14,400 links of 400 Gb/s
    (800, PORTS_40, {"leaf": 40, "spine": 20}, 800),  # a zone of Fire-Flyer 2
    (1600, PORTS_40, {"leaf": 80, "spine": 80, "core": 40}, 3200),  # the three tiers that it is set beside
]


@pytest.fixture(autouse=True)
def no_tails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate no flows but where tails are asked for: nothing else depends on them."""
    if "tails" not in request.node.name:
        monkeypatch.setattr(cheapest_fabric.FabricSearch, "tails", lambda *_: (None, None))


def question(hosts: int, gpus: int = 8, nic: float = 400, **wish: Any) -> FabricInstance:
    """Return the question about a fabric that options ask."""
    return question_of(fabric_data(FabricWish(hosts=hosts, gpus_per_host=gpus, nic_gbps=nic, **wish)), {})


def designed(hosts: int, gpus: int = 8, nic: float = 400, **wish: Any) -> Plan:
    """Design a fabric from options and require that the checker agrees with it."""
    plan = planner.design_fabric(question(hosts, gpus, nic, **{"switch": ("64x400:36000:1000",), **wish}))
    assert planner.check(plan) == []
    return plan


HARDWARE = {"accelerator": "H100", "rack": {"name": "host", "gpus": 8, "it_kw": 10, "price_usd": 300_000}, "racks": 64}
NETWORK = {"switches": ["25.6T-64x400G"], "optics": {"name": "400G-DR4", "price_usd": 700, "power_watts": 9}}
ASKED: dict[Any, Any] = {"name": "mine", "hardware": HARDWARE, "network": NETWORK}  # as a file has it
ANY: dict[str, Any] = {"accelerator": "any", "rack": "DGX-H100", "racks": 8, "nic_bytes_per_second": 5e10}


def usd(plan: Plan) -> float:
    """Return the price of a fabric, infinite where there is none."""
    return plan.objective.value if plan.objective.value is not None else float("inf")


@pytest.mark.parametrize(("hosts", "wish", "switches", "links"), PUBLISHED)
def test_published_designs_come_out(hosts, wish, switches, links):
    plan = designed(hosts, **wish)
    f = plan.fabric.sites[CLUSTER]
    assert (plan.status, {t.name: t.switches for t in f.tiers}, f.switch_links) == ("optimal", switches, links)


@pytest.mark.slow
@pytest.mark.parametrize(("switch", "families", "tiers", "switches"), [
    ("256x800:150000:1100", ("rail",), 3, 16_489),  # as published once bundles are equal; 15,625 by ports alone
    ("256x800:150000:1100", ("rail", "rack"), 3, 15_800),
    ("64x800:50000:1100", ("rail",), 4, 92_008),  # equal bundles with full leaves; 87,500 by ports alone
])  # fmt: skip
def test_fabrics_of_800_000_gpus(switch: str, families: tuple[str, ...], tiers: int, switches: int) -> None:
    """At 1:1 no more switches than those published that can be wired, within seconds."""
    plan = designed(100_000, nic=800, switch=(switch,), family=families, max_tiers=tiers)
    f = plan.fabric.sites[CLUSTER]
    assert (plan.status, len(f.tiers), f.endpoint_links) == ("optimal", tiers, 800_000) and f.switches <= switches


def test_all_hosts_are_cabled_and_none_hangs_on_one_switch() -> None:
    """Eight hosts that one switch would take are joined by two spines, unless no loss need be survived."""
    plan = designed(8, 8)
    f = plan.fabric.sites[CLUSTER]
    assert (f.cabled_racks, f.endpoint_links) == (8, 64) and f.tiers[1].switches >= 2
    assert designed(8, 8, survives="none").fabric.sites[CLUSTER].switches == 1
    assert "one switch" in next(x for x in plan.fabric.alternatives if x.name == "rail-optimised, 1 tier").lost


@each(("hosts", "wish"), [(4, {}), (4, {"max_tiers": 1}), (1, {"family": ("rack", "rail")})])
def test_one_switch_is_of_leaves_by_host_too(hosts: int, wish: dict[str, Any]) -> None:
    plan = designed(hosts, survives="none", **{"family": ("rack",), **wish})
    assert usd(plan) == usd(designed(hosts, survives="none")) == 36_000 + hosts * 8 * 1_400
    chosen, *others = plan.fabric.alternatives
    assert chosen.fabric.switches == 1 and not [x for x in others if x.fabric and x.fabric.switches == 1]
    assert "1 switch, " in summary(plan, 200)


@each("family", ["rail", "rail-only", "rack"])
def test_spines_join_several_leaves(family: str) -> None:
    """A host has two leaves with some of its GPUs each, or hangs on one switch, with spines over it or without."""
    plan = designed(1, family=(family,))
    if family == "rail":
        assert plan.fabric.sites["cluster"].tiers[0].switches == 2
    else:
        assert (plan.status, plan.conflict.rules) == ("infeasible", ("network.families", "network.survives"))
        assert "one leaf takes all" in plan.conflict.reason
    assert designed(1, 1, survives="none", family=(family,)).status == "optimal"


@each(("hosts", "gpus", "wish", "reason"), [
    (512, 8, {"max_tiers": 2}, "join at most 2,048 GPUs, there are 4,096"),
    (100, 72, {"family": ("rack",)}, "a leaf of 64 ports takes at most 32 GPUs at 1:1, a host has 72 at each"),
    (64, 8, {"max_tiers": 1, "family": ("dragonfly+",), "survives": "none"}, "dragonfly+: has 2 tiers > network.max"),
])  # fmt: skip
def test_what_does_not_fit_is_told_in_numbers(hosts: int, gpus: int, wish: dict[str, Any], reason: str) -> None:
    """How many GPUs the tiers join, or a leaf by host takes at the ratio asked for, or tiers beyond the most."""
    plan = designed(hosts, gpus, **wish)
    assert plan.status == "infeasible" and reason in plan.conflict.reason


@cache
def stored_design() -> Plan:
    """Design a fabric of 64 hosts once, with groups at 3:1 where trees are given a ratio for each tier."""
    return designed(64, oversubscription="1:1,3:1")


@each(("path", "change"), [
    (f"fabric.sites.{CLUSTER}.cost_usd", lambda x: x / 2), (f"fabric.sites.{CLUSTER}.cabled_racks", 31),
    (f"fabric.sites.{CLUSTER}.switches", lambda n: n - 1), ("objective.bound", lambda x: x / 2),
    ("fabric.alternatives", lambda kinds: [*kinds[1:], kinds[0]]),  # what is built is no more the first
])  # fmt: skip
def test_a_changed_plan_is_refused(path: str, change: Any) -> None:
    """The checker counts again: a lower price, a missing host, a bound that is none and another kind are named."""
    assert planner.check(edited_at(stored_design(), path, change))


@each(("path", "change"), [
    ("fabric.cost_usd", lambda usd: usd - 500_000), ("fabric.power_mw", lambda mw: mw * 1.1),
    ("fabric.switches", lambda n: n - 1), ("bisection_tbps", lambda tbps: 2 * tbps), ("fabric.cabled_racks", 63),
    ("bisection_tbps", None), ("fabric.switch", "another"), ("fabric.split", 0),
    ("fabric.tiers.0.switches", lambda n: n - 1),
])  # fmt: skip
@pytest.mark.parametrize("name", ["rail-only, 2 tiers", "dragonfly", "dragonfly+", "leaf by host, 2 tiers"])
def test_a_changed_kind_is_refused(name: str, path: str, change: Any) -> None:
    """The checker counts each listed kind again: its price, power, counts and rate between halves."""
    plan = stored_design()
    place = [kind.name for kind in plan.fabric.alternatives].index(name)
    found = planner.check(edited_at(plan, f"fabric.alternatives.{place}.{path}", change))
    assert found and all(one.rule.startswith(f"listed[{name}]") for one in found), found


def test_a_file_asks_as_the_options_do(tmp_path: Path) -> None:
    """The question inside a plan is a file; exports, show, simulate and report take the plan; a round trip keeps it."""
    out = tmp_path / "fabric.json"
    options = ["--hosts", "32", "--gpus-per-host", "8", "--nic-gbps", "400", "--switch", "64x400:36000:1000"]
    found = invoke("fabric", "design", *options, "-o", out)
    assert found.exit_code == 0 and "Joins 32 hosts of 8 GPUs" in found.output, found.output
    plan = Plan.model_validate_json(out.read_text(encoding="utf-8"))
    assert isinstance(plan.instance, FabricInstance)
    assert KEYS.keys() == {f"--{field.name.replace('_', '-')}" for field in fields(FabricWish)}  # each has its key
    question = tmp_path / "question.json"
    question.write_text(json.dumps(plan.instance.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    again = invoke("fabric", "design", question, "--json")
    assert json.loads(again.output)["objective"] == plan.model_dump(mode="json")["objective"]
    assert invoke("check", out).output == ""
    assert "SLOWDOWN" in invoke("simulate", out).output
    for form in ("csv", "bom", "graphml", "svg", "slurm-conf"):
        exported = invoke("fabric", "export", out, "--format", form, "-o", tmp_path / form)
        assert exported.exit_code == 0, exported.output
    lost = tmp_path / "lost.csv"
    found = invoke("fabric", "export", out, "--format", "failure-domains", "-o", lost)
    told = lost.read_text(encoding="utf-8")
    assert "32 GPUs of 32 racks are cut off" in told, found.output
    assert all(line.endswith("no rank is placed to be slowed") for line in told.splitlines()[1:])
    for command in ("solve", "evaluate", "explain"):
        assert "a fabric alone" in refusal(invoke(command, out))
    assert invoke("report", out, "-o", tmp_path / "page.html").exit_code == 0


def test_alternatives_are_side_by_side() -> None:
    """The chosen kind is first; each other has its price and bisection, or why it has none or breaks a rule."""
    plan = designed(64)
    first, *others = plan.fabric.alternatives
    assert (first.lost, first.fabric) == ("", plan.fabric.sites[CLUSTER])
    assert all(x.lost and (x.fabric is None or x.bisection_tbps) for x in others)
    named = {x.name: x for x in others}
    assert {"rail-only, 1 tier", "dragonfly+", "dragonfly", "leaf by host, 2 tiers"} <= named.keys()
    assert "breaks survives: a rail hangs on one switch" in named["rail-only, 1 tier"].lost
    kept = named["rail-only, 2 tiers"]
    assert kept.fabric is not None and "breaks" not in kept.lost and "--survives" not in kept.lost


@pytest.mark.parametrize(("kind", "nic"), [("dragonfly", 400), ("dragonfly", 200), ("dragonfly+", 400)])
def test_ratios_of_groups_are_as_asked_for(kind: str, nic: float) -> None:
    """Of all links out of a leaf the ratio is within that asked for, with the one at worst where it is another."""
    plan = designed(128, nic=nic, survives="none", family=(kind,), oversubscription="7:1")
    told = re.search(r"\((\d+) down, (\d+) up, ([\d.]+):1(?: of all links, ([\d.]+):1 at worst)?", summary(plan, 400))
    down, up, of_all, worst = (float(x or told[3]) for x in told.groups())
    assert of_all == pytest.approx(down * nic / (up * 400), rel=0.01)
    assert 0.5 < of_all <= 7 and worst >= of_all


@each(("wish", "complaint"), [
    ({"switch": ("64x400:36K:1000",)}, r"'64x400:36K:1000': dollars must be a number from 0 \(is '36K'\); give PORTSx"),
    ({"switch": ("64x400:36000",)}, "'64x400:36000': watts missing; give PORTSx"),
    ({"switch": ("64x4T:1:W",)}, r"rate must be a number from 0 \(is '4T'\); watts must be a number from 0 \(is"),
    ({"switch": ("64x400:1:2:3",)}, "'64x400:1:2:3': has too many parts; give PORTSx"),
    ({"oversubscription": "0:2"}, "--oversubscription"),
    ({"oversubscription": ""}, "--oversubscription ''"),
    ({"family": ("rail,rack",)}, "--family 'rail,rack': must be .*; repeat the option for several$"),
    ({"family": ("dragonfly",)}, "--survives none"),
    ({"switch": ("0x400:100:1",)}, "--switch '0x400:100:1'"),
    ({"switch": ("64x400:1:1", "64x400:2:1")}, "same ports and rate"),
    ({"floor": "1e9x1e9"}, "--floor"),
    ({"floor": "0.6x2.4", "switch": ("51.2T-256x200G",)}, r"no media of 200G in the catalogue \(of 800G, 400G there"),
    ({"nic": 123.0, "switch": ()}, "--nic-gbps 123"),
    ({"oversubscription": "1:1,7:1,2:1,2:1"}, "--oversubscription .* at most of leaf, spine and core"),
    ({"family": ("raill",)}, "--family 'raill': must be one of rail, rack"),
    ({"nic": 100, "switch": ("64x100:8000:300",), "transceiver_usd": 100.0}, "--transceiver-watts"),
    ({"floor": "0.6x2.4", "transceiver_watts": 5.0}, "--transceiver-watts"),
    ({"planes": 2}, r"--planes 2: no switch has 2 planes for .* \(1 offered\).*--switch 51.2T-256x200G --max-lanes 2$"),
    ({"planes": 3, "max_lanes": 2}, r"3: no switch has 3 planes for .* \(1 offered\).*the catalogue has 1, 2, 4, 8$"),
])  # fmt: skip
def test_wrong_options_are_named(wish: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        designed(4, **wish)


@each(("words", "complaint"), [
    ("design --hosts 4", "--gpus-per-host, --nic-gbps"),
    ("design --hosts abc", "--hosts: must be a whole number from 1 to 1,000,000 (is 'abc'); give it in digits"),
    ("design --hosts 2K", "(is '2K'); write 2000"),
    ("design --budget 3M", "--budget: must be a number above 0 up to 1e+15 (is '3M'); write 3e6"),
    ("design --planes two", "--planes: must be a whole number from 1 to 1,024 (is 'two'); give it in digits"),
    ("design FILE --switch 64x400:1:1", "--switch"),  # of what the file answers
    ("design FILE --max-tiers 2", "--max-tiers"),
    ("design FILE --budget 1e6", "write limits.budget_usd there"),
    ("pareto FILE --every", "a fabric alone has no traffic"),
])  # fmt: skip
def test_commands_that_ask_too_little_or_too_much_are_refused(words: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "asked.json"
    path.write_text(designed(8).model_dump_json() if "pareto" in words else "{}", encoding="utf-8")
    assert complaint in refusal(invoke("fabric", *words.replace("FILE", str(path)).split()))
    assert list(tmp_path.iterdir()) == [path]


def test_the_best_so_far_is_kept_where_the_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that time ends among three tiers has the cheapest of two, and says that nothing is proven."""
    proven, whole = designed(32), Templates._add

    def ending(tables: Any, build: Any, tiers: int, sites: Any, **how: int) -> None:
        if tiers > 2:
            raise OutOfTimeError
        whole(tables, build, tiers, sites, **how)

    monkeypatch.setattr(Templates, "_add", ending)
    plan = designed(32)
    assert (plan.status, plan.objective.bound, usd(plan)) == ("feasible", None, usd(proven))
    assert {"not searched: the time limit came"} < {x.lost for x in plan.fabric.alternatives}


def test_pins_of_the_one_site_are_kept() -> None:
    """A decision that is pinned for the cluster alone is as one for every site; none is left out in silence."""
    asked = question(32, **{"switch": ("64x400:36000:1000",), "rails_per_leaf": 1})
    pins = {"fabric.cluster.tiers": 3, "fabric.cluster.leaf_bundle": 2, "fabric.cluster.rails_per_pod": 4}
    plan = planner.design_fabric(question_of(asked, pins))
    f = plan.fabric.sites[CLUSTER]
    assert (len(f.tiers), f.tiers[0].bundle, f.rails_per_pod) == (3, 2, 4) and planner.check(plan) == []
    assert "pins: tiers is 3" in {x.lost for x in plan.fabric.alternatives}


@each("name", ["net.json", "net.yaml"])
def test_a_question_about_a_fabric_is_told_where_to_ask(name: str, tmp_path: Path) -> None:
    """Commands that need a workload or a plan name the command that needs neither."""
    asked = question(8).model_dump(mode="json", exclude_none=True)
    asked["hardware"]["accelerator"] = "H100"
    (path := tmp_path / name).write_text(json.dumps(asked))
    for words in ("solve FILE", f"fabric export FILE --format csv -o {tmp_path / 'x'}"):
        assert f"`planner fabric design {path}" in refusal(invoke(*words.replace("FILE", str(path)).split()))
    assert invoke("fabric", "design", path).exit_code == 0


def test_pins_leave_the_rules_of_options() -> None:
    """Where options ask for no loss to survive and for any ratio, or for a price or watts, a pin changes none."""
    free = question(8, survives="none", oversubscription="any")
    pinned = question_of(free, {"fabric.tiers": 2})
    assert pinned.network == free.network and pinned.network.survives is None
    assert pinned.pins == {"fabric.tiers": 2}
    optics = question(8, transceiver_watts=50.0).network.optics  # of a transceiver watts count alone too
    free = question(8, transceiver_usd=5.0, transceiver_watts=0.0).network.optics
    assert (optics.price_usd, optics.power_watts, free.power_watts) == (700, 50, 0)


def test_a_file_has_the_rules_of_options() -> None:
    """Without a ratio or a loss a file asks for 1:1 and for the loss of a spine; null asks for neither."""

    def rules(**more: Any) -> tuple[Any, ...]:
        found = question_of({**ASKED, "network": NETWORK | more}, {}).network
        return found.max_oversubscription, found.survives

    assert rules() == (1.0, "one_spine")
    assert rules(max_oversubscription=None, survives=None) == (None, None)
    assert rules(families=["rail", "dragonfly"], min_core_share=0.5) == (None, None)


def test_hosts_of_any_accelerator_may_be_named() -> None:
    """Rack and switches of the catalogue are taken without an accelerator, and a figure of numpy is a number."""
    plan = planner.design_fabric({**ASKED, "hardware": ANY | {"racks": np.int64(8)}})
    assert plan.status == "optimal" and (plan.instance.hardware.rack.gpus, plan.instance.hardware.racks) == (8, 8)
    assert planner.check(plan_of(plan.model_dump(mode="json"), "plan.json")) == []


@each(("change", "complaint"), [
    ({3: 4}, "fabric design: 3: unknown key"),
    ({"hardware": 5}, "fabric design: hardware: "),
    ({"pins": 5}, "fabric design: pins: "),
    ({"hardware": ANY | {"nic_bytes_per_second": None}}, 'hardware: accelerator "any" says no rate of a NIC'),
    ({"hardware": ANY | {"accelerator": "B2000"}}, r"hardware\.accelerator: 'B2000' is not in the catalogue"),
    ({"pins": {"layout.tensor_parallel": 8}}, r"pins\.layout\.tensor_parallel: decides nothing of a fabric alone"),
    ({"workload": {"model": "llama3-70b"}}, "has workload, which a fabric alone does not count"),
])  # fmt: skip
def test_wrong_questions_are_named(change: dict[Any, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        question_of(ASKED | change, {})


def test_figures_are_written_for_a_reader() -> None:
    """Power above a megawatt is in MW, one switch is one, and ratios of dragonflies are those of the worst traffic.

    A NIC of 400 Gb/s on a whole port of 800 leaves half of it; on half a port, or one of its rate, nothing.
    """
    assert re.search(r"\d MW\. Proven", summary(designed(2048, max_tiers=3), 200))
    assert re.search(r"1 tier: \$[^;]*, 1 switch, ", summary(designed(5), 200))
    assert "56:1 at worst" in summary(designed(128, survives="none", family=("dragonfly",)), 200)
    told = summary(designed(8, switch=("51.2T-64x800G",)), 200)
    assert "carry 400 Gb/s of NICs" in told and "Links between switches carry it whole" in told
    for switch in ("51.2T-64x800G-breakout", "64x400:36000:1000"):
        assert "of NICs" not in summary(designed(8, switch=(switch,)), 200)


def test_ports_that_split_are_not_missed_where_they_stay_whole() -> None:
    """A leaf of one GPU of each of eight hosts has ports to spare: none is split, and no others are wanted."""
    given = {"switch": ("64x800:36000:1000",), "transceiver_usd": 700.0, "transceiver_watts": 9.0}
    asked = question(8, 72, rails_per_leaf=1, **given)
    boxes = (asked.network.switches[0].replaced(breakout=2),)
    plan = planner.design_fabric(asked.replaced(network__switches=boxes, network__max_tiers=3))
    assert plan.fabric.sites[CLUSTER].split == 1 and "of NICs" not in summary(plan, 200)


@pytest.mark.parametrize("seed", range(12))
def test_ports_of_twice_the_rate_of_a_nic_carry_two_up(seed: int) -> None:
    """On whole ports of 800 Gb/s a NIC of 400 takes half of a link up: the price is that of loops over the rates."""
    r = random.Random(seed)
    ports, hosts, rails, ratio = r.choice([8, 12, 16]), r.randint(3, 30), r.choice([1, 2, 3]), r.choice([1, 1.5, 3])
    price, optic = r.choice([1000, 30_000]), r.choice([100.0, 900.0])
    own = {"switch": (f"{ports}x800:{price}:500",), "transceiver_usd": optic, "transceiver_watts": 5.0}
    plan = designed(hosts, rails, max_tiers=2, oversubscription=f"{ratio:g}:1", **own)
    shared = [n for n in range(1, rails + 1) if rails % n == 0]
    by_hand = [cheapest_tree(hosts, rails // n, ports, price, 2 * optic, n, 2 * ratio) for n in shared]
    assert usd(plan) == pytest.approx(min(by_hand))


def cheapest_tree(
    hosts: int, rails: int, ports: int, price: float, link: float, each: int, down_to_up: float = 0.0
) -> float:
    """Return by loops the price of the cheapest tree, of three tiers at 1:1, or of two at the ratio of links given.

    A leaf takes `each` GPUs of its hosts.
    """
    # Two spines to a leaf and two cores at least; cores take bundles of the spines of all pods in turn.
    best = float("inf")
    sizes = [d * each for d in range(hosts if rails == 1 < each else 1, hosts + 1)]
    for down, up in ((d, u) for d in sizes for u in range(2, ports - d + 1) if d <= u * (down_to_up or 1) + 1e-9):
        domains = -(-hosts * each // down)
        if rails * domains == 1:
            continue
        below = rails * domains * (price + up * link) + hosts * each * rails * link
        for bundle in (b for b in range(1, up // 2 + 1) if up % b == 0 and below < best):
            spines = up // bundle
            if bundle * rails * domains <= ports:
                best = min(best, below + spines * price)
            if down_to_up:
                continue
            for x, y in ((x, y) for x in range(1, rails + 1) for y in range(1, domains + 1) if x * y * bundle < ports):
                pods = -(-rails // x) * -(-domains // y)
                for out in range(max(1, -(-down * x * y // spines)), ports - x * y * bundle + 1):
                    usd = below + pods * spines * (price + out * link)
                    for b in (b for b in range(1, out + 1) if out % b == 0 and pods * b <= ports and usd < best):
                        cores = max(2, -(-spines * out // b // (ports // (pods * b))))
                        best = min(best, usd + cores * price) if cores <= spines * out // b else best
    return best


@pytest.mark.parametrize(("hosts", "gpus"), [(9, 24), *slow((14, 72)), (18, 8), (5, 8)])
def test_rails_share_the_leaves_that_they_do_not_fill(hosts: int, gpus: int) -> None:
    """A leaf takes as many GPUs of each of its hosts as is cheapest: no wiring of the space costs less."""
    shared = [n for n in range(1, gpus + 1) if gpus % n == 0]
    for most in (1, None):
        plan = designed(hosts, gpus, max_tiers=3, rails_per_leaf=most)
        each = [cheapest_tree(hosts, gpus // n, 64, 36_000, 1_400, n) for n in shared[:most]]
        assert usd(plan) == pytest.approx(min(each))
        parts = plan.fabric.sites[CLUSTER].rails_per_leaf
        other = plan.fabric.sites[CLUSTER].replaced(rails_per_leaf=2 if parts == 1 else 1)
        assert planner.check(plan.replaced(fabric__sites={CLUSTER: other}))
        assert f"with {shared[each.index(min(each))]} GPUs of each" in summary(plan, 400) or min(each) == each[0]


def test_fabrics_by_ratio_are_those_of_each_ratio(tmp_path: Path) -> None:
    """Of each oversubscription the cheapest fabric is listed where it is cheaper than at those before."""
    plan = designed(96)
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    (tmp_path / "question.json").write_text(plan.instance.model_dump_json())
    ran, asked = (invoke("fabric", "pareto", tmp_path / f"{name}.json", "--json") for name in ("plan", "question"))
    assert asked.stdout == ran.stdout
    least, listed = math.inf, {row["oversubscription"]: row for row in json.loads(ran.stdout)}
    for most in cheapest_fabric.RATIOS:
        own = designed(96, oversubscription="any" if most is None else f"{most}:1")
        assert (most in listed) == (usd(own) < least)
        for x in own.fabric.alternatives:  # each carries a share of the hosts' rate, not of what the chosen one does
            if told := x.lost.partition("carries ")[2]:
                assert float(told.split()[0]) == pytest.approx(100 * x.bisection_tbps / (96 * 8 * 0.4 / 2), abs=1)
        if most in listed:
            least = listed[most]["cost_usd"]
            assert least == pytest.approx(usd(own)) and listed[most]["carried_share"] >= 1 / (most or math.inf) - 1e-9
    (tmp_path / "plan.json").write_text(designed(96, budget=least).model_dump_json())
    within = json.loads(invoke("fabric", "pareto", tmp_path / "plan.json", "--json").stdout)
    assert [row["cost_usd"] for row in within] == [least]  # of the ratios that its budget, too small for 1:1, buys


@each("family", ["rail", "rack", "dragonfly", "dragonfly+"])
@pytest.mark.filterwarnings("error")
def test_links_that_no_medium_spans_warn_of_nothing(family: str) -> None:
    """Cables that reach no switch leave no fabric of several, said without a word of numpy's."""
    copper = {"name": "dac", "reach_m": 3.0, "price_usd": 130.0, "usd_per_m": 0.0}
    data = designed(34, 1, switch=("16x400:5175:100",), family=(family,), survives="none").instance.model_dump()
    data["network"] |= {"floor": {"rise_m": 1.0, "spread_m": 5.0}, "media": [copper]}
    plan = planner.design_fabric(data)
    assert (plan.status, "no cable reaches" in plan.conflict.reason) == ("infeasible", True)


def test_options_that_would_allow_a_kind_do() -> None:
    """What a kind that lost names is enough: asked with these options it is chosen or as cheap as what is."""
    plan = designed(32, oversubscription="1:1,3:1")
    told = {x.name: x for x in plan.fabric.alternatives if "would allow it" in x.lost}
    assert {"rail-only, 1 tier", "dragonfly", "dragonfly+"} <= set(told)
    for x in told.values():
        words = x.lost.rpartition("; ")[2].removesuffix(" would allow it").split()
        options = dict(zip(words[::2], words[1::2], strict=True))
        wish = {"family": (options.get("--family", "rail"),)}
        wish |= {"survives": options["--survives"]} if "--survives" in options else {}
        again = designed(32, **wish, oversubscription=options.get("--oversubscription", "1:1,3:1"))
        assert x.fabric.family == again.fabric.sites[CLUSTER].family
        assert usd(again) <= x.fabric.cost_usd * (1 + 1e-9)


@pytest.mark.slow
def test_rules_in_conflict_are_the_fewest() -> None:
    found = designed(512, max_tiers=2).conflict.rules
    assert found == ("network.families", "network.max_tiers")  # a rail alone fits two tiers
    cheap = designed(64, budget=usd(designed(64)) * 0.9).conflict.rules
    assert cheap[0] == "limits.budget_usd" and "network.max_tiers" not in cheap


def test_rules_in_conflict_are_all_where_the_time_ends_in_the_last_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fabric that was not found in the time left does not say that the rule left out is of no use."""
    asked, clock = question(4, 1).replaced(pins={"fabric.tiers": 1}), SimpleNamespace(passed=False)

    def cheapest(looser: cheapest_fabric.FabricSearch, *_: Any) -> Any:
        clock.passed = not looser.instance.pins  # the last rule to be left out
        return SimpleNamespace(template=None)

    monkeypatch.setattr(cheapest_fabric.FabricSearch, "cheapest", cheapest)
    search: Any = cheapest_fabric.FabricSearch
    found = search(asked, asked.network, clock).in_conflict(math.inf)
    assert found[0] == "network.families" and found[-1] == "pins.fabric.tiers" and len(found) > 3


def test_tails_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = designed(32, 1)

    def late(*_: Any) -> None:
        time.sleep(1.0)
        tick()

    monkeypatch.setattr(cheapest_fabric, "flow_seconds", late)
    timed = planner.design_fabric(plan.instance, time_limit=1)
    assert timed.status == "optimal"
    assert timed.fabric.alternatives[0].ecmp_tail is None
    assert "tails were not simulated" in summary(timed, 200)


def test_tails_under_an_oversubscribed_tier_are_of_what_it_carries() -> None:
    """Sprayed, a random permutation takes what leaves a pod over what its uplinks carry, hashed longer, as any tree."""
    plan = designed(64, 8, switch=("16x400:9000:300",), max_tiers=3, oversubscription="1:1,4:1")
    chosen = plan.fabric.alternatives[0]
    carried = chosen.bisection_tbps / (64 * 8 * 0.4 / 2)
    assert len(chosen.fabric.tiers) == 3 and carried == pytest.approx(0.25, abs=0.03)
    assert 0.7 / carried < chosen.spray_tail < 1.3 / carried
    trees = [x for x in plan.fabric.alternatives if x.fabric is not None and "dragonfly" not in x.name]
    assert len(trees) > 1 and all(x.ecmp_tail >= x.spray_tail >= 1 for x in trees)


def test_no_tails_are_simulated_where_they_say_nothing() -> None:
    """Of deep oversubscription there are none, nor of one host's GPUs, each alone in its network of rail-only."""
    chosen = designed(2048, 8, oversubscription="any").fabric.alternatives[0]
    assert chosen.spray_tail is None and chosen.bisection_tbps > 0
    plan = designed(1, 6, switch=("4x400:1000:1",), oversubscription="any")
    tails = {x.name: x.spray_tail for x in plan.fabric.alternatives if x.fabric is not None}
    assert plan.status == "optimal" and all(tail is None or tail >= 1 for tail in tails.values())
    assert tails["rail-only, 1 tier"] is None


PLAN = small()
INSTANCES = Path(__file__).parents[2] / "instances"


@each("sizes", [(), (2, 4)])
def test_designs_are_of_the_plan_and_of_the_sizes(sizes: tuple[int, ...]) -> None:
    rows = list(frontier(PLAN, leaf_sizes=sizes))
    assert {x["site"] for x in rows} == {"e1", "w1"}
    for x in rows:
        request = request_of(PlanPhysics(plan=PLAN), PLAN.layout, x["site"])
        slowed = request.pipeline_send_seconds * x["pipeline_send_slowdown"]
        assert slowed <= request.pipeline_send_window_seconds * (1 + 1e-9)
        assert not sizes or x["leaf_domain_racks"] in sizes
    axes = ("cost", "leaf", "time")  # which may come from an iterator
    assert list(frontier(PLAN, axes=iter(axes))) == list(frontier(PLAN, axes=axes))


def cheapest(plan: Plan, **built: int) -> float:
    """Return the least cost of a fabric for the plan of one site, other GPUs of which are cabled."""
    site = plan.fabric.sites["cluster"].replaced(**built)
    fabric = plan.fabric.replaced(sites={"cluster": site})
    return min(x["cost_usd"] for x in frontier(plan.replaced(fabric=fabric)))


def test_only_what_is_cabled_is_joined() -> None:
    """A plan with one tier of switches over seven racks of ten has no cheaper fabric; half the GPUs cost half."""
    data = json.loads((INSTANCES / "cluster-1k.json").read_text())
    data["hardware"]["racks"] = 10
    data["pins"] = {"layout.tensor_parallel": 4, "layout.pipeline_parallel": 7, "layout.virtual_stages": 4}
    data["network"] |= {"families": ["rail-only"], "max_tiers": 1}
    plan = stored(data)
    own = plan.fabric.sites["cluster"]
    assert own.cabled_racks == 7
    assert cheapest(plan) == own.cost_usd < cheapest(plan, cabled_racks=0)
    assert cheapest(plan, wired_gpus_per_rack=4) == own.cost_usd / 2


def pareto(folder: Path, *options: str) -> Any:
    (folder / "p.json").write_text(PLAN.model_dump_json())
    return invoke("fabric", "pareto", folder / "p.json", *options)


def test_none_is_an_answer_and_no_time_is_none(tmp_path: Path) -> None:
    """Where no design of a size is possible the rules are named; where the time ended first nothing is claimed."""
    done = pareto(tmp_path, "--leaf-sizes", "999")
    says, rules = done.stderr.splitlines()
    assert (done.exit_code, done.stdout, says) == (3, "", "no fabric carries the plan's traffic")
    assert rules.startswith("given: switches of one port rate in one family (rail); at most ")
    assert "leaf domains of 999 racks" in rules
    late = pareto(tmp_path, "--time-limit", "1e-9")
    assert (late.exit_code, late.stdout) == (4, "")
    assert late.stderr.splitlines()[-1] == "no fabric was proven in the time given; give more"


@pytest.mark.parametrize("axes", [[], ["--axes", "time"], ["--axes", "leaf,splits"]])
def test_rows_are_printed_and_can_be_drawn(tmp_path: Path, axes: list[str]) -> None:
    """A table has a line a design and a head; JSON and the rows that the plot takes hold every figure of each."""
    rows, picture, cells = tmp_path / "rows.jsonl", tmp_path / "frontier.svg", tmp_path / "rows.csv"
    shown, data = pareto(tmp_path, *axes, "-o", str(rows)), json.loads(pareto(tmp_path, *axes, "--json").stdout)
    of = "-x", "cost_usd", "-y", "pipeline_send_slowdown", "--color", "leaf_domain_racks"
    assert (shown.exit_code, invoke("plot", rows, *of, "-o", picture).exit_code) == (0, 0)
    assert len(rows.read_text().splitlines()) == len(shown.stdout.splitlines()) - 1 == len(data) > 0
    assert {"site", "cost_usd", "unavoidable_splits", "power_mw", "leaf_domain_racks"} <= set(data[0])
    assert "<svg" in picture.read_text()
    assert pareto(tmp_path, *axes, "-o", str(cells)).exit_code == 0 and "cost_usd" in invoke("compare", cells).stdout
    assert [row["cost_usd"] for row in read_flat_rows(cells)] == [row["cost_usd"] for row in data]


@each(("options", "words"), [
    (["--axes", "cost"], "cost alone"), (["--axes", "cost,tme"], "did you mean 'time'"),
    (["--axes", ""], "is no axis"), (["-o", "rows.txt"], ".jsonl"), (["--leaf-sizes", "4,x"], "--leaf-sizes"),
    (["--pin", "fabric.planes=2"], "--pin: "),
])  # fmt: skip
def test_bad_options_are_refused(tmp_path: Path, options: list[str], words: str) -> None:
    """An axis that is not known, cost alone and a file of another kind are refused with what to write."""
    assert words in refusal(pareto(tmp_path, *options))


ALL_RACKS = {"layout.tensor_parallel": 4, "layout.pipeline_parallel": 8, "layout.data_parallel": 3}
ONE_LAYOUT = ALL_RACKS | {"layout.virtual_stages": 1, "layout.zero_stage": 1, "layout.recompute": "none"}


def cluster(ports: int, pins: dict[str, Any], **network: Any) -> dict[str, Any]:
    """Return an instance of one cluster of 24 racks of four GPUs, on boxes of so many ports."""
    box = {**INSTANCE["network"]["switches"][0], "ports": ports, "planes": 1}
    data = {k: v for k, v in INSTANCE.items() if k not in ("grid", "wan")}
    data |= {"hardware": {**INSTANCE["hardware"], "racks": 24}, "limits": {"max_batch_tokens": 6000}}
    return data | {"network": {**INSTANCE["network"], "switches": [box], **network}, "pins": pins}


@pytest.mark.slow
def test_small_boxes_or_a_pin_ask_for_four_tiers() -> None:
    """Boxes of five ports cannot join 96 GPUs in three tiers; of sixteen they do, but under a pin on the core."""
    assert solve_joint(load_instance(cluster(5, ONE_LAYOUT, max_tiers=3)), Solving()).status == "infeasible"
    plan = planner.solve(cluster(5, ONE_LAYOUT, max_tiers=4))
    f = plan.fabric.sites[CLUSTER]
    assert [tier.name for tier in f.tiers] == ["leaf", "spine", "core", "super-spine"] and f.zones > 1
    assert plan.fabric.certificate.status == "optimal" and planner.check(plan) == []
    few = planner.solve(cluster(16, ONE_LAYOUT, max_tiers=4)).fabric.sites[CLUSTER]
    pinned = planner.solve(cluster(16, ONE_LAYOUT | {"fabric.core_up_ports": 1}))
    four = pinned.fabric.sites[CLUSTER]
    assert len(few.tiers) < 4 == len(four.tiers) and few.zones == 0 and planner.check(pinned) == []
    assert four.cost_usd > few.cost_usd


@pytest.mark.slow
def test_a_plan_comes_before_deep_tables() -> None:
    """Two sites with over a thousand racks each, four tiers allowed, have a plan in seconds of CPU."""
    asked = planner.changed("two-sites-405b", {"network.max_tiers": 4})
    end, began = planner.Interrupter(), time.process_time()
    plan = planner.solve(asked, interrupt=end, on_progress=lambda e: end.interrupt() if e.incumbent else None)
    assert (plan.status, plan.stopped) == ("feasible", "interrupted")
    assert time.process_time() - began < 15
