"""The quick part of the examination, for koalad's maintenance: without a batch job, and without a person."""

import threading
from collections.abc import Iterator

from koalapy.config import GridFile
from koalapy.doctor.checks import QUICK, TITLES
from koalapy.doctor.doctor import Doctor
from koalapy.doctor.findings import Finding, Report
from koalapy.model.errors import TransientError

_LOOK_S = 0.1
_ASK = frozenset({"asks", "answer_refused"})  # errors of a login that needs a person


def examine_quickly(grid: GridFile, ending: threading.Event) -> dict[str, list[str]]:
    """Examine all clusters of the grid side by side. Returns sentences on what is wrong, by cluster.

    A cluster whose login asks a person is left out: koalad's own connection shows whether it works. Blocks until
    nothing is left on any cluster. Raises TransientError if `ending` is set before the end.
    """
    doctor = Doctor(grid, grid.clusters, 0.0, lambda *_: None, lambda *_: None, checks=QUICK)
    runner = threading.Thread(target=doctor.run, name="examine", daemon=True)
    runner.start()
    while runner.is_alive():
        if ending.wait(_LOOK_S):
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
