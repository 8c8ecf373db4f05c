"""The KCM's alarms: what is due, in order, whatever was set before."""

from koalapy_adapters.kcm.state.timers import Alarms


def test_what_is_due_rings_once_and_in_order() -> None:
    alarms = Alarms()
    for tag, moment in (("a", 30), ("b", 10), ("c", 20)):
        alarms.set(tag, moment)
    assert alarms.next() == 10
    assert alarms.ring(20) == ["b", "c"]
    assert alarms.ring(20) == []
    assert alarms.next() == 30


def test_only_the_last_moment_counts() -> None:
    alarms = Alarms()
    alarms.set("a", 10)
    alarms.set("a", 30)
    alarms.set("b", 20)
    alarms.set("b", None)
    alarms.set("b", None)
    assert alarms.next() == 30
    alarms.set("a", 5)
    assert alarms.ring(40) == ["a"]
    assert alarms.next() is None


def test_what_is_stale_does_not_pile_up() -> None:
    alarms = Alarms()
    for moment in range(10_000):
        alarms.set("a", moment)
    assert len(alarms._heap) < 100
    assert alarms.ring(10_000) == ["a"]
