"""Several sites in one simulated world: leases from request to end, while links break and koalads are killed."""

import pytest

from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import Reason
from koalapy.model.events import LeaseEndRequested
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.lease import Borrow, Lend
from koalapy.model.neighbour import Relation
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.random_sweeps import Parameter, sweep_of
from koalapy.world.sites import SimSites, SitePair

SITES = ("delft", "nl", "lyon")
SIZE = 16  # processors of the job: more than delft or nl has
STEPS = 40  # of a koalad, at least, from the job's submission to the end of its lease


class Chain:
    """delft borrows over nl, its parent, of lyon, which does not know it."""

    def __init__(self, seed: int = 1, dial: frozenset[str] = frozenset()) -> None:
        borrow = Borrow(
            after=Duration(5 * SECOND), idle=Duration(30 * SECOND), again=Duration(20 * SECOND), sweeps=True
        )
        between = Lend(to=("delft",), processors=64, pass_on=True, strangers=True)
        settings = {
            "delft": _grid("alpha", 2, borrow=borrow),
            "nl": _grid("gamma", 2, lend=between),
            "lyon": _grid("beta", 16, lend=Lend(to=("nl",), processors=64, strangers=True)),
        }
        pairs = [SitePair("delft", "nl", Relation.PARENT, dial), SitePair("nl", "lyon", Relation.CHILD, dial)]
        self.sites = SimSites(seed, settings, pairs)
        self.sites.run_for(Duration(30 * SECOND))
        self.worlds = self.sites.worlds

    def submit(self, runs: Duration = Duration(20 * SECOND)) -> None:
        program = arguments_of(Behaviour(runs=runs))
        component = ComponentRequest(
            processors=SIZE, executable=EXECUTABLE, arguments=program, walltime=Duration(runs + MINUTE)
        )
        assert self.worlds["delft"].koalad.submit(Request(name="large", components=(component,)))

    @property
    def job(self) -> Job:
        found = self.worlds["delft"].koalad.store.job(JobId(1))
        assert found is not None
        return found

    def until(self, state: JobState) -> None:
        for _ in range(1000):
            if self.worlds["delft"].koalad.accepted and self.job.state is state:
                return
            self.sites.run_for(Duration(SECOND))
        raise AssertionError(f"the job never was {state}, but is {self.job.state}")

    def places(self) -> set[str]:
        return {each.run.cluster for each in self.worlds["delft"].program_log.entries}

    def settle(self) -> None:
        """Everything comes to its end, and both ends of each link have one number for what was lent."""
        self.sites.end_faults()
        assert self.sites.settle(Duration(2 * HOUR)), (self.job, self.sites.left())
        for pair in self.sites.pairs:
            assert self.books(pair.one, pair.other) == self.books(pair.other, pair.one)[::-1]

    def books(self, site: str, neighbour: str) -> tuple[int, int]:
        engine = self.worlds[site].koalad.engine
        assert engine is not None
        record = engine.core.neighbours.records[neighbour]
        return record.lent, record.borrowed


def _grid(cluster: str, processors_per_node: int, **terms: object) -> Settings:
    clusters = (ClusterSettings(name=cluster, batch="slurm", processors_per_node=processors_per_node),)
    return Settings(clusters=clusters, **terms)  # type: ignore[arg-type]


@pytest.fixture
def chain() -> Chain:
    return Chain()


def test_a_job_larger_than_its_site_runs_over_a_chain_of_sites(chain: Chain) -> None:
    chain.submit()
    chain.settle()
    assert chain.job.state is JobState.DONE
    assert chain.places() == {"nl~1"}
    assert len(chain.sites.leases.uses) == 1
    lent, borrowed = chain.books("lyon", "nl")
    assert (borrowed, chain.books("nl", "delft")) == (0, (lent, 0))
    assert lent > SIZE * 20 * SECOND


@pytest.mark.parametrize("dial", [{"delft", "lyon"}, {"nl"}], ids=["both ends dial", "the site between dials"])
def test_a_link_stands_if_one_side_can_dial(dial: set[str]) -> None:
    chain = Chain(dial=frozenset(dial))
    chain.submit()
    chain.settle()
    assert chain.job.state is JobState.DONE


