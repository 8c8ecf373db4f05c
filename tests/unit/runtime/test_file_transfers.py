"""Files on their way to and from clusters: bounded for each cluster, and a stall of one does not delay another."""

import contextlib
import hashlib
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters import messages as wire
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.frames import INITIAL_CREDIT, Chunk, Control, Credit, Decoder, encode
from koalapy_adapters.messages import files, koalad
from koalapy_adapters.messages import kcm as kcm_messages

from koalapy.driver.driver import Delivery
from koalapy.link.reconnect import Cluster, Timing
from koalapy.model.commands import CancelAttempt, CollectOutput, SubmitAttempt
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import ClusterConnected, OutputCollected
from koalapy.model.identity import AttemptId, InstanceId, JobId, Tag, attempt_of
from koalapy.model.request import ComponentRequest
from koalapy.model.units import MINUTE, Duration
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.cluster_link.link import Link, LinkServices
from koalapy.runtime.collecting import collector as collecting
from koalapy.runtime.collecting.collector import Collector
from koalapy.runtime.host import ThreadHost
from koalapy.runtime.session import session as sessions
from koalapy.runtime.session.session import Session

PATIENCE_S = 60.0
INSTANCE = InstanceId("abcde")
QUICK = Timing(ping=0.05, silence=600.0, stalled=600.0)
Answer = Callable[["FakeKcm", Any], None]


class Plug:
    """A channel to the other end of a pair of sockets."""

    def __init__(self, plug: socket.socket) -> None:
        self._plug = plug

    def read(self, size: int) -> bytes:
        try:
            return self._plug.recv(size)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        self._plug.sendall(data)

    def exit_status(self, timeout_s: float) -> int | None:
        return 0

    def close(self) -> None:
        with_no_error(lambda: self._plug.shutdown(socket.SHUT_RDWR))


def with_no_error(call: Callable[[], Any]) -> None:
    with contextlib.suppress(OSError):
        call()


class FakeKcm:
    """A cluster that keeps its session alive, and does of all else what a test wants: `answer` gets each message."""

    def __init__(self, answer: Answer = lambda kcm, message: None) -> None:
        near, self._far = socket.socketpair()
        self.channel, self._answer = Plug(near), answer
        self._near = near
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, frame: Any) -> None:
        with_no_error(lambda: self._far.sendall(encode(frame)))

    def respond(self, message: Any) -> None:
        self.send(Control(wire.to_json(message)))

    def next(self, kind: type[Any] | tuple[type[Any], ...]) -> Any:
        while not isinstance(found := self.arrived.get(timeout=PATIENCE_S), kind):
            pass
        return found

    def close(self) -> None:
        with_no_error(lambda: self._far.shutdown(socket.SHUT_RDWR))
        self._thread.join()
        self._far.close()
        self._near.close()

    def _run(self) -> None:
        decoder = Decoder()
        try:
            while data := self._far.recv(1 << 16):
                for frame in decoder.feed(data):
                    message = wire.from_json(frame.data) if isinstance(frame, Control) else frame
                    self.arrived.put(message)
                    if isinstance(message, koalad.Hello):
                        self.respond(kcm_messages.Welcome(wire.PROTOCOL, "1", message.clock, "3.6", "head"))
                    elif isinstance(message, koalad.Ping):
                        self.respond(kcm_messages.Pong(message.id, message.clock))
                    else:
                        self._answer(self, message)
        except OSError:
            return


class Plugged(Link):
    """A link whose one connection is there already."""

    def __init__(self, cluster: Cluster, channel: Any, services: LinkServices) -> None:
        super().__init__(cluster, LocalConnection(), packed(), services)
        self._channel = channel

    def _log_in(self) -> Any:
        return self._channel


class Near:
    """koalad's side of some such clusters."""

    def __init__(self) -> None:
        self.deliveries: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self.links: dict[str, Link] = {}
        self._over: list[Callable[[], None]] = []

    def link(self, name: str, timing: Timing, answer: Answer) -> FakeKcm:
        """A link to it, connected."""
        far = FakeKcm(answer)
        cluster = Cluster(name=name, instance=INSTANCE, config={"name": name, "batch": "local"}, timing=timing)
        connected = threading.Event()
        services = LinkServices(
            now=SystemClock().now, deliver=self._deliver, next_epoch=lambda: 1, known=tuple, put=lambda *key: None,
            connected=connected.set,
        )  # fmt: skip
        link = self.links[name] = Plugged(cluster, far.channel, services)
        link.start()
        assert connected.wait(PATIENCE_S)
        self._over += [link.close, far.close]
        return far

    def _deliver(self, delivery: Delivery) -> None:
        if not any(isinstance(event, ClusterConnected) for event in delivery.events):
            self.deliveries.put(delivery)

    def delivery(self, kind: type[Any]) -> Delivery:
        while True:
            found = self.deliveries.get(timeout=PATIENCE_S)
            if any(isinstance(event, kind) for event in found.events):
                return found

    def close(self) -> None:
        for each in self._over:
            each()


