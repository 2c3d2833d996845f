"""The best split under dc and N-1 in scenarios by trying every split with every circuit built.

Each year is a linear programme over what plants feed in, whose rows are all flows before and after each outage by the
pseudo-inverse of a dense Laplacian. The tests compare it with the split of the planner.
"""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from planner.instance.grid import Grid, Scenario
from planner.instance.instance import Instance
from planner.physics.site import cost

Matrix = npt.NDArray[Any]
Value = tuple[int, float] | None  # racks and yearly cost


class Year:
    """One year's figures on one network."""

    def __init__(self, g: Grid, s: Scenario | None, circuits: dict[str, int]) -> None:
        self.nodes = sorted(n.id for n in g.nodes)
        own = {n.id: n for n in g.nodes}
        self.spare = np.array([(s.generation_mw if s else {}).get(n, own[n].generation_mw) for n in self.nodes])
        whole = [own[n].largest_unit_mw is None for n in self.nodes]
        unit = np.array([own[n].largest_unit_mw or 0.0 for n in self.nodes])
        self.lost = np.array(
            [1.0 if w else min(u / p, 1.0) if p else 0.0 for w, u, p in zip(whole, unit, self.spare, strict=True)]
        )
        self.headroom = {b.id: (s.headroom_mw if s else {}).get(b.id, b.headroom_mw) for b in g.balancing_authorities}
        self.usd = {
            b.id: (s.energy_usd_per_mwh if s else {}).get(b.id, b.energy_usd_per_mwh) for b in g.balancing_authorities
        }
        self.area = [own[n].balancing_authority for n in self.nodes]
        rows = [(x, x.circuits) for x in g.lines] + [(x, circuits[x.id]) for x in g.new_lines]
        self.lines = [
            (self.nodes.index(x.a), self.nodes.index(x.b), n, x.rating_mw, 100 / (x.reactance_pu or 1.0))
            for x, n in rows
            if n
        ]

    def network(self, lost: int | None) -> tuple[Matrix, Matrix, Matrix]:
        """Return flows for injections, the ratings, and which nodes hang together, with a circuit out."""
        n = len(self.nodes)
        count = [c - (i == lost) for i, (_, _, c, _, _) in enumerate(self.lines)]
        incidence = np.zeros((len(self.lines), n))
        for i, (a, b, _, _, _) in enumerate(self.lines):
            incidence[i, a], incidence[i, b] = 1.0, -1.0
        weight = np.array([c * y for c, (_, _, _, _, y) in zip(count, self.lines, strict=True)])
        laplacian = incidence.T @ (weight[:, None] * incidence)
        together = np.linalg.matrix_power(np.eye(n) + (abs(laplacian) > 1e-9), n) > 0
        flows = weight[:, None] * incidence @ np.linalg.pinv(laplacian)
        return flows, np.array([c * r for c, (_, _, _, r, _) in zip(count, self.lines, strict=True)]), together

    def rows(self, g: Grid, draw: Matrix, open_at: set[int]) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Return `A x <= b` and `E x = e` over x: generation by node, then load by candidate, which `draw` places."""
        n = len(self.nodes)
        feed = np.hstack([np.eye(n), np.zeros_like(draw)])
        load = np.hstack([np.zeros((n, n)), draw])
        upper: list[tuple[Matrix, Matrix]] = [(feed, self.spare)]
        equal: list[tuple[Matrix, Matrix]] = []

        def within(lost: int | None, fed: Matrix, share: float) -> None:
            flows, rating, together = self.network(lost)
            moved = flows @ (fed - load)
            upper.extend([(moved, share * rating), (-moved, share * rating)])
            equal.append((together @ (fed - load), np.zeros(n)))

        within(None, feed, g.rules.n1_margin if g.rules.n1 == "margin" else 1.0)
        for b in {*self.area} if g.rules.headroom else ():
            here = np.array([a == b for a in self.area], dtype=float)
            upper += [
                ((here @ feed)[None], np.array([self.headroom[b]])),
                ((here @ load)[None], np.array([self.headroom[b]])),
            ]
        out = self._lines_out(g, open_at)
        _, _, before = self.network(None)
        for line in out:
            _, _, after = self.network(line)
            rise = np.zeros_like(feed)
            for i in range(n):
                part, whole = after[i], before[i]
                if (part != whole).any():
                    if self.spare[part].sum() <= 0:
                        upper.append((load[part].sum(axis=0)[None], np.zeros(1)))
                        continue
                    rise[i] = self.spare[i] / self.spare[part].sum() * (load - feed)[part].sum(axis=0)
            upper.append((feed + rise, self.spare))
            within(line, feed + rise, 1.0)
        for i in np.flatnonzero(self.lost * self.spare > 0).tolist() if g.rules.n1 == "full" else ():
            here = before[i]
            answer = np.where(here, self.spare, 0.0) * np.where(np.arange(n) == i, 1 - self.lost[i], 1.0)
            if answer.sum() <= 1e-9:
                upper.append((feed[i][None], np.zeros(1)))
                continue
            after_loss = feed + np.outer(answer / answer.sum(), self.lost[i] * feed[i])
            after_loss[i] -= self.lost[i] * feed[i]
            within(None, after_loss, 1.0)
            kept = np.where(here, self.spare, 0.0)
            upper.append((feed[here] + np.outer(kept[here] / answer.sum(), self.lost[i] * feed[i]), self.spare[here]))
        stack = tuple(np.concatenate(x) for x in (*zip(*upper, strict=True), *zip(*equal, strict=True)))
        return stack[0], stack[1], stack[2], stack[3]

    def _lines_out(self, g: Grid, open_at: set[int]) -> list[int]:
        if g.rules.n1 == "full":
            return list(range(len(self.lines)))
        if g.rules.n1 != "node":
            return []
        found = set()
        for i in open_at:
            here = [k for k, x in enumerate(self.lines) if i in x[:2]]
            found |= {k for k in here if self.lines[k][3] == max(self.lines[j][3] for j in here)}
        return sorted(found)


def energy(instance: Instance, s: Scenario | None, modules: dict[str, int], circuits: dict[str, int]) -> float | None:
    """Return the least energy of a year in USD, what is left undone at its price; None where the year cannot be run."""
    g = instance.grid
    assert g is not None
    year = Year(g, s, circuits)
    sites_at = [year.nodes.index(n) for n in modules]
    draw = np.zeros((len(year.nodes), len(modules)))
    draw[sites_at, np.arange(len(modules))] = 1.0
    a, b, e, f = year.rows(g, draw, {i for i, m in zip(sites_at, modules.values(), strict=True) if m})
    loose = s is not None and g.rules.scenarios == "expected"
    undone = g.rules.curtailment_usd_per_mwh if loose else 0.0
    price = np.array([(year.usd[year.area[i]] - undone) * 8760 for i in sites_at])
    bounds = [(0.0, None)] * len(year.nodes) + [(0.0 if loose else float(m), float(m)) for m in modules.values()]
    found = linprog(np.concatenate([np.zeros(len(year.nodes)), price]), a, b + 1e-7, e, f, bounds, method="highs")
    return float(found.fun) + undone * 8760 * sum(modules.values()) if found.status == 0 else None


def best_split(instance: Instance) -> Value:
    """Return the most racks and then the least cost over every split and every number of circuits."""
    g = instance.grid
    assert g is not None
    best: Value = None
    candidates = sorted(n.id for n in g.nodes if n.site)
    asked = instance.pins.get("sites.racks")
    most = math.floor(sum(n.generation_mw for n in g.nodes)) if asked is None else asked
    rate = cost.annuity(g.prices.discount_rate, g.prices.site_life_years)
    splits = [dict(zip(candidates, m, strict=True)) for m in itertools.product(range(most + 1), repeat=len(candidates))]
    for modules in sorted(splits, key=lambda m: -sum(m.values())):
        total = sum(modules.values())
        if best is not None and total < best[0]:
            return best
        if not total or total != (asked or total) or sum(bool(m) for m in modules.values()) > (g.rules.max_sites or 99):
            continue
        for built in itertools.product(*(range(x.max_circuits + 1) for x in g.new_lines)):
            circuits = {x.id: n for x, n in zip(g.new_lines, built, strict=True)}
            own = energy(instance, None, modules, circuits)
            later = [energy(instance, s, modules, circuits) for s in g.scenarios] if own is not None else []
            costs = [x for x in (own, *later) if x is not None]
            if len(costs) <= len(g.scenarios):
                continue
            weight = [1 - sum(s.weight for s in g.scenarios), *(s.weight for s in g.scenarios)]
            usd = (
                max(costs) if g.rules.scenarios == "robust" else sum(w * x for w, x in zip(weight, costs, strict=True))
            )
            capital = sum(x.capex_usd * circuits[x.id] for x in g.new_lines)
            capital += sum(cost.site_capex_usd(g, it_mw=float(m), facility_mw=float(m)) for m in modules.values() if m)
            if best is None or usd + rate * capital < best[1]:
                best = total, usd + rate * capital
    return best
