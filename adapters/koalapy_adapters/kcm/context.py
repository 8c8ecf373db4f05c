"""The resources of a KCM session: shared directory, relay and batch system; made at Hello, repaired while it lasts."""

import asyncio
import os
from typing import Any, Callable, List, Optional, Union

from koalapy_adapters.batch.protocol import Description
from koalapy_adapters.clock import now
from koalapy_adapters.errors import BatchError, ClusterError
from koalapy_adapters.files import DISK
from koalapy_adapters.host import speed
from koalapy_adapters.host.mpirun import flavours
from koalapy_adapters.kcm import startup
from koalapy_adapters.kcm.attempts.machine import ALLOCATION
from koalapy_adapters.kcm.confinement import Confinement
from koalapy_adapters.kcm.execution import job_spec
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, load
from koalapy_adapters.kcm.execution.drmaa.client import DrmaaSessions
from koalapy_adapters.kcm.execution.drmaa.helper import find_library
from koalapy_adapters.kcm.execution.executor import ActionExecutor
from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.execution.queue_requests import watch
from koalapy_adapters.kcm.execution.threads import in_thread
from koalapy_adapters.kcm.file_requests import Staging
from koalapy_adapters.kcm.koalad_streams import Writer
from koalapy_adapters.kcm.relay import addresses, file_relay
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.kcm.relay.file_relay import FileRelay, FileRelayServer
from koalapy_adapters.kcm.relay.tcp import Relay
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.shared_directory.cluster_files import python_shim, write_python_shim
from koalapy_adapters.kcm.shared_directory.errors import unusable
from koalapy_adapters.kcm.shared_directory.pushed_files import PushedFiles
from koalapy_adapters.kcm.state.actions import Woken
from koalapy_adapters.messages.kcm import Welcome
from koalapy_adapters.messages.koalad import ClusterConfig, Hello

FILES = "files"  # a value of `relay`
LOCAL = "local"  # the batch system whose compute node is the head node


