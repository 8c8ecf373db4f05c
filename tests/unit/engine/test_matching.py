"""Requirements and ranks in the engine: what it asks, what the answers change, and the choices of a job."""

from dataclasses import replace

import pytest
from engine_play import BUSY_QUEUE, INSTANCE, Play, alike, check, component, make

from koalapy.core.matching import Matching
from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import Machine
from koalapy.model.commands import CompareAds, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AdsCompared,
    AttemptSubmitted,
    CancelRequested,
    ClusterConnected,
    ClusterLeft,
    HoldRequested,
    ReleaseRequested,
    SubmissionFailed,
    WorkSubmitted,
)
from koalapy.model.header import Outcome
from koalapy.model.identity import JobId
from koalapy.model.matching import Answer, ClusterAd, JobAd, Match, Question, Verdict
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, Duration
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.explanation import explain, summary

LINUX, RANK = 'other.OpSys == "Linux"', "other.AverageSI"
REFUSED = Reason("refused", "cluster", "The queue is closed.", "Ask why.", command="sbatch", exit_status=1)
COSTLY = Reason("too_costly", "request", "Its requirements take too long.", "Simplify them.")
MISSING = Reason("missing_extra", "ours", "classad2 cannot be imported.", "Install it.")


def question_of(game: Play) -> CompareAds:
    """The newest questions that the engine asked."""
    return [hint for hint in game.hints if isinstance(hint, CompareAds)][-1]


def answer(game: Play, ranks: dict[str, float | None], failure: Reason | None = None) -> None:
    """Answer the newest questions: clusters without a rank here do not match."""
    game.apply(AdsCompared(tuple(_answer(each, ranks, failure) for each in question_of(game).questions)))


def _answer(question: Question, ranks: dict[str, float | None], failure: Reason | None) -> Answer:
    if failure is not None:
        return Answer(question.job, failure=failure)
    return Answer(
        question.job,
        tuple(
            Match(ad, Verdict.MATCH, ranks[ad.cluster]) if ad.cluster in ranks else Match(ad, Verdict.UNDEFINED)
            for ad in question.clusters
        ),
    )


def clusters_of(game: Play, job: JobId) -> list[str]:
    return [each.cluster for each in game.job(job).present]


def test_a_job_waits_for_the_answer_and_runs_on_a_cluster_that_suits() -> None:
    game = Play()
    job = game.submit(component(4, requirements=LINUX))
    assert game.job(job).state is JobState.WAITING
    asked = question_of(game).questions
    assert [each.job for each in asked] == [JobAd(LINUX, "", 4, 4)]
    assert [ad.cluster for ad in asked[0].clusters] == ["alpha", "beta", "gamma"]
    answer(game, {"gamma": None})
    assert clusters_of(game, job) == ["gamma"]
    check(game)


def test_an_ad_has_what_is_configured_and_measured() -> None:
    game = Play()
    game.submit(component(4, requirements=LINUX))
    ads = dict(question_of(game).questions[0].clusters[0].attributes)
    assert (ads["Name"], ads["LRMSType"], ads["LRMSVersion"]) == ("alpha", "slurm", "22.05")
    assert (ads["TotalCPUs"], ads["FreeCPUs"], ads["WaitingJobs"]) == (32, 32, 0)
    assert (ads["GlueCEStateFreeCPUs"], ads["GlueCEInfoTotalCPUs"]) == (32, 32)
    assert "Memory" not in ads


def test_an_ad_has_the_memory_of_the_smallest_node_in_megabytes() -> None:
    game = Play()
    measured = game.measurement("alpha")
    game.apply(replace(measured, state=replace(measured.state, memory=4000 << 20)))
    game.submit(component(4, requirements=LINUX))
    ads = dict(question_of(game).questions[0].clusters[0].attributes)
    assert (ads["Memory"], ads["GlueHostMainMemoryRAMSize"]) == (4000, 4000)


