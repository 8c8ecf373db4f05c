"""A PostgreSQL server of the tests' own: Debian's binaries, a cluster in a temporary directory, a Unix socket alone.

Loaded by conftest files, since tests lie in no package.
"""

import contextlib
import ctypes
import glob
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from programs import leave_out
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError

PATIENCE_S = 180.0
_OWNERS = ("postgres", "nobody")  # initdb refuses root
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Server:
    """One cluster, running from its making until `remove`. Commits need not survive this machine, only the server."""

    def __init__(self) -> None:
        self._binaries = _binaries()
        self._owner = _owner()
        self._databases = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.place = Path(tempfile.mkdtemp(prefix="kpg", dir="/tmp"))
        try:
            self._make()
            self.start()
        except BaseException:
            self.remove()
            raise

    def database(self) -> str:
        """The URL of a new database."""
        name = f"koala_{next(self._databases)}"
        self.run(f"CREATE DATABASE {name}")
        return self._url(name).set(drivername="postgresql").render_as_string()

    def drop(self, url: str) -> None:
        """Drop the database. Connections to it are cut off."""
        self.run(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2].partition('?')[0]} WITH (FORCE)")

    def run(self, statement: str, **parameters: Any) -> list[Any]:
        """As the server's superuser, in a session of its own; the rows, if it has any."""
        engine = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                result = connection.execute(text(statement), parameters)
                return list(result.all()) if result.returns_rows else []
        finally:
            engine.dispose()

    def start(self) -> None:
        """And wait until it answers."""
        options = ["-k", str(self.place), "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.place / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,  # a test run that is killed leaves none behind
                **self._as_owner(),
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, self._log()
            assert time.monotonic() < deadline, self._log()
            time.sleep(0.05)  # nothing reports when it is ready

    def stop(self) -> None:
        """All sessions end at once; what was committed stays."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.place)

    def _make(self) -> None:
        self.place.chmod(0o700)
        if self._owner is not None:
            os.chown(self.place, self._owner.pw_uid, self._owner.pw_gid)
        options = ["-U", "koala", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [self._binaries / "initdb", "-D", self.place / "data", *options],
            check=True,
            capture_output=True,
            **self._as_owner(),
        )

    def _as_owner(self) -> dict[str, Any]:
        if self._owner is None:
            return {"cwd": self.place}
        return {"cwd": self.place, "user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": ()}

    def _answers(self) -> bool:
        with contextlib.suppress(OperationalError):
            return bool(self.run("SELECT 1"))
        return False

    def _url(self, database: str) -> URL:
        return URL.create("postgresql+psycopg", "koala", database=database, query={"host": str(self.place)})

    def _log(self) -> str:
        return (self.place / "log").read_text()[-2000:]


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A running server; where there can be none, the test is left out."""
    made = Server()
    try:
        yield made
    finally:
        made.remove()


def _binaries() -> Path:
    """The newest server's; Debian keeps them out of the PATH."""
    places = [Path(found).parent for found in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    places.sort(key=lambda place: int(place.parent.name), reverse=True)
    if (on_path := shutil.which("initdb")) is not None:
        places.append(Path(on_path).parent)
    for place in places:
        if (place / "postgres").exists():
            return place
    leave_out("there is no PostgreSQL server here (on Debian: tests/install-programs, as root)")


def _owner() -> pwd.struct_passwd | None:
    """Return the user as whom root runs the server; None if the user of the tests runs it too."""
    if os.geteuid() != 0:
        return None
    for name in _OWNERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    leave_out("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _end_with_parent() -> None:
    """However the test run ends, the server shuts down."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
