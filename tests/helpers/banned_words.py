"""Words that names in the package avoid, and what to write instead: the one list of them."""

import re

BANNED: dict[str, str] = {
    "again": "recompute", "bare": "without, and the noun that is missing", "beyond": "tolerance",
    "border": "WAN gateway", "borders": "WAN gateways", "calm": "the slowdown that is meant", "floors": "lower bounds",
    "hair": "EPS", "handoff": "requests", "held": "incumbent, solution, or the noun that is meant",
    "pace": "strategy, or the seconds that are meant", "paces": "strategies", "said": "reported",
    "settled": "known, or what is done", "stands": "report, or the verb that is meant", "story": "summary",
    "tells": "returns", "told": "reported, stated", "vector": "elementwise",
}  # fmt: skip


def words_of(name: str) -> list[str]:
    """Split a name in snake case or camel case into its words, in lower case."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
