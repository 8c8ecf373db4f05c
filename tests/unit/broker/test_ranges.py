"""Jobs that allow fewer processors than they want: `match`, `--check`, `explain` and the scheduler agree on them."""

from dataclasses import dataclass, replace
from itertools import product

import pytest
from engine_play import Play, component
from hypothesis import given
from hypothesis import strategies as st
from job_languages import read_jdl, read_native, read_rsl

from koalapy.broker.availability import Availability
from koalapy.broker.broker import Placement, find_placement, shortest_queue
from koalapy.broker.suitability import Suitability
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CompareAds
from koalapy.model.events import AdsCompared
from koalapy.model.identity import JobId
from koalapy.model.job import Choice
from koalapy.model.matching import Answer, Match, Question, Verdict
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.policies.placement import worst_fit
from koalapy.views.checking import check
from koalapy.views.explanation import explain
from koalapy.views.matching import ads, compared, match, questions

LINUX, RANK = 'other.OpSys == "Linux"', "other.AverageSI"
NAMES = ("ant", "bee", "cat")
Ranks = dict[str, float | None]


@dataclass(frozen=True)
class Case:
    """Clusters, each with its size, idle processors and network; their ranks if they suit; and a job."""

    sizes: dict[str, int]
    idle: dict[str, int]
    networks: dict[str, str]
    ranks: Ranks
    request: Request

    def play(self) -> Play:
        settings = tuple(ClusterSettings(name=each, batch="slurm", network=self.networks[each]) for each in self.sizes)
        game = Play(Settings(clusters=settings), sizes=self.sizes)
        game.measure(**{each: self.sizes[each] - self.idle[each] for each in self.sizes})
        return game


def answered(question: Question, ranks: Ranks) -> Answer:
    matches = [
        Match(ad, Verdict.MATCH, ranks.get(ad.cluster))
        if ad.cluster in ranks or not question.job.requirements
        else Match(ad, Verdict.NO_MATCH)
        for ad in question.clusters
    ]
    return Answer(question.job, tuple(matches))


def suitability_of(game: Play, request: Request, ranks: Ranks) -> Suitability:
    asked = questions(request, ads(game.engine, game.now))
    return compared(game.engine, game.now, [answered(each, ranks) for each in asked])


def submitted(game: Play, request: Request, ranks: Ranks) -> JobId:
    job = game.submit(*request.components, communication=request.communication)
    for hint in [each for each in game.hints if isinstance(each, CompareAds)]:
        game.apply(AdsCompared(tuple(answered(each, ranks) for each in hint.questions)))
    return job


def claimed(game: Play, job: JobId) -> tuple[tuple[str, int], ...]:
    return tuple((each.cluster, each.processors) for each in game.job(job).present)


def most(case: Case, wanted: ComponentRequest, there: dict[str, int]) -> int | None:
    """The most processors of the range that one component could have, counted by hand; None if there are too few."""
    alone = {
        name: count
        for name, count in there.items()
        if wanted.cluster in (None, name) and (name in case.ranks or not wanted.requirements)
    }
    together = list(alone.values())
    if wanted.spread:
        names = set(case.networks.values()) if case.request.communication else {None}
        together = [
            sum(
                count - count % wanted.threads_per_process
                for name, count in alone.items()
                if network in (None, case.networks[name])
            )
            for network in names
        ]
    unit = wanted.processors_per_node or wanted.threads_per_process
    enough = range(wanted.least or wanted.processors, wanted.processors + 1, unit)
    return max((count for count in enough if count <= max(together, default=0)), default=None)


