"""The jobs of a trace that can be replayed, in order of submission, from a log (SWF, GWF) or koalad's own history."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from koalapy.experiments.replay.history import HistoryReader
from koalapy.experiments.replay.record import Ran, Record, ReplayJob, Unfit
from koalapy.experiments.replay.rules import Grace, ReplayRules
from koalapy.experiments.workloads.gwf import read_gwf
from koalapy.experiments.workloads.lines import bad_line, read_lines
from koalapy.experiments.workloads.reading import LENIENT, Ended, TraceJob, TraceReader, counts_text
from koalapy.experiments.workloads.swf import read_swf
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import shown
from koalapy.model.units import SECOND, Duration

_SQUEEZED = (".gz", ".xz", ".bz2")
_MOVED = "submitted before the one above, and taken as submitted with it"
_SORT = "Sort the trace by submission, or read it with --lenient, which takes such jobs as submitted with the last."
_LARGER, _LARGER_THAN_ITS = "larger than any cluster", "larger than its cluster"
_NO_SITE, _NO_CLUSTER = "of a site that is not a cluster", "of another cluster"
_FIELDS_OF_SWF = 18


class Share(NamedTuple):
    """Jobs that ran in the trace, and their work in processor-microseconds."""

    jobs: int = 0
    work: int = 0

    def and_one(self, work: int) -> "Share":
        return Share(self.jobs + 1, self.work + work)


class Jobs:
    """The jobs that can be replayed. Their times count from the first submission, at `begun` in the trace's own time.

    `last` is that of the last submission, `several` counts the jobs of several components. They, `left_out`, `changed`,
    `kept` and `lost` are complete after the last job. `kept` are the jobs that are replayed, `lost` those that ran in
    the trace and are left out. The iteration raises RequestError, with the line, for the first
    error. With lenient rules, it does so only for a file that cannot be read or has another format.
    """

    def __init__(self, path: Path, rules: ReplayRules) -> None:
        self.begun: Duration | None = None
        self.last = Duration(0)
        self.several = 0
        self.kept = self.lost = Share()
        self._moved: Counter[str] = Counter()
        self._path, self._rules = path, rules
        self._unfit: Counter[str] = Counter()
        self._largest = max(rules.sizes, key=rules.sizes.__getitem__, default=None)
        self._reader, self._made = _reader(path, rules)

    @property
    def left_out(self) -> Counter[str]:
        """The number of left out lines and jobs of each kind."""
        return self._reader.skipped + self._unfit

    @property
    def changed(self) -> Counter[str]:
        """The number of lines and jobs that are replayed with changes, by kind of change."""
        return self._reader.ignored + self._moved

    @property
    def comments(self) -> list[str]:
        return self._reader.comments

    def __iter__(self) -> Iterator[ReplayJob]:
        for job in islice(self._fitting_ones(), self._rules.most):
            self.begun = job.submitted if self.begun is None else self.begun
            self.kept = self.kept.and_one(job.runtime * job.processors)
            submitted = Duration(job.submitted - self.begun)
            self.last = submitted
            self.several += len(job.components) > 1
            yield replace(job, submitted=submitted, when_busy=self._rules.when_busy)

    def _fitting_ones(self) -> Iterator[ReplayJob]:
        last = Duration(0)
        for raw in self._reader:
            job = self._fitting(raw, last)
            if job is not None:
                last = job.submitted
                yield job

    def _fitting(self, raw: TraceJob | ReplayJob | Unfit, last: Duration) -> ReplayJob | None:
        try:
            job = self._made(raw)
            _check_fits(job, self._rules.sizes, self._largest)
            return self._in_order(job, last)
        except Unfit as unfit:
            if not (unfit.common or self._rules.lenient):
                raise bad_line(self._path, self._reader.line, str(unfit), unfit.advice or LENIENT) from None
            self._unfit[unfit.kind] += 1
            if isinstance(raw, ReplayJob) or (isinstance(raw, TraceJob) and raw.ran):
                self.lost = self.lost.and_one((raw.runtime or 0) * raw.processors)
            return None

    def _in_order(self, job: ReplayJob, last: Duration) -> ReplayJob:
        if job.submitted >= last:
            return job
        if not self._rules.lenient:
            what = f"has a job submitted at {job.submitted / SECOND:.0f} s, before the one above it"
            raise Unfit(f"{what} ({last / SECOND:.0f} s)", _MOVED, _SORT)
        self._moved[_MOVED] += 1
        return replace(job, submitted=last)


class Survey(NamedTuple):
    """The result of a first reading of a trace: its jobs that can be replayed, and what is left out.

    `kept`, `lost`, `last`, `several`: see `Jobs`. `logged`: the jobs as they ran on the system of the trace, without
    those whose wait it does not give.
    """

    begun: Duration
    comments: tuple[str, ...]
    left_out: Mapping[str, int]
    changed: Mapping[str, int]
    kept: Share
    lost: Share
    logged: Record
    last: Duration
    several: int

    @property
    def jobs(self) -> int:
        return self.kept.jobs


def survey(path: Path, rules: ReplayRules) -> Survey:
    """Read a trace once, and return its survey.

    Raises RequestError if the trace has an error, or no job that can be replayed.
    """
    jobs = Jobs(path, rules)
    logged = Record(dict(rules.sizes))
    for job in jobs:
        if job.waited is not None:
            logged.add(_as_logged(job, job.waited))
    if not jobs.kept.jobs:
        left = counts_text(jobs.left_out)
        message = f"{path} has no job that can be replayed{': left out are ' + left if left else ''}."
        raise RequestError("no_jobs", message, _advice(jobs.left_out))
    begun = jobs.begun or Duration(0)
    counts = jobs.left_out, jobs.changed, jobs.kept, jobs.lost
    return Survey(begun, tuple(jobs.comments), *counts, logged, jobs.last, jobs.several)


def _as_logged(job: ReplayJob, waited: Duration) -> Ran:
    started = Duration(job.submitted + waited)
    return Ran(
        number=job.number,
        submitted=job.submitted,
        started=started,
        ended=Duration(started + job.runtime),
        processors=job.processors,
        places=(),
        requested=job.walltime,
        user=job.user,
        group=job.group,
        queue=job.queue,
        killed=False,
    )


def _advice(left_out: Mapping[str, int]) -> str:
    """Return advice for a trace without any job left, by the most frequent reason."""
    most = max(left_out, key=left_out.__getitem__, default="")
    if most in (_LARGER, _LARGER_THAN_ITS):
        return "Give the sizes of the clusters: --size CLUSTER=N."
    if most in (_NO_SITE, _NO_CLUSTER):
        return "Name the cluster of each site with --site SITE=CLUSTER, or leave out --pin."
    return "Is it the right file?"


def header(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the header of the trace, by name and as text. Raises RequestError if the file cannot be read."""
    reader, _ = _reader(path, ReplayRules(sizes={}, lenient=True))
    next(iter(reader), None)
    return reader.header, reader.comments


