"""The byte streams between koalad and its jobs' processes: koalad's ends of them, for any thread."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from koalapy_adapters.frames import Chunk
from koalapy_adapters.messages.streams import OpenStream, StreamReset
from koalapy_adapters.streams import StreamEnd, StreamName, unknown_stream

from koalapy.model.errors import ClusterError, KoalaError, TransientError
from koalapy.model.identity import AttemptId
from koalapy.model.job import Job
from koalapy.model.units import SECOND, Duration, Instant

_STREAM_BITS = 52  # of a number that no stream has had; JSON holds it exactly
_OWN_NUMBERS = 1 << _STREAM_BITS  # and above: requests and their streams have lower ones
_ADVICE = {
    "refused": "Does the program listen on that port of 127.0.0.1 yet? Look at `koala logs`.",
    "timed_out": "Is the cluster out of reach? Look at `koala clusters`, and connect again.",
    "no_such_rank": "Ranks are counted from 0 in each component.",
    "taken": "`koala attach --take` takes it back.",
    "no_terminal": "`koala logs` has what the program wrote.",
}


class Stream:
    """koalad's end of one stream. `on_change` is called, by any thread, when there may be something new to do."""

    def __init__(
        self, attempt: AttemptId | None, opening: OpenStream, send: Callable[[Any], None], now: Callable[[], Instant]
    ) -> None:
        """`attempt`: whose program is at the other end; None for a neighbouring site."""
        self.attempt = attempt
        self.on_change: Callable[[], None] = lambda: None
        self._send, self._now = send, now
        self._lock = threading.Lock()  # frames are sent under it, so that they are in their order
        self._end = StreamEnd(now(), StreamName(opening.tag, opening.stream, opening.patience), opening)

    @property
    def is_closed(self) -> bool:
        return self._end.is_closed

    @property
    def room(self) -> int:
        """The bytes that `put` takes now."""
        with self._lock:
            return self._end.room

    @property
    def is_open(self) -> bool:
        """Return whether the program has taken the connection. Raises KoalaError once the stream was reset."""
        with self._lock:
            self._check()
            return self._end.is_open

    def open(self) -> None:
        self._do(lambda end, now: end.open(now))

    def put(self, data: bytes) -> None:
        """Send these bytes, at most `room`."""
        self._do(lambda end, now: end.put(data) if end.room >= len(data) else [])

    def end(self) -> None:
        """Send nothing more."""
        self._do(lambda end, now: end.end())

    def take(self, most: int) -> bytes | None:
        """Return bytes that have arrived, none if there are none now, and None at their end.

        Raises KoalaError once the stream was reset.
        """
        with self._lock:
            self._check()
            if data := bytes(memoryview(self._end.inbox)[:most]):
                self._pass_on(self._end.consume(len(data)))
                return data
            if not self._end.has_ended:
                return b""
            self._pass_on(self._end.consume_end())
            return None

    def reset(self, code: str, message: str) -> None:
        """End the stream at both ends, whatever is on the way."""
        self._do(lambda end, now: end.reset(code, message))

    def resume(self) -> None:
        """Find out what was lost, over a new connection to the cluster."""
        self._do(lambda end, now: end.resume(now))

    def received(self, frame: Any) -> None:
        """Take a frame of the other end."""
        self._do(lambda end, now: end.received(now, frame))

    def tick(self) -> float:
        """Do what is due. Returns the seconds until something is due again."""
        if self._now() >= self._end.next_wakeup():
            self._do(lambda end, now: end.tick(now))
        with self._lock:
            return max(0.0, (self._end.next_wakeup() - self._now()) / SECOND)

    def is_forgotten(self) -> bool:
        """Return whether the other end cannot need it any more."""
        with self._lock:
            return self._end.is_forgotten(self._now())

    def _do(self, event: Callable[[StreamEnd, Instant], list[Any]]) -> None:
        with self._lock:
            self._pass_on(event(self._end, self._now()))
        self.on_change()

    def _pass_on(self, frames: list[Any]) -> None:
        for frame in frames:
            self._send(frame)

    def _check(self) -> None:
        if self._end.reset_by is not None:
            raise error_of(self._end.reset_by)


def error_of(reset: StreamReset) -> KoalaError:
    """Return the error of a stream that was reset."""
    kind = TransientError if reset.code in ("timed_out", "unknown_stream") else ClusterError
    return kind(f"stream_{reset.code}", reset.message, _ADVICE.get(reset.code, "Connect again."))


