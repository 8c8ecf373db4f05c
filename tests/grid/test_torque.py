"""Torque's commands, played by a real Slurm (slurm-wlm-torque), under a real koalad: what they really do."""

from collections.abc import Iterator
from typing import Any

import pytest
from real_grid import Document, Koalad, sh

from koalapy.answers import clusters as answers
from koalapy.testgrid.layout import TORQUE


@pytest.fixture(scope="module")
def koalad(testgrid_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Koalad]:
    """One for all, which leave nothing behind."""
    directory = tmp_path_factory.mktemp("torque")
    testgrid_session.reset()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(directory / "state"))
        environment.setenv("XDG_RUNTIME_DIR", str(directory))
        settings = {"claim": {"timeout": "90s"}, "barrier": {"timeout": "60s"}}
        running = Koalad(testgrid_session, directory, {"beta": {"poll": "1s", **TORQUE}}, **settings)
        try:
            yield running
        finally:
            running.stop()


@pytest.fixture(autouse=True)
def idle(koalad: Koalad) -> None:
    koalad.until(lambda: cluster(koalad)["idle"] == 16)


def cluster(koalad: Koalad) -> answers.Cluster:
    return koalad.grid.clusters()[0]


def test_a_component_over_two_nodes_runs_a_process_on_every_processor(koalad: Koalad) -> None:
    job = koalad.end(koalad.submit(sh(8, "echo $KOALA_RANK $(hostname)")))
    assert job["state"] == "done", job["reason"]
    lines = [line.split() for line in b"".join(koalad.grid.output(job["id"])).decode().splitlines()]
    assert sorted(int(rank) for rank, _ in lines) == list(range(8))
    assert len({host for _, host in lines}) == 2


def test_exit_statuses_come_from_the_record(koalad: Koalad) -> None:
    """Slurm's qstat has none."""
    job = koalad.end(koalad.submit(sh(2, "exit $((KOALA_RANK * 7))")))
    assert (job["state"], job["reason_code"]) == ("failed", "exit_status")
    assert job["components"][0]["exit_status"] == 7


def test_a_cancel_leaves_nothing_in_the_queue(koalad: Koalad) -> None:
    job = koalad.submit(sh(4, "sleep 600"))
    koalad.until(lambda: koalad.job(job)["started_at"])
    assert cluster(koalad)["ours"] in (0, 4)
    koalad.grid.cancel(job)
    assert koalad.end(job)["state"] == "cancelled"
    assert not koalad.batch_jobs()


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ({"queue": "nowhere"}, "no_such_queue"),
        ({"native": ["--nonsense"]}, "bad_native"),
        ({"walltime": "400d"}, "walltime_too_long"),
    ],
)
def test_a_refusal_is_in_the_batch_systems_words(koalad: Koalad, wishes: Document, code: str) -> None:
    job = koalad.end(koalad.submit(sh(1, "true", **wishes)))
    assert (job["state"], job["reason_code"]) == ("failed", code), job["reason"]


def test_local_load_is_taken_off_and_waited_for(koalad: Koalad) -> None:
    """Somebody else's job takes three nodes: 8 processors do not fit until it has gone, and then run."""
    other = koalad.testgrid.shell(
        "beta", "cd /tmp; sbatch --parsable -p batch -N3 --exclusive --wrap 'sleep 600'", "wombat"
    )
    koalad.until(lambda: cluster(koalad)["idle"] == 4)
    job = koalad.submit(sh(8, "true"), when_busy="wait")
    koalad.until(lambda: "4 of 16" in str(koalad.grid.explain(job)))
    koalad.testgrid.check("beta", ["scancel", other.split()[-1]], "wombat")
    assert koalad.end(job)["state"] == "done"


def test_what_was_submitted_is_found_again_by_its_tag(koalad: Koalad) -> None:
    """koalad dies while its job runs; the next one finds it by the name of the batch job."""
    job = koalad.submit(sh(4, "sleep 6; echo over"))
    koalad.until(lambda: koalad.job(job)["started_at"])
    koalad.kill()
    koalad.start()
    found = koalad.end(job)
    assert found["state"] == "done", found["reason"]
    assert [each["attempt"] for each in found["components"]] == [1]
    assert b"".join(koalad.grid.output(job)).count(b"over") == 4