def test_an_ad_has_the_flavours_of_mpi_also_as_glue_names_them() -> None:
    game = Play()
    machine = Machine("Linux", "6.1.0", "x86_64", ("mpich", "openmpi"))
    game.apply(ClusterConnected(cluster="alpha", version="22.05", machine=machine))
    game.submit(component(4, requirements=LINUX))
    ads = dict(question_of(game).questions[0].clusters[0].attributes)
    assert ads["MPI"] == ("mpich", "openmpi")
    assert ads["RunTimeEnvironment"] == ads["GlueHostApplicationSoftwareRunTimeEnvironment"] == ("MPICH", "OPENMPI")


def test_an_ad_has_the_measured_speed_of_a_processor() -> None:
    game = Play()
    game.apply(ClusterConnected(cluster="alpha", version="22.05", machine=Machine("Linux", speed=18_000)))
    game.submit(component(4, rank="other.Speed"))
    ads = {each.cluster: dict(each.attributes) for each in question_of(game).questions[0].clusters}
    assert ads["alpha"]["Speed"] == 18_000
    assert "Speed" not in ads["beta"], "not measured yet"


def test_nothing_more_is_asked_until_the_answer_and_then_only_what_has_changed() -> None:
    game = Play()
    game.submit(component(4, requirements=LINUX))
    game.measure(alpha=1)
    assert len([hint for hint in game.hints if isinstance(hint, CompareAds)]) == 1
    answer(game, {})
    assert [ad.cluster for ad in question_of(game).questions[0].clusters] == ["alpha"]
    answer(game, {})
    count = len(game.hints)
    game.measure(alpha=1)
    assert len(game.hints) == count


def test_an_ad_that_changes_is_compared_again() -> None:
    game = Play()
    job = game.submit(component(4, requirements="other.FreeCPUs > 10"))
    answer(game, {})
    game.measure(beta=3)
    answer(game, {"beta": None})
    assert clusters_of(game, job) == ["beta"]


def test_the_best_rank_goes_first_and_a_refusal_takes_the_next_choice_uncounted() -> None:
    game = Play()
    job = game.submit(component(4, requirements=LINUX, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0, "gamma": 2.0})
    assert clusters_of(game, job) == ["beta"]
    assert [(str(each), each.rank) for each in game.job(job).choices] == [("beta", 3), ("gamma", 2), ("alpha", 1)]
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
    game.obey()
    assert clusters_of(game, job) == ["gamma"]
    assert (game.job(job).submission_failures, game.job(job).choice) == (0, 1)
    assert game.job(job).choices[0].refused == REFUSED.on("beta")
    assert "choice_refused" in game.kinds
    check(game)


def test_the_end_of_the_list_counts_once_and_states_what_each_refused() -> None:
    game = Play()
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0})
    for _ in range(2):
        game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
        game.obey()
    found = game.job(job)
    assert found.submission_failures == 1
    said = [each for each in game.history if each.kind == "work_requeued"][-1].details["message"]
    assert f"beta: {REFUSED.message}" in said
    assert f"alpha: {REFUSED.message}" in said
    assert clusters_of(game, job) == ["beta"]  # a new list
    assert [each.refused for each in found.choices] == [None, None]
    check(game)


def test_refusals_that_may_pass_end_no_list_and_count_nothing() -> None:
    game = Play()
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0})
    for name in ("beta", "alpha"):
        assert clusters_of(game, job) == [name]
        game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=BUSY_QUEUE))
        game.obey()
    assert (game.job(job).state, game.job(job).submission_failures) == (JobState.WAITING, 0)
    assert {name for name, _ in game.job(job).excluded} == {"alpha", "beta"}
    check(game)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_job_fails_at_last_with_what_its_choices_refused(most: int) -> None:
    game = Play(alike(max_submission_failures=most, max_completion_failures=9))
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0})
    for _ in range(2 * most):
        assert not game.job(job).state.final
        game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
        game.obey()
    assert game.job(job).state is JobState.FAILED
    assert game.job(job).submission_failures == most
    reason = game.job(job).reason
    assert reason is not None
    assert reason.code == "choices_refused"
    assert "beta: The queue is closed. alpha: The queue is closed." in reason.message
    check(game)


