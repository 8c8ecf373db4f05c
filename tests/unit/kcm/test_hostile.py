"""A KCM survives all messages of wrappers after their proof, and any files in its shared directory.

It sends nothing invalid to koalad.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kcm_machine import SECOND, T0, TAG, report, running_machine
from koalapy_adapters import frames, layout, start_lock
from koalapy_adapters import messages as wire
from koalapy_adapters.errors import BatchError
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.relay.authentication import outcome
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Component, Directories
from koalapy_adapters.kcm.shared_directory.cluster_files import SubmitWatermark
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.launcher import journal
from koalapy_adapters.messages import details, koalad
from koalapy_adapters.messages import fields as fields_messages
from koalapy_adapters.messages import kcm as wire_kcm

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

LAUNCHER = str(tag_of(InstanceId("abcde"), AttemptId(JobId(FIRST_LAUNCHER + 1), 0, 1)))
SWEEP = 9
ROW = [1, 0, "exited", "n1", 0, T0, T0, 0, 0, 0, 0]
REPORT = {**report("ended", ending="exited", exit_status=0, at_barrier_at=T0), "error": None}

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=6),
    st.sampled_from([-1, 0, 1, 1 << 53, -(1 << 53), 1 << 62, 1 << 64, 10**40, "\x1b[2J", "x" * 70_000, "é" * 300]),
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
SOUND: dict[str, dict[str, Any]] = {
    "parameters_held": {"ranges": [[1, 3]], "slots": 2},
    "pull_parameters": {"wanted": 3, "given": 0},
    "results_reported": {"number": 1, "results": [ROW]},
    "parameters_given_up": {"ranges": [[2, 3]], "begun": [[2, 2]]},
    "progress_reported": {"running": 1, "newest_at": T0},
    "node_suspected": {"host": "n1"},
}


@st.composite
def spoilt(draw: Callable[[Any], Any], sound: dict[str, Any]) -> dict[str, Any]:
    """Replace some of its fields by arbitrary values."""
    wrong = draw(st.dictionaries(st.sampled_from([*sound, "type"]), JSON, max_size=2))
    return {**sound, **wrong}


ROWS = st.lists(st.lists(JSON | st.sampled_from(ROW), min_size=10, max_size=12) | st.just(ROW) | JSON, max_size=4)
BODIES = st.one_of(
    *(spoilt({"type": kind, **body}) for kind, body in SOUND.items()),
    st.builds(lambda rows: {"type": "results_reported", "number": 1, "results": rows}, ROWS),
)
FRAMES = st.one_of(
    st.builds(lambda report: {"type": "report_message", "report": report}, spoilt(REPORT)),
    st.builds(lambda body: {"type": "from_launcher", "body": body}, BODIES),
    spoilt({"type": "put_key", "space": TAG, "key": "a", "value": "b"}),
    spoilt({"type": "heartbeat"}),
    st.builds(
        lambda kind, fields: {"type": kind, **fields},
        st.sampled_from(sorted(wire.MESSAGES)),
        st.dictionaries(st.sampled_from(["id", "tag", "report", "body"]), JSON),
    ),
    JSON,
)


def read_by_koalad(actions: list[Any]) -> list[Any]:
    """Return the messages to koalad as koalad reads them. Raises MessageError and FrameError."""
    read = []
    for action in actions:
        if isinstance(action, do.Send):
            frame = frames.encode(frames.Control(wire.to_json(action.message)))
            (control,) = frames.Decoder().feed(frame)
            assert isinstance(control, frames.Control)
            message = wire.from_json(control.data, wire.FROM_KCM)
            read.append(wire.from_json(message.body, wire.EVENTS) if isinstance(message, wire_kcm.Event) else message)
    return read


def numbers(actions: list[Any]) -> list[int]:
    messages = [action.message for action in actions if isinstance(action, do.Send)]
    return [message.number for message in messages if isinstance(message, wire_kcm.Event)]


class Kcm:
    """A KCM with a job at its barrier and a Launcher that runs parameters. koalad reads all its messages."""

    def __init__(self, clock: int = T0) -> None:
        self.machine: Machine = running_machine()
        self.events = 0
        for event in (
            koalad.Submit(2, LAUNCHER, {}, {"grace": 1.0, "sweep": {"sweep": SWEEP, "slots": 4}}),
            do.Prepared(LAUNCHER),
            do.JobSubmitted(LAUNCHER, "42"),
            do.WrapperConnected(LAUNCHER, clock),
            koalad.FeedSweep(SWEEP, [[1, 10]], True, [LAUNCHER]),
        ):
            self.handle(event)
        for kind in ("parameters_held", "pull_parameters"):
            self.handle(do.LauncherReported(LAUNCHER, {"type": kind, **SOUND[kind], "ranges": []}))

    def handle(self, event: Any) -> list[Any]:
        return self.read(self.machine.handle(T0, event))

    def tick(self) -> list[Any]:
        """Let a second pass."""
        return self.read(self.machine.tick(T0 + SECOND))

    def read(self, actions: list[Any]) -> list[Any]:
        for number in numbers(actions):
            assert self.events == 0 or number == self.events + 1  # koalad would drop all events after a gap
            self.events = number
        return read_by_koalad(actions)

    def receive(self, tag: str, data: Any) -> list[Any]:
        """Handle a message as the relay does; a MessageError ends that wrapper's connection."""
        with contextlib.suppress(fields_messages.MessageError):
            event = outcome(tag, wire.from_json(data))
            return self.handle(event) if event is not None else []
        return []

    def must_work(self) -> None:
        """Assert that it still handles a valid job."""
        other = tag_of(InstanceId("abcde"), AttemptId(JobId(77), 0, 1))
        self.handle(koalad.Submit(3, other, {"processors": 1}, {"grace": 1.0}))
        self.handle(do.Prepared(other))
        assert wire_kcm.Submitted(3, other, "43") in self.handle(do.JobSubmitted(other, "43"))
        (reported,) = self.receive(other, {"type": "report_message", "report": {**REPORT, "exit_status": 5}})
        assert (reported.tag, reported.exit_status) == (other, 5)
        read_by_koalad(self.machine.tick(T0 + 600 * SECOND))


