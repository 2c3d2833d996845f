"""What all tests share."""

import signal


def pytest_configure() -> None:
    """Answer Ctrl-C as in a terminal, also where the run was started in the background with the signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