def test_a_list_is_made_once_each_connected_cluster_is_measured() -> None:
    game = Play()
    game.lose("beta")
    game.apply(ClusterConnected(cluster="beta", version="22.05"))
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0})
    assert game.job(job).state is JobState.WAITING
    game.down.discard("beta")
    game.measure()
    answer(game, {"alpha": 1.0, "beta": 3.0})
    assert clusters_of(game, job) == ["beta"]
    check(game)


def test_a_list_ends_once_each_connected_cluster_is_measured() -> None:
    game = Play()
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0})
    game.lose("alpha")
    game.apply(ClusterConnected(cluster="alpha", version="22.05"))
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
    game.obey()
    assert (game.job(job).state, game.job(job).submission_failures) == (JobState.WAITING, 0)
    game.reach("alpha")
    assert (clusters_of(game, job), game.job(job).submission_failures) == (["alpha"], 0)
    check(game)


def test_no_list_is_made_while_a_cluster_is_still_compared() -> None:
    game = Play()
    job = game.submit(component(4, rank=RANK))
    (question,) = question_of(game).questions
    some = replace(question, clusters=tuple(each for each in question.clusters if each.cluster != "alpha"))
    game.apply(AdsCompared((_answer(some, {"beta": 2.0, "gamma": 1.0}, None),)))
    assert game.job(job).state is JobState.WAITING
    answer(game, {"alpha": 3.0})
    assert clusters_of(game, job) == ["alpha"]


def test_a_list_is_made_without_a_cluster_that_is_out_of_reach() -> None:
    game = Play()
    game.lose("beta")
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0})
    assert clusters_of(game, job) == ["alpha"]
    check(game)


def test_a_new_koalad_makes_no_list_before_it_has_reached_or_lost_each_cluster() -> None:
    """It was killed while the job was claimed on its first choice, which then refuses the job."""
    game = Play()
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 3.0, "beta": 2.0})
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
    game.obey()
    assert clusters_of(game, job) == ["beta"]
    snapshot = Snapshot(instance=INSTANCE, jobs=tuple(game.jobs.values()), counters=game.counters)
    game.engine = Engine(game.settings, Policies(worst_fit, fpfs), snapshot)
    game.reach("beta")
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
    game.obey()
    answer(game, {"alpha": 3.0, "beta": 2.0})
    assert (game.job(job).state, game.job(job).submission_failures) == (JobState.WAITING, 1)
    game.reach("alpha")
    game.lose("gamma")
    assert clusters_of(game, job) == ["alpha"]
    assert [str(each) for each in game.job(job).choices] == ["alpha", "beta"]
    check(game)


def test_a_job_that_comes_soon_after_the_start_gets_no_list_before_each_cluster_is_reached_or_lost() -> None:
    game = Play()
    game.engine = Engine(game.settings, Policies(worst_fit, fpfs), Snapshot(instance=INSTANCE))
    game.reach("beta")
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 3.0, "beta": 2.0})
    game.reach("alpha")
    assert game.job(job).state is JobState.WAITING
    game.lose("gamma")
    assert clusters_of(game, job) == ["alpha"]
    check(game)


def test_a_claim_that_times_out_takes_the_next_choice_too() -> None:
    game = Play()
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0})
    game.apply(AttemptSubmitted(attempt=game.attempts(job)[0], batch_id="1"))
    game.apply(after=Duration(5 * MINUTE))
    assert game.job(job).outcome is Outcome.NEXT_CHOICE
    game.measure()
    game.obey()
    assert clusters_of(game, job) == ["alpha"]
    assert game.job(job).submission_failures == 0


