"""koalad's log: the format of its lines, and the limit of a log file's size.

Values come from other hosts. One event is one line, in which no value can look like another event: JSON escapes control
characters, and text for people makes them visible. Only a traceback has further lines, which are indented.
"""

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import MutableMapping
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import structlog

from koalapy.model.textfile.words import visible, visible_line

MAX_BYTES = 10_000_000  # bytes of a log file; a full one is renamed, and replaces the one older file


class LogFormat(StrEnum):
    """The format of log lines."""

    JSON = "json"
    TEXT = "text"


def set_up(wanted: LogFormat | None, file: Path | None, max_bytes: int = MAX_BYTES) -> None:
    """Configure logging to standard error. The default format is text on a terminal, else JSON.

    `file` is the file of standard output and error, if koalad is to limit its size to `max_bytes`.
    """
    log = _Log(file, max_bytes)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderers(wanted or (LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON)),
        ],
        logger_factory=lambda *_: log,
        cache_logger_on_first_use=True,
    )
    logging.getLogger().addHandler(_Library())
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda broken: _log_uncaught(broken.exc_type, broken.exc_value, broken.exc_traceback)


def _renderers(chosen: LogFormat) -> list[Any]:
    if chosen is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [_one_line, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_indented)]


def _one_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make text visible in one line. Other values are shown by repr, which escapes by itself."""
    return {visible_line(key): visible_line(value) if isinstance(value, str) else value for key, value in event.items()}


def _indented(stream: TextIO, error: Any) -> None:
    lines = visible("".join(traceback.format_exception(*error))).splitlines()
    stream.write("\n".join(f"    {line}" for line in lines))


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if not issubclass(kind, SystemExit):
        structlog.get_logger().error("uncaught", exc_info=(kind, error, trace))


class _Library(logging.Handler):
    """Passes the warnings of libraries to the log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a warning or error."""
        if record.levelno >= logging.WARNING:
            structlog.get_logger().warning(
                "library_said", library=record.name, text=record.getMessage(), exc_info=record.exc_info
            )


class _Log:
    """Writes lines to standard error. A full disk loses the line, but does not disturb its writer."""

    def __init__(self, file: Path | None, max_bytes: int) -> None:
        self._file, self._max_bytes = file, max_bytes
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        """Write a line, in a new file if the current one is full."""
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None and os.fstat(2).st_size >= self._max_bytes:
                _rotate(self._file)
            print(line, file=sys.stderr, flush=True)

    debug = info = warning = error = exception = critical = msg


def _rotate(file: Path) -> None:
    """Continue in a new file. The full one becomes FILE.1, unless another process has renamed it already."""
    if file.exists() and os.path.samestat(os.fstat(2), file.stat()):
        file.replace(file.with_name(f"{file.name}.1"))
    new = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for standard in (1, 2):
        os.dup2(new, standard)
    os.close(new)
