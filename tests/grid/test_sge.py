"""Grid Engine and its DRMAA library as they are: rules, error states, suspension, and a helper that fails."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import sge
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import Result
from koalapy_adapters.examination import sge as sge_examination
from real_grid import Koalad, sh

from koalapy.answers.clusters import Cluster
from koalapy.answers.koalad import PendingCancel
from koalapy.testgrid import layout, repair

HELPER = r"\.pyz drmaa-helper"
Begin = Callable[..., Koalad]


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    begun: list[Koalad] = []

    def begin(**gamma: Any) -> Koalad:
        """Over gamma alone, and measured once."""
        settings = {"claim": {"timeout": "90s"}, "barrier": {"timeout": "60s"}}
        begun.append(Koalad(testgrid, tmp_path, {"gamma": {"poll": "1s", **gamma}}, **settings))
        begun[-1].until(lambda: not cluster(begun[-1])["reason"])
        return begun[-1]

    yield begin
    for each in begun:
        each.stop()


def test_a_value_of_two_words_reaches_grid_engine_as_one(standing_testgrid: Any) -> None:
    asked = sge_examination.access_argv(BatchSettings("koala", queue="big mem"))
    status, said = standing_testgrid.exec("gamma", asked)
    assert status != 0
    assert 'unknown queue "big mem"' in said


@pytest.mark.parametrize(("queue", "seconds"), [("all.q", None), ("short.q", 300), ("all.q,short.q", None)])
def test_the_longest_walltime_of_a_queue_is_measured(standing_testgrid: Any, queue: str, seconds: int | None) -> None:
    settings = BatchSettings("koala", queue=queue, parallel_environment="mpi")
    results = []
    for argv in sge.capacity_argvs(settings):
        status, printed = standing_testgrid.exec("gamma", argv)
        results.append(Result(argv, status, printed, ""))
    assert sge.parse_capacity(settings, results).walltime_limit_s == seconds


def started(koalad: Koalad, job: int) -> Callable[[], bool]:
    return lambda: koalad.job(job)["started_at"] is not None


def cluster(koalad: Koalad) -> Cluster:
    return koalad.grid.clusters()[0]


def helper(koalad: Koalad, *flags: str) -> str:
    """pgrep for the helper, or pkill with a signal."""
    program = ["pkill", *flags] if flags else ["pgrep"]
    return str(koalad.testgrid.check("gamma", [*program, "--uid", "koala", "--full", HELPER])).strip()


def hosts_of(koalad: Koalad, job: int) -> set[str]:
    return set(koalad.job(job)["components"][0]["hosts"])


@pytest.fixture
def environment(testgrid: Any) -> Iterator[Callable[[str, str], None]]:
    """Makes parallel environments of all.q with an allocation rule."""
    made: list[str] = []

    def make(name: str, rule: str) -> None:
        made.append(name)
        change = f"s/^pe_name .*/pe_name {name}/; s/^allocation_rule .*/allocation_rule {rule}/"
        script = f"qconf -sp mpi | sed '{change}' >/tmp/pe; qconf -Ap /tmp/pe; qconf -aattr queue pe_list {name} all.q"
        testgrid.shell("gamma", script, user="root")

    yield make
    for name in made:
        again = f"for n in $(seq 100); do qconf -dp {name} && exit; sleep 0.2; done; exit 1"  # its job may be there
        testgrid.shell("gamma", f"qconf -dattr queue pe_list {name} all.q; {again}", user="root")


def test_where_one_host_gives_all_a_job_gets_no_more_than_a_host(koalad: Begin) -> None:
    running = koalad(parallel_environment="smp")
    running.until(lambda: cluster(running)["idle"] == 16)
    job = running.end(running.submit(sh(4, "true")))
    assert job["state"] == "done", job["reason"]
    assert len(job["components"][0]["hosts"]) == 1
    large = running.end(running.submit(sh(5, "true", cluster="gamma"), when_busy="wait"))
    assert (large["state"], large["reason_code"]) == ("failed", "too_large")
    reason = str(large["reason"])
    assert "gives one component at most 4 of its 16 processors" in reason or "never fits" in reason


@pytest.mark.slow
def test_so_many_slots_of_each_host_and_no_other_number(koalad: Begin, environment: Callable[[str, str], None]) -> None:
    environment("three", "3")
    running = koalad(parallel_environment="three")
    running.until(lambda: cluster(running)["idle"] == 12)
    job = running.end(running.submit(sh(6, "true")))
    assert job["state"] == "done", job["reason"]
    assert len(job["components"][0]["hosts"]) == 2
    uneven = running.end(running.submit(sh(4, "true")))
    assert (uneven["state"], uneven["reason_code"]) == ("failed", "too_large_a_request")


@pytest.mark.parametrize(
    ("drmaa", "words"),
    [
        pytest.param("off", "/no/such/input", id="commands"),
        pytest.param("auto", "failed 26: opening input/output file", id="drmaa", marks=pytest.mark.slow),
    ],
)
def test_an_error_state_ends_the_job_at_once_with_grid_engines_reason(koalad: Begin, drmaa: str, words: str) -> None:
    """By DRMAA only the accounting shows it: the library deletes a job of its session that is in error."""
    running = koalad(drmaa=drmaa)
    job = running.end(running.submit(sh(1, "true", native=["-i /no/such/input"])))
    assert (job["state"], job["reason_code"]) == ("failed", "error_state"), job
    assert words in str(job["reason"])
    assert (job["submission_failures"], job["completion_failures"]) == (0, 0)
    assert not running.batch_jobs()


def test_a_job_that_is_suspended_with_its_queue_is_not_lost(koalad: Begin) -> None:
    """As by a subordinate queue: the state of the job is the same."""
    running = koalad(queue="short.q")
    script = "echo started; while [ ! -e $HOME/go ]; do sleep 0.2; done; rm -f $HOME/go"
    job = running.submit(sh(1, script, walltime="2m"))
    running.until(lambda: b"".join(running.grid.output(job)).count(b"started") == 1)
    running.testgrid.shell("gamma", "qmod -sq short.q", user="root")
    running.until(lambda: running.job(job)["components"][0]["state"] == "suspended")
    running.until(lambda: cluster(running)["idle"] == 0)
    running.testgrid.shell("gamma", "qmod -usq short.q", user="root")
    running.until(lambda: running.job(job)["components"][0]["state"] == "running")
    running.testgrid.check("gamma", ["touch", "go"])
    assert running.end(job)["state"] == "done"


@pytest.fixture
def defaults(testgrid: Any) -> Iterator[None]:
    """A user's own defaults of qsub and qstat, for commands that they enter themselves."""
    files = "printf '%s\\n' '-b y' '-sync y' >~/.sge_request; printf '%s\\n' '-s r' >~/.sge_qstat"
    testgrid.shell("gamma", files)
    yield
    testgrid.shell("gamma", "rm -f ~/.sge_request ~/.sge_qstat")


