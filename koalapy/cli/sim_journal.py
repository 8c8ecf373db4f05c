"""`koala sim replay --journal`: replays the events of a koalad's journal, and compares the decisions."""

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koalapy import __version__
from koalapy.cli import output
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.model.units import format_instant

if TYPE_CHECKING:  # the engine is imported on use: other commands start without it
    from koalapy.journal.replay import Replayed
    from koalapy.policies.scavenging import ScavengingPolicies
    from koalapy.scheduler.schedule import Policies

_GZIP = b"\x1f\x8b"


def replay_journal(path: Path, as_json: bool) -> int:
    """Replay the journal, and print the result. Return 1 if a decision differs, else 0. Raises RequestError."""
    from koalapy.journal.replay import replay as repeat
    from koalapy.journal.text import load

    written = _read_journal(path)
    version = str(written.get("koalapy"))
    taken = load(written, _policies_of)
    if version != __version__:
        output.print_message(f"The journal is of koalapy {version}; this is {__version__}.")
    found = repeat(taken)
    if as_json:
        output.print_json(_journal_document(path, version, found))
    else:
        _print_replayed(found)
    return 0 if found.difference is None else 1


def _read_journal(path: Path) -> Any:
    """Return the document of a journal. Raises RequestError if the file has none."""
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        message = f"{path} cannot be read as a journal: {getattr(error, 'strerror', None) or error}."
        raise RequestError("no_journal", message, "Give the path of a journal, .json or .json.gz.") from error


def _policies_of(settings: Settings) -> "tuple[Policies, ScavengingPolicies]":
    from koalapy.runtime.load_policies import policies, scavenging_policies

    return policies(settings), scavenging_policies(settings)


def _print_replayed(found: "Replayed") -> None:
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


def _journal_document(path: Path, version: str, found: "Replayed") -> dict[str, Any]:
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
        "koalapy": version,
        "batches": found.batches,
        "events": found.events,
        "commands": found.commands,
        "hints": found.words,
        "failure": found.failure or None,
        "difference": document,
    }
