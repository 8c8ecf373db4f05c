"""The shared directory as the KCM uses it: attempts made, inspected, made void and removed."""

import bisect
import hashlib
import json
import os
import re
import zipfile
from typing import Any, Container, Dict, List, NamedTuple, Optional, Tuple

from koalapy_adapters import layout, start_lock
from koalapy_adapters.errors import ClusterError, RequestError
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.kcm.shared_directory import stage_cache
from koalapy_adapters.kcm.shared_directory.cluster_files import RelayAddressFile, SubmitWatermark
from koalapy_adapters.kcm.shared_directory.errors import FULL, unusable
from koalapy_adapters.kcm.state.actions import DirectoryStatus, OtherVersion
from koalapy_adapters.launcher import journal
from koalapy_adapters.messages.relay import RELAY_PROTOCOL

_TAG = re.compile(r"k[0-9a-z]{14}")
_INSTANCE = re.compile(r"[0-9a-z]{1,32}")
_OF_INSTANCE = slice(1, 6)  # of a tag: the store's name
_AFTER_TAGS = "~"
_ENDED_KEPT = 7 * 86400  # seconds that a record is kept after its attempt was forgotten: for stores that were restored
_DROP_EVERY = 86400  # seconds from one look for what was kept for long enough to the next
_LAST_WORDS = 2000  # bytes of a batch job's output


class Component(NamedTuple):
    """An attempt's directory to be made: component.json, the batch script, staged files as messages.Submit has them."""

    tag: str
    data: Dict[str, Any]
    script: str
    staged: List[List[Any]]


