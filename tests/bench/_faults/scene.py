"""The work that a fault strikes: a co-allocated job, jobs of one component, and one that waits."""

from dataclasses import dataclass

from _faults.judging import ONE
from _faults.koalad import Koalad
from _faults.programs import held_up, hold, let_go, program

PROCESSORS = 8  # of a component of the co-allocated job: two whole nodes
SINGLE = 4


@dataclass(slots=True)
class Scene:
    """The running jobs and their clusters. `job` is the co-allocated one."""

    koalad: Koalad
    cluster: str  # that is struck
    over: tuple[str, ...]
    job: int = 0
    others: tuple[int, ...] = ()
    node: str = ""  # that is struck, where one is

    def submit(self, seconds: float, moment: str) -> None:
        """Others first, so that they run already; the one that wants the whole cluster waits for all of them.

        Until `let_go` no program ends, and where the fault is to strike before the release, one component is late.
        """
        hold(self.koalad.testgrid, {*self.over, self.cluster})
        late = self.over[0] if moment == "barrier" else None
        components = [
            program(PROCESSORS, seconds, cluster=name, setup=[held_up()] if name == late else []) for name in self.over
        ]
        single = program(SINGLE, seconds, cluster=self.cluster)
        self.others = (self.koalad.submit(single),)
        self.job = self.koalad.submit(*components)
        whole = self.koalad.cluster(self.cluster)["total"]
        assert whole is not None
        self.others += (self.koalad.submit(program(whole, 2, cluster=self.cluster, launch="once"), name=ONE),)

    def reach(self, moment: str) -> None:
        """Wait until the co-allocated job has come to that moment."""
        reached = {"claiming": self._claims, "barrier": self._at_barrier, "running": self._runs}[moment]
        self.koalad.until(reached, f"job {self.job} is {moment}")

    def let_go(self) -> None:
        let_go(self.koalad.testgrid, {*self.over, self.cluster})

    def hosts(self) -> list[str]:
        """The nodes of its component on the cluster that is struck, the wrapper's first."""
        return list(self.koalad.component(self.job, self.cluster)["hosts"])

    def batch_id(self) -> str:
        return str(self.koalad.component(self.job, self.cluster)["batch_id"])

    def _claims(self) -> bool:
        """Or was so a moment ago: it runs until it is let go."""
        return self.koalad.job(self.job)["state"] != "waiting"

    def _at_barrier(self) -> bool:
        return any(each["state"] == "at_barrier" for each in self.koalad.job(self.job)["components"])

    def _runs(self) -> bool:
        """All programs of one try run, those of the jobs of one component too."""
        found = self.koalad.grid.jobs(ids=[self.job, self.others[0]])
        return all(job["started_at"] and job["state"] == "running" for job in found)
