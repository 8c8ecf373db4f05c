"""Prerequisites for preparing attempts: the shared directory, and a batch system that answers."""

import os
import platform
import socket
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from koalapy_adapters.batch.protocol import Description
from koalapy_adapters.errors import BatchError, ClusterError, RequestError
from koalapy_adapters.kcm.execution.batch_system import failure_of, guarded
from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.relay import file_relay
from koalapy_adapters.kcm.relay.addresses import Addresses
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.shared_directory.errors import Stale
from koalapy_adapters.messages import PROTOCOL
from koalapy_adapters.messages.fields import MessageError, reader
from koalapy_adapters.messages.kcm import Welcome
from koalapy_adapters.messages.koalad import ClusterConfig, Hello

_CONFIG = reader(ClusterConfig)


class Memory(NamedTuple):
    """Facts about the store that the shared directory remembers: see Welcome."""

    newest_number: int
    recalled: List[str]


class Prerequisites:
    """`push` brings the pushed file to where compute nodes see it, and `describe` asks the batch system. Blocks."""

    def __init__(
        self,
        operations: Operations,
        directories: Directories,
        push: Callable[[], str],
        describe: Callable[[], Description],
        recall: Sequence[List[str]] = (),
        open_file_relay: Callable[[], str] = lambda: "",
    ) -> None:
        """`recall`: see Hello. `open_file_relay`: for `relay: files`; the name of its directory."""
        self._operations, self._directories = operations, directories
        self._push, self._describe = push, describe
        self.description: Optional[Description] = None
        self.memory: Optional[Memory] = None
        self._recall = list(recall)
        self._open_file_relay = open_file_relay

    @property
    def ready(self) -> bool:
        """Return whether attempts can be prepared and the batch system answered."""
        return self._operations.pushed is not None and self.description is not None

    def seek(self, addresses: Addresses, port: int) -> Optional[BatchError]:
        """Try what is not there yet; why it still is not. Raises ClusterError `stale` for a KCM that was replaced."""
        error = self._attempted(lambda: self._establish(addresses, port))
        return error or self._attempted(self._ask)

    def _attempted(self, attempt: Callable[[], None]) -> Optional[BatchError]:
        try:
            attempt()
        except BatchError as error:
            if isinstance(error, ClusterError) and error.code == "stale":
                raise
            return error
        return None

    def _establish(self, addresses: Addresses, port: int) -> None:
        if self._operations.pushed is None:
            self._directories.create()
            self._directories.address_file.publish(addresses.first, port, self._open_file_relay(), addresses.last)
            file_relay.clear(
                self._directories.own, self._directories.cluster, self._directories.epoch, self._directories.files
            )
            self.memory = Memory(self._directories.watermark.newest(), self._directories.recall(self._recall))
            self._operations.pushed = self._push()

    def _ask(self) -> None:
        if self.description is None:
            self.description = guarded(self._describe)


def configured(hello: Hello) -> ClusterConfig:
    """Raises BatchError for a Hello that nothing can be made of: another protocol or set of fields."""
    if hello.protocol != PROTOCOL:
        raise ClusterError("protocol", "koalad has protocol %s, this KCM %d." % (hello.protocol, PROTOCOL))
    try:
        config: ClusterConfig = _CONFIG(hello.cluster)
    except MessageError as error:
        raise RequestError("bad_cluster", "koalad describes the cluster in words unknown here: %s." % error) from error
    return config


def welcome(
    version: str,
    clock: int,
    description: Description,
    features: List[str],
    error: Optional[BatchError],
    memory: Optional[Memory] = None,
    mpi: Sequence[str] = (),
    speed: int = 0,
) -> Welcome:
    """How things stand. `mpi`: the flavours of MPI on this host. `speed`: see host.speed."""
    wrong = failure_of(error) if error is not None else None
    reply = _welcome(version, clock, description, features, wrong)._replace(mpi=list(mpi), speed=speed)
    return reply if memory is None else reply._replace(**memory._asdict())


def refusal(error: BatchError, clock: int) -> Welcome:
    """For a Hello that nothing can be made of."""
    reply = _welcome("", clock, Description(""), [], failure_of(error))
    return reply._replace(newest_epoch=error.epoch) if isinstance(error, Stale) else reply


def _welcome(
    version: str, clock: int, description: Description, features: List[str], error: Optional[Dict[str, Any]]
) -> Welcome:
    python, host = platform.python_version(), socket.gethostname()
    reply = description.features + features
    machine = os.uname()
    return Welcome(
        PROTOCOL,
        version,
        clock,
        python,
        host,
        description.version,
        reply,
        error,
        system=machine.sysname,
        release=machine.release,
        architecture=machine.machine,
    )