@pytest.fixture
def near() -> Iterator[Near]:
    made = Near()
    yield made
    made.close()


FILE = b"what it left"


def gives(kcm: FakeKcm, message: Any) -> None:
    """A cluster on which every attempt has left one small file, `x`."""
    if isinstance(message, files.ListFiles):
        data = json.dumps(["x", "file", len(FILE), 0o644, 5, ""]).encode() + b"\n"
    elif isinstance(message, files.FetchMany):
        data = b"[%d,420,5]\n" % len(FILE) + FILE
    else:
        return
    kcm.send(Chunk(message.id, 0, data))
    kcm.send(Chunk(message.id, 1, b""))
    kcm.respond(kcm_messages.Fetched(message.id, len(data), 0, hashlib.sha256(data).hexdigest()))


def collect(cluster: str, job: int, directory: Path) -> CollectOutput:
    attempt = AttemptId(JobId(job), 0, 1)
    return CollectOutput(job=JobId(job), sources=((cluster, attempt),), paths=("x",), directory=str(directory))


# ---- one cluster and the others


@pytest.fixture
def wanted() -> set[int]:
    return set(range(100))


@pytest.fixture
def collector(near: Near, wanted: set[int]) -> Iterator[Collector]:
    made = Collector(INSTANCE, near.links, near.deliveries.put, 0.1, wanted=lambda job: int(job) in wanted)
    yield made
    made.close()
    made.join()


def test_what_stalls_on_one_cluster_keeps_no_other_s_files_waiting(
    near: Near, collector: Collector, tmp_path: Path
) -> None:
    """One that lives, and gives nothing that it is asked for."""
    bad = near.link("bad", QUICK, lambda kcm, message: None)
    near.link("good", QUICK, gives)
    for job in range(1, 9):
        collector.collect(job, collect("bad", job, tmp_path))
    for _ in range(4):
        bad.next(files.ListFiles)
    collector.collect(50, collect("good", 50, tmp_path / "good"))
    assert near.delivery(OutputCollected) == Delivery(
        events=(OutputCollected(job=JobId(50), files=1, size=len(FILE)),), confirmed=(50,)
    )
    assert (tmp_path / "good" / "x").read_bytes() == FILE
    assert collector.fetch(collect("good", 51, tmp_path / "again"), PATIENCE_S) is not None


def test_a_job_on_several_clusters_waits_for_its_own_only(near: Near, collector: Collector, tmp_path: Path) -> None:
    """Jobs that have their part from the good cluster, and wait for the bad one, leave the good one to others."""
    bad = near.link("bad", QUICK, lambda kcm, message: None)
    near.link("good", QUICK, gives)
    for job in range(1, 9):
        both = CollectOutput(
            job=JobId(job),
            sources=(("good", AttemptId(JobId(job), 0, 1)), ("bad", AttemptId(JobId(job), 1, 1))),
            paths=("x",),
            directory=str(tmp_path),
        )
        collector.collect(job, both)
    for _ in range(4):
        bad.next(files.ListFiles)
    collector.collect(50, collect("good", 50, tmp_path / "good"))
    assert near.delivery(OutputCollected).confirmed == (50,)


