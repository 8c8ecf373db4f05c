"""A KCM of the simulated world: the real session, actions and directories, over simulated files, commands and relay."""

from collections.abc import Callable
from random import Random
from typing import Any

from koalapy_adapters import layout, messages
from koalapy_adapters.batch.protocol import BatchSettings, Description
from koalapy_adapters.errors import BatchError
from koalapy_adapters.frames import Chunk
from koalapy_adapters.kcm import startup
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, failure_of
from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.relay.addresses import Addresses
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.kcm.session import KcmSession, Open, SeekAgain, Serve
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.shared_directory.errors import unusable
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.messages import kcm as kcm_messages
from koalapy_adapters.messages import koalad
from koalapy_adapters.messages.files import Stat, Store
from koalapy_adapters.messages.kcm import Done, Refused
from koalapy_adapters.streams import frame_of_json, frame_to_json

from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.agenda import ScheduledCall
from koalapy.world.cluster import dialect
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.executor import SimExecutor
from koalapy.world.cluster.file_relay import SimFileRelay, file_relay_server_of
from koalapy.world.cluster.files import SHARED, Mount
from koalapy.world.cluster.relay import SimRelay
from koalapy.world.cluster.shell import Shell
from koalapy.world.network import End, Json
from koalapy.world.processes import Process
from koalapy.world.random_streams import between

_CLEANED_UP = messages.to_json(kcm_messages.CleanedUp("", 0))["type"]
_START = Duration(50 * MILLISECOND), Duration(2 * SECOND)  # for what Hello needs


class SimKcm(Process):
    """One connection's KCM, from its Hello to its end. `end` is its side of the connection to koalad."""

    def __init__(self, environment: Environment, shell: Shell, end: End, number: int) -> None:
        super().__init__(environment.agenda, [environment.kcm_crash_point])
        self.environment, self._shell, self._end = environment, shell, end
        self.number, self.epoch, self.instance, self.last_words = number, 0, "", ""
        self._rng = environment.rng(f"kcm/{number}")
        self._skew = environment.head.skew
        self._mount = Mount(
            environment.shared, f"head.{number}", self.step, lambda: environment.head.reachable, self.pause
        )
        self._session = KcmSession(self.clock())
        self._context: _Context | None = None
        self._data = b""  # the content of a file that came with the newest message
        self._timer: ScheduledCall | None = None
        end.on_message = lambda data: self.run(lambda: self._received(data))
        end.on_closed = lambda: self.run(lambda: self.quit("koalad closed the connection"))
        self.on_death(self._died)
        self._set_timer()

    def clock(self) -> int:
        return self.agenda.now + self._skew

    @property
    def serves(self) -> bool:
        """Return whether wrappers find its relay."""
        return self.alive and self._context is not None and self._context.prerequisites.ready

    def has(self, tag: str) -> bool:
        """Return whether the wrapper of this tag is connected to its relay; unknown for a relay by files."""
        relay = self._context.relay if self._context is not None else None
        return not isinstance(relay, SimRelay) or relay.has(tag)

    def is_suspended(self, tag: str) -> bool:
        """Return whether the batch system has suspended the attempt of this tag."""
        return self._session.is_suspended(tag)

    def show_life(self) -> None:
        """As the real one does all the time, which only matters to wrappers that cannot connect."""
        if self._context is not None and self.alive:
            self.run(self._context.show_life)

    def quit(self, why: str) -> None:
        """End by itself: none of its submits reaches the batch system afterwards."""
        self.last_words = why
        if self._context is not None and self.alive:
            self._context.executor.end_submits()
            if isinstance(self._context.relay, SimFileRelay):
                self._context.relay.leave()
        self.kill()

    # ---- from koalad

    def _received(self, data: Json) -> None:
        self.step()
        self._data = data.get("data", b"")
        frame = frame_of_json(data)
        if not isinstance(frame, Chunk):
            self._perform(self._session.received(self.clock(), frame))
        elif self._session.streams.has(frame.stream):
            self._session.alive(self.clock())
            self._perform(self._session.streams.chunk(frame))

    # ---- the session

    def _open(self, hello: koalad.Hello) -> None:
        try:
            self._context = _Context(self, self.environment, self._shell, self._mount, hello)
        except BatchError as error:
            self._perform(self._session.failed(self.clock(), error))
            return
        self.epoch, self.instance = hello.epoch, hello.instance
        context = self._context
        self.after(between(self._rng, *_START), lambda: self._begin(context))

    def _begin(self, context: "_Context") -> None:
        self._welcomed(
            context,
            lambda welcome: self._session.opened(
                self.clock(), context.config, False, welcome, context.prerequisites.ready
            ),
        )

    def _seek_again(self, context: "_Context") -> None:
        self._welcomed(
            context, lambda welcome: self._session.sought(self.clock(), welcome, context.prerequisites.ready)
        )

    def _welcomed(self, context: "_Context", react: Callable[[kcm_messages.Welcome], list[Any]]) -> None:
        try:
            welcome = context.welcome()
        except BatchError as error:
            self._perform(self._session.failed(self.clock(), error))
            return
        self._perform(react(welcome))

    def happened(self, event: Any) -> None:
        """Handle the outcome of an action, or a message of the relay."""
        self.run(lambda: self._happened(event))

    def _happened(self, event: Any) -> None:
        self._perform(self._session.happened(self.clock(), event))

    def _perform(self, actions: list[Any]) -> None:
        for action in actions:
            self.step()
            self._act(action)
        self._set_timer()

    def _act(self, action: Any) -> None:
        if isinstance(action, do.Send):
            self._observe_sent(action.message)
            self._send(action.message)
            return
        if isinstance(action, do.SendChunk):
            if not self.environment.loses(action.chunk):
                self._end.send(frame_to_json(action.chunk))
            return
        if isinstance(action, do.Quit):
            self.quit(action.why)
            return
        if isinstance(action, Open):
            self._open(action.hello)
            return
        context = self._context
        assert context is not None
        if isinstance(action, Serve):
            context.files.request(action.message, self._data)
        elif isinstance(action, SeekAgain):
            self._seek_again(context)
        elif isinstance(action, do.SendToWrapper):
            if not self.environment.loses(action.message):
                context.relay.send(action.tag, action.message)
        elif isinstance(action, do.EndSubmit):
            context.executor.end_submit(action.tag)
        else:
            context.executor.perform(action)

    def _observe_sent(self, message: Any) -> None:
        if isinstance(message, kcm_messages.Event) and message.body["type"] == _CLEANED_UP:
            self.environment.observer.cleaned_up(message.body["tag"])

    def _send(self, message: Any) -> None:
        self._end.send(messages.to_json(message))

    # ---- the clock

    def _set_timer(self) -> None:
        self.agenda.cancel(self._timer)
        if self.alive:
            at = self._session.next_wakeup()
            self._timer = self.after(Duration(max(0, at - self.clock())), self._tick)

    def _tick(self) -> None:
        self._perform(self._session.tick(self.clock()))

    def _died(self) -> None:
        """The kernel closes its connections; submit commands that it started go on by themselves."""
        self._end.close()
        if self._context is not None:
            self._context.relay.close()


