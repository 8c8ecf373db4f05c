"""What a KCM stands on: the shared directory, the relay, the batch system; made at Hello, mended while it lasts."""

import asyncio
import os
import platform
import socket
from typing import Any, Callable, List, Optional

from koalapy_adapters.batch.protocol import Description
from koalapy_adapters.errors import BatchError, RequestError, SiteError
from koalapy_adapters.kcm import network, recipes
from koalapy_adapters.kcm.commands import BatchSystem, failure_of, guarded, load, now
from koalapy_adapters.kcm.directories import Directories
from koalapy_adapters.kcm.drmaa import Drmaa, find_library
from koalapy_adapters.kcm.hands import Hands
from koalapy_adapters.kcm.pipes import Writer
from koalapy_adapters.kcm.relay import Relay
from koalapy_adapters.kcm.staging import Staging
from koalapy_adapters.kcm.threads import in_thread
from koalapy_adapters.messages import PROTOCOL, ClusterConfig, Hello, Welcome

LOCAL = "local"  # the batch system whose compute node is the head node


class Ground:
    """Raises BatchError for a Hello that nothing can be made of: another protocol, batch system or set of fields."""

    def __init__(
        self,
        hello: Hello,
        pushed: str,
        writer: Writer,
        tell: Callable[[Any], None],
        is_over: Callable[[str], bool],
    ) -> None:
        if hello.protocol != PROTOCOL:
            raise SiteError("protocol", "koalad speaks protocol %s, this KCM %d." % (hello.protocol, PROTOCOL))
        self.config = _config(hello)
        self._version, self._pushed = hello.version, os.path.abspath(pushed)
        shared = os.path.expanduser(self.config.shared or "~/.koala")
        self._directories = Directories(shared, hello.instance, self.config.name, hello.epoch)
        dialect = load(self.config.batch)
        site = recipes.site(self.config, shared, self._pushed)
        self._drmaa = _drmaa(self.config, site.command, tell)
        self.batch = BatchSystem(dialect, site, self._drmaa)
        self.hands = Hands(self.config, self.batch, self._directories)
        self.relay = Relay(self._directories.token, tell)
        self.staging = Staging(self._directories, writer, is_over)
        self._description: Optional[Description] = None

    @property
    def settled(self) -> bool:
        """Whether attempts can be prepared and the batch system answered."""
        return self.hands.pushed is not None and self._description is not None

    async def welcome(self) -> Welcome:
        """Try what is not there yet, and say how things stand. Raises SiteError `stale` for a KCM that was replaced."""
        error = await self._attempted(self._establish) or await self._attempted(self._describe)
        description = self._description or Description("")
        return Welcome(
            PROTOCOL,
            self._version,
            now(),
            platform.python_version(),
            socket.gethostname(),
            description.version,
            description.features + (["drmaa"] if self._drmaa is not None and self._drmaa.usable else []),
            failure_of(error) if error is not None else None,
        )

    def close(self) -> None:
        """Before the KCM exits."""
        self.hands.end_submits()
        self.relay.close()
        if self._drmaa is not None:
            self._drmaa.close()

    async def _attempted(self, attempt: Callable[[], Any]) -> Optional[BatchError]:
        try:
            await attempt()
        except SiteError as error:
            if error.code == "stale":
                raise
            return error
        except BatchError as error:
            return error
        return None

    async def _establish(self) -> None:
        if self.hands.pushed is not None:
            return
        await in_thread(self._directories.create)
        if not self.relay.port:
            await self._listen()
        addresses = network.addresses(loopback=self.config.batch == LOCAL)
        await in_thread(lambda: self._directories.publish_relay(addresses, self.relay.port))
        self.hands.pushed = await in_thread(lambda: self._directories.push(self._pushed))

    async def _listen(self) -> None:
        try:
            await self.relay.start()
        except OSError as error:
            message = "No port of the head node is free for the relay: %s." % error.strerror
            raise SiteError("no_relay", message, "See that users may listen on unprivileged ports there.") from error

    async def _describe(self) -> None:
        if self._drmaa is not None:
            await in_thread(self._drmaa.start)
        if self._description is None:
            self._description = await in_thread(lambda: guarded(self.batch.describe))


def refusal(error: Any) -> Welcome:
    """For a Hello that nothing can be made of."""
    return Welcome(PROTOCOL, "", now(), platform.python_version(), socket.gethostname(), error=error)


def _config(hello: Hello) -> ClusterConfig:
    try:
        return ClusterConfig(**hello.cluster)
    except TypeError as error:
        raise RequestError("bad_cluster", "koalad describes the cluster in words unknown here: %s." % error) from error


def _drmaa(config: ClusterConfig, command: List[str], tell: Callable[[Any], None]) -> Optional[Drmaa]:
    """Its news come from a thread of its own."""
    library = find_library(config.drmaa)
    if library is None:
        return None
    loop = asyncio.get_event_loop()

    def tell_loop(event: Any) -> None:
        try:
            loop.call_soon_threadsafe(tell, event)
        except RuntimeError:
            pass  # the loop is closed

    return Drmaa([*command, "drmaa-helper"], library, tell_loop)