@dataclass(frozen=True, slots=True)
class _Relayed:
    """A stream between another site and an attempt. `back`: takes the frames of the cluster."""

    attempt: AttemptId
    tag: str
    back: Callable[[Any], None]


class ClusterStreams:
    """The streams over the link to one cluster, which may send for these alone.

    `send`: sends a frame if the cluster is connected, else drops it. `patience`: see messages.OpenStream.
    """

    def __init__(self, patience: Duration, send: Callable[[Any], None], now: Callable[[], Instant]) -> None:
        self._patience, self._send, self._now = patience, send, now
        self._lock = threading.Lock()
        self._streams: dict[int, tuple[str, Stream]] = {}  # with their tags
        self._relayed: dict[int, _Relayed] = {}

    def open(
        self, attempt: AttemptId, tag: str, rank: int, port: int, command: str = "", terminal: bool = False
    ) -> Stream:
        """Open a stream to this port of the node on which this rank of the attempt runs.

        In place of a port it may lead to a command there, or to the `terminal` of the rank.
        """
        number = _OWN_NUMBERS | secrets.randbits(_STREAM_BITS)
        opening = OpenStream(tag, number, rank, port, self._patience, command, terminal)
        stream = Stream(attempt, opening, self._send, self._now)
        with self._lock:
            self._streams = {key: each for key, each in self._streams.items() if not each[1].is_forgotten()}
            self._streams[number] = tag, stream
        stream.open()
        return stream

    def relay(
        self, attempt: AttemptId, tag: str, number: int, back: Callable[[Any], None]
    ) -> Callable[[Any], None] | None:
        """Relay the frames of a stream of this number, which another site has opened to the attempt.

        Returns the function that sends one to the cluster; None if the number is used already. `back` gets those of the
        cluster, until one end has reset the stream.
        """
        with self._lock:
            if number in self._streams or number in self._relayed:
                return None
            self._relayed[number] = _Relayed(attempt, tag, back)
        return self._send

    def relayed_no_more(self, number: int) -> None:
        """Forget a relayed stream that was reset."""
        with self._lock:
            self._relayed.pop(number, None)

    def received(self, frame: Any) -> None:
        """Take a frame of the cluster. One of a stream that is not known, or of another attempt, changes nothing."""
        with self._lock:
            tag, stream = self._streams.get(frame.stream, ("", None))
            relayed = self._relayed.get(frame.stream)
        if relayed is not None:
            if isinstance(frame, Chunk) or frame.tag == relayed.tag:
                relayed.back(frame)
        elif stream is None:
            for answer in unknown_stream(frame):
                self._send(answer)
        elif isinstance(frame, Chunk) or frame.tag == tag:
            stream.received(frame)

    def resume(self) -> None:
        """Find out what every stream lost: the cluster is connected again."""
        for stream in self._all():
            stream.resume()

    def committed(self, job: Job) -> None:
        """Reset the streams of the job's attempts that have ended."""
        for stream in self._all():
            if (
                stream.attempt is not None
                and stream.attempt.job == job.id
                and not stream.is_closed
                and not is_living(job, stream.attempt)
            ):
                stream.reset("attempt_ended", f"The program of job {job.id} has ended.")

        with self._lock:
            ended = [(number, each) for number, each in self._relayed.items() if each.attempt.job == job.id]
        for number, each in ended:
            if not is_living(job, each.attempt):
                each.back(StreamReset(each.tag, number, "attempt_ended", "The lease has ended."))

    def close(self) -> None:
        """Reset all streams: koalad has no link to this cluster any more."""
        with self._lock:
            relayed = list(self._relayed.items())
        for number, each in relayed:
            each.back(StreamReset(each.tag, number, "link_ended", "koalad has ended its link to the cluster."))
        for stream in self._all():
            stream.reset("link_ended", "koalad has ended its link to the cluster.")

    def _all(self) -> list[Stream]:
        with self._lock:
            return [stream for _, stream in self._streams.values()]


def is_living(job: Job, attempt: AttemptId) -> bool:
    """Return whether the attempt is a present one of the job, and has not ended."""
    return any(each is not None and each.id == attempt and not each.state.ended for each in job.attempts)
