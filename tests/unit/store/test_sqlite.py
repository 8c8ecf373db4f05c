"""The store in a file: its modes, its one owner, the files that it refuses, and a disk without room."""

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.commands import ForgetAttempt
from koalapy.model.errors import RequestError
from koalapy.model.history import History
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId, launcher_id
from koalapy.model.job import Counters, Job
from koalapy.model.parameters import ParameterResult, ResultBatch
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.store.contract import Store, StoreError, StoreFull, StoreLocked, StoreUnreadable
from koalapy.store.open import FILE_NAME, open_store
from koalapy.store.sql import SqlStore
from koalapy.store.sqlite import SqliteFile, engine_of, is_network, kind_of, refuse_network

WISH = ComponentRequest(processors=2, executable="./a.out", arguments=("x" * 2000,))

HOLDER = """
import signal, sys
from pathlib import Path
from koalapy.store.open import open_store
store = open_store("sqlite", Path(sys.argv[1]))
print("open", flush=True)
signal.pause()
"""


def a_change(number: int) -> Change:
    """A job with its history, its command and the counters, which must be committed together."""
    job = Job(
        id=JobId(number),
        owner="mona",
        request=Request(name="poisson", components=(WISH,)),
        state=JobState.WAITING,
        position=number,
        submitted_at=Instant(number),
    )
    command = ForgetAttempt(cluster="vu", attempt=AttemptId(job.id, 0, 1))
    return Change(
        jobs=(job,),
        counters=Counters(number + 1, number + 1),
        sent=(OutboxEntry(number, command),),
        history=(History(job=job.id, at=Instant(number), kind="work_submitted"),),
    )


def assert_whole_up_to(store: Store, last: int) -> None:
    snapshot = store.load()
    numbers = list(range(1, last + 1))
    assert [job.id for job in snapshot.jobs] == numbers
    assert [entry.number for entry in snapshot.outbox] == numbers
    assert [len(store.history(job.id)) for job in snapshot.jobs] == [1] * last
    assert snapshot.counters == Counters(last + 1, last + 1)
    assert store.next_number == last + 1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "koala" / "das"


@contextmanager
def another_holder(directory: Path) -> Iterator[int]:
    """Start a process that has the store open. Yields its process id."""
    command = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        try:
            yield process.pid
        finally:
            process.kill()


# ---- files


def test_only_the_user_can_read_the_store(directory: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store("sqlite", directory)
    finally:
        os.umask(before)
    store.commit(a_change(1))
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert modes == dict.fromkeys(["store.lock", "store.sqlite", "store.sqlite-shm", "store.sqlite-wal"], 0o600)
    assert [path.stat().st_mode & 0o777 for path in (directory, directory.parent)] == [0o700, 0o700]
    store.close()


def test_a_store_file_that_others_could_read_gets_mode_0600(directory: Path) -> None:
    open_store("sqlite", directory).close()
    file = directory / FILE_NAME
    file.chmod(0o644)
    open_store("sqlite", directory).close()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("what", ["directory", "sticky", "parent", "group", "owner", "file"])
def test_a_directory_or_file_where_another_user_may_write_is_refused(directory: Path, what: str) -> None:
    """The error names the directory or file that others may write, which may be a parent."""
    open_store("sqlite", directory).close()
    named = {"parent": directory.parent, "file": directory / FILE_NAME}.get(what, directory)
    if what in ("owner", "file", "group") and os.getuid():
        pytest.skip("only root can give a file to another user")
    if what in ("owner", "file"):
        os.chown(named, 65_534, 65_534)
    elif what == "group":
        os.chown(named, -1, 61_003)
    modes = {"directory": 0o777, "sticky": 0o1777, "parent": 0o777, "group": 0o2770}
    if what in modes:
        named.chmod(modes[what])
    with pytest.raises(StoreError, match=f"^{named} belongs to ") as refusal:
        open_store("sqlite", directory)
    assert refusal.value.reason.code == "store_open_to_others"


def test_a_closed_store_is_one_file(directory: Path) -> None:
    store = open_store("sqlite", directory)
    store.commit(a_change(1))
    store.close()
    assert sorted(path.name for path in directory.iterdir()) == ["store.lock", "store.sqlite"]


def test_every_connection_syncs_every_commit(directory: Path) -> None:
    open_store("sqlite", directory).close()
    engine = engine_of(directory / FILE_NAME)
    with engine.connect() as one, engine.connect() as other:
        for connection in (one, other):
            answers = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            ]
            assert answers == ["wal", 2, 1, 10_000]
    engine.dispose()


