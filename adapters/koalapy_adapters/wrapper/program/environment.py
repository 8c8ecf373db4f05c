"""The environment of the program: what the user's login shell and the component's `setup` lines make."""

import os
import pwd
import selectors
import shlex
import signal
import time
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional

from koalapy_adapters.host import descendants, node_identity
from koalapy_adapters.host.spawn import decoded, encoded, spawn

if TYPE_CHECKING:
    from koalapy_adapters.isolation.sandbox import Sandbox

_BOURNE = ("sh", "bash", "dash", "ksh", "ksh93", "mksh", "zsh", "ash")
_C_SHELLS = ("csh", "tcsh")
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "TZ")
_WORDS = 2000  # of a failing setup, bytes

KEPT_S = 60.0  # a login environment serves later wrappers for so long, and then shows a change of the user's profile


class SetupError(Exception):
    """The login shell or a line of `setup` failed; the text is the shell's last words."""


# A C shell closes all descriptors but 15 to 19, its own. This one is for a terminal, which only interactive ones open.
DUMP = 15


class Shell(NamedTuple):
    """The command that starts a shell as a login shell on a file, and that file's text."""

    path: str
    argv: List[str]
    script: str


class Capture:
    """The login shell at work. Read its two descriptors as they become readable, and `finish` when it has ended."""

    def __init__(self, setup: List[str], work: str, private: str, built: Optional["Sandbox"] = None) -> None:
        """Start it in the directory `work`, in the sandbox if there is one. Raises OSError if it cannot be started."""
        self.environment, environment = os.pipe()
        self.words, words = os.pipe()
        os.set_blocking(self.environment, False)
        os.set_blocking(self.words, False)
        self._data = b""
        self._output = b""
        self._file = os.path.join(private, "setup")
        shell = login_shell(pwd.getpwuid(os.getuid()).pw_shell, setup, self._file, "/dev/fd/%d" % DUMP)
        _write(self._file, shell.script)
        null = os.open(os.devnull, os.O_RDONLY)
        argv, base = (shell.argv, _base()) if built is None else (built.argv(shell.argv), _isolated_base(built))
        self.pid = spawn(argv, base, [null, words, words], work, more={DUMP: environment})
        for descriptor in (null, environment, words):
            os.close(descriptor)

    def readable(self) -> None:
        """Drain both: what a shell prints must not hold it up."""
        self._data += _drain(self.environment)
        self._output = (self._output + _drain(self.words))[-_WORDS:]

    def finish(self, status: int) -> Dict[str, str]:
        """The environment, once the shell has ended. Raises SetupError if there is none.

        The shell's end counts, not that of its output: an ssh-agent that a profile starts holds it open.
        """
        self.readable()
        os.close(self.environment)
        os.close(self.words)
        _discard(self._file)
        if status != 0 or not self._data.endswith(b"\0"):
            words = self._output.replace(encoded(self._file), b"setup")  # that file is gone
            raise SetupError(_tail(words) or "it ended with status %d and wrote nothing" % _status(status))
        return _parse(self._data)


class LoginEnvironment(NamedTuple):
    """The environment of a login shell without `setup` lines, and when it was captured, by the monotonic clock."""

    variables: Dict[str, str]
    captured_at: float


# That of this process, for the wrappers that are forked from it. Only the node server of an allocation has one.
_login: Optional[LoginEnvironment] = None


def keep_login(variables: Dict[str, str]) -> None:
    """Let wrappers that are forked from now on take this environment instead of starting a login shell."""
    global _login
    kept = {name: value for name, value in variables.items() if not name.startswith("KOALA_ALLOCATION_")}
    _login = LoginEnvironment(kept, time.monotonic())


def login_is_old() -> bool:
    return _login is None or time.monotonic() >= _login.captured_at + KEPT_S


