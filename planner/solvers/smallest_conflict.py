"""A smallest set of rules in conflict, found by asking of sets of them whether they conflict."""

from collections.abc import Callable, Sequence

Conflicting = Callable[[frozenset[str]], bool]


def remembered(conflicting: Conflicting, rules: Sequence[str]) -> Conflicting:
    """Return a question about sets of rules that conflict together, each asked where no answer before settles it.

    More rules than some that conflict do so too, and fewer than some that do not, or are not known to, neither.
    """
    judged = {frozenset(rules): True}

    def asked(some: frozenset[str]) -> bool:
        known = next((yes for known, yes in judged.items() if (known <= some if yes else some <= known)), None)
        if known is None:
            known = judged[some] = conflicting(some)
        return known

    return asked


def smallest_conflict(conflicting: Conflicting, rules: Sequence[str]) -> list[str]:
    """Return a smallest set of rules that conflict together, the later ones before others (QuickXplain, Junker 2004).

    None of them can be left out, but for those of which the question does not know whether the others conflict. One
    is returned at least; whether nothing at all conflicts is not asked.
    """
    found = set(_smallest(conflicting, frozenset(), tuple(rules)[::-1], changed=False))
    return [rule for rule in rules if rule in found]


def _smallest(
    conflicting: Conflicting, given: frozenset[str], rules: Sequence[str], *, changed: bool
) -> tuple[str, ...]:
    """Return a smallest set of `rules` that conflicts together with the `given` ones, by halving the rules.

    `changed`: rules were added to `given`, so that they may conflict alone.
    """
    if changed and conflicting(given):
        return ()
    if len(rules) == 1:
        return tuple(rules)
    first, last = rules[: len(rules) // 2], rules[len(rules) // 2 :]
    of_last = _smallest(conflicting, given.union(first), last, changed=True)
    return (*_smallest(conflicting, given.union(of_last), first, changed=bool(of_last)), *of_last)
