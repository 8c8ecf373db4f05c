"""Tags on the clusters that this store does not know.

They are found and reported, and cleaned up only by command.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from koalapy_adapters.messages import details, kcm, koalad

from koalapy.answers import clusters as answers
from koalapy.model.errors import KoalaError, Reason, RequestError
from koalapy.model.identity import (
    FIRST_LAUNCHER,
    MAX_ATTEMPTS,
    AttemptId,
    InstanceId,
    JobId,
    Tag,
    attempt_of,
    is_tag,
    launcher_id,
)
from koalapy.model.job import Job
from koalapy.model.units import Instant, format_instant
from koalapy.runtime.current_grid import no_such_cluster
from koalapy.runtime.session.exchange import understood
from koalapy.store.contract import Store
from koalapy.views.launchers import as_job

_ANSWER_S = 60.0  # time for a cluster to list or examine tags
_EXAMINED = 200  # tags in one request
_LONG_SILENT_S = 86_400.0  # nothing is in doubt for so long
_ALIVE_S = 60.0  # since a wrapper's last sign of life: it gives one every 10 s, which NFS may delay
_PAGES = 100  # of tags on one cluster: limits what a faulty KCM can send

Ask = Callable[[str, Callable[[int], Any], float], kcm.Done]
Jobs = Callable[[Sequence[JobId]], Collection[Job]]
Batch = tuple[str, str]  # a batch job's id and state


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownTag:
    """A tag on a cluster that the store does not know.

    `own`: whether it bears this store's id, such as an attempt made after the backup that was restored. `batch_id` and
    `state`: those of its batch job, '' if none is listed. `directory`: whether it has a directory, which the other
    fields describe. `claim`: the state of its start lock: '' (free), taken, void or unreadable. `ended`: whether there
    is an exit record. `age_s`: seconds since the directory was prepared or made void. `heartbeat_age_s`: seconds since
    its wrapper's last sign of life. Both are by the file system's clock, and None if unknown.
    """

    cluster: str
    tag: Tag
    own: bool
    batch_id: str = ""
    state: str = ""
    directory: bool = False
    claim: str = ""
    ended: bool = False
    age_s: float | None = None
    heartbeat_age_s: float | None = None

    @property
    def instance(self) -> InstanceId:
        return attempt_of(self.tag)[0]

    @property
    def attempt(self) -> AttemptId:
        return attempt_of(self.tag)[1]

    @property
    def may_run(self) -> bool:
        """Return whether the tag has a batch job, or gave a sign of life within a day and has no exit record."""
        signs = [age for age in (self.age_s, self.heartbeat_age_s) if age is not None]
        return bool(self.batch_id) or (not self.ended and min(signs, default=0.0) < _LONG_SILENT_S)


@dataclass(frozen=True, slots=True)
class Survey:
    """The tags that were seen last on one cluster.

    `trouble`: why the cluster could not be asked at `at`; None if it was.
    """

    cluster: str
    at: Instant
    tags: tuple[UnknownTag, ...] = ()
    trouble: Reason | None = None


class UnknownTags:
    """Asks the clusters `named`, which may change, over `ask`.

    Any thread may call it. Only `survey_soon` and `last` return at once.
    """

    def __init__(
        self,
        instance: InstanceId,
        named: Collection[str],
        ask: Ask,
        jobs: Jobs,
        now: Callable[[], Instant],
        held: Callable[[], Collection[JobId | None]] = tuple,
    ) -> None:
        """`jobs`: returns the store's jobs of these ids.

        `held`: returns the ids of records that the store cannot read.
        """
        self._held = held
        self._instance, self._named, self._ask, self._jobs, self._now = instance, named, ask, jobs, now
        self._seen: dict[str, Survey] = {}

    def survey_soon(self, cluster: str) -> None:
        """Survey the cluster once, in the background."""
        threading.Thread(target=self._survey, args=(cluster,), name=f"survey-{cluster}", daemon=True).start()

    def last(self) -> list[Survey]:
        """Return the last survey of each cluster that was asked, in the order of the grid file."""
        return without_twins([self._seen[name] for name in list(self._named) if name in self._seen])

    def look(self, clusters: Collection[str] = ()) -> list[Survey]:
        """Survey these clusters now, or all of them. Blocks.

        Raises RequestError for one that is not in the grid file.
        """
        if wrong := [name for name in clusters if name not in self._named]:
            raise no_such_cluster(wrong[0], self._named)
        wanted = [name for name in list(self._named) if not clusters or name in clusters]
        with ThreadPoolExecutor(max(1, len(wanted))) as threads:  # one thread each, so that no cluster delays another
            return without_twins(list(threads.map(self._survey, wanted)))

    def place_of(self, tag: str, cluster: str | None) -> str:
        """Return `cluster`, or if that is None the cluster where the tag was seen last.

        Raises RequestError for a tag that the store knows, and for one that was seen nowhere.
        """
        self._must_be_unknown(tag)
        place = cluster or next((each.cluster for each in self.last() if tag in {one.tag for one in each.tags}), None)
        if place is None:
            message = f"No cluster that could be asked has an unknown tag {tag}."
            raise RequestError("no_such_tag", message, "`koala status --unknown` lists those there are.")
        return place

    def clean(self, cluster: str, tag: str, timeout_s: float) -> bool:
        """Cancel the tag's batch job, and remove its directory.

        False if the cluster has not finished after `timeout_s`. The same call again waits for the same. Raises
        KoalaError, also for a tag that the store knows.
        """
        self._must_be_unknown(tag)
        batch_id = next((each.batch_id for each in self._of(cluster) if each.tag == tag), "")
        try:
            self._ask(cluster, lambda number: koalad.Clean(number, tag, batch_id), timeout_s)
        except TimeoutError:
            return False
        if (seen := self._seen.get(cluster)) is not None:
            left = tuple(each for each in seen.tags if each.tag != tag)
            self._seen[cluster] = Survey(cluster, seen.at, left, seen.trouble)
        return True

    def _of(self, cluster: str) -> tuple[UnknownTag, ...]:
        return self._seen[cluster].tags if cluster in self._seen else ()

    def _must_be_unknown(self, tag: str) -> None:
        if not is_tag(tag):
            raise RequestError("bad_tag", f"{tag!r} is not a tag.", "`koala status --unknown` lists the unknown tags.")
        instance, attempt = attempt_of(Tag(tag))
        if instance != self._instance:
            return
        found = self._jobs([attempt.job])
        if attempt.job in self._held():
            message = f"{tag} is attempt {attempt} of job {attempt.job}, whose record cannot be read."
            raise RequestError("known_tag", message, f"Repair it: `koala down`, then `koala repair job/{attempt.job}`.")
        if attempt in known(found, [attempt]):
            message = f"{tag} is attempt {attempt} of job {attempt.job}, which this store knows."
            advice = f"See `koala show {attempt.job}`; `koala cancel {attempt.job}` ends it if it is not final."
            raise RequestError("known_tag", message, advice)

    def _survey(self, cluster: str) -> Survey:
        try:
            survey = Survey(cluster, self._now(), self._looked(cluster))
        except TimeoutError:
            reason = Reason("no_answer", "transient", f"{cluster} did not list its tags in {_ANSWER_S:.0f} s.", "")
            survey = Survey(cluster, self._now(), self._of(cluster), reason)
        except KoalaError as error:
            survey = Survey(cluster, self._now(), self._of(cluster), error.reason)
        self._seen[cluster] = survey
        return survey

    def _looked(self, cluster: str) -> tuple[UnknownTag, ...]:
        """Return the unknown tags of the cluster.

        The store is asked after it, so that a tag made meanwhile is known.
        """
        queue, directories = self._listed(cluster)
        unknown = self._unknown({*queue, *directories})
        examined = self._examined(cluster, [tag for tag in unknown if tag in directories])
        found = [_described(cluster, self._instance, tag, queue.get(tag), examined.get(tag)) for tag in unknown]
        return tuple(each for each in found if each.batch_id or each.directory)

    def _listed(self, cluster: str) -> tuple[dict[str, Batch], set[str]]:
        queue: dict[str, Batch] = {}
        directories: set[str] = set()
        after = ""
        for _ in range(_PAGES):
            page = understood(details.listed, self._ask(cluster, partial(_tags, after), _ANSWER_S).details)
            queue |= {tag: (batch_id, state) for tag, batch_id, state in page.queue}
            tags = set(filter(is_tag, page.directories))
            directories |= tags
            last = max(tags, default=after)
            if not page.more or last <= after:
                break
            after = last
        return queue, directories

    def _unknown(self, tags: Iterable[str]) -> list[Tag]:
        named = {Tag(tag): attempt_of(Tag(tag)) for tag in sorted(tags) if is_tag(tag)}
        own = [attempt for instance, attempt in named.values() if instance == self._instance]
        knows = known(self._jobs(sorted({attempt.job for attempt in own})), own) if own else set()
        held = self._held()
        knows |= {attempt for attempt in own if attempt.job in held}
        return [tag for tag, (instance, attempt) in named.items() if instance != self._instance or attempt not in knows]

    def _examined(self, cluster: str, tags: list[Tag]) -> dict[str, details.Examined]:
        found: dict[str, details.Examined] = {}
        for start in range(0, len(tags), _EXAMINED):
            some = [str(tag) for tag in tags[start : start + _EXAMINED]]
            found |= understood(details.examined, self._ask(cluster, partial(_examine, some), _ANSWER_S).details)
        return found


def answer(surveys: Sequence[Survey]) -> answers.UnknownAnswer:
    """Answer with the tags that this store does not know, and the outcome of the survey of each cluster."""
    return {
        "schema": "koala.unknown/1",
        "tags": [unknown_tag(tag) for survey in surveys for tag in survey.tags],
        "stores": by_store(tag for survey in surveys for tag in survey.tags),
        "clusters": [
            {
                "cluster": each.cluster,
                "at": format_instant(each.at),
                "reason": str(each.trouble) if each.trouble else None,
            }
            for each in surveys
        ],
    }


def unknown_tag(found: UnknownTag) -> answers.UnknownTag:
    """Describe such a tag."""
    return {
        "cluster": found.cluster,
        "tag": found.tag,
        "store": found.instance,
        "own": found.own,
        "attempt": str(found.attempt),
        "batch_id": found.batch_id or None,
        "batch_state": found.state or None,
        "directory": found.directory,
        "wrapper": _wrapper(found),
        "heartbeat_age_s": _seconds(found.heartbeat_age_s),
        "age_s": _seconds(found.age_s),
        "may_run": found.may_run,
    }


def by_store(tags: Iterable[UnknownTag]) -> list[answers.StoreTags]:
    """Count the tags of each store: first this store's, then by their number."""
    stores: dict[InstanceId, list[UnknownTag]] = {}
    for each in tags:
        stores.setdefault(each.instance, []).append(each)
    found = [_store_tags(store, those) for store, those in stores.items()]
    return sorted(found, key=lambda each: (not each["own"], -each["tags"], each["store"]))


