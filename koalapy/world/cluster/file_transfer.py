"""Files in and out of a simulated cluster: each in one message, without the chunks that carry it in the real one."""

from collections.abc import Callable
from random import Random
from typing import Any

from koalapy_adapters import layout
from koalapy_adapters.errors import BatchError
from koalapy_adapters.kcm.execution.batch_system import failure_of
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.shared_directory.errors import unusable
from koalapy_adapters.messages.files import Stat, Store
from koalapy_adapters.messages.kcm import Done, Refused

from koalapy.world.cluster.environment import Environment
from koalapy.world.processes import Process


class FileTransfer:
    """Answers Store and Stat. `data` comes with a Store; the answer to Stat has contents in the place of sizes."""

    def __init__(
        self, kcm: Process, environment: Environment, rng: Random, directories: Directories, send: Callable[[Any], None]
    ) -> None:
        self._kcm, self._environment, self._rng, self._directories, self._send = (
            kcm,
            environment,
            rng,
            directories,
            send,
        )

    def request(self, message: Any, data: bytes) -> None:
        self._kcm.after(self._environment.file_latency(self._rng), lambda: self._answer(message, data))

    def _answer(self, message: Any, data: bytes) -> None:
        self._kcm.step()
        try:
            self._send(self._served(message, data))
        except OSError as error:
            self._send(Refused(message.id, failure_of(unusable(self._directories.own, error))))
        except BatchError as error:
            self._send(Refused(message.id, failure_of(error)))

    def _served(self, message: Any, data: bytes) -> Any:
        files = self._directories.files
        if isinstance(message, Store):
            path = layout.staged_file(self._directories.shared, self._directories.instance, message.digest)
            have = files.exists(path)
            if have:
                files.use(path)
            else:
                layout.write_whole(path, data, files=files, lasting=False)
            return Done(message.id, have)
        assert isinstance(message, Stat)
        work = layout.inside(self._directories.attempt(message.tag), "work")
        there = [path for path in message.paths if files.exists(f"{work}/{path}")]
        if len(there) < len(message.paths):
            files.names(work)  # raises OSError where nothing can be seen
        return Done(message.id, details={path: files.read(f"{work}/{path}").decode() for path in there})
