"""Connections of every kind over real processes: what travels, how they end, and each way to fail."""

import contextlib
import itertools
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import connection_ends as ends
import pytest
from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.command import CommandConnection
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.pack import pack
from koalapy_adapters.connections.pipe import PipeChannel
from koalapy_adapters.connections.protocol import Channel, Connection, Immediate, Lines, LineSplitter
from koalapy_adapters.errors import ClusterError, TransientError

ECHO = ends.ECHO
STARTED = ends.STARTED
error_of = ends.error_of
ignore = ends.ignore
read_exactly = ends.read_exactly
server = ends.server
ssh_to = ends.ssh_to
sshd = ends.sshd
started = ends.started
target = ends.target


@pytest.fixture(params=["local", "command", "ssh", "openssh"])
def connection(request: pytest.FixtureRequest) -> Connection:
    """One of each kind, all to this machine."""
    if request.param == "local":
        return LocalConnection()
    if request.param == "command":
        return CommandConnection(["sh", "-c"])
    running = request.getfixturevalue("sshd")
    if request.param == "ssh":
        made: Connection = ssh_to(running)
        return made
    options = [f"-oUserKnownHostsFile={running.known_hosts}", f"-oIdentityFile={running.identity}"]
    return CommandConnection(["ssh", "-F", "none", "-T", "-p", str(running.port), *options, server.HOST])


# ---- every connection


def test_little_is_written_at_once_until_the_other_side_reads_no_more(connection: Connection, tmp_path: Path) -> None:
    with started(connection, tmp_path) as channel:
        assert isinstance(channel, Immediate)
        assert read_exactly(channel, len(STARTED)) == STARTED
        assert channel.write_now(b"at once")
        assert read_exactly(channel, 7) == b"at once"
        pieces = (bytes([number % 251]) * 4096 for number in range(1 << 15))
        sent = b"".join(itertools.takewhile(lambda piece: channel.write_now(bytes(piece)), pieces))
        assert 4096 <= len(sent) < 1 << 27, "what it echoes is not read, so that it does not read either"
        assert read_exactly(channel, len(sent)) == sent


def test_nothing_is_written_at_once_to_a_closed_channel(connection: Connection, tmp_path: Path) -> None:
    with started(connection, tmp_path) as channel:
        channel.close()
        assert isinstance(channel, Immediate)
        assert not channel.write_now(b"too late")


def test_what_is_sent_comes_back_byte_for_byte(connection: Connection, tmp_path: Path) -> None:
    sent = bytes(range(256)) * 8192  # 2 MiB, more than any buffer on the way
    with started(connection, tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED
        writer = threading.Thread(target=channel.write, args=(sent,))
        writer.start()
        assert read_exactly(channel, len(sent)) == sent
        writer.join()


def test_nothing_that_follows_the_push_is_lost(connection: Connection, tmp_path: Path) -> None:
    """The bytes are written at once after the start, before the other side has sent anything."""
    with started(connection, tmp_path) as channel:
        channel.write(b"first words")
        assert read_exactly(channel, len(STARTED) + 11) == STARTED + b"first words"


def test_the_file_is_pushed_once(connection: Connection, tmp_path: Path) -> None:
    with started(connection, tmp_path):
        pass
    pushed = tmp_path / "bin" / f"{ECHO.digest}.pyz"
    assert pushed.read_bytes() == ECHO.data
    assert pushed.stat().st_mode & 0o077 == 0 or os.umask(os.umask(0o022)) != 0o077
    before = pushed.stat().st_ino
    with started(connection, tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED
    assert [path.name for path in (tmp_path / "bin").iterdir()] == [pushed.name]
    assert pushed.stat().st_ino == before


def test_standard_error_is_read_line_by_line(connection: Connection, tmp_path: Path) -> None:
    said: list[str] = []
    arrived = threading.Event()

    def receive(line: str) -> None:
        said.append(line)
        if line == "and left":
            arrived.set()

    with started(connection, tmp_path, receive) as channel:
        channel.write(b"x" * 5)
        read_exactly(channel, len(STARTED) + 5)
        reader = threading.Thread(target=lambda: read_exactly(channel, 1))
        reader.start()
        end_input(channel)
        reader.join()
        assert arrived.wait(120), said
    assert said[-2:] == ["echoed 5 bytes", "and left"]


def end_input(channel: Any) -> None:
    """The end of file alone; a channel's `close` also stops listening."""
    if isinstance(channel, PipeChannel):
        with channel._writing:
            channel._stdin.close()
    else:
        channel._channel.shutdown_write()


def test_closing_wakes_up_whoever_reads(connection: Connection, tmp_path: Path) -> None:
    with started(connection, tmp_path) as channel:
        read_exactly(channel, len(STARTED))
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(channel.read(1)))
        reader.start()
        channel.close()
        reader.join(120)
        assert got == [b""]
        channel.close()


def test_closing_wakes_up_whoever_writes(connection: Connection, tmp_path: Path) -> None:
    """The other side reads nothing more, since nobody reads what it gives back."""
    with started(connection, tmp_path) as channel:
        blocked = threading.Event()
        ended = threading.Event()

        def write() -> None:
            with contextlib.suppress(OSError, EOFError):
                while True:
                    channel.write(b"x" * 65_536)
                    blocked.set()
            ended.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert blocked.wait(120)
        channel.close()
        writer.join(120)
        assert ended.is_set()
        with pytest.raises((OSError, EOFError)):
            channel.write(b"more")


def test_closing_ends_the_other_side(connection: Connection, tmp_path: Path) -> None:
    """By the end of its input alone: that is how a KCM comes to its end."""
    flag = tmp_path / "ended"
    leaves = pack({"__main__.py": f"import os\nos.read(0, 1)\nopen({str(flag)!r}, 'w').write('by itself')\n".encode()})
    channel = bootstrap.start(connection, leaves, target(tmp_path), ignore)
    channel.close()
    while not flag.exists() or not flag.read_text():
        assert not threading.Event().wait(0.01)  # a file of another process cannot be awaited otherwise


def test_the_exit_status_is_the_commands(connection: Connection) -> None:
    channel = connection.open("exit 41", ignore)
    assert channel.read(1) == b""
    assert channel.exit_status(120) == 41
    channel.close()


def test_no_python_is_reported(connection: Connection, tmp_path: Path) -> None:
    error = error_of(connection, tmp_path, python="python-that-is-not-there")
    assert isinstance(error, ClusterError)
    assert error.code == "no_python"
    assert "python-that-is-not-there" in error.message
    assert "`python:`" in error.advice
    assert error_of(connection, tmp_path, python="/nowhere/python3").code == "no_python"


def test_what_is_no_python_ends_the_login(connection: Connection, tmp_path: Path) -> None:
    error = error_of(connection, tmp_path, python=shutil.which("false"))
    assert isinstance(error, TransientError)
    assert error.code == "login_ended"
    assert "ended with 1" in error.message


# Debian's python3-minimal lacks many modules of the standard library.
MINIMAL = f"""\
#!/bin/sh
exec {sys.executable} -E -s -S -c '
import sys

class Minimal:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "shlex":
            raise ModuleNotFoundError("No module named %r" % name)

sys.meta_path.insert(0, Minimal)
exec(sys.argv.pop(1))
' "$5" "$6"
"""


def test_a_python_without_its_whole_library_is_named(connection: Connection, tmp_path: Path) -> None:
    minimal = tmp_path / "minimal"
    minimal.write_text(MINIMAL)
    minimal.chmod(0o755)
    error = error_of(connection, tmp_path, python=str(minimal))
    assert isinstance(error, ClusterError)
    assert error.code == "python_incomplete"
    assert error.message.startswith(f"{minimal} on ")
    assert error.message.endswith("there is no module shlex.")
    assert "not only `python3-minimal`" in error.advice
    assert "`python:`" in error.advice


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("ModuleNotFoundError: No module named 'asyncio'", "asyncio"),
        ("ModuleNotFoundError: No module named 'json.decoder'; 'json' is not a package", "json.decoder"),
        ("ModuleNotFoundError: No module named 'koalapy_adapters.kcm'", None),
        ("OSError: No module", None),
    ],
)
def test_a_missing_module_is_found_in_the_last_line(line: str, module: str | None) -> None:
    found = bootstrap.incomplete_python(line, "python3", "fs0")
    if module is None:
        assert found is None
    else:
        assert found is not None
        assert found.message.endswith(f"there is no module {module}.")


