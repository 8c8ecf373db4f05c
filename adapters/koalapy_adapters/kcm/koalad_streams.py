"""The connection to koalad: frames on the standard streams, control before bulk, whatever else a library prints."""

import asyncio
import os
import select
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional

from koalapy_adapters.frames import Chunk, Control, Credit, Decoder, Frame, FrameError, encode, together
from koalapy_adapters.messages import to_json

_READ = 1 << 18
_MOST_OFFERED = 1 << 9  # chunks that wait, after which one of a byte stream is dropped


class Streams(NamedTuple):
    """File descriptors that carry frames."""

    source: int
    sink: int


def take_standard_streams() -> Streams:
    """Keep stdin and stdout for frames; whoever prints from now on prints to stderr, whoever reads reads nothing."""
    sys.stdout.flush()
    streams = Streams(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return streams


def log(sentence: str) -> None:
    """Send it to koalad, with one full stop. No error stops the KCM, least of all at its end."""
    try:
        sys.stderr.write(sentence.rstrip(".") + ".\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


class Reader:
    """Hands each frame to the caller, and None at the end, whether koalad closed the connection or broke its rules.

    The loop itself reads, for a thread that wakes it costs more time than most frames do.
    """

    def __init__(self, source: int, receive: Callable[[Optional[Frame]], None]) -> None:
        self._source, self._receive = source, receive
        self._loop = asyncio.get_event_loop()
        self._decoder = Decoder()

    def start(self) -> None:
        self._loop.add_reader(self._source, self._read)

    def stop(self) -> None:
        self._loop.remove_reader(self._source)

    def _read(self) -> None:
        frames: List[Optional[Frame]] = []
        try:
            data = os.read(self._source, _READ)
            frames += self._decoder.feed(data) if data else [None]
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            log("The connection to koalad broke: %s" % error)
            frames.append(None)
        if frames and frames[-1] is None:
            self.stop()
        for frame in frames:
            self._receive(frame)


class Writer:
    """Writes frames in a thread of its own; what is control passes the chunks that wait.

    A small frame is written at once where nothing waits, for to wake a thread takes longer.
    """

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._control: Deque[bytes] = deque()
        self._bulk: Deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closed = self._writing = False
        self._takes_more = select.poll()
        self._takes_more.register(sink, select.POLLOUT)
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Any) -> None:
        """Raises FrameError for a message that is too large."""
        self._put(self._control, encode(Control(to_json(message))))

    def credit(self, stream: int, chunks: int) -> None:
        self._put(self._control, encode(Credit(stream, chunks)))

    def chunk(self, chunk: Chunk) -> None:
        """Ends of streams go the same way, so that they come last. The caller keeps to its credit."""
        self._put(self._bulk, encode(chunk))

    def offer(self, chunk: Chunk) -> None:
        """A chunk of a byte stream. It is dropped where too much waits already: its end sends it again."""
        if len(self._bulk) < _MOST_OFFERED:
            self.chunk(chunk)

    def after_chunks(self, message: Any) -> None:
        """A message that must not pass the chunks before it."""
        self._put(self._bulk, encode(Control(to_json(message))))

    def close(self, timeout: float) -> None:
        """Write what is there, for so many seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    def _put(self, queue: Deque[bytes], data: bytes) -> None:
        with self._changed:
            if not self._written_at_once(data):
                queue.append(data)
                self._changed.notify()

    def _written_at_once(self, data: bytes) -> bool:
        """Write a frame if nothing is before it and it cannot block: a sink that is ready takes PIPE_BUF bytes."""
        if len(data) > select.PIPE_BUF or self._writing or self._control or self._bulk or self._closed:
            return False
        if self._takes_more.poll(0) != [(self._sink, select.POLLOUT)]:
            return False
        try:
            written = os.write(self._sink, data)
        except OSError:
            return False  # the thread reports it
        if written < len(data):
            self._control.append(data[written:])
            self._changed.notify()
        return True

    def _next(self) -> Optional[bytes]:
        with self._changed:
            self._writing = False
            while not self._control and not self._bulk and not self._closed:
                self._changed.wait()
            self._writing = True
            if self._control:
                return together(self._control)
            return self._bulk.popleft() if self._bulk else None

    def _write(self) -> None:
        data = self._next()
        try:
            while data is not None:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._sink, view) :]
                data = self._next()
        except OSError as error:
            # koalad is gone; the reader comes to the end of its stream too, and the KCM ends by that.
            log("koalad does not read any more: %s" % error)
