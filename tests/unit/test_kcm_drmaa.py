"""The client of the DRMAA helper, whose helper may crash, hang, leak or refuse: real processes that do."""

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
from koalapy_adapters.kcm.execution.drmaa.client import MAX_CRASHES, DrmaaClient
from koalapy_adapters.kcm.execution.drmaa.library import Library, find_library
from koalapy_adapters.kcm.execution.drmaa.process import DrmaaLost, DrmaaRefused
from koalapy_adapters.kcm.execution.drmaa.sessions import DrmaaSessions
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran
from koalapy_adapters.kcm.state.actions import Woken

# Speaks as koalapy_adapters.drmaa_helper does, for a library that does as the script's name says.
HELPER = """
import json, os, sys, time
with open("%(log)s", "a") as runs:
    runs.write(json.dumps([sys.argv[1:], os.environ["DRMAA_LIBRARY_PATH"], os.getpid()]) + "\\n")
def say(**what): print(json.dumps(what), flush=True)
if "%(family)s" == "down": say(refused="code 2: unable to send message to qmaster"); sys.exit(1)
say(contact="session-1", drms="%(family)s")
rss, waiting = 1 << 20, 0
for line in sys.stdin:
    request = json.loads(line)
    script = request.get("script", "")
    if script == "crash": os.abort()
    if script == "pair": next(sys.stdin); say(batch_id=1); say(batch_id=2); continue
    if script.startswith("until "):
        go = script[6:]
        open(os.path.join(os.path.dirname(go), "asked"), "w").close()
        while not os.path.exists(go): time.sleep(0.01)
    if script == "last": next(sys.stdin); os._exit(0)
    if script == "hang": time.sleep(600)
    if script == "grow": rss = 1 << 40
    if script == "deaf": waiting = 1e6
    if request["do"] == "ping": say(rss=rss, waiting=waiting)
    elif script == "refuse": say(refused="code 17: job rejected: unknown queue nosuch")
    elif request["do"] == "control":
        say(**({} if request["batch_id"] == "7" and request["action"] != "resume" else {"refused": "no such job"}))
    else:
        options = request["options"]
        assert options[:2] == ["-b", "n"] and not {"-terse", "-sync", "-now"} & set(options), request
        say(batch_id=7)
        print("a library that prints what it likes", flush=True)
        say(ended="7")
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
        tell: Callable[[Any], None] = lambda event: None, family: str = "SGE 8.1.9", library: Library = LIBRARY
    ) -> DrmaaClient:
        script = tmp_path / "helper.py"
        script.write_text(HELPER % {"log": tmp_path / "runs", "family": family})
        opened.append(DrmaaClient([sys.executable, str(script)], library, tell))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def runs(tmp_path: Path) -> list[list[Any]]:
    """Of each helper so far: the contact that it was given, its library, its process id."""
    return [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]


def test_submits_and_tells_of_the_end(client: Client) -> None:
    told: list[Any] = []
    session = client(told.append)
    assert session.submit("job", ["-terse", "-b", "n", "-sync", "n", "-now", "n", "job"]) == "7"
    assert session.control("7", "terminate")  # its answer comes after the news
    assert told == [Woken()]


def test_a_job_is_held_released_suspended_and_ended(client: Client) -> None:
    session = client()
    assert [session.control("7", action) for action in ("hold", "release", "suspend", "terminate")] == [True] * 4
    assert not session.control("7", "resume"), "it refused, so a command has to"


def test_what_the_library_refuses_a_command_does(client: Client) -> None:
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


def test_a_leak_ends_in_the_helper() -> None:
    leak = "import mmap; from koalapy_adapters import drmaa_helper as it; it._bound_memory(); mmap.mmap(-1, %s)"
    argv = [sys.executable, "-c", leak % "it.ADDRESS_SPACE"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "Cannot allocate memory" in done.stderr


def test_a_refusal_is_no_crash(client: Client, tmp_path: Path) -> None:
    session = client()
    with pytest.raises(DrmaaRefused, match="unknown queue"):
        session.submit("refuse", [])
    assert not session.control("8", "terminate")
    assert session.submit("job", []) == "7"
    assert len(runs(tmp_path)) == 1


def test_a_crash_hurts_its_operation_only_and_the_session_is_resumed(client: Client, tmp_path: Path) -> None:
    session = client()
    with pytest.raises(DrmaaLost):
        session.submit("crash", [])
    assert session.submit("job", []) == "7"
    assert [run[:2] for run in runs(tmp_path)] == [[[""], LIBRARY.path], [["session-1"], LIBRARY.path]]


def together(session: DrmaaClient, script: str) -> list[str]:
    """Two submits at a time: what each comes to, in order."""

    def submit(_: int) -> str:
        try:
            return session.submit(script, [])
        except DrmaaLost:
            return "lost"

    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(submit, range(2)))


def test_one_submit_does_not_wait_for_the_answer_to_another(client: Client) -> None:
    """So that the library is never idle while there is something to do. This one answers only when it has two."""
    assert together(client(), "pair") == ["1", "2"]


def test_a_submit_goes_past_one_that_the_library_sleeps_over(tmp_path: Path) -> None:
    """The second session is begun when the first is asked something already, and not before."""
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


def test_one_that_dies_takes_along_all_that_it_was_asked_and_has_died_once(client: Client, tmp_path: Path) -> None:
    session = client()
    assert together(session, "last") == ["lost", "lost"]
    assert session.submit("job", []) == "7"
    assert len(runs(tmp_path)) == 2
    assert len(session._crashes) == 1


class Awaited:
    """Replacements by the session's own watcher, which nobody asks: each is waited for, not slept for."""

    def __init__(self, session: DrmaaClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self._replaced: queue.Queue[None] = queue.Queue()
        begin = session._begin

        def noted(helper: Any) -> None:
            monkeypatch.setattr(drmaa_client, "TIMEOUT", PATIENCE_S)  # whatever it was for the one before
            begin(helper)
            self._replaced.put(None)

        monkeypatch.setattr(session, "_begin", noted)

    def one(self) -> None:
        self._replaced.get(timeout=PATIENCE_S)


@pytest.mark.parametrize("signum", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_a_helper_that_dies_unasked_is_replaced_at_once_with_its_session(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    """So that it goes on hearing of ends, though nobody submits."""
    session = client()
    replaced = Awaited(session, monkeypatch)
    assert session.start()
    replaced.one()
    os.kill(runs(tmp_path)[0][2], signum)
    replaced.one()
    assert [run[0] for run in runs(tmp_path)] == [[""], ["session-1"]]
    assert session.usable


def test_a_helper_that_is_stopped_is_noticed_though_nobody_asks_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drmaa_client, "PING", 0.1)
    session = client()
    replaced = Awaited(session, monkeypatch)
    assert session.start()
    replaced.one()
    monkeypatch.setattr(drmaa_client, "TIMEOUT", 2.0)
    os.kill(runs(tmp_path)[0][2], signal.SIGSTOP)
    replaced.one()
    assert [run[0] for run in runs(tmp_path)] == [[""], ["session-1"]]
    with pytest.raises(ProcessLookupError):
        os.kill(runs(tmp_path)[0][2], 0)


@pytest.mark.parametrize(("script", "crashes"), [("grow", 0), ("deaf", 1)])
def test_a_helper_that_grows_or_hears_no_ends_is_replaced(
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


def test_a_batch_system_that_is_down_is_asked_again_later(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drmaa_client, "REST", 0.0)
    session = client(family="down")
    assert not session.start()
    assert "unable to send message to qmaster" in capsys.readouterr().err
    assert client().start()
    assert session.start(), "the batch system is up again"


@pytest.mark.parametrize("family", ["slurm-drmaa 1.1.4", "PBS Pro", ""])
def test_auto_uses_no_library_of_another_batch_system(
    client: Client, capsys: pytest.CaptureFixture[str], family: str
) -> None:
    assert not client(family=family).start()
    assert "is the library of" in capsys.readouterr().err


def test_a_library_that_is_named_is_used_whatever_it_is(client: Client) -> None:
    assert client(family="slurm-drmaa 1.1.4", library=LIBRARY._replace(family="")).start()


def test_a_submit_lost_in_the_helper_is_a_doubt_and_a_refusal_is_none(client: Client) -> None:
    batch = BatchSystem(sge, BatchSettings("me"), client())
    assert batch.submit(JOB, "job", Handle()) == "7"
    with pytest.raises(SubmitDoubt):
        batch.submit(JOB, "crash", Handle())
    with pytest.raises(BatchError) as refused:
        batch.submit(JOB, "refuse", Handle())
    assert refused.value.code == "no_such_queue"


def test_a_submit_that_was_ended_first_is_not_sent(client: Client) -> None:
    handle = Handle()
    handle.end()
    with pytest.raises(BatchError) as ended:
        BatchSystem(sge, BatchSettings("me"), client()).submit(JOB, "crash", handle)
    assert ended.value.code == "submit_ended"


def test_the_library_is_found_where_the_grid_file_or_grid_engine_has_it(
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
