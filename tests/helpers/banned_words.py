"""Words that names in the package avoid, and what to write instead: the one list of them."""

import re

BANNED: dict[str, str] = {}


def words_of(name: str) -> list[str]:
    """Split a name in snake case or camel case into its words, in lower case."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
