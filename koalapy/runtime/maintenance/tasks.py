"""The other tasks: backups, usage reports, freeing room, a check of every cluster, unknown tags, jobs by cron."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from koalapy.config.maintenance import Maintenance
from koalapy.model.counts import counted_as
from koalapy.model.errors import KoalaError, RequestError, TransientError
from koalapy.model.units import SECOND, Instant, format_duration
from koalapy.model.usage import By
from koalapy.runtime.maintenance.task import Koalad, Outcome
from koalapy.runtime.unknown import UnknownTag
from koalapy.views.usage import as_csv, rows_of

BACKUPS_KEPT = 7
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALIVE_S = 3600.0  # a wrapper that gave a sign of life within this may still run
_CLEAN_S = 60.0


def back_up(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Copy the store to a new file. Once that is whole, remove the oldest copies but for `keep`.

    Raises TransientError if the copy cannot be written, and KoalaError of the store.
    """
    directory = Path(entry.to or "").expanduser()
    kept = entry.keep if isinstance(entry.keep, int) else BACKUPS_KEPT
    at = _EPOCH + timedelta(microseconds=koalad.now())
    stem = f"{koalad.grid}-{koalad.store.instance}"
    path = directory / f"{stem}-{at:%Y%m%dT%H%M%SZ}.sqlite"
    if dry:
        return Outcome(True, f"The store would be copied to {path}.")
    part = directory / f"{stem}.part"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_database(part)
        try:
            koalad.store.back_up(part)
            part.rename(path)
        finally:
            _remove_database(part)
        _sync(directory)
        old = _backups(directory, stem)[:-kept]
        for each in old:
            each.unlink()
    except OSError as error:
        message = f"The store cannot be copied to {directory}: {error.strerror}."
        raise TransientError("no_backup", message, "Make room there, or name another directory.") from error
    return Outcome(True, f"The store is copied to {path}; {len(old)} older copies are removed.")


def _remove_database(path: Path) -> None:
    """Remove a database, and the journal that SQLite leaves if there is no room.

    Files that are not there are ignored.
    """
    for name in (path, path.with_name(f"{path.name}-journal")):
        name.unlink(missing_ok=True)


def _backups(directory: Path, stem: str) -> list[Path]:
    """Return the copies of the store in the directory, the oldest first."""
    name = re.compile(rf"{re.escape(stem)}-\d{{8}}T\d{{6}}Z\.sqlite")
    return sorted(path for path in directory.iterdir() if name.fullmatch(path.name))


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def report(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Write the usage, as `koala usage --csv` does, into a file named for this UTC date, whole or not at all.

    Raises TransientError if the file cannot be written.
    """
    directory, by, now = Path(entry.to or "").expanduser(), entry.by or By.USER, koalad.now()
    day = _EPOCH + timedelta(microseconds=now)
    stem = f"{koalad.grid}-{koalad.store.instance}-usage"
    path = directory / f"{stem}-{day:%Y-%m-%d}.csv"
    if dry:
        return Outcome(True, f"Usage by {by} would be written to {path}.")
    since = None if entry.since is None else Instant(max(0, now - entry.since))
    rows = rows_of(koalad.usage(by, since), by, koalad.charges(since) if by is By.SITE else {})
    part = directory / f"{stem}.part"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        try:
            with part.open("x", encoding="utf-8", errors="backslashreplace", newline="") as file:
                file.write(as_csv(rows, by))
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)
        _sync(directory)
    except OSError as error:
        message = f"Usage cannot be written to {directory}: {error.strerror}."
        raise TransientError("no_report", message, "Make room there, or name another directory.") from error
    return Outcome(True, f"Usage by {by} is written to {path}, {counted_as(len(rows), 'line')}.")


def vacuum(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Return the room of removed records to the file system. Raises KoalaError."""
    if dry:
        return Outcome(True, "The store would be rewritten without the room that it does not need.")
    koalad.store.compact()
    return Outcome(True, "The store is rewritten without the room that it does not need.")


def check(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Check that every cluster is connected and measured, and examine it by the doctor's checks without batch jobs."""
    reports = koalad.clusters()
    found = {} if dry else koalad.examine(koalad.ending)
    wrong: list[str] = []
    for view in (each.summary for each in reports):
        sentences = found.get(view.name) or ([] if view.trouble is None else [str(view.trouble)])
        wrong += [f"{view.name}: {sentence}" for sentence in sentences]
    if wrong:
        return Outcome(False, " ".join([*wrong, "`koala doctor` examines a cluster in full."]))
    one = len(reports) == 1
    connected = "The only cluster is connected" if one else f"All {len(reports)} clusters are connected"
    examined = "would be examined" if dry else f"{'passes' if one else 'pass'} the quick part of `koala doctor`"
    return Outcome(True, f"{connected}, and {examined}.")


def clean_unknown(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Report old directories that bear this store's id and are unknown to it. With `really`, remove them.

    Raises KoalaError.
    """
    assert entry.older_than is not None
    surveys = koalad.unknown.look()
    found = [tag for each in surveys for tag in each.tags if _is_old(tag, entry.older_than / SECOND)]
    names = ", ".join(f"{tag.tag} on {tag.cluster}" for tag in found[:10]) + (", …" if len(found) > 10 else "")
    old = format_duration(entry.older_than)
    unasked = [f"{each.cluster} could not be asked." for each in surveys if each.trouble is not None]
    if not found:
        return Outcome(True, " ".join([f"No unknown directory of this store is older than {old}.", *unasked]))
    if dry or not entry.really:
        unknown = counted_as(len(found), "unknown directory of this store is", "unknown directories of this store are")
        what = f"{unknown} older than {old}: {names}."
        return Outcome(entry.really, " ".join([what, "`koala clean TAG` removes one.", *unasked]))
    left = [tag.tag for tag in found if not koalad.unknown.clean(tag.cluster, tag.tag, _CLEAN_S)]
    going = [f"Still being removed: {', '.join(left)}."] if left else []
    return Outcome(not left, " ".join([f"{len(found) - len(left)} removed: {names}.", *going, *unasked]))


def _is_old(tag: UnknownTag, age_s: float) -> bool:
    """Return whether the tag is an old one of this store, without a batch job or a wrapper that may run.

    Tags of other stores may be live jobs.
    """
    alive = tag.heartbeat_age_s is not None and tag.heartbeat_age_s < _ALIVE_S and not tag.ended
    return tag.own and tag.directory and not tag.batch_id and not alive and tag.age_s is not None and tag.age_s > age_s


def submit(koalad: Koalad, entry: Maintenance, dry: bool) -> Outcome:
    """Submit a job file, once for each time of the cron line, even if koalad is killed meanwhile.

    Raises RequestError if the job file is refused.
    """
    path = Path(entry.file or "").expanduser()
    if dry:
        return Outcome(True, f"{path} would be submitted.")
    try:
        job = koalad.submit(path, f"maintenance/{entry.called}/{koalad.began}")
    except KoalaError as error:
        raise RequestError("not_submitted", f"{path} was not submitted: {error}", "Correct the job file.") from error
    return Outcome(True, f"{path} is submitted as job {job}.")
