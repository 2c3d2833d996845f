"""Write files whole, or not at all."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import InputError

if TYPE_CHECKING:
    pass


def require_folder(output: Path | None) -> None:
    """Refuse, before any work is done, to write where there is no folder."""
    if output is not None and not output.resolve().parent.is_dir():
        raise InputError(f"{output}: its folder does not exist; make it, or write elsewhere")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file all at once: to a temporary name beside it, then renamed; a link is followed, a device or a pipe written to."""
    data = content if isinstance(content, bytes) else content.encode()
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            path.write_bytes(data)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
        return
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
