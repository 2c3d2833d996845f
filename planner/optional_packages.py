"""Packages that are extras of this distribution: a message in the place of an ImportError."""

from collections.abc import Iterator
from contextlib import contextmanager

from planner.errors import InputError


@contextmanager
def needed(what: str, package: str, extra: str) -> Iterator[None]:
    """Import a package of an extra inside; say of what needs it how to install it.

    Raises
    ------
    InputError
        The package is not installed.
    """
    try:
        yield
    except ImportError:
        raise InputError(
            f"{what} needs the package {package}; install the extra `{extra}` of this distribution"
        ) from None
