"""A dialect and its batch system, by the KCM's own running of commands: plain jobs, without a wrapper."""

import re
from contextlib import suppress
from typing import Any

import pytest

from koalapy_adapters.batch.protocol import (
    CANCELLED,
    ENDED,
    EXITED,
    HELD,
    KILLED,
    LOST,
    QUEUED,
    RUNNING,
    JobStatus,
)
from koalapy_adapters.batch.text import is_tag
from koalapy_adapters.contract.live import Live, refusal
from koalapy_adapters.contract.remote_batch import RemoteBatch
from koalapy_adapters.contract.target import ACCOUNT, PROCESSORS, QUEUE, WALLTIME
from koalapy_adapters.errors import BatchError, ClusterError, RequestError
from koalapy_adapters.kcm.execution.batch_system import SubmitDoubt

# What a batch system without exit statuses reports: unknown. KCM and wrapper then know more.
_UNKNOWN = ((EXITED, None), (KILLED, None), (LOST, None), ("", None))
_TEN_YEARS_S = 10 * 365 * 86400


def test_it_has_a_version(live: Live) -> None:
    assert live.batch.describe().version


# ---- how jobs end ----------------------------------------------------------------------------------------------------


def test_an_exit_status_is_kept_or_unknown(live: Live) -> None:
    """It is never another status, and never an end without failure."""
    job = live.job("exit 3")
    for status in ended_statuses(live, job.tag, live.submit(job)):
        assert (status.name, status.state) == (job.tag, ENDED)
        assert (status.ending, status.exit_status) in ((EXITED, 3), *_UNKNOWN), status


def test_a_good_end_is_one_or_unknown(live: Live) -> None:
    job = live.job("true")
    for status in ended_statuses(live, job.tag, live.submit(job)):
        assert (status.ending, status.exit_status) in ((EXITED, 0), *_UNKNOWN), status


def test_a_signal_is_128_and_its_number_or_unknown(live: Live) -> None:
    job = live.job("kill -KILL $$")
    for status in ended_statuses(live, job.tag, live.submit(job)):
        assert (status.ending, status.exit_status) in ((KILLED, 128 + 9), (EXITED, 128 + 9), *_UNKNOWN), status


def test_a_running_job_that_is_cancelled_is_over_and_did_not_exit_well(live: Live) -> None:
    job = live.job("exec sleep 600")
    batch_id = live.submit(job)
    live.until(lambda: live.state(batch_id) == RUNNING)
    live.batch.cancel(batch_id)
    for status in ended_statuses(live, job.tag, batch_id):
        assert status.ending in (CANCELLED, KILLED, EXITED, LOST, ""), status
        assert status.exit_status != 0, status


def test_cancelling_what_is_over_or_never_was_is_no_error(live: Live) -> None:
    batch_id = live.submit(live.job("true"))
    live.until_ended(batch_id)
    live.batch.cancel(batch_id)
    live.batch.cancel(never(batch_id))


def test_what_was_never_there_is_unknown_and_not_ended(live: Live) -> None:
    """A job that never existed looks like one that the batch system has forgotten."""
    job = live.job("exec sleep 600")
    batch_id = live.submit(job)
    stranger = never(batch_id)
    assert live.batch.check(stranger).get(stranger) is None
    both = live.batch.check(stranger, batch_id)
    assert both.get(stranger) is None
    assert both[batch_id].name == job.tag
    assert live.batch.look(live.tag(), stranger) == (None, None)
    assert live.batch.look(live.tag()) == (None, None)
    live.batch.cancel(batch_id)


@pytest.mark.slow
def test_a_job_that_is_forgotten_was_ended_before_and_is_unknown_then(live: Live) -> None:
    """When the queue no longer lists the job, the accounting has its end, or nothing."""
    job = live.job("exit 3")
    batch_id = live.submit(job)
    live.until_ended(batch_id)
    live.until(lambda: not live.state(batch_id), live.target.remembers_s)
    for status in live.batch.look(job.tag, batch_id):
        assert status is None or (status.state, status.ending, status.exit_status) in (
            (ENDED, EXITED, 3),
            *((ENDED, *unknown) for unknown in _UNKNOWN),
        )


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_a_job_waits_is_held_goes_on_waiting_and_goes(live: Live) -> None:
    with live.load():
        whole = live.job("exec sleep 600", processors=live.batch.capacity().total)
        batch_id = live.submit(whole)
        found = live.batch.look(whole.tag).listed
        assert found is not None
        assert (found.batch_id, found.state, found.stuck) == (batch_id, QUEUED, "")
        assert whole.tag in live.batch.capacity().pending
        if live.batch.hold(batch_id):
            assert live.state(batch_id) in (HELD, QUEUED)  # Slurm's qstat calls a held job Q
            assert whole.tag in live.batch.capacity().pending
            assert live.batch.release(batch_id)
            live.until(lambda: live.state(batch_id) == QUEUED)
        live.batch.cancel(batch_id)
        for status in ended_statuses(live, whole.tag, batch_id):
            assert status.ending in (CANCELLED, LOST, ""), status


