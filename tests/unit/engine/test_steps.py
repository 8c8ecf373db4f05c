"""The engine's steps: each batch runs those that are due, in their order."""

from collections.abc import Mapping
from unittest.mock import patch

from engine_play import Play

from koalapy import engine
from koalapy.core import due
from koalapy.model.units import Duration, Instant

BITS = {name: bit for name, bit in vars(due).items() if isinstance(bit, int) and name not in ("ALL", "REPEATED")}
NAMES = {bit: name for name, bit in BITS.items()}


def ran(play: Play, wakes: Mapping[str, int] = {}, again: int = 0, after: Duration = Duration(1000)) -> list[str]:
    """Handle a batch without events; return the names of the steps that ran.

    Each step that `wakes` names wakes others the first time that it runs. The steps of `again` return True.
    """
    order: list[str] = []

    def run(name: str) -> bool:
        order.append(name)
        if order.count(name) == 1:
            play.engine.core.due.wake(wakes.get(name, 0))
        return bool(BITS[name] & again)

    steps = {bit: lambda made, now, name=name: run(name) for name, bit in BITS.items()}
    with patch.object(engine, "STEPS", steps):
        play.apply(after=after)
    return order


def test_every_step_has_one_bit_and_one_function() -> None:
    assert sorted(BITS.values()) == [1 << place for place in range(len(BITS))]
    assert sum(BITS.values()) == due.ALL
    assert set(engine.STEPS) == set(BITS.values())


def test_the_first_batch_runs_every_step_in_the_order_of_the_bits() -> None:
    play = Play()
    play.engine.core.due.steps = due.ALL
    assert ran(play) == [NAMES[bit] for bit in sorted(NAMES)]


def test_a_step_that_nothing_wakes_does_not_run() -> None:
    play = Play()
    play.engine.core.due.steps = due.PASS | due.RUN_LIST
    assert ran(play) == ["RUN_LIST", "PASS"]
    assert ran(play) == []


def test_a_step_that_returns_true_runs_once_in_each_batch() -> None:
    play = Play()
    play.engine.core.due.steps = due.PILOTS
    assert ran(play, again=due.PILOTS) == ["PILOTS"]
    assert ran(play) == ["PILOTS"]
    assert ran(play) == []


def test_a_step_whose_turn_is_over_waits_for_the_next_batch() -> None:
    """No job is placed after nodes were given to sweeps."""
    play = Play()
    play.engine.core.due.steps = due.SWEEPS
    assert ran(play, {"SWEEPS": due.PASS | due.NEIGHBOURS}) == ["SWEEPS", "NEIGHBOURS"]
    assert ran(play) == ["PASS"]


def test_facts_prerequisites_and_pilots_run_again_in_the_batch_that_wakes_them() -> None:
    play = Play()
    play.engine.core.due.steps = due.FACTS | due.PASS
    order = ran(play, {"PASS": due.PREREQUISITES | due.PILOTS, "PREREQUISITES": due.FACTS | due.RUN_LIST})
    assert order == ["FACTS", "PASS", "PREREQUISITES", "FACTS", "PILOTS"]
    assert ran(play) == ["RUN_LIST"]


def test_a_timer_wakes_its_step_once_it_has_expired() -> None:
    play = Play()
    play.engine.core.due.steps = 0
    at = Instant(play.now + 5000)
    wakeups = {due.STARTUP: lambda made: Instant(at + 1), due.SWEEPS: lambda made: at}
    with patch.object(engine, "WAKEUPS", wakeups):
        play.engine._set_timers(due.ALL)
        assert ran(play, after=Duration(1000)) == []
        assert play.engine.next_wakeup() == at
        assert ran(play, after=Duration(3999)) == []
        assert ran(play, after=Duration(1)) == ["SWEEPS"]
