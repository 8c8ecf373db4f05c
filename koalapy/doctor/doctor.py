"""All clusters of a grid side by side, each on a thread of its own."""

import threading
from collections.abc import Iterable, Sequence

from koalapy.config import GridFile
from koalapy.config.convert import cluster_config
from koalapy.doctor.examination import Began, Examination, Patient, Told
from koalapy.doctor.findings import Report
from koalapy.runtime.connect import connection_of

_POLL_S = 2.0  # a few seconds are enough for a visit, whatever the grid file says
_CLEANING_S = 120.0


class Doctor:
    """Examines these clusters of the grid. `began` and `told` are called by several threads."""

    def __init__(self, grid: GridFile, clusters: Iterable[str], patience_s: float, began: Began, told: Told) -> None:
        patients = [_patient(grid, name, patience_s) for name in clusters]
        self._examinations = [Examination(patient, began, told) for patient in patients]
        self._reports: dict[int, Report] = {}
        self._threads = [
            threading.Thread(target=self._examine, args=(number,), name=f"examine-{patient.name}", daemon=True)
            for number, patient in enumerate(patients)
        ]

    def run(self) -> Sequence[Report]:
        """Blocks. A KeyboardInterrupt may end it; `interrupt` is then to be called."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        return self.reports

    def interrupt(self) -> None:
        """End it, and wait until nothing is left on any cluster."""
        for examination in self._examinations:
            examination.interrupt()
        for thread in self._threads:
            thread.join(_CLEANING_S)

    @property
    def reports(self) -> Sequence[Report]:
        """Of those that are ended, in the order of the grid file."""
        return [self._reports[number] for number in sorted(self._reports)]

    def _examine(self, number: int) -> None:
        self._reports[number] = self._examinations[number].run()


def _patient(grid: GridFile, name: str, patience_s: float) -> Patient:
    config = cluster_config(grid, name)
    config |= {"poll": min(config["poll"], _POLL_S), "orphan_timeout": min(config["orphan_timeout"], _CLEANING_S)}
    return Patient(name, config, connection_of(grid.clusters[name]), patience_s)
