"""Messages as files, for `relay: files`: how a wrapper and its KCM speak where nodes cannot connect to their head node.

A letter is a JSON list of messages. It is renamed into place whole, under a name that nobody has looked up before: a
network file system remembers for up to a minute that a name was not there, but a directory opened anew tells the truth.

    SHARED/INSTANCE/post.CLUSTER.EPOCH.UNIQUE/    one KCM's office, which the wrappers of its cluster write to
        alive                       touched by that KCM while it lives
        TAG.VISIT.knock.BEAT        a wrapper's Knock; there while it visits, and renamed as often as it beats
        TAG.VISIT.NUMBER            its letters
    SHARED/INSTANCE/TAG/post/VISIT.NUMBER         the KCM's letters to the wrapper

A visit is what a connection is elsewhere: letters come in order, none is lost while it lasts, and after it all is said
again. Either side ends it by removing the knock, or falls silent. Beats are renames, and touches, because these need no
room on a disk that is full.
"""

import json
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters.files import Files
from koalapy_adapters.layout import write_whole
from koalapy_adapters.messages import to_json

ALIVE = "alive"
MAX_LETTER = 1 << 23  # bytes that are read; no message is as long
_FULL_LETTER = 1 << 20  # bytes of messages, after which the next letter begins
_SLOWER = 20  # what has been quiet for so many times a pause is looked at so seldom
_SHORTEST = 100000  # microseconds

_VISIT = re.compile(r"(k[0-9a-z]{14})\.([0-9a-f]{16})\.(?:(knock)\.)?([0-9]{1,18})")
_ANSWER = re.compile(r"([0-9a-f]{16})\.([0-9]{1,18})")


class LetterError(ValueError):
    """What lies there is no letter: the visit is of no use any more."""


class Visit(NamedTuple):
    """One wrapper's, from its knock on; `name` is unpredictable, 16 hexadecimal digits."""

    tag: str
    name: str


class Mail:
    """What lies in an office of one visit: the name of its knock, and the numbers of its letters."""

    def __init__(self) -> None:
        self.knock = ""
        self.numbers: List[int] = []


def knock(visit: Visit, beat: int) -> str:
    return "%s.%s.knock.%d" % (visit.tag, visit.name, beat)


def letter(visit: Visit, number: int) -> str:
    return "%s.%s.%d" % (visit.tag, visit.name, number)


def answer(visit: Visit, number: int) -> str:
    return "%s.%d" % (visit.name, number)


def sort(names: List[str]) -> Dict[Visit, Mail]:
    """An office's list, by visit; what is not yet in place, or nobody's, is left out."""
    found: Dict[Visit, Mail] = {}
    for name in sorted(names):
        match = _VISIT.fullmatch(name)
        if match is None:
            continue
        mail = found.setdefault(Visit(match.group(1), match.group(2)), Mail())
        if match.group(3):
            mail.knock = name
        else:
            mail.numbers.append(int(match.group(4)))
    return found


def answers(names: List[str], visit: Visit) -> List[int]:
    """The numbers of the letters to this visit in the list of its attempt's `post`."""
    matches = [_ANSWER.fullmatch(name) for name in names]
    return [int(match.group(2)) for match in matches if match is not None and match.group(1) == visit.name]


def read(path: str, files: Files) -> List[Any]:
    """The letter's messages, as JSON. Raises LetterError for what is none, OSError where it cannot be read now."""
    data = files.read(path)
    try:
        said = json.loads(data.decode()) if len(data) <= MAX_LETTER else None
    except ValueError as error:
        raise LetterError("%s is not a letter: %s" % (path, error)) from error
    if not isinstance(said, list):
        raise LetterError("%s is not a letter" % path)
    return said


def write(path: str, said: List[str], files: Files) -> None:
    """Messages as JSON text. Raises OSError; then it may be there all the same, and may be written again."""
    write_whole(path, ("[%s]" % ",".join(said)).encode(), files=files)


def text(message: Any) -> str:
    return json.dumps(to_json(message), separators=(",", ":"))


def pause(quiet: int, longest: int) -> int:
    """How long to wait until the next look, after nothing came or went for so long; microseconds."""
    return max(_SHORTEST, min(quiet // _SLOWER, longest))


class Outgoing:
    """One way of a visit, as its writer has it. What cannot be written is kept, and tried again."""

    def __init__(self, path_of: Callable[[int], str], files: Files) -> None:
        self._path_of, self._files = path_of, files
        self._number = 0
        self._begun: Optional[List[str]] = None  # tried under this number: it may be there, so nothing else may be
        self._waiting: List[str] = []
        self.size = 0  # bytes that wait

    def put(self, message: Any) -> None:
        said = text(message)
        self._waiting.append(said)
        self.size += len(said)

    def flush(self) -> bool:
        """Whether a letter was written. Raises OSError for the first that cannot be."""
        written = False
        while self._begun is not None or self._waiting:
            self._begun = self._begun if self._begun is not None else self._next()
            write(self._path_of(self._number), self._begun, self._files)
            self._begun, self._number, written = None, self._number + 1, True
        return written

    def _next(self) -> List[str]:
        said: List[str] = []
        while self._waiting and (not said or sum(map(len, said)) + len(self._waiting[0]) <= _FULL_LETTER):
            said.append(self._waiting.pop(0))
        self.size -= sum(map(len, said))
        return said


class Incoming:
    """One way of a visit, as its reader has it: in order, each letter once."""

    def __init__(self, path_of: Callable[[int], str], files: Files) -> None:
        self._path_of, self._files = path_of, files
        self._expected = 0

    def take(self, numbers: List[int]) -> List[Any]:
        """The messages, as JSON, of those letters that are next; they are removed. Raises LetterError.

        One that is not there or cannot be read yet is waited for; one that comes again, its writer having been told
        that it did not arrive, is passed over.
        """
        said: List[Any] = []
        for number in sorted(numbers):
            if number == self._expected:
                try:
                    said += read(self._path_of(number), self._files)
                except OSError:
                    break
                self._expected += 1
            if number < self._expected:
                discard(self._path_of(number), self._files)
        return said


def discard(path: str, files: Files) -> None:
    """Remove it if it is there; what stays goes with its directory."""
    try:
        files.unlink(path)
    except OSError:
        pass
