"""The examination of several clusters of a grid at once, each on its own thread.

koalad's maintenance has a quick one, without a batch job and without a person.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from koalapy_adapters.connections.asking import Asker
from koalapy_adapters.isolation.options import Isolation

from koalapy.config import GridFile
from koalapy.config.convert import cluster_config
from koalapy.doctor.checks import CHECKS, QUICK, TITLES, Check, Finding, Report
from koalapy.doctor.examination import Began, Ended, Examination
from koalapy.doctor.examiner import ExaminedCluster
from koalapy.model.errors import TransientError
from koalapy.runtime.cluster_link.connect import connection_of

_CLEANING_S = 240.0
_AT_MOST = {"poll": 2.0, "orphan_timeout": 30.0, "grace": 5.0}  # upper bounds, for a short examination
_POLL_S = 0.1
_ASK = frozenset({"asks", "answer_refused"})  # errors of a login that needs a person


class Doctor:
    """Examines these clusters of the grid. `began` and `ended` are called for each check, by several threads.

    `asker` passes on a login's questions; without one, no question is answered. `checks` includes the checks that its
    own checks depend on.
    """

    def __init__(
        self,
        grid: GridFile,
        clusters: Iterable[str],
        patience_s: float,
        began: Began,
        ended: Ended,
        asker: Asker | None = None,
        checks: Sequence[Check] = CHECKS,
    ) -> None:
        patients = [_cluster(grid, name, patience_s, asker) for name in clusters]
        self._examinations = [Examination(cluster, began, ended, checks) for cluster in patients]
        self._ended = [threading.Event() for _ in patients]
        self._reports: dict[int, Report] = {}
        self._threads = [
            threading.Thread(target=self._examine, args=(number,), name=f"examine-{cluster.name}", daemon=True)
            for number, cluster in enumerate(patients)
        ]

    def run(self) -> Sequence[Report]:
        """Examine the clusters, and return their reports. Blocks.

        After a KeyboardInterrupt the caller must call `interrupt`. The threads are not joined: a join that is
        interrupted counts the thread as ended (CPython's issue 89437).
        """
        for thread in self._threads:
            thread.start()
        for ended in self._ended:
            ended.wait()
        return self.reports

    def interrupt(self) -> None:
        """End the examination. Blocks until nothing is left on any cluster, 240 s at most."""
        for examination in self._examinations:
            examination.interrupt()
        deadline = time.monotonic() + _CLEANING_S
        for number, thread in enumerate(self._threads):
            if not self._examinations[number].may_leave_something:
                continue  # its login may wait for an answer that the person does not give
            if thread.ident is not None and not self._ended[number].wait(max(0.0, deadline - time.monotonic())):
                self._reports[number] = self._examinations[number].unended()

    @property
    def reports(self) -> Sequence[Report]:
        """The reports of the examinations that have ended, in the order of the grid file."""
        return [self._reports[number] for number in sorted(self._reports)]

    def _examine(self, number: int) -> None:
        try:
            self._reports[number] = self._examinations[number].run()
        finally:
            self._ended[number].set()


def _cluster(grid: GridFile, name: str, patience_s: float, asker: Asker | None) -> ExaminedCluster:
    config = cluster_config(grid, name)
    config |= {key: min(config[key], most) for key, most in _AT_MOST.items()}
    return ExaminedCluster(name, config, connection_of(grid.clusters[name], asker), patience_s, _lent(grid, name))


def _lent(grid: GridFile, name: str) -> Isolation | None:
    """Return how programs are isolated on what this site lends of the cluster; None if it lends nothing of it."""
    lend = grid.site.lend if grid.site is not None else None
    if lend is None or (lend.clusters and name not in lend.clusters):
        return None
    return Isolation(lend.isolation.value, list(lend.visible))


def examine_quickly(grid: GridFile, ending: threading.Event) -> dict[str, list[str]]:
    """Examine all clusters of the grid side by side. Returns sentences on what is wrong, by cluster.

    A cluster whose login asks a person is left out: koalad's own connection shows whether it works. Blocks until
    nothing is left on any cluster. Raises TransientError if `ending` is set before the end.
    """
    doctor = Doctor(grid, grid.clusters, 0.0, lambda *_: None, lambda *_: None, checks=QUICK)
    runner = threading.Thread(target=doctor.run, name="examine", daemon=True)
    runner.start()
    while runner.is_alive():
        if ending.wait(_POLL_S):
            doctor.interrupt()
            raise TransientError("ending", "koalad ended before all was examined.", "The next run examines again.")
    return {report.cluster: wrong for report in doctor.reports if (wrong := list(_wrong(report)))}


def _wrong(report: Report) -> Iterator[str]:
    for finding in report.findings:
        if finding.failure is not None and not (finding.check == "login" and finding.failure.code in _ASK):
            yield _sentences(finding)
    yield from (f"{left[0].upper()}{left[1:]} is left behind." for left in report.left)


def _sentences(finding: Finding) -> str:
    assert finding.failure is not None
    return f"{TITLES[finding.check]}: {finding.failure.cause} {finding.failure.change}".strip()
