"""The two ends of a connection under test: a program that is pushed and echoes, and what starts it."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sshd as _sshd
from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.bootstrap import Target
from koalapy_adapters.connections.pack import pack
from koalapy_adapters.connections.protocol import Channel, Connection
from koalapy_adapters.connections.ssh import SshConnection
from koalapy_adapters.errors import BatchError

server = _sshd

# Prints how it was started, then gives back what it gets, and reports on standard error at the end.
ECHO = pack(
    {
        "__main__.py": b"""
import os, sys
os.write(1, ("%s %d %d\\n" % (sys.argv[1:], sys.flags.isolated, sys.flags.no_site)).encode())
total = 0
while True:
    data = os.read(0, 65536)
    if not data:
        break
    total += len(data)
    while data:
        data = data[os.write(1, data):]
sys.stderr.write("echoed %d bytes\\nand left" % total)
sys.exit(7)
"""
    }
)
STARTED = b"['kcm'] 1 1\n"


def ignore(line: str) -> None:
    pass


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = server.Sshd(tmp_path_factory.mktemp("sshd"), ("ed25519", "ecdsa", "rsa"))
    yield running
    running.stop()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a real ssh-agent with nothing in it, which the environment names. Its path is short, as it must."""
    with tempfile.TemporaryDirectory(prefix="ka", dir="/tmp") as place:
        path = Path(place) / "agent.sock"
        yield from _agent_at(path, monkeypatch)


def _agent_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)  # nothing reports when it listens
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        yield path
        process.terminate()


def ssh_to(running: Any, **changes: Any) -> SshConnection:
    wanted = {"user": running.user, "port": running.port, "identity": str(running.identity)}
    wanted["known_hosts"] = str(running.known_hosts)
    return SshConnection(server.HOST, **{**wanted, **changes})


@contextlib.contextmanager
def started(
    connection: Connection, directory: Path, stderr: Callable[[str], None] = ignore, **more: Any
) -> Iterator[Channel]:
    channel = bootstrap.start(connection, ECHO, target(directory, **more), stderr)
    try:
        yield channel
    finally:
        channel.close()


def target(directory: Path, **more: Any) -> Target:
    return Target(str(directory), **{"python": sys.executable, **more})


def read_exactly(channel: Channel, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := channel.read(size - len(data))):
        data += more
    return data


def error_of(connection: Connection, directory: Path, **more: Any) -> BatchError:
    with pytest.raises(BatchError) as caught, started(connection, directory, **more):
        pass
    assert caught.value.message.endswith(".")
    assert caught.value.advice
    return caught.value
