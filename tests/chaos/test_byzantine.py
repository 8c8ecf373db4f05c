"""A cluster that reports falsely about its own attempts too, as none does in chaos, harms its own jobs only."""

from pathlib import Path
from random import Random

import pytest

from koalapy.chaos.byzantine import ByzantineCluster
from koalapy.chaos.run import Disk
from koalapy.model.cluster import ClusterSettings
from koalapy.model.identity import tag_of
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant
from koalapy.world.agenda import Agenda
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of, behaviour_of
from koalapy.world.network import Pipe
from koalapy.world.random_streams import between
from koalapy.world.world import INSTANCE, World

FALSE, HONEST = "alpha", ("beta", "gamma")
SETTINGS = Settings(clusters=tuple(ClusterSettings(name=name, batch="slurm") for name in (FALSE, *HONEST)))
JOBS = 40


def request(rng: Random, *clusters: str | None) -> Request:
    behaviour = Behaviour(runs=between(rng, Duration(SECOND), Duration(40 * SECOND)), exit_status=rng.choice((0, 0, 3)))
    program = arguments_of(behaviour)
    components = [
        ComponentRequest(
            processors=2, executable=EXECUTABLE, arguments=program, cluster=each, walltime=Duration(5 * MINUTE)
        )
        for each in clusters
    ]
    return Request(name="job", components=tuple(components))


@pytest.mark.parametrize("seed", range(3))
def test_jobs_on_honest_clusters_run_as_if_no_cluster_lied(seed: int, tmp_path: Path) -> None:
    """No job fails, each program runs once, koalad survives, and the next koalad can load its store."""
    rng, disk = Random(seed), Disk(tmp_path, INSTANCE)
    try:
        world = World(seed, disk.open, settings=SETTINGS)
        world.clusters[FALSE].byzantine_until = Instant(world.agenda.now + HOUR)
        byzantine = ByzantineCluster(world, world.clusters[FALSE], rng, own=True)
        byzantine.continue_until_end()
        world.run_for(Duration(30 * SECOND))
        for _ in range(JOBS):
            where = rng.choice((("beta",), ("gamma",), HONEST, HONEST, (FALSE,), (FALSE, "beta"), (None, None)))
            assert world.koalad.submit(request(rng, *where))
            world.run_for(between(rng, Duration(SECOND), Duration(20 * SECOND)))
        world.run_for(Duration(40 * MINUTE))
        world.clusters[FALSE].byzantine_until = world.agenda.now
        world.koalad.kill()
        world.koalad.start()
        world.run_for(Duration(2 * MINUTE))
        assert world.koalad.alive
        assert byzantine.sent > 500
        _judge(world)
    finally:
        disk.close()


def test_inserted_events_displace_no_event_of_the_kcm() -> None:
    """Each event arrives once with the next number, and koalad's acknowledgements name the KCM's own numbers."""
    agenda = Agenda()
    pipe = Pipe(agenda, lambda: MILLISECOND)
    received: list[int] = []
    acknowledged: list[int] = []
    pipe.near.on_message = lambda message: received.append(message["number"])
    pipe.far.on_message = lambda message: acknowledged.append(message["number"])

    def settle() -> None:
        while agenda.step():
            pass

    def slip_in() -> None:
        pipe.slip_in({"type": "event", "number": pipe.next_number})

    slip_in()
    for number in (1, 2):
        pipe.far.send({"type": "event", "number": number})
    settle()
    slip_in()
    pipe.slip_in({"type": "event", "number": 99})
    pipe.far.send({"type": "event", "number": 3})
    settle()
    for number in (1, 2, 3, 4, 5):
        pipe.near.send({"type": "acknowledge", "number": number})
    settle()
    assert received == [1, 2, 3, 4, 99, 5]
    assert acknowledged == [1, 2, 2, 3]


def _judge(world: World) -> None:
    jobs = [job for job in world.koalad.store.jobs() if all(each.cluster in HONEST for each in job.request.components)]
    assert len(jobs) > JOBS / 4
    for job in jobs:
        (status,) = {behaviour_of(each.arguments).exit_status for each in job.request.components}
        assert job.state is (JobState.FAILED if status else JobState.DONE), (job.id, job.state, job.reason)
        assert (job.submission_failures, job.completion_failures) == (0, 0), job.id
        for each in job.present:
            (run,) = world.program_log.runs(tag_of(world.instance, each.id))
            assert run.cluster == each.cluster
