"""The pilots that koalapy opens by itself: for which waiting jobs, and when."""

import pytest
from engine_play import Play, alike, component

from koalapy.model.identity import JobId
from koalapy.model.pilot import PilotRule, pilot_request
from koalapy.model.request import ComponentRequest, PilotOptions
from koalapy.model.settings import Settings
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration

IDLE = Duration(2 * MINUTE)


def ruled(**fields: object) -> Settings:
    """A grid where pilots of 8 processors and an hour are opened on alpha, for jobs that wait for a minute."""
    request = pilot_request(component(8, walltime=HOUR), PilotOptions(idle=IDLE, automatic=True))
    terms = {"least": 0, "most": 2, "waiting": Duration(MINUTE)} | fields
    return alike(pilots=(("alpha", PilotRule(request=request, owner="me", **terms)),))  # type: ignore[arg-type]


class Full(Play):
    """A grid that is full, so that jobs wait; `opened` are the pilots."""

    def __init__(self, **fields: object) -> None:
        super().__init__(ruled(**fields))
        self.measure(alpha=32, beta=16, gamma=16)

    @property
    def opened(self) -> list[JobId]:
        return [each.id for each in self.pilot_records.values()]

    def wait(self, lasts: Duration) -> None:
        self.apply(after=lasts)
        self.measure(alpha=32, beta=16, gamma=16)


def test_one_is_opened_when_a_job_has_waited_for_so_long_and_the_engine_is_woken_then() -> None:
    play = Full()
    play.submit(component(4, walltime=MINUTE))
    since = play.now
    play.wait(Duration(59 * SECOND))
    assert play.opened == []
    woken = play.engine.next_wakeup()
    assert woken == since + MINUTE
    play.apply(after=Duration(woken - play.now))
    assert len(play.opened) == 1


MARGIN = ruled().beside_program


@pytest.mark.parametrize(
    ("waiting", "opens"),
    [
        pytest.param(component(8, walltime=Duration(HOUR - MARGIN)), True, id="the most that fits"),
        pytest.param(component(9, walltime=MINUTE), False, id="too many processors"),
        pytest.param(component(8, walltime=Duration(HOUR - MARGIN + SECOND)), False, id="too long"),
        pytest.param(component(4, "beta", walltime=MINUTE), False, id="names a cluster"),
        pytest.param(component(4, walltime=MINUTE, gpus=1), False, id="gpus"),
        pytest.param(component(4, walltime=MINUTE, queue="long"), False, id="a queue"),
        pytest.param(component(4, walltime=MINUTE, exclusive=True), False, id="whole nodes"),
    ],
)
def test_one_is_opened_only_for_jobs_that_it_could_run(waiting: ComponentRequest, opens: bool) -> None:
    play = Full()
    play.submit(waiting)
    play.wait(Duration(2 * MINUTE))
    assert bool(play.opened) is opens


def test_there_are_no_more_than_the_rule_allows_and_one_begins_at_a_time() -> None:
    play = Full(most=1)
    play.submit(component(4, walltime=MINUTE))
    for _ in range(3):
        play.wait(Duration(2 * MINUTE))
    assert len(play.opened) == 1