def _store_tags(store: InstanceId, tags: Sequence[UnknownTag]) -> answers.StoreTags:
    ages_s = [each.age_s for each in tags if each.age_s is not None]
    return {
        "store": store,
        "own": tags[0].own,
        "clusters": list(dict.fromkeys(each.cluster for each in tags)),
        "tags": len(tags),
        "may_run": sum(each.may_run for each in tags),
        "oldest_s": _seconds(max(ages_s, default=None)),
        "newest_s": _seconds(min(ages_s, default=None)),
    }


def _wrapper(found: UnknownTag) -> Literal["alive", "silent", "ended", "none"]:
    """Return `silent` for a wrapper without a recent sign of life, `ended` for one with an exit record."""
    if found.ended:
        return "ended"
    if found.heartbeat_age_s is None:
        return "none"
    return "alive" if found.heartbeat_age_s < _ALIVE_S else "silent"


def _seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def jobs_and_launchers(store: Store, ids: Sequence[JobId]) -> list[Job]:
    """Return the jobs of these ids, and the Launchers of these numbers as if they were jobs."""
    launchers = [store.launcher(launcher_id(each)) for each in ids if each >= FIRST_LAUNCHER]
    return [*store.jobs(ids=ids), *(as_job(each, "", "") for each in launchers if each is not None)]


