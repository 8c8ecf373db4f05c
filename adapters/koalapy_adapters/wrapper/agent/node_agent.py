"""The node agent: parent of the program's processes on one node, until nothing of them is left.

On the wrapper's own node it is a fork of the wrapper; on the others `main` is started by the batch system's launcher.
It obeys the messages on its standard input (prepare, release, stop, suspend, continue, key, stream, resume,
start, start_ended). End of
file there means that the wrapper is gone, and ends the program; so does, on another node, silence.

Of an MPI program, mpirun is the only process that the agent on the first node starts itself. The agents of the other
nodes start what mpirun asks for, until the wrapper stops them.
"""

import errno
import os
import selectors
import signal
import socket
import sys
from typing import Any, Callable, Dict, List, Optional

from koalapy_adapters import clock, layout
from koalapy_adapters.frames import Chunk
from koalapy_adapters.host import descendants, json_lines, private_dir, signals
from koalapy_adapters.host.event_loop import dispatch_ready
from koalapy_adapters.isolation import options
from koalapy_adapters.wrapper.agent import agent_guard
from koalapy_adapters.wrapper.agent.remote_starts import RemoteStarts
from koalapy_adapters.wrapper.agent.suspension import Suspension
from koalapy_adapters.wrapper.keys.key_server import KeyServer
from koalapy_adapters.wrapper.program.processes import RANK_VARIABLE, OutputFiles, Plan, Prepared

Json = Dict[str, Any]

ORPHAN_GRACE = 5 * clock.SECOND  # for a program whose wrapper is gone before it sent another
_AGAIN = clock.SECOND // 20  # between two sweeps
_DELIVERY = 3 * clock.SECOND  # for what a terminal shows last, and for a client to attach to a short program


def main(argv: List[str]) -> int:
    """`agent NODE,NODE…`: the nodes of this launcher. Returns when the wrapper has left."""
    from koalapy_adapters.host import node_identity

    index = node_identity.own_index(argv[0].split(","))
    if index is None:
        sys.stderr.write("koala agent: this node, %s, is none of %s.\n" % (os.uname().nodename, argv[0]))
        return 1
    return agent_guard.run(index, lambda directory: serve(index or 0, 0, 1, directory))


def serve(index: int, commands: int, answers: int, directory: str) -> int:
    """Obey the wrapper. `directory` is this node's private one, for the rendezvous' socket."""
    descendants.become_subreaper()
    try:
        return Agent(index, commands, answers, directory).run()
    finally:
        private_dir.remove(directory)


