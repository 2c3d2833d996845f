"""Numbers of Agache et al. 2024, section 5: fabrics by tiers and ports, and completion times over them."""

from collections.abc import Iterator

import closed_forms
from paper_inputs import CASES, GPUS_PER_RACK, GPUS_PER_SITE, MS, NIC, RACKS, Row, level

from planner.physics.network.clos_fabric import Design
from planner.physics.training import collectives


def topology() -> Iterator[Row]:
    """Fabrics and transport (section 5)."""
    n = GPUS_PER_SITE
    links = closed_forms.fat_tree_links(n, 4)
    tiers = next(t for t in range(1, 9) if closed_forms.fat_tree_endpoints(64, t) >= n)
    yield Row("tiers of a non-blocking tree of 64-port switches", "", 4, tiers)
    full = closed_forms.fat_tree_switches(n, 64, 4)
    why = "3 tiers of N/32 and no top tier; full bisection takes 7N/64"
    yield Row("Fat-Tree switches", "", 75e3, 6 * n / 64, right=full, why=why)
    halved = closed_forms.fat_tree_switches(RACKS * GPUS_PER_RACK // 2, 64, 4)
    yield Row("Fat-Tree switches for half of 1.67M GPUs", "", None, halved)
    yield Row("Fat-Tree switch links", "M", 2.4, links / 1e6)
    yield Row("price of the links of both sites at $1K", "$B", 5, 2 * links * 1e3 / 1e9, 1)
    yield Row("256 ports of 200 Gbps", "Tbps", 51.2, 256 * 200 / 1e3)
    yield Row("endpoints of two tiers, 256 ports, full bisection", "", 32e3, closed_forms.fat_tree_endpoints(256, 2), 2)
    yield Row(
        "endpoints of two tiers, 256 ports, 200 down and 50 up", "", 51e3, closed_forms.tree_reach((200,), 256), 2
    )
    reach = closed_forms.fat_tree_endpoints(1024, 2)
    over = closed_forms.tree_reach((1024 * 4 // 5,), 1024)
    why = f"short of a site at full bisection; 4:1 reaches {over:,}"
    yield Row("endpoints of two tiers, 1024 ports", "", n, reach, right=reach, why=why)
    why = '"a third"'
    links_saved = 100 * (1 - closed_forms.fat_tree_links(n, 3) / links)
    yield Row("links that multi-rail saves", "%", 100 / 3, links_saved, why=why)
    chips = 100 * (1 - 4 * closed_forms.fat_tree_switches(n, 256, 3) / full)
    why = '"a third"; 5N/64 against 7N/64 is two sevenths'
    yield Row("chips that multi-rail saves", "%", 100 / 3, chips, right=chips, why=why)
    yield Row("GPUs under a first-tier switch at full bisection", "", 128, 256 // 2)
    yield from oversubscribed(links, full)
    yield from transport()


def oversubscribed(full_links: int, full_chips: float) -> Iterator[Row]:
    """Count the 4:1 and 2:1 fabric as the paper does, with 256 GPUs beside 50 uplinks on a switch, and by its ports."""
    # As printed: 256 down and 50 up would be 306 ports on a box of 256.
    own, right = (closed_forms.relaxed_tiers(GPUS_PER_SITE, ((down, 50), (168, 88)), 256) for down in (256, 200))
    own_links, right_links = (50 * tiers[0] + 88 * tiers[1] for tiers in (own, right))
    why = "counts 256 GPUs beside 50 uplinks on a 256-port switch; the stated 200 down take more"
    yield Row("switches at 4:1 and 2:1", "", 4300, sum(own), right=sum(right), why=why)
    more = closed_forms.relaxed_tiers(RACKS * GPUS_PER_RACK // 2, ((200, 50), (168, 88)), 256)
    yield Row("switches at 4:1 and 2:1 for half of 1.67M GPUs", "", None, sum(more))
    yield Row("chips at 4:1 and 2:1", "", 17_200, 4 * sum(own), right=4 * sum(right), why=why)
    value = 400 * sum(own) / full_chips
    yield Row("chips over those of the Fat Tree", "%", 20, value, right=400 * sum(right) / full_chips, why=why)
    yield Row("switch links at 4:1 and 2:1", "K", 240, own_links / 1e3, right=right_links / 1e3, why=why)
    yield Row("Fat-Tree links over these", "x", 10, full_links / own_links, right=full_links / right_links, why=why)
    yield Row("top-tier switches", "", 300, own[-1], 1, right=right[-1], why=why)
    yield Row("oversubscription of 168 down and 88 up", "", 2, 168 / 88, 1)


def transport() -> Iterator[Row]:
    """Completion times over the fabric (section 5)."""
    bigger = CASES[0]
    d = Design(
        ports=256,
        rails=GPUS_PER_RACK,
        racks=RACKS // 2,
        leaf_down=200,
        leaf_up=50,
        leaf_bundle=1,
        rails_per_pod=1,
        domains_per_pod=1,
    )
    yield Row("PP exchange at 4:1, 100T", "ms", 12, d.oversubscription["leaf"] * bigger.pipeline_send_seconds() / MS, 2)
    turns = float(collectives.all_reduce(0.0, level(bigger.peers, NIC, 5e-6))) / MS
    yield Row("latency of the ring between racks at 5 us", "ms", 1, turns, 1, why="2·(103-1) round trips")
    late, iteration = (15 - 3) * MS * 2 * bigger.layers, 3 * bigger.forward_seconds() * bigger.layers
    yield Row("delay by ECMP collisions", "s", 5, late, 1, why="12 ms at every layer, forward and backward")
    own, right = 100 * 12 * MS / (3 * bigger.forward_seconds()), 100 * late / iteration
    why = "3 % counts the delay once a layer, 5 s counts it twice"
    yield Row("the same over the iteration", "%", 3, own, 1, right=right, why=why)
