"""Capacity of a batch system beside others' jobs, and how our jobs give way to theirs."""

import pytest

from koalapy_adapters.batch.protocol import QUEUED, RUNNING, Capacity
from koalapy_adapters.contract.live import Live, refusal
from koalapy_adapters.contract.target import LOWEST
from koalapy_adapters.messages.kcm import Refused

# ---- capacity --------------------------------------------------------------------------------------------------------


def test_each_processor_is_counted_once_under_others_load(live: Live) -> None:
    before = live.until(lambda: quiet(live))
    assert sum(size * nodes for size, nodes in before.whole_nodes) == before.idle
    with live.load(2, live.others, **named(live)), live.load() as ours:
        under = live.until(lambda: counted(live.batch.capacity()))
        assert under.total == before.total
        assert under.idle == before.idle - under.ours - under.others
        assert sum(free * nodes for free, nodes in under.free_nodes) == under.idle
        assert sum(size * nodes for size, nodes in under.whole_nodes) < before.idle - 2
        assert under.statuses[ours].state == RUNNING
        assert under.allocated.count(under.statuses[ours].name) == 1
    assert live.until(lambda: quiet(live)).idle == before.idle


def test_a_neighbour_that_waits_is_counted_and_ours_is_not(live: Live) -> None:
    total = live.until(lambda: quiet(live)).total
    with live.load():
        theirs = live.submit(live.job("true", whose=live.others, processors=total, **named(live)), live.others)
        mine = live.submit(live.job("true", processors=total))
        seen = live.until(lambda: waiting(live.batch.capacity()))
        assert (seen.waiting_local, len(seen.pending)) == (1, 1)
        assert not seen.others_hidden
        assert seen.wanted_local > seen.idle
        live.others.cancel(theirs)
        live.until(lambda: not live.batch.capacity().waiting_local)
        assert live.batch.capacity().wanted_local == 0
        live.batch.cancel(mine)


def test_a_fingerprint_changes_with_a_waiting_neighbour_and_not_with_ours(live: Live) -> None:
    """A dialect without fingerprints passes."""
    total = live.until(lambda: quiet(live)).total
    with live.load():
        mine = live.submit(live.job("true", processors=total))
        live.until(lambda: live.batch.capacity().pending)
        before = live.batch.queue_fingerprint()
        if before is None:
            live.batch.cancel(mine)
            return
        theirs = live.submit(live.job("true", whose=live.others, processors=total, **named(live)), live.others)
        live.until(lambda: live.batch.capacity().waiting_local)
        seen = live.batch.queue_fingerprint()
        assert seen != before
        live.batch.cancel(mine)
        live.until(lambda: not live.batch.capacity().pending)
        assert live.batch.queue_fingerprint() == seen
        live.others.cancel(theirs)
        live.until(lambda: not live.batch.capacity().waiting_local)
        assert live.batch.queue_fingerprint() == before


# ---- manners ---------------------------------------------------------------------------------------------------------


def test_the_lowest_is_behind_whoever_came_later(live: Live) -> None:
    """The batch system may refuse instead, with its reason: then no pilot of a sweep waits there."""
    total = live.until(lambda: quiet(live)).total
    first = live.job("true", lowest=True)
    error = refusal(lambda: live.until_ended(live.submit(first)))
    if error is not None:
        assert (error.whose, bool(error.message), bool(error.advice)) == ("request", True, True), error
        return
    if LOWEST in live.target.refuses:
        pytest.skip("the target states that it starts jobs of the lowest priority before others (--refuses lowest)")
    with live.load(total, live.others, **named(live)):
        job = live.job("exec sleep 600", processors=total, lowest=True)
        live.submit(job)
        later = live.job("exec sleep 600", whose=live.others, processors=total, **named(live))
        theirs = live.submit(later, live.others)
        live.until(lambda: live.batch.capacity().waiting_local)
    live.until(lambda: live.state(theirs, live.others) == RUNNING)
    found = live.batch.look(job.tag).listed
    assert found is not None
    assert (found.state, found.stuck) == (QUEUED, "")
    live.others.cancel(theirs)
    live.until(lambda: live.state(found.batch_id) == RUNNING)


def test_a_host_is_avoided_or_that_is_refused_in_words(live: Live) -> None:
    """The host is named as the batch system names it, which the wrapper reports."""
    tag = live.attempt("true")
    host = live.kcm.played(tag).nodes[0][0]
    live.kcm.clear(tag)
    answer = live.requested("true", avoid=[host])
    if isinstance(answer, Refused):
        assert (answer.error["whose"], bool(answer.error["message"])) == ("request", True), answer
        return
    assert live.kcm.played(answer.tag).nodes[0][0] != host


# ---- below -----------------------------------------------------------------------------------------------------------


def named(live: Live) -> dict[str, str]:
    """Fields of BatchJob that make a job another user's."""
    return {} if live.target.neighbour else {"name": "somebody"}


def quiet(live: Live) -> Capacity | None:
    """Return the capacity if no job of earlier tests is left, else None.

    A batch system may list its nodes before its jobs, so that a node becomes idle in between. Therefore it is asked
    once more.
    """
    seen = live.batch.capacity()
    busy = seen.ours or seen.others or seen.pending or seen.waiting_local
    return None if busy else live.batch.capacity()


def counted(capacity: Capacity) -> Capacity | None:
    """Return the capacity if it shows both loads, else None.

    With two threads a core, a job of one processor takes both.
    """
    return capacity if capacity.ours >= 1 and capacity.others >= 2 else None


def waiting(capacity: Capacity) -> Capacity | None:
    """Return the capacity if a job of ours and one of others wait, else None."""
    return capacity if capacity.waiting_local and capacity.pending else None
