"""The KCM's side of `relay: files`, as operations on files: who visits, what they say, what they are told. See letters.

One round looks at one list, however many wrappers visit, and reads only what is new in it.
"""

import errno
import os
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from koalapy_adapters import layout, letters
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.kcm.relay.authentication import Admitted, Authenticator, outcome
from koalapy_adapters.kcm.state.actions import SECOND, WrapperEntered, WrapperLeft
from koalapy_adapters.letters import LetterError, Mail, Visit
from koalapy_adapters.messages import MessageError, from_json

BEAT, SILENCE = 10 * SECOND, 30 * SECOND
STRANGER = 120 * SECOND  # after which what nobody knocked for is thrown away
MAX_BACKLOG = 8 << 20  # bytes that a wrapper could not be written
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Closed(Exception):
    """The office was removed, by a newer KCM or by a purge of the shared directory."""


class Round(NamedTuple):
    """The machine's outcomes, in order; `moved`: a letter came or went."""

    outcomes: List[Any] = []
    moved: bool = False


class Place(NamedTuple):
    """The office's path, the attempts' directories by tag, and whom the KCM lets in.

    `is_dissolved`: whether this KCM itself removes all that its store has, the office too.
    """

    path: str
    directory_of: Callable[[str], str]
    authenticator: Authenticator
    is_dissolved: Callable[[], bool]


class Office:
    """One KCM's. Its methods block as long as the shared directory does; one of them at a time."""

    def __init__(self, place: Place, files: Files = DISK) -> None:
        self.path = place.path
        self._place, self._files = place, files
        self._guests: Dict[str, _Guest] = {}
        self._strangers: Dict[Visit, int] = {}  # those that have not knocked, since when
        self._left: Dict[Visit, None] = {}  # those that were here, while anything of them is
        self._beat_at = 0
        self._is_open = self._blind = False

    def open(self) -> None:
        """Raises OSError."""
        self._files.make(self._place.path)
        self._files.write(self._at(letters.ALIVE), b"")
        self._is_open = True

    def round(self, now: int, told: Sequence[Tuple[str, Any]]) -> Round:
        """Say to the wrappers, by tag, what they are told; hear them. Raises Closed.

        Nothing that happens while the shared directory is out of reach counts as anybody's silence.
        """
        if not self._is_open:
            return Round()
        for tag, message in told:
            if tag in self._guests:
                self._guests[tag].tell(message)
        try:
            mail = letters.sort(self._files.names(self._place.path))
            self._beat(now)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._is_removed():
                if self._place.is_dissolved():
                    return Round()  # koalad still waits for the answer, and no wrapper is left
                raise Closed from error
            self._blind = True
            return Round()
        if self._blind:
            self._blind = False
            for guest in self._guests.values():
                guest.heard_at = now
        outcomes = self._hear(now, mail)
        outcomes += self._see_off(now, mail)
        return Round(outcomes, self._flush() or bool(outcomes))

    def close(self) -> None:
        """Let the wrappers see that this KCM is gone."""
        letters.discard(self._at(letters.ALIVE), self._files)

    def _is_removed(self) -> bool:
        """Rather than out of reach with all that is around it, as where a file system is not mounted."""
        above, own_name = os.path.split(self.path)
        try:
            return own_name not in self._files.names(above) or letters.ALIVE not in self._files.names(self.path)
        except OSError:
            return False

    # ---- who comes

    def _hear(self, now: int, mail: Dict[Visit, Mail]) -> List[Any]:
        outcomes: List[Any] = []
        for visit, sent in mail.items():
            guest = self._guests.get(visit.tag)
            if guest is not None and guest.visit == visit:
                outcomes += self._listen(now, guest, sent)
            elif visit in self._left:
                self._throw_away(visit, sent)
            elif sent.knock:
                outcomes += self._authenticate(now, visit, sent)
            elif now - self._strangers.setdefault(visit, now) >= STRANGER:
                self._throw_away(visit, sent)
        self._left = {visit: None for visit in self._left if visit in mail}
        self._strangers = {visit: since for visit, since in self._strangers.items() if visit in mail}
        return outcomes

    def _authenticate(self, now: int, visit: Visit, sent: Mail) -> List[Any]:
        """Who is not let in learns nothing but that."""
        try:
            said = letters.read(self._at(sent.knock), self._files)
        except LetterError:
            said = []
        except OSError:
            return []  # it is being renamed, or shows late
        admitted = self._place.authenticator.admit_file(now, said)
        if admitted is None or admitted.tag != visit.tag:
            self._throw_away(visit, sent)
            other = self._place.authenticator.other_version(said[0]) if said else None
            return [other] if other is not None else []
        before = self._guests.get(visit.tag)
        if before is not None:
            self._left[before.visit] = None
        guest = self._guests[visit.tag] = _Guest(visit, admitted, self._place, self._files, now)
        return [WrapperEntered(visit.tag, admitted.clock), *self._listen(now, guest, sent)]

    def _listen(self, now: int, guest: "_Guest", sent: Mail) -> List[Any]:
        if sent.knock and sent.knock != guest.knock:
            guest.knock, guest.heard_at = sent.knock, now
        guest.missed = guest.missed + 1 if not sent.knock else 0
        try:
            said = guest.letters.take(sent.numbers)
            found = [outcome(guest.visit.tag, from_json(each)) for each in said]
        except (LetterError, MessageError):
            return self._hang_up(guest)
        if said:
            guest.heard_at = now
        return [each for each in found if each is not None]

    # ---- who goes

    def _see_off(self, now: int, mail: Dict[Visit, Mail]) -> List[Any]:
        outcomes: List[Any] = []
        for guest in list(self._guests.values()):
            if guest.visit not in mail:
                guest.missed += 1
            if guest.missed >= _SURELY:
                del self._guests[guest.visit.tag]
                self._left[guest.visit] = None
                outcomes.append(WrapperLeft(guest.visit.tag, closed=True))
            elif now - guest.heard_at >= SILENCE or guest.out.size > MAX_BACKLOG:
                outcomes += self._hang_up(guest)
        return outcomes

    def _hang_up(self, guest: "_Guest") -> List[Any]:
        """It sees that its knock is gone, and comes again."""
        del self._guests[guest.visit.tag]
        self._left[guest.visit] = None
        letters.discard(self._at(guest.knock), self._files)
        return [WrapperLeft(guest.visit.tag)]

    def _throw_away(self, visit: Visit, sent: Mail) -> None:
        names = [letters.letter(visit, number) for number in sent.numbers] + ([sent.knock] if sent.knock else [])
        for name in names:
            letters.discard(self._at(name), self._files)

    # ---- what is said

    def _flush(self) -> bool:
        """Whether anything was written. What has no room is kept, and so is all that would come after it."""
        written = False
        for guest in self._guests.values():
            try:
                written = guest.out.flush() or written
            except OSError as error:
                if error.errno in _FULL:
                    break
        return written

    def _beat(self, now: int) -> None:
        if now >= self._beat_at:
            self._files.use(self._at(letters.ALIVE))
            self._beat_at = now + BEAT

    def _at(self, name: str) -> str:
        return os.path.join(self._place.path, name)


