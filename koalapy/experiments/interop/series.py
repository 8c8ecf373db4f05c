"""Measures of an architecture from hour to hour, as in the SC'07 paper's figure 7."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.tally import YEAR, Kind
from koalapy.experiments.plan import Row
from koalapy.model.units import HOUR, Duration, Instant

COLUMNS = ("hour", "arrived", "started", "finished", "waiting", "running", "goodput", *Kind)


class Series:
    """Samples over time of one run, taken every `interval`. It is given every start and every sample of messages.

    `arrived`, `started`, `finished` and `goodput` count from the beginning, messages from the previous sample.
    """

    def __init__(self, interval: Duration) -> None:
        self.interval = interval
        self._looks: list[tuple[Instant, Counter[Kind]]] = []
        self._starts: list[Instant] = []
        self._ends: list[tuple[Instant, int]] = []  # (end, work of the job)

    def start(self, job: GridJob, now: Instant) -> None:
        self._starts.append(now)
        self._ends.append((Instant(now + job.runtime), job.processors * job.runtime))

    def look(self, now: Instant, messages: Counter[Kind]) -> None:
        """Take a sample. `messages`: all that were sent so far."""
        self._looks.append((now, messages.copy()))

    def rows(self, jobs: Sequence[GridJob]) -> list[dict[str, int | float]]:
        """Return a row for each sample. `jobs`: all jobs, in order of arrival."""
        arrivals = [job.arrived for job in jobs]
        starts, ends = sorted(self._starts), sorted(self._ends)
        work = [0]
        for _, each in ends:
            work.append(work[-1] + each)
        ended = [end for end, _ in ends]
        rows: list[dict[str, int | float]] = []
        before: Counter[Kind] = Counter()
        for at, messages in self._looks:
            arrived, started, finished = (bisect_right(times, at) for times in (arrivals, starts, ended))
            rows.append(
                {
                    "hour": at / HOUR, "arrived": arrived, "started": started, "finished": finished,
                    "waiting": arrived - started, "running": started - finished, "goodput": work[finished] / YEAR,
                    **{kind.value: messages[kind] - before[kind] for kind in Kind},
                }
            )  # fmt: skip
            before = messages
        return rows


def lasting(rows: Sequence[Row]) -> list[Row]:
    """Return all runs' rows, each run extended by its last one up to the last sample of any run."""
    runs: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        runs.setdefault(tuple(row[name] for name in ("architecture", "load", "set", "varied")), []).append(row)
    hours = sorted({float(row["hour"]) for row in rows})
    for run in runs.values():
        ended: Row = run[-1] | {kind.value: 0 for kind in Kind}
        run.extend(ended | {"hour": hour} for hour in hours if hour > float(ended["hour"]))
    return [row for run in runs.values() for row in run]
