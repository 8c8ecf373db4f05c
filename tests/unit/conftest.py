"""For tests of real processes: a pushed file, attempts on disk, the relay's other end; and a grid played by hand."""

import contextlib
import functools
import io
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import koalapy_adapters
import pytest
from engine_play import Play, check
from koalapy_adapters import layout, messages
from koalapy_adapters.channel import Channel
from koalapy_adapters.frames import Chunk
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.messages.kcm import PutKey
from koalapy_adapters.messages.koalad import Program, Release
from koalapy_adapters.messages.relay import RelayHello, ReportMessage, Stop

PATIENCE_S = 120.0
TOKEN = "TOKENtoken"  # every attempt's
AHEAD_US = 3_600_000_000  # the clock of a relay, of ours
TAG = "k0000000000000%s"
SOURCES = Path(koalapy_adapters.__file__).parent


@pytest.fixture
def play() -> Iterator[Play]:
    """A grid played by hand; nothing that must hold at its end may be broken."""
    game = Play()
    yield game
    check(game)


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pushed file as it is packed, with one batch system more: `nodes`, several nodes on this machine."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        main = "import sys\nfrom koalapy_adapters.__main__ import main\nsys.exit(main())\n"
        archive.writestr("__main__.py", main)
        for path in sorted(SOURCES.rglob("*.py")):
            if "connections" not in path.parts:
                archive.write(path, f"koalapy_adapters/{path.relative_to(SOURCES)}")
        archive.writestr("koalapy_adapters/batch/nodes.py", NODES)
    file = tmp_path_factory.mktemp("pushed") / "koala.pyz"
    file.write_bytes(data.getvalue())
    return file


@pytest.fixture(params=["this", "oldest"])
def interpreter(request: pytest.FixtureRequest) -> list[str]:
    """The Python that starts the pushed file: this one and, where there is one, the oldest that must do."""
    python = sys.executable if request.param == "this" else _oldest()
    if python is None:
        pytest.skip("no Python 3.6 here")
    return [python, "-I", "-S"]


def _oldest() -> str | None:
    """A real one: pyenv's stand-in on the PATH starts whichever Python it likes."""
    installed = sorted(Path(os.environ["PYENV_ROOT"]).glob("versions/3.6.*/bin/python3"))
    return str(installed[0]) if installed else shutil.which("python3.6")


@pytest.fixture
def world(tmp_path: Path, pushed: Path) -> Iterator["World"]:
    """A cluster of this machine. At the end nothing that was started in it may be left."""
    made = World(tmp_path / "shared", [sys.executable, "-I", "-S", str(pushed)])
    yield made
    made.close()


NODES = r"""
'Several nodes on one machine: the launcher is a shell that copies its input to every agent.'

import tempfile

from koalapy_adapters.batch.protocol import Host, Launch

SHELL = '''
exec 5>&1 6<&0
for node in $NODES; do mkfifo $PIPES/$node; pipes="$pipes $PIPES/$node"; done
for node in $NODES; do SLURMD_NODENAME=$node "$@" <$PIPES/$node >&5 & done
tee -p $pipes <&6 >/dev/null &
wait
'''


def batch_id(environment):
    return "17"


def hosts(environment, read):
    words = [word.split(":") for word in environment["SLURM_TEST_HOSTS"].split()]
    return [Host(name, int(processors)) for name, processors in words]


def launch(environment, names, agent):
    pipes = tempfile.mkdtemp(dir=environment["SLURM_TEST_PIPES"])
    shell = 'NODES="%s" PIPES=%s;' % (" ".join(names), pipes) + SHELL
    shell = environment.get("SLURM_TEST_LAUNCHER", shell)
    return [Launch(["/bin/bash", "-c", shell, "launcher"] + agent, list(names))]
"""


class World:
    """One shared directory, its attempts, and the relays that tests open."""

    def __init__(self, shared: Path, command: list[str]) -> None:
        self.shared = shared
        self.command = command
        self.home = shared / "home"  # whose login shell does nothing of this machine's user
        self._closing: list[Callable[[], None]] = []
        (shared / "inst").mkdir(parents=True)
        self.home.mkdir()
        self._secrets: dict[int, str] = {}  # of relays, by their ports

    def relay(self) -> "Relay":
        """A new relay, which wrappers find from now on."""
        relay = Relay(os.urandom(32).hex())
        self._closing.append(relay.close)
        self._secrets[relay.port] = relay.secret
        self.publish(relay.port)
        return relay

    def publish(self, port: int, addresses: tuple[str, ...] = ("127.0.0.1",), secret: str = "") -> None:
        data = {"addresses": addresses, "port": port, "epoch": 1, "secret": secret or self._secrets.get(port, "0" * 64)}
        layout.write_json(layout.relay_file(str(self.shared), "inst", "here"), data)

    def attempt(self, program: str | None = None, number: str = "1", batch: str = "local", **wishes: Any) -> "Attempt":
        """An attempt on disk, ready to be started; `program` is a script for sh, staged as ./program."""
        made = Attempt(self, TAG % number, batch, wishes)
        self._closing.insert(0, made.end)
        if program is not None:
            made.stage("program", "#!/bin/sh\n" + program)
        return made

    def close(self) -> None:
        for act in self._closing:
            act()


