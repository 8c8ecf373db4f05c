"""Unknown tags: those that clusters list and the store does not know, and which of them may be cleaned."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from koalapy_adapters.messages import kcm, koalad

from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Change
from koalapy.model.errors import RequestError, TransientError
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, Tag, launcher_id, tag_of
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.runtime.unknown import Survey, UnknownTag, UnknownTags, by_store, jobs_and_launchers, known, without_twins
from koalapy.store.memory import MemoryStore

OWN, OTHER = InstanceId("abcde"), InstanceId("zzzzz")
ONE = ComponentRequest(processors=1, executable="true")
OLD = {"start_lock": "taken", "ended": True, "age_s": 3600.0, "heartbeat_age_s": None}


def tag(number: int, attempt: int = 1, instance: InstanceId = OWN) -> str:
    return tag_of(instance, AttemptId(JobId(number), 0, attempt))


def job(number: int, attempt: int, state: JobState = JobState.DONE) -> Job:
    return Job(
        id=JobId(number),
        owner="me",
        request=Request(name="job", components=(ONE,)),
        state=state,
        position=1,
        submitted_at=Instant(0),
        numbers=(attempt,),
    )


class Grid:
    """Clusters that answer as KCMs do, with a few tags in each page, and a store of three jobs."""

    def __init__(self, page: int = 2) -> None:
        self.queue: dict[str, list[list[str]]] = {"delft": [], "vu": []}
        self.directories: dict[str, list[str]] = {"delft": [], "vu": []}
        self.asked: list[tuple[str, Any]] = []
        self.errors: dict[str, Exception] = {}
        self._page = page

    def ask(self, cluster: str, request: Callable[[int], Any], timeout_s: float) -> kcm.Done:
        message = request(7)
        self.asked.append((cluster, message))
        if cluster in self.errors:
            raise self.errors[cluster]
        if isinstance(message, koalad.Tags):
            left = sorted(each for each in self.directories[cluster] if each > message.after)
            queue = [] if message.after else self.queue[cluster]
            more = len(left) > self._page
            return kcm.Done(7, False, {"queue": queue, "directories": left[: self._page], "more": more})
        if isinstance(message, koalad.Examine):
            return kcm.Done(7, False, {each: OLD for each in message.tags if each in self.directories[cluster]})
        return kcm.Done(7)

    def jobs(self, ids: Sequence[JobId]) -> list[Job]:
        return [each for each in (job(1, 1), job(2, 3), job(4, 1, JobState.WAITING)) if each.id in ids]

    def made(self) -> UnknownTags:
        return UnknownTags(OWN, ["delft", "vu"], self.ask, self.jobs, lambda: Instant(5))


@pytest.fixture
def grid() -> Grid:
    return Grid()


def found(surveys: list[Survey]) -> dict[str, list[str]]:
    return {each.cluster: [str(one.tag) for one in each.tags] for each in surveys}


def test_every_attempt_that_the_store_has_or_had_is_known(grid: Grid) -> None:
    grid.directories["delft"] = [tag(1), tag(2, 1), tag(2, 2), tag(2, 3)]
    assert found(grid.made().look()) == {"delft": [], "vu": []}
    assert not [message for _, message in grid.asked if isinstance(message, koalad.Examine)]


def test_every_attempt_of_an_active_job_is_known(grid: Grid) -> None:
    """After the restore of a backup its later attempts may be found again."""
    grid.directories["delft"] = [tag(4), tag(4, 2), tag(4, 3)]
    made = grid.made()
    assert found(made.look(["delft"])) == {"delft": []}
    with pytest.raises(RequestError) as refused:
        made.clean("delft", tag(4, 3), 1.0)
    assert refused.value.reason.code == "known_tag"


def test_attempts_of_other_stores_later_attempts_and_missing_jobs_are_unknown(grid: Grid) -> None:
    unknown = [tag(2, 4), tag(3), tag(1, 1, OTHER)]
    grid.directories["delft"] = [tag(1), *unknown]
    (delft, _) = grid.made().look()
    assert found([delft]) == {"delft": sorted(unknown)}
    assert {str(each.tag): each.own for each in delft.tags} == {tag(2, 4): True, tag(3): True, tag(1, 1, OTHER): False}
    assert all(each.directory and each.ended and each.age_s == 3600.0 for each in delft.tags)
    assert delft.tags[0].attempt == AttemptId(JobId(2), 0, 4)


def test_an_unknown_batch_job_without_a_directory_is_listed(grid: Grid) -> None:
    grid.queue["vu"] = [[tag(9, 1, OTHER), "41", "running"], [tag(1), "42", "running"], ["no tag", "43", "running"]]
    (vu,) = grid.made().look(["vu"])
    (one,) = vu.tags
    assert (one.batch_id, one.state, one.directory, one.age_s) == ("41", "running", False, None)


def test_many_tags_are_listed_page_by_page(grid: Grid) -> None:
    grid.directories["delft"] = [tag(number, 1, OTHER) for number in range(1, 8)]
    grid.queue["delft"] = [[tag(1, 1, OTHER), "41", "queued"]]
    (delft,) = grid.made().look(["delft"])
    assert len(delft.tags) == 7
    assert delft.tags[0].batch_id == "41"
    assert len([message for _, message in grid.asked if isinstance(message, koalad.Tags)]) == 4


def test_a_cluster_that_does_not_answer_keeps_its_last_survey(grid: Grid) -> None:
    grid.directories["delft"] = [tag(1, 1, OTHER)]
    made = grid.made()
    made.look()
    grid.errors["delft"] = TransientError("not_connected", "delft is not connected.", "Wait a moment.")
    (delft, vu) = made.look()
    assert found([delft, vu]) == {"delft": [tag(1, 1, OTHER)], "vu": []}
    assert delft.trouble is not None
    assert delft.trouble.code == "not_connected"
    assert vu.trouble is None
    grid.errors["delft"] = TimeoutError()
    (delft,) = made.look(["delft"])
    assert delft.trouble is not None
    assert delft.trouble.code == "no_answer"
    assert found(made.last())["delft"] == [tag(1, 1, OTHER)]


def test_a_tag_in_a_directory_of_two_clusters_is_listed_once_where_its_batch_job_is(grid: Grid) -> None:
    both = [tag(1, 1, OTHER), tag(2, 1, OTHER)]
    grid.directories = {"delft": both, "vu": both}
    grid.queue["vu"] = [[tag(2, 1, OTHER), "41", "running"]]
    assert found(grid.made().look()) == {"delft": [both[0]], "vu": [both[1]]}
    assert without_twins([]) == []


def test_a_cluster_that_is_not_in_the_grid_file_is_refused(grid: Grid) -> None:
    with pytest.raises(RequestError) as refused:
        grid.made().look(["vuu"])
    assert refused.value.reason.code == "no_such_cluster"


def test_a_clean_names_the_batch_job_and_removes_the_tag_from_the_survey(grid: Grid) -> None:
    unknown = tag(2, 4)
    grid.queue["vu"] = [[unknown, "41", "running"]]
    made = grid.made()
    made.look()
    assert made.place_of(unknown, None) == "vu"
    assert made.clean("vu", unknown, 1.0)
    assert grid.asked[-1] == ("vu", koalad.Clean(7, unknown, "41"))
    assert found(made.last())["vu"] == []


def test_a_clean_that_takes_longer_than_its_time_out_is_unconfirmed(grid: Grid) -> None:
    made = grid.made()
    grid.errors["vu"] = TimeoutError()
    assert not made.clean("vu", tag(9), 0.0)


@pytest.mark.parametrize(
    ("named", "code"),
    [
        (tag(2, 3), "known_tag"),
        (tag(2, 1), "known_tag"),
        (tag(9), "no_such_tag"),
        ("k", "bad_tag"),
        ("../x", "bad_tag"),
    ],
)
def test_a_tag_that_may_not_be_cleaned_is_refused_without_asking_a_cluster(grid: Grid, named: str, code: str) -> None:
    with pytest.raises(RequestError) as refused:
        grid.made().place_of(named, None)
    assert refused.value.reason.code == code
    if code != "no_such_tag":
        with pytest.raises(RequestError):
            grid.made().clean("vu", named, 1.0)
    assert grid.asked == []


@pytest.mark.parametrize(
    ("fields", "may_run"),
    [
        pytest.param({"batch_id": "41"}, True, id="a batch job"),
        pytest.param({"batch_id": "41", "ended": True, "directory": True}, True, id="ended, still listed"),
        pytest.param({"directory": True, "ended": True, "age_s": 5.0, "heartbeat_age_s": 5.0}, False, id="ended"),
        pytest.param({"directory": True, "age_s": 90_000.0, "heartbeat_age_s": 100.0}, True, id="silent for a while"),
        pytest.param({"directory": True, "age_s": 5.0}, True, id="just prepared"),
        pytest.param({"directory": True}, True, id="of unknown age"),
        pytest.param({"directory": True, "age_s": 90_000.0}, False, id="prepared long ago"),
        pytest.param({"directory": True, "age_s": 2e6, "heartbeat_age_s": 1e6}, False, id="silent for long"),
    ],
)
def test_a_tag_may_run_if_it_has_shown_a_sign_of_life(fields: dict[str, Any], may_run: bool) -> None:
    assert UnknownTag(cluster="vu", tag=Tag(tag(9)), own=False, **fields).may_run is may_run


def test_tags_are_counted_by_their_stores_this_one_first() -> None:
    third = InstanceId("yyyyy")
    places = [("vu", OTHER, 5.0), ("vu", third, 9.0), ("delft", OTHER, None), ("vu", OTHER, 2.0), ("vu", OWN, 1.0)]
    tags = [
        UnknownTag(cluster=cluster, tag=Tag(tag(9, 1 + number, store)), own=store == OWN, age_s=age, ended=True)
        for number, (cluster, store, age) in enumerate(places)
    ]
    found = [(*each.values(),) for each in by_store(tags)]
    assert found == [
        (OWN, True, ["vu"], 1, 0, 1.0, 1.0),
        (OTHER, False, ["vu", "delft"], 3, 0, 5.0, 2.0),
        (third, False, ["vu"], 1, 0, 9.0, 9.0),
    ]


def test_a_tag_of_a_restored_store_belongs_to_it(grid: Grid) -> None:
    one = UnknownTag(cluster="vu", tag=tag_of(OWN, AttemptId(JobId(2), 0, 4)), own=True)
    assert (one.instance, one.attempt) == (OWN, AttemptId(JobId(2), 0, 4))


def test_a_pilot_of_this_store_is_known_by_its_tag() -> None:
    store, fields = MemoryStore(), LauncherFields(owner=Owner(OwnerKind.SWEEP, 1), claimed_at=Instant(1))
    request = ComponentRequest(processors=1, executable="./program")
    pilot = Attempt(id=launcher_id(FIRST_LAUNCHER), cluster="vu", request=request, launcher=fields)
    store.commit(Change(attempts=(pilot,)))
    other = launcher_id(FIRST_LAUNCHER + 1)
    assert known(jobs_and_launchers(store, [pilot.id.job, other.job]), [pilot.id, other]) == {pilot.id}
