"""Neighbours of a site in the engine: messages count once, and what is lent is reported when it changes."""

from engine_play import UNREACHABLE, Play, alike

from koalapy.model.commands import (
    Command,
    ReportFree,
)
from koalapy.model.events import (
    MessageReceived,
    NeighbourConnected,
    NeighbourJoined,
    NeighbourLeft,
    NeighbourLost,
)
from koalapy.model.lease import Lend
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.units import Duration
from koalapy.sites.neighbours import REPORT_EVERY

JOINED = NeighbourJoined(neighbour="lyon", relation=Relation.SIBLING)
CONNECTED = NeighbourConnected(neighbour="lyon", instance="zyxwv")
LOST = NeighbourLost(neighbour="lyon", reason=UNREACHABLE)
ALL = 32  # processors of the largest cluster: one cluster serves a lease
LEND = Lend(to=("lyon",), processors=64)


def report(processors: int, neighbour: str = "lyon") -> Command:
    return ReportFree(neighbour=neighbour, processors=processors)


def reported(number: int, processors: int, instance: str = "zyxwv") -> MessageReceived:
    message = ReportFree(neighbour="lyon", processors=processors)
    return MessageReceived(neighbour="lyon", instance=instance, number=number, message=message)


def record(play: Play) -> Neighbour:
    return play.engine.core.neighbours.records["lyon"]


def test_a_neighbour_that_connects_is_sent_what_it_could_get_and_then_only_changes() -> None:
    play = Play(alike(lend=LEND))
    assert play.apply(JOINED) == []
    assert play.apply(CONNECTED) == [report(ALL)]
    assert play.measure() == []
    assert play.measure(alpha=8) == []  # too soon after the last report
    wakeup = play.engine.next_wakeup()
    assert wakeup is not None
    assert wakeup <= play.now + REPORT_EVERY
    assert play.apply(after=REPORT_EVERY) == [report(ALL - 8)]
    assert play.apply(after=REPORT_EVERY) == []


def test_a_neighbour_out_of_reach_is_sent_nothing_before_it_is_back() -> None:
    play = Play(alike(lend=LEND))
    play.apply(JOINED, CONNECTED)
    play.apply(LOST)
    assert play.measure(alpha=8) == []
    assert play.apply(after=Duration(2 * REPORT_EVERY)) == []
    assert play.apply(CONNECTED) == [report(ALL - 8)]


def test_a_message_that_was_committed_before_changes_nothing() -> None:
    play = Play(alike(lend=LEND))
    play.apply(JOINED, CONNECTED)
    play.apply(reported(4, 12))
    play.apply(reported(4, 99))
    play.apply(reported(3, 98))
    assert (record(play).free, record(play).received) == (12, 4)
    play.apply(reported(9, 7))
    assert (record(play).free, record(play).received) == (7, 9)


def test_the_messages_of_a_neighbour_with_a_new_store_begin_anew() -> None:
    play = Play(alike(lend=LEND))
    play.apply(JOINED, CONNECTED, reported(4, 12))
    commands = play.apply(NeighbourConnected(neighbour="lyon", instance="new"))
    assert commands == [report(ALL)]  # it knows nothing of before
    assert (record(play).free, record(play).received) == (None, 0)
    play.apply(reported(1, 5, "new"))
    assert (record(play).free, record(play).received) == (5, 1)


def test_reports_of_a_site_that_is_no_neighbour_are_ignored() -> None:
    play = Play(alike(lend=LEND))
    assert play.apply(CONNECTED, reported(1, 5), LOST, NeighbourLeft(neighbour="lyon")) == []
    assert play.engine.core.neighbours.records == {}
    play.apply(JOINED, CONNECTED)
    step = play.engine.handle(play.now, [NeighbourLeft(neighbour="lyon")])
    assert [(each.name, each.gone) for each in step.neighbours] == [("lyon", True)]
    assert play.apply(reported(1, 5)) == []


def test_a_relation_may_change() -> None:
    play = Play(alike(lend=LEND))
    play.apply(JOINED, CONNECTED, reported(4, 12))
    play.apply(NeighbourJoined(neighbour="lyon", relation=Relation.PARENT))
    assert (record(play).relation, record(play).free) == (Relation.PARENT, 12)
