"""The hops of a byte stream, and what each passes on from whom; and koalad's streams over one link."""

from typing import Any

import pytest
from koalapy_adapters.frames import MAX_CHUNK, Chunk
from koalapy_adapters.kcm.state.actions import Send, SendChunk, SendToWrapper, StreamFrameReceived
from koalapy_adapters.kcm.stream_routes import StreamRoutes as KcmRoutes
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.streams import OpenStream, StreamChunk, StreamReset, StreamState
from koalapy_adapters.streams import as_frame, frame_of_json, frame_to_json
from koalapy_adapters.wrapper.stream_routes import StreamRoutes as WrapperRoutes

from koalapy.model.errors import KoalaError
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.runtime.streams import ClusterStreams

TAG, OTHER = "k00000000000001", "k00000000000002"
ATTEMPT = AttemptId(JobId(7), 0, 1)
OPENING = OpenStream(TAG, 7, 0, 8080, 60_000_000)
SHARES = {"node1": [2, 0], "node2": [0, 2], "node3": [2, 2]}


@pytest.mark.parametrize("frame", [OPENING, StreamState(TAG, 7, 1, 0, asks=True), Chunk(7, 5, b"\0\xff")])
def test_a_frame_is_the_same_after_its_way_as_json(frame: Any) -> None:
    assert frame_of_json(frame_to_json(frame)) == frame


def test_bytes_that_are_not_base64_are_refused() -> None:
    with pytest.raises(MessageError):
        as_frame(StreamChunk(7, 0, "no base64!"))


def test_a_kcm_passes_on_the_frames_of_the_attempt_that_the_stream_belongs_to() -> None:
    routes = KcmRoutes()
    assert not routes.has(7)
    assert routes.from_koalad(OPENING) == [SendToWrapper(TAG, OPENING)]
    chunk, state = Chunk(7, 0, b"x"), StreamState(TAG, 7, 0, 0)
    assert routes.chunk(chunk) == [SendToWrapper(TAG, chunk)]
    assert routes.from_wrapper(StreamFrameReceived(TAG, chunk)) == [SendChunk(chunk)]
    assert routes.from_wrapper(StreamFrameReceived(TAG, state)) == [Send(state)]
    for frame in (chunk, state, StreamState(OTHER, 7, 0, 0)):
        assert routes.from_wrapper(StreamFrameReceived(OTHER, frame)) == []
    assert routes.from_wrapper(StreamFrameReceived(TAG, StreamState(OTHER, 7, 0, 0))) == []
    assert routes.from_wrapper(StreamFrameReceived(TAG, Chunk(8, 0, b"x"))) == []


def test_a_kcm_forgets_old_streams() -> None:
    routes = KcmRoutes()
    for number in range(20_000):
        routes.from_koalad(OPENING._replace(stream=number))
    assert not routes.has(0)
    assert routes.has(19_999)


def test_a_wrapper_finds_the_node_of_a_rank() -> None:
    back: list[Any] = []
    there: list[tuple[str, Any]] = []

    def to_node(node: str, frame: Any) -> bool:
        there.append((node, frame))
        return True

    routes = WrapperRoutes(back.append, to_node)
    for rank, node in ((0, "node1"), (1, "node1"), (2, "node3"), (3, "node3")):
        opening = OPENING._replace(rank=rank, stream=rank)
        routes.from_relay(opening, SHARES)
        assert there.pop() == (node, opening)
        routes.from_node("node2", Chunk(rank, 0, b"x"))
        assert back == []
        routes.from_node(node, Chunk(rank, 0, b"x"))
        assert back.pop() == Chunk(rank, 0, b"x")
    routes.from_relay(OPENING._replace(rank=4, stream=4), SHARES)
    assert back.pop().code == "no_such_rank"
    routes.from_relay(StreamState(TAG, 9, 0, 0, asks=True), SHARES)
    assert back.pop().code == "unknown_stream"
    routes.from_relay(Chunk(9, 0, b"x"), SHARES)
    assert (there, back) == ([], [])


@pytest.fixture
def sent() -> list[Any]:
    return []


@pytest.fixture
def streams(sent: list[Any]) -> ClusterStreams:
    return ClusterStreams(Duration(MINUTE), sent.append, lambda: Instant(0))


def test_a_cluster_sends_only_for_the_streams_of_its_link(streams: ClusterStreams, sent: list[Any]) -> None:
    stream = streams.open(ATTEMPT, TAG, 0, 8080)
    number = sent.pop().stream
    streams.received(StreamState(OTHER, number, 0, 0))
    streams.received(StreamReset(OTHER, number, "closed", ""))
    streams.received(StreamState(TAG, number + 1, 0, 0))
    streams.received(Chunk(number + 1, 0, b"x"))
    assert not stream.is_open
    assert sent == []
    streams.received(StreamState(TAG, number + 1, 0, 0, asks=True))
    assert sent.pop().code == "unknown_stream"
    streams.received(StreamState(TAG, number, 0, 0))
    assert stream.is_open


def test_a_flood_of_the_cluster_resets_the_stream_and_not_the_session(streams: ClusterStreams, sent: list[Any]) -> None:
    stream = streams.open(ATTEMPT, TAG, 0, 8080)
    number = sent.pop().stream
    streams.received(StreamState(TAG, number, 0, 0))
    for count in range(100):
        streams.received(Chunk(number, count * MAX_CHUNK, bytes(MAX_CHUNK)))
    assert sent == [StreamReset(TAG, number, "broken", "The other end of the stream sent more than it may.")]
    with pytest.raises(KoalaError) as caught:
        stream.take(1)
    assert caught.value.reason.code == "stream_broken"


def test_the_end_of_a_link_resets_its_streams(streams: ClusterStreams, sent: list[Any]) -> None:
    stream = streams.open(ATTEMPT, TAG, 0, 8080)
    number = sent.pop().stream
    streams.received(StreamState(TAG, number, 0, 0))
    streams.close()
    assert [type(frame) for frame in sent] == [StreamReset]
    with pytest.raises(KoalaError) as caught:
        stream.take(1)
    assert caught.value.reason.code == "stream_link_ended"
