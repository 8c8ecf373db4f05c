"""Sweeps in the engine: nodes that grow and shrink, parameters that are fed, done, and back again."""

from engine_play import INSTANCE, SIZES, Play, alike, check, component, grid, make

from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.commands import CancelComponent, FeedSweep, SubmitComponent, TrustLauncher, Word
from koalapy.model.events import (
    CancelRequested,
    ClusterConnected,
    ClusterMeasured,
    HoldRequested,
    JobSubmitted,
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    ReleaseRequested,
)
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId, tag_of
from koalapy.model.intervals import Intervals
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Scavenging, Settings
from koalapy.model.states import JobState
from koalapy.model.sweep import Axis, ParameterResult, Runner, Source, Space
from koalapy.model.units import SECOND, Duration, Instant

NODE = 4


class SweepPlay(Play):
    """Clusters of nodes of four. `busy`: local jobs' nodes; `lacking`: processors that local jobs wait for."""

    def __init__(self, **settings: object) -> None:
        self.busy: dict[str, int] = {}
        self.lacking: dict[str, int] = {}
        self.words: list[Word] = []
        clusters = tuple(ClusterSettings(name=name, batch="slurm", processors_per_node=NODE) for name in SIZES)
        super().__init__(Settings(clusters=clusters, **settings))  # type: ignore[arg-type]

    def measurement(self, cluster: str, others: int = 0, pending: object = ()) -> ClusterMeasured:
        nodes = self.busy.get(cluster, 0)
        found = super().measurement(cluster, others + nodes * NODE).state
        free = found.idle // NODE
        wanted = self.lacking.get(cluster, 0)
        state = {name: getattr(found, name) for name in ClusterState.__dataclass_fields__}
        state |= {"free_nodes": ((NODE, free),) if free else (), "wanted_local": wanted, "waiting_local": bool(wanted) * 1}
        return ClusterMeasured(cluster=cluster, state=ClusterState(**state))

    def sweep(self, count: int = 100, **fields: object) -> JobId:
        axis = Axis(sources=(Source(names=("x",), loop=("1", str(count), "1")),), count=count)
        template = ComponentRequest(processors=1, executable="./program", arguments=("{x}",))
        self.tell(JobSubmitted(request=make(template, parameters=Space(axes=(axis,)), **fields), owner="me"))
        return max(job for job in self.jobs if job < FIRST_LAUNCHER)

    def launchers(self, sweep: JobId, cluster: str | None = None) -> list[Job]:
        """Those that are not over."""
        return [
            job
            for job in self.jobs.values()
            if job.glide and job.glide.sweep == sweep and not job.state.final
            if cluster in (None, job.components[0].cluster)
        ]

    def runner(self, sweep: JobId) -> Runner:
        runner = self.job(sweep).runner
        assert runner is not None
        return runner

    def start(self, *launchers: Job) -> None:
        for launcher in launchers:
            self.run(launcher.id)


def test_a_sweep_grows_on_every_idle_node() -> None:
    play = SweepPlay()
    sweep = play.sweep(1000)
    assert play.job(sweep).state is JobState.RUNNING
    assert {name: len(play.launchers(sweep, name)) for name in SIZES} == {"alpha": 8, "beta": 4, "gamma": 4}
    submits = [each for each in play.pending if isinstance(each, SubmitComponent)]
    assert all(each.lowest and each.launcher and each.launcher.slots == NODE for each in submits)
    assert {each.request.processors for each in submits} == {NODE}
    assert min(each.attempt.job for each in submits) == FIRST_LAUNCHER