_SURELY = 2  # lists without the knock; one may have been read while the knock was being renamed


class _Guest:
    """A wrapper that was let in."""

    def __init__(self, visit: Visit, admitted: Admitted, place: Place, files: Files, now: int) -> None:
        box = layout.inside(place.directory_of(visit.tag), "post")
        self.visit = visit
        self.out = letters.Outgoing(lambda number: os.path.join(box, letters.answer(visit, number)), files)
        self.letters = letters.Incoming(lambda number: os.path.join(place.path, letters.letter(visit, number)), files)
        self.knock = ""
        self.heard_at = now
        self.missed = 0  # lists in which its knock was not
        self.tell(admitted.welcome)

    def tell(self, message: Any) -> None:
        self.out.put(message)


def name(cluster: str, epoch: int, unique: str) -> str:
    """Of an office, in its store's directory."""
    return "post.%s.%d.%s" % (cluster, epoch, unique)


def clear(own: str, cluster: str, epoch: int, files: Files = DISK) -> None:
    """Remove the offices of this cluster's older KCMs: their wrappers see that, and look for the new one."""
    begin = "post.%s." % cluster
    try:
        for each in files.names(own):
            number = each[len(begin) :].partition(".")[0] if each.startswith(begin) else ""
            if number.isdigit() and int(number) < epoch:
                _remove(os.path.join(own, each), files)
    except OSError:
        pass  # the next KCM tries again


def _remove(office: str, files: Files) -> None:
    """First of all what says that its KCM lives; a wrapper may write the rest while it is being removed."""
    letters.discard(os.path.join(office, letters.ALIVE), files)
    try:
        files.remove(office)
    except OSError:
        pass
