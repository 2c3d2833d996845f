"""The joint optimum of toys equals full enumeration, with designed fibre too; pins, means, order; endless work."""

import math
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import joint_toys
import pytest
from each_case import each
from joint_brute_force import Plan, Toy, toy
from joint_changes import HARMS, HELPS, SAME, other_values, own_choices
from joint_solved import require_optimum, solved
from joint_toys import KINDS, case, kind_of, name_of, with_pins
from tiers import more
from wan_graphs import random_case

import planner
from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models import Options, wan_design
from planner.models.joint import strategy_tables
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import JointSolution, strategy_of
from planner.models.joint.search import first_plans
from planner.models.joint.shapes.chosen_sites import sites_section
from planner.models.joint.shapes.site_choice import Sites
from planner.models.joint.shapes.site_question import Circuit, Joined, SitePart
from planner.models.joint.solve_joint import solve_joint, solve_joint_cost
from planner.models.joint.strategy_space import problem_of
from planner.models.joint.strategy_tables import rounds_up_to
from planner.physics.site import site_power, wan
from planner.physics.training.parallel_strategy import layout_values
from planner.planning.load import load_instance
from planner.solvers.outcome import UnansweredError
from planner.solvers.search_deadline import FIRST_PLAN_SECONDS, Deadline, OutOfTimeError

CASES: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 3, 6, 13, 15)),
    *((seed, {"forced": True}) for seed in (2, 7, 9, 12, 19, 23, 36)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 7, 14, 18, 25, 41, 49)),
    *((seed, {"sites": 2}) for seed in (2, 6)),
]
OTHERS: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (2, 4, 8, 14)),
    *((seed, {"forced": True}) for seed in (5, 8, 11, 17, 20, 26)),
    *((seed, {"sites": 2, "forced": True}) for seed in (5, 12, 16, 21, 36, 48, 59)),
    *((seed, {"sites": 2}) for seed in (5, 11)),
]
TOYS = [*(pytest.param(*case, id=name_of(*case)) for case in CASES), *more(*OTHERS)]


@pytest.mark.parametrize(("seed", "how"), TOYS)
def test_equals_full_enumeration(seed: int, how: dict[str, Any]) -> None:
    i = toy(seed, **how)
    found = require_optimum(i, Toy(i).best())
    free = found.fabric_free_bound  # none where a cluster's money cables few of its racks
    assert (free or 0.0) <= (found.lower_bound or math.inf) * (1 + 1e-9)
    assert free is not None or found.plan is None or i.grid is None


ALONE = {"layout.tensor_parallel": 1, "layout.context_parallel": 1, "layout.replicas_per_rack": 1}
WHOLE = {"layout.recompute": "full", "layout.context_parallel": 1}
PINNED = [*((seed, ALONE) for seed in (0, 2, 6, 14)), *((seed, WHOLE) for seed in (0, 3, 9))]


@pytest.mark.parametrize(("seed", "pins"), PINNED)
def test_pins_equal_full_enumeration(seed: int, pins: dict[str, Any]) -> None:
    """Racks are not filled where a pin says so; one to full recompute asks for a recomputed layer, memory or not."""
    i = with_pins(toy(seed), **pins)
    plan = require_optimum(i, Toy(i).best()).plan
    own = {} if plan is None else layout_values(strategy_of(plan))
    assert all(own.get(path.removeprefix("layout."), value) == value for path, value in pins.items())


@pytest.mark.parametrize("seed", [6, *more(8, 14)])
def test_power_of_a_cluster_limits_its_fabric(seed: int) -> None:
    """Below the fastest fabric's draw the best of the others is found, and none where racks leave no power."""
    (fastest,), h = solved(toy(seed)).plan.templates.values(), toy(seed).hardware
    spared = []
    for fabric_mw in (fastest.mw, fastest.mw * 0.999, fastest.mw * 0.4, 0.0):
        i = toy(seed).replaced(limits__facility_power_mw=site_power.facility_mw(h, h.racks or 0, fabric_mw))
        found = require_optimum(i, Toy(i).best())
        spared.append(None if found.plan is None else found.plan.templates["cluster"].mw <= fabric_mw * (1 + 1e-9))
    assert (spared[:2], spared[3]) == ([True, True], None)


