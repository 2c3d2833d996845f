"""Solves in threads of one process take turns: Pyomo and the sessions' tables are no two threads' at once."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from planner.solvers.deadline import Deadline

WAKE_SECONDS = 0.05  # between looks at the limit and the interrupter while another thread has the turn
_lock = threading.RLock()


@contextmanager
def turn(deadline: Deadline) -> Iterator[bool]:
    """Wait for the process's one turn to solve; yield whether it came before the deadline. One thread may nest it."""
    lock = _lock
    mine = lock.acquire(timeout=WAKE_SECONDS)
    while not mine and not deadline.passed:
        mine = lock.acquire(timeout=WAKE_SECONDS)
    try:
        yield mine
    finally:
        if mine:
            lock.release()


def _renew() -> None:
    """Free the turn in a forked process, which has no thread that could give it back."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)