def test_a_choice_that_does_not_fit_any_more_is_passed_over() -> None:
    game = Play()
    job = game.submit(component(16, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0, "gamma": 2.0})
    game.measure(gamma=1)
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
    game.obey()
    assert clusters_of(game, job) == ["alpha"]
    assert [each.refused and each.refused.code for each in game.job(job).choices] == ["refused", "busy", None]


def test_a_list_of_which_nothing_fits_any_more_ends() -> None:
    game = Play()
    job = game.submit(component(16, rank=RANK))
    answer(game, {"beta": 3.0, "gamma": 2.0})
    game.measure(gamma=1)
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
    game.obey()
    found = game.job(job)
    assert found.submission_failures == 1
    assert clusters_of(game, job) == ["beta"]  # by a new list


def test_the_users_own_mistake_ends_the_job_whatever_choices_are_left() -> None:
    game = Play()
    job = game.submit(component(4, rank=RANK))
    answer(game, {"alpha": 1.0, "beta": 3.0})
    mistake = Reason("no_executable", "request", "There is no such program.", "Look.")
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=mistake))
    game.obey()
    assert game.job(job).state is JobState.FAILED


def spread(game: Play, processors: int, **ranks: float) -> JobId:
    job = game.submit(component(processors, rank=RANK, spread=True))
    answer(game, dict(ranks))
    return job


def test_a_group_becomes_components_and_the_job_runs_on_them_together() -> None:
    game = Play()
    job = spread(game, 40, alpha=2.0, beta=1.0)
    found = game.job(job)
    assert [(each.cluster, each.processors) for each in found.present] == [("alpha", 32), ("beta", 8)]
    assert found.written is not None
    assert found.written.components == (component(40, rank=RANK, spread=True),)
    game.run(job)
    for attempt in game.attempts(job):
        game.end(attempt)
    game.obey()
    assert game.job(job).state is JobState.DONE
    check(game)


def test_a_group_that_is_refused_gives_back_all_and_the_next_one_is_tried() -> None:
    game = Play()
    job = spread(game, 40, alpha=3.0, beta=2.0, gamma=1.0)
    first, second = game.attempts(job)
    game.apply(AttemptSubmitted(attempt=first, batch_id="1"))
    game.apply(SubmissionFailed(attempt=second, reason=REFUSED))
    game.obey()
    assert clusters_of(game, job) == ["alpha", "gamma"]
    assert [each.number for each in game.attempts(job)] == [2, 2]
    assert game.job(job).request.components[1].cluster == "gamma"
    check(game)


def test_attempts_of_a_smaller_group_never_have_the_numbers_of_a_larger_ones() -> None:
    game = Play()
    job = spread(game, 16, alpha=1.0, beta=2.0)
    assert clusters_of(game, job) == ["beta"]
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED), game.measurement("alpha", 30))
    game.obey()
    used = set(game.attempts(job))
    for _ in range(6):
        attempts = game.attempts(job)
        game.apply(SubmissionFailed(attempt=attempts[-1], reason=REFUSED))
        game.obey()
        if game.job(job).state is JobState.FAILED:
            break
        assert not used & set(game.attempts(job))
        used |= set(game.attempts(job))
    check(game)


def test_a_group_that_was_refused_everywhere_asks_for_fewer_processors_as_one_component() -> None:
    game = Play()
    game.measure(alpha=28, beta=12, gamma=12)  # 4 of each are idle
    job = game.submit(component(12, requirements=LINUX, spread=True, most=12, least=4), retrials=5)
    assert question_of(game).questions[0].job == JobAd(LINUX, "", 4, 12)
    answer(game, {"alpha": None, "beta": None, "gamma": None})
    assert len(game.job(job).present) == 3
    game.apply(SubmissionFailed(attempt=game.attempts(job)[0], reason=REFUSED))
    game.obey()
    found = game.job(job)
    assert (found.written or found.request).components[0].processors == 6
    assert sorted((each.cluster, each.processors) for each in found.present) != []
    assert sum(each.processors for each in found.present) == 6
    assert all(each.request.most is each.request.least is None for each in found.present)
    check(game)