class Directories:
    """One store's part of the shared directory; of other stores, what can be seen and cleaned up.

    Methods block and raise BatchError.
    """

    def __init__(self, shared: str, instance: str, cluster: str, epoch: int, files: Files = DISK) -> None:
        if not _INSTANCE.fullmatch(instance):
            raise RequestError("bad_instance", "%r names no store." % instance)
        self.shared, self.instance, self.cluster, self.epoch = shared, instance, cluster, epoch
        self.files = files
        self.own = layout.instance_directory(shared, instance)
        self.address_file = RelayAddressFile(layout.relay_file(shared, instance, cluster), epoch, files)
        self.watermark = SubmitWatermark(layout.watermark_file(shared, instance, cluster), files)
        self.is_dissolved = False  # by `dissolve`, from before anything is removed
        self._dropped_at = 0.0  # when old staged files and records were looked for last

    def attempt(self, tag: str) -> str:
        """The attempt's directory, in the part of the store that its tag names.

        Raises RequestError for what is no tag, so that no path leads out of the shared directory.
        """
        if not _TAG.fullmatch(tag):
            raise RequestError("bad_tag", "%r is not a tag." % tag)
        instance = self.instance if self._is_own(tag) else tag[_OF_INSTANCE]
        return layout.attempt_directory(self.shared, instance, tag)

    def create(self) -> None:
        """Make the directories that every attempt needs, and remove old files and records. Raises BatchError."""
        try:
            for path in (self.shared, os.path.join(self.shared, "bin"), self.own, self._stage(), self._ended()):
                self.files.make(path)
            self.files.allow(self.own, 0o700)  # fails in another user's, where he could change what is run
            self._drop_old()
        except OSError as error:
            raise unusable(self.shared, error) from error

    def recall(self, ranges: List[List[str]]) -> List[str]:
        """Find tags in these ranges with a directory, or the exit record of a removed one. Raises BatchError."""
        try:
            names = self.files.names(self.own)
            names += [name[: -len(".json")] for name in self.files.names(self._ended()) if name.endswith(".json")]
        except OSError as error:
            raise unusable(self.own, error) from error
        ordered = sorted((first, last) for first, last in ranges)
        return sorted({name for name in names if _TAG.fullmatch(name) and _is_in(name, ordered)})

    def push(self, pushed: str) -> str:
        """Copy the pushed file to the shared directory if it lies elsewhere; return its path. Raises BatchError."""
        try:
            if not zipfile.is_zipfile(pushed):
                raise ClusterError("not_pushed", "%s is not the file that koalapy pushes to clusters." % pushed)
            place = os.path.join(self.shared, "bin")
            if os.path.realpath(os.path.dirname(pushed)) == os.path.realpath(place):
                return pushed
            with open(pushed, "rb") as file:
                data = file.read()
            path = os.path.join(place, hashlib.sha256(data).hexdigest() + ".pyz")
            if not self.files.exists(path):
                layout.write_whole(path, data, files=self.files)
            return path
        except OSError as error:
            raise unusable(self.shared, error) from error

    def prepare(self, component: Component) -> str:
        """Make the directory of an attempt that is in no queue; return its batch script's path. Raises BatchError."""
        self.address_file.check()
        directory = self.attempt(component.tag)
        if not self._is_own(component.tag):
            raise RequestError("bad_tag", "The tag %s is another store's." % component.tag)
        try:
            for name in ("", "work", "output"):
                self.files.make(os.path.join(directory, name))
            if start_lock.held_by(directory, self.files) is not None:
                raise ClusterError("taken", "The attempt %s is claimed already." % component.tag)
            self._write(directory, "token", self.files.unpredictable(32).encode())
            self._write(directory, "component.json", json.dumps(component.data, sort_keys=True).encode())
            stage_cache.copy_to(layout.inside(directory, "work"), component.staged, self._stage(), self.files)
            return self._write_script(directory, component.script.encode())
        except (OSError, ValueError) as error:
            raise unusable(directory, error) from error

    def void(self, tag: str) -> bool:
        """Take the start lock. True: the attempt is void now; False: its wrapper has the lock. Raises BatchError.

        Nothing is made where the file system is not mounted: a wrapper could take the lock on the other disk. A KCM
        that was replaced makes nothing either: its successor may have removed the attempt for good.
        """
        directory = self.attempt(tag)
        self._see(self.own)
        self.address_file.check()
        try:
            self.files.make(directory)
            held = start_lock.take(
                directory, start_lock.StartLock(start_lock.VOID, "KCM of epoch %d" % self.epoch), self.files
            )
            return held.kind == start_lock.VOID
        except (OSError, ValueError) as error:
            raise unusable(directory, error) from error

    def inspect(self, tags: List[str]) -> Dict[str, DirectoryStatus]:
        """Return the status of these attempts' directories, of those that exist. Raises BatchError."""
        try:
            self.files.names(self.own)
        except OSError as error:
            raise unusable(self.own, error) from error
        statuses = {tag: self._status_of(tag) for tag in tags if _TAG.fullmatch(tag)}
        return {tag: status for tag, status in statuses.items() if status is not None}

    def journal(self, tag: str, numbers: Container[int]) -> Optional[List[List[Any]]]:
        """Read a Launcher's journal of these numbers; None if it left no journal. Raises BatchError."""
        directory = self.attempt(tag)
        self._see(self.own)
        try:
            if journal.NAME not in self.files.names(directory):
                return None
            return journal.read(directory, self.files, numbers)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(directory, error) from error

    def token(self, tag: str) -> Optional[bytes]:
        """The attempt's secret; None for one that does not exist, or is another store's."""
        if not _TAG.fullmatch(tag) or not self._is_own(tag):
            return None
        try:
            return self.files.read(layout.inside(self.attempt(tag), "token"))[:1024].strip()
        except OSError:
            return None

    def other_version(self, tag: str) -> Optional[OtherVersion]:
        """Return the other relay protocol of the wrapper of this attempt, by its own files; None if it uses ours.

        A program was released once there are `hosts`.
        """
        if not _TAG.fullmatch(tag) or not self._is_own(tag):
            return None
        try:
            component = layout.read_json(layout.inside(self.attempt(tag), "component.json"), self.files)
            names = self.files.names(self.attempt(tag))
        except (OSError, ValueError):
            return None
        if not isinstance(component, dict) or component.get("relay_protocol") == RELAY_PROTOCOL:
            return None
        return OtherVersion(tag, "hosts" in names)

    def remove(self, tag: str) -> None:
        """Remove the attempt's directory, if it exists and is ours; a link is removed, not followed. Raises BatchError.

        Its record stays for a while: koalad may be restored from a backup that does not know of the end. A KCM may be
        connected for a year, and whatever adds a record also drops, once a day, those that were kept for long enough.
        """
        directory = self.attempt(tag)
        try:
            self._keep_record(tag, directory)
            self.files.remove(directory)
            if self.files.clock() - self._dropped_at >= _DROP_EVERY:
                self._drop_old()
        except FileNotFoundError:
            self._see(self.own)
        except OSError as error:
            raise unusable(directory, error) from error

    def dissolve(self) -> None:
        """Remove all that the store has here. Raises RequestError while an attempt of it is left."""
        try:
            left = [name for name in self.files.names(self.own) if _TAG.fullmatch(name)]
            if left:
                raise RequestError("attempts_left", "The store still has attempts here: %s." % ", ".join(left[:5]))
            self.is_dissolved = True
            self.address_file.withdraw()
            self.files.remove(self.own)
        except FileNotFoundError:
            return
        except OSError as error:
            raise unusable(self.own, error) from error

    def tags(self) -> List[str]:
        """List the tags of all attempts of any store that have a directory here, in order. Raises BatchError."""
        try:
            return sorted(
                tag
                for instance in self.files.names(self.shared)
                if _INSTANCE.fullmatch(instance) and self.files.is_directory(os.path.join(self.shared, instance))
                for tag in self.files.names(os.path.join(self.shared, instance))
                if _TAG.fullmatch(tag) and self.attempt(tag) == os.path.join(self.shared, instance, tag)
            )
        except OSError as error:
            raise unusable(self.shared, error) from error

    def examine(self, tags: List[str]) -> Dict[str, Dict[str, Any]]:
        """Return what messages.Examine asks about these directories, of those that exist."""
        now = self.files.clock()
        seen = {tag: self._status_of(tag) for tag in tags if _TAG.fullmatch(tag)}
        return {tag: _described(status, self._age(tag, now), now) for tag, status in seen.items() if status is not None}

    def _age(self, tag: str, now: float) -> Optional[float]:
        directory = self.attempt(tag)
        try:
            return _age_s(directory, self.files, now)
        except OSError as error:
            raise unusable(directory, error) from error

    def _is_own(self, tag: str) -> bool:
        return tag.startswith("k" + self.instance)

    def _see(self, directory: str) -> None:
        """Where the file system is not mounted, nothing is there, and nothing is known of what should be.

        Not by a list, which a store with many attempts would pay for at each of them.
        """
        try:
            self.files.modified(directory)
        except OSError as error:
            raise unusable(directory, error) from error

    def _status_of(self, tag: str) -> Optional[DirectoryStatus]:
        directory = self.attempt(tag)
        try:
            return _status(directory, self.files)
        except FileNotFoundError:
            return self._former(tag)
        except OSError as error:
            raise unusable(directory, error) from error

    def _former(self, tag: str) -> Optional[DirectoryStatus]:
        """Return what is kept of an attempt whose directory was removed."""
        try:
            record = layout.read_json(layout.ended_record(self.shared, self.instance, tag), self.files)
        except OSError as error:
            raise unusable(self.own, error) from error
        except ValueError:
            return None
        return DirectoryStatus(record=record) if isinstance(record, dict) else None

    def _keep_record(self, tag: str, directory: str) -> None:
        if not self._is_own(tag) or self.files.is_link(directory):
            return
        try:
            data = self.files.read(layout.inside(directory, "record.json"))
        except FileNotFoundError:
            return
        try:
            layout.write_whole(layout.ended_record(self.shared, self.instance, tag), data, files=self.files)
        except OSError as error:
            if error.errno not in FULL:  # to remove the directory is what makes room
                raise

    def _write(self, directory: str, name: str, data: bytes, mode: int = 0o600) -> str:
        path = layout.inside(directory, name)
        layout.write_whole(path, data, mode, self.files)
        return path

    def _write_script(self, directory: str, data: bytes) -> str:
        """Not synced: the batch system keeps a copy of its own, made by the command that this KCM runs next."""
        path = layout.inside(directory, "script")
        layout.write_whole(path, data, 0o700, self.files, lasting=False)
        return path

    def _drop_old(self) -> None:
        self._dropped_at = now = self.files.clock()
        self._drop(self._stage(), now - stage_cache.KEPT)
        self._drop(self._ended(), now - _ENDED_KEPT)

    def _drop(self, directory: str, before: float) -> None:
        """Drop the files that were last used before this time."""
        for name in self.files.names(directory):
            path = os.path.join(directory, name)
            try:
                if self.files.modified(path) < before:
                    self.files.unlink(path)
            except FileNotFoundError:
                continue  # another cluster's KCM, on the same shared directory, has done it

    def _stage(self) -> str:
        return os.path.join(self.own, "stage")

    def _ended(self) -> str:
        return os.path.join(self.own, "ended")


