"""Connections of every kind over real processes: the push, what travels afterwards, and each way to fail."""

import contextlib
import getpass
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.connections import bootstrap, landing, ssh
from koalapy_adapters.connections.bootstrap import Target
from koalapy_adapters.connections.command import CommandConnection
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.pack import Packed, pack
from koalapy_adapters.connections.pipe import PipeChannel
from koalapy_adapters.connections.protocol import Channel, Connection, LineSplitter
from koalapy_adapters.connections.shell import quote_path, through_login_shell
from koalapy_adapters.connections.ssh import SshConnection
from koalapy_adapters.errors import BatchError, SiteError, TransientError


def _load(name: str) -> Any:
    """A module beside this file, which lies in no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(name + ".py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


server = _load("sshd")
PYENV = Path.home() / ".pyenv" / "versions"
needs_sshd = pytest.mark.skipif(server.SSHD is None, reason="no sshd is installed")

# Says how it was started, then gives back what it gets, and reports on standard error at the end.
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
    if server.SSHD is None:
        pytest.skip("no sshd is installed")
    running = server.Sshd(tmp_path_factory.mktemp("sshd"), ("ed25519", "ecdsa", "rsa"))
    yield running
    running.stop()


@pytest.fixture(params=["local", "command", "ssh", "openssh"])
def connection(request: pytest.FixtureRequest) -> Connection:
    """One of each kind, all to this machine."""
    if request.param == "local":
        return LocalConnection()
    if request.param == "command":
        return CommandConnection(["sh", "-c"])
    running = request.getfixturevalue("sshd")
    if request.param == "ssh":
        return ssh_to(running)
    options = [f"-oUserKnownHostsFile={running.known_hosts}", f"-oIdentityFile={running.identity}"]
    return CommandConnection(["ssh", "-F", "none", "-T", "-p", str(running.port), *options, server.HOST])


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


# ---- every connection


def test_what_is_sent_comes_back_byte_for_byte(connection: Connection, tmp_path: Path) -> None:
    sent = bytes(range(256)) * 8192  # 2 MiB, more than any buffer on the way
    with started(connection, tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED
        writer = threading.Thread(target=channel.write, args=(sent,))
        writer.start()
        assert read_exactly(channel, len(sent)) == sent
        writer.join()


def test_nothing_that_follows_the_push_is_lost(connection: Connection, tmp_path: Path) -> None:
    """What is written at once after the start, before the other side has said anything."""
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


def test_standard_error_is_heard_line_by_line(connection: Connection, tmp_path: Path) -> None:
    said: list[str] = []
    heard = threading.Event()

    def hear(line: str) -> None:
        said.append(line)
        if line == "and left":
            heard.set()

    with started(connection, tmp_path, hear) as channel:
        channel.write(b"x" * 5)
        read_exactly(channel, len(STARTED) + 5)
        reader = threading.Thread(target=lambda: read_exactly(channel, 1))
        reader.start()
        end_input(channel)
        reader.join()
        assert heard.wait(30), said
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
        reader.join(60)
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
        assert blocked.wait(60)
        channel.close()
        writer.join(60)
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
    assert channel.exit_status(30) == 41
    channel.close()


def test_no_python_is_said_so(connection: Connection, tmp_path: Path) -> None:
    error = error_of(connection, tmp_path, python="python-that-is-not-there")
    assert isinstance(error, SiteError)
    assert error.code == "no_python"
    assert "python-that-is-not-there" in error.message
    assert "`python:`" in error.advice
    assert error_of(connection, tmp_path, python="/nowhere/python3").code == "no_python"


def test_what_is_no_python_ends_the_login(connection: Connection, tmp_path: Path) -> None:
    error = error_of(connection, tmp_path, python=shutil.which("false"))
    assert isinstance(error, TransientError)
    assert error.code == "login_ended"
    assert "ended with 1" in error.message


def test_a_directory_that_cannot_be_written(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = error_of(connection, tmp_path / "file" / "koala")
    assert isinstance(error, SiteError)
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


# ---- the landing


@pytest.mark.parametrize("version", ["2.7.*", "3.6.*"])
def test_pythons_of_long_ago(tmp_path: Path, version: str) -> None:
    found = sorted(PYENV.glob(f"{version}/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} here")
    if version.startswith("2"):
        error = error_of(LocalConnection(), tmp_path, python=str(found[-1]))
        assert error.code == "python_too_old"
        assert "is Python 2.7" in error.message
    else:
        with started(LocalConnection(), tmp_path, python=str(found[-1])) as channel:
            assert read_exactly(channel, len(STARTED)) == STARTED


def test_the_landing_reads_as_python_2_would_read_it() -> None:
    """So that one too old can say so: no annotation, no f-string, nothing that came with 3."""
    source = Path(landing.__file__).read_text()
    assert " -> " not in source
    assert not [line for line in source.splitlines() if ' f"' in line or "(f'" in line or "nonlocal" in line]


def test_a_file_that_has_rotted_is_pushed_anew(tmp_path: Path) -> None:
    with started(LocalConnection(), tmp_path):
        pass
    pushed = tmp_path / "bin" / f"{ECHO.digest}.pyz"
    pushed.write_bytes(ECHO.data[:-1])
    with started(LocalConnection(), tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED
    assert pushed.read_bytes() == ECHO.data


def test_files_that_nobody_has_used_for_a_week_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    names = {name: directory / f"{hashlib.sha256(name.encode()).hexdigest()}.pyz" for name in ("old", "new", "queued")}
    for path in names.values():
        path.write_bytes(b"x")
    (directory / "of-somebody-else").write_bytes(b"x")
    long_ago = names["new"].stat().st_mtime - 8 * 86_400
    for path in (names["old"], names["queued"], directory / "of-somebody-else"):
        os.utime(path, (long_ago, long_ago))
    script = tmp_path / "abcde" / "k0" / "script"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\nexec python3 -I -S {names['queued']} wrapper\n")
    with started(LocalConnection(), tmp_path):
        pass
    left = {path.name for path in directory.iterdir()}
    assert left == {names["new"].name, names["queued"].name, f"{ECHO.digest}.pyz", "of-somebody-else"}


def test_a_file_in_use_is_used_now(tmp_path: Path) -> None:
    with started(LocalConnection(), tmp_path):
        pass
    pushed = tmp_path / "bin" / f"{ECHO.digest}.pyz"
    os.utime(pushed, (0, 0))
    with started(LocalConnection(), tmp_path):
        pass
    assert pushed.stat().st_mtime > 0


def test_a_full_file_system_is_said_so(tmp_path: Path) -> None:
    """A real one of 16 KiB, which only this process tree sees."""
    mount = "mount -t tmpfs -o size=16k tmpfs " + str(tmp_path)
    argv = ["unshare", "-Urm", "sh", "-c", f'{mount} && exec sh -c "$0"']
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user name spaces here")
    large = pack({"__main__.py": b"#" * 65_536})
    with pytest.raises(SiteError) as caught:
        bootstrap.start(CommandConnection(argv), large, target(tmp_path), ignore)
    assert caught.value.code == "directory_full"
    assert "has no room left" in caught.value.message


def test_what_arrives_damaged_is_not_kept(tmp_path: Path) -> None:
    lying = Packed("0" * 64, ECHO.data)
    with pytest.raises(TransientError) as caught:
        bootstrap.start(LocalConnection(), lying, target(tmp_path), ignore)
    assert caught.value.code == "garbled"
    assert not list((tmp_path / "bin").iterdir())


def test_the_default_directory_is_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    channel = bootstrap.start(LocalConnection(), ECHO, Target(), ignore)
    channel.close()
    assert (tmp_path / ".koala" / "bin" / f"{ECHO.digest}.pyz").exists()


def test_many_pushes_at_once_leave_one_file(tmp_path: Path) -> None:
    got: list[bytes] = []

    def push() -> None:
        with started(LocalConnection(), tmp_path) as channel:
            got.append(read_exactly(channel, len(STARTED)))

    pushes = [threading.Thread(target=push) for _ in range(4)]
    for each in pushes:
        each.start()
    for each in pushes:
        each.join()
    assert got == [STARTED] * 4
    assert len(list((tmp_path / "bin").iterdir())) == 1


# ---- login shells


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the login shell one that runs these lines first, each time."""

    def make(lines: str) -> None:
        path = tmp_path / "shell"
        path.write_text(f'#!/bin/sh\n{lines}\nexec /bin/sh "$@"\n')
        path.chmod(0o755)
        monkeypatch.setenv("SHELL", str(path))

    return make