def known(jobs: Iterable[Job], attempts: Iterable[AttemptId]) -> set[AttemptId]:
    """Return those of the attempts that these jobs have, or have had.

    All attempts of a job that is not final count as known. After a restore, one made after the backup may still be
    found, and then the job continues with it.
    """
    last = {
        (job.id, index): job.number_of(index) if job.state.final else MAX_ATTEMPTS
        for job in jobs
        for index in range(len(job.request.components))
    }
    return {each for each in attempts if 0 < each.number <= last.get((each.job, each.component), 0)}


def without_twins(surveys: Sequence[Survey]) -> list[Survey]:
    """Return the surveys with each tag once: where its batch job is, else on one cluster that lists it.

    Clusters with one shared directory all list its contents.
    """
    places: dict[Tag, str] = {}
    for tag in sorted((tag for survey in surveys for tag in survey.tags), key=lambda each: not each.batch_id):
        places.setdefault(tag.tag, tag.cluster)
    return [
        Survey(each.cluster, each.at, tuple(tag for tag in each.tags if places[tag.tag] == each.cluster), each.trouble)
        for each in surveys
    ]


def _described(
    cluster: str, instance: InstanceId, tag: Tag, batch: Batch | None, directory: details.Examined | None
) -> UnknownTag:
    batch_id, state = batch or ("", "")
    own = attempt_of(tag)[0] == instance
    if directory is None:
        return UnknownTag(cluster=cluster, tag=tag, own=own, batch_id=batch_id, state=state)
    return UnknownTag(
        cluster=cluster, tag=tag, own=own, batch_id=batch_id, state=state, directory=True,
        claim=directory.start_lock, ended=directory.ended,
        age_s=directory.age_s, heartbeat_age_s=directory.heartbeat_age_s,
    )  # fmt: skip


def _tags(after: str, number: int) -> koalad.Tags:
    return koalad.Tags(number, after)


def _examine(tags: list[str], number: int) -> koalad.Examine:
    return koalad.Examine(number, tags)
