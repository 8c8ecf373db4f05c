"""The status of an attempt's directory, as an inspection finds it."""

from typing import Any, Dict, Optional

from koalapy_adapters import layout, start_lock
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.state.actions import DirectoryStatus

_LAST_WORDS = 2000  # bytes of a batch job's output


def sight(directory: str, files: Files) -> DirectoryStatus:
    """Raises OSError where it cannot be looked into."""
    # A network file system remembers for a while that a file was not there, but not beyond a look at the list.
    names = files.names(directory)
    try:
        claim = start_lock.held_by(directory, files) if "start-lock" in names else None
        record = layout.read_json(layout.inside(directory, "record.json"), files) if "record.json" in names else None
    except ValueError:
        return DirectoryStatus(start_lock="unreadable")
    beat = files.modified(layout.inside(directory, "heartbeat")) if "heartbeat" in names else 0
    output = _output(directory, files) if claim is None and "batch.out" in names else None
    record = record if isinstance(record, dict) else None
    return DirectoryStatus(claim.kind if claim else "", record, int(beat * 1e6), directory, output)


def age(directory: str, files: Files, now: float) -> Optional[float]:
    """Seconds since it was prepared, or revoked before that; None if it goes away meanwhile. Raises OSError."""
    for path in (layout.inside(directory, "component.json"), layout.inside(directory, "start-lock"), directory):
        try:
            return max(0.0, now - files.modified(path))
        except FileNotFoundError:
            continue
    return None


def described(seen: DirectoryStatus, age_s: Optional[float], now: float) -> Dict[str, Any]:
    """As messages.Examine asks for it."""
    return {
        "start_lock": seen.start_lock,
        "ended": seen.record is not None,
        "age_s": age_s,
        "heartbeat_age_s": max(0.0, now - seen.heartbeat / 1e6) if seen.heartbeat else None,
    }


def _output(directory: str, files: Files) -> str:
    return files.read(layout.inside(directory, "batch.out"))[-_LAST_WORDS:].decode("utf-8", "replace")
