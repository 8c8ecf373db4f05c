"""Pilots on real batch systems: many short jobs by one batch job, and what the deaths of their parts leave behind."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host_rule import input_rule
from real_grid import PATIENCE_S, Koalad, batch_jobs, sh

SLURM, GRID_ENGINE = "alpha", "gamma"
NODES = {
    SLURM: tuple(f"alpha-c{number}" for number in range(1, 9)),
    GRID_ENGINE: tuple(f"gamma-c{number}" for number in range(1, 5)),
}
TRUE = {"processors": 1, "executable": "/bin/true", "walltime": "1m"}
LIMIT_S = 120  # after which Grid Engine kills a pilot
SLEEP = {"processors": 1, "executable": "/bin/sleep", "arguments": ["240"], "walltime": "5m"}


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = Koalad(testgrid, tmp_path, {SLURM: {}, GRID_ENGINE: {}})
    yield made
    made.stop()


def opened(koalad: Koalad, cluster: str, **terms: Any) -> str:
    """Open a pilot of two nodes with four processors each, and return its name once jobs can be placed there."""
    koalad.idle()
    name = koalad.grid.open_pilot(cluster, 8, nodes=2, **{"walltime_s": 1200.0, **terms})["pilot"]["name"]
    koalad.until(lambda: idle(koalad, name) == 8)
    return str(name)


def idle(koalad: Koalad, name: str) -> int | None:
    return next((each["idle"] for each in koalad.grid.clusters() if each["name"] == name), None)


def closed(koalad: Koalad, cluster: str, name: str) -> None:
    """Close the pilot, and see that nothing of it is left."""
    koalad.grid.close_pilot(name, force=True)
    koalad.until(lambda: not koalad.grid.pilots())
    koalad.until(lambda: name not in [each["name"] for each in koalad.grid.clusters()])
    koalad.until(lambda: not batch_jobs(koalad.testgrid, cluster))
    koalad.until(lambda: not left_on_nodes(koalad, cluster))


def pids(koalad: Koalad, host: str, words: str) -> list[int]:
    """The processes of the user with these words in their command line."""
    _, output = koalad.testgrid.exec(host, ["ps", "-u", "koala", "-o", "pid=,args="])
    return [int(line.split()[0]) for line in output.splitlines() if words in line and "ps -u" not in line]


def left_on_nodes(koalad: Koalad, cluster: str) -> list[int]:
    return [pid for host in NODES[cluster] for words in (".pyz", "/bin/sleep 240") for pid in pids(koalad, host, words)]


@pytest.mark.parametrize("cluster", [SLURM, GRID_ENGINE])
def test_short_and_co_allocated_jobs_run_on_a_pilot_of_two_nodes(koalad: Koalad, cluster: str) -> None:
    other = GRID_ENGINE if cluster == SLURM else SLURM
    pilot = opened(koalad, cluster)
    short = [koalad.submit({**TRUE, "cluster": pilot}) for _ in range(20)]
    wide = koalad.submit(sh(8, "exec hostname", cluster=pilot))
    both = [koalad.submit(sh(2, "exit 0", cluster=pilot), sh(1, "exit 0", cluster=other)) for _ in range(2)]
    assert {koalad.end(job)["state"] for job in (*short, wide, *both)} == {"done"}
    assert len(koalad.job(wide)["components"][0]["hosts"]) == 2
    closed(koalad, cluster, pilot)


def kill(koalad: Koalad, host: str, words: str) -> None:
    found = pids(koalad, host, words)
    assert found, (host, words)
    koalad.testgrid.exec(host, ["kill", "-9", *map(str, found)])


def first_host(koalad: Koalad, name: str) -> str:
    return str(next(each for each in koalad.grid.pilots() if each["name"] == name)["hosts"][0])


@pytest.mark.parametrize("cluster", [SLURM, pytest.param(GRID_ENGINE, marks=pytest.mark.slow)])
def test_jobs_outlive_koalad_and_both_kcms(koalad: Koalad, cluster: str) -> None:
    pilot = opened(koalad, cluster)
    head, node = cluster, first_host(koalad, pilot)
    ran = f"/home/koala/{koalad.directory.name}.ran"
    program = sh(1, f"echo $KOALA_JOB_ID >> {ran}; sleep 20", cluster=pilot)
    jobs = [koalad.submit(program) for _ in range(8)]
    koalad.until(lambda: all(koalad.job(job)["state"] == "running" for job in jobs))
    kill(koalad, node, "pyz kcm")
    assert koalad.end(koalad.submit({**TRUE, "cluster": pilot}))["state"] == "done"
    kill(koalad, head, "pyz kcm")
    koalad.kill()
    koalad.start()
    assert [each["name"] for each in koalad.grid.pilots()] == [pilot]
    assert {koalad.end(job)["state"] for job in jobs} == {"done"}
    counted = koalad.testgrid.exec(head, ["sort", ran], user="koala")[1].split()
    assert sorted(map(int, counted)) == sorted(jobs)
    closed(koalad, cluster, pilot)


def filled(koalad: Koalad, cluster: str, other: str, count: int) -> tuple[str, list[int]]:
    """Open a pilot on which this many jobs run. Returns its name, and the jobs, which may run at `other` later."""
    pilot = opened(koalad, cluster, shared=True)
    for name in (SLURM, GRID_ENGINE):
        koalad.grid.drain_cluster(name)
    jobs = [koalad.submit(sh(1, "exec sleep 20", walltime="1m")) for _ in range(count)]
    koalad.until(lambda: all(koalad.job(job)["state"] == "running" for job in jobs))
    assert {koalad.job(job)["components"][0]["cluster"] for job in jobs} == {pilot}
    koalad.grid.resume_cluster(other)
    return pilot, jobs


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SLURM, GRID_ENGINE])
def test_jobs_run_elsewhere_once_the_batch_job_of_a_pilot_is_killed(koalad: Koalad, cluster: str) -> None:
    other = GRID_ENGINE if cluster == SLURM else SLURM
    pilot, jobs = filled(koalad, cluster, other, 4)
    kill(koalad, first_host(koalad, pilot), "pyz")  # wrapper, agent, KCM and servers at once, as if the node had died
    ended = [koalad.end(job) for job in jobs]
    assert {job["state"] for job in ended} == {"done"}
    assert {job["components"][0]["cluster"] for job in ended} == {other}
    koalad.until(lambda: not koalad.grid.pilots())
    koalad.until(lambda: not left_on_nodes(koalad, cluster))
    koalad.until(lambda: not batch_jobs(koalad.testgrid, cluster))


def why_not(koalad: Koalad, name: str) -> str:
    return next(each["reason"] or "" for each in koalad.grid.pilots(ended=True) if each["name"] == name)


@pytest.mark.parametrize(
    ("cluster", "queue", "words"),
    [
        (SLURM, "short", "alpha: The walltime exceeds what the partition or its quality of service allows."),
        pytest.param(
            GRID_ENGINE, "short.q", "gamma: No queue can ever give what the job asks for.", marks=pytest.mark.slow
        ),
    ],
)
def test_one_that_its_queue_never_allows_fails_with_the_reason(
    koalad: Koalad, cluster: str, queue: str, words: str
) -> None:
    koalad.idle()
    terms: dict[str, Any] = {"nodes": 2, "walltime_s": 86400, "options": {"queue": queue}}
    name = koalad.grid.open_pilot(cluster, 8, **terms)["pilot"]["name"]
    koalad.until(lambda: not koalad.grid.pilots(), 30)
    assert why_not(koalad, name).startswith(words)
    assert batch_jobs(koalad.testgrid, cluster) == []


@pytest.mark.slow
def test_one_that_is_held_in_its_queue_shows_that_and_is_closed_cleanly(koalad: Koalad) -> None:
    koalad.idle()
    full = koalad.submit({"processors": 32, "executable": "/bin/sleep", "arguments": ["240"], "cluster": SLURM})
    koalad.until(lambda: koalad.job(full)["state"] == "running")
    name = koalad.grid.open_pilot(SLURM, 8, nodes=2, walltime_s=1200)["pilot"]["name"]
    number = koalad.until(lambda: koalad.grid.show(int(name[6:]))["job"]["components"][0]["batch_id"])
    koalad.testgrid.exec(SLURM, ["scontrol", "hold", str(number)], user="koala")
    koalad.until(lambda: "waits in the queue of alpha (JobHeld" in why_not(koalad, name))
    koalad.grid.close_pilot(name)
    koalad.until(lambda: not koalad.grid.pilots())
    koalad.grid.cancel(full)
    koalad.until(lambda: not batch_jobs(koalad.testgrid, SLURM))


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SLURM, GRID_ENGINE])
def test_jobs_on_the_second_node_run_elsewhere_once_a_pilot_has_lost_it(koalad: Koalad, cluster: str) -> None:
    other = GRID_ENGINE if cluster == SLURM else SLURM
    pilot, jobs = filled(koalad, cluster, other, 8)
    (_, second) = next(each for each in koalad.grid.pilots() if each["name"] == pilot)["hosts"]
    kill(koalad, second, "pyz")
    ended = [koalad.end(job) for job in jobs]
    assert {job["state"] for job in ended} == {"done"}
    if cluster == GRID_ENGINE:  # it ends a parallel job that loses a node
        assert {job["components"][0]["cluster"] for job in ended} == {other}
        koalad.until(lambda: not koalad.grid.pilots())
        koalad.until(lambda: not left_on_nodes(koalad, cluster))
        assert why_not(koalad, pilot).startswith("gamma: It was killed.")
    else:
        assert sorted(str(job["components"][0]["cluster"]) for job in ended) == sorted([pilot] * 4 + [other] * 4)
        koalad.until(lambda: idle(koalad, pilot) == 8)  # its server has been started again there
        closed(koalad, cluster, pilot)


def caught(koalad: Koalad, cluster: str, other: str) -> tuple[str, int, int]:
    """Open a pilot on which two jobs run. Returns its name, a job that may run at `other`, and one that may not."""
    pilot = opened(koalad, cluster, shared=True)
    for name in (SLURM, GRID_ENGINE):
        koalad.grid.drain_cluster(name)
    job = koalad.submit(sh(1, "exec sleep 150", walltime="5m"))
    named = koalad.submit(sh(1, "exec sleep 150", walltime="5m", cluster=pilot))
    koalad.until(lambda: {koalad.job(each)["state"] for each in (job, named)} == {"running"})
    assert koalad.job(job)["components"][0]["cluster"] == pilot
    koalad.grid.resume_cluster(other)
    return pilot, job, named


def ended_elsewhere(koalad: Koalad, cluster: str, other: str, pilot: str, job: int, named: int) -> None:
    """See that the pilot has ended, that its jobs are not lost, and that nothing is left."""
    koalad.until(lambda: not koalad.grid.pilots(), LIMIT_S + PATIENCE_S)
    assert koalad.end(named)["state"] == "failed"
    assert pilot in (koalad.job(named)["reason"] or "")
    assert (koalad.end(job)["state"], koalad.job(job)["components"][0]["cluster"]) == ("done", other)
    koalad.until(lambda: not left_on_nodes(koalad, cluster))


@pytest.mark.slow
def test_a_job_in_the_middle_runs_elsewhere_once_the_batch_system_ends_a_pilot_at_its_limit(koalad: Koalad) -> None:
    pilot, job, named = caught(koalad, SLURM, GRID_ENGINE)
    number = str(koalad.grid.show(int(pilot[6:]))["job"]["components"][0]["batch_id"])
    status, said = koalad.testgrid.exec(SLURM, ["scontrol", "update", f"JobId={number}", "TimeLimit=1"])
    assert status == 0, said
    ended_elsewhere(koalad, SLURM, GRID_ENGINE, pilot, job, named)
    # It signals all processes of the job, in no order: the pilot's program may end before its wrapper knows why.
    assert re.search(r"The batch system told the job to stop \(SIGTERM\)|signal 15, TERM", why_not(koalad, pilot))


@pytest.mark.slow
def test_a_job_in_the_middle_runs_elsewhere_once_grid_engine_kills_a_pilot_at_its_limit(
    testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit cannot be changed later: it is shorter than koalapy assumes from the start."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    koalad = Koalad(testgrid, tmp_path, {SLURM: {}, GRID_ENGINE: {"native": [f"-l h_rt={LIMIT_S}"]}})
    try:
        pilot, job, named = caught(koalad, GRID_ENGINE, SLURM)
        ended_elsewhere(koalad, GRID_ENGINE, SLURM, pilot, job, named)
        assert why_not(koalad, pilot).startswith("gamma: "), why_not(koalad, pilot)
    finally:
        koalad.stop()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SLURM, GRID_ENGINE])
def test_jobs_on_a_pilot_go_on_while_the_network_is_cut(koalad: Koalad, testgrid: Any, cluster: str) -> None:
    pilot = opened(koalad, cluster)
    ran = f"/home/koala/{koalad.directory.name}.ran"
    jobs = [koalad.submit(sh(1, f"echo $KOALA_JOB_ID >> {ran}; sleep 8", cluster=pilot)) for _ in range(6)]
    koalad.until(lambda: all(koalad.job(job)["state"] == "running" for job in jobs))
    with input_rule(testgrid.containers, cluster, "-p", "tcp", "--dport", "22", "-j", "DROP"):
        koalad.until(lambda: all(connection(koalad, name) != "up" for name in (cluster, pilot)))
        late = koalad.submit({**TRUE, "cluster": pilot})
    assert {koalad.end(job)["state"] for job in (*jobs, late)} == {"done"}
    counted = testgrid.exec(cluster, ["sort", ran], user="koala")[1].split()
    assert sorted(map(int, counted)) == sorted(jobs)
    closed(koalad, cluster, pilot)


def connection(koalad: Koalad, name: str) -> str | None:
    return next((each["connection"] for each in koalad.grid.clusters() if each["name"] == name), None)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SLURM, GRID_ENGINE])
def test_two_hundred_jobs_of_which_twenty_are_co_allocated_outlive_each_part(koalad: Koalad, cluster: str) -> None:
    other = GRID_ENGINE if cluster == SLURM else SLURM
    pilot = opened(koalad, cluster)
    (first, second) = next(each for each in koalad.grid.pilots() if each["name"] == pilot)["hosts"]
    ran = f"/home/koala/{koalad.directory.name}.ran"
    once = f"[ $KOALA_RANK -gt 0 ] || echo $KOALA_JOB_ID >> {ran}; exec sleep 1"
    jobs = [koalad.submit(sh(1, once, cluster=pilot, walltime="1m")) for _ in range(180)]
    jobs += [koalad.submit(sh(2, once, cluster=pilot), sh(1, "exec sleep 1", cluster=other)) for _ in range(20)]

    def more_are_done() -> None:
        done = done_of(koalad, jobs)
        koalad.until(lambda: done_of(koalad, jobs) >= min(done + 8, len(jobs)))

    more_are_done()
    koalad.kill()
    koalad.start()
    more_are_done()
    kill(koalad, first, "pyz kcm")
    more_are_done()
    kill(koalad, cluster, "pyz kcm")
    more_are_done()
    (wrapper, *_) = koalad.until(lambda: wrappers(koalad, second))
    koalad.testgrid.exec(second, ["kill", "-9", str(wrapper)])
    more_are_done()
    if cluster == SLURM:  # Grid Engine ends a parallel job that loses a node; see above
        kill(koalad, second, "pyz")
        more_are_done()
    ended = [koalad.end(job, 600) for job in jobs]
    assert {job["state"] for job in ended} == {"done"}
    counted = Counter(map(int, koalad.testgrid.exec(cluster, ["cat", ran], user="koala")[1].split()))
    assert set(counted) == set(jobs)
    twice = {job["id"]: counted[job["id"]] for job in ended if counted[job["id"]] > 1 + job["completion_failures"]}
    assert not twice
    assert done_of(koalad, jobs) == 200
    closed(koalad, cluster, pilot)


def wrappers(koalad: Koalad, host: str) -> list[int]:
    """The wrappers of a pilot's jobs: each is a fork of the node's server, and leads a session."""
    _, output = koalad.testgrid.exec(host, ["ps", "-u", "koala", "-o", "pid=,ppid=,sid=,args="])
    rows = [line.split(None, 3) for line in output.splitlines()]
    servers = {pid for pid, _, _, command in rows if "pyz allocation-node" in command}
    return [int(pid) for pid, parent, session, _ in rows if parent in servers and pid == session]


def done_of(koalad: Koalad, jobs: list[int]) -> int:
    return sum(job["state"] == "done" for job in koalad.grid.jobs(ids=jobs))
