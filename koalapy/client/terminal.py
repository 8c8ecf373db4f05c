"""The terminal of an interactive job, or its standard input: keys and window sizes go there, and its bytes come."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Self

from koalapy_adapters.frames import MAX_CHUNK, Chunk, Control, Frame, encode

from koalapy.client.calls import Calls, NotReachable, error_of
from koalapy.client.forwarding import frames_of


class Terminal:
    """An attached terminal, until `close`, which detaches. A `with` block ends with that.

    One thread may read while others write. A write waits while the program does not read what came before.
    """

    def __init__(self, calls: Calls, path: str, params: dict[str, Any]) -> None:
        """Raises KoalaError if the job has no terminal now, or another client has it."""
        self._open = ExitStack()
        self._koalad, self._answer = self._open.enter_context(calls.connect(path, params))
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Detach. The program runs on."""
        self.hang_up()
        self._open.close()

    def hang_up(self) -> None:
        """Detach, so that a `read` in another thread ends."""
        with suppress(OSError):
            self._koalad.shutdown(socket.SHUT_RDWR)

    def write(self, keys: bytes) -> None:
        """Send what a person typed, or bytes of a standard input. Raises NotReachable if koalad is gone."""
        for start in range(0, len(keys), MAX_CHUNK):
            self._send(Chunk(0, 0, keys[start : start + MAX_CHUNK]))

    def end_input(self) -> None:
        """End a standard input that is no terminal. Raises NotReachable if koalad is gone."""
        self._send(Chunk(0, 0, b""))

    def resize(self, rows: int, columns: int) -> None:
        """Set the terminal to the size of the window here. Raises NotReachable if koalad is gone."""
        self._send(Control({"rows": rows, "columns": columns}))

    def read(self) -> Iterator[bytes]:
        """Yield what the terminal shows, first again what it showed last, until its program has ended.

        Raises KoalaError if the connection breaks before: NotReachable for koalad, code `stream_taken` if another
        client has taken over.
        """
        for frame in frames_of(self._answer):
            if isinstance(frame, Control):
                raise error_of(frame.data["error"])
            if isinstance(frame, Chunk):
                if not frame.data:
                    return
                yield frame.data
        raise NotReachable("cut", "The connection to koalad was cut off.", "`koala status` shows whether it is up.")

    def _send(self, frame: Frame) -> None:
        data = encode(frame)
        try:
            with self._writing:
                self._koalad.sendall(b"%x\r\n%b\r\n" % (len(data), data))
        except OSError as error:
            raise NotReachable("cut", "The connection to koalad was cut off.", "Attach again.") from error
