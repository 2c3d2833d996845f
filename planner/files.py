"""Read text files, and write files completely or not at all."""

import os
from errno import EACCES
from pathlib import Path

from planner.errors import InputError


def read_text(path: Path, remedy: str = "give a text file") -> str:
    """Read a text file in UTF-8.

    Raises
    ------
    InputError
        The file does not exist or cannot be read; the message ends with the remedy.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error}); {remedy}") from None


def require_writable(*outputs: Path | None) -> None:
    """Check, before any work is done, that each output can be written; None is no output.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written, or the output is a folder.
    """
    for output in outputs:
        if output is not None:
            _require_writable(output)


def _require_writable(output: Path) -> None:
    target = Path(os.path.realpath(output))
    try:
        if not target.parent.is_dir():
            raise InputError(f"{output}: its folder does not exist; make it, or write elsewhere")
        if target.is_dir():
            raise InputError(f"{output}: is a folder; name a file in it")
        if not _is_device(target):
            # Only a trial shows a read-only disk or a name that is too long.
            temporary_name(target).touch()
        elif not os.access(target, os.W_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
    except OSError as error:
        raise unwritable(output, error) from None
    finally:
        _remove(temporary_name(target))


def _remove(path: Path) -> None:
    """Remove a temporary file; its name itself may be what the disk refuses."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def temporary_name(path: Path) -> Path:
    """Return the name beside a file under which it is written before it is renamed."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the complaint that a file cannot be written."""
    return InputError(f"{path}: cannot be written ({error.strerror}); choose another place")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name and rename it; follow a link, and write to a device or a pipe directly.

    Raises
    ------
    InputError
        The file cannot be written; the message names the file that has the content instead.
    """
    data = content if isinstance(content, bytes) else content.encode()
    target = Path(os.path.realpath(path))
    try:
        if _is_device(target):
            target.write_bytes(data)
        else:
            temporary_name(target).write_bytes(data)
            temporary_name(target).replace(target)
    except OSError as error:
        _remove(temporary_name(target))
        fallback = _fallback(target, data)
        if fallback is None:
            raise unwritable(path, error) from None
        raise InputError(f"{path}: cannot be written ({error.strerror}); its content is in {fallback}") from None


def _fallback(path: Path, data: bytes) -> Path | None:
    """Write what a file was to hold into the folder for temporary files; None where that fails too."""
    import tempfile

    file = None
    try:
        with tempfile.NamedTemporaryFile(prefix="planner-", suffix=path.suffix, delete=False) as file:
            file.write(data)
    except OSError:
        if file is not None:
            _remove(Path(file.name))
        return None
    return Path(file.name)