@pytest.mark.parametrize("seed", [0, *more(3, 6, 13, 15)])
def test_a_little_more_than_the_least_budget_has_its_fewest_days(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The racks of a cluster leave money for few links; where it pays no likely layout, one of least capital is."""
    least = solve_joint_cost(toy(seed).replaced(limits__budget_usd=None), Solving()).usd
    assert solved(toy(seed).replaced(limits__budget_usd=least - 1)).status == "infeasible"
    i = toy(seed).replaced(limits__budget_usd=least + 0.01, objective__tolerance=0.0)
    assert not check(planner.solve(i))
    for dive in (first_plans.dive, id):
        monkeypatch.setattr(first_plans, "dive", dive)
        assert require_optimum(i, Toy(i).best()).plan is not None


SEEDS = (
    *(0, 10, 15, 75),  # clusters
    *(16, 26, 41, 101),  # one site of a grid
    *(12, 27, 57, 97),  # two to four nodes with lines
    *(13, 43, 53, 98),  # mixtures of experts
    *(4, 24, 39, 74),  # long sequences: CP over racks
)
MORE = (105, 25, 36, 96, 132, 102, 73, 118, 134, 14)
HELPERS = Path(__file__).parents[2] / "helpers"


@cache
def enumerated(seed: int) -> Plan | None:
    return Toy(case(seed)).best()


@pytest.mark.parametrize("seed", [*SEEDS, *more(*MORE)])
def test_toys_of_each_kind_equal_full_enumeration(seed: int) -> None:
    require_optimum(case(seed), enumerated(seed))


@pytest.mark.parametrize(("seed", "tiers"), [(82, 1), (82, 2), (92, 1), *more((48, 1), (92, 2), (118, 1))])
def test_sites_of_a_grid_hold_what_few_tiers_join(seed: int, tiers: int) -> None:
    i = case(seed).replaced(network__max_tiers=tiers)
    require_optimum(i, Toy(i).best())


@pytest.mark.parametrize("seed", [27, *more(57)])
def test_blocks_pinned_to_a_site_equal_enumeration(seed: int) -> None:
    free = enumerated(seed)
    sites = Toy(case(seed)).sites
    name, worse = sites.nodes[free.blocks.index(max(free.blocks))].id, 0
    for number in {0, 1, max(free.blocks) - 1, max(free.blocks) + 1}:
        i = with_pins(case(seed), **{f"placement.blocks.{name}": number})
        best = Toy(i).best()
        found = require_optimum(i, best)
        if best is None or found.plan is None:
            continue
        assert found.plan.blocks_by_site.get(name, 0) == number
        worse += (best.seconds, best.usd) > (free.seconds, free.usd)
    assert worse


@pytest.mark.parametrize(("seed", "how"), [(seed, how) for seed, how in CASES if "sites" in how])
def test_sites_opened_closed_or_in_another_set_agree(seed: int, how: dict[str, Any]) -> None:
    """The best plan with a site, or without it, is the best of those over all sets of sites with it, or without."""
    i, sets = toy(seed, **how), dict[frozenset[str], float]()

    def seconds(question: Instance, without: dict[str, Any], floor_days: float = 0.0) -> float:
        found = solve_joint(question, Solving(floor=floor_days), without=without)
        assert found.stopped == "proved" and (found.plan is None or found.days == found.lower_bound)
        if found.plan is not None and "sites" in without:
            sets[found.plan.placed.joined.open] = found.plan.seconds
        return math.inf if found.plan is None else found.plan.seconds

    while math.isfinite(seconds(i, {"sites": frozenset(sets)})):
        pass
    assert list(sets.values()) == sorted(sets.values())
    for node in i.grid.nodes:
        with_it = min((x for opened, x in sets.items() if node.id in opened), default=math.inf)
        without_it = min((x for opened, x in sets.items() if node.id not in opened), default=math.inf)
        path, free = f"sites.racks.{node.id}", solved(i).days or 0.0
        assert seconds(i, {path: 0}, free) == pytest.approx(with_it, rel=1e-9)
        assert seconds(with_pins(i, **{path: 0}), {}, free) == pytest.approx(without_it, rel=1e-9)


@pytest.mark.slow
def test_the_toys_are_of_every_kind() -> None:
    """There are four of each kind; some plans spread CP or experts over racks, some hold blocks at two sites."""
    assert {k: [kind_of(s) for s in SEEDS].count(k) for k in KINDS} == dict.fromkeys(KINDS, 4)
    plans = [b for b in map(enumerated, SEEDS) if b is not None]
    assert any(p.column.block.context_racks > 1 for p in plans)
    assert any(p.column.shape.expert_parallel > 1 for p in plans)
    assert sum(sum(n > 0 for n in p.blocks) > 1 for p in plans) >= 5
    assert any(p.send > 1.2 for p in plans) and any(p.allreduce > 1.2 for p in plans)


def test_the_enumeration_shares_no_formulation() -> None:
    code = (
        "import sys, joint_brute_force\n"
        "left_out = 'planner.models', 'planner.solvers', 'ortools', 'pyomo'\n"
        "names = [m for m in sys.modules if m.startswith(left_out)]\n"
        "sys.exit(str(names) if names else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HELPERS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# One cluster, one site and a grid on which the network, the fibre or the split binds, experts, and CP over racks.
ONE_OF_EACH = (0, 26, 13, 74, *more(27, 39, 52))
TIE = 1e-9


@cache
def free(seed: int) -> JointSolution:
    return solved(case(seed))


def days(i: Instance) -> float:
    """Return the days of the optimum; infinite where there is no plan."""
    return solved(i).days or math.inf


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_own_choices_as_pins_give_the_same_value(seed: int) -> None:
    found, pins = free(seed), own_choices(free(seed))
    layers = {name: value for name, value in pins.items() if "layers_per_stage" in name}  # go together
    for some in (pins, layers, *({name: value} for name, value in pins.items() if name not in layers)):
        again = solved(with_pins(case(seed), **some))
        assert again.days == pytest.approx(found.days, rel=TIE), some
        assert again.plan.capital_usd == pytest.approx(found.plan.capital_usd, rel=TIE), some


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_pins_never_improve(seed: int) -> None:
    """No other value of a choice gives fewer days, and the lower bounds hold below every value under a pin."""
    found = free(seed)
    assert found.fabric_free_bound <= found.lower_bound * (1 + TIE) <= found.days * (1 + 2 * TIE)
    tried, pinned_before = 0, case(seed).pins
    for name, value in own_choices(found).items():
        if name in pinned_before:
            continue
        for other in other_values(name, value):
            try:
                pinned = days(with_pins(case(seed), **{name: other}))
            except InputError as refused:
                assert str(refused).startswith(f"pins[{name!r}]: ")
                continue
            tried += 1
            assert pinned >= found.lower_bound * (1 - TIE), (name, other)
    assert tried > 0


@pytest.mark.parametrize("change", [x for x in HELPS if x != "racks"])
@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_means_never_worsen(seed: int, change: str) -> None:
    assert days(HELPS[change](case(seed))) <= (free(seed).days or math.inf) * (1 + TIE)


@pytest.mark.parametrize("change", HARMS)
@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_dearer_parts_never_improve(seed: int, change: str) -> None:
    assert days(HARMS[change](case(seed))) >= (free(seed).days or 0.0) * (1 - TIE)


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_order_names_and_the_seed_of_the_solvers_change_nothing(seed: int, change: str) -> None:
    before, after = free(seed), solved(SAME[change](case(seed)), seed=7)
    assert after.days == pytest.approx(before.days, rel=TIE)
    assert after.plan.capital_usd == pytest.approx(before.plan.capital_usd, rel=TIE)


PARTS = (SitePart(1, 2, ((0.0, 0.0),)), SitePart(1, 1, ((0.0, 0.0),)))
RACKS_USD = 3e6


def three_sites(seed: int) -> Instance:
    """Return a random graph of fibre between three candidate sites."""
    return next(
        i for i in (random_case(k)[0] for k in range(10 * seed, 10 * seed + 200)) if i.grid and len(i.grid.nodes) == 3
    )


@pytest.mark.parametrize("seed", range(16))
def test_the_cheapest_of_all_pairs_with_its_design(seed: int) -> None:
    i, circuit = three_sites(seed), Circuit(1 + seed % 3, 1e9, 2e9)
    sites, best, found_any = Sites(instance=i), math.inf, False
    for pair in sites.data.pairs:
        limit = sites.data.grid.rules.max_rtt_ms
        if pair in sites.data.disconnected or (limit is not None and sites.data.rtt_ms(pair) > limit):
            continue
        asked = sites.fibre.request(Joined(open=frozenset(pair), holding=frozenset(pair)), circuit)
        plan = wan_design.solve(i, asked, Options()).solution
        best = min(best, math.inf if plan is None else plan.capex_usd)
        found_any |= plan is not None
    found = sites.cheapest(PARTS, circuit)
    assert (found is not None) == found_any
    if found is None:
        return
    assert found.capital_usd == pytest.approx(RACKS_USD + best, rel=1e-12)
    assert found.wan.capex_usd == pytest.approx(best)
    known, any_size = sites.least(PARTS, circuit), sites.least(PARTS, replace(circuit, stage_bytes=0.0))
    assert any_size <= known * (1 + 1e-12)
    assert known == pytest.approx(found.capital_usd, rel=1e-9)
    assert sites.fibre.least_usd(circuit.stage_bytes)[circuit.wavelengths] <= found.wan.capex_usd * (1 + 1e-9)
    links = sites_section(sites, found, {}).links
    assert [(k.a, k.b, k.wavelengths) for k in links] == [(*sorted(found.parts), circuit.wavelengths)]
    assert sites.fibre.design(found.joined, found.circuit) == found.wan


def test_three_sites_take_a_form_between_them() -> None:
    """Three parts stand at three sites, whose exchange goes round or over one of them, as designed for all three."""
    plans = [Sites(instance=three_sites(seed)).cheapest((*PARTS, PARTS[1]), Circuit(1, 1e9, 2e9)) for seed in range(16)]
    assert {"ring", "tree"} & {p.wan.exchange for p in plans if p is not None and p.wan is not None}
    assert all(p.wan.capex_usd + RACKS_USD + 1e6 == pytest.approx(p.capital_usd) for p in plans if p and p.wan)


@each("count", [1, 2, 3])
def test_what_some_sites_ask_of_their_fibre(count: int) -> None:
    """One site exchanges nothing in the time given; several what their ring moves at the rate, behind a round trip."""
    # The trip is that of the two farthest apart; sites that hold no part are joined, and exchange nothing.
    sites, circuit = Sites(instance=three_sites(0)), Circuit(2, 1e9, 2e9)
    names, data, w = sorted(sites.data.candidates), sites.data, sites.data.wan
    holding = frozenset(names[:count])
    asked = sites.fibre.request(Joined(open=frozenset(names), holding=holding), circuit, 7.0)
    assert (asked.sites, asked.exchanging) == (tuple(names), tuple(sorted(holding)))
    if count == 1:
        assert (asked.stage_bytes, asked.window_seconds) == (0.0, 7.0)
        return
    rate = 2 * w.wavelength_gbps * 1e9 / w.headroom_factor
    far = max(wan.rtt_ms(w, km) for pair, km in data.pairs.items() if set(pair) <= holding)
    moved = 8 * 2 * (count - 1) / count * circuit.stage_bytes / rate
    assert asked.stage_bytes == circuit.stage_bytes
    assert asked.window_seconds == pytest.approx(moved + w.round_trips * far / 1e3)
    alone = sites.fibre.request(Joined(open=frozenset(names), holding=holding), None, 7.0)
    assert (alone.stage_bytes, alone.window_seconds) == (0.0, 7.0)


@each("form", ["ring", "tree"])
def test_wavelengths_of_a_longer_route(form: str) -> None:
    """On a longer route the same bytes have less time: n wavelengths become n over the share that is left."""
    # A GB at n waves of 100 Gbps takes 8/(100·n) s; 10 ms late leaves 1 - 0.01·100·n/8 of it. A tree sends twice as
    # much.
    i = three_sites(0)
    i = i.replaced(wan__exchange=form, wan__headroom_factor=1.0)
    fibre, times = Sites(instance=i).fibre, 2 if form == "tree" else 1
    found = fibre._waves(0.01, 1e9)
    assert found[0] == 0
    for n in range(1, len(found)):
        share = 1 - 0.01 * 100 * n / 8
        assert found[n] == (math.ceil(times * n / share - 1e-9) if share > 0 else math.inf)
    assert fibre._waves(0.0, 1e9).tolist() == fibre._waves(0.01, 0.0).tolist() == [times * n for n in range(len(found))]


def test_rounds_without_end_are_not_listed() -> None:
    """A batch of a billion sequences ends at the deadline, or where the numbers would no longer fit."""
    problem = problem_of(joint_toys.toy(7))
    assert list(rounds_up_to(problem, 11, 3, Deadline())) == [5, 8, 11]  # one short of two to four rounds
    with pytest.raises(OutOfTimeError):
        rounds_up_to(problem, 10**9, 2, Deadline(0.0))
    with pytest.raises(UnansweredError, match=r"numbers of micro-batches; lower the batch"):
        rounds_up_to(problem, 10**9, 2, Deadline())


def test_columns_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = joint_toys.toy(7)
    whole = solve_joint(toy, Solving())
    monkeypatch.setattr(strategy_tables, "BLOCK", 7)
    few = solve_joint(toy, Solving())
    assert (few.days, few.lower_bound, few.status) == (whole.days, whole.lower_bound, whole.status)


def test_a_simulated_transport_reads_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs over many hosts and seeds end with the time limit, with the reason; no plan needs them."""
    runs = {"transport": "ecmp", "seeds": 1000, "hosts": 4096}
    network = joint_toys.toy(7).model_dump(mode="json", exclude_none=True)
    network["network"]["transport"]["simulate"] = runs
    before = time.process_time()
    monkeypatch.setattr("planner.solvers.search_deadline.FIRST_PLAN_SECONDS", 0.0)
    plan = planner.solve(network, time_limit=0.2)
    assert (plan.status, plan.stopped) == ("unknown", "limit") and time.process_time() - before < 2
    assert plan.conflict is not None and "before the search began" in plan.conflict.reason


@each("count", [0, 2_001])
def test_places_are_bounded_before_pairs_are_made(count: int) -> None:
    """No place for a site, or more than every two of which can be compared, is told before any work."""
    i = load_instance("two-sites-405b")
    nodes = tuple(i.grid.nodes[0].replaced(id=f"n{k}", site=bool(count)) for k in range(count or 2))
    bare = i.replaced(grid__nodes=nodes, grid__lines=(), grid__new_lines=(), wan=None)
    with pytest.raises(InputError, match=r"grid\.nodes: (no node may hold a site|every two places .* \(are 2,001\))"):
        planner.solve(bare)


PORTS = {"name": "s", "ports": 4096, "port_gbps": 400, "price_usd": 1, "power_watts": 1}
LARGEST = [
    ("one-rack", "limits.max_batch_tokens", 8e12), ("one-rack", "workload.sequence_length", 1),
    ("cluster-1k", "network.switches", [PORTS]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "path", "value"), LARGEST)
def test_the_limit_holds_on_the_largest_counts(name: str, path: str, value: Any) -> None:
    """The most that a file may ask for ends within two seconds of the time for a first plan, with one or with none."""
    before = time.process_time()
    plan = planner.solve(planner.changed(name, {path: value}), time_limit=1)
    assert time.process_time() - before < FIRST_PLAN_SECONDS + 2
    ends = time.process_time() + 5
    assert check(plan, stop=lambda: time.process_time() > ends) == []
    assert time.process_time() < ends + 2
