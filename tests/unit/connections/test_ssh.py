"""SSH against a real sshd: host keys, logins, and each way to fail."""

import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import connection_ends as ends
import pytest
from koalapy_adapters.connections import ssh_route
from koalapy_adapters.connections.ssh import SshConnection
from koalapy_adapters.errors import ClusterError, TransientError

ECHO = ends.ECHO
STARTED = ends.STARTED
agent = ends.agent
error_of = ends.error_of
ignore = ends.ignore
read_exactly = ends.read_exactly
server = ends.server
ssh_to = ends.ssh_to
sshd = ends.sshd
started = ends.started
target = ends.target


# ---- ssh


def test_a_host_that_refuses(sshd: Any, tmp_path: Path) -> None:
    error = error_of(ssh_to(sshd, port=server.free_port()), tmp_path)
    assert (type(error), error.code) == (TransientError, "refused")


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    error = error_of(SshConnection("no-such-host.invalid"), tmp_path)
    assert (type(error), error.code) == (TransientError, "unknown_host")
    assert "no-such-host.invalid" in error.message


def test_a_host_that_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a paused head node does: its kernel still takes the connection."""
    monkeypatch.setattr(ssh_route, "BANNER_S", 0.5)
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
    assert (type(error), error.code) == (ClusterError, "unknown_host_key")
    assert "SHA256:" in error.message
    assert not empty.read_text()


def test_a_wrong_host_key_is_an_alarm(sshd: Any, tmp_path: Path) -> None:
    other = server.make_key(tmp_path / "other")
    wrong = sshd.write_known_hosts("wrong", [other])
    error = error_of(ssh_to(sshd, known_hosts=str(wrong)), tmp_path)
    assert (type(error), error.code) == (ClusterError, "wrong_host_key")
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


@pytest.mark.parametrize("openssh", [True, False], ids=["openssh", "paramiko"])
def test_the_users_own_known_hosts_and_keys_are_the_default(
    sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openssh: bool
) -> None:
    """OpenSSH takes the home of the user data base, which no test may write to."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    shutil.copy(sshd.known_hosts, tmp_path / ".ssh" / "known_hosts")
    shutil.copy(sshd.identity, tmp_path / ".ssh" / "id_ed25519")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    if not openssh:
        monkeypatch.setenv("PATH", "/nowhere")
    config = tmp_path / "config"
    config.write_text("UserKnownHostsFile ${HOME}/.ssh/known_hosts\n")
    default = SshConnection(server.HOST, port=sshd.port, config=str(config) if openssh else None)
    with started(default, tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED


def test_a_known_hosts_file_that_is_not_there(sshd: Any, tmp_path: Path) -> None:
    error = error_of(ssh_to(sshd, known_hosts=str(tmp_path / "none")), tmp_path)
    assert (type(error), error.code) == (ClusterError, "no_known_hosts")


def test_a_key_that_is_not_let_in(sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    stranger = server.make_key(tmp_path / "stranger")
    error = error_of(ssh_to(sshd, identity=str(stranger)), tmp_path)
    assert (type(error), error.code) == (ClusterError, "authentication")
    assert sshd.user in error.message
    assert "`identity:`" in error.advice


def test_a_user_that_does_not_exist(sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert error_of(ssh_to(sshd, user="nobody-we-know"), tmp_path).code == "authentication"


def test_an_identity_that_is_not_there(sshd: Any, tmp_path: Path) -> None:
    error = error_of(ssh_to(sshd, identity=str(tmp_path / "none")), tmp_path)
    assert (type(error), error.code) == (ClusterError, "no_identity")


def test_an_identity_that_is_no_key(sshd: Any, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"\xff\x00garbage")
    error = error_of(ssh_to(sshd, identity=str(tmp_path / "garbage")), tmp_path)
    assert error.code == "no_identity"
    assert "no private key" in error.message


@pytest.mark.usefixtures("agent")
def test_a_locked_key_needs_the_agent(sshd: Any, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    shutil.copy(sshd.identity, locked)
    argv = ["ssh-keygen", "-q", "-p", "-N", server.PASSPHRASE, "-P", "", "-f", str(locked)]
    subprocess.run(argv, check=True, capture_output=True)
    error = error_of(ssh_to(sshd, identity=str(locked)), tmp_path)
    assert (type(error), error.code) == (ClusterError, "asks")
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


def test_a_host_is_called_as_the_grid_file_does() -> None:
    assert (SshConnection("fs0").where, SshConnection("fs0", port=2222).where) == ("fs0", "fs0:2222")


def test_paramiko_prints_nothing(sshd: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    error_of(ssh_to(sshd, identity=str(server.make_key(tmp_path / "stranger"))), tmp_path)
    assert capfd.readouterr().err == ""
