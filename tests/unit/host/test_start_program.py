"""Start a program as a node does, by posix_spawn and by a fork: what it finds, and what is left if it cannot start."""

import fcntl
import os
import selectors
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.host import start_program
from koalapy_adapters.wrapper.program.terminal import Terminal

# Python, the wrapper, the node agent and the Launcher ignore, block or handle these.
HANDLED = (
    signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU,
)  # fmt: skip
SHELL = r"""
read line
cat /proc/$$/environ >environment
echo "stat $(cut -d' ' -f5-7 /proc/$$/stat)"
echo "directory $(readlink /proc/$$/cwd)"
echo "line $line"
ls /proc/$$/fd
echo wrong >&2
exit 7
"""
SH = [b"/bin/sh", b"-c", SHELL.encode()]
# It shows its own, after its standard input has ended; a shell changes its signals whenever it forks.
SIGNALS = [b"/bin/grep", b"-h", b"^Sig", b"-", b"/proc/self/status"]
ENVIRONMENT = {b"PATH": b"/usr/bin:/bin", b"KEPT": b"a \xff b"}

Start = Callable[..., int]


@pytest.fixture(params=["posix_spawn", "fork"])
def start(request: pytest.FixtureRequest) -> Start:
    return start_program._spawn if request.param == "posix_spawn" else start_program.by_fork


@contextmanager
def ignored_and_blocked() -> Iterator[None]:
    """Ignore and block all signals that a node's processes handle, as harshly as any of them does."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in HANDLED}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class Ran:
    """A program that was run to its end. `out`, `errors`: what it wrote."""

    def __init__(self, start: Start, directory: Path, argv: list[bytes]) -> None:
        with ExitStack() as files:
            reading, writing = os.pipe()
            files.callback(os.close, reading)
            out, err = (files.enter_context((directory / name).open("wb")).fileno() for name in ("out", "err"))
            try:
                with ignored_and_blocked():
                    self.pid = start(argv[0], argv, ENVIRONMENT, [reading, out, err])
                os.write(writing, b"by the pipe\n")
            finally:
                os.close(writing)
        _, self.status = os.waitpid(self.pid, 0)
        self.out, self.errors = ((directory / name).read_text() for name in ("out", "err"))

    @property
    def found(self) -> dict[str, str]:
        """The first word of each line that it wrote, and the rest."""
        return {line.partition(" ")[0]: line.partition(" ")[2] for line in self.out.splitlines()}


@pytest.fixture
def ran(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The shell above, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return Ran(start, tmp_path, SH)


def test_no_signal_is_ignored_or_blocked_in_a_program(start: Start, tmp_path: Path) -> None:
    assert unlike_their_defaults(start, tmp_path) == set()


def unlike_their_defaults(start: Start, directory: Path) -> set[str]:
    """The handled signals that a program ignores or blocks. Others it may have from the test's own starter."""
    masks = dict(line.split() for line in Ran(start, directory, SIGNALS).out.splitlines())
    either = int(masks["SigIgn:"], 16) | int(masks["SigBlk:"], 16)
    return {number.name for number in HANDLED if either >> (number - 1) & 1}


def test_a_program_leads_a_process_group_in_the_session_of_its_starter(ran: Ran) -> None:
    group, session, _ = map(int, ran.found["stat"].split())
    assert (group, session) == (ran.pid, os.getsid(0))


def test_a_program_has_the_directory_of_its_starter_and_exactly_its_environment(ran: Ran, tmp_path: Path) -> None:
    assert ran.found["directory"] == str(tmp_path)
    environment = (tmp_path / "environment").read_bytes()
    assert sorted(environment.rstrip(b"\0").split(b"\0")) == [b"KEPT=a \xff b", b"PATH=/usr/bin:/bin"]


def test_a_program_has_its_three_standard_streams_and_no_other(ran: Ran) -> None:
    assert ran.found["line"] == "by the pipe"
    assert ran.errors == "wrong\n"
    assert set(map(int, ran.out.split("by the pipe")[1].split())) == {0, 1, 2} | passed_on()


