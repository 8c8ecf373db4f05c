"""The machine at both ends of a byte stream, over hops that lose frames when a connection is cut."""

import tracemalloc
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.frames import MAX_CHUNK, Chunk
from koalapy_adapters.messages import is_sound
from koalapy_adapters.messages.streams import OpenStream, StreamReset, StreamState
from koalapy_adapters.streams import WINDOW, StreamEnd, StreamName

SECOND = 1_000_000
PATIENCE = 60 * SECOND
NAME = StreamName("k00000000000001", 7, PATIENCE)
OPENING = OpenStream(NAME.tag, NAME.stream, 0, 8080, PATIENCE)


class Line:
    """Two ends and the frames between them. Control passes chunks, as it does in every hop."""

    def __init__(self) -> None:
        self.now = 0
        self.near, self.far = StreamEnd(0, NAME, OPENING), StreamEnd(0, NAME)
        self.ways: dict[StreamEnd, tuple[deque[Any], deque[Any]]] = {
            self.near: (deque(), deque()),
            self.far: (deque(), deque()),
        }
        self.put: dict[StreamEnd, bytes] = {self.near: b"", self.far: b""}
        self.got: dict[StreamEnd, bytes] = {self.near: b"", self.far: b""}
        self.ended: dict[StreamEnd, bool] = {self.near: False, self.far: False}
        self.send(self.near, self.near.open(0))

    def other(self, end: StreamEnd) -> StreamEnd:
        return self.far if end is self.near else self.near

    def send(self, end: StreamEnd, frames: list[Any]) -> None:
        for frame in frames:
            assert isinstance(frame, Chunk) or is_sound(frame)
            self.ways[end][isinstance(frame, Chunk)].append(frame)
        sent = sum(len(chunk.data) for chunk in self.ways[end][1])
        assert sent <= 2 * WINDOW
        assert len(end.inbox) <= WINDOW
        assert 0 <= end.room <= WINDOW

    def write(self, end: StreamEnd, size: int) -> None:
        data = bytes((len(self.put[end]) + index) % 251 for index in range(min(size, end.room)))
        if data:
            self.put[end] += data
            self.send(end, end.put(data))

    def read(self, end: StreamEnd, most: int) -> None:
        data = bytes(end.inbox[:most])
        self.got[end] += data
        if data:
            self.send(end, end.consume(len(data)))
        if not end.inbox and end.has_ended:
            self.ended[end] = True
            self.send(end, end.consume_end())

    def carry(self, end: StreamEnd, most: int) -> None:
        """Bring up to this number of frames from this end to the other."""
        for _ in range(most):
            waiting = next((queue for queue in self.ways[end] if queue), None)
            if waiting is None:
                return
            frame, to = waiting.popleft(), self.other(end)
            self.send(to, to.received(self.now, frame))
            if isinstance(frame, OpenStream) and not to.is_open and to.reset_by is None:
                self.send(to, to.accept(self.now))

    def cut(self, lost: int) -> None:
        """Lose the last `lost` frames of each way, as a connection does, and connect again."""
        for ways in self.ways.values():
            for queue in ways:
                for _ in range(min(lost, len(queue))):
                    queue.pop()
        self.send(self.near, self.near.resume(self.now))

    def wait(self, microseconds: int) -> None:
        self.now += microseconds
        for end in (self.near, self.far):
            if self.now >= end.next_wakeup():
                self.send(end, end.tick(self.now))

    def calm(self) -> None:
        """Carry everything and let both read, until nothing moves."""
        for _ in range(60):
            for end in (self.near, self.far):
                self.carry(end, 1000)
                self.read(end, WINDOW)
            if not any(queue for ways in self.ways.values() for queue in ways):
                self.wait(PATIENCE // 4)


Event = tuple[str, bool, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["write", "read", "carry", "cut", "wait", "end", "reset"]),
        st.booleans(),
        st.integers(1, 3 * MAX_CHUNK),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(EVENTS)
def test_every_byte_arrives_once_and_in_order_or_both_ends_are_reset(events: list[Event]) -> None:
    check(events)


def check(events: Sequence[Event]) -> None:
    line = Line()
    for what, is_near, number in events:
        end = line.near if is_near else line.far
        if what == "write":
            line.write(end, number)
        elif what == "read":
            line.read(end, number)
        elif what == "carry":
            line.carry(end, number % 9)
        elif what == "cut":
            line.cut(number % 7)
        elif what == "wait":
            line.wait(number * 50)
        elif what == "end":
            line.send(end, end.end())
        elif number % 10 == 0:
            line.send(end, end.reset("stopped", "The program has stopped."))
        for one in (line.near, line.far):
            assert line.put[line.other(one)].startswith(line.got[one])
    if line.near.reset_by is not None or line.far.reset_by is not None:
        line.calm()
        assert line.near.reset_by is not None or not line.near.is_open or line.near.is_finished
        return
    line.calm()
    for one in (line.near, line.far):
        line.send(one, one.end())
    line.calm()
    for one in (line.near, line.far):
        assert one.reset_by is None
        assert line.got[one] == line.put[line.other(one)]
        assert line.ended[one]
        assert one.is_finished


def test_many_small_writes_take_little_memory_and_are_sent_again_whole() -> None:
    line = Line()
    line.calm()
    tracemalloc.start()
    for number in range(1 << 15):
        line.near.put(bytes([number % 251]) * 3)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3 * (3 << 15)
    line.put[line.near] = b"".join(bytes([number % 251]) * 3 for number in range(1 << 15))
    line.cut(0)
    line.calm()
    assert line.got[line.far] == line.put[line.near]


def test_what_the_other_end_has_consumed_takes_no_memory() -> None:
    line = Line()
    line.calm()
    tracemalloc.start()
    for _ in range(20 * WINDOW // MAX_CHUNK):
        line.send(line.near, line.near.put(bytes(MAX_CHUNK)))
        line.carry(line.near, 10)
        line.send(line.far, line.far.consume(len(line.far.inbox)))
        line.carry(line.far, 10)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2 * WINDOW


def take_repeated(end: StreamEnd, chunk: Chunk) -> list[Any]:
    """Take what was sent again as if it were new."""
    is_repeated = chunk.data and chunk.number < end._received
    return _ARRIVED(end, chunk._replace(number=end._received) if is_repeated else chunk)


def take_after_a_gap(end: StreamEnd, chunk: Chunk) -> list[Any]:
    """Take what follows lost bytes in their place."""
    return _ARRIVED(end, chunk._replace(number=end._received) if chunk.number > end._received else chunk)


def send_nothing_again(end: StreamEnd, state: StreamState) -> list[Any]:
    """Ignore that the other end has missed bytes."""
    return _ACKNOWLEDGED(end, state._replace(again=False))


_ARRIVED, _ACKNOWLEDGED = StreamEnd._arrived, StreamEnd._acknowledged
MUTANTS = [("_arrived", take_repeated), ("_arrived", take_after_a_gap), ("_acknowledged", send_nothing_again)]


@pytest.mark.parametrize(("name", "mutant"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_broken_machine_is_caught(name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamEnd, name, mutant)
    assert any(is_caught(seed) for seed in range(300))


def is_caught(seed: int) -> bool:
    """Return whether random events show that the promise is broken."""
    dice = Random(seed)
    kinds = ["write", "read", "carry", "carry", "cut", "wait", "end"]
    try:
        check([(dice.choice(kinds), dice.random() < 0.5, dice.randint(1, 3 * MAX_CHUNK)) for _ in range(60)])
    except AssertionError:
        return True
    return False


def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    line = Line()
    line.calm()
    for _ in range(100):
        line.write(line.near, MAX_CHUNK)
        line.carry(line.near, 100)
    assert len(line.put[line.near]) == WINDOW
    assert len(line.far.inbox) == WINDOW
    assert line.near.room == 0
    line.read(line.far, WINDOW // 2)
    line.carry(line.far, 1)
    assert line.near.room == WINDOW // 2


def test_one_direction_ends_while_the_other_goes_on() -> None:
    line = Line()
    line.calm()
    line.write(line.near, 1000)
    line.send(line.near, line.near.end())
    line.calm()
    assert line.ended[line.far]
    assert not line.near.is_closed
    line.write(line.far, 5000)
    line.calm()
    assert line.got[line.near] == line.put[line.far]
    line.send(line.far, line.far.end())
    line.calm()
    assert line.near.is_finished
    assert line.far.is_finished


def test_one_that_is_half_open_for_hours_stays_and_its_open_direction_still_works() -> None:
    line = Line()
    line.calm()
    line.send(line.near, line.near.end())
    line.calm()
    began = line.now
    while line.now < began + 5 * 3600 * SECOND:
        line.wait(PATIENCE // 8)
        line.carry(line.near, 10)
        line.carry(line.far, 10)
    assert line.near.reset_by is line.far.reset_by is None
    line.write(line.far, 5000)
    line.calm()
    assert line.got[line.near] == line.put[line.far]
    assert len(line.got[line.near]) == 5000


def test_both_ends_are_reset_after_the_patience_without_each_other() -> None:
    line = Line()
    line.calm()
    began = line.now
    while line.near.reset_by is None or line.far.reset_by is None:
        line.wait(SECOND)
        for ways in line.ways.values():
            for queue in ways:
                queue.clear()
        assert line.now <= began + PATIENCE + SECOND
    assert line.near.reset_by.code == line.far.reset_by.code == "timed_out"


def test_an_end_that_was_reset_answers_until_the_other_knows() -> None:
    line = Line()
    line.calm()
    line.far.reset("refused", "Nothing listens there.")  # and the message is lost
    line.send(line.near, line.near.resume(line.now))
    line.calm()
    assert line.near.reset_by == StreamReset(NAME.tag, NAME.stream, "refused", "Nothing listens there.")


@pytest.mark.parametrize(
    "frames",
    [
        [StreamState(NAME.tag, NAME.stream, 5, 5)],
        [StreamState(NAME.tag, NAME.stream, 0, 5)],
        [Chunk(NAME.stream, number * MAX_CHUNK, bytes(MAX_CHUNK)) for number in range(WINDOW // MAX_CHUNK + 1)],
        [Chunk(NAME.stream, 0, b""), Chunk(NAME.stream, 0, b"after the end")],
    ],
    ids=["acknowledged what was not sent", "consumed what was not received", "beyond the window", "after the end"],
)
def test_frames_that_break_the_rules_reset_the_stream(frames: list[Any]) -> None:
    end = StreamEnd(0, NAME)
    end.accept(0)
    answers = [answer for frame in frames for answer in end.received(0, frame)]
    assert end.reset_by is not None
    assert end.reset_by.code == "broken"
    assert end.reset_by in answers
    assert not end.inbox


def test_an_end_that_is_over_is_kept_for_its_patience() -> None:
    end = StreamEnd(0, NAME)
    end.accept(0)
    end.reset("stopped", "")
    assert not end.is_forgotten(PATIENCE - 1)
    assert end.is_forgotten(PATIENCE)