def test_a_store_may_be_in_a_file_of_any_path(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/other/grid.sqlite", tmp_path / "state")
    store.commit(a_change(1))
    store.close()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["grid.lock", "grid.sqlite", "other"]


@pytest.mark.parametrize("name", ["", "oracle", "mysql://me:secret@host/db", "sqlite://", "postgresql://host"])
def test_an_unsupported_store_is_refused_without_its_password(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="is not a supported store") as refusal:
        open_store(name, tmp_path)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "query", ["password=s3cr3t", "sslpassword=s3cr3t", "PASSWORD=s3cr3t", "host=a&oauth_client_secret=s3cr3t"]
)
def test_a_secret_in_the_query_of_a_store_is_refused_and_not_shown(tmp_path: Path, query: str) -> None:
    with pytest.raises(RequestError, match="passfile") as refusal:
        open_store(f"postgresql://mona@host/koala?{query}", tmp_path)
    assert refusal.value.reason.code == "store_secret"
    assert "s3cr3t" not in repr(refusal.value.reason)
    assert query.rpartition("&")[2].partition("=")[0] in refusal.value.reason.message


@pytest.mark.parametrize(
    "name",
    [
        "postgresql://mona:s3cr3t@[::1/koala",
        "postgresql://mona:s3cr3t@::1]:5432/koala",
        "postgresql://mona:s3cr3t@host:port/koala",
        "postgresql:mona:s3cr3t@host/koala",
        "mysql://host/koala?password=s3cr3t",
        "mona:s3cr3t@host",
    ],
)
def test_a_malformed_store_url_is_refused_and_not_shown(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="is not a supported store") as refusal:
        open_store(name, tmp_path)
    assert "s3cr3t" not in "".join(traceback.format_exception(refusal.value))


# ---- one koalad


def test_a_second_koalad_is_refused_with_the_process_that_has_the_store(directory: Path) -> None:
    with another_holder(directory) as pid, pytest.raises(StoreLocked, match=f"in use by process {pid}") as refusal:
        open_store("sqlite", directory)
    assert "koala down" in refusal.value.reason.advice
    open_store("sqlite", directory).close()


def test_a_second_opening_in_the_same_process_is_refused(directory: Path) -> None:
    store = open_store("sqlite", directory)
    with pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}"):
        open_store("sqlite", directory)
    store.commit(a_change(1))
    store.close()


def test_a_store_that_was_taken_over_refuses_commits_of_its_first_koalad(directory: Path) -> None:
    """A removed lock file lets a second koalad open the store."""
    first = open_store("sqlite", directory)
    first.commit(a_change(1))
    (directory / "store.lock").unlink()
    second = open_store("sqlite", directory)
    with pytest.raises(StoreLocked, match="taken over"):
        first.commit(a_change(2))
    second.commit(a_change(2))
    assert_whole_up_to(second, 2)
    first.close()
    second.close()


def test_a_file_locked_by_another_program_is_an_error_and_loses_nothing(
    directory: Path,
) -> None:
    store = SqlStore(SqliteFile(directory / FILE_NAME, busy_timeout_s=0.05))
    store.commit(a_change(1))
    other = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLocked, match="Another program"):
        store.commit(a_change(2))
    other.execute("ROLLBACK")
    other.close()
    store.commit(a_change(2))
    assert_whole_up_to(store, 2)
    store.close()