def kept_login(setup: List[str], work: str) -> Optional[Dict[str, str]]:
    """The environment that a login shell would make here; None if it must be started: for `setup`, or a change."""
    if setup or _login is None or login_is_old():
        return None
    return dict(_login.variables, PWD=work, **node_identity.of_batch(os.environ))


class EnvironmentCapture:
    """At most one capture, read by a selector. `pids`: the shell's, until `finish`."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._capture: Optional[Capture] = None

    @property
    def pids(self) -> List[int]:
        return [self._capture.pid] if self._capture is not None else []

    def begin(self, capture: Capture) -> None:
        self._capture = capture
        for descriptor in (capture.environment, capture.words):
            self._selector.register(descriptor, selectors.EVENT_READ, capture.readable)

    def end(self) -> None:
        """End a login shell that still runs, in a way that lets its start-up files free their locks."""
        for pid in self.pids:
            descendants.send([pid, *descendants.descendants(pid)], signal.SIGTERM)

    def finish(self, status: int) -> Dict[str, str]:
        """The environment, once the shell has ended with this status. Raises SetupError."""
        capture, self._capture = self._capture, None
        assert capture is not None
        self._selector.unregister(capture.environment)
        self._selector.unregister(capture.words)
        return capture.finish(status)


def login_shell(wanted: str, setup: List[str], file: str, dump: str) -> Shell:
    """The user's shell; where that is neither of Bourne's nor of C's kind, /bin/sh.

    The script, which is to be written to `file`, removes it first: `setup` may hold secrets, and a wrapper can be
    killed. The shell has it open by then. A C shell can have no line break in quotes: it gets the path as an argument.
    """
    name = os.path.basename(wanted)
    if name in _C_SHELLS:
        checked = [line + "\nif ($status) exit 1" for line in setup]
        script = "\n".join(["%s -f $argv[1]:q" % _rm(), *checked, "exec %s -0 >! %s" % (_env(), dump), ""])
        return Shell(wanted, [wanted, "-c", "source ~/.login >& /dev/null; source $argv[1]:q", file], script)
    path = wanted if name in _BOURNE else "/bin/sh"
    quoted = shlex.quote(file)
    script = "\n".join(["%s -f %s" % (_rm(), quoted), "set -e", *setup, "exec %s -0 >| %s" % (_env(), dump), ""])
    return Shell(path, [path, "-l", "-c", ". %s" % quoted], script)


def _base() -> Dict[str, str]:
    """Where the login shell begins: the node's own, and what is the batch system's of the job's environment."""
    user = pwd.getpwuid(os.getuid())
    base = {"HOME": user.pw_dir}
    base.update((name, os.environ[name]) for name in _PASSED_ON if name in os.environ)
    base.update(node_identity.of_batch(os.environ))
    base.update(USER=user.pw_name, LOGNAME=user.pw_name, SHELL=user.pw_shell or "/bin/sh", PATH=_PATH)
    return base


def _isolated_base(built: "Sandbox") -> Dict[str, str]:
    return dict(built.variables(), **built.inside(node_identity.of_batch(os.environ)))


def _parse(data: bytes) -> Dict[str, str]:
    environment = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name != b"_":
            environment[decoded(name)] = decoded(value)
    return environment


def _tail(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return "; ".join(lines[-5:])[-500:]


def _status(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _env() -> str:
    return "/usr/bin/env" if os.access("/usr/bin/env", os.X_OK) else "/bin/env"


def _rm() -> str:
    return "/bin/rm" if os.access("/bin/rm", os.X_OK) else "/usr/bin/rm"


def _discard(path: str) -> None:
    """Remove it where the shell ended before it could."""
    try:
        os.unlink(path)
    except OSError:
        pass


def _write(path: str, text: str) -> None:
    """Lines of `setup` may hold secrets: they are in no command line, and in a directory that nobody else enters."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encoded(text))


def _drain(descriptor: int) -> bytes:
    data = b""
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return data
        if not part:
            return data
        data += part
