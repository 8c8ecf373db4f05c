"""The promise about byte streams: every byte arrives once and in order, or both ends are reset."""

from koalapy.chaos.violation import Promise, promise
from koalapy.world.streams import Stream, StreamLog


class Streams:
    """The checker of byte streams. `lost`: an end whose process died; it can report nothing any more."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log

    def read(self, stream: Stream, writer: str, data: bytes, expected: bytes) -> None:
        """Check that what was read is what was written there."""
        read = stream.ways[writer].read
        promise(data == expected, Promise.STREAMS, stream.number, "from", writer, "has other bytes at", read)

    def over(self, stream: Stream, end: str) -> None:
        """Check that an end which takes its stream for finished lacks nothing, and that the other end has all."""
        if stream.ends[end] != "finished":
            return
        for writer, way in stream.ways.items():
            whole = way.ends and way.read == way.written
            promise(
                whole, Promise.STREAMS, stream.number, "is finished with", way.read, "of", way.written, "from", writer
            )

    def quiescent(self) -> None:
        """Check that no end is open any more, and that none was reset alone before the other had everything."""
        for stream in self._log.streams.values():
            for end, state in stream.ends.items():
                promise(state != "open", Promise.STREAMS, stream.number, "is open at its end", end)
            states = stream.ends.values()
            whole = all(way.has_ended for way in stream.ways.values())
            alone = "reset" in states and "finished" in states and not whole
            promise(not alone, Promise.STREAMS, stream.number, "is reset at one end alone")
