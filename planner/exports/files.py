"""Files too large for memory: written piece by piece to a temporary name, then renamed."""

import os
from collections.abc import Iterable
from pathlib import Path

from planner.errors import InputError


def write_streamed(path: Path, texts: Iterable[str]) -> None:
    """Write texts one after another; the file appears complete or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8", newline="") as file:
            file.writelines(texts)
        beside.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
    finally:
        beside.unlink(missing_ok=True)
