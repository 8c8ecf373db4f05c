"""The host of a simulated koalad, as its links use it: the agenda in place of threads, pipes in place of sockets."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from random import Random
from typing import Any, Protocol

from koalapy_adapters.frames import Chunk
from koalapy_adapters.messages import Messages, from_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.streams import StreamReset, StreamState
from koalapy_adapters.streams import frame_of_json, frame_to_json

from koalapy.link.link_loop import failure_of
from koalapy.model.errors import Reason
from koalapy.model.units import Duration, Instant
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.koalad.file_operations import Answered
from koalapy.world.network import End, Json, Pipe
from koalapy.world.random_streams import between

_CHUNK = "stream_chunk"
_FIRST_REQUEST = 1 << 40  # numbers below are those of the outbox


class LivingProcess(Protocol):
    """A process of koalad. A call entered in `after` or `enter` is not made once it is dead."""

    agenda: Agenda
    connections: "list[PipeConnection]"  # those that have not ended, and some that have

    def now(self) -> Instant: ...

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall: ...

    def enter(self, call: Callable[[], None]) -> None: ...


class SimHost:
    """The host of one link; see Host of koalapy.link. `lasts`: returns how long a kind of work may block."""

    def __init__(self, process: LivingProcess, rng: Random, lasts: Callable[[str], tuple[Duration, Duration]]) -> None:
        self._process, self._rng, self._lasts = process, rng, lasts

    def now(self) -> Instant:
        return self._process.now()

    def enter(self, call: Callable[[], None]) -> None:
        """Make a call, unless koalad is dead."""
        self._process.enter(call)

    def add(self, connection: "PipeConnection") -> None:
        """Add a new connection to those of koalad."""
        connections = self._process.connections
        connections[:] = [*(each for each in connections if not each.has_ended), connection]

    def at(self, when: Instant, call: Callable[[], None]) -> ScheduledCall:
        return self._process.after(Duration(max(0, when - self.now())), call)

    def cancel(self, call: ScheduledCall | None) -> None:
        self._process.agenda.cancel(call)

    def in_thread(self, kind: str, work: Callable[[], None]) -> None:
        self._process.after(between(self._rng, *self._lasts(kind)), work)

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def failed(self, error: Exception) -> None:
        """Let the link lose its session over hostile messages. Raises AssertionError if a check of the world failed."""
        if isinstance(error, AssertionError):
            raise error


class PipeConnection:
    """koalad's end of a pipe; see Connection of koalapy.link. Bytes of a stream and a file are messages, too."""

    def __init__(
        self,
        host: SimHost,
        end: End,
        json_of: Callable[[Any], Json],
        readers: Messages,
        who: str,
        stream_frame: Callable[[Any], None] = lambda frame: None,
        pipe: Pipe | None = None,
    ) -> None:
        """`who`: what is at the other end. `pipe`: for those that disturb it."""
        self.pipe = pipe
        self._end = end
        self._host, self._json_of, self._readers, self.who = host, json_of, readers, who
        self._stream_frame = stream_frame
        self._requests = count(_FIRST_REQUEST)
        self._asked: dict[int, Answered] = {}
        self._received: Callable[[Any], None]
        self._alive: Callable[[], None]
        self._on_end: Callable[[Reason | None], None] = lambda why: None
        self.has_ended = False
        self.serves = False
        host.add(self)

    def send(self, message: Any) -> None:
        self._end.send(self._json_of(message))

    def send_frame(self, frame: Any) -> None:
        self._end.send(frame_to_json(frame))

    def ask(self, make: Callable[[int], Any], answered: Answered, data: bytes = b"") -> None:
        """See `file_operations.Asked`."""
        number = next(self._requests)
        self._asked[number] = answered
        self._end.send(self._json_of(make(number)) | {"data": data})

    def end(self, why: Reason | None) -> None:
        """End the connection. Outstanding requests get no answer."""
        if self.has_ended:
            return
        self.has_ended = True
        self._end.close()
        lost, self._asked = self._asked, {}
        for answered in lost.values():
            answered(None)
        self._on_end(why)

    def lose(self, lossy: bool) -> None:
        """End with koalad. `lossy`: what was sent over a pipe of its own is lost, too."""
        self.has_ended = True
        if lossy and self.pipe is not None:
            self.pipe.cut()
        else:
            self._end.close()

    def serve(
        self, received: Callable[[Any], None], alive: Callable[[], None], ended: Callable[[Reason | None], None]
    ) -> None:
        self._received, self._alive, self._on_end, self.serves = received, alive, ended, True
        self._end.on_message = lambda json: self._host.enter(lambda: self._take(json))
        self._end.on_closed = lambda: self._host.enter(lambda: self.end(None))
        if not self._end.open or self.has_ended:
            self.has_ended = True
            ended(None)

    def _take(self, json: Json) -> None:
        if self.has_ended:
            return
        self._alive()
        try:
            message = frame_of_json(json) if json.get("type") == _CHUNK else from_json(json, self._readers)
            if isinstance(message, (Chunk, StreamState, StreamReset)):
                self._stream_frame(message)
                return
            answered = self._asked.pop(getattr(message, "id", -1), None)
            (self._received if answered is None else answered)(message)
        except MessageError as error:
            self.end(Reason("garbled", "ours", f"{self.who} cannot be understood: {error}."))
        except Exception as error:
            self._host.failed(error)
            self.end(failure_of(error))
