"""Ids of jobs and Launchers at their ends: none runs into the other's, none is given out twice."""

from engine_play import Play, make
from sweep_play import SweepPlay

from koalapy.coallocation.restored_store import skip_used_ids
from koalapy.model.events import WorkSubmitted
from koalapy.model.identity import FIRST_LAUNCHER, LAUNCHERS_END
from koalapy.model.job import Counters
from koalapy.model.request import ComponentRequest
from koalapy.views.status import ids_used

WISH = make(ComponentRequest(processors=1, executable="true"))


def test_a_job_does_not_get_a_launchers_id() -> None:
    play = SweepPlay()
    play.counters = Counters(next_job=FIRST_LAUNCHER - 1)
    play.restart()
    play.apply(WorkSubmitted(request=WISH, owner="mona", key="last"))
    play.apply(WorkSubmitted(request=WISH, owner="mona", key="none"))
    assert [(job.id, job.key) for job in play.jobs.values()] == [(FIRST_LAUNCHER - 1, "last")]
    assert play.counters.next_job == FIRST_LAUNCHER


def test_a_sweep_gets_no_launcher_whose_id_does_not_fit_into_a_tag() -> None:
    play = SweepPlay({"alpha": 16})
    play.counters = Counters(next_launcher=LAUNCHERS_END - 2)
    play.restart()
    sweep = play.sweep()
    assert sorted(each.id.job for each in play.launchers(sweep)) == [LAUNCHERS_END - 2, LAUNCHERS_END - 1]
    grown = [line.details["nodes"] for line in play.history if line.kind == "sweep_grown"]
    assert sum(grown) == 2


def test_a_step_names_the_ids_that_it_gave_out() -> None:
    play = Play()
    step = play.engine.handle(play.now, [WorkSubmitted(request=WISH, owner="mona")])
    assert step.new == (1,)
    assert play.engine.handle(play.now, []).new == ()


def test_a_restored_store_does_not_leap_into_others_ids() -> None:
    counters = skip_used_ids(Counters(next_job=FIRST_LAUNCHER - 5, next_launcher=LAUNCHERS_END - 5))
    assert (counters.next_job, counters.next_launcher) == (FIRST_LAUNCHER, LAUNCHERS_END)


def test_ids_that_are_nearly_used_up_are_reported() -> None:
    assert ids_used(Counters()) == []
    tenth = (FIRST_LAUNCHER - 1) // 10
    assert ids_used(Counters(next_job=FIRST_LAUNCHER - tenth - 1)) == []
    assert [text.partition(":")[0] for text in ids_used(Counters(next_job=FIRST_LAUNCHER - tenth))] == [
        "The ids of jobs are nearly used up"
    ]
    (reported,) = ids_used(Counters(next_launcher=LAUNCHERS_END))
    assert "The ids of Launchers are nearly used up: 0 of 4,194,304 are left." in reported
