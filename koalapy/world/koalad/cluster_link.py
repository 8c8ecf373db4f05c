"""koalad's end of the link to one simulated cluster, with its byte streams: the real session machine on the agenda."""

from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any, Protocol

from koalapy_adapters.frames import Chunk
from koalapy_adapters.messages import FROM_KCM, from_json, to_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.kcm import Welcome
from koalapy_adapters.messages.streams import OpenStream, StreamReset, StreamState
from koalapy_adapters.streams import StreamEnd, StreamName, frame_of_json, frame_to_json, unknown_stream

import koalapy
from koalapy.driver.driver import Delivery
from koalapy.link.conversation import ComponentCommand, Deliver, KcmConversation, Opening, StageIn, lost
from koalapy.link.reconnect import Cluster
from koalapy.link.restore_check import Verdict
from koalapy.link.session import (
    Close,
    Command,
    Dial,
    LinkStatus,
    Lost,
    Probe,
    Reaction,
    Report,
    Send,
    SessionMachine,
    State,
)
from koalapy.model.commands import ClusterHint, WatchCluster
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.koalad.file_operations import Answered, Staging
from koalapy.world.network import End, Json, Pipe
from koalapy.world.random_streams import between
from koalapy.world.streams import NEAR, PATIENCE, StreamLog, StreamUser

