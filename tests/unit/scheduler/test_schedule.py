"""The scheduling pass decides exactly as the plain one does, which looks at every job and remembers nothing."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koalapy.broker.availability import Availability
from koalapy.broker.broker import PolicyFailed, find_placement, shortest_queue
from koalapy.broker.placement_cache import PlacementCache
from koalapy.core.wait_queue import WaitQueue, in_order
from koalapy.information.kis import ClusterSummary
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.errors import Reason
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.request import ComponentRequest, Request, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import Duration, Instant
from koalapy.policies.placement import (
    Demand,
    IdleCluster,
    PlacementChoice,
    PlacementPolicy,
    best_fit,
    cluster_minimisation,
    worst_fit,
)
from koalapy.policies.queueing import Blocked, QueueingPolicy, fcfs, fpfs
from koalapy.scheduler.blocked_ahead import Overtaken
from koalapy.scheduler.schedule import Claim, Decision, Reject, schedule

NOW, QUEUE_AFTER = Instant(1_000), Duration(500)
NEWEST = JobId(3)  # of the jobs that were there when koalad started
CLUSTERS = ("a", "b", "c", "d")
DOWN = Reason("down", "transient", "It is down.", "")


def plain(
    now: Instant, waiting: Sequence[Job], summaries: list[ClusterSummary], wanted: Settings, placement: PlacementPolicy,
    queueing: QueueingPolicy,
) -> list[Decision]:  # fmt: skip
    """The pass as the paper has it (DCS, section 3.2), job by job."""
    decisions: list[Decision] = []
    blocked: list[Blocked] = []
    stalled, passed = False, 0
    for job in waiting:
        wall = [Blocked(0, -1)] if stalled and not blocked else []
        if not queueing([*blocked, *wall], wanted.max_overtakes):
            break
        decision = decide(now, job, summaries, wanted, placement)
        if isinstance(decision, Claim):
            summaries = list(Availability(summaries).after(*decision.placement, decision.patient).summaries)
            if blocked:
                passed += 1
                blocked[0] = Blocked(blocked[0].job, blocked[0].overtaken + 1)
        if decision is not None:
            decisions.append(decision)
        elif is_stalled(now, job, summaries, placement):
            stalled = True
        else:
            blocked.append(Blocked(job.id, job.overtaken))
    return decisions + ([Overtaken(JobId(blocked[0].job), passed)] if passed else [])


def decide(
    now: Instant, job: Job, summaries: list[ClusterSummary], wanted: Settings, placement: PlacementPolicy
) -> Decision | None:
    without = {cluster for cluster, until in job.excluded if now < until}
    found = find_placement(job.request, Availability(summaries).without(without), placement)
    if isinstance(found, PolicyFailed):
        return Reject(job.id, found.reason)
    if found is not None:
        return Claim(job.id, found)
    if never_fits(job, summaries, placement):
        return Reject(job.id, DOWN)
    if job.request.when_busy is WhenBusy.QUEUE and now >= (job.waiting_since or 0) + wanted.queue_after:
        queue = shortest_queue(job.request, summaries, without)
        return Claim(job.id, queue, patient=True) if queue is not None else None
    return None


def never_fits(job: Job, summaries: list[ClusterSummary], placement: PlacementPolicy) -> bool:
    named = {each.cluster for each in job.request.components}
    asked = [summary for summary in summaries if None in named or summary.name in named]
    if any(summary.trouble for summary in asked):
        return False
    if any(not (summary.size_known or (job.id > NEWEST and (summary.whole or summary.size)[0])) for summary in asked):
        return False
    return (
        find_placement(
            job.request, Availability([emptied(summary, summary.whole or summary.size) for summary in asked]), placement
        )
        is None
    )


def emptied(summary: ClusterSummary, size: tuple[int, int]) -> ClusterSummary:
    assert summary.state is not None
    total, largest = size
    state = replace(summary.state, total=total, largest=largest, free_nodes=(), largest_idle=None)
    return replace(summary, total=total, idle=total, state=state)


def is_stalled(now: Instant, job: Job, summaries: list[ClusterSummary], placement: PlacementPolicy) -> bool:
    without = {cluster for cluster, until in job.excluded if now < until}
    usable = {summary.name for summary in summaries if summary.trouble is None} - without
    named = {each.cluster for each in job.request.components if each.cluster and not each.optional}
    if not usable or not named <= usable:
        return True
    asked = {each.cluster for each in job.request.components}
    if any(summary.trouble for summary in summaries if None in asked or summary.name in asked):
        return False
    empty = [emptied(summary, summary.size) for summary in summaries if summary.trouble is None]
    return find_placement(job.request, Availability(empty), placement) is None


# ---- what it is tried on

COMPONENTS = st.builds(
    ComponentRequest,
    processors=st.sampled_from((1, 2, 3, 4, 4, 6, 8, 16, 40)),
    executable=st.just("./program"),
    cluster=st.sampled_from((None, None, None, *CLUSTERS)),
    optional=st.sampled_from((False, False, False, True)),
    exclusive=st.sampled_from((False, False, True)),
    processors_per_node=st.sampled_from((None, None, 2)),
)


@st.composite
def cluster(draw: st.DrawFn, name: str) -> ClusterSettings:
    """These stay the same for as long as an engine lives."""
    return ClusterSettings(
        name=name, batch="slurm", network=draw(st.sampled_from(("x", "x", "y"))),
        processors_per_node=draw(st.sampled_from((None, 4))), backlog=draw(st.sampled_from((None, 0, 8))),
    )  # fmt: skip


@st.composite
def summary(draw: st.DrawFn, limits: ClusterSettings) -> ClusterSummary:
    total, trouble = draw(st.sampled_from((0, 4, 8, 8, 16, 16))), draw(st.sampled_from((None, None, None, None, DOWN)))
    idle = draw(st.integers(0, total)) if trouble is None else 0
    free_nodes = draw(st.sampled_from(((), ((2, 1), (4, 2)))))
    largest = draw(st.sampled_from((None, None, None, 4)))
    state = ClusterState(
        measured_at=NOW, total=total, idle=idle, ours=0, others=0, waiting_local=draw(st.integers(0, 2)),
        free_nodes=free_nodes, largest=largest, largest_idle=largest and draw(st.integers(0, largest)),
    )  # fmt: skip
    backlog = draw(st.integers(0, 6))
    most = min(total, largest or total)
    whole = draw(st.sampled_from((None, None, None, (total * 2, most), (total + 4, most + 4))))
    return ClusterSummary(
        name=limits.name,
        settings=limits,
        total=total,
        idle=idle,
        committed=0,
        backlog=backlog,
        trouble=trouble,
        state=state,
        whole=whole,
        size_known=draw(st.sampled_from((True, True, True, False))),
    )


@st.composite
def waiting_job(draw: st.DrawFn, number: int) -> Job:
    wanted: list[ComponentRequest] = draw(st.lists(COMPONENTS, min_size=1, max_size=4))
    request = Request(
        name="job", components=tuple(wanted), priority=draw(st.sampled_from((5, 10, 10))),
        communication=draw(st.booleans()), when_busy=draw(st.sampled_from(WhenBusy)),
    )  # fmt: skip
    position = draw(st.integers(0, 3)) * 100 + number
    return Job(
        id=JobId(number), owner="me", request=request, state=JobState.WAITING, position=position,
        submitted_at=Instant(0), waiting_since=Instant(draw(st.integers(0, 1_000))), overtaken=draw(st.integers(0, 3)),
        excluded=draw(st.sampled_from(((), (), (("a", Instant(2_000)),), (("b", Instant(500)),)))),
    )  # fmt: skip


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[Job], list[list[ClusterSummary]]]:
    jobs = [draw(waiting_job(number)) for number in range(1, draw(st.integers(1, 12)) + 1)]
    clusters = [draw(cluster(name)) for name in CLUSTERS]
    return jobs, [[draw(summary(each)) for each in clusters] for _ in range(draw(st.integers(1, 3)))]


def alone(blocked: Sequence[Blocked], max_overtakes: int) -> bool:
    """A policy that looks at all that is ahead."""
    return len(blocked) <= max_overtakes and sum(each.overtaken for each in blocked) <= 2 * max_overtakes


@pytest.mark.parametrize("placement", [worst_fit, cluster_minimisation, best_fit])
@pytest.mark.parametrize("queueing", [fcfs, fpfs, alone])
@given(grid=grids(), max_overtakes=st.integers(0, 4))
@settings(derandomize=True, max_examples=60)
def test_a_pass_decides_as_the_plain_one(
    placement: PlacementPolicy,
    queueing: QueueingPolicy,
    grid: tuple[list[Job], list[list[ClusterSummary]]],
    max_overtakes: int,
) -> None:
    """Also the passes after it, on other clusters, with all that queue and answers remember."""
    jobs, moments = grid
    wanted = Settings(clusters=(), max_overtakes=max_overtakes, queue_after=QUEUE_AFTER)
    queue, cache, availability = WaitQueue(), PlacementCache(placement), None
    records = Records(Snapshot(instance=InstanceId("abcde"), jobs=tuple(jobs)), (queue,))
    for now, summaries in enumerate(moments, NOW):
        availability = Availability(summaries, availability)
        found = schedule(Instant(now), queue, availability, cache, wanted, queueing, newest=NEWEST).decisions
        assert ids(found) == ids(
            plain(Instant(now), in_order(records.jobs.values()), summaries, wanted, placement, queueing)
        )
        carry_out(records, found)


def ids(decisions: list[Decision]) -> list[Decision]:
    """The words of a refusal are not compared."""
    return [replace(each, reason=DOWN) if isinstance(each, Reject) else each for each in decisions]


def carry_out(records: Records, decisions: list[Decision]) -> None:
    for decision in decisions:
        job = records.jobs[decision.job]
        if isinstance(decision, Overtaken):
            records.change(job, overtaken=job.overtaken + decision.times)
        else:
            records.change(job, state=JobState.FAILED)
    records.take()


def test_a_policy_is_not_asked_where_there_is_no_room() -> None:
    asked = []

    def policy(demands: object, idle_clusters: object) -> None:
        asked.append(demands)

    summary = view_of("a", total=8, idle=2)
    queue = WaitQueue()
    queue.added(job_of(ComponentRequest(processors=4, executable="./program")))
    found = schedule(NOW, queue, Availability([summary]), PlacementCache(policy), Settings(clusters=()), fpfs).decisions
    assert [type(each) for each in found] == [Reject]
    assert len(asked) == 1, "only whether it would ever fit"


def test_what_has_been_asked_is_not_asked_again() -> None:
    asked = []

    def policy(demands: Sequence[Demand], idle_clusters: Sequence[IdleCluster]) -> PlacementChoice | None:
        asked.append(idle_clusters)
        return {0: "a", 1: "b"} if idle_clusters[0].idle == 8 else None

    queue, cache, pair = (
        WaitQueue(),
        PlacementCache(policy),
        [ComponentRequest(processors=2, executable="./program")] * 2,
    )
    for number in (1, 2):
        queue.added(job_of(*pair, number=number))
    availability = Availability([view_of("a", total=8, idle=4), view_of("b", total=8, idle=4)])
    for _ in range(3):
        assert not schedule(NOW, queue, availability, cache, Settings(clusters=()), fpfs).decisions
    assert [[each.idle for each in idle_clusters] for idle_clusters in asked] == [[4, 4], [8, 8]]


def test_a_waiting_job_whose_request_is_another_now_is_looked_at_anew() -> None:
    queue = WaitQueue()
    waiting = job_of(ComponentRequest(processors=4, executable="./program"))
    records = Records(Snapshot(instance=InstanceId("abcde"), jobs=(waiting,)), (queue,))
    queue.mark_feasible(None)
    assert not list(queue.candidates(2, 0))
    smaller = job_of(ComponentRequest(processors=2, executable="./program"))
    records.change(records.jobs[waiting.id], request=smaller.request)
    queue.mark_feasible(None)
    assert [each.minimum.largest for each in queue.candidates(2, 0)] == [2]


@pytest.mark.parametrize(
    ("waiting", "communication", "chosen"),
    [
        pytest.param({"a": 0, "b": 5, "c": 7}, True, ("b", "c"), id="the shortest queue of all is in a small network"),
        pytest.param({"a": 0, "b": 5, "c": 7}, False, ("a", "b"), id="components that do not communicate"),
        pytest.param({"a": 0, "b": 5, "c": 7, "d": 3}, True, ("a", "d"), id="of two networks the less busy one"),
        pytest.param({"a": 0, "b": 5, "d": 9}, True, ("a", "d"), id="only the busier network takes both"),
        pytest.param({"a": 0, "b": 5}, True, None, id="no network takes both"),
    ],
)
def test_batch_queues_of_one_job_are_in_one_network(
    waiting: dict[str, int], communication: bool, chosen: tuple[str, ...] | None
) -> None:
    """Two components of all processors of a cluster; a and d are linked, and so are b and c."""
    networks = {"a": "x", "b": "y", "c": "y", "d": "x"}
    summaries = [view_of(name, 8, 0, count, networks[name]) for name, count in waiting.items()]
    wanted = (ComponentRequest(processors=8, executable="./program"),) * 2
    request = Request(name="job", components=wanted, communication=communication)
    found = shortest_queue(request, summaries)
    assert (found and found.clusters) == chosen


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        pytest.param(
            [(5, None), (6, "a")], ("b", "a"), id="a named component has its cluster before its siblings choose"
        ),
        pytest.param([(4, None), (8, None)], ("b", "a"), id="a large component chooses before a small one"),
        pytest.param([(4, "a"), (4, "down", True)], ("a", None), id="an optional component whose cluster is down"),
        pytest.param([(8, None), (8, None, True)], ("a", "b"), id="an optional component that fits goes along"),
        pytest.param([(8, None), (8, None), (8, None, True)], ("a", "b", None), id="an optional one that does not fit"),
        pytest.param([(8, None), (8, None), (8, None)], None, id="three that do not fit"),
    ],
)
def test_batch_queues_take_a_job_of_several_components_if_they_have_room_for_what_it_needs(
    wanted: list[tuple[int, str | None] | tuple[int, str, bool]], chosen: tuple[str | None, ...] | None
) -> None:
    """Components of (processors, cluster, optional). The queue of a is the shorter one."""
    components = tuple(
        ComponentRequest(processors=size, cluster=cluster, optional=bool(optional), executable="./program")
        for size, cluster, *optional in wanted
    )
    summaries = [view_of("a", 8, 0, 0), view_of("b", 8, 0, 5), replace(view_of("down", 8, 0, 0), trouble=DOWN)]
    found = shortest_queue(Request(name="job", components=components), summaries)
    assert (found and found.clusters) == chosen


def view_of(name: str, total: int, idle: int, waiting: int = 0, network: str = "default") -> ClusterSummary:
    state = ClusterState(measured_at=NOW, total=total, idle=idle, ours=0, others=total - idle, waiting_local=waiting)
    limits = ClusterSettings(name=name, batch="slurm", network=network)
    return ClusterSummary(
        name=name, settings=limits, total=total, idle=idle, committed=0, backlog=0, trouble=None, state=state
    )


def job_of(*wanted: ComponentRequest, number: int = 1) -> Job:
    return Job(
        id=JobId(number), owner="me", request=Request(name="job", components=wanted), state=JobState.WAITING,
        position=number, submitted_at=NOW, waiting_since=NOW,
    )  # fmt: skip


def work_of_a_pass(clusters: int) -> int:
    """Return how many calls a first pass over 200 jobs makes on clusters whose sizes are new; generators count."""
    queue, calls = WaitQueue(), Counter[str]()
    for number in range(1, 201):
        queue.added(job_of(ComponentRequest(processors=4, executable="./program"), number=number))
    shown = (view_of(f"c{number}", total=8, idle=0) for number in range(clusters))
    summaries = [replace(each, size_known=False) for each in shown]
    availability = Availability(summaries)
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        schedule(NOW, queue, availability, PlacementCache(worst_fit), Settings(clusters=()), fpfs)
    finally:
        sys.setprofile(None)
    return calls["call"]


def test_a_first_pass_does_not_examine_every_cluster_for_every_job() -> None:
    assert work_of_a_pass(80) < 2 * work_of_a_pass(20)
