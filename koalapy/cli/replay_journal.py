"""`koala sim replay --journal`: repeats the recent decisions of a koalad, and compares the results."""

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koalapy import __version__
from koalapy.cli import output
from koalapy.journal.journal import Taken
from koalapy.journal.replay import Replayed, replay
from koalapy.journal.text import load
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.model.units import format_instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.runtime.load_policies import policies, scavenging_policies
from koalapy.scheduler.schedule import Policies

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class _Read:
    taken: Taken
    version: str


def replay_journal(path: Path, as_json: bool) -> int:
    """Replay the journal, and print the result. Return 1 if a decision differs, else 0. Raises RequestError."""
    read = _read(path)
    if read.version != __version__:
        output.print_message(f"The journal is of koalapy {read.version}; this is {__version__}.")
    found = replay(read.taken)
    if as_json:
        output.print_json(_document(path, read, found))
    else:
        _print(found)
    return 0 if found.difference is None else 1


def _read(path: Path) -> _Read:
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data.startswith(_GZIP) else data
        document = json.loads(text)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        message = f"{path} cannot be read as a journal: {getattr(error, 'strerror', None) or error}."
        raise RequestError("no_journal", message, "Give the path of a journal, .json or .json.gz.") from error
    return _Read(load(document, _chosen), str(document.get("koalapy")))


def _chosen(settings: Settings) -> tuple[Policies, ScavengingPolicies]:
    return policies(settings), scavenging_policies(settings)


def _print(found: Replayed) -> None:
    done = f"{counted_as(f'{found.events:,}', 'event')}, {counted_as(f'{found.commands:,}', 'command')}"
    done += f" and {counted_as(f'{found.words:,}', 'hint')}"
    if found.difference is not None:
        each = found.difference
        output.out.print(f"Batch {each.batch:,} ({format_instant(each.now)}) differs, after {done} as in the journal.")
        output.out.print(f"expected: {each.expected}")
        output.out.print(f"got:      {each.got}")
    elif found.failure:
        output.out.print(f"Batch {found.batches:,} fails as it did there: {found.failure}. Before it: {done}.")
    else:
        batches = counted_as(f"{found.batches:,}", "batch", "batches")
        output.out.print(f"{batches} replayed: {done}, all as in the journal.")


def _document(path: Path, read: _Read, found: Replayed) -> dict[str, Any]:
    difference = found.difference
    document = None
    if difference is not None:
        document = {
            "batch": difference.batch, "at": format_instant(difference.now), "expected": difference.expected,
            "got": difference.got,
        }  # fmt: skip
    return {
        "schema": "koala.journal-replay/1",
        "journal": str(path),
        "koalapy": read.version,
        "batches": found.batches,
        "events": found.events,
        "commands": found.commands,
        "hints": found.words,
        "failure": found.failure or None,
        "difference": document,
    }