@pytest.mark.parametrize("drmaa", ["off", pytest.param("auto", marks=pytest.mark.slow)])
def test_what_a_user_has_made_a_default_changes_nothing(koalad: Begin, defaults: None, drmaa: str) -> None:
    running = koalad(drmaa=drmaa)
    job = running.submit(sh(1, "true", native=["-h"]))
    running.until(lambda: bool(running.job(job)["components"][0]["batch_id"]))
    running.testgrid.shell("gamma", f"qrls {running.job(job)['components'][0]['batch_id']}")
    assert running.end(job)["state"] == "done"


@pytest.mark.parametrize("signum", ["SEGV", pytest.param("STOP", marks=pytest.mark.slow)])
def test_a_helper_that_crashes_or_hangs_loses_nothing_and_does_nothing_twice(koalad: Begin, signum: str) -> None:
    """One job runs, one is submitted right into the fault: its answer may be lost, and with it what the library did."""
    running = koalad()
    script = "echo once >>$HOME/ran-$KOALA_JOB_ID; sleep 3"
    jobs = [running.submit(sh(1, script))]
    running.until(lambda: running.job(jobs[0])["started_at"])
    before = helper(running)
    helper(running, f"-{signum}")
    jobs += [running.submit(sh(1, script)) for _ in range(3)]
    for job in jobs:
        found = running.end(job)
        assert found["state"] == "done", found["reason"]
        assert running.testgrid.shell("gamma", f"cat ran-{job}; rm ran-{job}") == "once\n"
    running.until(lambda: running.testgrid.exec("gamma", ["pgrep", "-f", HELPER]).output.split() not in ([], [before]))
    assert not running.batch_jobs()


