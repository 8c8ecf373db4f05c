"""The relay for clusters whose nodes cannot connect to their head node: rounds through an server of files."""

import asyncio
from typing import Any, Callable, List, Tuple

from koalapy_adapters import message_files
from koalapy_adapters.clock import now
from koalapy_adapters.kcm.execution.threads import in_a_moment, in_thread
from koalapy_adapters.kcm.relay.file_relay import FileRelayServer, RelayRemoved
from koalapy_adapters.kcm.state.actions import SECOND

LONGEST = SECOND // 2  # between two rounds
SHOW_LIFE = 5 * SECOND


class FileRelay:
    """Tells the machine what wrappers say, and them what they are told; for whom it is made, it is what `Relay` is."""

    port = 0

    def __init__(self, server: FileRelayServer, tell: Callable[[Any], None], show_life: Callable[[], None]) -> None:
        self._server, self._tell_machine, self._show_life = server, tell, show_life
        self._life_shown_at = 0
        self._told: List[Tuple[str, Any]] = []
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Nothing: the server is opened when there is a shared directory."""

    def tell(self, tag: str, message: Any) -> None:
        """Write to the wrapper of this tag, if it visits."""
        self._told.append((tag, message))
        self._wake.set()

    async def work(self) -> str:
        """Until the server is removed; why this KCM can do nothing more."""
        moved_at = now()
        while True:
            told, self._told = self._told, []
            self._wake.clear()
            try:
                done = await in_thread(lambda told=told: self._server.round(now(), told))  # type: ignore[misc]
            except RelayRemoved:
                return "the relay's directory in the shared directory was removed"
            if done.moved or told:
                moved_at = now()
            if now() - self._life_shown_at >= SHOW_LIFE:
                await in_thread(self._show_life)
                self._life_shown_at = now()
            for outcome in done.outcomes:
                self._tell_machine(outcome)
            await self._pause(message_files.pause(now() - moved_at, LONGEST))

    async def _pause(self, microseconds: int) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), microseconds / SECOND)
        except asyncio.TimeoutError:
            pass

    def close(self) -> None:
        """Before the KCM exits. A shared directory that hangs holds it up no longer than a moment."""
        in_a_moment(self._server.close)