def _is_in(tag: str, ranges: List[Tuple[str, str]]) -> bool:
    """`ranges` are in order, and none overlaps another."""
    place = bisect.bisect_right(ranges, (tag, _AFTER_TAGS)) - 1
    return place >= 0 and ranges[place][0] <= tag <= ranges[place][1]


def _status(directory: str, files: Files) -> DirectoryStatus:
    """Raises OSError where it cannot be looked into."""
    # A network file system remembers for a while that a file was not there, but not beyond a look at the list.
    names = files.names(directory)
    try:
        claim = start_lock.held_by(directory, files) if "start-lock" in names else None
        record = layout.read_json(layout.inside(directory, "record.json"), files) if "record.json" in names else None
    except ValueError:
        return DirectoryStatus(start_lock="unreadable")
    beat = files.modified(layout.inside(directory, "heartbeat")) if "heartbeat" in names else 0
    output = _output(directory, files) if claim is None and "batch.out" in names else None
    record = record if isinstance(record, dict) else None
    return DirectoryStatus(claim.kind if claim else "", record, int(beat * 1e6), directory, output)


def _age_s(directory: str, files: Files, now: float) -> Optional[float]:
    """Seconds since it was prepared, or revoked before that; None if it goes away meanwhile. Raises OSError."""
    for path in (layout.inside(directory, "component.json"), layout.inside(directory, "start-lock"), directory):
        try:
            return max(0.0, now - files.modified(path))
        except FileNotFoundError:
            continue
    return None


def _described(seen: DirectoryStatus, age_s: Optional[float], now: float) -> Dict[str, Any]:
    """As messages.Examine asks for it."""
    return {
        "start_lock": seen.start_lock,
        "ended": seen.record is not None,
        "age_s": age_s,
        "heartbeat_age_s": max(0.0, now - seen.heartbeat / 1e6) if seen.heartbeat else None,
    }


def _output(directory: str, files: Files) -> str:
    return files.read(layout.inside(directory, "batch.out"))[-_LAST_WORDS:].decode("utf-8", "replace")
