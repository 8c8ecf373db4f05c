"""Promises about contents: staged files are the user's, collected files are the program's, and streams are whole.

Every byte of a stream arrives once and in order, or both its ends are reset.
"""

from collections.abc import Mapping

from koalapy_adapters import layout

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput
from koalapy.model.identity import AttemptId, InstanceId, JobId, Tag, attempt_of, tag_of
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.cluster.files import SHARED
from koalapy.world.koalad.file_operations import content_of
from koalapy.world.program_log import ProgramLog
from koalapy.world.streams import Stream, StreamLog


class Contents:
    """The checker for jobs of one store. It reads files on the servers of the simulated clusters."""

    def __init__(self, instance: InstanceId, clusters: Mapping[str, SimCluster], program_log: ProgramLog) -> None:
        self._instance, self._clusters, self._program_log = instance, clusters, program_log
        self._home: set[tuple[JobId, str]] = set()

    def started(self, tag: Tag, cluster: str, committed: Committed) -> None:
        """A program starts: check that its staged files are in its working directory."""
        instance, attempt = attempt_of(tag)
        pilot = committed.launchers.get(attempt)
        owner = committed.jobs.get(attempt.job) if pilot is None else committed.sweeps.get(JobId(pilot.owner.id))
        if instance != self._instance or owner is None:
            return
        work = layout.inside(layout.attempt_directory(SHARED, instance, tag), "work")
        for path in owner.request.stage_in:
            found = self._clusters[cluster].shared.content(f"{work}/{path}")
            meant = content_of(path, attempt.job)
            promise(found == meant, Promise.CONTENTS, attempt, "finds", found, "in the place of", meant)

    def collected(
        self, command: CollectOutput, path: str, source: tuple[str, AttemptId], content: str, jobs: Mapping[JobId, Job]
    ) -> None:
        """Check that a collected file is what its program wrote, of the first of the last attempts that has one."""
        _, attempt = source
        job = jobs[command.job]
        last = [each.id for each in job.present]
        promise(attempt in last, Promise.CONTENTS, "job", job.id, "collects", path, "of", attempt, "not of", *last)
        for each in last[: last.index(attempt)]:
            promise(self._left(each, path) is None, Promise.CONTENTS, "job", job.id, "collects", path, "not of", each)
        left = self._left(attempt, path)
        promise(
            content.encode() == left, Promise.CONTENTS, "job", job.id, "collects", content, "but", attempt, "left", left
        )
        self._home.add((job.id, path))

    def missing(self, command: CollectOutput, path: str, jobs: Mapping[JobId, Job]) -> None:
        """Check that no program of the last attempts has written a file that is reported as missing."""
        job = jobs[command.job]
        for each in [attempt.id for attempt in job.present]:
            left = self._left(each, path)
            promise(left is None, Promise.CONTENTS, "job", job.id, "is without", path, "but", each, "left", left)

    def committed(self, change: Change, before: Mapping[JobId, Job]) -> None:
        """Check that all output of a job that becomes done is collected."""
        for job in change.jobs:
            if job.state is JobState.DONE and not before[job.id].state.final:
                left = [path for path in job.request.stage_out if (job.id, path) not in self._home]
                promise(not left, Promise.CONTENTS, "job", job.id, "is done without", *left)

    def _left(self, attempt: AttemptId, path: str) -> bytes | None:
        return self._program_log.files.get((tag_of(self._instance, attempt), path))


class Streams:
    """The checker of byte streams. `lost`: an end whose process died; it can report nothing any more."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log

    def read(self, stream: Stream, writer: str, data: bytes, expected: bytes) -> None:
        """Check that what was read is what was written there."""
        read = stream.ways[writer].read
        promise(data == expected, Promise.STREAMS, stream.number, "from", writer, "has other bytes at", read)

    def ended(self, stream: Stream, end: str) -> None:
        """Check that an end which takes its stream for finished lacks nothing, and that the other end has all."""
        if stream.ends[end] != "finished":
            return
        for writer, way in stream.ways.items():
            whole = way.ends and way.read == way.written
            promise(
                whole, Promise.STREAMS, stream.number, "is finished with", way.read, "of", way.written, "from", writer
            )

    def quiescent(self) -> None:
        """Check that no end is open any more, and that none was reset alone before the other had everything."""
        for stream in self._log.streams.values():
            for end, state in stream.ends.items():
                promise(state != "open", Promise.STREAMS, stream.number, "is open at its end", end)
            states = stream.ends.values()
            whole = all(way.has_ended for way in stream.ways.values())
            alone = "reset" in states and "finished" in states and not whole
            promise(not alone, Promise.STREAMS, stream.number, "is reset at one end alone")
