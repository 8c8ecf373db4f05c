"""`koala` as a real process, forked from one that has imported what it needs: most of what a short command takes.

A server of this file, one for a run of tests, forks a keeper for every call, and the keeper koala itself. What koala
has of its own for the command line is imported after the fork, in the call's environment and on the call's streams.
The koalad that `koala up` starts is forked from koala, because its imports take longer than all else of its start.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NoReturn

KOALA = "koalapy.cli.main"
_BEFOREHAND = (
    "typer", "rich.live", "rich.progress", "rich.status", "rich.table", "http.client", "yaml",
    "koalapy.client", "koalapy.config", "koalapy.languages",
    "koalapy.koalad.__main__", "koalapy.koalad.job_reader", "koalapy.koalad.process", "koalapy.store.sqlite", "uvicorn",
)  # fmt: skip
_KOALAD = [sys.executable, "-m", "koalapy.koalad"]


def run(
    arguments: Sequence[str], cwd: Path, environment: dict[str, str], timeout_s: float
) -> "subprocess.CompletedProcess[bytes]":
    """As `subprocess.run` with captured output and nothing on standard input: until all that it wrote to is closed."""
    with contextlib.ExitStack() as stack:
        call = stack.enter_context(tempfile.TemporaryFile())
        call.write(json.dumps({"arguments": arguments, "cwd": str(cwd), "environment": environment}).encode())
        call.flush()
        ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
        for end in ours:
            stack.callback(os.close, end)
        try:
            socket.send_fds(_server(), [b"call"], [call.fileno(), *theirs])
        finally:
            for end in theirs:
                os.close(end)
        status, out, err = _read(ours, timeout_s)
    return subprocess.CompletedProcess(arguments, int(status.split()[1]), out, err)


@functools.cache
def _server() -> socket.socket:
    """The way to it, for as long as this process runs."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        number = there.fileno()
        process = subprocess.Popen(
            [sys.executable, __file__, str(number)],
            stdin=subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,
        )
    atexit.register(_end, here, process)
    return here


def _end(server: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    server.close()
    process.wait()


def _read(ends: Sequence[int], timeout_s: float) -> list[bytes]:
    """All that comes from each. The first begins with a number: of the process to kill where that takes too long."""
    said = dict.fromkeys(ends, b"")
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as waiting:
        for end in ends:
            waiting.register(end, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(int(said[ends[0]].split()[0]), signal.SIGKILL)
                raise TimeoutError(f"koala did not end within {timeout_s:g} s: {list(said.values())}")
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                said[key.fd] += data
                if not data:
                    waiting.unregister(key.fd)
    return list(said.values())


# ---- the server's process and its children: each function returns only in koala's


def _serve(calls: socket.socket) -> None:
    for module in _BEFOREHAND:
        importlib.import_module(module)
    gc.freeze()  # no collection of a child looks at what is shared with it, and copies it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    while True:
        word, handed, _, _ = socket.recv_fds(calls, 16, 4)
        if not word:
            os._exit(0)
        if os.fork() == 0:
            calls.close()
            _keep(*handed)
            return
        for end in handed:
            os.close(end)


def _keep(call: int, status: int, out: int, err: int) -> None:
    """Report koala's process, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    koala = os.fork()
    if koala == 0:
        os.close(status)
        _be_koala(call, out, err)
        return
    os.close(out)
    os.close(err)
    os.write(status, b"%d " % koala)
    ended = os.waitpid(koala, 0)[1]
    os.write(status, b"%d" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _be_koala(call: int, out: int, err: int) -> None:
    with open(call, "rb") as file:
        file.seek(0)
        wanted = json.load(file)
    for stream, number in ((out, 1), (err, 2)):
        os.dup2(stream, number)
        os.close(stream)
    imported_from = os.environ.get("PYTHONPATH")
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["cwd"])
    sys.path[0], sys.argv[1:] = wanted["cwd"], wanted["arguments"]
    if os.environ.get("PYTHONPATH") == imported_from:  # else koalad is to be another koalapy's
        importlib.import_module("koalapy.client.daemon").__dict__["subprocess"] = ForksKoalad
    try:
        runpy.run_module(KOALA, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int) or threading.active_count() > 1:
            raise
        _end_at_once(end.code)


class ForksKoalad:
    """The module `subprocess` as `koala up` uses it, for its one command: koalad, which is forked."""

    DEVNULL = subprocess.DEVNULL

    class Popen:
        def __init__(
            self,
            command: list[str],
            stdin: int,
            stdout: IO[bytes],
            stderr: IO[bytes],
            pass_fds: tuple[int],
            start_new_session: bool,
            cwd: str,
        ) -> None:
            assert (command[:3], stdin, start_new_session) == (_KOALAD, subprocess.DEVNULL, True)
            self.returncode: int | None = None
            self.pid = os.fork()
            if self.pid == 0:
                _be_koalad(command, stdout.fileno(), stderr.fileno(), pass_fds, cwd)

        def terminate(self) -> None:
            os.kill(self.pid, signal.SIGTERM)

        def wait(self) -> int:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self.returncode


def _be_koalad(command: list[str], out: int, err: int, passed: tuple[int], cwd: str) -> NoReturn:
    """Become what a new process of this command would be, with nothing open but its streams and what is passed."""
    os.setsid()
    for each in signal.valid_signals():
        if callable(signal.getsignal(each)):
            signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(stream, number)
    kept = sorted(passed)
    for first, last in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(first + 1, last)
    os.chdir(cwd)
    sys.argv = command[2:]
    status = 1
    try:
        importlib.import_module("koalapy.koalad.__main__").main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # it waits for threads, as at the end of every Python
    _end_at_once(status)


def _end_at_once(status: int) -> NoReturn:
    """As Python ends, but without taking apart what was there before the fork, which takes far longer than koala."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
