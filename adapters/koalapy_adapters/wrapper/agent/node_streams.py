"""The streams that end on this node: each leads to a port of the program on the loopback address, to its terminal, or
to a command."""

import errno
import os
import selectors
import socket
import struct
from typing import Any, Callable, Dict, List, Mapping, Optional

from koalapy_adapters import clock
from koalapy_adapters.frames import MAX_CHUNK
from koalapy_adapters.host.spawn import spawn
from koalapy_adapters.messages.streams import OpenStream, StreamReset
from koalapy_adapters.streams import MOST_STREAMS, StreamEnd, StreamName, unknown_stream

_LOOPBACK = "127.0.0.1"
_MOST_READS = 4  # of one stream, before others have their turn
_MOST_KEPT = 1 << 12  # streams that have ended, and still answer
_LAST_WORDS = 4096  # bytes of a command's standard error that are kept
_TAKEN = "Another client has taken over the terminal."
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: the program sees a reset, not an end


def _no_terminal() -> socket.socket:
    raise OSError(errno.ENXIO, "The program has no terminal here.")


class NodeStreams:
    """All streams of one node. `send(frame)` passes a frame towards koalad; `tick` at `next_wakeup` or later.

    `attach` returns a client's end of the terminal, or raises OSError. `runs_commands`: False if the program is
    isolated, for a command is not. `variables`: of commands, beside those of this process.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        send: Callable[[Any], Any],
        attach: Callable[[], socket.socket] = _no_terminal,
        runs_commands: bool = True,
        variables: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._selector, self._send, self._attach, self._runs_commands = selector, send, attach, runs_commands
        self._environment = dict(os.environ, **variables or {})
        self._plugs: Dict[int, _Plug] = {}

    def has(self, stream: int) -> bool:
        """Return whether the stream ends here."""
        return stream in self._plugs

    def received(self, frame: Any) -> None:
        """React to a frame of koalad."""
        plug = self._plugs.get(frame.stream)
        if plug is not None:
            plug.received(frame)
        elif isinstance(frame, OpenStream):
            self._open(frame)
        else:
            for answer in unknown_stream(frame):
                self._send(answer)

    def resume(self, now: int) -> None:
        """Find out what was lost: the wrapper's connection to the relay is a new one."""
        for plug in self._plugs.values():
            plug.resume(now)

    def child_ended(self, pid: int, status: int) -> None:
        """Note the end of a child of this process, which may be a stream's command. `status`: of waitpid(2)."""
        for plug in self._plugs.values():
            plug.child_ended(pid, status)

    @property
    def is_terminal_delivered(self) -> bool:
        """Return whether every client of the terminal has taken all that it showed, or is gone."""
        return all(plug.end.is_sent or plug.end.is_closed for plug in self._plugs.values() if plug.is_terminal)

    def next_wakeup(self) -> Optional[int]:
        """Return when to call `tick`; None while there is no stream."""
        return min((plug.end.next_wakeup() for plug in self._plugs.values()), default=None)

    def tick(self, now: int) -> None:
        """Probe and reset what is due, and forget streams that are long over."""
        for plug in list(self._plugs.values()):
            if now >= plug.end.next_wakeup():
                plug.tick(now)
        self._forget(now)

    def close(self) -> None:
        for plug in self._plugs.values():
            plug.close()

    def _open(self, frame: OpenStream) -> None:
        if frame.command and not self._runs_commands:
            message = "Beside an isolated program no command is run."
            self._send(StreamReset(frame.tag, frame.stream, "isolated", message))
            return
        if sum(not plug.end.is_closed for plug in self._plugs.values()) >= MOST_STREAMS:
            message = "The node has %d connections of this kind already." % MOST_STREAMS
            self._send(StreamReset(frame.tag, frame.stream, "too_many_streams", message))
            return
        if frame.terminal:
            for plug in self._plugs.values():
                plug.take_terminal()
        self._plugs[frame.stream] = _Plug(frame, self._selector, self._send, self._attach, self._environment)

    def _forget(self, now: int) -> None:
        ended = [stream for stream, plug in self._plugs.items() if plug.end.is_closed]
        for stream in ended[: max(0, len(ended) - _MOST_KEPT)]:
            del self._plugs[stream]
        for stream in ended:
            if stream in self._plugs and self._plugs[stream].end.is_forgotten(now):
                del self._plugs[stream]