def test_who_is_not_wanted_any_more_leaves_its_worker_at_once(
    near: Near, collector: Collector, wanted: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes: it is looked all the same. The cluster learns that nobody reads, and the next one has its turn."""
    monkeypatch.setattr(collecting, "_POLL_S", 0.01)
    bad = near.link("bad", QUICK, lambda kcm, message: None)
    for job in range(1, 6):
        collector.collect(job, collect("bad", job, tmp_path))
    asked = [bad.next(files.ListFiles) for _ in range(4)]
    _, attempt = attempt_of(Tag(asked[0].tag))  # threads that are ready at once may pass each other
    assert attempt is not None
    wanted.discard(int(attempt.job))
    assert near.deliveries.get(timeout=PATIENCE_S) == Delivery(confirmed=(int(attempt.job),))
    said = [bad.next((Chunk, files.ListFiles)) for _ in range(2)]  # messages overtake files
    [left] = [each for each in said if isinstance(each, Chunk)]
    assert (left.stream, left.data) == (asked[0].id, b"")


def test_what_gives_no_byte_for_too_long_is_asked_for_again(near: Near, collector: Collector, tmp_path: Path) -> None:
    """The session lives all the while; the second time the cluster gives what it has."""
    asked: list[Any] = []

    def gives_later(kcm: FakeKcm, message: Any) -> None:
        if isinstance(message, files.ListFiles):
            asked.append(message)
        if len(asked) > 1:
            gives(kcm, message)

    near.link("slow", replace(QUICK, stalled=0.2), gives_later)
    collector.collect(1, collect("slow", 1, tmp_path))
    assert near.delivery(OutputCollected).confirmed == (1,)
    assert (tmp_path / "x").read_bytes() == FILE


def test_a_person_gets_a_message_that_nothing_comes(near: Near, collector: Collector, tmp_path: Path) -> None:
    near.link("slow", replace(QUICK, stalled=0.2), lambda kcm, message: None)
    with pytest.raises(TransientError, match="Nothing has come of slow's files for too long") as reported:
        collector.fetch(collect("slow", 1, tmp_path), PATIENCE_S)
    assert reported.value.reason.code == "stalled"


def test_a_fetch_that_nobody_asks_for_any_more_is_given_up(
    near: Near, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "FORGOTTEN_S", 0.0)
    monkeypatch.setattr(collecting, "_POLL_S", 0.01)
    bad = near.link("bad", QUICK, lambda kcm, message: None)
    assert collector.fetch(collect("bad", 1, tmp_path), 0.01) is None
    asked = bad.next(files.ListFiles)
    assert bad.next(Chunk) == Chunk(asked.id, 0, b"")


def test_a_koalad_that_ends_waits_for_no_cluster(near: Near, collector: Collector, tmp_path: Path) -> None:
    bad = near.link("bad", QUICK, lambda kcm, message: None)
    collector.collect(1, collect("bad", 1, tmp_path))
    bad.next(files.ListFiles)
    collector.close()
    collector.join()
    assert near.deliveries.empty()


# ---- files in


def submit(directory: Path, number: int) -> SubmitAttempt:
    return SubmitAttempt(
        cluster="bad",
        attempt=AttemptId(JobId(number), 0, 1),
        components=1,
        request=ComponentRequest(processors=1, executable="/bin/true"),
        walltime=Duration(MINUTE),
        barrier_timeout=Duration(MINUTE),
        stage_in=(f"file-{number}",),
        directory=str(directory),
    )


def lacks_all(kcm: FakeKcm, message: Any) -> None:
    if isinstance(message, files.Want):
        missing = [[index, 0] for index in range(len(message.files))]
        kcm.respond(kcm_messages.Done(message.id, details={"missing": missing, "free": 1 << 40, "total": 1 << 40}))


def test_files_in_that_a_cluster_does_not_take_are_sent_again(near: Near, tmp_path: Path) -> None:
    """It grants no credit; then it does, and has them."""
    (tmp_path / "file-1").write_bytes(bytes(4 << 20))
    stores: list[Any] = []

    def takes_later(kcm: FakeKcm, message: Any) -> None:
        lacks_all(kcm, message)
        if isinstance(message, files.Store):
            stores.append(message)
        elif isinstance(message, Chunk) and len(stores) > 1:
            if message.data:
                kcm.send(Credit(message.stream, 1))
            elif message.stream == stores[-1].id:
                kcm.respond(kcm_messages.Done(message.stream))

    far = near.link("bad", replace(QUICK, stalled=0.2, retry_max=0.1), takes_later)
    near.links["bad"].send(1, submit(tmp_path, 1), False)
    assert far.next(koalad.Submit).id == 1
    assert len(stores) == 2


def test_a_cancel_is_received_by_who_waits_to_send(near: Near, tmp_path: Path) -> None:
    """Two streams stall; a third waits for its turn; each of them is let go."""
    for number in (1, 2, 3):
        (tmp_path / f"file-{number}").write_bytes(bytes([number]) * (4 << 20))

    def stalls(kcm: FakeKcm, message: Any) -> None:
        lacks_all(kcm, message)
        if isinstance(message, koalad.Cancel):
            kcm.respond(kcm_messages.Done(message.id))

    far = near.link("bad", QUICK, stalls)
    link = near.links["bad"]
    for number in (1, 2, 3):
        link.send(number, submit(tmp_path, number), False)
    stores = {far.next(files.Store).id for _ in range(2)}
    for number in (1, 2, 3):
        attempt = AttemptId(JobId(number), 0, 1)
        link.send(10 + number, CancelAttempt(cluster="bad", attempt=attempt, batch_id=""), False)
    ended = set[int]()
    while not stores <= ended:
        chunk = far.next(Chunk)
        if not chunk.data:
            ended.add(chunk.stream)


# ---- what one session holds


def session_with(far: FakeKcm, receive: Callable[[Any], None]) -> tuple[Session, Any]:
    session = Session(far.channel, ThreadHost("far", SystemClock().now))
    ended: queue.SimpleQueue[Reason | None] = queue.SimpleQueue()
    threading.Thread(target=session.serve, args=(receive, lambda: None, ended.put), daemon=True).start()
    return session, lambda: ended.get(timeout=PATIENCE_S)


class AtOnce(Plug):
    """A channel that takes little at once, and writes the rest once it may. `at_once`: the frames that were."""

    def __init__(self, plug: socket.socket) -> None:
        super().__init__(plug)
        self.may_write, self.is_writing, self.at_once = threading.Event(), threading.Event(), list[bytes]()

    def write_now(self, data: bytes) -> bool:
        self.at_once.append(data)
        self._plug.sendall(data)
        return True

    def write(self, data: bytes) -> None:
        self.is_writing.set()
        assert self.may_write.wait(PATIENCE_S)
        super().write(data)


def test_a_small_frame_is_written_at_once_unless_something_waits() -> None:
    far = FakeKcm()
    channel = far.channel = AtOnce(far._near)
    session, ended = session_with(far, lambda message: None)
    small, large = Chunk(1 << 60, 0, b"small"), Chunk(1 << 60, 5, bytes(1 << 16))
    session.send_frame(small)
    assert far.next(Chunk) == small, "though the thread may not write yet"
    session.send_frame(large)
    assert channel.is_writing.wait(PATIENCE_S)
    session.send_frame(small)
    session.send(koalad.Ping(1, 1))
    assert channel.at_once == [encode(small)], "the rest waits behind what is being written"
    channel.may_write.set()
    frames = [far.next((Chunk, koalad.Ping)) for _ in range(3)]
    assert [type(each) for each in frames] == [Chunk, koalad.Ping, Chunk]
    assert (frames[0], frames[2]) == (large, small)
    session.end(None)
    ended()
    far.close()


def test_a_chunk_beyond_its_credit_ends_the_session() -> None:
    far = FakeKcm()
    session, ended = session_with(far, lambda message: None)
    with session.exchange() as exchange:
        for number in range(INITIAL_CREDIT):
            far.send(Chunk(exchange.id, number, b"x"))
        chunks = exchange.chunks()
        assert next(chunks) == b"x"
        session.grant(exchange, 1)
        far.next(Credit)
        far.send(Chunk(exchange.id, INITIAL_CREDIT, b"last"))
        assert [next(chunks) for _ in range(INITIAL_CREDIT)][-1] == b"last"
        for number in range(1 << 10):
            far.send(Chunk(exchange.id, number, bytes(1 << 16)))
        why = ended()
        assert (why.code, "beyond the credit" in why.message) == ("garbled", True)
        assert sum(map(len, exchange._chunks)) <= INITIAL_CREDIT << 16
        with pytest.raises(TransientError):
            list(chunks)
    far.close()


@pytest.mark.parametrize("chunks", [1, 1 << 63])
def test_credit_that_nothing_was_sent_for_ends_the_session(chunks: int) -> None:
    """It would let all of a large file into memory."""
    far = FakeKcm()
    session, ended = session_with(far, lambda message: None)
    with session.exchange() as exchange:
        far.send(Credit(exchange.id, chunks))
        assert ended().code == "garbled"
    far.close()


def test_who_does_not_read_is_not_read() -> None:
    """Each of its words makes one of ours: they do not heap up, and its session ends as one that sends nothing."""
    near, far = socket.socketpair()
    most = [0]
    silent = Reason("silent", "transient", "It does not read.")
    done = threading.Event()

    alive_at = [time.monotonic()]

    def alive() -> None:
        alive_at[0] = time.monotonic()

    def watch() -> None:
        while time.monotonic() - alive_at[0] < 0.5:
            most[0] = max(most[0], session.waiting)
            time.sleep(0.01)
        session.end(silent)

    def flood() -> None:
        word = encode(Control(wire.to_json(kcm_messages.Pong(1, 1)))) * 100

        def send() -> None:
            for _ in range(1 << 20):
                far.sendall(word)

        with_no_error(send)
        done.set()

    session, ended = Session(Plug(near), ThreadHost("far", SystemClock().now)), list[Reason | None]()
    threads = [threading.Thread(target=each) for each in (flood, watch)]
    for each in threads:
        each.start()
    session.serve(lambda message: session.send(koalad.Ping(1, 1 << 60)), alive, ended.append)
    assert ended == [silent]
    far.close()
    for each in threads:
        each.join()
    near.close()
    read = sessions._READ
    assert most[0] <= sessions._MOST_WAITING + 3 * read, "and what one read has caused"
