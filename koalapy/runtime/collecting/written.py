"""The output of jobs in koalad's state directory: collected when a job is final, and then read from there."""

import contextlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import structlog

from koalapy.link.stretches import Stretches
from koalapy.model.commands import CollectOutput
from koalapy.model.errors import KoalaError, RequestError, TransientError
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.runtime.collecting.cluster_queues import Steps
from koalapy.runtime.collecting.collect import Collected
from koalapy.runtime.collecting.download import Download

_LOG = structlog.get_logger()
STREAMS = ("output", "errors")
_PIECE = 1 << 16
_NOTES = 1 << 16  # bytes besides the requested ones: lines that count omitted bytes
_CUT = ".cut"

Read = Callable[[str, AttemptId, str, Mapping[int, int], bool], Iterator[bytes]]


class WrittenStore:
    """Files DIRECTORY/JOB/COMPONENT.ATTEMPT.STREAM, each a stream of stretches as a KCM sends it (see Stretches).

    The name of a file without some of its bytes ends with `.cut`. `most`: bytes to keep of one stream of a component.
    """

    def __init__(self, directory: Path, most: int) -> None:
        self.directory, self.most = directory, most

    def find(self, attempt: AttemptId, stream: str) -> Path | None:
        """Return the file, whole or cut; None if it was not brought."""
        path = self._path(attempt, stream)
        return next((each for each in (path, _cut(path)) if each.exists()), None)

    def first(self, read: Read) -> Read:
        """Return a function that reads like `read`, but takes output from here if it is here.

        If the output here was cut, it requests all of it from its cluster, and if that fails reads the cut one.
        A reader with positions never gets the cut one, in which they have no meaning.
        """

        def read_here(
            cluster: str, attempt: AttemptId, stream: str, positions: Mapping[int, int], follow: bool
        ) -> Iterator[bytes]:
            path = self.find(attempt, stream)
            if path is None or (path.suffix == _CUT and positions):
                yield from read(cluster, attempt, stream, positions, follow)
                return
            if path.suffix == _CUT:
                there = read(cluster, attempt, stream, positions, follow)
                with contextlib.suppress(KoalaError):
                    begin = list(itertools.islice(there, 1))
                    path = None
            yield from itertools.chain(begin, there) if path is None else _beyond(positions, _pieces(path))

        return read_here

    def write(self, attempt: AttemptId, stream: str, pieces: Iterator[bytes], most: int) -> tuple[int, int]:
        """Keep the pieces, durably: whole or not at all. Returns (bytes that are here, bytes that were left out).

        Raises RequestError if more than `most` bytes arrive, TransientError if there is no room here, and what `pieces`
        raises.
        """
        path = self._path(attempt, stream)
        part = path.with_name(f"{path.name}.part")
        stretches, size = Stretches(bounded=True), 0
        with _file_errors_translated(), contextlib.ExitStack() as stack:
            part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.callback(part.unlink, missing_ok=True)
            with part.open("wb") as file:
                for piece in pieces:
                    for rank, data in stretches.feed(piece):
                        size += len(data)
                        if size > most + _NOTES:
                            message = f"More than the {most} bytes that were asked for came of the output."
                            raise RequestError("bad_stream", message, "Look at what runs as the KCM on its head node.")
                        file.write(b"[%d,%d]\n" % (rank, len(data)) + data)
                file.flush()
                os.fsync(file.fileno())
            part.rename(_cut(path) if stretches.omitted_bytes else path)
        return size, stretches.omitted_bytes

    def jobs(self) -> list[JobId]:
        """Return the ids of the jobs with output here, sorted."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(
                JobId(int(name)) for name in os.listdir(self.directory) if name.isascii() and name.isdecimal()
            )
        return []

    def remove_soon(self, jobs: Collection[JobId]) -> None:
        """Remove the output of these jobs, whose records were removed, in the background. Returns at once."""
        there = [job for job in jobs if (self.directory / str(job)).exists()]
        if there:
            threading.Thread(target=self._remove_all, args=(there,), name="written", daemon=True).start()

    def _remove_all(self, jobs: Collection[JobId]) -> None:
        for job in jobs:
            try:
                self.remove(job)
            except OSError as error:
                _LOG.warning("output_not_removed", job=job, why=str(error))

    def remove(self, job: JobId) -> None:
        """Remove the output of the job, if there is any. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.directory / str(job))

    def _path(self, attempt: AttemptId, stream: str) -> Path:
        return self.directory / str(attempt.job) / f"{attempt.component}.{attempt.number}.{stream}"


class StreamCollection:
    """The transfer of one final job's output. Output that one try has brought is not brought again by the next."""

    def __init__(self, store: WrittenStore, job: Job, command: CollectOutput) -> None:
        self.job = job
        self._store, self._command = store, command
        self.size = self.omitted_bytes = 0
        self.notes: list[str] = []

    def steps(self, download: Download) -> Steps[Collected]:
        """Return the steps, each of which waits for one cluster.

        They raise KoalaError, a transient one if a cluster is out of reach.
        """
        for cluster, attempt in self._command.sources:
            yield cluster
            self._bring(download, cluster, attempt)
        return Collected(len(self._command.sources), self.size, (), tuple(self.notes))

    def _bring(self, download: Download, cluster: str, attempt: AttemptId) -> None:
        present = self.job.attempt(attempt.component)
        nodes = 0 if present is None else len(present.nodes)
        each = max(2, self._store.most // self.job.request.components[attempt.component].processes(max(1, nodes)))
        for stream in STREAMS:
            if self._store.find(attempt, stream) is None:
                self._keep(download, cluster, attempt, stream, each)

    def _keep(self, download: Download, cluster: str, attempt: AttemptId, stream: str, each: int) -> None:
        try:
            with contextlib.closing(download.output(cluster, attempt, stream, each)) as pieces:
                size, omitted_bytes = self._store.write(attempt, stream, pieces, max(each, self._store.most))
        except KoalaError as error:
            if error.reason.code != "no_such_attempt":
                raise
            self._store.write(attempt, stream, iter(()), 0)
            if stream == STREAMS[0]:
                self.notes.append(f"Component {attempt.component} has no directory on its cluster.")
            return
        self.size += size
        self.omitted_bytes += omitted_bytes


def _beyond(positions: Mapping[int, int], pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the stream of stretches without the bytes of each rank before its position."""
    if not positions:
        yield from pieces
        return
    left, stretches = dict(positions), Stretches()
    for piece in pieces:
        for rank, data in stretches.feed(piece):
            passed_over = min(left.get(rank, 0), len(data))
            left[rank] = left.get(rank, 0) - passed_over
            if rest := data[passed_over:]:
                yield b"[%d,%d]\n" % (rank, len(rest)) + rest


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the file's bytes. Raises RequestError if it cannot be read."""
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except OSError as error:
        message = f"The output that was brought home, {path}, cannot be read: {error.strerror}."
        raise RequestError("output_unreadable", message, "Remove the file: then its cluster is asked.") from error


def _cut(path: Path) -> Path:
    return path.with_name(path.name + _CUT)


@contextlib.contextmanager
def _file_errors_translated() -> Iterator[None]:
    """Raises TransientError in place of an OSError of koalad's file system."""
    try:
        yield
    except OSError as error:
        message = f"Output cannot be kept here: {error.strerror} ({error.filename})."
        raise TransientError("no_room", message, "Make room in koalad's state directory.") from error
