"""Designs of the fibre between the sites of a shape: a price for each set of sites, and a bound for each pair."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.models import Options, wan_design
from planner.models.joint.shapes.site_question import Circuit, Joined
from planner.models.joint.strategy_space import Floats
from planner.models.sites.site_rules import max_sites
from planner.models.sites.split_data import Pair, SplitData
from planner.models.sites.split_model import RULES
from planner.models.wan_design import RouteOption, WanRequest
from planner.physics.site.wan import SiteFibre
from planner.physics.site.wan_exchange import assumed_window_seconds
from planner.plan.plan_sections import WanPlan
from planner.solvers.outcome import UnansweredError
from planner.solvers.search_deadline import Deadline

LARGE_BYTES = 1e30  # of a stage: round trips are negligible against them, for a bound at any number of bytes


@dataclass(kw_only=True)
class FibreDesigns:
    """Designs of the fibre between the sites of a shape, for all joint plans of one instance, each made once."""

    data: SplitData
    seed: int = 0
    solved: int = 0
    plans: dict[Any, WanPlan | None] = field(default_factory=dict)
    # Of a pair of sites the fibre, and the routes that their exchange may take.
    routes: dict[Pair, tuple[SiteFibre, list[RouteOption]]] = field(default_factory=dict)
    tables: dict[Any, Floats] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)  # of the search; a design cut short by it is not kept

    def design(self, sites: Joined, circuit: Circuit | None, window_seconds: float = 0.0) -> WanPlan | None:
        """Return the fibre design of least capital that joins some sites of a shape; None where no fibre does."""
        # `window_seconds` is the time of the exchange where one site alone holds parts: nothing is exchanged in it.
        request = self.request(sites, circuit, window_seconds)
        if request not in self.plans:
            options = Options(seed=self.seed, time_limit=self.deadline.limit)
            outcome = wan_design.solve(self.data.instance, request, options)
            self.solved += 1
            self.deadline.check()
            if outcome.solution is None and not outcome.infeasible:
                raise UnansweredError(
                    f"joint sites: the design of the fibre ended without an answer ({outcome.detail})"
                )
            self.plans[request] = outcome.solution
        return self.plans[request]

    def request(self, sites: Joined, circuit: Circuit | None, window_seconds: float = 0.0) -> WanRequest:
        """Return the request for a fibre design of some sites: the exchange, and its window in seconds."""
        holding, size, window = tuple(sorted(sites.holding)), 0.0, window_seconds
        if circuit is not None and len(holding) > 1:
            wan, size = self.data.wan, circuit.stage_bytes
            rtt = max(self.data.rtt_ms(p) for p in self.data.pairs if set(p) <= sites.holding)
            gbps = circuit.wavelengths * wan.wavelength_gbps / wan.headroom_factor
            window = assumed_window_seconds(wan, size, len(holding), math.inf, gbps, rtt)
        return WanRequest(sites=tuple(sorted(sites.open)), exchanging=holding, stage_bytes=size, window_seconds=window)

    def least_usd(self, stage_bytes: float = 0.0, max_rtt_ms: float = math.inf) -> Floats:
        """Bound from below the price in USD of the designed fibre of any two sites, by number of wavelengths."""
        # The bound holds for `stage_bytes` bytes of a stage and fewer, and at 0 for any number of bytes; it is infinite
        # where no pair has the wavelengths. Pairs that a rule of the grid bars are left out where no more than two
        # sites may be open.
        key = stage_bytes, max_rtt_ms
        if key not in self.tables:
            barring = RULES.values() if max_sites(self.data, RULES.values()) == 2 else ()
            near = [p for p in self.data.joinable if self.data.rtt_ms(p) <= max_rtt_ms * (1 + 1e-12)]
            usable = [p for p in near if not any(rule.excludes(self.data, p, 2) for rule in barring)]
            none = np.full(self._counts.shape, np.inf)
            self.tables[key] = np.minimum.reduce([none, *(self.prices(p, stage_bytes) for p in usable)])
        return self.tables[key]

    @cached_property
    def _counts(self) -> Floats:
        return np.arange(self.data.wan.max_wavelengths_per_pair * self.data.wan.max_fibre_pairs + 1, dtype=np.float64)

    def prices(self, pair: Pair, stage_bytes: float) -> Floats:
        """Price in USD the designed fibre of two sites that exchange alone, by wavelengths: no route costs less."""
        # Fewer bytes need no fewer wavelengths, as a longer route leaves less of their time. 0 bytes mean a number so
        # large that the delay of a route is negligible.
        key = pair, stage_bytes
        if key not in self.tables:
            self.deadline.check()
            if pair not in self.routes:
                request = WanRequest(sites=pair, exchanging=pair, stage_bytes=LARGE_BYTES, window_seconds=LARGE_BYTES)
                data = wan_design.gather(self.data.instance, request)
                options = [o for d, x in data.demands.items() if not x.priority for o in data.options[d]]
                self.routes[pair] = replace(data.fibre), options  # without its graph, which is large
            net, options = self.routes[pair]
            trip, least = self.data.wan.round_trips / 1e3, np.full(self._counts.shape, np.inf)
            for option in options:
                waves, total = dict[str, Floats](), np.zeros(self._counts.shape)
                for route in (option.primary, option.backup or ()):
                    late = trip * max(0.0, net.rtt_ms(route) - self.data.rtt_ms(pair)) if route else 0.0
                    need = self._waves(late, stage_bytes)
                    waves |= {e: np.maximum(need, waves[e]) if e in waves else need for e in route}
                for e, n in waves.items():
                    x, pairs = net.edges[e], np.ceil(n / self.data.wan.max_wavelengths_per_pair)
                    pair_usd, wavelength_usd = x.prices
                    total += np.where(pairs <= x.max_pairs, pairs * pair_usd + n * wavelength_usd, np.inf)
                least = np.minimum(least, total)
            self.tables[key] = least * (1 - 1e-12)
        return self.tables[key]

    def _waves(self, late: float, stage_bytes: float) -> Floats:
        """Compute the wavelengths of a fibre route `late` seconds longer, by those that the step counts on."""
        sent = 2.0 if self.data.wan.exchange == "tree" else 1.0  # a tree sends all up and down, a ring of two half
        if not stage_bytes or not late:
            return np.asarray(sent * self._counts)
        rate = self._counts * self.data.wan.wavelength_gbps * 1e9 / self.data.wan.headroom_factor
        share = 1.0 - late * rate / (8 * stage_bytes)  # of the time of the transfer that the longer route leaves
        with np.errstate(divide="ignore"):
            return np.where(share > 0, np.ceil(sent * self._counts / np.maximum(share, 1e-300) - 1e-9), np.inf)
