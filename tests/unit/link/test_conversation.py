"""One session with a KCM as koalad holds it: what it sends, what it makes of answers, and of a connection's tricks."""

from typing import Any

import pytest
from koalapy_adapters import messages as wire
from koalapy_adapters.messages import fields as fields_messages
from koalapy_adapters.messages import kcm, koalad

from koalapy.driver.driver import Delivery
from koalapy.link.conversation import Deliver, KcmConversation, LogRefusal, Opening, PutKey, StageIn
from koalapy.link.reconnect import Cluster
from koalapy.link.session import Accepted, Reaction
from koalapy.model.commands import CancelAttempt, ForgetAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptForgotten,
    AttemptStuck,
    AttemptSubmitted,
    BatchStatusSeen,
    ClusterConnected,
    ClusterMeasured,
    MeasurementFailed,
    SubmissionFailed,
    WrapperReported,
)
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import ComponentRequest
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

OURS = InstanceId("abcde")
ATTEMPT = AttemptId(JobId(7), 0, 1)
OTHER = AttemptId(JobId(8), 0, 1)
TAG = str(tag_of(OURS, ATTEMPT))
NOW = Instant(1_000 * SECOND)
EPOCH = 5
GONE = Reason("no_such_file", "request", "There is no such file.", "Make it.")


@pytest.fixture
def dialogue() -> KcmConversation:
    cluster = Cluster(name="vu", instance=OURS, config={"name": "vu", "batch": "slurm"})
    return KcmConversation(cluster, Opening(epoch=EPOCH, version="1.2.3", known=[(ATTEMPT, "17"), (OTHER, "")]))


def submit_of(attempt: AttemptId = ATTEMPT, stage_in: tuple[str, ...] = ()) -> SubmitAttempt:
    return SubmitAttempt(
        cluster="vu",
        attempt=attempt,
        components=1,
        request=ComponentRequest(processors=2, executable="./program"),
        walltime=Duration(5 * MINUTE),
        barrier_timeout=Duration(MINUTE),
        stage_in=stage_in,
        directory="/",
    )


def release_of(attempt: AttemptId = ATTEMPT) -> ReleaseAttempt:
    return ReleaseAttempt(cluster="vu", attempt=attempt, first_rank=0, hosts=((0, "10.0.0.1", 1),))


def cancel_of(attempt: AttemptId = ATTEMPT) -> CancelAttempt:
    return CancelAttempt(cluster="vu", attempt=attempt, batch_id="17")


def forget_of(attempt: AttemptId = ATTEMPT) -> ForgetAttempt:
    return ForgetAttempt(cluster="vu", attempt=attempt)


def event_of(number: int, body: Any | None = None) -> kcm.Event:
    return kcm.Event(number, wire.to_json(body or kcm.BatchStatus(TAG, "17", NOW, "queued")))


def came(*fields: Any, **named: Any) -> Delivery:
    """Return what was delivered over the session of these tests."""
    return Delivery(*fields, **{"session": ("vu", EPOCH), **named})


def delivered(reaction: Reaction) -> tuple[Delivery, ...]:
    return tuple(each.delivery for each in reaction.commands if isinstance(each, Deliver))


def reported(dialogue: KcmConversation, number: int) -> bool:
    """Return whether the event of this number is delivered, and to be acknowledged by it."""
    deliveries = delivered(dialogue.received(NOW, event_of(number)))
    assert all(each.acknowledge == ("vu", EPOCH, number) for each in deliveries)
    return bool(deliveries)


# ---- the beginning


def test_hello_states_the_sender_and_what_may_live_there(dialogue: KcmConversation) -> None:
    hello, ping = dialogue.hello(NOW), dialogue.ping(NOW)
    assert (hello.epoch, hello.instance, hello.version, hello.clock) == (EPOCH, OURS, "1.2.3", NOW)
    assert hello.known == [[TAG, "17"], [tag_of(OURS, OTHER), ""]]
    assert koalad.ClusterConfig(**hello.cluster) == koalad.ClusterConfig("vu", "slurm")
    assert ping == koalad.Ping(1, NOW)


