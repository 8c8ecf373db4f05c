"""A job or subtree that names a site, as two engines whose messages travel as JSON; links are played by hand."""

import json
from contextlib import ExitStack
from dataclasses import fields, replace
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from engine_play import INSTANCE, UNREACHABLE, component, make
from site_play import BORROWER, LENDER, Site, Sites, received

from koalapy.common import extras
from koalapy.common.extras import need_matchmaker
from koalapy.core.neighbours import Neighbours
from koalapy.core.site_jobs import ReceivedJobs
from koalapy.engine import Engine
from koalapy.link.site_messages import JobReport, JobSending
from koalapy.model.change import Snapshot
from koalapy.model.commands import (
    ChangeSentJob,
    ReportReceivedJob,
    SendJob,
)
from koalapy.model.events import (
    CancelRequested,
    ClusterConnected,
    HoldRequested,
    JobUnreadable,
    NeighbourConnected,
    NeighbourJoined,
    NeighbourLeft,
    NeighbourLost,
    ReleaseRequested,
    WorkSubmitted,
)
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.neighbour import Relation
from koalapy.model.request import ComponentRequest, FlowJob, Request, WhenBusy
from koalapy.model.sent import MOST_SENT, RunLimits, RunOption, Sent, SentJob, why_not_run
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, SECOND, Duration
from koalapy.model.work import Flow
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.sites import receiving
from koalapy.views.explanation import explain, summary

TERMS = RunLimits(sites=("delft",), processors=32)


class Pair(Sites):
    """`delft` sends, and `lyon` runs."""

    def __init__(self, terms: RunLimits | None = TERMS) -> None:
        self.delft = Site("delft", BORROWER)
        self.lyon = Site("lyon", LENDER, run=terms)
        super().__init__(self.delft, self.lyon)
        self.link(self.delft, self.lyon)

    def send(self, request: Request | None = None, **fields: Any) -> JobId:
        """Submit a job at delft that lyon is to run."""
        self.delft.apply(submitted(request or make(component(4), site="lyon", **fields)))
        return max(self.delft.all_jobs)

    def there(self, name: str = "") -> Job | Flow | SentJob:
        """The newest job or flow at lyon, or that of a name."""
        found = [job for job in self.lyon.all_jobs.values() if not name or job.request.name == name]
        return max(found, key=lambda job: job.id)

    def play(self, job: JobId, at: Site | None = None) -> None:
        """Run the job at lyon, or at the other site, to its end."""
        site = at or self.lyon
        site.run(job)
        for attempt in site.attempts(job):
            site.end(attempt)
        messages = site.taken()
        site.obey()
        site.pending[:0] = messages

    def why(self, job: JobId) -> str:
        return summary(explain(self.delft.engine, self.delft.now, self.delft.all_jobs[job], worst_fit))

    def restart(self, site: Site) -> None:
        """koalad of the site is killed, and begins again with what was committed: its links connect anew."""
        known = tuple(site.engine.core.neighbours.records.values())
        snapshot = Snapshot(instance=INSTANCE, counters=site.counters, neighbours=known, **site.unfinished())
        site.engine = Engine(site.settings, Policies(worst_fit, fpfs), snapshot)
        other = self.lyon if site is self.delft else self.delft
        other.apply(NeighbourLost(neighbour=site.name, reason=UNREACHABLE))
        site.apply(*[ClusterConnected(cluster=each, version="1") for each in site.sizes])
        site.measure()
        self.connect(self.delft, self.lyon)


def submitted(request: Request) -> WorkSubmitted:
    return WorkSubmitted(request=request, owner="me")


def subtree(**fields: Any) -> Request:
    """A flow of two jobs, one after the other, that lyon runs."""
    first, then = make(component(4)), make(component(8))
    jobs = (FlowJob(request=replace(first, name="first")), FlowJob(request=replace(then, name="then"), after=(0,)))
    return Request(name="sub", components=(), jobs=jobs, site="lyon", **fields)