@pytest.mark.parametrize("how", ["moved", "unlinked", "replaced", "directory moved"])
def test_commits_to_a_moved_database_are_refused_until_it_is_back(directory: Path, how: str) -> None:
    store = open_store("sqlite", directory)
    store.commit(a_change(1))
    file, away = directory / FILE_NAME, directory / "away.sqlite"
    kept = directory.with_name("kept")
    if how == "directory moved":
        directory.rename(kept)
        directory.mkdir()
    elif how == "unlinked":
        os.link(file, away)
        file.unlink()
    else:
        file.rename(away)
        if how == "replaced":
            shutil.copyfile(away, file)
    for act in (store.check, lambda: store.commit(a_change(2))):
        with pytest.raises(StoreError, match="moved, removed or replaced") as refusal:
            act()
        assert refusal.value.reason.code == "store_moved"
    if how == "directory moved":
        directory.rmdir()
        kept.rename(directory)
    else:
        away.rename(file)
    store.check()
    store.commit(a_change(2))
    assert_whole_up_to(store, 2)
    store.close()


# ---- network file systems

MOUNTINFO = b"""\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw shared:2 master:9 - nfs4 server:/export/home rw,vers=4.2
31 30 0:41 / /home/mona/fast\\040disk rw - xfs /dev/nvme0n1 rw
32 22 0:42 / /scratch rw - lustre mds@tcp:/scratch rw
33 22 0:43 / /mnt/far rw - fuse.sshfs mona@far:/ rw
34 22 0:44 / /mnt/near rw - fuse.ntfs-3g /dev/sdb1 rw
35 22 0:45 / /work rw - autofs /etc/auto.work rw
36 35 0:46 / /work rw - nfs server:/work rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/lib/koala", "ext4", False),
        ("/home", "nfs4", True),
        ("/home/mona/.local/state", "nfs4", True),
        ("/homeless", "ext4", False),
        ("/home/mona/fast disk/koala", "xfs", False),
        ("/scratch/mona", "lustre", True),
        ("/mnt/far/koala", "fuse.sshfs", True),
        ("/mnt/near/koala", "fuse.ntfs-3g", False),
        ("/work/koala", "nfs", True),
    ],
)
def test_a_network_file_system_is_known_by_its_type(path: str, kind: str, network: bool) -> None:
    assert kind_of(path.encode(), MOUNTINFO) == kind
    assert is_network(kind) == network


def test_a_store_on_a_network_file_system_is_refused_with_advice(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / %s rw - gpfs home rw\n" % bytes(tmp_path))
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with pytest.raises(StoreError, match=r"network file system \(gpfs\)") as refusal:
        refuse_network(tmp_path / "link", table)
    assert refusal.value.reason.code == "store_on_network"
    assert "local disk" in refusal.value.reason.advice
    refuse_network(Path("/"), table)
    refuse_network(tmp_path / "state", tmp_path / "no such table")


# ---- files of other programs are kept


@pytest.mark.parametrize("content", [b"not a database\n" * 200, b"\0", bytes(range(256)) * 64])
def test_a_file_that_is_no_database_is_refused_and_kept(directory: Path, content: bytes) -> None:
    directory.mkdir(parents=True)
    file = directory / FILE_NAME
    file.write_bytes(content)
    with pytest.raises(StoreUnreadable, match="cannot be read as a store of koalapy"):
        open_store("sqlite", directory)
    assert file.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_kept(directory: Path) -> None:
    directory.mkdir(parents=True)
    file = directory / FILE_NAME
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE jobs (id INTEGER)")
    other.close()
    content = file.read_bytes()
    with pytest.raises(StoreUnreadable, match="another program"):
        open_store("sqlite", directory)
    assert file.read_bytes() == content
    assert not (directory / f"{FILE_NAME}-wal").exists()


def test_a_database_with_koalapy_s_mark_and_other_tables_is_refused(directory: Path) -> None:
    open_store("sqlite", directory).close()
    other = sqlite3.connect(directory / FILE_NAME)
    other.execute("DROP TABLE meta")
    other.close()
    with pytest.raises(StoreUnreadable, match="not a store of koalapy"):
        open_store("sqlite", directory)


def test_a_damaged_store_is_refused(directory: Path) -> None:
    store = open_store("sqlite", directory)
    for number in range(1, 40):
        store.commit(a_change(number))
    store.close()
    file = directory / FILE_NAME
    content = bytearray(file.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    file.write_bytes(content)
    with pytest.raises(StoreUnreadable, match="cannot be read"):
        open_store("sqlite", directory)
    assert file.read_bytes() == content


def test_an_empty_file_is_an_empty_store(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / FILE_NAME).touch()
    store = open_store("sqlite", directory)
    store.commit(a_change(1))
    assert_whole_up_to(store, 1)
    store.close()


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made or opened") as refusal:
        open_store("sqlite", tmp_path / "file")
    assert str(tmp_path / "file") in str(refusal.value)


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    store = open_store("sqlite", tmp_path / "what? 100%done & #1")
    store.commit(a_change(1))
    store.close()
    assert (tmp_path / "what? 100%done & #1" / FILE_NAME).stat().st_size


def test_a_refused_store_keeps_no_lock(directory: Path) -> None:
    directory.mkdir(parents=True)
    file = directory / FILE_NAME
    file.write_bytes(b"garbage" * 100)
    with pytest.raises(StoreUnreadable):
        open_store("sqlite", directory)
    file.unlink()
    open_store("sqlite", directory).close()


# ---- no room


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


def commit_until_full(store: Store, first: int) -> int:
    """Commit until there is no room. Returns the number of the refused commit."""
    number = first
    while _fits(store, number):
        number += 1
    with pytest.raises(StoreFull, match="no room") as refusal:
        store.commit(a_change(number))
    assert "Free disk space" in refusal.value.reason.advice
    return number


def _fits(store: Store, number: int) -> bool:
    try:
        store.commit(a_change(number))
    except StoreFull:
        return False
    return True


def test_a_commit_beyond_a_quota_is_refused_as_a_whole_and_accepted_later(directory: Path) -> None:
    store = open_store("sqlite", directory)
    with files_no_larger_than(500_000):
        refused = commit_until_full(store, 1)
        assert refused > 5
        assert_whole_up_to(store, refused - 1)
    store.commit(a_change(refused))
    assert_whole_up_to(store, refused)
    store.close()
    reopened = open_store("sqlite", directory)
    assert_whole_up_to(reopened, refused)
    reopened.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB. The test is skipped where none can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_commit_on_a_full_disk_is_refused_as_a_whole_and_accepted_later(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    store = open_store("sqlite", small_disk / "state")
    refused = commit_until_full(store, 1)
    assert refused > 5
    assert_whole_up_to(store, refused - 1)
    ballast.unlink()
    store.commit(a_change(refused))
    store.close()
    reopened = open_store("sqlite", small_disk / "state")
    assert_whole_up_to(reopened, refused)
    reopened.close()


def test_no_store_is_created_on_a_full_disk(small_disk: Path) -> None:
    (small_disk / "state").mkdir()
    with suppress(OSError):
        (small_disk / "ballast").write_bytes(b"x" * 2_000_000)
    with pytest.raises(StoreFull, match="no room"):
        open_store("sqlite", small_disk / "state")
    (small_disk / "ballast").unlink()
    store = open_store("sqlite", small_disk / "state")
    assert_whole_up_to(store, 0)
    store.close()


def a_sweep() -> Sweep:
    request = Request(name="sweep", components=(ComponentRequest(processors=1, executable="true"),))
    return Sweep(
        id=JobId(1), owner="me", request=request, state=JobState.RUNNING, position=1, submitted_at=Instant(1), count=12
    )


def test_one_result_is_found_without_reading_the_others(directory: Path) -> None:
    """All other batches are damaged, so that reading one of them would fail."""
    rows = [ParameterResult(number, 0, "exited", "node1", 0, 5, 6, 0, 0, 0, 0) for number in range(12)]
    batches = [ResultBatch(JobId(1), "vu", AttemptId(JobId(9), 0, 1), tuple(rows[number::4])) for number in range(4)]
    store = open_store("sqlite", directory)
    store.commit(Change(sweeps=(a_sweep(),), results=tuple(batches)))
    with closing(sqlite3.connect(directory / FILE_NAME)) as database:
        database.execute("UPDATE results SET results = '[' || substr(results, 20) WHERE lowest != 2")
        database.commit()
    assert store.result(JobId(1), 6) == replace(batches[2], results=(rows[6],))
    with pytest.raises(StoreUnreadable):
        store.result(JobId(1), 5)
    assert [batch for _, batch in store.results(JobId(1))] == [batches[2]]
    assert [each.name for each in store.unreadable()] == ["results/1", "results/2", "results/4"]
    store.close()


def operations(store: SqlStore, act: Callable[[], object]) -> int:
    """Number of operations of SQLite's virtual machine that `act` takes."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    assert store._engine is not None
    with store._engine.connect() as pooled:  # the pool has only this connection
        connection = pooled.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    connection.set_progress_handler(count, 1)
    try:
        act()
    finally:
        connection.set_progress_handler(None, 1)
    return done


