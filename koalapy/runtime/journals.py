"""Journals of batches that made koalad's engine fail, kept in the state directory for a later replay."""

import gzip
import json
import os
import threading
from pathlib import Path

import structlog

from koalapy import __version__
from koalapy.journal.journal import JournalState
from koalapy.journal.text import dump
from koalapy.model.units import Instant, format_instant

KEPT = 5
_LOG = structlog.get_logger()


class Journals:
    """The files `failed-INSTANT.json.gz` of this directory, for their owner alone. The newest are kept.

    One koalad writes one for each error, and `KEPT` in all: an error that repeats does not replace the others.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._errors: set[str] = set()
        self._writing: list[threading.Thread] = []

    def write_soon(self, taken: JournalState) -> None:
        """Write the journal in the background. Returns at once; a failure is logged."""
        if taken.error in self._errors or len(self._errors) >= KEPT:
            return
        self._errors.add(taken.error)
        thread = threading.Thread(target=self._write, args=(taken,), name="journal", daemon=True)
        self._writing.append(thread)
        thread.start()

    def close(self, patience_s: float) -> None:
        """Wait for the journals being written, `patience_s` seconds at most for each."""
        for thread in self._writing:
            thread.join(patience_s)

    def _write(self, taken: JournalState) -> None:
        at = format_instant(taken.batches[-1].now if taken.batches else Instant(0))
        path = self._directory / f"failed-{at.replace(':', '')}.json.gz"
        try:
            data = gzip.compress(json.dumps(dump(taken, __version__)).encode())
            self._directory.mkdir(mode=0o700, exist_ok=True)
            partial = path.with_suffix(".part")
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
            partial.replace(path)
            for old in files_of(self._directory)[:-KEPT]:
                old.unlink(missing_ok=True)
        except Exception as error:  # a failure costs no more than the journal
            _LOG.error("journal_not_written", path=str(path), error=f"{type(error).__name__}: {error}")
        else:
            _LOG.error("journal_written", path=str(path), error=taken.error)


def files_of(directory: Path) -> list[Path]:
    """Return the journals of this directory, the oldest first; none if there is no such directory."""
    return sorted(directory.glob("failed-*.json.gz"))
