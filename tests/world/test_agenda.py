"""The agenda: calls in order, and a clock that shows the instant of the last run."""

from koalapy.model.units import Instant
from koalapy.world.agenda import Agenda


def test_a_run_without_due_calls_advances_the_clock() -> None:
    agenda = Agenda(Instant(100))
    made: list[int] = []
    agenda.at(Instant(105), lambda: made.append(agenda.now))
    agenda.at(Instant(120), lambda: made.append(agenda.now))
    agenda.run(Instant(110))
    assert (made, agenda.now) == ([105], 110)
    agenda.run(Instant(119))
    assert (made, agenda.now) == ([105], 119)
    agenda.run()
    assert (made, agenda.now) == ([105, 120], 120)
