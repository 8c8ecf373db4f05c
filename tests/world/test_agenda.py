"""The agenda: calls in their order, and a clock that stands where it was run to."""

from koalapy.model.units import Instant
from koalapy.world.agenda import Agenda


def test_the_clock_stands_where_it_was_run_to_even_if_nothing_was_due() -> None:
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