def of_log(job: TraceJob, sites: Mapping[str, str] | None, grace: Grace) -> ReplayJob:
    """Return a job of a log, with one component of all its processors. Raises Unfit if it cannot be replayed.

    Its walltime is what it requested, or its run time if it requested nothing. If it ran longer than it requested, its
    walltime is its run time, but exceeds the request by at most the `grace`.
    """
    if job.runtime is None or job.processors <= 0:
        what = "has a completed job without its run time or its processors"
        raise Unfit(what, "that never ran", common=job.ended is not Ended.COMPLETED or job.runtime == 0)
    requested = job.requested or job.runtime
    return ReplayJob(
        number=job.number,
        submitted=job.submitted,
        components=((job.processors, None if sites is None else _cluster(job.site, sites)),),
        runtime=job.runtime,
        walltime=max(SECOND, requested, min(job.runtime, Duration(requested + grace.of(requested)))),
        waited=job.waited,
        user=job.user,
        group=job.group,
        queue=job.queue,
    )


def _cluster(site: str, sites: Mapping[str, str]) -> str:
    if site in sites:
        return sites[site]
    what = f"has a job of site {shown(site)}, which is not a cluster" if site else "does not name the site of its job"
    advice = f"Name it with `--site {site}=CLUSTER`, or leave such jobs out with --lenient." if site else ""
    raise Unfit(what, _NO_SITE, advice)


def _check_fits(job: ReplayJob, sizes: Mapping[str, int], largest: str | None) -> None:
    for processors, cluster in job.components:
        if cluster is not None and cluster not in sizes:
            raise Unfit(f"has a job of cluster {shown(cluster)}, which the grid does not have", _NO_CLUSTER)
        where = cluster or largest
        if where is not None and processors > sizes[where]:
            what = f"has a job of {processors:,} processors, more than {where} has ({sizes[where]:,})"
            kind = _LARGER if cluster is None else _LARGER_THAN_ITS
            raise Unfit(what, kind, "Correct it or the size (--size), or leave such jobs out with --lenient.")


_Made = Callable[[TraceJob | ReplayJob | Unfit], ReplayJob]


def _reader(path: Path, rules: ReplayRules) -> tuple[TraceReader | HistoryReader, _Made]:
    """Return the reader of the file, and the function that makes a job of each entry."""
    kind = _kind(path)
    if kind == "history":
        return HistoryReader(path, pinned=rules.sites is not None), _of_history
    read = read_swf if kind == "swf" else read_gwf

    def made(job: TraceJob | ReplayJob | Unfit) -> ReplayJob:
        assert isinstance(job, TraceJob)
        return of_log(job, rules.sites, rules.grace)

    return read(path, rules.lenient), made


def _of_history(job: TraceJob | ReplayJob | Unfit) -> ReplayJob:
    if isinstance(job, Unfit):
        raise job
    assert isinstance(job, ReplayJob)
    return job


def _kind(path: Path) -> str:
    """Return swf, gwf or history, by the file's name, else by its first line."""
    suffix = path.with_suffix("").suffix if path.suffix in _SQUEEZED else path.suffix
    known = {".swf": "swf", ".gwf": "gwf", ".json": "history"}.get(suffix)
    return known or _kind_of_line(next((line for _, line in read_lines(path) if line.strip()), ""))


def _kind_of_line(line: str) -> str:
    if line.lstrip().startswith("{"):
        return "history"
    if line.startswith("#") or "\t" in line:
        return "gwf"
    return "swf" if line.startswith(";") or len(line.split()) == _FIELDS_OF_SWF else "gwf"
