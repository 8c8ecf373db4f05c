"""Messages of byte streams between koalad and a process of an attempt; koalad and the node's end send the same ones.

The bytes themselves travel in chunks (see frames): `number` is the offset of the first byte, and an empty chunk is the
end of that direction. A hop passes everything on and keeps nothing, so whatever is lost is sent again end to end.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Tuple, Type

from koalapy_adapters.messages.fields import Count, Flag, Line, Name, Tag, sized, whole

if TYPE_CHECKING:
    Port = int
    ShellCommand = str
    Data = str
else:
    Port = whole(0, 65535)
    ShellCommand = sized(1 << 16)
    Data = sized(1 << 17)


class OpenStream(NamedTuple):
    """koalad to the node of this rank of the attempt: connect the stream to this port of 127.0.0.1 there.

    Answered by StreamState, or by StreamReset. `patience`: microseconds without a sign of the other end, after which
    an end resets the stream. `command`: one of koalad's own for /bin/sh, in place of a port (then 0). The stream is its
    standard input and output; its end resets the stream with the code `exit_STATUS`, and its last lines of standard
    error as the message. `terminal`: the terminal of the process, in place of both; see wrapper.program.terminal.
    """

    tag: Tag
    stream: Count
    rank: Count
    port: Port
    patience: Count
    command: ShellCommand = ""
    terminal: Flag = False


class StreamState(NamedTuple):
    """The bytes that an end has received and consumed, as offsets; the end of the direction counts as one byte.

    `again`: send again what follows `received`. `asks`: answer with the same.
    """

    tag: Tag
    stream: Count
    received: Count
    consumed: Count
    again: Flag = False
    asks: Flag = False


class StreamReset(NamedTuple):
    """The stream has ended in both directions before its end. `code`, `message`: why."""

    tag: Tag
    stream: Count
    code: Name
    message: Line


class StreamChunk(NamedTuple):
    """A chunk, where frames do not reach: in message files, and to node agents. `data`: in base64."""

    stream: Count
    offset: Count
    data: Data


MESSAGES: Tuple[Type[Any], ...] = (OpenStream, StreamState, StreamReset, StreamChunk)
