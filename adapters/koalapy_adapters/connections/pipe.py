"""A channel over the pipes of a process on this machine."""

import os
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from koalapy_adapters.connections.protocol import Lines, LineSplitter

_PATIENCE_S = 2.0  # between end of input, SIGTERM and SIGKILL


class PipeChannel:
    """The standard streams of a child, which leads a session of its own: a terminal's signals do not reach it.

    Raises OSError if the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], stderr: Lines, environment: Mapping[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True, env=environment
        )
        self._stdin, self._stdout, self._stderr = _streams(self._process)
        os.set_blocking(self._stdin.fileno(), False)
        self._closed = False
        self._lock = threading.Lock()
        self._wake, self._waker = os.pipe()  # its end of file is what wakes up reader and writer
        self._splitter = LineSplitter(stderr)
        self._errors = threading.Thread(target=self._read_errors, name="stderr", daemon=True)
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._errors.start()

    def read(self, size: int) -> bytes:
        with self._reading:
            if self._closed:
                return b""
            select.select([self._stdout.fileno(), self._wake], [], [])
            return b"" if self._closed else os.read(self._stdout.fileno(), size)

    def write(self, data: bytes) -> None:
        """Write all of it; see Channel.write. Raises OSError if the child takes no more, or the channel is closed."""
        left = memoryview(data)
        with self._writing:
            while left:
                if self._closed:
                    raise BrokenPipeError("the channel is closed")
                select.select([self._wake], [self._stdin], [])
                if not self._closed:
                    left = left[_write_some(self._stdin.fileno(), left) :]

    def write_now(self, data: bytes) -> bool:
        """Write up to PIPE_BUF bytes if the pipe takes all of them now; see Immediate."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self._closed or len(data) > select.PIPE_BUF:
                return False
            return _write_some(self._stdin.fileno(), memoryview(data)) == len(data)  # a pipe takes all, or nothing
        finally:
            self._writing.release()

    def exit_status(self, timeout_s: float) -> int | None:
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._errors.join(timeout_s)  # its last output belongs to its end
        return status

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        os.close(self._waker)
        with self._writing:
            self._stdin.close()
        self._end()
        with self._reading:
            self._stdout.close()
        self._errors.join(_PATIENCE_S)
        os.close(self._wake)

    def _end(self) -> None:
        for hurry in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_PATIENCE_S)
                return
            except subprocess.TimeoutExpired:
                hurry()
        self._process.wait()

    def _read_errors(self) -> None:
        """Pass on standard error until its end; after `close`, as far as it has already been written."""
        with self._stderr:
            source = self._stderr.fileno()
            while source in select.select([source, self._wake], [], [])[0]:
                data = os.read(source, 65_536)
                if not data:
                    break
                self._splitter.feed(data)
            self._splitter.end()


def _write_some(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data)
    except BlockingIOError:
        return 0


def _streams(process: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr
