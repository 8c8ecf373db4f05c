"""The trees of "Flow-based Multistage Co-allocation Service" in the simulated world, by their starts and ends."""

from collections.abc import Mapping

import pytest
from flow_trees import LANGUAGES, TREES, is_in_order, letters, written
from job_languages import read_coallocate as read_xml
from job_languages import read_rsl

from koalapy.model.cluster import ClusterSettings
from koalapy.model.identity import JobId, tag_of
from koalapy.model.job import Job
from koalapy.model.request import FlowJob, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.model.work import Flow, Work
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.random_sweeps import Parameter, sweep_of
from koalapy.world.world import World

SETTINGS = Settings(clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")))
Span = tuple[Instant, Instant]


def rsl(text: str, failing: str = "", slow: str = "") -> Request:
    """Read a tree of the paper. A program runs for 20 s, or for 90 s; some fail."""
    return request("rsl", text, failing, slow)


def request(language: str, text: str, failing: str = "", slow: str = "") -> Request:
    def program(name: str) -> tuple[str, tuple[str, ...]]:
        runs = Duration((90 if name in slow else 20) * SECOND)
        return EXECUTABLE, arguments_of(Behaviour(runs=runs, exit_status=3 if name in failing else 0))

    read = read_rsl if language == "rsl" else read_xml
    return read(written(language, text, program), f"tree.{language}", "/")


def play(world: World, request: Request) -> dict[str, Work]:
    """Submit the flow and let it end. Returns its jobs by name, and the flow as ''."""
    world.run_for(Duration(30 * SECOND))
    assert world.koalad.submit(request, key="flow")
    assert world.settle(HOUR)
    found: dict[str, Work] = {job.request.name: job for job in world.koalad.store.jobs() if job.part_of is not None}
    (whole,) = [each for each in world.koalad.store.all_work() if isinstance(each, Flow)]
    return found | {"": whole}


def spans(world: World, jobs: Mapping[str, Work]) -> dict[str, Span]:
    """When the program of each job began, and when it ended."""
    found = {}
    for name, job in jobs.items():
        for each in job.present if isinstance(job, Job) else ():
            for run in world.program_log.runs(tag_of(world.instance, each.id)):
                ends = [at for at in run.nodes.values() if at is not None]
                assert name not in found, f"{name} started twice"
                found[name] = run.began, max(ends)
    return found


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("text", TREES)
def test_a_tree_runs_in_the_order_of_the_paper(language: str, text: str) -> None:
    world, waits = World(3, settings=SETTINGS), TREES[text]
    jobs = play(world, request(language, text))
    assert jobs.pop("").state is JobState.DONE
    found = spans(world, jobs)
    assert found.keys() == letters(text)
    assert is_in_order(
        waits, {name: began for name, (began, _) in found.items()}, {name: ended for name, (_, ended) in found.items()}
    )
    for name, (began, _) in found.items():
        for other, (_, ended) in found.items():
            if waits.get(name) == waits.get(other):  # there is room for all
                assert began < ended, (other, name, "run together")


def test_in_an_explicit_flow_no_job_waits_for_another_than_it_names() -> None:
    world = World(3, settings=SETTINGS)
    found = spans(world, play(world, rsl("*(a)(b)(c(wait = 2))(d(wait = 1, 2))", slow="a")))
    assert found["b"][1] <= found["c"][0] < found["a"][1] <= found["d"][0]


def test_a_failure_gives_a_negative_reply_to_all_that_depends_on_it_and_to_nothing_else() -> None:
    world = World(3, settings=SETTINGS)
    jobs = play(world, rsl("*(a)(b)(c(wait = 2))(d(wait = 1, 2))(e(wait = 1))", failing="b"))
    assert {name: job.state.value for name, job in jobs.items()} == {
        "": "failed", "a": "done", "b": "failed", "c": "failed", "d": "failed", "e": "done",
    }  # fmt: skip
    assert set(spans(world, jobs)) == {"a", "b", "e"}
    assert str(jobs["d"].reason).startswith(f"It waited for job {jobs['b'].id} (b), which failed")


def test_a_flow_that_needs_more_than_the_grid_has_at_once_ends() -> None:
    world = World(3, settings=SETTINGS)
    world.run_for(Duration(30 * SECOND))
    engine = world.koalad.engine
    assert engine is not None
    total = sum(each.total for each in engine.summaries(world.agenda.now))
    words = " ".join(f'"{word}"' for word in arguments_of(Behaviour(runs=Duration(5 * SECOND))))
    job = f'(&(executable="{EXECUTABLE}")(arguments={words})(count={total // 2}))'
    jobs = play(world, read_rsl(f"*(*{job * 2})(*{job * 2}){job * 2}", "large.rsl", "/"))
    assert {each.state for each in jobs.values()} == {JobState.DONE}


@pytest.mark.parametrize("seconds", range(0, 120, 17))
def test_a_flow_goes_on_where_it_was_when_koalad_is_killed(seconds: int) -> None:
    world = World(3, settings=SETTINGS)
    world.run_for(Duration(30 * SECOND))
    assert world.koalad.submit(rsl("*(*(*(a))(b)(c))(d)(e)"), key="flow")
    world.run_for(Duration(seconds * SECOND))
    world.koalad.kill()
    world.koalad.start()
    assert world.koalad.submit(rsl("*(*(*(a))(b)(c))(d)(e)"), key="flow")  # its client repeats it: it is the same flow
    assert world.settle(HOUR)
    jobs = {job.request.name: job for job in world.koalad.store.all_work()}
    assert [job.state for job in jobs.values()] == [JobState.DONE] * 6
    found = spans(world, jobs)
    for first, then in ("ab", "ac", "bd", "cd", "be", "ce"):
        assert found[first][1] <= found[then][0]


@pytest.mark.parametrize("seconds", range(0, 150, 13))
def test_a_sweep_in_a_flow_takes_its_turn_and_keeps_it_when_koalad_is_killed(seconds: int) -> None:
    world = World(3, settings=SETTINGS)
    world.run_for(Duration(30 * SECOND))
    before, after = (job.request for job in rsl("*(a)(b)").jobs)
    swept = sweep_of([Parameter(Duration(5 * SECOND))] * 12, MINUTE)
    jobs = (FlowJob(request=before), FlowJob(request=swept, after=(0,)), FlowJob(request=after, after=(1,)))
    assert world.koalad.submit(Request(name="flow", components=(), jobs=jobs), key="flow")
    world.run_for(Duration(seconds * SECOND))
    world.koalad.kill()
    world.koalad.start()
    assert world.settle(HOUR)
    (whole,) = [each for each in world.koalad.store.all_work() if isinstance(each, Flow)]
    (sweep,) = world.koalad.store.sweeps()
    assert (whole.state, sweep.state, sweep.part_of) == (JobState.DONE, JobState.DONE, whole.id)
    assert (len(sweep.done), len(sweep.failed)) == (12, 0)
    first, last = (world.koalad.store.job(JobId(whole.id + place)) for place in (1, 3))
    assert first is not None
    assert last is not None
    (ended,) = [end for _, end in spans(world, {"a": first}).values()]
    (began,) = [begin for begin, _ in spans(world, {"b": last}).values()]
    tries = world.program_log.parameters.of(sweep.id)
    assert sorted(each.number for each in tries) == list(range(1, 13))
    assert ended <= min(each.began for each in tries)
    assert max(each.ended for each in tries if each.ended is not None) <= began


FIGURE_3 = f"""<coallocate name="climate-model">
  <resource="alpha" type="compute">
    <executable="{EXECUTABLE}"/>
    <arguments="WORDS"/>
  </resource>
  <resource="beta" type="compute">
    <executable="{EXECUTABLE}"/>
    <arguments="WORDS"/>
  </resource>
</coallocate>"""


def test_the_request_of_figure_3_is_one_co_allocated_job() -> None:
    world = World(3, settings=SETTINGS)
    world.run_for(Duration(30 * SECOND))
    words = " ".join(arguments_of(Behaviour(runs=Duration(5 * SECOND)))).replace('"', "&quot;")
    request = read_xml(FIGURE_3.replace("WORDS", words), "climate.xml", "/", ["alpha", "beta"])
    assert [each.cluster for each in request.components] == ["alpha", "beta"]
    assert world.koalad.submit(request)
    assert world.settle(HOUR)
    (job,) = world.koalad.store.jobs()
    assert (job.state, job.request.name) == (JobState.DONE, "climate-model")


def test_ids_of_a_flow_follow_its_own() -> None:
    world = World(3, settings=SETTINGS)
    jobs = play(world, rsl("*(*(a)(b))(c)"))
    whole = jobs.pop("")
    assert sorted(job.id for job in jobs.values()) == [JobId(whole.id + number) for number in (1, 2, 3)]
