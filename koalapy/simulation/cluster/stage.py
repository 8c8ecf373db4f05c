"""Files in and out of a simulated cluster: what is stored, fetched and asked for, without the bytes between."""

from collections.abc import Callable
from random import Random
from typing import Any

from koalapy_adapters import layout
from koalapy_adapters.errors import BatchError
from koalapy_adapters.kcm.commands import failure_of
from koalapy_adapters.kcm.directories import Directories
from koalapy_adapters.kcm.troubles import unusable
from koalapy_adapters.messages import Done, Fetch, Fetched, Refused, Stat, Store

from koalapy.simulation.cluster.surroundings import Surroundings
from koalapy.simulation.processes import Process


class Stage:
    """Answers Store, Fetch and Stat. The content of a staged file is its digest."""

    def __init__(
        self, kcm: Process, around: Surroundings, dice: Random, directories: Directories, say: Callable[[Any], None]
    ) -> None:
        self._kcm, self._around, self._dice, self._directories, self._say = kcm, around, dice, directories, say

    def request(self, message: Any) -> None:
        self._kcm.after(self._around.file_latency(self._dice), lambda: self._answer(message))

    def _answer(self, message: Any) -> None:
        self._kcm.step()
        try:
            self._say(self._served(message))
        except OSError as error:
            self._say(Refused(message.id, failure_of(unusable(self._directories.own, error))))
        except BatchError as error:
            self._say(Refused(message.id, failure_of(error)))

    def _served(self, message: Any) -> Any:
        files = self._directories.files
        if isinstance(message, Store):
            path = layout.staged_file(self._directories.shared, self._directories.instance, message.digest)
            have = files.exists(path)
            if have:
                files.use(path)
            else:
                layout.write_whole(path, message.digest.encode(), files=files)
            return Done(message.id, have)
        work = layout.inside(self._directories.attempt(message.tag), "work")
        if isinstance(message, Stat):
            there = [path for path in message.paths if files.exists(f"{work}/{path}")]
            return Done(message.id, details={path: len(files.read(f"{work}/{path}")) for path in there})
        assert isinstance(message, Fetch)
        size = len(files.read(f"{work}/{message.path}")) if message.where == "work" else 0
        return Fetched(message.id, size, 0o600)
