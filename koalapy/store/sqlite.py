"""SQLite: a file in the state directory, write-ahead log, every commit synced to disk, one koalad at a time.

All code that only SQLite needs is here, also what shows that a file system can hold such a database. Codes: https://sqlite.org/rescode.html.
"""

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from koalapy_adapters import strict_modes
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from koalapy.store import lockfile
from koalapy.store.contract import StoreConflict, StoreError, StoreFull, StoreLocked, StoreUnreadable

WRITES = "koalapy_writes"  # an execution option: this transaction will write
APPLICATION_ID = 0x6B6F616C  # "koal", where SQLite's file header names the program that the file belongs to
_MAGIC, _MAGIC_LENGTH, _APPLICATION_AT = b"SQLite format 3\0", 16, slice(68, 72)
_BUSY_TIMEOUT_S = 10.0
_NO_ROOM, _NO_LOCKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), (errno.ENOLCK, errno.EOPNOTSUPP)
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # in WAL mode NORMAL would lose the last commits with the power
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",
)
MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = {
    *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "coda", "davfs", "9p", "vboxsf"),
    *("lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "panfs", "ceph", "glusterfs", "orangefs", "pvfs2", "wekafs"),
    *("ocfs2", "gfs", "gfs2", "quobyte", "moosefs", "lizardfs", "juicefs", "daos", "dfuse"),
}
_FUSE = {"sshfs", "s3fs", "gcsfuse", "rclone", "cephfs", "ceph-fuse", "goofys", "curlftpfs", "hdfs", "fuse_dfs", "mfs"}
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class SqliteFile:
    """The store in one file, which is made with mode 0600 in a directory of mode 0700 if it does not exist.

    `busy_timeout_s`: seconds that a commit waits for another program that has locked the file.
    """

    def __init__(self, path: Path, busy_timeout_s: float = _BUSY_TIMEOUT_S) -> None:
        self.where = str(path)
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._lock = -1
        self._file: tuple[int, int] | None = None

    def open(self) -> Engine:
        """Lock and open the file, which is made if it does not exist.

        Raises StoreLocked if another koalad has it, StoreUnreadable for a foreign file, another StoreError if the place
        is unsuitable.
        """
        try:
            return self._locked_and_open()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _no_place(self.where, error) from error
            if isinstance(error, sqlite3.Error):
                raise _explained(error.sqlite_errorcode, self.where, str(error)) from error
            raise

    def _locked_and_open(self) -> Engine:
        _make_directory(self._path.parent)
        _refuse_open_place(self._path)
        refuse_network(self._path.parent)
        self._lock = lockfile.hold(self._path.with_suffix(".lock"))
        _make_file(self._path)
        self._file = _identity(self._path)
        return engine_of(self._path, self._busy_timeout_s)

    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Return a transaction that takes the write lock at once.

        Raises StoreError `store_moved` while another file, or none, lies in the place of the open one.
        """
        found = _identity(self._path)
        if found != self._file:
            raise _moved(self.where, replaced=found is not None)
        return engine.execution_options(**{WRITES: True}).begin()

    def insert(self, table: Table) -> Any:
        return insert(table)

    def explain(self, error: SQLAlchemyError) -> StoreError:
        code = getattr(error.orig, "sqlite_errorcode", 0) if isinstance(error, DBAPIError) else 0
        words = str(error.orig if isinstance(error, DBAPIError) else error)
        return _explained(code, self.where, words)

    def back_up(self, path: Path) -> None:
        """Copy one state of the store by SQLite's own backup, while commits continue (https://sqlite.org/backup.html).

        Raises OSError if `path` exists or cannot be written, StoreError if SQLite fails or the copy has a fault.
        """
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with self._alone(self._path) as source, self._alone(path, "The backup") as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").close()  # one file holds all of it
            if (found := copy.execute("PRAGMA quick_check(1)").fetchone()) != ("ok",):
                raise _unreadable(str(path), f"a backup with a fault: {found}")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def compact(self) -> None:
        with self._alone(self._path) as connection:
            connection.execute("VACUUM").close()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    @contextmanager
    def _alone(self, path: Path, what: str = "") -> Iterator[sqlite3.Connection]:
        """Yield a separate connection, whose errors are raised as StoreErrors."""
        try:
            with closing(sqlite3.connect(path, timeout=self._busy_timeout_s, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            where = f"{what} {path}".strip() if what else str(path)
            raise _explained(getattr(error, "sqlite_errorcode", 0), where, str(error)) from error

    def close(self) -> None:
        if self._lock >= 0:
            lockfile.let_go(self._lock)
            self._lock = -1


def engine_of(path: Path, busy_timeout_s: float = _BUSY_TIMEOUT_S) -> Engine:
    """Return an engine for any number of threads. A transaction that will write takes the write lock when it begins."""
    url = URL.create("sqlite+pysqlite", database=str(path))
    engine = create_engine(url, connect_args={"timeout": busy_timeout_s}, max_overflow=-1)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # or Python would begin transactions by its own rules
    for pragma in _PRAGMAS:
        connection.execute(pragma).close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _make_directory(path: Path) -> None:
    """Make the directory and its parents, each entry on disk before anything is put into it."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    _sync_directory(path.parent)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at this path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _moved(where: str, replaced: bool) -> StoreError:
    what = "is not the file any more that this koalad opened" if replaced else "is not there any more"
    return StoreError(
        "store_moved",
        f"The database {where} {what}: it was moved, removed or replaced.",
        "Move it back to go on. To use what lies there now: `koala down`, then `koala up`.",
    )


