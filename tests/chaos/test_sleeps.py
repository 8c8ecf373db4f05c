"""A host that sleeps repeatedly while jobs claim: a job is released only with all components at the barrier.

`KOALA_SLEEPS=2500 pytest tests/chaos/test_sleeps.py` lets it sleep more often, KOALA_SLEEPS_SEED begins elsewhere.
"""

import os

import pytest

from koalapy.chaos.plan import plan
from koalapy.chaos.run import run
from koalapy.model.units import Duration
from koalapy.world.koalad.host import SimKoalad

SLEEPS = int(os.environ.get("KOALA_SLEEPS", "600"))
FIRST = int(os.environ.get("KOALA_SLEEPS_SEED", "1"))
COURSE = 1_500
FAULTS = {"host_sleeps": 4, "barrier_never_reached": 1, "job_pending_for_ever": 1}
USER_ACTIONS = {"submit": 6, "submit_many": 3, "release": 1, "local_job": 4}


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[Duration]:
    """The sleeps in all worlds of the test."""
    begun: list[Duration] = []
    sleep = SimKoalad.sleep

    def noted(self: SimKoalad, duration: Duration) -> None:
        begun.append(duration)
        sleep(self, duration)

    monkeypatch.setattr(SimKoalad, "sleep", noted)
    return begun


def test_a_host_that_sleeps_often_releases_no_incomplete_job(sleeps: list[Duration]) -> None:
    seed, jobs, programs = FIRST, 0, 0
    while len(sleeps) < SLEEPS:
        result = run(seed, COURSE, until=COURSE, actions=plan(seed, COURSE, USER_ACTIONS, FAULTS, mixed=False))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        seed, jobs, programs = seed + 1, jobs + result.jobs, programs + result.programs
    print(f"{len(sleeps)} sleeps over {seed - FIRST} seeds, {jobs} jobs, {programs} programs")
    assert programs > 0
