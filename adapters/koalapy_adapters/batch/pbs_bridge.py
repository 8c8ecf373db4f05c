"""Gives an agent on another node of a PBS job its standard input and output, over TCP: PBS's launchers carry neither.

    pbs-bridge HOST AGENT…            on the wrapper's node: starts the far end on HOST, and passes everything on
    pbs-bridge --end MEETING AGENT…   on HOST, started by PBS: connects, and becomes the agent

Where to, and the token that the far end must show, lie in a file of mode 0600 in the attempt's directory.
"""

import os
import select
import signal
import socket
import sys
import time
from typing import List, Mapping, Optional, Tuple

PATIENCE_S = 120.0  # of the near end, for the far one
SHOWS_S = 60.0  # what one node wrote shows late on another's network file system
LEAVES_S = 10.0  # for PBS's launcher, after its agent has ended
_TURN_S = 0.25
_TOKEN_BYTES = 16
_FAILED = 1


class Lost(Exception):
    """The bridge cannot be built; says why."""


def main(argv: List[str]) -> int:
    if len(argv) < 2 or (argv[0] == "--end" and len(argv) < 3):
        sys.stderr.write("usage: pbs-bridge HOST AGENT...\n")
        return 2
    try:
        return _far(argv[1], argv[2:]) if argv[0] == "--end" else _near(argv[0], argv[1:])
    except (Lost, OSError) as error:
        sys.stderr.write("koala bridge: %s\n" % error)
        return _FAILED


# ---- the wrapper's node ----------------------------------------------------------------------------------------------


def _near(host: str, agent: List[str]) -> int:
    token = os.urandom(_TOKEN_BYTES).hex()
    listener = _listener()
    meeting = os.path.join(os.getcwd(), ".bridge-%s" % os.urandom(8).hex())
    _write_meeting(meeting, listener.getsockname()[1], token)
    try:
        launcher = _start(launcher_argv(host, os.environ) + _far_argv(meeting, agent))
        far = _meet(listener, token, launcher)
    finally:
        listener.close()
        os.unlink(meeting)
    if far is None:
        _end(launcher)
        raise Lost(
            "PBS's launcher for node %s ended, or %d s went by, before its agent was there." % (host, PATIENCE_S)
        )
    _pass_on(far)
    return _leave(launcher)


def launcher_argv(host: str, environment: Mapping[str, str]) -> List[str]:
    """The command that runs what follows on this node of the job. Raises Lost if there is none."""
    directories = _directories(environment)
    tmrsh = _which("pbs_tmrsh", directories)
    if tmrsh:
        return [tmrsh, host, "/usr/bin/env"]
    pbsdsh = _which("pbsdsh", directories)
    if not pbsdsh:
        raise Lost("neither pbs_tmrsh nor pbsdsh is in %s." % ":".join(directories))
    return [pbsdsh, "-n", str(_index(host, environment)), "--", "/usr/bin/env"]


def _index(host: str, environment: Mapping[str, str]) -> int:
    """A node's number among the job's: that of its first line in the host file."""
    with open(environment.get("PBS_NODEFILE", "")) as file:
        names = file.read().split()
    if host not in names:
        raise Lost("the job's host file does not name %s." % host)
    return names.index(host)


def _directories(environment: Mapping[str, str]) -> List[str]:
    directories = environment.get("PATH", "").split(":")
    if "PBS_EXEC" in environment:
        directories.append(environment["PBS_EXEC"] + "/bin")
    return [each for each in [*directories, "/opt/pbs/bin", "/usr/local/bin", "/usr/bin"] if each]


def _which(command: str, directories: List[str]) -> str:
    paths = [os.path.join(directory, command) for directory in directories]
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def _far_argv(meeting: str, agent: List[str]) -> List[str]:
    """The agent's own command, but for its last two words, starts the pushed file."""
    return [*agent[:-2], "pbs-bridge", "--end", meeting, *agent]


def _listener() -> socket.socket:
    try:
        listener = socket.socket(socket.AF_INET6)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
    except OSError:  # a node without IPv6
        listener = socket.socket(socket.AF_INET)
        listener.bind(("0.0.0.0", 0))
    listener.listen(8)
    return listener


