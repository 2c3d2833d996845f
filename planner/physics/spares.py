"""Ports of a leaf that are kept free."""

import math


def spare_ports(used: int, share: float, failure_chance: float, shortage_chance: float) -> int:
    """Return how many of a leaf's ports to keep free for `used` ones: a share of them, and so many that failures exceed them rarely.

    The least n with P(Binomial(used, failure_chance) > n) <= shortage_chance: ports fail one by one and each by itself.
    """
    least = math.ceil(used * share - 1e-9)
    if failure_chance <= 0:
        return least
    if failure_chance >= 1:
        return used
    log_odds = math.log(failure_chance) - math.log1p(-failure_chance)
    term = used * math.log1p(-failure_chance)
    below, n = math.exp(term), 0
    while 1 - below > shortage_chance and n < used:
        term += math.log((used - n) / (n + 1)) + log_odds
        below += math.exp(term)
        n += 1
    return max(least, n)