class Agent:
    """One node's share of the program: nothing, then prepared, started, and over when nothing of it is left."""

    def __init__(self, index: int, commands: int, answers: int, directory: str) -> None:
        self._index = index
        self._directory = directory
        self._isolation = options.asked(os.environ)
        self._commands = commands
        self._selector = selectors.DefaultSelector()
        self._out = json_lines.Writer(answers, self._selector)
        self._reader = json_lines.LineReader()
        self._server = KeyServer(
            directory,
            self._selector,
            lambda key, value: self._send("put", key=key, value=value),
            lambda asking: self._send("asking", asking=asking),
            self._ask_start,
        )
        self._starts = RemoteStarts(self._selector, self._send)
        self._streams: Any = None  # from the first one on
        self._terminal: Any = None  # of the first process of the component, if it has one
        self._deliver_until: Optional[int] = None
        self._files: Optional[OutputFiles] = None
        self._offset = 0  # the rank of the first process here
        self._prepared: Optional[Prepared] = None
        self._isolated: Any = None  # in place of `_prepared`
        self._pids: Dict[int, int] = {}  # of processes that run, unless they are isolated: their rank on this node
        self._started = False
        self._failed = False  # a process, with another exit status than 0
        self._sweeping = False
        self._ended = False
        self._kill_at: Optional[int] = None
        self._suspension = Suspension()
        self._grace = ORPHAN_GRACE
        self._passes_on = False  # the program itself stops the processes below it
        self._is_mpi = False
        self._serves = False  # it starts nothing itself, only what an mpirun on another node asks for
        self._wrapper_gone = False
        self._silence: Optional[int] = None  # after which the wrapper counts as gone
        self._contact_at = clock.now()

    def run(self) -> int:
        noticed = signals.pipe()
        self._selector.register(noticed, selectors.EVENT_READ, lambda: self._on_signals(signals.read(noticed)))
        os.set_blocking(self._commands, False)
        self._selector.register(self._commands, selectors.EVENT_READ, self._on_commands)
        while not self._done():
            timeout, began = self._timeout(), clock.now()
            dispatch_ready(self._selector, timeout)
            self._forgive(began, timeout)
            self._advance()
            if self._streams is not None:
                self._streams.tick(clock.now())
        if self._streams is not None:
            self._streams.close()
        if self._terminal is not None:
            self._terminal.close()
        self._server.close()
        return 0

    # ---- the wrapper's word ------------------------------------------------------------------------------------------

    def _on_commands(self) -> None:
        try:
            data = os.read(self._commands, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose_wrapper()
            return
        self._contact_at = clock.now()
        for text in self._reader.feed(data):
            self._obey(json_lines.read(text))

    def _obey(self, message: Json) -> None:
        do = message["do"]
        if do == "prepare":
            self._prepare(message)
        elif do == "release":
            self._release(message["first_rank"], message["size"], message.get("hosts", ""))
        elif do == "stop":
            self._stop(message["grace"])
        elif do == "suspend":
            if self._started and not self._sweeping and self._kill_at is None:
                self._suspension.begin(clock.now())
        elif do == "continue":
            self._suspension.end()
        elif do == "key":
            self._server.learn(message["key"], message["value"])
        elif do == "stream" and message["to"] == self._index:
            self._stream(message["frame"])
        elif do == "resume" and self._streams is not None:
            self._streams.resume(clock.now())
        elif do == "start" and message["to"] == self._index:
            self._start(message)
        elif do == "start_ended" and message["to"] == self._index:
            self._starts.ended(message)

    def _prepare(self, message: Json) -> None:
        from koalapy_adapters.host import node_identity

        processes, offset = message["shares"][self._index]
        environment = dict(message["environment"])
        if message["elsewhere"]:
            environment = node_identity.localized(environment, os.environ)
        environment["KOALA_SOCKET"] = self._server.path
        self._is_mpi = message.get("mpi", False)
        self._serves = self._is_mpi and not processes
        if self._is_mpi:  # what mpirun and its daemons keep in files goes with the agent; ranks get their own back
            environment.update(KOALA_TMPDIR=environment.get("TMPDIR", ""), TMPDIR=self._directory)
        self._grace = message["grace"]
        self._passes_on = message.get("passes_on", False)
        self._silence = message["silence"] if message["elsewhere"] else None
        work = layout.inside(message["attempt"], "work")
        plan = Plan(work, message["executable"], message["arguments"], environment, offset, self._is_mpi)
        self._offset = offset
        try:
            if message.get("terminal") and processes and offset == 0:
                if self._isolation is not None:
                    raise OSError(errno.ENOTTY, "An isolated program can have no terminal.")
                from koalapy_adapters.wrapper.program.terminal import Terminal

                self._terminal = Terminal(self._selector, has_screen=message["terminal"] == "terminal")
            self._files = OutputFiles(message["attempt"], processes, offset)
            if self._isolation is None:
                self._prepared = Prepared(plan, self._files.descriptors, self._terminal)
            else:
                self._isolate(plan, self._files.descriptors, message)
        except OSError as error:
            self._send("failed", what="prepare", why=str(error))
            return
        self._send("ready", sources=node_identity.sources(message["relay"]))

    def _isolate(self, plan: Plan, files: List[List[int]], message: Json) -> None:
        """Prepare the program in its sandbox. Raises OSError."""
        # Imported late: few programs are isolated.
        from koalapy_adapters.isolation import sandbox
        from koalapy_adapters.wrapper.program.isolated import Isolated

        assert self._isolation is not None
        built = sandbox.build(self._isolation, message["attempt"], self._directory, message["own"])
        self._isolated = Isolated(built, plan, files)

    def _release(self, first_rank: int, size: int, hosts: str) -> None:
        """Start the processes. `hosts`: the text of KOALA_HOSTS, for a program that is isolated."""
        if self._files is None or self._started or self._sweeping:
            return
        if self._prepared is None and self._isolated is None:
            return
        self._started = True
        self._offset += first_rank
        if self._is_mpi:
            self._files.name(first_rank)  # now: the ranks write to files of these names too
        try:
            if self._isolated is not None:
                started = self._isolated.start(first_rank, size, hosts)
            else:
                assert self._prepared is not None
                started = self._prepared.start(first_rank, size)
        except OSError as error:
            self._send("failed", what="start", why=str(error))
            return
        if not self._is_mpi:
            self._files.name(first_rank)
        self._files.close()
        self._pids = started.pids
        if started.errors:
            self._send("failed", what="start", why=started.errors[0].strerror)
        else:
            self._send("started", at=started.at)
        if self._isolated is not None:
            self._selector.register(self._isolated.answers, selectors.EVENT_READ, self._read_isolated)
            self._read_isolated()

    def _read_isolated(self) -> None:
        answers = self._isolated.answers
        for ended in self._isolated.read():
            self._report_end(ended.local, ended.status, ended.at)
        if self._isolated.answers < 0 <= answers:
            self._selector.unregister(answers)

    def _stop(self, grace: int) -> None:
        """Send SIGTERM to all that runs, and SIGKILL after the grace; what never started has ended at once."""
        if self._sweeping:
            return
        if grace > 0 and self._started:
            if self._isolated is not None:
                self._isolated.signal(signal.SIGTERM, everything=not self._passes_on)
            else:
                self._terminate()
            self._suspension.end()  # so that they see the signal
            if self._kill_at is None:
                self._kill_at = clock.now() + grace
        else:
            self._sweeping = True

    def _terminate(self) -> None:
        """An interactive shell ignores SIGTERM, and ends if its terminal hangs up."""
        pids = self._to_terminate()
        descendants.send(pids, signal.SIGTERM)
        if self._terminal is not None:
            descendants.send([pid for pid in pids if descendants.ignores(pid, signal.SIGTERM)], signal.SIGHUP)

    def _to_terminate(self) -> List[int]:
        """The processes that get SIGTERM. mpirun and its daemons would kill the ranks upon it, before their grace."""
        if self._passes_on:
            return list(self._pids)
        every = descendants.descendants(os.getpid())
        ranks = [pid for pid in every if descendants.has_variable(pid, RANK_VARIABLE)] if self._is_mpi else []
        return ranks or every

    def _lose_wrapper(self) -> None:
        self._selector.unregister(self._commands)
        self._wrapper_gone = True
        if not self._ended:
            self._stop(self._grace)

    def _forgive(self, began: int, timeout: Optional[float]) -> None:
        """Count no silence from a time in which this job itself was suspended."""
        now = clock.now()
        if timeout is not None and now > began + clock.microseconds(timeout) + clock.SECOND:
            self._contact_at = now

    def _silent_at(self) -> Optional[int]:
        """Return the instant at which a silent wrapper counts as gone; None if it never does."""
        if self._silence is None or self._wrapper_gone:
            return None
        return self._contact_at + self._silence

    # ---- the processes' end ------------------------------------------------------------------------------------------

    def _on_signals(self, numbers: bytes) -> None:
        if signals.stop_requested(numbers):
            self._send("signalled")
            if not self._ended:
                self._stop(self._grace)

    def _advance(self) -> None:
        self._suspension.tick(clock.now())
        silent_at = self._silent_at()
        if silent_at is not None and clock.now() >= silent_at:
            self._lose_wrapper()
        for pid, status in descendants.reap():
            if pid in self._pids:
                local = self._pids.pop(pid)
                if local == 0 and self._terminal is not None:
                    self._terminal.ended()
                self._report_end(local, status, clock.now())
            elif not self._starts.child_ended(pid, _exit_status(status)) and self._streams is not None:
                self._streams.child_ended(pid, status)
        if self._kill_at is not None and clock.now() >= self._kill_at:
            self._sweeping = True
        isolated = self._isolated is not None and self._isolated.left
        if self._started and not self._pids and not self._serves and not isolated:
            self._sweeping = True
        if self._sweeping and not self._ended and descendants.sweep() and self._has_delivered():
            self._empty()

    def _report_end(self, local: int, status: int, at: int) -> None:
        signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        exit_status = _exit_status(status)
        details = self._of_failed(local) if exit_status else {}
        self._send("ended", at=at, exit_status=exit_status, signal=signalled, **details)

    def _of_failed(self, local: int) -> Json:
        """Rank and last words of the first process that failed here; the others are often ended for its sake."""
        if self._failed or self._files is None:
            return {}
        self._failed = True
        rank = self._offset + local
        return {"rank": rank, "words": self._files.last_words(rank)}

    def _has_delivered(self) -> bool:
        """Return whether a client has taken all that the terminal showed, or was given time enough to do so."""
        if self._terminal is None or not self._started:
            return True
        if self._terminal.was_attached and self._streams.is_terminal_delivered:
            return True
        if self._deliver_until is None:
            self._deliver_until = clock.now() + _DELIVERY
        return clock.now() >= self._deliver_until

    def _empty(self) -> None:
        self._ended = True
        if self._files is not None and not self._started:
            self._files.discard()
        self._send("emptied")

    def _done(self) -> bool:
        return self._ended and self._wrapper_gone

    def _timeout(self) -> Optional[float]:
        if self._sweeping and not self._ended:
            return _AGAIN / clock.SECOND
        times = [self._kill_at if not self._ended else None, self._silent_at(), self._suspension.look_at]
        times.append(self._streams.next_wakeup() if self._streams is not None else None)
        due = min((time for time in times if time is not None), default=None)
        return None if due is None else max(0, due - clock.now()) / clock.SECOND

    def _stream(self, message: Json) -> None:
        """A frame of a byte stream. What streams need is imported for the first one: few jobs have any."""
        from koalapy_adapters.messages.streams import OpenStream, StreamReset
        from koalapy_adapters.streams import frame_of_json, frame_to_json
        from koalapy_adapters.wrapper.agent.node_streams import NodeStreams

        def send(frame: Any) -> None:
            pieces = json_lines.pieces(self._index, {"event": "stream", "frame": frame_to_json(frame)})
            self._out.write_bulk(pieces) if isinstance(frame, Chunk) else self._out.write(pieces)

        if self._streams is None:
            self._streams = NodeStreams(
                self._selector, send, self._attach, self._isolation is None, {private_dir.VARIABLE: self._directory}
            )
        frame = frame_of_json(message)
        if self._sweeping and isinstance(frame, OpenStream) and frame.command and not self._streams.has(frame.stream):
            # It would outlive this agent, which has looked for the last time at what is below it.
            send(StreamReset(frame.tag, frame.stream, "ended", "The program on this node is over, or is being ended."))
            return
        self._streams.received(frame)

    def _attach(self) -> socket.socket:
        """Return a client's end of the terminal. Raises OSError if there is none on this node."""
        if self._terminal is None:
            raise OSError(errno.ENXIO, "The program has no terminal here.")
        plug: socket.socket = self._terminal.attach()
        return plug

    # ---- what mpirun starts on other nodes ---------------------------------------------------------------------------

    def _ask_start(self, request: Json, answer: Callable[[Json], None]) -> None:
        if self._is_mpi and self._isolation is None:  # what it starts would not be isolated
            self._starts.ask(request, answer)
        else:
            answer({"error": "Only the mpirun of a component with `launch: mpi` starts commands on other nodes."})

    def _start(self, message: Json) -> None:
        """Start a command for the mpirun of another node."""
        why = "its agent has not started the component, or stops it"
        if self._prepared is not None and self._started and not self._sweeping:
            try:
                self._starts.run(message, self._prepared.environment_of_daemon(), self._prepared.work)
                return
            except OSError as error:
                why = str(error)
        error_text = "%s cannot start it: %s." % (os.uname().nodename, why)
        self._send("start_ended", to=message["from"], number=message["number"], error=error_text)

    def _send(self, kind: str, **details: Any) -> None:
        details["event"] = kind
        self._out.write(json_lines.pieces(self._index, details))


def _exit_status(status: int) -> int:
    """Return the exit status of a shell: 128 + N for signal N."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
