"""Read text and JSON files within limits, each opened once; write files completely or not at all, cells as text."""

import csv
import difflib
import io
import json
import math
import os
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from errno import EACCES
from functools import partial
from pathlib import Path
from typing import Any

from planner.errors import InputError

MAX_BYTES = 1 << 29  # of a file: the nodes of a cluster of 50,000 as Kubernetes prints them, 10 kB each
MAX_DEPTH = 100  # of JSON; the deepest plan has 12 levels
MAX_DIGITS = 300  # of a number: any such integer is a finite float
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet computes


def read_text(path: Path, remedy: str = "give a text file") -> str:
    """Read a file's UTF-8 text, opened once so that a pipe will do. InputError: missing, too large or unreadable."""
    data = read_bytes(path, remedy)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = "it is UTF-16, save it as UTF-8" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else error
        raise InputError(f"{path}: cannot be read as UTF-8 text ({problem}); {remedy}") from None
    if "\0" in text:
        problem = f"byte 0 at character {text.index(chr(0)) + 1}: it is binary or UTF-16"
        raise InputError(f"{path}: cannot be read as UTF-8 text ({problem}); {remedy}")
    return text


def read_bytes(path: Path, remedy: str) -> bytes:
    """Read a file to its end, opened once. InputError: it does not exist, is too large or cannot be read."""
    chunks, size = [], 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):  # more is asked for only where there is more
                size += len(chunk)
                if size > MAX_BYTES:
                    raise InputError(f"{path}: is larger than {MAX_BYTES >> 20} MiB; give a smaller file")
                chunks.append(chunk)
    except FileNotFoundError:
        near = list[str]()
        with suppress(OSError, ValueError):
            near = difflib.get_close_matches(path.name, [x.name for x in path.parent.glob(f"*{path.suffix}")], 1)
        hint = f"did you mean {path.parent / near[0]}?" if near else "check the path"
        raise InputError(f"{path}: no such file; {hint}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a file; {remedy}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path itself
        raise InputError(f"{path}: cannot be read ({error}); {remedy}") from None
    return b"".join(chunks)


def exists(path: Path) -> bool:
    """Return whether a file exists at a path; one with a name that no disk takes does not."""
    return os.path.exists(path)  # noqa: PTH110  # Path.exists raises where a name is too long


def read_json(path: Path, remedy: str = "give a JSON file") -> Any:
    """Read a JSON file, opened once. InputError names the file, and where its JSON ends, or the limit exceeded."""
    return parse_json(read_text(path, remedy), str(path))


def parse_json(text: str, where: str, *, one_line: bool = False, or_text: bool = False) -> Any:
    """Parse the JSON of a file, `where`; `or_text`: text that is no JSON is returned as it is.

    InputError: repeated keys, numbers infinite or too long, nested too deeply, half of a character, or no JSON.
    """
    too_deep = InputError(f"{where}: is nested more than {MAX_DEPTH} levels deep; flatten it")
    try:
        hooks: dict[str, Any] = dict.fromkeys(("parse_constant", "parse_int", "parse_float"), json_number)
        data = json.loads(text, object_pairs_hook=_no_duplicates, **hooks)
    except json.JSONDecodeError as error:
        if not or_text:
            problem = f"{'' if one_line else f'line {error.lineno} '}column {error.colno}: {error.msg}"
            raise InputError(f"{where}: {problem}; fix the JSON there") from None
        data = text
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    except RecursionError:
        raise too_deep from None
    # Levels of lists and objects are counted without recursion.
    level, depth = [data] if isinstance(data, (dict, list)) else [], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise too_deep
        inner = (value for part in level for value in (part.values() if isinstance(part, dict) else part))
        level = [value for value in inner if isinstance(value, (dict, list))]
    if data is text or re.search(r"\\u[dD][89a-fA-F]", text):
        try:  # half of a surrogate pair is what no file in UTF-8 can hold
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            raise InputError(f"{where}: {half} is half of a character; write both halves, or the character") from None
    return data


json_or_text = partial(parse_json, or_text=True)  # of a value of the command line, or a cell


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"key {twice[:80]!r} is given twice in one object; keep one")
    return data


def json_number(text: str) -> float:
    """Return a finite number of a JSON file, or ValueError."""
    if text.removeprefix("-").isdigit():
        if len(text) > MAX_DIGITS:
            raise ValueError(f"{text[:20]}… has {len(text):,} digits, more than {MAX_DIGITS}; give a shorter number")
        return int(text)
    if text in ("NaN", "Infinity", "-Infinity"):
        raise ValueError(f"{text} is not a JSON number; give a finite figure")
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond the largest number of 1.8e308; give a finite figure")
    return value