def test_only_a_job_that_waits_can_be_held(live: Live) -> None:
    batch_id = live.submit(live.job("true"))
    live.until_ended(batch_id)
    error = refusal(lambda: live.batch.hold(never(batch_id)) or pytest.skip("it holds no jobs"))
    assert error is None or (error.whose, error.code) == ("request", "not_waiting"), error


# ---- tags ------------------------------------------------------------------------------------------------------------


def test_a_tag_is_found_among_odd_neighbours(live: Live) -> None:
    """Names of other jobs begin with, end in, contain or imitate a tag of ours; users are others, or this one."""
    job = live.job("exec sleep 600")
    tag = job.tag
    names = [tag + "x", tag[:-1], "x" + tag, tag.upper(), tag[:10], f"{tag}|RUNNING|{tag}", tag.replace("k", "ķ", 1)]
    neighbours = [name for name in names if neighbour(live, name, live.others) and neighbour(live, name, live.batch)]
    assert len(neighbours) >= 3
    if live.target.neighbour:
        assert neighbour(live, tag, live.others)
    batch_id = live.submit(job)
    live.until(lambda: live.state(batch_id))
    assert (live.batch.look(tag).listed or nothing()).batch_id == batch_id
    capacity = live.batch.capacity()
    assert [status.batch_id for status in capacity.statuses.values() if status.name == tag] == [batch_id]
    assert all(is_tag(status.name) for status in capacity.statuses.values())
    assert all(is_tag(name) for name in (*capacity.allocated, *capacity.pending))
    for name in names[:3]:
        assert (live.batch.look(name).listed or nothing()).name in (name, ""), name


def test_an_array_is_somebody_elses(live: Live) -> None:
    if not live.target.array:
        pytest.skip("the target does not state how to make an array (--array)")
    job = live.job("exec sleep 600")
    if live.target.array.startswith("-"):
        array = live.job("exec sleep 10", name="array", native=[live.target.array])  # whose id is none of a job's
        with suppress(SubmitDoubt):
            live.submit(array)
    else:
        live.batch.output("sh", "-c", live.target.array)
    batch_id = live.submit(job)
    live.until(lambda: live.state(batch_id) == RUNNING)
    assert (live.batch.look(job.tag).listed or nothing()).batch_id == batch_id
    assert set(live.batch.capacity().statuses) >= {batch_id}
    live.batch.cancel(batch_id)


# ---- refusals --------------------------------------------------------------------------------------------------------

_REQUESTS: dict[str, dict[str, Any]] = {
    QUEUE: {"queue": "no-such-queue"},
    ACCOUNT: {"account": "no-such-account"},
    PROCESSORS: {"processors": 1_000_000},
    WALLTIME: {"walltime_s": _TEN_YEARS_S},
}


@pytest.mark.parametrize("what", _REQUESTS)
def test_what_can_never_run_is_refused_or_stuck(live: Live, what: str) -> None:
    """A refusal that the target promises is a RequestError, with message and advice, and leaves no batch job."""
    requested = dict(_REQUESTS[what])
    if what == PROCESSORS:
        requested["processors"] = 1000 * live.batch.capacity().total
    job = live.job("exec sleep 600", **requested)
    error = refusal(lambda: live.submit(job))
    if what in live.target.refuses:
        assert isinstance(error, RequestError), error
        assert error.message
        assert error.advice
        assert error.code not in ("unreadable_answer", "dialect_broken")
        assert live.batch.look(job.tag).listed is None
        return
    assert error is None or isinstance(error, (RequestError, ClusterError)), error
    found = live.batch.look(job.tag).listed
    assert error is not None or found is None or found.state in (QUEUED, HELD, RUNNING, ENDED)


# ---- below -----------------------------------------------------------------------------------------------------------


def ended_statuses(live: Live, tag: str, batch_id: str) -> list[JobStatus]:
    """Wait until a job has ended, and return its statuses from queue and accounting that show the end."""
    listed = live.until_ended(batch_id)
    found = live.batch.look(tag, batch_id)
    listings = [status for status in (listed, found.listed, found.accounted) if status is not None]
    assert all(status.batch_id == batch_id for status in listings), listings
    return [status for status in listings if status.state == ENDED]


def never(batch_id: str) -> str:
    """Return an id in the form of the batch system's ids, which it has never given."""
    return re.sub(r"\d+", "4999999", batch_id, count=1)


def nothing() -> JobStatus:
    return JobStatus("", "", "")


def neighbour(live: Live, name: str, whose: RemoteBatch) -> bool:
    """Submit a job of this name. Returns whether the batch system took it."""
    job = live.job("exec sleep 600", name=name, whose=whose)
    try:
        live.submit(job, whose)
    except (BatchError, SubmitDoubt):
        return False
    return True