@st.composite
def ranges(draw: st.DrawFn, named: bool, spread: bool) -> ComponentRequest:
    unit = draw(st.sampled_from((1, 1, 2)))
    least = unit * draw(st.integers(1, 6))
    want = least + unit * draw(st.integers(0, 8))
    return component(
        want,
        draw(st.sampled_from(NAMES)) if named else None,
        threads_per_process=unit,
        most=want if want > least else None,
        least=least if want > least else None,
        requirements=draw(st.sampled_from(("", LINUX))),
        rank=draw(st.sampled_from(("", RANK))),
        spread=spread,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sizes = {name: draw(st.integers(1, 10)) for name in NAMES}
    kind = draw(st.sampled_from(("group", "ordered", "unordered", "mixed")))
    count = 1 if kind == "group" else draw(st.sampled_from((1, 1, 2, 3)))
    named = {"ordered": [True] * count, "mixed": [each % 2 == 0 for each in range(count)]}.get(kind, [False] * count)
    components = tuple([draw(ranges(each, kind == "group")) for each in named])
    return Case(
        sizes,
        {name: draw(st.integers(0, size)) for name, size in sizes.items()},
        {name: draw(st.sampled_from(("west", "east"))) for name in sizes},
        {name: draw(st.sampled_from((None, 1.0, 2.0))) for name in draw(st.sets(st.sampled_from(NAMES)))},
        Request(name="job", components=components, communication=draw(st.booleans())),
    )


@given(cases())
def test_what_match_lists_is_what_runs_and_a_check_and_an_explanation_agree(case: Case) -> None:
    game, request = case.play(), case.request
    suitability = suitability_of(game, request, case.ranks)
    listed = match(request, Availability(game.engine.summaries(game.now)), worst_fit, suitability)
    checked = check(game.engine, game.now, request, worst_fit, suitability)
    job = submitted(game, request, case.ranks)
    state, found = game.job(job).state, claimed(game, job)

    assert (state is JobState.FAILED) == (checked.fits == "never")
    assert checked.reason == game.job(job).reason
    if state is JobState.CLAIMING:
        assert checked.fits == "yes"
        asked = (game.job(job).written or game.job(job).request).components
        if len(request.components) == 1:
            listed_there = [Choice(each.clusters) for each in listed[0].choices]
            first_only = request.components[0].rank or request.components[0].spread
            assert Choice(found) in (listed_there[:1] if first_only else listed_there)
            assert sum(count for _, count in found) == most(case, asked[0], case.idle)
        for (cluster, count), each in zip(found, listed, strict=False):
            assert request.components[0].spread or ((cluster, count),) in [one.clusters for one in each.choices]
        return
    assert len(request.components) > 1 or not listed[0].choices
    if len(request.components) == 1:
        assert most(case, request.components[0], case.idle) is None
        fits_whole = most(case, request.components[0], case.sizes) is not None
        assert fits_whole == (checked.fits == "yes")
    if state is JobState.WAITING:
        why = explain(game.engine, game.now, game.job(job), worst_fit)
        assert not why.fits
        assert why.lacks or len(request.components) > 1
        assert checked.fits == "yes" or checked.lacks


TEXTS = [
    pytest.param("jdl", '[JobType="MPICH-G2"; MinNumCPU=%(least)d; MaxNumCPU=%(want)d; Executable="/bin/a"]', id="jdl"),
    pytest.param(
        "native",
        "components: [{processors: {want: %(want)d, least: %(least)d}, executable: hostname, spread: true}]",
        id="job file",
    ),
    pytest.param("rsl", "&(executable=/bin/hostname)(count=%(want)d)(min_count=%(least)d)", id="rsl"),
]  # fmt: skip
READERS = {"jdl": read_jdl, "native": read_native, "rsl": read_rsl}


@pytest.mark.parametrize(("language", "text"), TEXTS)
@pytest.mark.parametrize(
    ("want", "least", "idle", "groups", "alone"),
    [
        pytest.param(12, 5, (4, 4), 8, None, id="more than the whole grid has"),
        pytest.param(8, 5, (4, 2), 6, None, id="what is idle of it"),
        pytest.param(6, 2, (4, 3), 6, 4, id="all that is wanted by a group"),
        pytest.param(8, 7, (4, 2), None, None, id="less than the least"),
    ],
)
def test_a_range_takes_the_most_that_is_idle_at_once(
    language: str, text: str, want: int, least: int, idle: tuple[int, int], groups: int | None, alone: int | None
) -> None:
    request = READERS[language](text % {"want": want, "least": least}, f"job.{language}", "/")
    names = ("zeus", "bee")
    sizes = dict.fromkeys(names, 4)
    case = Case(sizes, dict(zip(names, idle, strict=True)), dict.fromkeys(names, "grid"), {}, request)
    game = case.play()
    job = submitted(game, request, {})
    expected = alone if language == "rsl" else groups
    assert sum(count for _, count in claimed(game, job)) == (expected or 0)
    if expected is None:
        never = language == "rsl" and least > 4
        assert game.job(job).state is (JobState.FAILED if never else JobState.WAITING)
        reason = game.job(job).reason
        assert not never or (reason is not None and f"asks for at least {least} processors" in reason.message)


def test_the_components_of_a_job_get_theirs_in_their_order() -> None:
    """The first has as many as leave the second its least."""
    case = example({"ant": 6, "bee": 3}, component(8, least=2, most=8), component(8, least=2, most=8))
    game = case.play()
    job = submitted(game, case.request, {})
    assert claimed(game, job) == (("ant", 6), ("bee", 3))
    assert game.job(job).request.processors == 9
    written = game.job(job).written
    assert written is not None
    assert [each.processors for each in written.components] == [8, 8]


def test_an_optional_component_goes_along_with_fewer_rather_than_not_at_all() -> None:
    case = example({"ant": 6}, component(4), component(4, least=1, most=4, optional=True))
    game = case.play()
    assert claimed(game, submitted(game, case.request, {})) == (("ant", 4), ("ant", 2))


def test_a_batch_queue_is_asked_for_the_most_that_it_takes() -> None:
    case = example({"ant": 0, "bee": 0}, component(16, least=2, most=16), size=8)
    found = shortest_queue(case.request, case.play().engine.summaries(case.play().now))
    assert found is not None
    assert found.request.components[0].processors == 8


@given(st.lists(st.integers(0, 5), min_size=2, max_size=3), st.integers(1, 4), st.integers(0, 4))
def test_two_ranges_are_never_both_smaller_than_they_could_be(idle: list[int], least: int, more: int) -> None:
    """No other sizes fit of which none is smaller."""
    wanted = component(least + more, least=least, most=least + more)
    case = example(dict(zip(NAMES, idle, strict=False)), wanted, wanted)
    availability = Availability(case.play().engine.summaries(case.play().now))
    found = find_placement(case.request, availability, worst_fit)
    sizes = range(least, least + more + 1)
    fitting = {
        pair
        for pair in product(sizes, repeat=2)
        if find_placement(
            replace(case.request, components=tuple(component(each) for each in pair)), availability, worst_fit
        )
    }
    assert (found is None) == (not fitting)
    if isinstance(found, Placement):
        first, second = (each.processors for each in found.request.components)
        assert not [pair for pair in fitting if pair[0] >= first and pair[1] >= second and pair != (first, second)]


def example(idle: dict[str, int], *components: ComponentRequest, size: int = 10) -> Case:
    request = Request(name="job", components=components)
    return Case(dict.fromkeys(idle, size), idle, dict.fromkeys(idle, "grid"), {}, request)


def test_a_check_names_what_the_clusters_lack_that_do_not_meet_the_requirements() -> None:
    case = replace(example({"ant": 4, "bee": 4}, component(2, requirements=LINUX)), ranks={})
    game = case.play()
    suitability = suitability_of(game, case.request, case.ranks)
    found = check(game.engine, game.now, case.request, worst_fit, suitability)
    (listed,) = match(case.request, Availability(game.engine.summaries(game.now)), worst_fit, suitability)
    assert (found.fits, found.lacks) == ("unknown", listed.others)
    assert [each.cluster for each in found.lacks] == ["ant", "bee"]
    assert found.lacks[0].reason.code == "no_match"