class KcmContext:
    """Raises BatchError for a Hello that nothing can be made of: another protocol, batch system or set of fields."""

    def __init__(
        self,
        hello: Hello,
        pushed: str,
        writer: Writer,
        notify: Callable[[Any], None],
        has_ended: Callable[[str], bool],
        is_suspended: Callable[[str], bool],
        lease: Optional[Confinement] = None,
    ) -> None:
        asked = startup.configured(hello)
        if lease is not None:
            asked = lease.configured(asked, hello.instance)
        self._version, self._pushed = hello.version, os.path.abspath(pushed)
        shared = os.path.expanduser(asked.shared or "~/.koala")
        self._shim = python_shim(asked, shared)
        self.config = asked if self._shim is None else asked._replace(python=self._shim.path)
        self._directories = Directories(shared, hello.instance, self.config.name, hello.epoch)
        accounts = Accounts(self._directories.token, self._directories.other_version)
        self._authenticator = Authenticator(accounts, self._directories.address_file.secret, DISK.unpredictable)
        dialect = load(self.config.batch)
        cluster = job_spec.batch_settings(self.config, shared, self._pushed, hello.instance)
        self._drmaa = _drmaa(self.config, dialect, cluster.command, notify)
        self.batch = BatchSystem(dialect, cluster, self._drmaa, keeps=True)
        if getattr(dialect, "HAS_QUEUE_SERVER", False):
            place, slots = os.path.join(shared, dialect.DIRECTORY), dialect.own_slots(cluster)
            watch(place, slots, _posted(lambda: notify(Woken())))
        operations = Operations(self.config, self.batch, self._directories, now)
        self.executor = ActionExecutor(operations)
        self._server = self._file_relay_server() if self.config.relay == FILES else None
        self.relay: Union[Relay, FileRelay] = self._relay(notify, is_suspended)
        self.staging = Staging(self._directories, writer, has_ended)
        self._operations = operations
        self._pushed_files: Optional[PushedFiles] = None
        self._mpi: List[str] = []  # the flavours on this host, from the first question to the batch system on
        self._speed = 0  # of a processor of this host, in the same way
        self._prerequisites = startup.Prerequisites(
            operations, self._directories, self._push, self._describe, hello.recall, self._open_file_relay
        )

    @property
    def ready(self) -> bool:
        """Return whether attempts can be prepared and the batch system answered."""
        return self._prerequisites.ready

    async def welcome(self) -> Welcome:
        """Try what is not there yet, and report the state. Raises ClusterError `stale` for a KCM that was replaced."""
        error = await self._start_relay() or await self._seek()
        description = self._prerequisites.description or Description("")
        features = ["drmaa"] if self._drmaa is not None and self._drmaa.usable else []
        memory = self._prerequisites.memory
        return startup.welcome(self._version, now(), description, features, error, memory, self._mpi, self._speed)

    async def work(self) -> str:
        """Serve the wrappers, until that is not possible any more: why."""
        why = await self.relay.work()
        try:
            await in_thread(self._directories.address_file.check)
        except BatchError as error:
            return error.message
        return why

    def close(self) -> None:
        """Before the KCM exits."""
        self.executor.end_submits()
        self.relay.close()
        if self._drmaa is not None:
            self._drmaa.close()

    def _file_relay_server(self) -> FileRelayServer:
        name = file_relay.name(self.config.name, self._directories.epoch, os.urandom(8).hex())
        directories = self._directories
        path = os.path.join(directories.own, name)
        return FileRelayServer(
            file_relay.RelayDirectory(path, directories.attempt, self._authenticator, lambda: directories.is_dissolved)
        )

    def _relay(self, notify: Callable[[Any], None], is_suspended: Callable[[str], bool]) -> Union[Relay, FileRelay]:
        if self._server is not None:
            return FileRelay(self._server, notify, self._show_life)
        networks = addresses.Networks(self.config.relay_network)
        return Relay(self._authenticator, notify, self._show_life, is_suspended, networks.answers)

    def _open_file_relay(self) -> str:
        """Its name. Raises ClusterError where the shared directory cannot be used."""
        if self._server is None:
            return ""
        try:
            self._server.open()
        except OSError as error:
            raise unusable(self._directories.own, error) from error
        return os.path.basename(self._server.path)

    async def _start_relay(self) -> Optional[BatchError]:
        if self.relay.port:
            return None
        try:
            await self.relay.start()
        except OSError as error:
            message = "No port of the head node is free for the relay: %s." % error.strerror
            return ClusterError("no_relay", message, "See that users may listen on unprivileged ports there.")
        return None

    async def _seek(self) -> Optional[BatchError]:
        found = addresses.addresses(self.config.relay_network, loopback=self.config.batch in (LOCAL, ALLOCATION))
        return await in_thread(lambda: self._prerequisites.seek(found, self.relay.port))  # type: ignore[no-any-return]

    def _push(self) -> str:
        if self._shim is not None:
            write_python_shim(self._shim)
        path = self._directories.push(self._pushed)
        try:
            self._pushed_files = PushedFiles(path, now())
        except OSError as error:
            raise unusable(self._directories.own, error) from error
        return self._pushed_files.path

    def _show_life(self) -> None:
        """Keep what wrappers find in the shared directory as it should be. Raises nothing."""
        self._directories.address_file.show_life()
        if self._pushed_files is not None:
            self._pushed_files.keep(now())
            self._operations.pushed = self._pushed_files.path

    def _describe(self) -> Description:
        if self._drmaa is not None:
            self._drmaa.start()
        self._mpi, self._speed = flavours(os.environ), self._speed or speed.measure()
        return self.batch.describe()


def _drmaa(
    config: ClusterConfig, dialect: Any, command: List[str], notify: Callable[[Any], None]
) -> Optional[DrmaaSessions]:
    """Its news come from a thread of its own."""
    library = find_library(config.drmaa, dialect)
    if library is None:
        return None
    return DrmaaSessions([*command, "drmaa-helper"], library, _posted(notify))


def _posted(notify: Callable[..., None]) -> Callable[..., None]:
    """The same for other threads: it is called in the loop."""
    loop = asyncio.get_event_loop()

    def post_to_loop(*arguments: Any) -> None:
        try:
            loop.call_soon_threadsafe(notify, *arguments)
        except RuntimeError:
            pass  # the loop is closed

    return post_to_loop
