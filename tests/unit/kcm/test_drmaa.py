"""The client of the DRMAA helper, with real helper processes that crash, hang, leak or refuse."""

import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import pbs, sge, slurm
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings
from koalapy_adapters.errors import BatchError, Result
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, SubmitDoubt
from koalapy_adapters.kcm.execution.drmaa import client as drmaa_client
from koalapy_adapters.kcm.execution.drmaa.client import MAX_CRASHES, DrmaaClient, DrmaaSessions
from koalapy_adapters.kcm.execution.drmaa.helper import DrmaaLost, DrmaaRefused, Library, find_library
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran
from koalapy_adapters.kcm.state.actions import Woken

# It has the protocol of koalapy_adapters.drmaa_helper, for a library that does what the script is named for.
HELPER = """
import json, os, sys, time
with open("%(log)s", "a") as runs:
    runs.write(json.dumps([sys.argv[1:], os.environ["DRMAA_LIBRARY_PATH"], os.getpid()]) + "\\n")
def answer(**what): print(json.dumps(what), flush=True)
if "%(family)s" == "down": answer(refused="code 2: unable to send message to qmaster"); sys.exit(1)
answer(contact="session-1", drms="%(family)s")
rss, waiting = 1 << 20, 0
for line in sys.stdin:
    request = json.loads(line)
    script = request.get("script", "")
    if script == "crash": os.abort()
    if script == "pair": next(sys.stdin); answer(batch_id=1); answer(batch_id=2); continue
    if script.startswith("until "):
        go = script[6:]
        open(os.path.join(os.path.dirname(go), "asked"), "w").close()
        while not os.path.exists(go): time.sleep(0.01)
    if script == "last": next(sys.stdin); os._exit(0)
    if script == "hang": time.sleep(600)
    if script == "grow": rss = 1 << 40
    if script == "deaf": waiting = 1e6
    if request["do"] == "ping": answer(rss=rss, waiting=waiting)
    elif script == "refuse": answer(refused="code 17: job rejected: unknown queue nosuch")
    elif request["do"] == "control":
        answer(**({} if request["batch_id"] == "7" and request["action"] != "resume" else {"refused": "no such job"}))
    else:
        options = request["options"]
        assert options[:2] == ["-b", "n"] and not {"-terse", "-sync", "-now"} & set(options), request
        answer(batch_id=7)
        print("a library that prints to stdout", flush=True)
        answer(ended="7")
    if script == "exit": os._exit(0)
"""
JOB = BatchJob("kabcde000000001", "/tmp/a", ["true"], 1, 60)
LIBRARY = Library("/lib/libdrmaa.so", sge.drmaa.FAMILY, sge.drmaa.OPTIONS, sge.drmaa.OF_COMMANDS)
Client = Callable[..., DrmaaClient]
PATIENCE_S = 120.0


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(drmaa_client, "TIMEOUT", PATIENCE_S)
    opened: list[DrmaaClient] = []

    def open_one(
        handle: Callable[[Any], None] = lambda event: None, family: str = "SGE 8.1.9", library: Library = LIBRARY
    ) -> DrmaaClient:
        script = tmp_path / "helper.py"
        script.write_text(HELPER % {"log": tmp_path / "runs", "family": family})
        opened.append(DrmaaClient([sys.executable, str(script)], library, handle))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def runs(tmp_path: Path) -> list[list[Any]]:
    """Return for each helper so far its contact, its library and its process id."""
    return [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]


def test_a_submit_returns_the_id_and_the_end_is_an_event(client: Client) -> None:
    events: list[Any] = []
    session = client(events.append)
    assert session.submit("job", ["-terse", "-b", "n", "-sync", "n", "-now", "n", "job"]) == "7"
    assert session.control("7", "terminate")  # its answer comes after the end
    assert events == [Woken()]


def test_a_job_is_held_released_suspended_and_ended(client: Client) -> None:
    session = client()
    assert [session.control("7", action) for action in ("hold", "release", "suspend", "terminate")] == [True] * 4
    assert not session.control("7", "resume"), "the library refused, so that a command is needed"


