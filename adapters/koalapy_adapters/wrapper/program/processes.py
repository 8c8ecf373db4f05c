"""The program's processes on one node, prepared at the barrier so that a release need only execute them."""

import errno
import os
import signal
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from koalapy_adapters import clock, layout
from koalapy_adapters.host.spawn import encoded
from koalapy_adapters.host.start_program import start_program
from koalapy_adapters.wrapper.program.terminal import Terminal

_KINDS = ("out", "err")
_LAST_LINES, _LAST_BYTES = 5, 1024  # of standard error, of a process that failed
RANK_VARIABLE = "KOALA_LOCAL_RANK"  # ranks have it; mpirun and its daemons do not
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM)  # for one more process


class Plan(NamedTuple):
    """The processes of one node. Texts hold surrogates for bytes that are no UTF-8.

    `work`: their working directory. `offset`: the first rank in the component. `mpi`: the processes are an mpirun,
    which starts the ranks.
    """

    work: str
    executable: str
    arguments: List[str]
    environment: Dict[str, str]
    offset: int
    mpi: bool = False


class OutputFiles:
    """The files of the processes' standard output and errors, open from the barrier on. Their names come later."""

    def __init__(self, attempt: str, processes: int, offset: int) -> None:
        """Raises OSError if one cannot be opened."""
        self._attempt, self._offset = attempt, offset
        self.descriptors = [[self._open(local, kind) for kind in _KINDS] for local in range(processes)]

    def name(self, first_rank: int) -> None:
        """Name them by ranks; the processes hold them open and do not mind."""
        for local in range(len(self.descriptors)):
            for kind in _KINDS:
                named = layout.output_file(self._attempt, first_rank + self._offset + local, kind)
                _try(os.rename, self._waiting_name(local, kind), named)

    def close(self) -> None:
        """Close them here, once the processes have them."""
        for descriptor in [each for pair in self.descriptors for each in pair]:
            os.close(descriptor)

    def last_words(self, rank: int) -> str:
        """The end of what a process wrote to its standard error: five lines and 1 KiB at most. Empty if unreadable."""
        try:
            with open(layout.output_file(self._attempt, rank, "err"), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LAST_BYTES))
                lines = file.read(_LAST_BYTES).splitlines()
        except OSError:
            return ""
        if size > _LAST_BYTES and len(lines) > 1:
            del lines[0]  # its beginning is cut off
        return b"\n".join(lines[-_LAST_LINES:]).decode("utf-8", "replace").strip()

    def discard(self) -> None:
        """Never released: leave no empty files behind."""
        for local in range(len(self.descriptors)):
            for kind in _KINDS:
                _try(os.unlink, self._waiting_name(local, kind))

    def _open(self, local: int, kind: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.open(self._waiting_name(local, kind), flags, 0o600)

    def _waiting_name(self, local: int, kind: str) -> str:
        name = "%s.%d.waiting" % (kind, self._offset + local)
        return os.path.join(self._attempt, "output", name)


class Prepared:
    """The working directory is entered; raises OSError if that cannot be done.

    `files`: output and errors of each process. `terminal`: that of the first process here, if it has one.
    """

    def __init__(self, plan: Plan, files: Sequence[Sequence[int]], terminal: Optional[Terminal] = None) -> None:
        self._plan, self._files, self._terminal = plan, files, terminal
        self._first_rank, self._size = 0, 0
        self._argv = [encoded(word) for word in [plan.executable, *plan.arguments]]
        self._environment = {encoded(name): encoded(value) for name, value in plan.environment.items()}
        os.chdir(plan.work)
        self._null = os.open(os.devnull, os.O_RDONLY)

    def start(self, first_rank: int, size: int) -> "Started":
        """Start every process. Raises OSError where the node has no room for a process; some may run then."""
        self._first_rank, self._size = first_rank, size
        started = Started({}, 0, [])
        for local, files in enumerate(self._files):
            standard, environment = [self._null, *files], self._environment_of(local)
            started = started._replace(at=clock.now())
            if local == 0 and self._terminal is not None:
                pid, failed = self._start_in_terminal(self._terminal, environment, standard)
                started.pids[pid] = local
                started.errors.extend(failed)
                continue
            try:
                started.pids[start_program(self._argv[0], self._argv, environment, standard)] = local
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise
                started.errors.append(error)
        if self._terminal is not None:
            self._terminal.started(os.dup(self._files[0][0]))
        return started

    @property
    def work(self) -> str:
        return self._plan.work

    def environment_of_daemon(self) -> Dict[str, str]:
        """The environment of what an mpirun on another node starts here, once the program has started."""
        return dict(self._plan.environment, KOALA_RANK=str(self._first_rank), KOALA_SIZE=str(self._size))

    def _environment_of(self, local: int) -> Dict[bytes, bytes]:
        environment = dict(self._environment)
        environment.update(
            {b"KOALA_RANK": b"%d" % (self._first_rank + self._plan.offset + local), b"KOALA_SIZE": b"%d" % self._size}
        )
        if not self._plan.mpi:
            environment[RANK_VARIABLE.encode()] = b"%d" % local
        return environment

    def _start_in_terminal(
        self, terminal: Terminal, environment: Dict[bytes, bytes], standard: List[int]
    ) -> Tuple[int, List[OSError]]:
        """Start the process that has the terminal, by a fork: it leads a session. Returns its pid, and why it failed.

        A process that cannot execute the program ends at once.
        """
        standard = terminal.standard(standard)
        environment.setdefault(b"TERM", b"xterm")
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _execute(self._argv, environment, standard, writing, terminal)
        os.close(writing)
        failed = _read_all(reading)
        return pid, [os_error(int(failed))] if failed else []


class Started(NamedTuple):
    """The local ranks of the processes, by pid; when the last was about to be executed; and why some could not be."""

    pids: Dict[int, int]
    at: int
    errors: List[OSError]


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _execute(
    argv: List[bytes], environment: Dict[bytes, bytes], standard: List[int], failed: int, terminal: Terminal
) -> None:
    """In the child: become the program. It never returns; it writes the errno if it fails."""
    try:
        if not terminal.begin_session():
            os.setpgid(0, 0)  # so that a program's `kill 0` does not reach the agent
        for target, descriptor in enumerate(standard):
            os.dup2(descriptor, target)
        signal.set_wakeup_fd(-1)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, environment)
    except OSError as error:
        os.write(failed, b"%d" % (error.errno or 0))
    finally:
        os._exit(127)


def _read_all(descriptor: int) -> bytes:
    """Until the child has executed its program, or given up."""
    data = b""
    while True:
        part = os.read(descriptor, 4096)
        if not part:
            os.close(descriptor)
            return data
        data += part


def _try(act: Any, *names: str) -> None:
    """Names are a convenience for those who look into the directory; the output itself is safe."""
    try:
        act(*names)
    except OSError:
        pass
