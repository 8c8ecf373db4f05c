"""Processor time that attempts used: one entry for each attempt, made when its try ends, and sums of entries.

An attempt's span is that of its batch job, from its start to its end. It counts as *held* until the job's release, and
after it as *run*, or as *lost* if the job was tried again. A Launcher's whole span is *scavenged*. Each instant of the
span counts in one of the four. Together they equal what the batch system accounts for the batch job.

A pilot's batch job has been accounted for already when a job runs on the pilot. So an attempt on a pilot adds nothing
to these four: its whole span is *on pilots*, and its pilot's *used* part.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import AttemptId, JobId, is_site, site_of
from koalapy.model.job import Job
from koalapy.model.lease import lease_of_cluster
from koalapy.model.pilot import job_of_pilot
from koalapy.model.sweep import Sweep
from koalapy.model.units import DAY, Instant
from koalapy.model.work import Work


class Kind(StrEnum):
    """The use of an attempt's time after its release."""

    RUN = "run"
    LOST = "lost"
    SCAVENGED = "scavenged"


class By(StrEnum):
    """The property by which entries are summed."""

    USER = "user"
    CLUSTER = "cluster"
    JOB = "job"
    DAY = "day"
    SITE = "site"  # on whose processors it ran, or for which it held some here


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of one attempt. `charged`: its job, or a Launcher's sweep, whose `name` it has.

    `accounted`: its times and processors are those of the batch system's accounting, else those that koalapy knows.
    `released_at` lies within the span; it is `ended_at` if the job was not released, and `started_at` of a Launcher.
    """

    attempt: AttemptId
    owner: str
    charged: JobId
    name: str
    cluster: str
    processors: int
    kind: Kind
    started_at: Instant
    released_at: Instant
    ended_at: Instant
    batch_id: str = ""
    accounted: bool = False


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpan:
    """The start and end of a batch job, and its processors, as the accounting of its `cluster` has them."""

    attempt: AttemptId
    cluster: str
    started_at: Instant
    ended_at: Instant
    processors: int


class Sum(NamedTuple):
    """Processor-microseconds by kind, and the number of attempts that ended within, or go on.

    `open` is the part of attempts that go on, `estimated` the part without accounting. `on_pilots` is beside these: of
    attempts on pilots, whose own time has it already. `used` is the part of pilots' time that such attempts had.
    """

    held: int = 0
    run: int = 0
    lost: int = 0
    scavenged: int = 0
    open: int = 0
    estimated: int = 0
    attempts: int = 0
    on_pilots: int = 0
    used: int = 0

    @property
    def total(self) -> int:
        return self.held + self.run + self.lost + self.scavenged

    def plus(self, other: "Sum") -> "Sum":
        return Sum(*(mine + its for mine, its in zip(self, other, strict=True)))


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class DayUsage:
    """The usage of one user on one cluster, which may be a pilot, on a UTC day, by attempts of pruned jobs.

    `day`: the instant of its midnight.
    """

    day: Instant
    owner: str
    cluster: str
    used: Sum


def usage_of_try(tried: Job, *, lost: bool = False, now: Instant | None = None) -> tuple[Usage, ...]:
    """Return the entries of a job's try, one for each attempt whose batch job began.

    `lost`: the job is tried again. With `now`, attempts that have not ended count up to that instant.
    """
    kind = Kind.LOST if lost else Kind.RUN
    entries: list[Usage] = []
    for each in tried.all_attempts:
        if (entry := _usage(tried, each, Kind.LOST if each.candidate else kind, now)) is not None:
            entries.append(entry)
    return tuple(entries)


def usage_of_attempt(job: Job, attempt: Attempt) -> tuple[Usage, ...]:
    """Return the entry of an attempt that was given back while its job's try goes on; none if it did not begin."""
    entry = _usage(job, attempt, Kind.LOST, None)
    return () if entry is None else (entry,)