class Advised:
    """A connection to this machine that has an advice of its own, as one to a pilot has."""

    where, python, advice = "pilot~7", "python3", "`koala show 7` has the history of its job."

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        return LocalConnection().open(shell_command, stderr)


def test_the_advice_for_a_failed_login_is_the_connections_own(tmp_path: Path) -> None:
    ended = error_of(Advised(), tmp_path, python=shutil.which("false"))
    assert (ended.code, ended.advice) == ("login_ended", Advised.advice)
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 600\n")
    stuck.chmod(0o755)
    silent = error_of(Advised(), tmp_path, python=str(stuck), timeout_s=0.5)
    assert (silent.code, silent.advice) == ("no_answer", Advised.advice)


def test_a_directory_that_cannot_be_written(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = error_of(connection, tmp_path / "file" / "koala")
    assert isinstance(error, ClusterError)
    assert error.code == "directory_not_writable"
    assert str(tmp_path / "file") in error.message
    assert "`shared:`" in error.advice


def test_a_python_that_does_not_answer_is_given_up(connection: Connection, tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 600\n")
    stuck.chmod(0o755)
    error = error_of(connection, tmp_path, python=str(stuck), timeout_s=1.0)
    assert isinstance(error, TransientError)
    assert error.code == "no_answer"
    assert "within 1 s" in error.message


# ---- commands


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    error = error_of(CommandConnection(["no-such-ssh", "-T", "fs0"]), tmp_path)
    assert (error.code, error.whose) == ("no_command", "cluster")
    assert "no-such-ssh" in error.message


def test_a_command_that_fails_is_quoted_in_its_own_words(tmp_path: Path) -> None:
    error = error_of(CommandConnection(["sh", "-c", "echo 'Permission denied.' >&2; exit 255"]), tmp_path)
    assert error.code == "login_ended"
    assert "ended with 255: Permission denied." in error.message


def test_a_command_that_ignores_its_end_is_killed(tmp_path: Path) -> None:
    channel = PipeChannel(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 600 & wait; done"], ignore)
    assert channel.read(3) == b"up\n"
    channel.close()
    assert channel.exit_status(0) == -signal.SIGKILL


def test_a_terminals_signals_do_not_reach_it() -> None:
    channel = PipeChannel(["sh", "-c", "ps -o sid= -p $$ || cut -d' ' -f6 /proc/$$/stat"], ignore)
    assert int(read_exactly(channel, 100)) != os.getsid(0)
    channel.close()


# ---- lines


def test_lines_are_split_whatever_the_pieces() -> None:
    said: list[str] = []
    splitter = LineSplitter(said.append)
    for piece in (b"one\ntw", b"o\n\n", b"\xff three", b"\r\n", b"x" * 20_000, b"y" * 10, b"\nlast"):
        splitter.feed(piece)
    splitter.end()
    assert said[:3] == ["one", "two", "� three"]
    assert (len(said[3]), said[4]) == (8192, "last")
