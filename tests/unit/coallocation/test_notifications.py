"""Notifications: who gets which, each change once, tries within bounds, and nothing again that may have arrived."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from engine_play import INSTANCE, SIZES, Play, alike, component, make

from koalapy.coallocation.pruning import NOTIFYING, judge
from koalapy.config import difference, read_grid
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.journal.journal import Journal
from koalapy.journal.text import dump
from koalapy.languages.mapping import job_mapping
from koalapy.languages.reading import from_mapping, read_notify
from koalapy.link.notifications import NotificationQueue
from koalapy.model.change import OutboxEntry, Snapshot
from koalapy.model.commands import AnnounceNotification, Command, SendNotification
from koalapy.model.errors import Reason, RequestError
from koalapy.model.events import (
    AttemptSubmitted,
    CancelRequested,
    NotificationDue,
    NotificationTried,
    PruneRequested,
    WorkSubmitted,
)
from koalapy.model.header import Outcome as JobOutcome
from koalapy.model.identity import JobId
from koalapy.model.notification import (
    ENDS,
    RETRY_AFTER,
    JobKind,
    Mail,
    Notification,
    NotificationId,
    Notify,
    NotifyOn,
    Outcome,
    Program,
    Webhook,
)
from koalapy.model.parameters import Axis, Source, Space
from koalapy.model.request import RetryOn
from koalapy.model.settings import Preempt, PreemptBy
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scheduler.schedule import Policies
from koalapy.views.history import sentence
from koalapy.views.status import notification_troubles

HOOK = Webhook(url="https://me:pw@hooks.example:8443/services/T0/s3cr3t?x=1")
ALL = (NotifyOn.STARTED, *ENDS)
FAILED = Reason("webhook_failed", "transient", "It answered with HTTP 503.", "")


@pytest.fixture
def play() -> Play:
    return Play()


def announced(commands: Sequence[Command]) -> list[str]:
    return [str(each.notification.id) for each in commands if isinstance(each, AnnounceNotification)]


def submit(play: Play, *notify: Notify, **fields: Any) -> JobId:
    return play.submit(component(4, "alpha"), notify=notify, **fields)


def due(play: Play, notification: NotificationId, number: int = 1) -> list[SendNotification]:
    commands = play.apply(NotificationDue(notification=notification, number=number))
    return [each for each in commands if isinstance(each, SendNotification)]


def tried(play: Play, notification: NotificationId, outcome: Outcome, number: int = 1) -> list[AnnounceNotification]:
    reason = None if outcome is Outcome.SENT else FAILED
    event = NotificationTried(notification=notification, number=number, outcome=outcome, reason=reason)
    return [each for each in play.apply(event) if isinstance(each, AnnounceNotification)]


def story(play: Play, job: JobId) -> list[str]:
    return [each.kind for each in play.history if each.job == job and each.kind.startswith("notification")]


# ---- which changes


def test_each_recipient_is_notified_of_the_changes_that_it_wants(play: Play) -> None:
    job = submit(play, Notify(to=HOOK, on=ALL), Notify(to=Mail(address="me"), on=(NotifyOn.FAILED,)))
    play.pending.clear()
    play.run(job)
    assert announced(play.pending) == [f"{job}.started.0"]
    play.end(play.attempts(job)[0])
    play.obey()
    play.apply()
    assert announced(play.pending) == [f"{job}.done.0"]


def test_a_second_try_is_no_second_start_and_its_end_comes_once(play: Play) -> None:
    job = submit(play, Notify(to=HOOK, on=ALL), retry_on=(RetryOn.EXIT,))
    found: list[str] = []
    for _ in range(9):
        if play.job(job).state.final:
            break
        play.run(job)
        play.end(play.attempts(job)[0], status=1)
        found += announced(play.pending)
        play.obey()
        play.measure()
        found += announced(play.pending)
        play.pending.clear()
    assert play.job(job).completion_failures > 1
    assert sorted(set(found)) == [f"{job}.failed.0", f"{job}.started.0"]
    assert len(set(found)) == 2


@pytest.fixture
def vacated() -> tuple[Play, JobId]:
    """A job has run on all of alpha, and is vacated for one of priority 0."""
    preempting = Play(alike(preempt=Preempt(how=PreemptBy.VACATE)))
    job = submit_whole(preempting)
    preempting.run(job)
    preempting.measure()
    assert announced(preempting.pending) == [f"{job}.started.0"]
    due(preempting, NotificationId(job, NotifyOn.STARTED, 0))
    tried(preempting, NotificationId(job, NotifyOn.STARTED, 0), Outcome.SENT)
    preempting.submit(component(32, "alpha"), priority=0)
    preempting.measure()
    assert preempting.job(job).outcome is JobOutcome.VACATED
    return preempting, job


def submit_whole(play: Play) -> JobId:
    return play.submit(component(32, "alpha"), notify=(Notify(to=HOOK, on=ALL),))


def announced_by_its_start(play: Play, job: JobId) -> list[str]:
    play.pending.clear()
    play.run(job)
    return announced(play.pending)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_vacated_job_that_starts_again_is_no_second_start(vacated: tuple[Play, JobId], restarted: bool) -> None:
    play, job = vacated
    play.obey()
    assert play.job(job).state is JobState.WAITING
    (urgent,) = [each.id for each in play.jobs.values() if each.request.priority == 0]
    play.run(urgent)
    play.end(play.attempts(urgent)[0])
    play.obey()
    if restarted:
        snapshot = Snapshot(instance=INSTANCE, jobs=tuple(play.jobs.values()), counters=play.counters)
        play.engine = Engine(play.settings, Policies(worst_fit, fpfs), snapshot)
        for cluster in SIZES:
            play.reach(cluster)
    play.measure()
    assert announced_by_its_start(play, job) == []
    assert (play.job(job).state, play.job(job).completion_failures) == (JobState.RUNNING, 0)
    end = play.attempts(job)[0]
    play.end(end)
    play.obey()
    play.apply()
    assert announced(play.pending) == [f"{job}.done.0"]


def test_a_vacated_job_whose_next_try_fails_before_its_start_is_no_second_start(vacated: tuple[Play, JobId]) -> None:
    play, job = vacated
    play.obey()
    (urgent,) = [each.id for each in play.jobs.values() if each.request.priority == 0]
    play.run(urgent)
    play.end(play.attempts(urgent)[0])
    play.obey()
    play.measure()
    assert play.job(job).state is JobState.CLAIMING
    play.lose_claim(job)
    assert (play.job(job).state, play.job(job).submission_failures) == (JobState.CLAIMING, 1)
    assert announced_by_its_start(play, job) == []
    assert play.job(job).state is JobState.RUNNING


def test_a_vacated_job_that_ended_well_first_is_no_second_start(vacated: tuple[Play, JobId]) -> None:
    play, job = vacated
    play.pending = [each for each in play.pending if not isinstance(each, AnnounceNotification)]
    play.end(play.attempts(job)[0])
    play.obey()
    play.apply()
    assert "job_ended_first" in play.kinds
    assert play.job(job).state is JobState.DONE
    assert announced(play.pending) == [f"{job}.done.0"]


def test_a_job_that_is_vacated_before_its_first_start_notifies_of_that_start() -> None:
    play = Play(alike(preempt=Preempt(how=PreemptBy.VACATE)))
    job = submit_whole(play)
    play.apply(AttemptSubmitted(attempt=play.attempts(job)[0], batch_id="1"))
    play.measure()
    urgent = play.submit(component(32, "alpha"), priority=0)
    play.measure()
    assert play.job(job).outcome is JobOutcome.VACATED
    play.obey()
    play.run(urgent)
    play.end(play.attempts(urgent)[0])
    play.obey()
    play.measure()
    assert announced_by_its_start(play, job) == [f"{job}.started.0"]


def test_a_job_that_is_cancelled_while_it_waits_notifies(play: Play) -> None:
    job = play.submit(component(32, "alpha"), notify=())
    waiting = submit(play, Notify(to=HOOK))
    assert announced(play.apply(CancelRequested(waiting))) == [f"{waiting}.cancelled.0"]
    assert announced(play.apply(CancelRequested(job))) == []


def test_a_job_that_can_never_fit_notifies_with_its_reason(play: Play) -> None:
    commands = play.apply(WorkSubmitted(request=make(component(1000, "alpha"), notify=(Notify(to=HOOK),)), owner="me"))
    [found] = [each for each in commands if isinstance(each, AnnounceNotification)]
    assert found.notification.id.on is NotifyOn.FAILED
    assert found.notification.reason is not None
    assert found.notification.name == "job"


def test_a_sweep_notifies_of_its_first_admission_and_its_end(play: Play) -> None:
    space = Space(axes=(Axis(sources=(Source(names=("x",), values=("1", "2")),), count=2),))
    commands = play.apply(
        WorkSubmitted(request=make(component(1), parameters=space, notify=(Notify(to=HOOK, on=ALL),)), owner="me")
    )
    [sweep] = play.sweeps
    assert announced(commands) == [f"{sweep}.started.0"]
    assert not play.jobs, "a pilot is nobody's job"


# ---- tries


@pytest.fixture
def ended(play: Play) -> NotificationId:
    """A job of one webhook has been cancelled."""
    job = submit(play, Notify(to=HOOK))
    play.run(job)
    play.apply(CancelRequested(job))
    play.obey()
    play.apply()
    return NotificationId(job, NotifyOn.CANCELLED, 0)


def test_a_try_is_committed_once(play: Play, ended: NotificationId) -> None:
    assert [each.notification.id for each in due(play, ended)] == [ended]
    assert due(play, ended) == [], "the same again"
    assert tried(play, ended, Outcome.SENT) == []
    assert due(play, ended) == [], "it is settled"
    assert tried(play, ended, Outcome.NOT_TAKEN) == [], "it is settled"
    assert story(play, ended.job) == ["notification_sent"]


def test_an_outcome_without_a_try_is_none(play: Play, ended: NotificationId) -> None:
    assert tried(play, ended, Outcome.SENT) == []
    assert story(play, ended.job) == []
    assert due(play, ended, number=2) == []
    assert due(play, ended)
    assert tried(play, ended, Outcome.SENT, number=2) == []
    assert story(play, ended.job) == []


def test_what_is_not_taken_is_tried_again_within_bounds(play: Play, ended: NotificationId) -> None:
    waits = []
    for number in range(1, len(RETRY_AFTER) + 1):
        assert due(play, ended, number)
        [again] = tried(play, ended, Outcome.NOT_TAKEN, number)
        assert (again.number, again.failure) == (number + 1, FAILED)
        waits.append(again.due_at - play.now)
    assert waits == list(RETRY_AFTER)
    [waiting] = notification_troubles(play.engine.core.notifications)
    assert "HTTP 503" in waiting
    assert "s3cr3t" not in waiting
    last = len(RETRY_AFTER) + 1
    assert due(play, ended, last)
    assert tried(play, ended, Outcome.NOT_TAKEN, last) == []
    assert story(play, ended.job) == ["notification_not_taken"] * len(RETRY_AFTER) + ["notification_given_up"]
    [given_up] = notification_troubles(play.engine.core.notifications)
    assert "since koalad started" in given_up


@pytest.mark.parametrize(
    ("outcome", "kind"), [(Outcome.REFUSED, "notification_given_up"), (Outcome.UNKNOWN, "notification_unknown")]
)
def test_what_was_refused_or_may_have_arrived_is_not_sent_again(
    play: Play, ended: NotificationId, outcome: Outcome, kind: str
) -> None:
    due(play, ended)
    assert tried(play, ended, outcome) == []
    assert due(play, ended) == []
    assert story(play, ended.job) == [kind]


def test_the_history_and_the_status_show_no_secret(play: Play, ended: NotificationId) -> None:
    due(play, ended)
    tried(play, ended, Outcome.NOT_TAKEN)
    texts = [sentence(each) for each in play.history if each.job == ended.job]
    assert "webhook https://hooks.example:8443" in texts[-1]
    assert "The next try is at" in texts[-1]
    assert not [each for each in (*texts, repr(HOOK), str(HOOK)) if "s3cr3t" in each or "pw" in each]
    assert not [each for each in play.history if "s3cr3t" in repr(each.details)]


def test_a_job_is_pruned_once_its_notifications_are_settled(play: Play, ended: NotificationId) -> None:
    event = PruneRequested(work=(play.job(ended.job),), before=Instant(play.now + SECOND), records=True)
    assert [why for why, _ in judge(play.engine.core, event).kept] == [NOTIFYING]
    due(play, ended)
    assert [why for why, _ in judge(play.engine.core, event).kept] == [NOTIFYING]
    tried(play, ended, Outcome.SENT)
    assert judge(play.engine.core, event).kept == ()


def test_a_new_engine_goes_on_where_the_outbox_ends(play: Play, ended: NotificationId) -> None:
    [announcement] = [each for each in play.pending if isinstance(each, AnnounceNotification)]
    [sending] = due(play, ended)
    for command, ready in ((announcement, True), (sending, False)):
        snapshot = Snapshot(instance=INSTANCE, outbox=(OutboxEntry(1, command),))
        engine = Engine(play.settings, Policies(worst_fit, fpfs), snapshot)
        step = engine.handle(play.now, [NotificationDue(notification=ended, number=1)])
        assert bool(step.commands) is ready
        outcome = NotificationTried(notification=ended, number=1, outcome=Outcome.UNKNOWN, reason=FAILED)
        [line] = engine.handle(play.now, [outcome]).history
        assert line.kind == "notification_unknown"


def test_a_journal_has_no_url_and_no_argument() -> None:
    policies = Policies(worst_fit, fpfs)
    play = Play()
    journal = Journal(policies, ScavengingPolicies(), failed=lambda taken: None)
    journal.begin(play.engine)
    request = make(component(1), notify=(Notify(to=HOOK), Notify(to=Program(words=("tell", "s3cr3t")))))
    events = [WorkSubmitted(request=request, owner="me")]
    journal.handling(play.now, events)
    journal.handled(play.engine.handle(play.now, events))
    text = json.dumps(dump(journal.taken(), "1"))
    assert "s3cr3t" not in text
    assert '"tell"' in text


# ---- the queue of the sender


def announcement(number: int, at: int = 0) -> AnnounceNotification:
    notification = Notification(
        id=NotificationId(JobId(number), NotifyOn.DONE, 0), to=HOOK, name="n", owner="me", kind=JobKind.JOB,
        at=Instant(0), submitted_at=Instant(0),
    )  # fmt: skip
    return AnnounceNotification(notification=notification, due_at=Instant(at))


def sending(number: int) -> SendNotification:
    return SendNotification(notification=announcement(number).notification)


def numbers(deliveries: Sequence[Delivery]) -> list[int]:
    return [number for each in deliveries for number in each.confirmed]


def test_few_are_under_way_at_once_and_each_at_its_time() -> None:
    queue = NotificationQueue(lambda job: True, most_at_once=2)
    for number, at in ((1, 30), (2, 10), (3, 20), (4, 10)):
        queue.add(number, announcement(number, at))
    assert queue.ready(Instant(5)) == []
    assert queue.next_at() == 10
    assert numbers(queue.ready(Instant(40))) == [2, 4]
    assert (queue.ready(Instant(40)), queue.next_at()) == ([], None)
    assert queue.begin(12, sending(2), doubt=False) is None
    delivery = queue.tried(12, sending(2), Outcome.SENT, None)
    assert delivery.confirmed == (12,)
    assert numbers(queue.ready(Instant(40))) == [3]


def test_a_try_in_doubt_is_reported_and_not_made() -> None:
    queue = NotificationQueue(lambda job: True)
    delivery = queue.begin(7, sending(1), doubt=True)
    assert delivery is not None
    [event] = delivery.events
    assert isinstance(event, NotificationTried)
    assert (event.outcome, delivery.confirmed) == (Outcome.UNKNOWN, (7,))


def test_a_notification_of_a_job_without_a_record_is_dropped() -> None:
    queue = NotificationQueue(lambda job: False)
    queue.add(1, announcement(1))
    [delivery] = queue.ready(Instant(1))
    assert (delivery.events, delivery.confirmed) == ((), (1,))
    assert queue.begin(2, sending(1), doubt=True) == Delivery(confirmed=(2,))


def test_a_store_that_does_not_answer_loses_nothing() -> None:
    answers: list[bool] = []
    queue = NotificationQueue(lambda job: answers.pop())
    queue.add(1, announcement(1))
    with pytest.raises(IndexError):
        queue.ready(Instant(1))
    answers.append(True)
    assert numbers(queue.ready(Instant(1))) == [1]


def test_a_place_is_free_again_if_the_engine_refuses_or_ignores_the_notification(play: Play) -> None:
    queue = NotificationQueue(lambda job: True, most_at_once=1)
    for number in (1, 2, 3):
        queue.add(number, announcement(number))
    [first] = queue.ready(Instant(1))
    assert first.refused is not None
    first.refused(FAILED)
    [second] = queue.ready(Instant(1))
    assert second.after is not None
    second.after(play.engine.handle(play.now, []))  # without a command
    assert numbers(queue.ready(Instant(1))) == [3]


# ---- files


def job_with(notify: Any) -> Any:
    mapping = {"components": [{"processors": 1, "executable": "x"}], "notify": notify}
    return from_mapping(mapping, "job", "/home/me")


def test_what_is_written_is_read_again() -> None:
    found = job_with([{"webhook": HOOK.url, "on": ["started"]}, {"command": ["~/tell", 7]}, {"mail": "a@b"}])
    assert found.notify == (
        Notify(to=HOOK, on=(NotifyOn.STARTED,)),
        Notify(to=Program(words=("~/tell", "7"))),
        Notify(to=Mail(address="a@b")),
    )
    assert from_mapping(job_mapping(found), "job", "/home/me").notify == found.notify
    assert job_with([]).notify == ()
    assert from_mapping(job_mapping(job_with([])), "job", "/home/me").notify == ()
    assert job_with([{"mail": "me", "on": ["done"]}, {"mail": "me", "on": ["failed", "done"]}]).notify == (
        Notify(to=Mail(address="me"), on=(NotifyOn.DONE, NotifyOn.FAILED)),
    )


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"webhook": "ftp://secret.example/x"}, "notify.0.webhook does not begin with http:// or https://"),
        ({"webhook": "file:///etc/secret"}, "notify.0.webhook does not begin"),
        ({"webhook": "https://"}, "notify.0.webhook is not a URL"),
        ({"webhook": "https://secret host/"}, "has a space"),
        ({"webhook": "https://secret:0/"}, "the port 0"),
        ({"webhook": "https://secret:99999/"}, "is not a URL"),
        ({"webhook": "https://h/" + "secret" * 400}, "more than 2048"),
        ({"mail": "-oQ/tmp"}, "not a mail address"),
        ({"mail": "a@b, c@d"}, "not a mail address"),
        ({"mail": "a b"}, "not a mail address"),
        ({"mail": "a@b\nBcc: c@d"}, "line break"),
        ({"command": []}, "notify.0.command is empty"),
        ({"command": "rm -rf /"}, "where a list belongs"),
        ({"command": ["./tell", "secret"]}, "neither a program's name nor an absolute path"),
        ({"command": [""]}, "neither a program's name"),
        ({"command": ["x"] * 65}, "65 words"),
        ({"mail": "me", "on": []}, "notify.0.on is empty"),
        ({"mail": "me", "on": ["dne"]}, "Did you mean done?"),
        ({"mail": "me", "command": ["x"]}, "has mail and command"),
        ({"on": ["done"]}, "has no recipient"),
        ({"slack": "x", "mail": "me"}, "slack"),
    ],
)
def test_bad_entries_are_refused_without_their_secrets(entry: dict[str, Any], words: str) -> None:
    for read in (lambda: job_with([entry]), lambda: read_notify([entry], "--notify")):
        with pytest.raises(RequestError) as refused:
            read()
        assert words in str(refused.value)
        assert "secret" not in str(refused.value)
        assert refused.value.reason.advice


def test_more_entries_than_the_most_are_refused() -> None:
    with pytest.raises(RequestError, match="17 entries"):
        job_with([{"mail": f"me{number}"} for number in range(17)])


def test_the_wait_between_tries_grows() -> None:
    assert list(RETRY_AFTER) == sorted(RETRY_AFTER)
    assert sum(RETRY_AFTER) < Duration(24 * 3600 * SECOND)


def test_a_reload_shows_no_recipient() -> None:
    """Its URL may hold a secret."""
    cluster = "clusters: {here: {batch: local, connect: 'local:'}}\n"
    before, after = (
        read_grid(f"grid: x\n{cluster}notify: {notify}\n", "grid.yaml", ("local",))
        for notify in ("[]", f"[{{webhook: '{HOOK.url}'}}]")
    )
    [change] = difference(before, after).changed
    assert (change.key, change.cluster) == ("notify", None)
    assert "s3cr3t" not in repr(change)
    assert difference(before, after).at_start == ()
