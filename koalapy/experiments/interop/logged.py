"""The jobs of logs in GWF or SWF, such as those of the Grid Workloads Archive."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.system import System
from koalapy.experiments.interop.traces import Trace, clusters_of
from koalapy.experiments.workloads.gwf import read_gwf
from koalapy.experiments.workloads.lines import bad_line
from koalapy.experiments.workloads.reading import TraceJob, TraceReader, counts_text
from koalapy.experiments.workloads.swf import read_swf
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import shown
from koalapy.model.units import DAY, SECOND, Duration, Instant

_LENIENT = "Correct it, or write `lenient: true` beside the trace's file: such lines are left out, and counted."
_DATED = Instant(10**9 * SECOND)  # later times count from 1970, since no log lasted for thirty years


class Found(NamedTuple):
    """The jobs of the logs. `notes`: sentences on what was left out."""

    jobs: list[GridJob]
    notes: tuple[str, ...]


def read_traces(traces: Mapping[str, Trace], system: System, begin: date | None, days: int) -> Found:
    """Return the jobs of `days` days from midnight (UTC) of `begin`, or of the first job's day.

    Raises RequestError if a log is wrong, or has no jobs in that time.
    """
    logs = {site: _Log(site, trace, system) for site, trace in traces.items()}
    window = None if begin is None else range(_midnight(begin), _midnight(begin) + days * DAY)
    jobs = sorted(job for log in logs.values() for job in log.jobs(window))
    _refuse_undated(list(logs.values()), begin)
    first = window.start if window is not None else jobs[0].arrived // DAY * DAY if jobs else 0
    kept = [job for job in jobs if job.arrived < first + days * DAY]
    if not kept:
        advice = "Change trace_from and days, or leave trace_from out."
        raise RequestError("no_jobs", "The traces have no jobs in that time.", advice)
    moved = [job._replace(arrived=Instant(job.arrived - first), number=place) for place, job in enumerate(kept, 1)]
    return Found(moved, tuple(log.note() for log in logs.values() if log.note()))


def load_of(jobs: list[GridJob], system: System, days: int) -> int:
    """Return the load of the jobs in percent, rounded."""
    return round(100 * sum(job.processors * job.runtime for job in jobs) / (system.total * days * DAY))


class _Log:
    """One log, with the sites found and the jobs left out so far."""

    def __init__(self, site: str, trace: Trace, system: System) -> None:
        self.site, self.path = site, Path(trace.file)
        self.dated = True
        self._trace, self._system = trace, system
        self._reader = _reader(self.path, trace.lenient)
        self._below = clusters_of(system, site)
        self._homes: dict[str, str] = {}  # by the log's own names
        self._left_out: Counter[str] = Counter()

    def jobs(self, window: range | None) -> Iterator[GridJob]:
        """Yield the jobs that arrived in the window and can run."""
        for job in self._reader:
            arrived = self._arrived(job)
            self.dated = self.dated and arrived >= _DATED
            if window is None or arrived in window:
                home = self._home(job)
                if why := self._unfit(job, home):
                    self._left_out[why] += 1
                else:
                    yield GridJob(
                        arrived, job.number, home, f"{home}-{job.user}", job.processors, job.runtime or Duration(0)
                    )

    def note(self) -> str:
        """Describe the jobs that were left out; empty if there are none."""
        counts = counts_text(self._reader.skipped + self._left_out)
        return f"Left out of {self.path.name}: {counts}." if counts else ""

    def _unfit(self, job: TraceJob, home: str) -> str:
        if not home:
            return "of a site that is not a cluster"
        if not job.ran:
            return "that never ran"
        return "larger than their cluster" if job.processors > self._system.processors[home] else ""

    def _arrived(self, job: TraceJob) -> Instant:
        """Return the time since 1970 if it is known, else since the log's beginning."""
        if job.submitted >= _DATED:
            return Instant(job.submitted)
        if self._trace.starts is not None:
            return Instant(_midnight(self._trace.starts) + job.submitted)
        started = self._reader.header.get("UnixStartTime", "").partition(" ")[0]
        return Instant((int(started) * SECOND if started.isdecimal() else 0) + job.submitted)

    def _home(self, job: TraceJob) -> str:
        if job.site not in self._homes:
            self._homes[job.site] = self._found(job)
        return self._homes[job.site]

    def _found(self, job: TraceJob) -> str:
        """Return the cluster of a job, by the given names, else by the last part of the log's name (DAS2/fs0).

        Return '' if there is none and the trace is lenient.
        """
        if self._below == (self.site,):
            return self.site
        name = self._trace.names.get(job.site) or job.site.rpartition("/")[2]
        if name in self._below:
            return name
        if self._trace.lenient:
            return ""
        if not job.site:
            what, advice = "does not name the cluster to which its job came", "Give each cluster a trace of its own."
        else:
            what = f"has a job that came to {shown(job.site)}, which is not a cluster of {self.site}"
            advice = f"Name it, under traces, {self.site}, names: {job.site}: {self._below[0]}."
        raise bad_line(self.path, self._reader.line, what, advice)


def _refuse_undated(logs: list[_Log], begin: date | None) -> None:
    """Check that all logs of an experiment give their dates, or that none does and no `begin` is given."""
    undated = [log for log in logs if not log.dated]
    if undated and (begin is not None or len(undated) < len(logs)):
        advice = f"Write it, under traces, {undated[0].site}, starts: 2005-11-01."
        raise RequestError("no_day", f"{undated[0].path} does not have the day on which it begins.", advice)


def _reader(path: Path, lenient: bool) -> TraceReader:
    """Return the reader for the file, by its name: the archives' SWF files all have `.swf` in theirs."""
    return (read_swf if ".swf" in path.suffixes else read_gwf)(path, lenient, _LENIENT)


def _midnight(day: date) -> Instant:
    return Instant(int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * SECOND)
