"""The longest walltime of a queue: how it is measured, and what becomes of jobs and sweeps that are longer."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_play import Play, component
from job_languages import read_native
from koalapy_adapters.batch import allocation, pbs, sge, slurm, torque
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.batch.text import longest, seconds_of
from koalapy_adapters.errors import Result
from sweep_play import SweepPlay

from koalapy.languages.mapping import job_mapping
from koalapy.languages.reading import from_mapping
from koalapy.model.attempt import Attempt
from koalapy.model.commands import SubmitAttempt
from koalapy.model.events import ClusterMeasured
from koalapy.model.identity import JobId
from koalapy.model.request import LEAST_OF_PILOT, ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.policies.placement import worst_fit
from koalapy.views.checking import check

SAMPLES = Path(__file__).parents[1] / "samples"
USER = BatchSettings(user="koala")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2:00:00", 7200), ("5:00", 300), ("1-00:00:00", 86400), ("7-12:30:15", 649815), ("01:00:00:00", 86400),
        ("3600", 3600), ("00:05:00", 300), ("UNLIMITED", None), ("infinite", None), ("infinity", None), ("NONE", None),
        ("", None), ("n/a", None), ("-1:00", None), ("1:00:00:00:00", None), ("five:00", None),
    ],
)  # fmt: skip
def test_a_time_of_a_batch_system_is_read(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


def test_a_queue_without_a_limit_is_the_longest_of_several() -> None:
    assert (longest([300, 7200]), longest([300, None]), longest([])) == (7200, None, None)


# ---- how it is measured


@pytest.mark.parametrize(
    ("cluster", "seconds"),
    [
        pytest.param(USER, 7200, id="the default partition"),
        pytest.param(USER._replace(queue="short"), 300, id="a short one"),
        pytest.param(USER._replace(queue="short,batch"), 7200, id="the longest of two"),
        pytest.param(USER._replace(queue="short", qos="long"), None, id="a quality of service has its own"),
        pytest.param(USER._replace(queue="short", native=["--qos=long"]), None, id="a native option may name another"),
    ],
)
def test_slurm(cluster: BatchSettings, seconds: int | None) -> None:
    sinfo = (SAMPLES / "slurm" / "limits-sinfo.out").read_text()
    answers = [sinfo, "", "", "PrivateData             = none\n"]
    results = [Result(argv, 0, text, "") for argv, text in zip(slurm.capacity_argvs(cluster), answers, strict=True)]
    assert slurm.parse_capacity(cluster, results).walltime_limit_s == seconds
    endless = [results[0]._replace(stdout=re.sub(r"\|[0-9:]+\n", "|UNLIMITED\n", sinfo)), *results[1:]]
    assert slurm.parse_capacity(cluster, endless).walltime_limit_s is None


@pytest.mark.parametrize(("queue", "seconds"), [("all.q", None), ("short.q", 300), ("all.q,short.q", None)])
def test_grid_engine(queue: str, seconds: int | None) -> None:
    listed = (SAMPLES / "sge" / "limits-qstat.out").read_text()
    names = queue.split(",")
    instances = "\n".join(each for each in re.findall(r"<name>(.*)</name>", listed) if each.partition("@")[0] in names)
    cluster = USER._replace(queue=queue)
    results = [Result(["a command"], 0, text, "") for text in (listed, instances, "")]
    assert sge.parse_capacity(cluster, results).walltime_limit_s == seconds


@pytest.mark.parametrize(
    ("queue", "change", "seconds"),
    [
        ("workq", {}, None), ("short", {}, 600), ("workq", {"server": "01:00:00"}, 3600),
        ("short", {"server": "01:00:00"}, 600), ("route", {"server": "01:00:00"}, 3600), ("route", {}, 7200),
    ],
)  # fmt: skip
def test_pbs(queue: str, change: dict[str, str], seconds: int | None) -> None:
    def table(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((SAMPLES / "pbs" / name).read_text())
        return found

    queues, server = table("qstat-Q-f.json"), table("qstat-B-f.json")
    started = {"enabled": "True", "started": "True"}
    queues["Queue"]["long"] = {"queue_type": "Execution", "resources_max": {"walltime": "02:00:00"}, **started}
    queues["Queue"]["route"] = {"queue_type": "Route", "route_destinations": "short,long", **started}
    if "server" in change:
        server["Server"]["pbs-head"]["resources_max"] = {"walltime": change["server"]}
    answers = [table("pbsnodes-a.json"), {"Jobs": {}}, queues, server]
    cluster = BatchSettings(user="kuser", queue=queue)
    results = [Result(["qstat"], 0, json.dumps(each), "") for each in answers]
    assert pbs.parse_capacity(cluster, results).walltime_limit_s == seconds


def test_torque() -> None:
    node = "node1\n     state = free\n     np = 4\n     ntype = cluster\n\n"
    queue = "Queue: %s\n    queue_type = Execution\n    enabled = True\n    started = True\n"
    queues = queue % "batch" + "\n" + queue % "short" + "    resources_max.walltime = 00:30:00\n"
    answers = [node, "<Data></Data>", queues, ""]

    def limit(name: str | None) -> int | None:
        cluster = USER._replace(queue=name)
        argvs = torque.capacity_argvs(cluster)
        results = [Result(argv, 0, text, "") for argv, text in zip(argvs, answers, strict=True)]
        return torque.parse_capacity(cluster, results).walltime_limit_s

    assert (limit("short"), limit("batch"), limit(None)) == (1800, None, None)


@pytest.mark.parametrize(("left_s", "seconds"), [(None, None), (3601, 3600), (3629, 3600), (29, 0)])
def test_an_allocation_takes_nothing_that_lasts_longer_than_itself(left_s: int | None, seconds: int | None) -> None:
    answer = {"slots": 4, "jobs": [], "nodes": [[4, 4]], "left_s": left_s}
    found = allocation.parse_capacity(USER, [Result(["capacity"], 0, json.dumps(answer), "")])
    assert found.walltime_limit_s == seconds


# ---- jobs


class Limited(Play):
    """A grid whose queues have limits. Beside the program, a batch job has 6 min of its walltime."""

    def __init__(self, limits: dict[str, Duration]) -> None:
        self.limits = limits
        super().__init__()

    def measurement(self, cluster: str, *args: Any, **others: Any) -> ClusterMeasured:
        return with_limit(super().measurement(cluster, *args, **others), self.limits.get(cluster))


def with_limit(found: ClusterMeasured, limit: Duration | None) -> ClusterMeasured:
    return replace(found, state=replace(found.state, walltime_limit=limit))


def limited(**limits: Duration) -> Limited:
    return Limited(limits)


TWO_HOURS, TEN_MINUTES = Duration(2 * HOUR), Duration(10 * MINUTE)
THREE_HOURS = Duration(3 * HOUR)


def clusters_of(game: Play, job: JobId) -> list[str]:
    return [each.cluster for each in game.job(job).present]


def test_a_job_that_is_too_long_for_every_queue_fails_at_once_and_names_what_fits() -> None:
    game = limited(alpha=TWO_HOURS, beta=TEN_MINUTES, gamma=TEN_MINUTES)
    request = Request(name="job", components=(component(4, walltime=THREE_HOURS),))
    checked = check(game.engine, game.now, request, worst_fit)
    job = game.job(game.submit(*request.components))
    assert (job.state, checked.fits) == (JobState.FAILED, "never")
    assert job.reason == checked.reason
    assert job.reason is not None
    assert (job.reason.code, job.reason.whose) == ("walltime_limit", "request")
    assert job.reason.message == (
        "Component 0 never fits: it asks for a walltime of 3h, and the longest that fits is 1h54m, on alpha."
    )


def test_the_longest_that_fits_is_that_of_a_cluster_large_enough() -> None:
    """beta and gamma have 16 processors."""
    game = limited(alpha=TEN_MINUTES, beta=TWO_HOURS, gamma=TWO_HOURS)
    job = game.job(game.submit(component(32, walltime=Duration(HOUR))))
    assert job.reason is not None
    assert "the longest that fits is 4m, on alpha" in job.reason.message
    large = game.job(game.submit(component(40, walltime=Duration(HOUR))))
    assert large.reason is not None
    assert large.reason.code == "too_large"


@pytest.mark.parametrize("more", [{}, {"spread": True}, {"rank": ""}])
def test_a_job_that_is_too_long_for_one_cluster_goes_to_another(more: dict[str, Any]) -> None:
    game = limited(alpha=TWO_HOURS, beta=TEN_MINUTES)
    assert clusters_of(game, game.submit(component(4, walltime=THREE_HOURS, **more))) in (["beta"], ["gamma"])
    game = limited(alpha=TWO_HOURS, beta=TEN_MINUTES)
    assert clusters_of(game, game.submit(component(4, walltime=THREE_HOURS, **more))) == ["gamma"]


def test_each_component_is_compared_by_its_own_walltime() -> None:
    game = limited(alpha=TWO_HOURS, beta=TEN_MINUTES, gamma=TEN_MINUTES)
    job = game.submit(component(4, walltime=Duration(HOUR)), component(16, walltime=Duration(MINUTE)))
    assert clusters_of(game, job)[0] == "alpha"
    assert game.job(job).state is JobState.CLAIMING


def test_jobs_of_one_shape_and_different_walltimes_have_different_answers() -> None:
    game = limited(alpha=TEN_MINUTES, beta=TEN_MINUTES)
    game.measure(gamma=16)
    long = game.submit(component(16, walltime=Duration(HOUR)))
    assert game.job(long).state is JobState.WAITING
    short = game.submit(component(16, walltime=Duration(MINUTE)))
    assert game.job(short).state is JobState.CLAIMING
    lacks = {each.cluster: each.reason for each in game.engine.explain(game.now, long)}
    assert lacks["alpha"].code == lacks["beta"].code == "walltime_limit"
    assert lacks["alpha"].message == "its queue takes a walltime of 4m at most, not 1h."
    assert lacks["gamma"].code == "busy"


@pytest.mark.parametrize("more", [{"queue": "long"}, {"qos": "long"}, {"native": ("--partition=long",)}])
def test_a_component_with_a_queue_of_its_own_is_not_compared_with_the_clusters(more: dict[str, Any]) -> None:
    game = limited(alpha=TEN_MINUTES, beta=TEN_MINUTES, gamma=TEN_MINUTES)
    assert component(4, walltime=THREE_HOURS, **more).queue_walltime is None
    assert game.job(game.submit(component(4, walltime=THREE_HOURS, **more))).state is JobState.CLAIMING


def test_a_job_waits_while_a_cluster_that_may_take_it_is_not_measured() -> None:
    game = limited(alpha=TEN_MINUTES, beta=TEN_MINUTES)
    game.lose("gamma")
    assert game.job(game.submit(component(4, walltime=THREE_HOURS))).state is JobState.WAITING


def test_a_job_does_not_enter_a_queue_that_is_too_short_for_it() -> None:
    game = limited(alpha=TEN_MINUTES, beta=TEN_MINUTES)
    game.measure(**game.sizes)
    job = game.submit(component(4, walltime=Duration(HOUR)), when_busy="queue")
    game.measure(**game.sizes)
    game.apply(after=Duration(6 * MINUTE))
    game.measure(**game.sizes)
    assert clusters_of(game, job) in ([], ["gamma"])


# ---- sweeps


class LimitedSweeps(SweepPlay):
    limit: Duration | None = None

    def measurement(self, cluster: str, *args: Any, **others: Any) -> ClusterMeasured:
        return with_limit(super().measurement(cluster, *args, **others), self.limit)


def sweeps(limit: Duration, sizes: dict[str, int]) -> LimitedSweeps:
    play = LimitedSweeps(sizes)
    play.limit = limit
    play.measure()
    return play


def test_a_launcher_asks_for_what_fits() -> None:
    play = sweeps(Duration(30 * MINUTE), {"alpha": 16})
    sweep = play.sweep(100, walltime=Duration(MINUTE))
    launchers: list[Attempt] = play.launchers(sweep)
    assert {each.request.walltime for each in launchers} == {24 * MINUTE}
    asked = [each.walltime for each in play.pending if isinstance(each, SubmitAttempt)]
    assert set(asked) == {30 * MINUTE}


def test_a_sweep_whose_parameters_are_too_long_for_every_queue_fails_at_once() -> None:
    play = sweeps(Duration(30 * MINUTE), {"alpha": 16})
    identity = play.sweep(100, walltime=Duration(HOUR))
    play.apply()
    sweep = play.record(identity)
    assert not play.launchers(identity)
    assert sweep.state is JobState.FAILED
    assert sweep.reason is not None
    assert sweep.reason.code == "walltime_limit"
    assert sweep.reason.message == "One parameter has a walltime of 1h; the longest that fits is 22m50s."


# ---- pilots


JOB = "components: [{processors: 4, executable: hostname, cluster: %s%s}]\n"


def test_a_component_on_a_pilot_has_what_is_left_of_it_unless_it_has_a_walltime() -> None:
    (found,) = read_native(JOB % ("pilot~1", ""), "job.yaml", "/").components
    assert (found.until_end, found.walltime) == (True, LEAST_OF_PILOT)
    request = read_native(JOB % ("pilot~1", ""), "job.yaml", "/")
    assert from_mapping(job_mapping(request), "job", "/") == request
    (found,) = read_native(JOB % ("pilot~1", ", walltime: 1h"), "job.yaml", "/").components
    assert (found.until_end, found.walltime) == (False, HOUR)
    (found,) = read_native(JOB % ("alpha", ""), "job.yaml", "/").components
    assert (found.until_end, found.walltime) == (False, HOUR)


def of_pilot(**more: Any) -> ComponentRequest:
    return component(4, "alpha", **more)


def test_what_is_left_of_a_pilot_is_the_walltime_once_it_is_placed() -> None:
    game = limited(alpha=Duration(20 * MINUTE))
    request = of_pilot(walltime=LEAST_OF_PILOT, until_end=True)
    job = game.job(game.submit(request))
    assert [each.request.walltime for each in job.present] == [13 * MINUTE]
    assert job.written is not None
    assert job.written.components == (request,)


def test_a_job_that_names_a_pilot_which_ends_too_soon_fails_at_once() -> None:
    game = limited(alpha=TEN_MINUTES)
    job = game.job(game.submit(of_pilot(walltime=Duration(HOUR))))
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert job.reason.code == "walltime_limit"
    game = limited(alpha=Duration(7 * MINUTE + 59 * SECOND))
    job = game.job(game.submit(of_pilot(walltime=LEAST_OF_PILOT, until_end=True)))
    assert (job.state, job.reason and job.reason.code) == (JobState.FAILED, "walltime_limit")


def test_a_job_that_waits_for_a_pilot_fails_once_too_little_is_left() -> None:
    game = limited(alpha=Duration(20 * MINUTE))
    game.measure(alpha=32)
    job = game.submit(of_pilot(walltime=TEN_MINUTES))
    assert game.job(job).state is JobState.WAITING
    game.limits = {"alpha": Duration(15 * MINUTE)}
    game.measure(alpha=32)
    assert game.job(job).state is JobState.FAILED
