"""The link to one cluster: starts the KCM there, and performs what its conversation commands; requests for files.

It logs when the cluster's measurements begin to fail, why, and when they are back.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog
from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import Packed
from koalapy_adapters.connections.protocol import Channel, Connection, Remembering
from koalapy_adapters.frames import FrameError
from koalapy_adapters.messages import files as files_messages
from koalapy_adapters.messages import kcm, koalad, streams
from koalapy_adapters.trees import is_pattern

import koalapy
from koalapy.driver.driver import Delivery
from koalapy.link.conversation import (
    ComponentCommand,
    Deliver,
    KcmConversation,
    LogRefusal,
    Opening,
    PutKey,
    StageIn,
    lost,
)
from koalapy.link.link_loop import Callbacks, LinkLoop
from koalapy.link.reconnect import Cluster
from koalapy.link.restore_check import Verdict, trust
from koalapy.link.session import Command, LinkStatus, Lost, Reaction, Report, SessionMachine
from koalapy.link.translate import reason_of_error
from koalapy.model.commands import ClusterHint, WatchCluster
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import ClusterMeasured, Event, MeasurementFailed
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.settings import STREAM_TIMEOUT
from koalapy.model.units import Duration, Instant
from koalapy.runtime.cluster_link.pilot import LeadsToKcm
from koalapy.runtime.cluster_link.stage_in_worker import StageInCallbacks, StageInWorker
from koalapy.runtime.host import ThreadHost
from koalapy.runtime.session.session import Session
from koalapy.runtime.staging.input_files import InputFiles
from koalapy.runtime.streams import ClusterStreams, Stream

_LOG = structlog.get_logger()
CLOSE_S = 20.0
_PROBE_S = 3.0
_WALKS = 10  # factor of the time-out while the cluster searches a directory tree
_TOO_LARGE = "Shorten its arguments and environment, or stage a file in."
_LONGEST = 1000  # characters of a text that comes from the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkServices:
    """The functions of koalad that a link calls.

    `next_epoch`, `known` and `doubtful` may block, and are called at each connect; the others return at once. `put`:
    passes on a key that a component's program has put. `check`: returns the verdict on the Welcome of this epoch's
    session. `report`: gets the result of the try of this number (see Link.retry), or the loss of its session.
    """

    now: Callable[[], Instant]
    deliver: Callable[[Delivery], None]
    next_epoch: Callable[[], int]
    known: Callable[[], Sequence[tuple[AttemptId, str]]]
    put: Callable[[AttemptId, str, str], None]
    connected: Callable[[], None] = lambda: None
    doubtful: Callable[[], Sequence[JobId]] = tuple
    check: Callable[[int, kcm.Welcome], Verdict] = trust
    input_files: InputFiles = field(default_factory=InputFiles)
    stream_timeout: Duration = STREAM_TIMEOUT
    report: Callable[[LinkStatus, int], None] = lambda status, number: None


@dataclass(frozen=True, slots=True)
class Relay:
    """The way of one stream of another site to an attempt. `tag`: the attempt's. `opening`: as the attempt gets it.

    `send`: takes frames for the attempt; `forget` ends the relaying.
    """

    tag: str
    opening: streams.OpenStream
    send: Callable[[Any], None]
    forget: Callable[[], None]


class Link:
    """The link to one cluster. Any thread may call it at any time.

    Calls return at once, except `close` and those that wait. Commands for a cluster that is not connected are
    dropped: the driver sends them again after ClusterConnected.
    """

    def __init__(self, cluster: Cluster, connection: Connection, packed: Packed, services: LinkServices) -> None:
        self.cluster = cluster
        self._connection, self._packed, self._services = connection, packed, services
        self._machine: SessionMachine[KcmConversation] = SessionMachine(cluster.name, cluster.timing, random.uniform)
        callbacks = Callbacks(open=self._open, begin=self._begin, ended=self._ended, perform=self._perform)
        if isinstance(connection, Remembering):
            reachable, attended = partial(connection.reachable, _PROBE_S), partial(getattr, connection, "asked")
            callbacks = replace(callbacks, reachable=reachable, attended=attended)
        self._host = ThreadHost(cluster.name, services.now)
        self._loop: LinkLoop[KcmConversation, Session] = LinkLoop(self._machine, callbacks, self._host)
        self.streams = ClusterStreams(services.stream_timeout, self._send_frame, services.now)
        self._worker: StageInWorker | None = None
        self._measurements = MeasurementLog(cluster.name)
        self._stderr: deque[str] = deque(maxlen=20)  # the last lines of the login's or the KCM's standard error

    def start(self) -> None:
        """Begin to connect."""
        self._loop.start()

    def end(self) -> None:
        """Begin to end the connection. Jobs continue; byte streams to them are reset."""
        self.streams.close()
        self._loop.close()

    def end_session(self, why: Reason) -> int | None:
        """End the present session, to begin a new one.

        Returns the ended session's epoch; None if there was no session.
        """
        return self._loop.end_session(why)

    def close(self, within_s: float = CLOSE_S) -> None:
        """End the connection; jobs continue. Blocks for `within_s` seconds at most: a login that hangs is abandoned."""
        self.end()
        self._host.join(within_s)

    def retry(self) -> int:
        """Try to connect at once if it is not connected, even if that was given up. Returns the number of that try."""
        self._loop.do(self._machine.retry)
        return self._machine.wanted

    def status(self) -> LinkStatus:
        conversation = self._machine.conversation
        return replace(self._machine.status, cost=0.0 if conversation is None else conversation.cost)

    # ---- for the driver

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> None:
        self._send_over(lambda dialogue: dialogue.send(number, command, doubt))

    def hint(self, hint: ClusterHint) -> None:
        """Send a hint. The newest WatchCluster is sent to every later KCM too."""
        standing = isinstance(hint, WatchCluster)
        self._loop.do(lambda now: self._machine.send(now, lambda dialogue: dialogue.hint(hint), standing=standing))

    def acknowledge(self, epoch: int, number: int) -> None:
        self._send_over(lambda dialogue: dialogue.acknowledge(epoch, number))

    def put(self, attempt: AttemptId, key: str, value: str) -> None:
        """Send a key to a component on this cluster."""
        self._send_over(lambda dialogue: dialogue.put_key(attempt, key, value))

    # ---- for threads that can wait. Raises TransientError if the cluster is, or gets, out of reach.

    def ask(self, request: Callable[[int], Any], timeout_s: float) -> kcm.Done:
        """Return the KCM's answer to a message of koalapy_adapters made with a number.

        Raises KoalaError, also if the KCM refuses, and TimeoutError if there is no answer in time; the KCM continues
        then.
        """
        return self._connected().ask(request, timeout_s)

    def fetch(
        self,
        attempt: AttemptId,
        where: str,
        path: str = "",
        offset: int = 0,
        ended: Callable[[kcm.Fetched], None] = lambda end: None,
        size: int = -1,
    ) -> Iterator[bytes]:
        """Yield the bytes of a file that the attempt has written: `where` is output, errors or work (then `path`).

        `ended` is called with its end. `size`: see messages.Fetch. Raises KoalaError, also if there is no such file.
        Here and below, an empty piece arrives about every second in which nothing else does. TransientError with code
        `stalled` is raised if nothing arrives for too long.
        """
        request = lambda id, tag: files_messages.Fetch(id, tag, where, path, offset, False, size)  # noqa: E731
        yield from self._stream(attempt, request, self.cluster.timing.stalled_after(offset), ended)

    def read(self, attempt: AttemptId, where: str, positions: Mapping[int, int], follow: bool) -> Iterator[bytes]:
        """Yield the output of the attempt's processes in stretches: `where` is output or errors; see messages.Fetch.

        `positions`: bytes of each rank that were read before. With `follow` it lasts until the attempt has ended,
        however long nothing arrives. Raises KoalaError.
        """
        before = [[rank, position] for rank, position in positions.items()]
        request = lambda id, tag: files_messages.Fetch(id, tag, where, follow=follow, positions=before)  # noqa: E731
        yield from self._stream(attempt, request, None if follow else self.cluster.timing.stalled)

    def read_ends(self, attempt: AttemptId, where: str, most: int) -> Iterator[bytes]:
        """Yield the present output like `read`, with at most `most` bytes of each rank: its beginning and its end.

        Raises KoalaError.
        """
        request = lambda id, tag: files_messages.Fetch(id, tag, where, size=most, positions=[])  # noqa: E731
        yield from self._stream(attempt, request, self.cluster.timing.stalled)

    def fetch_many(
        self, attempt: AttemptId, paths: Sequence[str], ended: Callable[[kcm.Fetched], None]
    ) -> Iterator[bytes]:
        """Yield the stream of small files; see messages.FetchMany. Raises KoalaError."""
        request = lambda id, tag: files_messages.FetchMany(id, tag, list(paths))  # noqa: E731
        yield from self._stream(attempt, request, self.cluster.timing.stalled, ended)

    def list_files(self, attempt: AttemptId, patterns: Sequence[str]) -> Iterator[bytes]:
        """Yield the stream of file entries; see messages.ListFiles. Raises KoalaError."""
        request = lambda id, tag: files_messages.ListFiles(id, tag, list(patterns))  # noqa: E731
        walks = any(map(is_pattern, patterns))  # the search may take long in a large tree, and name few files
        yield from self._stream(attempt, request, self.cluster.timing.stalled * (_WALKS if walks else 1))

    def open_stream(self, attempt: AttemptId, rank: int, port: int) -> Stream:
        """Open a stream to this port of the node on which this rank of the attempt runs. Raises TransientError."""
        self._connected()
        return self.streams.open(attempt, tag_of(self.cluster.instance, attempt), rank, port)

    def open_terminal(self, attempt: AttemptId) -> Stream:
        """Attach to the terminal of the attempt's first process. Raises TransientError."""
        self._connected()
        return self.streams.open(attempt, tag_of(self.cluster.instance, attempt), 0, 0, terminal=True)

    def open_command(self, attempt: AttemptId, command: str) -> Stream:
        """Start a shell command on the attempt's first node, and open a stream to it. Raises TransientError."""
        self._connected()
        return self.streams.open(attempt, tag_of(self.cluster.instance, attempt), 0, 0, command)

    def relay(self, attempt: AttemptId, opening: streams.OpenStream, back: Callable[[Any], None]) -> "Relay | None":
        """Relay a stream of another site to the command of this `opening` on the attempt's first node.

        Raises TransientError.
        """
        self._connected()
        tag, number = tag_of(self.cluster.instance, attempt), opening.stream
        send = self.streams.relay(attempt, tag, number, back)
        if send is None:
            return None
        own = opening._replace(tag=tag, rank=0, port=0)
        return Relay(tag, own, send, lambda: self.streams.relayed_no_more(number))

    def _send_frame(self, frame: Any) -> None:
        session = self._loop.session
        if session is not None:
            session.send_frame(frame)

    def _stream(
        self,
        attempt: AttemptId,
        request: Callable[[int, str], Any],
        limit_s: float | None,
        ended: Callable[[kcm.Fetched], None] = lambda end: None,
    ) -> Iterator[bytes]:
        tag, name, end_s = tag_of(self.cluster.instance, attempt), self.cluster.name, self.cluster.timing.stalled
        yield from self._connected().receive_stream(lambda id: request(id, tag), name, limit_s, end_s, ended)

    def _connected(self) -> Session:
        session = self._loop.session
        if session is not None:
            return session
        reason = self._machine.status.reason
        why = f"{self.cluster.name} is not connected" + (f": {reason.message}" if reason else ".")
        raise TransientError("not_connected", why, reason.advice if reason else "Wait a moment.")

    def _send_over(self, outgoing: Callable[[KcmConversation], Reaction], epoch: int | None = None) -> None:
        self._loop.do(lambda now: self._machine.send(now, outgoing, epoch))

    # ---- a session

    def _open(self) -> Session:
        return Session(self._log_in(), self._host, self.streams.received, too_large=self._too_large)

    def _log_in(self) -> Channel:
        """Log in, and start the KCM. Raises BatchError."""
        config, timing = self.cluster.config, self.cluster.timing
        shared, python, setup = config.get("shared"), config.get("python"), config.get("setup", ())
        target = bootstrap.Target(shared, python, timeout_s=timing.welcome, setup=setup)
        channel: Channel
        if isinstance(self._connection, LeadsToKcm):
            channel = self._connection.open_kcm(self._keep_line)
        else:
            channel = bootstrap.start(self._connection, self._packed, target, self._keep_line)
        self._stderr.clear()  # drop the login's output: from now on the KCM writes
        return channel

    def _begin(self, session: Session) -> KcmConversation:
        services, name = self._services, self.cluster.name
        opening = Opening(
            epoch=services.next_epoch(), version=koalapy.__version__, known=services.known(),
            doubtful=services.doubtful(), check=services.check,
        )  # fmt: skip
        callbacks = self._callbacks(opening.epoch)
        self._worker = StageInWorker(name, session, services.input_files, callbacks, self.cluster.timing)
        return KcmConversation(self.cluster, opening)

    def _ended(self) -> Reason:
        """Return the reason after the other side ended the connection.

        It quotes the last line of standard error, if there is one.
        """
        if self._worker is not None:
            self._worker.close()
        advice = "koalad connects again by itself."
        if not self._stderr:
            return Reason("cut", "transient", f"The connection to {self._connection.where} was lost.", advice)
        python = self.cluster.config.get("python") or self._connection.python
        incomplete = bootstrap.incomplete_python(self._stderr[-1], python, self._connection.where)
        if incomplete is not None:
            return reason_of_error(incomplete)
        last_line = self._stderr[-1].removeprefix("The KCM ends: ").rstrip(".")
        message = f"The KCM on {self._connection.where} ended: {last_line}."
        return Reason("kcm_ended", "transient", message, advice, words=" ".join(self._stderr)[-500:])

    def _keep_line(self, line: str) -> None:
        self._stderr.append(line)
        _LOG.debug("kcm_stderr", cluster=self.cluster.name, line=line)

    def _perform(self, command: Command) -> None:
        name = self.cluster.name
        match command:
            case Lost(reason):
                _LOG.warning("cluster_lost", cluster=name, code=reason.code, reason=str(reason))
                self._services.deliver(lost(name, reason))
            case Report(status, number):
                self._services.report(status, number)
                if status.state == "connected":
                    _LOG.info("cluster_connected", cluster=name, host=status.host, batch=status.version)
                    self._services.connected()
                    self.streams.resume()
            case Deliver():
                self._measurements.log(command.delivery.events)
                self._services.deliver(command.delivery)
            case StageIn():
                if self._worker is not None:
                    self._worker.stage(command.number, command.command, command.doubt)
            case PutKey():
                self._services.put(command.attempt, command.key, command.value)
            case LogRefusal():
                kind, why = type(command.command).__name__, str(command.reason)
                _LOG.warning("refused", cluster=name, command=kind, reason=why)

    def _too_large(self, message: Any, error: FrameError) -> None:
        if isinstance(message, koalad.Submit):
            reason = Reason("too_large", "request", f"The component is {error}.", _TOO_LARGE)
            self._send_over(lambda dialogue: dialogue.fail(message.id, reason))
        else:
            _LOG.error("message_too_large", cluster=self.cluster.name, message=type(message).__name__, why=str(error))

    # ---- the worker's threads

    def _callbacks(self, epoch: int) -> StageInCallbacks:
        """Return the worker's callbacks for the session of this epoch."""
        of = (self.cluster.name, epoch)
        return StageInCallbacks(
            staged=lambda number, doubt, files: self._send_over(
                lambda dialogue: dialogue.submit(number, doubt, files), epoch
            ),
            not_staged=lambda number, doubt, why: self._send_over(
                lambda dialogue: dialogue.not_staged(number, why, doubt), epoch
            ),
            events=lambda events: self._services.deliver(Delivery(events=tuple(events), session=of)),
            is_wanted=lambda number: self._is_wanted(epoch, number),
        )

    def _is_wanted(self, epoch: int, number: int) -> bool:
        with self._loop.lock:
            conversation = self._machine.conversation_of(epoch)
            return conversation is not None and conversation.is_wanted(number)


class MeasurementLog:
    """The memory of what was logged last of one cluster. Only one thread at a time may call it."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._failing: Reason | None = None

    def log(self, events: Iterable[Event]) -> None:
        """Log the first failure of a kind, and the first measurement after failures. All others are left out."""
        for event in events:
            if isinstance(event, MeasurementFailed):
                self._failed(event.reason)
            elif isinstance(event, ClusterMeasured) and self._failing is not None:
                _LOG.info("cluster_measured", cluster=self._cluster, after=self._failing.code)
                self._failing = None

    def _failed(self, reason: Reason) -> None:
        before, self._failing = self._failing, reason
        if before is not None and (before.code, before.command) == (reason.code, reason.command):
            return
        _LOG.warning(
            "cluster_unmeasured",
            cluster=self._cluster,
            code=reason.code,
            reason=str(reason)[:_LONGEST],
            command=reason.command[:_LONGEST],
            exit_status=reason.exit_status,
            output=reason.words[:_LONGEST],
        )
