"""The streams that pass through a KCM: which attempt each of them belongs to. Nothing else of them is kept here."""

import collections
from typing import Any, List

from koalapy_adapters.frames import Chunk
from koalapy_adapters.kcm.state.actions import Send, SendChunk, SendToWrapper, StreamFrameReceived

_MOST = 1 << 14  # of which the oldest are forgotten first; koalad names a stream's attempt again when it resumes


class StreamRoutes:
    """Passes frames on; events in, actions out. A KCM that was started anew learns the streams from koalad."""

    def __init__(self) -> None:
        self._tags: "collections.OrderedDict[int, str]" = collections.OrderedDict()

    def has(self, stream: int) -> bool:
        """Return whether this is a byte stream to a compute node."""
        return stream in self._tags

    def from_koalad(self, frame: Any) -> List[Any]:
        """Pass a message of koalad on, and learn its stream's attempt."""
        self._tags[frame.stream] = frame.tag
        self._tags.move_to_end(frame.stream)
        if len(self._tags) > _MOST:
            self._tags.popitem(last=False)
        return [SendToWrapper(frame.tag, frame)]

    def chunk(self, chunk: Chunk) -> List[Any]:
        """Pass a chunk of koalad on."""
        return [SendToWrapper(self._tags[chunk.stream], chunk)]

    def from_wrapper(self, event: StreamFrameReceived) -> List[Any]:
        """Pass on what a wrapper sent, if the stream is its attempt's own."""
        frame = event.frame
        if self._tags.get(frame.stream) != event.tag:
            return []
        if isinstance(frame, Chunk):
            return [SendChunk(frame)]
        return [Send(frame)] if frame.tag == event.tag else []