def usage_of_launcher(launcher: Attempt, sweep: Sweep, now: Instant | None = None) -> tuple[Usage, ...]:
    """Return the entry of a Launcher, none if its batch job did not begin. With `now`, one that goes on counts."""
    entry = _usage(sweep, launcher, Kind.SCAVENGED, now)
    return () if entry is None else (entry,)


def usage_until(
    jobs: Iterable[Job], sweeps: Mapping[JobId, Sweep], launchers: Iterable[Attempt], now: Instant
) -> list[Usage]:
    """Return the entries of tries and Launchers that go on, as if they ended now and no other followed."""
    entries = [entry for job in jobs if job.state.active for entry in usage_of_try(job, now=now)]
    for launcher in launchers:
        if launcher.owner.kind is OwnerKind.SWEEP and not launcher.let_go:
            entries += usage_of_launcher(launcher, sweeps[JobId(launcher.owner.id)], now)
    return entries


def _usage(work: Work, attempt: Attempt, kind: Kind, now: Instant | None) -> Usage | None:
    started_at, ended_at = attempt.began_at or attempt.allocated_at, attempt.ended_at or now
    if started_at is None or ended_at is None:
        return None
    started_at = min(started_at, ended_at)
    released_at = attempt.released_at if attempt.released_at is not None else ended_at
    return Usage(
        attempt=attempt.id,
        owner=work.owner,
        charged=work.id,
        name=work.request.name,
        cluster=attempt.cluster,
        processors=attempt.processors,
        kind=kind,
        started_at=started_at,
        released_at=started_at if kind is Kind.SCAVENGED else max(started_at, min(released_at, ended_at)),
        ended_at=ended_at,
        batch_id=attempt.batch_id,
    )


def accounted(entry: Usage, span: BatchSpan) -> Usage:
    """Return the entry by the batch system's accounting; unchanged if the span cannot be that of its batch job.

    A cluster's report or clock may be wrong: a span may exceed what was known by a day at either end, and no more.
    """
    if span.cluster != entry.cluster or not span.started_at <= span.ended_at:
        return entry
    if span.started_at < entry.started_at - DAY or span.ended_at > entry.ended_at + DAY or span.processors < 1:
        return entry
    unreleased = entry.released_at == entry.ended_at and entry.kind is not Kind.SCAVENGED
    released_at = span.ended_at if unreleased else max(span.started_at, min(entry.released_at, span.ended_at))
    return replace(
        entry,
        processors=span.processors,
        started_at=span.started_at,
        released_at=span.started_at if entry.kind is Kind.SCAVENGED else released_at,
        ended_at=span.ended_at,
        accounted=True,
    )


def sums(
    entries: Iterable[Usage],
    by: By,
    since: Instant | None = None,
    until: Instant | None = None,
    unended: frozenset[AttemptId] = frozenset(),
    days: Iterable[DayUsage] = (),
) -> dict[tuple[str | int, ...], Sum]:
    """Sum the usage within [since, until) by (user), (cluster), (job, name, user), (UTC date) or (neighbour).

    The neighbour is '' for this site's own jobs on its own clusters. `unended`: the attempts that go on. `days` count
    whole, if they begin within the bounds; their job is 0, without a name. An attempt on a pilot counts on the pilot's
    own cluster, unless the pilot's entry is missing. The sum over all keys is the same for any `by`.
    """
    entries = list(entries)
    parts = [
        _Part(entry.owner, entry.charged, entry.name, entry.cluster, start, _sum(entry, start, end, is_open))
        for entry in entries
        for is_open in (entry.attempt in unended,)
        for start, end in _pieces(entry, by, since, until)
    ]
    parts += [
        _Part(each.owner, 0, "", each.cluster, each.day, each.used)
        for each in days
        if (since is None or since <= each.day) and (until is None or each.day < until)
    ]
    of_jobs: dict[JobId, list[Usage]] = {}
    for entry in entries:
        of_jobs.setdefault(entry.charged, []).append(entry)
    found: dict[tuple[str | int, ...], Sum] = {}
    for part in parts:
        for each in _with_pilot(part, of_jobs):
            key = _key(each, by)
            found[key] = found.get(key, Sum()).plus(each.used)
    return found


