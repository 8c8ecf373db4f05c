"""The KCM's timers: they fire in order, at the instant that was set last."""

from koalapy_adapters.kcm.state.timers import Timers


def test_due_timers_fire_once_and_in_order() -> None:
    timers = Timers()
    for tag, moment in (("a", 30), ("b", 10), ("c", 20)):
        timers.set(tag, moment)
    assert timers.next() == 10
    assert timers.expire(20) == ["b", "c"]
    assert timers.expire(20) == []
    assert timers.next() == 30


def test_only_the_instant_that_was_set_last_counts() -> None:
    timers = Timers()
    timers.set("a", 10)
    timers.set("a", 30)
    timers.set("b", 20)
    timers.set("b", None)
    timers.set("b", None)
    assert timers.next() == 30
    timers.set("a", 5)
    assert timers.expire(40) == ["a"]
    assert timers.next() is None


def test_replaced_instants_do_not_accumulate() -> None:
    timers = Timers()
    for moment in range(10_000):
        timers.set("a", moment)
    assert len(timers._heap) < 100
    assert timers.expire(10_000) == ["a"]
