"""The client of the DRMAA helper, whose helper may crash, hang or refuse: real processes that do."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import sge
from koalapy_adapters.batch.protocol import BatchJob, Site
from koalapy_adapters.errors import BatchError
from koalapy_adapters.kcm import drmaa
from koalapy_adapters.kcm.actions import Woken
from koalapy_adapters.kcm.commands import BatchSystem, SubmitDoubt
from koalapy_adapters.kcm.drmaa import MAX_CRASHES, Drmaa, DrmaaLost, DrmaaRefused, find_library
from koalapy_adapters.kcm.running import Handle

# Speaks as koalapy_adapters.drmaa_helper does, for a library that does as the script's name says.
HELPER = """
import json, os, sys, time
with open("%(log)s", "a") as runs:
    runs.write(json.dumps([sys.argv[1:], os.environ["DRMAA_LIBRARY_PATH"]]) + "\\n")
def say(**what): print(json.dumps(what), flush=True)
say(contact="session-1")
for line in sys.stdin:
    request = json.loads(line)
    script = request.get("script", "")
    if script == "crash": os.abort()
    if script == "hang": time.sleep(600)
    if script == "refuse": say(refused="code 17: job rejected: unknown queue nosuch")
    elif request["do"] == "cancel": say(**({} if request["batch_id"] == "7" else {"refused": "no such job"}))
    else:
        say(batch_id=7)
        print("a library that prints what it likes", flush=True)
        say(ended="7")
    if script == "exit": os._exit(0)
"""
JOB = BatchJob("kabcde000000001", "/tmp/a", ["true"], 1, 60)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[..., Drmaa]]:
    opened: list[Drmaa] = []

    def open_one(tell: Callable[[Any], None] = lambda event: None) -> Drmaa:
        script = tmp_path / "helper.py"
        script.write_text(HELPER % {"log": tmp_path / "runs"})
        opened.append(Drmaa([sys.executable, str(script)], "/lib/libdrmaa.so", tell))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_submits_and_tells_of_the_end(client: Callable[..., Drmaa]) -> None:
    told: list[Any] = []
    session = client(told.append)
    assert session.submit("job", ["-terse", "job"]) == "7"
    assert session.cancel("7")  # its answer comes after the news
    assert told == [Woken()]


def test_a_refusal_is_no_crash(client: Callable[..., Drmaa]) -> None:
    session = client()
    with pytest.raises(DrmaaRefused, match="unknown queue"):
        session.submit("refuse", [])
    assert not session.cancel("8")
    assert session.submit("job", []) == "7"


def test_a_crash_hurts_its_operation_only_and_the_session_is_resumed(
    client: Callable[..., Drmaa], tmp_path: Path
) -> None:
    session = client()
    with pytest.raises(DrmaaLost):
        session.submit("crash", [])
    assert session.submit("job", []) == "7"
    runs = (tmp_path / "runs").read_text().splitlines()
    assert runs == ['[[""], "/lib/libdrmaa.so"]', '[["session-1"], "/lib/libdrmaa.so"]']


def test_one_that_died_while_nobody_asked_is_replaced_first(client: Callable[..., Drmaa], tmp_path: Path) -> None:
    session = client()
    assert session.submit("exit", []) == "7"
    while len((tmp_path / "runs").read_text().splitlines()) < 2:  # until the end of its output has been heard
        assert session.start()
    assert session.submit("job", []) == "7"


def test_a_helper_that_hangs_is_ended(client: Callable[..., Drmaa], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drmaa, "TIMEOUT", 2.0)
    session = client()
    assert session.start()
    monkeypatch.setattr(drmaa, "TIMEOUT", 0.1)
    with pytest.raises(DrmaaLost, match="in time"):
        session.submit("hang", [])


def test_after_repeated_crashes_it_is_no_longer_used(client: Callable[..., Drmaa]) -> None:
    session = client()
    for _ in range(MAX_CRASHES):
        with pytest.raises(DrmaaLost):
            session.submit("crash", [])
    assert not session.usable
    assert not session.start()
    with pytest.raises(DrmaaRefused):
        session.submit("job", [])


def test_a_helper_that_cannot_start_is_not_used(capsys: pytest.CaptureFixture[str]) -> None:
    session = Drmaa([sys.executable, "-c", "raise SystemExit('no library')"], "/lib/libdrmaa.so", lambda event: None)
    assert not session.start()
    assert not session.usable
    assert "commands are used" in capsys.readouterr().err


def test_a_submit_lost_in_the_helper_is_a_doubt_and_a_refusal_is_none(client: Callable[..., Drmaa]) -> None:
    batch = BatchSystem(sge, Site("me"), client())
    assert batch.submit(JOB, "job", Handle()) == "7"
    with pytest.raises(SubmitDoubt):
        batch.submit(JOB, "crash", Handle())
    with pytest.raises(BatchError) as refused:
        batch.submit(JOB, "refuse", Handle())
    assert refused.value.code == "no_such_queue"


def test_a_submit_that_was_ended_first_is_not_sent(client: Callable[..., Drmaa]) -> None:
    handle = Handle()
    handle.end()
    with pytest.raises(BatchError) as ended:
        BatchSystem(sge, Site("me"), client()).submit(JOB, "crash", handle)
    assert ended.value.code == "submit_ended"


def test_the_library_is_found_where_the_grid_file_or_grid_engine_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib" / "lx-amd64" / "libdrmaa.so"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv("SGE_ROOT", str(tmp_path))
    assert find_library("auto") == str(library)
    assert find_library("off") is None
    assert find_library("/opt/libdrmaa.so") == "/opt/libdrmaa.so"