def require_folder(folder: Path) -> None:
    """Check before any work that files can be written into a folder. InputError: they cannot, or there is none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; make it, or write the plans elsewhere")
    require_writable(folder / "plan.json")


def require_writable(*outputs: Path | None) -> None:
    """Check before any work that each output can be written, None but for none. InputError: one cannot be."""
    for output in filter(None, outputs):
        target = Path(os.path.realpath(output))
        try:
            if not target.parent.is_dir():
                raise InputError(f"{output}: its folder does not exist; make it, or write elsewhere")
            if target.is_dir():
                raise InputError(f"{output}: is a folder; name a file in it")
            if target.is_file() or not target.exists():
                temporary_name(target).touch()  # only a trial shows a read-only disk or a name that is too long
            elif not os.access(target, os.W_OK):
                raise PermissionError(EACCES, os.strerror(EACCES))
        except OSError as error:
            raise unwritable(output, error) from None
        finally:
            _remove(temporary_name(target))


def _remove(path: Path) -> None:
    with suppress(OSError):  # its name itself may be what the disk refuses
        path.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """Return the path in the same folder under which a file is written before it is renamed."""
    return path.parent / f".{path.name}.{os.getpid()}"


def unwritable(path: Path, error: OSError, fallback: Path | None = None) -> InputError:
    """Return the InputError that a file cannot be written; `fallback` has its content instead."""
    remedy = f"its content is in {fallback}" if fallback else "choose another place"
    return InputError(f"{path}: cannot be written ({error.strerror}); {remedy}")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name and rename it; follow a link, and write to a device or a pipe directly.

    InputError: the file cannot be written; the message names the file that has the content instead.
    """
    data = content if isinstance(content, bytes) else encoded(content, path)
    write_streamed(path, lambda: [data])


def encoded(text: str, path: Path | str) -> bytes:
    """Return a file's text in UTF-8; with words of the command line that a locale passed on byte by byte."""
    data = text.encode("utf-8", "surrogateescape")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        byte = f"\\x{data[error.start]:02x}"
        raise InputError(f"{path}: cannot hold {byte}, which is no text in UTF-8; give names in UTF-8") from None
    return data


def write_streamed(path: Path, pieces: Callable[[], Iterable[str | bytes]]) -> None:
    """Write a file piece by piece as `write_atomically` does; `pieces` begins anew where it cannot be written."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file() and not target.is_dir():  # a device
            _write(target, pieces())
        else:
            _write(temporary_name(target), pieces())
            temporary_name(target).replace(target)
            with suppress(OSError):  # puts the rename on the disk where the system can; the file itself is there
                descriptor = os.open(target.parent, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
    except OSError as error:
        _remove(temporary_name(target))  # first, as the disk may be full
        raise unwritable(path, error, write_fallback(target, pieces)) from None
    finally:
        _remove(temporary_name(target))


def _write(path: Path, pieces: Iterable[str | bytes]) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece if isinstance(piece, bytes) else piece.encode())
        file.flush()
        if path.is_file():  # a pipe and most devices have nothing to synchronise
            os.fsync(file.fileno())


def write_fallback(path: Path, pieces: Callable[[], Iterable[str | bytes]]) -> Path | None:
    """Write what a file was to hold into the folder for temporary files; None where that fails too."""
    import tempfile

    name = None
    try:
        descriptor, name = tempfile.mkstemp(prefix="planner-", suffix=path.suffix)
        os.close(descriptor)
        _write(Path(name), pieces())
    except OSError:
        if name is not None:
            _remove(Path(name))
        return None
    return Path(name)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Write rows of cells as the text of a CSV file that no spreadsheet runs as formulas; numbers stay numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        cells = list(row)
        for i, cell in enumerate(cells):  # an apostrophe before what begins like a formula and is no number
            if isinstance(cell, str) and cell.lstrip("'").startswith(FORMULA):
                try:
                    float(cell)
                except ValueError:
                    cells[i] = f"'{cell}"
        writer.writerow(cells)
    return text.getvalue()


def csv_rows(path: Path, text: str, *, delimiter: str = ",", titled: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the header of a CSV file and each row that has a filled cell, with the line on which it ends.

    `titled`: rows above the header have one filled cell. InputError names the line of wrong quotes (of a row whose
    quotes do not close its first), or of a row that has not as many cells as the header.
    """
    # Not splitlines: a cell may hold U+0085, U+2028 or U+2029.
    reader, width, first = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 0, 1
    try:
        for row in reader:
            header = titled and not width
            if sum(map(bool, map(str.strip, row))) > 1 if header else any(map(str.strip, row)):
                width = width or len(row)
                if len(row) != width:
                    problem = f"has {len(row)} cells where the header has {width}"
                    raise InputError(f"{path}: line {reader.line_num}: {problem}; add or remove commas")
                yield reader.line_num, row
            first = reader.line_num + 1
    except csv.Error as error:
        # A quote that is not closed takes in all lines after it.
        line = first if str(error) == "unexpected end of data" else reader.line_num
        raise InputError(f"{path}: line {line}: {error}; correct the quotes there") from None


def json_lines(path: Path, text: str, remedy: str, *, torn: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file, with lines; `torn`: without a broken last. InputError: not an object."""
    lines = text.split("\n")  # not splitlines: JSON text may hold U+0085, U+2028 and U+2029 as they are
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = parse_json(line, f"{path}: line {number}", one_line=True)
        except InputError:
            if torn and number == len(lines):
                return
            raise
        if not isinstance(item, dict):
            raise InputError(f"{path}: line {number}: must be an object (is {line[:60]}); {remedy}")
        yield number, item


def unescaped(cell: str) -> str:
    """Return the text of a cell of a CSV file that planner wrote, without the mark against spreadsheet formulas."""
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell


def leaves(value: Any, where: str = "", entry: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the values of JSON objects in a file by dotted path; those of lists too where `entry` is given.

    `entry` writes the place of an item in a list: {} its id or name, or else its index, which {1} is in any case.
    """
    if isinstance(value, dict):
        for key, child in value.items():
            yield from leaves(child, f"{where}.{key}" if where else str(key), entry)
    elif isinstance(value, list) and entry is not None:
        for index, child in enumerate(value):
            name = child.get("id") or child.get("name") if isinstance(child, dict) else None
            yield from leaves(child, where + entry.format(name or index, index), entry)
    elif where:
        yield where, value