def test_a_welcome_connects_the_cluster(dialogue: KcmConversation) -> None:
    dialogue.hello(NOW)
    welcome = kcm.Welcome(1, "1", NOW, "3.6", "fs0", "slurm 24")
    arrived = dialogue.received(NOW, welcome)
    assert delivered(arrived) == (came((ClusterConnected(cluster="vu", version="slurm 24"),)),)
    assert arrived.answer == Accepted("fs0", "slurm 24")


def test_a_welcome_may_come_from_a_batch_system_that_is_down(dialogue: KcmConversation) -> None:
    error = dict(kcm.Failure("down", "cluster", "It is down.")._asdict())
    (delivery,) = delivered(dialogue.received(NOW, kcm.Welcome(1, "1", NOW, "3.6", "fs0", error=error)))
    failed = MeasurementFailed(cluster="vu", reason=Reason("down", "cluster", "It is down."))
    assert delivery.events == (ClusterConnected(cluster="vu", version=""), failed)


# ---- numbered events


def test_events_are_delivered_in_their_order(dialogue: KcmConversation) -> None:
    assert [reported(dialogue, number) for number in (1, 2, 3)] == [True, True, True]


def test_an_event_that_comes_twice_is_delivered_once(dialogue: KcmConversation) -> None:
    assert [reported(dialogue, number) for number in (1, 1, 2, 1, 2)] == [True, False, True, False, False]


def test_a_gap_is_not_delivered_but_what_is_sent_again_is(dialogue: KcmConversation) -> None:
    assert [reported(dialogue, number) for number in (1, 3, 4)] == [True, False, False]
    assert [reported(dialogue, number) for number in (2, 3, 4)] == [True, True, True]


def test_events_that_overtake_each_other_are_delivered_in_order(dialogue: KcmConversation) -> None:
    assert [reported(dialogue, number) for number in (2, 1, 3, 2, 3)] == [False, True, False, True, True]


def test_a_duplicate_is_acknowledged_again_once_it_is_committed_and_no_sooner(dialogue: KcmConversation) -> None:
    for number in (1, 2, 3):
        assert dialogue.received(NOW, event_of(number)).messages == ()
    assert dialogue.received(NOW, event_of(2)).messages == ()
    assert dialogue.acknowledge(EPOCH, 2).messages == (koalad.Acknowledge(2),)
    assert dialogue.received(NOW, event_of(1)).messages == (koalad.Acknowledge(2),)
    assert dialogue.received(NOW, event_of(3)).messages == ()


def test_a_gap_is_not_acknowledged(dialogue: KcmConversation) -> None:
    """An answer would keep the KCM from sending again what is missing."""
    dialogue.received(NOW, event_of(1))
    dialogue.acknowledge(EPOCH, 1)
    assert dialogue.received(NOW, event_of(3)).messages == ()


def test_what_another_session_committed_is_nothing_to_this_kcm(dialogue: KcmConversation) -> None:
    dialogue.received(NOW, event_of(1))
    assert dialogue.acknowledge(EPOCH - 1, 9) == Reaction()
    assert dialogue.received(NOW, event_of(1)).messages == ()


def test_an_event_that_cannot_be_understood_is_reported(dialogue: KcmConversation) -> None:
    with pytest.raises(fields_messages.MessageError):
        dialogue.received(NOW, kcm.Event(1, {"type": "surprise"}))
    assert reported(dialogue, 1)


# ---- what events report


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (kcm.Measured(NOW, 8, 4, 2, 2, 0, [TAG], [], []), ClusterMeasured),
        (kcm.MeasureFailed(NOW, {"code": "down"}), MeasurementFailed),
        (kcm.BatchStatus(TAG, "17", NOW, "running"), BatchStatusSeen),
        (kcm.Report(TAG, "17", "at_barrier", [["n1", "10.0.0.1", 2]]), WrapperReported),
        (kcm.CleanedUp(TAG, NOW), AttemptCleanedUp),
        (kcm.Stuck(TAG, NOW, {"code": "stuck"}), AttemptStuck),
    ],
)
def test_every_kind_of_event_has_its_translation(dialogue: KcmConversation, body: Any, kind: type) -> None:
    (delivery,) = delivered(dialogue.received(NOW, event_of(1, body)))
    assert [type(event) for event in delivery.events] == [kind]


