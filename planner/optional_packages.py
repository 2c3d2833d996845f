"""Packages that are extras of this distribution: a message in place of an ImportError."""

from collections.abc import Iterator
from contextlib import contextmanager

from planner.errors import InputError


@contextmanager
def needed(feature: str, package: str, extra: str) -> Iterator[None]:
    """Import a package of an extra inside; where it is missing, say how to install what the feature needs.

    InputError: the package is not installed, or refuses its environment.
    """
    try:
        yield
    except ImportError:
        remedy = f"install the extra `{extra}` of this distribution"
        raise InputError(f"{feature} needs the package {package}; {remedy}") from None
    except ValueError as error:  # such as a value of MPLBACKEND that is none
        problem = str(error).partition(";")[0]
        raise InputError(f"{feature}: {package} does not load ({problem}); correct the environment") from None
