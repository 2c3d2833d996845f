"""A fabric asked for alone: published designs come out, rules behave as a buyer expects, files go everywhere."""

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tiers import more
from typer.testing import CliRunner
from worked_plan import edited_at

import planner
from planner.cli.main import app
from planner.errors import InputError
from planner.instance.instance import FabricInstance
from planner.physics.num import tick
from planner.physics.plan_physics import CLUSTER
from planner.plan.plan import Plan
from planner.planning import fabric_design
from planner.planning.load import FabricWish, question_of, question_of_options
from planner.report.summary import summary

# Switches of each tier and links between switches of non-blocking fabrics of 64 ports of 400 Gb/s, as published for
# GPU clusters of 128, 256 and 512 hosts of eight GPUs and of 1,024 hosts by rail.
PUBLISHED: list[tuple[int, tuple[str, ...], dict[str, int], int]] = [
    (128, ("rail",), {"leaf": 32, "spine": 16}, 1024),
    (256, ("rail",), {"leaf": 64, "spine": 32}, 2048),
    (512, ("rail",), {"leaf": 128, "spine": 128, "core": 64}, 8192),
    (1024, ("rail-only",), {"leaf": 256, "spine": 128}, 8192),
]


@pytest.fixture(autouse=True)
def no_tails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate no flows but where tails are asked for: nothing else depends on them."""
    if "tails" not in request.node.name:
        monkeypatch.setattr(fabric_design, "_tails", lambda *_: (None, None))


def designed(hosts: int, gpus: int = 8, nic: float = 400, **wish: Any) -> Plan:
    """Design a fabric from options and require that the checker agrees with it."""
    given = {"switches": ("64x400:36000:1000",), **wish}
    plan = planner.design_fabric(
        question_of_options(FabricWish(hosts=hosts, gpus_per_host=gpus, nic_gbps=nic, **given))
    )
    assert planner.check(plan) == []
    return plan


def usd(plan: Plan) -> float:
    """Return the price of a fabric, infinite where there is none."""
    return plan.objective.value if plan.objective.value is not None else float("inf")


@pytest.mark.parametrize(("hosts", "families", "switches", "links"), PUBLISHED)
def test_published_designs_come_out(
    hosts: int, families: tuple[str, ...], switches: dict[str, int], links: int
) -> None:
    plan = designed(hosts, families=families)
    f = plan.fabric.sites[CLUSTER]
    assert (plan.status, {t.name: t.switches for t in f.tiers}, f.switch_links) == ("optimal", switches, links)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("switch", "families", "tiers", "switches"),
    [
        ("256x800:150000:1100", ("rail",), 3, 16_489),  # as published once bundles are equal; 15,625 by ports alone
        ("256x800:150000:1100", ("rail", "rack"), 3, 15_800),
        ("64x800:50000:1100", ("rail",), 4, 92_008),  # equal bundles with full leaves; 87,500 by ports alone
    ],
)
def test_fabrics_of_800_000_gpus(switch: str, families: tuple[str, ...], tiers: int, switches: int) -> None:
    """At 1:1 no more switches than those published that can be wired, within seconds."""
    plan = designed(100_000, nic=800, switches=(switch,), families=families, max_tiers=tiers)
    f = plan.fabric.sites[CLUSTER]
    assert (plan.status, len(f.tiers), f.endpoint_links) == ("optimal", tiers, 800_000) and f.switches <= switches


@pytest.mark.parametrize("seed", [*range(12), *more(*range(12, 24))])
def test_more_choice_is_never_dearer(seed: int) -> None:
    """Another switch, family or tier, a looser ratio and no loss to survive: none makes the cheapest fabric dearer."""
    r = random.Random(seed)
    hosts, gpus, ratio = r.randint(2, 40), r.choice([1, 2, 4]), r.choice([1, 1.5, 2, 4])
    ports = r.choice([8, 16, 32])
    own = {"switches": (f"{ports}x400:{r.randint(1, 60)}000:500",), "oversubscription": f"{ratio:g}:1", "max_tiers": 3}
    base = usd(designed(hosts, gpus, **own))
    other = (*own["switches"], f"{2 * ports}x400:{r.randint(1, 200)}000:900")
    looser: list[dict[str, Any]] = [
        {"switches": other},
        {"oversubscription": f"{ratio + 1:g}:1"},
        {"oversubscription": "any"},
        {"survives": "none"},
        {"families": ("rail", "rack")},
        {"max_tiers": 4},
    ]
    for change in looser:
        assert usd(designed(hosts, gpus, **{**own, **change})) <= base * (1 + 1e-9), change
    assert usd(designed(hosts + 1, gpus, **own)) >= base * (1 - 1e-9) or hosts + 1 <= ports


def test_all_hosts_are_cabled_and_none_hangs_on_one_switch() -> None:
    """Eight hosts that one switch would take are joined by two spines, unless no loss need be survived."""
    plan = designed(8, 8)
    f = plan.fabric.sites[CLUSTER]
    assert (f.cabled_racks, f.endpoint_links) == (8, 64) and f.tiers[1].switches >= 2
    assert designed(8, 8, survives="none").fabric.sites[CLUSTER].switches == 1
    assert "one switch" in next(x for x in plan.fabric.alternatives if x.name == "rail-optimised, 1 tier").lost


def test_a_budget_below_the_cheapest_is_refused_with_its_figure() -> None:
    price = usd(designed(32))
    plan = designed(32, budget_usd=price / 2)
    assert plan.status == "infeasible" and "limits.budget_usd" in plan.conflict.rules
    assert usd(designed(32, budget_usd=price)) == price


@pytest.mark.parametrize("family", ["rail", "rail-only"])
def test_one_host_has_a_fabric(family: str) -> None:
    """A single host is joined to leaves, or to one switch a rail, though nothing crosses it."""
    assert designed(1, families=(family,)).status == "optimal"
    assert designed(1, 1, survives="none", families=(family,)).status == "optimal"


@pytest.mark.parametrize(
    ("hosts", "gpus", "wish", "reason"),
    [
        (512, 8, {"max_tiers": 2}, "join at most 2,048 GPUs, there are 4,096"),
        (100, 72, {"families": ("rack",)}, "a leaf of 64 ports takes at most 32 GPUs at 1:1, a host has 72 at each"),
    ],
)
def test_what_does_not_fit_is_told_in_numbers(hosts: int, gpus: int, wish: dict[str, Any], reason: str) -> None:
    """How many GPUs the tiers join, or a leaf by host takes at the ratio asked for."""
    plan = designed(hosts, gpus, **wish)
    assert plan.status == "infeasible" and reason in plan.conflict.reason


def test_a_changed_plan_is_found_out() -> None:
    """The checker counts again: a lower price, a missing host and a bound that is none are named."""
    plan = designed(32)
    for path, change in (("cost_usd", lambda x: x / 2), ("cabled_racks", 31), ("switches", lambda n: n - 1)):
        assert planner.check(edited_at(plan, f"fabric.sites.{CLUSTER}.{path}", change)), path
    assert planner.check(edited_at(plan, "objective.bound", lambda x: x / 2))


def test_a_file_asks_as_the_options_do(tmp_path: Path) -> None:
    """The question inside a plan is a file; exports, show, simulate and report take the plan; a round trip keeps it."""
    run, out = CliRunner(), tmp_path / "fabric.json"
    options = ["--hosts", "32", "--gpus-per-host", "8", "--nic-gbps", "400", "--switch", "64x400:36000:1000"]
    found = run.invoke(app, ["fabric", "design", *options, "-o", str(out)])
    assert found.exit_code == 0, found.output
    assert "Joins 32 hosts of 8 GPUs" in found.output
    plan = Plan.model_validate_json(out.read_text(encoding="utf-8"))
    assert isinstance(plan.instance, FabricInstance)
    question = tmp_path / "question.json"
    question.write_text(json.dumps(plan.instance.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    again = run.invoke(app, ["fabric", "design", str(question), "--json"])
    assert json.loads(again.output)["objective"] == plan.model_dump(mode="json")["objective"]
    assert run.invoke(app, ["check", str(out)]).output == ""
    assert "SLOWDOWN" in run.invoke(app, ["simulate", str(out)]).output
    for form in ("csv", "bom", "graphml", "svg", "slurm-conf"):
        exported = run.invoke(app, ["fabric", "export", str(out), "--format", form, "-o", str(tmp_path / form)])
        assert exported.exit_code == 0, exported.output
    lost = tmp_path / "lost.csv"
    found = run.invoke(app, ["fabric", "export", str(out), "--format", "failure-domains", "-o", str(lost)])
    assert "32 GPUs of 32 racks are cut off" in lost.read_text(encoding="utf-8"), found.output
    for command in ("solve", "evaluate", "explain"):
        refused = run.invoke(app, [command, str(out)])
        assert isinstance(refused.exception, InputError) and "a fabric alone" in str(refused.exception)
    assert run.invoke(app, ["report", str(out), "-o", str(tmp_path / "page.html")]).exit_code == 0


def test_alternatives_stand_side_by_side() -> None:
    """The chosen kind is first; each other has its price and bisection, or says why it has no design."""
    plan = designed(64)
    first, *others = plan.fabric.alternatives
    assert (first.lost, first.fabric) == ("", plan.fabric.sites[CLUSTER])
    assert {"rail-only, 1 tier", "dragonfly+", "dragonfly", "leaf by host, 2 tiers"} <= {x.name for x in others}
    assert all(x.lost for x in others)
    assert all(x.bisection_tbps for x in others if x.fabric is not None)


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"switches": ("64x400",)}, "--switch '64x400'"),
        ({"oversubscription": "1:2"}, "--oversubscription"),
        ({"floor": "0.6"}, "--floor"),
        ({"families": ("ring",)}, "--family 'ring'"),
        ({"families": ("dragonfly",)}, "--survives none"),
        ({"switches": ("0x400:100:1",)}, "--switch '0x400:100:1'"),
        ({"switches": ("64x400:1:1", "64x400:2:1")}, "same ports and rate"),
        ({"floor": "1e9x1e9"}, "--floor"),
        ({"floor": "0.6x2.4"}, "no media of 400G"),
        ({"nic": 123.0, "switches": ()}, "--nic-gbps 123"),
        ({"oversubscription": "1:1,7:1,2:1"}, "--oversubscription .* at most of leaf and spine"),
        ({"families": ("raill",)}, "--family 'raill': must be one of rail, rack"),
        ({"nic": 100, "switches": ("64x100:8000:300",), "transceiver_usd": 100.0}, "--transceiver-watts"),
        ({"floor": "0.6x2.4"}, "of 800G there are"),
        ({"floor": "0.6x2.4", "transceiver_watts": 5.0}, "--transceiver-watts"),
    ],
)
def test_wrong_options_are_named(wish: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        designed(4, **wish)


def test_a_workload_is_not_dropped_in_silence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workload"):
        planner.design_fabric("cluster-1k")
    found = CliRunner().invoke(app, ["fabric", "design", "--hosts", "4"])
    assert isinstance(found.exception, InputError)
    assert "--gpus-per-host, --nic-gbps" in str(found.exception)
    assert not list(tmp_path.iterdir())


def test_watts_of_a_transceiver_count_alone_too() -> None:
    optics = designed(8, transceiver_watts=50.0).instance.network.optics
    free = designed(8, transceiver_usd=5.0, transceiver_watts=0.0).instance.network.optics
    assert (optics.price_usd, optics.power_watts, free.power_watts) == (700, 50, 0)


OPTIONS = ["--switch", "64x400:1:1"], ["--max-tiers", "2"], ["--transceiver-usd", "5"], ["--transceiver-watts", "5"]


@pytest.mark.parametrize("option", OPTIONS)
def test_options_beside_a_file_are_refused(option: list[str], tmp_path: Path) -> None:
    path = tmp_path / "question.json"
    path.write_text("{}", encoding="utf-8")
    found = CliRunner().invoke(app, ["fabric", "design", str(path), *option])
    assert isinstance(found.exception, InputError)
    assert option[0] in str(found.exception)


def test_pins_of_other_decisions_are_refused() -> None:
    question = question_of_options(FabricWish(hosts=8, gpus_per_host=8, nic_gbps=400))
    with pytest.raises(InputError, match=r"pins\.layout\.tensor_parallel: decides nothing of a fabric alone"):
        question_of(question, {"layout.tensor_parallel": 8})


def test_a_file_has_the_rules_of_options() -> None:
    """Without a ratio or a loss a file asks for 1:1 and for the loss of a spine; null asks for neither."""
    rack = {"name": "host", "gpus": 8, "it_kw": 10, "price_usd": 300_000}
    optics = {"name": "400G-DR4", "price_usd": 700, "power_watts": 9}

    def rules(**more: Any) -> tuple[Any, ...]:
        network = {"switches": ["25.6T-64x400G"], "optics": optics} | more
        asked = {"name": "mine", "hardware": {"accelerator": "H100", "rack": rack, "racks": 64}, "network": network}
        found = question_of(asked, {}).network
        return found.max_oversubscription, found.survives

    assert rules() == (1.0, "one_spine")
    assert rules(max_oversubscription=None, survives=None) == (None, None)
    assert rules(families=["rail", "dragonfly"], min_core_share=0.5) == (None, None)


def test_figures_are_written_for_a_reader() -> None:
    """Power above a megawatt is in MW, one switch is one, and ratios of dragonflies are those of the worst traffic."""
    assert re.search(r"\d MW\. Proven", summary(designed(2048, max_tiers=3), 200))
    assert re.search(r"1 tier: \$[^;]*, 1 switch, ", summary(designed(5), 200))
    assert "52:1 at worst" in summary(designed(128, survives="none", families=("dragonfly",)), 200)


def test_ports_faster_than_the_nic_are_told() -> None:
    """A NIC of 400 Gb/s on a whole port of 800 leaves half of it; on half a port, or one of its rate, nothing."""
    assert "carry 400 Gb/s of NICs" in summary(designed(8, switches=("51.2T-64x800G",)), 200)
    assert "of NICs" not in summary(designed(8, switches=("51.2T-64x800G-breakout",)), 200)
    assert "of NICs" not in summary(designed(8), 200)


def test_options_that_would_allow_a_kind_do() -> None:
    """What a kind that lost names is enough: asked with these options it is chosen or as cheap as what is."""
    plan = designed(32, oversubscription="1:1,3:1")
    told = {x.name: x for x in plan.fabric.alternatives if "would allow it" in x.lost}
    assert {"rail-only, 1 tier", "dragonfly", "dragonfly+"} <= set(told)
    for x in told.values():
        words = x.lost.rpartition("; ")[2].removesuffix(" would allow it").split()
        options = dict(zip(words[::2], words[1::2], strict=True))
        wish = {"families": (options.get("--family", "rail"),)}
        wish |= {"survives": options["--survives"]} if "--survives" in options else {}
        again = designed(32, **wish, oversubscription="1:1" if "--oversubscription" in options else "1:1,3:1")
        assert x.fabric.family == again.fabric.sites[CLUSTER].family
        assert "--oversubscription" in options or usd(again) <= x.fabric.cost_usd * (1 + 1e-9)


def test_a_frontier_of_a_fabric_alone_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "fabric.json"
    path.write_text(designed(8).model_dump_json(), encoding="utf-8")
    found = CliRunner().invoke(app, ["fabric", "pareto", str(path)])
    assert isinstance(found.exception, InputError)
    assert "a fabric alone has no traffic" in str(found.exception)


@pytest.mark.slow
def test_rules_in_conflict_are_the_fewest() -> None:
    found = designed(512, max_tiers=2).conflict.rules
    assert found == ("network.families", "network.max_tiers")  # a rail alone fits two tiers
    cheap = designed(64, budget_usd=usd(designed(64)) * 0.9).conflict.rules
    assert cheap[0] == "limits.budget_usd" and "network.max_tiers" not in cheap


def test_tails_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = designed(32, 1)

    def late(*_: Any) -> None:
        time.sleep(1.5)
        tick()

    monkeypatch.setattr(fabric_design, "flow_seconds", late)
    timed = planner.design_fabric(plan.instance, time_limit=1)
    assert timed.status == "optimal"
    assert timed.fabric.alternatives[0].ecmp_tail is None
    assert "tails were not simulated" in summary(timed, 200)


def test_tails_of_hashing_are_no_shorter_than_sprayed_ones() -> None:
    """Of the flows of 32 hosts the slowest takes at least as long under ECMP as sprayed, and no less than its bytes."""
    plan = designed(32, 1, max_tiers=2, families=("rail",))
    found = [(x.ecmp_tail, x.spray_tail) for x in plan.fabric.alternatives if x.ecmp_tail is not None]
    assert found and all(ecmp >= spray >= 1 for ecmp, spray in found)