def test_a_job_that_names_a_site_runs_there_and_ends_as_it_ends_there() -> None:
    pair = Pair()
    job = pair.send()
    assert pair.delft.all_jobs[job].state is JobState.CLAIMING
    assert pair.why(job) == "It was sent to the site lyon, which has not answered yet."
    sent, taken = pair.exchange()
    assert isinstance(sent, SendJob)
    assert isinstance(taken, ReportReceivedJob)
    there = pair.there()
    assert (there.owner, there.request.processors, there.request.notify) == ("site:delft", 4, ())
    assert (pair.delft.all_jobs[job].state, pair.delft.sent_jobs[job].sent) == (
        JobState.RUNNING,
        Sent(job=there.id, state=JobState.CLAIMING),
    )
    pair.play(there.id)
    pair.exchange()
    assert pair.lyon.job(there.id).state is JobState.DONE
    assert (pair.delft.all_jobs[job].state, pair.delft.all_jobs[job].reason) == (JobState.DONE, None)
    assert [kind for kind in pair.delft.kinds if kind.startswith(("job_", "work_"))] == [
        "work_submitted", "job_sent", "job_taken", "work_done",
    ]  # fmt: skip
    assert [dict(each.details) for each in pair.delft.history if each.kind == "job_sent"] == [{"site": "lyon"}]


def test_each_end_is_reported_once() -> None:
    pair = Pair()
    pair.send()
    pair.exchange()
    pair.play(pair.there().id)
    assert [each for each in pair.exchange() if isinstance(each, ReportReceivedJob)][-1].sent.state is JobState.DONE
    pair.lyon.apply(after=Duration(HOUR))
    assert pair.exchange() == []


def test_a_subtree_runs_there_as_a_flow_between_jobs_of_this_site() -> None:
    pair = Pair()
    parts = (
        FlowJob(request=replace(make(component(2)), name="before")),
        FlowJob(request=subtree(), after=(0,)),
        FlowJob(request=replace(make(component(2)), name="after"), after=(1,)),
    )
    pair.delft.apply(submitted(Request(name="whole", components=(), jobs=parts)))
    whole, before, sub, after = sorted(pair.delft.all_jobs)
    assert pair.exchange() == []  # its turn has not come
    pair.play(before, pair.delft)
    pair.exchange()
    flow = pair.there("sub")
    assert isinstance(flow, Flow)
    assert [job.request.name for job in pair.lyon.all_jobs.values()] == ["sub", "first", "then"]
    pair.play(pair.there("first").id)
    pair.let_pass(15 * SECOND)
    assert pair.delft.sent_jobs[sub].sent == Sent(job=flow.id, state=JobState.RUNNING, done=1, count=2)
    assert "as its job 1, which is running with 1 of 2 done" in pair.why(sub)
    assert pair.delft.all_jobs[after].state is JobState.BLOCKED
    pair.play(pair.there("then").id)
    pair.exchange()
    assert pair.delft.all_jobs[sub].state is JobState.DONE
    assert pair.delft.all_jobs[after].state is JobState.CLAIMING
    assert pair.delft.all_jobs[whole].state is JobState.RUNNING


def test_a_failure_there_is_a_failure_here_with_its_reason() -> None:
    pair = Pair()
    job = pair.send(subtree())
    pair.exchange()
    first = pair.there("first").id
    pair.lyon.run(first)
    pair.lyon.end(pair.lyon.attempts(first)[0], status=3)
    pair.lyon.obey()
    pair.exchange()
    failed = pair.delft.all_jobs[job]
    assert failed.state is JobState.FAILED
    assert str(failed.reason).startswith("lyon: Job 2 (first) of the flow failed: ")
    assert not pair.delft.engine.core.sent_jobs.away["lyon"]


