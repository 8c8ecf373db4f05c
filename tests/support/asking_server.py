"""An SSH server that asks, for tests: keyboard-interactive in several rounds, passwords, and what follows wrong ones.

paramiko's own server end, since a real sshd asks only what the machine's PAM has it ask (tests/grid tries that one).
"""

import getpass
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko
import sshd as server
from paramiko.common import AUTH_FAILED, AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

Rounds = list[tuple[str, list[tuple[str, bool]], list[str]]]  # instructions, prompts, and the right answers


class AskingServer:
    """Up when it is made, for whoever has the key and answers all `rounds`, or has the `password`.

    `key_first`: a key is wanted, and then the answers. `begun` counts logins that came so far as to ask.
    """

    def __init__(self, directory: Path, rounds: Rounds, password: str = "", key_first: bool = False) -> None:
        directory.mkdir(exist_ok=True)
        self.rounds, self.password, self.key_first = rounds, password, key_first
        self.user = getpass.getuser()
        self.begun = self.refused = self.logins = 0
        self.identity = server.make_key(directory / "identity")
        self.public = paramiko.PKey.from_path(self.identity).asbytes()
        host_key = server.make_key(directory / "host")
        self._host_key = paramiko.Ed25519Key(filename=str(host_key))
        self._listener = socket.create_server((server.HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.known_hosts = directory / "known_hosts"
        public = Path(f"{host_key}.pub").read_text()
        self.known_hosts.write_text(f"[{server.HOST}]:{self.port} {public}")
        self._transports: list[paramiko.Transport] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End all logins."""
        for transport in self._transports:
            transport.close()
        self._transports.clear()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plug, _ = self._listener.accept()
                transport = paramiko.Transport(plug)
                transport.add_server_key(self._host_key)
                self._transports.append(transport)
                with suppress(paramiko.SSHException, EOFError):
                    transport.start_server(threading.Event(), _Server(self))


class _Server(paramiko.ServerInterface):
    """One login."""

    def __init__(self, owner: AskingServer) -> None:
        self._owner = owner
        self._round = 0
        self._has_key = not owner.key_first

    def get_allowed_auths(self, username: str) -> str:
        if not self._has_key:
            return "publickey"
        offered = {"keyboard-interactive": self._owner.rounds, "password": self._owner.password}
        return ",".join(name for name, has in offered.items() if has)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        if self._has_key or key.asbytes() != self._owner.public:
            return AUTH_FAILED
        self._has_key = True
        return AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_password(self, username: str, password: str) -> int:
        return self._judge(bool(self._owner.password) and password == self._owner.password)

    def check_auth_interactive(self, username: str, submethods: str) -> Any:
        if not self._has_key or not self._owner.rounds:
            return AUTH_FAILED
        self._owner.begun += 1
        return self._query()

    def check_auth_interactive_response(self, responses: list[str]) -> Any:
        _, _, right = self._owner.rounds[self._round]
        self._round += 1
        if list(responses) != right:
            return self._judge(False)
        return self._query() if self._round < len(self._owner.rounds) else self._judge(True)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_serve, args=(channel, command.decode()), daemon=True).start()
        return True

    def _query(self) -> paramiko.server.InteractiveQuery:
        instructions, prompts, _ = self._owner.rounds[self._round]
        return paramiko.server.InteractiveQuery("", instructions, *prompts)

    def _judge(self, right: bool) -> int:
        self._owner.refused += not right
        self._owner.logins += right
        return AUTH_SUCCESSFUL if right else AUTH_FAILED


def _serve(channel: paramiko.Channel, command: str) -> None:
    """The command's streams over the channel, until it or the channel ends."""
    pipe = subprocess.PIPE
    with subprocess.Popen(["/bin/sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout, process.stderr
        pumps = [(lambda: out.read(65_536), channel.sendall), (lambda: err.read(65_536), channel.sendall_stderr)]
        threads = [threading.Thread(target=_pump, args=pump, daemon=True) for pump in pumps]
        for thread in threads:
            thread.start()
        _pump(lambda: channel.recv(65_536), process.stdin.write)
        process.stdin.close()
        process.wait()
        for thread in threads:
            thread.join()
        with suppress(OSError, EOFError):
            channel.send_exit_status(process.returncode)
            channel.close()


def _pump(read: Callable[[], bytes], write: Callable[[bytes], Any]) -> None:
    with suppress(OSError, EOFError):
        while data := read():
            write(data)