def _refuse_open_place(path: Path) -> None:
    """Raises StoreError if another user can write there: SQLite would read that user's database or log into ours."""
    found = strict_modes.refusal(str(path.parent.absolute()))
    if found is not None:
        raise StoreError("store_open_to_others", found.message, found.advice)
    if path.exists() and path.stat().st_uid not in (os.getuid(), 0):
        raise StoreError(
            "store_open_to_others", f"{path} belongs to another user.", "Move it away, or use another state directory."
        )


def _make_file(path: Path) -> None:
    """Make an empty database with koalapy's name in its header, which appears under `path` whole or not at all."""
    if path.exists() and path.stat().st_size:
        _refuse_stranger(path)
        path.chmod(0o600)
        return
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    finally:
        connection.close()
    draft.rename(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_stranger(path: Path) -> None:
    """Raises StoreUnreadable for another program's file, by its header.

    To open another program's database could already change it.
    """
    with path.open("rb") as file:
        header = file.read(_APPLICATION_AT.stop)
    if header[:_MAGIC_LENGTH] != _MAGIC:
        raise _unreadable(str(path), "it is not an SQLite file")
    if int.from_bytes(header[_APPLICATION_AT], "big") != APPLICATION_ID:
        raise StoreUnreadable(
            "store_foreign",
            f"{path} is a database of another program, not a store of koalapy.",
            "Move it away, or use another state directory.",
        )


def _explained(code: int, where: str, words: str) -> StoreError:
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_WRITE:  # the latter at a quota
        return _full(where, words)
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return StoreConflict(
            "store_conflict",
            f"A change contradicts what {where} holds ({words}).",
            "Report this as a mistake of koalapy.",
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLocked(
            "store_busy", f"Another program keeps {where} locked ({words}).", "End that program, then try again."
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _unreadable(where, words)
    return StoreError("store_failed", f"{where} could not be used ({words}).", "Check that disk and its permissions.")


def _no_place(where: str, error: OSError) -> StoreError:
    words = error.strerror or str(error)
    if error.errno in _NO_ROOM:
        return _full(where, words)
    advice = "Check the state directory's permissions."
    if error.errno in _NO_LOCKS:
        advice = "Put the state directory on a file system that has locks, such as a local disk."
    return StoreError("store_place", f"{where} cannot be made or opened ({words}).", advice)


def _full(where: str, words: str) -> StoreFull:
    return StoreFull(
        "store_full", f"There was no room to write to {where} ({words}).", "Free disk space or quota there."
    )


def _unreadable(where: str, why: str) -> StoreUnreadable:
    return StoreUnreadable(
        "store_unreadable",
        f"{where} cannot be read as a store of koalapy ({why}).",
        "Restore a backup, or move the file away to begin with an empty store.",
    )


def refuse_network(directory: Path, mounts: Path = MOUNTS) -> None:
    """Check that the directory, which exists, does not lie on a network file system.

    Raises StoreError `store_on_network` if it does. SQLite's write-ahead log needs memory that all of its users share,
    and reliable locks: https://sqlite.org/wal.html, https://sqlite.org/lockingv3.html#how_to_corrupt. A host without
    /proc is trusted.
    """
    try:
        table = mounts.read_bytes()
    except OSError:
        return
    kind = kind_of(os.fsencode(directory.resolve()), table)
    if not is_network(kind):
        return
    raise StoreError(
        "store_on_network",
        f"The directory {directory} lies on a network file system ({kind}), where a database can be damaged.",
        "Name a local disk: `store: sqlite:////local/disk/koala.sqlite` in the grid file, or use `postgresql://`.",
    )


def kind_of(path: bytes, table: bytes) -> str:
    """Return the type of the file system that an absolute path without links is on, by the text of mountinfo(5).

    Of several mounts on one place the last counts. The type is "" if the table has none for the path.
    """
    found, longest = "", -1
    for line in table.splitlines():
        fields, _, rest = line.partition(b" - ")
        place = _ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), fields.split(b" ")[4])
        inside = path == place or path.startswith(place.rstrip(b"/") + b"/")
        if inside and len(place) >= longest:
            found, longest = rest.split(b" ")[0].decode("ascii", "replace"), len(place)
    return found


def is_network(kind: str) -> bool:
    """Return whether other hosts can write to file systems of this type.

    FUSE names the real type after a dot: `fuse.sshfs`.
    """
    base, _, helper = kind.lower().partition(".")
    if base == "fuse":
        return helper in _NETWORK | _FUSE
    return base in _NETWORK