# ---- wrappers after their proof


def test_valid_messages_reach_koalad() -> None:
    kcm = Kcm()
    assert [type(each).__name__ for each in kcm.receive(TAG, {"type": "report_message", "report": REPORT})] == [
        "Report"
    ]
    kcm.receive(LAUNCHER, {"type": "from_launcher", "body": {"type": "results_reported", **SOUND["results_reported"]}})
    assert any(isinstance(each, wire_kcm.ParametersEnded) for each in kcm.tick())


@given(st.lists(FRAMES, min_size=1, max_size=5), st.sampled_from([T0, 0, 1 << 53, -(1 << 53)]))
@settings(max_examples=200)
def test_koalad_gets_valid_messages_only_whatever_wrappers_send(sent: list[Any], clock: int) -> None:
    kcm = Kcm(clock)
    for data in sent:
        for tag in (TAG, LAUNCHER):
            kcm.receive(tag, data)
        kcm.tick()
    kcm.must_work()


def test_a_report_that_is_too_large_for_a_frame_stops_no_others() -> None:
    """It fits into the wrapper's frame, but not into koalad's event, which escapes characters beyond ASCII."""
    kcm = Kcm()
    before = kcm.events
    large = {**REPORT, "nodes": [["é" * 250, "n", 1]] * 1000}
    assert kcm.receive(TAG, {"type": "report_message", "report": large}) == []
    assert kcm.events == before
    kcm.must_work()


def test_results_with_long_host_names_fit_into_their_events() -> None:
    kcm = Kcm()
    rows = [[number, *ROW[1:3], "é" * 300, *ROW[4:]] for number in range(1, 1501)]
    for start in range(0, 1500, 500):
        ended = {"type": "results_reported", "number": 1 + start, "results": rows[start : start + 500]}
        sent = kcm.receive(LAUNCHER, {"type": "from_launcher", "body": ended})
    (done,) = [each for each in sent if isinstance(each, wire_kcm.ParametersEnded)]
    assert len(done.results) == 1500


# ---- the shared directory


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directories]:
    made = Directories(str(tmp_path_factory.mktemp("hostile") / "shared"), "abcde", "here", 3)
    made.create()
    yield made
    shutil.rmtree(made.shared)