def _write_meeting(path: str, port: int, token: str) -> None:
    """The token, the port, and all names and addresses under which this node may be reached."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("\n".join([token, str(port), *_own_addresses()]) + "\n")


def _own_addresses() -> List[str]:
    name = os.uname().nodename
    try:
        found = [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        found = []
    return [name, *(each for each in found if not each.startswith(("127.", "::1", "fe80:")))]


def _start(argv: List[str]) -> int:
    """Its pid. What it says goes where our errors go: our output is the agent's alone."""
    pid = os.fork()
    if pid == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(2, 1)
            os.execv(argv[0], argv)
        finally:
            os._exit(127)
    return pid


def _meet(listener: socket.socket, token: str, launcher: int) -> Optional[socket.socket]:
    """The connection of whoever shows the token; None if nobody came in time, or before the launcher ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ended = os.waitid(os.P_PID, launcher, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if select.select([listener], [], [], _TURN_S)[0]:
            far = _admitted(listener.accept()[0], token)
            if far is not None:
                return far
        elif ended:
            return None
    return None


def _admitted(far: socket.socket, token: str) -> Optional[socket.socket]:
    import hmac  # late: nothing else here needs it

    try:
        far.settimeout(SHOWS_S / 6)
        shown = _received(far, len(token))
        if hmac.compare_digest(shown, token.encode()):
            far.sendall(b"+")
            _prepare(far)
            return far
    except OSError:
        pass
    far.close()
    return None


def _received(connection: socket.socket, amount: int) -> bytes:
    data = b""
    while len(data) < amount:
        more = connection.recv(amount - len(data))
        if not more:
            break
        data += more
    return data


def _prepare(connection: socket.socket) -> None:
    """Blocking, without delay, and noticing in the end that the other node is dead."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)


def _pass_on(far: socket.socket) -> None:
    """Until the agent's end. Our end of input is its end of input."""
    sources: List[int] = [0, far.fileno()]
    while far.fileno() in sources:
        for source in select.select(sources, [], [])[0]:
            if not _passed(far, source):
                sources.remove(source)


def _passed(far: socket.socket, source: int) -> bool:
    """Whether there may be more from there."""
    try:
        data = os.read(source, 1 << 16)
        if source:
            _write(data)
        elif data:
            far.sendall(data)
        else:
            far.shutdown(socket.SHUT_WR)
        return bool(data)
    except OSError:
        return False


def _write(data: bytes) -> None:
    """To the wrapper."""
    while data:
        data = data[os.write(1, data) :]


def _leave(launcher: int) -> int:
    """PBS's launcher ends after its agent; its exit status."""
    deadline = time.monotonic() + LEAVES_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(launcher, os.WNOHANG)
        if pid:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else _FAILED
        select.select([], [], [], _TURN_S)
    _end(launcher)
    return _FAILED


def _end(launcher: int) -> None:
    os.kill(launcher, signal.SIGKILL)  # it is our child, and not waited for yet
    os.waitpid(launcher, 0)


# ---- the other node --------------------------------------------------------------------------------------------------


def _far(meeting: str, agent: List[str]) -> int:
    token, port, addresses = _read_meeting(meeting)
    near = _connected(addresses, port, token)
    _prepare(near)
    os.dup2(near.fileno(), 0)
    os.dup2(near.fileno(), 1)
    near.close()
    os.execvp(agent[0], agent)


def _read_meeting(path: str) -> Tuple[str, int, List[str]]:
    deadline = time.monotonic() + SHOWS_S
    while True:
        try:
            with open(path) as file:
                lines = file.read().split("\n")
            if len(lines) > 3:  # whole: its last line is ended
                return lines[0], int(lines[1]), lines[2:-1]
        except FileNotFoundError:
            pass
        if time.monotonic() >= deadline:
            raise Lost("%s does not show on %s." % (path, os.uname().nodename))
        time.sleep(_TURN_S)


def _connected(addresses: List[str], port: int, token: str) -> socket.socket:
    """To the first address where somebody takes the token."""
    for address in addresses:
        try:
            near = socket.create_connection((address, port), SHOWS_S / 6)
        except OSError:
            continue
        try:
            near.sendall(token.encode())
            if _received(near, 1) == b"+":
                return near
        except OSError:
            pass
        near.close()
    raise Lost("node %s cannot connect to %s, port %d." % (os.uname().nodename, ", ".join(addresses), port))
