"""The wrapper's side of a visit to its KCM's office, as operations on files. See letters."""

from typing import Any, List, NamedTuple, Optional

from koalapy_adapters import layout, letters
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.messages import Beat

MAX_WAITING = 1 << 25  # bytes that a full disk may leave unwritten


class Exchanged(NamedTuple):
    """What came of one exchange. `sign`: the KCM lives; `sent`: something was written; `over`: so is the visit."""

    heard: List[Any] = []  # as JSON
    sign: bool = False
    sent: bool = False
    over: bool = False


class Letterbox:
    """One attempt's. Its methods block as long as the shared directory does, and raise nothing."""

    def __init__(self, attempt: str, tag: str, files: Files = DISK) -> None:
        self._box, self._tag, self._files = layout.inside(attempt, "post"), tag, files
        self._office = ""
        self._visit: Optional[letters.Visit] = None
        self._beat = 0
        self._alive = 0.0

    def knock(self, office: str, hello: List[Any]) -> bool:
        """Begin a visit to this office with these messages; whether its KCM can find them."""
        self._tidy()
        visit = letters.Visit(self._tag, self._files.unpredictable(8))
        self._office, self._visit, self._beat, self._alive = office, visit, 0, 0.0
        self._out = letters.Outgoing(lambda number: self._at(letters.letter(visit, number)), self._files)
        self._in = letters.Incoming(lambda number: layout.inside(self._box, letters.answer(visit, number)), self._files)
        try:
            self._files.make(self._box)
            letters.write(self._at(letters.knock(visit, 0)), [letters.text(message) for message in hello], self._files)
        except OSError:
            return False
        return True

    def exchange(self, messages: List[Any]) -> Exchanged:
        """Write what waits and these, and take what has come."""
        try:
            return self._exchange(messages)
        except (FileNotFoundError, letters.LetterError):
            return Exchanged(over=True)  # the KCM is gone, or has hung up
        except OSError:
            return Exchanged()  # it is tried again, until the silence has been too long

    def leave(self, messages: List[Any]) -> None:
        """Write what waits and these, and end the visit."""
        if self._visit is not None:
            self.exchange(messages)
            self._tidy()

    def _tidy(self) -> None:
        """Remove what is left of the last visit: for its KCM that is the end of it."""
        visit, self._visit = self._visit, None
        if visit is None:
            return
        letters.discard(self._at(letters.knock(visit, self._beat)), self._files)
        try:
            left = letters.answers(self._files.names(self._box), visit)
        except OSError:
            return
        for number in left:
            letters.discard(layout.inside(self._box, letters.answer(visit, number)), self._files)

    def _exchange(self, messages: List[Any]) -> Exchanged:
        assert self._visit is not None
        for message in messages:
            if not isinstance(message, Beat):
                self._out.put(message)
        sign = self._sees_life()
        if Beat() in messages:
            self._show_life(self._visit)
        sent = self._flush()
        heard = self._in.take(letters.answers(self._files.names(self._box), self._visit))
        return Exchanged(heard, sign or bool(heard), sent, self._out.size > MAX_WAITING)

    def _flush(self) -> bool:
        try:
            return self._out.flush()
        except OSError:
            if self._files.exists(self._office):
                return False  # the disk is full, or slow
            raise

    def _sees_life(self) -> bool:
        """Whether the KCM has beaten since the last look. A file that is opened is one whose times are known anew."""
        path = self._at(letters.ALIVE)
        self._files.read(path)
        before, self._alive = self._alive, self._files.modified(path)
        return self._alive != before

    def _show_life(self, visit: letters.Visit) -> None:
        self._files.rename(self._at(letters.knock(visit, self._beat)), self._at(letters.knock(visit, self._beat + 1)))
        self._beat += 1

    def _at(self, name: str) -> str:
        return layout.inside(self._office, name)