class _Context:
    """The resources of a simulated KCM's session. Raises BatchError for a Hello that it cannot use."""

    def __init__(self, kcm: SimKcm, environment: Environment, shell: Shell, mount: Mount, hello: koalad.Hello) -> None:
        self.config = startup.configured(hello)
        self._kcm, self._version = kcm, hello.version
        directories = Directories(SHARED, hello.instance, self.config.name, hello.epoch, mount)
        self._batch = BatchSystem(dialect, BatchSettings("someone", instance=hello.instance), runner=shell.run)
        operations = Operations(self.config, self._batch, directories, kcm.clock)
        rng = environment.rng(f"hands/{kcm.number}")
        self.executor = SimExecutor(kcm, environment, rng, operations, shell, kcm.happened)
        self._directories, self.relay = directories, self._relay(kcm, environment, directories)
        self.files = FileTransfer(kcm, environment, rng, directories, kcm._send)
        pushed = f"{SHARED}/bin/koala.pyz"
        self.prerequisites = startup.Prerequisites(
            operations, directories, lambda: pushed, self._batch.describe, hello.recall, self._open_file_relay
        )

    def _relay(self, kcm: SimKcm, environment: Environment, directories: Directories) -> SimRelay | SimFileRelay:
        accounts = Accounts(directories.token, directories.other_version)
        accepts = Authenticator(accounts, directories.address_file.secret, directories.files.unpredictable)
        if self.config.relay != "files":
            return SimRelay(kcm, environment, accepts, kcm.clock, kcm.happened, kcm.is_suspended)
        rng = environment.rng(f"post/{kcm.number}")
        return SimFileRelay(
            kcm, environment, rng, file_relay_server_of(directories, accepts, kcm.number), kcm.happened, kcm.quit
        )

    def _open_file_relay(self) -> str:
        try:
            return self.relay.open() if isinstance(self.relay, SimFileRelay) else ""
        except OSError as error:
            raise unusable(self._directories.own, error) from error

    def show_life(self) -> None:
        self._directories.address_file.show_life()

    def welcome(self) -> kcm_messages.Welcome:
        """Raises ClusterError `stale` for a KCM that was replaced."""
        error = self.prerequisites.seek(Addresses([self._kcm.environment.head.address], []), self.relay.port)
        description = self.prerequisites.description or Description("")
        memory = self.prerequisites.memory
        return startup.welcome(self._version, self._kcm.clock(), description, [], error, memory)


class FileTransfer:
    """Answers Store and Stat. `data` comes with a Store; the answer to Stat has contents in the place of sizes."""

    def __init__(
        self, kcm: Process, environment: Environment, rng: Random, directories: Directories, send: Callable[[Any], None]
    ) -> None:
        self._kcm, self._environment, self._rng, self._directories, self._send = (
            kcm,
            environment,
            rng,
            directories,
            send,
        )

    def request(self, message: Any, data: bytes) -> None:
        self._kcm.after(self._environment.file_latency(self._rng), lambda: self._answer(message, data))

    def _answer(self, message: Any, data: bytes) -> None:
        self._kcm.step()
        try:
            self._send(self._served(message, data))
        except OSError as error:
            self._send(Refused(message.id, failure_of(unusable(self._directories.own, error))))
        except BatchError as error:
            self._send(Refused(message.id, failure_of(error)))

    def _served(self, message: Any, data: bytes) -> Any:
        files = self._directories.files
        if isinstance(message, Store):
            path = layout.staged_file(self._directories.shared, self._directories.instance, message.digest)
            have = files.exists(path)
            if have:
                files.use(path)
            else:
                layout.write_whole(path, data, files=files, lasting=False)
            return Done(message.id, have)
        assert isinstance(message, Stat)
        work = layout.inside(self._directories.attempt(message.tag), "work")
        there = [path for path in message.paths if files.exists(f"{work}/{path}")]
        if len(there) < len(message.paths):
            files.names(work)  # raises OSError where nothing can be seen
        return Done(message.id, details={path: files.read(f"{work}/{path}").decode() for path in there})
