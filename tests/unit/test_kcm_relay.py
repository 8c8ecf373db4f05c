"""The relay over real sockets: when a silent wrapper is given up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from koalapy_adapters.frames import Control, encode
from koalapy_adapters.kcm.actions import WrapperEntered, WrapperLeft
from koalapy_adapters.kcm.door import Door
from koalapy_adapters.kcm.relay import Relay
from koalapy_adapters.messages import PROTOCOL, Knock, to_json

TAG, TOKEN = "kabcde00000001", "secret"
SILENCE = 0.1


def visit(still: bool, then: Callable[[asyncio.StreamWriter, "asyncio.Queue[Any]"], Awaitable[None]]) -> None:
    """A wrapper enters and says nothing more; `then` has its end of the connection, and what the machine is told."""

    async def run() -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()
        door = Door(lambda tag: TOKEN.encode(), "")
        relay = Relay(door, told.put_nowait, lambda: None, lambda tag: still, SILENCE)
        await relay.start()
        _, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(encode(Control(to_json(Knock(PROTOCOL, TAG, TOKEN, 1)))))
        assert isinstance(await told.get(), WrapperEntered)
        await then(writer, told)
        writer.close()
        relay.close()

    asyncio.run(run())


def test_one_that_is_silent_is_given_up_and_nobody_knows_whether_it_has_ended() -> None:
    async def then(writer: asyncio.StreamWriter, told: "asyncio.Queue[Any]") -> None:
        assert await told.get() == WrapperLeft(TAG, False)

    visit(False, then)


def test_one_that_is_suspended_may_be_silent_and_its_end_is_known_by_its_own_side() -> None:
    async def then(writer: asyncio.StreamWriter, told: "asyncio.Queue[Any]") -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(told.get(), 5 * SILENCE)
        writer.close()
        assert await told.get() == WrapperLeft(TAG, True)

    visit(True, then)
