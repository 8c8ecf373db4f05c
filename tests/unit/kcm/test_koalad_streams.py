"""The KCM's connection to koalad: frames are written whole and in order, and nothing that is sent waits for koalad."""

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest
from koalapy_adapters.frames import MAX_CHUNK, Chunk, Control, Credit, Decoder, Frame
from koalapy_adapters.kcm.koalad_streams import Reader, Writer, log


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    source, sink = os.pipe()
    yield source, sink
    for end in (source, sink):
        os.close(end)


def frames_from(source: int, most: int) -> list[Frame]:
    """Read this many frames."""
    decoder, found = Decoder(), list[Frame]()
    while len(found) < most:
        found += decoder.feed(os.read(source, 1 << 20))
    return found


def test_frames_of_many_threads_arrive_whole_and_each_threads_in_order(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    writer = Writer(sink)
    writer.start()
    sizes = [10, MAX_CHUNK, 100, 4000, 5000, MAX_CHUNK]

    def send(stream: int) -> None:
        for number in range(60):
            writer.chunk(Chunk(stream, number, bytes([number]) * sizes[(number + stream) % len(sizes)]))

    threads = [threading.Thread(target=send, args=(stream,)) for stream in range(4)]
    for thread in threads:
        thread.start()
    found = frames_from(source, 4 * 60)
    for thread in threads:
        thread.join()
    writer.close(5)
    for stream in range(4):
        chunks = [each for each in found if isinstance(each, Chunk) and each.stream == stream]
        assert [each.number for each in chunks] == list(range(60))
        assert all(each.data == bytes([each.number]) * sizes[(each.number + stream) % len(sizes)] for each in chunks)


def test_what_is_sent_to_a_koalad_that_does_not_read_waits_and_control_passes_chunks(pipe: tuple[int, int]) -> None:
    source, sink = pipe
    writer = Writer(sink)
    writer.start()
    for number in range(20):
        writer.chunk(Chunk(1, number, bytes(MAX_CHUNK)))
    writer.credit(2, 3)
    found = frames_from(source, 21)
    assert [each.number for each in found if isinstance(each, Chunk)] == list(range(20))
    assert found.index(Credit(2, 3)) < 5
    writer.close(5)


@pytest.mark.parametrize("end", [b"", b"?????"], ids=["closed by koalad", "no frame"])
def test_a_reader_hands_over_frames_and_then_its_end_once(pipe: tuple[int, int], end: bytes) -> None:
    source, sink = pipe
    found: list[Frame | None] = []

    async def read() -> None:
        over = asyncio.get_running_loop().create_future()

        def receive(frame: Frame | None) -> None:
            found.append(frame)
            if frame is None:
                over.set_result(None)

        reader = Reader(source, receive)
        reader.start()
        writer = Writer(sink)
        writer.start()
        writer.credit(1, 2)
        writer.chunk(Chunk(1, 0, b"x" * MAX_CHUNK))
        while len(found) < 2:
            await asyncio.sleep(0.01)
        writer.close(5)
        os.write(sink, end)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sink)  # the pipe has no writer any more
        os.close(null)
        await asyncio.wait_for(over, 20)
        reader.stop()

    asyncio.run(read())
    assert [type(each) for each in found] == [Credit, Chunk, type(None)]
    assert Control not in map(type, found)


@pytest.mark.parametrize("sentence", ["The KCM ends: its relay is full", "The KCM ends: its relay is full."])
def test_a_sentence_for_the_log_has_one_full_stop(sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    log(sentence)
    assert capsys.readouterr().err == "The KCM ends: its relay is full.\n"