def attempt(directories: Directories, tag: str = TAG) -> Path:
    """Make a new directory of an attempt."""
    directories.remove(tag)
    directories.prepare(Component(tag, {"tag": tag}, "#!/bin/sh\n", []))
    return Path(directories.attempt(tag))


def as_file(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


CONTENTS = st.one_of(st.binary(max_size=40), JSON, spoilt(REPORT), st.just(b"[" * 100_000), st.just(b"9" * 10_000))


@given(CONTENTS, CONTENTS | st.none(), st.sampled_from([T0, 0, -(1 << 53)]))
@settings(max_examples=200)
def test_garbage_in_exit_record_and_start_lock_affects_no_other_attempt(
    shared: Directories, record: Any, start_lock: Any, clock: int
) -> None:
    other = TAG[:-1] + "2"
    honest, directory = attempt(shared, other), attempt(shared)
    (honest / "record.json").write_bytes(as_file(REPORT))
    (directory / "record.json").write_bytes(as_file(record))
    if start_lock is not None:
        (directory / "start-lock").write_bytes(as_file(start_lock))
    statuses = shared.inspect([TAG, other])
    assert statuses[other].record == REPORT
    described = wire.from_json(wire.to_json(wire_kcm.Done(1, details=shared.examine([TAG, other])))).details
    assert details.examined(described)[other].ended
    kcm = Kcm()
    kcm.handle(do.WrapperConnected(TAG, clock))
    kcm.handle(do.WrapperDisconnected(TAG, True))
    kcm.handle(do.Inspected([TAG], statuses))
    kcm.must_work()


@given(st.lists(CONTENTS | st.lists(JSON | st.sampled_from(ROW), min_size=11, max_size=11), max_size=6))
@settings(max_examples=200)
def test_garbage_in_a_journal_affects_its_own_lines_only(shared: Directories, lines: list[Any]) -> None:
    directory = attempt(shared, LAUNCHER)
    garbage = b"".join(as_file(each).replace(b"\n", b" ") + b"\n" for each in lines)
    (directory / journal.NAME).write_bytes(garbage + as_file([3, *ROW[1:]]) + b"\n")
    found = shared.journal(LAUNCHER, frozenset([3]))
    assert found is not None
    assert [row[0] for row in found] == [3] * len(found)
    assert found
    kcm = Kcm()
    kcm.handle(do.WrapperDisconnected(LAUNCHER, True))
    kcm.handle(do.WrapperReported(LAUNCHER, {**REPORT, "tag": LAUNCHER}))
    kcm.handle(do.JournalRead(LAUNCHER, journal.read(str(directory)), True))
    kcm.tick()
    kcm.must_work()


@given(CONTENTS)
@settings(max_examples=200)
def test_garbage_in_the_watermark_and_the_relays_address_file_is_overwritten(shared: Directories, content: Any) -> None:
    watermark_file, address_file = (
        Path(layout.watermark_file(shared.shared, "abcde", "here")),
        Path(layout.relay_file(shared.shared, "abcde", "here")),
    )
    for path in (watermark_file, address_file):
        path.write_bytes(as_file(content))
    assert 0 <= shared.watermark.newest() <= 1 << 53
    assert 0 <= shared.address_file.newest_epoch() <= 1 << 53
    SubmitWatermark(str(watermark_file), shared.files).remember(7)
    assert shared.watermark.newest() >= 7
    if shared.address_file.newest_epoch() <= shared.epoch:
        shared.address_file.publish(["10.0.0.1"], 4000)
        assert shared.address_file.newest_epoch() == shared.epoch
    address_file.unlink()


@pytest.mark.parametrize(
    "content", [b"[]", b"{}", b"5", b'{"kind": 5, "by": "x"}', b'{"kind": "taken", "by": []}', b"\xff"]
)
def test_an_unreadable_start_lock_is_held_by_nobody(shared: Directories, content: bytes) -> None:
    directory = attempt(shared)
    (directory / "start-lock").write_bytes(content)
    assert shared.inspect([TAG])[TAG].start_lock == "unreadable"
    with pytest.raises(BatchError):
        shared.void(TAG)
    with pytest.raises(ValueError, match=r"not a start lock|decode"):
        start_lock.held_by(str(directory))
