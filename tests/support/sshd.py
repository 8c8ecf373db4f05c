"""A real sshd of this user's own on 127.0.0.1, with keys made for the test."""

import contextlib
import getpass
import os
import random
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import paramiko
import programs

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
PASSPHRASE = "a passphrase"


class Sshd:
    """Up when it is made. `start` again after `stop` uses the same port and keys."""

    def __init__(self, directory: Path, host_keys: tuple[str, ...] = ("ed25519",), options: Sequence[str] = ()) -> None:
        """`options`: further lines of sshd_config, which go before ours."""
        self._options = tuple(options)
        self.directory = directory
        self.user = getpass.getuser()
        self.port = free_port()
        directory.mkdir(mode=0o700, exist_ok=True)
        self.host_keys = [make_key(directory / f"host_{kind}", kind) for kind in host_keys]
        self.identity = make_key(directory / "identity")
        public = (directory / "identity.pub").read_text()
        (directory / "authorized_keys").write_text(public)
        self.known_hosts = self.write_known_hosts("known_hosts", self.host_keys)
        (directory / "config").write_text(self._config())
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where root's sshd locks up its unprivileged part
        argv = [programs.need("sshd"), "-D", "-e", "-f", str(self.directory / "config")]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._await_port()

    def stop(self) -> None:
        """The listener; logins of before go on."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def write_known_hosts(self, name: str, keys: list[Path], host: str | None = None, hashed: bool = False) -> Path:
        host = host or f"[{HOST}]:{self.port}"
        shown = paramiko.HostKeys.hash_host(host) if hashed else host
        lines = [f"{shown} {' '.join(key.with_suffix('.pub').read_text().split()[:2])}" for key in keys]
        path = self.directory / name
        path.write_text("\n".join(lines) + "\n")
        return path

    def _config(self) -> str:
        return "\n".join(
            [
                *self._options,
                f"SetEnv HOME={os.environ['HOME']}",  # see tests/conftest.py
                f"Port {self.port}",
                f"ListenAddress {HOST}",
                *(f"HostKey {key}" for key in self.host_keys),
                f"AuthorizedKeysFile {self.directory / 'authorized_keys'}",
                f"PidFile {self.directory / 'pid'}",
                "StrictModes no",
                "UsePAM no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PermitRootLogin prohibit-password",
                "",
            ]
        )

    def _await_port(self) -> None:
        assert self._process is not None
        while self._process.poll() is None:
            try:
                socket.create_connection((HOST, self.port), timeout=10).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.01)  # nothing reports when it listens
        raise AssertionError((self.directory / "log").read_text())


def certify(authority: Path, key: Path, *options: str) -> Path:
    """A certificate of the key for this user, beside it as KEY-cert.pub."""
    argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", getpass.getuser(), *options]
    subprocess.run([*argv, f"{key}.pub"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return Path(f"{key}-cert.pub")


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair, the public half beside it as PATH.pub."""
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path), "-C", "test"]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


def free_port() -> int:
    """Below those that the kernel gives to whoever asks for any, so that nobody takes it meanwhile.

    Whoever knocks there until somebody listens would even connect to itself, from such a port.
    """
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise AssertionError(f"no port of {PORTS} is free")