_CUT = Reason("cut", "transient", "The connection was lost.", "koalad connects again by itself.")
_LOGIN = (Duration(SECOND // 2), Duration(4 * SECOND))  # duration of a login and its push
_LATENCY = (MILLISECOND, Duration(100 * MILLISECOND))
_FIRST_REQUEST = 1 << 40  # numbers below are those of the outbox
_PORT = 8000


class Outside(Protocol):
    """A cluster's head node, as koalad reaches it."""

    name: str

    @property
    def reachable(self) -> bool:
        """Return whether koalad's host reaches the head node."""
        ...

    def login(self, end: End) -> None:
        """Give this far end of a connection to a new KCM. Raises KoalaError if the head node refuses logins."""
        ...

    def config(self) -> Mapping[str, Any]:
        """The fields of the message ClusterConfig."""
        ...


class ClusterLinkHost(Protocol):
    """The services of koalad for its links to clusters. A call entered in `after` is not made once koalad is dead."""

    agenda: Agenda

    def now(self) -> Instant: ...

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall: ...

    def enter(self, call: Callable[[], None]) -> None: ...

    def deliver(self, delivery: Delivery) -> None: ...

    def next_epoch(self) -> int: ...

    def known(self, cluster: str) -> list[tuple[AttemptId, str]]: ...

    def doubtful(self) -> list[JobId]: ...

    def report(self, status: LinkStatus) -> None:
        """Report the outcome of a try to connect, or the loss of the session."""
        ...

    def vet(self, cluster: str, session: int, welcome: Welcome) -> Verdict:
        """Judge a Welcome in the session of this epoch."""
        ...


class SimClusterLink:
    """The link to one cluster. Commands without a session are dropped: the driver sends them again later."""

    def __init__(self, cluster: Cluster, outside: Outside, host: ClusterLinkHost, rng: Random) -> None:
        self.pipe: Pipe | None = None
        self._cluster, self._outside, self._host, self._rng = cluster, outside, host, rng
        self._machine: SessionMachine[KcmConversation] = SessionMachine(cluster.name, cluster.timing, rng.uniform)
        self._requests = count(_FIRST_REQUEST)
        self._asked: dict[int, Answered] = {}
        self._timer: ScheduledCall | None = None
        self.streams = SimStreams(host.now, host.after, self._send_frame)

    @property
    def connected(self) -> bool:
        """Return whether there is a session that takes commands."""
        return self._machine.state is State.OPEN

    def start(self) -> None:
        self._perform(self._machine.start(self._now))

    def retry(self) -> None:
        """Try to connect at once, on a person's request."""
        self._perform(self._machine.retry(self._now))

    def close(self) -> None:
        """End the connection for good. Jobs on the cluster continue, and no loss is reported."""
        self.streams.close()
        self._perform(self._machine.close(self._now))

    # ---- for the driver

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> None:
        self._send(lambda dialogue: dialogue.send(number, command, doubt))

    def hint(self, hint: ClusterHint) -> None:
        self._perform(
            self._machine.send(self._now, lambda dialogue: dialogue.hint(hint), standing=isinstance(hint, WatchCluster))
        )

    def acknowledge(self, epoch: int, number: int) -> None:
        self._send(lambda dialogue: dialogue.acknowledge(epoch, number))

    def end_session(self, why: Reason) -> int | None:
        """End the current session, to begin a new one. Returns its epoch, or None if there is none."""
        epoch = self._machine.epoch if self._machine.state.has_session else None
        self._perform(self._machine.end(self._now, why))
        return epoch

    # ---- for file operations

    def ask(self, make: Callable[[int], Any], answered: Answered, data: bytes = b"") -> None:
        """See `file_operations.Asked`."""
        if self._machine.conversation_of(self._machine.epoch) is not None and self.pipe is not None:
            number = next(self._requests)
            self._asked[number] = answered
            self.pipe.near.send(to_json(make(number)) | {"data": data})
        else:
            answered(None)

    # ---- the machine's commands

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Dial():
                    self._host.after(between(self._rng, *_LOGIN), self._log_in)
                case Send():
                    if self.pipe is not None:
                        self.pipe.near.send(to_json(command.message))
                case Close():
                    self._close()
                case Probe():
                    delay = between(self._rng, *_LATENCY)
                    self._host.after(delay, lambda: self._perform(self._probed()))
                case Lost():
                    self._host.deliver(lost(self._cluster.name, command.reason))
                case Deliver():
                    self._host.deliver(command.delivery)
                case Report():
                    self._host.report(command.status)
                    if command.status.state == "connected":
                        self.streams.resume()
                case StageIn():
                    self._stage(command)
                case _:
                    pass  # the world has no log, and no program puts keys
        self._plan()

    def _plan(self) -> None:
        self._host.agenda.cancel(self._timer)
        wakeup = self._machine.next_wakeup()
        if wakeup is not None:
            delay = Duration(max(0, wakeup - self._now))
            self._timer = self._host.after(delay, lambda: self._perform(self._machine.wake(self._now)))

    def _log_in(self) -> None:
        if self._machine.state is State.ENDED:
            return
        pipe = Pipe(self._host.agenda, lambda: between(self._rng, *_LATENCY))
        try:
            self._outside.login(pipe.far)
        except KoalaError as error:
            self._perform(self._machine.failed(self._now, error.reason))
            return
        self.pipe = pipe
        pipe.near.on_message = lambda message: self._host.enter(lambda: self._received(pipe, message))
        pipe.near.on_closed = lambda: self._host.enter(lambda: self._cut(pipe))
        opening = Opening(
            epoch=self._host.next_epoch(), version=koalapy.__version__, known=self._host.known(self._cluster.name),
            doubtful=self._host.doubtful(), check=self._check,
        )  # fmt: skip
        self._perform(self._machine.connected(self._now, KcmConversation(self._cluster, opening), probes=True))

    def _received(self, pipe: Pipe, json: Json) -> None:
        if pipe is not self.pipe:
            return
        try:
            frame = frame_of_json(json)
            if isinstance(frame, (Chunk, StreamState, StreamReset)):
                self._machine.alive(self._now)
                self.streams.received(frame)
                return
            message = from_json(json, FROM_KCM)
            answered = self._asked.pop(getattr(message, "id", -1), None)
            if answered is not None:
                self._machine.alive(self._now)
                answered(message)
            else:
                self._perform(self._machine.received(self._now, message))
        except MessageError as error:
            why = Reason("garbled", "ours", f"The KCM cannot be understood: {error}.")
            self._perform(self._machine.end(self._now, why))
        except Exception as error:
            why = Reason("link_failed", "ours", f"The link failed ({type(error).__name__}: {error}).")
            self._perform(self._machine.end(self._now, why))

    def _send_frame(self, frame: Any) -> None:
        if self.pipe is not None and self._machine.state is State.OPEN:
            self.pipe.near.send(frame_to_json(frame))

    def _probed(self) -> list[Command]:
        return self._machine.probed(self._now, self._outside.reachable)

    def _stage(self, command: StageIn) -> None:
        """Stage the files of an attempt. The answers come in this session or never."""
        epoch = self._machine.epoch
        Staging(
            self,
            command.command,
            staged=lambda files: self._send(
                lambda dialogue: dialogue.submit(command.number, command.doubt, files), epoch
            ),
            refused=lambda why: self._send(
                lambda dialogue: dialogue.not_staged(command.number, why, command.doubt), epoch
            ),
        ).go_on()

    def _send(self, outgoing: Callable[[KcmConversation], Reaction], epoch: int | None = None) -> None:
        self._perform(self._machine.send(self._now, outgoing, epoch))

    def _cut(self, pipe: Pipe) -> None:
        if pipe is self.pipe:
            self._perform(self._machine.cut(self._now, _CUT))

    def _close(self) -> None:
        """Close the pipe; outstanding requests get no answer."""
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            pipe.near.close()
        lost, self._asked = self._asked, {}
        for answered in lost.values():
            answered(None)

    def _check(self, session: int, welcome: Welcome) -> Verdict:
        return self._host.vet(self._cluster.name, session, welcome)

    @property
    def _now(self) -> Instant:
        return self._host.now()


class SimStreams:
    """All streams of one link. `send` sends a frame if the cluster is connected, else drops it."""

    def __init__(
        self,
        now: Callable[[], Instant],
        after: Callable[[Duration, Callable[[], None]], ScheduledCall],
        send: Callable[[Any], None],
    ) -> None:
        self._now, self._after, self._send = now, after, send
        self._users: dict[int, StreamUser] = {}

    def open(self, log: StreamLog, tag: str, rank: int, rng: Random) -> None:
        """Open a stream to a process of this rank of an attempt."""
        stream = log.begin()
        opening = OpenStream(tag, stream.number, rank, _PORT, PATIENCE)
        end = StreamEnd(self._now(), StreamName(tag, stream.number, PATIENCE), opening)
        user = self._users[stream.number] = StreamUser(log, stream, NEAR, end, rng, self._now, self._after, self._send)
        user.do(lambda end, now: end.open(now))

    def received(self, frame: Any) -> None:
        """Take a frame of the cluster."""
        user = self._users.get(frame.stream)
        if user is not None:
            user.do(lambda end, now: end.received(now, frame))
            return
        for answer in unknown_stream(frame):
            self._send(answer)

    def resume(self) -> None:
        """Find out what every stream lost: the cluster is connected again."""
        for user in self._users.values():
            user.do(lambda end, now: end.resume(now))

    def close(self) -> None:
        """Reset all streams: koalad has no link to this cluster any more."""
        for user in self._users.values():
            user.do(lambda end, now: end.reset("link_ended", "koalad has ended its link to the cluster."))

    def lose(self) -> None:
        """End with koalad."""
        for user in self._users.values():
            user.lose()
