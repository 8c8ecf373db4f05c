"""SSH as the person's own configuration has it, against real servers: aliases, jumps, proxies, keys, certificates."""

import contextlib
import getpass
import os
import pwd
import select
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import connection_ends as ends
import pytest
from koalapy_adapters.connections import dialling, ssh_route
from koalapy_adapters.connections.failover import FailoverConnection
from koalapy_adapters.connections.ssh import SshConnection
from koalapy_adapters.connections.ssh_config import Resolved, resolve, split_jump
from koalapy_adapters.connections.ssh_hostkeys import HostKey, known_keys, names_of
from koalapy_adapters.errors import ClusterError, TransientError

ECHO = ends.ECHO
STARTED = ends.STARTED
agent = ends.agent
error_of = ends.error_of
read_exactly = ends.read_exactly
server = ends.server
sshd = ends.sshd
ssh_to = ends.ssh_to
started = ends.started

Config = Callable[[str], str]


@pytest.fixture
def config(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Writes an ssh configuration; no agent is there but the test's own."""
    if "agent" not in request.fixturenames:
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def write(text: str) -> str:
        path = tmp_path / "ssh_config"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def gate(sshd: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A second server, with keys of its own."""
    running = server.Sshd(tmp_path_factory.mktemp("gate"))
    yield running
    running.stop()


def entry(alias: str, running: Any, *lines: str) -> str:
    """A host of the configuration that leads to the server."""
    own = [f"HostName {server.HOST}", f"Port {running.port}", f"User {running.user}"]
    own += [f"IdentityFile {running.identity}", f"UserKnownHostsFile {running.known_hosts}"]
    return "\n    ".join([f"Host {alias}", *lines, *own, ""])


def lets_in(connection: Any, directory: Path) -> bool:
    with started(connection, directory) as channel:
        return bool(read_exactly(channel, len(STARTED)) == STARTED)


def log_of(running: Any) -> str:
    return str((running.directory / "log").read_text())


# ---- the configuration


@pytest.mark.parametrize("openssh", [True, False], ids=["openssh", "paramiko"])
def test_an_alias_is_all_that_a_grid_file_needs(
    sshd: Any, tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, openssh: bool
) -> None:
    file = config(entry("fs0", sshd))
    if not openssh:
        monkeypatch.setenv("PATH", "/nowhere")
    connection = SshConnection("fs0", config=file)
    assert connection.where == "fs0"
    assert lets_in(connection, tmp_path)


def test_include_and_match_are_resolved_as_openssh_does(tmp_path: Path, config: Config) -> None:
    (tmp_path / "more").write_text("Host fs*\n    HostName %h.cluster.example\n    ConnectTimeout 7\n")
    text = f"Include {tmp_path}/more\nMatch originalhost fs0 user me\n    Port 2222\n    IdentitiesOnly yes\n"
    text += "    IdentityFile ~/.ssh/%r@%h\n    IdentityFile ${KOALA_KEYS}/second\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOALA_KEYS", "/keys")
        found = resolve("fs0", "me", file=config(text))
    assert (found.host, found.port, found.user, found.timeout_s) == ("fs0.cluster.example", 2222, "me", 7.0)
    assert found.identities_only
    assert found.identities == (os.path.expanduser("~/.ssh/me@fs0.cluster.example"), "/keys/second")


def test_what_the_grid_file_sets_goes_first(config: Config) -> None:
    file = config("Host fs0\n    User other\n    Port 2222\n    HostName real\n")
    assert resolve("fs0", "me", 22, file)[:3] == ("real", "me", 22)
    assert resolve("fs0", file=file)[:3] == ("real", "other", 2222)


def test_defaults_are_openssh_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/an/agent")
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)  # OpenSSH asks for no other
    asked = resolve("fs0", file="none")
    monkeypatch.setenv("PATH", "/nowhere")
    read = resolve("fs0", file="none")
    assert asked[:3] == read[:3] == ("fs0", getpass.getuser(), 22)
    assert set(read.known_hosts) <= set(asked.known_hosts)
    assert set(read.identities) <= set(asked.identities)
    assert asked.agent == read.agent == "/an/agent"
    assert asked.methods == read.methods == ("publickey", "keyboard-interactive", "password")
    assert asked._replace(identities=(), known_hosts=()) == read._replace(identities=(), known_hosts=())


def test_words_that_mean_none_and_no(config: Config) -> None:
    lines = ["IdentityAgent none", "ProxyJump none", "PasswordAuthentication no", "BatchMode yes", "HostKeyAlias key"]
    found = resolve("fs0", file=config("Host *\n    " + "\n    ".join(lines)))
    assert (found.agent, found.jumps, found.methods, found.alias) == (None, (), ("publickey",), "key")


@pytest.mark.parametrize("openssh", [True, False], ids=["openssh", "paramiko"])
def test_a_configuration_that_cannot_be_read_is_reported(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, openssh: bool
) -> None:
    if not openssh:
        monkeypatch.setenv("PATH", "/nowhere")
    file = config("nonsense\n")
    error = error_of(SshConnection("fs0", config=file), tmp_path)
    assert (type(error), error.code) == (ClusterError, "bad_ssh_config")
    assert "`ssh -G fs0`" in error.advice
    assert error_of(SshConnection("fs0", config=str(tmp_path / "none")), tmp_path).code == "bad_ssh_config"


@pytest.mark.parametrize(
    ("jump", "found"),
    [
        ("gate", ("gate", None, None)),
        ("me@gate:2222", ("gate", "me", 2222)),
        ("ssh://me@gate:2222/", ("gate", "me", 2222)),
        ("a@b@gate", ("gate", "a@b", None)),
        ("[fe80::1]:22", ("fe80::1", None, 22)),
        ("me@[fe80::1]", ("fe80::1", "me", None)),
        ("fe80::1", ("fe80::1", None, None)),
    ],
)
def test_jumps(jump: str, found: tuple[str, str | None, int | None]) -> None:
    assert split_jump(jump) == found


# ---- the way


def test_a_jump_host_is_logged_in_to_and_verified(sshd: Any, gate: Any, tmp_path: Path, config: Config) -> None:
    file = config(entry("gate", gate) + entry("fs0", sshd, "ProxyJump gate"))
    connection = SshConnection("fs0", config=file)
    assert lets_in(connection, tmp_path)
    assert "Accepted publickey" in log_of(gate)
    assert connection.reachable(1) is None, "what lies behind a jump host cannot be told"


def test_a_chain_of_jump_hosts(sshd: Any, gate: Any, tmp_path: Path, config: Config) -> None:
    """By OpenSSH's rule the chain replaces what the later hosts have of their own; here that would not work."""
    text = entry("first", gate) + entry("second", sshd, "ProxyJump nowhere.invalid")
    text += entry("fs0", sshd, "ProxyJump first,second")
    assert lets_in(SshConnection("fs0", config=config(text)), tmp_path)


def test_a_jump_host_whose_key_is_not_known_stops_everything(
    sshd: Any, gate: Any, tmp_path: Path, config: Config
) -> None:
    (tmp_path / "empty").touch()
    text = f"Host gate\n    UserKnownHostsFile {tmp_path}/empty\n"
    text += entry("gate", gate) + entry("fs0", sshd, "ProxyJump gate")
    error = error_of(SshConnection("fs0", config=config(text)), tmp_path)
    assert (type(error), error.code) == (ClusterError, "unknown_host_key")
    assert error.message.startswith("On the way to fs0: The host key of gate is not known")


def test_a_host_that_its_jump_host_does_not_reach(gate: Any, tmp_path: Path, config: Config) -> None:
    text = entry("gate", gate) + f"Host fs0\n    HostName {server.HOST}\n    Port {server.free_port()}\n"
    error = error_of(SshConnection("fs0", config=config(text + "    ProxyJump gate\n")), tmp_path)
    assert (type(error), error.code) == (TransientError, "unreachable")
    assert "cannot be reached from gate" in error.message


def test_jump_hosts_that_go_round_in_circles(tmp_path: Path, config: Config) -> None:
    error = error_of(SshConnection("a", config=config("Host a\nProxyJump b\nHost b\nProxyJump a\n")), tmp_path)
    assert (error.code, "circles" in error.message) == ("bad_ssh_config", True)


def test_a_proxy_command(sshd: Any, tmp_path: Path, config: Config) -> None:
    pipe = tmp_path / "pipe.py"
    pipe.write_text(PIPE)
    text = entry("fs0", sshd, f"ProxyCommand {shutil.which('python3')} {pipe} %h %p")
    with started(SshConnection("fs0", config=config(text)), tmp_path) as channel:
        assert read_exactly(channel, len(STARTED)) == STARTED
    (pid,) = (tmp_path / "pipe.py.pid").read_text().split()
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(int(pid))
        assert select.select([descriptor], [], [], 120)[0], "the command outlived its connection"
        os.close(descriptor)


PIPE = """
import os, select, socket, sys
open(__file__ + ".pid", "w").write(str(os.getpid()))
plug = socket.create_connection((sys.argv[1], int(sys.argv[2])))
ends = {0: plug.fileno(), plug.fileno(): 1}
while True:
    for end in select.select(list(ends), [], [])[0]:
        data = os.read(end, 65536)
        if not data:
            ends.pop(end)  # and stay for as long as the network does, as some netcats do
        else:
            os.write(ends[end], data)
"""


def test_a_proxy_command_that_fails(sshd: Any, tmp_path: Path, config: Config) -> None:
    said: list[str] = []
    connection = SshConnection("fs0", config=config(entry("fs0", sshd, "ProxyCommand echo no way >&2; exit 1")))
    with pytest.raises(TransientError) as caught:
        connection.open("true", said.append)
    assert caught.value.code == "unreachable"
    assert said == ["no way"]


# ---- addresses


def test_the_next_address_is_taken_where_one_refuses(sshd: Any) -> None:
    refusing = (socket.AF_INET, (server.HOST, server.free_port()))
    living = (socket.AF_INET, (server.HOST, sshd.port))
    plug, address = dialling.dial([refusing, living], 10)
    plug.close()
    assert address == living


def test_the_next_address_is_taken_where_one_is_silent(sshd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "STAGGER_S", 0.05)
    with full_listener() as silent:
        plug, address = dialling.dial([(socket.AF_INET, silent), (socket.AF_INET, (server.HOST, sshd.port))], 30)
        plug.close()
        assert address[1][1] == sshd.port
        with pytest.raises(TimeoutError):
            dialling.dial([(socket.AF_INET, silent)], 0.2)


class full_listener:
    """A port whose queue is full: connections to it are neither taken nor refused."""

    def __enter__(self) -> tuple[str, int]:
        self._listener = socket.create_server((server.HOST, 0), backlog=0)
        address: tuple[str, int] = self._listener.getsockname()
        self._fill = [socket.socket() for _ in range(8)]
        for plug in self._fill:
            plug.setblocking(False)
            plug.connect_ex(address)
        return address

    def __exit__(self, *exception: object) -> None:
        for plug in (*self._fill, self._listener):
            plug.close()


def test_nothing_but_refusals_is_a_refusal() -> None:
    with pytest.raises(ConnectionRefusedError):
        dialling.dial([(socket.AF_INET, (server.HOST, server.free_port())) for _ in range(3)], 10)


def test_a_name_of_several_addresses(sshd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first head node takes connections and hangs, as one that is paused does."""
    dial = dialling.dial

    def dialled(choice: list[Any], within_s: float) -> tuple[socket.socket, Any]:
        plug, address = dial(choice, within_s)
        monkeypatch.setattr(ssh_route, "BANNER_S", 0.5 if address == both[0] else 60.0)  # the living one has its time
        return plug, address

    with socket.create_server((server.HOST, 0)) as hanging:
        both = [(socket.AF_INET, hanging.getsockname()), (socket.AF_INET, (server.HOST, sshd.port))]
        monkeypatch.setattr(dialling, "addresses", lambda *_: list(both))
        monkeypatch.setattr(dialling, "dial", dialled)
        assert lets_in(ssh_to(sshd), tmp_path)


def test_head_nodes_that_stand_in_for_each_other(sshd: Any, gate: Any, tmp_path: Path) -> None:
    down = ssh_to(sshd, port=server.free_port())
    several = FailoverConnection([down, ssh_to(gate)])
    assert several.where == down.where
    assert lets_in(several, tmp_path)
    assert several.where == ssh_to(gate).where, "the one that worked is the first one from now on"
    assert several.reachable(120)
    gate.stop()
    assert not several.reachable(120)
    error = error_of(several, tmp_path)
    assert (type(error), error.code) == (TransientError, "refused")
    assert str(down.where) in error.message
    assert several.where in error.message


def test_a_wrong_host_key_is_not_passed_over(sshd: Any, gate: Any, tmp_path: Path) -> None:
    wrong = sshd.write_known_hosts("other", [gate.host_keys[0]])
    error = error_of(FailoverConnection([ssh_to(sshd, known_hosts=str(wrong)), ssh_to(gate)]), tmp_path)
    assert error.code == "wrong_host_key"


def test_reachable_needs_a_server_that_sends(sshd: Any, tmp_path: Path) -> None:
    connection = ssh_to(sshd)
    assert connection.reachable(1) is None
    assert lets_in(connection, tmp_path)
    assert connection.reachable(120) is True
    assert not connection.asked


# ---- keys and certificates


def test_a_key_that_is_not_the_first(sshd: Any, tmp_path: Path, config: Config) -> None:
    text = f"Host fs0\n    IdentityFile {server.make_key(tmp_path / 'stranger')}\n" + entry("fs0", sshd)
    assert lets_in(SshConnection("fs0", config=config(text)), tmp_path)


@pytest.fixture
def authority(sshd: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that trusts certificates of an authority, and no other key: (server, authority)."""
    directory = tmp_path_factory.mktemp("authority")
    key = server.make_key(directory / "authority")
    running = server.Sshd(directory / "sshd", options=[f"TrustedUserCAKeys {key}.pub", "AuthorizedKeysFile none"])
    yield running, key
    running.stop()


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_certificate_beside_its_key(authority: Any, tmp_path: Path, config: Config, kind: str) -> None:
    running, signer = authority
    mine = server.make_key(tmp_path / "mine", kind)
    connection = ssh_to(running, identity=str(mine), config="none")
    assert error_of(connection, tmp_path).code == "authentication"
    server.certify(signer, mine)
    assert lets_in(connection, tmp_path)


def test_a_certificate_that_the_configuration_names(authority: Any, tmp_path: Path, config: Config) -> None:
    running, signer = authority
    mine = server.make_key(tmp_path / "mine")
    elsewhere = server.certify(signer, mine).rename(tmp_path / "elsewhere.pub")
    file = config(f"CertificateFile {elsewhere}\n")
    assert lets_in(ssh_to(running, identity=str(mine), config=file), tmp_path)


def test_a_certificate_that_is_over(authority: Any, tmp_path: Path, config: Config) -> None:
    running, signer = authority
    mine = server.make_key(tmp_path / "mine")
    server.certify(signer, mine, "-V", "20200101:20200102")
    assert error_of(ssh_to(running, identity=str(mine), config="none"), tmp_path).code == "authentication"


def add(key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], check=True, capture_output=True)


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_certificate_in_the_agent(authority: Any, tmp_path: Path, kind: str) -> None:
    running, signer = authority
    mine = server.make_key(tmp_path / "mine", kind)
    server.certify(signer, mine)
    add(mine)
    for file in tmp_path.glob("mine*"):
        file.unlink()
    assert lets_in(ssh_to(running, identity=None, config="none"), tmp_path)


@pytest.mark.usefixtures("agent")
def test_the_named_key_of_a_full_agent_comes_first(sshd: Any, tmp_path: Path, config: Config) -> None:
    """A server takes six keys at most; the seventh would end the login."""
    for number in range(7):
        add(server.make_key(tmp_path / f"other{number}"))
    add(sshd.identity)
    assert error_of(ssh_to(sshd, identity=None, config="none"), tmp_path).code == "authentication"
    assert lets_in(ssh_to(sshd), tmp_path)
    only = config(entry("fs0", sshd, "IdentitiesOnly yes"))
    assert lets_in(SshConnection("fs0", config=only), tmp_path)


def test_an_agent_that_the_configuration_names(
    sshd: Any, tmp_path: Path, agent: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(sshd.identity)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert lets_in(ssh_to(sshd, identity=None, config=config(f"IdentityAgent {agent}\n")), tmp_path)


# ---- known hosts


def known(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "known"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


A, B = HostKey("ssh-ed25519", b"a"), HostKey("ssh-ed25519", b"b")


@pytest.mark.parametrize(
    ("pattern", "host", "port", "found"),
    [
        ("fs0", "fs0", 22, True),
        ("FS0", "fs0", 22, True),
        ("fs0", "FS0", 22, True),
        ("fs1,fs0", "fs0", 22, True),
        ("*.example", "fs0.example", 22, True),
        ("fs?", "fs0", 22, True),
        ("*,!fs0", "fs0", 22, False),
        ("[fs0]:2222", "fs0", 2222, True),
        ("[fs0]:2222", "fs0", 22, False),
        ("[f*]:2222", "fs0", 2222, True),
        ("fs0", "fs0", 2222, True),
        ("# fs0", "fs0", 22, False),
        ("@cert-authority fs0", "fs0", 22, False),
    ],
)
def test_patterns_of_known_hosts(tmp_path: Path, pattern: str, host: str, port: int, found: bool) -> None:
    files = [known(tmp_path, "garbage", f"{pattern} ssh-ed25519 YQ== a comment", "fs0 ssh-ed25519 not-base64!")]
    assert known_keys(names_of(host, port), files) == ([A] if found else [])


def test_the_name_with_its_port_goes_before_the_host_alone(tmp_path: Path) -> None:
    files = [known(tmp_path, "fs0 ssh-ed25519 YQ==", "[fs0]:2222 ssh-ed25519 Yg==")]
    assert known_keys(names_of("fs0", 2222), files) == [B]


def test_what_is_revoked_is_so_by_any_name(tmp_path: Path) -> None:
    files = [known(tmp_path, "[fs0]:2222 ssh-ed25519 Yg==", "@revoked fs0 ssh-ed25519 YQ==")]
    assert known_keys(names_of("fs0", 2222), files) == [B, A._replace(revoked=True)]


def test_a_revoked_key_is_refused(sshd: Any, tmp_path: Path) -> None:
    lines = sshd.known_hosts.read_text().splitlines()
    files = known(tmp_path, *lines, *(f"@revoked * {line.partition(' ')[2]}" for line in lines))
    error = error_of(ssh_to(sshd, known_hosts=files), tmp_path)
    assert (error.code, "revoked" in error.message) == ("wrong_host_key", True)


def test_the_alias_of_a_host_key(sshd: Any, tmp_path: Path, config: Config) -> None:
    named = sshd.write_known_hosts("aliased", sshd.host_keys, host="fs-all")
    text = f"HostKeyAlias fs-all\nUserKnownHostsFile {named}\n"
    assert lets_in(ssh_to(sshd, known_hosts=None, config=config(text)), tmp_path)


def test_a_resolved_host_is_a_value() -> None:
    assert Resolved("fs0", "me") == Resolved("fs0", "me", 22)