def test_a_job_for_which_no_group_has_all_takes_what_the_largest_group_has() -> None:
    game = Play()
    game.measure(alpha=28, beta=12, gamma=12)
    job = game.submit(component(16, requirements=LINUX, spread=True, most=16, least=4))
    answer(game, {"alpha": None, "beta": None, "gamma": None})
    assert sum(each.processors for each in game.job(job).present) == 12
    written = game.job(job).written
    assert written is not None
    assert written.components[0].processors == 16
    assert [line for line in game.history if line.kind == "job_lowered"] == []
    check(game)


def test_a_job_that_is_tried_again_is_divided_anew() -> None:
    game = Play()
    job = spread(game, 40, alpha=2.0, beta=1.0)
    game.run(job)
    lost = Reason("lost", "transient", "A node died.", "")
    game.end(game.attempts(job)[0], None, "killed", reason=lost)
    game.obey()
    for attempt in game.attempts(job):
        game.end(attempt)
    game.obey()
    found = game.job(job)
    assert found.completion_failures == 1
    assert found.choices[0].refused is None
    assert len(found.request.components) == 2
    check(game)


def test_a_held_job_forgets_its_choices() -> None:
    game = Play()
    job = spread(game, 40, alpha=2.0, beta=1.0)
    game.apply(HoldRequested(job))
    game.obey()
    found = game.job(job)
    assert (found.state, found.choices, found.written) == (JobState.HELD, (), None)
    assert len(found.request.components) == 1
    game.apply(ReleaseRequested(job))
    answer(game, {"alpha": 2.0, "beta": 1.0})
    assert clusters_of(game, job) == ["alpha", "beta"]


def test_a_cancelled_group_leaves_nothing() -> None:
    game = Play()
    job = spread(game, 40, alpha=2.0, beta=1.0)
    game.apply(CancelRequested(job))
    game.obey()
    assert game.job(job).state is JobState.CANCELLED
    check(game)


def test_an_expression_that_cannot_be_evaluated_fails_its_job_alone() -> None:
    game = Play()
    bad, good = game.submit(component(4, requirements="other.A")), game.submit(component(4))
    answer(game, {}, COSTLY)
    assert (game.job(bad).state, game.job(bad).reason) == (JobState.FAILED, COSTLY)
    assert game.job(good).state is JobState.CLAIMING


def test_a_job_waits_while_nothing_can_compare_and_is_asked_about_again() -> None:
    game = Play()
    job = game.submit(component(4, requirements=LINUX))
    answer(game, {}, MISSING)
    assert game.job(job).state is JobState.WAITING
    assert [each.reason for each in game.engine.explain(game.now, job)] == [MISSING] * 3
    game.measure(alpha=1)
    answer(game, {"beta": None})
    assert clusters_of(game, job) == ["beta"]


def test_explain_names_the_attribute_that_a_cluster_does_not_have() -> None:
    game = Play()
    job = game.submit(component(4, requirements='other.Colour == "red"'))
    answer(game, {})
    lacks = game.engine.explain(game.now, job)
    assert [each.cluster for each in lacks] == ["alpha", "beta", "gamma"]
    assert lacks[0].reason.message == "it has no Colour, so the requirements are not met."


def test_explain_states_that_no_cluster_suits_or_that_no_group_is_large_enough() -> None:
    game = Play()
    job = game.submit(component(4, requirements=LINUX))
    answer(game, {})
    found = explain(game.engine, game.now, game.job(job), worst_fit)
    assert summary(found) == "It waits: no cluster meets the requirements of component 0 now."
    game.measure(alpha=20, beta=10, gamma=10)
    spread_out = game.submit(component(40, rank=RANK, spread=True))
    for _ in range(2):
        answer(game, {"alpha": 1.0, "beta": 1.0})
    found = explain(game.engine, game.now, game.job(spread_out), worst_fit)
    assert summary(found).startswith("It waits: no group of clusters has 40 idle processors for it now.")
    assert "could give 8 processors of 40." in [each.reason.message for each in found.lacks]


