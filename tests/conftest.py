"""What all tests share: the answer to Ctrl-C, and which tests are left to the slow tier."""

import os
import signal

import pytest

MANY_SEEDS = 30  # of a test over more of them, the quick tier takes every fourth, which keeps it short
OF_A_TERMINAL = "COLUMNS", "LINES", "FORCE_COLOR"  # they change how wide and how coloured a command prints


def pytest_configure() -> None:
    """Forget the caller's terminal, and answer Ctrl-C as in one, also where a run in the background ignores it."""
    for name in OF_A_TERMINAL:
        os.environ.pop(name, None)
        os.unsetenv(name)  # readline, which pytest loads, sets them behind os.environ for processes that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark three of four seeds as slow in tests over many seeds."""
    seeds: dict[str, list[tuple[pytest.Item, int]]] = {}
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and isinstance(call.params.get("seed"), int):
            seeds.setdefault(item.nodeid.partition("[")[0], []).append((item, call.params["seed"]))
    for test in seeds.values():
        if len({seed for _, seed in test}) > MANY_SEEDS:
            for item, seed in test:
                if seed % 4:
                    item.add_marker(pytest.mark.slow)
