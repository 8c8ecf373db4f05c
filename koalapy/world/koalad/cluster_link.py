"""koalad's end of the link to one simulated cluster, with its byte streams: the real session machine on the agenda."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Protocol

from koalapy_adapters.messages import FROM_KCM, to_json
from koalapy_adapters.messages.kcm import Welcome
from koalapy_adapters.messages.streams import OpenStream
from koalapy_adapters.streams import StreamEnd, StreamName, unknown_stream

import koalapy
from koalapy.driver.driver import Delivery
from koalapy.link.conversation import ComponentCommand, Deliver, KcmConversation, Opening, StageIn, lost
from koalapy.link.link_loop import DIAL, Callbacks, LinkLoop
from koalapy.link.reconnect import Cluster
from koalapy.link.restore_check import Verdict
from koalapy.link.session import (
    Command,
    LinkStatus,
    Lost,
    Reaction,
    Report,
    SessionMachine,
)
from koalapy.model.commands import ClusterHint, WatchCluster
from koalapy.model.errors import Reason
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.units import MILLISECOND, Duration, Instant
from koalapy.world.agenda import ScheduledCall
from koalapy.world.koalad.file_operations import Answered, Staging
from koalapy.world.koalad.link_host import LivingProcess, PipeConnection, SimHost
from koalapy.world.network import End, Pipe
from koalapy.world.random_streams import between
from koalapy.world.streams import NEAR, PATIENCE, StreamLog, StreamUser

_CUT = Reason("cut", "transient", "The connection was lost.", "koalad connects again by itself.")
_LATENCY = (MILLISECOND, Duration(100 * MILLISECOND))
_PORT = 8000


class Outside(Protocol):
    """A cluster's head node, as koalad reaches it."""

    name: str

    @property
    def reachable(self) -> bool:
        """Return whether koalad's host reaches the head node."""
        ...

    @property
    def login_lasts(self) -> tuple[Duration, Duration]:
        """Return the shortest and longest duration of a login that begins now."""
        ...

    def login(self, end: End) -> None:
        """Give this far end of a connection to a new KCM. Raises KoalaError if the head node refuses logins."""
        ...

    def config(self) -> Mapping[str, Any]:
        """The fields of the message ClusterConfig."""
        ...


class ClusterLinkHost(LivingProcess, Protocol):
    """The services of koalad for its links to clusters."""

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

    def __init__(self, cluster: Cluster, outside: Outside, process: ClusterLinkHost, rng: Random) -> None:
        self._cluster, self._outside, self._process, self._rng = cluster, outside, process, rng
        self._machine: SessionMachine[KcmConversation] = SessionMachine(cluster.name, cluster.timing, rng.uniform)
        self._host = SimHost(process, rng, lambda kind: outside.login_lasts if kind == DIAL else _LATENCY)
        callbacks = Callbacks(
            open=self._log_in, begin=self._begin, ended=lambda: _CUT, perform=self._perform,
            reachable=lambda: outside.reachable,
        )  # fmt: skip
        self._loop: LinkLoop[KcmConversation, PipeConnection] = LinkLoop(self._machine, callbacks, self._host)
        self.streams = SimStreams(process.now, process.after, self._send_frame)

    @property
    def connected(self) -> bool:
        """Return whether there is a session that takes commands."""
        return self._loop.session is not None

    @property
    def connection(self) -> PipeConnection | None:
        """The session's."""
        return self._loop.connection

    @property
    def pipe(self) -> Pipe | None:
        """The session's."""
        return None if self.connection is None else self.connection.pipe

    def start(self) -> None:
        self._loop.start()

    def retry(self) -> None:
        """Try to connect at once, on a person's request."""
        self._loop.do(self._machine.retry)

    def close(self) -> None:
        """End the connection for good. Jobs on the cluster continue, and no loss is reported."""
        self.streams.close()
        self._loop.close()

    # ---- for the driver

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> None:
        self._send(lambda dialogue: dialogue.send(number, command, doubt))

    def hint(self, hint: ClusterHint) -> None:
        standing = isinstance(hint, WatchCluster)
        self._loop.do(lambda now: self._machine.send(now, lambda dialogue: dialogue.hint(hint), standing=standing))

    def acknowledge(self, epoch: int, number: int) -> None:
        self._send(lambda dialogue: dialogue.acknowledge(epoch, number))

    def end_session(self, why: Reason) -> int | None:
        """End the current session, to begin a new one. Returns its epoch, or None if there is none."""
        return self._loop.end_session(why)

    # ---- for file operations

    def ask(self, make: Callable[[int], Any], answered: Answered, data: bytes = b"") -> None:
        """See `file_operations.Asked`."""
        if (session := self._loop.session) is not None:
            session.ask(make, answered, data)
        else:
            answered(None)

    # ---- a session

    def _log_in(self) -> PipeConnection:
        pipe = Pipe(self._process.agenda, lambda: between(self._rng, *_LATENCY))
        self._outside.login(pipe.far)
        return PipeConnection(self._host, pipe.near, to_json, FROM_KCM, "The KCM", self.streams.received, pipe)

    def _begin(self, connection: PipeConnection) -> KcmConversation:
        process, name = self._process, self._cluster.name
        opening = Opening(
            epoch=process.next_epoch(), version=koalapy.__version__, known=process.known(name),
            doubtful=process.doubtful(), check=lambda session, welcome: process.vet(name, session, welcome),
        )  # fmt: skip
        return KcmConversation(self._cluster, opening)

    def _perform(self, command: Command) -> None:
        match command:
            case Lost():
                self._process.deliver(lost(self._cluster.name, command.reason))
            case Deliver():
                self._process.deliver(command.delivery)
            case Report():
                self._process.report(command.status)
                if command.status.state == "connected":
                    self.streams.resume()
            case StageIn():
                self._stage(command)
            case _:
                pass  # the world has no log, and no program puts keys

    def _send_frame(self, frame: Any) -> None:
        if (session := self._loop.session) is not None:
            session.send_frame(frame)

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
        self._loop.do(lambda now: self._machine.send(now, outgoing, epoch))


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
