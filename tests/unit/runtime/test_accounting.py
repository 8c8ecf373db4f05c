"""Spans of batch jobs: read from Slurm's and Grid Engine's own output, and asked for until all are known."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from koalapy_adapters.batch import sge, slurm
from koalapy_adapters.batch.protocol import BatchSettings, JobSpan
from koalapy_adapters.errors import BatchError, Result
from koalapy_adapters.messages import kcm

from koalapy.driver.driver import Delivery
from koalapy.model.errors import TransientError
from koalapy.model.events import AttemptsAccounted
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import SECOND, Instant
from koalapy.model.usage import Kind, Usage
from koalapy.runtime.accounting import Accounting

STORE = InstanceId("ab123")
NOW = Instant(1_900_000_000 * SECOND)


def output(stdout: str, stderr: str = "", status: int = 0) -> Result:
    return Result(["squeue"], status, stdout, stderr)


def test_slurm_reports_spans_of_jobs_that_ran_and_ended() -> None:
    """Not of one that runs, nor of one that was cancelled while it waited; a name may hold a line break."""
    listed = (
        "11|COMPLETED|4|1900000000|1900000100|kab12300e000001 \n"
        "12|RUNNING|4|1900000000|1900009999|kab12300e000002 \n"
        "13|CANCELLED|4|N/A|1900000100|kab12300e000003 \n"
        "14|TIMEOUT|2K|1900000000|1900000060|x\n15|COMPLETED\n"
    )
    found = slurm.parse_account(output(listed))
    assert found == [
        JobSpan("11", "kab12300e000001", 1_900_000_000, 1_900_000_100, 4),
        JobSpan("14", "x", 1_900_000_000, 1_900_000_060, 2048),
    ]
    accounted = "11|CANCELLED by 1000|4|1900000000|1900000100|kab12300e000001\n"
    assert slurm.parse_account(output(accounted))[0].ended_s == 1_900_000_100


@pytest.mark.parametrize(
    "words", ["slurm_load_jobs error: Invalid job id specified", "Slurm accounting storage is disabled"]
)
def test_slurm_that_knows_nothing_reports_nothing(words: str) -> None:
    assert slurm.parse_account(output("", words, 1)) == []


def test_an_accounting_that_fails_is_reported() -> None:
    with pytest.raises(BatchError):
        slurm.parse_account(output("", "Unable to contact slurm controller", 1))
    with pytest.raises(BatchError):
        sge.parse_account(output("", "error: commlib error: got select error", 1))


def test_grid_engine_reports_spans_by_the_wall_clock_of_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        found = sge.parse_account(output(QACCT))
        argv = sge.account_argvs(BatchSettings(user="mona", instance=STORE), ["45"], 1_795_242_241)[0]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == [JobSpan("45", "kab12300e000001", 1_795_242_241, 1_795_242_245, 2)]
    assert argv[-4:] == ["-j", "kab123*", "-b", "202611211154.01"]
    assert sge.parse_account(output("", "error: job name kab123* not found", 1)) == []


QACCT = """\
==============================================================
jobname      kab12300e000001
jobnumber    45
start_time   Sat Nov 21 11:54:01 2026
end_time     Sat Nov 21 11:54:05 2026
slots        2
failed       0
==============================================================
jobname      kab12300e000002
jobnumber    46
start_time   -/-
end_time     -/-
slots        2
failed       26
==============================================================
jobname      kab12300e000001
jobnumber    45
start_time   Sat Nov 21 11:54:02 2026
end_time     Sat Nov 21 11:54:03 2026
slots        2
pe_taskid    1.gamma-c3
failed       0
"""


def used(number: int, cluster: str = "vu") -> Usage:
    return Usage(
        attempt=AttemptId(JobId(number), 0, 1),
        owner="mona",
        charged=JobId(number),
        name="a",
        cluster=cluster,
        processors=4,
        kind=Kind.RUN,
        started_at=Instant(NOW - 100 * SECOND),
        released_at=Instant(NOW - 90 * SECOND),
        ended_at=Instant(NOW - 10 * SECOND),
        batch_id=str(number),
    )


class Clusters:
    """The clusters that can be asked, and what they know. The head's clock is 7 s behind."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.known: set[str] = set()
        self.has_accounting = self.up = True

    def ask(self, cluster: str, request: Callable[[int], Any], timeout_s: float) -> kcm.Done:
        message = request(1)
        self.asked.append((cluster, [batch_id for _, batch_id in message.jobs]))
        if not self.up:
            raise TransientError("not_connected", "It is out of reach.", "Wait.")
        clock = NOW - 7 * SECOND
        spans = [
            [tag, clock - 101 * SECOND, clock - 9 * SECOND, 4]
            for tag, batch_id in message.jobs
            if batch_id in self.known
        ]
        return kcm.Done(1, details={"has_accounting": self.has_accounting, "clock": clock, "spans": spans})


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