def test_a_short_cut_changes_nothing_for_the_job(chain: Chain) -> None:
    chain.submit(runs=Duration(3 * MINUTE))
    chain.until(JobState.RUNNING)
    for pair in chain.sites.pairs:
        chain.sites.network.cut(pair.one, pair.other, Duration(20 * SECOND))
    chain.sites.run_for(MINUTE)
    assert chain.job.state is JobState.RUNNING
    chain.settle()
    assert (chain.job.state, chain.job.completion_failures) == (JobState.DONE, 0)
    assert len(chain.sites.leases.uses) == 1


@pytest.mark.parametrize("cut", [("delft", "nl"), ("nl", "lyon")], ids="-".join)
def test_a_long_cut_ends_the_lease_and_the_job_gets_another_one(chain: Chain, cut: tuple[str, str]) -> None:
    chain.submit(runs=Duration(8 * MINUTE))
    chain.until(JobState.RUNNING)
    chain.sites.network.cut(*cut, Duration(6 * MINUTE))
    chain.sites.run_for(Duration(8 * MINUTE))
    chain.settle()
    assert (chain.job.state, chain.job.completion_failures) == (JobState.DONE, 1)
    assert [len(uses) for uses in chain.sites.leases.uses.values()] == [1, 1]


@pytest.mark.parametrize("step", range(1, STEPS, 3))
@pytest.mark.parametrize("site", SITES)
def test_any_koalad_may_be_killed_at_any_of_its_steps(site: str, step: int) -> None:
    chain = Chain()
    koalad = chain.worlds[site].koalad
    before = koalad.crash_point.steps
    chain.submit()
    koalad.crash_point.left = step
    for _ in range(600):
        chain.sites.run_for(Duration(SECOND))
        if not koalad.alive:
            break
    assert koalad.crash_point.steps - before == step
    assert not koalad.alive
    chain.sites.run_for(Duration(10 * SECOND))
    koalad.start()
    if not chain.worlds["delft"].koalad.store.load().jobs and not chain.worlds["delft"].koalad.accepted:
        chain.submit()  # koalad was killed before it had recorded the job
    chain.settle()
    assert chain.job.state is JobState.DONE
    assert all(len(uses) == 1 for uses in chain.sites.leases.uses.values())


def test_a_job_has_components_at_home_and_beyond_a_chain_of_sites(chain: Chain) -> None:
    program = arguments_of(Behaviour(runs=Duration(20 * SECOND)))
    components = tuple(
        ComponentRequest(processors=each, executable=EXECUTABLE, arguments=program, walltime=Duration(2 * MINUTE))
        for each in (2, SIZE)
    )
    assert chain.worlds["delft"].koalad.submit(Request(name="mixed", components=components, communication=False))
    chain.settle()
    assert chain.job.state is JobState.DONE
    assert chain.places() == {"alpha", "nl~1"}
    assert chain.books("delft", "nl")[1] < (SIZE + 2) * 5 * MINUTE


@pytest.mark.parametrize("ends", [False, True], ids=["to its end", "until it is taken back"])
def test_parameters_of_a_sweep_run_on_a_lease_and_each_has_one_result(chain: Chain, ends: bool) -> None:
    delft, count = chain.worlds["delft"], 20
    assert delft.koalad.submit(sweep_of([Parameter(Duration(50 * SECOND))] * count, MINUTE))
    chain.sites.run_for(Duration(40 * SECOND))
    tries = delft.program_log.parameters.tries
    running = {each.tag for each in tries if each.ended is None}
    if ends:
        reason = Reason("lease_ended", "request", "Its lender has taken it back.", "")
        chain.worlds["nl"].koalad.request(LeaseEndRequested(neighbour="delft", lease=1, lent=True, reason=reason))
    chain.settle()
    assert chain.places() >= {"alpha", "nl~1"}
    assert len(running) > 1
    sweep = delft.koalad.store.sweep(JobId(1))
    assert sweep is not None
    assert (sweep.state, len(sweep.done), len(sweep.failed)) == (JobState.DONE, count, 0)
    assert sorted(each.number for each in tries if each.done) == list(range(1, count + 1))
    assert (len(tries) > count) is ends