class _Plug:
    """One stream, and its connection to the program."""

    def __init__(
        self,
        frame: OpenStream,
        selector: selectors.BaseSelector,
        send: Callable[[Any], Any],
        attach: Callable[[], socket.socket],
        environment: Mapping[str, str],
    ) -> None:
        self._selector, self._send, self._environment = selector, send, environment
        self.is_terminal = frame.terminal
        self._port = frame.port
        self.end = StreamEnd(clock.now(), StreamName(frame.tag, frame.stream, frame.patience))
        self._events = 0  # that the selector watches
        self._has_read_all = self._has_reported_end = False
        self._socket: Optional[socket.socket] = None
        self._command: Optional[_Command] = None
        try:
            if frame.terminal:
                self._socket = attach()
                self._pass_on(self.end.accept(clock.now()))
            elif frame.command:
                self._run(frame.command)
            else:
                self._connect()
        except OSError as error:
            self._refused(error.strerror or str(error))
            return
        self._watch()

    def _connect(self) -> None:
        """Begin to connect to the port. Raises OSError."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun = self._socket.connect_ex((_LOOPBACK, self._port))
        if begun not in (0, errno.EINPROGRESS):
            raise OSError(begun, os.strerror(begun))

    def _run(self, command: str) -> None:
        """Start the command. Raises OSError."""
        self._command = _Command(command, self._selector, self._environment)
        self._socket = self._command.socket
        self._pass_on(self.end.accept(clock.now()))

    def take_terminal(self) -> None:
        """Reset the stream if it leads to the terminal, which another one gets."""
        if self.is_terminal:
            self._pass_on(self.end.reset("taken", _TAKEN))
            self._watch()

    def child_ended(self, pid: int, status: int) -> None:
        if self._command is not None and self._command.pid == pid:
            self._command.ended(status)
            self._read()
            self._report_end()
            self._watch()

    def _report_end(self) -> None:
        """Send how the command ended, once koalad has all that it wrote."""
        if self._command is not None and self._command.status is not None and self.end.is_sent:
            self._pass_on(self.end.reset("exit_%d" % self._command.status, self._command.last_words))

    def received(self, frame: Any) -> None:
        self._pass_on(self.end.received(clock.now(), frame))
        if self.end.is_open:
            self._write()
        self._report_end()
        self._watch()

    def resume(self, now: int) -> None:
        if self.end.is_open:
            self._pass_on(self.end.resume(now))

    def tick(self, now: int) -> None:
        self._pass_on(self.end.tick(now))
        self._watch()

    def close(self) -> None:
        """Close the connection; the program sees a reset unless the stream has ended in order."""
        plug, self._socket = self._socket, None
        if self._command is not None:
            self._command.close()
        if plug is None:
            return
        if self._events:
            self._selector.unregister(plug)
            self._events = 0
        if self._command is None and not self.end.is_finished:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        plug.close()

    def _ready(self) -> None:
        if not self.end.is_open:
            self._connected()
        else:
            self._read()
            self._write()
        self._watch()

    def _connected(self) -> None:
        assert self._socket is not None
        failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self._refused(os.strerror(failed))
        else:
            self._pass_on(self.end.accept(clock.now()))

    def _refused(self, why: str) -> None:
        if self.is_terminal:
            self._pass_on(self.end.reset("no_terminal", why))
            return
        message = "Nothing takes connections at port %d of %s (%s)." % (self._port, os.uname().nodename, why)
        self._pass_on(self.end.reset("refused", message))

    def _read(self) -> None:
        for _ in range(_MOST_READS):
            if not self._read_piece():
                return

    def _read_piece(self) -> bool:
        """Send at most one chunk of what the program wrote. Returns whether there may be more now."""
        if self._socket is None or self._has_read_all or not self.end.room:
            return False
        size = min(self.end.room, MAX_CHUNK)
        try:
            data = self._socket.recv(size)
        except BlockingIOError:
            if self._command is None or self._command.status is None:
                return False
            data = b""  # it has ended, though a process that it left may hold its output
        except OSError as error:
            if not self.is_terminal:
                self._broke(error)
                return False
            data = b""  # it has ended, with keys that nobody read
        if data:
            self._pass_on(self.end.put(data))
        else:
            self._has_read_all = True
            self._pass_on(self.end.end())
        return len(data) == size

    def _write(self) -> None:
        try:
            while self._socket is not None and self.end.inbox:
                self._pass_on(self.end.consume(self._socket.send(self.end.inbox[: 4 * MAX_CHUNK])))
            if self._socket is not None and self.end.has_ended and not self._has_reported_end:
                self._has_reported_end = True
                self._socket.shutdown(socket.SHUT_WR)
                if self._command is None:  # a command's stream ends by the reset that carries its status
                    self._pass_on(self.end.consume_end())
        except BlockingIOError:
            pass
        except OSError as error:
            if not self.is_terminal:
                self._broke(error)
                return
            self._pass_on(self.end.consume(len(self.end.inbox)))  # it has ended; what it showed last is on the way

    def _broke(self, error: OSError) -> None:
        self._pass_on(self.end.reset("closed", "The program closed the connection (%s)." % (error.strerror or error)))

    def _pass_on(self, frames: List[Any]) -> None:
        for frame in frames:
            self._send(frame)

    def _watch(self) -> None:
        """Let the selector watch for what can be done with the connection, or close it if that is nothing."""
        if self._socket is None:
            return
        if self.end.is_closed:
            self.close()
            return
        reads = self.end.is_open and not self._has_read_all and self.end.room > 0
        writes = not self.end.is_open or bool(self.end.inbox)
        wanted = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * writes
        if wanted == self._events:
            return
        if not self._events:
            self._selector.register(self._socket, wanted, self._ready)
        elif wanted:
            self._selector.modify(self._socket, wanted, self._ready)
        else:
            self._selector.unregister(self._socket)
        self._events = wanted


class _Command:
    """A command of koalad on this node. One socket is its standard input and output.

    Raises OSError if no process can be started.
    """

    def __init__(self, command: str, selector: selectors.BaseSelector, environment: Mapping[str, str]) -> None:
        self._selector = selector
        self._output = b""
        self.status: Optional[int] = None  # as a shell has it, once it has ended
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self._errors, writing = os.pipe()
        os.set_blocking(self._errors, False)
        try:
            standard = [theirs.fileno(), theirs.fileno(), writing]
            self.pid = spawn(["/bin/sh", "-c", command], environment, standard, "/")
        finally:
            theirs.close()
            os.close(writing)
        selector.register(self._errors, selectors.EVENT_READ, self._read)

    @property
    def last_words(self) -> str:
        """The last line that it wrote to standard error."""
        lines = [line.strip() for line in self._output.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def ended(self, status: int) -> None:
        self._read()
        self.status = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def close(self) -> None:
        """Read nothing more. The command sees the end of its input as soon as the socket is closed."""
        if self._errors >= 0:
            self._selector.unregister(self._errors)
            os.close(self._errors)
            self._errors = -1

    def _read(self) -> None:
        try:
            while self._errors >= 0:
                data = os.read(self._errors, 1 << 16)
                if not data:
                    self.close()
                self._output = (self._output + data)[-_LAST_WORDS:]
        except BlockingIOError:
            pass