def test_what_another_store_runs_there_is_acknowledged_and_no_more(dialogue: KcmConversation) -> None:
    body = kcm.CleanedUp(tag_of(InstanceId("zzzzz"), ATTEMPT), NOW)
    assert delivered(dialogue.received(NOW, event_of(1, body))) == (came(acknowledge=("vu", EPOCH, 1)),)


def test_a_key_goes_to_whoever_passes_keys_on(dialogue: KcmConversation) -> None:
    arrived = dialogue.received(NOW, kcm.PutKey(TAG, "port", "1"))
    assert arrived == Reaction(commands=(PutKey(ATTEMPT, "port", "1"),))
    assert dialogue.received(NOW, kcm.PutKey("no-tag", "port", "1")) == Reaction()
    assert dialogue.put_key(ATTEMPT, "port", "1").messages == (kcm.PutKey(TAG, "port", "1"),)


def test_instants_are_of_our_clock(dialogue: KcmConversation) -> None:
    ahead = 3600 * SECOND
    dialogue.hello(NOW)
    dialogue.ping(NOW)
    later = Instant(NOW + SECOND)
    dialogue.received(later, kcm.Pong(1, NOW + ahead + SECOND // 2, 0.25))
    assert dialogue.cost == 0.25
    body = kcm.BatchStatus(TAG, "17", NOW + ahead, "running", silent_since=NOW + ahead - SECOND)
    (delivery,) = delivered(dialogue.received(later, event_of(1, body)))
    (seen,) = delivery.events
    assert isinstance(seen, BatchStatusSeen)
    assert (seen.at, seen.silent_since) == (NOW, NOW - SECOND)


# ---- commands and what confirms them


def test_a_submit_is_sent_once_and_confirmed_by_its_answer(dialogue: KcmConversation) -> None:
    (message,) = dialogue.send(3, submit_of(), True).messages
    assert (message.id, message.tag, message.doubt) == (3, TAG, True)
    assert dialogue.send(3, submit_of(), True) == Reaction()
    answer = kcm.Submitted(3, TAG, "17")
    submitted = AttemptSubmitted(cluster="vu", attempt=ATTEMPT, batch_id="17")
    assert delivered(dialogue.received(NOW, answer)) == (came((submitted,), (3,)),)
    assert delivered(dialogue.received(NOW, answer)) == ()


def test_a_refused_submit_has_failed(dialogue: KcmConversation) -> None:
    dialogue.send(3, submit_of(), False)
    refused = kcm.Refused(3, dict(kcm.Failure("no_queue", "request", "No queue.")._asdict()))
    failed = SubmissionFailed(cluster="vu", attempt=ATTEMPT, reason=Reason("no_queue", "request", "No queue."))
    assert delivered(dialogue.received(NOW, refused)) == (came((failed,), (3,)),)


def test_a_release_is_confirmed_when_it_is_done(dialogue: KcmConversation) -> None:
    (message,) = dialogue.send(3, release_of(), False).messages
    assert (message.id, message.tag) == (3, TAG)
    assert delivered(dialogue.received(NOW, kcm.Done(3))) == (came(confirmed=(3,)),)


def test_an_attempt_is_forgotten_when_its_directory_is_removed(dialogue: KcmConversation) -> None:
    (message,) = dialogue.send(3, forget_of(), False).messages
    assert (message.id, message.tag) == (3, TAG)
    forgotten = AttemptForgotten(cluster="vu", attempt=ATTEMPT)
    assert delivered(dialogue.received(NOW, kcm.Done(3))) == (came((forgotten,), (3,)),)


def test_a_refusal_to_forget_is_reported(dialogue: KcmConversation) -> None:
    dialogue.send(3, forget_of(), False)
    failure = dict(kcm.Failure("bad_tag", "ours", "That is no tag.")._asdict())
    (delivery,) = delivered(dialogue.received(NOW, kcm.Refused(3, failure)))
    assert delivery.confirmed == (3,)
    (event,) = delivery.events
    assert isinstance(event, AttemptForgotten)
    assert event.refused is not None
    assert event.refused.code == "bad_tag"


def test_a_cancel_is_confirmed_when_nothing_is_left(dialogue: KcmConversation) -> None:
    """With all that was asked of the attempt before it, but not with what comes after, or is another's."""
    commands: list[Any] = [submit_of(), release_of(), cancel_of(), forget_of(), submit_of(OTHER)]
    for number, command in enumerate(commands, 1):
        assert dialogue.send(number, command, False).messages
    assert delivered(dialogue.received(NOW, kcm.Done(3))) == ()
    (delivery,) = delivered(dialogue.received(NOW, event_of(1, kcm.CleanedUp(TAG, NOW))))
    assert delivery == came((AttemptCleanedUp(cluster="vu", attempt=ATTEMPT),), (1, 2, 3), ("vu", EPOCH, 1))
    assert delivered(dialogue.received(NOW, kcm.Submitted(1, TAG, "17"))) == ()
    forgotten = AttemptForgotten(cluster="vu", attempt=ATTEMPT)
    assert delivered(dialogue.received(NOW, kcm.Done(4))) == (came((forgotten,), (4,)),)
    assert delivered(dialogue.received(NOW, kcm.Submitted(5, "", "18"))) != ()


def test_a_refused_cancel_is_not_confirmed(dialogue: KcmConversation) -> None:
    dialogue.send(3, cancel_of(), False)
    (refusal,) = dialogue.received(NOW, kcm.Refused(3, {"code": "down"})).commands
    assert isinstance(refusal, LogRefusal)
    assert refusal.command == cancel_of()


def test_a_refused_release_is_done_with(dialogue: KcmConversation) -> None:
    dialogue.send(3, release_of(), False)
    arrived = dialogue.received(NOW, kcm.Refused(3, {"code": "attempt_ended"}))
    assert delivered(arrived) == (came(confirmed=(3,)),)


def test_answers_to_nothing_are_nothing(dialogue: KcmConversation) -> None:
    for answer in (kcm.Submitted(9, TAG, "17"), kcm.Done(9), kcm.Refused(9, {}), kcm.Pong(9, 0)):
        assert delivered(dialogue.received(NOW, answer)) == ()


# ---- files that are staged first


def test_a_submit_waits_for_its_files(dialogue: KcmConversation) -> None:
    command = submit_of(stage_in=("data",))
    assert dialogue.send(3, command, True) == Reaction(commands=(StageIn(3, command, True),))
    assert dialogue.send(3, command, True) == Reaction()
    (message,) = dialogue.submit(3, True, [["data", "0" * 64, 0o644]]).messages
    assert message.staged == [["data", "0" * 64, 0o644]]


def test_what_was_cancelled_while_its_files_were_staged_is_not_sent(dialogue: KcmConversation) -> None:
    dialogue.send(3, submit_of(stage_in=("data",)), False)
    assert dialogue.is_wanted(3)
    assert dialogue.send(4, cancel_of(), False).messages
    assert not dialogue.is_wanted(3)
    assert dialogue.submit(3, False) == Reaction()


def test_what_cannot_be_staged_has_failed(dialogue: KcmConversation) -> None:
    dialogue.send(3, submit_of(stage_in=("data",)), False)
    failed = SubmissionFailed(cluster="vu", attempt=ATTEMPT, reason=GONE)
    assert delivered(dialogue.not_staged(3, GONE, False)) == (came((failed,), (3,)),)
    assert delivered(dialogue.not_staged(3, GONE, False)) == ()


def test_what_cannot_be_staged_again_may_be_there(dialogue: KcmConversation) -> None:
    """The KCM looks for the batch job, and makes none: no KCM has the file that this Submit names."""
    dialogue.send(3, submit_of(stage_in=("data",)), False)
    arrived = dialogue.not_staged(3, GONE, True)
    assert delivered(arrived) == ()
    (message,) = arrived.messages
    assert message.doubt
    assert message.staged
    (delivery,) = delivered(dialogue.received(NOW, kcm.Refused(3, {"code": "no_staged_file"})))
    assert delivery.events == (SubmissionFailed(cluster="vu", attempt=ATTEMPT, reason=GONE),)


# ---- its clock


def test_old_pings_are_forgotten(dialogue: KcmConversation) -> None:
    for _ in range(30):
        dialogue.ping(NOW)
    dialogue.received(NOW, kcm.Pong(1, NOW + 3600 * SECOND))
    assert dialogue._offset.ahead == 0
    dialogue.received(NOW, kcm.Pong(30, NOW + 3600 * SECOND))
    assert dialogue._offset.ahead == 3600 * SECOND
