"""The program's processes on one node, prepared at the barrier so that a release need only execute them."""

import errno
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from koalapy_adapters import clock, layout
from koalapy_adapters.host.spawn import encoded
from koalapy_adapters.host.start_program import by_fork, start_program
from koalapy_adapters.wrapper.program.terminal import Terminal

_KINDS = ("out", "err")
_LAST_LINES, _LAST_BYTES = 5, 1024  # of standard error, of a process that failed
RANK_VARIABLE = "KOALA_LOCAL_RANK"  # ranks have it; mpirun and its daemons do not
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
        """Name the files of output by ranks. The processes have them open, and go on."""
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
        """Remove the empty files of a program that was never released."""
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
            try:
                started.pids[self._start_one(local, environment, standard)] = local
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

    def _start_one(self, local: int, environment: Dict[bytes, bytes], standard: List[int]) -> int:
        """Start one process, the first one in the terminal if there is any. Returns its pid. Raises OSError."""
        terminal = self._terminal if local == 0 else None
        if terminal is None:
            return start_program(self._argv[0], self._argv, environment, standard)
        environment.setdefault(b"TERM", b"xterm")
        return by_fork(self._argv[0], self._argv, environment, terminal.standard(standard), terminal.lead)


class Started(NamedTuple):
    """The local ranks of the processes, by pid; when the last was about to be executed; and why some could not be."""

    pids: Dict[int, int]
    at: int
    errors: List[OSError]


def _try(act: Any, *names: str) -> None:
    """Names are a convenience for those who look into the directory; the output itself is safe."""
    try:
        act(*names)
    except OSError:
        pass
