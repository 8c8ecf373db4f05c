"""Messages as files, for `relay: files`: a wrapper and its KCM use them where nodes cannot connect to their head node.

A message file is a JSON list of messages. It is renamed into place whole, under a name that nobody has looked up yet. A
network file system remembers for up to a minute that a name was not there; a directory opened anew shows the truth.

    SHARED/INSTANCE/post.CLUSTER.EPOCH.UNIQUE/    one KCM's directory, which the wrappers of its cluster write to
        alive                       touched by that KCM while it lives
        TAG.SESSION.hello.BEAT      a wrapper's hello; it exists during the session, and is renamed at each heartbeat
        TAG.SESSION.NUMBER          the wrapper's message files
    SHARED/INSTANCE/TAG/post/SESSION.NUMBER       the KCM's message files to the wrapper

A session is here what a connection is by TCP. Message files come in order, and none is lost while the session lasts.
In the next session all is sent again. Either side ends a session by removing the hello, or by silence. Heartbeats are
renames and touches, because these need no room on a full disk.
"""

import json
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters.files import Files
from koalapy_adapters.layout import write_whole
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.streams import StreamChunk
from koalapy_adapters.streams import as_message

ALIVE = "alive"
MAX_FILE = 1 << 23  # bytes that are read; no message is as long
_FULL_FILE = 1 << 20  # bytes of messages, after which the next message file begins
_FULL_OF_CHUNKS = 1 << 22  # bytes that wait, after which chunks are dropped; their ends send them again
_SLOWER = 20  # what has been quiet for so many times a pause is looked at so seldom
_SHORTEST = 100000  # microseconds

_SESSION = re.compile(r"(k[0-9a-z]{14})\.([0-9a-f]{16})\.(?:(hello|knock)\.)?([0-9]{1,18})")
_ANSWER = re.compile(r"([0-9a-f]{16})\.([0-9]{1,18})")


class MessageFileError(ValueError):
    """A file of a session is no message file: the session is of no use any more."""


class FileSession(NamedTuple):
    """One session of a wrapper, from its hello on. `name`: 16 unpredictable hexadecimal digits."""

    tag: str
    name: str


class SessionFiles:
    """The files of one session in a KCM's directory: the name of its hello, the numbers of its message files."""

    def __init__(self) -> None:
        self.hello = ""
        self.numbers: List[int] = []


def hello_name(session: FileSession, beat: int) -> str:
    """Name of the hello file in the KCM's directory. `beat`: number of heartbeats so far."""
    return "%s.%s.hello.%d" % (session.tag, session.name, beat)


def message_name(session: FileSession, number: int) -> str:
    """Name of the wrapper's message file of this number, in the KCM's directory."""
    return "%s.%s.%d" % (session.tag, session.name, number)


def reply_name(session: FileSession, number: int) -> str:
    """Name of the KCM's message file of this number, in the attempt's directory `post`."""
    return "%s.%d" % (session.name, number)


def by_session(names: List[str]) -> Dict[FileSession, SessionFiles]:
    """Sort the file names of a KCM's directory by session. Other names are left out.

    An older wrapper names its hello file `knock`; it is listed, so that the KCM can refuse it in words.
    """
    found: Dict[FileSession, SessionFiles] = {}
    for name in sorted(names):
        match = _SESSION.fullmatch(name)
        if match is None:
            continue
        files = found.setdefault(FileSession(match.group(1), match.group(2)), SessionFiles())
        if match.group(3):
            files.hello = name
        else:
            files.numbers.append(int(match.group(4)))
    return found


def reply_numbers(names: List[str], session: FileSession) -> List[int]:
    """Numbers of the message files to this session, from the file names of its attempt's directory `post`."""
    matches = [_ANSWER.fullmatch(name) for name in names]
    return [int(match.group(2)) for match in matches if match is not None and match.group(1) == session.name]


def read(path: str, files: Files) -> List[Any]:
    """Read a message file: its messages, as JSON. Raises MessageFileError for another file, OSError as open does."""
    data = files.read(path)
    try:
        messages = json.loads(data.decode()) if len(data) <= MAX_FILE else None
    except ValueError as error:
        raise MessageFileError("%s is not a message file: %s" % (path, error)) from error
    if not isinstance(messages, list):
        raise MessageFileError("%s is not a message file" % path)
    return messages


def write(path: str, messages: List[str], files: Files) -> None:
    """Write messages, each as JSON text. Raises OSError: the file may exist all the same, and may be written again."""
    write_whole(path, ("[%s]" % ",".join(messages)).encode(), files=files)


def as_text(message: Any) -> str:
    """Encode a message as JSON text."""
    return json.dumps(to_json(message), separators=(",", ":"))


def pause(quiet: int, longest: int) -> int:
    """Microseconds to wait until the next look at a directory in which nothing has changed for `quiet` microseconds."""
    return max(_SHORTEST, min(quiet // _SLOWER, longest))


class Outgoing:
    """The writer's half of one direction of a session. Messages that cannot be written are kept for the next flush."""

    def __init__(self, path_of: Callable[[int], str], files: Files) -> None:
        self._path_of, self._files = path_of, files
        self._number = 0
        self._begun: Optional[List[str]] = None  # tried under this number: it may be there, so nothing else may be
        self._waiting: List[str] = []
        self.size = 0  # bytes that wait

    def put(self, message: Any) -> None:
        """Append a message, or a chunk of a byte stream, to those that the next flush writes."""
        message = as_message(message)
        if isinstance(message, StreamChunk) and self.size > _FULL_OF_CHUNKS:
            return
        text = as_text(message)
        self._waiting.append(text)
        self.size += len(text)

    def flush(self) -> bool:
        """Write what waits; True if a message file was written. Raises OSError for the first that cannot be."""
        written = False
        while self._begun is not None or self._waiting:
            self._begun = self._begun if self._begun is not None else self._next()
            write(self._path_of(self._number), self._begun, self._files)
            self._begun, self._number, written = None, self._number + 1, True
        return written

    def _next(self) -> List[str]:
        messages: List[str] = []
        while self._waiting and (not messages or sum(map(len, messages)) + len(self._waiting[0]) <= _FULL_FILE):
            messages.append(self._waiting.pop(0))
        self.size -= sum(map(len, messages))
        return messages


class Incoming:
    """The reader's half of one direction of a session: message files in order, each once."""

    def __init__(self, path_of: Callable[[int], str], files: Files) -> None:
        self._path_of, self._files = path_of, files
        self._expected = 0

    def take(self, numbers: List[int]) -> List[Any]:
        """Read and remove the message files that are next in order; their messages, as JSON. Raises MessageFileError.

        A file that is missing or not readable yet is waited for. One that comes again is removed without being read:
        its writer was wrongly informed that it did not arrive.
        """
        messages: List[Any] = []
        for number in sorted(numbers):
            if number == self._expected:
                try:
                    messages += read(self._path_of(number), self._files)
                except OSError:
                    break
                self._expected += 1
            if number < self._expected:
                discard(self._path_of(number), self._files)
        return messages


def discard(path: str, files: Files) -> None:
    """Remove a file if it exists. If that fails, the file is removed with its directory later."""
    try:
        files.unlink(path)
    except OSError:
        pass
