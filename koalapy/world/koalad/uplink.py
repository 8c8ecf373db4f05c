"""koalad's end of the way to one simulated cluster: logs in, talks for as long as it can, and logs in again.

It does on the agenda what `koalapy.runtime.uplink` does on threads, over the same conversation.
"""

from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any, Protocol

from koalapy_adapters.messages import FROM_KCM, MessageError, Welcome, from_json, to_json

import koalapy
from koalapy.driver import Delivery
from koalapy.link.cluster import Cluster
from koalapy.link.conversation import Conversation, Heard, Messages
from koalapy.link.outstanding import ComponentCommand
from koalapy.link.vetting import IMPOSSIBLE, Verdict
from koalapy.model.commands import Hint, SubmitAttempt, WatchCluster
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.events import ClusterLost
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.koalad.file_operations import Answered, Staging
from koalapy.world.network import End, Json, Pipe
from koalapy.world.random_streams import between

_CUT = Reason("cut", "transient", "The connection was lost.", "koalad connects again by itself.")
_RESTORED = Reason("store_restored", "transient", "The cluster knows more of this store than the store itself.")
_REPLACED = Reason("replaced", "request", "Another koalad with this store has taken this cluster over.")
_LOGIN = (Duration(SECOND // 2), Duration(4 * SECOND))  # what a login and the push over it take
_LATENCY = (MILLISECOND, Duration(100 * MILLISECOND))
_FIRST_REQUEST = 1 << 40  # numbers below are those of the outbox


class Outside(Protocol):
    """A cluster as koalad sees it."""

    name: str

    def login(self, end: End) -> None:
        """The far end of a connection; a KCM holds it from now on. Raises TransientError where it is out of reach."""
        ...

    def config(self) -> Mapping[str, Any]:
        """The fields of the message ClusterConfig."""
        ...


class Around(Protocol):
    """What an uplink asks of its koalad. What is entered in `after` does not happen once koalad is dead."""

    agenda: Agenda

    def now(self) -> Instant: ...

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall: ...

    def enter(self, call: Callable[[], None]) -> None: ...

    def deliver(self, delivery: Delivery) -> None: ...

    def next_epoch(self) -> int: ...

    def known(self, cluster: str) -> list[tuple[AttemptId, str]]: ...

    def doubtful(self) -> list[JobId]: ...

    def vet(self, cluster: str, session: int, welcome: Welcome) -> Verdict:
        """What a Welcome of the session of this epoch is worth."""
        ...


class Uplink:
    """What is sent while it is not connected is dropped: the driver sends it again after ClusterConnected."""

    def __init__(self, cluster: Cluster, outside: Outside, around: Around, rng: Random) -> None:
        self.pipe: Pipe | None = None
        self.connected = False  # the KCM has said Welcome
        self._cluster, self._outside, self._around, self._rng = cluster, outside, around, rng
        self._talk: Conversation | None = None
        self._session = 0  # the conversation's epoch
        self._reason: Reason | None = None  # why it was lost, while it is
        self._watched: WatchCluster | None = None
        self._tries = 0
        self._requests = count(_FIRST_REQUEST)
        self._asked: dict[int, Answered] = {}
        self._heard_at = self._logged_in_at = Instant(0)
        self._tick: ScheduledCall | None = None

    def start(self) -> None:
        self._around.after(between(self._rng, *_LOGIN), self._log_in)

    # ---- for the driver

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> None:
        talk = self._talk
        if talk is None or not self.connected or not talk.begin(number, command):
            return
        if isinstance(command, SubmitAttempt) and command.stage_in:
            self._stage(talk, number, command, doubt)
        else:
            self._say(talk.say(number, doubt))

    def hint(self, hint: Hint) -> None:
        if isinstance(hint, WatchCluster):
            self._watched = hint
        if self._talk is not None and self.connected:
            self._say(self._talk.hint(hint))

    def acknowledge(self, epoch: int, number: int) -> None:
        if self._talk is not None:
            self._say(self._talk.acknowledge(epoch, number))

    def end_session(self, why: Reason) -> int | None:
        """End the session there is, to begin a new one; its epoch. None: there is none."""
        if self.pipe is None:
            return None
        self._end(self.pipe, why)
        return self._session

    # ---- for errands

    def ask(self, make: Callable[[int], Any], answered: Answered, data: bytes = b"") -> None:
        """See `errands.Asked`."""
        if self.connected and self.pipe is not None:
            number = next(self._requests)
            self._asked[number] = answered
            self.pipe.near.send(to_json(make(number)) | {"data": data})
        else:
            answered(None)

    # ---- one session

    def _log_in(self) -> None:
        pipe = Pipe(self._around.agenda, lambda: between(self._rng, *_LATENCY))
        try:
            self._outside.login(pipe.far)
        except KoalaError as error:
            self._lost(error.reason)
            return
        self.pipe = pipe
        pipe.near.on_message = lambda message: self._around.enter(lambda: self._heard(pipe, message))
        pipe.near.on_closed = lambda: self._around.enter(lambda: self._ended(pipe, _CUT))
        self._session = self._around.next_epoch()
        self._talk = Conversation(self._cluster, self._session)
        self._heard_at = self._logged_in_at = self._around.agenda.now
        known, doubtful = self._around.known(self._cluster.name), self._around.doubtful()
        self._say(self._talk.hello(self._around.now(), koalapy.__version__, known, doubtful))
        self._tick = self._around.after(self._seconds(self._cluster.timing.ping), lambda: self._ticked(pipe))

    def _heard(self, pipe: Pipe, json: Json) -> None:
        if pipe is not self.pipe or self._talk is None:
            return
        self._heard_at = self._around.agenda.now
        try:
            message = from_json(json, FROM_KCM)
            answered = self._asked.pop(getattr(message, "id", -1), None)
            if answered is not None:
                answered(message)
            else:
                self._act(self._talk.heard(self._around.now(), message))
        except MessageError as error:
            self._end(pipe, Reason("garbled", "ours", f"The KCM cannot be understood: {error}."))
        except Exception as error:
            self._end(pipe, Reason("link_failed", "ours", f"The link failed ({type(error).__name__}: {error})."))

    def _act(self, heard: Heard) -> None:
        self._say(heard.messages)
        if heard.welcome is not None and not self._welcomed(heard.welcome):
            return
        for delivery in heard.deliveries:
            self._around.deliver(delivery)

    def _welcomed(self, welcome: Welcome) -> bool:
        """From now on the driver's commands go through; False for a KCM with which there is nothing to be done."""
        verdict = self._around.vet(self._cluster.name, self._session, welcome)
        if verdict is not Verdict.FINE and self.pipe is not None:
            self._end(self.pipe, {Verdict.REPLACED: _REPLACED, Verdict.IMPOSSIBLE: IMPOSSIBLE}.get(verdict, _RESTORED))
            return False
        self.connected, self._reason = True, None
        if self._watched is not None and self._talk is not None:
            self._say(self._talk.hint(self._watched))
        return True

    def _ticked(self, pipe: Pipe) -> None:
        if pipe is not self.pipe or self._talk is None:
            return
        why = self._talk.given_up(Duration(self._around.agenda.now - self._heard_at))
        if why is not None:
            self._end(pipe, why)
            return
        self._say((self._talk.ping(self._around.now()),))
        self._tick = self._around.after(self._seconds(self._cluster.timing.ping), lambda: self._ticked(pipe))

    def _stage(self, talk: Conversation, number: int, command: SubmitAttempt, doubt: bool) -> None:
        """The answers come over this session or not at all."""
        Staging(
            self,
            command,
            staged=lambda files: self._say(talk.say(number, doubt, files)),
            refused=lambda reason: self._act(talk.not_staged(number, reason, doubt)),
        ).go_on()

    def _say(self, messages: Messages) -> None:
        if self.pipe is not None:
            for message in messages:
                self.pipe.near.send(to_json(message))

    # ---- its end

    def _end(self, pipe: Pipe, why: Reason) -> None:
        pipe.near.close()
        self._ended(pipe, why)

    def _ended(self, pipe: Pipe, why: Reason) -> None:
        if pipe is not self.pipe:
            return
        self.pipe, self._talk, self.connected = None, None, False
        lost, self._asked = self._asked, {}
        for answered in lost.values():
            answered(None)
        self._around.agenda.cancel(self._tick)
        if self._around.agenda.now - self._logged_in_at >= self._seconds(self._cluster.timing.settled):
            self._tries = 0
        self._lost(why)

    def _lost(self, reason: Reason) -> None:
        """Tell the driver, but for the same reason once only; and try again."""
        if self._reason != reason:
            self._reason = reason
            self._around.deliver(Delivery(events=(ClusterLost(cluster=self._cluster.name, reason=reason),)))
        if reason is not _REPLACED:
            self._around.after(self._wait(), self.start)

    def _wait(self) -> Duration:
        """Grows from `retry_first`, doubled at each try, to `retry_max`; up to a quarter less."""
        timing = self._cluster.timing
        most = min(timing.retry_first * 2.0 ** min(self._tries, 30), timing.retry_max)
        self._tries += 1
        return self._seconds(most * self._rng.uniform(0.75, 1.0))

    @staticmethod
    def _seconds(seconds: float) -> Duration:
        return Duration(round(seconds * SECOND))