def test_a_named_cluster_that_does_not_suit_is_not_taken() -> None:
    game = Play()
    job = game.submit(component(4, "beta", requirements=LINUX))
    answer(game, {"alpha": None})
    assert game.job(job).state is JobState.WAITING


def test_components_of_one_job_each_get_a_cluster_that_suits() -> None:
    game = Play()
    job = game.submit(component(4, rank=RANK), component(4, requirements=LINUX), component(4))
    for each in [*question_of(game).questions]:
        ranks = {"beta": 5.0, "gamma": 1.0} if each.job.rank else {"gamma": None}
        game.apply(AdsCompared((_answer(each, dict(ranks), None),)))
    assert clusters_of(game, job)[:2] == ["beta", "gamma"]


def test_other_jobs_pass_one_that_no_cluster_suits() -> None:
    game = Play()
    game.submit(component(4, requirements=LINUX))
    answer(game, {})
    job = game.submit(component(4))
    assert game.job(job).state is JobState.CLAIMING


def test_nothing_is_known_of_a_cluster_that_has_left() -> None:
    game = Play()
    game.submit(component(4, requirements=LINUX))
    game.apply(ClusterLeft(name="beta"))
    answer(game, {})
    assert "beta" not in game.engine.core.matching.clusters


def test_an_old_answer_counts_for_a_while_and_then_no_more() -> None:
    game, matching = Play(), Matching()
    clusters = game.engine.core.information.clusters
    matching.look(clusters, game.engine.summaries(game.now))
    job = JobAd(LINUX, "", 1, 1)
    (question,) = matching.questions([job])
    matching.take(game.now, [_answer(question, {"alpha": None}, None)])
    game.measure(alpha=1)
    matching.look(clusters, game.engine.summaries(game.now))
    found = matching.compared(game.now, job, "alpha")
    assert isinstance(found, Match)
    later = type(game.now)(game.now + 2 * MINUTE)
    assert isinstance(matching.compared(later, job, "alpha"), Reason)
    assert isinstance(matching.compared(later, job, "gamma"), Match)  # its ad is still the same


def test_an_answer_that_was_too_old_counts_again_once_it_is_confirmed() -> None:
    game = Play()
    game.measure(alpha=28, beta=16, gamma=16)
    job = game.submit(component(8, requirements=LINUX))
    answer(game, {"alpha": None})
    game.apply(after=Duration(2 * MINUTE))
    game.measure(beta=16, gamma=16)
    for _ in range(2):  # about what was known before the measurement, and after it
        answer(game, {"alpha": None})
    assert clusters_of(game, job) == ["alpha"]


def test_what_is_asked_is_forgotten_with_the_last_job_that_asks() -> None:
    game = Play()
    job = game.submit(component(4, requirements=LINUX))
    assert list(game.engine.core.queue.ads) == [JobAd(LINUX, "", 4, 4)]
    game.apply(CancelRequested(job))
    assert game.engine.core.queue.ads == {}


def test_an_answer_nobody_waits_for_changes_nothing() -> None:
    game = Play()
    job = JobAd("other.A", "", 1, 1)
    game.apply(AdsCompared((Answer(job, (Match(ClusterAd("nowhere", ()), Verdict.MATCH),)),)))
    game.apply(WorkSubmitted(request=make(component(4)), owner="me"))
    assert len([each for each in game.pending if isinstance(each, SubmitAttempt)]) == 1


def test_other_jobs_pass_one_freely_for_which_the_clusters_that_suit_are_too_small() -> None:
    game = Play(replace(Play().settings, max_overtakes=0))
    large = game.submit(component(20, requirements=LINUX), component(16, requirements=LINUX))
    answer(game, {"alpha": None})
    job = game.submit(component(4))
    assert game.job(job).state is JobState.CLAIMING
    assert (game.job(large).state, game.job(large).overtaken) == (JobState.WAITING, 0)