def passed_on() -> set[int]:
    """The descriptors that this process passes on to every program, since it has them so from its own starter."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself is closed again
            found |= {int(name)} if os.get_inheritable(int(name)) else set()
    return found


def test_the_status_of_a_program_is_its_own(ran: Ran) -> None:
    assert os.waitstatus_to_exitcode(ran.status) == 7


def test_a_program_without_streams_of_its_own_has_those_of_its_starter(start: Start) -> None:
    pid = start(b"/bin/sleep", [b"sleep", b"60"], ENVIRONMENT)
    try:
        theirs, ours = ([os.readlink(f"/proc/{each}/fd/{number}") for number in range(3)] for each in (pid, "self"))
        assert theirs == ours
    finally:
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "mode", "error"),
    [
        pytest.param("missing", 0, FileNotFoundError, id="missing"),
        pytest.param("plain", 0o644, PermissionError, id="not-executable"),
        pytest.param(".", 0, PermissionError, id="a-directory"),
        pytest.param("noise", 0o755, OSError, id="no-program"),
        pytest.param("text", 0o755, FileNotFoundError, id="interpreter-missing"),
    ],
)
def test_a_program_that_cannot_start_is_an_error_that_leaves_nothing(
    start: Start, tmp_path: Path, name: str, mode: int, error: type[OSError]
) -> None:
    path = tmp_path / name
    if mode:
        path.write_bytes(b"\x7fELF but no more" if name == "noise" else b"#!/no/such/interpreter\n")
        path.chmod(mode)
    before = left_here()
    with pytest.raises(error) as raised:
        start(os.fsencode(path), [b"it"], ENVIRONMENT)
    assert raised.value.errno
    assert raised.value.strerror == os.strerror(raised.value.errno)
    assert left_here() == before


def left_here() -> tuple[list[str], str]:
    """The open descriptors and the children of this process."""
    return sorted(os.listdir("/proc/self/fd")), Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@pytest.mark.parametrize("has_screen", [True, False], ids=["terminal", "input"])
def test_the_program_of_an_interactive_job_leads_as_its_terminal_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_screen: bool
) -> None:
    terminal = Terminal(selectors.DefaultSelector(), has_screen)
    device = os.fstat(terminal.standard([0, 1, 2])[0]).st_rdev if has_screen else 0

    def start(path: bytes, argv: list[bytes], environment: Any, standard: list[int]) -> int:
        return start_program.by_fork(path, argv, environment, standard, terminal.lead)

    monkeypatch.chdir(tmp_path)
    ran = Ran(start, tmp_path, SH)
    group, session, controlling = map(int, ran.found["stat"].split())
    assert group == ran.pid
    assert session == (ran.pid if has_screen else os.getsid(0))
    assert not has_screen or controlling == device
    terminal.close()


@pytest.mark.parametrize("has_screen", [True, False], ids=["terminal", "input"])
def test_no_signal_is_ignored_or_blocked_in_the_program_of_an_interactive_job(tmp_path: Path, has_screen: bool) -> None:
    terminal = Terminal(selectors.DefaultSelector(), has_screen)

    def start(path: bytes, argv: list[bytes], environment: Any, standard: list[int]) -> int:
        return start_program.by_fork(path, argv, environment, standard, terminal.lead)

    assert unlike_their_defaults(start, tmp_path) == set()
    terminal.close()


def test_a_program_whose_terminal_is_gone_does_not_start(tmp_path: Path) -> None:
    reading, writing = os.pipe()

    def lead() -> None:
        fcntl.ioctl(reading, selectors.EVENT_READ)

    before = left_here()
    with pytest.raises(OSError, match="Inappropriate ioctl"):
        start_program.by_fork(b"/bin/true", [b"true"], ENVIRONMENT, (), lead)
    assert left_here() == before
    os.close(reading)
    os.close(writing)