@pytest.mark.parametrize(
    ("terms", "fields", "why"),
    [
        (None, {}, "lyon: It runs no jobs of this site."),
        (replace(TERMS, sites=("paris",)), {}, "lyon: It runs no jobs of this site."),
        (replace(TERMS, processors=1), {}, "lyon: It runs components of 1 processor at most, and one has 4."),
        (replace(TERMS, processors=3), {}, "lyon: It runs components of 3 processors at most, and one has 4."),
        (
            replace(TERMS, walltime=Duration(HOUR // 2)),
            {},
            "lyon: It runs programs for 30m at most, and one asks for 1h.",
        ),
        (replace(TERMS, jobs=0), {}, "lyon: It runs 0 jobs of its neighbours at a time, and has 0 of them."),
    ],
)
def test_a_site_runs_nothing_but_on_its_terms(terms: RunLimits | None, fields: Any, why: str) -> None:
    pair = Pair(terms)
    job = pair.send(**fields)
    pair.exchange()
    assert pair.lyon.all_jobs == {}
    failed = pair.delft.all_jobs[job]
    assert (failed.state, str(failed.reason)[: len(why)]) == (JobState.FAILED, why)


BOUNDED: dict[str, Any] = {  # what a received component may not ask for, unless the terms name it
    "processors": 33, "most": 33, "walltime": Duration(13 * HOUR), "until_end": True,
    "native": ("--nodes=2",), "queue": "long", "account": "physics", "qos": "high", "constraint": "gpu",
    "exclusive": True, "gpus": 1, "memory_per_processor": 1 << 40,
}  # fmt: skip
HARMLESS = {
    "executable": "it runs under the account in any case", "arguments": "they are the program's",
    "environment": "it is the program's", "setup": "it runs as the program does",
    "cluster": "each has the same bounds", "launch": "it divides the processors", "mpi": "it chooses an mpirun",
    "processors_per_node": "it divides the processors", "threads_per_process": "it divides the processors",
    "optional": "the job may do without it", "least": "it asks for fewer", "spread": "it divides the processors",
    "requirements": "they leave clusters out", "rank": "it orders the clusters",
}  # fmt: skip
OF_JOBS = {  # the fields of a job, and where each is judged
    **dict.fromkeys(("components", "jobs"), "why_not_run"),
    **dict.fromkeys(("stage_in", "stage_out", "keep_output", "interactive", "parameters", "begin"), "why_not_sent"),
    "claim_before": "only with begin",
    **dict.fromkeys(("site", "notify", "after"), "the link"),
    **dict.fromkeys(("priority", "barrier_wait", "held_limit", "fill", "race"), "receiving"),
    "expires": "it ends sooner",
    "stage_out_to": "only with stage_out", "files": "only with stage_in",
    "order": "only with parameters", "pilot": "no job file has it", "directory": "the receiver's",
    "name": "shown", "labels": "shown", "when_busy": "how it waits", "relax_after": "how it waits",
    "dttl": "this site's rules bound it", "communication": "where it is placed", "on_failure": "of its own flow",
    "retry_on": "each try has the same bounds", "retrials": "each try has the same bounds",
}  # fmt: skip


def test_every_field_of_a_received_job_is_judged_or_known_to_be_harmless() -> None:
    """A new field fails this test until it is decided what a neighbour may do with it."""
    assert {each.name for each in fields(ComponentRequest)} == BOUNDED.keys() | HARMLESS.keys()
    assert not BOUNDED.keys() & HARMLESS.keys()
    assert {each.name for each in fields(Request)} == OF_JOBS.keys()
    assert {*RunOption} == BOUNDED.keys() - {"processors", "most", "walltime", "until_end"}


@pytest.mark.parametrize("field", BOUNDED)
def test_a_received_component_gets_no_more_than_the_terms_name(field: str) -> None:
    refused = make(replace(component(4), **{field: BOUNDED[field]}))
    for request in (refused, replace(subtree(), jobs=(FlowJob(request=refused),))):
        reason = why_not_run(TERMS, "delft", request, 0)
        assert reason is not None, field
        assert reason.whose == "request"
    assert why_not_run(TERMS, "delft", make(component(4)), 0) is None
    if field in {*RunOption}:
        assert why_not_run(replace(TERMS, options=(RunOption(field),)), "delft", refused, 0) is None
        others = tuple(each for each in RunOption if each != field)
        assert why_not_run(replace(TERMS, options=others), "delft", refused, 0) is not None


def test_no_job_of_a_neighbour_goes_before_those_of_this_site_nor_notifies_its_people() -> None:
    pair = Pair()
    greedy = make(component(4), priority=0, barrier_wait=HOUR, when_busy=WhenBusy.QUEUE, race=32)
    pair.send(replace(subtree(), jobs=(FlowJob(request=greedy),)))
    pair.exchange()
    requests = [job.request for job in pair.lyon.all_jobs.values()]
    assert [(each.priority, each.notify, each.barrier_wait, each.race) for each in requests] == [
        (10, (), None, None)
    ] * 2


def test_a_cancel_here_cancels_there_and_ends_only_when_that_has_ended() -> None:
    pair = Pair()
    job = pair.send(subtree())
    pair.exchange()
    pair.lyon.run(pair.there("first").id)
    pair.delft.apply(CancelRequested(job))
    assert pair.delft.all_jobs[job].state is JobState.STOPPING
    (change, *_) = pair.exchange()
    assert isinstance(change, ChangeSentJob)
    assert pair.delft.all_jobs[job].state is JobState.STOPPING
    assert "waits for the site lyon to end its job 1" in pair.why(job)
    pair.lyon.obey()
    pair.exchange()
    assert {each.state for each in pair.lyon.all_jobs.values()} == {JobState.CANCELLED}
    flow = next(each for each in pair.lyon.all_jobs.values() if isinstance(each, Flow))
    assert flow.reason is not None
    assert flow.reason.message == "Its sender has cancelled it."
    assert pair.delft.all_jobs[job].state is JobState.CANCELLED


def test_a_forced_cancel_waits_for_nobody_and_a_job_that_was_not_sent_is_cancelled_at_once() -> None:
    pair = Pair()
    away = pair.send()
    pair.exchange()
    pair.lose(pair.delft, pair.lyon)
    pair.delft.apply(CancelRequested(away))
    assert pair.delft.all_jobs[away].state is JobState.STOPPING
    assert "There is no connection with lyon now" in pair.why(away)
    pair.delft.apply(CancelRequested(away, force=True))
    assert pair.delft.all_jobs[away].state is JobState.CANCELLED
    waits = pair.send()
    assert pair.delft.all_jobs[waits].state is JobState.WAITING
    assert "is sent once there is a connection" in pair.why(waits)
    pair.delft.apply(CancelRequested(waits))
    assert pair.delft.all_jobs[waits].state is JobState.CANCELLED
    pair.connect(pair.delft, pair.lyon)
    pair.lyon.obey()
    pair.exchange()
    assert [job.state for job in pair.lyon.all_jobs.values()] == [JobState.CANCELLED]


def test_what_is_cancelled_by_the_people_there_has_failed_here() -> None:
    pair = Pair()
    job = pair.send()
    pair.exchange()
    pair.lyon.apply(CancelRequested(pair.there().id))
    pair.lyon.obey()
    pair.exchange()
    failed = pair.delft.all_jobs[job]
    assert (failed.state, failed.reason and failed.reason.code) == (JobState.FAILED, "cancelled_there")


def test_hold_and_release_reach_the_jobs_there() -> None:
    pair = Pair()
    job = pair.send(subtree())
    pair.exchange()
    pair.delft.apply(HoldRequested(job))
    pair.exchange()
    assert pair.there("then").state is JobState.HELD
    pair.delft.apply(ReleaseRequested(job))
    pair.exchange()
    assert pair.there("then").state is JobState.BLOCKED
    held = pair.send(subtree())
    pair.lose(pair.delft, pair.lyon)
    waits = pair.send()
    pair.delft.apply(HoldRequested(waits))
    assert pair.delft.all_jobs[waits].state is JobState.HELD  # it is still here
    pair.connect(pair.delft, pair.lyon)
    assert pair.delft.all_jobs[waits].state is JobState.HELD
    assert pair.delft.all_jobs[held].state is JobState.RUNNING
    pair.delft.apply(ReleaseRequested(waits))
    pair.exchange()
    assert pair.delft.all_jobs[waits].state is JobState.RUNNING


def test_no_more_are_away_at_a_time_than_the_bound() -> None:
    pair = Pair(replace(TERMS, processors=64))
    for _ in range(MOST_SENT + 3):
        pair.send(make(component(64), site="lyon"))
    states = [job.state for job in pair.delft.all_jobs.values()]
    assert (states.count(JobState.CLAIMING), states.count(JobState.WAITING)) == (MOST_SENT, 3)
    pair.exchange()
    pair.play(min(pair.lyon.all_jobs))
    pair.exchange()
    assert sum(job.state is JobState.WAITING for job in pair.delft.all_jobs.values()) == 2


def test_a_site_that_is_removed_or_has_a_new_store_ends_what_it_runs() -> None:
    pair = Pair()
    job = pair.send()
    pair.exchange()
    pair.delft.apply(NeighbourConnected(neighbour="lyon", instance="another"))
    assert pair.delft.all_jobs[job].reason is not None
    assert pair.delft.all_jobs[job].reason.code == "site_forgot"  # type: ignore[union-attr]
    pair.lyon.apply(NeighbourConnected(neighbour="delft", instance="another"))
    assert pair.there().state is JobState.STOPPING  # delft knows nothing of it any more
    pair.lyon.obey()
    assert pair.lyon.taken() == []  # nor is its end reported: it would take it for that of another job
    other = Pair()
    job = other.send()
    other.exchange()
    other.delft.apply(NeighbourLeft(neighbour="lyon"))
    assert other.delft.all_jobs[job].state is JobState.FAILED
    other.delft.apply(NeighbourJoined(neighbour="lyon", relation=Relation.SIBLING))
    assert other.delft.all_jobs[job].state is JobState.FAILED


def test_a_neighbour_reports_its_own_jobs_only() -> None:
    pair = Pair()
    paris = Site("paris", {"seine": 4})
    pair.sites["paris"] = paris
    pair.link(pair.delft, paris)
    job, own = pair.send(), pair.delft.submit(component(2))
    pair.exchange()
    for number, each in enumerate((job, own), 100):
        body = JobReport(each, 7, "done", 1, 1, "", "")
        pair.delft.apply(received("paris", paris.instance, number, body))
        assert not pair.delft.all_jobs[each].state.final


@pytest.mark.parametrize(
    "mapping",
    [
        {"components": []},
        {"components": [{"processors": 1, "executable": "a"}], "site": "paris"},
        {"components": [{"processors": 1, "executable": "a"}], "after": [1]},
        {"components": [{"processors": 1, "executable": "a"}], "notify": [{"command": "true"}]},
        {"components": [{"processors": 1, "executable": "a"}], "stage_in": ["/etc/passwd"]},
        {"components": [{"processors": 1, "executable": "a"}], "stage_out": ["a"]},
        {"components": [{"processors": 1, "executable": "a"}], "parameters": {"x": "1:9"}},
        {"components": [{"processors": 1, "executable": "a"}], "interactive": True},
        {"jobs": [{"name": "a", "after": ["a"], "components": [{"processors": 1, "executable": "a"}]}]},
    ],
    ids=json.dumps,
)
def test_what_no_site_would_send_is_refused_and_runs_nothing(mapping: Any) -> None:
    pair = Pair()
    event = received("delft", pair.delft.instance, 100, JobSending(7, mapping))
    assert isinstance(event.message, JobUnreadable)
    pair.lyon.apply(event)
    assert pair.lyon.all_jobs == {}
    (report,) = pair.lyon.taken()
    assert report.sent.state is JobState.FAILED
    assert report.reason.message


@pytest.mark.parametrize("inside", [False, True], ids=["a job", "a job of a subtree"])
def test_requirements_that_a_site_cannot_evaluate_fail_here_with_the_reason(inside: bool) -> None:
    pair = Pair()
    one = make(replace(component(4), requirements='other.LRMSType == "slurm"'))
    inner = Request(name="sub", components=(), jobs=(FlowJob(request=replace(one, name="one")),), site="lyon")
    with patch.object(extras, "find_spec", lambda name: None):
        need_matchmaker(Request(name="whole", components=(), jobs=(FlowJob(request=inner),)))  # it is for lyon's
        job = pair.send(inner if inside else replace(one, site="lyon"))
        pair.exchange()
    assert pair.lyon.all_jobs == {}
    failed = pair.delft.all_jobs[job]
    assert (failed.state, failed.reason and failed.reason.code) == (JobState.FAILED, "missing_extra")
    assert str(failed.reason).startswith("lyon: A job with requirements or a rank needs koalapy's extra `jdl`")


@pytest.mark.parametrize("killed", ["delft", "lyon", "both"])
@pytest.mark.parametrize("step", range(7))
def test_koalads_killed_at_any_step_lose_nothing_and_run_nothing_twice(killed: str, step: int) -> None:
    pair = Pair()
    sites = [pair.delft, pair.lyon] if killed == "both" else [pair.sites[killed]]
    job = JobId(0)

    def end(name: str) -> None:
        attempt = pair.lyon.attempts(pair.there(name).id)[0]
        pair.lyon.apply(pair.lyon.report(attempt, "at_barrier", at_barrier_at=pair.lyon.now))
        pair.lyon.apply(pair.lyon.report(attempt, "running", released_at=pair.lyon.now, started_at=pair.lyon.now))
        pair.lyon.end(attempt)
        pair.lyon.obey()

    def submit() -> None:
        nonlocal job
        job = pair.send(subtree())

    steps = [submit, pair.exchange, lambda: end("first"), pair.exchange, lambda: end("then"), pair.exchange]
    for number, each in enumerate(steps):
        if number == step:
            for site in sites:
                pair.restart(site)
        each()
    if step == len(steps):
        for site in sites:
            pair.restart(site)
    pair.exchange()
    assert pair.delft.all_jobs[job].state is JobState.DONE
    assert sorted(each.request.name for each in pair.lyon.all_jobs.values()) == ["first", "sub", "then"]
    assert {each.numbers for each in pair.lyon.jobs.values()} == {(1,)}


NUMBERS = count(1)


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


MUTANTS: dict[str, Any] = {
    "a message is handled each time that it arrives, and its job submitted each time": lambda: (
        patch.object(Neighbours, "takes", lambda *_: True),
        patch.object(receiving, "key_of_received", lambda *_: f"x:{next(NUMBERS)}"),
    ),
    "the end of a received job is not reported": lambda: (patch.object(ReceivedJobs, "became_final", _nothing),),
    "a restarted koalad forgets what it has received": lambda: (patch.object(ReceivedJobs, "added", _nothing),),
}


def _killed_at_each_step() -> None:
    for step in range(7):
        test_koalads_killed_at_any_step_lose_nothing_and_run_nothing_twice("both", step)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_loses_a_job_or_runs_one_twice(mutant: str) -> None:
    with ExitStack() as stack:
        for each in MUTANTS[mutant]():
            stack.enter_context(each)
        with pytest.raises((AssertionError, ValueError, KeyError)):
            _killed_at_each_step()


def test_progress_is_not_reported_more_often_than_every_ten_seconds() -> None:
    pair = Pair()
    pair.send(
        replace(
            subtree(), jobs=tuple([FlowJob(request=replace(make(component(4)), name=str(each))) for each in range(9)])
        )
    )
    pair.exchange()
    reports = 0
    for each in sorted(pair.lyon.all_jobs)[1:]:
        pair.play(each)
        reports += len([one for one in pair.exchange() if isinstance(one, ReportReceivedJob)])
    assert reports == 1  # that of the end


def test_time_alone_reports_progress() -> None:
    pair = Pair()
    job = pair.send(subtree())
    pair.exchange()
    pair.play(pair.there("first").id)
    assert [one for one in pair.exchange() if isinstance(one, ReportReceivedJob)] == []
    pair.lyon.apply(after=Duration(11 * SECOND))
    pair.exchange()
    sent = pair.delft.sent_jobs[job].sent
    assert sent is not None
    assert sent.done == 1