def test_an_end_that_no_wrapper_reports_is_found_through_drmaa(koalad: Begin) -> None:
    """The next poll is an hour away, also after the helper died: the next one waits for its session's events."""
    running = koalad(poll="1h")
    for crash in (False, True):
        job = running.submit(sh(1, "sleep 600"), retry_on=[])
        running.until(started(running, job))
        if crash:
            helper(running, "-SEGV")
        (host,) = hosts_of(running, job)
        running.testgrid.check(host, ["pkill", "-KILL", "--uid", "koala", "--full", r"\.pyz wrapper"])
        ended = running.end(job)
        assert ended["state"] == "failed"
        assert ended["reason_code"] in ("killed", "lost")


ONCE = "echo once >>$HOME/ran-$KOALA_JOB_ID; while [ ! -e $HOME/go ]; do sleep 0.2; done; touch $HOME/over"
NODES = next(each.nodes for each in layout.CLUSTERS if each.name == "gamma")


@pytest.fixture
def mend(testgrid: Any) -> Iterator[Callable[[], None]]:
    """Starts every daemon that does not run, and execds that do not know their qmaster, as an administrator would."""

    def start_all() -> None:
        for host in ("gamma", *NODES):
            repair.start_services(testgrid.containers, host)

    yield start_all
    start_all()
    testgrid.shell("gamma", "rm -f go over ran-*")


def pending_cancels(koalad: Koalad) -> list[PendingCancel]:
    return list(koalad.grid.status()["pending_cancels"])


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["sge_qmaster", "sge_execd"])
def test_a_job_that_ends_while_a_daemon_is_dead_is_done_and_leaves_pending_what_the_queue_lists_still(
    koalad: Begin, mend: Callable[[], None], testgrid: Any, daemon: str
) -> None:
    """Grid Engine reports the end to no process. The job ran once, and its user need not wait for a repair."""
    running = koalad()
    job = running.submit(sh(1, ONCE))
    running.until(lambda: running.job(job)["started_at"])
    host = "gamma" if daemon == "sge_qmaster" else hosts_of(running, job).pop()
    testgrid.containers.kill_process(host, daemon)
    testgrid.shell("gamma", "touch go")
    testgrid.eventually(lambda: testgrid.exec("gamma", ["test", "-e", "over"]).exit_status == 0, "it ended")
    if daemon == "sge_qmaster":
        repair.start_services(testgrid.containers, "gamma")
    ended = running.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0), ended
    assert testgrid.shell("gamma", f"cat ran-{job}") == "once\n"
    pending = pending_cancels(running)
    assert all("The batch system lists batch job" in str(each["reason"]) for each in pending), pending
    assert pending or daemon == "sge_qmaster"  # its execds may find the new one
    mend()
    running.until(lambda: not pending_cancels(running) and not running.batch_jobs())


@pytest.mark.slow
def test_a_cancel_ends_a_job_whose_execd_is_dead_and_states_what_its_administrator_must_do(
    koalad: Begin, mend: Callable[[], None], testgrid: Any
) -> None:
    running = koalad()
    job = running.submit(sh(1, f"trap '' TERM; {ONCE}"))
    running.until(lambda: running.job(job)["started_at"])
    testgrid.containers.kill_process(hosts_of(running, job).pop(), "sge_execd")
    running.grid.cancel(job)
    assert running.end(job)["state"] == "cancelled"
    (each,) = pending_cancels(running)
    reason = str(each["reason"])
    assert "dr: it is to be deleted" in reason
    assert "administrator" in reason
    assert reason in str(running.grid.show(job)["events"])
    mend()
    running.until(lambda: not pending_cancels(running) and not running.batch_jobs())
    assert testgrid.shell("gamma", f"cat ran-{job}") == "once\n"