def test_a_command_does_what_the_library_refuses(client: Client) -> None:
    asked: list[list[str]] = []

    def runner(argv: list[str], timeout: float, handle: object) -> Ran:
        asked.append(argv)
        return Ran(Result(argv, 0, "koala has registered the job 8 for deletion\n", ""), 0)

    batch = BatchSystem(sge, BatchSettings("me"), client(), runner=runner)
    batch.cancel("7")
    assert batch.hold("7")
    assert batch.release("7")
    assert not asked
    batch.cancel("8")
    assert batch.hold("8")
    assert batch.release("8")
    assert asked == [["qdel", "8"], ["qhold", "8"], ["qrls", "8"]]


def test_the_helper_limits_its_memory() -> None:
    leak = "import mmap; from koalapy_adapters import drmaa_helper as it; it._bound_memory(); mmap.mmap(-1, %s)"
    argv = [sys.executable, "-c", leak % "it.ADDRESS_SPACE"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "Cannot allocate memory" in done.stderr


def test_a_refusal_does_not_end_the_helper(client: Client, tmp_path: Path) -> None:
    session = client()
    with pytest.raises(DrmaaRefused, match="unknown queue"):
        session.submit("refuse", [])
    assert not session.control("8", "terminate")
    assert session.submit("job", []) == "7"
    assert len(runs(tmp_path)) == 1


def test_a_crash_costs_its_operation_only_and_the_session_is_resumed(client: Client, tmp_path: Path) -> None:
    session = client()
    with pytest.raises(DrmaaLost):
        session.submit("crash", [])
    assert session.submit("job", []) == "7"
    assert [run[:2] for run in runs(tmp_path)] == [[[""], LIBRARY.path], [["session-1"], LIBRARY.path]]


def submit_two(session: DrmaaClient, script: str) -> list[str]:
    """Submit twice at the same time. Returns the sorted outcomes."""

    def submit(_: int) -> str:
        try:
            return session.submit(script, [])
        except DrmaaLost:
            return "lost"

    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(submit, range(2)))


def test_one_submit_does_not_wait_for_the_answer_to_another(client: Client) -> None:
    """The library is never idle while requests wait. This one answers only when it has two."""
    assert submit_two(client(), "pair") == ["1", "2"]


def test_a_submit_is_not_delayed_by_one_that_the_library_blocks(tmp_path: Path) -> None:
    """A second session begins only when the first is busy."""
    script = tmp_path / "helper.py"
    script.write_text(HELPER % {"log": tmp_path / "runs", "family": "SGE 8.1.9"})
    sessions = DrmaaSessions([sys.executable, str(script)], LIBRARY, lambda event: None)
    try:
        assert sessions.submit("job", []) == "7"
        assert len(runs(tmp_path)) == 1
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(sessions.submit, f"until {tmp_path / 'go'}", [])
            while not (tmp_path / "asked").exists():
                assert not first.done()
            assert sessions.submit("job", []) == "7"
            assert not first.done()
            (tmp_path / "go").touch()
            assert first.result(PATIENCE_S) == "7"
        assert len(runs(tmp_path)) == 2
    finally:
        sessions.close()


def test_a_helper_that_dies_loses_all_its_requests_and_counts_as_one_crash(client: Client, tmp_path: Path) -> None:
    session = client()
    assert submit_two(session, "last") == ["lost", "lost"]
    assert session.submit("job", []) == "7"
    assert len(runs(tmp_path)) == 2
    assert len(session._crashes) == 1


