"""What designed fibre between sites costs: exactly for a set of sites, and a lower bound for a pair.

The exchange takes no longer than the step counts on: what a ring takes at the rate of the wavelengths, behind the round
trips of the two sites farthest apart. Other traffic is carried beside it, as far as there is fibre.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.instance.instance import Instance
from planner.models.joint.places.milp import Circuit, Joined
from planner.models.requests import GradientExchange, Options, WanRequest
from planner.models.sites.bounds import max_sites
from planner.models.sites.data import Pair, SplitData
from planner.models.sites.rules.registry import without
from planner.models.wan import data as wan_data
from planner.models.wan import solve as wan_design
from planner.physics.site import wan
from planner.physics.site.fibre import Fibre
from planner.physics.site.gradient_exchange import assumed_window_seconds
from planner.plan.wan import WanPlan

LARGE_BYTES = 1e30  # of a stage: so many that round trips do not count, for a bound at any number of bytes


@dataclass(frozen=True, slots=True)
class _Routes:
    """The fibre of a pair of sites, and the edges that each choice of routes lights."""

    fibre: Fibre
    choices: tuple[frozenset[str], ...]


@dataclass(kw_only=True)
class FibreDesigns:
    """Designs of the fibre of an instance, each made once."""

    instance: Instance
    data: SplitData
    seed: int = 0
    solved: int = 0
    plans: dict[Any, WanPlan | None] = field(default_factory=dict)
    routes: dict[Pair, _Routes] = field(default_factory=dict)
    lower_bounds: dict[int, dict[Pair, float]] = field(default_factory=dict)

    def design(self, sites: Joined, circuit: Circuit | None, window_seconds: float = 0.0) -> WanPlan | None:
        """Return the design of least capital that joins some sites; None where no fibre does.

        `window_seconds` is the time of the exchange where one site alone holds parts: nothing is exchanged in it.
        """
        request = self.request(sites, circuit, window_seconds)
        if request not in self.plans:
            outcome = wan_design.solve(self.instance, request, Options(seed=self.seed))
            self.solved += 1
            if outcome.solution is None and not outcome.infeasible:
                raise RuntimeError(f"joint sites: the design of the fibre ended without an answer ({outcome.detail})")
            self.plans[request] = outcome.solution
        return self.plans[request]

    def request(self, sites: Joined, circuit: Circuit | None, window_seconds: float = 0.0) -> WanRequest:
        """Return what the fibre of some sites must carry."""
        holding = tuple(sorted(sites.holding))
        if circuit is None or len(holding) < 2:
            exchange = GradientExchange(stage_bytes=0.0, window_seconds=window_seconds)
            return WanRequest(sites=tuple(sorted(sites.open)), exchanging=holding, exchange=exchange, capital=True)
        rtt = max(self.data.rtt_ms(p) for p in self.data.pairs if set(p) <= sites.holding)
        window = assumed_window_seconds(
            self.data.wan, circuit.stage_bytes, len(holding), math.inf, rate_gbps(self.data, circuit), rtt
        )
        exchange = GradientExchange(stage_bytes=circuit.stage_bytes, window_seconds=window)
        return WanRequest(sites=tuple(sorted(sites.open)), exchanging=holding, exchange=exchange, capital=True)

    def pair_least_usd(self, wavelengths: int) -> Mapping[Pair, float]:
        """Bound the price of the fibre between two sites that exchange alone: no less on any of their routes.

        A longer route needs a higher rate than the wavelengths have, a tree more bytes, and traffic more besides.
        """
        if wavelengths not in self.lower_bounds:
            self.lower_bounds[wavelengths] = {
                p: self._pair_least(p, wavelengths) for p in self.data.pairs if p not in self.data.disconnected
            }
        return self.lower_bounds[wavelengths]

    @cached_property
    def least_usd(self) -> NDArray[np.float64]:
        """Bound the price of the fibre of any two sites by the number of wavelengths; infinite where none has so many.

        Pairs that a rule of the grid bars count as none where no more than two sites may be open.
        """
        most = self.data.wan.max_wavelengths_per_pair * self.data.wan.max_fibre_pairs
        n, found = np.arange(most + 1), np.full(most + 1, np.inf)
        pairs, open_sites = np.ceil(n / self.data.wan.max_wavelengths_per_pair), max_sites(self.data, without())
        for pair in (p for p in self.data.pairs if p not in self.data.disconnected):
            if open_sites == 2 and any(rule.excludes(self.data, pair, 2) for rule in without()):
                continue
            known = self._known(pair)
            for lit in ([known.fibre.edges[e] for e in edges] for edges in known.choices):
                usd = pairs * sum(e.pair_usd for e in lit) + n * sum(e.wavelength_usd for e in lit)
                fits = pairs <= min(e.max_pairs for e in lit)
                found = np.minimum(found, np.where(fits, usd * (1 - 1e-12), np.inf))
        return found

    def _known(self, pair: Pair) -> _Routes:
        if pair not in self.routes:
            self.routes[pair] = self._routes(pair)
        return self.routes[pair]

    def _pair_least(self, pair: Pair, wavelengths: int) -> float:
        found, each = self._known(pair), wan.fibre_pairs(self.data.wan, wavelengths)
        prices = [math.inf]
        for edges in found.choices:
            lit = [found.fibre.edges[e] for e in edges]
            if all(each <= e.max_pairs for e in lit):
                prices.append(math.fsum(each * e.pair_usd + wavelengths * e.wavelength_usd for e in lit))
        return min(prices)

    def _routes(self, pair: Pair) -> _Routes:
        exchange = GradientExchange(stage_bytes=LARGE_BYTES, window_seconds=LARGE_BYTES)
        found = wan_data.gather(self.instance, WanRequest(sites=pair, exchanging=pair, exchange=exchange, capital=True))
        options = [o for d, x in found.demands.items() if not x.priority for o in found.options[d]]
        return _Routes(found.fibre, tuple({frozenset((*o.primary, *(o.backup or ()))) for o in options}))


def rate_gbps(data: SplitData, circuit: Circuit) -> float:
    """Return the rate of the exchange: that of the wavelengths, less the headroom."""
    return circuit.wavelengths * data.wan.wavelength_gbps / data.wan.headroom_factor
