"""Time of collectives in the alpha-beta form; rates are bytes per second, one direction."""

import numpy as np

from planner.physics.num import Num


def reduce_scatter_seconds(size_bytes: Num, ranks: Num, rate: Num, latency: Num) -> Num:
    """Ring reduce-scatter of `size_bytes` (the whole tensor) over `ranks`: (n-1)·alpha + (n-1)/n·S/beta (Thakur 2005)."""
    return (ranks - 1) * latency + (ranks - 1) / ranks * size_bytes / rate


def all_gather_seconds(size_bytes: Num, ranks: Num, rate: Num, latency: Num) -> Num:
    """Ring all-gather to `size_bytes` on every rank: the same steps as the reduce-scatter."""
    return reduce_scatter_seconds(size_bytes, ranks, rate, latency)


def all_reduce_seconds(size_bytes: Num, ranks: Num, rate: Num, latency: Num) -> Num:
    """Ring all-reduce: a reduce-scatter and an all-gather, 2·(n-1)·alpha + 2·(n-1)/n·S/beta.

    S is the whole tensor: a TP all-reduce moves b·s·h elements, not 1/t of them.
    """
    return reduce_scatter_seconds(size_bytes, ranks, rate, latency) + all_gather_seconds(size_bytes, ranks, rate, latency)


def exposed_tail_seconds(total_seconds: Num, layer_backward_seconds: Num, layers: Num) -> Num:
    """Return what is left of a per-layer collective after the backward pass that it runs beside.

    Layer k's exchange starts when its gradients are ready, so at the end at least the last layer's exchange remains,
    or all that did not fit beside the other layers' backward.
    """
    return np.maximum(total_seconds / layers, total_seconds - (layers - 1) * layer_backward_seconds)