class Replacements:
    """The replacements that the session's own watcher makes; `one` waits for the next."""

    def __init__(self, session: DrmaaClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self._replaced: queue.Queue[None] = queue.Queue()
        begin = session._begin

        def noted(helper: Any) -> None:
            monkeypatch.setattr(drmaa_client, "TIMEOUT", PATIENCE_S)  # the test may have set it for the helper before
            begin(helper)
            self._replaced.put(None)

        monkeypatch.setattr(session, "_begin", noted)

    def one(self) -> None:
        self._replaced.get(timeout=PATIENCE_S)


@pytest.mark.parametrize("signum", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_an_idle_helper_that_dies_is_replaced_at_once_and_its_session_resumed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    """Thereby it reports further ends, though nothing is submitted."""
    session = client()
    replaced = Replacements(session, monkeypatch)
    assert session.start()
    replaced.one()
    os.kill(runs(tmp_path)[0][2], signum)
    replaced.one()
    assert [run[0] for run in runs(tmp_path)] == [[""], ["session-1"]]
    assert session.usable


def test_an_idle_helper_that_is_stopped_is_replaced(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drmaa_client, "PING", 0.1)
    session = client()
    replaced = Replacements(session, monkeypatch)
    assert session.start()
    replaced.one()
    monkeypatch.setattr(drmaa_client, "TIMEOUT", 2.0)
    os.kill(runs(tmp_path)[0][2], signal.SIGSTOP)
    replaced.one()
    assert [run[0] for run in runs(tmp_path)] == [[""], ["session-1"]]
    with pytest.raises(ProcessLookupError):
        os.kill(runs(tmp_path)[0][2], 0)


@pytest.mark.parametrize(("script", "crashes"), [("grow", 0), ("deaf", 1)])
def test_a_helper_that_grows_or_reports_no_ends_is_replaced(
    client: Client, tmp_path: Path, script: str, crashes: int
) -> None:
    session = client()
    assert session.submit(script, []) == "7"
    session.look_after()
    session.look_after()
    assert [run[0] for run in runs(tmp_path)] == [[""], ["session-1"]]
    assert len(session._crashes) == crashes
    assert session.submit("job", []) == "7"


def test_a_helper_that_hangs_is_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    session = client()
    assert session.start()
    monkeypatch.setattr(drmaa_client, "TIMEOUT", 0.1)
    with pytest.raises(DrmaaLost, match="in time"):
        session.submit("hang", [])


def test_after_repeated_crashes_commands_are_used_for_a_while(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    session = client()
    for _ in range(MAX_CRASHES):
        with pytest.raises(DrmaaLost):
            session.submit("crash", [])
    assert not session.usable
    assert not session.start()
    with pytest.raises(DrmaaRefused):
        session.submit("job", [])
    session._resting_until = 0.0
    assert session.submit("job", []) == "7"


def test_a_helper_that_cannot_start_is_not_used(capsys: pytest.CaptureFixture[str]) -> None:
    session = DrmaaClient([sys.executable, "-c", "raise SystemExit('no library')"], LIBRARY, lambda event: None)
    assert not session.start()
    assert not session.usable
    assert "commands are used" in capsys.readouterr().err


def test_a_batch_system_that_is_down_is_tried_again_later(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drmaa_client, "REST", 0.0)
    session = client(family="down")
    assert not session.start()
    assert "unable to send message to qmaster" in capsys.readouterr().err
    assert client().start()
    assert session.start(), "the batch system is up again"


@pytest.mark.parametrize("family", ["slurm-drmaa 1.1.4", "PBS Pro", ""])
def test_auto_does_not_use_a_library_of_another_batch_system(
    client: Client, capsys: pytest.CaptureFixture[str], family: str
) -> None:
    assert not client(family=family).start()
    assert "is the library of" in capsys.readouterr().err


def test_a_named_library_is_used_whatever_its_batch_system_is(client: Client) -> None:
    assert client(family="slurm-drmaa 1.1.4", library=LIBRARY._replace(family="")).start()


def test_a_submit_lost_in_the_helper_is_in_doubt_and_a_refused_one_is_not(client: Client) -> None:
    batch = BatchSystem(sge, BatchSettings("me"), client())
    assert batch.submit(JOB, "job", Handle()) == "7"
    with pytest.raises(SubmitDoubt):
        batch.submit(JOB, "crash", Handle())
    with pytest.raises(BatchError) as refused:
        batch.submit(JOB, "refuse", Handle())
    assert refused.value.code == "no_such_queue"


def test_a_submit_that_was_ended_before_is_not_sent(client: Client) -> None:
    handle = Handle()
    handle.end()
    with pytest.raises(BatchError) as ended:
        BatchSystem(sge, BatchSettings("me"), client()).submit(JOB, "crash", handle)
    assert ended.value.code == "submit_ended"


def test_the_library_is_found_by_the_grid_file_or_in_grid_engines_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib" / "lx-amd64" / "libdrmaa.so"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv("SGE_ROOT", str(tmp_path))
    found = find_library("auto", sge)
    assert found is not None
    assert (found.path, found.family) == (str(library), sge.drmaa.FAMILY)
    assert find_library("off", sge) is None
    assert find_library("auto", slurm) is None
    assert find_library("auto", pbs) is None
    assert find_library("/opt/libdrmaa.so", slurm) == Library("/opt/libdrmaa.so")
