"""The commands that mpirun starts on other nodes: those that this node's mpirun asks for, and those that run here.

A request and its answer are messages, start and start_ended, which the wrapper passes on:

    this node's agent ---- start ----> wrapper ---- start ----> the other node's agent, which runs the command
    this node's agent <- start_ended - wrapper <- start_ended - the other node's agent, once the command has ended
"""

import os
import pwd
import selectors
from typing import Any, Callable, Dict, Mapping

from koalapy_adapters.host.spawn import spawn

Json = Dict[str, Any]

_LAST_WORDS = 4096  # bytes of a command's output that are kept


class RemoteStarts:
    """Both ends, on one node. `send(said, details)` passes a message to the wrapper."""

    def __init__(self, selector: selectors.BaseSelector, send: Callable[..., None]) -> None:
        self._selector, self._send = selector, send
        self._asked: Dict[int, Callable[[Json], None]] = {}  # by number: how the client is answered
        self._count = 0
        self._running: Dict[int, _Command] = {}  # by pid

    def ask(self, request: Json, answer: Callable[[Json], None]) -> None:
        """Ask another node to run a command of this node's mpirun; `answer` is called once it has ended."""
        host, command = str(request["start"]), str(request["command"])
        self._count += 1
        self._asked[self._count] = answer
        self._send("start", number=self._count, host=host, command=command)

    def ended(self, message: Json) -> None:
        """Answer the client whose command has ended on the other node, or could not be started there."""
        answer = self._asked.pop(message["number"], None)
        if answer is not None:
            answer({name: message[name] for name in ("error", "exit_status", "words") if name in message})

    def run(self, message: Json, environment: Mapping[str, str], directory: str) -> None:
        """Run a command for another node, by the user's shell, in this directory."""
        shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
        null = os.open(os.devnull, os.O_RDONLY)
        reading, writing = os.pipe()
        try:
            pid = spawn([shell, "-c", message["command"]], environment, [null, writing, writing], directory)
        finally:
            os.close(null)
            os.close(writing)
        command = _Command(message["from"], message["number"], reading)
        os.set_blocking(reading, False)
        self._running[pid] = command
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._read(command))

    def child_ended(self, pid: int, exit_status: int) -> bool:
        """Return whether this child of the agent was a command; its end is reported then. It may have left a daemon."""
        command = self._running.pop(pid, None)
        if command is None:
            return False
        self._read(command)
        self._close(command)  # which a daemon may hold open for ever
        words = bytes(command.words).decode("utf-8", "replace")
        self._send("start_ended", to=command.origin, number=command.number, exit_status=exit_status, words=words)
        return True

    def _read(self, command: "_Command") -> None:
        """Keep the last words."""
        while command.is_open:
            try:
                data = os.read(command.output, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._close(command)
            command.words.extend(data)
            del command.words[:-_LAST_WORDS]

    def _close(self, command: "_Command") -> None:
        if command.is_open:
            command.is_open = False
            self._selector.unregister(command.output)
            os.close(command.output)


class _Command:
    """A command that runs here: the node that asked, the number of its request, and the end of its output."""

    def __init__(self, origin: str, number: int, output: int) -> None:
        self.origin, self.number, self.output = origin, number, output
        self.words = bytearray()
        self.is_open = True