def by_days(entries: Iterable[Usage]) -> list[DayUsage]:
    """Return the entries summed by UTC day, user and cluster, in this order."""
    found: dict[tuple[int, str, str], Sum] = {}
    for entry in entries:
        for start, end in _pieces(entry, By.DAY, None, None):
            key = (start // DAY * DAY, entry.owner, entry.cluster)
            found[key] = found.get(key, Sum()).plus(_sum(entry, start, end, False))
    return [
        DayUsage(day=Instant(day), owner=owner, cluster=cluster, used=used)
        for (day, owner, cluster), used in sorted(found.items())
    ]


def _pieces(entry: Usage, by: By, since: Instant | None, until: Instant | None) -> Iterator[tuple[Instant, Instant]]:
    """Yield the entry's span within the bounds, if any of it is; cut at midnight if days are asked for."""
    start = entry.started_at if since is None else max(since, entry.started_at)
    end = entry.ended_at if until is None else min(until, entry.ended_at)
    if start > end or (start == end and entry.started_at < entry.ended_at) or start == until:
        return
    while by is By.DAY and start // DAY < (end - 1) // DAY:
        midnight = Instant((start // DAY + 1) * DAY)
        yield start, midnight
        start = midnight
    yield start, end


class _Part(NamedTuple):
    """The use of one cluster by one owner's job from an instant on. `charged`, `name`: 0 and '' for pruned jobs."""

    owner: str
    charged: int
    name: str
    cluster: str
    start: Instant
    used: Sum


def _with_pilot(part: _Part, of_jobs: Mapping[JobId, Sequence[Usage]]) -> Iterator[_Part]:
    """Yield the part; if it was used on a pilot, outside of the total, followed by the pilot's used part.

    `of_jobs`: the entries of each job. A pilot without an entry was pruned. A job whose component was held has several;
    it is the one that began last before the part did.
    """
    pilot = job_of_pilot(part.cluster)
    if pilot is None:
        yield part
        return
    beside = part._replace(used=Sum(attempts=part.used.attempts, on_pilots=part.used.total))
    entries = of_jobs.get(pilot)
    if not entries:
        yield beside
        return
    held_by = max(entries, key=lambda entry: (entry.started_at <= part.start, entry.started_at))
    yield beside._replace(cluster=held_by.cluster)
    used = Sum(used=part.used.total)
    yield _Part(held_by.owner, held_by.charged, held_by.name, held_by.cluster, part.start, used)


def _key(part: _Part, by: By) -> tuple[str | int, ...]:
    match by:
        case By.USER:
            return (part.owner,)
        case By.CLUSTER:
            return (part.cluster,)
        case By.JOB:
            return (part.charged, part.name, part.owner)
        case By.DAY:
            return (_date(part.start),)
        case By.SITE:
            return (_neighbour(part.owner, part.cluster),)


def _neighbour(owner: str, cluster: str) -> str:
    """Return the neighbour that owns the processors, or the job; '' if both are this site's."""
    lease = lease_of_cluster(cluster)
    return lease[0] if lease is not None else site_of(owner) if is_site(owner) else ""


def _date(instant: Instant) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=instant // DAY)).date().isoformat()


def _sum(entry: Usage, start: Instant, end: Instant, is_open: bool) -> Sum:
    """Return the sum of one piece. An attempt is counted at its last piece, so that no two days count it."""
    released_at = max(start, min(entry.released_at, end))
    held, rest = (released_at - start) * entry.processors, (end - released_at) * entry.processors
    return Sum(
        held=held,
        open=held + rest if is_open else 0,
        estimated=0 if entry.accounted else held + rest,
        attempts=int(end == entry.ended_at),
        **{entry.kind.value: rest},
    )