class Koalad:
    def __init__(self, clusters: Clusters, *entries: Usage) -> None:
        self.entries, self.elapsed, self.delivered = list(entries), 0.0, []  # type: ignore[var-annotated]
        self.accounting = Accounting(
            STORE, lambda since: self.entries, clusters.ask, self.deliver, lambda: NOW, lambda: self.elapsed
        )

    def deliver(self, delivery: Delivery) -> None:
        (event,) = delivery.events
        assert isinstance(event, AttemptsAccounted)
        self.delivered.append(event)
        ended = {span.attempt for span in event.spans}
        self.entries = [replace(each, accounted=each.accounted or each.attempt in ended) for each in self.entries]

    def look(self, after_s: float = 0) -> None:
        self.elapsed += after_s
        self.accounting.look()


def test_all_that_is_not_known_is_asked_for_at_once_by_koalads_clock(clusters: Clusters) -> None:
    koalad = Koalad(clusters, used(1), used(2), used(3, "delft"))
    clusters.known = {"1", "2"}
    koalad.look()
    assert clusters.asked == [("vu", ["1", "2"]), ("delft", ["3"])]
    (event,) = koalad.delivered
    assert [(span.started_at, span.ended_at) for span in event.spans] == [(NOW - 101 * SECOND, NOW - 9 * SECOND)] * 2
    koalad.look(60)
    assert clusters.asked[2:] == [("delft", ["3"])]


def test_what_is_not_found_is_asked_for_ever_more_seldom_and_what_is_new_soon(clusters: Clusters) -> None:
    koalad = Koalad(clusters, used(1))
    for _ in range(3600):
        koalad.look(1)
    assert len(clusters.asked) < 10
    koalad.entries.append(used(2))
    koalad.look()
    koalad.look(16)
    assert clusters.asked[-1] == ("vu", ["1", "2"])


def test_a_cluster_out_of_reach_is_asked_again(clusters: Clusters) -> None:
    koalad = Koalad(clusters, used(1))
    clusters.up, clusters.known = False, {"1"}
    koalad.look()
    clusters.up = True
    koalad.look(60)
    assert koalad.delivered[0].spans[0].attempt == used(1).attempt


def test_a_batch_system_without_accounting_is_asked_once(clusters: Clusters) -> None:
    koalad = Koalad(clusters, used(1))
    clusters.has_accounting = False
    for _ in range(100):
        koalad.look(600)
    assert len(clusters.asked) == 1


def test_spans_of_what_was_not_asked_for_are_left_out(clusters: Clusters) -> None:
    def lie(cluster: str, request: Callable[[int], Any], timeout_s: float) -> kcm.Done:
        tag = tag_of(STORE, used(2).attempt)
        return kcm.Done(1, details={"has_accounting": True, "clock": NOW, "spans": [[tag, 1, 2, 3]]})

    clusters.ask = lie  # type: ignore[method-assign]
    koalad = Koalad(clusters, used(1))
    koalad.look()
    assert koalad.delivered == []
