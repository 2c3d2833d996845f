"""A smallest set of rules in conflict is that of leaving out each in turn, and is asked for less often."""

import random

import pytest

from planner.solvers.outcome import remembered, smallest_conflict


def in_turn(cores: list[frozenset[str]], rules: list[str]) -> list[str]:
    """Leave out each rule, the first ones first, for good where the rest still conflict."""
    kept = list(rules)
    for rule in rules:
        without = [x for x in kept if x != rule]
        kept = without if any(core <= set(without) for core in cores) else kept
    return kept


@pytest.mark.parametrize("seed", range(4))
def test_it_is_that_of_leaving_out_each_in_turn(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(100):
        rules = [f"r{k}" for k in range(r.randint(1, 9))]
        cores = [frozenset(r.sample(rules, r.randint(1, min(4, len(rules))))) for _ in range(r.randint(1, 4))]
        asked: list[frozenset[str]] = []

        def conflicting(
            some: frozenset[str], cores: list[frozenset[str]] = cores, asked: list[frozenset[str]] = asked
        ) -> bool:
            asked.append(some)
            return any(core <= some for core in cores)

        found = smallest_conflict(remembered(conflicting, rules), rules)
        assert found == in_turn(cores, rules)
        assert len(asked) == len(set(asked)) and frozenset(rules) not in asked


def test_one_rule_of_many_is_found_by_few_questions() -> None:
    """By half and half, and not one by one."""
    rules, asked = [f"r{k}" for k in range(64)], []

    def conflicting(some: frozenset[str]) -> bool:
        asked.append(some)
        return "r40" in some

    assert smallest_conflict(remembered(conflicting, rules), rules) == ["r40"] and len(asked) <= 2 * 6


def test_what_is_not_known_stays() -> None:
    rules = ["a", "b", "c"]
    assert smallest_conflict(remembered(lambda _: False, rules), rules) == rules
