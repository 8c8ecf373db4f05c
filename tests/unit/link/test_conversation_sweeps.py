"""A KCM's messages about sweeps, as koalad reads them: numbers as they are, instants of the KCM's own clock."""

import pytest
from koalapy_adapters import messages as wire
from koalapy_adapters.messages import fields, kcm, koalad

from koalapy.link.conversation import Deliver, KcmConversation, Opening
from koalapy.link.reconnect import Cluster
from koalapy.model.commands import FeedSweep, RecallParameters, TrustLauncher
from koalapy.model.events import (
    Event,
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
)
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of
from koalapy.model.intervals import Intervals
from koalapy.model.parameters import ParameterResult
from koalapy.model.units import SECOND, Instant

OURS, THEIRS = InstanceId("abcde"), InstanceId("zzzzz")
LAUNCHER = AttemptId(JobId(FIRST_LAUNCHER + 3), 0, 1)
TAG, FOREIGN = str(tag_of(OURS, LAUNCHER)), str(tag_of(THEIRS, LAUNCHER))
NOW = Instant(1_000 * SECOND)
AHEAD = 40 * SECOND  # the KCM's clock
SWEEP = JobId(12)
ROW = [7, 1, "exited", "n1", 2, NOW + AHEAD - 20, NOW + AHEAD - 10, 0, 11, 5, 6]


@pytest.fixture
def dialogue() -> KcmConversation:
    dialogue = KcmConversation(
        Cluster(name="vu", instance=OURS, config={"name": "vu", "batch": "slurm"}), Opening(epoch=5, version="0")
    )
    dialogue.hello(NOW)
    dialogue.received(NOW, kcm.Welcome(wire.PROTOCOL, "0", NOW + AHEAD, "3.11", "head"))
    return dialogue


def reported(dialogue: KcmConversation, *bodies: object) -> list[Event]:
    """The events that come of these, each delivered under its own number."""
    arrived = [dialogue.received(NOW, kcm.Event(at, wire.to_json(body))) for at, body in enumerate(bodies, start=1)]
    acknowledged = [each.delivery.acknowledge for one in arrived for each in one.commands if isinstance(each, Deliver)]
    assert acknowledged == [("vu", 5, number) for number in range(1, len(bodies) + 1)]
    return [
        event for one in arrived for each in one.commands if isinstance(each, Deliver) for event in each.delivery.events
    ]


def test_results_are_reported_with_instants_of_koalads_clock(dialogue: KcmConversation) -> None:
    expected = ParameterResult(7, 1, "exited", "n1", 2, Instant(NOW - 20), Instant(NOW - 10), 0, 11, 5, 6)
    assert reported(dialogue, kcm.ParametersEnded(SWEEP, TAG, [ROW])) == [
        ParametersEnded(cluster="vu", sweep=SWEEP, attempt=LAUNCHER, results=(expected,))
    ]


def test_numbers_come_back_as_intervals(dialogue: KcmConversation) -> None:
    assert reported(dialogue, kcm.ParametersReturned(SWEEP, [[5, 9], [1, 2]], [[5, 6]])) == [
        ParametersReturned(
            cluster="vu", sweep=SWEEP, numbers=Intervals.of([(1, 2), (5, 9)]), begun=Intervals.of([(5, 6)])
        )
    ]


def test_wants_and_suspicions_are_passed_on(dialogue: KcmConversation) -> None:
    assert reported(dialogue, kcm.ParametersWanted(SWEEP, 40), kcm.LauncherSuspected(TAG, "n3")) == [
        ParametersWanted(cluster="vu", sweep=SWEEP, wanted=40),
        LauncherSuspected(cluster="vu", attempt=LAUNCHER, host="n3"),
    ]


def test_of_launchers_only_our_own_are_seen(dialogue: KcmConversation) -> None:
    newest = NOW + AHEAD - 3
    assert reported(dialogue, kcm.LaunchersSeen([[TAG, 4, newest], [FOREIGN, 2, newest], ["nonsense", 1, newest]])) == [
        LaunchersSeen(cluster="vu", launchers=((LAUNCHER, 4, Instant(NOW - 3)),))
    ]


@pytest.mark.parametrize(
    "foreign",
    [kcm.ParametersEnded(SWEEP, FOREIGN, [ROW]), kcm.LauncherSuspected(FOREIGN, "n3")],
    ids=["done", "suspect"],
)
def test_another_stores_launcher_is_acknowledged_and_not_accepted(dialogue: KcmConversation, foreign: object) -> None:
    assert reported(dialogue, foreign) == []


@pytest.mark.parametrize(
    "broken",
    [
        kcm.ParametersEnded(SWEEP, TAG, [ROW[:-1]]),
        kcm.ParametersReturned(SWEEP, [[1]]),
        kcm.LaunchersSeen([[TAG]]),
    ],
    ids=["a field too few", "half a range", "half a Launcher"],
)
def test_what_is_broken_is_no_message(dialogue: KcmConversation, broken: object) -> None:
    with pytest.raises(fields.MessageError):
        dialogue.received(NOW, kcm.Event(1, wire.to_json(broken)))


def test_an_ending_in_the_future_by_its_clock_has_happened_by_now(dialogue: KcmConversation) -> None:
    late = [*ROW[:6], NOW + AHEAD + 90, *ROW[7:]]
    (event,) = reported(dialogue, kcm.ParametersEnded(SWEEP, TAG, [late]))
    assert isinstance(event, ParametersEnded)
    assert event.results[0].ended_at == NOW
    assert event.results[0].started_at == NOW - 110, "it took as long as it took"


def test_words_name_sweeps_by_number_and_launchers_by_tag(dialogue: KcmConversation) -> None:
    numbers = Intervals.of([(1, 5), (8, 8)])
    feed = FeedSweep(cluster="vu", sweep=SWEEP, numbers=numbers, anew=True, launchers=(LAUNCHER,))
    assert dialogue.hint(feed).messages == (koalad.FeedSweep(SWEEP, [[1, 5], [8, 8]], True, [TAG]),)
    assert dialogue.hint(RecallParameters(cluster="vu", sweep=SWEEP, most=3)).messages == (
        koalad.RecallParameters(SWEEP, 3),
    )
    assert dialogue.hint(TrustLauncher(cluster="vu", attempt=LAUNCHER)).messages == (koalad.TrustLauncher(TAG),)
