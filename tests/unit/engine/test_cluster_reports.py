"""A cluster's reports decide at once what they allow: no waiting job waits for the next event."""

from engine_play import SIZES, UNREACHABLE, Play, component

from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import ClusterConnected, ClusterLost
from koalapy.model.settings import Settings
from koalapy.model.states import JobState


def test_a_list_of_choices_is_made_once_the_cluster_that_it_awaits_is_lost_unmeasured() -> None:
    play = Play()
    play.apply(ClusterConnected(cluster="gamma", version="22.05"))  # its last measurement is forgotten
    job = play.submit(component(8, spread=True))
    assert play.job(job).state is JobState.WAITING
    play.apply(ClusterLost(cluster="gamma", reason=UNREACHABLE))
    assert play.job(job).state is JobState.CLAIMING


def test_jobs_pass_one_that_waits_for_a_cluster_that_is_to_be_measured_anew() -> None:
    clusters = tuple(ClusterSettings(name=name, batch="slurm") for name in SIZES)
    play = Play(Settings(clusters=clusters, max_overtakes=0))
    play.measure(alpha=32)
    first = play.submit(component(4, cluster="alpha"))
    second = play.submit(component(4))
    assert [play.job(each).state for each in (first, second)] == [JobState.WAITING] * 2
    play.apply(ClusterConnected(cluster="alpha", version="22.05"))
    assert [play.job(each).state for each in (first, second)] == [JobState.WAITING, JobState.CLAIMING]