def test_a_banner_is_skipped(tmp_path: Path, shell: Callable[[str], None]) -> None:
    shell("printf 'Welcome to the cluster.\\n%20000s' no-line-end")  # by two shells: 40 kB in all
    with started(LocalConnection(), tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_a_login_that_prints_without_end_is_refused(tmp_path: Path, shell: Callable[[str], None]) -> None:
    shell("[ $1 = -c ] || exec yes")
    error = error_of(LocalConnection(), tmp_path)
    assert isinstance(error, SiteError)
    assert error.code == "noisy_login"


def test_a_start_up_file_that_ends_the_login(tmp_path: Path, shell: Callable[[str], None]) -> None:
    shell("echo 'Logins are closed today.' >&2; exit 3")
    error = error_of(LocalConnection(), tmp_path)
    assert isinstance(error, TransientError)
    assert error.code == "login_ended"
    assert "ended with 3: Logins are closed today." in error.message


@pytest.mark.parametrize("name", ["sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "tcsh", "csh"])
def test_it_runs_under_a_login_shell(tmp_path: Path, name: str) -> None:
    """So that what the profile adds to the PATH is there: whichever shell reads the line first."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} here")
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "sbatch"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    for profile in (".profile", ".zprofile"):
        (tmp_path / profile).write_text(f'PATH="{tmp_path}/tools:$PATH"\nexport PATH\n')
    fish = tmp_path / ".config" / "fish" / "config.fish"
    fish.parent.mkdir(parents=True)
    fish.write_text(f"set -x PATH {tmp_path}/tools $PATH\n")
    environment = {"HOME": str(tmp_path), "SHELL": path, "PATH": os.environ["PATH"]}
    done = subprocess.run([path, "-c", through_login_shell("exec sbatch")], env=environment, capture_output=True)
    assert (done.stdout, done.stderr) == (b"found\n", b"")


def test_a_python_may_lie_anywhere(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s a "dir" $HOME'
    odd.mkdir()
    python = odd / "python 3"
    python.symlink_to(sys.executable)
    with started(LocalConnection(), tmp_path / "a b'c", python=str(python)) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_a_leading_tilde_stays_the_home() -> None:
    assert quote_path("~/my python") == "\"$HOME\"/'my python'"
    assert quote_path("/a b") == "'/a b'"


def test_a_shell_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/no/shell")
    error = error_of(LocalConnection(), tmp_path)
    assert (error.code, error.whose) == ("no_shell", "site")
    assert "/no/shell" in error.message


def test_local_connections_use_our_own_python() -> None:
    assert LocalConnection().python == sys.executable


# ---- commands


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    error = error_of(CommandConnection(["no-such-ssh", "-T", "fs0"]), tmp_path)
    assert (error.code, error.whose) == ("no_command", "site")
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


# ---- ssh


@needs_sshd
def test_a_host_that_refuses(sshd: Any, tmp_path: Path) -> None:
    error = error_of(ssh_to(sshd, port=server.free_port()), tmp_path)
    assert (type(error), error.code) == (TransientError, "refused")


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    error = error_of(SshConnection("no-such-host.invalid"), tmp_path)
    assert (type(error), error.code) == (TransientError, "unknown_host")
    assert "no-such-host.invalid" in error.message


def test_a_host_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a paused head node does: its kernel still takes the connection."""
    monkeypatch.setattr(ssh, "_BANNER_S", 0.5)
    with socket.create_server((server.HOST, 0)) as listener:
        error = error_of(SshConnection(server.HOST, port=listener.getsockname()[1]), tmp_path)
    assert (type(error), error.code) == (TransientError, "unreachable")


def test_a_host_that_is_no_ssh_server(tmp_path: Path) -> None:
    with socket.create_server((server.HOST, 0)) as listener:
        answering = threading.Thread(target=lambda: answer_once(listener))
        answering.start()
        error = error_of(SshConnection(server.HOST, port=listener.getsockname()[1]), tmp_path)
        answering.join()
    assert (type(error), error.code) == (TransientError, "unreachable")
    assert "does not answer as an SSH server" in error.message


def answer_once(listener: socket.socket) -> None:
    plug, _ = listener.accept()
    with plug:
        plug.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" * 200)


def test_an_unknown_host_key_is_never_trusted(sshd: Any, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    error = error_of(ssh_to(sshd, known_hosts=str(empty)), tmp_path)
    assert (type(error), error.code) == (SiteError, "unknown_host_key")
    assert "SHA256:" in error.message
    assert not empty.read_text()


def test_a_wrong_host_key_is_an_alarm(sshd: Any, tmp_path: Path) -> None:
    other = server.make_key(tmp_path / "other")
    wrong = sshd.write_known_hosts("wrong", [other])
    error = error_of(ssh_to(sshd, known_hosts=str(wrong)), tmp_path)
    assert (type(error), error.code) == (SiteError, "wrong_host_key")
    assert "another host key" in error.message


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["ed25519", "ecdsa", "rsa"])
def test_one_known_key_of_any_kind_is_enough(sshd: Any, tmp_path: Path, kind: int) -> None:
    """The server has three, and would choose another by itself."""
    known = sshd.write_known_hosts("one", [sshd.host_keys[kind]])
    with started(ssh_to(sshd, known_hosts=str(known)), tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_hashed_known_hosts(sshd: Any, tmp_path: Path) -> None:
    known = sshd.write_known_hosts("hashed", sshd.host_keys[:1], hashed=True)
    assert server.HOST not in known.read_text()
    with started(ssh_to(sshd, known_hosts=str(known)), tmp_path):
        pass


def test_a_known_host_without_its_port(sshd: Any, tmp_path: Path) -> None:
    known = sshd.write_known_hosts("portless", sshd.host_keys[:1], host=server.HOST)
    with started(ssh_to(sshd, known_hosts=str(known)), tmp_path):
        pass


def test_the_users_own_known_hosts_and_keys_are_the_default(
    sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    shutil.copy(sshd.known_hosts, tmp_path / ".ssh" / "known_hosts")
    shutil.copy(sshd.identity, tmp_path / ".ssh" / "id_ed25519")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    default = SshConnection(server.HOST, port=sshd.port)
    with started(default, tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_a_known_hosts_file_that_is_not_there(sshd: Any, tmp_path: Path) -> None:
    error = error_of(ssh_to(sshd, known_hosts=str(tmp_path / "none")), tmp_path)
    assert (type(error), error.code) == (SiteError, "no_known_hosts")


def test_a_key_that_is_not_let_in(sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    stranger = server.make_key(tmp_path / "stranger")
    error = error_of(ssh_to(sshd, identity=str(stranger)), tmp_path)
    assert (type(error), error.code) == (SiteError, "authentication")
    assert sshd.user in error.message
    assert "`identity:`" in error.advice


def test_a_user_that_does_not_exist(sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert error_of(ssh_to(sshd, user="nobody-we-know"), tmp_path).code == "authentication"


def test_an_identity_that_is_not_there(sshd: Any, tmp_path: Path) -> None:
    error = error_of(ssh_to(sshd, identity=str(tmp_path / "none")), tmp_path)
    assert (type(error), error.code) == (SiteError, "no_identity")


def test_an_identity_that_is_no_key(sshd: Any, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"\xff\x00garbage")
    error = error_of(ssh_to(sshd, identity=str(tmp_path / "garbage")), tmp_path)
    assert error.code == "no_identity"
    assert "no private key" in error.message


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real agent with nothing in it."""
    path = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        while not path.exists():
            assert process.poll() is None
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        yield path
        process.terminate()


@pytest.mark.usefixtures("agent")
def test_a_locked_key_needs_the_agent(sshd: Any, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    shutil.copy(sshd.identity, locked)
    argv = ["ssh-keygen", "-q", "-p", "-N", server.PASSPHRASE, "-P", "", "-f", str(locked)]
    subprocess.run(argv, check=True, capture_output=True)
    error = error_of(ssh_to(sshd, identity=str(locked)), tmp_path)
    assert (type(error), error.code) == (SiteError, "authentication")
    assert "passphrase" in error.message
    assert "ssh-add" in error.advice
    subprocess.run(["ssh-add", "-q", str(sshd.identity)], check=True, capture_output=True)
    with started(ssh_to(sshd, identity=str(locked)), tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_an_agent_that_has_gone(sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone.sock"))
    with started(ssh_to(sshd), tmp_path):
        pass


def test_a_server_that_starts_no_command(sshd: Any, tmp_path: Path) -> None:
    limited = server.Sshd(tmp_path / "limited")
    try:
        config = tmp_path / "limited" / "config"
        limited.stop()
        config.write_text(config.read_text() + "MaxSessions 0\n")
        limited.start()
        error = error_of(ssh_to(limited), tmp_path)
    finally:
        limited.stop()
    assert (type(error), error.code) == (TransientError, "no_channel")


def test_the_user_is_the_persons_own_by_default(sshd: Any) -> None:
    assert SshConnection(server.HOST)._user == getpass.getuser()
    assert (SshConnection("fs0").where, SshConnection("fs0", port=2222).where) == ("fs0", "fs0:2222")


def test_paramiko_prints_nothing(sshd: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    error_of(ssh_to(sshd, identity=str(server.make_key(tmp_path / "stranger"))), tmp_path)
    assert capfd.readouterr().err == ""


# ---- lines


def test_lines_are_split_whatever_the_pieces() -> None:
    said: list[str] = []
    splitter = LineSplitter(said.append)
    for piece in (b"one\ntw", b"o\n\n", b"\xff three", b"\r\n", b"x" * 20_000, b"y" * 10, b"\nlast"):
        splitter.feed(piece)
    splitter.end()
    assert said[:3] == ["one", "two", "� three"]
    assert (len(said[3]), said[4]) == (8192, "last")
