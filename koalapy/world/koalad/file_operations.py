"""Operations of koalad that take several requests to a cluster: stage an attempt's files in, collect a job's output.

As `koalapy.runtime.staging` and `.collecting` do it on threads; a file goes in one message, not in chunks.
"""

import hashlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Protocol

from koalapy_adapters.messages import files, kcm

from koalapy.link.translate import reason_of
from koalapy.model.commands import CollectOutput, OutputKind, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import SECOND, Duration
from koalapy.world.random_streams import between

MISSING_FILE = "missing"  # a file to be staged in that koalad's host does not have
_BRINGING = (Duration(SECOND), Duration(20 * SECOND))  # what it takes to bring what was found
_AGAIN = (Duration(2 * SECOND), Duration(30 * SECOND))
_NO_FILE = Reason(
    "no_such_file", "request", f"{MISSING_FILE} cannot be found.", "Correct `stage_in`, or make the file."
)
_NO_CLUSTER = Reason("no_such_cluster", "request", "Its cluster is not in the grid any more.", "")
_MODE = 0o755

Answered = Callable[[Any], None]  # Done, Refused, or None if the connection was lost before


class Asked(Protocol):
    """A way to a KCM."""

    def ask(self, make: Callable[[int], Any], answered: Answered, data: bytes = b"") -> None:
        """`make` the request of this number, to go with `data`; `answered` is called once."""
        ...


class Receiver(Protocol):
    """Where the output of jobs comes to."""

    def collected(self, command: CollectOutput, path: str, source: tuple[str, AttemptId], content: str) -> None:
        """A file came home from this cluster and attempt."""
        ...

    def missing(self, command: CollectOutput, path: str) -> None:
        """No source has the file."""
        ...


def content_of(path: str, job: JobId) -> bytes:
    """Return the content of the file that the job stages in. Every third job has the same version of it."""
    return f"{path}, version {job % 3}".encode()


class Staging:
    """The files of one attempt, one after the other. Exactly one of `staged` and `refused` is called, or none at all if
    the connection is lost."""

    def __init__(
        self,
        link: Asked,
        command: SubmitAttempt,
        staged: Callable[[list[list[Any]]], None],
        refused: Callable[[Reason], None],
    ) -> None:
        self._link, self._paths, self._job = link, list(command.stage_in), command.attempt.job
        self._staged, self._refused = staged, refused
        self._stored: list[list[Any]] = []

    def go_on(self) -> None:
        if MISSING_FILE in self._paths:
            self._refused(_NO_FILE)
            return
        if len(self._stored) == len(self._paths):
            self._staged(self._stored)
            return
        path = self._paths[len(self._stored)]
        data = content_of(path, self._job)
        digest = hashlib.sha256(data).hexdigest()
        self._link.ask(
            lambda id: files.Store(id, digest, len(data)), lambda answer: self._answered(answer, digest), data
        )

    def _answered(self, answer: Any, digest: str) -> None:
        if isinstance(answer, kcm.Refused):
            self._refused(reason_of(answer.error))
        elif answer is not None:
            self._stored.append([self._paths[len(self._stored)], digest, _MODE])
            self.go_on()


class Collecting:
    """The collection of one job's output: each path comes from the first component that has it.

    `done` is called once, with the reason if not everything was found. Files on a cluster out of reach are waited for.
    Each parameter of a sweep has all of its files.
    """

    def __init__(
        self,
        instance: InstanceId,
        command: CollectOutput,
        links: Mapping[str, Asked],
        receiver: Receiver,
        after: Callable[[Duration, Callable[[], None]], Any],
        rng: Random,
        done: Callable[[Reason | None], None],
    ) -> None:
        self._instance, self._command, self._links, self._receiver = instance, command, links, receiver
        self._after, self._rng, self._done = after, rng, done
        self._left = list(command.paths)
        self._missing: list[str] = []
        self._sources: list[tuple[str, AttemptId]] = []

    def start(self) -> None:
        self._after(between(self._rng, *_BRINGING), self._next_path)

    def _next_path(self) -> None:
        """Look for the first of those that are left."""
        if self._left and self._command.kind is OutputKind.COMPONENT_FILES:
            self._sources = list(self._command.sources)
            self._look()
            return
        message = f"No component left a file {', '.join(self._missing)} in its working directory."
        reason = Reason("no_output_file", "request", message, "Correct `stage_out`, or let the program write it.")
        self._done(reason if self._missing else None)

    def _look(self) -> None:
        if not self._sources:
            self._receiver.missing(self._command, self._left[0])
            self._missing.append(self._left.pop(0))
            self._next_path()
            return
        cluster, attempt = self._sources[0]
        tag, path = tag_of(self._instance, attempt), self._left[0]
        link = self._links.get(cluster)
        if link is None:
            self._done(_NO_CLUSTER)
            return
        link.ask(lambda id: files.Stat(id, tag, [path]), self._answered)

    def _answered(self, answer: Any) -> None:
        if isinstance(answer, kcm.Done):
            if self._left[0] in answer.details:
                path = self._left.pop(0)
                self._receiver.collected(self._command, path, self._sources[0], answer.details[path])
                self._next_path()
            else:
                self._sources.pop(0)
                self._look()
            return
        reason = None if answer is None else reason_of(answer.error)
        if reason is None or reason.whose in ("transient", "cluster"):
            self._after(between(self._rng, *_AGAIN), self._look)
        else:
            self._done(reason)