class Attempt:
    """One attempt's directory and wrapper."""

    def __init__(self, world: World, tag: str, batch: str, wishes: dict[str, Any]) -> None:
        self.world = world
        self.tag = tag
        self.token = TOKEN
        self.path = Path(layout.attempt_directory(str(world.shared), "inst", tag))
        self.wrapper: subprocess.Popen[bytes] | None = None
        self._environment = {"SLURM_TEST_HOSTS": wishes.pop("hosts", "")}
        processors = wishes.get("processors", 2)
        if batch == "local":
            self._environment = {"KOALA_ALLOCATION_HOSTS": f"here:{processors}"}
        orphan_timeout = wishes.pop("orphan_timeout", 600.0)
        for name in ("work", "output"):
            (self.path / name).mkdir(parents=True)
        self.write("token", TOKEN)
        component = {
            "tag": tag,
            "instance": "inst",
            "cluster": "here",
            "batch": batch,
            "shared": str(world.shared),
            "orphan_timeout": orphan_timeout,
            "command": world.command,
            "program": dict(_program(**wishes)._asdict()),
        }
        self.write("component.json", json.dumps(component))

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.path / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def stage(self, name: str, text: str, mode: int = 0o700) -> Path:
        return self.write(f"work/{name}", text, mode)

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        """Start its wrapper, as a batch system would."""
        pipes = self.path.parent.parent / f"pipes-{self.tag}"
        pipes.mkdir(exist_ok=True)
        base = {"PATH": os.environ["PATH"], "HOME": str(self.world.home), "SLURM_TEST_PIPES": str(pipes)}
        with open(self.path / "batch.out", "ab") as output:
            self.wrapper = subprocess.Popen(
                [*self.world.command, "wrapper", str(self.path)],
                env={**base, **self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self.wrapper

    def wait(self) -> int:
        """The wrapper's exit status."""
        assert self.wrapper is not None
        return self.wrapper.wait(PATIENCE_S)

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "record.json").read_text()))

    def output(self, rank: int, kind: str = "out") -> str:
        return (self.path / "output" / f"{rank}.{kind}").read_text()

    def words(self) -> str:
        """Return the wrapper's own messages."""
        return (self.path / "batch.out").read_text()

    def children(self) -> list[int]:
        """The wrapper's: its agent first."""
        assert self.wrapper is not None
        return [
            int(pid) for pid in Path(f"/proc/{self.wrapper.pid}/task/{self.wrapper.pid}/children").read_text().split()
        ]

    def end(self) -> None:
        if self.wrapper is not None and self.wrapper.poll() is None:
            os.killpg(self.wrapper.pid, signal.SIGKILL)
            self.wrapper.wait()
        for pid in processes_with(str(self.path).encode()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Relay:
    """The KCM's end of the relay: lets wrappers in, and collects their messages."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        accounts = Accounts(lambda tag: TOKEN.encode())
        self._authenticator = Authenticator(accounts, secret, lambda size: os.urandom(size).hex())
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.hellos: queue.Queue[RelayHello] = queue.Queue()  # of those that were let in
        self.said: dict[str, list[Any]] = {}
        self._changed = threading.Condition()
        self._guests: dict[str, tuple[socket.socket, Channel]] = {}
        self._threads: list[threading.Thread] = []
        self._peers: list[str] = []
        self._open = True
        self._run(self._accept)

    def send(self, tag: str, message: Any) -> None:
        self.send_json(tag, messages.to_json(message))

    def send_json(self, tag: str, data: Any) -> None:
        self._send(tag, lambda channel: channel.encode(data))

    def send_frame(self, tag: str, frame: Any) -> None:
        """Send a frame of a byte stream."""
        if isinstance(frame, Chunk):
            self._send(tag, lambda channel: channel.encode_chunk(frame))
        else:
            self.send(tag, frame)

    def send_bytes(self, tag: str, data: bytes) -> None:
        self._send(tag, lambda channel: data)

    def _send(self, tag: str, encode: Callable[[Channel], bytes]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: tag in self._guests, PATIENCE_S)
            connection, channel = self._guests[tag]
            connection.sendall(encode(channel))

    def release(self, attempt: Attempt, first_rank: int = 0, hosts: list[list[Any]] | None = None) -> None:
        """Wait until it is at its barrier, and let it out, by itself or with others' hosts."""
        report = self.report(attempt, "at_barrier")
        own = [[0, address, processes] for _, address, processes in report["nodes"]]
        self.send(attempt.tag, Release(1, attempt.tag, first_rank, hosts if hosts is not None else own))

    def stop(self, attempt: Attempt, force: bool = False) -> None:
        self.send(attempt.tag, Stop(force))

    def report(self, attempt: Attempt, phase: str) -> dict[str, Any]:
        """The first report of this phase, waited for."""
        return dict(
            self.await_message(
                attempt.tag, lambda said: isinstance(said, ReportMessage) and said.report["phase"] == phase
            ).report
        )

    def reports(self, attempt: Attempt) -> list[dict[str, Any]]:
        return [said.report for said in self.said.get(attempt.tag, []) if isinstance(said, ReportMessage)]

    def keys(self, attempt: Attempt) -> list[tuple[str, str]]:
        return [(said.key, said.value) for said in self.said.get(attempt.tag, []) if isinstance(said, PutKey)]

    def await_message(self, tag: str, wanted: Callable[[Any], bool]) -> Any:
        found: list[Any] = []

        def looked() -> bool:
            found[:] = [said for said in self.said.get(tag, []) if wanted(said)]
            return bool(found)

        with self._changed:
            assert self._changed.wait_for(looked, PATIENCE_S), self.said
        return found[0]

    def connect_keys(self, *attempts: Attempt) -> None:
        """Pass keys between components, as koalad does."""
        self._peers = [attempt.tag for attempt in attempts]

    def close(self) -> None:
        """Take no more wrappers, and hang up on those that are there."""
        self._open = False
        _hang_up(self._listener)
        self._listener.close()
        with self._changed:
            for guest, _ in self._guests.values():
                _hang_up(guest)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while self._open:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._run(functools.partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel()
        with connection:
            tag = self._admit(connection, channel)
            while tag and (data := _received(connection, channel)) is not None:
                self._receive(tag, data if isinstance(data, Chunk) else messages.from_json(data))

    def _admit(self, connection: socket.socket, channel: Channel) -> str:
        """The tag of the wrapper that is in now; "" for one that left."""
        hello = _received(connection, channel)
        if hello is None:
            return ""
        challenged = self._authenticator.challenge(int(time.time() * 1e6) + AHEAD_US, hello)
        assert challenged is not None
        connection.sendall(channel.encode(messages.to_json(challenged.challenge)))
        proof = _received(connection, channel)
        if proof is None:
            return ""
        admitted = self._authenticator.admit(challenged, proof)
        assert admitted is not None
        channel.secure(admitted.keys.kcm, admitted.keys.wrapper)
        with self._changed:
            connection.sendall(channel.encode(messages.to_json(admitted.welcome)))
            self._guests[admitted.tag] = connection, channel
            self._changed.notify_all()
        self.hellos.put(challenged.hello)
        return admitted.tag

    def _receive(self, tag: str, message: Any) -> None:
        with self._changed:
            self.said.setdefault(tag, []).append(message)
            self._changed.notify_all()
        if isinstance(message, PutKey):
            for peer in self._peers:
                if peer != tag:
                    self.send(peer, message)

    def _run(self, act: Callable[[], None]) -> None:
        thread = threading.Thread(target=act, daemon=True)
        self._threads.append(thread)
        thread.start()


def _received(connection: socket.socket, channel: Channel) -> Any:
    """The next message as JSON; None when the wrapper has hung up."""
    while (data := channel.take()) is None:
        try:
            read = connection.recv(1 << 16)
        except OSError:
            return None
        if not read:
            return None
        channel.feed(read)
    return data


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _program(**wishes: Any) -> Program:
    fields: dict[str, Any] = {
        "job": 7,
        "component": 0,
        "components": 1,
        "attempt": 1,
        "executable": "./program",
        "arguments": [],
        "environment": [],
        "setup": [],
        "launch": "per-processor",
        "processors": 2,
        "threads": 1,
        "walltime": 600.0,
        "barrier_timeout": 300.0,
        "grace": 5.0,
    }
    return Program(**{**fields, **wishes})


def processes_with(text: bytes) -> list[int]:
    """The processes whose environment or command line holds this text."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            seen = Path("/proc", name, "environ").read_bytes() + Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if text in seen and int(name) != os.getpid():
            found.append(int(name))
    return found


@pytest.fixture
def await_that() -> Callable[..., Any]:
    """Wait until this returns something true, and return it: for what no event reports, as another's process end."""

    def await_(look: Callable[[], Any], why: str = "") -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            seen = look()
            if seen:
                return seen
            assert time.monotonic() < deadline, why or "waited in vain"
            time.sleep(0.01)

    return await_


@pytest.fixture
def processes() -> Callable[[bytes], list[int]]:
    return processes_with
