"""`koala explain` of a job that waits for a cluster whose processors other jobs of this grid have."""

from engine_play import Play, component

from koalapy.model.identity import JobId
from koalapy.model.units import HOUR, Instant, format_instant
from koalapy.policies.placement import worst_fit
from koalapy.views.explanation import explain, summary


def explained(play: Play, job: JobId) -> str:
    return summary(explain(play.engine, play.now, play.job(job), worst_fit))


def end_of(play: Play, job: JobId) -> str:
    """Return the end of the walltime, by which the processors are given back."""
    (attempt,) = play.job(job).live
    assert attempt.started_at is not None
    return format_instant(Instant(attempt.started_at + HOUR))


def test_the_job_that_has_the_processors_is_named_with_the_end_of_its_walltime() -> None:
    play = Play()
    holder = play.submit(component(32, "alpha", walltime=HOUR))
    play.run(holder)
    play.measure()
    job = play.submit(component(4, "alpha"))
    assert explained(play, job) == (
        "It waits for alpha: 0 of 32 processors are idle, but 4 are needed. "
        f"Job {holder} has 32 processors there until {end_of(play, holder)} at the latest."
    )


def test_of_several_jobs_the_one_is_named_whose_walltime_ends_first() -> None:
    play = Play()
    long, short = (play.submit(component(16, "alpha", walltime=length * HOUR)) for length in (5, 1))
    for each in (long, short):
        play.run(each)
    play.measure()
    job = play.submit(component(4, "alpha"))
    assert explained(play, job).endswith(
        "but 4 are needed. 2 jobs of this grid have 32 processors there, "
        f"job {short} until {end_of(play, short)} at the latest."
    )


def test_processors_that_others_have_are_nobodys_here() -> None:
    play = Play()
    play.measure(alpha=32)
    job = play.submit(component(4, "alpha"))
    assert explained(play, job).endswith("but 4 are needed.")
