"""koalad's log: how its lines look, and how a log file is kept within bounds."""

import contextlib
import os
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

MAX_BYTES = 10_000_000  # of a log file; then it becomes the one older file that is kept beside it


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


def set_up(wanted: LogFormat | None, file: Path | None, max_bytes: int = MAX_BYTES) -> None:
    """Log to standard error: text on a terminal, else JSON, where nothing is wanted.

    `file` is the file that standard output and error go to, if koalad is to keep it within its bounds.
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


def _renderers(chosen: LogFormat) -> list[Any]:
    if chosen is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]


class _Log:
    """Lines on standard error. A full disk costs the line, not whoever wrote it."""

    def __init__(self, file: Path | None, max_bytes: int) -> None:
        self._file, self._max_bytes = file, max_bytes
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None and os.fstat(2).st_size >= self._max_bytes:
                _turn_over(self._file)
            print(line, file=sys.stderr, flush=True)

    debug = info = warning = error = exception = critical = msg


def _turn_over(file: Path) -> None:
    """Go on in a new file; the full one stays as FILE.1, unless another process has put a new one there already."""
    if file.exists() and os.path.samestat(os.fstat(2), file.stat()):
        file.replace(file.with_name(f"{file.name}.1"))
    new = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for standard in (1, 2):
        os.dup2(new, standard)
    os.close(new)
