"""A KCM whose host has slept ends before it handles any message or timer."""

import asyncio
import os

import pytest
from koalapy_adapters.clock import SECOND, SleepWatch
from koalapy_adapters.frames import Control, Decoder, encode
from koalapy_adapters.kcm.koalad_streams import Streams
from koalapy_adapters.kcm.loop import Kcm
from koalapy_adapters.messages import from_json, to_json
from koalapy_adapters.messages.kcm import Pong
from koalapy_adapters.messages.koalad import Ping

PING = encode(Control(to_json(Ping(1, 0))))


def test_a_kcm_answers_before_its_host_sleeps_and_ends_at_the_first_message_after_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    slept = [0]
    from_koalad, to_kcm = os.pipe()
    from_kcm, to_koalad = os.pipe()

    def ping_twice() -> bytes:
        os.write(to_kcm, PING)
        answer = os.read(from_kcm, 1 << 16)
        slept[0] = 3600 * SECOND
        os.write(to_kcm, PING)
        return answer

    async def live() -> tuple[int, bytes]:
        kcm = Kcm(Streams(from_koalad, to_koalad), "koala.pyz", SleepWatch(lambda: slept[0]))
        running = asyncio.ensure_future(kcm.run())
        answer = await asyncio.get_running_loop().run_in_executor(None, ping_twice)
        return await running, answer

    status, answer = asyncio.run(live())
    (frame,) = Decoder().feed(answer)
    assert isinstance(frame, Control)
    assert isinstance(from_json(frame.data), Pong)
    assert status == 0
    assert "The KCM ends: its host slept for 3600 s." in capfd.readouterr().err
    os.close(to_kcm)
    os.close(to_koalad)
    assert os.read(from_kcm, 1 << 16) == b"", "the second ping was answered"
