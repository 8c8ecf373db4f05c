"""The lines of a workload file, plain or compressed, read one by one so that the file may be of any length."""

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path

from koalapy.model.errors import RequestError

MAX_LINE = 1 << 16
_CHUNK, _MOST = 1 << 20, 1 << 30
_OPENERS: dict[str, Callable[[Path], BufferedIOBase]] = {
    ".gz": lambda path: gzip.GzipFile(path),
    ".xz": lambda path: lzma.LZMAFile(path),  # noqa: SIM115 — read_lines closes it
    ".bz2": lambda path: bz2.BZ2File(path),
}
_BROKEN = (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of every line, from 1.

    Raises RequestError if the file cannot be read; it names the last line that was read.
    """
    number = 0
    with _with_line(path, lambda: number), contextlib.closing(_open(path)) as file:
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise bad_line(path, number, "is longer than any line of a workload", "Is this a workload file?")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n")


def read_whole(path: Path) -> str:
    """Return the text of all lines, 1 GiB at most. Raises RequestError as `read_lines` does."""
    parts: list[bytes] = []
    with _with_line(path, lambda: sum(part.count(b"\n") for part in parts)), contextlib.closing(_open(path)) as file:
        while part := file.read(_CHUNK):
            parts.append(part)
            if len(parts) * _CHUNK > _MOST:
                raise RequestError("too_large", f"{path} is larger than 1 GiB.", "Replay a part of it.")
    return b"".join(parts).decode("utf-8-sig", "replace")


@contextlib.contextmanager
def _with_line(path: Path, line: Callable[[], int]) -> Iterator[None]:
    """Convert an error of reading to one with the number of the last line read. Raises RequestError."""
    try:
        yield
    except _BROKEN as error:
        raise _broken(path, line(), error) from error
    except OSError as error:
        if error.errno is None:  # an error of bz2, not of the operating system
            raise _broken(path, line(), error) from error
        after = f" after line {line()}" if line() else ""
        message = f"{path} cannot be read{after}: {error.strerror}."
        raise RequestError("unreadable_trace", message, "Check its name and its permissions.") from error


def _broken(path: Path, line: int, error: Exception) -> RequestError:
    message = f"{path} cannot be decompressed after line {line}: {error}."
    advice = f"It may be truncated, or be none of {path.suffix}; fetch it anew."
    return RequestError("broken_archive", message, advice)


def bad_line(path: Path, number: int, what: str, advice: str) -> RequestError:
    """Return the error for a line that does not have the file's format; its sentence names file and line."""
    return RequestError("bad_trace_line", f"{path}, line {number} {what}.", advice)


def _open(path: Path) -> BufferedIOBase:
    opener = _OPENERS.get(path.suffix)
    return path.open("rb") if opener is None else opener(path)
