"""The plainest choices of a layout that is not given in full: even layers, and stages packed as ranks are ordered."""


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Return an even spread of layers; where two are short, the ends, which have the embeddings, get one less."""
    if stages > 1 and layers % stages and (layers + 2) % stages == 0:
        even = (layers + 2) // stages
        return (even - 1, *(even,) * (stages - 2), even - 1)
    return tuple(layers // stages + (i < layers % stages) for i in range(stages))


def min_stages_per_rack(gpus: int, unit: int, stages: int, replicas: int, racks: int | None) -> int:
    """Return how many stages share a rack: one, replicas side by side, unless the racks at hand ask for more."""
    spread = -(-unit // gpus)
    for q in range(1, stages + 1):
        r = max(1, gpus // (q * unit))
        if q == 1 and racks is None:
            break
        if q * unit <= max(gpus, unit) and -(-stages // q) * -(-replicas // r) * spread <= (racks or 0):
            return q
    return 1


def packing(domain: int, t: int, c: int, p: int, d: int, gpus: int) -> tuple[int, int]:
    """Return stages and replicas of a rack as Megatron orders ranks: replicas side by side.

    A rack has several stages only where a stage's replicas do not fill one and the GPUs at hand ask for it.
    """
    q = 1 if d * t * c >= domain else min_stages_per_rack(domain, t * c, p, d, -(-gpus // domain))
    return q, max(1, domain // (q * t * c))