@pytest.mark.parametrize("launchers", [False, True], ids=["jobs", "Launchers"])
@pytest.mark.parametrize("records", [False, True], ids=["output", "records"])
def test_the_cost_of_finding_prunable_jobs_does_not_grow_with_the_kept_ones(
    directory: Path, launchers: bool, records: bool
) -> None:
    """Pruning asks page by page; a search of all jobs for each page would cost more than the pruning."""
    request = Request(name="job", components=(ComponentRequest(processors=1, executable="true"),))

    def final_job(number: int, at: int) -> Job:
        return Job(
            id=JobId(number), owner="me", request=request, state=JobState.DONE, position=number,
            submitted_at=Instant(1), finished_at=Instant(at),
        )  # fmt: skip

    def final_sweep(number: int, at: int) -> Sweep:
        return Sweep(
            id=JobId(number), owner="me", request=request, state=JobState.DONE, position=number,
            submitted_at=Instant(1), finished_at=Instant(at), count=1,
        )  # fmt: skip

    def found() -> list[int]:
        if launchers:
            return [
                each.id.job - FIRST_LAUNCHER for each in store.prunable_launchers(Instant(5), 10, JobId(0), records)
            ]
        return [job.id for job in store.prunable(Instant(5), 10, JobId(0), records)]

    def pilot(number: int, sweep: int) -> Attempt:
        fields = LauncherFields(owner=Owner(OwnerKind.SWEEP, sweep), claimed_at=Instant(1))
        return Attempt(
            id=launcher_id(FIRST_LAUNCHER + number), cluster="vu", request=request.components[0],
            state=AttemptState.CLEANED_UP, ending=Ending.DONE, launcher=fields,
        )  # fmt: skip

    store = open_store("sqlite", directory)
    assert isinstance(store, SqlStore)
    old = [final_job(1, 2), final_job(2, 3)]
    costs = []
    for kept in (range(10, 110), range(110, 1110)):
        pilots = [pilot(4, sweep=3), *(pilot(number, sweep=number - 1) for number in kept if number % 3 == 0)]
        jobs = [*old, *(final_job(number, 9) for number in kept if number % 3 != 2)]
        sweeps = [final_sweep(3, 3), *(final_sweep(number, 9) for number in kept if number % 3 == 2)]
        store.commit(Change(jobs=tuple(jobs), sweeps=tuple(sweeps), attempts=tuple(pilots)))
        assert found() == ([4] if launchers else [1, 2])
        costs.append(operations(store, found))
    assert costs[1] <= costs[0] + 20, costs
    store.close()
