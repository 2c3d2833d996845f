"""Files too large to hold: written piece by piece to a temporary name, then renamed."""

import os
from collections.abc import Iterable
from pathlib import Path

from planner.errors import InputError


def write_streamed(path: Path, pieces: Iterable[str]) -> None:
    """Write pieces of text one after another; the file appears whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8", newline="") as file:
            file.writelines(pieces)
        beside.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
    finally:
        beside.unlink(missing_ok=True)
